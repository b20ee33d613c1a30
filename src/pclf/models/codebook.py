"""Codebook: how groups of people rate groups of things in one domain. What CBT and TALMUD transfer.

The domain's matrix X, missing ratings filled by the user's mean, is factorised as

    min |X - U S V'|^2,    U, V non-negative with orthogonal columns

(orthogonal non-negative tri-factorisation: Ding, Li, Peng & Park, KDD 2006), the memberships U, V are made
binary, and the codebook B(k, l) is the mean of X over co-cluster (k, l): Li, Yang & Xue, IJCAI 2009.

What differs: non-negative columns are orthogonal only if every row has a single entry, and that entry is set
to 1 anyway. So memberships are binary here from the start, and each is the best one given the others. (Tried
first: the multiplicative updates of Ding et al. took hundreds of steps to leave the flat solution, most of X
being filled in, and were still behind after 1000.) As they advise, k-means of rows and columns is the start.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from pclf.data.ratings import Domain
from pclf.factors.choices import leading
from pclf.models.base import Floats

Labels = NDArray[np.intp]
Numbers = NDArray[np.floating[Any] | np.integer[Any]]


def learn_codebook(domain: Domain, levels: NDArray[np.uint8], n_user_clusters: int, n_item_clusters: int,
                   max_iter: int, n_restarts: int, rng: np.random.Generator) -> Floats:
    """The mean level of each co-cluster, from the best of several starts; the mean if empty.   (K, L)"""
    x = fill_by_user_means(domain, levels)
    fits = [co_cluster(x, n_user_clusters, n_item_clusters, max_iter, rng) for _ in range(n_restarts)]
    book, _ = max(fits, key=lambda fit: fit[1][-1])
    return np.where(np.isnan(book), levels.mean(), book)


def fill_by_user_means(domain: Domain, levels: NDArray[np.uint8]) -> LinearOperator:
    """The domain without gaps, as a sparse matrix plus one of rank 1, so that users x items never exists."""
    rated = np.bincount(domain.user, minlength=domain.n_users)
    means = np.bincount(domain.user, levels, domain.n_users) / np.maximum(rated, 1)
    means[rated == 0] = levels.mean()
    gaps = csr_array((levels - means[domain.user], (domain.user, domain.item)),
                     shape=(domain.n_users, domain.n_items))
    ones = np.ones((1, domain.n_items))
    return aslinearoperator(gaps) + aslinearoperator(means[:, None]) @ aslinearoperator(ones)


def co_cluster(x: LinearOperator, n_row_clusters: int, n_column_clusters: int, max_iter: int,
               rng: np.random.Generator) -> tuple[Floats, list[float]]:
    """The means of co-clusters, NaN for empty ones, and how much of |X|^2 they explain after each pass.

    That is sum n(k, l) B(k, l)^2, with n the size of a co-cluster; the rest of |X|^2 is |X - U B V'|^2.
    """
    rows, columns = spectral_start(x, n_row_clusters, n_column_clusters, rng)
    u, v = one_hot(rows, n_row_clusters), one_hot(columns, n_column_clusters)
    explained = [-np.inf]
    for _ in range(max_iter):
        sums, sizes = x @ v, v.sum(axis=0)                     # (rows, L), (L,)
        u = one_hot(closest(sums, sizes, cell_means(u, sums, sizes)), n_row_clusters)
        sums, sizes = x.H @ u, u.sum(axis=0)                   # (columns, K), (K,)
        v = one_hot(closest(sums, sizes, cell_means(v, sums, sizes)), n_column_clusters)
        book = cell_means(v, sums, sizes).T
        explained.append(float(np.nansum(np.outer(sizes, v.sum(axis=0)) * book ** 2)))
        if explained[-1] <= explained[-2]:
            break
    return book, explained[1:]


def closest(sums: Numbers, counts: Numbers, book: Floats) -> Labels:
    """For each row, the row of the codebook with the least squared error; never an empty one (NaN).

    sums, counts: of the row's ratings by cluster of the column, (n, L); counts may be the same for all, (L,).
    """
    empty, book = np.isnan(book).all(axis=1), np.nan_to_num(book)
    cost = counts @ (book ** 2).T - 2 * sums @ book.T
    labels: Labels = np.where(empty, np.inf, cost).argmin(axis=1)
    return labels


def one_hot(labels: Labels, n_clusters: int) -> Floats:
    return np.eye(n_clusters)[labels]


def cell_means(members: Floats, sums: Floats, sizes: Floats) -> Floats:
    area = np.outer(members.sum(axis=0), sizes)
    means: Floats = np.divide(members.T @ sums, area, out=np.full(area.shape, np.nan), where=area > 0)
    return means


def spectral_start(x: LinearOperator, n_row_clusters: int, n_column_clusters: int,
                   rng: np.random.Generator) -> tuple[Labels, Labels]:
    """k-means of rows and of columns in the space of the leading singular vectors, where noise is less."""
    start = rng.normal(size=(x.shape[1], min(n_row_clusters, n_column_clusters))).astype(x.dtype)
    left, right = leading(lambda y: x @ y, lambda y: x.H @ y, start, 4)
    return k_means(x @ right, n_row_clusters, rng), k_means(x.H @ left, n_column_clusters, rng)


def k_means(points: Floats, n_clusters: int, rng: np.random.Generator, n_passes: int = 20) -> Labels:
    """Lloyd's algorithm, from centres that are far apart (k-means++)."""
    centres = points[rng.integers(len(points), size=1)]
    while len(centres) < min(n_clusters, len(points)):
        gaps = squared_gaps(points, centres).min(axis=1)
        odds = gaps / gaps.sum() if gaps.sum() > 0 else None
        centres = np.vstack([centres, points[rng.choice(len(points), p=odds)]])
    for _ in range(n_passes):
        labels: Labels = squared_gaps(points, centres).argmin(axis=1)
        members = one_hot(labels, n_clusters)
        centres = members.T @ points / np.maximum(members.sum(axis=0), 1)[:, None]
    return labels


def squared_gaps(points: Floats, centres: Floats) -> Floats:
    gaps: Floats = (points ** 2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres ** 2).sum(axis=1)
    return np.maximum(gaps, 0)   # rounding can leave a little less than 0
