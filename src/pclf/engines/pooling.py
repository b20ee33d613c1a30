"""Machine code for the mean rating of all items by some users, where factors are pooled with the clusters.

NumPy makes an array of users x items for each step of this; here a strip of items goes through all steps in the
first-level cache. exp and log are polynomials, right to a few float32 roundings, which the compiler turns into SIMD.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pclf.engines.kernels import STRIP, compiled

Array = Any
INT = ir.IntType(32)
ONE, LOG2_E, LOG_2, LEAST = np.float32(1), np.float32(1.44269504), np.float32(0.69314718), np.float32(-87)
P = tuple(map(np.float32, (1, 0.693146929, 0.240230502, 0.0554804263, 0.00968458045, 0.00123878215, 0.000218775048)))
Q = tuple(map(np.float32, (2, 2 / 3, 2 / 5, 2 / 7, 2 / 9)))


@compiled
def pooled_means(
    users: Array, items: Array, base: Array, tilt: Array,      # factors: (n, T + F), (T + F, V), (R,), (T, R)
    shift: Array,                                              # (n, V) of the offsets of pairs, or empty
    mixture: Array,                                            # (R, n, V), not read where all weights are 1
    weight: Array, floor: np.float32, values: Array,           # (n,) of the factors; least probability; (R,)
) -> Array:
    """The mean of P(r) ~ max(factors, floor) ** weight * max(mixture, floor) ** (1 - weight), all float32. (n, V)"""
    n_levels, n_tilts, n_items = len(base), len(tilt), items.shape[1]
    out = np.empty((len(users), n_items), np.float32)
    p = np.empty((n_levels, STRIP), np.float32)
    shape, rating = np.empty((n_tilts, STRIP), np.float32), np.empty(STRIP, np.float32)
    top, total = np.empty((2, STRIP), np.float32)
    for i in range(len(users)):
        w = weight[i]
        for start in range(0, n_items, STRIP):
            n = min(STRIP, n_items - start)
            for f in range(n_tilts):
                _add(users[i, f], items[f, start:start + n], shape[f])
            if len(shift):
                _add_product(ONE, shift[i, start:start + n], shape[0])  # type: ignore[arg-type]
            for f in range(n_tilts, len(items)):
                _add_product(users[i, f], items[f, start:start + n], shape[0])
            top[:] = -np.inf
            for r in range(n_levels):
                row = p[r]
                row[:] = base[r]
                for f in range(n_tilts):
                    _add_product(tilt[f, r], shape[f, :n], row)
                for v in range(n):
                    top[v] = max(top[v], row[v])
            total[:] = 0
            for r in range(n_levels):
                row = p[r]
                for v in range(n):
                    row[v] = exp32(row[v] - top[v])
                    total[v] += row[v]
            rating[:] = 0                                      # the sum of r P(r)
            top[:] = 0                                         # and, from here on, of P(r)
            for r in range(n_levels):
                row = p[r]
                for v in range(n):
                    row[v] = max(row[v] / total[v], floor)
                if w < ONE:
                    _pool(row, mixture[r, i, start:start + n], w, floor)
                for v in range(n):
                    rating[v] += values[r] * row[v]
                    top[v] += row[v]
            for v in range(n):
                out[i, start + v] = rating[v] / top[v]
    return out


@compiled
def _pool(own: Array, mixture: Array, w: float, floor: np.float32) -> None:
    """own = own ** w * max(mixture, floor) ** (1 - w). Loops so short that the compiler makes SIMD of each."""
    for v in range(len(mixture)):
        mixture[v] = max(mixture[v], floor)
    for v in range(len(mixture)):
        mixture[v] = log32(mixture[v])
    for v in range(len(mixture)):
        own[v] = log32(own[v])
    for v in range(len(mixture)):
        own[v] = w * own[v] + (ONE - w) * mixture[v]
    for v in range(len(mixture)):
        own[v] = exp32(own[v])


@compiled
def _add(x: float, y: Array, out: Array) -> None:
    for v in range(len(y)):
        out[v] = x + y[v]


@compiled
def _add_product(x: float, y: Array, out: Array) -> None:
    for v in range(len(y)):
        out[v] += x * y[v]


@compiled
def exp32(x: Any) -> Any:
    """exp(x) for x from -87 to 0; less counts as -87. 2 ** fraction is a polynomial."""
    y = max(x, LEAST) * LOG2_E
    whole = np.floor(y)
    f = y - whole
    return _scaled(P[0] + f * (P[1] + f * (P[2] + f * (P[3] + f * (P[4] + f * (P[5] + f * P[6]))))), np.int32(whole))


@compiled
def log32(x: Any) -> Any:
    """log(x) for positive x = m 2 ** e, m from 0.7 to 1.4: log(m) by its series in (m - 1) / (m + 1)."""
    e = _exponent(x)
    m = _scaled(x, -e)
    y = (m - ONE) / (m + ONE)
    z = y * y
    return np.float32(e) * LOG_2 + y * (Q[0] + z * (Q[1] + z * (Q[2] + z * (Q[3] + z * Q[4]))))


@intrinsic  # type: ignore[untyped-decorator]
def _exponent(_: Any, x: Any) -> Any:
    """The e for which x / 2 ** e is between sqrt(0.5) and sqrt(2)."""
    def code(context: Any, b: Any, signature: Any, values: Any) -> Any:
        return b.ashr(b.sub(b.bitcast(values[0], INT), INT(0x3F3504F3)), INT(23))     # the bits of sqrt(0.5)
    return types.int32(types.float32), code


@intrinsic  # type: ignore[untyped-decorator]
def _scaled(_: Any, x: Any, e: Any) -> Any:
    """x * 2 ** e, by adding to the bits of the exponent."""
    def code(context: Any, b: Any, signature: Any, values: Any) -> Any:
        return b.bitcast(b.add(b.bitcast(values[0], INT), b.shl(values[1], INT(23))), ir.FloatType())
    return types.float32(types.float32, types.int32), code
