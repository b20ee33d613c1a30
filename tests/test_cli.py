"""The command line as people use it: real processes, real files, exit codes, messages."""

import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import pclf
from pclf import bench, cli
from pclf.cli import arguments, commands, reports
from pclf.cli.commands import app
from pclf.datasets.demo import truth

BOOKS = "The Hobbit", "Dune, part one"


def run(*words, cwd=None, **env):
    return subprocess.run([sys.executable, "-c", "from pclf.cli import main; main()", *map(str, words)], cwd=cwd,
                          capture_output=True, text=True, env={**os.environ, "COLUMNS": "120", **env}, check=False)


def write_books(folder, isbn=str, user=str):
    """b.csv: nine people who rated four books each."""
    rows = [f"{user(u)},{isbn(i)},{(u + i) % 5 + 1}" for u in range(9) for i in range(4)]
    (folder / "b.csv").write_text("\n".join(["user,isbn,rating", *rows]))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """movies.csv, books.csv and books.parquet with titles, as somebody might have them."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(0)
    for name, n_users, titles, n in (("movies", 40, ["Alien", "Heat", *(f"Film {i}" for i in range(18))], 500),
                                     ("books", 30, [*BOOKS, *(f"Book {i}" for i in range(13))], 250)):
        pairs = rng.choice(n_users * len(titles), n, replace=False)
        rows = [f'{u},"{titles[v]}",{np.clip(round(3 + 1.4 * ((u + v) % 3 - 1) + rng.normal(0, .5)), 1, 5)}'
                for u, v in zip(pairs // len(titles), pairs % len(titles), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["user_id,item_id,rating", *rows]) + "\n")
    import pyarrow.csv

    pq.write_table(pyarrow.csv.read_csv(folder / "books.csv"), folder / "books.parquet")
    return folder


@pytest.fixture(scope="module")
def model(files):
    done = run("fit", "movies=movies.csv", "books=books.parquet", "--out", "model", "--json", cwd=files)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["domains"] == {"movies": 500, "books": 250}
    return files / "model"


def test_from_two_files_to_a_recommendation_in_two_commands(model, files):
    done = run("recommend", "model", "--domain", "books", "--user", 17, "--n", 3, cwd=files)
    assert done.returncode == 0, done.stderr
    assert "expected rating (of 5)" in done.stdout
    assert done.stderr == ""


def test_fit_shows_what_it_understood_on_stderr(files, tmp_path):
    done = run("fit", "movies=movies.csv", "--out", tmp_path / "m", cwd=files)
    assert "movies, first rating: user" in done.stderr
    assert "first rating" not in done.stdout


def test_a_guest_gets_recommendations_across_domains_with_an_explanation(model, files):
    done = run("recommend", "model", "-d", "books", "--guest", "movies:Alien=5,heat=2", "-n", 4, "--explain", "--json",
               cwd=files)
    found = json.loads(done.stdout)
    assert len(found["recommendations"]) == 4
    assert "expected" in found["explanation"]


def test_items_are_found_by_part_of_a_title_and_names_with_commas(model, files):
    done = run("predict", "model", "-d", "books", "--user", 3, "--item", "dune", "--item", BOOKS[0], "--json",
               cwd=files)
    assert [row["item_id"] for row in json.loads(done.stdout)] == ["Dune, part one", "The Hobbit"]
    done = run("recommend", "model", "-d", "movies", "--guest", "books:Dune, part one=5,The Hobbit=1", "--json",
               cwd=files)
    assert done.returncode == 0, done.stderr
    done = run("predict", "model", "-d", "books", "--user", 3, "--item", "Book 1", "--json", cwd=files)
    assert json.loads(done.stdout)[0]["item_id"] == "Book 1"
    done = run("predict", "model", "-d", "books", "--user", 3, "--item", "Book", cwd=files)
    assert done.returncode == 1
    assert "is part of 13 titles" in done.stderr


def test_events_need_no_ratings(files, tmp_path):
    done = run("fit", "movies=movies.csv", "books=books.csv", "--events", "--out", tmp_path / "model", cwd=files)
    assert done.returncode == 0, done.stderr
    assert "events in 2 domain(s)" in done.stdout
    assert "movies, first event: user" in done.stderr
    done = run("recommend", tmp_path / "model", "-d", "books", "--guest", "movies:Alien=1", "--json", cwd=files)
    assert done.returncode == 0, done.stderr
    done = run("fit", "movies=movies.csv", "--events", "--scale", "movies=1-5", "--out", tmp_path / "m", cwd=files)
    assert "events go without --scale" in done.stderr
    done = run("fit", "demo", "--events", "--out", tmp_path / "m", cwd=files)
    assert "only files go with --events" in done.stderr


def test_everyone_at_once_goes_to_parquet(model, files, tmp_path):
    done = run("recommend", "model", "-d", "books", "--all", "--out", tmp_path / "recs.parquet", "-n", 2, cwd=files)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "recs.parquet")
    assert table.column_names == ["user_id", "item_id", "title", "score", "rank", "rating", "liked", "chosen"]
    assert table.num_rows == 2 * 30


def test_predictions_of_a_file_of_pairs(model, files, tmp_path):
    (tmp_path / "pairs.csv").write_text("user,item\n3,The Hobbit\n4,Book 2\n")
    done = run("predict", "model", "-d", "books", "--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "out.csv",
               "--rule", "median", cwd=files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == '"user_id","item_id","prediction"'


def test_columns_of_other_tables_than_ratings_can_be_named_too(model, files, tmp_path):
    (tmp_path / "p.csv").write_text("Kunde;Buch;Sterne\n3;The Hobbit;4\n4;Book 2;5\n")
    columns = "--user-col", "Kunde", "--item-col", "Buch"
    for words in (["predict", "model", "-d", "books", "--pairs", tmp_path / "p.csv", *columns],
                  ["recommend", "model", "-d", "books", "--users", tmp_path / "p.csv", "--candidates",
                   tmp_path / "p.csv", *columns, "--json"],
                  ["compare-models", "model", "model", "--test", f"books={tmp_path / 'p.csv'}", *columns,
                   "--rating-col", "books=Sterne"]):
        done = run(*words, cwd=files)
        assert done.returncode == 0, done.stderr


def test_evaluate_compares_models(files):
    done = run("evaluate", "movies=movies.csv", "books=books.csv", "--protocol", "given-3", "--models", "Bias,FMM",
               "--repeats", 2, "--json", cwd=files)
    found = json.loads(done.stdout)
    assert {row["model"] for row in found["scores"]} == {"Bias", "FMM"}
    assert found["tests"]


def test_titles_come_from_a_second_file(files, tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\n1,7,5\n1,8,1\n2,7,4\n2,8,2\n3,7,5\n")
    (tmp_path / "t.csv").write_text("item_id,title\n7,Seven\n8,Eight\n")
    done = run("fit", "a=r.csv", "--titles", "a=t.csv", "--model", "Bias", "--out", "m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run("recommend", "m", "-d", "a", "--user", 3, cwd=tmp_path)
    assert "Eight" in done.stdout


def test_settings_come_from_a_toml_file_and_unknown_keys_are_refused(files, tmp_path):
    (tmp_path / "s.toml").write_text('model = "FMM"\nuser-clusters = 3\nspecific_clusters = 4\nmax_iter = 7\n')
    done = run("fit", "movies=movies.csv", "--config", tmp_path / "s.toml", "--out", tmp_path / "m", cwd=files)
    assert done.returncode == 0, done.stderr
    loaded = pclf.load(tmp_path / "m")
    assert (type(loaded).__name__, loaded.n_user_clusters, loaded.n_item_clusters, loaded.max_iter) == ("FMM", 3, 4, 7)
    done = run("fit", "movies=movies.csv", "--config", tmp_path / "s.toml", "--max-iter", 5, "--out", tmp_path / "m",
               cwd=files)
    assert pclf.load(tmp_path / "m").max_iter == 5
    (tmp_path / "s.toml").write_text("user_clustres = 3\n")
    done = run("fit", "movies=movies.csv", "--config", tmp_path / "s.toml", "--out", tmp_path / "m", cwd=files)
    assert done.returncode == 2
    assert "did you mean 'user_clusters'" in done.stderr


def test_settings_have_the_names_of_options_and_lists_where_options_take_commas(files, tmp_path):
    (tmp_path / "s.toml").write_text('json = true\nmodels = ["Bias", "FMM"]\nrepeats = 1\nprotocol = "holdout-20"\n')
    done = run("evaluate", "movies=movies.csv", "--config", tmp_path / "s.toml", cwd=files)
    assert done.returncode == 0, done.stderr
    assert {row["model"] for row in json.loads(done.stdout)["scores"]} == {"Bias", "FMM"}


def broken(files, tmp_path, kind):
    path = tmp_path / "bad.csv"
    content = {"empty": b"", "not a table": b"\x00\x01\x02\xff" * 40, "no columns": b"colour,size\nred,3\n",
               "wrong encoding": "user_id,item_id,rating\n1,Amélie,5\n".encode("latin-1")}[kind]
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["empty", "not a table", "no columns", "wrong encoding"])
def test_a_bad_file_is_one_line_that_helps_and_leaves_nothing(files, tmp_path, kind):
    bad = broken(files, tmp_path, kind)
    done = run("fit", f"a={bad}", "--out", tmp_path / "m", cwd=files)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "bad.csv" in done.stderr or "'a'" in done.stderr
    assert not (tmp_path / "m").exists()
    shown = run("fit", f"a={bad}", "--out", tmp_path / "m", "--debug", cwd=files)
    assert "Traceback" in shown.stderr


@pytest.mark.parametrize(("words", "code", "says"), [
    ("fit movies=absent.csv --out m", 1, "absent.csv"),
    ("fit movies.csv --out m", 2, "NAME=movies.csv"),
    ("fit movies=movies.csv movies=books.csv --out m", 2, "twice"),
    ("fit movies=movies.csv", 2, "--out"),
    ("fit movies=movies.csv --out m --model PCLFF", 1, "did you mean 'PCLF'"),
    ("fit movies=movies.csv --out m --model Bias --user-clusters 3", 2, "Bias has no user clusters"),
    ("fit movies=movies.csv --out m --engine gpuu", 1, "did you mean 'gpu'"),
    ("fit movies=movies.csv --out m --user-col usr", 1, "did you mean 'user_id'"),
    ("recommend model -d boks --user 1", 1, "did you mean 'books'"),
    ("recommend model -d books --user 4711", 1, "4711"),
    ("recommend model -d books", 2, "one of --user, --guest, --users and --all"),
    ("recommend model -d books --guest movies", 2, "DOMAIN:ITEM=RATING"),
    ("recommend model -d books --guest movies:Alien=9", 1, "scale"),
    ("recommend absent -d books --user 1", 1, "no model file at absent"),
    ("recommend movies.csv -d books --user 1", 1, "not a model file"),
    ("recommend model -d books --all --out recs.txt", 1, "must end in .csv or .parquet"),
    ("recommend model -d books --all --out nowhere/recs.csv", 1, "no folder nowhere"),
    ("evaluate movies=movies.csv --protocol often", 2, "given-N"),
    ("audit movies=movies.csv", 1, "at least two domains"),
    ("nonsense", 2, "nonsense"),
])
def test_wrong_usage_says_what_is_wrong(model, files, words, code, says):
    done = run(*shlex.split(words), cwd=files)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_said_and_leaves_the_old_file_whole(model, files, tmp_path):
    import resource

    out = tmp_path / "recs.csv"
    old = '"user_id","item_id","title","score","rank"\n'
    out.write_text(old)
    words = [sys.executable, "-c", "from pclf.cli import main; main()", "recommend", "model", "-d", "books", "--all",
             "--out", str(out)]
    done = subprocess.run(words, cwd=files, capture_output=True, text=True, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "too large" in done.stderr
    assert out.read_text() == old
    assert [p.name for p in tmp_path.iterdir()] == ["recs.csv"]


def test_every_command_has_help_with_an_example_and_json():
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        done = run(name, "--help")
        assert done.returncode == 0
        assert f"Example: pclf {name}" in " ".join(done.stdout.split())
        assert "--json" in done.stdout or name == "serve"            # whose answers are JSON anyway


@pytest.mark.parametrize("name", ["datasets", "doctor", "fit", "predict", "recommend", "evaluate", "report", "audit",
                                  "tune", "compare_models"])
def test_the_example_of_the_help_runs(name, model, files):
    command = next(c for c in app.registered_commands if c.callback.__name__ == name)
    words = shlex.split(re.sub(r"^Example: pclf ", "", command.epilog))
    done = run(*words, cwd=files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_the_example_of_demo_runs(files):
    command = next(c for c in app.registered_commands if c.callback.__name__ == "demo")
    done = run(*shlex.split(command.epilog.removeprefix("Example: pclf ")), cwd=files)
    assert done.returncode == 0, done.stderr
    assert "PCLF" in done.stdout


def test_the_example_of_bench_runs(monkeypatch, capsys):
    """With fewer ratings: its own would take a minute."""
    few = {"n_ratings": 200_000, "n_items": 2000, "clusters": (10,), "fit_ratings": 20_000, "n_guests": 20}
    monkeypatch.setattr("pclf.bench.quick", partial(bench.quick, **few, repeats=2))
    command = next(c for c in app.registered_commands if c.callback.__name__ == "bench")
    app(shlex.split(command.epilog.removeprefix("Example: pclf ")), standalone_mode=False)
    assert {"estep", "default fit"} <= {row["name"] for row in json.loads(capsys.readouterr().out)}


@pytest.mark.slow
def test_the_example_of_reproduce_runs(data_dir, tmp_path):
    command = next(c for c in app.registered_commands if c.callback.__name__ == "reproduce")
    done = run(*shlex.split(command.epilog.removeprefix("Example: pclf ")), cwd=tmp_path, PCLF_DATA=str(data_dir))
    assert done.returncode == 0, done.stderr
    assert "Book-Crossing and MovieLens" in done.stdout
    assert (tmp_path / "runs/small/tables.tex").exists()


def test_demo_tells_the_whole_story():
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    *simple, ours = found["visitors"].values()
    for domain in ("music", "books"):
        assert all(ours[domain][0] < other[domain][0] for other in simple), "the error of visitors"
        assert all(ours[domain][1] > other[domain][1] for other in simple), "pairs in the right order"
    lists = found["recommendations"]
    assert {d: len(r) for d, r in lists["loves Japan"].items()} == {"music": 5, "books": 5}
    for domain, region in truth().region_of.items():
        if domain != "films":
            japanese = [sum(region[r["item"]] == "Japanese" for r in own[domain]) for own in lists.values()]
            assert japanese[0] >= 3 > japanese[1], domain
    assert "Japanese (region)" in found["explanation"]


@pytest.mark.skipif(sys.platform == "win32", reason="process groups of Unix")
@pytest.mark.parametrize("words", ["fit demo --out m", "recommend model -d books --all", "audit demo --repeats 9",
                                   "evaluate demo --repeats 50"])
def test_ctrl_c_exits_with_130_whenever_it_comes(model, tmp_path, words):
    import signal
    import time

    (tmp_path / "model").write_bytes(model.read_bytes())
    code = "import sys; from pclf.cli import main; print('up', file=sys.stderr, flush=True); main()"
    for after in (0.05, 0.3, 0.6, 1.0, 1.8):
        process = subprocess.Popen([sys.executable, "-c", code, *words.split()], cwd=tmp_path, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        assert process.stderr.readline() == "up\n"
        time.sleep(after)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)                  # as a terminal does: to children too
        printed, said = process.communicate(timeout=60)
        assert "Traceback" not in said
        done = process.returncode == 0 and printed                 # it had said all when Ctrl-C came
        assert done or (process.returncode, "interrupted." in said) == (130, True), (after, said)
    assert {p.name for p in tmp_path.iterdir()} <= {"model", "m"}


def test_help_starts_fast_because_nothing_heavy_is_imported():
    code = "import sys; from pclf.cli.commands import app; print([m for m in ('numba', 'pyarrow', 'sklearn', " \
           "'scipy', 'matplotlib', 'torch', 'numpy', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_exactly_what_is_exported():
    assert set(dir(pclf)) == set(pclf.__all__)
    for name in pclf.__all__:
        assert getattr(pclf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pclf.nonsense


def test_the_package_is_typed():
    assert (Path(pclf.__file__).parent / "py.typed").exists()


def test_python_m_pclf_version_and_help(files):
    done = subprocess.run([sys.executable, "-m", "pclf", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == pclf.__version__
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: pclf" in done.stdout


@pytest.mark.parametrize(("words", "says"), [
    (["recommend", "model", "-d", "books", "--guest", "movies:Alien=5,Heat"], "must be DOMAIN:ITEM=RATING"),
    (["recommend", "model", "-d", "books", "--guest", "movies:Alien=5,Heat=+3"], "must be DOMAIN:ITEM=RATING"),
    (["predict", "model", "-d", "books", "--user", "1", "--item", "The Hobbit", "--pairs", "p.csv"], "--pairs FILE"),
    (["fit", "demo", "-o", "m", "--scale", "books=1-9"], "only files go with --scale"),
    (["fit", "demo", "-o", "m", "--attributes", "films=f.csv"], "only files go with --attributes"),
    (["fit", "movies=movies.csv", "-o", "m", "--attributes", "f.csv"], "--attributes must be NAME=FILE, such as"),
    (["fit", "demo", "-o", "m", "--user-col", "zzz"], "only files go with --user-col"),
    (["fit", "demo", "-o", "m", "--shared-users"], "only files go with --shared-users"),
    (["fit", "movies=movies.csv", "-o", "."], "--out must be a file"),
    (["fit", "movies=movies.csv", "-o", "m", "--scale", "movies=low-high"], "such as books=1-10, or LOW:HIGH:STEP"),
    (["fit", "movies=movies.csv", "-o", "m", "--scale", "1-5"], "must be NAME=LOW-HIGH"),
    (["fit", "movies=movies.csv", "-o", "m", "--model", "Bias", "--threads", "3"], "no engine and no threads"),
])
def test_what_would_be_ignored_or_misread_is_refused(model, files, words, says):
    done = run(*words, cwd=files)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_scale_may_be_negative(files, tmp_path):
    (tmp_path / "likes.csv").write_text("user,item,rating\n1,a,-1\n1,b,1\n2,a,1\n2,b,-1\n")
    done = run("fit", "likes=likes.csv", "-o", "m", "--scale", "likes=-1-1", "--model", "Bias", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "-1 to 1 by 1" in done.stderr


def test_brackets_in_titles_are_shown(tmp_path):
    titles = "[rec]", "AC/DC [/live]", ":smile: film"
    rows = [f"{u},{title},{(u + i) % 5 + 1}" for u in range(12) for i, title in enumerate(titles)]
    (tmp_path / "d.csv").write_text("\n".join(["user,item,rating", *rows]))
    assert run("fit", "d=d.csv", "-o", "m", "--model", "Bias", cwd=tmp_path).returncode == 0
    asked = [word for title in titles for word in ("--item", title)]
    done = run("predict", "m", "-d", "d", "--user", "1", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(title in done.stdout for title in titles)


def test_ids_with_leading_zeros_are_the_same_in_titles_and_pairs(tmp_path):
    write_books(tmp_path, "{:05}".format, "{:03}".format)
    (tmp_path / "t.csv").write_text("author,isbn,title\nOrwell,00000,1984\nHerbert,00001,\nEco,00002,Il nome\n")
    (tmp_path / "p.csv").write_text("user,isbn\n000,00000\n001,00003\n")
    done = run("fit", "b=b.csv", "--titles", "b=t.csv", "-o", "m", "--model", "Bias", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "item '1984'" in done.stderr
    assert pclf.load(tmp_path / "m").data_["b"].title(1) == "00001"             # an empty title is none
    done = run("predict", "m", "-d", "b", "--pairs", "p.csv", "--json", cwd=tmp_path)
    assert [row["item_id"] for row in json.loads(done.stdout)] == ["00000", "00003"]
    (tmp_path / "t.csv").write_text("isbn,title\n0,1984\n")
    done = run("fit", "b=b.csv", "--titles", "b=t.csv", "-o", "m", "--model", "Bias", cwd=tmp_path)
    assert done.returncode == 1
    assert "titles must be of its items, which have ids like '00000'; got ids like 0" in done.stderr


def test_titles_of_movielens_and_other_encodings_are_read(tmp_path):
    (tmp_path / "r.dat").write_text("1::2::5::0\n1::3::4::0\n2::2::3::0\n")
    (tmp_path / "t.dat").write_bytes("2::Star Wars: Épisode IV::Action\n3::Amélie::Comedy\n".encode("latin-1"))
    words = "fit", "m=r.dat", "--titles", "m=t.dat", "-o", "m", "--model", "Bias"
    done = run(*words, "--encoding", "latin-1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert pclf.load(tmp_path / "m").data_["m"].title(0) == "Star Wars: Épisode IV"
    done = run(*words, cwd=tmp_path)
    assert "Pass --encoding ..., for example 'latin-1'" in done.stderr
    done = run(*words, "--encoding", "klingon", cwd=tmp_path)
    assert done.returncode == 1
    assert "encoding must be a name that Python knows" in done.stderr
    (tmp_path / "t.dat").write_text("id,label\n2,Alien\n")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 1
    assert "there must be a column like 'itemid'" in done.stderr


def test_lists_for_one_and_for_all_have_the_same_columns_and_json_beside_the_file(model, files, tmp_path):
    for words in (["--user", "17"], ["--guest", "movies:Alien=5"], ["--all"]):
        out = tmp_path / "list.csv"
        done = run("recommend", "model", "-d", "books", *words, "-n", "2", "--out", out, "--json", cwd=files)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        assert out.read_text().splitlines()[0] == '"user_id","item_id","title","score","rank","rating","liked","chosen"'
        out.unlink()


def test_only_mixtures_explain(files, tmp_path):
    run("fit", "movies=movies.csv", "--model", "Bias", "-o", tmp_path / "m", cwd=files)
    done = run("recommend", tmp_path / "m", "-d", "movies", "--user", "1", "--explain")
    assert done.returncode == 1
    assert "Bias cannot explain" in done.stderr


def test_a_guest_of_events_is_a_list_and_events_are_evaluated_by_lists(files, tmp_path):
    done = run("fit", "movies=movies.csv", "books=books.csv", "--events", "-o", tmp_path / "m", cwd=files)
    assert done.returncode == 0, done.stderr
    done = run("recommend", tmp_path / "m", "-d", "books", "--guest", "movies:Alien,Heat", "-n", "2",
               "--rank-by", "rating")
    assert done.returncode == 0, done.stderr
    assert "picks it" in done.stdout
    assert "probability (9% at random)" in done.stdout             # what the list is sorted by
    done = run("evaluate", "movies=movies.csv", "--events", "--protocol", "holdout-20", "--repeats", "2", cwd=files)
    assert done.returncode == 0, done.stderr
    assert "ndcg@10" in done.stdout


def test_evaluate_prints_the_tests_it_promises(files):
    done = run("evaluate", "movies=movies.csv", "--models", "NMF,Bias", "--repeats", "2", cwd=files)
    assert done.returncode == 0, done.stderr
    assert "Against Bias, paired over the splits" in done.stdout
    assert "95 % interval" in done.stdout


def test_titles_of_events_may_have_commas():
    titles = {1: "Usual Suspects, The", 2: "Heat", 3: "20,000 Leagues", 4: "The"}
    log = pclf.Ratings.from_events({"films": ([1, 1, 2, 2], [1, 2, 3, 4])}, titles={"films": titles})
    found = arguments.guest_ratings(log, ["films:usual suspects, the,Heat,20,000 Leagues"])
    assert found == {"films": {1: 1.0, 2: 1.0, 3: 1.0}}


def test_json_has_no_word_for_nan(capsys):
    commands._json({"a": [float("nan"), 1.5, float("inf")], "b": {"c": -float("inf")}})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"a": [None, 1.5, None], "b": {"c": None}}


def test_a_change_from_zero_has_no_percentage():
    test = SimpleNamespace(model="B", effect=0.25, relative=float("nan"), low=0.125, high=0.375, p_t_holm=0.01)
    assert "| +0.2500 | +0.1250 to +0.3750 |" in reports._in_words([("a", "mae", "mean", test)])


def test_lists_for_everybody_of_another_domain_from_some_items(model, files, tmp_path):
    (tmp_path / "stock.csv").write_text("item\nBook 1\nBook 2\nBook 3\n")
    (tmp_path / "returned.csv").write_text("item\nBook 3\nno book of ours\n")
    done = run("recommend", "model", "-d", "books", "--all", "--user-domain", "movies", "--json", "--candidates",
               tmp_path / "stock.csv", "--exclude", tmp_path / "returned.csv", cwd=files)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["user_id"] for row in rows} == set(range(40))
    assert {row["item_id"] for row in rows} == {"Book 1", "Book 2"}
    done = run("recommend", "model", "-d", "books", "--all", "--explain", cwd=files)
    assert (done.returncode, "--explain is for one person" in done.stderr) == (2, True)


def test_where_a_table_cannot_be_written_is_said_before_the_model_is_read(tmp_path):
    done = run("recommend", tmp_path / "no model", "-d", "books", "--all", "--out", tmp_path / "recs.txt")
    assert "must end in .csv or .parquet; got 'recs.txt'" in done.stderr


def test_a_file_of_digits_finds_ids_that_are_text(tmp_path):
    write_books(tmp_path, lambda i: f"{i}X" if i == 3 else i)
    (tmp_path / "p.csv").write_text("user,isbn\n5,1\n6,2\n")
    (tmp_path / "t.csv").write_text("isbn,title\n0,Zero\n1,One\n")
    done = run("fit", "b=b.csv", "--titles", "b=t.csv", "-o", "m", "--model", "Bias", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run("predict", "m", "-d", "b", "--pairs", "p.csv", "--json", cwd=tmp_path)
    assert [(row["item_id"], row["title"]) for row in json.loads(done.stdout)] == [("1", "One"), ("2", "2")]


def test_a_title_of_two_items_is_not_guessed(tmp_path):
    write_books(tmp_path)
    (tmp_path / "t.csv").write_text("item,title\n0,The Pact\n1,The Pact\n")
    run("fit", "b=b.csv", "--titles", "b=t.csv", "-o", "m", "--model", "Bias", cwd=tmp_path)
    done = run("predict", "m", "-d", "b", "--user", 1, "--item", "The Pact", cwd=tmp_path)
    assert done.returncode == 1
    assert "'The Pact' is the title of 2 items in 'b': give an id, 0, 1." in done.stderr


def test_a_title_is_found_without_what_stands_in_brackets_after_it(tmp_path):
    write_books(tmp_path)
    (tmp_path / "t.csv").write_text("item,title\n0,Alien (1979)\n1,Aliens (1986)\n2,Heat (1995)\n3,Heat (1986)\n")
    run("fit", "b=b.csv", "--titles", "b=t.csv", "-o", "m", "--model", "Bias", cwd=tmp_path)
    done = run("predict", "m", "-d", "b", "--user", 1, "--item", "alien", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)[0]["title"] == "Alien (1979)"
    done = run("predict", "m", "-d", "b", "--user", 1, "--item", "Heat", cwd=tmp_path)
    assert "'Heat' is part of 2 titles in 'b': Heat (1995); Heat (1986). Give more of it." in done.stderr


def test_half_stars_have_two_digits(tmp_path):
    rows = [f"{u},{i},{((u + i) % 10 + 1) / 2}" for u in range(9) for i in range(6) if (u + i) % 4]
    (tmp_path / "b.csv").write_text("\n".join(["user,isbn,rating", *rows]))
    run("fit", "b=b.csv", "-o", "m", "--model", "Bias", cwd=tmp_path)
    done = run("recommend", "m", "-d", "b", "--user", 1, "-n", 1, cwd=tmp_path)
    assert re.search(r" \d\.\d\d *$", done.stdout.strip()), done.stdout


@pytest.mark.parametrize(("said", "typed"), [
    ("Pass time_col=..., or rename it.", "Pass --time-col ..., or rename it."),
    ("Drop these rows, or leave weight_col out.", "Drop these rows, or leave --weight-col out."),
    ("Read it with time_col=True, or time_col=... for another.", "Read it with --time-col auto, or --time-col ... for "
                                                                 "another."),
    ("Pass duplicates='last' or 'mean'.", "Pass --duplicates 'last' or 'mean'."),
    ("Say so with shared_users=True.", "Say so with --shared-users."),
    ("there must be a column; got 'time_col', my_user_col", "there must be a column; got 'time_col', my_user_col"),
])
def test_advice_for_python_is_given_as_options(said, typed):
    assert cli._as_typed(said) == typed


@pytest.mark.parametrize(("words", "said"), [
    ("fit a=long.csv --out m --model PCFL", "unknown model 'PCFL': did you mean 'PCLF'?"),
    ("fit a=long.csv --out m --set n_factor=3", "PCLF has no factor: did you mean n_factors?"),
    ("fit a=long.csv --out m --model Bias --engine cpu", "Bias has no engine"),
    ("evaluate a=long.csv --protocol given5", "--protocol must be given-N"),
    ("evaluate a=long.csv --models PCLF,Foo", "unknown model 'Foo'"),
    ("tune a=long.csv --model Bias --out t.toml", "unknown model that can be tuned 'Bias'"),
    ("fit long.csv b=long.csv --out m", "files of ratings must be NAME=FILE, such as books=books.csv; got 'long.csv'"),
])
def test_wrong_words_are_found_before_files_are_read(tmp_path, words, said):
    """Of long.csv, reading would say that it is empty."""
    (tmp_path / "long.csv").touch()
    done = run(*words.split(), cwd=tmp_path)
    assert said in done.stderr


def test_the_list_of_commands_has_whole_sentences():
    done = run("--help", COLUMNS="80")
    listed = done.stdout.split("Commands:")[1].split("\n\n")[0].strip().splitlines()
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_item_clusters_of_every_model_have_one_option(files, tmp_path):
    for name in ("FMM", "CBT"):
        done = run("fit", "movies=movies.csv", "books=books.csv", "--model", name, "--specific-clusters", 4, "-o",
                   tmp_path / name, cwd=files)
        assert done.returncode == 0, done.stderr
        assert pclf.load(tmp_path / name).n_item_clusters == 4


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix")
def test_a_reader_that_has_enough_is_no_failure():
    line = f"set -o pipefail; {sys.executable} -m pclf datasets | head -1"
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=False).returncode == 0


def test_the_files_of_the_documentation_are_written(tmp_path):
    done = run("demo", "--files", tmp_path / "new", "--json")
    written = json.loads(done.stdout)
    assert [Path(path).name for path in written] == ["movies.csv", "books.csv", "book_titles.csv", "movie_facts.csv",
                                                    "book_facts.csv"]
    assert Path(written[1]).read_text().splitlines()[0] == '"user","book_id","rating"'


def test_attributes_are_read_shown_and_saved(tmp_path):
    run("demo", "--files", tmp_path)
    people = "".join(f"{user},{'north' if user < 'j' else 'south'}\n" for user in
                     sorted({line.split('"')[1] for line in (tmp_path / "books.csv").read_text().splitlines()[1:]}))
    (tmp_path / "readers.csv").write_text("user,home\n" + people)
    done = run("fit", "movies=movies.csv", "books=books.csv", "--attributes", "movies=movie_facts.csv", "--attributes",
               "books=book_facts.csv", "--user-attributes", "books=readers.csv", "--model", "Bias", "--out", "m",
               cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Attributes of items: 16 features; movies 180 of 180 items, books 150 of 150 items" in done.stderr
    assert "  region  category  movies, books  6 values" in done.stderr
    assert "Attributes of users: 2 features; movies 0 of 300 users, books 240 of 240 users" in done.stderr
    data = pclf.load(tmp_path / "m").data_
    assert len(data.attributes.features) == 16
    assert data.user_attributes.known("books").all()


@pytest.mark.parametrize("command", ["fit", "evaluate", "audit"])
def test_wrong_attributes_are_one_line_before_anything_is_fitted(files, command):
    (files / "facts.csv").write_text("item_id,genre\nHeat,crime\nHeat,crime\n")
    done = run(command, "movies=movies.csv", "--attributes", "movies=facts.csv", *["--out", "m"] * (command == "fit"),
               cwd=files)
    assert done.returncode == 1
    assert done.stderr == ("pclf: attributes of 'movies' must have one row an id; got 'Heat' in line 2 and line 3. "
                           "Keep one row each; several values go into one field, as a|b.\n")
    (files / "people.csv").write_text("user_id,home\n" + "".join(f"{i},north\n" for i in range(40)))
    done = run(command, "movies=movies.csv", "--attributes", "movies=people.csv", *["--out", "m"] * (command == "fit"),
               cwd=files)
    assert "Pass a table about users as --user-attributes ..." in done.stderr


def test_a_warning_is_one_line_without_code(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,rating\n1,1,1\n2,2,5\n1,2,3\n")
    done = run("fit", "a=a.csv", "--out", "m", cwd=tmp_path)
    assert "pclf: warning: n_user_clusters=20 is more than the 2 users; some clusters will stay empty." in done.stderr
    assert ".py" not in done.stderr


def test_a_device_or_ones_own_input_is_never_written_over(model, files, tmp_path):
    device = tmp_path / "out.csv"
    device.symlink_to("/dev/null")
    (tmp_path / "pairs.csv").write_text("user_id,item_id\n17,The Hobbit\n")
    content = (files / "movies.csv").read_bytes()
    for words, says in (
        (["fit", "movies=movies.csv", "--model", "Bias", "--out", "/dev/null"], "/dev/null is a device"),
        (["fit", "movies=movies.csv", "--model", "Bias", "--out", "movies.csv"], "is not a model: it is not replaced"),
        (["recommend", "model", "-d", "books", "--user", 17, "--out", device], "is a device"),
        (["predict", "model", "-d", "books", "--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "pairs.csv"],
         "is not a table of recommendations or predictions"),
        (["report", "model", "--out", "model"], "is not a report"),
        (["report", "model", "--out", "/dev/full", "--force"], "is a device"),
    ):
        done = run(*words, cwd=files)
        assert (done.returncode, says in done.stderr) == (1, True), done.stderr
        assert "Traceback" not in done.stderr
    assert (files / "movies.csv").read_bytes() == content
    assert (tmp_path / "pairs.csv").read_text() == "user_id,item_id\n17,The Hobbit\n"
    done = run("predict", "model", "-d", "books", "--pairs", tmp_path / "pairs.csv", "--out", tmp_path / "pairs.csv",
               "--force", cwd=files)
    assert done.returncode == 0, done.stderr


def test_spreadsheets_run_nothing_and_the_file_reads_back_the_same(tmp_path):
    import pyarrow as pa

    from pclf.cli import tables
    from pclf.data import files

    ids = ["=1+1", "+cmd", "-x", "@SUM(A1)", "'=1", "''-2x", "'quoted'", "-3", "plain", "＝1", '=HYPERLINK("a","b")']
    tables.write(pa.table({"user_id": [str(i) for i in range(len(ids))], "item_id": ids, "prediction": [1.0] * 11}),
                 tmp_path / "t.csv")
    cells = [line.split(",", 1)[1] for line in (tmp_path / "t.csv").read_text().splitlines()[1:]]
    assert all(cell[1] not in "=+@＝" for cell in cells)
    assert [cell[:3] for cell in cells[2:3]] == ['"\'-']
    found = files.read(tmp_path / "t.csv", {"item_col": None})[0]
    assert found.values() == ids


def test_ratings_and_events_with_strengths_and_times_in_one_fit(files, tmp_path):
    rng = np.random.default_rng(0)
    columns = (rng.integers(0, 30, 300), rng.integers(0, 20, 300), rng.integers(1, 9, 300),
               10**9 + rng.integers(0, 2 * 10**8, 300))
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    (tmp_path / "loans.csv").write_text("\n".join(["user,item,plays,time", *rows]))
    words = ("loans=loans.csv:events", "--weight-col", "auto", "--time-col", "loans=time", "--half-life", "100")
    done = run("fit", f"movies={files}/movies.csv", *words, "--model", "EASE", "-o", "m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "events" in done.stderr
    assert "ratings" in done.stderr
    assert run("recommend", "m", "-d", "loans", "--all", cwd=tmp_path).returncode == 0
    done = run("evaluate", *words, "--models", "Popular,EASE", "--protocol", "last-1", "--json", cwd=tmp_path)
    assert {row["metric"] for row in json.loads(done.stdout)["scores"]} == {"ndcg@10", "recall@10"}
    for wrong, says in ((["--half-life", "0"], "--half-life must be a number of days above 0; got 0"),
                        (["--weight-col", "plais"], "unknown column 'plais': did you mean 'plays'"),
                        (["--half-life", "5"], "--half-life must come with the times of events")):
        more = ["--time-col", "time"] if "0" in wrong else []
        done = run("fit", "loans=loans.csv:events", *wrong, *more, "-o", "n", cwd=tmp_path)
        assert done.returncode == 1
        assert says in done.stderr
        assert not (tmp_path / "n").exists()
