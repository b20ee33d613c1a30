"""Validate: settings found on choices that were hidden.

A fifth of what some people chose is hidden, and the settings that find it best in lists of the items chosen most are
taken. A matrix of a thousand items is inverted in a moment, and the best penalty hardly depends on how many items there
are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from pclf.choice.gram import Floats, gram, inverse, sums
from pclf.choice.items import core_of
from pclf.choice.rows import Rows, as_rows, taken

ITEMS = 1000                                     # the items chosen most, that settings are found on
PEOPLE = 1000                                    # of whom something is hidden, at most
SHARE = 3                                        # of those who chose enough, one in so many at most
ENOUGH, FEWEST = 3, 10                           # choices of somebody of whom something is hidden, such people
HIDDEN = 0.2                                     # of what they chose
PENALTIES = tuple(10.0 * 4**k for k in range(6))
PULLS = (0.0, 0.1, 0.3, 1.0)
DEPTH = 20                                       # places of the lists that are looked at
BINS = 40                                        # of a calibration
SMALLEST = 1e-3                                  # an expected count below which items are alike


class Setting(NamedTuple):
    """penalty: of the ridge. pull: how much of the mean row stands in for what a person has not told."""

    penalty: float = 100.0
    pull: float = 0.3


class Calibration(NamedTuple):
    """P(chosen) as a rising curve over  b log(expected) + c log(choices of the person).

    It is the probability that the item is among the next choices of a person, of which as many are to come as a quarter
    of those that are known: of what people had chosen, a fifth was hidden, and four fifths were left.
    """

    b: float = 1.0
    c: float = 0.0
    at: tuple[float, ...] = (0.0,)
    logits: tuple[float, ...] = (0.0,)

    def probability(self, expected: Floats, n_chosen: Floats) -> NDArray[np.float64]:
        logit = np.interp(self.place(expected, n_chosen), self.at, self.logits)
        out: NDArray[np.float64] = 1 / (1 + np.exp(-logit))
        return out

    def place(self, expected: Floats, n_chosen: Floats) -> Floats:
        each = self.c * np.log(np.maximum(n_chosen, 1))[:, None]
        out: Floats = self.b * np.log(np.maximum(expected, 0) + SMALLEST) + each
        return out


def find_setting(rows: Rows, rng: np.random.Generator, n_threads: int | None = None) -> tuple[Setting, Calibration]:
    """The penalty and the pull of a catalogue, and what expected counts mean as probabilities."""
    _, rows = core_of(rows, ITEMS)
    able = np.flatnonzero(np.diff(rows.indptr) >= ENOUGH)
    tested = np.sort(rng.permutation(able)[:min(PEOPLE, len(able) // SHARE)])
    if len(tested) < FEWEST:
        return Setting(), Calibration()
    others = np.ones(rows.shape[0], bool)
    others[tested] = False
    shown, hidden = hide(taken(rows, tested), rng)
    known = vstack([taken(rows, others), shown], format="csr")
    square, mean = gram(known, n_threads), known.sum(axis=0) / np.count_nonzero(np.diff(known.indptr))

    def expected(penalty: float) -> dict[float, Floats]:
        precision = inverse(square.copy(), penalty)
        told, untold = sums(shown, precision), mean @ precision
        return {pull: (pull * untold - told) / precision.diagonal() for pull in PULLS}

    gains = {penalty: {pull: float(gain(z, shown, hidden).mean()) for pull, z in expected(penalty).items()}
             for penalty in PENALTIES}
    pull = max(PULLS, key=lambda c: max(by_pull[c] for by_pull in gains.values()))
    penalty = peak(PENALTIES, [gains[penalty][pull] for penalty in PENALTIES])
    return Setting(penalty, pull), calibrate(expected(penalty)[pull], shown, hidden)


def hide(rows: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """What is shown of each row, and what is hidden: a fifth, at least one."""
    n = np.diff(rows.indptr)
    person = np.repeat(np.arange(rows.shape[0]), n)
    order = np.lexsort((rng.random(len(person)), person))
    place = np.empty(len(person), np.int64)
    place[order] = np.arange(len(person)) - rows.indptr[person[order]]
    out = place < np.ceil(HIDDEN * n)[person]
    shown, hidden = (as_rows(person[part], rows.indices[part], rows.data[part], rows.shape) for part in (~out, out))
    return shown, hidden


def gain(scores: Floats, shown: Rows | None, hidden: Rows) -> Floats:
    """nDCG of what was hidden, by what it counts, among what was not shown; of those of whom something was."""
    scores = np.array(scores, np.float32)
    if shown is not None:
        scores[np.repeat(np.arange(shown.shape[0]), np.diff(shown.indptr)), shown.indices] = -np.inf
    depth = min(DEPTH, scores.shape[1])
    best = np.argpartition(-scores, depth - 1, axis=1)[:, :depth]
    best = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable"), 1)
    worth, discount = hidden.toarray(), 1 / np.log2(np.arange(2, depth + 2))
    ideal = -np.sort(-worth, axis=1)[:, :depth] @ discount
    found = np.take_along_axis(worth, best, 1) @ discount
    out: Floats = found[ideal > 0] / ideal[ideal > 0]
    return out


def peak(penalties: tuple[float, ...], gains: list[float]) -> float:
    """The top of the parabola through the best gain and its neighbours, over the logarithm of the penalty."""
    at = int(np.argmax(gains))
    if not 0 < at < len(gains) - 1:
        return penalties[at]
    x, y = np.log(penalties[at - 1:at + 2]), gains[at - 1:at + 2]
    a, b, _ = np.polyfit(x - x[1], y, 2)
    return float(np.exp(x[1] - b / (2 * a))) if a < 0 else penalties[at]


def calibrate(expected: Floats, shown: Rows, hidden: Rows, n_steps: int = 25) -> Calibration:
    """From whether each pair was hidden, of all that were not shown.

    Logistic regression by Newton's steps weighs the two logarithms; the curve over their sum rises through the shares
    of pairs in bins of as many hits each (Zadrozny & Elkan, KDD 2002).
    """
    from sklearn.isotonic import isotonic_regression

    n_chosen = np.diff(shown.indptr).astype(float)
    left, came = np.ones(expected.shape, bool), np.zeros(expected.shape, bool)
    for mask, rows, value in ((left, shown, False), (came, hidden, True)):
        mask[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices] = value
    x = np.stack([np.ones(int(left.sum())), Calibration().place(expected, n_chosen)[left],
                  Calibration(0.0, 1.0).place(expected, n_chosen)[left]], axis=1)
    y = came[left]
    weights = np.array([np.log(y.mean()), 0.0, 0.0])
    for _ in range(n_steps):
        p = 1 / (1 + np.exp(-(x @ weights)))
        step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(3), x.T @ (y - p))
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    place = x[:, 1:] @ weights[1:]
    order = np.argsort(place, kind="stable")
    place, hits = place[order], np.cumsum(y[order])
    ends = np.unique(np.searchsorted(hits, np.linspace(0, hits[-1], min(BINS, hits[-1]) + 1)[1:], side="left") + 1)
    ends[-1] = len(place)
    sizes, found = np.diff(ends, prepend=0), np.diff(hits[ends - 1], prepend=0)
    share = isotonic_regression((found + 0.5) / (sizes + 1), sample_weight=sizes)
    middle = np.maximum.accumulate(np.add.reduceat(place, ends - sizes) / sizes)     # rounding must not make it fall
    b, c = weights[1:].tolist()
    return Calibration(b, c, tuple(middle.tolist()), tuple(np.log(share / (1 - share)).tolist()))
