"""Sums: everything that is learnt about everybody is a solution of sums over people.

The sums of some people and those of others add up to those of all, so it does not matter where people are. A *source*
answers questions with such sums: `Chosen` does for rows in memory, and `pclf.blocks.choices.Spread` for people in
blocks on disk, who are asked block by block. A *question* is a function below: of the rows of some people, and of what
earlier answers said about all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from pclf.choice.gram import gram
from pclf.choice.rows import Rows, Setting, evened, taken, weights
from pclf.choice.things import found_elsewhere, shares, weighed, worth_of

Answers = list[Any]                     # arrays, or sparse ones
Question = Callable[..., Answers]


class Source(Protocol):
    """Everybody, as a source of sums over people."""

    @property
    def here(self) -> "Chosen | None":
        """The rows themselves, where memory holds them."""
    @property
    def room(self) -> int | None:
        """Numbers that an answer should not exceed, None where it does not matter."""
    @property
    def n_threads(self) -> int | None: ...
    @property
    def things(self) -> Sequence[NDArray[Any]] | None: ...
    def ask(self, question: Question, *arguments: Any) -> Answers: ...


@dataclass(frozen=True)
class Chosen:
    """What some people chose in each catalogue.

    people: the row of each person of a catalogue among all of these people, where these are the same in several;
    without it every catalogue has its own. things: the same for items.
    """

    rows: Sequence[Rows]
    people: Sequence[NDArray[Any]] | None = None
    things: Sequence[NDArray[Any]] | None = None
    n_threads: int | None = None
    room: int | None = None

    @property
    def here(self) -> "Chosen":
        return self

    def ask(self, question: Question, *arguments: Any) -> Answers:
        return question(self, *arguments)

    def ordered(self, keys: Sequence[NDArray[Any]]) -> "Chosen":
        """The same people by a key of each, as blocks have them: what chance decides is then decided alike."""
        orders, people = [np.argsort(own, kind="stable") for own in keys], self.people
        if people is not None:
            together = np.concatenate([own[order] for own, order in zip(people, orders, strict=True)])
            _, first, each = np.unique(together, return_index=True, return_inverse=True)
            rank = np.argsort(np.argsort(first, kind="stable"))              # in the order in which they are first met
            people = np.split(rank[each], np.cumsum([len(order) for order in orders])[:-1])
        return replace(self, people=people, rows=[rows[order] for rows, order in zip(self.rows, orders, strict=True)])

    def both(self, target: int) -> tuple[Rows, Rows, NDArray[np.intp]]:
        """What people who are known on both sides chose in all other catalogues, side by side, and in this one; and
        their rows among all people."""
        here = self._by_person[target]
        others = stacked(self._by_person, target, here.shape[0], [rows.shape[1] for rows in self._by_person])
        both = np.flatnonzero((np.diff(here.indptr) > 0) & (np.diff(others.indptr) > 0))
        return taken(others, both), taken(here, both), both

    @cached_property
    def _by_person(self) -> list[Rows]:
        assert self.people is not None
        n = 1 + max((int(p.max()) for p in self.people if len(p)), default=-1)
        return [_by_person(rows, p, n) for rows, p in zip(self.rows, self.people, strict=True)]


@dataclass(frozen=True)
class Counts:
    """What must be known of everybody before choices of a catalogue can be weighed."""

    often: NDArray[np.int64]                     # (V,) choices of each item, also elsewhere where that tells
    total: NDArray[np.float64]                   # (V,) sum of the rows here
    people: int                                  # who chose anything here
    people_there: int                            # who chose two things elsewhere that are sold here
    usual: tuple[float, float]                   # the weight of the mean choice here, and of that elsewhere
    worth: tuple[NDArray[np.float32], ...]       # (V,) each: what choices in every other catalogue count here

    @property
    def things(self) -> bool:
        """Whether choices elsewhere are used."""
        return bool(self.worth)

    @classmethod
    def of(cls, source: Source, target: int, setting: Setting) -> "Counts":
        asked = bool(setting.things) and source.things is not None
        total, often, here, *others = source.ask(counted, target, setting.even, asked)
        there = list(zip(others[::2], others[1::2], strict=True))
        n_there = sum(int(numbers[0]) for _, numbers in there)
        worth = tuple(worth_of(own, int(numbers[0]), often, int(here[0])) for own, numbers in there) if n_there else ()
        for own, _ in there:
            often = often + own
        usual = [float(numbers[2] / max(1.0, numbers[1])) for numbers in
                 (here, np.sum([numbers for _, numbers in there] or [np.zeros(3)], axis=0))]
        return cls(often, total, int(here[0]), n_there, (usual[0], usual[1]), worth)


def counted(chosen: Chosen, target: int, even: float, things: bool) -> Answers:
    """The sum of the rows of a catalogue; then of these rows, and of those elsewhere if asked, how often each item was
    chosen, and how many people, choices and weighed choices there are."""
    def of(rows: Rows) -> Answers:
        n = np.diff(rows.indptr)
        often, people = shares(rows)
        return [often, np.array([people, n.sum(), (weights(n, even) * n).sum()])]

    rows = chosen.rows[target]
    others = _elsewhere(chosen, target) if things else []
    return [np.asarray(rows.sum(axis=0), np.float64), *of(rows), *(array for there in others for array in of(there))]


def used(chosen: Chosen, target: int, setting: Setting, counts: Counts) -> Rows:
    """The rows that tell what is chosen together: those here, and those elsewhere below them, as they count."""
    rows = evened(chosen.rows[target], setting.even, counts.usual[0])
    if not counts.things:
        return rows
    more = evened(weighed(_elsewhere(chosen, target), counts.worth), setting.even, counts.usual[1])
    return csr_array(vstack([rows, more * np.float32(np.sqrt(setting.things))], format="csr"))


def summed(chosen: Chosen, target: int, setting: Setting, counts: Counts, inner: NDArray[np.int32],
           outer: NDArray[np.int32]) -> Answers:
    """Of each item the sum of squares, (V,); of the core X'X, (N, N); of each item of the tail its row sum, (T,); and
    the sum of the rows elsewhere, (V,)."""
    rows = used(chosen, target, setting, counts)
    of_core, of_tail = taken(rows, items=inner), taken(rows, items=outer)
    squares = np.asarray(np.bincount(rows.indices, rows.data.astype(np.float64)**2, rows.shape[1]), np.float64)
    there = weighed(_elsewhere(chosen, target), counts.worth).sum(axis=0) if counts.things else np.zeros(0)
    return [squares, gram(of_core, chosen.n_threads), of_tail.T @ of_tail.sum(axis=1), np.asarray(there)]


def tied(chosen: Chosen, target: int, setting: Setting, counts: Counts, inner: NDArray[np.int32],
         some: NDArray[np.int32]) -> Answers:
    """X'X of some items of the tail and those of the core.   (some, N)"""
    rows = used(chosen, target, setting, counts)
    return [csr_array(taken(rows, items=some).T @ taken(rows, items=inner))]


def met(chosen: Chosen, target: int) -> Answers:
    """Of the people who are known on both sides: how many they are, and of items elsewhere and here how often each was
    chosen, and the sum of the rows."""
    elsewhere, here, both = chosen.both(target)
    out: Answers = [np.array([len(both)])]
    for rows in (elsewhere, here):
        out += [np.bincount(rows.indices, minlength=rows.shape[1]), np.asarray(rows.sum(axis=0), np.float64)]
    return out


def squared(chosen: Chosen, target: int, source: NDArray[Any]) -> Answers:
    """Y'Y of some items elsewhere.   (S, S)"""
    return [gram(taken(chosen.both(target)[0], items=source), chosen.n_threads)]


def crossed(chosen: Chosen, target: int, source: NDArray[Any], some: NDArray[Any]) -> Answers:
    """Y'X of some items elsewhere and some items here.   (S, some)"""
    elsewhere, here, _ = chosen.both(target)
    return [(taken(elsewhere, items=source).T @ taken(here, items=some)).toarray()]


def stacked(chosen: Sequence[Rows | None], target: int, n: int, sizes: Sequence[int]) -> Rows:
    """The rows in all catalogues but one, side by side."""
    parts = [csr_array((n, size), dtype=np.float32) if rows is None else rows
             for z, (rows, size) in enumerate(zip(chosen, sizes, strict=True)) if z != target]
    return csr_array(hstack(parts, format="csr"))


def _elsewhere(chosen: Chosen, target: int) -> list[Rows]:
    assert chosen.things is not None
    return found_elsewhere(chosen.rows, chosen.things, target)


def _by_person(rows: Rows, people: NDArray[Any], n: int) -> Rows:
    """The rows of a catalogue at the rows of their people among all."""
    counts = np.zeros(n + 1, np.int64)
    counts[1 + people] = np.diff(rows.indptr)
    order = np.argsort(people, kind="stable")
    ordered = rows[order]
    return csr_array((ordered.data, ordered.indices, np.cumsum(counts)), shape=(n, rows.shape[1]))
