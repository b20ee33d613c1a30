"""Tables: made once, shown as text, as Markdown, as HTML, or on a screen.

    >>> print(Table(["domain", "users"], [["films", "300"], ["books", "1,240"]]).text())
    domain  users
    ------  -----
    films     300
    books   1,240
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pclf.errors import ArgumentError, visible

WIDE = 160           # columns of a screen that does not say how many it has


class Framed:
    """A result that can be had as a frame: of pandas, of polars, of pyarrow, or of whatever reads Arrow streams."""

    def to_arrow(self) -> Any:
        raise ArgumentError(f"{type(self).__name__} must say what its columns are.")

    def to_pandas(self) -> Any:
        """A pandas frame, where pandas is installed."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A polars frame, where polars is installed."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow stream protocol: `polars.DataFrame(result)`, `duckdb.sql("from result")` and others use it."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Table:
    """Cells are text. A column of numbers stands to the right, words stand to the left."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", [visible(cell) for cell in self.head])
        object.__setattr__(self, "rows", [[visible(cell) for cell in row] for row in self.rows])
        object.__setattr__(self, "title", visible(self.title))

    def text(self) -> str:
        """For a terminal or a notebook without anything else."""
        head, *rows = _in_columns([self.head, *self.rows], self._to_the_right, 1)
        rule = ["-" * len(cell) for cell in head]
        lines = ("  ".join(cells).rstrip() for cells in (head, rule, *rows))
        return "\n".join([self.title] * bool(self.title) + list(lines))

    def markdown(self) -> str:
        """Aligned, so that it can be read as it is."""
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in (self.head, *self.rows)]
        head, *rows = _in_columns(escaped, self._to_the_right, 3)
        rule = ["-" * (len(cell) - right) + ":" * right for cell, right in zip(head, self._to_the_right, strict=True)]
        lines = ("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
        return "\n".join([f"{self.title}\n"] * bool(self.title) + list(lines))

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
        columns = [[row[i] for row in self.rows] for i in range(len(self.head))]
        return [all(map(_number, column)) and any(column) for column in columns]


def _in_columns(rows: Sequence[Sequence[str]], to_the_right: Sequence[bool], least: int) -> list[list[str]]:
    """Cells as wide as the widest of their column, and at least as wide as said."""
    widths = [max(least, *map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.rjust(width) if right else cell.ljust(width)
             for cell, width, right in zip(row, widths, to_the_right, strict=True)] for row in rows]


def _number(text: str) -> bool:
    """Digits with what belongs to numbers; an empty cell is not against it."""
    plain = text.translate(str.maketrans("", "", ",.±%+-−< "))
    return plain.isdigit() or not text
