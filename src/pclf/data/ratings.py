"""Ratings: named domains of (user, item, rating), each with its own ids and scale.

Words: *level* 0..R-1, common to all domains; *rating*, what somebody typed; *code*, the number of a user or
item inside its domain; *id*, its outside name; *row*, its row in a membership matrix.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.data.scale import Scale, as_scale, check_levels
from pclf.data.vocabulary import Vocabulary, as_column, encode
from pclf.errors import DataError, UnknownNameError, did_you_mean

Codes = NDArray[np.int32]
Duplicates = Literal["error", "last", "mean"]


@dataclass(frozen=True, eq=False)
class Domain:
    """One catalogue: who rated what, and how. Rating j is (user[j], item[j], scale.values[value[j]])."""

    name: str
    users: Vocabulary
    items: Vocabulary
    user: Codes                           # (n,) codes
    item: Codes                           # (n,) codes
    value: NDArray[np.uint8]              # (n,) positions on the scale
    scale: Scale
    titles: tuple[str, ...] | None = None   # of the items, for display

    def __post_init__(self) -> None:
        for array in (self.user, self.item, self.value):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.value)

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

    def title(self, code: int) -> str:
        return self.titles[code] if self.titles is not None else str(self.items.decode([code])[0])


class Ratings:
    """One or more domains and the levels they share. Never changes once made."""

    def __init__(self, domains: Mapping[str, Domain], *, n_levels: int | None = None,
                 shared_users: bool = False, shared_items: bool = False) -> None:
        if not domains:
            raise DataError("ratings must have at least one domain; got none")
        self.domains = dict(domains)
        self.n_levels = common_levels([d.scale for d in self.domains.values()]) if n_levels is None else n_levels
        check_levels(self.n_levels)
        self.shared_users = shared_users
        self.shared_items = shared_items
        self.user_rows, self.n_users = _rows([d.users for d in self.domains.values()], shared_users)
        self.item_rows, self.n_items = _rows([d.items for d in self.domains.values()], shared_items)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, tuple[Any, Any, ArrayLike]], *, scale: Any = None,
                    levels: int | None = None, shared_users: bool = False, shared_items: bool = False,
                    duplicates: Duplicates = "error",
                    titles: Mapping[str, Mapping[Any, str]] | None = None) -> "Ratings":
        """From (users, items, ratings) for each domain: sequences or arrays of the same length."""
        made = {str(name): _domain(str(name), *columns, scale=as_scale(scale, name), duplicates=duplicates,
                                   titles=(titles or {}).get(name)) for name, columns in arrays.items()}
        return cls(made, n_levels=levels, shared_users=shared_users, shared_items=shared_items)

    @classmethod
    def from_frames(cls, frames: Mapping[str, Any], *, user_col: str = "user_id", item_col: str = "item_id",
                    rating_col: str = "rating", **options: Any) -> "Ratings":
        """From a DataFrame (pandas, polars, pyarrow) for each domain."""
        import narwhals as nw

        arrays = {}
        for name, frame in frames.items():
            columns = nw.from_native(frame, eager_only=True)
            arrays[name] = tuple(columns[c].to_arrow() for c in (user_col, item_col, rating_col))
        return cls.from_arrays(arrays, **options)

    @property
    def n_ratings(self) -> int:
        return sum(len(d) for d in self.domains.values())

    def __len__(self) -> int:
        return self.n_ratings

    def __getitem__(self, name: str) -> Domain:
        try:
            return self.domains[name]
        except KeyError:
            raise UnknownNameError(did_you_mean(name, self.domains, "domain")) from None

    def levels(self, name: str) -> NDArray[np.uint8]:
        """The common level of each of a domain's ratings.   (n,)"""
        return self[name].scale.to_levels(self.n_levels)[self[name].value]

    def level_values(self, name: str) -> NDArray[np.float64]:
        """What each level is worth on a domain's own scale.   (R,)"""
        return self[name].scale.level_values(self.n_levels)

    def select(self, masks: Mapping[str, ArrayLike]) -> "Ratings":
        """Only the ratings under the masks; the same users, items and scales. No mask keeps all of a domain."""
        kept = dict(self.domains)
        for name, mask in masks.items():
            domain, chosen = self[name], np.asarray(mask)
            if chosen.dtype != bool or chosen.shape != domain.value.shape:
                raise DataError(f"the mask of {name!r} must be {len(domain):,} booleans; "
                                f"got {chosen.dtype} of shape {chosen.shape}")
            kept[name] = replace(domain, user=domain.user[chosen], item=domain.item[chosen],
                                 value=domain.value[chosen])
        made = object.__new__(Ratings)
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k != "fingerprint"}, domains=kept)
        return made

    def only(self, names: str | Iterable[str]) -> "Ratings":
        """Some of the domains, with the levels unchanged."""
        names = [names] if isinstance(names, str) else list(names)
        return Ratings({n: self[n] for n in names}, n_levels=self.n_levels, shared_users=self.shared_users,
                       shared_items=self.shared_items)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of codes, values, scales and sizes: equal for equal data."""
        seal = hashlib.sha256(repr((self.n_levels, self.shared_users, self.shared_items)).encode())
        for d in self.domains.values():
            seal.update(repr((d.name, d.n_users, d.n_items, len(d), d.scale.values)).encode())
            for array in (d.user, d.item, d.value):
                seal.update(np.ascontiguousarray(array).data)
        return seal.hexdigest()

    def to_frame(self, name: str) -> dict[str, NDArray[Any]]:
        """A domain's ratings as columns: `pandas.DataFrame(ratings.to_frame("books"))`."""
        d = self[name]
        return {"user_id": d.users.array()[d.user], "item_id": d.items.array()[d.item], "rating": d.ratings}

    def __repr__(self) -> str:
        lines = [f"Ratings: {self.n_ratings:,} in {len(self.domains)} domain(s), {self.n_levels} levels"]
        lines += [f"  {d.name}: {d.n_users:,} users, {d.n_items:,} items, {len(d):,} ratings, scale {d.scale}"
                  for d in self.domains.values()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def common_levels(scales: Iterable[Scale]) -> int:
    """As many levels as the shortest scale has values; a scale of a single value does not count."""
    lengths = [s.n for s in scales]
    return min((n for n in lengths if n > 1), default=1)


def _domain(name: str, users: Any, items: Any, ratings: Any, *, scale: Scale | None, duplicates: Duplicates,
            titles: Mapping[Any, str] | None) -> Domain:
    user, user_ids = encode(as_column(users))
    item, item_ids = encode(as_column(items))
    own = np.asarray(ratings, np.float64)
    if not len(own):
        raise DataError(f"domain {name!r} must have at least one rating; got none")
    scale = Scale.infer(own, f"domain {name!r}") if scale is None else scale
    value = scale.position(own, f"domain {name!r}")
    known = Vocabulary._of(item_ids)
    shown = tuple(str(titles.get(i, i)) for i in known.ids) if titles is not None else None
    return Domain(name, Vocabulary._of(user_ids), known, user, item, value, scale, shown)


def _rows(vocabularies: list[Vocabulary], shared: bool) -> tuple[tuple[Codes, ...], int]:
    """Code -> row for each domain, and the number of rows."""
    sizes = [len(v) for v in vocabularies]
    if shared:
        import pyarrow as pa

        if len({v.kind for v in vocabularies} - {"object"}) == 1 and not any(v._odd for v in vocabularies):
            column = pa.chunked_array([v._arrow for v in vocabularies])
        else:
            column = [i for v in vocabularies for i in v.ids]
        rows, distinct = encode(column)
        return tuple(np.split(rows, np.cumsum(sizes)[:-1])), len(distinct)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return tuple(np.arange(a, a + n, dtype=np.int32) for a, n in zip(starts, sizes, strict=False)), int(starts[-1])
