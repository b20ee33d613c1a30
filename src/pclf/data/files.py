"""Files: CSV, TSV, .dat and Parquet as coded columns, a block at a time.

Memory holds the codes (12 bytes a rating) and a few blocks, however long the file. What a text file holds is
coded as text, and only the distinct values are looked at afterwards: ids become numbers where every one is
written as a whole number, and an ISBN keeps its leading zero.
"""

import codecs
import csv
import glob
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pclf.data.columns import Coded, as_column, coded, coded_parts, find_alias, find_columns
from pclf.errors import DataError, MissingFileError, brief, did_you_mean, visible

SEPARATORS = ("::", "\t", ";", "|", ",")      # one blank where there is none of these
TEXT, PARQUET = (".csv", ".tsv", ".dat", ".data", ".txt"), (".parquet", ".pq")
PACKED = (".gz", ".bz2", ".zst", ".lz4")
FORMULA = r"=+\-@\t\r\n＝＋－＠"    # what makes a spreadsheet run a text that begins with it
BLOCK = 1 << 24    # bytes of text parsed at a time
AHEAD = 4          # blocks that may wait to be encoded
OPENING = 1 << 16  # bytes in which the first line must end
CHUNK = 1 << 20    # bytes of a file of titles read at a time
ROWS = 1 << 17     # of them
RAGGED = r"Expected \d+ columns, got \d+"
ENDS = r"\r\n|\n|\r"     # of lines, for Arrow; Python knows eight more
BATCH = 1 << 20    # rows of a Parquet file decoded at a time

Names = Mapping[str, str | None]


def read(path: str | os.PathLike[str], names: Names, encoding: str = "utf-8", skip_bad: int = 0) -> list[Coded]:
    """The columns that are asked for, such as user, item and rating, of a file, of all files in a folder, or of those
    that a pattern such as ratings-*.csv finds.

    skip_bad: rows with too many or too few fields that may be left out, in all.
    """
    files = [_checked(file, encoding) for file in files_of(path)]
    kinds = {kind in PARQUET for _, kind in files}
    if len(kinds) > 1:
        raise DataError(f"{path} must have files of text or Parquet files; got both")
    bad, first = Ragged(skip_bad), files[0][0]
    with _whole(Path(path) if len(files) > 1 else first, files[0][1]):
        if kinds == {True}:
            return _coded(_each(files, lambda file: _parquet_batches(file, names)), len(names), Path(path))
        form = form_of(first, names, encoding)
        columns = _coded(_each(files, lambda file: _text_batches(
            file, form if file == first else form_of(file, names, encoding), encoding, bad)), len(names), Path(path))
        line = 1 + form.blank + form.header if len(files) == 1 and not bad.n else None
        columns = [replace(tidied(c), line=line) for c in columns]
    bad.say()
    for role, column in zip(names, columns, strict=True):
        if role != "title_col":
            check_one_line(column, f"{path}: {role.removesuffix('_col')}s")
    return columns


class Ragged:
    """Rows with too many or too few fields: how many may be left out, and how many were."""

    def __init__(self, most: int = 0) -> None:
        self.most, self.n = most, 0
        self.first = ""

    def left_out(self, file: Path, n_fields: int, expected: int, text: str) -> bool:
        """Whether a row may be left out, which is counted."""
        if not self.n:
            self.first = f"{file}: {brief(text)} has {n_fields} fields and not {expected}"
        self.n += 1
        return self.n <= self.most

    def say(self) -> None:
        if self.n:
            rows, are = ("row", "is") if self.n == 1 else ("rows", "are")
            warnings.warn(f"{self.n:,} {rows} with too many or too few fields {are} left out. The first is in "
                          f"{self.first}.", UserWarning, stacklevel=5)


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that are meant: one, those of a folder, or those that a pattern finds, in the order of their names."""
    file, pattern = _home(path), any(letter in os.fspath(path) for letter in "*?[")
    if file.is_dir():
        found = [one for one in sorted(file.rglob("*")) if one.is_file() and _kind(one) in TEXT + PARQUET
                 and not any(part.startswith((".", "_")) for part in one.relative_to(file).parts)]
        if not found:
            raise DataError(f"{file} must have files ending in {', '.join(TEXT + PARQUET)}; it has none")
        return found
    if pattern and not file.exists():
        found = [Path(one) for one in sorted(glob.glob(str(file), recursive=True)) if Path(one).is_file()]  # noqa: PTH207
        if not found:
            raise MissingFileError(f"no file is called like {os.fspath(path)!r}.")
        return found
    return [file]


def _each(files: list[tuple[Path, str]], batches: Callable[[Path], Iterator[Any]]) -> Iterator[Any]:
    """The batches of all files, one file after the other."""
    for file, kind in files:
        with _whole(file, kind):
            yield from batches(file)


def read_titles(path: str | os.PathLike[str], encoding: str = "utf-8", item_col: str | None = None) -> dict[Any, str]:
    """{item: title} from a table: the column that names items, as in the ratings, and the one called title or name."""
    item, title = (column.values() for column in read(path, {"item_col": item_col, "title_col": None}, encoding))
    return {i: str(t) for i, t in zip(item, title, strict=True) if i is not None and t is not None}


def batches(path: str | os.PathLike[str], names: Names, encoding: str = "utf-8") -> Iterator[list[Coded]]:
    """The same a batch of rows at a time, each coded by itself. What a text file holds stays text."""
    file, kind = _checked(path, encoding)
    with _whole(file, kind):
        form = None if kind in PARQUET else form_of(file, names, encoding)
        found = _parquet_batches(file, names) if form is None else _text_batches(file, form, encoding)
        n_rows = 0
        for batch in found:
            columns = [coded_parts([_encoded(column)]) for column in batch.columns]
            if form is not None:
                columns = [replace(_trimmed(c), line=1 + form.blank + form.header) for c in columns]
            at = np.arange(n_rows, n_rows + len(batch))
            n_rows += len(batch)
            columns = [replace(c, rows=at) for c in columns]
            for role, column in zip(names, columns, strict=True):
                if form is not None and role != "title_col":
                    check_one_line(column, f"{file}: {role.removesuffix('_col')}s")
            yield columns


def is_text(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds text, by its suffix."""
    return _checked(path, "utf-8")[1] in TEXT


def read_table(path: str | os.PathLike[str], encoding: str = "utf-8") -> tuple[dict[str, Any], int | None]:
    """All columns of a file with names in its first line, as Arrow arrays; of a text file as text.

    The number is the line of the first row, for a text file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, kind = _checked(path, encoding)
    with _whole(file, kind):
        if kind in PARQUET:
            names, line = pq.read_schema(file).names, None
            _check_different(names, file)
            table = pq.read_table(file)
        else:
            form = _table_form(file, encoding)
            names, line = form.fields, form.blank + 2
            _check_different(names, file)
            schema = pa.schema([(name, pa.string()) for name in names])
            table = pa.Table.from_batches(_text_batches(file, form, encoding), schema)
    if not table.num_rows:
        raise DataError(f"{file} must have at least one row of data; got none")
    columns = dict(zip(names, table.columns, strict=True))
    if line is not None:
        for name, values in columns.items():
            _check_quotes(values, f"{file}: values of {brief(name)}")
    return columns, line


def _checked(path: str | os.PathLike[str], encoding: str) -> tuple[Path, str]:
    """A file that can be read, and its suffix."""
    file = _regular(path)
    _check_encoding(encoding)
    kind = _kind(file)
    if kind not in TEXT + PARQUET:
        raise DataError(f"{file}: the suffix must be one of {', '.join(TEXT + PARQUET)}; got {brief(kind)}")
    return file, kind


def _kind(file: Path) -> str:
    """The ending that says what a file is, under how it is packed."""
    return next((s.lower() for s in reversed(file.suffixes) if s.lower() not in PACKED), "")


@contextmanager
def _whole(file: Path, kind: str) -> Iterator[None]:
    """What parsers say about a broken file, as an error of ours."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, UnicodeError, OSError, csv.Error) as error:
        said = visible(str(error)[:500]).rstrip(".")
        hint = " Pass encoding=..., for example 'latin-1'." if "utf" in said.lower() else ""
        if re.search(RAGGED, said):
            hint = " Pass skip_bad=... to leave so many of such rows out."
        raise DataError(f"{file} must be a whole {'Parquet file' if kind in PARQUET else 'table of text'}; "
                        f"{said}.{hint}") from None


def _home(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:               # ~somebody who is not here, or nobody's home
        return Path(path)


def _regular(path: str | os.PathLike[str]) -> Path:
    file = _home(path)
    if file.is_dir():
        raise DataError(f"{file} must be a file; it is a folder")
    if not file.exists():
        try:
            there = sorted(f.name for f in file.parent.iterdir())
        except (OSError, ValueError):
            there = []
        raise MissingFileError(did_you_mean(file.name, there, f"file in {file.parent}"))
    if not file.is_file():
        raise DataError(f"{file} must be a regular file, which can be read twice; it is a device or a pipe")
    return file


def _check_encoding(encoding: str) -> None:
    try:
        known = codecs.lookup(encoding)
        works = known._is_text_encoding and "1,2\n".encode(encoding).decode(encoding) == "1,2\n"   # not hex, not zlib
    except (LookupError, ValueError, TypeError):
        works = False
    if not works:
        raise DataError(f"encoding must be a name that Python knows, such as 'utf-8' or 'latin-1'; got "
                        f"{brief(encoding)}")


def check_one_line(column: Coded, what: str) -> None:
    """Where a quote is missing, the lines up to the next one would pass for a single id."""
    import pyarrow.compute as pc

    if not isinstance(column.distinct, (np.ndarray, tuple)):
        broken = pc.match_substring_regex(column.distinct, r"[\r\n]").to_numpy(zero_copy_only=False).astype(bool)
        if broken.any():
            rows = np.isin(column.codes, np.flatnonzero(broken))
            raise DataError(f"{what} must not have ends of lines in them; got "
                            f"{brief(column.distinct[int(broken.argmax())].as_py())} {column.where(rows)}. Is there a "
                            f"quote too many before it, or one missing?")


def _check_quotes(values: Any, what: str) -> None:
    """The same for values that may have ends of lines: those that a missing quote made have one of the next quotes."""
    import pyarrow.compute as pc

    broken = pc.and_(pc.match_substring_regex(values, r"[\r\n]"),
                     pc.equal(pc.bit_wise_and(pc.count_substring(values, '"'), 1), 1)).fill_null(False).to_numpy()
    if broken.any():
        raise DataError(f"{what} must not have ends of lines and half a pair of quotes in them; got "
                        f"{brief(values[int(broken.argmax())].as_py())}. Is there a quote missing?")


def _check_different(names: list[str], file: Path) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{file}: column names must differ; got {brief(name)} {names.count(name)} times")


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
    skipped: int          # of these and the header, lines with something in them
    quoted: bool          # values may have line ends in them
    by_line: bool = False           # lines are split one by one: values may have colons of their own
    spare: int | None = None        # the field that separators too many belong to, which is the title


class _Text:
    """A text file as UTF-8, unpacked, read a part at a time; counts its lines on the way."""

    def __init__(self, file: Path, encoding: str) -> None:
        import pyarrow as pa

        self._stream = pa.input_stream(str(file), compression="detect")
        if codecs.lookup(encoding).name == "utf-8":
            with pa.input_stream(str(file), compression="detect") as beginning:
                if beginning.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):      # which says so itself
                    encoding = "utf-16"
        utf8 = codecs.lookup(encoding).name in ("utf-8", "ascii")
        self._decoder = None if utf8 else codecs.getincrementaldecoder(encoding)()
        self._begun, self._in_line = False, False
        self.closed = False
        self.n_lines = 0          # with something in them
        self.has_quotes = False

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes of the file, which may be more or fewer in UTF-8; none at the end."""
        while True:
            part = self._stream.read(size if size >= 0 else None)
            text = part if self._decoder is None else self._decoder.decode(part, final=not part).encode()
            if text and not self._begun:
                self._begun, text = True, text.removeprefix(codecs.BOM_UTF8)
            if text or not part:
                self._count(text, last=not part)
                return text

    def _count(self, text: bytes, last: bool) -> None:
        self.has_quotes = self.has_quotes or b'"' in text
        letters = np.frombuffer(text, np.uint8)
        within = np.zeros(len(letters) + 1 + last, bool)
        within[0] = self._in_line
        np.logical_and(letters != 10, letters != 13, out=within[1:len(letters) + 1])
        self.n_lines += int(np.count_nonzero(within[:-1] & ~within[1:]))
        self._in_line = bool(within[-1])

    def lines(self) -> Iterator[str]:
        """One after the other, split where Arrow splits them, and nowhere else."""
        rest = ""
        decoder = codecs.getincrementaldecoder("utf-8")()
        while part := self.read(CHUNK):
            *whole, rest = re.split(ENDS, rest + decoder.decode(part))
            yield from whole
            if len(rest) > BLOCK:
                raise DataError(f"a line must have at most {BLOCK:,} characters; line {self.n_lines:,} has more")
        yield rest + decoder.decode(b"", final=True)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._stream.close()

    def __enter__(self) -> "_Text":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Opening(NamedTuple):
    """What a text file begins with."""

    lines: list[str]
    blank: int            # lines before the first with something in it
    separator: str
    fields: list[str]     # of that line

    @property
    def skipped(self) -> int:
        """Of the blank lines, those that are not empty."""
        return sum(map(bool, self.lines[:self.blank]))

    @property
    def quoted(self) -> bool:
        return any('"' in line for line in self.lines)


def _opening(file: Path, encoding: str, n_columns: int = 1) -> _Opening:
    """n_columns: as many are asked for. One column alone has no separators, however many blanks there are in it."""
    with _Text(file, encoding) as text:
        lines = re.split(ENDS, text.read(OPENING).decode(errors="replace"))
    blank = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    if blank == len(lines):
        raise DataError(f"{file} must have at least one row of data; it is empty")
    line = lines[blank]
    separator = max(SEPARATORS, key=line.count)
    if n_columns > 1 and not line.count(separator) and line.strip().count(" ") >= n_columns - 1:
        separator = " "
    fields = line.split("::") if separator == "::" else next(csv.reader([line], delimiter=separator), [])
    return _Opening(lines, blank, separator, [field.strip() for field in fields])


def _table_form(file: Path, encoding: str) -> Form:
    found = _opening(file, encoding)
    title = find_alias(found.fields, "title_col")
    return Form(found.separator, found.fields, found.fields, True, found.blank, found.skipped + 1, found.quoted,
                found.separator == "::", None if title is None else found.fields.index(title))


def form_of(file: Path, names: Names, encoding: str) -> Form:
    lines, blank, separator, fields = opening = _opening(file, encoding, len(names))
    titled = separator == "::" and "title_col" in names
    if titled:                                # a title may have separators of its own, in the first line as in others
        sizes = [row.count("::") + 1 for row in (lines if len(lines) < 2 else lines[:-1]) if row.strip()]
        fields = fields[:max(len(names), min(sizes, key=lambda n: (-sizes.count(n), n)))]     # what most lines have
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
    return Form(separator, fields, found, header, blank, opening.skipped + header, opening.quoted, titled,
                fields.index(found[-1]))      # the role that comes last


def _text_batches(file: Path, form: Form, encoding: str, bad: Ragged | None = None) -> Iterator[Any]:
    """The columns that are asked for. Rows are counted as Arrow finds them and as lines: none may be lost."""
    bad = bad or Ragged()
    before = bad.n
    with _Text(file, encoding) as text:
        rows = 0
        batches = _line_batches(text, form, file) if form.by_line else _arrow_batches(text, form, file, bad)
        for batch in batches:
            rows += len(batch)
            yield batch
        rows += bad.n - before
        lines = text.n_lines - form.skipped
    if rows != lines and (rows > lines or not text.has_quotes):
        raise DataError(f"{file} must have a row in each line; got {rows:,} rows in {lines:,} lines. Write it again as "
                        f"plain CSV.")


def _arrow_batches(text: _Text, form: Form, file: Path, bad: Ragged) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    def ragged(row: Any) -> str:
        each = 2 if form.separator == "::" else 1
        n, expected = (1 + (size - 1) // each for size in (row.actual_columns, row.expected_columns))
        return "skip" if bad.left_out(file, n, expected, row.text) else "error"

    fields, types = form.fields, dict.fromkeys(form.found, pa.string())
    if form.separator == "::":   # Arrow splits at one character: every second field is empty, or it was another
        fields = [label for i, name in enumerate(fields) for label in (name, f"between {i}")][:-1]
        types |= {name: pa.null() for name in fields[1::2]}
    for batch in pc.open_csv(
            pa.PythonFile(text, "r"),
            pc.ReadOptions(block_size=BLOCK, column_names=fields, skip_rows=form.blank + form.header),
            pc.ParseOptions(delimiter=form.separator[0], newlines_in_values=form.quoted, invalid_row_handler=ragged),
            pc.ConvertOptions(include_columns=list(types), column_types=types, null_values=[""],
                              strings_can_be_null=False)):
        yield batch.select(form.found)


def _line_batches(text: _Text, form: Form, file: Path) -> Iterator[Any]:
    """Lines such as 7::Alien :: the film::Horror: what is too much belongs to the title."""
    import pyarrow as pa

    title, size = form.spare, len(form.fields)
    places = [form.fields.index(name) for name in form.found]
    rows: list[list[str]] = []

    def batch() -> Any:
        return pa.record_batch([pa.array([row[i] for row in rows], pa.string()) for i in places], form.found)

    for number, line in enumerate(text.lines(), 1):
        if number <= form.blank + form.header or not line:
            continue
        row = line.split("::")
        spare = len(row) - size
        if spare < 0 or (spare and title is None):
            raise DataError(f"{file} must have {size} fields in each line; got {len(row)} in line {number:,}")
        if title is not None:
            row = [*row[:title], "::".join(row[title:title + spare + 1]), *row[title + spare + 1:]]
        rows.append(row)
        if len(rows) == ROWS:
            yield batch()
            rows.clear()
    if rows:
        yield batch()


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


def tidied(column: Coded) -> Coded:
    """Values of a text file without the blanks around them, as whole numbers where all of them are."""
    return _as_numbers(_trimmed(column))


def given(values: Any) -> Any:
    """Values of a text file with null where one is written as missing: nothing, NA, null and their kin."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    words = pa.array(pyarrow.csv.ConvertOptions().null_values, values.type)
    return pc.if_else(pc.is_in(values, value_set=words), pa.scalar(None, values.type), values)


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
    """Whole numbers where every distinct value is written as one."""
    found = as_whole_numbers(column.distinct)
    return Coded(column.codes, found) if isinstance(found, np.ndarray) else column


def as_whole_numbers(values: Any) -> Any:
    """Arrow texts as an array of numbers where every one is written as a whole number: 7 and -3, but not 007, 7.0 or
    1e3; else, and where they are no texts, as they are."""
    import pyarrow as pa

    if isinstance(values, (np.ndarray, tuple)):
        return values
    try:
        found = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values
    return found.to_numpy() if found.cast(pa.large_string()).equals(values.cast(pa.large_string())) else values
