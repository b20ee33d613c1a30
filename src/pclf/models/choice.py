"""What people chose to rate, whatever they thought of it.

Who rates a horror film is more likely to like the next one, and a film that the fans of another rate is more likely
to be good in the same way. Correspondence analysis of the matrix "who rated what" (Benzecri 1973; Greenacre 1984)
gives every user and item a place, such that users are near the items they chose:

    (A - r c' / n)  scaled by  1 / sqrt(r c / n)   =   X diag(s) Y'        A: 1 where rated, r, c: its sums

Where a user stands is then the mean of the items chosen. Of five items that mean is mostly chance, of five hundred it
is not: with the variance of chosen items around their user set to 1 and that between users estimated (one-way
analysis of variance), the best linear guess is the mean times  variance * n / (variance * n + 1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator

from pclf.models.base import Floats

PLACES = 12          # dimensions
SPARE = 8            # more of them while they are sought
PASSES = 6           # of subspace iteration


@dataclass(frozen=True)
class Choice:
    """Where the chosen lie, and how much more choosers differ than chance makes them."""

    places: Floats       # (chosen, Q) uncorrelated within a chooser, of variance 1
    variance: Floats     # (Q,) between choosers

    def of_one(self, chosen: NDArray[np.int32]) -> Floats:
        """The best guess of where somebody stands who chose these. (Q,)"""
        return self._shrunk(self.places[chosen].sum(axis=0), np.float64(len(chosen)))

    def of_all(self, rated: csr_array) -> Floats:
        """The same for every row of a matrix of choices. (rows, Q)"""
        return self._shrunk(rated @ self.places, np.diff(rated.indptr)[:, None])

    def _shrunk(self, sums: Floats, n: Floats) -> Floats:
        return sums * self.variance / (self.variance * n + 1)


def learn_choices(by_user: csr_array, by_item: csr_array, rng: np.random.Generator) -> tuple[Choice, Choice]:
    """What users choose, and by whom items are chosen. by_item is by_user the other way round; both hold ones."""
    users, items = _correspondence(by_user, by_item, rng)
    return _choice(by_user, items), _choice(by_item, users)


def leading(x: LinearOperator, n: int, n_passes: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Orthonormal bases of about the n leading left and right singular vectors, by subspace iteration."""
    right = rng.normal(size=(x.shape[1], n)).astype(x.dtype)
    for _ in range(n_passes):
        left = np.linalg.qr(x @ right)[0]
        right = np.linalg.qr(x.H @ left)[0]
    return left, right


def _correspondence(by_user: csr_array, by_item: csr_array, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The places of users and of items. (U, Q), (V, Q)"""
    n_users, n_items = by_user.shape
    sums = [np.diff(side.indptr).astype(np.float64) for side in (by_user, by_item)]
    scale = [np.sqrt(np.maximum(s, 1) / max(1, by_user.nnz)).astype(np.float32) for s in sums]
    chance = [(s > 0) * root for s, root in zip(sums, scale, strict=True)]        # the singular vectors of r c'

    def product(rated: csr_array, own: int, other: int, x: Floats) -> Floats:
        x = x.reshape(len(x), -1)
        scaled = (rated @ (x / scale[other][:, None])) / (scale[own][:, None] * max(1, rated.nnz))
        return scaled - np.outer(chance[own], chance[other] @ x)

    x = LinearOperator((n_users, n_items), dtype=np.float32,
                       matvec=lambda v: product(by_user, 0, 1, v), matmat=lambda v: product(by_user, 0, 1, v),
                       rmatvec=lambda v: product(by_item, 1, 0, v), rmatmat=lambda v: product(by_item, 1, 0, v))
    size = min(n_users, n_items, PLACES + SPARE)
    left, right = leading(x, size, PASSES, rng)
    u, _, v = np.linalg.svd(left.T @ (x @ right))
    n = min(size, PLACES)
    return left @ u[:, :n] / scale[0][:, None], right @ v[:n].T / scale[1][:, None]


def _choice(rated: csr_array, places: Floats) -> Choice:
    """Places turned so that those chosen by one chooser are uncorrelated, and the variance between choosers."""
    counts, n, size = np.diff(rated.indptr), rated.nnz, places.shape[1]
    chosen = np.bincount(rated.indices, minlength=len(places))
    places = places - chosen @ places / max(1, n)
    choosers = int(np.count_nonzero(counts))
    sums = rated @ places
    between = (sums / np.maximum(counts, 1)[:, None]).T @ sums
    within = (places.T @ (chosen[:, None] * places) - between) / max(1, n - choosers) + 1e-9 * np.eye(size)
    per_chooser = n - (counts.astype(np.float64) ** 2).sum() / max(1, n)
    between = (between - choosers * within) / max(1.0, per_chooser)
    whiten = np.linalg.inv(np.linalg.cholesky(within))
    variance, turn = np.linalg.eigh(whiten @ between @ whiten.T)
    return Choice(places @ whiten.T @ turn, np.maximum(variance, 0))
