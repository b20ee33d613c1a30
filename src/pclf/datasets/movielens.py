"""MovieLens 100K, 1M and latest-small, as GroupLens packs them.

`u.data` is user TAB film TAB rating TAB time, with titles, dates and genres in `u.item` (`|`, latin-1); `ratings.dat`
is user::film::rating::time, with titles and genres in `movies.dat` (latin-1); latest-small is CSV. The time may be
missing and is not used.
"""

from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from pclf.data.ratings import Ratings
from pclf.datasets import _table
from pclf.errors import ArgumentError, DataError

RATING = {"user_id": "int", "item_id": "int", "rating": "float"}
TITLE = {"item_id": "int", "title": "text"}
FILM = {**TITLE, "genres": "any"}
HEADER = {"user_id": "userid", "item_id": "movieid", "rating": "rating"}
FILM_HEADER = {"item_id": "movieid", "title": "title", "genres": "genres"}
LINK = {"item_id": "int", "imdb": "int"}
LINK_HEADER = {"item_id": "movieid", "imdb": "imdbid"}
GENRES = ("Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
          "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western")


def load(name: str, path: Path, *, imdb: bool = False, **options: Any) -> Ratings:
    """One domain, "movies"; ids are the numbers of the original, titles are shown where the file has them.

    Attributes are genre and year. `imdb=True` takes the numbers of IMDb as ids, which `links.csv` of latest-small has:
    the same films have the same ids in MovieTweetings.
    """
    if name == "ml-latest-small":
        return _latest(path, imdb, options)
    if imdb:
        raise ArgumentError(f"imdb goes with ml-latest-small: {name} has no numbers of IMDb")
    if name == "ml-100k":
        table = _table.read(path, RATING, separator="\t", scale=(1, 2, 3, 4, 5))
        titles, facts = _flagged(path.with_name("u.item"))
    else:
        table = _table.read(path, RATING, separator="::", scale=(1, 2, 3, 4, 5))
        titles, facts = _table.films(path.with_name("movies.dat"), FILM, separator="::", encoding="latin-1")
    return _table.ratings({"movies": table}, {"movies": facts}, scale=(1, 5), titles={"movies": titles}, **options)


def _latest(path: Path, imdb: bool, options: dict[str, Any]) -> Ratings:
    halves = tuple(i / 2 for i in range(1, 11))
    table = _table.read(path, RATING, separator=",", header=HEADER, scale=halves)
    titles, facts = _table.films(path.with_name("movies.csv"), FILM, separator=",", header=FILM_HEADER, quoted=True)
    if imdb:
        links = _table.read(path.with_name("links.csv"), LINK, separator=",", header=LINK_HEADER)
        known = dict(zip(links["item_id"].to_pylist(), links["imdb"].to_pylist(), strict=True))
        titles = {known[film]: title for film, title in titles.items() if film in known}
        table, facts = _renamed(table, known, path), facts and _renamed(facts, known, path)
    return _table.ratings({"movies": table}, {"movies": facts}, scale=(0.5, 5, 0.5), titles={"movies": titles},
                          **options)


def _renamed(table: Any, known: dict[int, int], path: Path) -> Any:
    """With the numbers of IMDb in place of those of MovieLens."""
    films = table["item_id"].to_pylist()
    unknown = [film for film in films if film not in known]
    if unknown:
        raise DataError(f"{path.with_name('links.csv')} must have every film to read them with imdb=True; film "
                        f"{unknown[0]} is not there. Leave imdb out, or take the file that came with the ratings.")
    return table.set_column(table.schema.get_field_index("item_id"), "item_id", [[known[film] for film in films]])


def _flagged(path: Path) -> tuple[dict[int, str], Any]:
    """Titles and attributes of `u.item`: film|title|date|video date|address|unknown|one flag a genre."""
    import pyarrow as pa
    import pyarrow.compute as pc

    before = {**TITLE, "date": "any", "video": "any", "address": "any", "unknown": "any"}
    columns = {**before, **dict.fromkeys(GENRES, "any")}
    if not path.is_file() or _table.width(path, "|") < len(columns):
        return _table.titles(path, TITLE, separator="|", encoding="latin-1"), None
    table = _table.read(path, columns, separator="|", encoding="latin-1")
    flags = np.array([pc.equal(table[genre], "1").to_pylist() for genre in GENRES], bool).T
    genre = ["|".join(compress(GENRES, film)) for film in flags]
    year = pc.utf8_slice_codeunits(table["date"], -4).cast(pa.int64())
    titles = dict(zip(table["item_id"].to_pylist(), table["title"].to_pylist(), strict=True))
    return titles, pa.table({"item_id": table["item_id"], "genre": genre, "year": year})
