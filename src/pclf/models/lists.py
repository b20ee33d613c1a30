"""Lists: what people will pick and like. The choices in the ratings, beside what the ratings say.

A rating says how much somebody likes what they picked; that there is one says what they pick. `pclf.choice` learns the
second from all pairs, the zeros too: z, how much an item would count among a person's choices, where a choice counts by
its rating, from 0.2 at the bottom of the scale to 1 at the top. So z is the probability of the choice times the grade
that is expected, and with P(r | u, v) of the model

    chosen  =  z / E[grade]             how probable it is that the person picks the item, up to a factor
    liked   =  z P(liked) / E[grade]    that the person picks it and likes it: a rating at least 70 % up the scale

An item that few have chosen has a small z, whatever these few thought of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pclf.choice import Choice, Chosen, graded
from pclf.choice.few import Together
from pclf.choice.rows import LEAST, as_rows
from pclf.choice.tastes import Column
from pclf.choice.tastes import told as tastes_of
from pclf.choice.things import elsewhere, places, translated
from pclf.data.domain import Domain
from pclf.data.ratings import Ratings
from pclf.models.people import Guest, People

Floats = NDArray[np.floating[Any]]
LIKED = 0.7          # of the way up the scale: 4 and 5 of five stars, 8 to 10 of ten
POOL = 100           # items with the largest z, at least, that are sorted by liking


class Told(NamedTuple):
    """What some people chose."""

    domain: int                       # the number of the one they are asked about
    rows: list[Any]                   # in each domain; None where nobody chose anything, but in this one
    people: NDArray[np.int64]         # (n,) rows among all people, -1 for guests

    @property
    def n_here(self) -> NDArray[np.int32]:
        """How many choices of each are known here. (n,)"""
        out: NDArray[np.int32] = np.diff(self.rows[self.domain].indptr)
        return out


class Lists:
    """The choices of everybody, and what they say about anybody.

    Where people are on disk, `data` has those of a part, or nobody. What takes the rows of all is then taken from those
    of the sample that `choice` keeps.
    """

    def __init__(self, choice: Choice, data: Ratings) -> None:
        self.choice, self.data = choice, data
        self.names = list(data.domains)

    def of(self, data: Ratings) -> "Lists":
        """The same, for the people of a part who were read from disk."""
        crossings = (None if crossing is None else crossing.with_people(_on_both_sides(data.user_rows, z))
                     for z, crossing in enumerate(self.choice.crossings))
        out = Lists(replace(self.choice, crossings=tuple(crossings)), data)
        out.__dict__["_together"] = self._together
        return out

    def expected(self, told: "Told", least: float = 0.0, odds: Floats | None = None) -> Floats:
        """z of all items of the domain, not below the least. odds: see `Choice.scores`. (people, V)"""
        out: Floats = self.choice.scores(told.domain, told.rows, told.people, self._together[told.domain], odds)
        return np.maximum(out, least, out=out)

    def alike(self, domain: str, code: int) -> Floats | None:
        """How the choices of each item, as they count, correlate with those of one item over all people, or those of
        the sample; None where none of these chose it. (V,)"""
        rows = self._of_all[self.names.index(domain)]
        if self.choice.sample and not (rows.indices == code).any():
            return None
        n, own = max(1, rows.shape[0]), rows[:, [code]].toarray().ravel()
        mean = np.asarray(rows.sum(axis=0)).ravel() / n
        spread = np.asarray(rows.multiply(rows).sum(axis=0)).ravel() / n - mean**2
        together = (rows.T @ own) / n - mean * own.mean()
        out: Floats = together / np.sqrt(np.maximum(spread * own.var(), 1e-24))
        return out

    def unknown(self, told: "Told") -> NDArray[np.bool_]:
        """Who has chosen nothing here, where choices elsewhere say nothing either. (people,)"""
        nowhere = self.choice.crossings[told.domain] is None
        return told.n_here == 0 if nowhere else np.zeros(len(told.people), bool)

    def little(self, told: "Told") -> NDArray[np.bool_]:
        """Who has chosen little or nothing here, where choices elsewhere say nothing by themselves. (people,)"""
        nowhere = self.choice.crossings[told.domain] is None
        few = self._together[told.domain].asked(told.n_here) | (told.n_here == 0)
        return few if nowhere else np.zeros(len(told.people), bool)

    def odds(self, told: "Told", some: NDArray[np.intp]) -> Floats | None:
        """How many times as probable as for anybody the attributes of what some people chose elsewhere make the choice
        of each item; None where they say nothing. (some, V)"""
        known = self._tastes(told, some)
        return None if known is None else self._odds(told.domain, known)

    def draws(self, told: "Told", code: int) -> tuple[float, dict[int, float]]:
        """The odds of an item for the first of these people, and what each of its features adds to their logarithm; 1
        and nothing where attributes say nothing."""
        known = self._tastes(told, np.arange(1)) if self.little(told)[0] else None
        if known is None:
            return 1.0, {}
        row = attributes_of(self.data, self.names[told.domain])[[code]]
        effects = row.data * known[0, row.indices] * self.choice.tastes[told.domain].weights[row.indices]
        of_features = dict(zip(row.indices.tolist(), effects.tolist(), strict=True))
        return float(self._odds(told.domain, known)[0, code]), of_features

    def _odds(self, domain: int, known: Floats) -> Floats:
        """Of all items of a domain, by what is known of some people's tastes. (some, V)"""
        attributes = attributes_of(self.data, self.names[domain])
        return self.choice.tastes[domain].odds(known, attributes, self._shares[domain])

    def _tastes(self, told: "Told", some: NDArray[np.intp]) -> Floats | None:
        """What the attributes of what some people chose elsewhere say of their tastes. (some, P)"""
        if not self.choice.tastes or not self.choice.tastes[told.domain].useful:
            return None
        chosen = [None if rows is None or z == told.domain else rows[some] for z, rows in enumerate(told.rows)]
        if all(rows is None for rows in chosen):
            return None
        attributes = [attributes_of(self.data, name) for name in self.names]
        return tastes_of(self.choice.tastes, told.domain, chosen, attributes)

    def probability(self, told: "Told", expected: Floats) -> Floats:
        """P(chosen) of some items each, see `pclf.choice.calibration.Calibration`. (people, n)"""
        return self.choice.probability(told.domain, expected, told.n_here)

    def grades(self, domain: str, distribution: Floats) -> tuple[Floats, Floats]:
        """E[grade] and P(liked) of predicted distributions, (..., R). In a domain of events, 1."""
        d = self.data[domain]
        if d.events:
            one = np.ones(distribution.shape[:-1])
            return one, one
        place = _place(d, np.array(d.scale.values))
        return distribution @ (LEAST + (1 - LEAST) * place), distribution @ (place >= LIKED)

    def most(self, domain: str) -> float:
        """What P(liked) / E[grade] cannot exceed: all probability on the lowest rating that means liked."""
        d = self.data[domain]
        place = _place(d, np.array(d.scale.values))
        return 1.0 if d.events else float(1 / (LEAST + (1 - LEAST) * place[place >= LIKED].min()))

    @cached_property
    def _rows(self) -> list[Any]:
        return [graded(d) for d in self.data.domains.values()]

    @property
    def _of_all(self) -> Sequence[Any]:
        """The rows of everybody, or those of the sample in their place."""
        return self.choice.sample or self._rows

    @cached_property
    def _together(self) -> list[Together]:
        things, rows_of_all = self.data.item_rows if self.data.shared_items else None, self._of_all
        return [Together.of(rows, setting, elsewhere(rows_of_all, things, z) if things and setting.things else None)
                for z, (rows, setting) in enumerate(zip(rows_of_all, self.choice.settings, strict=True))]

    @cached_property
    def _shares(self) -> list[Floats]:
        """For each domain, the share of all choices that each item has. (V,)"""
        counts = [np.asarray(rows.sum(axis=0), np.float64).ravel() for rows in self._of_all]
        return [count / max(count.sum(), 1e-12) for count in counts]

    @cached_property
    def _codes(self) -> list[NDArray[np.int32]]:
        """For each domain, row of a person among all -> code there, -1 for nobody."""
        out = []
        for rows in self.data.user_rows:
            codes = np.full(self.data.n_users + 1, -1, np.int32)
            codes[rows] = np.arange(len(rows), dtype=np.int32)
            out.append(codes)
        return out

    def told(self, people: People) -> "Told":
        """What people chose in each domain."""
        person = np.full(len(people), -1, np.int64)
        for z, name in enumerate(self.names):
            codes = people.here if name == people.domain else people.homes.get(name)
            if codes is not None and (codes >= 0).any():
                person = np.where((codes >= 0) & (person < 0), self.data.user_rows[z][codes], person)
        guests = [i for i, who in enumerate(people.ids) if isinstance(who, Guest)] if (person < 0).any() else []
        out: list[Any] = []
        for z, name in enumerate(self.names):
            if self.data.shared_users:
                codes = self._codes[z][person]
            elif name == people.domain:
                codes = people.here
            else:
                codes = people.homes.get(name, np.full(len(people), -1, np.int32))
            given = self._given(name, [people.ids[i] for i in guests])
            picked = self._picked(z, codes, guests, given)
            if picked is None and name == people.domain:
                picked = csr_array((len(people), self.data[name].n_items), dtype=np.float32)
            out.append(picked)
        target = self.names.index(people.domain)
        if self.data.shared_items and self.choice.settings[target].things:
            out[target] = self._with_things(target, out)
        return Told(target, out, person)

    def _with_things(self, target: int, rows: Sequence[Any]) -> Any:
        """What people chose here or, of the things that are sold here, elsewhere."""
        here = rows[target]
        for z, there in enumerate(rows):
            if z != target and there is not None:
                here = here.maximum(translated(there, self._places[target, z], here.shape[1]))
        return csr_array(here)

    @cached_property
    def _places(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        numbered = list(enumerate(self.data.item_rows))
        return {(z, other): places(here, there) for z, here in numbered for other, there in numbered}

    def _picked(self, z: int, codes: NDArray[np.int32], guests: Sequence[int], given: Any) -> Any:
        """Rows of known people, nothing for others, and those of guests in their places."""
        if (codes < 0).all() and given is None:
            return None
        if (codes >= 0).all():
            return csr_array(self._rows[z][codes])
        if given is not None and len(guests) == len(codes):
            return given
        here = np.flatnonzero(codes >= 0)
        parts, at = [csr_array((1, self._rows[z].shape[1]), dtype=np.float32)], np.zeros(len(codes), np.int64)
        if len(here):                                    # not the rows of all, which take longer to copy than a list
            parts.append(self._rows[z][codes[here]])
            at[here] = 1 + np.arange(len(here))
        if given is not None:
            parts.append(given)
            at[list(guests)] = 1 + len(here) + np.arange(len(guests))
        out = csr_array(vstack(parts, format="csr")[at])
        out.sort_indices()
        return out

    def _given(self, name: str, guests: Sequence[Guest]) -> Any:
        """What guests chose in a domain, None where nobody did."""
        d = self.data[name]
        told = [guest.ratings.get(name, {}) for guest in guests]
        if not any(told):
            return None
        row = np.repeat(np.arange(len(told)), [len(ratings) for ratings in told])
        item = d.items.encode([item for ratings in told for item in ratings])
        grade: Floats = np.ones(len(row))
        if not d.events:
            grade = LEAST + (1 - LEAST) * _place(d, np.array([r for ratings in told for r in ratings.values()], float))
        return as_rows(row, item, grade, (len(told), d.n_items))


def attributes_of(data: Ratings, domain: str) -> Any:
    """The features of the items of a domain."""
    assert data.attributes is not None
    return data.attributes.of(domain)


def columns_of(data: Ratings) -> list[Column]:
    """Where the features of each column of attributes are."""
    out, start = [], 0
    for column in data.attributes.columns if data.attributes is not None else ():
        stop = start + len(column.features)
        if stop > start:
            out.append(Column(slice(start, stop), column.least < 0))
        start = stop
    return out


def chosen_in(data: Ratings, n_threads: int | None = None) -> Chosen:
    """What the people of some ratings chose."""
    return Chosen([graded(d) for d in data.domains.values()], data.user_rows if data.shared_users else None,
                  data.item_rows if data.shared_items else None, n_threads)


def _on_both_sides(user_rows: Sequence[NDArray[np.int32]], target: int) -> NDArray[np.int32]:
    """The rows of the people of a domain who are known in another one, too, ascending."""
    others = [rows for z, rows in enumerate(user_rows) if z != target]
    return np.intersect1d(user_rows[target], np.concatenate(others))


def _place(d: Domain, ratings: Floats) -> Floats:
    """How far up the scale ratings are, 0 to 1."""
    low, high = d.scale.values[0], d.scale.values[-1]
    return (ratings - low) / max(high - low, 1e-12)
