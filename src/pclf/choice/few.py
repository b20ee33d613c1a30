"""Few: what somebody will choose who has told little.

`items` takes the whole row of a person as told: what is not chosen was turned down. Of somebody with three choices that
is not so, they have only begun, and lists made that way are worse than what everybody picks. So of those who told
little, choices alone are taken as told and everything else as missing. Given n choices C, which count x_C, the mean of
a Gaussian is

    E[x_j | x_C]  =  m_j + S_jC (S_CC + penalty I)^-1 (x_C - m_C)         S = X'X - N mean mean'

with the rows X of N people, weighed as there. The more somebody told, the less is missing: with n choices, the whole
row counts n^2 / (n^2 + few^2), and this the rest. `few` and the penalty are found on hidden choices (`validate`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pclf.choice.gram import Floats, in_parts
from pclf.choice.rows import Rows, Setting, evened
from pclf.engines.kernels import compiled

TOLD = 0.95          # share of the whole row from which nothing else is asked
PART = 16            # people worked on together


@dataclass(frozen=True)
class Together:
    """Who chose what together in a catalogue."""

    rows: Rows                        # (N, V) weighed
    penalty: float
    few: float

    @classmethod
    def of(cls, rows: Rows, setting: Setting, more: Rows | None = None) -> "Together":
        """more: the rows of other catalogues, see `things.elsewhere`."""
        own = evened(rows, setting.even)
        if more is not None and setting.things:
            others = evened(more, setting.even) * np.float32(np.sqrt(setting.things))
            own = csr_array(vstack([own, others], format="csr"))
        return cls(own[np.flatnonzero(np.diff(own.indptr) > 0)], setting.few_penalty, setting.few)

    def whole(self, n: NDArray[Any]) -> Floats:
        """How much the whole row counts of people with so many choices.   (people,)"""
        square = np.square(np.asarray(n, np.float64))
        out: Floats = square / np.maximum(square + self.few**2, 1e-12)
        return out

    def asked(self, n: NDArray[Any]) -> NDArray[np.bool_]:
        """Who told something, and little.   (people,)"""
        return (n > 0) & (self.whole(n) < TOLD)

    def expected(self, rows: Rows, means: Floats, n_threads: int | None = None) -> NDArray[np.float32]:
        """What each item would count for people who chose these, if what they did not choose is missing.   (people, V)

        means: their mean rows, m, one for all or one for each.
        """
        out = np.empty(rows.shape, np.float32)
        out[:] = means
        choosers, of_all = self._choosers, self.rows
        in_parts(lambda a, b: _expected(a, b, rows.indptr, rows.indices, rows.data, choosers.indptr, choosers.indices,
                                        choosers.data, of_all.indptr, of_all.indices, of_all.data, self._mean,
                                        self.penalty, out), rows.shape[0], PART, n_threads)
        return out

    @cached_property
    def _choosers(self) -> Rows:
        out = self.rows.T.tocsr()
        out.sort_indices()
        return out

    @cached_property
    def _mean(self) -> NDArray[np.float64]:
        out: NDArray[np.float64] = np.asarray(self.rows.sum(axis=0), np.float64).ravel() / max(1, self.rows.shape[0])
        return out


@compiled
def _expected(first: int, last: int, start: Any, item: Any, count: Any, of_item: Any, person: Any, weight: Any,
              of_person: Any, chosen: Any, value: Any, mean: Any, penalty: float, out: Any) -> None:
    n_people = len(of_person) - 1
    by_person = np.zeros(n_people)                 # of the item at hand, then what each person's row is taken times
    met, is_met = np.empty(n_people, np.int64), np.zeros(n_people, np.bool_)
    for i in range(first, last):
        a, n = start[i], start[i + 1] - start[i]
        square, told = np.zeros((n, n)), np.empty(n)
        for c in range(n):
            v = item[a + c]
            told[c] = count[a + c] - out[i, v]
            for p in range(of_item[v], of_item[v + 1]):
                by_person[person[p]] = weight[p]
            for d in range(c + 1):
                w, total = item[a + d], 0.0
                for p in range(of_item[w], of_item[w + 1]):
                    total += by_person[person[p]] * weight[p]
                square[c, d] = total - n_people * mean[v] * mean[w]
            square[c, c] += penalty
            for p in range(of_item[v], of_item[v + 1]):
                by_person[person[p]] = 0.0
        _solve(square, told)
        shift, n_met = 0.0, 0
        for c in range(n):
            v = item[a + c]
            shift += told[c] * mean[v]
            for p in range(of_item[v], of_item[v + 1]):
                u = person[p]
                if not is_met[u]:
                    met[n_met], is_met[u] = u, True
                    n_met += 1
                by_person[u] += told[c] * weight[p]
        for j in range(len(mean)):
            out[i, j] -= n_people * shift * mean[j]
        for k in range(n_met):
            u = met[k]
            for q in range(of_person[u], of_person[u + 1]):
                out[i, chosen[q]] += by_person[u] * value[q]
            by_person[u], is_met[u] = 0.0, False


@compiled
def _solve(square: Any, right: Any) -> None:
    """The solution in place of the right side, by Cholesky; of the symmetric matrix the lower triangle is given."""
    n = len(right)
    for c in range(n):
        for d in range(c + 1):
            total = square[c, d]
            for k in range(d):
                total -= square[c, k] * square[d, k]
            square[c, d] = np.sqrt(max(total, 1e-12)) if c == d else total / square[d, d]
        total = right[c]
        for k in range(c):
            total -= square[c, k] * right[k]
        right[c] = total / square[c, c]
    for e in range(n):
        c = n - 1 - e
        total = right[c]
        for k in range(c + 1, n):
            total -= square[k, c] * right[k]
        right[c] = total / square[c, c]
