"""Lists where factors and clusters are pooled: the kernel against the same sums in NumPy."""

import numpy as np
import pytest
from numba import njit

from pclf.engines import pooling
from pclf.factors.rows import tilts
from pclf.models import weights


@njit
def each(function, x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = function(x[i])
    return out


def test_exp_is_right_to_float32():
    x = np.linspace(-87, 0, 10_001, dtype=np.float32)
    np.testing.assert_allclose(each(pooling.exp32, x), np.exp(x.astype(float)), rtol=1e-5)


def test_log_is_right_to_float32():
    x = np.geomspace(1e-30, 1e30, 10_001).astype(np.float32)
    np.testing.assert_allclose(each(pooling.log32, x), np.log(x.astype(float)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_levels", [2, 5, 10])
@pytest.mark.parametrize("n_items", [3, 700])
def test_pooled_means_are_the_means_of_pooled_distributions(n_levels, n_items):
    """700 items are more than one strip; the last user has weight 1, which takes a shorter way."""
    rng, n = np.random.default_rng(0), 4
    base, tilt, values = rng.normal(0, 1, n_levels), tilts(n_levels), np.arange(1.0, n_levels + 1)
    shape = len(tilt)
    users, items = rng.normal(0, 1.2, (n, shape + 3)), rng.normal(0, 1.2, (shape + 3, n_items))
    mixture = rng.dirichlet(np.full(n_levels, 0.3), (n, n_items)).transpose(2, 0, 1)           # some next to 0
    weight = np.array([0.1, 0.5, 0.9, 1.0])
    shapes = users[:, None, :shape] + items[:shape].T
    shift = rng.normal(0, 0.5, (n, n_items))
    shapes[..., 0] += users[:, shape:] @ items[shape:] + shift
    logits = base + shapes @ tilt
    own = np.exp(logits - logits.max(axis=2, keepdims=True))
    own /= own.sum(axis=2, keepdims=True)
    pooled = [weights.pool(own[i], mixture[:, i].T, weight[i]) for i in range(n)]              # (V, R) each
    got = pooling.pooled_means(*(np.ascontiguousarray(x, np.float32) for x in (
        users, items, base, tilt, shift, mixture, weight)), np.float32(weights.FLOOR), values.astype(np.float32))
    np.testing.assert_allclose(got, np.stack(pooled) @ values, rtol=2e-5)
