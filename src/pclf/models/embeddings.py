"""Embeddings: vectors whose inner products sort items as `rank_by="chosen"` does, for an index of vectors.

What an item would count for a person (z, see `pclf.models.lists`) is a mean of everybody, c, and what the person's own
choices add. The second, over all items and people, is a matrix that its leading right singular vectors R (D, V) nearly
span. So

    z_u  ~  c + ((z_u - c) R') R         an item's vector: (R_j, c_j)         a person's: ((z_u - c) R', 1)

R is found on a sample of the people of the domain. Visitors and guests have a vector in the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.choice.gram import basis
from pclf.data.columns import id_column
from pclf.data.domain import Domain
from pclf.engines.cpu import one_thread_of_algebra

Floats = NDArray[np.floating[Any]]
SAMPLE, TRIED = 3000, 300        # people that R is found on, and others that it is tried on
PASSES, SPARE = 3, 16
N = 10


@dataclass(frozen=True, repr=False)
class Embeddings:
    """Vectors of a domain's items. Their inner products with `embedding(user)` give the order of what people choose."""

    domain: Domain
    vectors: NDArray[np.float32]                                              # (V, D + 1)
    agreement: float                                                          # share of the first ten that is the same
    place: Callable[[Any, str | None], Floats] = field(repr=False)            # users -> (n, V) of z less c

    def embedding(self, user: Any, *, user_domain: str | None = None) -> NDArray[np.float32]:
        """The vector of one person, who may be a visitor or a guest.   (D + 1,)"""
        out: NDArray[np.float32] = self.embedding_of([user], user_domain=user_domain)[0]
        return out

    def embedding_of(self, users: list[Any], *, user_domain: str | None = None) -> NDArray[np.float32]:
        """The vectors of several people.   (n, D + 1)"""
        return _with_one(self.place(users, user_domain) @ self.vectors[:, :-1])

    def __repr__(self) -> str:
        n, size = self.vectors.shape
        return (f"Embeddings of {self.domain.name!r}: {n:,} items, {size} numbers each; {self.agreement:.0%} of the "
                f"first {N} are those of recommend")

    def to_arrow(self) -> Any:
        """A pyarrow table with the columns item_id, title and vector, a list of D + 1 numbers."""
        import pyarrow as pa

        codes = np.arange(self.domain.n_items)
        flat = pa.array(np.ascontiguousarray(self.vectors, np.float32).ravel())
        return pa.table({"item_id": id_column(self.domain.items.decode(codes)),
                         "title": pa.array([self.domain.title(int(c)) for c in codes]),
                         "vector": pa.FixedSizeListArray.from_arrays(flat, self.vectors.shape[1])})


def learn_embeddings(domain: Domain, mean: Floats, of_codes: Callable[[Any], tuple[Floats, Any]],
                     place: Callable[[Any, str | None], Floats], size: int, rng: np.random.Generator) -> Embeddings:
    """mean: c, (V,). of_codes: z less c of people of the domain, (n, V), and what they have chosen, sparse, (n, V)."""
    codes = rng.permutation(domain.n_users)
    n_tried = min(TRIED, len(codes) // 10)
    sample, tried = np.sort(codes[n_tried:n_tried + SAMPLE]), np.sort(codes[:n_tried])
    if not n_tried:                                  # fewer than ten people: better than nothing
        tried = sample
    rows, _ = of_codes(sample)
    right = _leading(rows, min(size, *rows.shape), rng)
    vectors = np.column_stack([right.T, mean]).astype(np.float32)
    exact, chosen = of_codes(tried)
    near = _with_one(exact @ right.T) @ vectors.T
    seen = chosen.toarray() > 0
    lists = [np.argsort(np.where(seen, np.inf, -scores), axis=1, kind="stable")[:, :N].tolist()
             for scores in (exact + mean, near)]
    same = np.mean([len(set(a) & set(b)) / max(1, len(a)) for a, b in zip(*lists, strict=True)])
    return Embeddings(domain, vectors, float(same), place)


def _leading(rows: Floats, size: int, rng: np.random.Generator) -> Floats:
    """The leading right singular vectors, by subspace iteration.   (size, V)"""
    right = rng.normal(size=(rows.shape[1], min(size + SPARE, *rows.shape))).astype(np.float32)
    for _ in range(PASSES):
        left = basis(rows @ right)
        right = basis(rows.T @ left)
    short = rows @ right
    with one_thread_of_algebra():
        _, _, turn = np.linalg.svd(short, full_matrices=False)
    out: Floats = (turn @ right.T)[:size]
    return out


def _with_one(vectors: Floats) -> NDArray[np.float32]:
    return np.column_stack([vectors, np.ones(len(vectors))]).astype(np.float32)
