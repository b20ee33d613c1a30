"""MovieTweetings: user::film::rating::time, with titles and genres in `movies.dat`. A film is its number at IMDb."""

from pathlib import Path
from typing import Any

from pclf.data.ratings import Ratings
from pclf.datasets import _table

RATING = {"user_id": "int", "item_id": "int", "rating": "float"}
FILM = {"item_id": "int", "title": "text", "genres": "any"}


def load(name: str, path: Path, **options: Any) -> Ratings:
    """One domain, "movies", on 0 to 10; ids are the numbers of IMDb, attributes are genre and year."""
    table = _table.read(path, RATING, separator="::", scale=range(11))
    titles, facts = _table.films(path.with_name("movies.dat"), FILM, separator="::")
    return _table.ratings({"movies": table}, {"movies": facts}, scale=(0, 10), titles={"movies": titles}, **options)
