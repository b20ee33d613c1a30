"""The E-step on the cores of the CPU, without the posterior: `kernels.expect` has the sums.

The ratings of a domain lie in the order in which a sweep reads them, 4 bytes each, the same for all views. A
sweep is cut into *parts* with counts of their own, which are added up in order. The cut depends on the data
alone, so any number of threads gives the same bits.
"""

import os
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import log, log2, prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pclf.em.state import IntArray, Params, Problem, Stats
from pclf.errors import EngineError

X = TypeVar("X")
Y = TypeVar("Y")
Floats = NDArray[np.floating[Any]]
Rows = slice | IntArray
Span = tuple[int, int]

SMALL = 50_000   # ratings below which threads cost more than they give
LARGE = 1 << 20  # numbers from which threads pay for adding them up
DENSE = 16       # ratings of an average item that make another part worth its counts
PARTS = 16       # the most threads that can work on a sweep


@dataclass(frozen=True)
class Index:
    """The ratings of a domain: by blocks of users, in a block by level, within a level by user.

    The ratings of one level by one user are a *row*.
    """

    groups: NDArray[np.int64]    # (blocks * R + 1,)  where the rows of a block and level start
    row_ptr: NDArray[np.int64]   # (rows + 1,)        where the ratings of a row start
    member: NDArray[np.uint8]    # (rows,)            which user of the block
    user_rows: IntArray          # (U_z,)             where a user's counts go
    item: IntArray               # (ratings + SPARE,)
    parts: tuple[Span, ...]      # ranges of blocks


@dataclass(frozen=True)
class Placed:
    problem: Problem
    indices: dict[int, Index]                 # of the domains that some view has
    item_rows: tuple[tuple[Rows, ...], ...]   # as in Problem, but ranges are slices
    scratch: Floats                           # for the counts of a sweep's parts


class Counts(NamedTuple):
    """What the sweeps of a view add to."""

    users: Floats                  # (U, K)
    items: Floats                  # (V, C)
    table: NDArray[np.float64]     # (R, K, C)


class CpuEngine:
    """numba on `n_threads` cores, all by default, in "float32" or "float64". Tables are float64 in both."""

    name = "cpu"

    def __init__(self, dtype: str = "float32", n_threads: int | None = None) -> None:
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64'; got {dtype!r}.")
        if n_threads is not None and n_threads < 1:
            raise ValueError(f"n_threads must be at least 1; got {n_threads}. Leave it out to use all cores.")
        found = cores()
        if n_threads is not None and n_threads > found:
            warnings.warn(f"n_threads={n_threads} is more than the {found} cores here; using {found}.",
                          UserWarning, stacklevel=2)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.n_threads = min(n_threads or found, found)

    def place(self, problem: Problem) -> Placed:
        needed, free = self._bytes_needed(problem), free_memory()
        if free is not None and needed > free:
            raise EngineError(f"a fit of these {problem.n_ratings:,} ratings needs about {needed / 2**30:.1f} GiB of "
                              f"memory; {free / 2**30:.1f} GiB are free. Use fewer clusters, or more memory.")
        views = problem.layout.views
        n_items = {z: len(rows) for view, parts in zip(views, problem.item_rows, strict=True)
                   for z, rows in zip(view.domains, parts, strict=True)}
        indices = {z: self._index(problem, z, n) for z, n in n_items.items()}
        sizes = [(len(indices[z].parts) + 1) * n_items[z] * width(view.n_clusters)
                 for view in views for z in view.domains]
        item_rows = tuple(tuple(map(_as_slice, parts)) for parts in problem.item_rows)
        return Placed(problem, indices, item_rows, _aligned((max(sizes, default=0),), self.dtype))

    def estep(self, data: Placed, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posterior, which is summed over the ratings but never formed:

            posterior(k, c) = a[u, k] g[r, k, c] b[v, c] / d        d = <a[u] @ g[r], b[v]>

        with a = users**beta, b = items**beta, g = table**beta.
        """
        problem = data.problem
        a = self._power(np.ascontiguousarray(params.users, self.dtype), beta)
        users, items, tables, objective = np.zeros_like(a), [], [], 0.0
        for i, view in enumerate(problem.layout.views):
            # d is about (users * items) ** -beta. A power of two, exact, brings it near 1: no underflow.
            exponent = round(beta * log2(max(1, problem.n_users * problem.n_items[i])))
            g = (np.asarray(params.tables[i]) ** beta * 2.0**exponent).astype(self.dtype)      # (R, K, C)
            given = a, params.items[i], *_lay_out(g)
            counts = Counts(users, np.zeros(params.items[i].shape, self.dtype), np.zeros(g.shape))
            for z, rows in zip(view.domains, data.item_rows[i], strict=True):
                if n := len(problem.level[z]):
                    logs = self._sweep(data, z, rows, given, beta, view.weight, counts)
                    objective += view.weight * (logs - n * exponent * log(2.0)) / beta
            items.append(counts.items)
            tables.append(g * counts.table)
        return Stats(users, tuple(items), tuple(tables), objective)

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        """Memberships in the engine's precision; tables, which have three axes, in float64."""
        return np.ascontiguousarray(array, np.float64 if array.ndim == 3 else self.dtype)

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def _sweep(self, data: Placed, z: int, rows: Rows, given: tuple[Floats, Floats, Floats, Floats],
               beta: float, weight: float, counts: Counts) -> float:
        """One domain in one view: adds to the counts, the table's still to be multiplied by g; sum of log d."""
        from pclf.engines.kernels import expect

        (a, items, g, gt), index, scale = given, data.indices[z], self.dtype.type(weight)
        n_parts, n_columns, lanes = len(index.parts), items.shape[1], (0,) * g.shape[1]
        n_items = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        scratch = data.scratch[:(n_parts + 1) * n_items * len(lanes)].reshape(n_parts + 1, n_items, len(lanes))
        t, b = scratch[:-1], scratch[-1]
        tables = np.zeros((n_parts, *g.shape))

        def prepare(span: Span) -> None:
            part = b[slice(*span)]
            part[:, :n_columns] = items[_part(rows, span)]
            part[:, n_columns:] = 0
            if beta != 1:
                np.power(part[:, :n_columns], beta, out=part[:, :n_columns])

        def expect_part(p: int) -> float:
            return expect(index.groups, index.row_ptr, index.member, index.item, *index.parts[p],
                          index.user_rows, a, b, g, gt, counts.users, t[p], tables[p], scale, lanes)

        def collect(span: Span) -> None:
            total = t[:, slice(*span)].sum(axis=0)             # part after part
            total *= b[slice(*span)]
            total *= scale
            counts.items[_part(rows, span)] += total[:, :n_columns]

        spans = _spans(n_items, n_parts if n_parts * b.size >= LARGE else 1)
        self._map(prepare, spans)
        logs = self._map(expect_part, range(n_parts))
        self._map(collect, spans)
        counts.table[:] += weight * tables.sum(axis=0)[:, :n_columns].reshape(counts.table.shape)
        return sum(logs)

    def _bytes_needed(self, problem: Problem) -> int:
        """About: 13 bytes a rating while the index is made, and per number of P(u, k) and P(v, c) six copies in the
        iterations, with those of the parts."""
        numbers = problem.n_users * problem.layout.n_user_clusters
        for view, n_items in zip(problem.layout.views, problem.n_items, strict=True):
            numbers += n_items * width(view.n_clusters)
        return 13 * problem.n_ratings + 6 * self.dtype.itemsize * numbers

    def _index(self, problem: Problem, z: int, n_items: int) -> Index:
        from pclf.engines.kernels import BLOCK

        ends, item = self._sort(problem, z)
        n, lengths = len(problem.user[z]), np.diff(ends, prepend=0)
        rows = np.flatnonzero(lengths)
        row_ptr = np.concatenate([[0], ends[rows]])
        groups = _from_zero(np.count_nonzero(lengths.reshape(-1, BLOCK), axis=1))
        starts = row_ptr[groups[::problem.n_levels]]                       # of the blocks
        goals = np.linspace(0, n, _n_parts(n, n_items) + 1)[1:-1]
        cuts = [0, *np.searchsorted(starts, goals).tolist(), len(starts) - 1]
        parts = tuple((first, last) for first, last in pairwise(cuts) if first < last)
        user_rows = np.array(problem.user_rows[z], np.int32)
        return Index(groups, row_ptr, (rows % BLOCK).astype(np.uint8), user_rows, item, parts)

    def _sort(self, problem: Problem, z: int) -> tuple[NDArray[np.int64], IntArray]:
        """The items in the order of Index, and where those of each possible row end.

        A counting sort in two rounds, by bucket of users, then in each bucket: both stay within the caches.
        """
        from pclf.engines.kernels import BLOCK, SPARE, arrange, split, tally

        user, item, level, n_levels = problem.user[z], problem.item[z], problem.level[z], problem.n_levels
        n, n_users = len(user), len(problem.user_rows[z])
        shift = max(BLOCK.bit_length() - 1, n_users.bit_length() - 8)      # a bucket has 2**shift users
        chunks = _spans(n, self.n_threads if n >= SMALL else 1)
        counts = np.zeros((len(chunks), (n_users >> shift) + 1), np.int64)
        self._map(lambda i: tally(user[slice(*chunks[i])], shift, counts[i]), range(len(chunks)))
        starts = _from_zero(counts.T)                                      # by bucket, then by chunk
        place = starts[:-1].reshape(counts.T.shape).T.copy()
        keys, items = np.empty(n, np.uint32), np.empty(n, np.int32)
        ends = np.zeros(-(-n_users // BLOCK) * BLOCK * n_levels, np.int64)
        out = np.zeros(n + SPARE, np.int32)

        def split_chunk(i: int) -> None:
            chunk = slice(*chunks[i])
            split(user[chunk], item[chunk], level[chunk], n_levels, shift, place[i], keys, items)

        def arrange_bucket(i: int) -> None:
            first, last = starts[i * len(chunks)], starts[(i + 1) * len(chunks)]
            own = slice((i << shift) * n_levels, (i + 1 << shift) * n_levels)
            arrange(keys[first:last], items[first:last], own.start, first, ends[own], out)

        self._map(split_chunk, range(len(chunks)))
        self._map(arrange_bucket, range(counts.shape[1]))
        return ends, out

    def _power(self, x: Floats, beta: float) -> Floats:
        if beta == 1:
            return x
        out = np.empty_like(x)
        spans = _spans(len(x), PARTS if x.size >= SMALL else 1)
        self._map(lambda span: np.power(x[slice(*span)], beta, out=out[slice(*span)]), spans)
        return out

    def _map(self, function: Callable[[X], Y], tasks: Sequence[X]) -> list[Y]:
        """The results of all tasks. Threads, this one among them, take the next task as long as there is one."""
        if len(tasks) < 2 or self.n_threads == 1:
            return [function(task) for task in tasks]
        todo, done = deque(range(len(tasks))), dict[int, Y]()

        def work() -> None:
            while todo:
                try:
                    i = todo.popleft()
                except IndexError:                  # another thread was faster
                    return
                done[i] = function(tasks[i])

        others = [self._pool.submit(work) for _ in range(min(self.n_threads, len(tasks)) - 1)]
        try:
            work()
            for other in others:
                other.result()
        finally:                                    # after Ctrl-C too, nobody writes to the arrays
            todo.clear()
            wait(others)
        return [done[i] for i in range(len(tasks))]

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.n_threads, thread_name_prefix="pclf")


def free_memory() -> int | None:
    """Bytes that can be had without swapping, where the system says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def width(n_clusters: int) -> int:
    """Item clusters as whole vectors: 8, or a multiple of 16, which in float32 is a cache line."""
    return 8 if n_clusters <= 8 else -(-n_clusters // 16) * 16


def _n_parts(n_ratings: int, n_items: int) -> int:
    """A power of two, 1 to PARTS: two parts cost little, more of them need many ratings an item."""
    if n_ratings < SMALL:
        return 1
    return 1 << min(PARTS, max(2, n_ratings // (DENSE * n_items))).bit_length() - 1


def _lay_out(g: Floats) -> tuple[Floats, Floats]:
    """A table as `expect` reads it: (R * K, W), zeros behind the C columns, and (R * ceil(K / 8) * C, 8)."""
    n_levels, n_clusters, n_columns = g.shape
    padded = _aligned((n_levels * n_clusters, width(n_columns)), g.dtype)
    padded[:, :n_columns], padded[:, n_columns:] = g.reshape(-1, n_columns), 0
    eights = np.zeros((n_levels, -(-n_clusters // 8), 8, n_columns), g.dtype)
    eights.reshape(n_levels, -1, n_columns)[:, :n_clusters] = g
    return padded, np.ascontiguousarray(eights.swapaxes(2, 3)).reshape(-1, 8)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Floats:
    """An uninitialised array that starts on a cache line, so that no row of 64 bytes lies on two."""
    size = prod(shape) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -int(raw.__array_interface__["data"][0]) % 64
    return raw[start:start + size].view(dtype).reshape(shape)


def _spans(n: int, n_spans: int) -> list[Span]:
    """0..n in about equal pieces."""
    cuts = [n * i // n_spans for i in range(n_spans + 1)]
    return [(i, j) for i, j in pairwise(cuts) if i < j]


def _as_slice(rows: IntArray) -> Rows:
    start = int(rows[0]) if len(rows) else 0
    range_ = np.arange(start, start + len(rows))
    return slice(start, start + len(rows)) if np.array_equal(rows, range_) else rows


def _part(rows: Rows, span: Span) -> Rows:
    if isinstance(rows, slice):
        return slice(rows.start + span[0], rows.start + span[1])
    return rows[slice(*span)]


def _from_zero(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])
