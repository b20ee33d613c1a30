"""Recommender: the contract that every model keeps.

Every model here predicts a rating by a product of user and item factors on the domain's own scale, so a model
is a `_fit`, its `_factors` and its arrays; ids, errors, top-N lists and files are handled once, below.
"""

import os
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from pclf.data.parts import RatingFiles
from pclf.data.ratings import Domain, Ratings
from pclf.data.update import updated
from pclf.engines.cpu import by_row
from pclf.errors import ArgumentError, DataError, NotFittedError, UnknownNameError, did_you_mean
from pclf.models import unknown as unknown_ids
from pclf.models.people import Guest, NewItem, People, check_pairs, find, hashable, known
from pclf.models.unknown import Unknown
from pclf.serving.lists import Pool, Recommendation, Recommendations, best, in_blocks
from pclf.serving.shaping import Shaping, attribute_values

Floats = NDArray[np.floating[Any]]
RULES = ("mean", "median")
ONLY = "ratings"     # the domain of a single frame


class Ids(Protocol):
    """An array of ids, or a column of a data frame."""

    def __len__(self) -> int: ...
    def __array__(self) -> NDArray[Any]: ...


Many = list[Any] | set[Any] | range | Ids    # see `is_batch`


class Recommender(BaseEstimator):   # type: ignore[misc]
    """Settings in `__init__`, untouched by `fit`; what is learned ends in an underscore."""

    rules: ClassVar[tuple[str, ...]] = ("mean",)
    ranks: ClassVar[tuple[str, ...]] = ("rating",)          # what lists can be sorted by, the default first

    data_: Ratings
    users_: Any = None      # where users are who are not in memory, a `disk.Crowd`

    def fit(self, data: Any, *, random_state: int | np.random.Generator | None = 0) -> Self:
        """Learn from ratings: Ratings, a data frame, or a dict of frames, one a domain."""
        ratings = as_ratings(data)
        for name, domain in ratings.domains.items():
            if domain.events:
                raise DataError(f"{type(self).__name__} learns from ratings, and {name!r} holds events: all are 1. "
                                f"PCLF, RMGM and FMM learn from events.")
        self._fit(ratings, random_numbers(random_state))
        self._keep(ratings)
        return self

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None, unknown: Unknown = "error") -> Floats:
        """Ratings on the domain's own scale, for pairs of users and items.

        users, items: one id, or a list or array of ids; one against many is repeated. A user is looked up in
        `domain`, then in the other domains, or only in `user_domain` where that is given. An item may be given by its
        title.
        rule: "mean" is best for squared error, "median" for absolute error (models with a distribution).
        unknown: what to do about ids that are not known: "error", "skip" (NaN in their places) or "newcomer".
        """
        self._check_rule(rule)
        target = self._domain(domain)
        in_order(users, items)
        some_users, some_items, kept = unknown_ids.pairs(self, domain, as_list(users), as_list(items), user_domain,
                                                         unknown)
        item_factors = self._item_rows(target, some_items)
        user_factors = self._user_factors(find(self.data_, domain, some_users, user_domain))
        check_pairs(user_factors, item_factors)
        values = self._on_scale(domain, inner(user_factors, item_factors))
        return unknown_ids.in_their_places(values, kept)

    def update(self, new: Ratings | Mapping[str, Any], removed: Mapping[str, Any] | None = None,
               **options: Any) -> Self:
        """Learn again, with ratings that came in and without those that were taken back.

        new: Ratings, or a dict of data frames, one a domain; who rates an item again has changed their mind. removed:
        for each domain a frame, or (users, items), of ratings that are no more. options: those of `fit`.
        PCLF, RMGM and FMM go on from where they are: what was decided by trials stays, and a few steps are enough.
        """
        self._check_fitted()
        return self._refit(updated(self.data_, new, removed), **options)

    def _refit(self, data: Ratings, **options: Any) -> Self:
        return self.fit(data, **options)

    def score(self, data: Any, y: Any = None) -> float:
        """Minus the mean absolute error on ratings: Ratings, a data frame, or a dict of these. The higher the better.

        So scikit-learn's searches work: `GridSearchCV(PCLF(), {"n_factors": [8, 16]}).fit(frame)`. Ids that are not
        known count as newcomers. y: nothing; the ratings are in the data.
        """
        self._check_fitted()
        if not self.rules:
            raise ArgumentError(f"{type(self).__name__} sorts items and predicts no ratings: use pclf.compare.")
        errors = []
        for name, d in as_ratings(data).domains.items():
            with warnings.catch_warnings():                     # how many are not known is no news here
                warnings.simplefilter("ignore", UserWarning)
                found = self.predict(name, d.users.decode(d.user), d.items.decode(d.item), unknown="newcomer")
            errors.append(np.abs(found - d.ratings))
        return -float(np.concatenate(errors).mean())

    def predict_codes(self, domain: str, users: NDArray[np.int32], items: NDArray[np.int32], *,
                      rule: str = "mean") -> Floats:
        """`predict` for codes of the domain instead of ids: what evaluation uses."""
        self._check_rule(rule)
        self._check_fitted()
        check_pairs(users, items)
        user_factors, item_factors = self._factors(domain)
        return self._on_scale(domain, inner(user_factors[users], item_factors[items]))

    @overload   # None and a range are hashable too, but the first that fits counts
    def recommend(self, domain: str, users: Many | None = None, n: int = 10, *,   # type: ignore[overload-overlap]
                  rank_by: str | None = None, exclude_seen: bool = True, candidates: Iterable[Hashable] | None = None,
                  exclude: Iterable[Hashable] = (), min_ratings: int = 0, diversity: float = 0.0,
                  at_most: Mapping[str, int] | None = None, boosts: Mapping[Any, float] | None = None,
                  user_domain: str | None = None, unknown: Unknown = "error") -> Recommendations: ...

    @overload
    def recommend(self, domain: str, users: Hashable, n: int = 10, *, rank_by: str | None = None,
                  exclude_seen: bool = True, candidates: Iterable[Hashable] | None = None,
                  exclude: Iterable[Hashable] = (), min_ratings: int = 0, diversity: float = 0.0,
                  at_most: Mapping[str, int] | None = None, boosts: Mapping[Any, float] | None = None,
                  user_domain: str | None = None, unknown: Unknown = "error") -> list[Recommendation]: ...

    def recommend(self, domain: str, users: Any = None, n: int = 10, *, rank_by: str | None = None,
                  exclude_seen: bool = True, candidates: Iterable[Hashable] | None = None,
                  exclude: Iterable[Hashable] = (), min_ratings: int = 0, diversity: float = 0.0,
                  at_most: Mapping[str, int] | None = None, boosts: Mapping[Any, float] | None = None,
                  user_domain: str | None = None,
                  unknown: Unknown = "error") -> list[Recommendation] | Recommendations:
        """The n best items of a domain: a list for one user, `Recommendations` for a list of users or all.

        users: an id of any domain, a guest, a list of these, or None for every user of the domain, or of `user_domain`.
        rank_by: "liked", what the person will pick and like, the default where a model has learned choices; "chosen",
        what they will pick; or "rating", the expected rating alone, as the paper does.
        Items that a user rated are left out unless `exclude_seen` is False; `candidates` limits the choice, and ids
        that are not there are counted and skipped; `exclude` takes items out of it. `min_ratings`: fewer rule an item
        out.
        diversity: 0, by score alone, to 1, as unlike each other as can be. at_most: {"genre": 2}, how many of one
        value.
        boosts: {item: what its score is multiplied by}. Items may be given by their titles.
        unknown: what to do about users who are not known: "error", "skip" (no list) or "newcomer".
        """
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ArgumentError(f"n must be a whole number from 1 on; got {n!r}.")
        target, rank = self._domain(domain), self._rank(rank_by)
        n = min(n, max(1, target.n_items))
        single = users is not None and not is_batch(users)
        if self.users_ is not None and (users is None or not all(isinstance(id, Guest) for id in as_list(users))):
            ids = None if users is None else unknown_ids.admitted(self, domain, as_list(users), user_domain, unknown)
            lists: Recommendations = self.users_.recommend(self, domain, ids, n, {
                "rank_by": rank_by, "exclude_seen": exclude_seen, "candidates": candidates, "exclude": exclude,
                "min_ratings": min_ratings, "diversity": diversity, "at_most": at_most, "boosts": boosts,
                "user_domain": user_domain})
            return lists[0] if single else lists
        if users is None and user_domain not in (None, domain):
            users = list(self._domain(str(user_domain)).users.ids)
        wanted = None if users is None else unknown_ids.admitted(self, domain, as_list(users), user_domain, unknown)
        people = find(self.data_, domain, wanted, user_domain)
        boosted = {int(code): float(factor) for code, factor in
                   zip(target.find_items(list(boosts or ())), (boosts or {}).values(), strict=True) if code >= 0}
        shaping = Shaping(diversity, at_most or {}, boosted)
        values = attribute_values(self.data_.attributes, domain, shaping.at_most)
        allowed = self._allowed(target, candidates, exclude, min_ratings)
        found = self._top_n(people, shaping.pool(n, target.n_items), exclude_seen, allowed, rank)
        if shaping.any:
            found = shaping.apply(found, n, self._item_vectors(domain) if shaping.diversity else None, values)
        out = Recommendations(target, people.ids, found.codes, found.scores, found.numbers)
        return out if not single else out[0] if len(out) else []

    def _allowed(self, target: Domain, candidates: Any, exclude: Any, min_ratings: int) -> NDArray[np.bool_]:
        """Which items a list may hold. (V,)"""
        allowed = np.ones(target.n_items, bool)
        if candidates is not None:
            wanted = _items(candidates)
            codes = target.find_items(wanted)
            unknown = int((codes < 0).sum())
            if len(wanted) and unknown == len(wanted):
                known = target.items.decode([0])[0]
                raise UnknownNameError(f"candidates must be items of {target.name!r}, with ids like {known!r}; none of "
                                       f"the {unknown:,} is one, the first is {wanted[0]!r}.")
            if unknown:
                warnings.warn(f"{unknown:,} of {len(wanted):,} candidates are no items of {target.name!r} and are left "
                              f"out.", UserWarning, stacklevel=3)
            allowed[:] = False
            allowed[codes[codes >= 0]] = True
        taken_out = target.find_items(_items(exclude))
        allowed[taken_out[taken_out >= 0]] = False
        if min_ratings:
            allowed &= target.item_counts >= min_ratings
        return allowed

    def _is_known(self, domain: str, users: list[Any], user_domain: str | None) -> NDArray[np.bool_]:
        """Which users can be asked about. (n,)"""
        out: NDArray[np.bool_] = (known(self.data_, domain, users, user_domain) if self.users_ is None
                                  else self.users_.known(self, domain, users, user_domain))
        return out

    def _rank(self, rank_by: str | None) -> str:
        """What a list is sorted by."""
        if rank_by is None:
            return self.ranks[0]
        if rank_by not in self.ranks:
            raise UnknownNameError(did_you_mean(rank_by, self.ranks, "way to rank"))
        return rank_by

    def _item_vectors(self, domain: str) -> Floats | None:
        """Vectors of items that are alike in the same direction. (V, D)"""
        return self._factors(domain)[1]

    def save(self, path: str | Path, *, key: str | bytes | None = None, force: bool = False) -> None:
        """Write the model to one file (safetensors with a JSON manifest), replacing it whole or not at all.

        key: a secret to sign it with, for `pclf.load(path, key=...)`. force: replace a file that is no model, too.
        """
        from pclf import storage

        self._check_fitted()
        storage.save(path, type(self).__name__, self._settings(), self.data_, *self._state(), key=key, force=force)

    def _settings(self) -> dict[str, Any]:
        return {name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
                for name, value in self.get_params().items()}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The settings and, once fitted, the domains with what their predictions are made of."""
        settings: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "data_"):
            return settings
        rows = [[d.name, *d.sizes(), self._says(d.name)] for d in self.data_.domains.values()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(["", row[0].ljust(widths[0]), *map(str.rjust, row[1:4], widths[1:4]), row[4]]).rstrip()
                 for row in rows)
        return "\n".join([f"{settings}, {self._fitted_how()}", *lines])

    def _repr_html_(self) -> str:
        settings = escape(super().__repr__())
        if not hasattr(self, "data_"):
            return f"<code>{settings}</code>, not fitted yet"
        head = ["domain", "users", "items", "events" if self.data_.events else "ratings", "scale",
                "a prediction for its users is made of"]
        rows = [[escape(d.name), f"{d.n_users:,}", f"{d.n_items:,}", f"{len(d):,}", str(d.scale),
                 escape(self._says(d.name))] for d in self.data_.domains.values()]
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
        return (f"<table><caption><code>{settings}</code>, {self._fitted_how()}</caption>"
                f"<thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead><tbody>{body}</tbody></table>")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}   # not the diagram of scikit-learn

    def _fitted_how(self) -> str:
        fits, steps = len(getattr(self, "members_", ())), getattr(self, "n_iter_", None)
        return ("fitted" + (f" in {steps} iterations" if steps else "")
                + (f", {fits} fits averaged" if fits > 1 else ""))

    def _says(self, domain: str) -> str:
        """How much each part of a model counts in a domain, where it has parts: factors 90 %, common clusters 10 %."""
        return ", ".join(f"{part} {100 * weight:.0f} %" for part, weight in self._parts(domain).items() if weight)

    def _parts(self, domain: str) -> dict[str, float]:
        """The parts of a prediction and their weights; none where a model is all of a piece."""
        return {f"from {source}": weight for source, weight in getattr(self, "weights_", {}).get(domain, {}).items()}

    def _fit(self, ratings: Ratings, rng: np.random.Generator) -> None:
        raise ArgumentError(f"{type(self).__name__} is a base class: use one of its models.")

    def _factors(self, domain: str) -> tuple[Floats, Floats]:
        """(users of the domain, D) and (items of the domain, D); their products are ratings."""
        raise ArgumentError(f"{type(self).__name__} is a base class: use one of its models.")

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays, and what else JSON can hold."""
        raise ArgumentError(f"{type(self).__name__} is a base class: use one of its models.")

    def _restore(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        self._set_state(data, arrays, extra)
        self._keep(data)

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        raise ArgumentError(f"{type(self).__name__} is a base class: use one of its models.")

    def _keep(self, ratings: Ratings) -> None:
        """Fitted from here on. Set last, so that a failed fit leaves no half-fitted model."""
        self.data_ = ratings
        self._forget()

    def _forget(self) -> None:
        """What is computed from a fit when it is first asked for."""
        for name in ("_seen", "_mark"):
            self.__dict__.pop(name, None)

    def _check_fitted(self) -> None:
        if not hasattr(self, "data_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(data) first.")

    def _check_rule(self, rule: str) -> None:
        if rule not in self.rules:
            known = ", ".join(self.rules)
            raise ArgumentError(f"rule must be one of: {known} (for {type(self).__name__}); got {rule!r}.")

    def _domain(self, name: str) -> Domain:
        self._check_fitted()
        return self.data_[name]

    def _on_scale(self, domain: str, scores: Floats) -> Floats:
        values = self.data_.domains[domain].scale.values
        return np.clip(np.asarray(scores, np.float64), values[0], values[-1])

    def _item_codes(self, domain: Domain, items: list[Hashable]) -> NDArray[np.int32]:
        codes = domain.find_items(items)
        if (codes < 0).any():
            domain.item_code(items[int((codes < 0).argmax())])
        return codes

    def _item_rows(self, domain: Domain, items: list[Any]) -> Floats:
        """(items, D): rows of the domain's own factors; those of an item that is not known are like any other's."""
        rows, new = self._factors(domain.name)[1], [isinstance(item, NewItem) for item in items]
        if not any(new):
            return rows[self._item_codes(domain, items)]
        out = np.repeat(rows.mean(axis=0, keepdims=True), len(items), axis=0)
        known = np.flatnonzero(~np.array(new))
        out[known] = rows[self._item_codes(domain, [items[i] for i in known])]
        return out

    def _newcomer(self, name: Hashable) -> Guest:
        """Somebody of whom nothing is known."""
        return Guest(0, {}, {}, {}, name if hashable(name) else None)

    def _new_item(self, domain: str) -> NewItem:
        """An item of which nothing is known."""
        return NewItem(0, domain, (), None)

    def _user_factors(self, people: People) -> Floats:
        """(users, D): rows of the domain's own factors, which strangers do not have. Of whom nothing is known is like
        anybody."""
        rows = self._factors(people.domain)[0]
        new = np.array([isinstance(user, Guest) and not user.ratings for user in people.ids], bool) \
            if (people.here < 0).any() else np.zeros(len(people), bool)
        if ((people.here < 0) & ~new).any():
            at = int(((people.here < 0) & ~new).argmax())
            home = next((name for name, codes in people.homes.items() if codes[at] >= 0), None)
            who = f"user {people.ids[at]!r} is known in {home!r} only" if home else "a guest has no ratings in the fit"
            raise UnknownNameError(f"{who}, and {type(self).__name__} cannot score users of another domain. PCLF, RMGM "
                                   f"and FMM can.")
        out = rows[people.here]
        if new.any():
            out[new] = rows.mean(axis=0)
        return out

    @cached_property
    def _seen(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """For each domain, which of its items everybody rated, there or, where items are shared, elsewhere (CSR)."""
        data, out = self.data_, {}
        for z, (name, target) in enumerate(data.domains.items()):
            rows, codes = data.user_rows[z][target.user], target.item
            if data.shared_items:
                place = np.full(data.n_items, -1, np.int32)
                place[data.item_rows[z]] = np.arange(target.n_items, dtype=np.int32)
                parts = list(zip(data.domains.values(), data.user_rows, data.item_rows, strict=True))
                rows = np.concatenate([of_user[d.user] for d, of_user, _ in parts])
                codes = np.concatenate([place[of_item[d.item]] for d, _, of_item in parts])
                rows, codes = rows[codes >= 0], codes[codes >= 0]
            indptr, order = by_row(rows, data.n_users)
            out[name] = indptr, codes[order]
        return out

    def _seen_by(self, people: People) -> tuple[Any, Any]:
        """The items of the domain that people rated, there or, where items are shared, elsewhere, as CSR."""
        indptr, items = self._seen[people.domain]
        rows = np.full(len(people), -1, np.int64)
        for z, name in enumerate(self.data_.domains):
            codes = people.here if name == people.domain else people.homes.get(name)
            if codes is not None and (codes >= 0).any():
                rows = np.where((codes >= 0) & (rows < 0), self.data_.user_rows[z][codes], rows)
        if not self.data_.shared_items:                     # who is known elsewhere alone saw nothing of this domain
            rows[people.here < 0] = -1
        starts, stops = indptr[rows], np.where(rows < 0, indptr[rows], indptr[rows + 1])
        out = np.concatenate([[0], np.cumsum(stops - starts)])
        take = np.arange(out[-1]) + np.repeat(starts - out[:-1], stops - starts)
        guests = [i for i in np.flatnonzero(people.here < 0).tolist() if isinstance(people.ids[i], Guest)]
        if not guests:
            return out, items[take]
        seen = np.split(items[take], out[1:-1])
        for i in guests:
            seen[i] = self._rated_by(people.domain, people.ids[i])
        return np.concatenate([[0], np.cumsum([len(s) for s in seen])]), np.concatenate(seen).astype(np.int32)

    def _rated_by(self, domain: str, guest: Guest) -> NDArray[np.int32]:
        """Codes of the items that a guest rated: there or, where items are shared, elsewhere."""
        homes = guest.ratings if self.data_.shared_items else [domain]
        codes = self.data_[domain].items.encode([item for name in homes for item in guest.ratings.get(name, ())])
        return codes[codes >= 0]

    def _left_out(self, people: People, exclude_seen: bool) -> tuple[Any, Any]:
        """The items not to recommend to each of some users, as CSR: what they rated, or nothing."""
        if exclude_seen:
            return self._seen_by(people)
        return np.zeros(len(people) + 1, np.int64), np.empty(0, np.int32)

    def _top_n(self, people: People, n: int, exclude_seen: bool, allowed: NDArray[np.bool_],
               rank: str) -> Pool:
        """The best items of each person, with what else the model knows of them."""
        def of_some(some: slice) -> Pool:
            few = people[some]
            found = best(self._scores(few), self._left_out(few, exclude_seen), n, allowed)
            return Pool(found.codes, np.where(found.codes >= 0, self._on_scale(few.domain, found.scores), -np.inf))

        return in_blocks(of_some, len(people), self._domain(people.domain).n_items)

    def _scores(self, people: People) -> Floats:
        """Ratings of all items of the domain. (people, V)"""
        return _products(self._user_factors(people), self._factors(people.domain)[1])


def random_numbers(random_state: Any) -> np.random.Generator:
    """From a seed or a generator, that of scikit-learn's kind included."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ArgumentError(f"random_state must be a whole number from 0 on, a generator or None; got "
                            f"{random_state!r}.") from None


def as_ratings(data: Any) -> Ratings:
    """Ratings from what `fit` takes. A single frame is one domain, or several where it has a column `domain`."""
    if isinstance(data, Ratings):
        return data
    if isinstance(data, Mapping) and data and all(isinstance(path, (str, os.PathLike)) for path in data.values()):
        data = RatingFiles(data)
    if isinstance(data, RatingFiles):
        return data.read()
    if isinstance(data, Mapping):
        return Ratings.from_frames(data)
    columns = getattr(data, "column_names", getattr(data, "columns", None))
    if columns is None:
        raise ArgumentError(f"data must be Ratings, a data frame, or a dict of these, one a domain; got "
                            f"{type(data).__name__}.")
    return Ratings.from_frame(data) if "domain" in list(columns) else Ratings.from_frames({ONLY: data})


def is_batch(ids: Any) -> bool:
    """A list, a set, a range, an array or a column is many ids; anything else, a tuple included, is one."""
    return isinstance(ids, (list, set, range)) or (hasattr(ids, "__array__") and np.ndim(ids) > 0)


def as_list(ids: Any) -> list[Any]:
    if not is_batch(ids):
        return [ids]
    to_list = getattr(ids, "to_pylist", None) or getattr(ids, "tolist", None)    # of Arrow, of NumPy and pandas
    return to_list() if to_list else list(ids)


def in_order(users: Any, items: Any) -> None:
    """Pairs are made of users and items in order, and a set has none."""
    for what, ids in (("users", users), ("items", items)):
        if isinstance(ids, (set, frozenset)):
            raise ArgumentError(f"{what} must come in an order to be paired; got a set. Pass a list.")


def _items(ids: Any) -> list[Hashable]:
    """Some ids; a word is one."""
    return [ids] if isinstance(ids, str) else as_list(ids) if is_batch(ids) else list(ids)


def _products(users: Floats, items: Floats) -> Floats:
    """Products of all rows with all rows, on this thread alone: a block of `_top_n` has others beside it."""
    from pclf.engines.kernels import product

    out: Floats = product(packed(users), packed(items.T))
    return out


def packed(x: Floats) -> NDArray[np.float32]:
    """In one piece and single precision, as kernels want it."""
    return np.ascontiguousarray(x, np.float32)


def inner(a: Floats, b: Floats) -> Floats:
    """Products of rows with rows; one row against many is repeated."""
    out: Floats = np.einsum("nd,nd->n", *np.broadcast_arrays(a, b))
    return out
