"""CBT: codebook transfer. How groups of people rate groups of things is learned in one domain for another.

Li, Yang & Xue, "Can Movies and Books Collaborate? Cross-Domain Collaborative Filtering for Sparsity
Reduction", IJCAI 2009. With B the source's codebook (see `codebook`), Y the target and W = 1 where observed:

    min |W * (Y - U B V')|^2    over memberships U, V with a single 1 in each row

Users and items take turns to move to the cluster with the least squared error, from a random start, until
nothing improves. A rating is predicted by its cell of U B V'. Every domain is the target in turn.

What differs from the paper: domains meet on their common levels, and because one may rate higher than the
other as a whole, the codebook is moved by the difference of their means (`match_means=False`: it is left as
published). Users and items without ratings get the average membership of the others.

Cremonesi & Quadrana ("Cross-domain Recommendations without Overlapping Data: Myth or Reality?", RecSys 2014)
ask if anything is transferred. `codebook="shuffled"` is the control: the same numbers, without their pattern.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.door import check_array, check_names
from pclf.errors import ArgumentError, DataError
from pclf.models.base import Floats, Recommender
from pclf.models.codebook import Labels, closest, learn_codebook, one_hot
from pclf.models.factors import Factorised, check_whole, has_ratings

CODEBOOKS = ("learned", "shuffled")


class Codebooks(Factorised):
    """What CBT and TALMUD do: learn the codebooks of their sources, and expand them in each target."""

    kept = ("trace_", "weights_")
    weighted: ClassVar[bool] = False

    codebooks_: dict[str, Floats]             # source: (K, L), on the common levels 0 to R - 1
    weights_: dict[str, dict[str, float]]     # target: its sources and their weights, a single 1 for CBT
    n_user_clusters: int
    n_item_clusters: int
    codebook: str
    match_means: bool
    max_iter: int
    n_restarts: int

    def _sources(self, ratings: Ratings, target: str) -> list[str]:
        raise ArgumentError(f"{type(self).__name__} must say from which domains it learns.")

    def _fit(self, ratings: Ratings, rng: np.random.Generator) -> None:
        self._check_settings()
        sources = {target: self._sources(ratings, target) for target in ratings.domains}
        used = [name for name in ratings.domains if any(name in names for names in sources.values())]
        codebooks = {name: self._learn(ratings, name, rng) for name in used}
        factors, weights, traces = {}, {}, {}
        for target, names in sources.items():
            books = [on_target(codebooks[name], ratings, name, target, self.match_means) for name in names]
            users, items, found, traces[target] = expand(ratings[target], books, self.weighted, self.max_iter,
                                                         self.n_restarts, rng)
            factors[target], weights[target] = (users, items), dict(zip(names, found.tolist(), strict=True))
        self.factors_, self.codebooks_, self.weights_, self.trace_ = factors, codebooks, weights, traces

    def _learn(self, ratings: Ratings, source: str, rng: np.random.Generator) -> Floats:
        book = learn_codebook(ratings[source], ratings.levels(source), self.n_user_clusters,
                              self.n_item_clusters, self.max_iter, self.n_restarts, rng)
        return rng.permuted(book, axis=None) if self.codebook == "shuffled" else book

    def _check_settings(self) -> None:
        check_whole(1, n_user_clusters=self.n_user_clusters, n_item_clusters=self.n_item_clusters,
                    max_iter=self.max_iter, n_restarts=self.n_restarts)
        if self.codebook not in CODEBOOKS:
            raise ArgumentError(f"codebook must be one of: {', '.join(CODEBOOKS)}; got {self.codebook!r}.")

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, extra = super()._state()
        books = {f"codebook.{z}": self.codebooks_[name]
                 for z, name in enumerate(self.data_.domains) if name in self.codebooks_}
        return arrays | books, extra

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        super()._set_state(data, arrays, extra)
        names = {f"codebook.{z}": name for z, name in enumerate(data.domains)}
        check_names("the model", [n for n in arrays if n.startswith("codebook.")], (), names)
        self.codebooks_ = {name: check_array(key, arrays[key], dtype="float", shape={"K": None, "L": None},
                                             low=0, high=data.n_levels - 1)
                           for key, name in names.items() if key in arrays}


class CBT(Codebooks, Recommender):
    """Codebook transfer, by default from the other domain with the most ratings.

    source: the domain that the others learn from; itself it learns from the largest of the others.
    n_restarts: starts of either step; the one with the least squared error is kept.

    A user with few ratings is over-fitted when there are many clusters to choose from: 8 did best on samples
    of MovieLens 1M, goodbooks and Douban. With 5 ratings given, CBT can be worse there than the target's
    mean.
    """

    def __init__(self, n_user_clusters: int = 8, n_item_clusters: int = 8, *, source: str | None = None,
                 codebook: str = "learned", match_means: bool = True, max_iter: int = 50,
                 n_restarts: int = 3) -> None:
        self.n_user_clusters = n_user_clusters
        self.n_item_clusters = n_item_clusters
        self.source = source
        self.codebook = codebook
        self.match_means = match_means
        self.max_iter = max_iter
        self.n_restarts = n_restarts

    def _sources(self, ratings: Ratings, target: str) -> list[str]:
        others = other_domains(ratings, target, () if self.source is None else (self.source,))
        return [max(others, key=lambda name: len(ratings[name]))]


def other_domains(ratings: Ratings, target: str, wanted: Sequence[str]) -> list[str]:
    """The domains a target learns from: those wanted, or if none besides itself is, all with ratings."""
    others = [name for name in wanted if name != target]
    others = others or [name for name, d in ratings.domains.items() if name != target and len(d)]
    if not others or not all(len(ratings[name]) for name in others):
        raise DataError(f"a codebook for {target!r} must come from another domain with ratings; got "
                        f"{', '.join(map(repr, others)) or 'none'}. Fit two or more domains, or use FMM.")
    return others


def on_target(book: Floats, ratings: Ratings, source: str, target: str, match_means: bool) -> Floats:
    """A codebook on the target's own scale, moved by the difference of the domains' means."""
    own = ratings.levels(target)
    shift = own.mean() - ratings.levels(source).mean() if match_means and len(own) else 0.0
    return np.interp(book + shift, np.arange(ratings.n_levels), ratings.level_values(target))


def expand(target: Domain, books: list[Floats], weighted: bool, max_iter: int, n_restarts: int,
           rng: np.random.Generator) -> tuple[Floats, Floats, Floats, list[float]]:
    """Factors of users and items, the weight of each codebook, and the squared error after each pass.

    Every codebook is expanded alone, and for one of weight 1 that is all. If `weighted`, their sum follows:
    weights by least squares, then the memberships in each codebook on what the others leave over.
    """
    rating = target.ratings
    fits = [min((alternate(target, rating, b, rng.integers(b.shape[1], size=target.n_items), max_iter)
                 for _ in range(n_restarts)), key=lambda fit: fit[2][-1]) for b in books]
    labels = [(users, items) for users, items, _ in fits]
    weights, trace = np.full(len(books), 1 / len(books)), fits[0][2]
    if weighted and len(rating):
        parts = np.column_stack([cells(target, b, *own) for b, own in zip(books, labels, strict=True)])
        trace = [np.inf]
        for _ in range(max_iter):
            weights = np.linalg.lstsq(parts, rating, rcond=None)[0]
            for n, book in enumerate(books):
                rest = rating - parts @ weights + parts[:, n] * weights[n]
                labels[n] = alternate(target, rest, weights[n] * book, labels[n][1], 1)[:2]
                parts[:, n] = cells(target, book, *labels[n])
            trace.append(float(np.square(rating - parts @ weights).sum()))
            if trace[-2] - trace[-1] <= 1e-6 * trace[-1]:
                break
        trace = trace[1:]
    who, what = has_ratings(target)
    users = np.hstack([memberships(u, len(book), who) @ (weight * book)
                       for weight, book, (u, _) in zip(weights, books, labels, strict=True)])
    items = np.hstack([memberships(v, book.shape[1], what)
                       for book, (_, v) in zip(books, labels, strict=True)])
    return users, items, weights, trace


def alternate(target: Domain, rating: Floats, book: Floats, items: Labels,
              max_iter: int) -> tuple[Labels, Labels, list[float]]:
    """Users, then items, each to its best cluster, until the squared error stops falling."""
    trace = [np.inf]
    for _ in range(max_iter):
        users = assign(target.user, items[target.item], rating, target.n_users, book)
        items = assign(target.item, users[target.user], rating, target.n_items, book.T)
        trace.append(float(np.square(rating - cells(target, book, users, items)).sum()))
        if trace[-1] >= trace[-2]:
            break
    return users, items, trace[1:]


def assign(own: NDArray[np.int32], other: Labels, rating: Floats, n: int, book: Floats) -> Labels:
    """The best of the codebook's rows for each of n users, who rated items of the clusters `other`."""
    shape = (n, book.shape[1])
    cell = own.astype(np.int64) * shape[1] + other
    sums = np.bincount(cell, rating, n * shape[1]).reshape(shape)
    counts = np.bincount(cell, minlength=n * shape[1]).reshape(shape)
    return closest(sums, counts, book)


def cells(target: Domain, book: Floats, users: Labels, items: Labels) -> Floats:
    return book[users[target.user], items[target.item]]


def memberships(labels: Labels, n_clusters: int, rated: NDArray[np.bool_]) -> Floats:
    """A single 1 in each row; a row without ratings is the average of those with."""
    rows = one_hot(labels, n_clusters)
    rows[~rated] = rows[rated].mean(axis=0) if rated.any() else 1 / n_clusters
    return rows
