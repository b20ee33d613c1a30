"""Catalogue: what all blocks have in common, which is everything but the users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import storage
from pclf.data.domain import Domain, count
from pclf.data.ratings import Ratings
from pclf.data.times import MOST
from pclf.data.vocabulary import Vocabulary
from pclf.door import check_array, check_keys, check_names
from pclf.errors import ModelFileError

Numbers = NDArray[np.int64]
PARTS = ("part_users", "part_ratings", "block_ends", "block_rows")


@dataclass(frozen=True)
class Totals:
    """What is counted over all users of a domain."""

    users: int
    ratings: int
    items: Numbers          # (V,)   ratings of each item
    values: Numbers         # (R_z,) and of each value of the scale
    absent: Numbers         # (V,)   absences of each item that clusters see, where these are events
    usual: float            # the strength of the event in the middle


@dataclass(frozen=True, eq=False)
class PartOfDomain(Domain):
    """A domain with some of its users, or with none. What is counted is counted over all of them."""

    totals: Totals | None = None

    @property
    def item_counts(self) -> Numbers:
        return super().item_counts if self.totals is None else self.totals.items

    @property
    def value_counts(self) -> Numbers:
        return super().value_counts if self.totals is None else self.totals.values

    @property
    def usual_strength(self) -> float:
        return super().usual_strength if self.totals is None else self.totals.usual

    @property
    def n_learned(self) -> int:
        """Ratings, or events with the absences that clusters see."""
        assert self.totals is not None
        return self.totals.ratings + int(self.totals.absent.sum())

    @property
    def learned_items(self) -> Numbers:
        """How many of these each item has.   (V,)"""
        assert self.totals is not None
        out: Numbers = self.totals.items + self.totals.absent
        return out

    @property
    def learned_values(self) -> Numbers:
        """And each value of the scale, of which an absence is the lowest.   (R_z,)"""
        assert self.totals is not None
        out = self.totals.values.copy()
        out[0] += self.totals.absent.sum()
        return out

    def sizes(self) -> list[str]:
        """Users, items and ratings in words: of all."""
        if self.totals is None:
            return super().sizes()
        return [count(self.totals.users, "user"), count(self.n_items, "item"),
                count(self.totals.ratings, "event" if self.events else "rating")]


@dataclass(frozen=True)
class Catalogue:
    """Items, scales and sizes of ratings that lie in blocks."""

    ratings: Ratings                # all items, and nobody's ratings; its domains are PartOfDomain
    id_kinds: tuple[str, ...]       # of the users of each domain, "int" or "str"
    overlap: bool                   # whether somebody has ratings in two domains, where users are shared
    part_users: Numbers             # (parts, domains)
    part_ratings: Numbers           # (parts, domains)
    block_ends: Numbers             # (blocks,)  the part behind the last one of each block
    block_rows: Numbers             # (blocks,)  different people, where users are shared

    @property
    def n_parts(self) -> int:
        return len(self.part_users)

    @property
    def n_blocks(self) -> int:
        return len(self.block_ends)

    @property
    def n_ratings(self) -> int:
        return int(self.part_ratings.sum())

    @property
    def n_learned(self) -> int:
        """Ratings, and events with the absences that clusters see."""
        return sum(d.n_learned for d in self.domains)

    @property
    def domains(self) -> "list[PartOfDomain]":
        """All of them, in their order."""
        return [d for d in self.ratings.domains.values() if isinstance(d, PartOfDomain)]

    @property
    def n_users(self) -> int:
        """All of them; where users are shared, each person once."""
        return int((self.block_rows if self.ratings.shared_users else self.part_users).sum())

    def parts(self, block: int) -> range:
        """The parts of a block."""
        return range(int(self.block_ends[block - 1]) if block else 0, int(self.block_ends[block]))

    def part_of(self, keys: NDArray[np.uint64]) -> NDArray[np.uint16]:
        return part_of(keys, self.n_parts)

    def save(self, path: Path, extra: Mapping[str, Any]) -> None:
        """One file, in the form of a model's."""
        arrays, described = self.described()
        storage.save(path, type(self).__name__, {}, self.ratings, arrays, {**described, **extra})

    @classmethod
    def load(cls, path: Path) -> tuple["Catalogue", dict[str, Any]]:
        file = storage.load(path)
        return cls.from_described(file.data, file.arrays, file.extra), file.extra

    def described(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays, and what else JSON can hold, without the items themselves."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in PARTS}
        for z, domain in enumerate(self.domains):
            arrays |= {f"item_counts.{z}": domain.item_counts, f"value_counts.{z}": domain.value_counts}
            if domain.events:
                arrays |= {f"absent_counts.{z}": domain.learned_items - domain.item_counts,
                           f"usual_strength.{z}": np.array([domain.usual_strength])}
        return arrays, {"id_kinds": list(self.id_kinds), "overlap": self.overlap}

    @classmethod
    def from_described(cls, ratings: Ratings, arrays: Mapping[str, NDArray[Any]],
                       extra: Mapping[str, Any]) -> "Catalogue":
        n = len(ratings.domains)
        kinds = [("item", "value", "absent") if d.events else ("item", "value") for d in ratings.domains.values()]
        check_names("the catalogue", arrays, [*PARTS, *(f"{kind}_counts.{z}" for z in range(n) for kind in kinds[z]), *(
            f"usual_strength.{z}" for z in range(n) if len(kinds[z]) > 2)])
        check_keys("the catalogue", {name: extra.get(name) for name in ("id_kinds", "overlap")},
                   {"id_kinds": [("int", "str")], "overlap": bool})
        if len(extra["id_kinds"]) != n:
            raise ModelFileError(f"id_kinds must be those of {n} domains; got {extra['id_kinds']}")
        users, parts = (check_array(name, arrays[name], dtype="int64", shape={"parts": None, "domains": n}, low=0)
                        for name in PARTS[:2])
        ends, rows = (check_array(name, arrays[name], dtype="int64", shape={"blocks": None}, low=0)
                      for name in PARTS[2:])
        if len(users) != len(parts) or len(ends) != len(rows) or not len(ends) or ends[-1] != len(users) or (
                np.diff(ends, prepend=0) <= 0).any():
            raise ModelFileError(f"the blocks must have all {len(users):,} parts among them")
        totals = []
        for z, d in enumerate(ratings.domains.values()):
            sizes = {"item": d.n_items, "value": len(d.scale), "absent": d.n_items}
            of_domain = [check_array(f"{kind}_counts.{z}", arrays[f"{kind}_counts.{z}"], dtype="int64", low=0,
                                     shape={"numbers": sizes[kind]}) for kind in kinds[z]]
            items, values, *absent = of_domain
            usual = check_array(f"usual_strength.{z}", arrays[f"usual_strength.{z}"], dtype="float64", low=1 / MOST,
                                high=float(np.finfo(np.float32).max), shape={"number": 1}) if d.events else np.ones(1)
            totals.append(Totals(int(users[:, z].sum()), int(parts[:, z].sum()), items, values,
                                 absent[0] if absent else np.zeros(d.n_items, np.int64), float(usual[0])))
        return cls(without_users(ratings, totals), tuple(extra["id_kinds"]), extra["overlap"], users, parts, ends, rows)


def without_users(ratings: Ratings, totals: Sequence[Totals]) -> Ratings:
    """The domains with nobody in them, and totals for each."""
    domains: dict[str, Domain] = {}
    for d, own in zip(ratings.domains.values(), totals, strict=True):
        domains[d.name] = PartOfDomain(
            d.name, Vocabulary([]), d.items, np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8),
            d.scale, d.titles, d.events, totals=own)
    return replace(ratings, domains=domains)


def part_of(keys: NDArray[np.uint64], n_parts: int) -> NDArray[np.uint16]:
    """The part that each person belongs to, by the hash of the id: equal ranges of hashes."""
    return ((keys >> np.uint64(32)) * np.uint64(n_parts) >> np.uint64(32)).astype(np.uint16)
