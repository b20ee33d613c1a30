"""Small tables in and out: CSV, TSV or Parquet by the file's ending; on the screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pclf.atomic import replacing


def read(path: Path) -> Any:
    """A pyarrow table; the separator of a text file is guessed from its first line."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if not path.exists():
        raise FileNotFoundError(f"no file at {path}.")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return parquet.read_table(path)
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
        separator = max(",;\t|", key=first.count)
        return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True))
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a table that can be read: {str(error).splitlines()[0]}.") from None


def read_ids(path: Path) -> tuple[list[Any], list[Any]]:
    """The columns of users and items, found by the usual names."""
    from pclf.data.columns import find_columns

    table = read(path)
    user, item = find_columns(table.column_names, {"user_col": None, "item_col": None}, str(path))
    return table[user].to_pylist(), table[item].to_pylist()


def write(table: Any, path: Path) -> None:
    """Beside the file first, then in its place, so that nothing is ever half written."""
    from pyarrow import csv, parquet

    kinds = {".parquet": parquet.write_table, ".pq": parquet.write_table, ".csv": csv.write_csv}
    if path.suffix.lower() not in kinds:
        raise ValueError(f"the output must end in .csv or .parquet; got {path.name!r}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into.")
    with replacing(path) as part:
        kinds[path.suffix.lower()](table, part)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout: numbers to the right, words to the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for i, column in enumerate(columns):
        words = any(not _number(row[i]) for row in rows)
        table.add_column(column, justify="left" if words else "right")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def _number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("±", "").replace(" ", "").lstrip("-+").isdigit() or not text
