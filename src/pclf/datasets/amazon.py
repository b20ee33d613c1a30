"""Amazon films and books: user_id TAB item_id TAB rating below a line of names; the same id is the same person in both.

Some pairs stand twice; the later rating counts.
"""

from pathlib import Path
from typing import Any

from pclf.data.ratings import Ratings
from pclf.datasets import _table

RATING = {"user_id": "id", "item_id": "id", "rating": "float"}
HEADER = {"user_id": "user_id", "item_id": "item_id", "rating": "rating"}


def load(name: str, movies: Path, books: Path, *, shared_users: bool = True, duplicates: Any = "last",
         **options: Any) -> Ratings:
    """Two domains, "movies" and "books", on 1 to 5. `shared_users=False` forgets who is in both."""
    tables = {domain: _table.read(path, RATING, separator="\t", header=HEADER, scale=(1, 2, 3, 4, 5))
              for domain, path in (("movies", movies), ("books", books))}
    return Ratings.from_frames(tables, scale=(1, 5), shared_users=shared_users, duplicates=duplicates, **options)
