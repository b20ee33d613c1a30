"""How much each part says in a prediction, learned from ratings held out of training.

The views of the clusters are averaged, the common one with weight W (eq. Fr); the factors are pooled with the average
on the log scale, with weight w:

    P(r | u, v)  is proportional to  factors ** w  *  (W common + (1 - W) specific) ** (1 - w)

Both weights of a domain are the best on a grid, by the ranked probability score of held-out ratings, each user counting
the same. The best of many is best by chance as well, so the factors alone are what is assumed, and others are given a
weight where that gains twice the standard error of the gain, or more where there are few users.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings
from pclf.data.splits import random_places
from pclf.factors.rows import Floats

COMMON = (0.0, 0.2, 0.35, 0.5, 0.7, 1.0)
FACTORS = tuple(np.round(np.linspace(1, 0, 21), 2).tolist())
FLOOR = 1e-4         # of a probability that is pooled
TRIAL = 100_000      # ratings of a domain, about, that are enough for a trial
EVENT = 3            # ratings that are worth as much as an event with its absences
VISITORS = 0.1       # of the people in several domains, who are strangers to one of them in a trial
SURE = 2.0           # standard errors that a gain must have of many users, and more of few


def some_users(data: Ratings, rng: np.random.Generator) -> Ratings:
    """As many as have about TRIAL ratings of each domain, with their items; all where there are fewer.

    A person is in all domains or in none.
    """
    sizes = [EVENT * np.count_nonzero(d.value) if d.events else len(d) for d in data.domains.values()]
    if max(sizes) <= TRIAL:
        return data
    drawn = np.zeros(data.n_users, bool)
    for rows, size, own in zip(data.user_rows, sizes, _by_domain(data, rng), strict=True):
        drawn[rows] |= own.random(len(rows)) < TRIAL / max(1, size)
    return data.select({name: drawn[rows][d.user] for (name, d), rows in
                        zip(data.domains.items(), data.user_rows, strict=True)}).compact()


def hold_out_of_each(data: Ratings, rng: np.random.Generator, fraction: float = 0.2) -> tuple[Ratings, Ratings]:
    """A share of every user's ratings, at least one where there are two. (training, held out)

    Some people who rate in several domains become visitors: all that they rated in one of them is held out.
    """
    masks = {}
    for (name, d), own in zip(data.domains.items(), _by_domain(data, rng), strict=True):
        count = np.bincount(d.user, minlength=d.n_users)
        held_out = np.maximum(1, np.floor(fraction * count))
        masks[name] = (random_places(d.user, own) < held_out[d.user]) & (count[d.user] > 1)
    if data.shared_users:
        for (name, d), away in zip(data.domains.items(), _visitors(data, rng), strict=True):
            masks[name] |= away[d.user]
    return data.select({name: ~mask for name, mask in masks.items()}), data.select(masks)


def _by_domain(data: Ratings, rng: np.random.Generator) -> list[np.random.Generator]:
    """Random numbers of each domain, which are the same whatever others there are: alone, it is judged by the same
    ratings."""
    seed = int(rng.integers(2**63))
    return [np.random.default_rng([seed, *name.encode(errors="surrogatepass")]) for name in data.domains]


def _visitors(data: Ratings, rng: np.random.Generator) -> list[NDArray[np.bool_]]:
    """Which users of each domain are visitors there: one in ten of those who rate elsewhere too, in one domain each."""
    rates = np.zeros((data.n_users, len(data.domains)), bool)
    for z, (d, rows) in enumerate(zip(data.domains.values(), data.user_rows, strict=True)):
        rates[rows[d.user], z] = True
    drawn = (rates.sum(axis=1) > 1) & (rng.random(data.n_users) < VISITORS)
    domain = (rates * rng.random(rates.shape)).argmax(axis=1)
    return [(drawn & (domain == z))[rows] for z, rows in enumerate(data.user_rows)]


def pool(factors: Floats, mixture: Floats, weight: float) -> Floats:
    """Two distributions over levels, (n, R) each, pooled on the log scale; weight 0 leaves the mixture as it is."""
    if not weight:
        return mixture
    logs = weight * np.log(np.maximum(factors, FLOOR)) + (1 - weight) * np.log(np.maximum(mixture, FLOOR))
    out: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    out /= out.sum(axis=1, keepdims=True)
    return out


def learn(user: NDArray[np.int32], level: NDArray[np.uint8], values: tuple[float, ...], common: Floats | None,
          specific: Floats, factors: Floats | None, common_weights: tuple[float, ...],
          factor_weights: tuple[float, ...]) -> tuple[float, float, float]:
    """The weights of the common clusters and of the factors, and the gain over no common clusters.

    values: the ratings of the levels.
    """
    def score(w_common: float, w: float) -> Floats:
        """The mean score of the ratings of each user."""
        logs = own_logs * w + mixture_logs[w_common] * (1 - w) if factors is not None else mixture_logs[w_common]
        p = np.exp(logs)
        p /= p.sum(axis=1, keepdims=True)
        return (np.bincount(user, scores_of(p, level, values)) / np.maximum(counts, 1))[counts > 0]

    def log(p: Floats) -> Floats:
        return np.log(np.maximum(p, FLOOR, dtype=np.float32))

    own_logs = log(factors) if factors is not None else 0.0
    mixture_logs = {w: log(specific if common is None else w * common + (1 - w) * specific) for w in common_weights}
    counts = np.bincount(user)
    owns = factor_weights if factors is not None else (0.0,)
    least, *more = sorted(common_weights)
    alone = {w: score(least, w) for w in owns}
    plain = surely_best(alone)
    scores = {(least, plain): alone[plain]} | {(c, w): score(c, w) for c in more for w in owns}
    chosen = surely_best(scores)
    return *chosen, float(scores[chosen].mean() - alone[plain].mean())


def scores_of(p: Floats, level: NDArray[np.uint8], values: tuple[float, ...]) -> Floats:
    """How good distributions over levels are, (n, R), for the levels that came: less the continuous ranked probability
    score, which is the absolute error of a distribution without spread. (n,)

    The log score would ask above all how well the habits of a person are met, such as to give no half stars. This one
    asks how far off the mass is, as the errors of means and medians do.
    """
    below = np.cumsum(p[:, :-1], axis=1)
    below -= np.arange(below.shape[1]) >= level[:, None]
    out: Floats = -np.square(below) @ np.diff(np.asarray(values)).astype(p.dtype)
    return out


def by_user(user: NDArray[np.int32], values: Floats) -> Floats:
    """The mean of each user who has values. (users,)"""
    counts = np.bincount(user)
    out: Floats = (np.bincount(user, values) / np.maximum(counts, 1))[counts > 0]
    return out


def surely_best(scores: dict[Any, Floats]) -> Any:
    """The key with the best mean, or the first one, if the best is not better than that by SURE standard errors."""
    from scipy.stats import norm, t

    first, best = next(iter(scores)), max(scores, key=lambda key: scores[key].mean())
    gain = scores[best] - scores[first]
    n = len(gain)
    errors = t.ppf(norm.cdf(SURE), n - 1) if n > 1 else np.inf
    return best if n > 1 and gain.mean() > errors * gain.std(ddof=1) / np.sqrt(n) else first
