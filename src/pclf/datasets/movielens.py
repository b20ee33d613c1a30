"""MovieLens 100K and 1M, as GroupLens packs them.

`u.data` is user TAB film TAB rating TAB time, with titles in `u.item` (`|`, latin-1); `ratings.dat` is
user::film::rating::time, with titles in `movies.dat` (latin-1). The time may be missing and is not used.
"""

from pathlib import Path
from typing import Any

from pclf.data.ratings import Ratings
from pclf.datasets import _table

RATING = {"user_id": "int", "item_id": "int", "rating": "float"}
TITLE = {"item_id": "int", "title": "text"}


def load(name: str, path: Path, **options: Any) -> Ratings:
    """One domain, "movies"; ids are the numbers of the original, titles are shown where the file has them."""
    separator, films, between = ("\t", "u.item", "|") if name == "ml-100k" else ("::", "movies.dat", "::")
    table = _table.read(path, RATING, separator=separator, scale=(1, 2, 3, 4, 5))
    titles = _table.titles(path.with_name(films), TITLE, separator=between, encoding="latin-1")
    return Ratings.from_frames({"movies": table}, scale=(1, 5), titles={"movies": titles}, **options)
