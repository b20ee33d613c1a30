"""Neighbours: items that the same people rate alike, beyond what their rows say.

Two editions of a book, two parts of a series: who gave one of them more than was expected gives the other more, too. No
factor can say that of every such pair. So what rows leave of a rating, in units of a person's offset,

    e_uj = (a_1(r_uj) - E[a_1]) / mean Var[a_1]

is regressed on what they leave of the same person's other ratings, by ridge. Where nothing was rated, nothing is left:

    P = (E'E + penalty I)^-1          B_ij = -P_ij / P_ii, and B_ii = 0

(Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019, does so with choices.) A prediction is moved by

    sum over j of w_ij e_uj / max(1, sum of |w_ij|)         w = strength * B, the sums over what the person rated

so that three editions that say the same do not say it three times.
Most of E is missing and not nothing, so B is too small. By how much, the strength, and the penalty are found on
held-out ratings; where neighbours do not surely help, there are none. Each item keeps its strongest weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pclf.choice.gram import gram, in_parts, inverse
from pclf.choice.rows import Rows
from pclf.door import check_array, check_codes
from pclf.engines.kernels import compiled
from pclf.errors import ModelFileError
from pclf.factors.fitted import DomainFactors
from pclf.factors.rows import Floats

PENALTIES = (10.0, 3.0, 30.0)      # where the first does not help, the others are not tried
STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
CORE = 3000          # items with the most ratings, which may have neighbours: their square takes 36 MB
KEPT = 50            # weights of an item, at most
LEAST = 0.005        # weight that is kept
LARGEST = 1e6        # weight in a file
PART = 1 << 14       # ratings worked on together
PAIRS = 1e10         # of ratings of the same person, at most: their sums take seconds


@dataclass(frozen=True)
class Left:
    """What rows leave of the ratings of some people."""

    ratings: Rows                    # (people, V)
    rows: NDArray[np.int32]          # (n,) in these, -1 for nothing

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: Any) -> "Left":
        return Left(self.ratings, self.rows[some])

    def with_others(self, at: NDArray[np.intp], others: Rows) -> "Left":
        """With these in the places `at`, a row each. Of the ratings, only those of the people who are here are kept."""
        kept, rows = np.flatnonzero(self.rows >= 0), np.full(len(self.rows), -1, np.int32)
        rows[kept] = np.arange(len(kept), dtype=np.int32)
        rows[at] = len(kept) + np.arange(len(at), dtype=np.int32)
        here = [self.ratings[self.rows[kept]]] if len(kept) else []
        return Left(csr_array(vstack([*here, others], format="csr")) if here else others, rows)


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of the V items of a domain."""

    weights: Rows                    # (V, V) strength * B
    spread: float                    # mean Var[a_1] of a rating
    penalty: float
    strength: float

    def offsets(self, left: Left, items: NDArray[np.int32]) -> NDArray[np.float32]:
        """By how much the offsets of pairs are moved; one against many is repeated. items: codes, -1 for a new one."""
        n = max(len(left), len(items))
        out = np.zeros(n, np.float32)
        _offsets(np.broadcast_to(left.rows, n), np.broadcast_to(items, n), left.ratings.indptr, left.ratings.indices,
                 left.ratings.data, self.weights.indptr, self.weights.indices, self.weights.data, out)
        return out

    def of_all(self, left: Left) -> NDArray[np.float32]:
        """The same for every item. (n, V)"""
        out = np.zeros((len(left), self.weights.shape[0]), np.float32)
        told = left.rows >= 0
        asked = left.ratings[left.rows[told]]
        rated = csr_array((np.ones_like(asked.data), asked.indices, asked.indptr), shape=asked.shape)
        out[told] = (asked @ self.weights.T).toarray() / np.maximum((rated @ abs(self.weights).T).toarray(), 1)
        return out

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {f"{prefix}.start": self.weights.indptr, f"{prefix}.item": self.weights.indices,
                f"{prefix}.value": self.weights.data,
                f"{prefix}.numbers": np.array([self.spread, self.penalty, self.strength])}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], n_items: int) -> "Neighbours":
        """What `to_arrays` gave, of so many items. It is from a file, so it is checked."""
        for name in ("start", "item", "value", "numbers"):
            if f"{prefix}.{name}" not in arrays:
                raise ModelFileError(f"{prefix} must have its {name}")
        value = check_array(f"{prefix}.value", arrays[f"{prefix}.value"], dtype="float32", shape={"weights": None},
                            low=-LARGEST, high=LARGEST)
        start = check_array(f"{prefix}.start", arrays[f"{prefix}.start"], dtype="int32",
                            shape={"items and one": n_items + 1}, low=0, high=len(value))
        if start[0] != 0 or start[-1] != len(value) or (np.diff(start) < 0).any():
            raise ModelFileError(f"{prefix}.start must rise from 0 to {len(value):,}")
        item = check_codes(f"{prefix}.item", arrays[f"{prefix}.item"], n_items, {"weights": len(value)}, "int32")
        numbers = check_array(f"{prefix}.numbers", arrays[f"{prefix}.numbers"], dtype="float64", shape={"numbers": 3},
                              low=0, high=LARGEST)
        if numbers[0] <= 0:
            raise ModelFileError(f"{prefix}.numbers must begin with a spread above 0; got {numbers[0]}")
        return cls(csr_array((value, item, start), shape=(n_items, n_items)), *numbers.tolist())


def left_of(own: DomainFactors, users: Floats, user: NDArray[np.int32], item: NDArray[np.int32],
            level: NDArray[np.uint8], spread: float | None = None) -> tuple[Rows, float]:
    """What rows leave of ratings, (users, V), and the mean variance, which is `spread` where that is given.

    users: rows as items meet them, (U, D + 2). user, item, level: the ratings.
    """
    out, variance = np.empty((2, len(user)), np.float32)
    few = len(user) < len(own.items)               # then the rows of all items take longer to round than all else
    rows, items = np.asarray(users, np.float32), np.asarray(own.item_rows[item] if few else own.item_rows, np.float32)
    base, tilt = np.asarray(own.base, np.float32), np.asarray(own.tilt, np.float32)
    met = np.arange(len(item), dtype=np.int32) if few else item
    in_parts(lambda a, b: _left(a, b, user, met, level, rows, items, base, tilt, out, variance), len(user), PART)
    if spread is None:
        spread = float(max(variance.mean(dtype=np.float64), 1e-6)) if len(user) else 1.0
    found = csr_array((out / np.float32(spread), (user, item)), shape=(len(users), len(own.items)))
    found.sort_indices()
    return found, spread


def affordable(user: NDArray[np.int32]) -> bool:
    """Whether the sums over all pairs of ratings of a person take seconds, and not minutes."""
    return float(np.square(np.bincount(user).astype(np.float64)).sum()) <= PAIRS


def learn(left: Rows, spread: float, penalties: tuple[float, ...] = PENALTIES,
          n_threads: int | None = None) -> Iterator[Neighbours]:
    """Neighbours of strength 1 for each penalty."""
    often = np.bincount(left.indices, minlength=left.shape[1])
    core = np.sort(np.argsort(-often, kind="stable")[:min(CORE, int((often > 1).sum()))]).astype(np.int32)
    of_core = csr_array(left[:, core])
    of_core.sort_indices()
    square = gram(of_core, n_threads)
    for i, penalty in enumerate(penalties):
        precision = inverse(square if i == len(penalties) - 1 else square.copy(), penalty)
        yield Neighbours(_strongest(precision, core, left.shape[1]), spread, penalty, 1.0)


def strengthened(one: Neighbours, strength: float) -> Neighbours:
    """Neighbours of another strength, from those of strength 1."""
    weights = csr_array((one.weights.data * np.float32(strength), one.weights.indices, one.weights.indptr),
                        shape=one.weights.shape)
    return Neighbours(weights, one.spread, one.penalty, strength)


def _strongest(precision: NDArray[np.float32], core: NDArray[np.int32], n_items: int) -> Rows:
    """The strongest weights of each item, as rows. (V, V)"""
    weights = precision / -precision.diagonal()[:, None]
    np.fill_diagonal(weights, 0)
    n, kept = len(core), min(KEPT, len(core))
    if not n:
        return csr_array((n_items, n_items), dtype=np.float32)
    at = np.sort(np.argpartition(-np.abs(weights), kept - 1, axis=1)[:, :kept], axis=1)        # (N, kept)
    value = np.take_along_axis(weights, at, axis=1)
    strong = np.abs(value) >= LEAST
    counts = np.zeros(n_items, np.int32)
    counts[core] = strong.sum(axis=1)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return csr_array((value[strong], core[at[strong]], start), shape=(n_items, n_items))


@compiled
def _left(first: int, last: int, user: Any, item: Any, level: Any, users: Any, items: Any, base: Any, tilt: Any,
          out: Any, variance: Any) -> None:
    n_levels, n_shape = len(base), len(tilt)
    p = np.empty(n_levels, np.float32)
    for i in range(first, last):
        row, other = users[user[i]], items[item[i]]
        product = np.float32(0)
        for f in range(n_shape, len(row)):
            product += row[f] * other[f]
        top = np.float32(-np.inf)
        for r in range(n_levels):
            p[r] = base[r] + tilt[0, r] * product
            for t in range(n_shape):
                p[r] += tilt[t, r] * (row[t] + other[t])
            top = max(top, p[r])
        total, mean, square = np.float32(0), np.float32(0), np.float32(0)
        for r in range(n_levels):
            q = np.exp(p[r] - top)
            total += q
            mean += q * tilt[0, r]
            square += q * tilt[0, r] * tilt[0, r]
        mean /= total
        out[i] = tilt[0, level[i]] - mean
        variance[i] = square / total - mean * mean


@compiled
def _offsets(rows: Any, items: Any, of_row: Any, rated: Any, left: Any, of_item: Any, near: Any, weight: Any,
             out: Any) -> None:
    """Two ascending lists are gone through side by side: what a person rated, and the neighbours of an item."""
    for i in range(len(out)):
        u, v = rows[i], items[i]
        if u < 0 or v < 0:
            continue
        p, q = of_row[u], of_item[v]
        total, mass = np.float32(0), np.float32(0)
        while p < of_row[u + 1] and q < of_item[v + 1]:
            if rated[p] == near[q]:
                total += left[p] * weight[q]
                mass += abs(weight[q])
                p += 1
                q += 1
            elif rated[p] < near[q]:
                p += 1
            else:
                q += 1
        out[i] = total / max(mass, np.float32(1))
