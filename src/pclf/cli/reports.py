"""What `evaluate` and `doctor` have to say."""

import importlib.metadata
import math
import os
import platform
import re
from collections.abc import Iterable
from typing import Any

import typer

from pclf.tables import Table


def check(protocol: str, names: str | None) -> None:
    """Wrong words are found before files are read, which may be long."""
    from pclf import models

    _protocol(protocol)
    for name in names.split(",") if names else ():
        models.create(name.strip())


def evaluate(data: Any, protocol: str, names: str | None, repeats: int, seed: int) -> tuple[dict[str, Any], str]:
    """Scores of the models and paired tests of the last one against the others: as rows, and in words."""
    from pclf import models
    from pclf.evaluate.compare import compare

    events = any(d.events for d in data.domains.values())               # which Bias cannot learn from
    wanted = (names or ("Popular,EASE,FMM,RMGM,PCLF" if events else "Popular,EASE,Bias,FMM,RMGM,PCLF")).split(",")
    chosen = {type(model).__name__: model for model in (models.create(name.strip()) for name in wanted)}
    found = compare(chosen, splits(data, protocol, repeats, seed), random_state=seed, baselines=False, progress=True)
    last, text = list(chosen)[-1], str(found)
    pairs = found.paired(last) if len({s.split for s in found.scores}) > 1 and len(chosen) > 1 else []
    tests = [{"domain": p.domain, "metric": p.metric, "rule": p.rule, **p.test._asdict()} for p in pairs]
    if pairs:
        text += (f"\n\nAgainst {last}, paired over the splits (t test, Holm's correction over the models):\n\n"
                 f"{_in_words(pairs)}")
    return {"protocol": protocol, "repeats": repeats, "scores": found.summary(), "tests": tests}, text


def _in_words(pairs: Iterable[Any]) -> str:
    """Paired tests as a Markdown table."""
    rows = []
    for domain, metric, rule, test in pairs:
        change, interval = "the same", ""
        if test.effect and math.isfinite(test.relative):
            base = test.effect / test.relative                          # the mean of the reference
            low, high = (f"{100 * end / base:+.1f}" for end in (test.low, test.high))
            change, interval = f"{100 * test.relative:+.1f} %", f"{low} to {high} %"
        elif test.effect:                                               # from 0, of which there is no percentage
            change, interval = f"{test.effect:+.4f}", f"{test.low:+.4f} to {test.high:+.4f}"
        rows.append([domain, metric, rule or "", test.model, change, interval, f"{test.p_t_holm:.2g}"])
    return Table(["domain", "metric", "rule", "model", "change", "95 % interval", "p"], rows).markdown()


def splits(data: Any, protocol: str, repeats: int, seed: int) -> Iterable[Any]:
    from pclf.data.splits import by_time, given_n, hold_out, last_n

    kind, number = _protocol(protocol)
    if kind in ("latest", "last"):                                      # nothing is drawn, so there is one split
        return [by_time(data, number / 100) if kind == "latest" else last_n(data, number)]
    if kind == "given":
        return (given_n(data, number, seed=seed + i) for i in range(repeats))
    return (hold_out(data, number / 100, seed=seed + i) for i in range(repeats))


def _protocol(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(given|holdout|latest|last)-(\d+)", text)
    if not match or int(match[2]) < 1:
        raise typer.BadParameter(f"--protocol must be given-N, such as given-5, last-N, or holdout-P or latest-P for "
                                 f"P percent; got {text!r}.")
    return match[1], int(match[2])


def doctor() -> dict[str, str]:
    from pclf import __version__, datasets
    from pclf.engines.cpu import cores

    rows = {"pclf": __version__, "python": platform.python_version(), "system": platform.platform(),
            "threads": str(cores())}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        rows["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    for package in ("numpy", "scipy", "numba", "pyarrow", "narwhals", "scikit-learn", "torch", "triton"):
        try:
            rows[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            rows[package] = "not installed"
    rows |= {f"engine {name}": _engine(name) for name in ("cpu", "gpu", "reference")}
    rows["PCLF_DATA"] = os.environ.get("PCLF_DATA", "not set")
    here = [name for name in datasets.names() if datasets.info(name).here]
    rows["data here"] = ", ".join(here)
    return rows


def _engine(name: str) -> str:
    from pclf import engines

    try:
        engines.create(name)
    except Exception as error:
        return f"does not work: {error}"
    return "works"
