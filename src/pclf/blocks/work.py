"""Work: the folder of a fit that is larger than memory. What is finished there is not done again.

    lock                   held by the run that uses the folder
    catalogue.safetensors  items and sizes, written when all blocks are there
    blocks/                the ratings, by blocks of users
    runs/                  where each run of EM stands: shared parameters, and rows of users
    model/                 the fitted model
"""

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import storage
from pclf.blocks import groups
from pclf.blocks.catalogue import Catalogue
from pclf.blocks.choices import memory_of
from pclf.blocks.intake import LARGEST_PART, Advance, Sized, take_in
from pclf.clusters.loop import Saved, Step
from pclf.clusters.mstep import Means
from pclf.clusters.state import SpreadCounts, Stats
from pclf.data.parts import RatingFiles
from pclf.data.ratings import Ratings
from pclf.engines.cpu import free_memory, width
from pclf.errors import ArgumentError, ModelFileError, OutputError
from pclf.problem import Layout, Problem

PART = 1_000_000          # ratings of a part, about
BASE = 500 << 20          # bytes of Python, its libraries and a batch
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
SHORT = r"free space|requested and \d+ written"      # what NumPy says of a full disk, without a number
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Work:
    """An open folder of work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    @contextmanager
    def open(cls, path: str | Path) -> Iterator["Work"]:
        """The folder, for this run alone. A full disk is an error of ours, and nothing that it left counts."""
        folder = Path(path).expanduser()
        lock = folder / "lock"
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"work must be a folder; {folder} is a file.")
        if folder.is_dir() and not lock.exists() and any(folder.iterdir()):
            raise OutputError(f"{folder} holds files that are not of a fit, so it cannot be used for work. Give the "
                              f"name of a folder that is empty, or not there yet.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock.open("a") as file:
                _hold(file, folder)
                yield cls(folder)
        except OSError as error:
            if not isinstance(error, OutputError) and (error.errno in FULL or re.search(SHORT, str(error))):
                raise OutputError(f"{folder} cannot be written to: {error.strerror or error}. Make room, or give "
                                  f"another folder: what is finished is kept, and the same call goes on.") from None
            raise

    def blocks(self, files: RatingFiles, sized: Sized, advance: Advance, n_parts: int | None = None,
               take_in: Callable[..., Catalogue] = take_in) -> Catalogue:
        """The ratings of some files in blocks: those that are there, if they are of the same files."""
        path, seal = self.folder / "catalogue.safetensors", files.fingerprint()
        if path.exists():
            catalogue, extra = Catalogue.load(path)
            if extra.get("files") != seal:
                raise OutputError(f"{self.folder} holds the blocks of other files, or of these before they were "
                                  f"changed, or read with other options. Give another folder for work, or remove "
                                  f"this one.")
            if catalogue.n_blocks >= min(catalogue.n_parts, sized(
                    catalogue.ratings, catalogue.n_learned, catalogue.n_users)):
                advance(2 * catalogue.n_ratings, "blocks are there")
                return catalogue
            path.unlink()                                    # there is less memory than there was
        for old in ("blocks", "runs", "model"):
            shutil.rmtree(self.folder / old, ignore_errors=True)
        n_parts = n_parts or min(LARGEST_PART, max(1, -(-files.n_learned() // PART)))
        try:
            catalogue = take_in(files, self.folder / "blocks", n_parts, sized, advance)
            catalogue.save(path, {"files": seal})
        except BaseException:
            shutil.rmtree(self.folder / "blocks", ignore_errors=True)
            raise
        return catalogue

    def run(self, *what: Any) -> Path:
        """The folder of a run that is told from others by all of this."""
        return self.folder / "runs" / hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def save_run(path: Path, state: Saved) -> None:
    """Where a run stands, whole or not at all; the rows of users are there already."""
    stats, means = state.stats, state.means
    arrays = {"sums": stats.users.sums, "means.users": means.users}
    for name, several in (("items", stats.items), ("tables", stats.tables), ("means.items", means.items),
                          ("means.tables", means.tables)):
        arrays |= {f"{name}.{i}": np.ascontiguousarray(x) for i, x in enumerate(several)}
    trace = [list(asdict(step).values()) for step in state.trace]
    text = json.dumps({"at": stats.users.at, "objective": stats.objective, "trace": trace})
    storage.write_atomically(path, arrays, {"run": text}, force=True)


def load_run(path: Path) -> Saved | None:
    """Where a run stood when it was stopped, if it had come far enough."""
    if not path.exists():
        return None
    arrays, metadata = storage.read_arrays(path)
    try:
        told = json.loads(metadata["run"])
    except (ValueError, KeyError) as error:
        raise ModelFileError(f"{path} must say where a run stands; {error}. Remove it to begin anew.") from None

    def several(name: str) -> tuple[NDArray[Any], ...]:
        return tuple(arrays[f"{name}.{i}"] for i in range(sum(key.startswith(f"{name}.") for key in arrays)))

    stats = Stats(SpreadCounts(arrays["sums"], told["at"]), several("items"), several("tables"), told["objective"])
    means = Means(arrays["means.users"], several("means.items"), several("means.tables"))
    return Saved(stats, means, tuple(Step(*step) for step in told["trace"]))


def kept_arrays(path: Path, make: Callable[[], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays in a file that an earlier run left, or those that are made now, and left there."""
    if path.exists():
        return storage.read_arrays(path)[0]
    arrays = make()
    storage.write_atomically(path, {name: np.ascontiguousarray(x) for name, x in arrays.items()}, {}, force=True)
    return arrays


@dataclass(frozen=True)
class Room:
    """What a fit takes.

    lists: whether choices are learned, once the clusters are. row: how many numbers a row of factors has with so many
    ratings; 0 without factors.
    """

    layout: Layout
    dtype: str
    lists: bool
    row: Callable[[int], int]

    def blocks(self, memory: int) -> Sized:
        """How many blocks keep it within so many bytes."""
        return partial(self._blocks, memory)

    def _blocks(self, memory: int, ratings: Ratings, n_ratings: int, n_users: int) -> int:
        layout, size, row = self.layout, np.dtype(self.dtype).itemsize, self.row(n_ratings)
        problem = Problem.of(ratings, layout)
        of_items = 200 * sum(problem.sizes)
        numbers = sum(n * width(view.n_clusters) for n, view in zip(problem.n_items, layout.views, strict=True))
        fixed = BASE + of_items + 12 * size * numbers
        needed = 14 * n_ratings + n_users * (30 * problem.n_levels + 5 * size * layout.n_user_clusters)
        least, what = fixed + min(needed, 64 << 20), "in these clusters"
        if self.lists:
            least, what = max((least, what), (BASE + of_items + memory_of(ratings, n_ratings), "and their lists"))
        if row:
            of_rows = groups.memory_of(sum(d.n_items for d in ratings.domains.values()), n_ratings, row)
            least, what = max((least, what), (BASE + of_items + of_rows, "with factors"))
        if memory < least:
            raise ArgumentError(f"memory must be at least {least / 1e9:.1f} GB for {sum(problem.sizes):,} items "
                                f"{what}; got {memory / 1e9:.1f} GB.")
        return int(-(-needed // (memory - fixed)))


def as_bytes(memory: str | float | None) -> int:
    """4GB, 500MB or a number of bytes; without any, half of what is free."""
    if memory is None:
        return (free_memory() or 4 * 10**9) // 2
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", str(memory).upper())
    if not found:
        raise ArgumentError(f"memory must be a number of bytes, or text such as '4GB'; got {memory!r}.")
    return int(float(found[1]) * UNITS[found[2]])


def _hold(file: Any, folder: Path) -> None:
    """Nobody else may use the folder as long as this file is open, and this process alive."""
    try:
        import fcntl
    except ImportError:                                      # no such locks on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OutputError(f"{folder} is used by another run. Wait for it to end, or give another folder.") from None


def remove(folder: Path) -> None:
    """A folder of ours, if it is there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
