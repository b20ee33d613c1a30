"""What attributes say about things: a regression with weights that are the same in all domains.

    mean of an item's row  =  ... + attributes @ B

so a taste for Japanese films is a taste for Japanese music. B has weights for the shape of a row (what is rated high)
and for the first factors, the *attribute axes*, along which tastes for attributes lie; the other axes are left to
choices. How far weights are from 0 is learned, output by output, by empirical Bayes: they are Gaussian with a variance
that is found from the weights themselves and from how uncertain they are. Attributes that say nothing get weights of
next to nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.factors.rows import Floats

ROUNDS = 3           # of finding the variance of the weights, a sweep
BEGIN = 0.02         # variance of a weight to begin with
LEAST = 1e-8
SLIGHT = 1e-3        # how much axes rather stay as they are where attributes do not say how they turn
ALIGNED = 10.0       # items that speak against each weight when axes are aligned
SHUFFLES = 20        # to see how well axes agree by chance


def attribute_axes(attributes: Sequence[Any], n: int) -> tuple[list[Floats], int] | None:
    """The directions in which attributes vary most within domains, each of variance 1: (P, axes) for each domain, and
    how many of the axes, the first, are the same in all.

    Where several domains have attributes, those that two of them have in common make the common axes. What one domain
    alone knows about its items makes as many more of its own, which carry nothing over.
    """
    known = [a for a in attributes if a is not None and a.nnz]
    if not known or not n:
        return None
    in_domains = np.sum([np.asarray((a != 0).sum(axis=0)).ravel() > 0 for a in known], axis=0)
    common = in_domains > 1 if len(known) > 1 and (in_domains > 1).any() else in_domains > 0
    shared = _leading(known, common, n)
    own = [np.zeros((len(common), 0)) if a is None or not a.nnz else _leading([a], ~common, n) for a in attributes]
    most = max(x.shape[1] for x in own)
    axes = [np.hstack([shared, x, np.zeros((len(common), most - x.shape[1]))]) for x in own]
    return (axes, shared.shape[1]) if shared.shape[1] + most else None


def _leading(attributes: Sequence[Any], columns: NDArray[np.bool_], n: int) -> Floats:
    """The leading axes of some columns, each of variance 1. (P, n or fewer)"""
    squares = np.zeros((len(columns), len(columns)))
    for a in attributes:
        mean = np.asarray(a.mean(axis=0)).ravel()
        squares += ((a.T @ a).toarray() / a.shape[0] - np.outer(mean, mean)) / len(attributes)
    squares[~columns], squares[:, ~columns] = 0, 0
    variance, axes = np.linalg.eigh(squares)
    variance, axes = variance[::-1], axes[:, ::-1]
    n = min(n, int((variance > 1e-6 * max(variance[0], 1e-12)).sum()))
    axes = axes[:, :n] * np.where(axes[:, :n].sum(axis=0) < 0, -1, 1)       # else their signs are chance
    out: Floats = axes / np.sqrt(variance[:n])
    return out


def align(directions: Sequence[Floats], attributes: Sequence[Any], seed: int) -> tuple[list[Floats], list[Floats]]:
    """Turns each domain's axes of choices onto those of the first, by what attributes say about both.

    Nobody rates in two domains, but where fans of horror choose alike in both, the axes along which they do can be told
    by the horror that lies on them. Each domain's directions, (V, Q), are regressed on attributes; the turn that brings
    the weights of two domains closest together (orthogonal Procrustes) is applied. Turns, (Q, Q), and how well each
    axis then agrees with the first domain's beyond chance, 0 to 1, (Q,).

    The best of all turns brings any two sets of weights together to some degree. How far chance alone does is seen by
    giving the items of a domain each other's directions.
    """
    rng, shuffled, spread = np.random.default_rng(seed), [], 0.0
    for rows, a in zip(directions, attributes, strict=True):
        mean = np.asarray(a.mean(axis=0)).ravel()
        covariance = (a.T @ a).toarray() / a.shape[0] - np.outer(mean, mean)
        orders = [np.arange(len(rows)), *(rng.permutation(len(rows)) for _ in range(SHUFFLES))]
        moments = np.hstack([a.T @ (rows - rows.mean(axis=0))[order] / a.shape[0] for order in orders])
        found = np.linalg.solve(covariance + np.eye(len(mean)) * ALIGNED / a.shape[0], moments)
        shuffled.append(np.split(found, len(orders), axis=1))
        spread = spread + covariance / len(directions)
    first = shuffled[0][0]
    turns: list[Floats] = [np.eye(first.shape[1])]
    agreements: list[Floats] = [np.ones(first.shape[1])]
    for own, *others in shuffled[1:]:
        turn, agreement, meeting = _turned(first, own, spread)
        by_chance = np.mean([_turned(first, other, spread)[2] for other in others], axis=0)
        turns.append(turn)
        agreements.append(agreement * np.maximum(0, 1 - np.square(by_chance / np.maximum(meeting, 1e-12))))
    return turns, agreements


def _turned(first: Floats, own: Floats, spread: Any) -> tuple[Floats, Floats, Floats]:
    """The turn of weights that brings them closest to the first, how well each axis then agrees, 0 to 1, and by how
    much they then lie the same way."""
    match = own.T @ spread @ first
    left, _, right = np.linalg.svd(match + SLIGHT * np.linalg.norm(match, 2) * np.eye(len(match)))
    turn = left @ right
    turned = own @ turn
    meeting = np.einsum("pi,pq,qi->i", first, spread, turned)
    lengths = [np.sqrt(np.maximum(np.einsum("pi,pq,qi->i", w, spread, w), 1e-12)) for w in (first, turned)]
    return turn, np.clip(meeting / (lengths[0] * lengths[1]), 0, 1), meeting


class AttributeRegression:
    """The regression of one domain's items on their attributes, while it is learned."""

    def __init__(self, attributes: Any, weights: Floats) -> None:
        self.attributes, self.weights = attributes, weights
        self.products: Floats | None = None               # of the columns, over items with ratings
        self.moments = np.zeros_like(weights)             # of the columns with what is to be explained
        self.variance = np.full(weights.shape[1], BEGIN)  # of the weights, an output each

    @classmethod
    def of(cls, attributes: Any, axes: Floats, taste: float, n_shape: int, size: int) -> "AttributeRegression | None":
        """To begin with: nothing about shapes, and factors of length `taste` along the axes."""
        if attributes is None or not attributes.nnz:
            return None
        weights = np.zeros((attributes.shape[1], n_shape + size))
        weights[:, n_shape:n_shape + axes.shape[1]] = taste / np.sqrt(max(1, axes.any(axis=0).sum())) * axes
        return cls(attributes.astype(np.float64), weights)

    def means(self) -> Floats:
        """What the attributes say about every item. (V, D)"""
        out: Floats = self.attributes @ self.weights
        return out

    def add(self, residual: Floats, rated: NDArray[np.bool_]) -> None:
        """What is to be explained: rows less the rest of their means, of items with ratings."""
        own = self.attributes[rated] if not rated.all() else self.attributes
        if self.products is None:
            self.products = (own.T @ own).toarray()
        self.moments = own.T @ residual[rated]

    @staticmethod
    def solve_together(regressions: Sequence["AttributeRegression"], shapes: Sequence[int], common: NDArray[np.intp],
                       priors: Sequence[Floats]) -> None:
        """Weights that all domains have in common: of the shapes that all of them have, and of the factors that mean
        the same, `common`. Each domain has weights of its own for the others."""
        n_shape, size = min(shapes), regressions[0].weights.shape[1] - shapes[0]
        others = np.setdiff1d(np.arange(size), common)
        _solve(regressions, [[*range(n_shape), *(t + common)] for t in shapes], priors)
        if len(others):
            for r, t, prior in zip(regressions, shapes, priors, strict=True):
                _solve([r], [[*(t + others)]], [prior])


def _solve(regressions: Sequence[AttributeRegression], places: Sequence[list[int]], priors: Sequence[Floats]) -> None:
    """Ridge regression of some outputs over some domains, with the variance of the weights found along the way."""
    values, basis = np.linalg.eigh(sum(r.products for r in regressions if r.products is not None))
    values = np.maximum(values, 0)
    moments = sum(r.moments[:, at] for r, at in zip(regressions, places, strict=True))
    noise = np.mean([np.diag(prior)[at] for prior, at in zip(priors, places, strict=True)], axis=0)
    variance, turned = regressions[0].variance[places[0]], basis.T @ moments            # (P, outputs)
    for _ in range(ROUNDS):
        penalty = noise / np.maximum(variance, LEAST)
        found = turned / (values[:, None] + penalty)
        doubt = (noise / (values[:, None] + penalty)).sum(axis=0)
        variance = (np.square(found).sum(axis=0) + doubt) / len(values)
    for r, at in zip(regressions, places, strict=True):
        r.weights[:, at] = basis @ found
        r.variance[at] = variance
