"""Gram: sums over all pairs of people and items, in closed form."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.choice.rows import Rows
from pclf.engines.cpu import cores, one_thread_of_algebra
from pclf.engines.kernels import compiled
from pclf.engines.simd import load, minus, store, zeros
from pclf.errors import DataError

Floats = NDArray[np.floating[Any]]

TILE = 64            # items worked on together
STRIP = 1024         # columns of a sum worked on together: 4 KB of a row
LARGE = 2000         # items of a matrix that pays for several threads
LANES = (0,) * 128   # columns of a strip that lies in one piece, whose sums are kept in registers


def gram(rows: Rows, n_threads: int | None = None) -> NDArray[np.float32]:
    """The lower triangle of X'X.   (V, V)

    The row of an item is the sum of the rows of those who chose it, up to the item itself. Each is summed by one
    thread in one order, so that any number of threads gives the same bits.
    """
    n = rows.shape[1]
    out = np.zeros((n, n), np.float32)
    by_item = rows.T.tocsr()
    columns = (by_item.indptr, by_item.indices, by_item.data, rows.indptr, rows.indices, rows.data)
    in_parts(lambda a, b: _gram(a, b, *columns, out), n, TILE, n_threads)
    return out


def inverse(lower: NDArray[np.float32], penalty: float | Floats) -> NDArray[np.float32]:
    """(A + penalty I)^-1 of a symmetric matrix of which the lower triangle is given, by Cholesky; A is used up.

    penalty: one for all, or one for each.   (V,)
    """
    from scipy.linalg import lapack

    n = len(lower)
    if not n:                    # LAPACK refuses an empty matrix
        return lower
    lower[np.diag_indices(n)] += np.asarray(penalty, np.float32)
    kept = lower.diagonal().copy()
    with one_thread_of_algebra() if n < LARGE else nullcontext():
        factor, failed = lapack.spotrf(lower.T, lower=0, overwrite_a=1, clean=0)   # the transpose is in Fortran's order
        if not failed:
            found, failed = lapack.spotri(factor, lower=0, overwrite_c=1)
    if failed:
        raise DataError(f"choices must be of a moderate size; their sums, up to {kept.max():.0e}, cannot be "
                        f"inverted with a penalty of {np.min(penalty):.3g}")
    out: NDArray[np.float32] = found.T
    _mirror(out)
    return out


def basis(columns: Floats) -> Floats:
    """Of what the columns span, which are few: threads would wait for each other at each of them."""
    with one_thread_of_algebra():
        out: Floats = np.linalg.qr(columns)[0]
    return out


def sums(rows: Rows, table: NDArray[np.float32]) -> NDArray[np.float32]:
    """rows @ table, on this thread alone.   (people, columns)"""
    out = np.zeros((rows.shape[0], table.shape[1]), np.float32)
    _sums(rows.indptr, rows.indices, rows.data, table, out)
    return out


def in_strips(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """A table cut into strips of columns that lie in one piece each, the last one filled up with zeros: a strip that
    fits into the cache is read many times.   (strips, rows, LANES)"""
    n = -(-table.shape[1] // len(LANES))
    out = np.zeros((n, len(table), len(LANES)), np.float32)
    for s in range(n):
        strip = table[:, s * len(LANES):(s + 1) * len(LANES)]
        out[s, :, :strip.shape[1]] = strip
    return out


def sums_of_strips(rows: Rows, strips: NDArray[np.float32], n_columns: int) -> NDArray[np.float32]:
    """`sums` with a table in strips: twice as fast for many rows.   (people, columns)"""
    out = np.empty((rows.shape[0], n_columns), np.float32)
    _sums_of_strips(rows.indptr, rows.indices, rows.data, strips, out)
    return out


def quadratic(rows: Rows, table: NDArray[np.float32], n_threads: int | None = None) -> NDArray[np.float32]:
    """x' table x for each row x.   (rows,)"""
    out = np.zeros(rows.shape[0], np.float32)
    in_parts(lambda a, b: _quadratic(a, b, rows.indptr, rows.indices, rows.data, table, out), len(out), TILE, n_threads)
    return out


def in_parts(work: Callable[[int, int], Any], n: int, size: int, n_threads: int | None = None) -> None:
    """work(start, stop) for all parts of range(n), on several threads; the last first, which are long in a triangle."""
    starts = range(0, n, size)[::-1]
    if len(starts) == 1:                       # a thread takes longer to start than somebody's list takes
        work(0, n)
        return
    with ThreadPoolExecutor(n_threads or cores()) as pool:
        list(pool.map(lambda start: work(start, min(n, start + size)), starts))


@compiled
def _gram(first: int, last: int, of_item: Any, person: Any, count: Any, of_person: Any, item: Any, value: Any,
          out: Any) -> None:
    for i in range(first, last):
        row = out[i]
        for p in range(of_item[i], of_item[i + 1]):
            x, u = count[p], person[p]
            for q in range(of_person[u], of_person[u + 1]):
                if item[q] > i:
                    break
                row[item[q]] += x * value[q]


@compiled
def _mirror(square: Any) -> None:
    """The upper triangle from the lower one, a tile at a time."""
    n = len(square)
    for a in range(0, n, TILE):
        for b in range(0, a + TILE, TILE):
            for i in range(a, min(n, a + TILE)):
                for j in range(b, min(i, b + TILE)):
                    square[j, i] = square[i, j]


def _in_order(function: Callable[..., None]) -> Callable[..., None]:
    return compiled(function, {"contract"})


@_in_order
def _sums(indptr: Any, item: Any, value: Any, table: Any, out: Any) -> None:
    """Four rows of the table at a time, since memory hands out several sooner than one after the other; they are added
    in the order of one after the other."""
    for start in range(0, table.shape[1], STRIP):
        for i in range(len(out)):
            row = out[i, start:start + STRIP]
            first, last = indptr[i], indptr[i + 1]
            fours = last - (last - first) % 4
            for p in range(first, fours, 4):
                x, y, z, w = value[p], value[p + 1], value[p + 2], value[p + 3]
                a, b = table[item[p], start:start + STRIP], table[item[p + 1], start:start + STRIP]
                c, d = table[item[p + 2], start:start + STRIP], table[item[p + 3], start:start + STRIP]
                for j in range(len(row)):
                    row[j] = (((row[j] + x * a[j]) + y * b[j]) + z * c[j]) + w * d[j]
            for p in range(fours, last):
                x, a = value[p], table[item[p], start:start + STRIP]
                for j in range(len(row)):
                    row[j] += x * a[j]


@compiled
def _sums_of_strips(indptr: Any, item: Any, value: Any, strips: Any, out: Any) -> None:
    few = np.empty(strips.shape[2], np.float32)
    for s in range(len(strips)):
        start, strip = s * len(few), strips[s]
        n = min(len(few), out.shape[1] - start)
        for i in range(len(out)):
            total = zeros(strip, LANES)
            for p in range(indptr[i], indptr[i + 1]):
                total = minus(total, -value[p], load(strip, np.int64(item[p]), LANES))
            store(few, 0, total)
            out[i, start:start + n] = few[:n]


@compiled
def _quadratic(first: int, last: int, indptr: Any, item: Any, value: Any, table: Any, out: Any) -> None:
    for i in range(first, last):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            part = 0.0
            for q in range(indptr[i], indptr[i + 1]):
                part += value[q] * table[item[p], item[q]]
            total += value[p] * part
        out[i] = total
