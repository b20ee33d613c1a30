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
from pclf.errors import visible
from pclf.tables import Framed, Table

Floats = NDArray[np.floating[Any]]
BLOCK = 1 << 22   # scores held at a time by each thread
SHOWN = 5         # users, and items of each, that a print shows


class Recommendation(NamedTuple):
    """An item of a list. `score` is what the list is sorted by: one of those behind it, where a model has them."""

    item: Hashable
    score: float
    title: str
    rating: float | None = None      # expected, if the person rates it
    liked: float | None = None       # probability that the person picks it and likes it
    chosen: float | None = None      # probability that the person picks it

    def __repr__(self) -> str:
        """With as many digits as somebody reads."""
        numbers = [f"{name}={value:.3g}" for name, value in self._asdict().items()
                   if name not in ("item", "title") and value is not None]
        return f"Recommendation({self.item!r}, {self.title!r}, {', '.join(numbers)})"


@dataclass(frozen=True, repr=False)
class Recommendations(Framed):
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

    def __repr__(self) -> str:
        """How many lists there are, and how the first of them begin."""
        return self._shown().text() if len(self) else self._summary()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Table:
        rows = []
        for user, found in zip(self.users[:SHOWN], (self[row] for row in range(min(SHOWN, len(self)))), strict=True):
            titles = ", ".join(r.title for r in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
            rows.append([_named(user), titles or "nothing"])
        more = [["...", f"and {len(self) - SHOWN:,} more"]] if len(self) > SHOWN else []
        return Table(["user", "items, the best first"], [*rows, *more], self._summary())

    def _summary(self) -> str:
        n = self.codes.shape[1]
        return visible(f"{len(self):,} list{'' if len(self) == 1 else 's'} of up to {n:,} items of {self.domain.name}")

    def items(self) -> Iterator[tuple[Hashable, list[Recommendation]]]:
        """Each user with their list."""
        return zip(self.users, self, strict=True)

    def to_arrow(self) -> Any:
        """A pyarrow table with the columns user_id (null for a guest without a name), item_id, title, score, rank, and
        where a model has them rating, liked and chosen. Ids of several types become text."""
        import pyarrow as pa

        from pclf.models.people import Guest

        row, rank = np.nonzero(self.codes >= 0)
        codes = self.codes[row, rank]
        users = [self.users[r] for r in row.tolist()]

        return pa.table({
            "user_id": id_column([user.name if isinstance(user, Guest) else user for user in users]),
            "item_id": id_column(self.domain.items.decode(codes)),
            "title": pa.array([self.domain.title(int(c)) for c in codes]),
            "score": pa.array(self.scores[row, rank]),
            "rank": pa.array(rank + 1),
            **{name: pa.array(values[row, rank]) for name, values in self.numbers.items()},
        })


def _named(user: Any) -> str:
    """A user as a table shows them: a guest by their name, if they have one."""
    from pclf.models.people import Guest

    return str(user) if not isinstance(user, Guest) else "a guest" if user.name is None else str(user.name)


@dataclass(frozen=True)
class Pool:
    """Items that lists are made of, best first, and what is known of them. (people, n) each."""

    codes: NDArray[np.int32]                                         # -1 where there are fewer
    scores: Floats                                                   # -inf there
    numbers: Mapping[str, Floats] = field(default_factory=dict)

    def take(self, places: NDArray[np.intp]) -> "Pool":
        """The items in some places of each list, which end in -1 where there are fewer. (people, m)"""
        def of(values: Any, nothing: float) -> Any:
            found = np.take_along_axis(values, np.maximum(places, 0), 1)
            return np.where(places >= 0, found, nothing).astype(values.dtype)

        return Pool(of(self.codes, -1), of(self.scores, -np.inf),
                    {name: of(values, 0.0) for name, values in self.numbers.items()})

    @classmethod
    def joined(cls, parts: Sequence["Pool"]) -> "Pool":
        """Those of some people, then those of others."""
        return cls(np.concatenate([part.codes for part in parts]), np.concatenate([part.scores for part in parts]),
                   {name: np.concatenate([part.numbers[name] for part in parts]) for name in parts[0].numbers})


def in_blocks(work: Callable[[slice], Pool], n_people: int, n_items: int) -> Pool:
    """work(some of the people), for all of them, on several threads."""
    rows = max(1, BLOCK // max(1, n_items))
    some = [slice(start, min(start + rows, n_people)) for start in range(0, max(1, n_people), rows)]
    if len(some) == 1:
        return work(some[0])
    with ThreadPoolExecutor(cores()) as pool:
        return Pool.joined(list(pool.map(work, some)))


def best(scores: Floats, left_out: tuple[Any, Any], n: int, allowed: NDArray[np.bool_]) -> Pool:
    """The n best items by scores of all items, (people, V), which are used up. left_out: items not to recommend to
    each, as CSR."""
    from pclf.engines.kernels import top_n

    if not allowed.all():
        scores[:, ~allowed] = -np.inf
    codes, found = top_n(scores, *left_out, n)
    return Pool(codes, np.where(codes >= 0, found, -np.inf))
