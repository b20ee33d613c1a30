"""Top-N lists of many users, block by block, so that users x items never exists."""

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.data.columns import id_column
from pclf.data.domain import Domain
from pclf.engines.cpu import cores

Floats = NDArray[np.floating[Any]]
BLOCK = 1 << 20   # scores held at a time by each thread


class Recommendation(NamedTuple):
    """An item of a list. `score` is what the list is sorted by: one of those behind it, where a model has them."""

    item: Hashable
    score: float
    title: str
    rating: float | None = None      # expected, if the person rates it
    liked: float | None = None       # probability that the person picks it and likes it
    chosen: float | None = None      # probability that the person picks it


@dataclass(frozen=True)
class Recommendations:
    """Top-N lists of many users: item codes and scores, best first; short lists end in -1 and -inf."""

    domain: Domain
    users: Sequence[Hashable]
    codes: NDArray[np.int32]   # (users, n)
    scores: Floats             # (users, n)
    numbers: Mapping[str, Floats] = field(default_factory=dict)      # (users, n) each: rating, liked, chosen

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, row: int) -> list[Recommendation]:
        """The list of the user in this place."""
        codes = [int(c) for c in self.codes[operator.index(row)] if c >= 0]
        ids = self.domain.items.decode(codes)
        return [Recommendation(i, float(self.scores[row, j]), self.domain.title(c),
                               **{name: float(values[row, j]) for name, values in self.numbers.items()})
                for j, (i, c) in enumerate(zip(ids, codes, strict=True))]

    def __iter__(self) -> Iterator[list[Recommendation]]:
        return (self[row] for row in range(len(self)))

    def items(self) -> Iterator[tuple[Hashable, list[Recommendation]]]:
        """Each user with their list."""
        return zip(self.users, self, strict=True)

    def to_arrow(self) -> Any:
        """A pyarrow table with the columns user_id (null for a guest), item_id, title, score, rank, and where a model
        has them rating, liked and chosen. Ids of several types become text."""
        import pyarrow as pa

        from pclf.models.people import Guest

        row, rank = np.nonzero(self.codes >= 0)
        codes = self.codes[row, rank]
        users = [self.users[r] for r in row.tolist()]

        return pa.table({
            "user_id": id_column([None if isinstance(user, Guest) else user for user in users]),
            "item_id": id_column(self.domain.items.decode(codes)),
            "title": pa.array([self.domain.title(int(c)) for c in codes]),
            "score": pa.array(self.scores[row, rank]),
            "rank": pa.array(rank + 1),
            **{name: pa.array(values[row, rank]) for name, values in self.numbers.items()},
        })


def best(score: Callable[[slice], Floats], left_out: Callable[[slice], tuple[Any, Any]], n_users: int, n_items: int,
         n: int, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int32], Floats]:
    """The n best items of each user: codes, -1 where there are fewer, and scores. (users, n) each

    score: of all items, for some of the users. left_out: items not to recommend to these, as CSR.
    """
    from pclf.engines.kernels import top_n

    rows = max(1, BLOCK // max(1, n_items))

    def of_block(start: int) -> tuple[NDArray[np.int32], Floats]:
        some = slice(start, min(start + rows, n_users))
        scores = score(some)
        if not allowed.all():
            scores[:, ~allowed] = -np.inf
        found, value = top_n(scores, *left_out(some), n)
        return found, np.where(found >= 0, value, -np.inf)

    starts = range(0, n_users, rows)
    if len(starts) > 1:
        with ThreadPoolExecutor(cores()) as pool:
            parts = list(pool.map(of_block, starts))
    else:
        parts = [of_block(start) for start in starts]
    return (np.concatenate([np.empty((0, n), np.int32), *(p[0] for p in parts)]),
            np.concatenate([np.empty((0, n)), *(p[1] for p in parts)]))
