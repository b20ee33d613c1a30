"""Domain: one catalogue of ratings, checked at the door."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.columns import Coded, check_present, is_missing, numbers
from pclf.data.scale import Scale, written
from pclf.data.times import faded, seconds, strengths
from pclf.data.vocabulary import Codes, Vocabulary, form
from pclf.errors import UNSEEN, DataError, UnknownNameError, brief, did_you_mean

LIKED = 0.7   # of the way up the scale
COUNTED = 10  # a scale that goes no higher is believed to be one of ratings
LEAST = 0.35  # share of the lowest value in what looks like counts


@dataclass(frozen=True, eq=False)
class Domain:
    """One catalogue: who rated what, and how. Rating j is (user[j], item[j], scale.values[value[j]]).

    In a domain of events a rating of 1 is something done, and one of 0 something not done.
    """

    name: str
    users: Vocabulary
    items: Vocabulary
    user: Codes                             # (n,) codes
    item: Codes                             # (n,) codes
    value: NDArray[np.uint8]                # (n,) positions on the scale
    scale: Scale
    titles: tuple[str, ...] | None = None   # of the items, by code
    events: bool = False
    time: NDArray[np.int64] | None = None      # (n,) seconds since 1970
    weight: NDArray[np.float32] | None = None  # (n,) of events: plays, hours, amounts; 1 each without it

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or UNSEEN.search(self.name) or set(self.name) & set("\n\t\ufffe\uffff"):
            raise DataError(f"the name of a domain must be text without control characters; got {brief(self.name)}")
        columns = {"user": (np.int32, len(self.users)), "item": (np.int32, len(self.items)),
                   "value": (np.uint8, len(self.scale)), "time": (np.int64, None), "weight": (np.float32, None)}
        for name, (dtype, n) in columns.items():
            if n is None and getattr(self, name) is None:
                continue
            column = np.asarray(getattr(self, name))
            if column.dtype != dtype or column.shape != np.shape(self.value):
                raise DataError(f"domain {self.name!r}: {name} must be {np.size(self.value):,} numbers of type "
                                f"{np.dtype(dtype)}; got {column.dtype} of shape {column.shape}")
            if column.ndim != 1:
                raise DataError(f"domain {self.name!r}: {name} must have one dimension; got {column.shape}")
            if n is not None and column.size and not 0 <= column.min() <= column.max() < n:     # kernels trust it
                raise DataError(f"domain {self.name!r}: {name} must be codes from 0 to {n - 1:,}; got {column.min():,} "
                                f"to {column.max():,}")
            column = column.view()
            column.flags.writeable = False   # of our view; the caller's array stays as it was
            object.__setattr__(self, name, column)
        if self.titles is not None and len(self.titles) != len(self.items):
            raise DataError(f"domain {self.name!r}: titles must be as many as its {len(self.items):,} items; got "
                            f"{len(self.titles):,}")
        if self.weight is not None and not self.events:
            raise DataError(f"domain {self.name!r} has ratings, and only events have strengths; got {len(self):,}")
        if self.weight is not None and not (np.isfinite(self.weight) & (self.weight > 0)).all():
            raise DataError(f"domain {self.name!r}: strengths must be finite and above 0; got "
                            f"{self.weight.min():g} to {self.weight.max():g}")
        if self.events and len(self.scale) != 2:
            raise DataError(f"domain {self.name!r}: events must have the scale 0, 1; got {self.scale}")

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Domain({self.name!r}: {', '.join(self.sizes())}, scale {self.scale})"

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_ratings(self) -> int:
        return len(self.value)

    @property
    def ratings(self) -> NDArray[np.float64]:
        """The ratings on the domain's own scale.   (n,)"""
        return np.array(self.scale.values)[self.value]

    @property
    def liked(self) -> NDArray[np.bool_]:
        """Which ratings are at least 70 % up the scale: 4 and 5 of five stars, 8 to 10 of ten; every event.   (n,)"""
        low, high = self.scale.values[0], self.scale.values[-1]
        return self.ratings >= low + LIKED * (high - low) - 1e-9 * (high - low)

    def sizes(self) -> list[str]:
        """Users, items and ratings in words."""
        what = "event" if self.events else "rating"
        return [count(self.n_users, "user"), count(self.n_items, "item"), count(len(self), what)]

    @property
    def item_counts(self) -> NDArray[np.int64]:
        """How many ratings each item has.   (V,)"""
        return np.bincount(self.item, minlength=self.n_items)

    @property
    def value_counts(self) -> NDArray[np.int64]:
        """How often each value of the scale comes.   (R_z,)"""
        return np.bincount(self.value, minlength=len(self.scale))

    @property
    def usual_strength(self) -> float:
        """The strength of the event in the middle; 1 where events have none."""
        return 1.0 if self.weight is None or not len(self) else float(np.median(self.weight.astype(np.float64)))

    def take(self, rows: NDArray[Any]) -> "Domain":
        """Only these ratings, by a mask or by their places; users and items stay."""
        kept = {name: column[rows] for name in ("user", "item", "value", "time", "weight")
                if (column := getattr(self, name)) is not None}
        return replace(self, **kept)

    def rated(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The codes of the users and of the items that have ratings."""
        users, items = (np.flatnonzero(np.bincount(codes, minlength=len(ids)))
                        for codes, ids in ((self.user, self.users), (self.item, self.items)))
        return users, items

    def compact(self) -> "Domain":
        """Without the users and items that have no ratings."""
        users, items = self.rated()
        titles = None if self.titles is None else tuple(self.titles[i] for i in items)
        return replace(self, users=self.users.take(users), items=self.items.take(items), titles=titles,
                       user=_renumbered(self.user, users, len(self.users)),
                       item=_renumbered(self.item, items, len(self.items)))

    def joined(self, other: "Domain") -> tuple["Domain", "Domain"]:
        """Both with the users and items of both, in the same codes."""
        users, *user_codes = self.users.joined(other.users)
        items, *item_codes = self.items.joined(other.items)
        shown: dict[int, str] = {}
        for d, codes in ((other, item_codes[1]), (self, item_codes[0])):           # ours where both have one
            shown |= dict(zip(codes.tolist(), d.titles or (), strict=False))
        titles = tuple(shown.get(c, str(i)) for c, i in enumerate(items.ids)) if shown else None
        mine, theirs = (replace(d, users=users, items=items, titles=titles, user=of_user[d.user], item=of_item[d.item])
                        for d, of_user, of_item in zip((self, other), user_codes, item_codes, strict=True))
        return mine, theirs

    def title(self, code: int) -> str:
        return self.titles[code] if self.titles is not None else str(self.items.decode([code])[0])

    def find_items(self, names: Any) -> Codes:
        """The code of each item by its id, or by its title where no other item has that; -1 for one that is not here.
        (n,)"""
        names = names if isinstance(names, list) else list(names)
        codes = self.items.encode(names)
        if self.titles is not None and (codes < 0).any():
            codes = codes.copy()
            for i in np.flatnonzero(codes < 0):
                codes[i] = self._by_title.get(names[i], -1) if isinstance(names[i], str) else -1
        return codes

    def item_code(self, name: Any) -> int:
        """The code of one item by its id or title; an error that says what is meant where there is none."""
        code = int(self.find_items([name])[0])
        if code >= 0:
            return code
        if self.titles is None or not isinstance(name, str):
            return self.items.code(name, f"item in {self.name!r}")
        if name in self._by_title:
            same = [c for c, title in enumerate(self.titles) if title == name]
            ids = ", ".join(map(brief, self.items.decode(same[:5])))
            raise UnknownNameError(f"{brief(name)} is the title of {len(same)} items in {self.name!r}: give an id, "
                                   f"{ids}{' and others' if len(same) > 5 else ''}.")
        if self.items.written_alike(name) is not None:
            return self.items.code(name, f"item in {self.name!r}")
        raise UnknownNameError(did_you_mean(name, self.titles, f"item in {self.name!r}"))

    @cached_property
    def _by_title(self) -> dict[str, int]:
        """Title -> code, -1 where several items have it."""
        out: dict[str, int] = {}
        for code, title in enumerate(self.titles or ()):
            out[title] = -1 if title in out else code
        return out


def domain_of(name: str, columns: Mapping[str, Coded], scale: Scale | None, duplicates: str,
              titles: Mapping[Any, str] | None, half_life: float | None = None) -> Domain:
    """A domain from its columns by their roles, once everything about them has been checked.

    Without a column of ratings it is one of events: repeated ones are one, whose strengths add up.
    """
    where, events = f"domain {name!r}", "rating_col" not in columns
    users, items = columns["user_col"], columns["item_col"]
    ratings = columns.get("rating_col", Coded(np.zeros(len(users), np.int32), np.ones(1)))
    if not len(users) == len(items) == len(ratings):
        raise DataError(f"{where}: users, items and ratings must be equally many; "
                        f"got {len(users):,}, {len(items):,} and {len(ratings):,}")
    if not len(ratings):
        raise DataError(f"{where} must have at least one row of data; got none. Leave the domain out.")
    check_present(users, f"{where}: user ids")
    check_present(items, f"{where}: item ids")
    distinct = numbers(ratings, where)
    if scale is None:
        scale = Scale.infer(distinct, where)
        _check_no_counts(distinct, ratings.codes, scale, where)
    positions, off = scale.locate(distinct)
    if off.any():
        rows = np.isin(ratings.codes, np.flatnonzero(off))
        got = distinct[ratings.codes[rows.argmax()]]
        raise DataError(f"{where}: ratings must be on the scale {scale}; got {written(got)} {ratings.where(rows)}. "
                        f"Pass scale=..., or round them with Scale.nearest() first.")
    known_users, known_items = Vocabulary.of(users), Vocabulary.of(items)
    for side, known in (("users", known_users), ("items", known_items)):
        if pair := known.alike():
            warnings.warn(f"{where}: {side} {brief(pair[0])} ({form(pair[0])}) and {brief(pair[1])} ({form(pair[1])}) "
                          f"look alike and count as two. If they are one, bring ids into one form of Unicode first.",
                          UserWarning, stacklevel=6)
    when = seconds(columns["time_col"], where) if "time_col" in columns else None
    weight = strengths(columns["weight_col"], where) if "weight_col" in columns else None
    if half_life is not None:
        if when is None:
            raise DataError(f"{where}: half_life must come with the times of events; got none. Pass time_col=...")
        weight = faded(when, half_life, where) * (1.0 if weight is None else weight)
    repeated = repeated_pairs(users, items)
    if repeated is not None and events and weight is None:
        weight = np.ones(len(users))
    made = Domain(name, known_users, known_items, users.codes, items.codes, positions[ratings.codes], scale,
                  titles_of(known_items, titles, where), events, when,
                  None if weight is None else weight.astype(np.float32))
    if repeated is None:
        return made
    if duplicates == "error" and not events:
        row = int(repeated.argmax())
        user, item = known_users.decode([users.codes[row]])[0], known_items.decode([items.codes[row]])[0]
        raise DataError(f"{where}: a user must rate an item once; user {brief(user)} rates item {brief(item)} again "
                        f"{users.where(repeated)}. Pass duplicates='last' or 'mean'.")
    return merged(made, duplicates)


def _check_no_counts(distinct: NDArray[np.float64], codes: Codes, scale: Scale, where: str) -> None:
    """Plays or purchases in place of ratings: whole numbers far up, of which the least is the most frequent by far."""
    if scale.high <= COUNTED or scale.low not in (0, 1) or (distinct % 1).any():
        return
    shares = np.bincount(codes, minlength=len(distinct)) / len(codes)
    if shares[np.argmin(distinct)] > LEAST and distinct @ shares < scale.low + (scale.high - scale.low) / 4:
        warnings.warn(f"{where}: ratings from {written(scale.low)} to {written(scale.high)}, of which "
                      f"{shares[np.argmin(distinct)]:.0%} are {written(scale.low)}, look like counts. If they say how "
                      f"often, and not how well, these are events: --events, with --weight-col for the counts.",
                      UserWarning, stacklevel=6)


def titles_of(items: Vocabulary, titles: Mapping[Any, str] | None, where: str) -> tuple[str, ...] | None:
    """What to show for each item: its title, or its id where it has none. 7 finds the title of "7"."""
    if titles is None:
        return None
    if not isinstance(titles, Mapping):
        raise DataError(f"{where}: titles must be a dict {{item_id: title}}; got {type(titles).__name__}")
    known = {str(id): title for id, title in titles.items() if not is_missing(title)}
    shown = [known.get(str(id)) for id in items.ids]
    if known and not any(title is not None for title in shown):
        raise DataError(f"{where}: titles must be of its items, which have ids like {brief(items.ids[0])}; got ids "
                        f"like {brief(next(iter(titles)))}")
    return tuple(str(id) if title is None else str(title) for id, title in zip(items.ids, shown, strict=True))


def _renumbered(codes: Codes, kept: NDArray[np.intp], n: int) -> Codes:
    """Codes of n things as places among those kept."""
    place = np.empty(n, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    return place[codes]


def repeated_pairs(users: Coded, items: Coded) -> NDArray[np.bool_] | None:
    """Which ratings repeat an earlier (user, item) pair; None if none does, which is found by counting."""
    from scipy import sparse

    n, shape = len(users), (len(users.distinct), len(items.distinct))
    table = sparse.coo_array((np.ones(n, bool), (users.codes, items.codes)), shape=shape).tocsr()
    if table.nnz == n:
        return None
    order, same = _grouped(users.codes, items.codes)
    repeated = np.zeros(n, bool)
    repeated[order[1:][same]] = True
    return repeated


def merged(domain: Domain, duplicates: str) -> Domain:
    """One rating a pair, at the place of its last one; strengths add up."""
    order, same = _grouped(domain.user, domain.item)
    if not same.any():
        return domain
    last, group = np.append(~same, True), np.append(0, np.cumsum(~same))
    value, weight = domain.value.copy(), domain.weight
    if duplicates == "mean":
        means = np.bincount(group, np.array(domain.scale.values)[value[order]]) / np.bincount(group)
        value[order[last]] = domain.scale.position(domain.scale.nearest(means))
    if weight is not None:
        weight = weight.copy()
        weight[order[last]] = np.bincount(group, weight[order])
    return replace(domain, value=value, weight=weight).take(np.sort(order[last]))


def _grouped(user: Codes, item: Codes) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The rows sorted by pair, earlier ones first; and whether each but the first repeats the one before."""
    pair = user.astype(np.int64) * (int(item.max()) + 1) + item
    order = np.argsort(pair, kind="stable")
    return order, np.diff(pair[order]) == 0


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
