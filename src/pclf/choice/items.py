"""Items: how the items of one catalogue are chosen together.

A person's row x holds what each choice counts, 0 for what was not chosen, and is taken as drawn from a Gaussian whose
precision is estimated with a ridge:

    P = (X'WX + penalty I + doubt diag(X'WX))^-1                                         (V, V)

W counts people by how many items they chose, to the power of -even: one choice of many tells less than one of few. The
doubt is worth a share of an item's own choices, as if some of what is given had been left out by chance at learning
(Steck, "Autoencoders that don't overfit towards the Identity", NeurIPS 2020).

Given all other items of the row, chosen or not, the mean of item j for a person whose mean row is m:

    E[x_j | others] = m_j - sum over i != j of (x_i - m_i) P_ij / P_jj   =   ((m - x) P)_j / P_jj     where x_j = 0

With m = 0, no doubt and W = I this is EASE (Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019):
its constraint of a zero diagonal is the division by P_jj. The mean row is for those who chose little. An item that few
chose has weights of about 1 / (penalty + their number), so that one admirer cannot lift it.

A large catalogue has a *core* of the items chosen most and a *tail*. Tail items are tied to the core, but not to each
other: their block is replaced by the diagonal D of its row sums, which is larger (as a quadratic form), so that all
stays positive definite. With A and C the blocks (core, core) and (tail, core), B = D^-1 C:

    P_cc = (A - C' B)^-1             P_tc = -B P_cc        P_jj = 1 / D_j + (B P_cc B')_jj  in the tail

C is sparse, so that memory grows with the square of the core only. Where people are on disk, C has `TIES` numbers at
most: tail items beyond that, those chosen least, are not tied to anything.

All of this is made of sums over people (`pclf.choice.sums`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pclf.choice import rows as rows_of
from pclf.choice.gram import Floats, gram, in_strips, inverse, quadratic, sums, sums_of_strips
from pclf.choice.rows import LARGEST, Rows, Setting, most_chosen, taken, weights
from pclf.choice.sums import Counts, Source, summed, tied, used
from pclf.choice.things import mean_of
from pclf.door import check_array, check_codes
from pclf.engines.kernels import compiled
from pclf.errors import ModelFileError

SMALLEST = 1e-12     # spread of an item
CORE = 5000          # items: their square takes 100 MB
TIES = 50_000_000    # numbers of C: 400 MB
MANY = 200           # people from whom on a copy of that square, in the order in which it is read, pays


@dataclass(frozen=True)
class Items:
    """What is known of a catalogue of V items, N of them in the core and T in the tail."""

    mean: NDArray[np.float32]        # (V,) of the rows of those who chose anything
    core: NDArray[np.int32]          # (N,) codes, ascending
    tail: NDArray[np.int32]          # (T,)
    precision: NDArray[np.float32]   # (N, N) P_cc
    ties: Rows                       # (T, N) B
    own: NDArray[np.float32]         # (T,)   1 / D
    spread: NDArray[np.float32]      # (V,)   P_jj

    @property
    def n_items(self) -> int:
        return len(self.mean)

    def times(self, rows: Rows | Floats) -> NDArray[np.float32]:
        """rows @ P.   (people, V)"""
        if isinstance(rows, np.ndarray):
            rows = np.asarray(rows, np.float32)
            pulled = rows[:, self.core] - (self.ties.T @ rows[:, self.tail].T).T
            by_core, tail = pulled @ self.precision, rows[:, self.tail]
        else:
            if not len(self.tail):
                return self._by_core(rows)
            tail = taken(rows, items=self.tail)
            by_core = self._by_core(self._pulled(taken(rows, items=self.core), tail))
            tail = tail.toarray()
        out = np.empty((rows.shape[0], self.n_items), np.float32)
        out[:, self.core] = by_core
        out[:, self.tail] = tail * self.own - (self.ties @ by_core.T).T
        return out

    def expected(self, rows: Rows, mean_times: Floats) -> NDArray[np.float32]:
        """What each item would count, if it is not chosen yet. mean_times: m P of each or of all.   (people, V)"""
        out = self.times(rows)
        np.subtract(mean_times, out, out=out)
        out *= self._scale
        return out

    def expected_without(self, shown: Rows, hidden: Rows, counts: Counts, setting: Setting) -> NDArray[np.float32]:
        """`expected` of people, each as if the items had been learned without what is hidden of this person alone.

        With a and b all that a person chose and what is shown of it, as they count in X'WX, P becomes the inverse of
        P^-1 - aa' + bb', which follows from P a and P b (Woodbury).   (people, V)
        """
        n_shown, n_hidden = np.diff(shown.indptr), np.diff(hidden.indptr)
        heavy, light = (np.sqrt(weights(n, setting.even) / counts.usual[0]).astype(np.float32)[:, None]
                        for n in (n_shown + n_hidden, n_shown))
        told, untold = self.times(shown), self.times(hidden)
        of_a, of_b = heavy * (told + untold), light * told
        out = np.float32(setting.pull) * (self.mean_times - untold / np.float32(max(1, counts.people))) - told
        whole = csr_array(shown + hidden)
        aa, ab, bb = heavy * _products(whole, of_a), light * _products(shown, of_a), light * _products(shown, of_b)
        ya, yb = heavy * _products(whole, out), light * _products(shown, out)
        scale = (aa - 1) * (1 + bb) - ab**2
        first, across, second = (np.asarray(x / scale, np.float32) for x in (1 + bb, -ab, aa - 1))
        out -= ((ya * first + yb * across) * of_a + (ya * across + yb * second) * of_b)
        out /= self.spread - first * of_a**2 - 2 * across * of_a * of_b - second * of_b**2
        return out

    def _pulled(self, inner: Rows, outer: Rows) -> Rows:
        """Rows of core items less what those of tail items pull at them: X_c - X_t B.   (people, N)"""
        if not outer.nnz:
            return inner
        if inner.shape[0] >= MANY:
            return csr_array(inner - outer @ self.ties)
        full = np.zeros(inner.shape, np.float32)             # for a few people in a hundredth of the time
        _pull(outer.indptr, outer.indices, outer.data, self.ties.indptr, self.ties.indices, self.ties.data, full)
        return csr_array(inner.toarray() - full)

    def _by_core(self, rows: Rows) -> NDArray[np.float32]:
        if rows.shape[0] < MANY:
            return sums(rows, self.precision)
        return sums_of_strips(rows, self._strips, len(self.core))

    @cached_property
    def _strips(self) -> NDArray[np.float32]:
        return in_strips(self.precision)

    @cached_property
    def mean_times(self) -> NDArray[np.float32]:
        """m P, where m is the mean row.   (V,)"""
        out: NDArray[np.float32] = self.times(self.mean[None, :])[0]
        return out

    @cached_property
    def _scale(self) -> NDArray[np.float32]:
        return np.reciprocal(self.spread)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        plain = {name: getattr(self, name) for name in ("mean", "core", "tail", "precision", "own", "spread")}
        named = {f"{prefix}.{name}": array for name, array in plain.items()}
        return named | rows_of.to_arrays(f"{prefix}.ties", self.ties)

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], n_items: int) -> "Items":
        """What `to_arrays` gave, of so many items. It is from a file, so it is checked."""
        def numbers(name: str, low: float = -LARGEST, **shape: int | None) -> NDArray[Any]:
            return check_array(f"{prefix}.{name}", arrays[f"{prefix}.{name}"], dtype="float32", shape=shape, low=low,
                               high=LARGEST)

        def places(name: str, n: int, dtype: str = "int32", size: int | None = None) -> NDArray[Any]:
            return check_codes(f"{prefix}.{name}", arrays[f"{prefix}.{name}"], n, {"places": size}, dtype)

        core, tail = places("core", n_items), places("tail", n_items)
        if len(np.unique(np.concatenate([core, tail]))) != n_items or len(core) + len(tail) != n_items:
            raise ModelFileError(f"{prefix} must have every item once, in the core or in the tail")
        ties = rows_of.from_arrays(f"{prefix}.ties", arrays, len(tail), len(core))
        return cls(numbers("mean", items=n_items), core, tail, numbers("precision", core=len(core), again=len(core)),
                   ties, numbers("own", low=0, items=len(tail)), numbers("spread", low=SMALLEST, items=n_items))


@compiled
def _pull(of_row: Any, item: Any, count: Any, of_item: Any, other: Any, tie: Any, out: Any) -> None:
    for i in range(len(out)):
        for p in range(of_row[i], of_row[i + 1]):
            x, v = count[p], item[p]
            for q in range(of_item[v], of_item[v + 1]):
                out[i, other[q]] += x * tie[q]


def learn_items(source: Source, target: int, setting: Setting, core: int = CORE, counts: Counts | None = None) -> Items:
    """Of one catalogue, from the rows of those who chose anything; rows without a choice do not count."""
    counts = counts or Counts.of(source, target, setting)
    inner, outer = (part.astype(np.int32) for part in _cut(counts.often, core))
    squares, square, beside, total_there = source.ask(summed, target, setting, counts, inner, outer)
    mean = mean_of(counts.total, counts.people, total_there if counts.things else None, counts.people_there)
    own = setting.penalty + setting.doubt * squares
    across = _across(source, target, setting, counts, inner, outer)                      # (T, N) C
    lumped = np.asarray(beside + own[outer], np.float32)                                 # (T,)   D
    ties = _scaled(across, 1 / lumped)
    n_threads = source.n_threads
    here = source.here
    by_people = here is not None and here.rows[target].shape[0] + counts.people_there <= len(inner)
    if here is not None and by_people:
        rows = used(here, target, setting, counts)          # C = X_t' X_c: then the people are the shorter way around
        of_core, of_tail = taken(rows, items=inner), taken(rows, items=outer)
    if ties.nnz and by_people:
        weighed = _scaled(of_tail.T.tocsr(), 1 / lumped)
        square -= np.asarray(of_core.T @ ((of_tail @ weighed).toarray() @ of_core), np.float32)
    elif ties.nnz:
        square -= gram(_scaled(across, 1 / np.sqrt(lumped)), n_threads)
    precision = inverse(square, own[inner])
    spread = np.empty(len(counts.often), np.float32)
    spread[inner] = precision.diagonal()
    if by_people:
        pairs = np.ascontiguousarray((of_core @ sums(of_core, precision).T).T, np.float32)            # X_c P X_c'
        spread[outer] = 1 / lumped + quadratic(_scaled(of_tail.T.tocsr(), 1 / lumped), pairs, n_threads)
    else:
        spread[outer] = 1 / lumped + quadratic(ties, precision, n_threads)
    return Items(mean, inner, outer, precision, ties, np.reciprocal(lumped), spread)


def _cut(often: NDArray[Any], core: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The items of the core and of the tail, ascending."""
    inner = most_chosen(often, core)
    return inner, np.setdiff1d(np.arange(len(often)), inner)


def _across(source: Source, target: int, setting: Setting, counts: Counts, inner: NDArray[np.int32],
            outer: NDArray[np.int32]) -> Rows:
    """What tail items and core items are chosen together, for as many tail items at a time as an answer has room for.
    (T, N)"""
    asked = outer
    if source.room is not None:
        asked = outer[most_chosen(counts.often[outer], TIES // max(1, len(inner)))]
    size = len(asked) if source.room is None else source.room // max(1, len(inner))
    parts = [source.ask(tied, target, setting, counts, inner, asked[start:start + max(1, size)])[0]
             for start in range(0, len(asked), max(1, size))]
    found = csr_array(vstack(parts, format="csr")) if parts else csr_array((0, len(inner)), dtype=np.float32)
    n = np.zeros(1 + len(outer), found.indptr.dtype)
    n[1 + np.searchsorted(outer, asked)] = np.diff(found.indptr)
    return csr_array((found.data, found.indices, np.cumsum(n, dtype=n.dtype)), shape=(len(outer), len(inner)))


def _scaled(rows: Rows, by: Floats) -> Rows:
    out = csr_array((rows.data * np.repeat(by, np.diff(rows.indptr)).astype(np.float32), rows.indices, rows.indptr),
                    shape=rows.shape)
    out.sort_indices()
    return out


def _products(rows: Rows, table: Floats) -> Floats:
    """Of each row with the row of the table in the same place.   (people, 1)"""
    out: Floats = np.asarray(rows.multiply(table).sum(axis=1), np.float32).reshape(-1, 1)
    return out


def core_of(rows: Rows, n: int) -> tuple[NDArray[np.int64], Rows]:
    """The n items chosen most, and the rows of these alone."""
    chosen = most_chosen(np.bincount(rows.indices, minlength=rows.shape[1]), n)
    return chosen, taken(rows, items=chosen)
