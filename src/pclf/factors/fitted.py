"""Factors: the factor model once it is learned, and how newcomers are placed in it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.factors.choices import Choice
from pclf.factors.hyper import Hyper
from pclf.factors.population import Population
from pclf.factors.rows import Floats, logits

FEW = 3.0            # ratings with which half of a taste is known
CROWD = 5.0          # choosers with which half of an item's company is known
NOWHERE = 1e-8       # squared distance from the middle that is rounding, not a direction
Rated = Mapping[str, tuple[NDArray[np.int32], NDArray[np.uint8]]]    # by domain: items and levels


@dataclass(frozen=True)
class DomainFactors:
    """The rows of one domain. A row without ratings is where it is expected."""

    users: Floats             # (U, D)
    items: Floats             # (V, D)
    base: Floats              # (R,)
    tilt: Floats              # (T, R) see `rows.tilts`
    item_square: Floats       # (V, 16 P) lower triangles of E[f f'], zeros behind them
    user_weights: Floats      # (1 + Q, D) regression of users on 1 and on their choice
    item_weights: Floats      # (3 + Q, D) of items on 1, log count, its square, the direction of who chose them
    attribute_weights: Floats | None      # (P, D) of items on their attributes
    user_about: Floats        # (U, 1 + Q) what users are regressed on
    chosen: Choice            # items as people choose them
    choosers: Choice          # users as items are chosen by them
    count: Floats             # (4,) see `about_items`; over all domains that choices tie together
    n_rated: NDArray[np.int64]            # (U,) ratings of each user
    n_item: NDArray[np.int64]             # (V,) ratings of each item
    company: Floats           # (V,) how much better those who chose an item meet it than somebody of unknown taste would
    gain: Floats              # (U,) how much more a user likes what they chose than others who chose it
    new_items: Floats         # (V, 1 + F) offset and factors of items as if they were new: by their attributes alone
    appeal: Floats            # () how much a taste for an item raises the log odds of choosing it
    picks: Floats             # (U,) how much better what a user chose is for them than it would seem if it were new
    least: NDArray[np.int64]  # () level from which a rating is a choice
    lift: Floats              # (2,) what was added to the offset of items: a constant, and for the log of their count

    @property
    def n_shape(self) -> int:
        return len(self.tilt)

    @property
    def item_factors(self) -> Floats:
        """(V, F)"""
        return self.items[:, self.n_shape:]

    @cached_property
    def item_rows(self) -> Floats:
        """Rows of all items as users meet them: with two more factors, `company` and how little is known of it. (V, D + 2)"""
        return with_extras(self.items, self.company, unknown(self.n_item))

    def user_rows(self, codes: NDArray[np.int32]) -> Floats:
        """Rows of users as items meet them: with two more factors, how little is known of their taste, and `picks`.

        A rating is asked for because somebody chose something. Who is of unknown taste meets it as its company does; what is
        unknown is as good as what this person chose before. (n, D + 2)
        """
        return with_extras(self.users[codes], unknown(self.n_rated[codes]), self.picks[codes])

    def lifts(self, rows: Floats) -> Floats:
        """How many times as probable as for anybody tastes make the choice of each item. rows: (n, D + 2). (n, V)"""
        size = self.users.shape[1]
        taste = (rows[:, self.n_shape:size] - self.user_weights[0, self.n_shape:]) @ self.item_factors.T
        out: Floats = np.exp(self.appeal * taste)
        share = self.n_item / max(1, self.n_item.sum())
        return out / np.maximum(out @ share, 1e-12)[:, None]

    @cached_property
    def better(self) -> Floats:
        """Offset and factors of items less what they would be if they were new. (V, 1 + F)"""
        return np.column_stack([self.items[:, 0], self.item_factors]) - self.new_items

    @cached_property
    def usual(self) -> float:
        """`picks` of somebody of whom nothing is known."""
        return float(np.average(self.picks, weights=self.n_rated + 1e-9)) if len(self.picks) else 0.0

    def picks_of(self, users: Floats, better: Floats, n: Any) -> Floats:
        """How much better n chosen items are for users. better: sums over these, (n, 1 + F)."""
        total = better[:, 0] + np.einsum("uf,uf->u", users[:, self.n_shape:], better[:, 1:])
        out: Floats = (total + FEW * self.usual) / (n + FEW)
        return out

    def logits(self, users: Floats, items: Floats) -> Floats:
        """log P(r | u, v) up to a constant, for pairs of rows. (n, R)"""
        return logits(self.base, self.tilt, users, items)


@dataclass(frozen=True)
class Factors:
    """Domains that were learned together."""

    domains: dict[str, DomainFactors]
    people: Population
    things: Population
    same_choices: bool       # whether places of choices mean the same in all domains
    n_attribute: int         # factors that lie along attributes; the others lie along choices
    strange: Floats          # (Z,) how much of the tastes for what is chosen does not carry over to a domain, 0 to 1
    hyper: Hyper

    @cached_property
    def names(self) -> list[str]:
        return list(self.domains)

    def visitors(self, domain: str, home: Mapping[str, NDArray[np.int32]]) -> Floats:
        """The rows in a domain of people who have no ratings there. (n, D + 2)

        home: their codes in each of the domains where they have some.
        """
        target, z = self.domains[domain], self.names.index(domain)
        gaps: dict[int, Floats] = {}
        about: Floats = np.ones((0, 1))
        for name, codes in home.items():
            there = self.domains[name]
            about = there.user_about[codes]
            gaps[self.names.index(name)] = self._gap(there, there.users[codes], about, there.gain[codes])
        rows = self._mean(target, about) + self.people.expected(z, gaps)
        return with_extras(rows, self.strange[z], target.usual)

    def place(self, rated: Rated) -> dict[str, Floats]:
        """The rows of a new user in all domains, from a few ratings in some of them. (D + 2,) each"""
        given = {name: r for name, r in rated.items() if name in self.domains and len(r[0])}
        abouts = {name: self._about_guest(name, given) for name in self.domains}
        means = {name: self._mean(self.domains[name], abouts[name][None])[0] for name in self.domains}
        if not given:
            return {name: with_extras(mean[None], 1.0, self.domains[name].usual)[0] for name, mean in means.items()}
        domains = sorted(self.names.index(name) for name in given)
        names = [self.names[z] for z in domains]
        row = np.concatenate([means[name] for name in names])[None].astype(np.float64)
        centre, trust = row.copy(), np.ones(1)
        ends = np.cumsum([0, *(len(means[name]) for name in names)])
        met = [Met.of(self.domains[name], *given[name]) for name in names]
        for _ in range(self.hyper.newton):
            parts = [m.collect(row[:, a:b]) for m, a, b in zip(met, ends, ends[1:], strict=False)]
            joint_steps(self.people, domains, row, centre, trust, np.concatenate([g for g, _ in parts], axis=1),
                        [h for _, h in parts])
        placed = {name: row[0, a:b] for name, a, b in zip(names, ends, ends[1:], strict=False)}
        gaps = {z: self._gap(self.domains[name], placed[name][None], abouts[name][None], self._gain(name, placed[name], m))
                for z, name, m in zip(domains, names, met, strict=True)}
        out = {}
        for name, mean in means.items():
            z, own = self.names.index(name), self.domains[name]
            if name in placed:
                picks = own.picks_of(placed[name][None], own.better[given[name][0]].sum(axis=0)[None], len(given[name][0]))
                out[name] = with_extras(placed[name][None], unknown(len(given[name][0])), picks)[0]
            else:
                out[name] = with_extras(mean[None] + self.people.expected(z, gaps), self.strange[z], own.usual)[0]
        return out

    def place_item(self, domain: str, users: NDArray[np.int32], levels: NDArray[np.uint8],
                   attributes: Floats | None = None) -> Floats:
        """The row of a new item from its attributes and a few ratings; the users' rows count as certain. (D,)"""
        own, z = self.domains[domain], self.names.index(domain)
        chose = users[levels >= own.least]
        about = about_items(np.array([len(chose)]), own.count, own.choosers.of_one(chose)[None])
        mean = about @ own.item_weights
        if attributes is not None and own.attribute_weights is not None:
            mean = mean + attributes @ own.attribute_weights
        lift = own.lift[0] + own.lift[1] * np.log(max(1, len(chose)))
        row, trust = mean.astype(np.float64), np.ones(1)
        if len(users):
            met = Met.of_users(own, users, levels)
            for _ in range(self.hyper.newton):
                gradient, hessian = met.collect(row)
                joint_steps(self.things, [z], row, mean, trust, gradient, [hessian])
        row[:, 0] += lift
        rows = own.users[users, own.n_shape:] - own.user_weights[0, own.n_shape:]
        company = company_of(rows.sum(axis=0)[None], np.array([len(users)]), row[:, own.n_shape:], self.n_attribute)
        if not len(users):
            company = np.average(own.company, weights=own.n_item + 1e-9, keepdims=True)
        return with_extras(row, company, unknown(len(users)))[0]

    def _gap(self, there: DomainFactors, rows: Floats, about: Floats, gain: Floats) -> Floats:
        """How far rows are from where people are expected, for what it says about their rows elsewhere. (n, D)

        As far as tastes for what is chosen do not carry over, what they did for a person at home goes with the offset: who
        likes what they choose more than others do will choose well here too.
        """
        out: Floats = rows - about @ there.user_weights
        if not self.same_choices:
            out[:, 0] += self.strange.max() * gain
            out[:, there.n_shape:] = rows[:, there.n_shape:] - there.user_weights[0, there.n_shape:]
        return out

    def _gain(self, name: str, row: Floats, met: "Met") -> Floats:
        """What `DomainFactors.gain` is for users, for a guest. (1,)"""
        own, first = self.domains[name], self.domains[name].n_shape + self.n_attribute
        more = (own.item_factors[met.others, self.n_attribute:] @ (row[first:] - own.user_weights[0, first:])
                - own.company[met.others])
        return np.array([more.sum() / (len(more) + FEW)])

    def _about_guest(self, domain: str, given: Rated) -> Floats:
        """1, and where a new user stands by what they chose. (1 + Q,)"""
        target = self.domains[domain]
        names = given if self.same_choices else [name for name in given if name == domain]
        total, n = np.zeros(target.chosen.places.shape[1]), 0
        for name in names:
            items, levels = given[name]
            own = self.domains[name]
            chosen = items[levels >= own.least]
            total += own.chosen.places[chosen].sum(axis=0)
            n += len(chosen)
        return np.concatenate([[1.0], target.chosen.shrunk(total, float(n))])

    def _mean(self, target: DomainFactors, about: Floats) -> Floats:
        """Where rows are expected by what people chose; of another domain's axes, nothing is known here."""
        if not self.same_choices and len(self.domains) > 1:
            return np.repeat(target.user_weights[:1], len(about), axis=0)
        out: Floats = about @ target.user_weights
        return out


    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        out: dict[str, NDArray[Any]] = {f"{prefix}.strange": self.strange}
        for z, domain in enumerate(self.domains.values()):
            for name, value in vars(domain).items():
                parts = ({f"{name}.{part}": array for part, array in vars(value).items()}
                         if isinstance(value, Choice) else {name: value})
                out |= {f"{prefix}.{z}.{key}": np.asarray(part) for key, part in parts.items()
                        if part is not None and name in DomainFactors.__dataclass_fields__}
        for side in ("people", "things"):
            population: Population = getattr(self, side)
            out |= {f"{prefix}.{side}.own.{z}": block for z, block in enumerate(population.own)}
            out |= {f"{prefix}.{side}.between.{a}.{b}": k for (a, b), k in population.between.items()}
        return out

    def described(self) -> dict[str, Any]:
        """What `to_arrays` leaves out, for JSON."""
        return {"domains": self.names, "same_choices": self.same_choices, "n_attribute": self.n_attribute,
                "freedom": [self.people.freedom, self.things.freedom], "hyper": asdict(self.hyper)}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], described: Mapping[str, Any]) -> "Factors":
        def domain(z: int) -> DomainFactors:
            own = {key.removeprefix(f"{prefix}.{z}."): array for key, array in arrays.items()
                   if key.startswith(f"{prefix}.{z}.")}
            choices = {name: Choice(own.pop(f"{name}.places"), own.pop(f"{name}.variance"), own.pop(f"{name}.turn", None))
                       for name in ("chosen", "choosers")}
            return DomainFactors(**{"attribute_weights": None, **own, **choices})    # type: ignore[arg-type]

        def population(side: str, freedom: float) -> Population:
            n = len(described["domains"])
            between = {(a, b): arrays[f"{prefix}.{side}.between.{a}.{b}"] for a in range(n) for b in range(a + 1, n)}
            return Population(tuple(own.n_shape for own in domains.values()),
                              tuple(arrays[f"{prefix}.{side}.own.{z}"] for z in range(n)), between, freedom)

        domains = {name: domain(z) for z, name in enumerate(described["domains"])}
        return cls(domains, population("people", described["freedom"][0]), population("things", described["freedom"][1]),
                   described["same_choices"], described["n_attribute"], arrays[f"{prefix}.strange"],
                   Hyper(**described["hyper"]))


@dataclass(frozen=True)
class Met:
    """The rows that a newcomer has met, and how."""

    others: NDArray[np.int32]
    levels: NDArray[np.uint8]
    logits: Floats
    factors: Floats
    squares: Floats
    base: Floats
    tilt: Floats

    @classmethod
    def of(cls, domain: DomainFactors, items: NDArray[np.int32], levels: NDArray[np.uint8]) -> "Met":
        from pclf.engines.cpu_rows import as_met

        return cls(items, levels, *as_met(domain.items[items], domain.tilt), domain.item_square[items], domain.base, domain.tilt)

    @classmethod
    def of_users(cls, domain: DomainFactors, users: NDArray[np.int32], levels: NDArray[np.uint8]) -> "Met":
        from pclf.engines.cpu_rows import as_met, squares

        rows = domain.users[users]
        return cls(users, levels, *as_met(rows, domain.tilt), squares(rows[:, domain.n_shape:]), domain.base, domain.tilt)

    def collect(self, row: Floats) -> tuple[Floats, Floats]:
        """Gradient and Hessian of the newcomer's row. (1, D), (1, D, D)"""
        from pclf.engines.cpu_rows import collect, vectors

        n, size = len(self.levels), row.shape[1]
        gradient, hessian = np.empty((1, size)), np.empty((1, size, size))
        collect(np.array([0, n]), np.arange(n, dtype=np.int32), self.levels, np.ascontiguousarray(row), self.logits,
                self.factors, self.squares, self.base, self.tilt, 0, 1, gradient, hessian, np.zeros(len(self.base)),
                np.zeros((len(self.base),) * 2), vectors(size - len(self.tilt), size)[0])
        return gradient, hessian


def unknown(n_rated: NDArray[np.int64] | int) -> Floats:
    """How much of somebody's taste is unknown with so many ratings: 1 with none."""
    return np.asarray(FEW / (FEW + n_rated))


def with_extras(rows: Floats, first: Any, second: Any) -> Floats:
    """Rows with the two factors behind them that `user_rows` and `item_rows` have. (n, D + 2)"""
    return np.column_stack([rows, np.broadcast_to(first, len(rows)), np.broadcast_to(second, len(rows))]).astype(np.float32)


def company_of(sums: Floats, n: NDArray[np.int64], factors: Floats, n_attribute: int) -> Floats:
    """<mean factors of those who chose an item, its own>, along choices. (V,)

    Who chose something likes it better than somebody drawn at random would. Of people whose taste is not known, this is
    what can be said when they rate it: they are like the others who did.

    sums: of the choosers' factors less the mean of all users', (V, F). n: choosers.
    """
    mean = sums[:, n_attribute:] / (n[:, None] + CROWD)
    out: Floats = np.einsum("vf,vf->v", mean, factors[:, n_attribute:])
    return out


def joint_steps(population: Population, domains: Sequence[int], rows: Floats, means: Floats, trust: Floats,
                gradient: Floats, hessians: Sequence[Floats]) -> Floats:
    """A Newton step of the rows of some people in several domains, laid end to end, in place. Their covariances. (n, N, N)

    rows, means, gradient: (n, N). hessians: (n, D, D) for each domain. trust: (n,), changed too.
    """
    shapes, rest = population.precisions(domains)
    precision = rest + trust[:, None, None] * shapes                                 # (n, N, N)
    gap = rows - means
    gradient = gradient - np.einsum("nij,nj->ni", precision, gap)
    start = 0
    for hessian in hessians:
        size = hessian.shape[1]
        precision[:, start:start + size, start:start + size] += hessian
        start += size
    cov: Floats = np.linalg.inv(precision)
    rows += np.clip(np.einsum("nij,nj->ni", cov, gradient), -1, 1)
    if population.freedom > 0:
        gap = rows - means
        distance = np.einsum("ij,ni,nj->n", shapes, gap, gap) + np.einsum("ij,nij->n", shapes, cov)
        n = sum(population.shapes[z] for z in domains)
        trust[:] = (population.freedom + n) / (population.freedom + distance)
    return cov


def about_items(n: NDArray[Any], count: Floats, stands: Floats) -> Floats:
    """What is known about items besides their ratings: 1, the log of how many there are, its square, and the direction,
    of length 1, in which they stand among those who chose them. (V, 3 + Q)

    count: mean and spread of the log counts of all items, and the mean standardised log count and its square where each
    rating counts the same. An item without ratings may be new, so its count says nothing: it is taken for one like those
    that people rate.
    """
    log_count = np.where(n > 0, (np.log(np.maximum(n, 1)) - count[0]) / count[1], count[2])
    square = np.where(n > 0, log_count**2, count[3])
    direction = stands / np.sqrt((stands**2).sum(axis=1, keepdims=True) + NOWHERE)
    return np.column_stack([np.ones_like(log_count), log_count, square, direction])
