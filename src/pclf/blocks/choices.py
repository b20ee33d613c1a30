"""Choices of people in blocks: a source of sums for `pclf.choice`.

A block answers a question about some of its people at a time, and adds up. Of what it answers nothing is larger than
the core of the items squared, or `ROOM` numbers, however many people and items there are.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from scipy.sparse import csr_array, issparse

from pclf.blocks.block import Block, block_of, same_people, slices_of
from pclf.blocks.catalogue import Catalogue
from pclf.choice.crossing import SOURCE, TARGET
from pclf.choice.items import CORE, TIES
from pclf.choice.rows import Rows, as_rows, weighed
from pclf.choice.sums import Answers, Chosen, Question
from pclf.data.ratings import Ratings

if TYPE_CHECKING:
    from pclf.blocks.engine import BlockEngine

ROOM = 25_000_000        # numbers of an answer: 100 MB
TOGETHER = 2_000_000     # ratings of people who are worked on together, about
OF_RATING = 60           # bytes of each of these
OF_SETTINGS = 300 << 20  # bytes to find settings with


class Spread:
    """Everybody, in blocks."""

    here = None
    room = ROOM

    def __init__(self, engine: "BlockEngine") -> None:
        self.engine, self.n_threads = engine, engine.n_threads
        ratings = engine.catalogue.ratings
        self.things = ratings.item_rows if ratings.shared_items else None

    def ask(self, question: Question, *arguments: Any) -> Answers:
        """The sums of all blocks, in their order."""
        nothing = question(self._nobody, *arguments)
        sparse, total = [issparse(array) for array in nothing], dense(nothing)
        for answer in self.engine.asked("choices", total, question, *arguments):
            for whole, own in zip(total, answer, strict=True):
                whole += own
        return [csr_array(own) if was else own for own, was in zip(total, sparse, strict=True)]

    @cached_property
    def _nobody(self) -> Chosen:
        """Whose answers have the shapes of everybody's, and are zeros."""
        ratings = self.engine.catalogue.ratings
        rows = [csr_array((0, d.n_items), dtype=np.float32) for d in ratings.domains.values()]
        people = [np.empty(0, np.int32)] * len(rows) if ratings.shared_users else None
        return Chosen(rows, people, self.things, self.n_threads)


def answer(catalogue: Catalogue, folder: Path, b: int, n_threads: int, question: Question, *arguments: Any) -> Answers:
    """What the people of a block answer."""
    total: Answers = []
    for chosen in people_of(catalogue, folder, b, n_threads):
        own = dense(question(chosen, *arguments))
        if total:
            for whole, part in zip(total, own, strict=True):
                whole += part
        total = total or own
    return total


def people_of(catalogue: Catalogue, folder: Path, b: int, n_threads: int) -> Iterator[Chosen]:
    """The people of a block, as many parts of them at a time as make `TOGETHER` ratings. A person is in one part,
    whatever the catalogues."""
    block, ratings = block_of(catalogue, folder, b), catalogue.ratings
    things = ratings.item_rows if ratings.shared_items else None
    for users in slices_of(catalogue, b, TOGETHER):
        people = same_people(block, users) if ratings.shared_users else None
        yield Chosen(Graded(ratings, block, users), people, things, n_threads)


class Graded(Sequence[Rows]):
    """Rows of some users of a block, read for each catalogue when it is asked about."""

    def __init__(self, ratings: Ratings, block: Block, users: Sequence[slice]) -> None:
        self.domains, self.block, self.users = list(ratings.domains.values()), block, users
        self._rows: dict[int, Rows] = {}

    def __len__(self) -> int:
        return len(self.domains)

    @overload
    def __getitem__(self, z: int) -> Rows: ...
    @overload
    def __getitem__(self, z: slice) -> Sequence[Rows]: ...
    def __getitem__(self, z: int | slice) -> Any:
        if isinstance(z, slice):
            return [self[i] for i in range(*z.indices(len(self)))]
        users, d = self.users[z], self.domains[z]          # which say when z is one too many
        if z not in self._rows:
            start, stop = np.searchsorted(self.block.column(z, "user"), [users.start, users.stop])
            user, item, value = (self.block.column(z, name)[start:stop] for name in ("user", "item", "value"))
            weight = self.block.column(z, "weight")[start:stop] if d.events else None
            self._rows[z] = as_rows(user - np.int32(users.start), item, weighed(d, value, weight),
                                    (users.stop - users.start, d.n_items))
        return self._rows[z]


def memory_of(ratings: Ratings, n_ratings: int) -> int:
    """Bytes that learning the choices of such catalogues takes, at most."""
    n_items, shared_users = [d.n_items for d in ratings.domains.values()], ratings.shared_users
    kept, most = 0, 0
    for n in n_items:
        core = min(n, CORE)
        ties = min((n - core) * core, TIES)
        crossing = min(sum(n_items) - n, SOURCE) * min(n, TARGET) if shared_users else 0
        kept += 4 * core**2 + 8 * ties + 4 * min(SOURCE, sum(n_items) - n) ** 2 * shared_users
        most = max(most, 12 * core**2 + 12 * min(ROOM, ties) + 16 * ties, 16 * crossing)
    return kept + most + OF_RATING * min(n_ratings, TOGETHER) + OF_SETTINGS


def dense(answers: Answers) -> Answers:
    return [array if isinstance(array, np.ndarray) else array.toarray() for array in answers]
