"""Engines compute the E-step; `create` makes one by name."""

import importlib.util
from typing import Any

from pclf.em.state import Engine
from pclf.errors import UnknownNameError, did_you_mean

NAMES = ("auto", "cpu", "gpu", "reference")
GPU_PAYS = 5_000_000   # ratings from which "auto" takes a GPU where there is one


def create(name: str, *, dtype: str = "float32", n_threads: int | None = None, n_ratings: int = 0) -> Engine:
    """The engine called `name`; "auto" is the GPU for large data where one works, else the CPU."""
    if name == "auto":
        large = n_ratings >= GPU_PAYS and dtype == "float32" and n_threads is None    # threads are the CPU's
        name = "gpu" if large and gpu_works() else "cpu"
    if name == "cpu":
        from pclf.engines.cpu import CpuEngine

        return CpuEngine(dtype=dtype, n_threads=n_threads)
    if name == "gpu":
        from pclf.engines.gpu import GpuEngine

        _refuse("gpu", dtype != "float32" and f"dtype={dtype!r}", n_threads is not None and "n_threads")
        return GpuEngine()
    if name == "reference":
        from pclf.engines.reference import ReferenceEngine

        _refuse("reference", n_threads is not None and "n_threads")
        return ReferenceEngine()
    raise UnknownNameError(did_you_mean(name, list(NAMES), "engine"))


def for_personal(engine: Engine, n_threads: int | None) -> Any:
    """What learns the personal view where an engine works: the GPU, or cores of the CPU."""
    if engine.name == "gpu":
        from pclf.engines.gpu_ordinal import Card

        return Card(engine)   # type: ignore[arg-type]
    from pclf.engines.cpu import cores
    from pclf.engines.ordinal import Cores

    return Cores(min(n_threads or cores(), cores()))


def gpu_works() -> bool:
    if not all(importlib.util.find_spec(package) for package in ("torch", "triton")):
        return False
    import torch

    return bool(torch.cuda.is_available())


def _refuse(engine: str, *ignored: Any) -> None:
    """A setting the engine would ignore is an error, never silence."""
    for setting in filter(None, ignored):
        raise ValueError(f"engine {engine!r} has no use for {setting}: leave it out, or use engine='cpu'.")
