"""Metrics: plain functions of arrays, each a single number.

Shapes: n ratings, R levels, U lists, N places in a list. `truth` and `prediction` are ratings on a domain's
own scale, (n,). `proba` is a predicted distribution over the levels, (n, R), and `levels` are the ones that
came, (n,).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.errors import ArgumentError, DataError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

SMALLEST = 1e-12   # a level that was given no probability and came costs log(1e-12), not infinity


def mae(truth: ArrayLike, prediction: ArrayLike) -> float:
    """Mean absolute error: the paper's MAE = sum |r - r*| / |O|."""
    a, b = _same(truth, prediction)
    return float(np.abs(a - b).mean())


def rmse(truth: ArrayLike, prediction: ArrayLike) -> float:
    """Root of the mean squared error."""
    a, b = _same(truth, prediction)
    return float(np.sqrt(np.square(a - b).mean()))


def log_score(proba: ArrayLike, levels: ArrayLike) -> float:
    """Mean natural logarithm of the probability of the level that came. At most 0; higher is better."""
    p, came = _distribution(proba, levels)
    return float(np.log(np.maximum(p[np.arange(len(came)), came], SMALLEST)).mean())


def ece(proba: ArrayLike, levels: ArrayLike, *, n_bins: int = 10) -> float:
    """Expected calibration error of the cumulative probabilities.

    Every rating makes R - 1 claims, "it is at most level t" with the probability F_t = P(level <= t). The
    n (R - 1) claims go into bins of equal width by F_t, and

        ECE = sum over bins of  (share of the claims in it) * |mean F_t - share of its claims that came true|

    0 is perfect. Cumulative probabilities are used because levels are ordered: mass one level off counts less
    than mass four levels off.
    """
    p, came = _distribution(proba, levels)
    if p.shape[1] < 2:
        return 0.0
    claimed = np.minimum(p.cumsum(axis=1)[:, :-1], 1.0).ravel()
    true = (came[:, None] <= np.arange(p.shape[1] - 1)).ravel()
    bins = np.minimum((claimed * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(bins, weights=claimed - true, minlength=n_bins)
    return float(np.abs(gap).sum() / len(claimed))


def coverage(proba: ArrayLike, levels: ArrayLike, *, mass: float = 0.8, whole_levels: bool = False) -> float:
    """How often the central interval with this probability holds the rating; calibrated means `mass`.

    The interval lies between the quantiles (1 - mass) / 2 and (1 + mass) / 2. Five levels can seldom hold
    exactly 80 %, so a level on the border counts by the part of its own probability that lies inside (the
    randomised interval: Czado, Gneiting & Held, Biometrics 2009): under the right distribution that covers
    `mass` exactly. `whole_levels` takes the border levels whole, as one would print them: `mass` or more.
    """
    if not 0 < mass < 1:
        raise ArgumentError(f"mass must be between 0 and 1; got {mass}.")
    p, came = _distribution(proba, levels)
    low, high = (1 - mass) / 2, (1 + mass) / 2
    own = p[np.arange(len(came)), came]
    top = p.cumsum(axis=1)[np.arange(len(came)), came]
    inside = np.minimum(top, high) - np.maximum(top - own, low)
    if whole_levels:
        return float((inside > 0).mean())
    part = np.divide(inside, own, out=np.zeros_like(own), where=own > 0)
    return float(np.clip(part, 0.0, 1.0).mean())


def crps(proba: ArrayLike, levels: ArrayLike, values: ArrayLike | None = None) -> float:
    """Ranked probability score: mean over ratings of  sum_t (x_{t+1} - x_t) (F_t - [level <= t])^2.

    values: what each level is worth, (R,), ascending; without it levels are one apart. In the unit of the
    ratings, and equal to the absolute error for a distribution that puts everything on one level.
    """
    p, came = _distribution(proba, levels)
    x = np.arange(p.shape[1], dtype=float) if values is None else np.asarray(values, float)
    if x.shape != (p.shape[1],):
        raise DataError(f"values must be one for each of the {p.shape[1]} levels; got shape {x.shape}.")
    apart = p.cumsum(axis=1)[:, :-1] - (came[:, None] <= np.arange(p.shape[1] - 1))
    return float((np.square(apart) @ np.diff(x)).mean())


def precision_at(n: int, lists: ArrayLike, rows: ArrayLike, items: ArrayLike) -> float:
    """Share of the first n places that hold a relevant item.

    lists: item codes, best first, (U, N), short lists ending in -1. rows, items: the relevant pairs, list row
    and item code. As for all list metrics: the mean over the lists with at least one relevant item.
    """
    hits, wanted = _hits(n, lists, rows, items)
    return float((hits.sum(axis=1) / n)[wanted > 0].mean())


def recall_at(n: int, lists: ArrayLike, rows: ArrayLike, items: ArrayLike) -> float:
    """Share of a user's relevant items that are on the first n places."""
    hits, wanted = _hits(n, lists, rows, items)
    some = wanted > 0
    return float((hits.sum(axis=1)[some] / wanted[some]).mean())


def ndcg_at(n: int, lists: ArrayLike, rows: ArrayLike, items: ArrayLike) -> float:
    """Hits discounted by 1 / log2(place + 1), against the list with all relevant items first."""
    return float(np.nanmean(ndcg_of_each(n, lists, rows, items)))


def ndcg_of_each(n: int, lists: ArrayLike, rows: ArrayLike, items: ArrayLike) -> Floats:
    """The same of each list; NaN for those without a relevant item. (U,)"""
    hits, wanted = _hits(n, lists, rows, items)
    discount = 1 / np.log2(np.arange(2, n + 2))
    ideal = np.concatenate([[np.nan], discount.cumsum()])[np.minimum(wanted, n)]
    out: Floats = hits @ discount[:hits.shape[1]] / ideal
    return out


def catalogue_at(n: int, lists: ArrayLike, chosen: Any) -> float:
    """Share of all items that somebody finds on the first n places.

    lists: item codes, best first, (U, N), short lists ending in -1. chosen: what people chose in training, sparse,
    (people, V), as for all metrics of what lists are made of.
    """
    places = _places(n, lists)
    return float(len(np.unique(places[places >= 0])) / chosen.shape[1])


def popular_at(n: int, lists: ArrayLike, chosen: Any) -> float:
    """Share of the first n places that hold popular items: the most chosen, which together have half of all choices."""
    counts = np.bincount(chosen.indices, minlength=chosen.shape[1])
    order = np.argsort(-counts, kind="stable")
    above = np.cumsum(counts[order]) - counts[order]                  # choices of the more popular ones
    popular = np.zeros(len(counts), bool)
    popular[order] = above < counts.sum() / 2
    places = _places(n, lists)
    return float(popular[places[places >= 0]].mean())


def novelty_at(n: int, lists: ArrayLike, chosen: Any) -> float:
    """Mean information in bits, -log2 of the share of people who chose an item, of the first n places.

    An item that nobody chose counts as if half a person had.
    """
    share = np.maximum(np.bincount(chosen.indices, minlength=chosen.shape[1]), 0.5) / chosen.shape[0]
    places = _places(n, lists)
    return float(-np.log2(share[places[places >= 0]]).mean())


def similarity_at(n: int, lists: ArrayLike, chosen: Any) -> float:
    """Mean cosine between the items of a list, by who chose them, over the pairs among the first n places."""
    from scipy.sparse import csr_array

    places = _places(n, lists)
    taken = csr_array((np.ones(chosen.nnz, np.float32), chosen.indices, chosen.indptr), shape=chosen.shape)
    lengths = np.sqrt(np.maximum(np.bincount(chosen.indices, minlength=chosen.shape[1]), 1))
    row, place = np.nonzero(places >= 0)
    item = places[row, place]
    in_list = csr_array((1 / lengths[item], (row, item)), shape=(len(places), chosen.shape[1]))
    sizes = (places >= 0).sum(axis=1)
    many = sizes > 1
    # Over all pairs of a list, itself included, the cosines add up to the square of the sum of its items' unit vectors.
    total = np.concatenate([(in_list[start:start + 1000] @ taken.T).power(2).sum(axis=1)
                            for start in range(0, len(places), 1000)])
    alone = np.bincount(row, np.bincount(chosen.indices, minlength=chosen.shape[1])[item] > 0, len(places))
    return float(((total - alone)[many] / (sizes * (sizes - 1))[many]).mean()) if many.any() else float("nan")


def overlap_at(n: int, lists: ArrayLike, chosen: Any) -> float:
    """How much of the first n places two people have in common, on average: 1 where everybody gets the same."""
    places = _places(n, lists)
    sizes = (places >= 0).sum(axis=1)
    on = np.bincount(places[places >= 0])
    pairs = len(places) * (len(places) - 1)
    return float((on * (on - 1)).sum() / (pairs * sizes.mean())) if pairs and sizes.any() else float("nan")


POINT = {"mae": mae, "rmse": rmse}
DISTRIBUTION = {"log_score": log_score, "ece": ece, "coverage": coverage, "crps": crps}
LIST = {"precision": precision_at, "recall": recall_at, "ndcg": ndcg_at}                  # by what was held out
MADE_OF = {"catalogue": catalogue_at, "popular": popular_at, "novelty": novelty_at, "similarity": similarity_at,
           "overlap": overlap_at}                                                           # by what people chose


def _same(truth: ArrayLike, prediction: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(truth, float), np.asarray(prediction, float)
    if a.shape != b.shape or not a.size:
        raise DataError(f"truth and prediction must be equally long, not empty; got {a.shape} and {b.shape}.")
    return a, b


def _distribution(proba: ArrayLike, levels: ArrayLike) -> tuple[Floats, Ints]:
    p, came = np.asarray(proba, float), np.asarray(levels, int)
    if p.ndim != 2 or came.shape != p.shape[:1] or not came.size:
        raise DataError(f"proba must be (n, R) and levels (n,), with n > 0; got {p.shape} and {came.shape}.")
    if came.min() < 0 or came.max() >= p.shape[1]:
        raise DataError(f"levels must be 0 to {p.shape[1] - 1}; got {came.min()} to {came.max()}.")
    return p, came


def _places(n: int, lists: ArrayLike) -> Ints:
    """The first n places.   (U, n)"""
    if n < 1:
        raise ArgumentError(f"n must be at least 1; got {n}.")
    places = np.asarray(lists, np.int64)[:, :n]
    if not (places >= 0).any():
        raise DataError("a list metric must have at least one item in a list; got none.")
    return places


def _hits(n: int, lists: ArrayLike, rows: ArrayLike, items: ArrayLike) -> tuple[NDArray[np.bool_], Ints]:
    """Which of the first n places hold a relevant item, (U, n), and how many such items there are, (U,)."""
    if n < 1:
        raise ArgumentError(f"n must be at least 1; got {n}.")
    places = np.asarray(lists, np.int64)[:, :n]
    row, item = np.asarray(rows, np.int64), np.asarray(items, np.int64)
    if not row.size:
        raise DataError("a list metric must have at least one relevant item; got none.")
    wide = 1 + max(int(item.max()), int(places.max(initial=0)))
    key = np.arange(len(places))[:, None] * wide + places
    hits = np.isin(key, row * wide + item) & (places >= 0)
    return hits, np.bincount(row, minlength=len(places))
