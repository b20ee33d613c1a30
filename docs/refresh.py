"""Run what the documentation shows, and write below each snippet what it printed.

    python docs/refresh.py                 # every page
    python docs/refresh.py README.md docs/start.md

The conventions, which tests/test_docs.py checks too:

* The ```python blocks of a page run in order in one namespace and in an empty folder.
* A ```text block right after one is what that block printed.
* A ```console block has `$ ` before commands; what follows is their output. Commands of `pclf` run, and so do
  examples (`python examples/...`); others, such as `pip` and `make`, are shown only.
* Any other block with a title is a file of the folder. The folder also holds what a reader brings: `movies.csv`,
  `books.csv` and what is known about them, of `pclf demo --files`.
"""

import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from unittest.mock import MagicMock, patch

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TRACKERS = ("mlflow", "wandb")   # not installed with pclf: where they are missing, a stand-in takes the calls


@dataclass
class Block:
    """A fenced block: where its body is in the page, and what came out when it ran."""

    language: str
    options: str
    body: str
    start: int
    stop: int
    printed: str | None = None


def pages() -> list[Path]:
    """Every page that may show code."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    return [Block(m["language"], m["options"], m["body"], m.start("body"), m.end("body"))
            for m in FENCE.finditer(text)]


def run(page: Path, *, examples: bool = True) -> list[Block]:
    """The blocks of a page with what each printed. `examples`: run those of examples/ too."""
    found = blocks(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}
    for name in TRACKERS:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock(name=name)
    from pclf.datasets.demo import write_files

    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        if any(block.language == "console" or ".csv" in block.body for block in found):
            write_files(Path(folder))
        for block, after in zip_longest(found, found[1:]):
            title = re.search(r'title="([^"]+)"', block.options)
            if block.body.startswith("--8<--"):
                continue   # a file of examples/, which runs by itself
            if block.language == "python":
                with _printed() as out:
                    exec(compile(block.body, f"{page.name}, python block", "exec"), names)
                if after is not None and after.language == "text":
                    after.printed = out.getvalue()
            elif block.language == "console":
                block.printed = "".join(_answered(line, block, examples) for line in _commands(block.body))
            elif title:
                Path(title[1]).write_text(block.body, encoding="utf-8")
    return found


def refreshed(page: Path) -> str:
    """The text of a page with all outputs as they are now."""
    text = page.read_text(encoding="utf-8")
    for block in reversed(run(page)):
        if block.printed is not None:
            text = text[:block.start] + _tidy(block.printed) + text[block.stop:]
    return text


def _commands(body: str) -> Iterator[str]:
    return (line for line in body.splitlines() if line.startswith("$ "))


def _answered(line: str, block: Block, examples: bool) -> str:
    words = shlex.split(line[2:])
    if words[0] == "pclf":
        return f"{line}\n{_pclf(words)}"
    if words[0] == "python" and words[1].startswith("examples/"):
        return f"{line}\n{run_example(words[1])}" if examples else block.body
    return f"{line}\n"


def _pclf(words: list[str]) -> str:
    from pclf.cli import _run

    with _printed() as out, patch.object(sys, "argv", words):
        code = _run(debug=True)
    if code:
        raise SystemExit(f"{' '.join(words)} ended with code {code}:\n{out.getvalue()}")
    return out.getvalue()


def run_example(name: str) -> str:
    """What an example prints."""
    done = subprocess.run([sys.executable, ROOT / name], capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, "COLUMNS": "100"})
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    return done.stdout


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _printed() -> Iterator[io.StringIO]:
    """Both streams, as a reader sees them at a terminal."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter("default")                # where tests run this, warnings would be errors
        yield out


def _tidy(printed: str) -> str:
    return "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n") + "\n"


def main(given: list[str]) -> None:
    for page in [Path(name).resolve() for name in given] or pages():
        text = refreshed(page)
        changed = text != page.read_text(encoding="utf-8")
        page.write_text(text, encoding="utf-8")
        print(f"{'changed' if changed else 'as before'}  {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
