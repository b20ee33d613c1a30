"""Validate: settings found on choices that were hidden.

A fifth of what some people chose is hidden, and the settings that find it best in lists of the items chosen most are
taken. A matrix of a thousand items is inverted in a moment, and the best penalty hardly depends on how many items there
are.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, vstack

from pclf.choice.few import Together
from pclf.choice.gram import Floats, gram, inverse, sums
from pclf.choice.items import core_of
from pclf.choice.rows import Rows, Setting, as_rows, evened, taken
from pclf.choice.things import mean_row

ITEMS = 1000                                     # the items chosen most, that settings are found on
PEOPLE = 1000                                    # of whom something is hidden, at most
SHARE = 3                                        # of those who chose enough, one in so many at most
ROUNDS = 5                                       # of such tests, at most
ENOUGH, FEWEST = 3, 10                           # choices of somebody of whom something is hidden, such people
HIDDEN = 0.2                                     # of what they chose
PENALTIES = tuple(10.0 * 4**k for k in range(6))
PULLS = (0.0, 0.1, 0.3, 1.0)
THINGS = (0.0, 0.1, 0.3, 1.0)                    # what people of other catalogues count
FEWS = (0.0, 3.0, 10.0, 30.0)                    # choices with which half is told
FEW_PENALTIES = (3.0, 10.0, 30.0, 100.0, 300.0)
SIZES = (1, 3, 10, 30)                           # of what is shown of a person, to see how much is told
BEGINNERS = 150                                  # people of whom so little is shown
DEPTH = 20                                       # places of the lists that are looked at


def find_setting(rows: Rows, rng: np.random.Generator, n_threads: int | None = None, *, ease: bool = False,
                 more: Rows | None = None) -> Setting:
    """The setting of a catalogue.

    ease: of EASE, which has a penalty alone. more: rows of other catalogues, see `things.elsewhere`; they are used as
    far as they help to find what was hidden, and as they are where too few people are there to tell.
    """
    usual, pulls = (Setting.ease(100.0), (0.0,)) if ease else (Setting(), PULLS)
    test = HiddenChoices.of(rows, more, usual, rng, n_threads)
    if test is None:
        return usual._replace(things=float(more is not None))
    gains = test.gains(pulls)
    things, pull, _ = max(gains, key=lambda setting: gains[setting])
    penalty = peak(PENALTIES, [gains[things, pull, penalty] for penalty in PENALTIES])
    found = usual._replace(penalty=penalty, pull=pull, things=things)
    if not ease:
        by_few = test.gains_of_few(found, rng, n_threads)
        few, few_penalty = max(by_few, key=lambda setting: by_few[setting])
        found = found._replace(few=few, few_penalty=few_penalty)
    return found


@dataclass(frozen=True)
class HiddenChoices:
    """Choices of some people that were hidden, among the items chosen most. Where people are few, they are tested in
    several rounds, with others of them and with other choices hidden."""

    usual: Setting
    rounds: list[tuple[Rows, Rows, Rows, Floats]]    # shown, hidden, all that is known, its last rows are those shown,
                                                     # and its Gram matrix
    more: Rows | None
    by_others: Floats | None                         # the Gram matrix of `more`

    @property
    def shown(self) -> list[Rows]:
        return [shown for shown, *_ in self.rounds]

    @property
    def hidden(self) -> list[Rows]:
        return [hidden for _, hidden, *_ in self.rounds]

    @classmethod
    def of(cls, rows: Rows, more: Rows | None, usual: Setting, rng: np.random.Generator,
           n_threads: int | None) -> "HiddenChoices | None":
        """None where too few people are there to tell anything."""
        everybody = rows if more is None else csr_array(vstack([rows, more], format="csr"))
        core, _ = core_of(everybody, ITEMS)
        rows, more = taken(rows, items=core), None if more is None else taken(more, items=core)
        able = np.flatnonzero(np.diff(rows.indptr) >= ENOUGH)
        n_tested = min(PEOPLE, len(able) // SHARE)
        if n_tested < FEWEST:
            return None
        by_others = None if more is None else gram(evened(more, usual.even), n_threads)
        rounds = []
        for _ in range(min(ROUNDS, -(-PEOPLE // n_tested))):
            others, tested = np.ones(rows.shape[0], bool), np.sort(rng.permutation(able)[:n_tested])
            others[tested] = False
            shown, hidden = hide(taken(rows, tested), rng)
            known = vstack([taken(rows, others), shown], format="csr")
            rounds.append((shown, hidden, known, gram(evened(known, usual.even), n_threads)))
        return cls(usual, rounds, more, by_others)

    def gains_of_few(self, setting: Setting, rng: np.random.Generator,
                     n_threads: int | None) -> dict[tuple[float, float], float]:
        """The mean nDCG of what was hidden of people of whom but a few choices are shown, by `few` and its penalty."""
        shown, hidden, known, square = self.rounds[0]
        others = csr_array(known[:known.shape[0] - shown.shape[0]])
        mean = mean_row(known, self.more if setting.things else None)
        together = Together.of(others, setting, self.more)
        gains: dict[tuple[float, float], list[float]] = {(few, p): [] for few in FEWS for p in FEW_PENALTIES}
        for size in SIZES:
            able = np.flatnonzero(np.diff(shown.indptr) > size)
            able = np.sort(rng.permutation(able)[:BEGINNERS])
            if not len(able):
                continue
            left_out, wanted = taken(shown, able), taken(hidden, able)
            some = _some(left_out, size, rng)
            alone = replace(self, rounds=[(some, wanted, known, square)])
            whole = alone.expected(setting.things, setting.penalty, (setting.pull,))[setting.pull][0]
            for penalty in FEW_PENALTIES:
                by_few = replace(together, penalty=penalty).expected(some, mean, n_threads)
                for few in FEWS:
                    share = size**2 / (size**2 + few**2)
                    found = gain(share * whole + (1 - share) * by_few, left_out, wanted)
                    gains[few, penalty].append(float(found.mean()) if len(found) else 0.0)
        return {key: float(np.mean(of_sizes or [0.0])) for key, of_sizes in gains.items()}

    def expected(self, things: float, penalty: float, pulls: tuple[float, ...]) -> dict[float, list[Floats]]:
        """What items are expected to count, by pull, for the people of each round."""
        out: dict[float, list[Floats]] = {pull: [] for pull in pulls}
        for shown, _, known, own in self.rounds:
            square = own.copy()
            if self.by_others is not None and things:
                square = own + np.float32(things) * self.by_others
            precision = inverse(square, penalty + self.usual.doubt * square.diagonal())
            told, untold = sums(shown, precision), mean_row(known, self.more if things else None) @ precision
            for pull in pulls:
                out[pull].append((pull * untold - told) / precision.diagonal())
        return out

    def gains(self, pulls: tuple[float, ...] = PULLS) -> dict[tuple[float, float, float], float]:
        """The mean nDCG of what was hidden, by what other catalogues count, the pull and the penalty."""
        return {(things, pull, penalty): float(np.concatenate(list(map(gain, found, self.shown, self.hidden))).mean())
                for things in (THINGS if self.more is not None else (0.0,)) for penalty in PENALTIES
                for pull, found in self.expected(things, penalty, pulls).items()}


def _some(rows: Rows, n: int, rng: np.random.Generator) -> Rows:
    """n random choices of each row, which has more."""
    person = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    kept = np.lexsort((rng.random(rows.nnz), person))[(rows.indptr[:-1, None] + np.arange(n)).ravel()]
    return as_rows(person[kept], rows.indices[kept], rows.data[kept], rows.shape)


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
