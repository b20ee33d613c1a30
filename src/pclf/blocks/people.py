"""People: the users of a fitted model in Parquet parts, each found by a hash of the id.

A part has for each domain a file with a row a user: `user_id`; `items` and `values`, what the user rated, as codes of
items and positions on the scale; of events their `strengths`; and `membership_0`, `membership_1`, ..., P(k | u) in each
restart. `factors_0`, ... has, of each fit of factors, the user's row, what is known about them, gain, picks and
n_rated, see `factors.fitted.DomainFactors`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.catalogue import Catalogue
from pclf.data.domain import Domain
from pclf.data.ratings import Ratings
from pclf.data.vocabulary import Vocabulary, as_written, hashes
from pclf.door import check_array, check_keys, check_names, opening
from pclf.errors import ModelFileError
from pclf.factors.fitted import FAR

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class PartFile:
    """The users of a part in a domain."""

    users: Vocabulary
    user: NDArray[np.int32]         # (n,) of ratings, by user
    item: NDArray[np.int32]
    value: NDArray[np.uint8]
    memberships: Sequence[Floats]   # (U, K) a restart
    factors: Mapping[int, Floats] = field(default_factory=dict)      # (U, W) of each fit of factors that has the domain
    weight: NDArray[np.float32] | None = None       # (n,) of events

    def write(self, path: Path) -> str:
        """Returns the checksum."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        ends = np.concatenate([[0], np.cumsum(np.bincount(self.user, minlength=len(self.users)))]).astype(np.int32)
        columns = {"user_id": self.users.arrow if len(self.users) else pa.array([], pa.int64()),
                   "items": pa.ListArray.from_arrays(pa.array(ends), pa.array(self.item)),
                   "values": pa.ListArray.from_arrays(pa.array(ends), pa.array(self.value))}
        if self.weight is not None:
            columns["strengths"] = pa.ListArray.from_arrays(pa.array(ends), pa.array(self.weight))
        for name, rows in [*((f"membership_{m}", own) for m, own in enumerate(self.memberships)),
                           *((f"factors_{m}", own) for m, own in self.factors.items())]:
            flat = pa.array(np.ascontiguousarray(rows, np.float32).ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
        part = path.with_suffix(f".{token_hex(8)}")            # of this attempt, if there are several
        pq.write_table(pa.table(columns), part, compression="zstd")
        part.replace(path)
        return checksum(path)

    @classmethod
    def read(cls, path: Path, seal: str, n_members: int, n_clusters: int, widths: Mapping[int, int],
             events: bool) -> "PartFile":
        """What a file holds, if it is the one that was written. widths: of what is kept of each fit of factors. events:
        whether the domain has these, with strengths."""
        import pyarrow.parquet as pq

        if not path.is_file():
            raise ModelFileError(f"{path} must be there: it is a part of the model. Copy the whole folder again.")
        if checksum(path) != seal:
            raise ModelFileError(f"{path} was altered after it was saved: its checksum does not match. Save it again.")
        with opening(path):
            table = pq.read_table(path).combine_chunks()
            lists = ["items", "values", *["strengths"] * events]
            check_names("a part", table.column_names, ["user_id", *lists, *(
                f"membership_{m}" for m in range(n_members)), *(f"factors_{m}" for m in widths)])
            ids, *rated = (_whole(table[name]) for name in ("user_id", *lists))
            lengths = np.diff(rated[0].offsets.to_numpy())
            if not all(np.array_equal(lengths, np.diff(own.offsets.to_numpy())) for own in rated[1:]):
                raise ModelFileError(f"{' and '.join(lists)} must be equally many")
            item, value, *weight = (own.flatten().to_numpy() for own in rated)

            def numbers(name: str, width: int) -> Floats:
                if not len(table):
                    return np.empty((0, width), np.float32)
                found: Floats = _whole(table[name]).flatten().to_numpy().reshape(len(table), -1)
                return found

            rows = [check_array(f"membership_{m}", numbers(f"membership_{m}", n_clusters), dtype="float", sums_to_one=1,
                                shape={"users": len(table), "clusters": n_clusters}) for m in range(n_members)]
            factors = {m: check_array(f"factors_{m}", numbers(f"factors_{m}", width), dtype="float32", low=-FAR,
                                      high=FAR, shape={"users": len(table), "numbers": width})
                       for m, width in widths.items()}
            user = np.repeat(np.arange(len(table), dtype=np.int32), lengths)
            return cls(Vocabulary(ids), user, item, value, rows, factors, *weight)


@dataclass(frozen=True)
class People:
    """Where the users of a model are."""

    folder: Path                              # of the model
    catalogue: Catalogue
    seals: Sequence[Sequence[str]]            # a part, a domain
    n_members: int
    n_clusters: int
    widths: Sequence[Sequence[int]] = ()      # a fit of factors, a domain: numbers kept of a user, 0 where it has none

    def part(self, number: int) -> tuple[Ratings, list[list[Floats]], list[dict[int, Floats]]]:
        """The ratings of the users of a part, for each restart P(k | u) of the users of each domain, and for each
        domain what is kept of them by each fit of factors."""
        domains: dict[str, Domain] = {}
        rows: list[list[Floats]] = [[] for _ in range(self.n_members)]
        factors: list[dict[int, Floats]] = []
        for z, (name, d) in enumerate(self.catalogue.ratings.domains.items()):
            path = path_of(self.folder, z, number)
            widths = {m: own[z] for m, own in enumerate(self.widths) if own[z]}
            found = PartFile.read(path, self.seals[number][z], self.n_members, self.n_clusters, widths, d.events)
            factors.append(dict(found.factors))
            with opening(path):
                domains[name] = replace(d, users=found.users, user=found.user, item=found.item, value=found.value,
                                        weight=found.weight)
            for member, own in zip(rows, found.memberships, strict=True):
                member.append(own)
        return replace(self.catalogue.ratings, domains=domains), rows, factors

    def part_of(self, ids: Sequence[Any]) -> NDArray[np.uint16]:
        """The part in which each id is, if it is anywhere."""
        import pyarrow as pa

        return self.catalogue.part_of(hashes(pa.array([as_written(id) for id in ids], pa.large_string())))

    def described(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, extra = self.catalogue.described()
        return arrays, {**extra, "seals": [list(own) for own in self.seals], "members": self.n_members,
                        "clusters": self.n_clusters, "widths": [list(own) for own in self.widths]}

    @classmethod
    def from_described(cls, folder: Path, ratings: Ratings, arrays: Mapping[str, NDArray[Any]],
                       extra: Mapping[str, Any]) -> "People":
        catalogue = Catalogue.from_described(ratings, arrays, extra)
        seals = extra.get("seals")
        if not isinstance(seals, list) or len(seals) != catalogue.n_parts or any(
                len(own) != len(ratings.domains) for own in seals):
            raise ModelFileError(f"there must be a checksum for each domain of each of the {catalogue.n_parts:,} parts")
        widths = extra.get("widths", [])
        check_keys("people", {"widths": widths}, {"widths": [[int]]})
        if any(len(own) != len(ratings.domains) or min(own) < 0 for own in widths):
            raise ModelFileError(f"widths must be those of {len(ratings.domains)} domains; got {widths}")
        return cls(folder, catalogue, seals, int(extra["members"]), int(extra["clusters"]),
                   widths)


def path_of(folder: Path, z: int, part: int) -> Path:
    return folder / "users" / str(z) / f"part-{part:05d}.parquet"


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole(column: Any) -> Any:
    """A column of a table as one array."""
    import pyarrow as pa

    combined = column.combine_chunks()
    if not isinstance(combined, pa.ChunkedArray):
        return combined
    return combined.chunk(0) if combined.num_chunks else pa.array([], column.type)
