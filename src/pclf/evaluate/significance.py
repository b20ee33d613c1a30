"""Significance: is a difference between two models more than luck? Paired over splits, Holm-corrected.

The two models are compared on the same splits, so the differences are what is tested: by the signed-rank test
of Wilcoxon, and by the t test, which says how large the difference may be. Splits of the same ratings overlap, so their
differences vary less than those of new data would. The t test allows for that, rather too much than too little:

    variance of the mean of J differences  =  (1 / J + test ratings / training ratings) * their variance

(Nadeau & Bengio 2003). Wilcoxon's test does not: read its p as a hint.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.errors import UnknownNameError, did_you_mean

LEVEL = 0.95   # of the interval
Key = TypeVar("Key", bound=Hashable)   # of a split


class PairedTest(NamedTuple):
    """A model against the reference. A negative effect means the model has the smaller value."""

    model: str
    reference: str
    splits: int
    effect: float            # mean of model - reference
    low: float               # its 95 % interval, by t
    high: float
    relative: float          # effect / mean of the reference
    p_wilcoxon: float
    p_t: float
    p_wilcoxon_holm: float   # corrected for the number of models in the family
    p_t_holm: float


def paired_tests(scores: Mapping[str, Mapping[Key, float]], reference: str,
                 overlap: float = 0.0) -> list[PairedTest]:
    """Every other model against the reference: {model: {split: value}} is one family of tests.

    Two models are compared on the splits that both have; p is NaN where these are fewer than two. overlap: test ratings
    over training ratings where splits are of the same data, 0 where they are independent.
    """
    if reference not in scores:
        raise UnknownNameError(did_you_mean(reference, scores, "model"))
    base, tests = scores[reference], []
    for model, values in scores.items():
        if model != reference:
            common = [split for split in base if split in values]
            own, its = np.array([values[s] for s in common]), np.array([base[s] for s in common])
            tests.append((model, _compare(own, its, overlap)))
    wilcoxon, t = holm([numbers[-2] for _, numbers in tests]), holm([numbers[-1] for _, numbers in tests])
    return [PairedTest(model, reference, *numbers, float(w), float(p))
            for (model, numbers), w, p in zip(tests, wilcoxon, t, strict=True)]


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down correction, valid however the tests depend on each other. NaN stays, uncounted.

    The smallest of k values is multiplied by k, the next by k - 1 and so on, never below the one before it.
    """
    raw = np.asarray(p, float)
    out = np.full(raw.shape, np.nan)
    order = np.argsort(raw)                       # NaN goes last
    order = order[: np.count_nonzero(~np.isnan(raw))]
    stepped = raw[order] * np.arange(len(order), 0, -1)
    out[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return out


def interval(values: ArrayLike, overlap: float = 0.0) -> tuple[float, float, float]:
    """The mean and its 95 % interval by t; an interval needs two values."""
    from scipy.stats import t

    x = np.asarray(values, float)
    if len(x) < 2:
        return (float(x.mean()) if len(x) else np.nan), np.nan, np.nan
    half = t.ppf((1 + LEVEL) / 2, len(x) - 1) * _standard_error(x, overlap)
    return float(x.mean()), float(x.mean() - half), float(x.mean() + half)


class Effect(NamedTuple):
    """What one model measures against another, in percent."""

    percent: float
    low: float     # its 95 % interval
    high: float
    p: float
    p_wilcoxon: float


def effect(own: NDArray[np.float64], base: NDArray[np.float64], user: NDArray[np.generic],
           repeat: NDArray[np.generic]) -> Effect:
    """The change from base to own, in percent of base: a number a user, each in one repeat or in several.

    A ratio of means over users. Its variance is that of the users' residuals, by linearisation, plus a share
    of what the repeats' means vary by more than their users explain: the luck of a fit, which one repeat does not show.
    Degrees of freedom after Satterthwaite.
    """
    from scipy.stats import t

    own_of_user, base_of_user = mean_by(user, own), mean_by(user, base)
    level, n = base_of_user.mean(), len(base_of_user)
    if level == 0 or n < 2:
        return Effect(*[np.nan] * 5)
    change = own_of_user.mean() / level - 1
    residual = (own - (1 + change) * base) / level
    of_users, of_fits = mean_by(user, residual).var(ddof=1) / n, 0.0
    groups = [residual[repeat == r] for r in np.unique(repeat)]
    if len(groups) > 1:
        explained = np.mean([group.var(ddof=1) / len(group) for group in groups])
        of_fits = max(0.0, np.var([group.mean() for group in groups], ddof=1) - explained) / len(groups)
    variance = of_users + of_fits
    error = np.sqrt(variance)
    freedom = variance**2 / (of_users**2 / (n - 1) + of_fits**2 / max(1, len(groups) - 1)) if error > 0 else n - 1
    half = t.ppf((1 + LEVEL) / 2, freedom) * error
    p = 2 * t.sf(abs(change) / error, freedom) if error > 0 else float(change == 0)
    return Effect(100 * change, 100 * (change - half), 100 * (change + half), p,
                  wilcoxon(own_of_user - base_of_user))


def mean_by(group: NDArray[np.generic], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each group, in their order. (groups,)"""
    _, place = np.unique(group, return_inverse=True)
    out: NDArray[np.float64] = np.bincount(place, values) / np.bincount(place)
    return out


def _standard_error(x: NDArray[np.float64], overlap: float) -> float:
    """Of the mean of values from splits."""
    return float(x.std(ddof=1) * np.sqrt(1 / len(x) + overlap))


def _compare(own: NDArray[np.float64], base: NDArray[np.float64],
             overlap: float) -> tuple[int, float, float, float, float, float, float]:
    difference = own - base
    mean, low, high = interval(difference, overlap)
    relative = mean / base.mean() if len(base) and base.mean() else np.nan
    return len(difference), mean, low, high, float(relative), wilcoxon(difference), _t(difference, overlap)


def wilcoxon(difference: NDArray[np.float64]) -> float:
    """p of the signed-rank test that differences lie around 0."""
    from scipy import stats

    if len(difference) < 2:
        return np.nan
    moved = difference[difference != 0]           # as Wilcoxon did: no difference says nothing
    return float(stats.wilcoxon(moved).pvalue) if len(moved) else 1.0


def _t(difference: NDArray[np.float64], overlap: float) -> float:
    from scipy.stats import t

    if len(difference) < 2:
        return np.nan
    error = _standard_error(difference, overlap)
    if error == 0:
        return 0.0 if difference.any() else 1.0
    return float(2 * t.sf(abs(difference.mean()) / error, len(difference) - 1))
