"""Recommender: the contract that every model keeps.

Every model here predicts a rating by a product of user and item factors on the domain's own scale, so a model
is a `_fit`, its `_factors` and its arrays; ids, errors, top-N lists and files are handled once, below.
"""

import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from pclf.data.columns import id_column
from pclf.data.ratings import Domain, Ratings
from pclf.engines.cpu import by_row, cores
from pclf.errors import DataError, NotFittedError, UnknownNameError, did_you_mean

Floats = NDArray[np.floating[Any]]
RULES = ("mean", "median")
BLOCK = 1 << 20   # scores held at a time by each thread of `recommend`


class Ids(Protocol):
    """An array of ids, or a column of a data frame."""

    def __len__(self) -> int: ...
    def __array__(self) -> NDArray[Any]: ...


Many = list[Any] | set[Any] | range | Ids    # see `is_batch`


class Recommendation(NamedTuple):
    item: Hashable
    score: float
    title: str


@dataclass(frozen=True)
class Recommendations:
    """Top-N lists of many users: item codes and scores, best first; short lists end in -1 and -inf."""

    domain: Domain
    users: Sequence[Hashable]
    codes: NDArray[np.int32]   # (users, n)
    scores: Floats             # (users, n)

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, row: int) -> list[Recommendation]:
        """The list of the user in this place."""
        codes = [int(c) for c in self.codes[operator.index(row)] if c >= 0]
        ids = self.domain.items.decode(codes)
        return [Recommendation(i, float(s), self.domain.title(c))
                for i, s, c in zip(ids, self.scores[row], codes, strict=False)]

    def __iter__(self) -> Iterator[list[Recommendation]]:
        return (self[row] for row in range(len(self)))

    def items(self) -> Iterator[tuple[Hashable, list[Recommendation]]]:
        """Each user with their list."""
        return zip(self.users, self, strict=True)

    def to_arrow(self) -> Any:
        """A pyarrow table with the columns user_id (null for a guest), item_id, title, score, rank. Ids of several
        types become text."""
        import pyarrow as pa

        from pclf.models.member import Guest

        row, rank = np.nonzero(self.codes >= 0)
        codes = self.codes[row, rank]
        users = [self.users[r] for r in row.tolist()]

        return pa.table({
            "user_id": id_column([None if isinstance(user, Guest) else user for user in users]),
            "item_id": id_column(self.domain.items.decode(codes)),
            "title": pa.array([self.domain.title(int(c)) for c in codes]),
            "score": pa.array(self.scores[row, rank]),
            "rank": pa.array(rank + 1),
        })


class Recommender(BaseEstimator):   # type: ignore[misc]
    """Settings in `__init__`, untouched by `fit`; what is learned ends in an underscore."""

    rules: ClassVar[tuple[str, ...]] = ("mean",)

    data_: Ratings

    def fit(self, data: Ratings | Mapping[str, Any], *, random_state: int | np.random.Generator | None = 0) -> Self:
        """Learn from ratings, or from a dict of data frames, one a domain."""
        ratings = as_ratings(data)
        for name, domain in ratings.domains.items():
            if domain.events:
                raise DataError(f"{type(self).__name__} learns from ratings, and {name!r} holds events: all are 1. "
                                f"PCLF, RMGM and FMM learn from events.")
        self._fit(ratings, random_numbers(random_state))
        self._keep(ratings)
        return self

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None) -> Floats:
        """Ratings on the domain's own scale, for pairs of users and items.

        users, items: one id, or a list or array of ids; one against many is repeated. A user is looked up in
        `domain`, then in the other domains, or only in `user_domain` where that is given.
        rule: "mean" is best for squared error, "median" for absolute error (models with a distribution).
        """
        self._check_rule(rule)
        target = self._domain(domain)
        in_order(users, items)
        item_codes = self._item_codes(target, as_list(items))
        user_factors = self._user_factors(domain, as_list(users), user_domain)
        check_pairs(user_factors, item_codes)
        return self._on_scale(domain, inner(user_factors, self._factors(domain)[1][item_codes]))

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
                  exclude_seen: bool = True, candidates: Iterable[Hashable] | None = None,
                  exclude: Iterable[Hashable] = (), user_domain: str | None = None) -> Recommendations: ...

    @overload
    def recommend(self, domain: str, users: Hashable, n: int = 10, *, exclude_seen: bool = True,
                  candidates: Iterable[Hashable] | None = None, exclude: Iterable[Hashable] = (),
                  user_domain: str | None = None) -> list[Recommendation]: ...

    def recommend(self, domain: str, users: Any = None, n: int = 10, *, exclude_seen: bool = True,
                  candidates: Iterable[Hashable] | None = None, exclude: Iterable[Hashable] = (),
                  user_domain: str | None = None) -> list[Recommendation] | Recommendations:
        """The n best items of a domain: a list for one user, `Recommendations` for a list of users or all.

        users: an id of any domain, a guest, a list of these, or None for every user of the domain, or of `user_domain`.
        Items that a user rated are left out unless `exclude_seen` is False; `candidates` limits the choice,
        `exclude` takes items out of it, and may name some that are not there.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1; got {n}.")
        target = self._domain(domain)
        n = min(n, max(1, target.n_items))
        single = users is not None and not is_batch(users)
        if users is None and user_domain not in (None, domain):
            users = list(self._domain(str(user_domain)).users.ids)
        wanted = None if users is None else as_list(users)
        allowed = np.ones(target.n_items, bool)
        if candidates is not None:
            allowed[:] = False
            allowed[self._item_codes(target, _items(candidates))] = True
        taken_out = target.items.encode(_items(exclude))
        allowed[taken_out[taken_out >= 0]] = False
        codes, scores = self._top_n(domain, wanted, n, exclude_seen, allowed, user_domain)
        out = Recommendations(target, list(target.users.ids) if wanted is None else wanted, codes, scores)
        return out[0] if single else out

    def save(self, path: str | Path, *, key: str | bytes | None = None, force: bool = False) -> None:
        """Write the model to one file (safetensors with a JSON manifest), replacing it whole or not at all.

        key: a secret to sign it with, for `pclf.load(path, key=...)`. force: replace a file that is no model, too.
        """
        from pclf import storage

        self._check_fitted()
        storage.save(path, type(self).__name__, self.get_params(), self.data_, *self._state(), key=key, force=force)

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
        """How much each part of a model counts in a domain, where it has parts: common 10 %, own 30 %, ..."""
        own = getattr(self, "personal_weights_", {}).get(domain, 0.0)
        views = [view.name for view in self.layout_.views] if hasattr(self, "layout_") else []
        parts = {views[key] if views else f"from {key}": (1 - own) * weight
                 for key, weight in getattr(self, "weights_", {}).get(domain, {}).items()}
        if own:
            parts["personal"] = own
        return ", ".join(f"{'own' if part == domain else part} {100 * w:.0f} %" for part, w in parts.items())

    def _fit(self, ratings: Ratings, rng: np.random.Generator) -> None:
        raise TypeError(f"{type(self).__name__} is a base class: use one of its models.")

    def _factors(self, domain: str) -> tuple[Floats, Floats]:
        """(users of the domain, D) and (items of the domain, D); their products are ratings."""
        raise TypeError(f"{type(self).__name__} is a base class: use one of its models.")

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays, and what else JSON can hold."""
        raise TypeError(f"{type(self).__name__} is a base class: use one of its models.")

    def _restore(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        self._set_state(data, arrays, extra)
        self._keep(data)

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        raise TypeError(f"{type(self).__name__} is a base class: use one of its models.")

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
            raise ValueError(f"rule must be one of: {known} (for {type(self).__name__}); got {rule!r}.")

    def _domain(self, name: str) -> Domain:
        self._check_fitted()
        return self.data_[name]

    def _on_scale(self, domain: str, scores: Floats) -> Floats:
        values = self.data_.domains[domain].scale.values
        return np.clip(np.asarray(scores, np.float64), values[0], values[-1])

    def _item_codes(self, domain: Domain, items: list[Hashable]) -> NDArray[np.int32]:
        codes = domain.items.encode(items)
        if (codes < 0).any():
            domain.items.code(items[int((codes < 0).argmax())], f"item in {domain.name!r}")
        return codes

    def _find_user(self, domain: str, user: Hashable, user_domain: str | None) -> tuple[str, int]:
        """The domain a user is known in, and the code there."""
        if user_domain is not None:
            code = self._domain(user_domain).users.code(user, f"user in {user_domain!r}")
            if not (self.data_.shared_users and user in self.data_.domains[domain].users):
                return user_domain, code
        if user in self.data_.domains[domain].users:
            return domain, self.data_.domains[domain].users.code(user)
        homes = [name for name, d in self.data_.domains.items() if user in d.users]
        if len(homes) == 1 or (homes and self.data_.shared_users):
            return homes[0], self.data_.domains[homes[0]].users.code(user)
        if homes:
            raise UnknownNameError(f"user {user!r} is not in {domain!r} and is known in several other domains "
                                   f"({', '.join(homes)}): say which with user_domain=...")
        known = {domain: self.data_.domains[domain], **self.data_.domains}
        for name, d in known.items():
            if len(known) == 1 or d.users.written_alike(user) is not None:
                d.users.code(user, f"user in {name!r}")                        # says what was meant
        raise UnknownNameError(did_you_mean(user, (id for d in known.values() for id in d.users.ids), "user"))

    def _user_factors(self, domain: str, users: list[Any], user_domain: str | None) -> Floats:
        """(users, D): rows of the domain's own factors, which strangers do not have."""
        codes = self._codes_in(domain, users, user_domain)
        if (codes < 0).any():
            stranger = users[int((codes < 0).argmax())]
            home, _ = self._find_user(domain, stranger, user_domain)
            raise UnknownNameError(f"user {stranger!r} is known in {home!r} only, and {type(self).__name__} "
                                   f"cannot score users of another domain. PCLF, RMGM and FMM can.")
        return self._factors(domain)[0][codes]

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

    def _seen_by(self, domain: str, users: "list[Any] | None", codes: NDArray[np.int32],
                 user_domain: str | None) -> tuple[Any, Any]:
        """The items that some users rated, as CSR: `codes` are theirs in the domain, -1 for strangers."""
        indptr, items = self._seen[domain]
        names = list(self.data_.domains)
        rows = np.where(codes < 0, -1, self.data_.user_rows[names.index(domain)][codes])
        if self.data_.shared_items and users:
            for i in np.flatnonzero(codes < 0):
                home, code = self._find_user(domain, users[i], user_domain)
                rows[i] = self.data_.user_rows[names.index(home)][code]
        starts, stops = indptr[rows], np.where(rows < 0, indptr[rows], indptr[rows + 1])
        out = np.concatenate([[0], np.cumsum(stops - starts)])
        take = np.arange(out[-1]) + np.repeat(starts - out[:-1], stops - starts)
        return out, items[take]

    def _left_out(self, domain: str, users: "list[Any] | None", codes: NDArray[np.int32], exclude_seen: bool,
                  user_domain: str | None) -> tuple[Any, Any]:
        """The items not to recommend to each of some users, as CSR: what they rated, or nothing."""
        if exclude_seen:
            return self._seen_by(domain, users, codes, user_domain)
        return np.zeros(len(codes) + 1, np.int64), np.empty(0, np.int32)

    def _codes_in(self, domain: str, users: "list[Any] | None", user_domain: str | None) -> NDArray[np.int32]:
        """Codes of users in the domain, of all of its own where users is None; -1 for strangers and guests."""
        known = self._domain(domain).users
        if users is None:
            return np.arange(len(known), dtype=np.int32)
        if user_domain not in (None, domain) and not self.data_.shared_users:
            return np.full(len(users), -1, np.int32)      # a namesake here is somebody else
        return known.encode([user if _is_id(user) else None for user in users])

    def _top_n(self, domain: str, users: list[Any] | None, n: int, exclude_seen: bool, allowed: NDArray[np.bool_],
               user_domain: str | None) -> tuple[NDArray[np.int32], Floats]:
        """Best items by blocks of users (None: all of the domain), so that users x items never exists."""
        from pclf.engines.kernels import top_n

        target = self._domain(domain)
        total = target.n_users if users is None else len(users)
        rows = max(1, BLOCK // max(1, target.n_items))
        codes, scores = [np.empty((0, n), np.int32)], [np.empty((0, n))]

        def best(start: int) -> tuple[NDArray[np.int32], Floats]:
            block = None if users is None else users[start:start + rows]
            if block is None:
                known = np.arange(start, min(start + rows, total), dtype=np.int32)
                score = self._scores(domain, known)
            else:
                known = self._codes_in(domain, block, user_domain)
                score = self._scores_of(domain, block, user_domain)
            if not allowed.all():
                score[:, ~allowed] = -np.inf
            found, value = top_n(score, *self._left_out(domain, block, known, exclude_seen, user_domain), n)
            return found, np.where(found >= 0, self._on_scale(domain, value), -np.inf)

        starts = range(0, total, rows)
        if len(starts) > 1:
            with ThreadPoolExecutor(cores()) as pool:
                parts = list(pool.map(best, starts))
        else:
            parts = [best(start) for start in starts]
        return (np.concatenate([*codes, *(p[0] for p in parts)]), np.concatenate([*scores, *(p[1] for p in parts)]))

    def _scores(self, domain: str, codes: NDArray[np.int32]) -> Floats:
        """Ratings of all items by some users of the domain. (users, V)"""
        users, items = self._factors(domain)
        return _products(users[codes], items)

    def _scores_of(self, domain: str, users: list[Any], user_domain: str | None) -> Floats:
        """Ratings of all items by users of any domain. (users, V)"""
        return _products(self._user_factors(domain, users, user_domain), self._factors(domain)[1])


def random_numbers(random_state: Any) -> np.random.Generator:
    """From a seed or a generator, that of scikit-learn's kind included."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    return np.random.default_rng(random_state)


def as_ratings(data: Ratings | Mapping[str, Any]) -> Ratings:
    if isinstance(data, Ratings):
        return data
    if isinstance(data, Mapping):
        return Ratings.from_frames(data)
    raise TypeError(f"data must be Ratings or a dict of data frames, one a domain; got {type(data).__name__}. "
                    f"See Ratings.from_frame for one long frame.")


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
            raise TypeError(f"{what} must come in an order to be paired; got a set. Pass a list.")


def check_pairs(users: Any, items: Any) -> None:
    if len(users) != len(items) and 1 not in (len(users), len(items)):
        raise ValueError(f"users and items must be equally many, or one of either; got {len(users):,} users and "
                         f"{len(items):,} items.")


def _is_id(user: Any) -> bool:
    return getattr(type(user), "__hash__", None) is not None


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
