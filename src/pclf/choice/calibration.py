"""Calibration: what scores mean as probabilities.

Scores say which of two items somebody rather chooses. How probable that is follows from choices that are hidden once
everything is learned: each choice of some people with a chance of one in five, and what is learned is corrected for
them (`Items.expected_without`), so that the scores are those which lists would have had. Only the items that would have
been highest on a list are looked at. They are few of all items, and a curve through all would be about the others.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array, vstack
from scipy.special import expit

from pclf.choice.few import Together
from pclf.choice.gram import Floats
from pclf.choice.items import Items
from pclf.choice.rows import LARGEST, Rows, Setting, as_rows, taken
from pclf.choice.sums import Counts
from pclf.choice.validate import FEWEST, HIDDEN

TOP = 100                                        # items of each that are looked at, those with the largest scores
PEOPLE = 500                                     # of whom something is hidden, at least where there are as many
CHOICES = 5000                                   # that should be hidden, for which more people are taken,
MOST_PEOPLE = 4000                               # but never more than these
BLOCK = 1 << 22                                  # scores held at a time
BINS = 40
LEAST_SLOPE = 0.05                               # of P(chosen) over what is expected: more is never less probable
SMALLEST = 1e-3                                  # an expected count below which items are alike


class Calibration(NamedTuple):
    """P(chosen) as a rising curve over  b log(expected) + c log(choices of the person).

    It is the probability that the item is among the next choices of a person, of which as many are to come as a quarter
    of those that are known: of what people had chosen, a fifth was hidden, and four fifths were left. Beyond its ends
    the curve goes on as the logistic regression does, but above them no faster than with odds that are proportional to
    what is expected. Who chose less or more than all of these people counts as the nearest of them.
    """

    b: float = 1.0
    c: float = 0.0
    at: tuple[float, ...] = (0.0,)
    logits: tuple[float, ...] = (0.0,)
    fewest: float = 1.0
    most: float = LARGEST

    def probability(self, expected: Floats, n_chosen: Floats) -> NDArray[np.float64]:
        place, ends = self.place(expected, n_chosen), (self.at[0], self.at[-1])
        beyond = place - np.clip(place, *ends)
        logit = np.interp(place, self.at, self.logits) + np.where(beyond > 0, beyond / max(1.0, self.b), beyond)
        out: NDArray[np.float64] = expit(logit)
        return out

    def place(self, expected: Floats, n_chosen: Floats) -> Floats:
        """Where on the curve items are.   expected: (people, n), n_chosen: (people,)"""
        each = self.c * np.log(np.clip(n_chosen, self.fewest, self.most))[:, None]
        out: Floats = self.b * np.log(np.maximum(expected, 0) + SMALLEST) + each
        return out


def find_calibration(rows: Rows, items: Items, setting: Setting, counts: Counts, rng: np.random.Generator,
                     more: Rows | None = None, n_threads: int | None = None) -> Calibration:
    """What scores mean, from choices that some of these people made, as if they had not made them yet.

    counts: of everybody that the items were learned from. more: rows of other catalogues, see `things.elsewhere`.
    """
    n = np.diff(rows.indptr)
    order = rng.permutation(np.flatnonzero(n))
    enough = int(np.searchsorted(np.cumsum(n[order]), CHOICES / HIDDEN)) + 1
    tested = np.sort(order[:min(max(PEOPLE, enough), MOST_PEOPLE)])
    shown, hidden = _parted(taken(rows, tested), rng)
    known = vstack([rows[np.setdiff1d(np.arange(len(n)), tested)], shown], format="csr")
    together = Together.of(csr_array(known), setting, more if setting.things else None)
    parts, size = [], max(1, BLOCK // max(1, items.n_items))
    for some in (np.arange(start, min(start + size, len(tested))) for start in range(0, len(tested), size)):
        parts.append(_of_the_top(taken(shown, some), taken(hidden, some), items, setting, counts, together, n_threads))
    if len(tested) < FEWEST or not parts:
        return Calibration()
    expected, n_shown, came = (np.concatenate(column) for column in zip(*parts, strict=True))
    return calibrate(expected, n_shown, came)


def calibrate(expected: Floats, n_chosen: Floats, came: NDArray[np.bool_]) -> Calibration:
    """From what items were expected to count, how much each person had chosen, and whether it was chosen.   (pairs,)

    Logistic regression weighs the two logarithms; the curve over their sum rises through the shares of pairs in bins
    of as many hits each (Zadrozny & Elkan, KDD 2002). Bins whose shares do not rise are one: between the middles of
    bins the curve is a line, so that the better of two items is never as probable as the other.
    """
    from sklearn.isotonic import isotonic_regression

    if not came.any() or came.all():
        return Calibration()
    each = np.asarray(n_chosen, np.float64)
    x = np.stack([Calibration(b, c).place(expected[:, None], each)[:, 0] for b, c in ((1, 0), (0, 1))], axis=1)
    b, c = _weights(x, came)
    place = x @ np.array([b, c])
    order = np.argsort(place, kind="stable")
    place, hits = place[order], np.cumsum(came[order])
    ends = np.unique(np.searchsorted(hits, np.linspace(0, hits[-1], min(BINS, hits[-1]) + 1)[1:], side="left") + 1)
    ends[-1] = len(place)
    sizes, found = np.diff(ends, prepend=0), np.diff(hits[ends - 1], prepend=0)
    share, first = np.unique(isotonic_regression((found + 0.5) / (sizes + 1), sample_weight=sizes), return_index=True)
    starts = (ends - sizes)[first]
    middle = np.add.reduceat(place, starts) / np.diff(starts, append=len(place))
    return Calibration(b, c, tuple(np.maximum.accumulate(middle).tolist()),      # rounding must not make it fall
                       tuple(np.log(share / (1 - share)).tolist()), max(1.0, float(each.min())),
                       max(1.0, float(each.max())))


def _weights(x: Floats, came: NDArray[np.bool_]) -> tuple[float, float]:
    """b and c of the logistic regression. They are drawn towards 1 and 0 with the weight of a few choices, so that they
    stay moderate where little was hidden."""
    usual = np.array([1.0, 0.0])

    def badness(weights: Floats) -> tuple[float, Floats]:
        logit, apart = weights[0] + x @ weights[1:], weights[1:] - usual
        wrong = expit(logit) - came
        slope = np.concatenate([[wrong.sum()], wrong @ x + apart])
        return float(np.logaddexp(0, logit).sum() - logit[came].sum() + apart @ apart / 2), slope

    share = came.mean()
    start = np.array([np.log(share / (1 - share)) - x[:, 0].mean(), *usual])
    bounds = [(None, None), (LEAST_SLOPE, None), (None, None)]
    found = minimize(badness, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[1]), float(found.x[2])


def _of_the_top(shown: Rows, hidden: Rows, items: Items, setting: Setting, counts: Counts, together: Together,
                n_threads: int | None) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Of the items highest on the lists of some people: what they are expected to count, how much the person is shown
    to have chosen, and whether the item was hidden.   (pairs,) each"""
    n = np.diff(shown.indptr)
    scores = items.expected_without(shown, hidden, counts, setting)
    means = items.mean - hidden.toarray() / np.float32(max(1, counts.people))
    scores[n == 0] = means[n == 0]
    few = together.asked(n)
    if few.any():
        share = together.whole(n[few]).astype(np.float32)[:, None]
        scores[few] = share * scores[few] + (1 - share) * together.expected(taken(shown, few), means[few], n_threads)
    scores[np.repeat(np.arange(len(n)), n), shown.indices] = -np.inf
    top = np.argpartition(-scores, min(TOP, items.n_items) - 1, axis=1)[:, :TOP]
    best = np.take_along_axis(scores, top, 1)
    open_ = best > -np.inf
    came = np.take_along_axis(hidden.toarray() > 0, top, 1)
    return best[open_], np.broadcast_to(n[:, None], top.shape)[open_], came[open_]


def _parted(rows: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """What is shown and what is hidden, each choice with the same chance."""
    hidden = rng.random(rows.nnz) < HIDDEN
    person = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    shown, rest = (as_rows(person[part], rows.indices[part], rows.data[part], rows.shape) for part in (~hidden, hidden))
    return shown, rest
