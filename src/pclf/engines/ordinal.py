"""Machine code for the personal view: one Newton step of every row, given the rows of the other side."""

from typing import Any

import numpy as np
from numba import njit

Array = Any


@njit(nogil=True, cache=True, error_model="numpy", fastmath=True)  # type: ignore[untyped-decorator]
def newton(indptr: Array, other: Array, level: Array,             # (rows + 1,), (n,), (n,): ratings by row
           own: Array, own_cov: Array,                            # (rows, D), (rows, D, D): changed in place
           others: Array, others_cov: Array,                      # (others, D), (others, D, D)
           precision: Array, mean: Array,                         # (D, D), (rows, D): the prior
           base: Array, tilt: Array, start: int, stop: int) -> tuple[Array, Array]:
    """A step of mean-field inference for the rows start..stop; returns gradient and Hessian of `base`.

        log P(r) = base[r] + tilt[0, r] (o + o' + <f, f'>) + tilt[1, r] (s + s')       up to a constant

    where a row is (o, s, f...). The uncertainty of the other side's factors enters through their covariances.
    """
    n_levels, size = len(base), own.shape[1]
    p, x = np.empty(n_levels), np.empty(size)
    hessian, gradient, step = np.empty((size, size)), np.empty(size), np.empty(size)
    base_gradient, base_hessian = np.zeros(n_levels), np.zeros((n_levels, n_levels))
    for row in range(start, stop):
        mine = own[row]
        for i in range(size):
            gradient[i] = 0.0
            for j in range(size):
                hessian[i, j] = precision[i, j]
                gradient[i] -= precision[i, j] * (mine[j] - mean[row, j])
        for t in range(indptr[row], indptr[row + 1]):
            theirs, theirs_cov, r = others[other[t]], others_cov[other[t]], level[t]
            offset, spread = mine[0] + theirs[0], mine[1] + theirs[1]
            for i in range(2, size):
                offset += mine[i] * theirs[i]
            total = 0.0
            for k in range(n_levels):
                p[k] = np.exp(base[k] + tilt[0, k] * offset + tilt[1, k] * spread)
                total += p[k]
            m0 = m1 = v00 = v01 = v11 = 0.0
            for k in range(n_levels):
                p[k] /= total
                a, b = p[k] * tilt[0, k], p[k] * tilt[1, k]
                m0, m1 = m0 + a, m1 + b
                v00, v01, v11 = v00 + a * tilt[0, k], v01 + a * tilt[1, k], v11 + b * tilt[1, k]
                base_gradient[k] -= p[k]
                base_hessian[k, k] += p[k]
                for j in range(n_levels):
                    base_hessian[k, j] -= p[k] * p[j]
            base_gradient[r] += 1.0
            v00, v01, v11 = v00 - m0 * m0, v01 - m0 * m1, v11 - m1 * m1
            g0, g1 = tilt[0, r] - m0, tilt[1, r] - m1
            gradient[0] += g0
            gradient[1] += g1
            hessian[0, 0] += v00
            hessian[0, 1] += v01
            hessian[1, 0] += v01
            hessian[1, 1] += v11
            for i in range(2, size):
                x[i] = v00 * theirs[i]
                gradient[i] += g0 * theirs[i]
                hessian[0, i] += x[i]
                hessian[i, 0] += x[i]
                hessian[1, i] += v01 * theirs[i]
                hessian[i, 1] += v01 * theirs[i]
            for i in range(2, size):
                for j in range(2, size):
                    uncertain = v00 * theirs_cov[i, j]
                    hessian[i, j] += x[i] * theirs[j] + uncertain
                    gradient[i] -= uncertain * mine[j]
        _cholesky(hessian)
        _solve(hessian, gradient, step)
        for i in range(size):
            mine[i] += min(1.0, max(-1.0, step[i]))
        for j in range(size):
            gradient[:] = 0.0
            gradient[j] = 1.0
            _solve(hessian, gradient, step)
            for i in range(size):
                own_cov[row, i, j] = step[i]
    return base_gradient, base_hessian


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
