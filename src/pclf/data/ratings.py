"""Ratings: named domains of (user, item, rating), each with its own ids and scale.

Words: *level* 0..R-1, common to all domains; *rating*, what somebody typed; *code*, the number of a user or
item inside its domain; *id*, its outside name; *row*, its row in a membership matrix.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.data.attributes import Attributes
from pclf.data.columns import Coded, as_column, check_present, coded, coded_rows, frame_columns
from pclf.data.domain import Domain, count, domain_of
from pclf.data.files import read_titles
from pclf.data.scale import Scale, as_scale, check_levels
from pclf.data.tables import attributes_of
from pclf.data.vocabulary import Codes, Vocabulary
from pclf.errors import DataError, UnknownNameError, did_you_mean

__all__ = ["Domain", "Options", "Ratings", "Scale", "Vocabulary"]

Column = str | Mapping[str, str] | None      # the name of a column, for all domains or by domain
Encoding = str | Mapping[str, str]           # of text files, for all domains or by domain
Wanted = str | Mapping[str, str] | bool      # the same; True: the one with a usual name; False: none

POLICIES = ("error", "last", "mean")
ROLE = {"user_col": "users", "item_col": "items", "rating_col": "ratings", "time_col": "times",
        "weight_col": "strengths"}
ROLES, OPTIONAL = list(ROLE)[:3], list(ROLE)[3:]
ENOUGH = 5      # levels: thumbs up and down in one domain must not take the stars of another away


class Options(TypedDict, total=False):
    """What every way to make Ratings takes.

    `scale`: (low, high), (low, high, step), a Scale, all values, or a dict of these by domain; without one,
    a domain gets the scale its ratings lie on. `levels`: how many common levels, see `Ratings`. `shared_users`,
    `shared_items`: the same id in two domains is the same person or thing; where ids are numbers in one and text in
    another, all become text.
    `duplicates`: what to do when a user rates an item twice: "error", keep the "last", or take the "mean",
    rounded to the scale. `titles`: {domain: {item_id: title}}, or {domain: path of a file}. `half_life`: days after
    which an event counts half, by its time.
    `attributes`, `user_attributes`: a table for each domain that has one, with a row an item or a user: a frame, a dict
    of columns, or the path of a file. `pclf.data.features` says how columns are understood.
    """

    scale: Any
    levels: int | None
    shared_users: bool
    shared_items: bool
    duplicates: Literal["error", "last", "mean"]
    titles: Mapping[str, Mapping[Any, str] | str | os.PathLike[str]] | None
    attributes: Mapping[str, Any] | None
    user_attributes: Mapping[str, Any] | None
    half_life: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """One or more domains and the rating levels they have in common. Never changes once made.

    Users and items of different domains are different, unless users or items are said to be shared. Every
    scale is cut into the same `n_levels` levels: value i of n is in level floor((i + 0.5) * n_levels / n).
    There are as many levels as the shortest scale of five or more values has; without one, as the longest.

    >>> Ratings.from_arrays({"films": (["Ann", "Ben"], ["Heat", "Heat"], [5, 3])}, scale=(1, 5))
    Ratings: 2 in 1 domain, 5 levels
      films  2 users  1 item  2 ratings  1 to 5 by 1
    """

    domains: dict[str, Domain]
    n_levels: int = 0   # 0: by the lengths of the scales
    shared_users: bool = False
    shared_items: bool = False
    attributes: Attributes | None = None        # of items
    user_attributes: Attributes | None = None

    def __post_init__(self) -> None:
        if not self.domains:
            raise DataError("ratings must have at least one domain; got none")
        for known, whose in ((self.attributes, "items"), (self.user_attributes, "users")):
            for name, d in self.domains.items():
                if known is not None and (n := known.of(name).shape[0]) != len(getattr(d, whose)):
                    raise DataError(f"domain {name!r}: there must be a row of attributes for each of its "
                                    f"{len(getattr(d, whose)):,} {whose}; got {n:,}")
        rated = [d for d in self.domains.values() if not d.events]         # events have two, whatever others have
        lengths = [len(d.scale) for d in rated or self.domains.values()]
        n_levels = self.n_levels or min((n for n in lengths if n >= ENOUGH), default=max(lengths))
        check_levels(n_levels)
        object.__setattr__(self, "n_levels", n_levels)
        object.__setattr__(self, "domains", dict(self.domains))

    @classmethod
    def from_frames(cls, frames: Mapping[str, Any], *, user_col: Column = None,
                    item_col: Column = None, rating_col: Column = None, time_col: Wanted = False,
                    weight_col: Wanted = False, events: Iterable[str] = (),
                    **options: Unpack[Options]) -> "Ratings":
        """From a frame for each domain: pandas, polars, pyarrow or a dict of columns. `Options` has the other options.

        Columns are found by the usual names ("user_id", "userId", "movie_id", "stars", ...) unless given: one name,
        or a dict {domain: name}. Times, and strengths of events, are read where `time_col` and `weight_col` are given,
        by name or as True for the usual names. events: the domains without ratings, see `from_events`.
        """
        names = {"user_col": user_col, "item_col": item_col, "rating_col": rating_col, "time_col": time_col,
                 "weight_col": weight_col}

        def read(name: str, frame: Any) -> dict[str, Coded]:
            roles = roles_of(names, name, frames, events)
            return dict(zip(roles, map(coded, frame_columns(frame, roles, f"domain {name!r}")), strict=True))

        return _made(frames, read, "frame", names, **options)

    @classmethod
    def from_frame(cls, frame: Any, *, domain_col: str = "domain", user_col: str | None = None,
                   item_col: str | None = None, rating_col: str | None = None, time_col: str | bool = False,
                   **options: Unpack[Options]) -> "Ratings":
        """From one long frame with a column that says which domain each rating belongs to."""
        roles = _asked({"domain_col": domain_col, "user_col": user_col, "item_col": item_col,
                        "rating_col": rating_col, "time_col": time_col})
        domain, *columns = frame_columns(frame, roles, "the frame")
        belongs = coded(domain)
        check_present(belongs, f"the frame: domains in {domain_col!r}")
        names = [str(name) for name in Vocabulary.of(belongs).ids]
        for name in names:
            if names.count(name) > 1:
                raise DataError(f"domains in {domain_col!r} must have different names as text; got {name!r} twice")
        rows = {name: np.flatnonzero(belongs.codes == code) for code, name in enumerate(names)}

        def read(name: str, rows: NDArray[np.intp]) -> dict[str, Coded]:
            return dict(zip(list(roles)[1:], (coded_rows(c, rows) for c in columns), strict=True))

        return _made(rows, read, "rows", {"user_col": user_col, "item_col": item_col}, **options)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, tuple[Any, Any, Any]], **options: Unpack[Options]) -> "Ratings":
        """From (users, items, ratings) for each domain: sequences or arrays of one length."""

        def read(name: str, columns: tuple[Any, Any, Any]) -> dict[str, Coded]:
            if len(columns) != 3:
                raise DataError(f"domain {name!r} must be (users, items, ratings); got {len(columns)}")
            return dict(zip(ROLES, (coded(as_column(c)) for c in columns), strict=True))

        return _made(arrays, read, "(users, items, ratings)", **options)

    @classmethod
    def from_files(cls, paths: Mapping[str, str | os.PathLike[str]], *, user_col: Column = None,
                   item_col: Column = None, rating_col: Column = None, time_col: Wanted = False,
                   weight_col: Wanted = False, events: Iterable[str] = (), encoding: Encoding = "utf-8",
                   skip_bad: int = 0, **options: Unpack[Options]) -> "Ratings":
        """From a file for each domain: .csv, .tsv, .dat, .data, .txt (each also .gz) or .parquet; a folder of such
        files; or a pattern such as ratings-*.csv.

        Text may be separated by commas, semicolons, tabs, bars, `::` or one blank. Without names in its first line, the
        columns are user, item, rating, and time where that is asked for. Ids are numbers where all of them are, and
        else text. Times, and strengths of events, are read where `time_col` and `weight_col` are given, by name or as
        True for the usual names. events: the domains without ratings, see `from_events`. skip_bad: how many rows with
        too many or too few fields may be left out of a domain, which are counted; one more is an error. encoding: of
        the text files of all domains, or {domain: encoding}, and "utf-8" for the others.
        """
        from pclf.data import files

        names = {"user_col": user_col, "item_col": item_col, "rating_col": rating_col, "time_col": time_col,
                 "weight_col": weight_col}

        def read(name: str, path: str | os.PathLike[str]) -> dict[str, Coded]:
            roles = roles_of(names, name, paths, events)
            return dict(zip(roles, files.read(path, roles, _encoding_of(encoding, name), skip_bad), strict=True))

        return _made(paths, read, "path", names, encoding, **options)

    @classmethod
    def from_events(cls, logs: Mapping[str, Any], *, user_col: Column = None, item_col: Column = None,
                    time_col: Wanted = False, weight_col: Wanted = False, half_life: float | None = None,
                    encoding: Encoding = "utf-8", shared_users: bool = False, shared_items: bool = False,
                    titles: Mapping[str, Mapping[Any, str] | str | os.PathLike[str]] | None = None,
                    attributes: Mapping[str, Any] | None = None,
                    user_attributes: Mapping[str, Any] | None = None) -> "Ratings":
        """From what people did, without ratings: a file, a frame or (users, items) for each domain, with times and
        strengths behind them where these are asked for.

        Who did something twice did it, the more strongly. PCLF, RMGM and FMM learn from events; see `pclf.data.events`.
        weight_col: the strength of each event, above 0 (plays, hours, amounts); those of repeated events add up.
        time_col: when it was. half_life: days after which an event counts half, back from the latest of its domain.
        """
        from pclf.data import files

        names = {"user_col": user_col, "item_col": item_col, "time_col": time_col, "weight_col": weight_col}

        def read(name: str, log: Any) -> dict[str, Coded]:
            roles = roles_of(names, name, logs)
            if isinstance(log, (str, os.PathLike)):
                columns = files.read(log, roles, _encoding_of(encoding, name))
            elif isinstance(log, tuple):
                if len(log) != len(roles):
                    what = ", ".join(ROLE[role] for role in roles)
                    raise DataError(f"domain {name!r} must be ({what}); got {len(log)}")
                columns = [coded(as_column(c)) for c in log]
            else:
                columns = [coded(c) for c in frame_columns(log, roles, f"domain {name!r}")]
            return dict(zip(roles, columns, strict=True))

        return _made(logs, read, "log", names, encoding, shared_users=shared_users, shared_items=shared_items,
                     titles=titles, half_life=half_life, attributes=attributes, user_attributes=user_attributes)

    @cached_property
    def user_rows(self) -> tuple[Codes, ...]:
        """For each domain, code -> row among all users. A person has one row where users are shared."""
        return _rows([d.users for d in self.domains.values()], self.shared_users)

    @cached_property
    def item_rows(self) -> tuple[Codes, ...]:
        """For each domain, code -> row among all items."""
        return _rows([d.items for d in self.domains.values()], self.shared_items)

    @cached_property
    def n_users(self) -> int:
        """The rows of all users."""
        return 1 + max((int(rows.max()) for rows in self.user_rows if rows.size), default=-1)

    @cached_property
    def n_items(self) -> int:
        """The rows of all items."""
        return 1 + max((int(rows.max()) for rows in self.item_rows if rows.size), default=-1)

    @property
    def n_ratings(self) -> int:
        return sum(len(d) for d in self.domains.values())

    @property
    def events(self) -> bool:
        """Whether nothing here is a rating."""
        return all(d.events for d in self.domains.values())

    def __len__(self) -> int:
        return self.n_ratings

    def __getitem__(self, name: str) -> Domain:
        try:
            return self.domains[name]
        except KeyError:
            raise UnknownNameError(did_you_mean(name, self.domains, "domain")) from None

    def levels(self, name: str) -> NDArray[np.uint8]:
        """The common level of each of a domain's ratings.   (n,)"""
        domain = self[name]
        if len(domain.scale) == self.n_levels:
            return domain.value
        return domain.scale.to_levels(self.n_levels)[domain.value]

    def level_values(self, name: str) -> NDArray[np.float64]:
        """What each level is worth on a domain's own scale.   (R,)"""
        return self[name].scale.level_values(self.n_levels)

    def select(self, masks: Mapping[str, ArrayLike]) -> "Ratings":
        """Only the ratings under the masks; users, items and scales stay. No mask keeps a domain whole."""
        kept = dict(self.domains)
        for name, mask in masks.items():
            domain, chosen = self[name], np.asarray(mask)
            if chosen.dtype != bool or chosen.shape != domain.value.shape:
                raise DataError(f"the mask of {name!r} must be {len(domain):,} booleans; "
                                f"got {chosen.dtype} of shape {chosen.shape}")
            kept[name] = domain.take(chosen)
        return replace(self, domains=kept)

    def compact(self) -> "Ratings":
        """Without the users and items that have no ratings."""
        kept = {name: d.rated() for name, d in self.domains.items()}
        return replace(
            self, domains={name: d.compact() for name, d in self.domains.items()},
            attributes=self.attributes and self.attributes.take({name: items for name, (_, items) in kept.items()}),
            user_attributes=(self.user_attributes
                             and self.user_attributes.take({name: users for name, (users, _) in kept.items()})))

    def only(self, names: str | Iterable[str]) -> "Ratings":
        """Some of the domains, with as many levels as before."""
        kept = {n: self[n] for n in ([names] if isinstance(names, str) else names)}
        return replace(self, domains=kept, attributes=self.attributes and self.attributes.only(list(kept)),
                       user_attributes=self.user_attributes and self.user_attributes.only(list(kept)))

    def joined(self, other: "Ratings", name: str) -> tuple["Ratings", "Ratings"]:
        """Both with the users and items of both in a domain, in the same codes, and with our attributes, if we have
        some."""
        mine, theirs = self[name].joined(other[name])
        known: dict[str, Any] = {}
        for key, whose in (("attributes", "items"), ("user_attributes", "users")):
            ours, others = getattr(self, key), getattr(other, key)
            if ours is None and others is None:
                continue
            _, *codes = getattr(self[name], whose).joined(getattr(other[name], whose))
            if ours is None:
                ours, others, codes = others, None, codes[::-1]
            known[key] = ours.joined(others, name, *codes, len(getattr(mine, whose)))
        both = [replace(part, domains={**part.domains, name: domain}, **known)
                for part, domain in ((self, mine), (other, theirs))]
        return both[0], both[1]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of sizes, scales, codes and values, the same for the same data on every machine."""
        seal = hashlib.sha256(repr((self.n_levels, self.shared_users, self.shared_items)).encode())
        for d in self.domains.values():
            seal.update(repr((d.name, d.n_users, d.n_items, len(d), d.scale.values, d.events)).encode())
            for column, dtype in ((d.user, "<i4"), (d.item, "<i4"), (d.value, "u1")):
                seal.update(np.ascontiguousarray(column, dtype).data)
            for extra, dtype in ((d.time, "<i8"), (d.weight, "<f4")):
                seal.update(b"" if extra is None else np.ascontiguousarray(extra, dtype).data)
        for known in (self.attributes, self.user_attributes):
            if known is not None:
                seal.update(repr((known.whose, known.features)).encode())
                for column in known.to_arrays().values():
                    seal.update(np.ascontiguousarray(column).data)
        return seal.hexdigest()

    def to_frame(self, name: str) -> dict[str, NDArray[Any]]:
        """A domain's ratings as a dict of columns, which `from_frames`, pandas and polars take."""
        d = self[name]
        extra = {"time": d.time, "weight": d.weight}
        return {"user_id": d.users.array()[d.user], "item_id": d.items.array()[d.item], "rating": d.ratings,
                **{name: column for name, column in extra.items() if column is not None}}

    def facts(self, name: str, whose: Literal["items", "users"] = "items") -> dict[str, Any]:
        """What is known about a domain's items, or users, as a dict of columns, which `attributes=` takes.

        Values that were too rare to count are not among it, and a number beyond the outermost knots is the nearest one.
        """
        known = self.attributes if whose == "items" else self.user_attributes
        ids = self[name].items if whose == "items" else self[name].users
        return {f"{whose[:-1]}_id": []} if known is None else known.to_frame(name, ids)

    def __repr__(self) -> str:
        sizes = [d.sizes() for d in self.domains.values()]
        widths = [max(map(len, column)) for column in zip(*sizes, strict=True)]
        longest = max(map(len, self.domains))
        lines = [f"Ratings: {self._summary()}"]
        for d, own in zip(self.domains.values(), sizes, strict=True):
            cells = [s.rjust(width) for s, width in zip(own, widths, strict=True)]
            lines.append("  ".join(["", d.name.ljust(longest), *cells, str(d.scale)]))
        return "\n".join([*lines, *(repr(known) for known in (self.attributes, self.user_attributes) if known)])

    def _repr_html_(self) -> str:
        head = ["domain", "users", "items", "ratings", "density", "scale"]
        rows = [[escape(d.name), f"{d.n_users:,}", f"{d.n_items:,}", f"{len(d):,}", _density(d), str(d.scale)]
                for d in self.domains.values()]
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
        known = "".join(a._repr_html_() for a in (self.attributes, self.user_attributes) if a is not None)
        return (f"<table><caption>Ratings: {self._summary()}</caption>"
                f"<thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead><tbody>{body}</tbody></table>{known}")

    def _summary(self) -> str:
        shared = ["users"] * self.shared_users + ["items"] * self.shared_items
        return (f"{self.n_ratings:,} in {count(len(self.domains), 'domain')}, {count(self.n_levels, 'level')}"
                + (f", {' and '.join(shared)} shared" if shared else ""))


def _made(sources: Mapping[str, Any], read: Callable[[str, Any], Mapping[str, Coded]], what: str,
          names: Mapping[str, Column | Wanted] | None = None, encoding: Encoding = "utf-8", *,
          scale: Any = None, levels: int | None = None, shared_users: bool = False,
          shared_items: bool = False, duplicates: str = "error",
          titles: Mapping[str, Mapping[Any, str] | str | os.PathLike[str]] | None = None,
          half_life: float | None = None,
          attributes: Mapping[str, Any] | None = None, user_attributes: Mapping[str, Any] | None = None) -> Ratings:
    """Ratings, domain by domain: the columns of one are let go before the next is read."""
    if not isinstance(sources, Mapping) or not all(isinstance(name, str) for name in sources):
        raise DataError(f"ratings must come as a dict {{domain name: {what}}}; got {type(sources).__name__}"
                        + (f" with the keys {list(sources)[:5]}" if isinstance(sources, Mapping) else ""))
    if duplicates not in POLICIES:
        raise UnknownNameError(did_you_mean(duplicates, POLICIES, "policy for duplicates"))
    for name in [*(scale if isinstance(scale, Mapping) else ()), *(titles or ()),
                 *(encoding if isinstance(encoding, Mapping) else ())]:
        if name not in sources:
            raise UnknownNameError(did_you_mean(name, sources, "domain"))
    if levels is not None:
        check_levels(levels)
    scales = {name: as_scale(scale, name) for name in sources}
    item_cols = {name: roles_of({"item_col": (names or {}).get("item_col")}, name, sources)["item_col"]
                 for name in titles or ()}
    shown: dict[str, Any] = {name: read_titles(given, _encoding_of(encoding, name), item_cols[name])
                             if isinstance(given, (str, os.PathLike)) else given
                             for name, given in (titles or {}).items()}
    domains = {name: _domain(name, read(name, source), scales[name], duplicates, shown.get(name), half_life)
               for name, source in sources.items()}
    if half_life is not None and not any(d.events for d in domains.values()):
        raise DataError("half_life must come with a domain of events; got ratings alone. Leave it out.")
    for which, shared in (("users", shared_users), ("items", shared_items)):
        if shared and {getattr(d, which).kind for d in domains.values()} == {"int", "str"}:      # 7 is "7" elsewhere
            domains = {name: replace(d, **{which: getattr(d, which).as_text()}) for name, d in domains.items()}
    made = Ratings(domains, levels or 0, shared_users, shared_items)
    for which, shared in (("users", shared_users), ("items", shared_items)):
        apart = sum(len(getattr(d, which)) for d in domains.values())
        if shared and len(domains) > 1 and getattr(made, f"n_{which}") == apart:
            warnings.warn(f"{which} are shared, but no id is in two domains: none is known elsewhere.", UserWarning,
                          stacklevel=3)
    known: dict[str, Any] = {}
    for key, whose, given in (("attributes", "items", attributes), ("user_attributes", "users", user_attributes)):
        if given is not None and given != {}:
            one = whose[:-1]
            role = f"{one}_col"
            named = {name: roles_of({role: (names or {}).get(role)}, name, domains)[role] for name in domains}
            rows = getattr(made, f"{one}_rows") if getattr(made, f"shared_{whose}") else None
            known[key], domains = attributes_of(
                given, domains, whose, named, {name: _encoding_of(encoding, name) for name in domains}, rows)
    return replace(made, domains=domains, **known) if known else made


def _encoding_of(encoding: Encoding, domain: str) -> str:
    return encoding.get(domain, "utf-8") if isinstance(encoding, Mapping) else encoding


def _domain(name: str, columns: Mapping[str, Coded], scale: Scale | None, duplicates: str,
            titles: Mapping[Any, str] | None, half_life: float | None) -> Domain:
    """One of ratings, or one of events where there are no ratings: those have a scale and a policy of their own."""
    if "rating_col" in columns:
        return domain_of(name, columns, scale, duplicates, titles)
    check_no_scale(name, scale)
    return domain_of(name, columns, as_scale((0, 1), name), "last", titles, half_life)


def check_no_scale(name: str, scale: Scale | None) -> None:
    if scale is not None:
        raise DataError(f"domain {name!r} has events, which are on no scale; got {scale}. Leave its scale out.")


def roles_of(names: Mapping[str, Column | Wanted], domain: str, domains: Iterable[str],
               events: Iterable[str] = ()) -> dict[str, str | None]:
    """The columns of a domain, where they are given by domain; without ratings and with strengths for events."""
    for role, given in names.items():
        for key in given if isinstance(given, Mapping) else ():
            if key not in domains:
                raise UnknownNameError(did_you_mean(key, domains, f"domain in {role}"))
    for key in (events := [events] if isinstance(events, str) else list(events)):
        if key not in domains:
            raise UnknownNameError(did_you_mean(key, domains, "domain in events"))
    own = {role: given.get(domain, False if role in OPTIONAL else None) if isinstance(given, Mapping) else given
           for role, given in names.items()}
    if domain in events:
        own.pop("rating_col")
    elif "rating_col" in own:
        weight = own.pop("weight_col", False)
        if weight and (isinstance(names["weight_col"], Mapping) or not events):
            raise DataError(f"domain {domain!r} has ratings, and only events have strengths; got weight_col={weight!r}"
                            f". Name it in events=..., or leave weight_col out.")
    return _asked(own)


def _asked(roles: Mapping[str, str | bool | None]) -> dict[str, str | None]:
    """Without the columns that are not wanted; None for one to be found by its usual names."""
    return {role: given if isinstance(given, str) else None for role, given in roles.items() if given is not False}


def _rows(vocabularies: list[Vocabulary], shared: bool) -> tuple[Codes, ...]:
    """Code -> row for each domain: domain after domain, or one row an id."""
    if shared:
        return tuple(Vocabulary.union(vocabularies))
    starts = np.cumsum([0, *map(len, vocabularies)])
    return tuple(np.arange(a, b, dtype=np.int32) for a, b in pairwise(starts))


def _density(d: Domain) -> str:
    return f"{100 * len(d) / max(1, d.n_users * d.n_items):.2g} %"
