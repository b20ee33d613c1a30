"""Lists as they are answered: who asks, from which model and which fresh ratings, with intervals and reasons.

A person is *known* in a catalogue, a *visitor* from another, or new: then they get what is popular. Whoever has rated
since the model was fitted is placed by all their ratings, those of the training data and those of the store. Somebody
who has not is in the lists that were made of everybody when the model was fitted.

Where catalogues do not share people, an id that training has in one of them is one person everywhere. One that it has
in several is another person in each.
"""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain
from pclf.data.vocabulary import Vocabulary
from pclf.engines.cpu import by_row
from pclf.errors import ArgumentError, PclfError
from pclf.models.insight import OFTEN, TOLD, Draw, Explanation, Taste
from pclf.models.mixture import Mixture
from pclf.models.people import Guest, find
from pclf.service.fresh import Fresh
from pclf.service.shelf import Lists
from pclf.service.store import Version

MASS = 0.8                 # probability of an interval
POPULAR = 0.05             # share of a catalogue that counts as popular: the most rated
FOUND = 8                  # titles of a search
REASONS = 2                # titles, and tastes, of a reason
PLACED = 20_000            # people with fresh ratings whose place is kept

KNOWN, VISITOR, NEWCOMER, GUEST = "known", "visitor", "popular", "guest"
Ratings = dict[str, dict[Hashable, float]]


class Person(NamedTuple):
    """Who asks. who: an id of the model, or somebody who was placed by their ratings."""

    basis: str
    who: Any
    home: str | None = None         # where a visitor is known, if it has to be said
    row: int = -1                   # among those whose lists were made


@dataclass(eq=False)
class Live:
    """A model version with what is fresh beside it: all that an answer is made of."""

    version: Version
    model: Mixture
    lists: Lists
    fresh: Fresh
    guests: dict[tuple[str, tuple[str, ...]], tuple[int, Guest]] = field(default_factory=dict)   # by id and homes

    @cached_property
    def newcomer(self) -> Guest:
        return self.model.fold_in({})

    @cached_property
    def popular(self) -> dict[str, NDArray[np.bool_]]:
        """Which items of each domain are among its most rated. (V,)"""
        out = {}
        for name, d in self.model.data_.domains.items():
            counts = np.bincount(d.item, minlength=d.n_items)
            out[name] = counts >= np.sort(counts)[-max(1, round(POPULAR * d.n_items))]
        return out

    @cached_property
    def titles(self) -> dict[str, list[str]]:
        return {name: [d.title(code) for code in range(d.n_items)] if d.titles is None else list(d.titles)
                for name, d in self.model.data_.domains.items()}

    @cached_property
    def _folded(self) -> dict[str, tuple[list[str], NDArray[np.int64]]]:
        """Titles as they are searched, and how often each was rated."""
        return {name: ([title.casefold() for title in self.titles[name]], np.bincount(d.item, minlength=d.n_items))
                for name, d in self.model.data_.domains.items()}

    @cached_property
    def _rated(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """For each domain the places of the ratings of each user (CSR)."""
        return {name: by_row(d.user, d.n_users) for name, d in self.model.data_.domains.items()}

    @cached_property
    def coverage(self) -> dict[str, float]:
        """The share of each catalogue that is among somebody's first ten, where lists of everybody were made."""
        return {name: float(len(np.setdiff1d(codes[:, :10], [-1]))) / max(1, d.n_items)
                for name, d in self.model.data_.domains.items()
                if (codes := self.lists.get(f"{name}/codes")) is not None}

    def place_again(self, user: str, homes: Sequence[str]) -> None:
        """Place somebody whom the version before had placed: after a swap they would all ask at once."""
        with suppress(PclfError):                                 # somebody else by the same id may be known since
            self.person(user, homes[0] if homes else next(iter(self.model.data_.domains)))

    def warm(self) -> None:
        """Do now what the first question would otherwise wait for."""
        _ = self.coverage
        for name, d in self.model.data_.domains.items():
            self._folded[name], self.popular[name], self._rated[name]
            d.items.encode([""])
            d.users.encode([""])
            found = self.model.recommend(name, self.newcomer, 1)
            if found:
                self.model.explain(name, self.newcomer, found[0].item)

    def person(self, user: str, domain: str, user_domain: str | None = None) -> Person:
        """Who an id is for a domain."""
        data = self.model.data_
        data[domain]
        homes = {} if self.fresh.is_erased(user) else {
            name: found for name, d in data.domains.items() if (found := as_id(d.users, user)) is not None}
        if user_domain is not None:
            data[user_domain]                                             # a misspelt one is not passed over
        if user_domain is not None and not data.shared_users:
            homes = {name: found for name, found in homes.items() if name == user_domain}
        changed, said = self.fresh.said(user)
        if len(homes) > 1 and not data.shared_users:                      # another person in each
            if domain not in homes:
                known = ", ".join(homes)
                raise ArgumentError(f"user_domain must say which person is meant, since {domain!r} has none of this id "
                                    f"and several others have: {known}.")
            homes = {domain: homes[domain]}
            said = {domain: said[domain]} if domain in said else {}
        if not said and not homes:
            return Person(NEWCOMER, self.newcomer)
        basis = KNOWN if domain in homes or said.get(domain) else VISITOR
        if said:
            return Person(basis, self._placed(user, changed, homes, said))
        if domain in homes:
            code = int(data[domain].users.encode([homes[domain]])[0])
            return Person(basis, homes[domain], row=code if f"{domain}/codes" in self.lists else -1)
        home = next(iter(homes))
        return Person(basis, homes[home], home=None if data.shared_users else home)

    def stranger(self, ratings: Mapping[str, Mapping[str, float]]) -> Person:
        """Somebody who tells what they like, and is not remembered. Unknown items are an error that says so."""
        if not any(ratings.values()):
            return Person(NEWCOMER, self.newcomer)
        told: Ratings = {}
        for name, given in ratings.items():
            d = self.model.data_[name]
            known = {item: as_id(d.items, item) for item in given}
            for item in (item for item, found in known.items() if found is None):
                d.items.code(item, f"item in {name!r}")
            told[name] = {found: given[item] for item, found in known.items() if found is not None}
        return Person(GUEST, self.model.fold_in(told))

    def ratings_of(self, user: str) -> dict[str, dict[str, float]]:
        """Everything that is known of a person: in training and since."""
        out: dict[str, dict[str, float]] = {}
        for name, d in self.model.data_.domains.items():
            known = None if self.fresh.is_erased(user) else as_id(d.users, user)
            trained = {} if known is None else self._trained(name, known)
            both = {**{str(item): rating for item, rating in trained.items()},
                    **self.fresh.said(user)[1].get(name, {})}
            if both:
                out[name] = both
        return out

    def make(self, person: Person, domain: str, n: int, rank_by: str | None = None,
             exclude: Sequence[str] = ()) -> list[dict[str, Any]]:
        """A list as it is answered, without reasons."""
        if person.row >= 0 and not exclude and rank_by in (None, self.model.ranks[0]):
            codes = self.lists[f"{domain}/codes"][person.row]
            if n <= len(codes):
                codes = codes[:n][codes[:n] >= 0]
                parts = (self.lists[f"{domain}/{part}"][person.row, :len(codes)]
                         for part in ("score", "rating", "levels"))
                return self._items(domain, codes, *parts)
        return self.make_many([person], domain, n, rank_by, exclude)[0]

    def is_made(self, person: Person, domain: str, n: int, rank_by: str | None, exclude: Sequence[str]) -> bool:
        """Whether a list only has to be looked up."""
        return (person.row >= 0 and not exclude and rank_by in (None, self.model.ranks[0])
                and n <= self.lists[f"{domain}/codes"].shape[1])

    def make_many(self, people: Sequence[Person], domain: str, n: int, rank_by: str | None = None,
                  exclude: Sequence[str] = ()) -> list[list[dict[str, Any]]]:
        """Lists of people who ask together."""
        d = self.model.data_[domain]
        left_out = [found for item in exclude if (found := as_id(d.items, item)) is not None]
        out: list[list[dict[str, Any]]] = [[] for _ in people]
        for home in dict.fromkeys(person.home for person in people):
            some = [i for i, person in enumerate(people) if person.home == home]
            who = [people[i].who for i in some]
            found = self.model.recommend(domain, who, n, rank_by=rank_by, exclude=left_out, user_domain=home)
            row, place = np.nonzero(found.codes >= 0)
            codes, score = found.codes[row, place], found.scores[row, place]
            p = self._distributions(domain, who, home, row, codes)
            ends = np.searchsorted(row, np.arange(len(some) + 1))
            for i, start, stop in zip(some, ends, ends[1:], strict=False):
                at = slice(start, stop)
                out[i] = self._items(domain, codes[at], score[at], p[at] @ np.array(d.scale.values), p[at])
        return out

    def _distributions(self, domain: str, who: list[Any], home: str | None, row: NDArray[np.intp],
                       codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """`predict_proba` of pairs of some people, by their rows, and items; but each person is looked up once."""
        users = self.model._users(find(self.model.data_, domain, who, home))
        items = self.model._known_items(domain, codes)
        return np.asarray(self.model._distribution(domain, users.take(row), items), np.float64)

    def predict(self, person: Person, domain: str, items: Sequence[str]) -> list[dict[str, Any]]:
        """What is expected of some items."""
        d = self.model.data_[domain]
        codes = np.array([d.items.code(found if (found := as_id(d.items, item)) is not None else item,
                                       f"item in {domain!r}") for item in items], np.int64)
        p = self.model.predict_proba(domain, [person.who], d.items.decode(codes), user_domain=person.home)
        rating = p @ np.array(d.scale.values)
        return self._items(domain, codes, rating, rating, p)

    def similar(self, domain: str, item: str, n: int, to: str | None) -> list[dict[str, Any]]:
        d = self.model.data_[domain]
        found = as_id(d.items, item)
        return [{"item": r.item, "title": r.title, "score": float(r.score)} for r in
                self.model.similar_items(domain, item if found is None else found, n, to=to)]

    def reason(self, person: Person, domain: str, item: Hashable) -> str:
        """Why an item is on a list, in a sentence or two."""
        found = self.model.explain(domain, person.who, item, user_domain=person.home)
        return in_words(found, person.basis, self.model.data_.domains)

    def search(self, domain: str, text: str, most: int = FOUND) -> list[dict[str, Any]]:
        """Titles that have all the words: those that begin so first, then the most rated. Without words, these."""
        titles, counts = self._folded[self.model.data_[domain].name]
        words = text.casefold().split()
        at = [code for code, title in enumerate(titles) if all(word in title for word in words)] if words else \
            np.argsort(-counts, kind="stable")[:most].tolist()
        whole = " ".join(words)
        at.sort(key=lambda code: (not titles[code].startswith(whole), -counts[code]))
        ids = self.model.data_[domain].items.decode(at[:most])
        return [{"item": i, "title": self.titles[domain][code], "ratings": int(counts[code])}
                for i, code in zip(ids, at, strict=False)]

    def n_popular(self, domain: str, items: Sequence[Mapping[str, Any]]) -> int:
        codes = self.model.data_[domain].items.encode([entry["item"] for entry in items])
        return int(self.popular[domain][codes[codes >= 0]].sum())

    def list_id(self, user: str, domain: str, items: Sequence[Mapping[str, Any]], before: str = "") -> str:
        """The same list has the same id; nobody can tell whose it is."""
        seal = hashlib.blake2b(key=self.fresh.store.salt, digest_size=12)
        seal.update("\x1f".join([user, domain, before, *(str(entry["item"]) for entry in items)]).encode(
            errors="surrogatepass"))
        return seal.hexdigest()

    def _placed(self, user: str, changed: int, homes: Mapping[str, Hashable],
                said: Mapping[str, Mapping[str, float]]) -> Guest:
        """Somebody with fresh ratings, by all they ever rated; placed once for each change."""
        key = user, tuple(homes)                                  # one id may be several people
        before = self.guests.get(key)
        if before is not None and before[0] == changed:
            return before[1]
        told: Ratings = {name: self._trained(name, found) for name, found in homes.items()}
        for name, given in said.items():
            d = self.model.data_.domains.get(name)
            if d is not None:
                mine = told.setdefault(name, {})
                mine.update({found: rating for item, rating in given.items()
                             if (found := as_id(d.items, item)) is not None})
        placed = self.model.fold_in({name: mine for name, mine in told.items() if mine})
        self.guests[key] = changed, placed
        if len(self.guests) > PLACED:
            self.guests.pop(next(iter(self.guests)), None)
        return placed

    def _trained(self, domain: str, user: Hashable) -> dict[Hashable, float]:
        """What the training data have of somebody."""
        d, (starts, order) = self.model.data_[domain], self._rated[domain]
        code = d.users.code(user)
        mine = order[starts[code]:starts[code + 1]]
        ratings = np.array(d.scale.values)[d.value[mine]]
        return dict(zip(d.items.decode(d.item[mine]), ratings.tolist(), strict=True))

    def _items(self, domain: str, codes: Any, score: Any, rating: Any, levels: Any) -> list[dict[str, Any]]:
        d, titles = self.model.data_[domain], self.titles[domain]
        low, high = intervals(np.asarray(levels, np.float64), d)
        shares = np.round(np.asarray(levels, np.float64), 4).tolist()
        return [{"item": i, "title": titles[code], "score": round(s, 6), "rating": round(r, 4),
                 "interval": [a, b], "distribution": p, "why": None}
                for i, code, s, r, a, b, p in zip(d.items.decode(codes), codes.tolist(), map(float, score),
                                                  map(float, rating), low, high, shares, strict=False)]


def intervals(p: NDArray[np.float64], d: Domain) -> tuple[list[float], list[float]]:
    """The values between which a rating lies with probability MASS, of each distribution. (n, R)"""
    values, below = np.array(d.scale.values), p.cumsum(axis=1)
    low = (below < (1 - MASS) / 2).sum(axis=1).clip(0, len(values) - 1)
    high = (below < (1 + MASS) / 2 - 1e-9).sum(axis=1).clip(0, len(values) - 1)
    return values[low].tolist(), values[high].tolist()


def as_id(vocabulary: Vocabulary, text: str) -> Hashable | None:
    """The id that a text stands for, as a model has it: 17 for "17" where ids are numbers. None for nobody."""
    if text in vocabulary:
        return text
    if vocabulary.kind == "int":
        plain = text.removeprefix("-")
        if plain.isascii() and plain.isdigit() and len(plain) < 19 and int(text) in vocabulary:
            return int(text)
    elif vocabulary.kind == "object":
        return next((i for i in vocabulary.ids if str(i) == text), None)
    return None


def in_words(found: Explanation, basis: str, domains: Mapping[str, Domain]) -> str:
    """The strongest reasons as somebody would say them."""
    said = []
    loved = [(near.title, near.domain, _place(domains[near.domain], near.rating)) for near in found.nearest]
    loved = [near for near in loved if near[2] >= 0.7][:REASONS]
    if loved:
        word = "know" if domains[loved[0][1]].events else "loved" if loved[0][2] >= 0.99 else "liked"
        said.append(f"Because you {word} {' and '.join(f'“{title}”' for title, _, _ in loved)}.")
    likes = [_trait(taste) for taste in found.tastes if taste.effect >= TOLD][:REASONS]
    picks = [_trait(draw) for draw in found.draws if draw.times >= OFTEN][:REASONS]
    if likes:
        said.append(f"More of what you like: {', '.join(likes)}.")
    elif picks and found.picked >= OFTEN:
        said.append(f"More of what you pick: {', '.join(picks)}.")
    if said:
        return " ".join(said)
    return "Many people like it." if basis == NEWCOMER else "People who rate as you do like it."


def _trait(taste: Taste | Draw) -> str:
    """An attribute in a word or two: Japanese, decade 1990, mood."""
    if isinstance(taste.value, str):
        return taste.value
    return taste.column if taste.value is None or taste.value is True else f"{taste.column} {taste.value}"


def _place(d: Domain, rating: float) -> float:
    low, high = d.scale.values[0], d.scale.values[-1]
    return 1.0 if d.events else (rating - low) / max(high - low, 1e-12)
