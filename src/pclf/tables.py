"""Tables: made once, shown as text, as Markdown, as HTML, on a screen, or written to a file.

    >>> print(Table(["domain", "users"], [["films", "300"], ["books", "1,240"]]).text())
    domain  users
    ------  -----
    films     300
    books   1,240
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from pclf.atomic import replacing

ENDINGS = (".parquet", ".pq", ".csv")
WIDE = 160           # columns of a screen that does not say how many it has


@dataclass(frozen=True)
class Table:
    """Cells are text. A column of numbers stands to the right, words stand to the left."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def text(self) -> str:
        """For a terminal or a notebook without anything else."""
        widths = self._widths(1)
        lines = [self.head, ["-" * width for width in widths], *self.rows]
        shown = ("  ".join(self._aligned(line, widths)).rstrip() for line in lines)
        return "\n".join([self.title] * bool(self.title) + list(shown))

    def markdown(self) -> str:
        """Aligned, so that it can be read as it is."""
        if any("|" in cell for line in (self.head, *self.rows) for cell in line):
            escaped = [[cell.replace("|", "\\|") for cell in line] for line in (self.head, *self.rows)]
            return Table(escaped[0], escaped[1:], self.title).markdown()
        widths = self._widths(3)
        rule = ["-" * (width - 1) + ":" if right else "-" * width
                for width, right in zip(widths, self._to_the_right, strict=True)]
        lines = [self.head, rule, *self.rows]
        shown = ["| " + " | ".join(self._aligned(line, widths)) + " |" for line in lines]
        return "\n".join([f"{self.title}\n"] * bool(self.title) + shown)

    def html(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        body = "".join(row(cells, "td") for cells in self.rows)
        return f"<table>{caption}<thead>{row(self.head, 'th')}</thead><tbody>{body}</tbody></table>"

    def show(self) -> None:
        """On stdout, in the width of the screen."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(title=self.title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for column, right in zip(self.head, self._to_the_right, strict=True):
            table.add_column(column, justify="right" if right else "left")
        for row in self.rows:
            table.add_row(*row)
        console = Console(highlight=False, markup=False, emoji=False)      # [rec] is a film, not a colour
        if not console.is_terminal:
            console.width = WIDE
        console.print(table)

    @property
    def _to_the_right(self) -> list[bool]:
        return [all(map(_number, column)) and any(column) for column in self._columns]

    @property
    def _columns(self) -> list[list[str]]:
        return [[row[i] for row in self.rows] for i in range(len(self.head))]

    def _widths(self, least: int) -> list[int]:
        return [max(least, len(name), *map(len, column), 0)
                for name, column in zip(self.head, self._columns, strict=True)]

    def _aligned(self, cells: Sequence[str], widths: Sequence[int]) -> list[str]:
        return [cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(cells, widths, self._to_the_right, strict=True)]


def check(path: Path | None) -> None:
    """Whether a table can be written there, before it is made."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"the output must end in .csv or .parquet; got {path.name!r}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into.")


def write(table: Any, path: Path) -> None:
    """An Arrow table as CSV or Parquet, by the ending. It is written beside the file first, so never by half."""
    from pyarrow import csv, parquet

    check(path)
    with replacing(path) as part:
        (csv.write_csv if path.suffix.lower() == ".csv" else parquet.write_table)(table, part)


def _number(text: str) -> bool:
    """Digits with what belongs to numbers; an empty cell is not against it."""
    plain = text.translate(str.maketrans("", "", ",.±%+-−< "))
    return plain.isdigit() or not text
