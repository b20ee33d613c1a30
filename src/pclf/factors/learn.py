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
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pclf.engines import Machine
from pclf.factors.about import COUNTS, About, learn_about
from pclf.factors.attributes import AttributeRegression, attribute_axes
from pclf.factors.choices import Choice
from pclf.factors.fitted import DomainFactors, Factors, about_items, usual_of
from pclf.factors.hyper import Hyper
from pclf.factors.meeting import Items, Met, choices_of, meeting
from pclf.factors.population import Population
from pclf.factors.rows import Floats, normals, tilts
from pclf.factors.side import Side, guessed
from pclf.factors.source import Source, Ties, draw_weights
from pclf.factors.start import Start

FIRST = 2            # sweep from which the population is learned
START = 0.2          # variance of rows to begin with; half of it for all but the offset of an item
JITTER = 0.2         # of an item's factors, so that no two axes begin alike


class Raters(Protocol):
    """Whose ratings are learned: `Here`, or those of `pclf.blocks.factors`, who lie in blocks."""

    sources: Sequence[Source]

    def about(self, ties: Ties, hyper: Hyper, seed: int, start: Start | None) -> About: ...
    def sides(self, shapes: tuple[int, ...], size: int) -> tuple[Side, Side]: ...
    def begin(self, people: Side, things: Side, bases: list[Floats]) -> tuple[int, list[Floats]]: ...
    def swept(self, sweeps: int, people: Side, things: Side, bases: list[Floats]) -> None: ...
    def end(self, people: Side, known: About, items: Sequence[Items]) -> list["Placed"]: ...


class Placed(NamedTuple):
    """The people of a domain once they are placed, and what their tastes say of what they chose. Where they lie in
    blocks, there are none."""

    users: Floats             # (U, D)
    about: Floats             # (U, 1 + Q)
    choosers: Choice
    n_rated: NDArray[np.int64]            # (U,)
    met: Met
    gain: Floats              # (U,)
    picks: Floats             # (U,)
    usual: Floats             # ()


class Here:
    """Everybody, in memory."""

    def __init__(self, sources: Sequence[Source], machine: Machine) -> None:
        self.sources, self.machine = sources, machine

    def about(self, ties: Ties, hyper: Hyper, seed: int, start: Start | None) -> About:
        return learn_about(self.sources, ties, hyper, seed, self.machine, start)

    def sides(self, shapes: tuple[int, ...], size: int) -> tuple[Side, Side]:
        people, things = (Side.of(self.machine, self.sources, by_user, shapes, size) for by_user in (True, False))
        return people, things

    def begin(self, people: Side, things: Side, bases: list[Floats]) -> tuple[int, list[Floats]]:
        """What sweep comes first, and where base rates stand: here, always at the beginning."""
        for z, s in enumerate(self.sources):
            people.start(z, np.zeros((s.n_users, people.shapes[z] + people.size)))
        return 0, bases

    def swept(self, sweeps: int, people: Side, things: Side, bases: list[Floats]) -> None:
        """So many sweeps are done."""

    def end(self, people: Side, known: About, items: Sequence[Items]) -> list[Placed]:
        out = []
        for z, (s, users) in enumerate(zip(self.sources, people.result(), strict=True)):
            lists = choices_of(s, self.machine)
            tastes = users[:, people.shapes[z]:] - people.weights[z][0, people.shapes[z]:]
            met = Met.of(meeting(*lists, users, tastes, items[z], self.machine), s.counts, items[z])
            n_rated = np.bincount(s.user, minlength=s.n_users)
            gain, picks = met.gains(lists[0], users, tastes, items[z], self.machine)
            out.append(Placed(users.astype(np.float32), known.people[z].astype(np.float32), known.choosers[z], n_rated,
                              met, gain, picks, usual_of(picks, n_rated)))
        return out


def fit(raters: Raters, ties: Ties, hyper: Hyper, n_factors: int, seed: int, machine: Machine,
        after_sweep: Callable[[], None] = lambda: None, start: Start | None = None) -> Factors:
    """Learn the rows of all users and items of some domains, together where something ties them.

    machine: what works on items, which are here wherever people are. start: where an older fit of these domains ended,
    whose number of factors is kept; without it, all begins anew.
    """
    sources = raters.sources
    tilt = [tilts(s.n_levels, hyper.shape) for s in sources]
    shapes = tuple(len(t) for t in tilt)
    known = raters.about(ties, hyper, seed, start)
    axes, n_common = attribute_axes([s.attributes for s in sources], hyper.attribute_factors) or (None, 0)
    n_attribute = 0 if axes is None else axes[0].shape[1]
    n_factors = n_factors if start is None else start.size - n_attribute
    size = n_attribute + n_factors
    people, things = raters.sides(shapes, size)
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
        rows[:, shapes[z]:] += JITTER * normals(s.n_items, size, seed, s.keys)                  # no other domain's
        things.start(z, rows)
        people.expect(z, people.guess[z])
    first, bases = raters.begin(people, things, [_base(s) for s in sources])
    if start is not None:
        bases = start.resume(people, things)

    for sweep in range(first, hyper.sweeps if start is None else start.sweeps):
        people.step(things, bases, tilt)
        steps = things.step(people, bases, tilt)
        if sweep >= FIRST or start is not None:
            people.learn(hyper, ties, agreement, fixed_shape=True)            # `base` says how everybody rates
            things.learn(hyper, ties, agreement, fixed_shape=False)
        for z, (gradient, hessian) in enumerate(steps):
            bases[z] = bases[z] + np.clip(np.linalg.solve(hessian + np.eye(len(gradient)), gradient), -0.5, 0.5)
            bases[z] -= bases[z].mean()
        raters.swept(sweep + 1, people, things, bases)
        after_sweep()
    lifts = [_lift(s, tilt[z], hyper) for z, s in enumerate(sources)]
    items = []
    for z, (s, rows) in enumerate(zip(sources, things.result(), strict=True)):
        rows[:, 0] += lifts[z][0] + lifts[z][1] * np.log(np.maximum(s.counts.chosen, 1))
        items.append(Items(rows, _new_items(things, z, known.count[z]), shapes[z], n_attribute))
    placed = raters.end(people, known, items)
    domains = {}
    for z, (s, own, of) in enumerate(zip(sources, placed, items, strict=True)):
        domains[s.name] = DomainFactors(
            own.users, of.rows.astype(np.float32), bases[z], tilt[z], machine.get(things.square[z]),
            people.weights[z], things.weights[z], things.attribute_weights(z), own.about,
            known.chosen[z], own.choosers, known.count[z], own.n_rated, s.counts.items,
            own.met.company.astype(np.float32), own.gain, of.new.astype(np.float32), own.met.appeal, own.picks,
            np.array(s.least), lifts[z], own.usual)
    strange = []
    for z, first_taste in enumerate(t + n_attribute for t in shapes):
        tastes = people.population.own[z][first_taste:, first_taste:]
        strange.append(_strange(agreement[z][n_attribute:], tastes, items[z].rows[:, first_taste:], ties))
    return Factors(domains, people.population, things.population, ties.choices, n_attribute, n_common,
                   np.array(strange), hyper)


def fit_apart(raters: Sequence[Raters], hyper: Hyper, n_factors: Sequence[int], seed: int, machine: Machine,
              after_sweep: Callable[[], None] = lambda: None, start: Start | None = None) -> Factors:
    """Learn every domain as if there were no other. What a visitor brings along is how they use the scale."""
    parts = [fit(own, Ties(False, False, own.sources[0].attributes is not None), hyper, n, seed, machine, after_sweep,
                 start and start.only(own.sources[0].name)) for own, n in zip(raters, n_factors, strict=True)]
    if len(parts) == 1:
        return parts[0]
    shapes = tuple(part.people.shapes[0] for part in parts)
    nothing = [np.zeros(len(part.people.own[0]) - t) for part, t in zip(parts, shapes, strict=True)]

    def joined(side: str, correlation: float) -> Population:
        own = tuple(getattr(part, side).own[0] for part in parts)
        return Population(shapes, own, guessed(shapes, nothing, correlation), getattr(parts[0], side).freedom)

    domains = {name: own for part in parts for name, own in part.domains.items()}
    return Factors(domains, joined("people", hyper.habit), joined("things", hyper.sameness), False, 0, 0,
                   np.ones(len(parts)), hyper)


def _strange(agreement: Floats, tastes: Floats, factors: Floats, ties: Ties) -> float:
    """How much of the tastes for what is chosen does not carry over: 1 less their agreement, axes counting by what they
    do.

    Where people or things tie domains, what carries over is learned; still somebody who never rated here is new.
    """
    weight = np.diag(tastes) * np.square(factors).mean(axis=0)
    if ties.choices or not weight.sum():
        return 1.0
    return max(0.0, float(1 - (weight @ agreement**2) / weight.sum()))      # and not less, by rounding


def _new_items(things: "Side", z: int, count: Floats) -> Floats:
    """Offset and factors of a domain's items by their attributes alone, as if nobody had rated them. (V, 1 + F)"""
    about = about_items(np.zeros(1), count, np.zeros((1, things.weights[z].shape[0] - COUNTS)))
    regression = things.attributes[z]
    means = np.repeat(about @ things.weights[z], things.n_rows[z], axis=0)
    if regression is not None:
        means = means + regression.means()
    return np.column_stack([means[:, 0], means[:, things.shapes[z]:]])


def _base(source: Source) -> Floats:
    counts = source.counts.levels + 1.0
    out: Floats = np.log(counts / counts.sum())
    return out


def _lift(source: Source, tilt: Floats, hyper: Hyper) -> Floats:
    """From odds among drawn absences to odds among items drawn equally often: a constant, and for the log count.
    (2,)"""
    if not source.least:
        return np.zeros(2)
    weight = draw_weights(source.counts.chosen, hyper.draw)
    step = tilt[0, source.least] - tilt[0, 0]
    out: Floats = np.array([np.log(source.n_items / weight.sum()), hyper.draw]) / step
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
    return Population(shapes, tuple(own), guessed(shapes, agreement, correlation), freedom)
