"""EachMovie: the original `Vote.txt`, or the 922 x 1322 sub-matrix used with CBT.

`Vote.txt` is person TAB film TAB score TAB weight TAB time. The score is 0, 0.2, ..., 1 for no star to five
stars; score * 5 + 1 gives the 1 to 6 of the literature, and 6 is read as 5, as in the experiments of CBT,
RMGM and PCLF. Titles are in `Movie.txt` beside it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pclf.data.ratings import Ratings
from pclf.datasets import _table
from pclf.errors import ArgumentError

SCORES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
VOTE = {"user_id": "int", "item_id": "int", "rating": "float"}
TITLE = {"item_id": "int", "title": "text"}


def load(name: str, path: Path, *, stars: int = 5, **options: Any) -> Ratings:
    """One domain, "movies", on 1 to 5. `stars=6` keeps the six values of the original apart.

    A vote of weight below 1 is no star for a film that "sounds awful", given without seeing it; it counts as
    the others do. The rows and columns of the sub-matrix are numbered from 1, by lack of better ids.
    """
    if stars not in (5, 6):
        raise ArgumentError(f"stars must be 5 (6 read as 5) or 6; got {stars!r}")
    if path.suffix != ".mat":
        return _from_votes(path, stars, options)
    if stars == 6:
        raise ArgumentError(f"{path.name} has five stars alone; stars=6 needs the original Vote.txt")
    matrix = _table.matrix(path, "eachmovie")
    users, items = np.nonzero(matrix)   # 0 is not rated
    columns = users + 1, items + 1, matrix[users, items]
    return Ratings.from_arrays({"movies": columns}, scale=(1, 5), **options)


def _from_votes(path: Path, stars: int, options: dict[str, Any]) -> Ratings:
    table = _table.read(path, VOTE, separator="\t", scale=SCORES)
    ratings = np.minimum(np.rint(table["rating"].to_numpy() * 5) + 1, stars)
    table = table.set_column(2, "rating", [ratings])
    films = path.with_name("Movie.txt" if path.name == "Vote.txt" else "movie.txt")
    titles = _table.titles(films, TITLE, separator="\t", encoding="latin-1")
    return Ratings.from_frames({"movies": table}, scale=(1, stars), titles={"movies": titles}, **options)
