"""Parts: ratings in one file, or in many, of any size. They are described here, and read a batch at a time.

    files = RatingFiles({"films": "lake/films/", "books": "lake/books/*.parquet"}, shared_users=True)
"""

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pclf.data import files
from pclf.data.columns import Coded, as_arrow, columns_by_name
from pclf.data.events import DRAWN
from pclf.data.ratings import Column, Ratings, Wanted, check_no_scale, roles_of
from pclf.data.scale import Scale, as_scale, check_levels
from pclf.data.tables import attributes_of
from pclf.errors import DataError, UnknownNameError, brief, did_you_mean

POLICIES = ("error", "last", "mean")
ROLES = ("user_col", "item_col", "rating_col", "weight_col")
LINE = 20          # bytes of a line of text, about
PACKED = 4         # times that text is longer than what it is packed into, about


@dataclass(frozen=True)
class RatingFiles:
    """Ratings on disk: for each domain a file, a folder of files, or a pattern such as "films/2024-*.parquet".

    The parts of a folder are read in the order of their names; names that begin with a dot or a low line are skipped.
    events: the domains without ratings, whose rows say who did what. weight_col: the strengths of these. The other
    fields are those of `Ratings.from_files`.
    """

    paths: Mapping[str, str | os.PathLike[str]]
    user_col: Column = None
    item_col: Column = None
    rating_col: Column = None
    weight_col: Wanted = False
    encoding: str = "utf-8"
    scale: Any = None
    levels: int | None = None
    shared_users: bool = False
    shared_items: bool = False
    duplicates: Literal["error", "last", "mean"] = "error"
    titles: Mapping[str, Mapping[Any, str] | str | os.PathLike[str]] | None = field(default=None, repr=False)
    attributes: Mapping[str, Any] | None = field(default=None, repr=False)
    events: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.paths, Mapping) or not self.paths or not all(
                isinstance(name, str) and isinstance(path, (str, os.PathLike)) for name, path in self.paths.items()):
            raise DataError(f"files must come as a dict {{domain name: path}}; got {brief(self.paths)}")
        if self.duplicates not in POLICIES:
            raise UnknownNameError(did_you_mean(self.duplicates, POLICIES, "policy for duplicates"))
        if self.levels is not None:
            check_levels(self.levels)
        object.__setattr__(self, "events", (self.events,) if isinstance(self.events, str) else tuple(self.events))
        named = [self.scale, self.titles, self.attributes]
        for name in (name for given in named if isinstance(given, Mapping) for name in given):
            if name not in self.paths:
                raise UnknownNameError(did_you_mean(name, self.paths, "domain"))
        for name in self.paths:
            self.columns(name)                          # names that are not there are refused
            if name in self.events:
                check_no_scale(name, as_scale(self.scale, name))

    def parts(self, domain: str) -> list[Path]:
        """The files of a domain, in the order in which they are read."""
        return parts_of(self.paths[domain])

    def columns(self, domain: str) -> dict[str, str | None]:
        """The column of each role, None where it is found by the usual names. Events have no ratings."""
        return roles_of({role: getattr(self, role) for role in ROLES}, domain, self.paths, self.events)

    def scale_of(self, domain: str) -> Scale | None:
        return as_scale((0, 1) if domain in self.events else self.scale, domain)

    def policy(self, domain: str) -> str:
        """What is done when a user rates an item again. Who does something again did it."""
        return "last" if domain in self.events else self.duplicates

    def titles_of(self, domain: str) -> Mapping[Any, str] | None:
        """{item: title}, from a file where that is given."""
        given = (self.titles or {}).get(domain)
        if isinstance(given, (str, os.PathLike)):
            return files.read_titles(given, self.encoding, self.columns(domain)["item_col"])
        return given

    def batches(self, domain: str) -> Iterator[tuple[Path, list[Coded]]]:
        """Users, items and ratings of some rows, and strengths of events, and the file that they are in."""
        for part in self.parts(domain):
            if part.stat().st_size:                       # an empty part is what a job without rows leaves
                for columns in files.batches(part, self.columns(domain), self.encoding):
                    yield part, whole(columns, domain in self.events)

    def read(self) -> Ratings:
        """All of them, in memory."""
        return Ratings.from_files(**vars(self))

    def n_ratings(self) -> int:
        """How many there are: of Parquet as it says, of text about."""
        return sum(self._n_rows.values())

    def n_learned(self) -> int:
        """The same, with the absences that are drawn for events, at most."""
        return with_drawn(self._n_rows, self.events)

    @property
    def _n_rows(self) -> dict[str, int]:
        """How many rows each domain has."""
        return {name: sum(map(_n_rows, self.parts(name))) for name in self.paths}

    def fingerprint(self) -> str:
        """A hash of where the files are, how large they are and when they were written, and of all options."""
        seal = hashlib.sha256(repr(self.told()).encode())
        for name in self.paths:
            for part in self.parts(name):
                seal.update(repr((name, *_written(part))).encode())
        return seal.hexdigest()

    def told(self) -> list[Any]:
        """All options, with what attributes are in place of where they are."""
        plain = [(key, value) for key, value in vars(self).items()
                 if key in RatingFiles.__dataclass_fields__ and key not in ("paths", "attributes")]
        return [plain, [(name, _written(Path(table)) if isinstance(table, (str, os.PathLike)) else
                         [(column, as_arrow(values, column).to_pylist()) for column, values in
                          columns_by_name(table, f"attributes of {name!r}").items()])
                        for name, table in (self.attributes or {}).items()]]

    def with_attributes(self, ratings: Ratings) -> Ratings:
        """Items and what is known about them."""
        if not self.attributes:
            return ratings
        rows = ratings.item_rows if ratings.shared_items else None
        named = {name: self.columns(name)["item_col"] for name in self.paths}
        known, domains = attributes_of(self.attributes, ratings.domains, "items", named,
                                       dict.fromkeys(self.paths, self.encoding), rows)
        return replace(ratings, domains=domains, attributes=known)


def whole(columns: list[Coded], events: bool) -> list[Coded]:
    """Users, items and ratings; of events, each rating is 1, and so is each strength where there is no column."""
    if not events:
        return columns
    user, item, *weight = columns
    one = Coded(np.zeros(len(user), np.int32), np.ones(1), user.rows, user.line)
    return [user, item, one, *(weight or [one])]


def with_drawn(n: Mapping[str, int], events: Collection[str]) -> int:
    """How many ratings and events there are in all domains, with the absences that are drawn for events, at most."""
    return sum(int(own) * (1 + DRAWN * (name in events)) for name, own in n.items())


def parts_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a path means, all of one kind: itself, those in a folder, or those that fit a pattern."""
    found = files.files_of(path)
    kinds = {files.is_text(file): file for file in found}
    if len(kinds) > 1:
        raise DataError(f"{path} must hold parts of one kind, text or Parquet; got {kinds[True].name} and "
                        f"{kinds[False].name}. Say which with a pattern, such as {path}/*{kinds[False].suffix}")
    return found


def _written(path: Path) -> tuple[str, int, int]:
    """Where a file is, how large, and when it was written."""
    found = path.stat()
    return str(path.resolve()), found.st_size, found.st_mtime_ns


def _n_rows(part: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if files.is_text(part):
        return part.stat().st_size * (PACKED if part.suffix.lower() in files.PACKED else 1) // LINE
    try:
        return int(pq.read_metadata(part).num_rows) if part.stat().st_size else 0
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{part} must be a whole Parquet file; {error}") from None
