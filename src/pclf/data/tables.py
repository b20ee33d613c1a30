"""Tables of attributes: whose they are, which ids they are about, and what in them cannot be meant."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.data.attributes import Attributes, inverse, key, rows_of
from pclf.data.columns import (
    ALIASES,
    Coded,
    as_arrow,
    as_column,
    check_present,
    coded,
    columns_by_name,
    find_alias,
    plain_name,
)
from pclf.data.domain import Domain
from pclf.data.features import LEFT_OUT, ColumnInfo, understood
from pclf.data.forms import Part
from pclf.data.vocabulary import Codes, Vocabulary
from pclf.errors import DataError, brief, did_you_mean

TOO_FEW = 0.01   # the share of ids that match, up to which the column must be a wrong one


class NothingTellsError(DataError):
    """Tables of attributes without a column that is of use."""


class Table(NamedTuple):
    """A table of attributes as it came: its columns, and the line of its file where the first row is."""

    where: str
    columns: dict[str, Any]
    line: int | None = None

    def arrow(self, name: str, rows: NDArray[np.intp]) -> Any:
        from pclf.data import files

        values = as_arrow(self.columns[name], f"{self.where}: column {brief(name)}").take(rows)
        return values if self.line is None else files.given(values)

    def at(self, row: int) -> str:
        return f"row {row:,}" if self.line is None else f"line {row + self.line:,}"


class _Matched(NamedTuple):
    """A table whose ids are found: of which rows, and of which items by code."""

    table: Table
    id_col: str
    rows: NDArray[np.intp]
    codes: Codes

    def place(self, row: int) -> str:
        return f"{self.table.where}, {self.table.at(int(self.rows[row]))}"


def attributes_of(given: Mapping[str, Any], domains: Mapping[str, Domain], whose: str,
                  id_cols: Mapping[str, str | None], encodings: Mapping[str, str] = {},
                  shared: Sequence[Codes] | None = None) -> tuple[Attributes, dict[str, Domain]]:
    """The attributes of "items" or "users", and the domains with the titles that were found among them.

    given: a frame or the path of a file for each domain that has one. id_cols: the column of ids, where one was named.
    shared: for each domain, code -> row, where the same id is the same thing: what is known of it in one domain is
    known in all.
    """
    called = "attributes" if whose == "items" else "user_attributes"
    if not isinstance(given, Mapping):
        raise DataError(f"{called} must be a dict {{domain: frame}}; got {type(given).__name__}")
    for name in given:
        if name not in domains:
            raise DataError(f"{called} must be of domains that have ratings; {did_you_mean(name, domains, 'domain')}")
    domains = dict(domains)
    matched: dict[str, _Matched] = {}
    columns: dict[str, tuple[str, dict[str, str]]] = {}     # by name without case: as first written, and by domain
    left_out: dict[str, list[str]] = {}
    for name, source in given.items():
        where = f"{called} of {name!r}"
        table = _table(source, encodings.get(name, "utf-8"), where)
        matched[name] = found = _matched(table, domains[name], whose, id_cols.get(name))
        for column in found.table.columns:
            if column == found.id_col:
                continue
            if plain_name(column) in ALIASES["title_col"]:
                left_out.setdefault(column, []).append(name)
                if whose == "items" and domains[name].titles is None:
                    domains[name] = _titled(domains[name], found, column)
                continue
            same = columns.setdefault(key(column), (column, {}))[1]
            if name in same:
                raise DataError(f"{where}: column names must differ; got {brief(column)} twice, apart from letter case")
            same[name] = column
    made = _made(domains, matched, columns.values(), whose)
    why = "it is a title, to show" if whose == "items" else "it is a name, to show"
    titles = [ColumnInfo(column, LEFT_OUT, why, tuple(names)) for column, names in left_out.items()]
    made = replace(made, columns=(*made.columns, *titles))
    if not made.features:
        reasons = "; ".join(f"{brief(column.name)}: {column.found}" for column in made.columns[:20])
        reasons = reasons or "no other column"
        raise NothingTellsError(f"{called} must have a column that tells {whose} apart; got none beside the ids "
                                f"({reasons}). Add one, or leave {called} out.")
    return (made if shared is None else _filled(made, shared)), domains


def _made(domains: Mapping[str, Domain], matched: Mapping[str, _Matched],
          columns: Iterable[tuple[str, dict[str, str]]], whose: str) -> Attributes:
    """All columns of all domains as features."""
    from scipy import sparse

    sizes = {name: len(getattr(d, whose)) for name, d in domains.items()}
    infos, blocks = [], {name: [sparse.csr_array((n, 0), dtype=np.float32)] for name, n in sizes.items()}
    for label, by_domain in columns:
        parts = [Part(name, matched[name].table.arrow(column, matched[name].rows), matched[name].place)
                 for name, column in by_domain.items()]
        ends = np.cumsum([len(part.values) for part in parts])
        info, matrix = understood(label, parts, np.append(0, ends[:-1]))
        infos.append(info)
        if matrix is None:
            continue
        by_part = {part.domain: matrix[end - len(part.values):end] for part, end in zip(parts, ends, strict=True)}
        for name, n in sizes.items():
            block = sparse.csr_array((n, matrix.shape[1]), dtype=np.float32)
            if name in by_part:
                place = inverse(matched[name].codes, n)
                block = rows_of(by_part[name], place, place >= 0)
            blocks[name].append(block)
    given = {name: np.zeros(n, bool) for name, n in sizes.items()}
    for name, found in matched.items():
        given[name][found.codes] = True
    unused = {name: len(next(iter(found.table.columns.values()))) - len(found.rows) for name, found in matched.items()}
    matrices = {name: sparse.hstack(blocks[name], format="csr", dtype=np.float32) for name in sizes}
    return Attributes(tuple(infos), matrices, given, unused, whose)


def _table(source: Any, encoding: str, where: str) -> Table:
    from pclf.data import files

    if isinstance(source, (str, os.PathLike)):
        return Table(where, *files.read_table(source, encoding))
    index = getattr(getattr(source, "index", None), "name", None)
    if index is not None and index not in source.columns:          # pandas keeps ids there
        source = source.reset_index()
    table = Table(where, columns_by_name(source, where))
    for name, values in table.columns.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise DataError(f"{where}: column {brief(name)} must be a sequence or an array; got {brief(values)}")
    lengths = {name: len(values) for name, values in table.columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{where}: columns must be equally long; got "
                        f"{', '.join(f'{name} {n:,}' for name, n in lengths.items())}")
    return table


def _matched(table: Table, domain: Domain, whose: str, id_col: str | None) -> _Matched:
    """The rows of ids that have ratings. A table that cannot be what it is said to be is an error."""
    names, where = list(table.columns), table.where
    role, other = ("item_col", "user_col") if whose == "items" else ("user_col", "item_col")
    column = id_col if id_col in names else find_alias(names, role)
    if column is None:
        _check_whose(table, domain, whose, other)
        column = _of_known_ids(table, getattr(domain, whose))
    if column is None:
        raise DataError(f"{where}: there must be a column of ids like {role.replace('col', 'id')!r}; got "
                        f"{', '.join(map(brief, names[:20])) or 'no columns'}. Rename the one with the ids to that.")
    ids = _ids(table, column)
    if not len(ids):
        raise DataError(f"{where} must have at least one row; got none. Leave the domain out.")
    check_present(ids, f"{where}: ids in {brief(column)}")
    known: Vocabulary = getattr(domain, whose)
    _check_once(ids.codes, ids, table)
    codes = known.find(ids.distinct)[ids.codes]
    rows = np.flatnonzero(codes >= 0)
    most = min(len(codes), len(known))
    if len(rows) <= TOO_FEW * most:
        _check_whose(table, domain, whose, other, column)
        n, some = len(rows), Vocabulary.of(ids).decode([0])[0]
        raise DataError(f"{where} must be of its {whose}, which have ids like {brief(known.decode([0])[0])}; the "
                        f"column {brief(column)} has ids like {brief(some)}, and {n:,} of {len(codes):,} "
                        f"{'is' if n == 1 else 'are'} among them. This is probably the wrong column, or the table of "
                        f"another domain: rename the right column to {role.replace('col', 'id')!r} and this one to "
                        f"something else.")
    _check_once(codes[rows], ids, table, rows)
    _check_whose(table, domain, whose, other, column)
    return _Matched(table, column, rows, codes[rows])


def _of_known_ids(table: Table, known: Vocabulary) -> str | None:
    """The one column whose values are ids that were rated, most of them and none twice, whatever it is called.

    A name that is such an id is a value: then the file has no line of names.
    """
    found = []
    for name in table.columns:
        try:
            ids = _ids(table, name)
        except DataError:                     # lists, texts of many lines
            continue
        n, matching = len(ids), int((known.find(ids.distinct) >= 0).sum()) if len(ids.distinct) else 0
        if 0 < n == len(ids.distinct) and (ids.codes >= 0).all() and 2 * matching > min(n, len(known)) and \
                known.find([name])[0] < 0:
            found.append(name)
    return found[0] if len(found) == 1 else None


def _check_once(codes: Codes, ids: Coded, table: Table, rows: NDArray[np.intp] | None = None) -> None:
    """Whether codes differ, which are those of some rows of the table, or of all."""
    counts = np.bincount(codes)
    if counts.max(initial=0) < 2:
        return
    twice = np.flatnonzero(codes == codes[np.argmax(counts[codes] > 1)])[:2]
    first, again = (twice if rows is None else rows[twice]).tolist()
    others = int((counts > 1).sum()) - 1
    some = Vocabulary.of(ids).decode([ids.codes[first]])[0]
    raise DataError(f"{table.where} must have one row an id; got {brief(some)} in {table.at(first)} and "
                    f"{table.at(again)}{f', and {others:,} more ids twice' if others else ''}. Keep one row each; "
                    f"several values go into one field, as a|b.")


def _check_whose(table: Table, domain: Domain, whose: str, other: str, id_col: str | None = None) -> None:
    """Whether this is a table about users that was given as one about items, or the other way round."""
    others = "users" if whose == "items" else "items"
    name = find_alias([name for name in table.columns if name != id_col], other)
    if whose == "users" and name is not None and not plain_name(name).endswith(("id", "item", "isbn", "asin")):
        return   # somebody's favourite artist is an attribute
    if name is None:
        return
    ids = _ids(table, name)
    matching = int((getattr(domain, others).find(ids.distinct) >= 0).sum()) if len(ids.distinct) else 0
    right = "user_attributes" if whose == "items" else "attributes"
    if matching > TOO_FEW * len(ids.distinct):
        raise DataError(f"{table.where} must be about {whose}; its column {brief(name)} has ids of {others}, "
                        f"{matching:,} of {len(ids.distinct):,}. Pass a table about {others} as {right}=..., and leave "
                        f"the column out of one about {whose}.")
    raise DataError(f"{table.where} must not have an attribute that is called like the ids of {others}; got "
                    f"{brief(name)}. Rename it if it is an attribute, or leave it out.")


def _ids(table: Table, name: str) -> Coded:
    """A column of ids, as a ratings table has them."""
    from pclf.data import files

    ids = coded(as_column(table.columns[name]))
    if table.line is None:
        return ids
    ids = replace(files.tidied(ids), line=table.line)
    files.check_one_line(ids, f"{table.where}: ids in {brief(name)}")
    return ids


def _titled(domain: Domain, found: _Matched, column: str) -> Domain:
    shown = [str(id) for id in domain.items.ids]
    for code, title in zip(found.codes.tolist(), found.table.arrow(column, found.rows).to_pylist(), strict=True):
        if title is not None and str(title).strip():
            shown[code] = str(title).strip()
    return replace(domain, titles=tuple(shown))


def _filled(made: Attributes, shared: Sequence[Codes]) -> Attributes:
    """With what is known of an item in one domain also in the others that have it."""
    from scipy import sparse

    names = list(made.matrices)
    ends = np.cumsum([len(made.given[name]) for name in names])
    rows, known = np.concatenate(shared), np.concatenate([made.given[name] for name in names])
    source = np.full(1 + int(rows.max(initial=-1)), -1, np.int32)
    at = np.flatnonzero(known)[::-1]                                  # so that the first domain has the last word
    source[rows[at]] = at
    at = np.where(known, np.arange(len(rows)), source[rows]).astype(np.int32)
    together = rows_of(sparse.vstack([made.matrices[name] for name in names], format="csr"), at, at >= 0)
    bounds = list(zip(names, [0, *ends[:-1]], ends, strict=True))
    return replace(made, matrices={name: together[a:b] for name, a, b in bounds},
                   given={name: (at >= 0)[a:b] for name, a, b in bounds})
