"""Row steps of the factors on the cores of the CPU: one Newton step of every row, given the rows of the other side."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.engines.cpu import Floats, Threads, by_row, check_room, width
from pclf.engines.kernels import SIXTEEN, compiled
from pclf.engines.pooling import exp32
from pclf.engines.simd import blend, dots, gather, load, minus, plus, prefetch, store, zeros
from pclf.problem import IntArray

Array = Any
FOUR = (0,) * 4      # lanes of weights
BATCH = 64           # ratings of a row worked on together
CHUNKS = 16, 64      # fewest and most tasks; as many as the ratings ask for, so that threads do not change the bits
CHUNK = 100_000      # ratings that are worth a task
SMALL = 20_000       # ratings below which threads cost more than they give


@dataclass(frozen=True)
class Lists:
    """Ratings of a domain by row, users or items, in the order they come in."""

    starts: NDArray[np.int64]    # (rows + 1,)
    other: IntArray              # (n,)
    level: NDArray[np.uint8]     # (n,)
    chosen_starts: NDArray[np.int64]   # (rows + 1,)
    chosen: IntArray             # the others that were chosen: all, or of events and absences the events
    cores: "Cores"

    @property
    def rated(self) -> NDArray[np.bool_]:
        """Rows with ratings."""
        return np.diff(self.starts) > 0

    @property
    def n_chosen(self) -> NDArray[Any]:
        """Choices of each row."""
        return np.diff(self.chosen_starts)

    def sums(self, x: Floats) -> Floats:
        """Of the rows of x that each row chose."""
        n, lanes = x.shape[1], (0,) * width(x.shape[1])
        table = np.zeros((len(x), len(lanes)), x.dtype)
        table[:, :n] = x
        out = np.empty((len(self.chosen_starts) - 1, len(lanes)), x.dtype)
        self.cores.run(lambda rows: add_chosen(self.chosen_starts, self.chosen, table, rows[0], rows[1], out, lanes),
                       _chunks(self.chosen_starts), len(self.chosen))
        return out[:, :n]


class Cores(Threads):
    """Where factors are learned: here, by threads. `gpu_rows.Card` does the same on a GPU."""

    most = 50_000_000    # ratings above which there are no factors unless they are asked for: it would take minutes

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads

    def here(self) -> AbstractContextManager[None]:
        """Where arrays that are put there live, for code that works on them."""
        return nullcontext()

    def check_room(self, n_ratings: int, n_rows: int, n_levels: int, size: int) -> None:
        """About: the lists of users and of items while they are made, and for each number of a row what is learned."""
        check_room(40 * n_ratings + 150 * n_rows * size, f"a model with factors of these {n_ratings:,} ratings",
                   "Use factor_weight=0")

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def lists(self, user: IntArray, item: IntArray, level: NDArray[np.uint8], n_users: int, n_items: int,
              n_levels: int, least: int) -> tuple[Lists, Lists]:
        """Ratings by user and by item. least: the level from which a rating is a choice."""
        by_user, by_item = self._map(lambda side: self.side(*side), [
            (user, item, level, n_users, n_items, n_levels, least),
            (item, user, level, n_items, n_users, n_levels, least)])
        return by_user, by_item

    def side(self, row: IntArray, other: IntArray, level: NDArray[np.uint8], n_rows: int, n_others: int, n_levels: int,
             least: int = 0) -> Lists:
        """Ratings by row."""
        starts, order = by_row(row, n_rows)
        others, levels = other[order], level[order]
        if not least:
            return Lists(starts, others, levels, starts, others, self)
        kept = levels >= least
        chosen_starts = np.concatenate([[0], np.cumsum(kept)])[starts]
        return Lists(starts, others, levels, chosen_starts, others[kept], self)

    def step(self, lists: Lists, rows: Floats, square: Floats, trust: Floats, other_rows: Floats, other_square: Floats,
             prior: Floats, mean: Floats, freedom: float, base: Floats, tilt: Floats) -> list[Floats]:
        """`newton` for all rows, in place; what it adds up, summed over chunks in order."""
        n_tilts, size = len(tilt), rows.shape[1]
        given = (lists.starts, lists.other, lists.level, rows, square, trust, *as_met(other_rows, tilt), other_square,
                 *precisions(prior, n_tilts), mean, freedom, base, tilt)
        chunks = _chunks(lists.starts)
        out = [empty_sums(len(base), n_tilts, size) for _ in chunks]
        jobs = [(*given, *span, *sums, *vectors(size - n_tilts, size)) for span, sums in zip(chunks, out, strict=True)]
        self.run(lambda job: newton(*job), jobs, len(lists.level))
        return [sum(part) for part in zip(*out, strict=True)]

    def collect(self, lists: Lists, rows: Floats, other_rows: Floats, other_square: Floats, base: Floats,
                tilt: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """`collect` for all rows: gradients, Hessians, and the gradient and Hessian of `base`."""
        size, n_levels = rows.shape[1], len(base)
        gradient, hessian = np.empty(rows.shape), np.empty((*rows.shape, size))
        given = (lists.starts, lists.other, lists.level, rows, *as_met(other_rows, tilt), other_square, base, tilt)
        chunks = _chunks(lists.starts)
        out = [(np.zeros(n_levels), np.zeros((n_levels, n_levels))) for _ in chunks]
        jobs = [(*given, *span, gradient, hessian, *sums, vectors(size - len(tilt), size)[0])
                for span, sums in zip(chunks, out, strict=True)]
        self.run(lambda job: collect(*job), jobs, len(lists.level))
        of_base = [sum(part) for part in zip(*out, strict=True)]
        return gradient, hessian, of_base[0], of_base[1]

    def run(self, job: Callable[[Any], None], tasks: Sequence[Any], n_ratings: int) -> None:
        """All tasks, which have so many ratings together."""
        if n_ratings < SMALL:
            for task in tasks:
                job(task)
        else:
            self._map(job, tasks)


def _chunks(starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges of rows with about equally many ratings."""
    n = int(starts[-1])
    bounds = np.searchsorted(starts, np.linspace(0, n, int(np.clip(n // CHUNK, *CHUNKS)) + 1))
    bounds[0], bounds[-1] = 0, len(starts) - 1
    return list(pairwise(bounds.tolist()))


def empty_sums(n_levels: int, n_tilts: int, size: int) -> tuple[Floats, Floats, Floats, Floats]:
    """What `newton` adds to."""
    return np.zeros(n_levels), np.zeros((n_levels, n_levels)), np.zeros((n_tilts, n_tilts)), np.zeros((size, size))


def as_met(rows: Floats, tilt: Floats) -> tuple[Floats, Floats]:
    """Rows as the other side meets them: what their shapes do to each level, and their factors. (n, R), (n, W)"""
    n, size = len(tilt), rows.shape[1]
    factors = np.zeros((len(rows), width(size - n)), np.float32)
    factors[:, :size - n] = rows[:, n:]
    return (rows[:, :n] @ tilt).astype(np.float32), factors


def vectors(n_factors: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What tells `newton` how long its vectors are."""
    return (0,) * width(n_factors), (0,) * width(size)


def precisions(covariance: Floats, n: int) -> tuple[Floats, Floats]:
    """Of the first n numbers of a row, and of the others given these: (n, n), (D, D)"""
    shape, whole = np.linalg.inv(covariance[:n, :n]), np.linalg.inv(covariance)
    whole[:n, :n] -= shape
    return shape, whole


def squares(factors: Floats) -> Floats:
    """Lower triangles of f f', with zeros behind them up to a multiple of 16. (n, 16 P)"""
    n = factors.shape[1]
    out, place = np.zeros((len(factors), -(-(n * (n + 1) // 2) // 16) * 16), np.float32), 0
    for i in range(n if factors.any() else 0):       # people begin with none
        out[:, place:place + i + 1] = factors[:, i:i + 1] * factors[:, :i + 1]
        place += i + 1
    return out


@compiled
def add_chosen(starts: Array, chosen: Array, x: Array, start: int, stop: int, out: Array, lanes: Any) -> None:
    """out[row] = the sum of the rows of x that it chose, for the rows start..stop."""
    for row in range(start, stop):
        total = zeros(x, lanes)
        for j in range(starts[row], starts[row + 1]):
            total = plus(total, load(x, np.int64(chosen[j]), lanes))
        store(out, row, total)


@compiled
def newton(indptr: Array, other: Array, level: Array,             # (rows + 1,), (n,), (n,): ratings by row
           own: Array, own_square: Array, trust: Array,           # (rows, D), (rows, 16 P), (rows,): changed
           logits: Array, factors: Array, squares: Array,         # (others, R), (others, W), (others, 16 P)
           shape_precision: Array, precision: Array,              # (T, T), (D, D): of x, and of f given x
           mean: Array, freedom: float,                           # (rows, D)
           base: Array, tilt: Array, start: int, stop: int,
           base_gradient: Array, base_hessian: Array,                      # (R,), (R, R): added to
           shape_cov: Array, total_cov: Array,                             # (T, T), (D, D): added to
           lanes: Any, row_lanes: Any) -> None:                            # tuples as long as vectors of f and of rows
    """A step of mean-field inference for the rows start..stop that have ratings.

        log P(r) = base[r] + tilt[0, r] (x[0] + x'[0] + <f, f'>) + sum of tilt[i, r] (x[i] + x'[i])   up to a constant

    where a row is (x, f), D = T + F numbers for T tilts. The other side comes in float32: its logits x' tilt, its
    factors and, for their uncertainty, the lower triangles of E[f' f''], both with zeros behind them. Under a prior
    of x with `freedom` degrees of freedom, a Student distribution, it counts as much as the row's `trust`, which is
    less the farther out x is. Added to: gradient and Hessian of `base`, and the sums of the covariances of x, times the
    trust, and of the whole row. Nothing is returned: numba runs Python to wrap an array, and Ctrl-C there would come
    out as a SystemError.
    """
    n_levels, n_tilts, size = len(base), len(tilt), own.shape[1]
    room = _room(n_levels, size - n_tilts, squares.shape[1], lanes)
    hessian, gradient, gap = np.zeros((size, len(row_lanes))), np.empty(size), np.empty(size)
    for row in range(start, stop):
        if indptr[row] == indptr[row + 1]:
            continue
        total, pairs, counts, sums, square = _meet(indptr[row], indptr[row + 1], other, level, own[row], logits,
                                                   factors, squares, base, tilt, room, lanes)
        hessian[:, :size] = precision
        gradient[:] = 0
        for i in range(size):
            for j in range(size):
                gradient[i] -= precision[i, j] * (own[row, j] - mean[row, j])
        for i in range(n_tilts):
            for j in range(n_tilts):
                hessian[i, j] += trust[row] * shape_precision[i, j]
                gradient[i] -= trust[row] * shape_precision[i, j] * (own[row, j] - mean[row, j])
        _assemble(hessian, gradient, total, pairs, counts, sums, square, own[row], tilt, base_gradient, base_hessian)
        _invert(hessian, row_lanes)
        cov = hessian                                             # now
        for i in range(size):
            step = 0.0
            for j in range(size):
                step += cov[i, j] * gradient[j]
            own[row, i] += min(1.0, max(-1.0, step))
            gap[i] = own[row, i] - mean[row, i]
        total_cov += cov[:, :size]
        distance = 0.0
        for i in range(n_tilts):
            for j in range(n_tilts):
                shape_cov[i, j] += trust[row] * cov[i, j]
                distance += shape_precision[i, j] * (gap[i] * gap[j] + cov[i, j])
        place = 0
        for i in range(n_tilts, size):
            for j in range(n_tilts, i + 1):
                own_square[row, place] = cov[i, j] + own[row, i] * own[row, j]
                place += 1
        if freedom > 0:
            trust[row] = (freedom + n_tilts) / (freedom + distance)


@compiled
def collect(indptr: Array, other: Array, level: Array,            # (rows + 1,), (n,), (n,): ratings by row
            own: Array,                                            # (rows, D)
            logits: Array, factors: Array, squares: Array,         # (others, R), (others, W), (others, 16 P)
            base: Array, tilt: Array, start: int, stop: int,
            gradient: Array, hessian: Array,                       # (rows, D), (rows, D, D): set for start..stop
            base_gradient: Array, base_hessian: Array,             # (R,), (R, R): added to
            lanes: Any) -> None:
    """What the ratings of the rows start..stop say about them, without any prior: the first half of `newton`, for rows
    that are solved together with rows of other domains."""
    n_levels, n_tilts, size = len(base), len(tilt), own.shape[1]
    room = _room(n_levels, size - n_tilts, squares.shape[1], lanes)
    for row in range(start, stop):
        gradient[row], hessian[row] = 0, 0
        if indptr[row] < indptr[row + 1]:
            total, pairs, counts, sums, square = _meet(indptr[row], indptr[row + 1], other, level, own[row], logits,
                                                       factors, squares, base, tilt, room, lanes)
            _assemble(hessian[row], gradient[row], total, pairs, counts, sums, square, own[row], tilt, base_gradient,
                      base_hessian)
        for i in range(size):
            for j in range(i):
                hessian[row, j, i] = hessian[row, i, j]


@compiled
def _room(n_levels: int, n_factors: int, n_squares: int, lanes: Any) -> Any:
    """Arrays that `_meet` works in."""
    small = np.float32
    return (np.empty(BATCH, np.int32), np.empty(BATCH, np.int64), np.empty(n_levels, small),
            np.zeros(len(lanes), small), np.empty((n_levels, BATCH), small), np.empty((n_levels, BATCH), small),
            np.empty((6, BATCH), small),
            np.empty(n_levels), np.empty((n_levels, n_levels)), np.empty(n_levels),
            np.empty((n_levels, len(lanes)), small), np.empty(n_squares, small))


@compiled
def _meet(begin: int, end: int, other: Array, level: Array, own: Array, logits: Array, factors: Array, squares: Array,
          base: Array, tilt: Array, room: Any, lanes: Any) -> Any:
    """Sums over the ratings begin..end of a row, see `_assemble`: total, pairs, counts, sums, square."""
    index, pieces, mine, f, p, w, six, total, pairs, counts, sums, square = room
    met, v, g, top, whole, mean_step = six[0], six[1], six[2], six[3], six[4], six[5]
    n_levels, n_tilts, n_pieces = len(base), len(tilt), squares.shape[1] // 16
    step_up = tilt[0].astype(np.float32)
    for k in range(n_levels):
        x = base[k]
        for i in range(n_tilts):
            x += tilt[i, k] * own[i]
        mine[k] = x
    for i in range(len(own) - n_tilts):
        f[i] = own[n_tilts + i]
    total[:], pairs[:], counts[:], sums[:], square[:] = 0, 0, 0, 0, 0
    for first in range(begin, end, BATCH):
        n = min(BATCH, end - first)
        n_tiles = (n + 3) // 4
        for j in range(n):
            index[j] = other[first + j]
            counts[level[first + j]] += 1
            for k in range(n_levels):
                p[k, j] = logits[index[j], k]
        index[n:4 * n_tiles] = index[0]                       # ratings that do not exist, of somebody who does
        for j in range(4 * n_tiles):
            pieces[j] = n_pieces * np.int64(index[j])
        for t in range(n_tiles):
            for i in range(n_pieces):
                prefetch(squares, pieces, 4 * t, i, SIXTEEN)
        for j in range(first + n, min(first + n + BATCH, len(other) - 3), 4):
            prefetch(factors, other, j, 0, lanes)
        for t in range(n_tiles):
            store(met, t, dots(load(f, 0, lanes), gather(factors, index, 4 * t, 0, lanes)))
        _levels(mine, step_up, level[first:first + n], met, p, w, v, g, top, whole, mean_step)
        for k in range(n_levels):
            total[k] += p[k, :n].sum()
            for j in range(k + 1):
                pairs[k, j] += _inner(p[k], p[j], n)
        w[:, n:], v[n:], g[n:] = 0, 0, 0
        for t in range(n_tiles):
            tile = gather(factors, index, 4 * t, 0, lanes)
            store(sums, 0, blend(tile, load(g, t, FOUR), load(sums, 0, lanes)))
            for k in range(1, n_levels):
                store(sums, k, blend(tile, load(w, k * (BATCH // 4) + t, FOUR), load(sums, k, lanes)))
        for i in range(n_pieces):
            piece = load(square, i, SIXTEEN)
            for t in range(n_tiles):
                piece = blend(gather(squares, pieces, 4 * t, i, SIXTEEN), load(v, t, FOUR), piece)
            store(square, i, piece)
    return total, pairs, counts, sums, square


@compiled
def _levels(mine: Array, step_up: Array, level: Array, met: Array,                # (R,), (R,), (n,), (n,)
            p: Array, w: Array, v: Array, g: Array, top: Array, whole: Array, mean: Array) -> None:
    """What each of n ratings says.

    p: comes as logits of the other side, becomes P(r). w: the change of P(r) with the offset. v: the variance of the
    step. g: how much larger it was than expected, and the part of it that E[f f'] counts again.
    """
    n = len(level)
    top[:], whole[:], mean[:], v[:] = -np.inf, 0, 0, 0
    for k in range(len(mine)):
        row, a, b = p[k], mine[k], step_up[k]
        for j in range(n):
            row[j] += a + b * met[j]
            top[j] = max(top[j], row[j])
    for k in range(len(mine)):
        row, b = p[k], step_up[k]
        for j in range(n):
            row[j] = exp32(row[j] - top[j])
            whole[j] += row[j]
            mean[j] += b * row[j]
    for j in range(n):
        whole[j] = np.float32(1) / whole[j]
        mean[j] *= whole[j]
    for k in range(len(mine)):
        row, change, b = p[k], w[k], step_up[k]
        for j in range(n):
            row[j] *= whole[j]
            change[j] = row[j] * (b - mean[j])
            v[j] += b * change[j]
    for j in range(n):
        g[j] = step_up[level[j]] - mean[j] + v[j] * met[j]


@compiled
def _inner(x: Array, y: Array, n: int) -> Any:
    out = np.float32(0)
    for j in range(n):
        out += x[j] * y[j]
    return out


@compiled
def _assemble(hessian: Array, gradient: Array, total: Array, pairs: Array, counts: Array, sums: Array, square: Array,
              row: Array, tilt: Array, base_gradient: Array, base_hessian: Array) -> None:
    """Adds the sums over a row's ratings, by level, to the lower triangle of its Hessian, to its gradient, and to those
    of `base`.

    total: sum of P(r). pairs: sum of P(r) P(s), s <= r. counts: ratings of r. sums: of dP(r) f' for r > 0, those of 0
    being minus all others; in its place the factors' gradient.
    """
    n_levels, n_tilts, size = len(total), len(tilt), len(row)
    for k in range(n_levels):
        base_gradient[k] += counts[k] - total[k]
        for j in range(k):
            pairs[j, k] = pairs[k, j]
        base_hessian[k, k] += total[k]
        for i in range(n_tilts):
            gradient[i] += tilt[i, k] * (counts[k] - total[k])
    for i in range(n_tilts):
        for k in range(n_levels):
            spread = tilt[i, k] * total[k]
            for j in range(n_levels):
                spread -= tilt[i, j] * pairs[j, k]
            for h in range(i + 1):
                hessian[i, h] += spread * tilt[h, k]
    base_hessian -= pairs
    for k in range(1, n_levels):
        for i in range(n_tilts):
            for j in range(n_tilts, size):
                hessian[j, i] += (tilt[i, k] - tilt[i, 0]) * sums[k, j - n_tilts]
    place = 0
    for i in range(n_tilts, size):
        gradient[i] += sums[0, i - n_tilts]
        for j in range(n_tilts, i + 1):
            hessian[i, j] += square[place]
            gradient[i] -= square[place] * row[j]
            if j < i:
                gradient[j] -= square[place] * row[i]
            place += 1


@compiled
def _invert(a: Array, lanes: Any) -> None:
    """a, symmetric and positive, of which the lower triangle counts, becomes its inverse: Gauss-Jordan elimination.

    a has `lanes` numbers in a row, of which as many count as it has rows.
    """
    n = len(a)
    for i in range(n):
        for j in range(i):
            a[j, i] = a[i, j]
    for i in range(n):
        inverse = 1 / max(a[i, i], 1e-12)
        a[i, i] += 1                             # column i turns from that of a into that of the inverse
        row = load(a, i, lanes)
        row = minus(row, 1 - inverse, row)
        for k in range(n):
            if k != i:
                store(a, k, minus(load(a, k, lanes), a[k, i], row))
        store(a, i, row)
        a[i, i] = inverse
