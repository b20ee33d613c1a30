"""Factors of people in blocks: what `pclf.factors.learn` asks of everybody, a block at a time.

Rows of people stay beside their block, in a file for each sweep, of which the last two are there. The rows of items go
out, and what ratings say about them comes back, with sums over people from which the population is learned. So a sweep
reads the ratings once, and nothing that a block answers grows with the number of people.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.block import Block, block_of, same_people, slices_of
from pclf.blocks.catalogue import Catalogue
from pclf.data.events import DRAWN, Pairs, Urn
from pclf.data.ratings import Ratings
from pclf.engines import Lists
from pclf.engines.cpu_rows import Cores
from pclf.engines.cpu_rows import Lists as OfRows
from pclf.errors import ArgumentError
from pclf.factors.about import About, align_axes, counted, keys_of, spread_of
from pclf.factors.choices import PASSES, SPARE, Choice, orthonormal, signs, to_orthonormal, whitening
from pclf.factors.fitted import FEW, about_items
from pclf.factors.hyper import Hyper
from pclf.factors.learn import Placed
from pclf.factors.meeting import Items, Met, better_choices, choices_of, meeting
from pclf.factors.population import Moments, Population, trusted_squares
from pclf.factors.rows import Floats, normals, tilts
from pclf.factors.side import Side
from pclf.factors.source import Counts, Source, Ties, draw_weights
from pclf.factors.start import Start
from pclf.storage import read_arrays, write_atomically

if TYPE_CHECKING:
    from pclf.blocks.engine import BlockEngine

TOGETHER = 1_000_000     # ratings of people who are worked on together, about
FEWEST = 5               # ratings of a person, about, where most have few
ITEMS = 4096             # items whose Hessians are worked on together
MOST = 16                # domains that may have people in common
Answers = list[Any]
Arrays = dict[str, NDArray[Any]]
Question = Callable[..., Answers]


@dataclass(frozen=True)
class Plan:
    """What is learned together, and how: all that is small and never changes."""

    names: tuple[str, ...]
    ties: Ties
    seed: int = 0                                    # of the absences among events
    draw: float = 0.0                                # the power of an item's events by which they are drawn
    shapes: tuple[int, ...] = ()                     # T, a domain
    size: int = 0                                    # factors
    patterns: tuple[tuple[int, ...], ...] = ()       # the domains that somebody has ratings in, and in no others

    @property
    def analyses(self) -> list[list[int]]:
        """The domains whose choices are analysed together."""
        n = len(self.names)
        return [list(range(n))] if self.ties.choices else [[z] for z in range(n)]


class Given:
    """What blocks must know besides: arrays, which may be large, by name."""

    def __init__(self, at: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.at, self.arrays = at, dict(arrays)      # at: the sweep whose rows of people count; 0: none yet

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def several(self, name: str) -> list[NDArray[Any]]:
        """One for each domain."""
        return [self.arrays[f"{name}.{z}"] for z in range(sum(key.startswith(f"{name}.") for key in self.arrays))]


class Others(NamedTuple):
    """The rows of the other side, for a step."""

    rows: Sequence[Floats]
    square: Sequence[Floats]


class Group:
    """Some people of a block, with their ratings, in memory."""

    def __init__(self, plan: Plan, ratings: Ratings, block: Block, users: Sequence[slice], cores: Cores,
                 urn: Callable[[str], Urn], kept: Sequence[Floats] | None) -> None:
        self.plan, self.ratings, self.block, self.users, self.cores = plan, ratings, block, users, cores
        self.urn = urn                   # of a domain of events
        self.kept = kept                 # of each domain: row and trust of every user, (U, D + 1)
        self.rows: list[Floats] = []     # the same after a step

    @cached_property
    def sources(self) -> list[Source]:
        """Ratings, and events with their absences."""
        out = []
        for s in self.choices:
            if s.least:
                user, item = self.absences(s)
                s = replace(s, user=np.concatenate([s.user, user]), item=np.concatenate([s.item, item]),
                            level=np.append(s.level, np.zeros(len(user), np.uint8)))
            out.append(s)
        return out

    def absences(self, source: Source) -> Pairs:
        """Those among the events of a domain."""
        z = list(self.ratings.domains).index(source.name)
        return self.urn(source.name).absences(source.user, source.item, self.block.column(z, "key")[self.users[z]])

    @cached_property
    def choices(self) -> list[Source]:
        """Ratings and events: what people chose."""
        out, names = [], list(self.ratings.domains)
        things, people = things_of(self.ratings, self.plan.ties), None
        if self.plan.ties.people:
            people = same_people(self.block, self.users)
        start = 0
        for name in self.plan.names:
            z, d = names.index(name), self.ratings[name]
            some = self.users[z]
            first, stop = np.searchsorted(self.block.column(z, "user"), [some.start, some.stop])
            user, item, level = (np.array(self.block.column(z, column)[first:stop])
                                 for column in ("user", "item", "value"))
            n = some.stop - some.start
            person = np.arange(start, start + n) if people is None else people[z]
            out.append(Source(name, user - np.int32(some.start), item, level, n, d.n_items, len(d.scale), int(d.events),
                              person.astype(np.int32), things[z]))
            start += n
        return out

    def n_rated(self, z: int) -> NDArray[np.int64]:
        """How much each user of a domain rated, absences among it."""
        s = self.sources[z]
        return np.bincount(s.user, minlength=s.n_users)

    def choosing(self, domains: Sequence[int]) -> tuple[Lists, Lists, Floats]:
        """Who chose what in domains that are analysed together, by person and by thing; choices of each person, a
        domain a column."""
        tied, some = self.plan.ties.choices, [self.choices[z] for z in domains]
        people = [s.person if tied else np.arange(s.n_users, dtype=np.int32) for s in some]
        things = [s.thing if tied else np.arange(s.n_items, dtype=np.int32) for s in some]
        n_people, n_things = (1 + max(int(rows.max(initial=-1)) for rows in side) for side in (people, things))
        person = [rows[s.user] for s, rows in zip(some, people, strict=True)]
        thing = np.concatenate([rows[s.item] for s, rows in zip(some, things, strict=True)])
        by_person, by_thing = self.cores.lists(np.concatenate(person), thing, np.zeros(len(thing), np.uint8), n_people,
                                               n_things, 1, 0)
        return by_person, by_thing, counted(person, n_people)

    def about(self, given: Given) -> list[Floats]:
        """1, and where every user stands by what they chose, of each domain. (U, 1 + Q)"""
        out: list[Floats] = []
        for k, domains in enumerate(self.plan.analyses):
            by_person, _, _ = self.choosing(domains)
            choice = Choice(given[f"chosen.{k}"], given[f"chosen variance.{k}"])
            stand = np.column_stack([np.ones(len(by_person.n_chosen)), choice.of_all(by_person, self.cores)])
            out += [stand[self.choices[z].person] if self.plan.ties.choices else stand for z in domains]
        return out


def answer(catalogue: Catalogue, blocks: Path, b: int, n_threads: int, rows: Path, question: Question, plan: Plan,
           given: Given) -> Answers:
    """What the people of a block answer, a group at a time. Their new rows are kept, where there are some."""
    total: Answers = []
    made = False
    part = rows / f"{b:05d}.{token_hex(8)}"                  # of this attempt, if there are several
    for group in groups_of(catalogue, blocks, b, n_threads, rows, plan, given.at):
        own = question(group, given)
        if group.rows:
            made = True
            with part.open("ab") as file:
                for of_domain in group.rows:
                    np.ascontiguousarray(of_domain, np.float64).tofile(file)
        for whole, more in zip(total, own, strict=bool(total)):
            whole += more
        total = total or own
    if made:
        _rows_path(rows, b, given.at - 1).unlink(missing_ok=True)
        part.replace(_rows_path(rows, b, given.at + 1))
    return total


def groups_of(catalogue: Catalogue, blocks: Path, b: int, n_threads: int, rows: Path, plan: Plan,
              at: int) -> Iterator[Group]:
    """The people of a block, as many parts of them at a time as make `TOGETHER` ratings, with their absences."""
    block, ratings, cores = block_of(catalogue, blocks, b), catalogue.ratings, Cores(n_threads)
    names = list(ratings.domains)
    urn = cache(lambda name: Urn.of(ratings[name], plan.seed, draw_weights(ratings[name].item_counts, plan.draw)))
    kept = np.memmap(_rows_path(rows, b, at), np.float64, "r") if at else None
    start, each = 0, [1 + DRAWN * d.events for d in ratings.domains.values()]
    for users in slices_of(catalogue, b, TOGETHER, each):
        own: list[Floats] = []
        for name, t in zip(plan.names, plan.shapes, strict=False):
            if kept is not None:
                some, width = users[names.index(name)], t + plan.size + 1
                stop = start + (some.stop - some.start) * width
                own.append(np.array(kept[start:stop]).reshape(-1, width))
                start = stop
        yield Group(plan, ratings, block, users, cores, urn, own or None)


def patterns(group: Group, given: Given) -> Answers:
    """How many people have ratings in each set of domains, numbered by bits."""
    n, found = len(group.plan.names), np.zeros(1 + max(int(s.person.max(initial=-1)) for s in group.choices), np.int64)
    for z, s in enumerate(group.choices):
        found[s.person] |= 1 << z
    return [np.bincount(found, minlength=1 << n)]


def drawn(group: Group, given: Given) -> Answers:
    """How often each item of each domain of events was drawn as an absence."""
    return [np.bincount(group.absences(s)[1], minlength=s.n_items) for s in group.choices if s.least]


def turned(group: Group, given: Given) -> Answers:
    """Of each analysis, with A the matrix of choices less those of chance: A'A x in its two parts, and x'A'A x."""
    out: Answers = []
    for k, domains in enumerate(group.plan.analyses):
        left, by_thing, chance, root = _left(group, given, k, domains)
        out += [np.asarray(by_thing.sums((left / root).astype(np.float32)), np.float64), chance.T @ left, left.T @ left]
    return out


def placed(group: Group, given: Given) -> Answers:
    """Of each analysis, of people as they are placed: choices and their squares; the places of choosers by choices,
    their squares, their sums by item; and how the means of the places of what people chose differ."""
    out: Answers = []
    for k, domains in enumerate(group.plan.analyses):
        places, n, by_person, by_thing = _places(group, given, k, domains)
        sums = by_person.sums(given[f"of items.{k}"])
        between = (sums / np.maximum(n, 1)[:, None]).T @ sums
        out += [np.array([n.sum(), np.count_nonzero(n), (n.astype(np.float64) ** 2).sum()]), n @ places,
                places.T @ (n[:, None] * places), by_thing.sums(places), between]
    return out


def skewed(group: Group, given: Given) -> Answers:
    """Of each analysis, which way the axes of choosers point."""
    out: Answers = []
    for k, domains in enumerate(group.plan.analyses):
        places, n, _, _ = _places(group, given, k, domains)
        out.append(n @ ((places - given[f"middle.{k}"]) @ given[f"turn.{k}"]) ** 3)
    return out


def stepped(group: Group, given: Given) -> Answers:
    """A step of these people. Of each domain: what they say about items, gradient and half of the Hessian, and about
    the base rates; the normal equations of their regression. Of those with ratings in just the same domains: squares of
    rows beside what is known about them, of shapes times the trust, the sums of their covariances, and their number."""
    plan, side = group.plan, step(group, given)
    bases, out = given.several("base"), []
    for z, (s, t) in enumerate(zip(group.sources, plan.shapes, strict=True)):
        out += _of_items(s, given[f"rows.{z}"], side.rows[z], side.square[z], bases[z], tilts(s.n_levels, t),
                         group.cores)
        weighted = side.trust[z][:, None] * side.about[z]
        out += [side.about[z].T @ weighted, weighted.T @ side.rows[z], (side.about[z] ** 2).sum(axis=0)]
    of_pattern: dict[tuple[int, ...], Any] = {
        (z,): ([codes], own) for z, (codes, own) in enumerate(zip(side.alone, side.sums, strict=True))}
    of_pattern |= {tuple(tied.domains): (tied.codes, (tied.shape_cov, tied.cov)) for tied in side.tied}
    for domains in plan.patterns:
        if domains not in of_pattern:
            out += nothing_of(plan, domains, side.about[0].shape[1])
            continue
        codes, (shape_cov, cov) = of_pattern[domains]
        rows = [np.hstack([side.rows[z][own], side.about[z][own]]) for z, own in zip(domains, codes, strict=True)]
        joint, trust = np.hstack(rows), side.trust[domains[0]][codes[0]]
        shaped = np.hstack([np.hstack([own[:, :plan.shapes[z]], own[:, plan.shapes[z] + plan.size:]])
                            for z, own in zip(domains, rows, strict=True)])
        out += [joint.T @ joint, shaped.T @ (trust[:, None] * shaped), cov, shape_cov, np.array([len(joint)])]
    group.rows = [np.column_stack([rows, trust]) for rows, trust in zip(side.rows, side.trust, strict=True)]
    return out


def step(group: Group, given: Given) -> Side:
    """These people after a step, given the rows of items."""
    plan = group.plan
    side = Side.of(group.cores, group.sources, True, plan.shapes, plan.size)
    side.population = _population(plan, given)
    side.set_about(group.about(given), [])
    for z, (s, t) in enumerate(zip(group.sources, plan.shapes, strict=True)):
        side.expect(z, given[f"weights.{z}"])
        kept = np.zeros((s.n_users, t + plan.size + 1)) if group.kept is None else group.kept[z]
        side.start(z, np.ascontiguousarray(kept[:, :-1]))
        if group.kept is not None:
            side.trust[z] = kept[:, -1].copy()
    for tied in side.tied:
        tied.trust[:] = side.trust[tied.domains[0]][tied.codes[0]]
    side.step(Others(given.several("rows"), given.several("square")), given.several("base"),
              [tilts(s.n_levels, t) for s, t in zip(group.sources, plan.shapes, strict=True)])
    return side


def met(group: Group, given: Given) -> Answers:
    """Of each domain the sums of `meeting`, and what the usual of `Placed` is made of: sums over ratings."""
    out: Answers = []
    for z in range(len(group.sources)):
        lists, users, tastes, items = _meeting(group, given, z)
        n_rated, n = group.n_rated(z), lists[0].n_chosen + FEW
        picks = better_choices(lists[0], users, items, group.cores)
        out += [*meeting(*lists, users, tastes, items, group.cores),
                np.array([n_rated @ (picks / n), n_rated @ (FEW / n), n_rated.sum()])]
    return out


class Finish(NamedTuple):
    """What blocks must know to say what is kept of their users, once a fit is done."""

    fit: int                 # the number of this fit among those of the model
    plan: Plan
    given: Given
    rows: Path

    def width(self, z: int) -> int:
        """Numbers that are kept of a user."""
        return self.plan.shapes[z] + self.plan.size + len(self.given[f"weights.{z}"]) + 3


def finished(catalogue: Catalogue, blocks: Path, b: int, n_threads: int, finish: Finish) -> list[Floats]:
    """Of each domain what is kept of the users of a block: row, what is known about them, gain, picks, and how much
    they rated, absences among it. (U, W)"""
    _, plan, given, rows = finish
    out: list[list[Floats]] = [[] for _ in plan.names]
    for group in groups_of(catalogue, blocks, b, n_threads, rows, plan, given.at):
        for z, about in enumerate(group.about(given)):
            lists, users, tastes, items = _meeting(group, given, z)
            of_all = Met(given[f"company.{z}"], np.zeros(()), float(given[f"usual.{z}"][0]))
            gain, picks = of_all.gains(lists[0], users, tastes, items, group.cores)
            out[z].append(np.column_stack([users, about, gain, picks, group.n_rated(z)]).astype(np.float32))
    return [np.concatenate(own) for own in out]


def memory_of(n_items: int, n_ratings: int, size: int) -> int:
    """Bytes that rows of so many numbers take while they are learned, at most."""
    of_items = n_items * (3 * 8 * (size * (size + 1) // 2 + size) + 4 * 8 * size)
    together = min(n_ratings, TOGETHER)
    return of_items + 40 * together + 150 * size * together // FEWEST + 8 * ITEMS * size**2


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
            for k, (of_things, of_chance) in enumerate(zip(found[::3], found[1::3], strict=True)):
                root, chance, total = _of_chance(arrays[f"counts.{k}"], arrays[f"counts.{k}"])
                backs.append(of_things / (root[:, None] * total) - chance @ of_chance)
                rights.append(orthonormal(backs[k]).astype(np.float32))
        for k, (right, back) in enumerate(zip(rights, backs, strict=True)):
            to_left = to_orthonormal(products[k])
            u, _, v = np.linalg.svd(to_left.T @ back.T @ right)
            n = min(right.shape[1], hyper.places)
            root, _, total = _of_chance(arrays[f"counts.{k}"], arrays[f"counts.{k}"])
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


def things_of(ratings: Ratings, ties: Ties) -> list[NDArray[np.int32]]:
    """The thing that each item of each domain is: of its domain alone where things are not tied."""
    if ties.things:
        return [np.asarray(rows, np.int32) for rows in ratings.item_rows]
    ends = np.cumsum([0, *(d.n_items for d in ratings.domains.values())]).tolist()
    return [np.arange(start, start + d.n_items, dtype=np.int32)
            for start, d in zip(ends, ratings.domains.values(), strict=False)]


def of_each(name: str, arrays: Sequence[Any]) -> Arrays:
    return {f"{name}.{z}": np.asarray(array) for z, array in enumerate(arrays)}


def of_population(name: str, population: Population) -> Arrays:
    return {**of_each(f"{name} own", population.own),
            **{f"{name} between.{a}.{b}": k for (a, b), k in population.between.items()}}


def population_of(given: Given, name: str, shapes: tuple[int, ...], freedom: float) -> Population:
    between = {(int(a), int(b)): k for key, k in given.arrays.items() if key.startswith(f"{name} between.")
               for a, b in [key.split(".")[1:]]}
    return Population(shapes, tuple(given.several(f"{name} own")), between, freedom)


def nothing_of(plan: Plan, domains: Sequence[int], n_about: int) -> Answers:
    """What people of a pattern add up to, if there are none."""
    shapes, n = sum(plan.shapes[z] for z in domains), len(domains)
    rows = shapes + n * plan.size
    return [np.zeros(shape) for shape in ((rows + n * n_about,) * 2, (shapes + n * n_about,) * 2, (rows, rows),
                                          (shapes, shapes), (1,))]


def _of_items(source: Source, rows: Floats, people: Floats, square: Floats, base: Floats, tilt: Floats,
              cores: Cores) -> Answers:
    """What people say about items, some items at a time: gradients, the lower halves of Hessians, and of base rates."""
    lists, size = cores.side(source.item, source.user, source.level, source.n_items, source.n_users, source.n_levels), \
        rows.shape[1]
    i, j = np.tril_indices(size)
    gradient, half = np.zeros(rows.shape), np.zeros((len(rows), len(i)))
    of_base = [np.zeros(len(base)), np.zeros((len(base),) * 2)]
    for start in range(0, len(rows), ITEMS):
        some = slice(start, min(len(rows), start + ITEMS))
        a, b = lists.starts[[some.start, some.stop]].tolist()
        if a < b:
            starts = lists.starts[some.start:some.stop + 1] - a
            own = OfRows(starts, lists.other[a:b], lists.level[a:b], starts, lists.other[a:b], cores)
            gradient[some], hessian, *more = cores.collect(own, rows[some], people, square, base, tilt)
            half[some] = hessian[:, i, j]
            of_base = [whole + own for whole, own in zip(of_base, more, strict=True)]
    return [gradient, half, *of_base]


def _population(plan: Plan, given: Given) -> Population:
    return population_of(given, "people", plan.shapes, float(given["freedom"][0]))


def _left(group: Group, given: Given, k: int, domains: Sequence[int]) -> tuple[Floats, Lists, Floats, Floats]:
    """A x of these people; who chose things, what chance would choose, and the roots that people are scaled by."""
    by_person, by_thing, of_domains = group.choosing(domains)
    counts, right = given[f"counts.{k}"], given[f"right.{k}"]
    root, chance, total = _of_chance(counts, counts)
    own_root, own_chance, _ = _of_chance(of_domains, counts)
    sums = by_person.sums((right / root[:, None]).astype(np.float32))
    left = sums / (own_root[:, None] * total) - own_chance @ (chance.T @ right)
    return left, by_thing, own_chance, own_root[:, None]


def _places(group: Group, given: Given, k: int,
            domains: Sequence[int]) -> tuple[Floats, NDArray[Any], Lists, Lists]:
    """Where people are, by what they chose; how much they chose; and who chose what, by person and by thing."""
    left, _, _, root = _left(group, given, k, domains)
    by_person, by_thing, _ = group.choosing(domains)
    return (left @ given[f"to people.{k}"]) / root, by_person.n_chosen, by_person, by_thing


def _of_chance(own: Floats, counts: Floats) -> tuple[Floats, Floats, float]:
    """The roots that rows are scaled by, the singular vectors of what chance chooses, and the number of choices.

    own: choices of each row, a domain a column. counts: the same of all things.
    """
    totals = np.maximum(counts.sum(axis=0), 1)
    total = float(max(1, counts.sum()))
    root = np.sqrt(np.maximum(own.sum(axis=1), 1) / total)
    return root, own / (root[:, None] * np.sqrt(total * totals)), total


def _meeting(group: Group, given: Given, z: int) -> tuple[tuple[Lists, Lists], Floats, Floats, Items]:
    """Of a domain: who chose what, rows of users, their tastes, and items."""
    assert group.kept is not None
    t, weights = group.plan.shapes[z], given[f"weights.{z}"]
    users = np.ascontiguousarray(group.kept[z][:, :-1])
    items = Items(given[f"items.{z}"], given[f"new.{z}"], t, int(given["n_attribute"][0]))
    return choices_of(group.choices[z], group.cores), users, users[:, t:] - weights[0, t:], items


def _block_diagonal(parts: Sequence[Floats]) -> Floats:
    from scipy.linalg import block_diag

    out: Floats = block_diag(*parts)
    return out


def _rows_path(folder: Path, b: int, at: int) -> Path:
    return folder / f"{b:05d}.{at}"
