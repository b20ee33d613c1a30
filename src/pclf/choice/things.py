"""Things: what is sold in several catalogues, and what the choices there say about this one.

Who chose what else of the same things in another catalogue tells how they go together here. Rows of people there, in
the codes of this catalogue, are rows of this one, but for one matter: what is popular there need not be so here. What a
share p of the people chose here and a share q there is counted by sqrt(p / q) there, so that the sums of squares are
those of this catalogue, and how items correlate is what carries over.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pclf.choice.rows import Rows

WORTH = 20.0         # people here whose choices count as much for how popular an item is as all those elsewhere
MOST = 3.0           # times as much, or as little, as a choice elsewhere counts here


def places(here: NDArray[Any], there: NDArray[Any]) -> NDArray[np.int64]:
    """The code here of each thing there, -1 for what is not sold here. here, there: rows among all things."""
    code = np.full(1 + max(int(here.max(initial=-1)), int(there.max(initial=-1))), -1, np.int64)
    code[here] = np.arange(len(here))
    out: NDArray[np.int64] = code[there]
    return out


def translated(rows: Rows, place: NDArray[Any], n_items: int) -> Rows:
    """Rows of another catalogue as rows of this one, without what is not sold here.   (people, V)"""
    item = place[rows.indices]
    known = item >= 0
    start = np.concatenate([[0], np.cumsum(known)])[rows.indptr]
    out = csr_array((rows.data[known], item[known].astype(np.int32), start), shape=(rows.shape[0], n_items))
    out.sort_indices()
    return out


def elsewhere(rows: Sequence[Rows], things: Sequence[NDArray[Any]], target: int) -> Rows | None:
    """The rows of all other catalogues as rows of one, weighed as said above; None where no two choices tell."""
    here, parts = rows[target], found_elsewhere(rows, things, target)
    worth = [worth_of(*shares(there), *shares(here)) for there in parts]
    return weighed(parts, worth) if any(there.nnz for there in parts) else None


def found_elsewhere(rows: Sequence[Rows], things: Sequence[NDArray[Any]], target: int) -> list[Rows]:
    """Of each other catalogue the rows as rows of this one that tell something, which takes two choices."""
    out = []
    for z, there in enumerate(rows):
        if z != target:
            found = translated(there, places(things[target], things[z]), rows[target].shape[1])
            out.append(found[np.flatnonzero(np.diff(found.indptr) > 1)])
    return out


def shares(rows: Rows) -> tuple[NDArray[np.int64], int]:
    """How often each item was chosen, and by how many people in all."""
    return np.bincount(rows.indices, minlength=rows.shape[1]), int(np.count_nonzero(np.diff(rows.indptr)))


def worth_of(often_there: NDArray[Any], n_there: int, often_here: NDArray[Any], n_here: int) -> NDArray[np.float32]:
    """What a choice of each item there counts here.   (V,)"""
    share = often_there / max(1, n_there)
    own = (often_here + WORTH * share) / (n_here + WORTH)
    out: NDArray[np.float32] = np.sqrt(np.clip(own / np.maximum(share, 1e-12), 1 / MOST, MOST)).astype(np.float32)
    return out


def weighed(parts: Sequence[Rows], worth: Sequence[NDArray[np.float32]]) -> Rows:
    """Rows of several catalogues, one after the other, with what their choices are worth here."""
    return csr_array(vstack([csr_array((there.data * by[there.indices], there.indices, there.indptr),
                                       shape=there.shape) for there, by in zip(parts, worth, strict=True)],
                            format="csr"))


def mean_row(rows: Rows, more: Rows | None) -> NDArray[np.float32]:
    """The mean row of those who chose anything here, beside `WORTH` people as they are elsewhere.   (V,)"""
    total, n = np.asarray(rows.sum(axis=0), np.float64), int(np.count_nonzero(np.diff(rows.indptr)))
    return mean_of(total, n) if more is None else mean_of(total, n, np.asarray(more.sum(axis=0)), more.shape[0])


def mean_of(total: NDArray[Any], n: int, total_there: NDArray[Any] | None = None,
            n_there: int = 0) -> NDArray[np.float32]:
    """The same from sums of rows, and how many there are."""
    people = float(n)
    if total_there is not None:
        total, people = total + WORTH * total_there / n_there, people + WORTH
    out: NDArray[np.float32] = (total / max(1.0, people)).astype(np.float32)
    return out
