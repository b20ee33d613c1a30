"""Ratings: named domains of (user, item, rating), each with its own ids and scale.

Words: *level* 0..R-1, common to all domains; *rating*, what somebody typed; *code*, the number of a user or
item inside its domain; *id*, its outside name; *row*, its row in a membership matrix.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.data.columns import Coded, as_column, check_present, coded, frame_columns, in_row, numbers
from pclf.data.scale import Scale, as_scale, check_levels
from pclf.data.vocabulary import Codes, Vocabulary
from pclf.errors import DataError, UnknownNameError, did_you_mean

__all__ = ["Domain", "Options", "Ratings", "Scale", "Vocabulary"]

Columns = tuple[Any, Any, Any]   # users, items, ratings


class Options(TypedDict, total=False):
    """What every way to make Ratings takes.

    `scale`: (low, high), (low, high, step), a Scale, all values, or a dict of these by domain; a domain without
    one gets the scale its ratings lie on. `levels`: how many common levels, instead of the length of the
    shortest scale. `shared_users`, `shared_items`: the same id in two domains is the same person or thing.
    `duplicates`: what to do when a user rates an item twice: "error", keep the "last", or take the "mean",
    rounded to the scale. `titles`: {domain: {item_id: title}}, for display.
    """

    scale: Any
    levels: int | None
    shared_users: bool
    shared_items: bool
    duplicates: Literal["error", "last", "mean"]
    titles: Mapping[str, Mapping[Any, str]] | None


@dataclass(frozen=True, eq=False)
class Domain:
    """One catalogue: who rated what, and how. Rating j is (user[j], item[j], scale.values[value[j]])."""

    name: str
    users: Vocabulary
    items: Vocabulary
    user: Codes                             # (n,) codes
    item: Codes                             # (n,) codes
    value: NDArray[np.uint8]                # (n,) positions on the scale
    scale: Scale
    titles: tuple[str, ...] | None = None   # of the items, by code

    def __post_init__(self) -> None:
        for name, dtype in (("user", np.int32), ("item", np.int32), ("value", np.uint8)):
            column = np.asarray(getattr(self, name))
            if column.dtype != dtype or column.shape != (len(self.value),):
                raise DataError(f"domain {self.name!r}: {name} must be {len(self.value):,} numbers of type "
                                f"{np.dtype(dtype)}; got {column.dtype} of shape {column.shape}")
            column = column.view()
            column.flags.writeable = False   # of our view; the caller's array stays as it was
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Domain({self.name!r}: {_sizes(self)}, scale {self.scale})"

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


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """One or more domains and the rating levels they have in common. Never changes once made.

    Users and items of different domains are different, unless users or items are said to be shared. Every
    scale is cut into the same `n_levels` levels: value i of n is in level floor((i + 0.5) * n_levels / n), with
    as many levels as the shortest scale has values (one of a single value does not count).

    >>> Ratings.from_arrays({"films": (["Ann", "Ben"], ["Heat", "Heat"], [5, 3])}, scale=(1, 5))
    Ratings: 2 in 1 domain, 5 levels
      films  2 users  1 item  2 ratings  1 to 5 by 1
    """

    domains: dict[str, Domain]
    n_levels: int = 0   # 0: as many as the shortest scale has values
    shared_users: bool = False
    shared_items: bool = False

    def __post_init__(self) -> None:
        if not self.domains:
            raise DataError("ratings must have at least one domain; got none")
        lengths = [len(d.scale) for d in self.domains.values()]
        n_levels = self.n_levels or min((n for n in lengths if n > 1), default=1)
        check_levels(n_levels)
        object.__setattr__(self, "n_levels", n_levels)
        object.__setattr__(self, "domains", dict(self.domains))

    @classmethod
    def from_frames(cls, frames: Mapping[str, Any], *, user_col: str | None = None, item_col: str | None = None,
                    rating_col: str | None = None, **options: Unpack[Options]) -> "Ratings":
        """From a frame for each domain: pandas, polars or pyarrow. See `Options` for the options.

        Columns are found by the usual names ("user_id", "userId", "movie_id", "stars", ...) unless given.
        """
        names = {"user_col": user_col, "item_col": item_col, "rating_col": rating_col}
        return cls._made(_by_domain(frames, "frames", "frame"),
                         lambda name, frame: _coded(frame_columns(frame, names, f"domain {name!r}")), options)

    @classmethod
    def from_frame(cls, frame: Any, *, domain_col: str = "domain", user_col: str | None = None,
                   item_col: str | None = None, rating_col: str | None = None,
                   **options: Unpack[Options]) -> "Ratings":
        """From one long frame with a column that says which domain a rating belongs to."""
        domain, *columns = frame_columns(frame, {"domain_col": domain_col, "user_col": user_col,
                                                 "item_col": item_col, "rating_col": rating_col}, "the frame")
        domain = coded(domain)
        check_present(domain, f"the column {domain_col!r}")
        names = [str(n) for n in Vocabulary.of(domain).ids]
        rows = {name: np.flatnonzero(domain.codes == code) for code, name in enumerate(names)}
        return cls._made(rows, lambda name, rows: _coded([_take(c, rows) for c in columns]), options, rows)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, tuple[Any, Any, Any]], **options: Unpack[Options]) -> "Ratings":
        """From (users, items, ratings) for each domain: sequences or arrays of one length."""
        return cls._made(_by_domain(arrays, "arrays", "(users, items, ratings)"),
                         lambda name, columns: _coded([as_column(c) for c in columns]), options)

    @classmethod
    def from_files(cls, paths: Mapping[str, str | os.PathLike[str]], *, user_col: str | None = None,
                   item_col: str | None = None, rating_col: str | None = None, encoding: str = "utf-8",
                   **options: Unpack[Options]) -> "Ratings":
        """From a file for each domain: .csv, .tsv, .dat, .data, .txt (all .gz too) or .parquet.

        Text may be separated by commas, semicolons, tabs, bars or `::`. Without names in its first line, the
        columns are user, item, rating. Ids are numbers where all of them are, and else text.
        """
        from pclf.data import files

        names = {"user_col": user_col, "item_col": item_col, "rating_col": rating_col}
        return cls._made(_by_domain(paths, "paths", "path"),
                         lambda name, path: files.read(path, names, encoding), options)

    @classmethod
    def _made(cls, sources: Mapping[str, Any], read: Callable[[str, Any], list[Coded]], options: Options,
              rows: Mapping[str, NDArray[np.intp]] | None = None) -> "Ratings":
        return cls({}, )

    @cached_property
    def user_rows(self) -> tuple[Codes, ...]:
        """For each domain, code -> row among all users. A person has one row where users are shared."""
        return _rows([d.users for d in self.domains.values()], self.shared_users)

    @cached_property
    def item_rows(self) -> tuple[Codes, ...]:
        """For each domain, code -> row among all items."""
        return _rows([d.items for d in self.domains.values()], self.shared_items)
