"""goodbooks-10k: `ratings.csv` (user_id, book_id, rating) and the titles of `books.csv`."""

from pathlib import Path
from typing import Any

from pclf.data.ratings import Ratings
from pclf.datasets import _table

RATING = {"user_id": "int", "item_id": "int", "rating": "float"}
HEADER = {"user_id": "user_id", "item_id": "book_id", "rating": "rating"}
BOOK = {"item_id": "int", "title": "text"}
BOOK_HEADER = {"item_id": "book_id", "title": "title"}


def load(name: str, path: Path, **options: Any) -> Ratings:
    """One domain, "books", on 1 to 5; ids are the numbers of the original."""
    table = _table.read(path, RATING, separator=",", header=HEADER, scale=(1, 2, 3, 4, 5))
    titles = _table.titles(path.with_name("books.csv"), BOOK, separator=",", header=BOOK_HEADER, quoted=True)
    return Ratings.from_frames({"books": table}, scale=(1, 5), titles={"books": titles}, **options)
