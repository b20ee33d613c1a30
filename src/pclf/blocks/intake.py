"""Intake: from files of ratings to blocks of users, in two passes and in little memory.

The first reads every part of every domain, a batch at a time, gives codes to items and to the different ratings, and
sends each rating to the spool of the part that its user belongs to. The second takes the spools one after another:
users get codes, repeated pairs are merged or refused, and the ratings are added to their block.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.block import Block
from pclf.blocks.catalogue import Catalogue, Numbers, Totals, part_of, without_users
from pclf.blocks.strengths import HALVES, Middle, lower_halves, upper_halves
from pclf.data.columns import Coded, check_present, numbers, python_values
from pclf.data.domain import Domain, merged, repeated_pairs, titles_of
from pclf.data.events import CLUSTERS, Urn
from pclf.data.files import as_whole_numbers, is_text
from pclf.data.parts import RatingFiles, with_drawn
from pclf.data.ratings import Ratings
from pclf.data.scale import Scale, written
from pclf.data.times import strengths
from pclf.data.vocabulary import Vocabulary, hashes
from pclf.engines.cpu import CpuEngine
from pclf.errors import DataError, EngineError, brief
from pclf.problem import Layout, Problem, View

RECORD = np.dtype([("key", "<u8"), ("item", "<i4"), ("rating", "<u2")])      # a rating, in a spool
KINDS = ("ratings", "weight", "id", "length", "text")                        # of spools
MOST = 1 << 16            # different ratings of a domain
NOTHING = np.empty(0, np.int32), np.empty(0, np.int32)
LARGEST_PART = 4096       # parts at most: their numbers have two bytes, and files cost

COUNTS = 4                # arrays of counts of each domain, see `Builder.nothing`

Middles = dict[int, Middle]                     # of each domain of events
Advance = Callable[..., None]
Sized = Callable[[Ratings, int, int], int]      # items, ratings, with absences of events, and users -> blocks


@dataclass
class Found:
    """What the first pass learns about a domain."""

    name: str
    scale: Scale | None
    text: bool                                                               # whether the files are, and not Parquet
    items: dict[Any, int] = field(default_factory=dict)
    ratings: dict[float, int] = field(default_factory=dict)
    item_counts: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    kinds: dict[str, tuple[str, str]] = field(default_factory=dict)         # of users and items, and where from
    whole_numbers: bool = True                                               # all users that came as text

    def take(self, columns: Sequence[Coded], where: str) -> "Batch":
        """A batch of ratings, checked. where: the part that it is of."""
        users, items, ratings, *weights = columns
        check_present(users, f"{where}: user ids")
        check_present(items, f"{where}: item ids")
        values = numbers(ratings, where)
        for role, column in (("user", users), ("item", items)):
            self.check_kind(role, column, where)
        if self.scale is not None:
            _check_scale(self.scale, values, ratings, where)
        keys = keys_of(users.distinct)
        self.whole_numbers &= self.text and isinstance(as_whole_numbers(users.distinct), np.ndarray)
        item = self.codes(items, self.items)
        of_rating = self.codes(Coded(ratings.codes, values), self.ratings)
        if len(self.ratings) > MOST:
            raise DataError(f"{where}: ratings must lie on a scale of few values; got more than {MOST:,} different "
                            f"ones. Round them to a scale first.")
        counts = np.bincount(item, minlength=len(self.items))
        counts[:len(self.item_counts)] += self.item_counts
        self.item_counts = counts
        return Batch(keys, users, item, of_rating, strengths(weights[0], where).astype(np.float32) if weights else None)

    def check_any(self) -> None:
        if not self.items:
            raise DataError(f"domain {self.name!r} must have at least one row of data; got none. Leave the domain out.")

    def codes(self, column: Coded, known: dict[Any, int]) -> NDArray[np.int64]:
        """The codes of a batch's values, here; what was not met before gets the next one."""
        own = np.fromiter((known.setdefault(value, len(known)) for value in python_values(column.distinct)), np.int64,
                          len(column.distinct))
        return own[column.codes]

    def check_kind(self, role: str, column: Coded, part: str) -> None:
        if isinstance(column.distinct, np.ndarray):
            kind = "whole numbers" if column.distinct.dtype.kind == "i" else "numbers with fractions"
        else:
            kind = "values of several types" if isinstance(column.distinct, tuple) else "text"
        if kind not in ("whole numbers", "text"):
            raise DataError(f"{part}: {role} ids must be whole numbers or text; got {kind}. Write them as one of "
                            f"these.")
        before = self.kinds.setdefault(role, (kind, part))
        if before[0] != kind:
            raise DataError(f"domain {self.name!r}: {role} ids must be of one type in all parts; got {before[0]} in "
                            f"{before[1]} and {kind} in {part}. Write them all as text.")


class Batch(NamedTuple):
    """Some ratings: hashes of the different users, and codes."""

    keys: NDArray[np.uint64]
    users: Coded
    item: NDArray[np.int64]
    rating: NDArray[np.int64]
    weight: NDArray[np.float32] | None          # of events


class Spools:
    """A file of ratings and one of ids for each part and domain."""

    def __init__(self, folder: Path, n_parts: int) -> None:
        self.folder, self.n_parts = folder, n_parts

    def add(self, z: int, key: NDArray[np.uint64], item: NDArray[Any], rating: NDArray[Any],
            weight: NDArray[np.float32] | None) -> None:
        records = np.empty(len(key), RECORD)
        records["key"], records["item"], records["rating"] = key, item, rating
        for part, some in self._split(key):
            with self._path(part, z, "ratings").open("ab") as file:
                records[some].tofile(file)
            if weight is not None:
                with self._path(part, z, "weight").open("ab") as file:
                    weight[some].tofile(file)

    def add_ids(self, z: int, key: NDArray[np.uint64], ids: Any) -> None:
        """Whole numbers as they are; texts as lengths and bytes."""
        for part, some in self._split(key):
            if isinstance(ids, np.ndarray):
                with self._path(part, z, "id").open("ab") as file:
                    ids[some].tofile(file)
                continue
            texts = [text.encode(errors="surrogatepass") for text in ids.take(some).to_pylist()]
            with self._path(part, z, "length").open("ab") as file:
                np.array([len(text) for text in texts], np.int32).tofile(file)
            with self._path(part, z, "text").open("ab") as file:
                file.write(b"".join(texts))

    def ratings(self, part: int, z: int) -> NDArray[Any]:
        return self._read(part, z, "ratings", RECORD)

    def weights(self, part: int, z: int) -> NDArray[Any]:
        return self._read(part, z, "weight", np.dtype(np.float32))

    def ids(self, part: int, z: int) -> Any:
        """As an array of whole numbers, or as an Arrow array of texts. An id is there once for each batch it was in."""
        import pyarrow as pa

        if not self._path(part, z, "length").exists():
            return self._read(part, z, "id", np.dtype(np.int64))
        ends = np.concatenate([[0], np.cumsum(self._read(part, z, "length", np.dtype(np.int32)), dtype=np.int64)])
        text = self._path(part, z, "text").read_bytes()
        return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(text))

    def remove(self, part: int, n_domains: int) -> None:
        for z in range(n_domains):
            for kind in KINDS:
                self._path(part, z, kind).unlink(missing_ok=True)

    def _split(self, key: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.intp]]]:
        parts = part_of(key, self.n_parts)
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(self.n_parts + 1))
        return ((part, order[a:b]) for part, (a, b) in enumerate(pairwise(ends.tolist())) if a < b)

    def _read(self, part: int, z: int, kind: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        path = self._path(part, z, kind)
        return np.fromfile(path, dtype) if path.exists() else np.empty(0, dtype)

    def _path(self, part: int, z: int, kind: str) -> Path:
        return self.folder / f"{part:05d}.{z}.{kind}"


def take_in(files: RatingFiles, folder: Path, n_parts: int, sized: Sized, advance: Advance) -> Catalogue:
    """Blocks of these files in a folder, which must be empty. sized: how many blocks there should be."""
    check_parts(n_parts)
    spools = Spools(folder / "spool", n_parts)
    spools.folder.mkdir(parents=True)
    found = [_read(files, z, name, spools, advance) for z, name in enumerate(files.paths)]
    ratings = items_of(files, found)
    ends = block_ends(files, spools, ratings, found, sized)
    builder = Builder(files, spools, ratings, found)
    total = builder.nothing(ends)
    for b in range(len(ends)):
        answer = builder.block(folder / f"{b:05d}", b, ends)
        for part in parts_of_block(ends, b):
            spools.remove(part, len(found))
        for whole, own in zip(total, answer, strict=True):
            whole += own
        advance(int(answer[1].sum()), "blocks")
    shutil.rmtree(folder / "spool")

    def asked(middles: Middles) -> Sequence[Numbers]:
        answers = [lower_of(folder, middles, b) for b in range(len(ends))]
        return [np.sum(own, axis=0) for own in zip(*answers, strict=True)]

    return catalogue_of(ratings, builder.kinds, ends, total, asked)


def check_parts(n_parts: int) -> None:
    if not 1 <= n_parts <= LARGEST_PART:
        raise EngineError(f"there must be 1 to {LARGEST_PART:,} parts; got {n_parts:,}.")


def block_ends(files: RatingFiles, spools: Spools, ratings: Ratings, found: Sequence[Found], sized: Sized) -> Numbers:
    """The part behind the last one of each block."""
    n_users = spools.n_parts * sum(len(np.unique(spools.ratings(0, z)["key"])) for z in range(len(found)))
    n_learned = with_drawn({f.name: f.item_counts.sum() for f in found}, files.events)
    n_blocks = min(spools.n_parts, max(1, sized(ratings, n_learned, n_users)))
    return (np.arange(1, n_blocks + 1) * spools.n_parts // n_blocks).astype(np.int64)


def catalogue_of(ratings: Ratings, kinds: tuple[str, ...], ends: Numbers, total: Sequence[Numbers],
                 asked: Callable[[Middles], Sequence[Numbers]]) -> Catalogue:
    """What all blocks have in common, from what their answers add up to. asked: the sum of `lower_of` of all blocks."""
    part_users, part_ratings, block_rows, *counts = total
    overlap = ratings.shared_users and block_rows.sum() < part_users.sum()
    middles = {z: Middle.of(upper) for z, upper in enumerate(counts[3::COUNTS]) if len(upper)}
    usual = dict.fromkeys(range(len(kinds)), 1.0)
    if middles:
        usual |= {z: own.median(lower) for (z, own), lower in zip(middles.items(), asked(middles), strict=True)}
    n_users, n_ratings = (own.sum(axis=0).tolist() for own in (part_users, part_ratings))
    totals = [Totals(n_users[z], n_ratings[z], items, values, absent, usual[z]) for z, (items, values, absent) in
              enumerate(zip(*(counts[i::COUNTS] for i in range(3)), strict=True))]
    return Catalogue(without_users(ratings, totals), kinds, bool(overlap), part_users, part_ratings, ends, block_rows)


def lower_of(folder: Path, middles: Middles, b: int) -> list[Numbers]:
    """What a block says of the strengths in the middle of domains of events."""
    block = Block(folder / f"{b:05d}", (), (), 0)
    return [lower_halves(block.column(z, "weight"), middle) for z, middle in middles.items()]


def _read(files: RatingFiles, z: int, name: str, spools: Spools, advance: Advance) -> Found:
    """The first pass over a domain."""
    found = Found(name, files.scale_of(name), is_text(files.parts(name)[0]))
    for part, columns in files.batches(name):
        batch = found.take(columns, str(part))
        spools.add(z, batch.keys[batch.users.codes], batch.item, batch.rating, batch.weight)
        spools.add_ids(z, batch.keys, batch.users.distinct)
        advance(len(batch.users), f"reading {name}")
    found.check_any()
    return found


def _check_scale(scale: Scale, values: NDArray[np.float64], ratings: Coded, where: str) -> None:
    _, off = scale.locate(values)
    if off.any():
        rows = np.isin(ratings.codes, np.flatnonzero(off))
        got = written(values[ratings.codes[rows.argmax()]])
        raise DataError(f"{where}: ratings must be on the scale {scale}; got {got} {ratings.where(rows)}. "
                        f"Pass scale=..., or round them first.")


def keys_of(ids: Any) -> NDArray[np.uint64]:
    """Hashes of the distinct ids of a batch, as text."""
    import pyarrow as pa

    return hashes((pa.array(ids) if isinstance(ids, np.ndarray) else ids).cast(pa.large_string()))


def items_of(files: RatingFiles, found: Sequence[Found]) -> Ratings:
    """Items, scales and levels."""
    domains: dict[str, Domain] = {}
    vocabularies = []
    for own in found:
        numbered = own.kinds["item"][0] == "whole numbers"
        items = Vocabulary(np.array(list(own.items), np.int64) if numbered else list(own.items))
        vocabularies.append(Vocabulary(as_whole_numbers(items.arrow)) if own.text else items)
    if files.shared_items and {v.kind for v in vocabularies} == {"int", "str"}:
        vocabularies = [v.as_text() for v in vocabularies]
    none, empty = np.empty(0, np.int32), Vocabulary([])
    for own, items in zip(found, vocabularies, strict=True):
        where = f"domain {own.name!r}"
        scale = own.scale or Scale.infer(list(own.ratings), where)
        domains[own.name] = Domain(own.name, empty, items, none, none, np.empty(0, np.uint8), scale,
                                   titles_of(items, files.titles_of(own.name), where), own.name in files.events)
    return files.with_attributes(Ratings(domains, files.levels or 0, files.shared_users, files.shared_items))


class Builder:
    """The second pass: parts, one after another, into blocks."""

    def __init__(self, files: RatingFiles, spools: Spools, ratings: Ratings, found: Sequence[Found]) -> None:
        self.files, self.spools, self.ratings = files, spools, ratings
        self.domains, self.found = list(ratings.domains.values()), found
        kinds = ["int" if f.kinds["user"][0] == "whole numbers" or f.whole_numbers else "str" for f in found]
        self.kinds = tuple(["str"] * len(kinds) if files.shared_users and len(set(kinds)) > 1 else kinds)
        self.positions = [d.scale.locate(np.array(list(f.ratings)))[0]
                          for d, f in zip(self.domains, found, strict=True)]
        self.urns = {z: Urn.of(d, CLUSTERS) for z, d in enumerate(self.domains) if d.events}
        layout = Layout(1, tuple(View(d.name, (z,), 1) for z, d in enumerate(self.domains)))
        self.whole, self.engine = Problem.of(ratings, layout), CpuEngine()

    def nothing(self, ends: Numbers) -> list[Numbers]:
        """Users and ratings of each part, rows of each block, and of each domain ratings by item and by value, absences
        by item, and strengths of events by the upper halves of their bits: none."""
        shape = self.spools.n_parts, len(self.domains)
        counts = [np.zeros(n, np.int64) for d in self.domains
                  for n in (d.n_items, len(d.scale), d.n_items, HALVES * d.events)]
        return [np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(len(ends), np.int64), *counts]

    def block(self, folder: Path, number: int, ends: Numbers) -> list[Numbers]:
        """Written whole: columns, people, index. Returns what it adds to `nothing`."""
        folder.mkdir()
        n_domains, out = len(self.domains), self.nothing(ends)
        users, ratings, rows, *counts = out
        block = Block(folder, (0,) * n_domains, (0,) * n_domains, 0)
        for part in parts_of_block(ends, number):
            for z in range(n_domains):
                domain, keys = self._part(part, z)
                absent = self._append(block, z, domain, keys)
                users[part, z], ratings[part, z] = len(keys), len(domain)
                for count, more in zip(counts[COUNTS * z:], (domain.item_counts, domain.value_counts, absent),
                                       strict=False):
                    count += more
                if domain.weight is not None:
                    counts[COUNTS * z + 3] += upper_halves(domain.weight)
            block = replace(block, n_users=tuple(users.sum(axis=0).tolist()),
                            n_ratings=tuple(ratings.sum(axis=0).tolist()))
        if self.ratings.shared_users:
            tied = _rows([block.column(z, "key") for z in range(n_domains)])
            for z, own in enumerate(tied):
                block.append(z, "row", own)
            block = replace(block, n_rows=1 + max((int(own.max()) for own in tied if len(own)), default=-1))
        rows[number] = block.n_rows
        to_levels = [d.scale.to_levels(self.ratings.n_levels) for d in self.domains]
        block.make_index(self.engine, block.problem(self.whole, to_levels, False, False))
        return out

    def _part(self, part: int, z: int) -> tuple[Domain, NDArray[np.uint64]]:
        """The users of a part in a domain, by key, with their ratings, by user."""
        own, records = self.domains[z], self.spools.ratings(part, z)
        keys, user = np.unique(records["key"], return_inverse=True)
        users = self._ids(part, z, keys)
        order = np.argsort(user, kind="stable")                      # ratings of a user stay in the order of the files
        domain = replace(own, users=users, user=user[order].astype(np.int32), item=records["item"][order],
                         value=self.positions[z][records["rating"]][order],
                         weight=self.spools.weights(part, z)[order] if own.events else None)
        repeated = repeated_pairs(Coded(domain.user, users.array()), Coded(domain.item, own.items.array()))
        if repeated is None:
            return domain, keys
        policy = self.files.policy(own.name)
        if policy == "error":
            row = int(repeated.argmax())
            self._refuse(own.name, users.decode([domain.user[row]])[0], own.items.decode([domain.item[row]])[0])
        return merged(domain, policy), keys

    def _ids(self, part: int, z: int, keys: NDArray[np.uint64]) -> Vocabulary:
        import pyarrow as pa

        ids = self.spools.ids(part, z)
        own = keys_of(ids)
        _, first, each = np.unique(own, return_index=True, return_inverse=True)
        texts = ids if isinstance(ids, np.ndarray) else np.asarray(ids.to_numpy(zero_copy_only=False), object)
        clash = texts[first][each] != texts
        if clash.any():
            row = int(clash.argmax())
            raise EngineError(f"users {brief(texts[first[each[row]]])} and {brief(texts[row])} of "
                              f"{self.domains[z].name!r} have the same hash of 64 bits, so they cannot be told apart. "
                              f"Rename one of them.")
        chosen = ids[first] if isinstance(ids, np.ndarray) else ids.take(first)
        if len(chosen) and self.kinds[z] == "int":
            chosen = as_whole_numbers(chosen)
        elif isinstance(chosen, np.ndarray):
            chosen = pa.array(chosen).cast(pa.large_string())
        return Vocabulary(chosen)

    def _refuse(self, name: str, user: Any, item: Any) -> None:
        """An error about a pair that is rated twice, with the file and the row, which are looked for again."""
        seen, place = 0, ""
        for part, (users, items, *_) in self.files.batches(name):
            same = [np.isin(column.codes, [code for code, value in enumerate(python_values(column.distinct))
                                           if str(value) == str(wanted)])
                    for column, wanted in ((users, user), (items, item))]
            both = same[0] & same[1]
            for row in np.flatnonzero(both):
                seen += 1
                if seen == 2:
                    one = np.zeros(len(both), bool)
                    one[row] = True
                    place = f" {users.where(one)} of {part}"
        raise rated_twice(name, user, item, place)

    def _append(self, block: Block, z: int, domain: Domain, keys: NDArray[np.uint64]) -> Numbers:
        """Returns how many absences each item has."""
        user, item = self.urns[z].absences(domain.user, domain.item, keys) if z in self.urns else NOTHING
        block.append(z, "absent_user", user + np.int32(block.n_users[z]))
        block.append(z, "absent_item", item)
        if domain.weight is not None:
            block.append(z, "weight", domain.weight)
        self._append_ids(block, z, domain, keys)
        return np.bincount(item, minlength=domain.n_items)

    def _append_ids(self, block: Block, z: int, domain: Domain, keys: NDArray[np.uint64]) -> None:
        block.append(z, "user", domain.user + np.int32(block.n_users[z]))
        block.append(z, "item", domain.item)
        block.append(z, "value", domain.value)
        block.append(z, "key", keys)
        if self.kinds[z] == "int":
            block.append(z, "id", domain.users.array() if len(domain.users) else np.empty(0, np.int64))
            return
        texts = [str(id).encode(errors="surrogatepass") for id in domain.users.ids]
        start = len(block.column(z, "text"))
        block.append(z, "text_end", start + np.cumsum([len(text) for text in texts], dtype=np.int64))
        block.append(z, "text", np.frombuffer(b"".join(texts), np.uint8))


def rated_twice(name: str, user: Any, item: Any, place: str) -> DataError:
    return DataError(f"domain {name!r}: a user must rate an item once; user {brief(user)} rates item {brief(item)} "
                     f"again{place}. Pass duplicates='last' or 'mean'.")


def _rows(keys: Sequence[NDArray[np.uint64]]) -> list[NDArray[np.int32]]:
    """Which of all people each user is, in the order in which domains first have them."""
    together = np.concatenate(keys)
    _, first, each = np.unique(together, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return np.split(rank[each], np.cumsum([len(k) for k in keys])[:-1])


def parts_of_block(ends: Numbers, b: int) -> range:
    return range(int(ends[b - 1]) if b else 0, int(ends[b]))
