"""Population: where rows come from. A person's rows in several domains are drawn together, and so are a thing's.

Laid end to end, the rows of one person in all domains are Gaussian around their means:

    (e_1, ..., e_Z)  ~  N((m_1, ..., m_Z), S)          e_z = (x_z, f_z), the row in domain z

The blocks S_zz say how much rows vary in a domain, the blocks between domains how much of that is *common*; what they
leave is *specific*. Nobody has to rate everywhere: who rates in some domains has the Gaussian of these, and their rows
elsewhere are expected at

    m_b + S_ba S_aa^-1 (e_a - m_a)

Shapes of people follow a Student distribution, since a few are far from all others: it is the Gaussian with S_xx / t,
where t, the *trust* in a person, is less the farther out their shapes are; factors are Gaussian given the shapes.

A block between domains is S_aa^(1/2) K S_bb^(1/2). K, a correlation, begins at a guess, and is learned from the rows of
those who rate in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pclf.factors.rows import Floats

SMALLEST = 1e-6      # variance of a row in any direction
HIGHEST = 0.999      # correlation between two domains


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
        """Of the shapes, and of the rest given these, for rows of some domains laid end to end: (N, N) each."""
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

    def with_own(self, own: Sequence[Floats]) -> "Population":
        return replace(self, own=tuple(own))

    def with_between(self, between: Mapping[tuple[int, int], Floats]) -> "Population":
        """With other correlations; where more than two domains make them contradict each other, all are lowered."""
        made = replace(self, between=dict(between))
        if len(self.own) > 2:
            smallest = np.linalg.eigvalsh(correlation(made))[0]
            if smallest < 1 - HIGHEST:
                lower = HIGHEST / (1 - smallest)
                made = replace(self, between={pair: lower * k for pair, k in between.items()})
        return made


def correlation(population: Population) -> Floats:
    """K of all domains, with ones on the diagonal."""
    plain = replace(population, own=tuple(np.eye(n) for n in population.sizes))
    return plain.covariance


def learned_between(moments: Floats, split: int, n: float, guess: Floats, worth: float) -> Floats:
    """K of two domains from the sums of squares of n people's rows in both, laid end to end. (D_a, D_b)

    guess: what is expected before, worth so many people.
    """
    a, b, cross = moments[:split, :split], moments[split:, split:], moments[:split, split:]
    found = power(a, -0.5) @ cross @ power(b, -0.5) if n > 0 else guess
    k: Floats = (n * found + worth * guess) / max(n + worth, 1e-12)
    largest = float(np.linalg.norm(k, 2))
    k *= min(1.0, HIGHEST / max(largest, 1e-12))
    return k


def covariance(whole: Floats, trusted: Floats, n: int) -> Floats:
    """Empirical Bayes: the covariance of n rows around their means, from sums of squares.

    whole: of the rows, (D, D). trusted: of their shapes, each counting as much as it is trusted, (T, T).
    """
    n, t = max(1, n), len(trusted)
    trusted = trusted / n
    out = whole / n
    by_shape = np.linalg.solve(out[:t, :t] + 1e-9 * np.eye(t), out[:t, t:])         # regression of factors on shapes
    out[t:, t:] += by_shape.T @ (trusted - out[:t, :t]) @ by_shape
    out[:t, t:] = trusted @ by_shape
    out[t:, :t], out[:t, :t] = out[:t, t:].T, trusted
    return raised(out)


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
