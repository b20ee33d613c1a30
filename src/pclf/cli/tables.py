"""Tables as files, CSV or Parquet by the ending, and on the screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pclf.atomic import replacing

ENDINGS = (".parquet", ".pq", ".csv")


def check(path: Path | None) -> None:
    """Whether a table can be written there, before it is made."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"the output must end in .csv or .parquet; got {path.name!r}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into.")


def write(table: Any, path: Path) -> None:
    """Beside the file first, then in its place, so that nothing is ever half written."""
    from pyarrow import csv, parquet

    check(path)
    with replacing(path) as part:
        (csv.write_csv if path.suffix.lower() == ".csv" else parquet.write_table)(table, part)


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
    console = Console(highlight=False, markup=False, emoji=False)      # [rec] is a film, not a colour
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def _number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("±", "").replace(" ", "").lstrip("-+").isdigit() or not text
