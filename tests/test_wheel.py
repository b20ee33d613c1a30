"""A new user's path, from the wheel as it is installed, in an empty environment: no source, no compiler, no network.

The packages that pclf needs are lent by the environment of the tests; pclf itself, and nothing else of this project, is
what the wheel holds.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import pclf

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="no source here")]

# Somebody's own files, with names of their own.
FILMS = "Reader;Film Title;Stars;Notes\n"
BOOKS = "reader\tisbn\tgrade\n"

SCRIPT = """
import pclf
model = pclf.load("model")
guest = model.fold_in({"films": {"Film 3": 5, "Film 4": 1}})
assert len(model.recommend("books", guest, n=3)) == 3
lists = model.recommend("books", ["reader 1", "nobody"], n=2, unknown="newcomer")
assert lists.to_arrow().num_rows == 4
model.update({"books": {"user_id": ["reader 1"], "item_id": ["080-99"], "rating": [7]}})
assert model.predict("books", "reader 1", "080-99")[0] >= 1
model.report("page.html")
print(pclf.__file__)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An empty environment with the wheel in it."""
    pytest.importorskip("hatchling", reason="the wheel is built with it")
    folder = tmp_path_factory.mktemp("new")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True,
                   capture_output=True)
    wheel, = folder.glob("*.whl")
    assert wheel.name.startswith(f"pclf-{pclf.__version__}-")
    venv.create(folder / "env", with_pip=False)
    inside = Path(subprocess.run([folder / "env" / "bin" / "python", "-c",
                                  "import sysconfig; print(sysconfig.get_path('purelib'))"],
                                 capture_output=True, text=True, check=True).stdout.strip())
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(inside)], check=True)
    lent = inside / "lent"                                    # everything but pclf, which may be an editable install
    lent.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "pclf" not in package.name:
            (lent / package.name).symlink_to(package)
    (inside / "lent.pth").write_text(f"{lent}\n")
    return folder


@pytest.mark.skipif(os.name == "nt", reason="environments are laid out in another way")
def test_a_new_user_gets_from_two_files_to_lists_a_refit_and_a_report(place):
    (place / "Films (mine).csv").write_text(FILMS + "".join(
        f"reader {u};Film {i};{1 + (u * i + i) % 5};\n" for u in range(40) for i in range(u % 3, 30, 2)))
    (place / "books.tsv").write_text(BOOKS + "".join(
        f"reader {u}\t080-{i}\t{1 + (u + i) % 10}\n" for u in range(20, 60) for i in range(u % 2, 24, 2)))
    nothing = {"PATH": str(place / "env" / "bin"), "HOME": str(place), "CC": "false", "no_proxy": "",
               "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}

    def run(*words):
        done = subprocess.run([place / "env" / "bin" / "python", *words], cwd=place, env=nothing, capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        return done

    assert run("-m", "pclf", "--version").stdout.strip() == pclf.__version__
    fit = ("-m", "pclf", "fit", "films=Films (mine).csv", "books=books.tsv", "--item-col",
           "films=Film Title,books=isbn", "--user-col", "films=Reader,books=reader", "--rating-col",
           "films=Stars,books=grade", "--shared-users", "--restarts", "1", "--json")
    assert json.loads(run(*fit, "--out", "model").stdout)["domains"].keys() == {"films", "books"}
    done = run("-m", "pclf", "recommend", "model", "-d", "books", "--guest", "films:Film 3=5,Film 4=1", "--json")
    assert len(json.loads(done.stdout)["recommendations"]) == 10
    run("-m", "pclf", "recommend", "model", "-d", "books", "--all", "--n", "3", "--out", "lists.parquet")
    assert json.loads(run(*fit, "--from", "model", "--out", "tonight").stdout)["ratings"] > 0
    assert "site-packages/pclf" in run("-c", SCRIPT).stdout
    assert (place / "page.html").stat().st_size > 10_000
    assert (place / "lists.parquet").stat().st_size > 100
