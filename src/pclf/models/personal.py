"""The personal view: what a few clusters cannot express about one user and one item.

An adjacent-category ordinal model of each domain. User u and item v each have an offset o (rates high, is rated
high), a spread s (uses the ends of the scale, divides opinions) and a few factors f:

    log P(r | u, v) = base(r) + a(r) (o_u + o_v + <f_u, f_v>) + b(r) (s_u + s_v) + constant

with a(r) linear and b(r) quadratic in the level. Users and items are Gaussian around a mean with a full covariance,
both found by empirical Bayes (mean-field inference), so a user with five ratings is shrunk as much as five ratings
deserve and nothing is left to tune. The mean of an item depends on how often it is rated: what is rated by many
is often better.

Offsets after Koren, "Factorization Meets the Neighborhood", KDD 2008; ordinal levels after Koren & Sill, "OrdRec",
RecSys 2011; variational inference of factors after Lim & Teh, KDD Cup 2007.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain
from pclf.models.base import Floats

CHUNKS = 16          # fixed, so that the bits do not depend on the number of threads
NEWTON = 10          # steps that place a newcomer
SWEEPS = 20          # from random factors
MORE_SWEEPS = 8      # after ratings are added
SMALL = 20_000       # ratings below which threads cost more than they give
OTHERS = 50.0        # rows that the covariance of the other domains counts for


@dataclass(frozen=True)
class Personal:
    """Rows are (offset, spread, factors...). A row without ratings is at its prior mean."""

    users: Floats             # (U, 2 + F)
    items: Floats             # (V, 2 + F)
    base: Floats              # (R,)
    item_var: Floats          # (V, F (F + 1) / 2) lower triangles of the factors' covariances
    user_prior: Floats        # (2 + F, 2 + F) covariance
    item_prior: Floats        # (2 + F, 2 + F)
    user_mean: Floats         # (2 + F,)
    rated: NDArray[np.bool_]  # (U,) users with ratings here

    def logits(self, users: Floats, items: Floats) -> Floats:
        """log P(r | u, v) up to a constant, for pairs of rows. (n, R)"""
        return self._logits(users[:, 0] + items[:, 0] + np.einsum("nf,nf->n", users[:, 2:], items[:, 2:]),
                            users[:, 1] + items[:, 1])

    def pooled_means(self, users: Floats, mixture: Floats, weight: Floats, floor: np.float32, values: Floats) -> Floats:
        """The mean rating of every item of the domain, pooled with a mixture (R, n, V), which is used up. (n, V)"""
        from pclf.engines.pooling import pooled_means

        own = (users, self.items.T, self.base, _tilt(len(self.base)))
        return pooled_means(*(np.ascontiguousarray(x, np.float32) for x in own), mixture, weight, floor, values)

    def place(self, items: NDArray[np.int32], levels: NDArray[np.uint8]) -> Floats:
        """The row of a new user from a few ratings. (2 + F,)"""
        return _place(levels, self.user_mean, self.user_prior, self.items[items], self.item_var[items], self.base)

    def place_item(self, users: NDArray[np.int32], levels: NDArray[np.uint8]) -> Floats:
        """The row of a new item from a few ratings; the users' rows count as certain. (2 + F,)"""
        certain = np.zeros((len(users), self.item_var.shape[1]), np.float32)
        return _place(levels, self.items.mean(axis=0), self.item_prior, self.users[users], certain, self.base)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {f"{prefix}.{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]]) -> "Personal":
        return cls(**{f.name: arrays[f"{prefix}.{f.name}"] for f in fields(cls)})

    def _logits(self, offset: Floats, spread: Floats) -> Floats:
        tilt = _tilt(len(self.base))
        return self.base + offset[:, None] * tilt[0] + spread[:, None] * tilt[1]


def fit(domain: Domain, levels: NDArray[np.uint8], n_levels: int, n_factors: int, rng: np.random.Generator, *,
        n_sweeps: int = SWEEPS, n_threads: int = 1, others: Sequence[Personal] = (),
        start: Personal | None = None) -> Personal:
    """Learn the personal view of a domain.

    others: views of other domains, whose priors inform this one's. start: the view of a part of these ratings.
    """
    from pclf.engines.ordinal import newton

    size, tilt = 2 + n_factors, _tilt(n_levels)
    by_user = _grouped(domain.user, domain.item, levels, domain.n_users)
    by_item = _grouped(domain.item, domain.user, levels, domain.n_items)
    n_users, n_items = np.diff(by_user[0]), np.diff(by_item[0])
    count = np.log1p(n_items)
    count = (count - count.mean()) / max(count.std(), 1e-9)
    about_items = np.stack([np.ones_like(count), count, count**2], axis=1)           # (V, 3)
    about_users = np.ones((domain.n_users, 1))

    users, items = np.zeros((domain.n_users, size)), np.zeros((domain.n_items, size))
    user_mean, item_mean = np.zeros_like(users), np.zeros_like(items)
    user_var, item_var = (np.zeros((len(rows), n_factors * (n_factors + 1) // 2), np.float32)
                          for rows in (users, items))
    if start is None:
        items[:, 2:] = rng.normal(0, 0.3, (domain.n_items, n_factors))
        user_prior, item_prior = 0.2 * np.eye(size), np.diag([0.2, 0.1, *[0.2] * n_factors])
        level_counts = np.bincount(levels, minlength=n_levels) + 1.0
        base = np.log(level_counts / level_counts.sum())
    else:
        users[:], items[:], item_var[:], base = start.users, start.items, start.item_var, start.base
        user_prior, item_prior = start.user_prior, start.item_prior
        user_mean[:], item_mean[:] = start.user_mean, items

    with ThreadPoolExecutor(n_threads) as pool:
        def sweep(grouped: tuple[NDArray, NDArray, NDArray], *rows: Floats) -> list[Floats]:
            """A Newton step of every row of one side; what it returns, summed over chunks in order."""
            bounds = np.searchsorted(grouped[0], np.linspace(0, len(levels), CHUNKS + 1))
            bounds[0], bounds[-1] = 0, len(grouped[0]) - 1
            jobs = [(*grouped, *rows, base, tilt, int(a), int(b)) for a, b in pairwise(bounds)]
            run = map if n_threads == 1 or len(levels) < SMALL else pool.map
            return [sum(part) for part in zip(*run(lambda job: newton(*job), jobs), strict=True)]

        for iteration in range(n_sweeps):
            *_, user_cov = sweep(by_user, users, user_var, items, item_var, np.linalg.inv(user_prior), user_mean)
            gradient, hessian, item_cov = sweep(by_item, items, item_var, users, user_var,
                                                np.linalg.inv(item_prior), item_mean)
            if iteration >= 2 or start is not None:
                user_prior, user_mean = _prior(users, user_cov, n_users > 0, about_users,
                                               [(o.user_prior, o.rated.sum()) for o in others])
                item_prior, item_mean = _prior(items, item_cov, n_items > 0, about_items,
                                               [(o.item_prior, len(o.items)) for o in others])
            base = base + np.clip(np.linalg.solve(hessian + np.eye(n_levels), gradient), -0.5, 0.5)
            base -= base.mean()
    users[n_users == 0], items[n_items == 0] = user_mean[n_users == 0], item_mean[n_items == 0]
    return Personal(users.astype(np.float32), items.astype(np.float32), base, item_var, user_prior, item_prior,
                    user_mean[0] if len(user_mean) else np.zeros(size), n_users > 0)


def _place(levels: NDArray[np.uint8], mean: Floats, prior: Floats, others: Floats, others_var: Floats,
           base: Floats) -> Floats:
    """Newton's method for one row, given the rows that it met."""
    from pclf.engines.ordinal import newton

    row = mean[None, :].astype(np.float64)
    centre, var = row.copy(), np.zeros((1, others_var.shape[1]), np.float32)
    indptr, each = np.array([0, len(levels)]), np.arange(len(levels), dtype=np.int32)
    precision, theirs = np.linalg.inv(prior), others.astype(np.float64)
    for _ in range(NEWTON):
        newton(indptr, each, levels, row, var, theirs, others_var, precision, centre, base, _tilt(len(base)), 0, 1)
    return row[0]


def _prior(rows: Floats, cov: Floats, seen: NDArray[np.bool_], about: Floats,
           others: Sequence[tuple[Floats, float]]) -> tuple[Floats, Floats]:
    """Empirical Bayes: the covariance of the rows around their regression on `about`, and that regression."""
    x, y = about[seen], rows[seen]
    weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ y)
    if about.shape[1] == 1:
        weights[0, :2] = 0                     # `base` says how everybody rates
    mean = about @ weights
    centred = y - mean[seen]
    n = max(1, len(y))
    covariance = (centred.T @ centred + cov) / n
    if others:
        # Offsets and spreads mean the same in every domain, factors do not.
        total = sum(count for _, count in others)
        elsewhere = sum(count / total * prior[:2, :2] for prior, count in others)
        covariance[:2, :2] = (n * covariance[:2, :2] + OTHERS * elsewhere) / (n + OTHERS)
    smallest = np.linalg.eigvalsh(covariance)[0]
    if smallest < 1e-6:
        covariance = covariance + (1e-6 - smallest) * np.eye(len(covariance))
    return covariance, mean


def _grouped(row: NDArray[np.int32], other: NDArray[np.int32], level: NDArray[np.uint8],
             n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]:
    order = np.argsort(row, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))])
    return indptr, other[order], level[order]


def _tilt(n_levels: int) -> Floats:
    """a(r), linear in the level, and b(r), quadratic: both sum to 0, b at most 1. (2, R)"""
    linear = np.arange(n_levels) - (n_levels - 1) / 2
    square = linear**2 - (linear**2).mean()
    return np.stack([linear, square / max(np.abs(square).max(), 1e-12)])
