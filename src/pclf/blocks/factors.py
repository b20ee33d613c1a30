"""Factors of people in blocks: `Spread` is everybody, for `pclf.factors.learn`.

The rows of items go out to the blocks, and what ratings say about them comes back, with sums over people from which the
population is learned. So a sweep reads the ratings once, and nothing that a block answers grows with the number of
people.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.groups import (
    Answers,
    Arrays,
    Given,
    Plan,
    Question,
    drawn,
    met,
    nothing_of,
    of_chance,
    of_each,
    of_population,
    patterns,
    placed,
    population_of,
    skewed,
    stepped,
    things_of,
    turned,
)
from pclf.engines.cpu_rows import Cores
from pclf.errors import ArgumentError
from pclf.factors.about import About, align_axes, keys_of, spread_of
from pclf.factors.choices import PASSES, SPARE, Choice, orthonormal, signs, to_orthonormal, whitening
from pclf.factors.fitted import about_items
from pclf.factors.hyper import Hyper
from pclf.factors.learn import Placed
from pclf.factors.meeting import Items, Met
from pclf.factors.population import Moments, trusted_squares
from pclf.factors.rows import Floats, normals
from pclf.factors.side import Side
from pclf.factors.source import Counts, Source, Ties
from pclf.factors.start import Start
from pclf.storage import read_arrays, write_atomically

if TYPE_CHECKING:
    from pclf.blocks.engine import BlockEngine

MOST = 16                # domains that may have people in common


class Spread:
    """Everybody, in blocks, for `factors.learn.fit`. rows: a folder for rows of people, and where a run stands."""

    def __init__(self, engine: "BlockEngine", names: Sequence[str], ties: Ties, rows: Path, seed: int,
                 draw: float) -> None:
        """seed, draw: of the absences among events, see `Plan`."""
        self.engine, self.rows = engine, rows
        self.ratings = engine.catalogue.ratings
        rows.mkdir(parents=True, exist_ok=True)
        self.plan = Plan(tuple(names), ties, seed, draw)
        things, all_names = things_of(self.ratings, ties), list(self.ratings.domains)
        absent = self._drawn()
        nobody, none = np.empty(0, np.int32), np.empty(0, np.uint8)
        sources: list[Source] = []
        for name in names:
            z, d = all_names.index(name), self.ratings[name]
            known = self.ratings.attributes.of(name) if self.ratings.attributes is not None and (
                ties.attributes or ties.inside) else None
            values, items = d.value_counts.copy(), d.item_counts
            if d.events:
                values[0], items = absent[name].sum(), items + absent[name]
            sources.append(Source(
                name, nobody, nobody, none, int(engine.catalogue.part_users[:, z].sum()), d.n_items, len(d.scale),
                int(d.events), nobody, things[z], known, Counts(values, items, d.item_counts), d.items.keys()))
        self.sources: Sequence[Source] = sources
        self.given = Given(0, {})
        self.cores = Cores(engine.n_threads)

    def ask(self, question: Question, given: Given, like: Answers) -> Answers:
        """The sums of all blocks, in their order. like: arrays of their shapes."""
        total = [np.zeros_like(array, np.float64) for array in like]
        for own in self.engine.asked("factors", total, question, self.plan, given, self.rows):
            for whole, more in zip(total, own, strict=True):
                whole += more
        return total

    def _drawn(self) -> Arrays:
        """How often each item of each domain of events was drawn."""
        sizes = {name: d.n_items for name in self.plan.names if (d := self.ratings[name]).events}
        if not sizes:
            return {}
        path = self.rows / "drawn"
        if not path.exists():
            found = self.ask(drawn, Given(0, {}), [np.zeros(n) for n in sizes.values()])
            write_atomically(path, {str(i): own.astype(np.int64) for i, own in enumerate(found)}, {}, force=True)
        arrays = read_arrays(path)[0]
        return {name: arrays[str(i)] for i, name in enumerate(sizes)}

    def about(self, ties: Ties, hyper: Hyper, seed: int, start: Start | None) -> About:
        path = self.rows / "about"
        if not path.exists():
            write_atomically(path, self._analysed(hyper, seed), {}, force=True)
        arrays, out = read_arrays(path)[0], About([], [], [], [], [], [])
        self.given.arrays |= {name: array for name, array in arrays.items() if name.startswith("chosen")}
        for k, domains in enumerate(self.plan.analyses):
            counts, size = self._counts(domains).sum(axis=1), arrays[f"chosen.{k}"].shape[1]
            chosen = Choice(arrays[f"chosen.{k}"], arrays[f"chosen variance.{k}"])
            choosers = Choice(np.empty((0, size)), arrays[f"choosers variance.{k}"])
            count = spread_of(counts)
            known = about_items(counts, count, choosers.shrunk(arrays[f"choosers.{k}"], counts[:, None]))
            for z in domains:
                things = self.sources[z].thing if ties.choices else np.arange(self.sources[z].n_items)
                out.people.append(np.empty((0, 1 + size)))
                out.things.append(known[things])
                out.chosen.append(Choice(chosen.places[things], chosen.variance))
                out.choosers.append(choosers)
                out.count.append(count)
                out.agreement.append(np.full(size, float(ties.choices)))
        if ties.attributes and not ties.choices:
            align_axes(out, self.sources, seed)
        return out

    def sides(self, shapes: tuple[int, ...], size: int) -> tuple[Side, Side]:
        self.plan = replace(self.plan, shapes=shapes, size=size, patterns=tuple(self._patterns()))
        return People(self), Things(self)

    def begin(self, people: Side, things: Side, bases: list[Floats]) -> tuple[int, list[Floats]]:
        """Where an earlier run was stopped, if there was one."""
        path = self.rows / "state"
        if not path.exists():
            return 0, bases
        arrays, told = read_arrays(path)
        state = Given(int(told["sweeps"]), arrays)
        for z, (rows, square) in enumerate(zip(state.several("rows"), state.several("square"), strict=True)):
            regression = things.attributes[z]
            if regression is not None:
                regression.weights, regression.variance = state[f"of attributes.{z}"], state[f"variance.{z}"]
            things.start(z, rows)
            things.square[z] = square
            things.expect(z, state[f"things weights.{z}"])
            people.expect(z, state[f"people weights.{z}"])
        for name, side in (("people", people), ("things", things)):
            side.population = population_of(state, name, side.shapes, side.population.freedom)
        self.given.at = state.at
        return state.at, state.several("base")

    def swept(self, sweeps: int, people: Side, things: Side, bases: list[Floats]) -> None:
        """Where this run stands, so that another can go on from there."""
        self.given.at = sweeps
        arrays = {**of_each("rows", things.rows), **of_each("square", things.square), **of_each("base", bases),
                  **of_each("things weights", things.weights), **of_each("people weights", people.weights),
                  **of_population("people", people.population), **of_population("things", things.population)}
        for z, regression in enumerate(things.attributes):
            if regression is not None:
                arrays |= {f"of attributes.{z}": regression.weights, f"variance.{z}": regression.variance}
        write_atomically(self.rows / "state", {name: np.ascontiguousarray(x) for name, x in arrays.items()},
                         {"sweeps": str(sweeps)}, force=True)

    def end(self, people: Side, known: About, items: Sequence[Items]) -> list[Placed]:
        given = Given(self.given.at, {**self.given.arrays, **of_each("weights", people.weights),
                                      **of_each("items", [own.rows for own in items]),
                                      **of_each("new", [own.new for own in items]),
                                      "n_attribute": np.array([items[0].n_attribute])})
        like = [array for own in items for array in
                (np.zeros(own.factors.shape), np.zeros(1), np.zeros(own.factors.shape[1]),
                 np.zeros((own.factors.shape[1],) * 2), np.zeros(1), np.zeros(1), np.zeros(3))]
        sums, out = self.ask(met, given, like), []
        each = len(like) // len(items)
        for z, (s, own) in enumerate(zip(self.sources, items, strict=True)):
            of_domain = sums[z * each:(z + 1) * each]
            found = Met.of(of_domain[:-1], s.counts, own)
            picks, usual, n = of_domain[-1]
            given.arrays |= {f"company.{z}": found.company, f"usual.{z}": np.array([found.usual])}
            empty = np.empty(0, np.float32)
            out.append(Placed(np.empty((0, own.rows.shape[1]), np.float32),
                              np.empty((0, known.people[z].shape[1]), np.float32), known.choosers[z],
                              np.empty(0, np.int64), found, empty, empty,
                              np.array((picks + usual * found.usual) / max(1.0, n))))
        self.given = given                                   # for `finished`
        return out

    def _patterns(self) -> list[tuple[int, ...]]:
        n = len(self.sources)
        single: list[tuple[int, ...]] = [(z,) for z in range(n)]
        if not self.plan.ties.people:
            return single
        if n > MOST:
            raise ArgumentError(f"people can be common to at most {MOST} domains of factors in blocks; got {n}. Pass "
                                f"bridges=('things', 'attributes'), or factor_weight=0.")
        found, = self.ask(patterns, Given(0, {}), [np.zeros(1 << n)])
        sets = [tuple(z for z in range(n) if i >> z & 1) for i in np.flatnonzero(found).tolist()]
        return [*single, *(domains for domains in sets if len(domains) > 1)]

    def _counts(self, domains: Sequence[int]) -> Floats:
        """How often each thing was chosen, a domain a column."""
        things = self._things(domains)
        n = 1 + max(int(rows.max(initial=-1)) for rows in things)
        return np.stack([np.bincount(rows, self.sources[z].counts.chosen, n)
                         for rows, z in zip(things, domains, strict=True)], axis=1)

    def _things(self, domains: Sequence[int]) -> list[NDArray[np.int32]]:
        """The thing that each item is among those that are analysed together."""
        return [self.sources[z].thing if self.plan.ties.choices else np.arange(self.sources[z].n_items, dtype=np.int32)
                for z in domains]

    def _analysed(self, hyper: Hyper, seed: int) -> Arrays:
        """The analysis of `factors.choices`, by sums over people: the same axes, since A (A'A)^n x spans what it does
        with orthogonal bases in between."""
        plan = self.plan
        arrays: Arrays = {}
        rights, before = [], []
        for k, domains in enumerate(plan.analyses):
            counts = self._counts(domains)
            n_people = sum(self.sources[z].n_users for z in domains)
            size = min(n_people, len(counts), hyper.places + SPARE)
            keys = keys_of([self.sources[z] for z in domains], self._things(domains))
            rights.append(normals(len(counts), size, seed, keys).astype(np.float32))
            arrays[f"counts.{k}"] = counts
        for _ in range(PASSES):
            before = rights
            given = Given(0, {**arrays, **{f"right.{k}": right for k, right in enumerate(rights)}})
            like = [array for k, right in enumerate(rights) for array in
                    (np.zeros(right.shape), np.zeros((arrays[f"counts.{k}"].shape[1], right.shape[1])),
                     np.zeros((right.shape[1],) * 2))]
            found = self.ask(turned, given, like)
            rights, backs, products = [], [], found[2::3]
            for k, (of_things, expected) in enumerate(zip(found[::3], found[1::3], strict=True)):
                root, chance, total = of_chance(arrays[f"counts.{k}"], arrays[f"counts.{k}"])
                backs.append(of_things / (root[:, None] * total) - chance @ expected)
                rights.append(orthonormal(backs[k]).astype(np.float32))
        for k, (right, back) in enumerate(zip(rights, backs, strict=True)):
            to_left = to_orthonormal(products[k])
            u, _, v = np.linalg.svd(to_left.T @ back.T @ right)
            n = min(right.shape[1], hyper.places)
            root, _, total = of_chance(arrays[f"counts.{k}"], arrays[f"counts.{k}"])
            places, chosen = right @ v[:n].T / root[:, None], arrays[f"counts.{k}"].sum(axis=1)
            arrays |= {f"right.{k}": before[k], f"to people.{k}": to_left @ u[:, :n],
                       f"of items.{k}": places - chosen @ places / max(1, total)}
        return self._whitened(arrays)

    def _whitened(self, arrays: Arrays) -> Arrays:
        """Places of things and of people on axes of variance 1 within choosers. See `factors.choices`."""
        out: Arrays = {}
        like = [array for k in range(len(self.plan.analyses)) for n in [arrays[f"of items.{k}"].shape] for array in
                (np.zeros(3), np.zeros(n[1]), np.zeros((n[1], n[1])), np.zeros(n), np.zeros((n[1], n[1])))]
        found = self.ask(placed, Given(0, arrays), like)
        sums_of = []
        for k in range(len(self.plan.analyses)):
            of_counts, weighed, squares, sums, between = found[5 * k:5 * k + 5]
            items, counts = arrays[f"of items.{k}"], arrays[f"counts.{k}"].sum(axis=1)
            total = max(1.0, of_counts[0])
            whiten, turn, variance = whitening(items.T @ (counts[:, None] * items), between, of_counts)
            chosen = items @ whiten @ turn
            out |= {f"chosen.{k}": chosen * signs(counts @ chosen**3), f"chosen variance.{k}": variance}
            middle = weighed / total
            sums = sums - counts[:, None] * middle
            between = (sums / np.maximum(counts, 1)[:, None]).T @ sums
            of_things = np.array([of_counts[0], np.count_nonzero(counts), (counts**2).sum()])
            whiten, turn, variance = whitening(squares - total * np.outer(middle, middle), between, of_things)
            arrays |= {f"middle.{k}": middle, f"turn.{k}": whiten @ turn}
            out[f"choosers variance.{k}"] = variance
            sums_of.append(sums @ whiten @ turn)
        skews = self.ask(skewed, Given(0, arrays), [np.zeros(own.shape[1]) for own in sums_of])
        return out | {f"choosers.{k}": sums * signs(skew) for k, (sums, skew) in
                      enumerate(zip(sums_of, skews, strict=True))}


class People(Side):
    """People whose rows lie in blocks: what they add up to is here."""

    def __init__(self, spread: Spread) -> None:
        super().__init__(spread.cores, spread.plan.shapes, [s.n_users for s in spread.sources], spread.plan.size)
        self.spread, self.n_rated = spread, list(self.n_rows)
        self.said: list[list[Floats]] = []           # about the items of each domain, and the base rates
        self.normal: list[list[Floats]] = []
        self.of_patterns: list[list[Floats]] = []

    def set_about(self, about: Sequence[Floats], alike: Sequence[Sequence[int]]) -> None:
        self.guess = [np.zeros((x.shape[1], t + self.size)) for x, t in zip(about, self.shapes, strict=True)]
        self.alike = alike

    def expect(self, z: int, weights: Floats) -> None:
        self.weights[z] = weights

    def step(self, other: Any, bases: Sequence[Floats], tilt: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
        """Of all, in their blocks."""
        plan, known = self.spread.plan, self.spread.given
        given = Given(known.at, {**known.arrays, **of_each("rows", other.rows), **of_each("square", other.square),
                                 **of_each("base", bases), **of_each("weights", self.weights),
                                 **of_population("people", self.population),
                                 "freedom": np.array([self.population.freedom])})
        n_about, like = self.weights[0].shape[0], []
        for s, t in zip(self.spread.sources, self.shapes, strict=True):
            size = t + self.size
            like += [np.zeros(shape) for shape in ((s.n_items, size), (s.n_items, size * (size + 1) // 2),
                                                   (s.n_levels,), (s.n_levels, s.n_levels),
                                                   (n_about, n_about), (n_about, size), (n_about,))]
        for domains in plan.patterns:
            like += nothing_of(plan, domains, n_about)
        sums = self.spread.ask(stepped, given, like)
        each, n = 7, len(self.shapes)
        self.said = [sums[each * z:each * z + 4] for z in range(n)]
        self.normal = [sums[each * z + 4:each * z + 7] for z in range(n)]
        self.of_patterns = [sums[each * n + 5 * i:each * n + 5 * i + 5] for i in range(len(plan.patterns))]
        return []

    def _normal(self, z: int) -> tuple[Floats, Floats, Floats]:
        products, moments, squares = self.normal[z]
        return products, moments - products @ self.guess[z], squares / max(1, self.n_rated[z])

    def _moments(self) -> list[Moments]:
        """How far rows are from where they are expected now: linear in the rows and in what is known about them."""
        out = []
        for domains, (squares, shaped, cov, shape_cov, n) in zip(self.spread.plan.patterns, self.of_patterns,
                                                                 strict=True):
            if not n[0]:
                continue
            gap, of_shapes = (_block_diagonal([np.vstack([np.eye(size), -self.weights[z][:, :size]])
                                               for z in domains for size in [self.shapes[z] + more]])
                              for more in (self.size, 0))
            at = self.population.shape_places(domains)
            out.append(Moments(domains, trusted_squares(gap.T @ squares @ gap + cov,
                                                        of_shapes.T @ shaped @ of_shapes + shape_cov, at), int(n[0])))
        return out


class Things(Side):
    """Things whose ratings lie in blocks: what people say about them has been added up, so all are placed in one
    way."""

    def __init__(self, spread: Spread) -> None:
        super().__init__(spread.cores, spread.plan.shapes, [s.n_items for s in spread.sources], spread.plan.size)
        self.locate([s.thing for s in spread.sources], [s.counts.items > 0 for s in spread.sources])
        for domains, members in self.together:
            if len(members):
                self.tie(domains, [self.codes[z][members] for z in domains], [])
        nobody = np.empty(0, np.int32)
        self.alone = [nobody] * len(self.shapes)
        self.sums = [(np.zeros((t, t)), np.zeros((t + self.size,) * 2)) for t in self.shapes]

    def step(self, other: Any, bases: Sequence[Floats], tilt: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
        for tied in self.tied:
            self.solve(tied, [(other.said[z][0][codes], Halves(other.said[z][1], codes, self.shapes[z] + self.size))
                              for z, codes in zip(tied.domains, tied.codes, strict=True)])
        return [(said[2], said[3]) for said in other.said]


class Halves:
    """Hessians of which the lower halves are kept, made whole when some are asked for."""

    def __init__(self, halves: Floats, codes: NDArray[np.int32], size: int) -> None:
        self.halves, self.codes, self.size = halves, codes, size

    def __getitem__(self, some: slice) -> Floats:
        own = self.halves[self.codes[some]]
        out, (i, j) = np.empty((len(own), self.size, self.size)), np.tril_indices(self.size)
        out[:, i, j], out[:, j, i] = own, own
        return out


def _block_diagonal(parts: Sequence[Floats]) -> Floats:
    from scipy.linalg import block_diag

    out: Floats = block_diag(*parts)
    return out
