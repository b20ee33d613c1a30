"""The house: data flow down the list of rooms, and a room imports only from rooms above it."""

import ast
import tomllib
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import pclf
from pclf import models

ROOT = Path(pclf.__file__).parent
LOCK = Path(__file__).parents[1] / "lock.txt"
# From the top down. Engines say what a machine for factors is, so factors come after them; models ask for lists.
ROOMS = ["errors", "client", "atomic", "progress", "tables", "door", "data", "datasets", "problem", "clusters",
         "engines", "factors", "choice", "neighbours", "serving", "storage", "blocks", "models", "spark", "tracking",
         "evaluate", "report", "plots", "service", "bench", "cli", "__main__"]
FILES = sorted(ROOT.rglob("*.py"))


def imported(file, anywhere=False):
    """The rooms that a file imports from, at its top or anywhere."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.ImportFrom):
            names = [f"pclf.{x.name}" for x in node.names if not x.name.startswith("__")] if node.module == "pclf" \
                else [node.module or ""]
        else:
            names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("pclf."))


def room_of(file):
    return file.relative_to(ROOT).with_suffix("").parts[0]


def test_every_room_is_on_the_list():
    assert {room_of(file) for file in FILES} - {"__init__"} <= set(ROOMS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_room_imports_only_from_rooms_above_it(file):
    """At the top of a file. Inside of functions, parts may ask engines for kernels."""
    own = room_of(file)
    below = [room for room in imported(file) if own not in (room, "__init__") and ROOMS.index(room) > ROOMS.index(own)]
    assert not below, f"{own} is above {below}: the code is in the wrong room"
    assert own in ("cli", "__main__") or "cli" not in imported(file, anywhere=True), "nothing imports cli"


def test_parts_do_not_know_the_models_that_have_them():
    """Anywhere: a kernel, a cluster or a factor that asks for a model is in the wrong room."""
    for file in FILES:
        if room_of(file) in ROOMS[:ROOMS.index("serving")] and room_of(file) != "__init__":
            assert "models" not in imported(file, anywhere=True), file


@pytest.mark.skipif(not LOCK.is_file(), reason="no source here")
def test_the_lock_has_what_development_needs_and_names_no_registry():
    requirements = pytest.importorskip("packaging.requirements")
    text, locked = LOCK.read_text(encoding="utf-8"), {}
    assert "://" not in text
    for line in text.splitlines():
        found = requirements.Requirement(line)
        locked.setdefault(found.name, []).append(next(iter(found.specifier)).version)
    project = tomllib.loads(LOCK.with_name("pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *(line for extra in project["optional-dependencies"].items()
                                          if extra[0] in ("serve", "docs", "dev") for line in extra[1])]
    for one in map(requirements.Requirement, needed):
        assert one.name == "pclf" or all(map(one.specifier.contains, locked.get(one.name, [""]))), one


@pytest.mark.parametrize("name", models.NAMES)
def test_a_model_has_its_parts_and_does_not_inherit_them(name):
    """From scikit-learn's estimator to a model there is the contract, and nothing else."""
    def steps(cls):
        return 0 if cls is BaseEstimator else 1 + min((steps(base) for base in cls.__bases__
                                                       if issubclass(base, BaseEstimator)), default=99)

    assert steps(getattr(pclf, name)) <= 2
