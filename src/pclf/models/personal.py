"""The personal view: what a few clusters cannot express about one user and one item.

An ordinal model of each domain. User u and item v each have a *shape* x, how they move the distribution of ratings,
and a few factors f:

    log P(r | u, v) = base(r) + a_1(r) <f_u, f_v> + sum over i of a_i(r) (x_ui + x_vi) + constant

with a_1 linear in the level, a_2 quadratic and so on: x_1 is an offset (rates high, is rated high), x_2 a spread (uses
the ends of the scale, divides opinions), and two more say the rest about a scale of five levels.

Rows (x, f) of items are Gaussian around a mean with a full covariance; the shapes of users follow a Student
distribution, since a few are far from all others, and their factors are Gaussian given the shape. Means and
covariances are found by empirical Bayes (mean-field inference), so somebody with five ratings is shrunk as much as
five ratings deserve. The mean depends on what is known besides ratings: of a user, what they chose to rate and how
they rate in larger domains; of an item, who chose it and how many did.

Offsets after Koren, "Factorization Meets the Neighborhood", KDD 2008, as is the use of choices (SVD++); ordinal levels
after Koren & Sill, "OrdRec", RecSys 2011; variational inference of factors after Lim & Teh, KDD Cup 2007; factors
around a regression after Agarwal & Chen, "Regression-based Latent Factor Models", KDD 2009.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pclf.data.ratings import Domain, Ratings
from pclf.engines.cpu import width
from pclf.models.base import Floats, by_row
from pclf.models.choice import Choice, learn_choices

Grouped = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8]]    # starts, others and levels by row

SHAPE = 4            # numbers of a shape, at most
CHUNKS = 16          # fixed, so that the bits do not depend on the number of threads
NEWTON = 10          # steps that place a newcomer
SWEEPS = 12          # over users and items; more fit the ratings better and predict worse
SMALL = 20_000       # ratings below which threads cost more than they give
RIDGE = 100.0        # rows that speak against each weight of a regression
HABIT = 0.3          # of a person's shape elsewhere is expected here, before ratings say how much it is
KIN = 50.0           # people here who say as much about how shapes vary as a larger domain of the same people does
FREEDOM = 4.0        # degrees of freedom of the users' shapes
GAUSSIAN = 0.0       # of the items': none


@dataclass(frozen=True)
class Personal:
    """Rows are (shape..., factors...). A row without ratings is at its prior mean."""

    users: Floats             # (U, D)
    items: Floats             # (V, D)
    base: Floats              # (R,)
    item_square: Floats       # (V, 16 P) lower triangles of E[f f'], zeros behind them
    user_prior: Floats        # (D, D) covariance
    item_prior: Floats        # (D, D)
    user_weights: Floats      # (1 + Q + elsewhere, D) regression of users on 1, their choice, their rows elsewhere
    item_weights: Floats      # (3 + Q, D) of items on 1, log count, its square, who chose them
    count: Floats             # (2,) mean and spread of the log counts of items
    chosen: Choice            # items as users choose them
    choosers: Choice          # users as items are chosen by them
    rated: NDArray[np.bool_]  # (U,) users with ratings here
    least: NDArray[np.int64]  # () level of a rating that is a choice: 0, or 1 where 0 is something not done

    @property
    def blank(self) -> Floats:
        """The row of a user of whom nothing is known. (D,)"""
        return self.user_weights[0]

    def logits(self, users: Floats, items: Floats) -> Floats:
        """log P(r | u, v) up to a constant, for pairs of rows. (n, R)"""
        tilt = tilts(len(self.base))
        shape = users[:, :len(tilt)] + items[:, :len(tilt)]
        shape[:, 0] += np.einsum("nf,nf->n", users[:, len(tilt):], items[:, len(tilt):])
        return self.base + shape @ tilt

    def pooled_means(self, users: Floats, mixture: Floats, weight: Floats, floor: np.float32, values: Floats) -> Floats:
        """The mean rating of every item of the domain, pooled with a mixture (R, n, V), which is used up. (n, V)"""
        from pclf.engines.pooling import pooled_means

        own = (users, self.items.T, self.base, tilts(len(self.base)))
        return pooled_means(*(np.ascontiguousarray(x, np.float32) for x in own), mixture, weight, floor, values)

    def place(self, items: NDArray[np.int32], levels: NDArray[np.uint8], elsewhere: Floats) -> Floats:
        """The row of a new user from a few ratings, and from their rows in other domains. (D,)"""
        about = np.concatenate([[1.0], self.chosen.of_one(items[levels >= self.least]), elsewhere])
        return _place(levels, about @ self.user_weights, self.user_prior, FREEDOM, self.items[items],
                      self.item_square[items], self.base)

    def place_item(self, users: NDArray[np.int32], levels: NDArray[np.uint8]) -> Floats:
        """The row of a new item from a few ratings; the users' rows count as certain. (D,)"""
        chose = users[levels >= self.least]
        about = np.concatenate([_about_count(np.array([len(chose)]), self.count)[0], self.choosers.of_one(chose)])
        rows = self.users[users]
        return _place(levels, about @ self.item_weights, self.item_prior, GAUSSIAN, rows,
                      _squares(rows[:, len(tilts(len(self.base))):]), self.base)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        out = {}
        for name, value in vars(self).items():
            parts = {f"{name}.{k}": v for k, v in vars(value).items()} if isinstance(value, Choice) else {name: value}
            out |= {f"{prefix}.{key}": np.asarray(part) for key, part in parts.items()}
        return out

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]]) -> "Personal":
        def load(name: str) -> Any:
            key = f"{prefix}.{name}"
            if name in ("chosen", "choosers"):
                return Choice(*(arrays[f"{key}.{f.name}"] for f in fields(Choice)))
            return arrays[key]

        return cls(**{f.name: load(f.name) for f in fields(cls)})


def fit(domain: Domain, levels: NDArray[np.uint8], n_levels: int, n_factors: int, rng: np.random.Generator, *,
        n_threads: int = 1, elsewhere: Floats | None = None, kin: Personal | None = None) -> Personal:
    """Learn the personal view of a domain.

    elsewhere: rows of the users in other domains, 0 where they have none. kin: the view of another domain with the same
    people.
    """
    from pclf.engines.ordinal import newton

    tilt = tilts(n_levels)
    shape, size = len(tilt), len(tilt) + n_factors
    by_user = _grouped(domain.user, domain.item, levels, domain.n_users)
    by_item = _grouped(domain.item, domain.user, levels, domain.n_items)
    least = int(domain.events)
    rated = (_choices(by_user, domain.n_items, least), _choices(by_item, domain.n_users, least))
    chosen, choosers = learn_choices(*rated, rng)
    n_chosen = np.diff(rated[1].indptr)
    log_count = np.log(n_chosen[n_chosen > 0]) if n_chosen.any() else np.zeros(1)
    count = np.array([log_count.mean(), max(log_count.std(), 1e-9)])
    if elsewhere is None:
        elsewhere = np.empty((domain.n_users, 0))
    about_users = np.concatenate([np.ones((domain.n_users, 1)), chosen.of_all(rated[0]), elsewhere], axis=1)
    about_items = np.concatenate([_about_count(n_chosen, count), choosers.of_all(rated[1])], axis=1)

    start = np.concatenate([np.zeros((domain.n_items, shape)), rng.normal(0, 0.3, (domain.n_items, n_factors))], axis=1)
    user_guess, item_guess = (np.zeros((about.shape[1], size)) for about in (about_users, about_items))
    for block in range(len(user_guess) - elsewhere.shape[1], len(user_guess), size):
        user_guess[block:block + shape, :shape] = HABIT * np.eye(shape)
    users = _Side(by_user, about_users, user_guess, np.zeros((domain.n_users, size)), 0.2 * np.eye(size), shape,
                  FREEDOM, kin and kin.user_prior)
    items = _Side(by_item, about_items, item_guess, start,
                  np.diag([0.2, *[0.1] * (shape - 1), *[0.2] * n_factors]), shape)
    level_counts = np.bincount(levels, minlength=n_levels) + 1.0
    base, lanes = np.log(level_counts / level_counts.sum()), _lanes(n_factors, size)

    with ThreadPoolExecutor(n_threads) as pool:
        def sweep(side: _Side, other: _Side) -> list[Floats]:
            """A Newton step of every row of one side; what it adds up, summed over chunks in order."""
            given = (*side.grouped, side.rows, side.square, side.trust, *_as_met(other.rows, tilt), other.square,
                     *_precisions(side.prior, shape), side.mean, side.freedom, base, tilt)
            bounds = np.searchsorted(side.grouped[0], np.linspace(0, len(levels), CHUNKS + 1))
            bounds[0], bounds[-1] = 0, len(side.rows)
            out = [_sums(n_levels, shape, size) for _ in range(CHUNKS)]
            jobs = [(*given, int(a), int(b), *sums, *lanes) for (a, b), sums in zip(pairwise(bounds), out, strict=True)]
            run = map if n_threads == 1 or len(levels) < SMALL else pool.map
            list(run(lambda job: newton(*job), jobs))
            return [sum(part) for part in zip(*out, strict=True)]

        for iteration in range(SWEEPS):
            _, _, *user_covs = sweep(users, items)
            gradient, hessian, *item_covs = sweep(items, users)
            if iteration >= 2:
                users.learn(*user_covs, n_fixed=shape)            # `base` says how everybody rates
                items.learn(*item_covs)
            base = base + np.clip(np.linalg.solve(hessian + np.eye(n_levels), gradient), -0.5, 0.5)
            base -= base.mean()
    for side in (users, items):
        side.rows[~side.seen] = side.mean[~side.seen]
    return Personal(users.rows.astype(np.float32), items.rows.astype(np.float32), base, items.square, users.prior,
                    items.prior, users.weights, items.weights, count, chosen, choosers, users.seen, np.array(least))


class _Side:
    """Users, or items, while their view is learned: rows, and the prior that they are drawn from."""

    def __init__(self, grouped: Grouped, about: Floats, guess: Floats, rows: Floats, prior: Floats, n_tilts: int,
                 freedom: float = GAUSSIAN, expected: Floats | None = None) -> None:
        self.grouped, self.about, self.guess, self.rows, self.prior = grouped, about, guess, rows, prior
        self.freedom, self.expected = freedom, expected
        self.seen = np.diff(grouped[0]) > 0
        self.square, self.trust = _squares(rows[:, n_tilts:]), np.ones(len(rows))
        self.expect(guess)

    def expect(self, weights: Floats) -> None:
        """Rows are around this regression on what is known about them."""
        self.weights, self.mean = weights, self.about @ weights

    def learn(self, shape_cov: Floats, cov: Floats, n_fixed: int = 0) -> None:
        """The prior of the rows as they are. n_fixed: first numbers of a row whose mean is 0."""
        weights = _regression(self.rows, self.about, self.seen, self.trust, self.guess)
        weights[0, :n_fixed] = 0
        self.expect(weights)
        self.prior = _covariance(self.rows - self.mean, shape_cov, cov, self.seen, self.trust, self.expected)


def rows_elsewhere(ratings: Ratings, name: str, domains: Sequence[str], views: Mapping[str, Personal],
                   n_factors: int) -> Floats:
    """Rows of the users of a domain in the views of others, 0 where they did not rate. (U, (domains - 1) D)"""
    people = dict(zip(ratings.domains, ratings.user_rows, strict=True))
    size = len(tilts(ratings.n_levels)) + n_factors
    blocks = [np.zeros((ratings[name].n_users, 0))]
    for other in domains:
        if other == name:
            continue
        by_person = np.zeros((ratings.n_users, size))
        if other in views:
            rated = views[other].rated
            by_person[people[other][rated]] = views[other].users[rated]
        blocks.append(by_person[people[name]])
    return np.concatenate(blocks, axis=1)


@cache
def tilts(n_levels: int) -> Floats:
    """a_i(r): orthogonal polynomials of degree 1 to 4 in the level, of sum 0; the first by steps of 1. (T, R)"""
    x = np.arange(n_levels) - (n_levels - 1) / 2
    degree = max(1, min(SHAPE, n_levels - 1))
    basis = np.linalg.qr(np.vander(x, degree + 1, increasing=True))[0].T[1:] if n_levels > 1 else np.zeros((1, 1))
    basis = basis * np.sign(basis[:, -1:]) / np.maximum(np.abs(basis).max(axis=1, keepdims=True), 1e-12)
    basis[0] = x
    return basis


def _place(levels: NDArray[np.uint8], mean: Floats, prior: Floats, freedom: float, others: Floats, squares: Floats,
           base: Floats) -> Floats:
    """Newton's method for one row, given the rows that it met."""
    from pclf.engines.ordinal import newton

    row = mean[None, :].astype(np.float64)
    centre, square, trust = row.copy(), np.zeros((1, squares.shape[1]), np.float32), np.ones(1)
    indptr, each = np.array([0, len(levels)]), np.arange(len(levels), dtype=np.int32)
    tilt = tilts(len(base))
    met, precisions = _as_met(others, tilt), _precisions(prior, len(tilt))
    for _ in range(NEWTON):
        newton(indptr, each, levels, row, square, trust, *met, squares, *precisions, centre, freedom, base, tilt, 0, 1,
               *_sums(len(base), len(tilt), len(mean)), *_lanes(len(mean) - len(tilt), len(mean)))
    return row[0]


def _sums(n_levels: int, n_tilts: int, size: int) -> tuple[Floats, Floats, Floats, Floats]:
    """What `newton` adds to."""
    return np.zeros(n_levels), np.zeros((n_levels, n_levels)), np.zeros((n_tilts, n_tilts)), np.zeros((size, size))


def _as_met(rows: Floats, tilt: Floats) -> tuple[Floats, Floats]:
    """Rows as the other side meets them: what their shapes do to each level, and their factors. (n, R), (n, W)"""
    n, size = len(tilt), rows.shape[1]
    factors = np.zeros((len(rows), width(size - n)), np.float32)
    factors[:, :size - n] = rows[:, n:]
    return (rows[:, :n] @ tilt).astype(np.float32), factors


def _lanes(n_factors: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What tells `newton` how long its vectors are."""
    return (0,) * width(n_factors), (0,) * width(size)


def _about_count(n: NDArray[np.int64], count: Floats) -> Floats:
    """What the number of its ratings says about an item: 1, the log, its square. None is as much as one. (V, 3)"""
    log_count = (np.log(np.maximum(n, 1)) - count[0]) / count[1]
    return np.stack([np.ones_like(log_count), log_count, log_count**2], axis=1)


def _regression(rows: Floats, about: Floats, seen: NDArray[np.bool_], trust: Floats, guess: Floats) -> Floats:
    """Weights of the columns of `about`: of the first, which is 1, by least squares, of the others near a guess."""
    x, y = about[seen], rows[seen]
    weighted = trust[seen, None] * x
    penalty = RIDGE * (x**2).mean(axis=0) + 1e-9 if len(x) else np.ones(x.shape[1])
    penalty[0] = 1e-3
    return guess + np.linalg.solve(x.T @ weighted + np.diag(penalty), weighted.T @ (y - x @ guess))


def _covariance(gaps: Floats, shape_cov: Floats, cov: Floats, seen: NDArray[np.bool_], trust: Floats,
                expected: Floats | None) -> Floats:
    """Empirical Bayes: the covariance of the rows around their means, that of shapes from the trusted ones.

    expected: a covariance that counts as much as KIN rows do, for shapes.
    """
    gaps, n, t = gaps[seen], max(1, int(seen.sum())), len(shape_cov)
    trusted = gaps[:, :t].T @ (trust[seen, None] * gaps[:, :t]) + shape_cov
    trusted = trusted / n if expected is None else (trusted + KIN * expected[:t, :t]) / (n + KIN)
    out = (gaps.T @ gaps + cov) / n
    by_shape = np.linalg.solve(out[:t, :t] + 1e-9 * np.eye(t), out[:t, t:])         # regression of factors on shapes
    out[t:, t:] += by_shape.T @ (trusted - out[:t, :t]) @ by_shape
    out[:t, t:] = trusted @ by_shape
    out[t:, :t], out[:t, :t] = out[:t, t:].T, trusted
    smallest = np.linalg.eigvalsh(out)[0]
    return out + max(0.0, 1e-6 - smallest) * np.eye(len(out))


def _precisions(covariance: Floats, n: int) -> tuple[Floats, Floats]:
    """Of the first n numbers of a row, and of the others given these: (n, n), (D, D)"""
    shape, whole = np.linalg.inv(covariance[:n, :n]), np.linalg.inv(covariance)
    whole[:n, :n] -= shape
    return shape, whole


def _squares(factors: Floats) -> Floats:
    """Lower triangles of f f', with zeros behind them up to a multiple of 16. (n, 16 P)"""
    i, j = np.tril_indices(factors.shape[1])
    out = np.zeros((len(factors), -(-len(i) // 16) * 16), np.float32)
    out[:, :len(i)] = factors[:, i] * factors[:, j]
    return out


def _choices(grouped: Grouped, n_others: int, least: int) -> csr_array:
    """A one for each rating of at least some level."""
    indptr, other, level = grouped
    kept = level >= least
    starts = np.concatenate([[0], np.cumsum(kept)])[indptr]
    return csr_array((np.ones(int(starts[-1]), np.float32), other[kept], starts), shape=(len(indptr) - 1, n_others))


def _grouped(row: NDArray[np.int32], other: NDArray[np.int32], level: NDArray[np.uint8],
             n_rows: int) -> Grouped:
    """Ratings by row, in the order they come in."""
    indptr, order = by_row(row, n_rows)
    return indptr, other[order], level[order]
