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
    here, parts = rows[target], []
    for z, there in enumerate(rows):
        if z != target:
            found = translated(there, places(things[target], things[z]), here.shape[1])
            found = found[np.flatnonzero(np.diff(found.indptr) > 1)]
            if found.nnz:
                parts.append(_weighed(found, here))
    return csr_array(vstack(parts, format="csr")) if parts else None


def mean_row(rows: Rows, more: Rows | None) -> NDArray[np.float32]:
    """The mean row of those who chose anything here, beside `WORTH` people as they are elsewhere.   (V,)"""
    total, n = np.asarray(rows.sum(axis=0), np.float64), float(np.count_nonzero(np.diff(rows.indptr)))
    if more is not None:
        total, n = total + WORTH * np.asarray(more.sum(axis=0)) / more.shape[0], n + WORTH
    out: NDArray[np.float32] = (total / max(1.0, n)).astype(np.float32)
    return out


def _weighed(there: Rows, here: Rows) -> Rows:
    share = np.bincount(there.indices, minlength=there.shape[1]) / there.shape[0]
    n = np.count_nonzero(np.diff(here.indptr))
    own = (np.bincount(here.indices, minlength=here.shape[1]) + WORTH * share) / (n + WORTH)
    by = np.sqrt(np.clip(own / np.maximum(share, 1e-12), 1 / MOST, MOST)).astype(np.float32)
    return csr_array((there.data * by[there.indices], there.indices, there.indptr), shape=there.shape)
