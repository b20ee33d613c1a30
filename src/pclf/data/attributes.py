"""Attributes: what is known about items, or users, beside their ratings. `pclf.data.features` says how it is read.

A table a domain, a row an item. Its ids are matched as titles are, so 7 finds "7". A column of the same name means the
same in all domains, and so does a value of it: a taste for horror films is a taste for horror.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import door
from pclf.data.domain import count
from pclf.data.features import LEFT_OUT, ColumnInfo, Feature
from pclf.data.vocabulary import Codes, Vocabulary
from pclf.errors import DataError, ModelFileError, UnknownNameError, brief, did_you_mean

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Attributes:
    """What is known about the items (or the users) of all domains, as columns of numbers that mean the same everywhere.

    >>> from pclf import datasets
    >>> facts = datasets.load("demo").attributes
    >>> facts.of("books").shape
    (150, 20)
    >>> facts.facts("books", 0)
    {'region': 'French', 'genre': 'fantasy'}
    """

    columns: tuple[ColumnInfo, ...]
    matrices: dict[str, Any]                  # domain -> (n, P) csr_array of float32, by code
    given: dict[str, NDArray[np.bool_]]       # domain -> (n,) whether there is a row
    unused: dict[str, int]                    # domain -> rows of ids that have no ratings
    whose: str = "items"                      # or users

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What the P columns of the matrices are."""
        return tuple(feature for column in self.columns for feature in column.features)

    def of(self, domain: str) -> Any:
        """The features of all items of a domain, by code; zeros for those without a row.   (n, P) csr_array, float32"""
        return self.matrices[self._checked(domain)]

    def known(self, domain: str) -> NDArray[np.bool_]:
        """Which items of a domain have a row.   (n,)"""
        return self.given[self._checked(domain)]

    def facts(self, domain: str, code: int) -> dict[str, Any]:
        """What is known about one item, by column; values that were left out are not among it."""
        known = {name: values[0] for name, values in self._decoded(self.of(domain)[[code]]).items()}
        return {name: value for name, value in known.items() if value is not None}

    def _decoded(self, matrix: Any) -> dict[str, list[Any]]:
        """The values of each column that rows of features say; None where they say nothing."""
        out, start = {}, 0
        for column in self.columns:
            end = start + len(column.features)
            if end > start:
                out[column.name] = [column.decode(row) for row in matrix[:, start:end].toarray()]
            start = end
        return out

    def to_frame(self, domain: str, ids: Vocabulary) -> dict[str, Any]:
        """What is known about the items of a domain that have a row, as a dict of columns."""
        codes = np.flatnonzero(self.known(domain))
        return {f"{self.whose[:-1]}_id": ids.decode(codes), **self._decoded(self.of(domain)[codes])}

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The features of new items, {"genre": "horror|crime", "year": 1979} each.   (n, P) csr_array, float32

        A column that is not here is an error. A value of a category that is not here is all zeros, and one warning
        counts these. Columns that were left out may be among them.
        """
        made, unknown = self._encoded(rows)
        if n := sum(map(len, unknown.values())):
            some = "; ".join(f"{name} {', '.join(map(brief, values[:3]))}"
                             for name, values in unknown.items() if values)
            warnings.warn(f"{count(n, 'value')} of attributes {'is' if n == 1 else 'are'} unknown and left out: {some}",
                          UserWarning, stacklevel=2)
        return made

    def _encoded(self, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[str, list[str]]]:
        from scipy import sparse

        names = {key(column.name): column.name for column in self.columns}
        for row in rows:
            if not isinstance(row, Mapping):
                raise DataError(f"attributes must be dicts {{column: value}}; got {brief(row)}")
            for name in row:
                if key(name) not in names:
                    raise DataError(f"{did_you_mean(name, names.values(), 'attribute')}")
        by_key = [{key(name): value for name, value in row.items()} for row in rows]
        blocks, unknown = [sparse.csr_array((len(rows), 0), dtype=np.float32)], {}
        for column in self.columns:
            if column.kind != LEFT_OUT:
                values = column.values([row.get(key(column.name)) for row in by_key])
                block, unknown[column.name] = column.encode(values)
                blocks.append(block)
        return sparse.hstack(blocks, format="csr", dtype=np.float32), unknown

    def take(self, codes: Mapping[str, NDArray[Any]]) -> "Attributes":
        """With new codes in some domains: item c is the one that had codes[domain][c] before, or -1 for a new one."""
        matrices, given = dict(self.matrices), dict(self.given)
        for domain, old in codes.items():
            here = old >= 0
            matrices[domain] = rows_of(self.of(domain), old, here)
            given[domain] = np.where(here, self.known(domain)[old], False) if len(self.known(domain)) else here & False
        return replace(self, matrices=matrices, given=given)

    def only(self, domains: Sequence[str]) -> "Attributes":
        """Of some domains; features stay what they are."""
        return replace(self, matrices={d: self.of(d) for d in domains}, given={d: self.known(d) for d in domains},
                       unused={d: n for d, n in self.unused.items() if d in domains})

    def joined(self, other: "Attributes | None", domain: str, mine: Codes, theirs: Codes, n: int) -> "Attributes":
        """With the items of another part of a domain too: these are read anew where only the other has a row.

        mine, theirs: code -> code of n items, for each of the two.
        """
        out = self.take({domain: inverse(mine, n)})
        if other is None:
            return out
        there = np.flatnonzero(other.known(domain))
        new = there[~out.known(domain)[theirs[there]]]
        if not len(new):
            return out
        known = {key(column.name) for column in self.columns}
        columns = {name: values for name, values in other._decoded(other.of(domain)[new]).items()
                   if key(name) in known}
        facts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        facts = facts or [{} for _ in new]
        place = np.full(n, -1, np.int32)
        place[theirs[new]] = np.arange(len(new), dtype=np.int32)
        here = place >= 0
        matrices = {**out.matrices, domain: out.of(domain) + rows_of(self._encoded(facts)[0], place, here)}
        return replace(out, matrices=matrices, given={**out.given, domain: out.known(domain) | here})

    def to_arrays(self, prefix: str = "") -> Arrays:
        """All numbers, as arrays for a file; `description` has the words."""
        out: Arrays = {}
        for z, (domain, matrix) in enumerate(self.matrices.items()):
            out |= {f"{prefix}{z}.data": matrix.data, f"{prefix}{z}.indices": matrix.indices.astype(np.int32),
                    f"{prefix}{z}.indptr": matrix.indptr.astype(np.int64),
                    f"{prefix}{z}.given": self.given[domain].astype(np.uint8)}
        return out

    @property
    def description(self) -> dict[str, Any]:
        """Everything but the arrays, such as JSON can hold."""
        return {"whose": self.whose, "unused": self.unused, "domains": list(self.matrices),
                "columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_arrays(cls, description: Any, arrays: Mapping[str, Any], prefix: str, whose: str,
                    sizes: Mapping[str, int]) -> "Attributes":
        """What `description` and `to_arrays` gave, for so many items a domain. It is from a file, so it is checked."""
        from scipy import sparse

        door.check_keys(whose, description, {"whose": (whose,), "unused": {str: door.at_least_0}, "domains": [str],
                                             "columns": [dict]})
        door.check_names(f"attributes of {whose}", description["domains"], sizes)
        columns = tuple(map(ColumnInfo.from_description, description["columns"]))
        limits = np.concatenate([np.full(len(column.features), column.most) for column in columns] or [np.empty(0)])
        least = np.concatenate([np.full(len(column.features), column.least) for column in columns] or [np.empty(0)])
        matrices, given = {}, {}
        for z, domain in enumerate(description["domains"]):
            name = f"{prefix}{z}"
            door.check_names("the file", arrays, [f"{name}.{part}" for part in ("data", "indices", "indptr", "given")],
                             arrays)
            n = sizes[domain]
            given[domain] = door.check_array(f"{name}.given", arrays[f"{name}.given"], dtype="uint8", high=1,
                                             shape={whose: n}).astype(bool)
            data = door.check_array(f"{name}.data", arrays[f"{name}.data"], dtype="float32", shape={"numbers": None})
            indices = door.check_codes(f"{name}.indices", arrays[f"{name}.indices"], len(limits),
                                       {"numbers": len(data)})
            ends = door.check_array(f"{name}.indptr", arrays[f"{name}.indptr"], dtype="int64", low=0, high=len(data),
                                    shape={f"{whose} and one": n + 1})
            if ends[0] or ends[-1] != len(data) or (np.diff(ends) < 0).any():
                raise ModelFileError(f"{name}.indptr must ascend from 0 to {len(data):,}")
            if (data > limits[indices]).any() or (data < least[indices]).any():
                raise ModelFileError(f"{name}.data must be within what its columns can have")
            matrices[domain] = sparse.csr_array((data, indices, ends), shape=(n, len(limits)))
        if len(matrices) < len(description["domains"]):
            raise ModelFileError("attributes must have every domain once")
        return cls(columns, matrices, given, dict(description["unused"]), whose)

    def __repr__(self) -> str:
        """Who is known, and how each column was understood."""
        lines = [self._summary()]
        cells = [(c.name, c.kind, ", ".join(c.domains)) for c in self.columns]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for column, words in zip(self.columns, cells, strict=True):
            shown = (word.ljust(width) for word, width in zip(words, widths, strict=True))
            lines.append("  ".join(["", *shown, column.found]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [[c.name, c.kind, ", ".join(c.domains), c.found] for c in self.columns]
        body = "".join(f"<tr><td>{'</td><td>'.join(map(escape, row))}</td></tr>" for row in rows)
        return (f"<table><caption>{escape(self._summary())}</caption><thead><tr><th>column</th><th>kind</th>"
                f"<th>domains</th><th>found</th></tr></thead><tbody>{body}</tbody></table>")

    def _summary(self) -> str:
        out = []
        for domain, known in self.given.items():
            text = f"{domain} {known.sum():,} of {len(known):,} {self.whose}"
            if n := self.unused.get(domain):
                text += f" ({count(n, 'row')} of {self.whose} without ratings not used)"
            out.append(text)
        return f"Attributes of {self.whose}: {count(len(self.features), 'feature')}; {', '.join(out)}"

    def _checked(self, domain: str) -> str:
        if domain not in self.matrices:
            raise UnknownNameError(did_you_mean(domain, self.matrices, "domain"))
        return domain


def rows_of(matrix: Any, at: NDArray[Any], here: NDArray[np.bool_]) -> Any:
    """Rows of a sparse matrix by number; zeros where there is none."""
    from scipy import sparse

    padded = sparse.vstack([matrix, sparse.csr_array((1, matrix.shape[1]), dtype=np.float32)], format="csr")
    return padded[np.where(here, at, matrix.shape[0])]


def inverse(codes: NDArray[Any], n: int) -> NDArray[np.int32]:
    """For each of n codes its place in a list of them, or -1."""
    place = np.full(n, -1, np.int32)
    place[codes] = np.arange(len(codes), dtype=np.int32)
    return place


def key(name: object) -> str:
    """The name of a column, as it is compared."""
    return str(name).strip().casefold()
