"""Douban books and music: user TAB item TAB rating, and the same number is the same person in both."""

from pathlib import Path
from typing import Any

from pclf.data.ratings import Ratings
from pclf.datasets import _table

RATING = {"user_id": "int", "item_id": "int", "rating": "float"}


def load(name: str, books: Path, music: Path, *, shared_users: bool = True, **options: Any) -> Ratings:
    """Two domains, "books" and "music", on 1 to 5. `shared_users=False` forgets who is in both."""
    tables = {domain: _table.read(path, RATING, separator="\t", scale=(1, 2, 3, 4, 5))
              for domain, path in (("books", books), ("music", music))}
    return Ratings.from_frames(tables, scale=(1, 5), shared_users=shared_users, **options)
