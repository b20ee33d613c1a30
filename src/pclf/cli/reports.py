"""What `evaluate` and `doctor` have to say."""

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Iterator
from typing import Any

import typer


def evaluate(data: Any, protocol: str, names: list[str], repeats: int, seed: int) -> tuple[dict[str, Any], Any]:
    """Scores of the models and paired tests of the last one against the others."""
    from pclf import models
    from pclf.evaluate.compare import compare
    from pclf.progress import progress

    chosen = {type(model).__name__: model for model in (models.create(name.strip()) for name in names)}
    with progress("evaluate", repeats * len(chosen), unit="fit") as advance:
        def watched() -> Iterator[Any]:
            for split in splits(data, protocol, repeats, seed):
                yield split
                advance(len(chosen))

        found = compare(chosen, watched(), random_state=seed)
    last = list(chosen)[-1]
    tests = [{"domain": p.domain, "metric": p.metric, "rule": p.rule, **p.test._asdict()}
             for p in (found.paired(last) if repeats > 1 and len(chosen) > 1 else [])]
    return {"protocol": protocol, "repeats": repeats, "scores": found.summary(), "tests": tests}, found


def splits(data: Any, protocol: str, repeats: int, seed: int) -> Iterable[Any]:
    from pclf.data.splits import given_n, hold_out

    match = re.fullmatch(r"(given|holdout)-(\d+)", protocol)
    if not match or int(match[2]) < 1:
        raise typer.BadParameter(f"--protocol must be given-N, such as given-5, or holdout-P for P percent; got "
                                 f"{protocol!r}.")
    number = int(match[2])
    if match[1] == "given":
        return (given_n(data, number, seed=seed + i) for i in range(repeats))
    return (hold_out(data, number / 100, seed=seed + i) for i in range(repeats))


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
