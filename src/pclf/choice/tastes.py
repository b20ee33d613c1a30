"""Tastes: what the attributes of the things that a person chose say about other things, in any catalogue.

Who chose five horror films of six, where others choose one of twenty, has a taste for horror. Such a person chooses a
horror book more often too, by how much is found from the people of the books: half of what each of them chose says what
the other half is. With a_v the features of a thing, b their mean over all choices in the catalogues where a person was,
and m their mean over what the person chose beside `doubt` choices like everybody's,

    P(v)  is proportional to  (how often v is chosen) * exp(sum over features of w_f t_f a_vf)
    t_f = log(m_f / b_f)                       (m_f - b_f) / variance of a_f, where a feature can be negative

w is the same for all features of a column and not negative: 0 where the attributes of what people chose do not tell
what else they choose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pclf.choice.gram import Floats
from pclf.choice.rows import Rows, taken
from pclf.door import check_array, check_names
from pclf.errors import ModelFileError

PEOPLE = 300         # whose choices are halved
ITEMS = 2000         # that are looked at, the most chosen
FEWEST = 20          # people with two choices or more
DOUBTS = (1.0, 3.0, 10.0, 30.0, 100.0)
STEPS = 30           # of Newton's method
SURE = 2.0           # standard errors that the gain must have
LARGEST = 1e6        # number in a file


@dataclass(frozen=True)
class Column:
    """Where the features of a column are, and whether they can be negative."""

    at: slice
    signed: bool


@dataclass(frozen=True)
class Tastes:
    """Of one catalogue, for P features."""

    usual: NDArray[np.float32]        # (P,) b, of all choices here
    variance: NDArray[np.float32]     # (P,) of features that can be negative; 0 for the others
    weights: NDArray[np.float32]      # (P,) w
    doubt: float

    @property
    def useful(self) -> bool:
        return bool(self.weights.any())

    def odds(self, told: Floats, attributes: Any, share: Floats) -> NDArray[np.float32]:
        """How many times as probable as for anybody tastes make the choice of each item.   (people, V)

        told: t, see `told`. attributes: of the items here, (V, P). share: of all choices, an item each.
        """
        said = (attributes @ (told * self.weights).T).T.astype(np.float32)
        out: NDArray[np.float32] = np.exp(said - said.max(axis=1, keepdims=True, initial=0))      # never infinite
        out /= np.maximum(out @ share.astype(np.float32), 1e-12)[:, None]
        return out

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {f"{prefix}.usual": self.usual, f"{prefix}.variance": self.variance, f"{prefix}.weights": self.weights,
                f"{prefix}.doubt": np.array([self.doubt])}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], n_features: int) -> "Tastes":
        """What `to_arrays` gave. It is from a file, so it is checked."""
        own = {name: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}
        check_names(prefix, own, [f"{prefix}.{part}" for part in ("usual", "variance", "weights", "doubt")])
        usual, variance, weights = (
            check_array(f"{prefix}.{part}", own[f"{prefix}.{part}"], dtype="float32", shape={"features": n_features},
                        low=low, high=LARGEST) for part, low in (("usual", -LARGEST), ("variance", 0), ("weights", 0)))
        doubt = check_array(f"{prefix}.doubt", own[f"{prefix}.doubt"], dtype="float64", shape={"number": 1}, low=0,
                            high=LARGEST)
        if not doubt[0]:
            raise ModelFileError(f"{prefix}.doubt must be above 0; got 0")
        return cls(usual, variance, weights, float(doubt[0]))


def told(tastes: Sequence[Tastes], target: int, chosen: Sequence[Rows | None], attributes: Sequence[Any]) -> Floats:
    """What people's choices in all catalogues say of their tastes, as the target doubts it.   (people, P)"""
    parts = [(own, rows, a) for own, rows, a in zip(tastes, chosen, attributes, strict=True) if rows is not None]
    counts = [np.asarray(rows.sum(axis=1), np.float64).reshape(-1, 1) for _, rows, _ in parts]
    n = np.maximum(sum(counts), 1e-12)
    usual = sum(count * own.usual for count, (own, _, _) in zip(counts, parts, strict=True)) / n
    total = sum((rows @ a).toarray() for _, rows, a in parts)
    return _apart(total, n, usual, tastes[target].variance, tastes[target].doubt)


def learn_tastes(rows: Rows, attributes: Any, columns: Sequence[Column], rng: np.random.Generator) -> Tastes:
    """From what the people of a catalogue chose, (U, V), and the features of its items, (V, P)."""
    share = np.asarray(rows.sum(axis=0), np.float64).ravel()
    share /= max(share.sum(), 1e-12)
    usual = attributes.T @ share
    variance = np.zeros(attributes.shape[1])
    for column in columns:
        if column.signed:
            squares = attributes[:, column.at].power(2).T @ share
            variance[column.at] = np.maximum(squares - usual[column.at] ** 2, 1e-6)
    weights, doubt = np.zeros(attributes.shape[1]), DOUBTS[-1]
    found = _learned(rows, attributes, columns, share, usual, variance, rng)
    if found is not None:
        doubt = found[1]
        for column, weight in zip(columns, found[0], strict=True):
            weights[column.at] = weight
    return Tastes(usual.astype(np.float32), variance.astype(np.float32), weights.astype(np.float32), doubt)


def _learned(rows: Rows, attributes: Any, columns: Sequence[Column], share: Floats, usual: Floats, variance: Floats,
             rng: np.random.Generator) -> tuple[Floats, float] | None:
    """The weights of columns and the doubt under which halves of choices tell most of the other halves; None where they
    tell nothing for sure."""
    able = np.flatnonzero(np.diff(rows.indptr) > 1)
    core = np.argsort(-share, kind="stable")[:ITEMS]
    core = core[share[core] > 0]
    if len(able) < FEWEST or not len(columns):
        return None
    some = taken(rows, np.sort(rng.permutation(able)[:PEOPLE]))
    order = np.lexsort((rng.random(some.nnz), np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))))
    first = np.zeros(some.nnz, bool)
    first[order[np.arange(some.nnz) % 2 == 0]] = True
    shown, hidden = some.copy(), some.copy()
    shown.data, hidden.data = np.where(first, some.data, 0), np.where(first, 0, some.data)
    wanted = hidden[:, core].toarray().astype(np.float64)
    counted = wanted.sum(axis=1) > 0
    wanted = wanted[counted] / wanted[counted].sum(axis=1, keepdims=True)        # each person counts the same
    usually = np.where(shown[:, core].toarray()[counted] > 0, -np.inf, np.log(share[core]))
    usually -= logsumexp(usually, axis=1, keepdims=True)
    total, n = (shown @ attributes).toarray()[counted], np.asarray(shown.sum(axis=1)).reshape(-1, 1)[counted]
    found = []
    for doubt in DOUBTS:
        apart = _apart(total, np.maximum(n, 1e-12), usual, variance, doubt)
        said = np.stack([(attributes[core][:, c.at] @ apart[:, c.at].T).T for c in columns])       # (C, people, items)
        weights, gain = _climbed(said, usually, wanted)
        found.append((float(gain.mean()), weights, doubt, gain))
    best, weights, doubt, gain = max(found, key=lambda one: one[0])
    sure = len(gain) > 1 and best > SURE * gain.std(ddof=1) / np.sqrt(len(gain))
    return (weights, doubt) if sure else None


def _apart(total: Floats, n: Floats, usual: Floats, variance: Floats, doubt: float) -> Floats:
    """t: how far the features of what people chose are from what is usual. total: sums of features, (people, P)."""
    mean = (total + doubt * usual) / (n + doubt)
    ratio = np.log(np.maximum(mean, 1e-12) / np.maximum(usual, 1e-12))
    out: Floats = np.where(variance > 0, (mean - usual) / np.maximum(variance, 1e-12), np.where(usual > 1e-9, ratio, 0))
    return out


def _climbed(said: Floats, usually: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """The weights of columns, none below 0, that make what people chose most probable, and each person's gain."""
    def log(weights: Floats) -> Floats:
        scores = usually + np.tensordot(weights, said, 1)
        out: Floats = scores - logsumexp(scores, axis=1, keepdims=True)
        return out

    weights, asked = np.zeros(len(said)), wanted > 0
    for _ in range(STEPS):
        p = np.exp(log(weights))
        means = np.einsum("pv,cpv->cp", p, said)
        gradient = np.einsum("pv,cpv->c", wanted, said) - means.sum(axis=1) - weights
        hessian = np.einsum("pv,cpv,dpv->cd", p, said, said, optimize=True) - means @ means.T + np.eye(len(said))
        free = (weights > 0) | (gradient > 0)
        step = np.zeros(len(said))
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        weights, before = np.maximum(weights + step, 0), weights
        if np.abs(weights - before).max() < 1e-4:
            break
    gain = np.where(asked, wanted * (np.where(asked, log(weights), 0) - np.where(asked, usually, 0)), 0).sum(axis=1)
    return weights, gain
