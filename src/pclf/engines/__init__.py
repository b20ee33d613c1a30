"""Engines compute the E-step; `create` makes one by name."""

import importlib.util
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.state import Engine
from pclf.errors import ArgumentError, UnknownNameError, did_you_mean

NAMES = ("auto", "cpu", "gpu", "reference", "disk", "spark")
GPU_PAYS = 5_000_000   # ratings from which "auto" takes a GPU where there is one
MOST_LEVELS = 16       # of factors on the GPU


class Lists(Protocol):
    """The ratings of a domain by row, users or items, where a machine has them."""

    @property
    def rated(self) -> NDArray[np.bool_]:
        """Rows with ratings."""

    @property
    def n_chosen(self) -> NDArray[Any]:
        """How many ratings of each row are choices: all, or of events and absences the events."""

    def sums(self, x: Any) -> Any:
        """Of the rows of x that each row chose."""


class Machine(Protocol):
    """Where factors are learned: `cpu_rows.Cores`, or `gpu_rows.Card`."""

    most: int    # ratings above which there are no factors unless they are asked for

    def here(self) -> AbstractContextManager[None]: ...
    def check_room(self, n_ratings: int, n_rows: int, n_levels: int, size: int) -> None: ...
    def put(self, array: NDArray[Any]) -> Any: ...
    def get(self, array: Any) -> NDArray[Any]: ...
    def lists(self, user: Any, item: Any, level: Any, n_users: int, n_items: int, n_levels: int,
              least: int) -> tuple[Any, Any]: ...
    def side(self, row: Any, other: Any, level: Any, n_rows: int, n_others: int, n_levels: int,
             least: int = 0) -> Any: ...
    def collect(self, lists: Any, rows: Any, other_rows: Any, other_square: Any, base: Any,
                tilt: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def step(self, lists: Any, rows: Any, square: Any, trust: Any, other_rows: Any, other_square: Any, prior: Any,
             mean: Any, freedom: float, base: Any, tilt: Any) -> list[NDArray[Any]]: ...


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
    if name in ("disk", "spark"):
        raise ArgumentError(f"engine {name!r} has no ratings in memory: pass it to fit of PCLF, RMGM or FMM, with "
                            f"files{' or Spark frames' * (name == 'spark')}.")
    raise UnknownNameError(did_you_mean(name, list(NAMES), "engine"))


def for_rows(engine: Engine, n_levels: int) -> Machine:
    """What learns factors where an engine works: the GPU, or cores of the CPU.

    The GPU holds numbers for all pairs of levels in registers, so it leaves many levels to the CPU.
    """
    if engine.name == "gpu" and n_levels <= MOST_LEVELS:
        from pclf.engines.gpu_rows import Card

        return Card(engine)   # type: ignore[arg-type]
    from pclf.engines.cpu import cores
    from pclf.engines.cpu_rows import Cores

    return Cores(getattr(engine, "n_threads", cores()))


def gpu_works() -> bool:
    if not all(importlib.util.find_spec(package) for package in ("torch", "triton")):
        return False
    import torch

    return bool(torch.cuda.is_available())


def _refuse(engine: str, *ignored: Any) -> None:
    """A setting the engine would ignore is an error, never silence."""
    for setting in filter(None, ignored):
        raise ArgumentError(f"engine {engine!r} has no use for {setting}: leave it out, or use engine='cpu'.")
