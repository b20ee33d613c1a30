"""Machine code for the personal view: one Newton step of every row, given the rows of the other side."""

from typing import Any

import numpy as np
from numba import njit

from pclf.engines.pooling import exp32

Array = Any


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def newton(indptr: Array, other: Array, level: Array,             # (rows + 1,), (n,), (n,): ratings by row
           own: Array, own_square: Array, trust: Array,           # (rows, D), (rows, F (F + 1) / 2), (rows,): changed
           logits: Array, factors: Array, squares: Array,         # (others, R), (others, F), (others, F (F + 1) / 2)
           precision: Array, mean: Array, freedom: float,         # (D, D), (rows, D): the prior
           base: Array, tilt: Array, start: int, stop: int,
           base_gradient: Array, base_hessian: Array, total_cov: Array) -> None:   # (R,), (R, R), (D, D): added to
    """A step of mean-field inference for the rows start..stop.

        log P(r) = base[r] + tilt[0, r] (x[0] + x'[0] + <f, f'>) + sum of tilt[i, r] (x[i] + x'[i])   up to a constant

    where a row is (x, f), D = T + F numbers for T tilts. The other side comes as its logits x' tilt, its factors and,
    for their uncertainty, the lower triangles of E[f' f''], all float32. Under a prior with `freedom` degrees of
    freedom, a Student distribution, the prior of a row counts as much as its `trust`, which is less the farther out the
    row is. Added to: gradient and Hessian of `base`, and the sum of the rows' covariances, each over rows with ratings.
    Nothing is returned: numba runs Python to wrap an array, and Ctrl-C there would come out as a SystemError.
    """
    n_levels, n_tilts, size = len(base), len(tilt), own.shape[1]
    n_factors = size - n_tilts
    small = np.float32
    step_up = tilt[0].astype(small)
    (mine, p, w), f = np.empty((3, n_levels), small), np.empty(n_factors, small)
    total, pairs, cross = np.empty(n_levels), np.empty((n_levels, n_levels)), np.empty((n_levels, n_factors), small)
    seen, square = np.empty(n_factors), np.empty(own_square.shape[1], small)
    hessian, gradient, step, gap = np.empty((size, size)), np.empty(size), np.empty(size), np.empty(size)
    for row in range(start, stop):
        if indptr[row] == indptr[row + 1]:
            own[row] = mean[row]
            continue
        for k in range(n_levels):
            x = base[k]
            for i in range(n_tilts):
                x += tilt[i, k] * own[row, i]
            mine[k] = x
        f[:] = own[row, n_tilts:]
        total[:], pairs[:], cross[:], square[:], seen[:], gradient[:] = 0, 0, 0, 0, 0, 0
        for n in range(indptr[row], indptr[row + 1]):
            theirs, met = factors[other[n]], small(0)
            for i in range(n_factors):
                met += f[i] * theirs[i]
            top = small(-1e30)
            for k in range(n_levels):
                p[k] = mine[k] + logits[other[n], k] + step_up[k] * met
                top = max(top, p[k])
            whole = small(0)
            for k in range(n_levels):
                p[k] = exp32(p[k] - top)
                whole += p[k]
            mean_step = small(0)
            for k in range(n_levels):
                p[k] /= whole
                mean_step += p[k] * step_up[k]
            v = small(0)
            for k in range(n_levels):
                w[k] = p[k] * (step_up[k] - mean_step)            # the change of P(r) with the offset
                v += w[k] * step_up[k]
                total[k] += p[k]
                for j in range(k + 1):
                    pairs[k, j] += p[k] * p[j]
            total[level[n]] -= 1
            g, again = step_up[level[n]] - mean_step, v * met
            for i in range(n_factors):
                gradient[n_tilts + i] += g * theirs[i]
                seen[i] += again * theirs[i]
            for k in range(n_levels):
                for i in range(n_factors):
                    cross[k, i] += w[k] * theirs[i]
            theirs_square = squares[other[n]]
            for i in range(len(square)):
                square[i] += v * theirs_square[i]
        _assemble(hessian, gradient, total, pairs, cross, square, seen, level[indptr[row]:indptr[row + 1]],
                  own[row], mean[row], trust[row], precision, tilt, base_gradient, base_hessian)
        _cholesky(hessian)
        _solve(hessian, gradient, step)
        for i in range(size):
            own[row, i] += min(1.0, max(-1.0, step[i]))
            gap[i] = own[row, i] - mean[row, i]
        distance = 0.0
        for j in range(size):
            gradient[:] = 0.0
            gradient[j] = 1.0
            _solve(hessian, gradient, step)
            for i in range(size):
                total_cov[i, j] += trust[row] * step[i]
                distance += precision[i, j] * (gap[i] * gap[j] + step[i])
                if j >= n_tilts and i >= j:
                    a, b = i - n_tilts, j - n_tilts
                    own_square[row, a * (a + 1) // 2 + b] = step[i] + own[row, i] * own[row, j]
        if freedom > 0:
            trust[row] = (freedom + size) / (freedom + distance)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def _assemble(hessian: Array, gradient: Array, total: Array, pairs: Array, cross: Array, square: Array, seen: Array,
              level: Array, row: Array, mean: Array, trust: float, precision: Array, tilt: Array, base_gradient: Array,
              base_hessian: Array) -> None:
    """From the sums over a row's ratings, by level, to gradient and Hessian of the row and of `base`.

    total: sum of P(r), less 1 for each rating of r. pairs: sum of P(r) P(s), s <= r. cross: sum of dP(r) f'.
    """
    n_levels, n_tilts, size = len(total), len(tilt), len(row)
    counts = np.zeros(n_levels)
    for r in level:
        counts[r] += 1
    spread = np.empty((n_levels, n_levels))                       # sum of diag(P) - P P'
    for k in range(n_levels):
        base_gradient[k] -= total[k]
        for j in range(k + 1):
            spread[k, j] = spread[j, k] = -pairs[k, j]
        spread[k, k] += total[k] + counts[k]
    base_hessian += spread
    hessian[:] = trust * precision
    for i in range(n_tilts):
        for k in range(n_levels):
            gradient[i] -= tilt[i, k] * total[k]
            for j in range(n_levels):
                for h in range(i + 1):
                    hessian[i, h] += tilt[i, k] * spread[k, j] * tilt[h, j]
    # E[f f'] counts the certain part of <f, f'> again, which the gradient has already: `seen` takes it back.
    place = 0
    for i in range(size - n_tilts):
        gradient[n_tilts + i] += seen[i]
        for j in range(n_tilts):
            for k in range(n_levels):
                hessian[n_tilts + i, j] += tilt[j, k] * cross[k, i]
        for j in range(i + 1):
            hessian[n_tilts + i, n_tilts + j] += square[place]
            gradient[n_tilts + i] -= square[place] * row[n_tilts + j]
            if j < i:
                gradient[n_tilts + j] -= square[place] * row[n_tilts + i]
            place += 1
    for i in range(size):
        for j in range(size):
            gradient[i] -= trust * precision[i, j] * (row[j] - mean[j])


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
