"""Book-Crossing: the original `BX-Book-Ratings.csv`, its popular part, and the 500 x 1000 sub-matrix.

The original is a latin-1 dump with every field in quotes, `"276725";"034545104X";"0"`, some of them broken.
A zero says that somebody had the book, not what they thought of it: an implicit rating, left out by default.
Explicit ratings are 1 to 10. The sub-matrix has them as 1 + (x - 1) * 4/9, on 1 to 5; they are mapped back.
"""

import html
from pathlib import Path
from typing import Any

import numpy as np

from pclf.data.ratings import Ratings
from pclf.datasets import _table
from pclf.errors import ArgumentError, DataError

RATING = {"user_id": "int", "item_id": "id", "rating": "float"}
HEADER = {"user_id": "user-id", "item_id": "isbn", "rating": "book-rating"}
BOOK = {"item_id": "id", "title": "text"}
BOOK_HEADER = {"item_id": "isbn", "title": "book-title"}
FIVE = 1 + np.arange(10) * 4 / 9   # 1 to 10 drawn together to 1 to 5


def load(name: str, path: Path, *, keep_implicit: bool = False, five_stars: bool = False,
         **options: Any) -> Ratings:
    """One domain, "books", on 1 to 10; items are ISBNs (in the sub-matrix: column numbers from 1).

    `five_stars` maps the ten values linearly onto 1 to 5, so that errors compare with those of five-star
    domains. `keep_implicit` keeps the zeros, as the lowest value of a scale 0 to 10.
    """
    if keep_implicit and (five_stars or path.suffix == ".mat"):
        raise ArgumentError("keep_implicit goes with neither five_stars nor the sub-matrix: they have no 0")
    table, titles = (_from_matrix(path), {}) if path.suffix == ".mat" else (_from_csv(path), _titles(path))
    if not keep_implicit:
        table = table.filter(table["rating"].to_numpy() > 0)
    if five_stars:
        stars = FIVE[table["rating"].to_numpy().astype(int) - 1]
        table = table.set_column(2, "rating", [stars])
    scale = FIVE.tolist() if five_stars else (0 if keep_implicit else 1, 10)
    return Ratings.from_frames({"books": table}, scale=scale, titles={"books": titles}, **options)


def _from_csv(path: Path) -> Any:
    with path.open("rb") as file:
        separator = '";"' if b'";"' in file.readline() else ","   # the popular part is plain CSV
    return _table.read(path, RATING, separator=separator, header=HEADER, encoding="latin-1", scale=range(11))


def _titles(path: Path) -> dict[str, str]:
    books = _table.titles(path.with_name("BX-Books.csv"), BOOK, separator='";"', header=BOOK_HEADER,
                          encoding="latin-1")
    return {isbn: html.unescape(title).replace('\\"', '"') for isbn, title in books.items()}


def _from_matrix(path: Path) -> Any:
    import pyarrow as pa
    from scipy.sparse import coo_array

    cells = coo_array(_table.matrix(path, "bx_sparse"))
    found = 1 + (cells.data - 1) * 9 / 4
    ratings = np.rint(found)
    if not ((np.abs(ratings - found) < 1e-6) & (ratings >= 1) & (ratings <= 10)).all():
        raise DataError(f"{path}: values must be 1 + (x - 1) * 4/9 with x = 1 to 10; got others, "
                        f"from {cells.data.min():g} to {cells.data.max():g}")
    by_user = np.lexsort((cells.col, cells.row))
    return pa.table({"user_id": cells.row[by_user] + 1, "item_id": cells.col[by_user] + 1,
                     "rating": ratings[by_user]})
