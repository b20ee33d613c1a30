"""The paper's experiment: Tables 1 to 3 and the weight figure, ours beside the paper's.

    >>> found = reproduce(["BC-EM"], [5], repeats=2, out="runs/reproduce")     # doctest: +SKIP
    >>> print(found)                                                           # doctest: +SKIP

The work is cut into cells, (pair, given, repeat, system); a system that learns from one domain alone has a
cell a domain, which serves both of its pairs. A finished cell is a line of OUT/cells.jsonl, under a key that
stands for its ratings, settings and code: an interrupted run goes on where it was, and nothing stale is read.
"""

import hashlib
import inspect
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pclf.errors import ArgumentError, DataError, UnknownNameError, did_you_mean
from pclf.evaluate import protocol, tables
from pclf.evaluate.compare import fit_timed, mean_sd, run_all, score
from pclf.evaluate.metrics import mae
from pclf.evaluate.protocol import GIVENS, MORE_THAN, PAIRS, REPEATS, Sample
from pclf.evaluate.significance import paired_tests
from pclf.models.base import Recommender
from pclf.progress import progress as progress_bar

SYSTEMS = ("NMF", "FMM", "RMGM", "PCLF", "CBT", "TALMUD", "BIAS")
SINGLE = ("NMF", "FMM", "BIAS")      # these learn from one domain alone
PRESETS = ("paper", "best")
ROW = ("pair", "dataset", "given", "model", "preset", "repeats", "mae_mean", "mae_median", "rmse", "mae_sd",
       "paper_mae", "seconds")
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
FIT = {"engine": "cpu", "n_threads": 1}
METRICS = ("mae", "rmse", "log_score", "ece", "coverage", "crps")
CODE = ("data", "problem.py", "clusters", "factors", "engines", "models",                         # what decides a cell
        "evaluate/compare.py", "evaluate/metrics.py", "evaluate/protocol.py")

# On top of each mixture's `paper()`, which is plain annealed EM. The paper does not say how its NMF was set: these two
# numbers are the ones that come nearest to its results.
PAPER_SETTINGS: dict[str, dict[str, Any]] = {
    "NMF": {"n_factors": 5, "max_iter": 20},
    "FMM": {"n_user_clusters": 20, "n_item_clusters": 20},
    "RMGM": {"n_user_clusters": 20, "n_item_clusters": 20},
    "PCLF": {"n_user_clusters": 20, "n_common_clusters": 10, "n_specific_clusters": 15, "common_weight": 0.35},
}


def systems(preset: str, names: Iterable[str] = SYSTEMS) -> dict[str, Recommender]:
    """The compared systems by the paper's names, unfitted: with its settings, or the library's defaults."""
    from pclf.models import create

    made = {name: create(name) for name in names}
    if preset == "paper":
        made |= {name: getattr(type(made[name]), "paper", type(made[name]))(**PAPER_SETTINGS[name])
                 for name in made if name in PAPER_SETTINGS}
    return made


class Cell(NamedTuple):
    """A system, its settings and the samples it sees: everything a process needs to run it."""

    name: str
    model: Recommender
    samples: dict[str, Sample]
    given: int

    @property
    def repeat(self) -> int:
        return next(iter(self.samples.values())).repeat

    def key(self, code: str) -> str:
        """A hash of all that decides the numbers: data, protocol, settings and source code."""
        settings = {name: repr(value) for name, value in sorted(self.model.get_params().items())}
        parts = (type(self.model).__name__, _source(type(self.model)), settings, self.given, code, METRICS, WEIGHTS,
                 {name: s.fingerprint for name, s in self.samples.items()})
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

    def __str__(self) -> str:
        return f"{self.name} on {'-'.join(self.samples)}, given {self.given}, repeat {self.repeat}"


def _source(kind: type) -> str:
    """A hash of the file that a class of somebody else is written in; something new each time where there is none."""
    if kind.__module__.startswith("pclf."):
        return ""
    try:
        return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()
    except (OSError, TypeError):
        return uuid.uuid4().hex


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` found. `rows` are the numbers, one a pair, data set, given N and system."""

    results: tuple[dict[str, Any], ...] = field(repr=False)   # a pair, data set, given N, system and repeat

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `pclf reproduce --json`."""
        return [{name: row[name] for name in ROW} for row in self.summary]

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """The rows with more columns: the spread of the median rule's MAE, and scores of the distribution."""
        out = []
        for (preset, pair, dataset, given, model), found in self._cells.items():
            scores = [f["scores"] for f in found]
            mean, sd = mean_sd([s["mae_mean"] for s in scores])
            row = {"pair": pair, "dataset": dataset, "given": given, "model": model, "preset": preset,
                   "repeats": len(found), "mae_mean": mean, "mae_median": None, "rmse": None, "mae_sd": sd,
                   "paper_mae": protocol.paper_mae(pair, dataset, model, given),
                   "seconds": mean_sd([f["seconds"] for f in found])[0], "mae_median_sd": None}
            for name in scores[0]:
                if name in ("mae_mean", "n"):
                    continue
                row[name], spread = mean_sd([s[name] for s in scores])
                if name == "mae_median":
                    row["mae_median_sd"] = spread
            out.append(row)
        return out

    @cached_property
    def tests(self) -> list[dict[str, Any]]:
        """PCLF against every other system, paired over the repeats; Holm corrects for their number."""
        names = ("preset", "pair", "dataset", "given", "rule")
        families: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
        for (*cell, model), found in self._cells.items():
            for rule in ("mean", "median"):
                errors = {f["repeat"]: f["scores"].get(f"mae_{rule}") for f in found}
                if None not in errors.values():
                    families.setdefault((*cell, rule), {})[model] = errors
        return [{**dict(zip(names, family, strict=True)), **test._asdict()}
                for family, models in families.items() if "PCLF" in models
                for test in paired_tests(models, "PCLF")]

    @cached_property
    def curves(self) -> list[dict[str, Any]]:
        """MAE against W1, a list a repeat, for the weight figure."""
        return [{"preset": preset, "pair": pair, "dataset": dataset, "given": given, "weights": list(WEIGHTS),
                 "mae": [f["curve"] for f in found]}
                for (preset, pair, dataset, given, model), found in self._cells.items()
                if all(f.get("curve") for f in found)]

    def __repr__(self) -> str:
        return tables.markdown(self.summary)

    def write(self, out: str | Path) -> list[Path]:
        """Rows, tables (Markdown, CSV, LaTeX), tests and the weight figure, into a folder."""
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"rows.json": json.dumps(self.rows, indent=1), "tables.md": tables.markdown(self.summary),
                 "tables.tex": tables.latex(self.summary), "tables.csv": tables.csv_layout(self.summary),
                 "tests.csv": tables.csv_text(self.tests), "tests.md": tables.tests_markdown(self.tests)}
        for name, text in texts.items():
            (folder / name).write_text(text + "\n", encoding="utf-8")
        figures = [path for preset in dict.fromkeys(c["preset"] for c in self.curves)
                   for path in tables.weight_figure([c for c in self.curves if c["preset"] == preset],
                                                    folder / f"weights-{preset}")]
        return [*(folder / name for name in texts), *figures]

    @cached_property
    def _cells(self) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        out: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for r in self.results:
            out.setdefault((r["preset"], r["pair"], r["dataset"], r["given"], r["model"]), []).append(r)
        return out


def reproduce(pairs: Sequence[str] = tuple(PAIRS), givens: Sequence[int] = GIVENS, repeats: int = REPEATS,
              models: Sequence[str] | Mapping[str, Recommender] = SYSTEMS, preset: str = "paper",
              out: str | Path | None = None, *, n_jobs: int = 1, progress: bool = False,
              recipe: str | Path | None = None) -> Reproduction:
    """Run the paper's experiment, or a part of it.

    models: names of the paper's systems, or models of your own by name. preset: "paper" (its settings),
    "best" (the library's defaults) or "both". out: a folder for the results; an interrupted run goes on from
    the cells that it finds there. n_jobs: processes; with more than one a script needs `if __name__ == "__main__":`.
    recipe: the recipe file of an earlier run, whose samples must come out again; the one in `out` is checked always.
    """
    presets = _checked(pairs, givens, repeats, models, preset)
    names = list(dict.fromkeys(name for pair in pairs for name in PAIRS[pair]))
    domains = protocol.load(names)
    samples = {(z, r): protocol.sample(z, domains[z], r) for z, r in product(names, range(repeats))}
    folder = Path(out) if out is not None else None
    _freeze(samples.values(), folder, recipe)

    code = _code()
    wanted = {p: models if isinstance(models, Mapping) else systems(p, models) for p in presets}
    plan = {(p, pair, given, repeat, name): _cells_of(name, model, pair, given, repeat, samples)
            for repeat, pair, given, p in product(range(repeats), pairs, givens, presets)
            for name, model in wanted[p].items()}
    cells = {cell.key(code): cell for needed in plan.values() for cell in needed}
    store = Store(folder / "cells.jsonl" if folder else None)
    jobs = [(key, cell) for key, cell in cells.items() if key not in store.found]
    with progress_bar("reproduce", len(jobs), unit="cells", shown=progress) as advance:
        def finished(job: tuple[str, Cell], found: dict[str, Any]) -> None:
            store.add({"key": job[0], **found})
            advance(1, str(job[1]))

        run_all(run_cell, jobs, min(n_jobs, max(1, len(jobs))), finished)
    made = Reproduction(tuple(_results(plan, code, store.found)))
    if folder:
        made.write(folder)
    return made


def run_cell(job: tuple[str, Cell]) -> dict[str, Any]:
    """Fit one system on the training ratings of a cell; its errors on the test ratings of each data set."""
    _, cell = job
    split = protocol.split(cell.samples, cell.given)
    try:
        fitted, seconds = fit_timed(cell.model, split.train, {**FIT, "random_state": cell.repeat})
        scores: dict[str, dict[str, float]] = {}
        for dataset, metric, rule, value, n in score(fitted, split.test, ("mean", "median"), METRICS):
            name = f"mae_{rule}" if metric == "mae" else metric
            if not (metric == "rmse" and rule == "median"):
                scores.setdefault(dataset, {"n": n})[name] = value
        curve = {name: weight_curve(fitted, split.test, name) for name in split.test.domains
                 } if hasattr(fitted, "set_common_weight") else {}
    except Exception as error:
        error.add_note(f"while running {cell}")
        raise
    return {"model": cell.name, "datasets": list(cell.samples), "given": cell.given, "repeat": cell.repeat,
            "seconds": round(seconds, 4), "scores": scores, "curve": curve}


def weight_curve(model: Any, test: Any, name: str) -> list[float]:
    """MAE by the mean rule at each of WEIGHTS: the fit stays, only the prediction is weighed anew."""
    domain, out = test.domains[name], []
    for weight in WEIGHTS:
        model.set_common_weight(name, weight)
        out.append(mae(domain.ratings, model.predict_codes(name, domain.user, domain.item)))
    return out


class Store:
    """Finished cells by key. A line is appended in one piece; one that was cut off is dropped when read."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.found = path, {}
        if path is not None and path.exists():
            text = path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):
                os.truncate(path, len(whole))
            try:
                self.found = {row["key"]: row for row in map(json.loads, whole.splitlines())}
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path} must hold a finished cell a line, as JSON; got other text: {error}. "
                                f"Move it away, or use another output folder.") from None

    def add(self, row: dict[str, Any]) -> None:
        self.found[row["key"]] = row
        if self.path is not None:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, json.dumps(row).encode() + b"\n")
            finally:
                os.close(handle)


def _cells_of(name: str, model: Recommender, pair: str, given: int, repeat: int,
              samples: Mapping[tuple[str, int], Sample]) -> list[Cell]:
    """One cell for both data sets of a pair, or one each for a system that sees one at a time."""
    groups = [(z,) for z in PAIRS[pair]] if name in SINGLE else [PAIRS[pair]]
    return [Cell(name, model, {z: samples[z, repeat] for z in group}, given) for group in groups]


def _results(plan: Mapping[tuple[Any, ...], list[Cell]], code: str,
             found: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a data set of every cell of the plan, table by table: data set, then given N, then system."""
    lines = []
    for (preset, pair, given, repeat, name), cells in plan.items():
        for cell in cells:
            row = found[cell.key(code)]
            lines += [{"preset": preset, "pair": pair, "dataset": dataset, "given": given, "repeat": repeat,
                       "model": name, "seconds": row["seconds"], "scores": row["scores"][dataset],
                       "curve": row["curve"].get(dataset)} for dataset in cell.samples]
    return sorted(lines, key=lambda r: (PRESETS.index(r["preset"]), list(PAIRS).index(r["pair"]),
                                        PAIRS[r["pair"]].index(r["dataset"]), r["given"]))


def _freeze(samples: Iterable[Sample], folder: Path | None, recipe: str | Path | None) -> None:
    """Check the samples against the recipe files there are; write what they are into the folder."""
    own = folder / "recipe.json" if folder else None
    known = list(samples)
    frozen = {path: json.loads(Path(path).read_text("utf-8")) for path in (recipe, own)
              if path is not None and (path == recipe or Path(path).exists())}
    for path, rows in frozen.items():
        protocol.check_recipe(rows, known, path)
    if own is not None:
        own.parent.mkdir(parents=True, exist_ok=True)
        made = protocol.recipe(known)
        if own in frozen:                                                                       # of a larger run
            made["samples"] += [row for row in frozen[own]["samples"] if row not in made["samples"]]
        own.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _checked(pairs: Sequence[str], givens: Sequence[int], repeats: int,
             models: Sequence[str] | Mapping[str, Recommender], preset: str) -> tuple[str, ...]:
    for names, known, what in ((pairs, PAIRS, "pair"), ([preset], (*PRESETS, "both"), "preset"),
                               ([] if isinstance(models, Mapping) else models, SYSTEMS, "model")):
        for name in names:
            if name not in known:
                raise UnknownNameError(did_you_mean(name, known, what))
    most = min(MORE_THAN.values())
    for given in givens:
        if not 1 <= given <= most:
            raise ArgumentError(f"given must be 1 to {most}, for every test user to be tested; got {given}.")
    if repeats < 1:
        raise ArgumentError(f"repeats must be at least 1; got {repeats}.")
    return PRESETS if preset == "both" else (preset,)


def _code() -> str:
    """A hash of the sources that decide a cell's numbers."""
    seal, root = hashlib.sha256(), Path(str(files("pclf")))
    for place in CODE:
        for path in sorted((root / place).rglob("*.py")) if (root / place).is_dir() else [root / place]:
            seal.update(path.read_bytes())
    return seal.hexdigest()

