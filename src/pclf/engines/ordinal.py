"""Machine code for the personal view: one Newton step of every row, given the rows of the other side."""

from typing import Any

import numpy as np
from numba import njit

Array = Any


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def newton(indptr: Array, other: Array, level: Array,             # (rows + 1,), (n,), (n,): ratings by row
           own: Array, own_var: Array,                            # (rows, D), (rows, F (F + 1) / 2): changed in place
           others: Array, others_var: Array,                      # (others, D), (others, F (F + 1) / 2)
           precision: Array, mean: Array,                         # (D, D), (rows, D): the prior
           base: Array, tilt: Array, start: int, stop: int) -> tuple[Array, Array, Array]:
    """A step of mean-field inference for the rows start..stop.

        log P(r) = base[r] + tilt[0, r] (o + o' + <f, f'>) + tilt[1, r] (s + s')       up to a constant

    where a row is (o, s, f...), D = 2 + F numbers. The uncertainty of the other side's factors enters through their
    covariances, of which the lower triangle is kept. Returns gradient and Hessian of `base`, and the sum of the rows'
    covariances, each over rows with ratings.
    """
    n_levels, size = len(base), own.shape[1]
    n_factors = size - 2
    p, mine, scaled = np.empty(n_levels), np.empty(size), np.empty(n_factors)
    hessian, gradient, step = np.empty((size, size)), np.empty(size), np.empty(size)
    outer, uncertain = np.empty(len(own_var[0])), np.empty(len(own_var[0]))
    cross = np.empty((2, n_factors))
    base_gradient, base_hessian = np.zeros(n_levels), np.zeros((n_levels, n_levels))
    total_cov = np.zeros((size, size))
    for row in range(start, stop):
        if indptr[row] == indptr[row + 1]:
            own[row] = mean[row]
            continue
        mine[:] = own[row]
        outer[:] = 0.0
        uncertain[:] = 0.0
        cross[:] = 0.0
        gradient[:] = 0.0
        h00 = h01 = h11 = 0.0
        for t in range(indptr[row], indptr[row + 1]):
            theirs, theirs_var, r = others[other[t]], others_var[other[t]], level[t]
            offset, spread = mine[0] + theirs[0], mine[1] + theirs[1]
            for i in range(n_factors):
                offset += mine[2 + i] * theirs[2 + i]
            total = 0.0
            for k in range(n_levels):
                p[k] = np.exp(base[k] + tilt[0, k] * offset + tilt[1, k] * spread)
                total += p[k]
            m0 = m1 = v00 = v01 = v11 = 0.0
            for k in range(n_levels):
                q = p[k] / total
                p[k] = q
                a, b = q * tilt[0, k], q * tilt[1, k]
                m0, m1 = m0 + a, m1 + b
                v00, v01, v11 = v00 + a * tilt[0, k], v01 + a * tilt[1, k], v11 + b * tilt[1, k]
                base_gradient[k] -= q
                base_hessian[k, k] += q
            for k in range(n_levels):
                for j in range(n_levels):
                    base_hessian[k, j] -= p[k] * p[j]
            base_gradient[r] += 1.0
            v00, v01, v11 = v00 - m0 * m0, v01 - m0 * m1, v11 - m1 * m1
            g0 = tilt[0, r] - m0
            gradient[0] += g0
            gradient[1] += tilt[1, r] - m1
            h00, h01, h11 = h00 + v00, h01 + v01, h11 + v11
            at = 0
            for i in range(n_factors):
                f = theirs[2 + i]
                gradient[2 + i] += g0 * f
                scaled[i] = v00 * f
                cross[0, i] += scaled[i]
                cross[1, i] += v01 * f
                for j in range(i + 1):
                    outer[at] += scaled[i] * theirs[2 + j]
                    uncertain[at] += v00 * theirs_var[at]
                    at += 1
        hessian[:] = precision
        hessian[0, 0] += h00
        hessian[1, 0] += h01
        hessian[1, 1] += h11
        at = 0
        for i in range(n_factors):
            hessian[2 + i, 0] += cross[0, i]
            hessian[2 + i, 1] += cross[1, i]
            for j in range(i + 1):
                hessian[2 + i, 2 + j] += outer[at] + uncertain[at]
                gradient[2 + i] -= uncertain[at] * mine[2 + j]
                if j < i:
                    gradient[2 + j] -= uncertain[at] * mine[2 + i]
                at += 1
        for i in range(size):
            for j in range(size):
                gradient[i] -= precision[i, j] * (mine[j] - mean[row, j])
        _cholesky(hessian)
        _solve(hessian, gradient, step)
        for i in range(size):
            own[row, i] = mine[i] + min(1.0, max(-1.0, step[i]))
        for j in range(size):
            gradient[:] = 0.0
            gradient[j] = 1.0
            _solve(hessian, gradient, step)
            for i in range(size):
                total_cov[i, j] += step[i]
                if j >= 2 and i >= j:
                    own_var[row, (i - 2) * (i - 1) // 2 + j - 2] = step[i]
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
