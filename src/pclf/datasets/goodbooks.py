"""goodbooks-10k: `ratings.csv` (user_id, book_id, rating), the titles and years of `books.csv`, and genres.

`book_genres.csv` (book_id, genres) is made from the tags of the original: names of shelves that are genres, with commas
between them.
"""

from pathlib import Path
from typing import Any

from pclf.data.ratings import Ratings
from pclf.datasets import _table

RATING = {"user_id": "int", "item_id": "int", "rating": "float"}
HEADER = {"user_id": "user_id", "item_id": "book_id", "rating": "rating"}
BOOK = {"item_id": "int", "title": "text"}
BOOK_HEADER = {"item_id": "book_id", "title": "title"}
YEAR = "original_publication_year"
SHELVES = {"item_id": "int", "genres": "any"}
SHELVES_HEADER = {"item_id": "book_id", "genres": "genres"}


def load(name: str, path: Path, **options: Any) -> Ratings:
    """One domain, "books", on 1 to 5; ids are the numbers of the original, attributes are genre and year."""
    table = _table.read(path, RATING, separator=",", header=HEADER, scale=(1, 2, 3, 4, 5))
    titles, years = _books(path.with_name("books.csv"))
    return _table.ratings({"books": table}, {"books": _facts(path.with_name("book_genres.csv"), years)}, scale=(1, 5),
                          titles={"books": titles}, **options)


def _books(path: Path) -> tuple[dict[int, str], Any]:
    """Titles, and a table of the years where the file has them."""
    if not path.is_file():
        return {}, None
    dated = YEAR in _table.names(path, ",")
    columns, header = (({**BOOK, "year": "any"}, {**BOOK_HEADER, "year": YEAR}) if dated else (BOOK, BOOK_HEADER))
    table = _table.read(path, columns, separator=",", header=header, quoted=True)
    titles = dict(zip(table["item_id"].to_pylist(), table["title"].to_pylist(), strict=True))
    return titles, table.select(["item_id", "year"]) if dated else None


def _facts(path: Path, years: Any) -> Any:
    """Genre and year of each book, as far as they are here."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not path.is_file():
        return years
    shelves = _table.read(path, SHELVES, separator=",", header=SHELVES_HEADER, quoted=True)
    genres = pa.table({"item_id": shelves["item_id"], "genre": pc.replace_substring(shelves["genres"], ",", "|")})
    return genres if years is None else genres.join(years, "item_id", join_type="full outer")
