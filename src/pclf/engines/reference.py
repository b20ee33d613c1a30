"""The specification, in NumPy: the paper's E-step as written, and the row step of the factors. Slow, and never unclear.

Every other engine is tested against this one, clusters on whole fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.state import Params, Stats
from pclf.problem import Problem

Floats = NDArray[np.floating[Any]]
BLOCK = 10_000   # ratings whose posteriors are held at a time: K * C numbers each


class ReferenceEngine:
    name = "reference"

    def place(self, problem: Problem) -> Problem:
        return problem

    def estep(self, data: Problem, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posteriors of eqs. (postzero), (postone), (posttwo).

            P(k, c | u, v, r)  is proportional to  [P(u, k) P(v, c) P(r | k, c)] ** beta

        A view sums over the ratings of its domains; user counts add up over the views, as in eq. (uConCu).
        """
        users = np.zeros_like(params.users)
        items = tuple(np.zeros_like(x) for x in params.items)
        tables = tuple(np.zeros_like(x) for x in params.tables)
        objective = 0.0
        for i, view in enumerate(data.layout.views):
            for z, item_rows in zip(view.domains, data.item_rows[i], strict=True):
                u, v, r = data.user_rows[z][data.user[z]], item_rows[data.item[z]], data.level[z]
                for block in np.array_split(np.arange(len(r)), max(1, len(r) // BLOCK)):
                    bu, bv, br = u[block], v[block], r[block]
                    joint = (params.users[bu][:, :, None] * params.items[i][bv][:, None, :]
                             * params.tables[i][br]) ** beta                             # (n, K, C)
                    total = joint.sum(axis=(1, 2))                                       # (n,)
                    posterior = view.weight * joint / total[:, None, None]
                    np.add.at(users, bu, posterior.sum(axis=2))
                    np.add.at(items[i], bv, posterior.sum(axis=1))
                    np.add.at(tables[i], br, posterior)
                    objective += view.weight * float(np.log(total).sum()) / beta
        return Stats(users, items, tables, objective)

    def put(self, array: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(array, np.float64)

    def get(self, array: NDArray[Any]) -> NDArray[np.float64]:
        return array


@dataclass(frozen=True)
class Seen:
    """The ratings of a row in one domain, and the rows of the other side that it met there."""

    others: Floats               # (n, D) (x', f') a rating, D = T + F for T tilts
    doubts: Floats               # (n, F, F) the covariance of f'
    levels: NDArray[Any]         # (n,)
    base: Floats                 # (R,)
    tilt: Floats                 # (T, R)


def collect(row: Floats, seen: Seen) -> tuple[Floats, Floats, Floats, Floats]:
    """What ratings say about a row (x, f), without any prior: gradient and Hessian of the row, and of `base`.

        log P(r) = base(r) + sum_i tilt_i(r) (x_i + x'_i) + tilt_1(r) <f, f'>      up to a constant

    The gradient is that of the log-likelihood, the Hessian minus its own. By the row, the logit of r goes in the
    direction (tilt(r), tilt_1(r) f'). Where f' is in doubt, the log-likelihood that is expected is lower, to second
    order by <f, doubt f> times half the variance of tilt_1(r).      (D,), (D, D), (R,), (R, R)
    """
    n_shape, tilt = len(seen.tilt), seen.tilt
    gradient, hessian = np.zeros(len(row)), np.zeros((len(row), len(row)))
    base_gradient, base_hessian = np.zeros(len(seen.base)), np.zeros((len(seen.base), len(seen.base)))
    for other, doubt, level in zip(seen.others, seen.doubts, seen.levels, strict=True):
        x, f = row[:n_shape] + other[:n_shape], other[n_shape:]
        p = np.exp(seen.base + x @ tilt + tilt[0] * (row[n_shape:] @ f))
        p /= p.sum()
        direction = np.concatenate([tilt.T, np.outer(tilt[0], f)], axis=1)               # (R, D)
        centred = direction - p @ direction
        spread = p @ tilt[0] ** 2 - (p @ tilt[0]) ** 2
        gradient += centred[level]
        hessian += centred.T @ (p[:, None] * centred)
        gradient[n_shape:] -= spread * doubt @ row[n_shape:]
        hessian[n_shape:, n_shape:] += spread * doubt
        base_gradient += np.eye(len(p))[level] - p
        base_hessian += np.diag(p) - np.outer(p, p)
    return gradient, hessian, base_gradient, base_hessian


def row_step(row: Floats, mean: Floats, covariance: Floats, trust: float, freedom: float,
             domains: Sequence[Seen]) -> tuple[Floats, Floats, float]:
    """A Newton step of the rows of one person or thing in some domains, laid end to end: row, covariance, trust.

    Under the prior, shapes have the covariance S_xx / trust, and factors given shapes are Gaussian as in S, the
    `covariance`. With `freedom` above 0 shapes are Student: trust is what is expected of it after the step. No number
    of a row goes further than 1.
    """
    ends = np.cumsum([0, *(seen.others.shape[1] for seen in domains)])
    shapes = np.concatenate([np.arange(a, a + len(seen.tilt)) for a, seen in zip(ends, domains, strict=False)])
    precision = np.linalg.inv(with_wider_shapes(covariance, shapes, trust))
    gradient, hessian = -precision @ (row - mean), precision.copy()
    for a, b, seen in zip(ends, ends[1:], domains, strict=False):
        said = collect(row[a:b], seen)
        gradient[a:b] += said[0]
        hessian[a:b, a:b] += said[1]
    cov: Floats = np.linalg.inv(hessian)
    row = row + np.clip(cov @ gradient, -1, 1)
    if freedom > 0:
        inner, gap = np.linalg.inv(covariance[np.ix_(shapes, shapes)]), (row - mean)[shapes]
        distance = gap @ inner @ gap + np.trace(inner @ cov[np.ix_(shapes, shapes)])
        trust = (freedom + len(shapes)) / (freedom + distance)
    return row, cov, trust


def with_wider_shapes(covariance: Floats, shapes: NDArray[Any], trust: float) -> Floats:
    """The covariance of rows when that of their shapes is 1 / trust times as large, and factors given shapes are as
    before."""
    rest = np.setdiff1d(np.arange(len(covariance)), shapes)
    own = covariance[np.ix_(shapes, shapes)]
    slope = np.linalg.solve(own, covariance[np.ix_(shapes, rest)]).T
    out = covariance.copy()
    out[np.ix_(shapes, shapes)] = own / trust
    out[np.ix_(rest, shapes)] = slope @ own / trust
    out[np.ix_(shapes, rest)] = out[np.ix_(rest, shapes)].T
    out[np.ix_(rest, rest)] += slope @ own @ slope.T * (1 / trust - 1)
    return out
