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
they rate in larger domains; of an item, who chose it and how many did. Factors begin as tastes in what is chosen by the
same people: ratings that are too few to find factors still say who likes which of these.

Offsets after Koren, "Factorization Meets the Neighborhood", KDD 2008, as is the use of choices (SVD++); ordinal levels
after Koren & Sill, "OrdRec", RecSys 2011; variational inference of factors after Lim & Teh, KDD Cup 2007; factors
around a regression after Agarwal & Chen, "Regression-based Latent Factor Models", KDD 2009.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.events import absences as draw
from pclf.data.ratings import Domain, Ratings
from pclf.engines import Lists, Machine
from pclf.models.base import Floats, packed
from pclf.factors.choices import Choice, learn_choices

SHAPE = 4            # numbers of a shape, at most
NEWTON = 10          # steps that place a newcomer
SWEEPS = 12          # over users and items; more fit the ratings better and predict worse
RIDGE = 150.0        # rows that speak against each weight of a regression
HABIT = 0.3          # of a person's shape elsewhere is expected here, before ratings say how much it is
TASTE = 0.7          # length of an item's factors, which point to who chose it, before ratings say otherwise
KIN = 50.0           # people here who say as much about how shapes vary as a larger domain of the same people does
DRAW = 0.5           # absences of an item are drawn by this power of its events
FREEDOM = 4.0        # degrees of freedom of the users' shapes
GAUSSIAN = 0.0       # of the items': none
COUNTS = 3           # numbers that say how often an item was rated
NOWHERE = 1e-8       # squared distance from the middle that is rounding, not a direction


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
    item_weights: Floats      # (3 + Q, D) of items on 1, log count, its square, the direction of who chose them
    count: Floats             # (2,) mean and spread of the log counts of items
    chosen: Choice            # items as users choose them
    choosers: Choice          # users as items are chosen by them
    rated: NDArray[np.bool_]  # (U,) users with ratings here
    least: NDArray[np.int64]  # () level from which a rating is a choice: of events their own, else 0

    @property
    def blank(self) -> Floats:
        """The row of a user of whom nothing is known. (D,)"""
        return self.user_weights[0, :]

    @property
    def item_factors(self) -> Floats:
        """(V, F)"""
        return self.items[:, len(tilts(len(self.base))):]

    def logits(self, users: Floats, items: Floats) -> Floats:
        """log P(r | u, v) up to a constant, for pairs of rows. (n, R)"""
        tilt = tilts(len(self.base))
        shape = users[:, :len(tilt)] + items[:, :len(tilt)]
        shape[:, 0] += np.einsum("nf,nf->n", users[:, len(tilt):], items[:, len(tilt):])
        return self.base + shape @ tilt

    def pooled_means(self, users: Floats, mixture: Floats, weight: Floats, floor: np.float32, values: Floats) -> Floats:
        """The mean rating of every item of the domain, pooled with a mixture (R, n, V), which is used up. (n, V)"""
        from pclf.engines.pooling import pooled_means

        means: Floats = pooled_means(packed(users), packed(self.items.T), packed(self.base),
                                     packed(tilts(len(self.base))), mixture, weight, floor, values)
        return means

    def place(self, items: NDArray[np.int32], levels: NDArray[np.uint8], elsewhere: Floats) -> Floats:
        """The row of a new user from a few ratings, and from their rows in other domains. (D,)"""
        about = np.concatenate([[1.0], self.chosen.of_one(items[levels >= self.least]), elsewhere])
        return _place(levels, about @ self.user_weights, self.user_prior, FREEDOM, self.items[items],
                      self.item_square[items], self.base)

    def place_item(self, users: NDArray[np.int32], levels: NDArray[np.uint8]) -> Floats:
        """The row of a new item from a few ratings; the users' rows count as certain. (D,)"""
        chose = users[levels >= self.least]
        about = _about_items(np.array([len(chose)]), self.count, self.choosers.of_one(chose)[None])[0]
        return _place(levels, about @ self.item_weights, self.item_prior, GAUSSIAN, self.users[users], None, self.base)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        out: dict[str, NDArray[Any]] = {}
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


def fit(domain: Domain, levels: NDArray[np.uint8], n_levels: int, n_factors: int, rng: np.random.Generator,
        machine: Machine, *, elsewhere: Floats | None = None, kin: Personal | None = None,
        after_sweep: Callable[[], None] = lambda: None) -> Personal:
    """Learn the personal view of a domain.

    elsewhere: rows of the users in other domains, 0 where they have none. kin: the view of another domain with the same
    people.
    """
    tilt, user, item, n_users, n_items = tilts(n_levels), domain.user, domain.item, domain.n_users, domain.n_items
    shape, size, absent, least = len(tilt), len(tilt) + n_factors, 0, 0
    if domain.events:
        absent, least = domain.scale.to_levels(n_levels).tolist()
        user, item, levels = _among_absences(user[levels == least], item[levels == least], n_items, absent, least, rng)
    by_user, by_item = machine.lists(user, item, levels, n_users, n_items, n_levels, least)
    chosen, choosers = learn_choices(by_user, by_item, rng, machine)
    n_chosen = by_item.n_chosen
    log_count = np.log(n_chosen[n_chosen > 0]) if n_chosen.any() else np.zeros(1)
    count = np.array([log_count.mean(), max(log_count.std(), 1e-9)])
    if elsewhere is None:
        elsewhere = np.empty((n_users, 0))
    about_users = np.concatenate([np.ones((n_users, 1)), chosen.of_all(by_user, machine), elsewhere], axis=1)
    about_items = _about_items(n_chosen, count, choosers.of_all(by_item, machine))

    user_guess, item_guess = (np.zeros((about.shape[1], size)) for about in (about_users, about_items))
    item_guess[COUNTS:, shape:] = TASTE * np.eye(len(item_guess) - COUNTS, n_factors)
    start = about_items @ item_guess
    start[:, shape:] += rng.normal(0, 0.2, (n_items, n_factors))
    for block in range(len(user_guess) - elsewhere.shape[1], len(user_guess), size):
        user_guess[block:block + shape, :shape] = HABIT * np.eye(shape)
    users = _Side(machine, by_user, about_users, user_guess, np.zeros((n_users, size)), 0.2 * np.eye(size), tilt,
                  FREEDOM, kin.user_prior if kin else None)
    items = _Side(machine, by_item, about_items, item_guess, start, np.diag([0.2, *[0.1] * (size - 1)]), tilt)
    level_counts = np.bincount(levels, minlength=n_levels) + 1.0
    base = np.log(level_counts / level_counts.sum())

    for iteration in range(SWEEPS):
        _, _, user_shape_cov, user_cov = users.step(items, base)
        gradient, hessian, item_shape_cov, item_cov = items.step(users, base)
        if iteration >= 2:
            users.learn(user_shape_cov, user_cov, n_fixed=shape)                # `base` says how everybody rates
            items.learn(item_shape_cov, item_cov)
        base = base + np.clip(np.linalg.solve(hessian + np.eye(n_levels), gradient), -0.5, 0.5)
        base -= base.mean()
        after_sweep()
    item_rows = items.result()
    if domain.events:                # from odds among these absences to odds among items drawn equally often
        step, weight = tilt[0, least] - tilt[0, absent], _draw_weights(n_chosen)
        lift = np.array([np.log(n_items / weight.sum()) + DRAW * count[0], DRAW * count[1]]) / step
        item_rows[:, 0] += about_items[:, :2] @ lift
        items.weights[:2, 0] += lift
    return Personal(users.result(), item_rows, base, machine.get(items.square), users.prior, items.prior,
                    users.weights, items.weights, count, chosen, choosers, by_user.rated, np.array(least))


def _among_absences(user: NDArray[np.int32], item: NDArray[np.int32], n_items: int, absent: int, done: int,
                    rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    """Events, and absences of their own: users, items and levels.

    Most people have nothing to do with most items, and that is soon said. What a model has to tell apart are the items
    that many like, so these are drawn more often than others; `fit` takes it out of their odds again.
    """
    weight = _draw_weights(np.bincount(item, minlength=n_items))
    absences = draw(user, item, n_items, rng, weight / weight.sum())
    return (np.concatenate([user, absences[0]]), np.concatenate([item, absences[1]]),
            np.repeat(np.array([done, absent], np.uint8), [len(user), len(absences[0])]))


def _draw_weights(n: NDArray[np.int64]) -> Floats:
    """How often items with n events each are drawn as absences, up to a constant."""
    return np.maximum(n, 1.0) ** DRAW


class _Side:
    """Users, or items, while their view is learned: rows, and the prior that they are drawn from."""

    def __init__(self, machine: Machine, lists: Lists, about: Floats, guess: Floats, rows: Floats, prior: Floats,
                 tilt: Floats, freedom: float = GAUSSIAN, expected: Floats | None = None) -> None:
        from pclf.engines.cpu_rows import squares

        self.machine, self.lists, self.tilt = machine, lists, tilt
        self.guess, self.prior, self.freedom, self.expected = guess, prior, freedom, expected
        self.seen = slice(None) if lists.rated.all() else machine.put(lists.rated)      # all rows: without a copy
        self.about, self.rows = map(machine.put, (about, rows))
        self.square, self.trust = machine.put(squares(rows[:, len(tilt):])), machine.put(np.ones(len(rows)))
        self.expect(guess)

    def expect(self, weights: Floats) -> None:
        """Rows are around this regression on what is known about them."""
        self.weights, self.mean = weights, self.about @ self.machine.put(weights)

    def step(self, other: "_Side", base: Floats) -> list[Floats]:
        """A Newton step of every row, given those of the other side."""
        return self.machine.step(self.lists, self.rows, self.square, self.trust, other.rows, other.square, self.prior,
                                 self.mean, self.freedom, base, self.tilt)

    def learn(self, shape_cov: Floats, cov: Floats, n_fixed: int = 0) -> None:
        """The prior of the rows as they are. n_fixed: first numbers of a row whose mean is 0."""
        weights = self._regression()
        weights[0, :n_fixed] = 0
        self.expect(weights)
        gaps, trust, get = (self.rows - self.mean)[self.seen], self.trust[self.seen], self.machine.get
        shapes = gaps[:, :len(self.tilt)]
        self.prior = _covariance(get(gaps.T @ gaps) + cov, get(shapes.T @ (trust[:, None] * shapes)) + shape_cov,
                                 len(gaps), self.expected)

    def result(self) -> Floats:
        """All rows: those without ratings are where they are expected."""
        if not isinstance(self.seen, slice):
            self.rows[~self.seen] = self.mean[~self.seen]
        return self.machine.get(self.rows).astype(np.float32)

    def _regression(self) -> Floats:
        """Weights of the columns of `about`: of the first, which is 1, by least squares, of the others near a guess."""
        x, y, get = self.about[self.seen], self.rows[self.seen], self.machine.get
        weighted = self.trust[self.seen][:, None] * x
        penalty = RIDGE * get((x**2).mean(0)) + 1e-9 if len(x) else np.ones(x.shape[1])
        penalty[0] = 1e-3
        gaps = y - x @ self.machine.put(self.guess)
        return self.guess + np.linalg.solve(get(x.T @ weighted) + np.diag(penalty), get(weighted.T @ gaps))


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
    rows = np.linalg.qr(np.vander(x, degree + 1, increasing=True))[0].T[1:] if n_levels > 1 else np.zeros((1, 1))
    basis: Floats = rows * np.sign(rows[:, -1:]) / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12)
    basis[0] = x
    return basis


def _place(levels: NDArray[np.uint8], mean: Floats, prior: Floats, freedom: float, others: Floats,
           other_squares: Floats | None, base: Floats) -> Floats:
    """Newton's method for one row, given the rows that it met, and E[f f'] of these where they are not certain."""
    from pclf.engines.cpu_rows import as_met, empty_sums, newton, precisions, squares, vectors

    row, tilt = mean[None, :].astype(np.float64), tilts(len(base))
    n, size = len(tilt), len(mean)
    if other_squares is None:
        other_squares = squares(others[:, n:])
    centre, square, trust = row.copy(), np.zeros((1, other_squares.shape[1]), np.float32), np.ones(1)
    indptr, each = np.array([0, len(levels)]), np.arange(len(levels), dtype=np.int32)
    met, precision = as_met(others, tilt), precisions(prior, n)
    for _ in range(NEWTON):
        newton(indptr, each, levels, row, square, trust, *met, other_squares, *precision, centre, freedom, base, tilt,
               0, 1, *empty_sums(len(base), n, size), *vectors(size - n, size))
    return row[0, :]


def _about_items(n: NDArray[np.int64], count: Floats, stands: Floats) -> Floats:
    """What is known about items besides their ratings: 1, the log of how many there are, its square, and the direction,
    of length 1, in which they stand among those who chose them. No rating is as much as one. (V, 3 + Q)
    """
    log_count = (np.log(np.maximum(n, 1)) - count[0]) / count[1]
    direction = stands / np.sqrt((stands**2).sum(axis=1, keepdims=True) + NOWHERE)
    return np.column_stack([np.ones_like(log_count), log_count, log_count**2, direction])


def _covariance(whole: Floats, trusted: Floats, n: int, expected: Floats | None) -> Floats:
    """Empirical Bayes: the covariance of n rows around their means, from sums of squares.

    whole: of the rows, (D, D). trusted: of their shapes, each counting as much as it is trusted, (T, T). expected: a
    covariance that counts as much as KIN rows do, for shapes.
    """
    n, t = max(1, n), len(trusted)
    trusted = trusted / n if expected is None else (trusted + KIN * expected[:t, :t]) / (n + KIN)
    out = whole / n
    by_shape = np.linalg.solve(out[:t, :t] + 1e-9 * np.eye(t), out[:t, t:])         # regression of factors on shapes
    out[t:, t:] += by_shape.T @ (trusted - out[:t, :t]) @ by_shape
    out[:t, t:] = trusted @ by_shape
    out[t:, :t], out[:t, :t] = out[:t, t:].T, trusted
    smallest = np.linalg.eigvalsh(out)[0]
    raised: Floats = out + max(0.0, 1e-6 - smallest) * np.eye(len(out))
    return raised
