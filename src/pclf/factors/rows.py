"""Rows: what the factor model knows about one user or one item in one domain.

A row is (x, f). Its *shape* x says how it moves the distribution of ratings, its *factors* f whom it meets well:

    log P(r | u, v) = base(r) + sum over i of a_i(r) (x_ui + x_vi) + a_1(r) <f_u, f_v> + constant

with a_1 linear in the level, a_2 quadratic and so on: x_1 is an offset (rates high, is rated high), x_2 a spread (uses
the ends of the scale, divides opinions), and two more say the rest about a scale of five levels. The levels of a domain
are the values of its own scale.

Ordinal levels follow Koren & Sill, "OrdRec", RecSys 2011.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.floating[Any]]
SHAPE = 4            # numbers of a shape, at most
SPAN = 4.0           # from the lowest to the highest level, for scales of five levels or more


@cache
def tilts(n_levels: int, most: int = SHAPE) -> Floats:
    """a_i(r): orthogonal polynomials of degree 1 to 4 in the level, of sum 0. (T, R)

    The first goes from -2 to 2, so that a row means the same on a scale of five stars and of ten points. A scale of
    fewer than five levels goes by steps of 1.
    """
    x = np.arange(n_levels) - (n_levels - 1) / 2
    degree = max(1, min(most, n_levels - 1))
    rows = np.linalg.qr(np.vander(x, degree + 1, increasing=True))[0].T[1:] if n_levels > 1 else np.zeros((1, 1))
    basis: Floats = rows * np.sign(rows[:, -1:]) / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12)
    basis[0] = x * min(1.0, SPAN / max(1, n_levels - 1))
    return basis


def logits(base: Floats, tilt: Floats, users: Floats, items: Floats) -> Floats:
    """log P(r | u, v) up to a constant, for pairs of rows. (n, R)"""
    n = len(tilt)
    shape = users[:, :n] + items[:, :n]
    shape[:, 0] += np.einsum("nf,nf->n", users[:, n:], items[:, n:])
    out: Floats = base + shape @ tilt
    return out


def normals(n: int, size: int, seed: int, keys: NDArray[np.uint64] | None = None) -> Floats:
    """Numbers of a standard normal distribution; where there are keys, each row from its key and the seed, and not
    by its place. (n, size)"""
    from pclf.engines.kernels import fill_exponential

    if keys is None:
        return np.random.default_rng(seed).normal(size=(n, size))
    out = np.empty((n, size))
    fill_exponential(keys, np.uint64(seed), out)
    drawn: Floats = ndtri(np.clip(-np.expm1(-out), 1e-12, 1 - 1e-12))
    return drawn


def softmax(logits: Floats) -> Floats:
    """Probabilities of levels. (n, R)"""
    out: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    out /= out.sum(axis=1, keepdims=True)
    return out
