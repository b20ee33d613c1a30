"""Tables as files, CSV or Parquet by the ending. `pclf.tables` shows them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pclf.atomic import check_target, replacing
from pclf.errors import ArgumentError, OutputError

ENDINGS = (".parquet", ".pq", ".csv")
NUMBER = r"^[-+]?[0-9]+(\.[0-9]+)?$"
WRITTEN = ("user_id,item_id,title,score,rank", "user_id,item_id,title,score,rank,rating,liked,chosen",
           "user_id,item_id,prediction", "user_id,item_id,prediction,title")


def check(path: Path | None, force: bool = False) -> None:
    """Whether a table can be written there, before it is made."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"the output must end in .csv or .parquet; got {path.name!r}.")
    if not path.parent.is_dir():
        raise OutputError(f"no folder {path.parent} to write {path.name} into.")
    check_target(path, None if force else is_table, "a table of recommendations or predictions")


def is_table(path: Path) -> bool:
    """Whether a file has the columns that we write, and so is nobody's input."""
    import pyarrow as pa
    from pyarrow import parquet

    if path.suffix.lower() == ".csv":
        with path.open("rb") as file:
            names = file.readline(200).decode(errors="replace").strip().replace('"', "")
    else:
        try:
            names = ",".join(parquet.read_schema(path).names)
        except (pa.ArrowException, OSError):
            return False
    return names in WRITTEN


def write(table: Any, path: Path, force: bool = False) -> None:
    """Beside the file first, then in its place, so that nothing is ever half written."""
    from pyarrow import csv, parquet

    check(path, force)
    with replacing(path) as part:
        if path.suffix.lower() == ".csv":
            csv.write_csv(_harmless(table), part)
        else:
            parquet.write_table(table, part)


def write_parts(parts: Iterator[Any], path: Path, force: bool = False) -> int:
    """Tables, one after another, into one file, and how many rows there were. Only one of them is in memory."""
    from pyarrow import csv, parquet

    check(path, force)
    text, rows = path.suffix.lower() == ".csv", 0
    with replacing(path) as part:
        writer = None
        for table in parts:
            table = _harmless(table) if text else table
            if writer is None:
                writer = (csv.CSVWriter if text else parquet.ParquetWriter)(part, table.schema)
            writer.write_table(table)
            rows += table.num_rows
        if writer is not None:
            writer.close()
    return rows


def _harmless(table: Any) -> Any:
    """Texts that a spreadsheet would run, such as =HYPERLINK(...), behind an apostrophe that `files.read` takes off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from pclf.data.files import FORMULA

    for i, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            runs = pc.match_substring_regex(column, rf"^'*[{FORMULA}]")
            runs = pc.and_not(runs, pc.match_substring_regex(column, NUMBER))
            if pc.any(runs).as_py():
                marked = pc.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))
                table = table.set_column(i, name, pc.if_else(runs, marked, column))
    return table
