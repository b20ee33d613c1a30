"""Delimited rating files as Arrow tables: fast, and never silent about a broken line."""

import warnings
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pclf.data.ratings import Ratings
from pclf.data.tables import NothingTellsError
from pclf.errors import DataError

UNIT = b"\x1f"   # stands in for separators of several characters: Arrow splits at a single one
NO_GENRES = "(no genres listed)"
YEAR = r"\((?P<year>\d{4})[^()]*\)\s*$"
NUMBER = {"int": r"^-?[0-9]{1,18}$", "float": r"^-?[0-9]{1,18}(\.[0-9]*)?$"}


class DataWarning(UserWarning):
    """Some lines of a file were broken and left out: `path`, `count`, `first_line` (the first line is 1)."""

    def __init__(self, path: Path, count: int, n_lines: int, first_line: int, text: str) -> None:
        self.path, self.count, self.first_line = path, count, first_line
        super().__init__(f"{path}: left out {count:,} broken of {n_lines:,} lines; "
                         f"the first is line {first_line}: {text!r}")


def read(path: Path, columns: Mapping[str, str], *, separator: str, header: Mapping[str, str] | None = None,
         quoted: bool = False, encoding: str = "utf-8", scale: Sequence[float] = ()) -> Any:
    """The wanted columns of a text file as a pyarrow Table.

    `columns` maps names to "int", "float", "id", "text" or "any", a text that may be empty. Without a header they are
    the first columns of the file; `header` gives the name that each has in the first line, in lower case. A line is
    broken, left out and reported when it has another number of fields than the others, when a number is none, when a
    text is empty, or when its "rating" is not on the scale. Unless `quoted` (true CSV), quotes are no syntax but are
    trimmed off numbers and ids: a stray one costs its own line at most, never the lines up to the next quote.
    """
    import pyarrow as pa
    import pyarrow.csv as csv

    original = path.read_bytes().rstrip(b" \r\n")
    data, delimiter = _utf8(original, encoding), separator
    if len(separator) > 1:
        data, delimiter = data.replace(separator.encode(), UNIT), UNIT.decode()
    fields = _fields(path, data, delimiter, columns, header, _shape(columns, separator))
    uneven: list[int] = []

    def leave_out(row: Any) -> str:
        uneven.append(row.number)
        return "skip"

    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=fields,
                            skip_rows=0 if header is None else 1),
            csv.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False,
                             newlines_in_values=quoted, ignore_empty_lines=False,
                             invalid_row_handler=leave_out),
            csv.ConvertOptions(include_columns=list(columns), strings_can_be_null=False,
                               column_types=dict.fromkeys(columns, pa.string())))
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} cannot be read as {_shape(columns, separator)}: {error}") from error

    good = np.ones(table.num_rows, bool)
    for name, kind in columns.items():
        column, fits = _converted(table[name], kind, quoted)
        table = table.set_column(table.schema.get_field_index(name), name, column)
        good &= fits
    if scale:
        snapped, fits = _on_scale(table["rating"].to_numpy(), np.asarray(scale, float))
        table = table.set_column(table.schema.get_field_index("rating"), "rating", pa.array(snapped))
        good &= fits
    if good.all() and not uneven:
        return table
    _report(path, original, good, np.array(uneven, int), header is not None, _shape(columns, separator))
    return table.filter(pa.array(good))


def names(path: Path, separator: str) -> list[str]:
    """The fields of the first line, in small letters and without quotes."""
    with path.open("rb") as file:
        line = file.readline().decode("latin-1")
    return [field.strip(' "\r\n\ufeff').lower() for field in line.split(separator)]


def width(path: Path, separator: str) -> int:
    """How many fields the first line has."""
    return len(names(path, separator))


def titles(path: Path, columns: Mapping[str, str], **options: Any) -> dict[Any, str]:
    """The dict {item_id: title} of a file with these two columns; empty where there is no such file."""
    if not path.is_file():
        return {}
    table = read(path, columns, **options)
    return dict(zip(table["item_id"].to_pylist(), table["title"].to_pylist(), strict=True))


def films(path: Path, columns: Mapping[str, str], **options: Any) -> tuple[dict[Any, str], Any]:
    """The titles of such a file, and a table of attributes: genre, from the column "genres", and year, from the end of
    the title."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not path.is_file():
        return {}, None
    table = read(path, columns, **options)
    shown = dict(zip(table["item_id"].to_pylist(), table["title"].to_pylist(), strict=True))
    genres = pc.if_else(pc.equal(table["genres"], NO_GENRES), None, table["genres"])
    year = pc.struct_field(pc.extract_regex(table["title"], YEAR), "year").cast(pa.int64())
    return shown, pa.table({"item_id": table["item_id"], "genre": genres, "year": year})


def ratings(frames: Mapping[str, Any], facts: Mapping[str, Any], **options: Any) -> Ratings:
    """Ratings with attributes, where these tell items apart; those of the options come before ours."""
    facts = options.pop("attributes", {domain: table for domain, table in facts.items() if table is not None})
    try:
        return Ratings.from_frames(frames, attributes=facts, **options)
    except NothingTellsError:      # a part of a data set may be too small for it
        return Ratings.from_frames(frames, **options)


def matrix(path: Path, variable: str) -> Any:
    """The variable of a MATLAB file: a NumPy array, or a SciPy sparse matrix."""
    from scipy.io import loadmat

    try:
        found = loadmat(path)
    except (ValueError, TypeError, NotImplementedError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as a MATLAB file: {error}") from error
    if variable not in found:
        raise DataError(f"{path} must have the variable {variable}; "
                        f"got {', '.join(v for v in found if not v.startswith('__')) or 'none'}")
    return found[variable]


def _utf8(data: bytes, encoding: str) -> bytes:
    if data.isascii():
        return data
    try:
        return data.decode(encoding).removeprefix("\ufeff").encode()
    except UnicodeDecodeError:
        return data.decode("latin-1").encode()   # cannot fail; an odd letter is better than no data


def _fields(path: Path, data: bytes, delimiter: str, columns: Mapping[str, str],
            header: Mapping[str, str] | None, shape: str) -> list[str]:
    """A name for each field of a line, ours for the columns we want."""
    lines = data[:100_000].decode(errors="replace").split("\n")[:100]
    if not data:
        raise DataError(f"{path} is empty; it must have lines of {shape}")
    if header is None:
        n_fields = Counter(line.count(delimiter) + 1 for line in lines).most_common(1)[0][0]
        if n_fields < len(columns):
            raise DataError(f"{path} must have lines of {shape}; got {lines[0][:80]!r}")
        return [*columns, *(f"other {i}" for i in range(len(columns), n_fields))]
    found = [field.strip(' "\r').lower() for field in lines[0].split(delimiter)]
    missing = [theirs for theirs in header.values() if theirs not in found]
    if missing:
        raise DataError(f"{path} must have the columns {', '.join(header.values())} in its first line; "
                        f"{', '.join(missing)} not among: {', '.join(found)[:200]}")
    ours = {theirs: name for name, theirs in header.items()}
    return [ours.get(field, f"other {i}") for i, field in enumerate(found)]


def _converted(column: Any, kind: str, quoted: bool) -> tuple[Any, np.ndarray]:
    """The column as its kind, and which of its fields are of that kind."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not quoted:
        column = pc.utf8_trim(column, " " if kind in ("text", "any") else ' "\\')
    if kind == "any":
        return pc.if_else(pc.equal(column, ""), None, column), np.ones(len(column), bool)
    if kind in ("id", "text"):
        return column, pc.not_equal(column, "").to_numpy()
    wanted = pa.int64() if kind == "int" else pa.float64()
    try:
        return column.cast(wanted), np.ones(len(column), bool)
    except pa.ArrowInvalid:
        fits = pc.match_substring_regex(column, NUMBER[kind])
        return pc.if_else(fits, column, "0").cast(wanted), fits.to_numpy()


def _on_scale(values: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = np.searchsorted(scale, values - 1e-6).clip(max=len(scale) - 1)
    return scale[at], np.abs(scale[at] - values) <= 1e-6   # NaN is not


def _report(path: Path, original: bytes, good: np.ndarray, uneven: np.ndarray, header: bool,
            shape: str) -> None:
    """One warning for all broken lines; a file that has little else is an error."""
    n_lines = len(good) + len(uneven)
    lines = np.setdiff1d(np.arange(n_lines) + 1 + header, uneven)   # of the rows that were parsed
    broken = np.union1d(uneven, lines[~good])
    first = int(broken[0])
    text = original.split(b"\n", first)[first - 1].rstrip(b"\r").decode("latin-1")[:80]
    if len(broken) > n_lines / 2:
        raise DataError(f"{path} must have lines of {shape}; {len(broken):,} of {n_lines:,} are not, "
                        f"the first is line {first}: {text!r}")
    warnings.warn(DataWarning(path, len(broken), n_lines, first, text), stacklevel=5)


def _shape(columns: Mapping[str, str], separator: str) -> str:
    return (" TAB " if separator == "\t" else separator).join(columns)
