"""What the README and the guide show about the service works as it is written, but for the port."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs pip install 'pclf[serve]'")

from services import Service

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the documentation is not here")


@pytest.fixture(scope="module")
def service(served_model, tmp_path_factory):
    with Service(tmp_path_factory.mktemp("docs"), served_model) as running:
        yield running


def shown(page, language, service):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block.replace("http://127.0.0.1:8000", service.address) for block in found]


@pytest.mark.parametrize(("page", "n"), [("README.md", 3), ("docs/guides/serving.md", 6)])
def test_curl_lines_work_as_written(page, n, service):
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    lines = [line for block in shown(page, "bash", service) for line in block.splitlines() if line.startswith("curl")]
    assert len(lines) == n
    for line in lines:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        assert "error" not in json.loads(done.stdout), (line, done.stdout)


def test_python_of_the_guide_works_as_written(service):
    block, = shown("docs/guides/serving.md", "py", service)
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5


def test_javascript_of_the_guide_works_as_written(service, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("no node here")
    block, = shown("docs/guides/serving.md", "javascript", service)
    (tmp_path / "ask.mjs").write_text(block, encoding="utf-8")
    done = subprocess.run(["node", tmp_path / "ask.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_every_option_that_the_guide_names_is_one(service):
    done = subprocess.run([sys.executable, "-m", "pclf", "serve", "--help"], capture_output=True, text=True, check=True)
    text = (ROOT / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    for option in set(re.findall(r"(?<=[` ])--[a-z][a-z-]+", text)):
        assert option in done.stdout, option
