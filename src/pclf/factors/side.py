"""Side: people, or things, of all domains while they are learned.

A sweep places the rows of one side given those of the other, and then finds the population that they come from. The
rows of one person in several domains are placed in one step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.engines import Lists, Machine
from pclf.factors.attributes import AttributeRegression
from pclf.factors.fitted import joint_steps
from pclf.factors.hyper import Hyper
from pclf.factors.population import Moments, Population, learned, trusted_squares
from pclf.factors.rows import Floats
from pclf.factors.source import Source, Ties

TOGETHER = 2048      # people whose rows in several domains are placed at a time
ALIKE = 0.5          # agreement from which factors of two domains have one regression


class Side:
    """People, or things, of all domains while they are learned: their rows, and the population they come from."""

    population: Population

    def __init__(self, machine: Machine, shapes: tuple[int, ...], n_rows: Sequence[int], size: int) -> None:
        n = len(shapes)
        self.machine, self.shapes, self.n_rows, self.size = machine, shapes, list(n_rows), size
        self.apart: list[Lists | None] = [None] * n        # ratings of rows that no other domain has
        self.tied: list[Tied] = []
        self.rated: list[NDArray[np.bool_]] = []
        self.n_rated: list[int] = []
        self.alone: list[Any] = []                         # codes of those with ratings in this domain and no other
        self.codes: list[NDArray[np.int32]] = []           # of all people, or things, in a domain; -1 for nobody
        self.together: list[tuple[list[int], NDArray[np.intp]]] = []       # domains, and who has ratings just there
        self.about: list[Any] = [None] * n
        self.guess: list[Floats] = []
        self.alike: Sequence[Sequence[int]] = []
        self.attributes: list[AttributeRegression | None] = [None] * n
        self.weights: list[Floats] = [np.empty(0)] * n
        self.mean: list[Any] = [None] * n
        self.rows: list[Any] = [None] * n
        self.square: list[Any] = [None] * n
        self.trust: list[Any] = [None] * n
        self.sums: list[tuple[Floats, Floats]] = []

    @classmethod
    def of(cls, machine: Machine, sources: Sequence[Source], by_user: bool, shapes: tuple[int, ...],
           size: int) -> "Side":
        n_rows = [s.n_users if by_user else s.n_items for s in sources]
        out = cls(machine, shapes, n_rows, size)
        row = [s.user if by_user else s.item for s in sources]
        other = [s.item if by_user else s.user for s in sources]
        n_others = [s.n_items if by_user else s.n_users for s in sources]
        entity = [s.person if by_user else s.thing for s in sources]
        several = out.locate(entity, [np.bincount(r, minlength=n) > 0 for r, n in zip(row, n_rows, strict=True)])
        for z, s in enumerate(sources):
            alone = ~several[entity[z]]
            out.alone.append(machine.put(np.flatnonzero(alone & out.rated[z])))
            kept = alone[row[z]]
            some = slice(None) if kept.all() else kept
            out.apart[z] = machine.side(row[z][some], other[z][some], s.level[some], n_rows[z], n_others[z],
                                        s.n_levels)
        for domains, members in out.together[len(sources):]:
            codes, lists = [out.codes[z][members] for z in domains], []
            for z, own in zip(domains, codes, strict=True):
                place = np.full(n_rows[z], -1, np.int32)
                place[own] = np.arange(len(members), dtype=np.int32)
                kept = place[row[z]] >= 0
                lists.append(machine.side(place[row[z][kept]], other[z][kept], sources[z].level[kept], len(members),
                                          n_others[z], sources[z].n_levels))
            out.tie(domains, codes, lists)
        return out

    def tie(self, domains: list[int], codes: list[NDArray[np.int32]], lists: list[Lists]) -> None:
        """Those who have ratings in just these domains are placed in one step. codes, lists: of each domain."""
        n_shape, n_all = (sum(own) for own in ([self.shapes[z] for z in domains],
                                               [self.shapes[z] + self.size for z in domains]))
        self.tied.append(Tied(domains, codes, lists, np.ones(len(codes[0])), np.zeros((n_all, n_all)),
                              np.zeros((n_shape, n_shape))))

    def locate(self, entity: Sequence[NDArray[np.int32]], rated: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Who has ratings where. Returns which people, or things, have some in several domains.

        entity: the person, or thing, of each row. rated: whether it has ratings.
        """
        self.rated, self.n_rated = list(rated), [int(own.sum()) for own in rated]
        rates = np.zeros((1 + max(int(e.max(initial=-1)) for e in entity), len(entity)), bool)
        for z, (e, own) in enumerate(zip(entity, rated, strict=True)):
            rates[e[own], z] = True
            self.codes.append(np.full(len(rates), -1, np.int32))
            self.codes[z][e] = np.arange(self.n_rows[z], dtype=np.int32)
        several: NDArray[np.bool_] = rates.sum(axis=1) > 1
        self.together = [([z], np.flatnonzero(rates[:, z] & ~several)) for z in range(len(entity))]
        self.together += _alike(rates, np.flatnonzero(several))
        return several

    def set_about(self, about: Sequence[Floats], alike: Sequence[Sequence[int]]) -> None:
        """alike: the domains whose rows mean the same, and so have one regression on what is known about them."""
        self.about = [self.machine.put(x) for x in about]
        self.guess = [np.zeros((x.shape[1], t + self.size)) for x, t in zip(about, self.shapes, strict=True)]
        self.alike = alike

    def start(self, z: int, rows: Floats) -> None:
        from pclf.engines.cpu_rows import squares

        self.rows[z], self.square[z] = self.machine.put(rows), self.machine.put(squares(rows[:, self.shapes[z]:]))
        self.trust[z] = self.machine.put(np.ones(len(rows)))

    def expect(self, z: int, weights: Floats) -> None:
        """The rows of a domain are around this regression on what is known about them."""
        self.weights[z] = weights
        self.mean[z] = self.about[z] @ self.machine.put(weights)
        regression = self.attributes[z]
        if regression is not None:
            self.mean[z] = self.mean[z] + self.machine.put(regression.means())

    def attribute_weights(self, z: int) -> Floats | None:
        regression = self.attributes[z]
        return None if regression is None else regression.weights

    def step(self, other: Any, bases: Sequence[Floats], tilt: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
        """A Newton step of every row, given those of the other side, its `rows` and `square`. Gradient and Hessian of
        `base`, a domain."""
        of_bases, machine = [], self.machine
        self.sums = []
        for z, base in enumerate(bases):
            gradient, hessian, shape_cov, cov = machine.step(
                self.apart[z], self.rows[z], self.square[z], self.trust[z], other.rows[z], other.square[z],
                self.population.own[z], self.mean[z], self.population.freedom, base, tilt[z])
            of_bases.append((gradient, hessian))
            self.sums.append((shape_cov, cov))
        for tied in self.tied:
            parts = []
            for z, codes, lists in zip(tied.domains, tied.codes, tied.lists, strict=True):
                at = machine.put(codes)
                gradient, hessian, base_gradient, base_hessian = machine.collect(
                    lists, self.rows[z][at], other.rows[z], other.square[z], bases[z], tilt[z])
                parts.append((gradient, hessian))
                of_bases[z] = of_bases[z][0] + base_gradient, of_bases[z][1] + base_hessian
            self.solve(tied, parts)
        return of_bases

    def solve(self, tied: "Tied", parts: Sequence[tuple[Floats, Any]]) -> None:
        """Rows of people who are in the same several domains, in one step each."""
        machine, domains = self.machine, tied.domains
        ends = np.cumsum([0, *(self.shapes[z] + self.size for z in domains)])
        rows, means = (np.concatenate([machine.get(x[z][machine.put(codes)]) for z, codes in
                                       zip(domains, tied.codes, strict=True)], axis=1) for x in (self.rows, self.mean))
        at_shapes = self.population.shape_places(domains)
        tied.cov[:], tied.shape_cov[:] = 0, 0
        squares = [np.zeros((len(rows), self.square[z].shape[1]), np.float32) for z in domains]
        for some in (slice(i, i + TOGETHER) for i in range(0, len(rows), TOGETHER)):
            gradient = np.concatenate([g[some] for g, _ in parts], axis=1)
            trust = tied.trust[some]
            before = trust.copy()
            cov = joint_steps(self.population, domains, rows[some], means[some], trust, gradient,
                              [h[some] for _, h in parts])
            tied.cov[:] += cov.sum(axis=0)
            tied.shape_cov[:] += np.einsum("n,nij->ij", before, cov[:, at_shapes[:, None], at_shapes])
            for i, z in enumerate(domains):
                lower = np.tril_indices(self.size)
                f = rows[some, ends[i] + self.shapes[z]:ends[i + 1]]
                block = cov[:, ends[i] + self.shapes[z]:ends[i + 1], ends[i] + self.shapes[z]:ends[i + 1]]
                squares[i][some, :len(lower[0])] = (block + f[:, :, None] * f[:, None, :])[:, lower[0], lower[1]]
        for i, (z, codes) in enumerate(zip(domains, tied.codes, strict=True)):
            at, own = machine.put(codes), slice(ends[i], ends[i + 1])
            self.rows[z][at], self.square[z][at] = machine.put(rows[:, own]), machine.put(squares[i])
            self.trust[z][at] = machine.put(tied.trust)

    def learn(self, hyper: Hyper, ties: Ties, agreement: Sequence[Floats], *, fixed_shape: bool) -> None:
        """The population of the rows as they are. fixed_shape: the mean of a shape is 0 but for what is known.

        agreement: how far a factor means the same in a domain as in others.
        """
        common = np.flatnonzero(np.min(agreement, axis=0) > ALIKE)
        for domains in self.alike:
            self._regress(domains, hyper, fixed_shape)
        for z, regression in enumerate(self.attributes):
            if regression is not None:
                told = self.about[z] @ self.machine.put(self.weights[z])
                regression.add(self.machine.get(self.rows[z]) - self.machine.get(told), self.rated[z])
        with_attributes = [z for z, r in enumerate(self.attributes) if r is not None]
        if with_attributes:
            AttributeRegression.solve_together(
                [r for r in self.attributes if r is not None], [self.shapes[z] for z in with_attributes], common,
                [self.population.own[z] for z in with_attributes])
        for z in range(len(self.rows)):
            self.expect(z, self.weights[z])
        expected, worth = self.population, 0.0
        if len(self.rows) > 1 and ties.any:
            own = [self._kin(z, common) for z in range(len(self.rows))]
            guess = guessed(self.shapes, agreement, hyper.habit if fixed_shape else hyper.sameness)
            expected, worth = replace(self.population, own=tuple(own), between=guess), hyper.kin
        self.population = learned(self.population, self._moments(), expected, worth)

    def _moments(self) -> list[Moments]:
        """How far rows are from where they are expected: of those in one domain, and of those in the same several."""
        out, get = [], self.machine.get
        for z, (alone, (shape_cov, cov)) in enumerate(zip(self.alone, self.sums, strict=True)):
            gaps, trust, t = (self.rows[z] - self.mean[z])[alone], self.trust[z][alone], self.shapes[z]
            trusted = get(gaps[:, :t].T @ (trust[:, None] * gaps[:, :t])) + shape_cov
            if len(alone):
                out.append(Moments([z], trusted_squares(get(gaps.T @ gaps) + cov, trusted, np.arange(t)), len(alone)))
        for tied in self.tied:
            parts = [get((self.rows[z] - self.mean[z])[self.machine.put(codes)])
                     for z, codes in zip(tied.domains, tied.codes, strict=True)]
            joint, at = np.concatenate(parts, axis=1), self.population.shape_places(tied.domains)
            trusted = joint[:, at].T @ (tied.trust[:, None] * joint[:, at]) + tied.shape_cov
            out.append(Moments(tied.domains, trusted_squares(joint.T @ joint + tied.cov, trusted, at), len(joint)))
        return out

    def _kin(self, z: int, common: NDArray[np.intp]) -> Floats:
        """The covariance that a domain's rows would have if they were like those of the others, on axes that mean the
        same."""
        own, t = self.population.own, self.shapes[z]
        size = len(own[z])
        expected, weight = np.zeros((size, size)), 0.0
        for y in (y for y in range(len(own)) if y != z):
            n = min(t, self.shapes[y])
            mine = np.concatenate([np.arange(n), t + common])
            theirs = np.concatenate([np.arange(n), self.shapes[y] + common])
            block = np.zeros((size, size))
            rest = np.setdiff1d(np.arange(size), mine)
            block[np.ix_(mine, mine)] = own[y][np.ix_(theirs, theirs)]
            block[np.ix_(rest, rest)] = own[z][np.ix_(rest, rest)]
            expected += self.n_rated[y] * block
            weight += self.n_rated[y]
        return expected / weight if weight else own[z]

    def result(self) -> list[Floats]:
        """All rows: those without ratings are where they are expected, given the same person's rows elsewhere."""
        get, out = self.machine.get, []
        rows, means = [get(x) for x in self.rows], [get(x) for x in self.mean]
        for z, rated in enumerate(self.rated):
            made = np.where(rated[:, None], rows[z], means[z])
            for domains, members in self.together if len(rows) > 1 else ():
                known = members[self.codes[z][members] >= 0] if z not in domains else members[:0]
                if len(known):                                                   # here by name, with ratings elsewhere
                    gaps = {y: (rows[y] - means[y])[self.codes[y][known]] for y in domains}
                    made[self.codes[z][known]] += self.population.expected(z, gaps)
            out.append(made)
        return out

    def _seen(self, z: int) -> Any:
        return slice(None) if self.rated[z].all() else self.machine.put(np.flatnonzero(self.rated[z]))

    def _regress(self, domains: Sequence[int], hyper: Hyper, fixed_shape: bool) -> None:
        """One regression of the rows of some domains, near the guess: by least squares for the first column of `about`,
        which is 1.

        Were each domain to depart from it by its own rows, those of a small one would run away: what is rated there is
        what a large one likes, so its rows stand above their means, which would follow them sweep after sweep.
        """
        parts = [self._normal(z) for z in domains]
        n = [max(1, self.n_rated[z]) for z in domains]
        squares = np.average([part[2] for part in parts], axis=0, weights=n)
        products, moments = (np.sum([part[i] for part in parts], axis=0) for i in (0, 1))
        penalty = hyper.ridge * squares + 1e-9
        penalty[0] = 1e-3
        found = np.linalg.solve(products + np.diag(penalty), moments)
        for z in domains:
            self.weights[z] = self.guess[z] + found
            if fixed_shape:
                self.weights[z][0, :self.shapes[z]] = 0

    def _normal(self, z: int) -> tuple[Floats, Floats, Floats]:
        """The normal equations of a domain's regression around its guess, and the mean squares of its columns."""
        seen, get = self._seen(z), self.machine.get
        x, y = self.about[z][seen], self.rows[z][seen]
        regression = self.attributes[z]
        if regression is not None:
            y = y - self.machine.put(regression.means())[seen]
        weighted = self.trust[z][seen][:, None] * x
        squares = get((x**2).mean(0)) if len(x) else np.ones(x.shape[1])
        return get(x.T @ weighted), get(weighted.T @ (y - x @ self.machine.put(self.guess[z]))), squares


@dataclass(frozen=True)
class Tied:
    """People with ratings in the same several domains."""

    domains: list[int]
    codes: list[NDArray[np.int32]]      # (n,) in each of these
    lists: list[Lists]                  # their ratings there
    trust: Floats                       # (n,) changed by every step, as are the sums of their covariances:
    cov: Floats                         # (N, N)
    shape_cov: Floats                   # (T, T) times the trust


def _alike(rates: NDArray[np.bool_], several: NDArray[np.intp]) -> list[tuple[list[int], NDArray[np.intp]]]:
    """Those who rate in the same domains, together. rates: whether they do, a domain a column."""
    patterns, pattern_of = np.unique(np.packbits(rates[several], axis=1), axis=0, return_inverse=True)
    found = np.unpackbits(patterns, axis=1, count=rates.shape[1])
    return [(np.flatnonzero(domains).tolist(), several[pattern_of.ravel() == i]) for i, domains in enumerate(found)]


def guessed(shapes: Sequence[int], agreement: Sequence[Floats], correlation: float) -> dict[tuple[int, int], Floats]:
    """The guessed correlation between domains: of shapes, and of factors as far as they mean the same."""
    out: dict[tuple[int, int], Floats] = {}
    for a, b in combinations(range(len(shapes)), 2):
        k = np.zeros((shapes[a] + len(agreement[a]), shapes[b] + len(agreement[b])))
        n = min(shapes[a], shapes[b])
        k[range(n), range(n)] = correlation
        for i in range(min(len(agreement[a]), len(agreement[b]))):
            k[shapes[a] + i, shapes[b] + i] = correlation * agreement[a][i] * agreement[b][i]
        out[a, b] = k
    return out
