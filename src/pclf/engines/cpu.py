"""The E-step on the cores of the CPU, without the posterior: `kernels.expect` has the sums.

The ratings of a domain lie in the order in which a sweep reads them, 4 bytes each, the same for all views. A
sweep is cut into *parts* with counts of their own, which are added up in order. The cut depends on the data
alone, so any number of threads gives the same bits.
"""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import log, log2, prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.state import Params, Stats
from pclf.errors import ArgumentError, EngineError
from pclf.problem import IntArray, Problem

X = TypeVar("X")
Y = TypeVar("Y")
Floats = NDArray[np.floating[Any]]
Span = tuple[int, int]

SMALL = 50_000   # ratings below which threads cost more than they give
LARGE = 1 << 21  # numbers from which threads pay for adding them up
DENSE = 16       # ratings of an average item that make another part worth its counts
PARTS = 16       # the most threads that can work on a sweep


@dataclass(frozen=True)
class Index:
    """The ratings of a domain: by blocks of users, in a block by level, within a level by user.

    The ratings of one level by one user are a *row*. It takes whole tiles of four; an item that does not exist, one
    behind the last, fills up the last of them.
    """

    groups: NDArray[np.int64]    # (blocks * R + 1,)  where the rows of a block and level start
    member: NDArray[np.uint8]    # (rows,)            which user of the block
    tiles: NDArray[np.int64]     # (rows + 1,)        where the tiles of a row start
    item: IntArray               # (4 * tiles + AHEAD,)
    user_rows: IntArray          # (U_z,)             where a user's counts go
    parts: tuple[Span, ...]      # ranges of blocks


@dataclass(frozen=True)
class Sheet:
    """A domain in a view: room for what a sweep works on. The item that does not exist has the last rows."""

    view: int
    weight: Any                  # of the view, in the engine's precision
    rows: IntArray               # (V_z,)  of its items in the view
    b: Floats                    # (V_z + 1, W)
    t: Floats                    # (parts, V_z + 1, W)
    tables: NDArray[np.float64]  # (parts, R * K, W)

    @property
    def lanes(self) -> tuple[int, ...]:
        return (0,) * int(self.b.shape[1])


@dataclass(frozen=True)
class Placed:
    problem: Problem
    indices: dict[int, Index]          # of the domains that some view has
    sheets: dict[int, list[Sheet]]     # of these, in all their views. Domains, swept in turn, share the room


class Counts(NamedTuple):
    """What the sweeps add to."""

    users: Floats                         # (U, K)
    items: list[Floats]                   # (V, C)  a view
    tables: list[NDArray[np.float64]]     # (R, K, C)


class Threads:
    """`n_threads` of them that stay, for an engine and for the factors beside it."""

    n_threads: int

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


class CpuEngine(Threads):
    """numba on `n_threads` cores, all by default, in "float32" or "float64". Tables are float64 in both."""

    name = "cpu"

    def __init__(self, dtype: str = "float32", n_threads: int | None = None) -> None:
        if dtype not in ("float32", "float64"):
            raise ArgumentError(f"dtype must be 'float32' or 'float64'; got {dtype!r}.")
        if n_threads is not None and (not isinstance(n_threads, (int, np.integer)) or n_threads < 1):
            raise ArgumentError(f"n_threads must be at least 1; got {n_threads!r}. Leave it out to use all cores.")
        found = cores()
        if n_threads is not None and n_threads > found:
            warnings.warn(f"n_threads={n_threads} is more than the {found} cores here; using {found}.",
                          UserWarning, stacklevel=2)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.n_threads = min(n_threads or found, found)

    def place(self, problem: Problem) -> Placed:
        check_room(self._bytes_needed(problem), f"a fit of these {problem.n_ratings:,} ratings", "Use fewer clusters")
        return self.placed(problem, self.indices(problem))

    def indices(self, problem: Problem, domains: Iterable[int] | None = None) -> dict[int, Index]:
        """The ratings of some domains, or of all that a view has, in the order of a sweep."""
        if domains is None:
            domains = dict.fromkeys(z for view in problem.layout.views for z in view.domains)
        return {z: self._index(problem, z, problem.sizes[z]) for z in domains}

    def placed(self, problem: Problem, indices: dict[int, Index]) -> Placed:
        """With room to work in. Of the ratings, `problem` need only know how many there are."""
        return Placed(problem, indices, self._sheets(problem, indices))

    def estep(self, data: Placed, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posterior, which is summed over the ratings but never formed:

            posterior(k, c) = a[u, k] g[r, k, c] b[v, c] / d        d = <a[u] @ g[r], b[v]>

        with a = users**beta, b = items**beta, g = table**beta.
        """
        problem, views = data.problem, range(len(data.problem.layout.views))
        a = self._power(np.ascontiguousarray(params.users, self.dtype), beta)
        items = [self._power(np.ascontiguousarray(x, self.dtype), beta) for x in params.items]
        # d is about (users * items) ** -beta. A power of two, exact, brings it near 1: no underflow.
        exponents = [round(beta * log2(max(1, problem.n_users * n))) for n in problem.n_items]
        g = [(np.asarray(params.tables[i]) ** beta * 2.0**exponents[i]).astype(self.dtype) for i in views]   # (R, K, C)
        tables = [_lay_out(x) for x in g]
        counts = Counts(np.zeros_like(a), [np.zeros_like(x) for x in items], [np.zeros(x.shape) for x in g])
        objective = 0.0
        for z in data.indices:
            if n := len(problem.level[z]):
                for i, logs in self._sweep(data, z, a, items, tables, counts):
                    objective += problem.layout.views[i].weight * (logs - n * exponents[i] * log(2.0)) / beta
        return Stats(counts.users, tuple(counts.items), tuple(g[i] * counts.tables[i] for i in views), objective)

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        """Memberships in the engine's precision; tables, which have three axes, in float64."""
        return np.ascontiguousarray(array, np.float64 if array.ndim == 3 else self.dtype)

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def _sweep(self, data: Placed, z: int, a: Floats, items: Sequence[Floats],
               tables: Sequence[tuple[Floats, Floats]], counts: Counts) -> list[tuple[int, float]]:
        """The ratings of a domain, in all its views: adds to the counts, those of tables still to be multiplied by g.

        Returns each view with its sum of log d. A part goes through all views, while its index is in the cache.
        """
        from pclf.engines.kernels import collect, expect, pad
        from pclf.engines.simd import FLOOR

        index, sheets, views = data.indices[z], data.sheets[z], data.problem.layout.views
        group = column_group(data.problem.layout.n_user_clusters)
        spans = _spans(len(sheets[0].rows), PARTS if sum(sheet.t.size for sheet in sheets) >= LARGE else 1)

        def expect_part(p: int) -> list[float]:
            return [expect(index.groups, index.member, index.tiles, index.item, *index.parts[p], index.user_rows,
                           a, sheet.b, *tables[sheet.view], counts.users, sheet.t[p], sheet.tables[p],
                           sheet.weight, sheet.lanes, group) for sheet in sheets]

        def pad_some(span: Span) -> None:
            for sheet in sheets:
                pad(items[sheet.view], sheet.rows, *span, sheet.b)
                sheet.b[-1] = 0

        def collect_some(span: Span) -> None:
            for sheet in sheets:
                collect(sheet.t, sheet.b, sheet.rows, sheet.weight, *span, counts.items[sheet.view], sheet.lanes)

        self._map(pad_some, spans)
        logs = self._map(expect_part, range(len(index.parts)))
        self._map(collect_some, spans)
        n_filled = 4 * int(index.tiles[-1]) - len(data.problem.user[z])
        out = []
        for sheet, of_parts in zip(sheets, zip(*logs, strict=True), strict=True):
            table = counts.tables[sheet.view]
            table += views[sheet.view].weight * sheet.tables.sum(axis=0)[:, :table.shape[2]].reshape(table.shape)
            out.append((sheet.view, sum(of_parts) - n_filled * FLOOR[self.dtype.itemsize] * log(2.0)))
        return out

    def _sheets(self, problem: Problem, indices: dict[int, Index]) -> dict[int, list[Sheet]]:
        wanted: dict[int, list[tuple[int, IntArray, tuple[int, int, int]]]] = {z: [] for z in indices}
        for i, view in enumerate(problem.layout.views):
            for z, rows in zip(view.domains, problem.item_rows[i], strict=True):
                if z not in indices:                       # no ratings in this block of users
                    continue
                shape = len(indices[z].parts) + 1, len(rows) + 1, width(view.n_clusters)
                wanted[z].append((i, np.array(rows, np.int32), shape))
        sizes = [sum(prod(shape) for _, _, shape in sheets) for sheets in wanted.values()]
        room, out = _aligned((max(sizes, default=0),), self.dtype), {z: list[Sheet]() for z in indices}
        for z, sheets in wanted.items():
            start = 0
            for i, rows, shape in sheets:
                own = room[start:(start := start + prod(shape))].reshape(shape)
                tables = np.empty((shape[0] - 1, problem.n_levels * problem.layout.n_user_clusters, shape[2]))
                weight = self.dtype.type(problem.layout.views[i].weight)
                out[z].append(Sheet(i, weight, rows, own[-1], own[:-1], tables))
        return out

    def _bytes_needed(self, problem: Problem) -> int:
        """About: 14 bytes a rating and 30 a possible row while the index is made, and in the iterations five copies of
        P(u, k) and P(v, c), and the room of the domain that needs most."""
        numbers, room = problem.n_users * problem.layout.n_user_clusters, dict.fromkeys(range(len(problem.user)), 0)
        for view, n_items, parts in zip(problem.layout.views, problem.n_items, problem.item_rows, strict=True):
            numbers += n_items * width(view.n_clusters)
            for z, rows in zip(view.domains, parts, strict=True):
                n_parts = _n_parts(len(problem.user[z]), max(1, len(rows)))
                room[z] += (n_parts + 1) * len(rows) * width(view.n_clusters)
        n_rows = problem.n_levels * max(map(len, problem.user_rows))
        return 14 * problem.n_ratings + 30 * n_rows + self.dtype.itemsize * (5 * numbers + max(room.values()))

    def _index(self, problem: Problem, z: int, n_items: int) -> Index:
        from pclf.engines.kernels import BLOCK

        lengths, item = self._sort(problem, z, n_items)                    # of the rows: block, level, user
        rows = np.flatnonzero(lengths)
        tiles = _from_zero(-(-lengths[rows] // 4))
        groups = _from_zero(np.count_nonzero(lengths.reshape(-1, BLOCK), axis=1))
        starts = tiles[groups[::problem.n_levels]]                         # of the blocks
        goals = np.linspace(0, tiles[-1], _n_parts(len(problem.user[z]), n_items) + 1)[1:-1]
        cuts = [0, *np.searchsorted(starts, goals).tolist(), len(starts) - 1]
        parts = tuple((first, last) for first, last in pairwise(cuts) if first < last)
        user_rows = np.array(problem.user_rows[z], np.int32)
        return Index(groups, (rows % BLOCK).astype(np.uint8), tiles, item, user_rows, parts)

    def _sort(self, problem: Problem, z: int, n_items: int) -> tuple[NDArray[np.int64], IntArray]:
        """How many ratings each possible row has, and the items in the order of Index.

        A counting sort in two rounds, by bucket of users, then in each bucket: both stay within the caches.
        """
        from pclf.engines.kernels import AHEAD, BLOCK, arrange, count, split, tally

        user, item, level, n_levels = problem.user[z], problem.item[z], problem.level[z], problem.n_levels
        n, n_users = len(user), len(problem.user_rows[z])
        if (n_users + BLOCK) * n_levels >= 1 << 32:                        # keys are of 32 bits
            raise EngineError(f"users times levels must be below {1 << 32:,} here; got {n_users:,} users and "
                              f"{n_levels} levels. Use fewer levels.")
        shift = max(BLOCK.bit_length() - 1, n_users.bit_length() - 8)      # a bucket has 2**shift users
        chunks = _spans(n, self.n_threads if n >= SMALL else 1) or [(0, 0)]
        counts = np.zeros((len(chunks), (n_users >> shift) + 1), np.int64)
        self._map(lambda i: tally(user[slice(*chunks[i])], shift, counts[i]), range(len(chunks)))
        starts = _from_zero(counts.T)                                      # by bucket, then by chunk
        place = starts[:-1].reshape(counts.T.shape).T.copy()
        keys, items = np.empty(n, np.uint32), np.empty(n, np.int32)
        lengths = np.zeros(-(-n_users // BLOCK) * BLOCK * n_levels, np.int64)

        def split_chunk(i: int) -> None:
            chunk = slice(*chunks[i])
            split(user[chunk], item[chunk], level[chunk], n_levels, shift, place[i], keys, items)

        self._map(split_chunk, range(len(chunks)))
        buckets = [slice(*span) for span in pairwise(starts[::len(chunks)].tolist())]
        self._map(lambda bucket: count(keys[bucket], lengths), buckets)
        starts = _from_zero(-(-lengths // 4) * 4)
        out = np.full(starts[-1] + AHEAD, n_items, np.int32)
        self._map(lambda bucket: arrange(keys[bucket], items[bucket], starts, out), buckets)
        return lengths, out

    def _power(self, x: Floats, beta: float) -> Floats:
        if beta == 1:
            return x
        out = np.empty_like(x)
        spans = _spans(len(x), PARTS if x.size >= SMALL else 1)
        self._map(lambda span: np.power(x[slice(*span)], beta, out=out[slice(*span)]), spans)
        return out


def check_room(needed: int, what: str, way_out: str) -> None:
    """An error, before memory runs out, if less is free."""
    free = free_memory()
    if free is not None and needed > free:
        raise EngineError(f"{what} needs about {needed / 2**30:.1f} GiB of memory; {free / 2**30:.1f} GiB are free. "
                          f"{way_out}, or more memory.")


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


def one_thread_of_algebra() -> AbstractContextManager[Any]:
    """NumPy's and SciPy's linear algebra stays on one thread inside.

    Small matrices want no more: several threads wait for each other at each of them, on a busy machine for many times
    as long as the work takes, and their number changes the last bits. Large ones are left to as many as are allowed.
    """
    limits: AbstractContextManager[Any] = _algebra().limit(limits=1, user_api="blas")
    return limits


@cache
def _algebra() -> Any:
    """The libraries that NumPy and SciPy calculate with. To look for them takes milliseconds, and a small fit asks a
    hundred times."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def by_row(row: NDArray[np.int32], n_rows: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Entries by row, in the order they come in: where each row starts, and which they are.

    SciPy turns columns into rows by a counting sort.
    """
    from scipy.sparse import csc_array

    n = len(row)
    found = csc_array((np.ones(n, bool), row, np.arange(n + 1)), shape=(n_rows, n)).tocsr()
    return found.indptr.astype(np.int64), found.indices


def width(n_clusters: int) -> int:
    """Item clusters as whole vectors: 8, 16 (in float32 a cache line), 32, 64, ...; others compile badly."""
    return max(8, 1 << (n_clusters - 1).bit_length())


def _n_parts(n_ratings: int, n_items: int) -> int:
    """A power of two, 1 to PARTS: two parts cost little, more of them need many ratings an item."""
    if n_ratings < SMALL:
        return 1
    return 1 << min(PARTS, max(2, n_ratings // (DENSE * n_items))).bit_length() - 1


def column_group(n_user_clusters: int) -> tuple[int, ...]:
    """User clusters go in pieces of 16 lanes. Where the last of them has few, a vector holds several columns of the
    table: as many as this tuple is long."""
    left = (n_user_clusters - 1) % 16 + 1
    return (0,) * (4 if left <= 4 else 2 if left <= 8 else 1)


def _lay_out(g: Floats) -> tuple[Floats, Floats]:
    """A table as `expect` reads it: (R * K, W), zeros behind the C columns, and (R * ceil(K / 16) * C, 16).

    The second has a column of 16 clusters in a row; of the last piece, a group of columns, cluster by cluster.
    """
    n_levels, n_clusters, n_columns = g.shape
    padded = _aligned((n_levels * n_clusters, width(n_columns)), g.dtype)
    padded[:, :n_columns], padded[:, n_columns:] = g.reshape(-1, n_columns), 0
    n_pieces, group = -(-n_clusters // 16), len(column_group(n_clusters))
    pieces = np.zeros((n_levels, n_pieces, n_columns, 16), g.dtype)
    whole, n_groups = 16 * (n_pieces - 1), -(-n_columns // group)
    pieces[:, :-1] = g[:, :whole].reshape(n_levels, n_pieces - 1, 16, n_columns).swapaxes(2, 3)
    rest = np.zeros((n_levels, 16 // group, n_groups * group), g.dtype)
    rest[:, :n_clusters - whole, :n_columns] = g[:, whole:]
    rest = rest.reshape(n_levels, 16 // group, n_groups, group).swapaxes(1, 2)       # (R, groups, clusters, group)
    pieces[:, -1, :n_groups] = rest.reshape(n_levels, n_groups, 16)
    return padded, pieces.reshape(-1, 16)


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


def _from_zero(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])
