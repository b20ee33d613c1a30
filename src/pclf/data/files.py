"""Files: CSV, TSV, .dat and Parquet as coded columns, a block at a time.

Memory holds the codes (12 bytes a rating) and a few blocks, however long the file. What a text file holds is
coded as text, and only the distinct values are looked at afterwards: ids become numbers where every one is
written as a whole number, and an ISBN keeps its leading zero.
"""

import codecs
import csv
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pclf.data.columns import Coded, as_column, coded, coded_parts, find_columns
from pclf.errors import DataError, did_you_mean

SEPARATORS = ("::", "\t", ";", "|", ",")
TEXT, PARQUET = (".csv", ".tsv", ".dat", ".data", ".txt"), (".parquet", ".pq")
PACKED = (".gz", ".bz2", ".zst", ".lz4")
FORMULA = r"=+\-@\t\r\n＝＋－＠"    # what makes a spreadsheet run a text that begins with it
BLOCK = 1 << 24    # bytes of text parsed at a time
AHEAD = 4          # blocks that may wait to be encoded
BATCH = 1 << 20    # rows of a Parquet file decoded at a time

Names = Mapping[str, str | None]


def read(path: str | os.PathLike[str], names: Names, encoding: str = "utf-8") -> list[Coded]:
    """The columns of a file that are asked for, such as user, item and rating."""
    import pyarrow as pa

    file = Path(path).expanduser()
    if file.is_dir():
        raise DataError(f"{file} must be a file; it is a folder")
    if not file.exists():
        there = sorted(f.name for f in file.parent.iterdir()) if file.parent.is_dir() else []
        raise FileNotFoundError(did_you_mean(file.name, there, f"file in {file.parent}"))
    try:
        codecs.lookup(encoding)
    except LookupError:
        known = "encoding must be a name that Python knows, such as 'utf-8' or 'latin-1'"
        raise DataError(f"{known}; got {encoding!r}") from None
    kind = next((s.lower() for s in reversed(file.suffixes) if s.lower() not in PACKED), "")
    if kind not in TEXT + PARQUET:
        raise DataError(f"{file}: the suffix must be one of {', '.join(TEXT + PARQUET)}; got {kind!r}")
    try:
        if kind in PARQUET:
            return _coded(_parquet_batches(file, names), len(names), file)
        form = _form(file, names, encoding)
        columns = _coded(_text_batches(file, form, encoding), len(names), file)
        return [replace(_as_numbers(_trimmed(c)), line=1 + form.blank + form.header) for c in columns]
    except (pa.ArrowException, UnicodeError) as error:
        hint = " Pass encoding=..., for example 'latin-1'." if "utf" in str(error).lower() else ""
        raise DataError(f"{file} must be a whole {'Parquet file' if kind in PARQUET else 'table of text'}; "
                        f"{error}.{hint}") from None


def _coded(batches: Iterator[Any], n_columns: int, file: Path) -> list[Coded]:
    """Each block is encoded while the next is read; at the end the blocks get one dictionary."""
    import pyarrow as pa

    parts: list[list[Future[Any]]] = [[] for _ in range(n_columns)]
    with ThreadPoolExecutor() as pool:
        for batch in batches:
            for column, part in zip(batch.columns, parts, strict=True):
                part.append(pool.submit(_encoded, column))
                if len(part) > AHEAD:   # so that few blocks wait in memory
                    part[-AHEAD - 1].result()
    if not any(len(part.result()) for part in parts[0]):
        raise DataError(f"{file} must have at least one row of data; got none")
    made = []
    while parts:   # a column's parts are let go before the next column is put together
        made.append(coded_parts([part.result() for part in parts.pop(0)]))
    pa.default_memory_pool().release_unused()
    return made


def _encoded(column: Any) -> Any:
    import pyarrow as pa

    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return plain.dictionary_encode()


def _parquet_batches(file: Path, names: Names) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, memory_map=True) as table:
        columns = find_columns(table.schema_arrow.names, names, str(file))
        for batch in table.iter_batches(BATCH, columns=columns):
            yield batch.select(columns)


class Form(NamedTuple):
    """How a text file is written."""

    separator: str
    fields: list[str]     # names of all columns
    found: list[str]      # of those that are asked for
    header: bool          # or the first line holds values already
    blank: int            # lines before it
    quoted: bool          # values may have line ends in them


def _form(file: Path, names: Names, encoding: str) -> Form:
    import pyarrow as pa

    with pa.input_stream(str(file), compression="detect") as stream:
        opening = stream.read(1 << 16).decode(encoding, errors="replace").removeprefix("\ufeff")
    lines = opening.splitlines()
    blank = next((i for i, line in enumerate(lines) if line.strip()), len(lines))      # lines before the first
    if blank == len(lines):
        raise DataError(f"{file} must have at least one row of data; it is empty")
    line = lines[blank]
    separator = max(SEPARATORS, key=line.count)
    fields = line.split("::") if separator == "::" else next(csv.reader([line], delimiter=separator), [])
    fields = [field.strip() for field in fields]
    last = max((i for i, role in enumerate(names) if role != "title_col"), default=0)   # a number, if not its name
    header = not _is_number(*fields[last:last + 1])
    if not header:
        _check_unnamed(fields, names, file)
        fields = [*names, *(f"column {i}" for i in range(len(names), len(fields)))]
    found = list(names)
    if header:
        try:
            found = find_columns(fields, names, str(file))
        except DataError as error:
            raise DataError(f"{error}, or put a line of names first if this one holds values already") from None
    return Form(separator, fields, found, header, blank, '"' in opening)


def _text_batches(file: Path, form: Form, encoding: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    fields = form.fields
    if form.separator == "::" and "title_col" in form.found:   # titles have colons of their own
        with pa.input_stream(str(file), compression="detect") as stream:
            lines = stream.read().decode(encoding).splitlines()[form.blank + form.header:]
        rows = [line.split("::") for line in lines if line]
        places = [fields.index(name) for name in form.found]
        yield pa.record_batch([pa.array([row[i] for row in rows]) for i in places], form.found)
        return
    if form.separator == "::":   # Arrow splits at one character: every second field is empty
        fields = [label for i, name in enumerate(fields) for label in (name, f"empty {i}")][:-1]
    yield from pc.open_csv(
        str(file),
        pc.ReadOptions(block_size=BLOCK, column_names=fields, skip_rows=form.blank + form.header, encoding=encoding),
        pc.ParseOptions(delimiter=form.separator[0], newlines_in_values=form.quoted),
        pc.ConvertOptions(include_columns=form.found, column_types=dict.fromkeys(form.found, pa.string())))


def _check_unnamed(fields: list[str], names: Names, file: Path) -> None:
    asked = [f"{role}={name!r}" for role, name in names.items() if name is not None]
    if asked:
        raise DataError(f"{file} must name its columns in the first line to be read with {', '.join(asked)}; "
                        f"got {', '.join(fields)[:80]!r}. Without names, the columns are "
                        f"{', '.join(role.removesuffix('_col') for role in names)}.")


def _is_number(field: str = "") -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _trimmed(column: Coded) -> Coded:
    """Without the blanks around values, without the apostrophe that keeps spreadsheets from running one, and with an
    empty one as missing."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column.distinct)
    trimmed = pc.replace_substring_regex(trimmed, rf"^'('*[{FORMULA}])", r"\1")
    trimmed = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    if trimmed.equals(column.distinct):
        return column
    again = coded(as_column(trimmed))
    return Coded(again.codes[column.codes], again.distinct)


def _as_numbers(column: Coded) -> Coded:
    """Whole numbers where every distinct value is written as one: 7 and -3, but not 007, 7.0 or 1e3."""
    import pyarrow as pa

    try:
        found = column.distinct.cast(pa.int64())
    except pa.ArrowInvalid:
        return column
    as_written = found.cast(pa.large_string()).equals(column.distinct)
    return Coded(column.codes, found.to_numpy()) if as_written else column
