"""Crossing: what the choices of a person in other catalogues say about this one.

Somebody who has never been in a catalogue chose nothing there, but did not turn everything down either: that row is
missing, and zeros would say the opposite. So the mean row of a person moves, by a ridge regression over the people who
are known on both sides, of their rows here (X) on their rows elsewhere (Y), both less their means:

    m_u = mean + (y_u - mean of Y) W           W = (Y'Y + penalty I)^-1 Y'X  =  Y' (YY' + penalty I)^-1 X

The smaller of the two inverses is taken, and W is kept by its leading singular vectors. The regression has seen
the rows here of the people it was made of; for them it is taken without themselves, which for a ridge is

    m_u - h_u / (1 - h_u) (x_u - m_u)          h_u = y_u (Y'Y + penalty I)^-1 y_u' + 1 / people

Where people are on disk, the inverse is kept in place of their leverages, which follow when their rows are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.choice.gram import Floats, basis, gram, inverse, quadratic
from pclf.choice.items import core_of
from pclf.choice.rows import LARGEST, Rows, most_chosen, taken
from pclf.choice.sums import Chosen, Source, crossed, met, squared
from pclf.choice.validate import ITEMS, gain, peak
from pclf.door import check_array, check_codes
from pclf.engines.cpu import one_thread_of_algebra
from pclf.errors import ModelFileError

SOURCE = 4000                                    # the items elsewhere that are looked at, the most chosen
TARGET = 20_000                                  # the items here that can be moved
FEWEST = 50                                      # people known on both sides
HELD = 300                                       # of them to find the penalty with, at most a third
PENALTIES = tuple(30.0 * 4**k for k in range(5))
RANK, SPARE, PASSES = 128, 16, 3
MOST = 0.95                                      # leverage


@dataclass(frozen=True)
class Crossing:
    """From S items of other catalogues to M items of this one, by D products."""

    source: NDArray[np.int32]         # (S,) codes among the items of the others, one catalogue after the other
    target: NDArray[np.int32]         # (M,) codes here
    source_mean: NDArray[np.float32]  # (S,) of the people known on both sides
    target_mean: NDArray[np.float32]  # (M,) of the same
    left: NDArray[np.float32]         # (S, D)
    right: NDArray[np.float32]        # (D, M)
    people: NDArray[np.int32]         # (n,) rows of the people it was made of
    leverage: NDArray[np.float32]     # (n,) of these; where people are on disk, instead of it:
    table: NDArray[np.float32] | None = None         # (S, S) the inverse
    n_people: NDArray[np.int64] | None = None        # (1,) of whom it was made

    def move(self, elsewhere: Rows) -> NDArray[np.float32]:
        """How the means of the target items move for people with these rows elsewhere.   (people, M)"""
        told = taken(elsewhere, items=self.source) @ self.left - self.source_mean @ self.left
        out: NDArray[np.float32] = told.astype(np.float32) @ self.right
        return out

    def with_people(self, people: NDArray[np.int32]) -> "Crossing":
        """The same, for people who were read from disk, and are those of all whom it was made of."""
        return replace(self, people=people)

    def leverage_of(self, places: NDArray[np.intp], elsewhere: Rows) -> NDArray[np.float32]:
        """Of some of the people it was made of, with these rows elsewhere.   (some,)"""
        if self.table is None or self.n_people is None:
            return self.leverage[places]
        return _leverage(taken(elsewhere, items=self.source), self.table, self.source_mean, int(self.n_people[0]), 1)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {f"{prefix}.{name}": array for name in self.__dataclass_fields__
                if (array := getattr(self, name)) is not None}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], n_source: int, n_target: int,
                    n_people: int) -> "Crossing":
        """What `to_arrays` gave, from so many items elsewhere to so many here. It is from a file, so it is checked."""
        def numbers(name: str, **shape: int | None) -> NDArray[Any]:
            return check_array(f"{prefix}.{name}", arrays[f"{prefix}.{name}"], dtype="float32", shape=shape,
                               low=-LARGEST, high=LARGEST)

        source, target, people = (check_codes(f"{prefix}.{name}", arrays[f"{prefix}.{name}"], n, {"places": None})
                                  for name, n in (("source", n_source), ("target", n_target), ("people", n_people)))
        left = numbers("left", source=len(source), products=None)
        table, n_made_of = None, None
        if f"{prefix}.table" in arrays:
            table = numbers("table", source=len(source), again=len(source))
            n_made_of = check_array(f"{prefix}.n_people", arrays[f"{prefix}.n_people"], dtype="int64",
                                    shape={"number": 1}, low=1)
        leverage = numbers("leverage", people=len(people) if table is None else 0)
        if (np.diff(people) <= 0).any() or leverage.min(initial=0) < 0 or leverage.max(initial=0) > MOST + 1e-6:
            raise ModelFileError(f"{prefix} must have its people in order, with leverages of 0 to {MOST}")
        return cls(source, target, numbers("source_mean", source=len(source)),
                   numbers("target_mean", target=len(target)), left,
                   numbers("right", products=left.shape[1], target=len(target)), people, leverage, table, n_made_of)


def learn_crossing(source: Source, sample: Chosen, target: int, mean: Floats,
                   rng: np.random.Generator) -> Crossing | None:
    """To one catalogue, from rows of the same people on both sides, or None where what it adds to the mean finds no
    more than that.

    sample: the people on whom the penalty is found. mean: of all who are known here.   (V,)
    """
    n, often_given, total_given, often_wanted, total_wanted = source.ask(met, target)
    given, wanted, _ = sample.both(target)
    if min(int(n[0]), given.shape[0]) < FEWEST:
        return None
    of, to = most_chosen(often_given, SOURCE), most_chosen(often_wanted, TARGET)
    penalty = _penalty(taken(given, items=of), taken(wanted, items=to), mean[to], rng, source.n_threads)
    if penalty is None:
        return None
    people, leverage, table = np.empty(0, np.int32), np.empty(0, np.float32), None
    means = [(total / int(n[0])).astype(np.float32) for total in (total_given[of], total_wanted[to])]
    if source.here is not None:
        given, wanted, both = source.here.both(target)
        people = both.astype(np.int32)
        weights, leverage = _ridge(taken(given, items=of), taken(wanted, items=to), penalty, source.n_threads)
    else:
        size = max(1, (source.room or 1) // len(of))
        products = np.concatenate([source.ask(crossed, target, of, to[start:start + size])[0]
                                   for start in range(0, len(to), size)], axis=1)
        weights, table = _solved(source.ask(squared, target, of)[0], products, means[0], means[1], int(n[0]), penalty)
    left, right = _leading(weights, min(RANK, *weights.shape), rng)
    return Crossing(of.astype(np.int32), to.astype(np.int32), means[0], means[1], left, right, people, leverage, table,
                    None if table is None else np.array([int(n[0])]))


def _penalty(given: Rows, wanted: Rows, mean: Floats, rng: np.random.Generator, n_threads: int | None) -> float | None:
    """The penalty under which people left out find most of what they chose here, if clearly more than by the mean."""
    order = rng.permutation(given.shape[0])
    held, rest = np.split(order, [min(HELD, len(order) // 3)])
    some, wanted = core_of(wanted, ITEMS)
    _, given = core_of(given, ITEMS)
    tested, told = taken(wanted, held), taken(given, held)
    by_mean = gain(np.broadcast_to(mean[some], tested.shape), None, tested)
    gains, centre = [], _mean(taken(given, rest))
    for penalty in PENALTIES:
        weights, _ = _ridge(taken(given, rest), taken(wanted, rest), penalty, n_threads)
        gains.append(gain(mean[some] + told @ weights - centre @ weights, None, tested))
    more = max(gains, key=np.mean) - by_mean
    clear = more.mean() > more.std() / np.sqrt(len(more))
    return peak(PENALTIES, [g.mean() for g in gains]) if clear else None


def _ridge(given: Rows, wanted: Rows, penalty: float, n_threads: int | None) -> tuple[Floats, NDArray[np.float32]]:
    """W, (S, M), and the leverage of each person, (n,)."""
    n, n_source = given.shape
    y_mean, x_mean = _mean(given), _mean(wanted)
    if n <= n_source:
        table = inverse(_centred(gram(given.T.tocsr(), n_threads), given @ y_mean, y_mean), penalty)    # (n, n)
        solved = table @ wanted.toarray() - np.outer(table.sum(axis=1), x_mean)
        weights = given.T @ solved - np.outer(y_mean, solved.sum(axis=0))
        leverage = 1 - penalty * table.diagonal()
    else:
        weights, table = _solved(gram(given, n_threads), (given.T @ wanted).toarray(), y_mean, x_mean, n, penalty)
        return weights, _leverage(given, table, y_mean, n, n_threads)
    return weights.astype(np.float32), np.clip(leverage + 1 / n, 0, MOST).astype(np.float32)


def _solved(square: NDArray[np.float32], products: NDArray[np.float32], y_mean: Floats, x_mean: Floats, n: int,
            penalty: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """W, (S, M), and the inverse, (S, S), from the lower triangle of Y'Y, which is used up, and Y'X of n people."""
    square -= np.tril(n * np.outer(y_mean, y_mean)).astype(np.float32)
    table = inverse(square, penalty)
    weights = table @ (products - n * np.outer(y_mean, x_mean)).astype(np.float32)
    return weights.astype(np.float32), table


def _leverage(given: Rows, table: NDArray[np.float32], y_mean: Floats, n: int,
              n_threads: int | None) -> NDArray[np.float32]:
    """Of people with these rows elsewhere, by the inverse.   (people,)"""
    bent = table @ y_mean
    leverage = quadratic(given, table, n_threads) - 2 * (given @ bent) + y_mean @ bent
    out: NDArray[np.float32] = np.clip(leverage + 1 / n, 0, MOST).astype(np.float32)
    return out


def _centred(products: Floats, with_mean: Floats, mean: Floats) -> NDArray[np.float32]:
    """The lower triangle of (Y - m)(Y - m)' from that of YY'.   (n, n)"""
    shift = with_mean[:, None] + with_mean[None, :] - mean @ mean
    out: NDArray[np.float32] = products - np.tril(shift).astype(np.float32)
    return out


def _leading(table: Floats, rank: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The closest product of this rank, by subspace iteration."""
    size = min(rank + SPARE, *table.shape)
    right = rng.normal(size=(table.shape[1], size)).astype(np.float32)
    for _ in range(PASSES):
        left = basis(table @ right)
        right = basis(table.T @ left)
    inner = left.T @ table @ right
    with one_thread_of_algebra():
        u, s, v = np.linalg.svd(inner)
    return ((left @ u[:, :rank]) * s[:rank]).astype(np.float32), (v[:rank] @ right.T).astype(np.float32)


def _mean(rows: Rows) -> NDArray[np.float32]:
    out: NDArray[np.float32] = (rows.sum(axis=0) / rows.shape[0]).astype(np.float32)
    return out
