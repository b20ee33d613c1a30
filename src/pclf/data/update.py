"""Update: ratings with what came in since, and without what was taken back.

    updated(data, new, removed)        {"films": new rows},  {"films": (users, items)}

Users and items that are new get the codes after those that are there, so that what was learned about the others stays
where it is. Who rates an item again has changed their mind; strengths of repeated events add up.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.columns import as_column, coded, frame_columns
from pclf.data.domain import Domain, merged
from pclf.data.ratings import Ratings
from pclf.data.scale import written
from pclf.errors import ArgumentError, DataError, UnknownNameError, did_you_mean


def updated(data: Ratings, new: Ratings | Mapping[str, Any], removed: Mapping[str, Any] | None = None) -> Ratings:
    """Ratings with new ones, as Ratings or as a dict of frames, and without the pairs of users and items in `removed`.

    removed: for each domain a frame, a dict of columns or (users, items). It is applied first.
    """
    out = data
    for name, pairs in (removed or {}).items():
        out = _without(out, name, pairs)
    given = new if isinstance(new, Ratings) else _read(data, new)
    for name in given.domains:
        _check_known(data, name)
        mine, theirs = out.joined(given, name)
        known = {key: getattr(mine, key) for key in ("attributes", "user_attributes")}
        out = replace(mine, domains={**mine.domains, name: _with(mine[name], theirs[name])}, **known)
    return out


def _read(data: Ratings, frames: Mapping[str, Any]) -> Ratings:
    """New rows in frames, which mean what the rows that are there mean."""
    if not isinstance(frames, Mapping):
        raise ArgumentError(f"new ratings must be Ratings or a dict of data frames, one a domain; got "
                            f"{type(frames).__name__}.")
    for name in frames:
        _check_known(data, name)
    own = {name: data[name] for name in frames}
    if not own:
        raise ArgumentError("new ratings must be of at least one domain; got none.")
    return Ratings.from_frames(
        frames, events=[name for name, d in own.items() if d.events], duplicates="last", levels=data.n_levels,
        scale={name: d.scale for name, d in own.items() if not d.events} or None,
        time_col={name: _column(frames[name], "time_col") for name, d in own.items() if d.time is not None},
        weight_col={name: _column(frames[name], "weight_col") for name, d in own.items() if d.weight is not None
                    and _column(frames[name], "weight_col")})


def _column(frame: Any, role: str) -> str:
    """The column of times or strengths, as it is called there; an empty name where there is none."""
    from pclf.data.columns import columns_by_name, find_alias

    return find_alias(list(columns_by_name(frame, "the frame")), role) or ""


def _check_known(data: Ratings, name: str) -> None:
    if name not in data.domains:
        raise UnknownNameError(f"{did_you_mean(name, data.domains, 'domain')}. A new domain needs a new fit.")


def _with(mine: Domain, new: Domain) -> Domain:
    """Both parts of a domain, in the same codes, one after the other."""
    if mine.events != new.events:
        kinds = ["events" if d.events else "ratings" for d in (mine, new)]
        raise DataError(f"domain {mine.name!r} has {kinds[0]}, so what is new there must be {kinds[0]}; got "
                        f"{kinds[1]}.")
    value, off = mine.scale.locate(new.ratings)
    if off.any():
        raise DataError(f"domain {mine.name!r}: new ratings must be on its scale, {mine.scale}; got "
                        f"{written(new.ratings[int(off.argmax())])} and {int(off.sum()) - 1} more. Another scale needs "
                        f"a new fit.")
    if (mine.time is None) != (new.time is None):
        has, lacks = ("have", "has none") if mine.time is None else ("lack", "has some")
        raise DataError(f"domain {mine.name!r}: new rows {has} times, and the domain {lacks}; both or neither must "
                        f"have them.")
    columns: dict[str, Any] = {"user": np.concatenate([mine.user, new.user]),
                               "item": np.concatenate([mine.item, new.item]),
                               "value": np.concatenate([mine.value, value.astype(np.uint8)])}
    if mine.time is not None and new.time is not None:
        columns["time"] = np.concatenate([mine.time, new.time])
    if mine.events:
        columns["weight"] = np.concatenate([_strengths(d) for d in (mine, new)])
    return merged(replace(mine, **columns), "last")


def _strengths(d: Domain) -> NDArray[np.float32]:
    return np.ones(len(d), np.float32) if d.weight is None else d.weight


def _without(data: Ratings, name: str, pairs: Any) -> Ratings:
    """Without the ratings of some pairs of users and items; the users and items themselves stay."""
    _check_known(data, name)
    d = data[name]
    if isinstance(pairs, tuple):
        if len(pairs) != 2:
            raise DataError(f"domain {name!r}: what is removed must be (users, items); got {len(pairs)}")
        columns = [as_column(c) for c in pairs]
    else:
        columns = frame_columns(pairs, {"user_col": None, "item_col": None}, f"domain {name!r}")
    users, items = (known.encode(coded(c).values()) for known, c in zip((d.users, d.items), columns, strict=True))
    if len(users) != len(items):
        raise DataError(f"domain {name!r}: users and items to be removed must be equally many; got {len(users):,} and "
                        f"{len(items):,}")
    there = (users >= 0) & (items >= 0)
    pair = d.user.astype(np.int64) * max(1, d.n_items) + d.item
    gone = np.isin(pair, users[there].astype(np.int64) * max(1, d.n_items) + items[there])
    if gone.sum() < len(users):
        warnings.warn(f"{len(users) - int(gone.sum()):,} of {len(users):,} ratings of {name!r} that are to be removed "
                      f"are not there.", UserWarning, stacklevel=5)
    return data.select({name: ~gone})
