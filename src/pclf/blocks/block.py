"""Block: some of the users, with all their ratings, in files that are mapped into memory when they are needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.catalogue import Catalogue
from pclf.data.vocabulary import Vocabulary
from pclf.engines.cpu import CpuEngine, Index
from pclf.problem import Problem, row_keys

TYPES = {"user": np.int32, "item": np.int32, "value": np.uint8, "key": np.uint64, "row": np.int32, "id": np.int64,
         "text": np.uint8, "text_end": np.int64, "groups": np.int64, "member": np.uint8, "tiles": np.int64,
         "index": np.int32, "spans": np.int64, "absent_user": np.int32, "absent_item": np.int32,
         "weight": np.float32}


@dataclass(frozen=True)
class Block:
    """Columns of each domain: user, item and value of ratings, by user; key and id of users, by key; an index.

    An event has a weight. Beside events are the absences that clusters see: absent_user and absent_item. Where people
    are shared, `row` says which of them a user is.
    """

    folder: Path
    n_users: tuple[int, ...]        # of each domain
    n_ratings: tuple[int, ...]
    n_rows: int                     # different people, where users are shared

    def column(self, z: int, name: str) -> NDArray[Any]:
        """A column of a domain. Pages come from the file when they are read; what is written stays in memory."""
        path = self._path(z, name)
        if not path.exists() or not path.stat().st_size:
            return np.empty(0, TYPES[name])
        return np.asarray(np.memmap(path, TYPES[name], "c"))

    def append(self, z: int, name: str, values: NDArray[Any]) -> None:
        with self._path(z, name).open("ab") as file:
            np.ascontiguousarray(values, TYPES[name]).tofile(file)

    def problem(self, whole: Problem, to_levels: Sequence[NDArray[np.uint8]], tied: bool, overlap: bool,
                keyed: bool = False, rated: bool = True) -> Problem:
        """The ratings of this block under a layout, with absences among events.

        whole: the same for items. tied: whether the users of domains that have one id have one row. overlap: whether
        some have. rated: without the ratings themselves otherwise; there is an index of them.
        """
        domains = range(len(self.n_users))
        ends = np.cumsum([0, *self.n_users]).tolist()
        rows = [self.column(z, "row") if tied else np.arange(a, b, dtype=np.int32)
                for z, (a, b) in enumerate(pairwise(ends))]
        n_rows = self.n_rows if tied else ends[-1]
        user, item, value = zip(*(self._learned(z) if rated else self._counted(z) for z in domains), strict=True)
        level = [v if len(table) == whole.n_levels and (table == np.arange(len(table))).all() else table[v]
                 for table, v in zip(to_levels, value, strict=True)] if rated else value
        return replace(
            whole, n_users=n_rows, user=user, item=item, level=tuple(level), user_rows=tuple(rows),
            user_groups=((0, n_rows),) if (tied and overlap) or len(ends) == 2 else tuple(pairwise(ends)),
            user_keys=row_keys([self.column(z, "key") for z in domains], rows, tied) if keyed else None)

    def _learned(self, z: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """User, item and value of what clusters see."""
        user, item, value = (self.column(z, name) for name in ("user", "item", "value"))
        who, what = (self.column(z, name) for name in ("absent_user", "absent_item"))
        if not len(who):
            return user, item, value
        return np.concatenate([user, who]), np.concatenate([item, what]), np.append(value, np.zeros(len(who), np.uint8))

    def _counted(self, z: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """As many ratings as clusters see, of which nothing is said."""
        n = self.n_ratings[z] + len(self.column(z, "absent_user"))
        user, item, value = (np.broadcast_to(np.zeros(1, TYPES[name]), n) for name in ("user", "item", "value"))
        return user, item, value

    def ids(self, z: int, users: slice, kind: str) -> Vocabulary:
        """The ids of some users of a domain."""
        if kind == "int":
            return Vocabulary(self.column(z, "id")[users])
        ends, text = self.column(z, "text_end"), self.column(z, "text")
        starts = np.concatenate([[0], ends])[users.start:users.stop + 1]
        return Vocabulary([bytes(text[a:b]).decode(errors="surrogatepass") for a, b in pairwise(starts.tolist())])

    def make_index(self, engine: CpuEngine, problem: Problem) -> None:
        """Put the ratings in the order of a sweep, once for all iterations."""
        for z, index in engine.indices(problem, [z for z, n in enumerate(self.n_ratings) if n]).items():
            for name, values in (("groups", index.groups), ("member", index.member), ("tiles", index.tiles),
                                 ("index", index.item), ("spans", np.array(index.parts, np.int64).ravel())):
                self._path(z, name).unlink(missing_ok=True)
                self.append(z, name, values)

    def indices(self, problem: Problem) -> dict[int, Index]:
        out = {}
        for z in range(len(self.n_users)):
            if self.n_ratings[z]:
                parts = tuple((int(a), int(b)) for a, b in self.column(z, "spans").reshape(-1, 2))
                groups, member, tiles, item = (self.column(z, name) for name in ("groups", "member", "tiles", "index"))
                out[z] = Index(groups, member, tiles, item, problem.user_rows[z], parts)
        return out

    def _path(self, z: int, name: str) -> Path:
        return self.folder / f"{z}.{name}"


def block_of(catalogue: Catalogue, folder: Path, b: int) -> Block:
    """A block of those in a folder."""
    parts = catalogue.parts(b)
    n_users, n_ratings = (numbers[parts.start:parts.stop].sum(axis=0).tolist()
                          for numbers in (catalogue.part_users, catalogue.part_ratings))
    return Block(folder / f"{b:05d}", tuple(n_users), tuple(n_ratings), int(catalogue.block_rows[b]))


def slices_of(catalogue: Catalogue, b: int, together: int,
              each: Sequence[int] | None = None) -> Iterator[list[slice]]:
    """The users of a block, as many parts of them at a time as make so many ratings: where they are, in each domain. A
    person is in one part, whatever the domains.

    each: what a rating of each domain counts, if not 1.
    """
    parts = catalogue.parts(b)
    ratings = catalogue.part_ratings[parts.start:parts.stop]
    group = np.cumsum(ratings.sum(axis=1) if each is None else ratings @ np.array(each)) // together
    ends = np.cumsum(catalogue.part_users[parts.start:parts.stop], axis=0)[np.append(np.diff(group) > 0, True)]
    start = np.zeros_like(ends[0])
    for stop in ends:
        yield [slice(a, z) for a, z in zip(start.tolist(), stop.tolist(), strict=True)]
        start = stop


def same_people(block: Block, users: Sequence[slice]) -> list[NDArray[Any]]:
    """Which of these people each user of each domain is."""
    rows = [block.column(z, "row")[some] for z, some in enumerate(users)]
    _, each = np.unique(np.concatenate(rows), return_inverse=True)
    return np.split(each, np.cumsum([len(own) for own in rows])[:-1])
