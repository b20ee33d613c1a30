"""Machine code for the personal view: one Newton step of every row, given the rows of the other side."""

from typing import Any

import numpy as np
from numba import njit

from pclf.engines.pooling import exp32

Array = Any


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def newton(indptr: Array, other: Array, level: Array,             # (rows + 1,), (n,), (n,): ratings by row
           own: Array, own_square: Array, trust: Array,           # (rows, D), (rows, F (F + 1) / 2), (rows,): changed
           others: Array, others_square: Array,                   # (others, D), (others, F (F + 1) / 2), float32
           precision: Array, mean: Array, freedom: float,         # (D, D), (rows, D): the prior
           base: Array, tilt: Array, start: int, stop: int) -> tuple[Array, Array, Array]:
    """A step of mean-field inference for the rows start..stop.

        log P(r) = base[r] + tilt[0, r] (x[0] + x'[0] + <f, f'>) + sum of tilt[i, r] (x[i] + x'[i])   up to a constant

    where a row is (x, f), D = T + F numbers for T tilts. The uncertainty of the other side's factors enters through
    the lower triangles of E[f f'], its `square`. Under a prior with `freedom` degrees of freedom, a Student
    distribution, the prior of a row counts as much as its `trust`, which is less the farther out the row is.
    Returns gradient and Hessian of `base`, and the sum of the rows' covariances, each over rows with ratings.
    """
    n_levels, n_tilts, size = len(base), len(tilt), own.shape[1]
    n_factors, n_pairs = size - n_tilts, n_tilts * (n_tilts + 1) // 2
    small = np.float32                             # of what is summed over levels, and squares; the rest is float64
    b, t, tt = base.astype(small), tilt.T.astype(small), np.empty((n_levels, n_pairs), small)
    for k in range(n_levels):
        for i in range(n_tilts):
            for j in range(i + 1):
                tt[k, i * (i + 1) // 2 + j] = tilt[i, k] * tilt[j, k]
    p, spread, (at, moment) = np.empty(n_levels, small), np.empty(n_pairs, small), np.empty((2, n_tilts), small)
    mine, spreads, seen = np.empty(size), np.empty(n_pairs), np.empty(n_factors)
    hessian, gradient, step = np.empty((size, size)), np.empty(size), np.empty(size)
    square, cross = np.empty(own_square.shape[1], small), np.empty((n_tilts, n_factors), small)
    base_gradient, base_hessian = np.zeros(n_levels), np.zeros((n_levels, n_levels))
    total_cov = np.zeros((size, size))
    for row in range(start, stop):
        if indptr[row] == indptr[row + 1]:
            own[row] = mean[row]
            continue
        mine[:] = own[row]
        hessian[:] = trust[row] * precision
        square[:], cross[:], gradient[:], seen[:], spreads[:] = 0, 0, 0, 0, 0
        for n in range(indptr[row], indptr[row + 1]):
            theirs, r = others[other[n]], level[n]
            met = 0.0
            for i in range(n_tilts, size):
                met += mine[i] * theirs[i]
            for i in range(n_tilts):
                at[i] = mine[i] + theirs[i]
            at[0] += small(met)
            top = small(-1e30)
            for k in range(n_levels):
                p[k] = b[k]
                for i in range(n_tilts):
                    p[k] += t[k, i] * at[i]
                top = max(top, p[k])
            total = small(0)
            for k in range(n_levels):
                p[k] = exp32(p[k] - top)
                total += p[k]
            moment[:], spread[:], scale = 0, 0, small(1) / total
            for k in range(n_levels):
                p[k] *= scale
                for i in range(n_tilts):
                    moment[i] += p[k] * t[k, i]
                for i in range(n_pairs):
                    spread[i] += p[k] * tt[k, i]
                base_gradient[k] -= p[k]
                base_hessian[k, k] += p[k]
                for j in range(k + 1):
                    base_hessian[k, j] -= p[k] * p[j]
            base_gradient[r] += 1.0
            for i in range(n_tilts):
                gradient[i] += t[r, i] - moment[i]
                for j in range(i + 1):
                    spread[i * (i + 1) // 2 + j] -= moment[i] * moment[j]
            for i in range(n_pairs):
                spreads[i] += spread[i]
            v, g = spread[0], t[r, 0] - moment[0]
            again = v * met
            for i in range(n_factors):
                gradient[n_tilts + i] += g * theirs[n_tilts + i]
                seen[i] += again * theirs[n_tilts + i]
            for j in range(n_tilts):
                c = spread[j * (j + 1) // 2]
                for i in range(n_factors):
                    cross[j, i] += c * theirs[n_tilts + i]
            square_of = others_square[other[n]]
            for i in range(len(square)):
                square[i] += v * square_of[i]
        for i in range(n_tilts):
            for j in range(i + 1):
                hessian[i, j] += spreads[i * (i + 1) // 2 + j]
        # E[f f'] counts the certain part of <f, f'> again, which the gradient has already: `seen` takes it back.
        place = 0
        for i in range(n_factors):
            gradient[n_tilts + i] += seen[i]
            for j in range(n_tilts):
                hessian[n_tilts + i, j] += cross[j, i]
            for j in range(i + 1):
                hessian[n_tilts + i, n_tilts + j] += square[place]
                gradient[n_tilts + i] -= square[place] * mine[n_tilts + j]
                if j < i:
                    gradient[n_tilts + j] -= square[place] * mine[n_tilts + i]
                place += 1
        for i in range(size):
            for j in range(size):
                gradient[i] -= trust[row] * precision[i, j] * (mine[j] - mean[row, j])
        _cholesky(hessian)
        _solve(hessian, gradient, step)
        distance = 0.0
        for i in range(size):
            own[row, i] = mine[i] + min(1.0, max(-1.0, step[i]))
            mine[i] = own[row, i] - mean[row, i]
        for j in range(size):
            gradient[:] = 0.0
            gradient[j] = 1.0
            _solve(hessian, gradient, step)
            for i in range(size):
                total_cov[i, j] += trust[row] * step[i]
                distance += precision[i, j] * (mine[i] * mine[j] + step[i])
                if j >= n_tilts and i >= j:
                    f, g = i - n_tilts, j - n_tilts
                    own_square[row, f * (f + 1) // 2 + g] = step[i] + own[row, i] * own[row, j]
        if freedom > 0:
            trust[row] = (freedom + size) / (freedom + distance)
    for k in range(n_levels):
        for j in range(k):
            base_hessian[j, k] = base_hessian[k, j]
    return base_gradient, base_hessian, total_cov


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _cholesky(a: Array) -> None:
    """The lower triangle of a becomes its Cholesky factor."""
    for j in range(len(a)):
        for k in range(j):
            a[j, j] -= a[j, k] * a[j, k]
        a[j, j] = np.sqrt(max(a[j, j], 1e-12))
        for i in range(j + 1, len(a)):
            for k in range(j):
                a[i, j] -= a[i, k] * a[j, k]
            a[i, j] /= a[j, j]


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _solve(factor: Array, b: Array, out: Array) -> None:
    """out = (L L') ** -1 b"""
    n = len(b)
    for i in range(n):
        out[i] = b[i]
        for k in range(i):
            out[i] -= factor[i, k] * out[k]
        out[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            out[i] -= factor[k, i] * out[k]
        out[i] /= factor[i, i]
