"""Population: where rows come from. A person's rows in several domains are drawn together, and so are a thing's.

Laid end to end, the rows of one person in all domains are Gaussian around their means:

    (e_1, ..., e_Z)  ~  N((m_1, ..., m_Z), S)          e_z = (x_z, f_z), the row in domain z

The blocks S_zz say how much rows vary in a domain, the blocks between domains how much of that is *common*; what they
leave is *specific*. Nobody has to rate everywhere: who rates in some domains has the Gaussian of these, and their rows
elsewhere are expected at

    m_b + S_ba S_aa^-1 (e_a - m_a)

Shapes of people follow a Student distribution, since a few are far from all others: it is the Gaussian with S_xx / t,
where t, the *trust* in a person, is less the farther out their shapes are; factors are Gaussian given the shapes.

A block between domains is S_aa^(1/2) K S_bb^(1/2). K, a correlation, begins at a guess; `learned` finds S from the rows
of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.factors.rows import Floats

SMALLEST = 1e-6      # variance of a row in any direction
HIGHEST = 0.999      # correlation between two domains
ROUNDS = 30          # of completing what is missing, a sweep: the covariances are small, and their EM is slow


@dataclass(frozen=True)
class Population:
    """The prior of the rows of one kind, people or things, over all domains that are learned together."""

    shapes: tuple[int, ...]             # T, a domain
    own: tuple[Floats, ...]             # (D, D) a domain: S_zz
    between: Mapping[tuple[int, int], Floats]     # (a, b), a < b: K, (D_a, D_b)
    freedom: float                      # 0: Gaussian

    @property
    def sizes(self) -> list[int]:
        return [len(block) for block in self.own]

    @cached_property
    def roots(self) -> tuple[Floats, ...]:
        return tuple(power(block, 0.5) for block in self.own)

    @cached_property
    def covariance(self) -> Floats:
        """S, over the domains in order."""
        starts = np.cumsum([0, *self.sizes])
        out = np.zeros((starts[-1], starts[-1]))
        for z, block in enumerate(self.own):
            out[starts[z]:starts[z + 1], starts[z]:starts[z + 1]] = block
        for (a, b), k in self.between.items():
            block = self.roots[a] @ k @ self.roots[b]
            out[starts[a]:starts[a + 1], starts[b]:starts[b + 1]] = block
            out[starts[b]:starts[b + 1], starts[a]:starts[a + 1]] = block.T
        return out

    def places(self, domains: Sequence[int]) -> NDArray[np.intp]:
        """Where the rows of some domains are in S, in this order."""
        starts = np.cumsum([0, *self.sizes])
        return np.concatenate([np.arange(starts[z], starts[z + 1]) for z in domains])

    def shape_places(self, domains: Sequence[int]) -> NDArray[np.intp]:
        """Where the shapes are in the rows of some domains, laid end to end."""
        starts = np.cumsum([0, *(self.sizes[z] for z in domains)])
        return np.concatenate([np.arange(start, start + self.shapes[z])
                               for start, z in zip(starts, domains, strict=False)])

    def precisions(self, domains: Sequence[int]) -> tuple[Floats, Floats]:
        """Of the shapes, and of the rest given these, for rows of some domains laid end to end: (N, N) each.

        Every Newton step asks for the same ones, so they are kept."""
        known = tuple(domains)
        if known not in self._precisions:
            self._precisions[known] = self._precisions_of(domains)
        return self._precisions[known]

    @cached_property
    def _precisions(self) -> dict[tuple[int, ...], tuple[Floats, Floats]]:
        return {}

    def _precisions_of(self, domains: Sequence[int]) -> tuple[Floats, Floats]:
        at = self.places(domains)
        covariance = self.covariance[np.ix_(at, at)]
        x = self.shape_places(domains)
        shapes, whole = np.zeros_like(covariance), np.linalg.inv(covariance)
        shapes[np.ix_(x, x)] = np.linalg.inv(covariance[np.ix_(x, x)])
        return shapes, whole - shapes

    def expected(self, domain: int, gaps: Mapping[int, Floats]) -> Floats:
        """How far rows of a domain are expected from their means, given how far they are elsewhere. (n, D)

        gaps: (n, D) for each of the domains where something is known.
        """
        given = sorted(gaps)
        here, there = self.places([domain]), self.places(given)
        slope = np.linalg.solve(self.covariance[np.ix_(there, there)], self.covariance[np.ix_(there, here)])
        out: Floats = np.concatenate([gaps[z] for z in given], axis=1) @ slope
        return out

    def with_covariance(self, covariance: Floats) -> "Population":
        """The same with another S. Where it ties domains too closely to compute with, all ties are loosened."""
        starts = np.cumsum([0, *self.sizes])
        ends = [slice(a, b) for a, b in pairwise(starts)]
        own = tuple(covariance[at, at] for at in ends)
        inverse_roots = [power(block, -0.5) for block in own]
        between = {(a, b): inverse_roots[a] @ covariance[ends[a], ends[b]] @ inverse_roots[b]
                   for a, b in combinations(range(len(own)), 2)}
        made = replace(self, own=own, between=between)
        if between:
            smallest = np.linalg.eigvalsh(correlation(made))[0]
            if smallest < 1 - HIGHEST:
                lower = HIGHEST / (1 - smallest)
                made = replace(made, between={pair: lower * k for pair, k in between.items()})
        return made


def correlation(population: Population) -> Floats:
    """K of all domains, with ones on the diagonal."""
    plain = replace(population, own=tuple(np.eye(n) for n in population.sizes))
    return plain.covariance


class Moments(NamedTuple):
    """What rows say about the covariance: those of people with ratings in the same domains, laid end to end."""

    domains: Sequence[int]
    squares: Floats      # (N, N) sum over these people of E[gap gap']
    n: int


def trusted_squares(whole: Floats, trusted: Floats, shapes: NDArray[np.intp]) -> Floats:
    """Sums of squares of rows in which each person's shapes count as much as they are trusted.

    whole: sums of squares of the rows, (N, N). trusted: of their shapes, times the trust, (T, T). shapes: where these
    are. What factors have beyond their regression on shapes stays as it is.
    """
    out = whole.copy()
    rest = np.setdiff1d(np.arange(len(whole)), shapes)
    xx, xf = np.ix_(shapes, shapes), np.ix_(shapes, rest)
    by_shape = np.linalg.solve(whole[xx] + 1e-9 * max(1.0, np.trace(whole[xx])) * np.eye(len(shapes)), whole[xf])
    out[np.ix_(rest, rest)] += by_shape.T @ (trusted - whole[xx]) @ by_shape
    out[xf] = trusted @ by_shape
    out[xf[1].T, xf[0].T] = out[xf].T
    out[xx] = trusted
    return out


def learned(population: Population, moments: Sequence[Moments], expected: Population, worth: float) -> Population:
    """Empirical Bayes: the covariance over all domains that the rows ask for, by EM.

    Hardly anybody rates everywhere, and those who do are not like the others: what is rated in a small domain is mostly
    what is popular in a large one. So rows that are missing are completed by what the others say about them,

        E[e_b e_b']  =  A E[e_a e_a'] A' + (S_bb - A S_ab)         A = S_ba S_aa^-1

    instead of comparing the rows of one domain with those of another.

    expected: what it is before, worth so many people.
    """
    whole, prior = population.covariance, expected.covariance
    for _ in range(ROUNDS if len(population.own) > 1 else 1):
        total, n = worth * prior, worth
        for known in moments:
            at = population.places(known.domains)
            slope = np.linalg.solve(whole[np.ix_(at, at)], whole[at])                        # A', (N, D)
            total = total + slope.T @ known.squares @ slope + known.n * (whole - whole[:, at] @ slope)
            n += known.n
        whole = total / max(n, 1e-12)
        whole = (whole + whole.T) / 2
    return population.with_covariance(raised(whole))


def raised(matrix: Floats) -> Floats:
    """A symmetric matrix without directions of less than the smallest variance."""
    smallest = np.linalg.eigvalsh(matrix)[0]
    out: Floats = matrix + max(0.0, SMALLEST - smallest) * np.eye(len(matrix))
    return out


def power(matrix: Floats, exponent: float) -> Floats:
    """A power of a symmetric positive matrix."""
    values, axes = np.linalg.eigh(matrix)
    out: Floats = (axes * np.maximum(values, 1e-12 * max(values[-1], 1e-300)) ** exponent) @ axes.T
    return out
