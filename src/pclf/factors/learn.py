"""Learning the factor model: sweeps of Newton steps over people and things, and the population they come from.

Inference is mean-field between users and items (Lim & Teh, KDD Cup 2007): the rows of one side are placed given those
of the other, with their uncertainty; then means and covariances of both are found by empirical Bayes, so somebody with
five ratings is shrunk as much as five ratings deserve. The rows of one person in several domains are placed in one
step.

The mean of a row is a regression on what is known besides ratings (Agarwal & Chen, "Regression-based Latent Factor
Models", KDD 2009): what a person chose to rate, who chose a thing and how many did, and the attributes of a thing.
Ratings that are too few to find factors still say who likes which of these, so factors begin there. Domains
that people or things tie together have one regression.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.engines import Lists, Machine
from pclf.factors.attributes import AttributeRegression, align, attribute_axes
from pclf.factors.choices import Choice, learn_choices
from pclf.factors.fitted import FEW, NARROWEST, DomainFactors, Factors, about_items, company_of, joint_steps
from pclf.factors.hyper import Hyper
from pclf.factors.population import Moments, Population, learned, trusted_squares
from pclf.factors.rows import Floats, tilts
from pclf.factors.start import Start

FIRST = 2            # sweep from which the population is learned
START = 0.2          # variance of rows to begin with; half of it for all but the offset of an item
JITTER = 0.2         # of an item's factors, so that no two axes begin alike
TOGETHER = 2048      # people whose rows in several domains are placed at a time
ALIKE = 0.5          # agreement from which factors of two domains have one regression
MOST = 3.0           # appeal
COUNTS = 3           # numbers that say how often an item was chosen


@dataclass(frozen=True)
class Source:
    """The ratings of one domain, as the factor model reads them."""

    name: str
    user: NDArray[np.int32]             # (n,) codes
    item: NDArray[np.int32]
    level: NDArray[np.uint8]
    n_users: int
    n_items: int
    n_levels: int
    least: int                          # level from which a rating is a choice
    person: NDArray[np.int32]           # (U,) rows among the people of all sources
    thing: NDArray[np.int32]            # (V,)
    attributes: Any = None              # (V, P), sparse

    @property
    def chosen(self) -> NDArray[np.bool_]:
        return self.level >= self.least


@dataclass(frozen=True)
class Ties:
    """Which rows of the domains belong together."""

    people: bool
    things: bool
    attributes: bool
    inside: bool = False     # attributes are used, and every domain has a regression of its own: nothing is tied

    @property
    def number(self) -> int:
        """How many bridges there are."""
        return self.people + self.things + self.attributes

    @property
    def any(self) -> bool:
        return self.people or self.things or self.attributes

    @property
    def choices(self) -> bool:
        """Whether the axes of choices mean the same in all domains."""
        return self.people or self.things


def fit(sources: Sequence[Source], ties: Ties, hyper: Hyper, n_factors: int, seed: int, machine: Machine,
        after_sweep: Callable[[], None] = lambda: None, start: Start | None = None) -> Factors:
    """Learn the rows of all users and items of some domains, together where something ties them.

    start: where an older fit of these domains ended, whose number of factors is kept; without it, all begins anew.
    """
    tilt = [tilts(s.n_levels, hyper.shape) for s in sources]
    shapes = tuple(len(t) for t in tilt)
    known = learn_about(sources, ties, hyper, seed, machine, start)
    axes, n_common = attribute_axes([s.attributes for s in sources], hyper.attribute_factors) or (None, 0)
    n_attribute = 0 if axes is None else axes[0].shape[1]
    n_factors = n_factors if start is None else start.size - n_attribute
    size = n_attribute + n_factors
    people, things = (_Side.of(machine, sources, by_user, shapes, size) for by_user in (True, False))
    agreement = [np.concatenate([np.arange(n_attribute) < n_common, _fitting(own, n_factors, float(ties.choices))])
                 for own in known.agreement]
    people.population = _population(shapes, agreement, START, START, hyper.habit, hyper.freedom)
    for block, t in zip(people.population.own, shapes, strict=True):
        block[range(t, t + n_attribute), range(t, t + n_attribute)] = hyper.attribute_start
    things.population = _population(shapes, agreement, START, START / 2, hyper.sameness, 0.0)
    alike = _alike(sources, shapes, ties)
    people.set_about(known.people, alike)
    things.set_about(known.things, alike)
    for z, s in enumerate(sources):
        along = things.guess[z][COUNTS:, shapes[z] + n_attribute:]
        along[:] = hyper.taste * np.eye(len(along), n_factors)
        if axes is not None:
            things.attributes[z] = AttributeRegression.of(s.attributes, axes[z], hyper.taste, shapes[z], size)
        things.expect(z, things.guess[z])
        rows = machine.get(things.mean[z]).copy()
        rows[:, shapes[z]:] += np.random.default_rng(seed).normal(0, JITTER, (s.n_items, size))    # no other domain's
        things.start(z, rows)
        people.expect(z, people.guess[z])
        people.start(z, np.zeros((s.n_users, shapes[z] + size)))
    bases = [_base(s) for s in sources]
    if start is not None:
        bases = start.resume(people, things)

    for sweep in range(hyper.sweeps if start is None else start.sweeps):
        people.step(things, bases, tilt)
        steps = things.step(people, bases, tilt)
        if sweep >= FIRST or start is not None:
            people.learn(hyper, ties, agreement, fixed_shape=True)            # `base` says how everybody rates
            things.learn(hyper, ties, agreement, fixed_shape=False)
        for z, (gradient, hessian) in enumerate(steps):
            bases[z] = bases[z] + np.clip(np.linalg.solve(hessian + np.eye(len(gradient)), gradient), -0.5, 0.5)
            bases[z] -= bases[z].mean()
        after_sweep()
    domains = {}
    users, items = people.result(), things.result()
    for z, s in enumerate(sources):
        lift, n_chosen = _lift(s, tilt[z], hyper), np.bincount(s.item[s.chosen], minlength=s.n_items)
        items[z][:, 0] += lift[0] + lift[1] * np.log(np.maximum(n_chosen, 1))
        new = _new_items(things, z, known.count[z])
        by_user, by_item = _choices(s, machine)
        given = by_user, by_item, users[z], items[z], people.weights[z], shapes[z], machine
        company, gain, picks = _company(*given, new, n_attribute)
        appeal = _appeal(*given)
        domains[s.name] = DomainFactors(
            users[z].astype(np.float32), items[z].astype(np.float32), bases[z], tilt[z],
            machine.get(things.square[z]),
            people.weights[z], things.weights[z], things.attribute_weights(z), known.people[z].astype(np.float32),
            known.chosen[z], known.choosers[z], known.count[z], np.bincount(s.user, minlength=s.n_users),
            np.bincount(s.item, minlength=s.n_items), company, gain,
            new.astype(np.float32), appeal, picks,
            np.array(s.least), lift)
    strange = []
    for z, first in enumerate(t + n_attribute for t in shapes):
        tastes = people.population.own[z][first:, first:]
        strange.append(_strange(agreement[z][n_attribute:], tastes, items[z][:, first:], ties))
    return Factors(domains, people.population, things.population, ties.choices, n_attribute, n_common,
                   np.array(strange), hyper)


def fit_apart(sources: Sequence[Source], hyper: Hyper, n_factors: Sequence[int], seed: int, machine: Machine,
              after_sweep: Callable[[], None] = lambda: None, start: Start | None = None) -> Factors:
    """Learn every domain as if there were no other. What a visitor brings along is how they use the scale."""
    parts = [fit([source], Ties(False, False, source.attributes is not None), hyper, n, seed, machine, after_sweep,
                 start and start.only(source.name)) for source, n in zip(sources, n_factors, strict=True)]
    if len(parts) == 1:
        return parts[0]
    shapes = tuple(part.people.shapes[0] for part in parts)
    nothing = [np.zeros(len(part.people.own[0]) - t) for part, t in zip(parts, shapes, strict=True)]

    def joined(side: str, correlation: float) -> Population:
        own = tuple(getattr(part, side).own[0] for part in parts)
        return Population(shapes, own, _between(shapes, nothing, correlation), getattr(parts[0], side).freedom)

    domains = {name: own for part in parts for name, own in part.domains.items()}
    return Factors(domains, joined("people", hyper.habit), joined("things", hyper.sameness), False, 0, 0,
                   np.ones(len(parts)), hyper)


def _strange(agreement: Floats, tastes: Floats, factors: Floats, ties: Ties) -> float:
    """How much of the tastes for what is chosen does not carry over: 1 less their agreement, axes counting by what they
    do.

    Where people or things tie domains, what carries over is learned; still somebody who never rated here is new.
    """
    weight = np.diag(tastes) * np.square(factors).mean(axis=0)
    return 1.0 if ties.choices or not weight.sum() else float(1 - (weight @ agreement**2) / weight.sum())


def _choices(source: Source, machine: Machine) -> tuple[Lists, Lists]:
    """Who chose what in a domain, by user and by item."""
    user, item = source.user[source.chosen], source.item[source.chosen]
    by_user, by_item = machine.lists(user, item, np.zeros(len(user), np.uint8), source.n_users, source.n_items, 1, 0)
    return by_user, by_item


def _appeal(by_user: Lists, by_item: Lists, users: Floats, items: Floats, weights: Floats, n_shape: int,
            machine: Machine) -> Floats:
    """How much tastes raise the odds of a choice: if choices are drawn by exp(appeal * taste) times how often each is
    chosen, the tastes for what was chosen are higher by appeal times their variance. ()"""
    tastes, factors = users[:, n_shape:] - weights[0, n_shape:], items[:, n_shape:]
    n = max(1, int(by_user.n_chosen.sum()))
    of_user, of_item = by_user.n_chosen / n, by_item.n_chosen / n
    chosen = float(np.einsum("uf,uf->", tastes, machine.get(by_user.sums(machine.put(factors))))) / n
    mean = float((of_user @ tastes) @ (of_item @ factors))
    squares = tastes.T @ (of_user[:, None] * tastes), factors.T @ (of_item[:, None] * factors)
    square = float(np.einsum("fg,fg->", *squares))
    return np.array(np.clip((chosen - mean) / max(square - mean**2, 1e-9), 0, MOST))


def _new_items(things: "_Side", z: int, count: Floats) -> Floats:
    """Offset and factors of a domain's items by their attributes alone, as if nobody had rated them. (V, 1 + F)"""
    about = about_items(np.zeros(1), count, np.zeros((1, things.weights[z].shape[0] - COUNTS)))
    regression = things.attributes[z]
    means = np.repeat(about @ things.weights[z], things.n_rows[z], axis=0)
    if regression is not None:
        means = means + regression.means()
    return np.column_stack([means[:, 0], means[:, things.shapes[z]:]])


def _company(by_user: Lists, by_item: Lists, users: Floats, items: Floats, weights: Floats, n_shape: int,
             machine: Machine, new: Floats, n_attribute: int) -> tuple[Floats, Floats, Floats]:
    """See `DomainFactors`: the company of every item, the gain and the picks of every user. (V,), (U,), (U,)"""
    tastes, factors = users[:, n_shape:] - weights[0, n_shape:], items[:, n_shape:]
    sums = machine.get(by_item.sums(machine.put(tastes)))
    company = company_of(sums, by_item.n_chosen, factors, n_attribute)
    chosen = by_item.n_chosen > 0
    if chosen.any():                                 # whoever rates something new, chose it
        company[~chosen] = np.average(company, weights=by_item.n_chosen)
    met = machine.get(by_user.sums(machine.put(np.column_stack([factors[:, n_attribute:], company]))))
    more = np.einsum("uf,uf->u", tastes[:, n_attribute:], met[:, :-1]) - met[:, -1]
    better = machine.get(by_user.sums(machine.put(np.column_stack([items[:, 0], factors]) - new)))
    picks = better[:, 0] + np.einsum("uf,uf->u", users[:, n_shape:], better[:, 1:])
    n = by_user.n_chosen + FEW
    usual = picks.sum() / max(1, by_user.n_chosen.sum())
    return company.astype(np.float32), (more / n).astype(np.float32), ((picks + FEW * usual) / n).astype(np.float32)


@dataclass(frozen=True)
class About:
    """What is known about people and things besides ratings, a domain each."""

    people: list[Floats]         # (U, 1 + Q) 1, and where a person stands by what they chose
    things: list[Floats]         # (V, 3 + Q) see `about_items`
    chosen: list[Choice]         # things as people choose them, on axes of all domains that are analysed together
    choosers: list[Choice]       # people as things are chosen by them
    count: list[Floats]          # (4,) see `about_items`
    agreement: list[Floats]      # (Q,) how far an axis of choices means the same as in the first domain


def learn_about(sources: Sequence[Source], ties: Ties, hyper: Hyper, seed: int, machine: Machine,
                start: Start | None = None) -> About:
    """One analysis of the choices in all domains that people or things tie together.

    Where attributes alone tie them every domain has one of its own, and the axes of two have nothing in common.
    """
    out = About([], [], [], [], [], [])
    for group in [list(sources)] if ties.choices else [[s] for s in sources]:
        if ties.choices:
            people, things = [s.person for s in group], [s.thing for s in group]
        else:                                                # of its own rows alone, whatever comes before them
            people, things = ([np.arange(n, dtype=np.int32)] for n in (group[0].n_users, group[0].n_items))
        n_people, n_things = (1 + max(int(rows.max(initial=-1)) for rows in side) for side in (people, things))
        person = [rows[s.user[s.chosen]] for s, rows in zip(group, people, strict=True)]
        thing = [rows[s.item[s.chosen]] for s, rows in zip(group, things, strict=True)]
        n_chosen = sum(map(len, person))
        by_user, by_item = machine.lists(np.concatenate(person), np.concatenate(thing), np.zeros(n_chosen, np.uint8),
                                         n_people, n_things, 1, 0)
        of_domains = _counts(person, n_people), _counts(thing, n_things)
        chosen, choosers = learn_choices(by_user, by_item, of_domains, hyper.places, np.random.default_rng(seed),
                                         machine)
        if start is not None:
            names = [s.name for s in group]
            chosen = start.as_before(chosen, "chosen", names, things, by_item.n_chosen)
            choosers = start.as_before(choosers, "choosers", names, people, by_user.n_chosen)
        counts = of_domains[1].sum(axis=1)
        logs = np.log(counts[counts > 0]) if counts.any() else np.zeros(1)
        spread = max(logs.std(), NARROWEST)
        standard = (logs - logs.mean()) / spread
        typical = [np.average(x, weights=np.exp(logs)) for x in (standard, standard**2)]
        count = np.array([logs.mean(), spread, *typical])
        stand = np.column_stack([np.ones(n_people), chosen.of_all(by_user, machine)])
        known = about_items(counts, count, choosers.of_all(by_item, machine))
        for own_people, own_things in zip(people, things, strict=True):
            out.people.append(stand[own_people])
            out.things.append(known[own_things])
            out.chosen.append(Choice(chosen.places[own_things], chosen.variance))
            out.choosers.append(Choice(choosers.places[own_people], choosers.variance))
            out.count.append(count)
            out.agreement.append(np.full(chosen.places.shape[1], float(ties.choices)))
    if ties.attributes and not ties.choices:
        _align(out, sources, seed)
    return out


def _align(about: About, sources: Sequence[Source], seed: int) -> None:
    """Axes of choices that attributes tie together are turned onto those of the largest domain."""
    known = [z for z, s in enumerate(sources) if s.attributes is not None and s.attributes.nnz]
    known.sort(key=lambda z: -len(sources[z].level))
    sizes = {about.chosen[z].places.shape[1] for z in known}
    if len(known) < 2 or len(sizes) > 1:
        return
    turns, agreements = align([about.things[z][:, COUNTS:] for z in known], [sources[z].attributes for z in known],
                              seed)
    for z, turn, agreement in zip(known, turns, agreements, strict=True):
        about.things[z][:, COUNTS:] = about.things[z][:, COUNTS:] @ turn
        about.choosers[z] = replace(about.choosers[z], turn=turn)
        about.agreement[z] = agreement


def _counts(rows: Sequence[NDArray[np.int32]], n: int) -> Floats:
    """How often each of n rows comes, a domain a column. (n, Z)"""
    return np.stack([np.bincount(own, minlength=n) for own in rows], axis=1).astype(np.float64)


def _base(source: Source) -> Floats:
    counts = np.bincount(source.level, minlength=source.n_levels) + 1.0
    out: Floats = np.log(counts / counts.sum())
    return out


def _lift(source: Source, tilt: Floats, hyper: Hyper) -> Floats:
    """From odds among drawn absences to odds among items drawn equally often: a constant, and for the log count.
    (2,)"""
    if not source.least:
        return np.zeros(2)
    weight = draw_weights(np.bincount(source.item[source.chosen], minlength=source.n_items), hyper.draw)
    step = tilt[0, source.least] - tilt[0, 0]
    out: Floats = np.array([np.log(source.n_items / weight.sum()), hyper.draw]) / step
    return out


def draw_weights(n: NDArray[np.int64], power: float) -> Floats:
    """How often items with n events each are drawn as absences, up to a constant."""
    out: Floats = np.maximum(n, 1.0) ** power
    return out


def _alike(sources: Sequence[Source], shapes: Sequence[int], ties: Ties) -> list[list[int]]:
    """Domains with as many numbers of a shape, all of ratings or all of events, where choices mean the same in all;
    otherwise each by itself."""
    if not ties.choices:
        return [[z] for z in range(len(sources))]
    groups: dict[tuple[int, int], list[int]] = {}
    for z, s in enumerate(sources):
        groups.setdefault((shapes[z], s.least), []).append(z)
    return list(groups.values())


def _fitting(agreement: Floats, n: int, beyond: float) -> Floats:
    """Agreement of n factors, of which the first lie along axes of choices."""
    return np.concatenate([agreement[:n], np.full(max(0, n - len(agreement)), beyond)])


def _population(shapes: tuple[int, ...], agreement: Sequence[Floats], offset: float, others: float, correlation: float,
                freedom: float) -> Population:
    """To begin with: small variances, and the guessed correlation between domains on the axes that mean the same."""
    size = len(agreement[0])
    own = [np.diag([offset, *[others] * (t + size - 1)]) for t in shapes]
    return Population(shapes, tuple(own), _between(shapes, agreement, correlation), freedom)


def _between(shapes: Sequence[int], agreement: Sequence[Floats], correlation: float) -> dict[tuple[int, int], Floats]:
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


class _Side:
    """People, or things, of all domains while they are learned: their rows, and the population they come from."""

    population: Population

    def __init__(self, machine: Machine, shapes: tuple[int, ...], n_rows: Sequence[int], size: int) -> None:
        n = len(shapes)
        self.machine, self.shapes, self.n_rows, self.size = machine, shapes, list(n_rows), size
        self.apart: list[Lists | None] = [None] * n        # ratings of rows that no other domain has
        self.tied: list[_Tied] = []
        self.rated: list[NDArray[np.bool_]] = []
        self.alone: list[Any] = []                         # codes of those with ratings in this domain and no other
        self.entity: list[NDArray[np.int32]] = []          # rows among the people, or things, of all domains
        self.patterns = np.zeros(0, np.int64)              # of each of these, a bit for each domain with ratings
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
           size: int) -> "_Side":
        n_rows = [s.n_users if by_user else s.n_items for s in sources]
        out = cls(machine, shapes, n_rows, size)
        row = [s.user if by_user else s.item for s in sources]
        other = [s.item if by_user else s.user for s in sources]
        n_others = [s.n_items if by_user else s.n_users for s in sources]
        entity = [s.person if by_user else s.thing for s in sources]
        out.rated = [np.bincount(r, minlength=n) > 0 for r, n in zip(row, n_rows, strict=True)]
        patterns = np.zeros(1 + max(int(e.max(initial=-1)) for e in entity), np.int64)
        for z, (e, rated) in enumerate(zip(entity, out.rated, strict=True)):
            patterns[e[rated]] |= 1 << z
        out.entity, out.patterns = entity, patterns
        several = np.bitwise_count(patterns) > 1 if hasattr(np, "bitwise_count") else _popcount(patterns) > 1
        for z, s in enumerate(sources):
            alone = ~several[entity[z]]
            out.alone.append(machine.put(np.flatnonzero(alone & out.rated[z])))
            kept = alone[row[z]]
            parts = (row[z], other[z], s.level) if kept.all() else (row[z][kept], other[z][kept], s.level[kept])
            out.apart[z] = machine.side(*parts, n_rows[z], n_others[z], s.n_levels)
        for pattern in np.unique(patterns[several]):
            domains = [z for z in range(len(sources)) if pattern >> z & 1]
            members = np.flatnonzero(patterns == pattern)
            codes, lists = [], []
            for z in domains:
                code_of = np.full(len(patterns), -1, np.int32)
                code_of[entity[z]] = np.arange(n_rows[z], dtype=np.int32)
                codes.append(code_of[members])
                place = np.full(n_rows[z], -1, np.int32)
                place[codes[-1]] = np.arange(len(members), dtype=np.int32)
                kept = place[row[z]] >= 0
                lists.append(machine.side(place[row[z][kept]], other[z][kept], sources[z].level[kept], len(members),
                                          n_others[z], sources[z].n_levels))
            n_shape, n_all = (sum(own) for own in ([shapes[z] for z in domains], [shapes[z] + size for z in domains]))
            out.tied.append(_Tied(domains, codes, lists, np.ones(len(members)), np.zeros((n_all, n_all)),
                                  np.zeros((n_shape, n_shape))))
        return out

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

    def step(self, other: "_Side", bases: Sequence[Floats], tilt: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
        """A Newton step of every row, given those of the other side. Gradient and Hessian of `base`, a domain."""
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
            self._solve(tied, parts)
        return of_bases

    def _solve(self, tied: "_Tied", parts: Sequence[tuple[Floats, Floats]]) -> None:
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
            guess = _between(self.shapes, agreement, hyper.habit if fixed_shape else hyper.sameness)
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
        numbers = [int(rated.sum()) for rated in self.rated]
        expected, weight = np.zeros((size, size)), 0.0
        for y in (y for y in range(len(own)) if y != z):
            n = min(t, self.shapes[y])
            mine = np.concatenate([np.arange(n), t + common])
            theirs = np.concatenate([np.arange(n), self.shapes[y] + common])
            block = np.zeros((size, size))
            rest = np.setdiff1d(np.arange(size), mine)
            block[np.ix_(mine, mine)] = own[y][np.ix_(theirs, theirs)]
            block[np.ix_(rest, rest)] = own[z][np.ix_(rest, rest)]
            expected += numbers[y] * block
            weight += numbers[y]
        return expected / weight if weight else own[z]

    def result(self) -> list[Floats]:
        """All rows: those without ratings are where they are expected, given the same person's rows elsewhere."""
        get, out = self.machine.get, []
        rows, means = [get(x) for x in self.rows], [get(x) for x in self.mean]
        for z, rated in enumerate(self.rated):
            made = np.where(rated[:, None], rows[z], means[z])
            pattern = np.where(rated, 0, self.patterns[self.entity[z]])          # where else they have ratings
            for found in np.unique(pattern[pattern > 0]):
                here, gaps = np.flatnonzero(pattern == found), {}
                for y in (y for y in range(len(rows)) if found >> y & 1):
                    code_of = np.full(len(self.patterns), -1)
                    code_of[self.entity[y]] = np.arange(len(self.entity[y]))
                    there = code_of[self.entity[z][here]]
                    gaps[y] = rows[y][there] - means[y][there]
                made[here] += self.population.expected(z, gaps)
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
        n = [max(1, int(self.rated[z].sum())) for z in domains]
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
class _Tied:
    """People with ratings in the same several domains."""

    domains: list[int]
    codes: list[NDArray[np.int32]]      # (n,) in each of these
    lists: list[Lists]                  # their ratings there
    trust: Floats                       # (n,) changed by every step, as are the sums of their covariances:
    cov: Floats                         # (N, N)
    shape_cov: Floats                   # (T, T) times the trust


def _popcount(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return sum((x >> i & 1 for i in range(63)), np.zeros_like(x))
