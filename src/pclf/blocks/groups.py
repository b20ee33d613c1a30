"""Groups: some people of a block at a time, and what they answer when factors are learned.

Rows of people stay beside their block, in a file for each sweep, of which the last two are there. A *question* is a
function of a group, and of what all blocks are given: its answers are arrays, which add up over groups and blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.blocks.block import Block, block_of, same_people, slices_of
from pclf.blocks.catalogue import Catalogue
from pclf.data.events import DRAWN, Pairs, Urn
from pclf.data.ratings import Ratings
from pclf.engines import Lists
from pclf.engines.cpu_rows import Cores
from pclf.engines.cpu_rows import Lists as OfRows
from pclf.factors.about import counted
from pclf.factors.choices import Choice
from pclf.factors.fitted import FEW
from pclf.factors.meeting import Items, Met, better_choices, choices_of, meeting
from pclf.factors.population import Population
from pclf.factors.rows import Floats, tilts
from pclf.factors.side import Side
from pclf.factors.source import Source, Ties, draw_weights

TOGETHER = 1_000_000     # ratings of people who are worked on together, about
FEWEST = 5               # ratings of a person, about, where most have few
ITEMS = 4096             # items whose Hessians are worked on together
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
        rows_path(rows, b, given.at - 1).unlink(missing_ok=True)
        part.replace(rows_path(rows, b, given.at + 1))
    return total


def groups_of(catalogue: Catalogue, blocks: Path, b: int, n_threads: int, rows: Path, plan: Plan,
              at: int) -> Iterator[Group]:
    """The people of a block, as many parts of them at a time as make `TOGETHER` ratings, with their absences."""
    block, ratings, cores = block_of(catalogue, blocks, b), catalogue.ratings, Cores(n_threads)
    names = list(ratings.domains)
    urn = cache(lambda name: Urn.of(ratings[name], plan.seed, draw_weights(ratings[name].item_counts, plan.draw)))
    kept = np.memmap(rows_path(rows, b, at), np.float64, "r") if at else None
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
        left, _, by_thing, chance, root = _left(group, given, k, domains)
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


def _left(group: Group, given: Given, k: int,
          domains: Sequence[int]) -> tuple[Floats, Lists, Lists, Floats, Floats]:
    """A x of these people; who chose what, by person and by thing; what chance would choose, and the roots that people
    are scaled by."""
    by_person, by_thing, of_domains = group.choosing(domains)
    counts, right = given[f"counts.{k}"], given[f"right.{k}"]
    root, chance, total = of_chance(counts, counts)
    own_root, own_chance, _ = of_chance(of_domains, counts)
    sums = by_person.sums((right / root[:, None]).astype(np.float32))
    left = sums / (own_root[:, None] * total) - own_chance @ (chance.T @ right)
    return left, by_person, by_thing, own_chance, own_root[:, None]


def _places(group: Group, given: Given, k: int,
            domains: Sequence[int]) -> tuple[Floats, NDArray[Any], Lists, Lists]:
    """Where people are, by what they chose; how much they chose; and who chose what, by person and by thing."""
    left, by_person, by_thing, _, root = _left(group, given, k, domains)
    return (left @ given[f"to people.{k}"]) / root, by_person.n_chosen, by_person, by_thing


def of_chance(own: Floats, counts: Floats) -> tuple[Floats, Floats, float]:
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


def rows_path(folder: Path, b: int, at: int) -> Path:
    return folder / f"{b:05d}.{at}"
