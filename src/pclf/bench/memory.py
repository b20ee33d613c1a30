"""The floor under the CPU engine: what memory and caches allow, measured without the arithmetic.

A rating in a view costs its item code, 4 bytes, a row of the items' memberships to read and a row of their
counts to read and to write. Rows have W numbers, the next power of two: 16 for 9 to 16 clusters. In float32:

    bytes a rating and view  =  4 + 3 * 4 W        (196 for W = 16)

Users, levels and tables cost little beside that, since they are read once for many ratings. Two floors follow:
these bytes at the speed at which rows of items can be gathered, and these very loads and stores, issued without
the arithmetic. The second is lower, since a core loads and stores at the same time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pclf.engines.cpu import _aligned, _spans, width
from pclf.engines.kernels import AHEAD, Array, compiled
from pclf.engines.simd import blend, gather, load, prefetch, scatter_add, store, zeros

Job = Callable[[], Any]


@compiled
def _read(item: Array, first: int, last: int, b: Array, out: Array, lanes: Any) -> None:
    """Reads b[v] for each rating, four at a time."""
    ones = np.ones((1, 4), b.dtype)
    total, w = zeros(b, lanes), load(ones, 0, (0, 0, 0, 0))
    for j in range(first, last, 4):
        prefetch(b, item, j + AHEAD, 0, lanes)
        total = blend(gather(b, item, j, 0, lanes), w, total)
    store(out, 0, total)


@compiled
def _update(item: Array, first: int, last: int, b: Array, t: Array, out: Array, lanes: Any) -> None:
    """Reads b[v] and adds to t[v] for each rating: the traffic of `kernels.expect`, and nothing else."""
    ones = np.ones((1, 4), b.dtype)
    total, w, own = zeros(b, lanes), load(ones, 0, (0, 0, 0, 0)), load(b, 0, lanes)
    for j in range(first, last, 4):
        prefetch(b, item, j + AHEAD, 0, lanes)
        prefetch(t, item, j + AHEAD, 0, lanes)
        total = blend(gather(b, item, j, 0, lanes), w, total)
        scatter_add(t, item, j, own, w)
    store(out, 0, total)


def bytes_per_update(n_clusters: int) -> int:
    """What an E-step must move for a rating."""
    return 4 + 3 * 4 * width(n_clusters)


def bytes_per_read(n_clusters: int) -> int:
    """What `reading` moves for a rating, each time."""
    return 4 + 4 * width(n_clusters)


def traffic(item: np.ndarray, n_items: int, n_clusters: int, n_threads: int) -> Job:
    """A job that moves what an E-step of these ratings must move."""
    return _sweep(_update, item, n_items, n_clusters, n_threads, counts=True)


def reading(item: np.ndarray, n_items: int, n_clusters: int, n_threads: int, times: int = 1) -> Job:
    """A job that gathers the rows of the items alone, so many times."""
    return _sweep(_read, item, n_items, n_clusters, n_threads, counts=False, times=times)


def copying(n_bytes: int, n_threads: int) -> Job:
    """A job that copies this many bytes, in memory far larger than the caches."""
    source, target = np.ones(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    return _threaded(lambda span: np.copyto(target[slice(*span)], source[slice(*span)]), _spans(n_bytes, n_threads))


def _sweep(kernel: Callable[..., None], item: np.ndarray, n_items: int, n_clusters: int, n_threads: int,
           counts: bool, times: int = 1) -> Job:
    lanes = (0,) * width(n_clusters)
    item = np.concatenate([item, np.zeros(AHEAD, np.int32)])
    rows = _aligned((n_threads + 1, n_items, len(lanes)), np.dtype(np.float32))
    rows[:] = 1e-3
    spans = [(first // 4 * 4, last // 4 * 4) for first, last in _spans(len(item) - AHEAD, n_threads)]
    out = np.empty((len(spans), 1, len(lanes)), np.float32)

    def part(i: int) -> None:
        own = (rows[1 + i],) if counts else ()
        for _ in range(times):
            kernel(item, *spans[i], rows[0], *own, out[i], lanes)

    return _threaded(part, range(len(spans)))


def _threaded(part: Callable[[Any], None], parts: Any) -> Job:
    if len(parts) == 1:
        return lambda: part(parts[0])
    pool = ThreadPoolExecutor(len(parts))
    return lambda: list(pool.map(part, parts))
