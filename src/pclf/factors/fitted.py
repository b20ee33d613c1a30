"""Factors: the factor model once it is learned, and how newcomers are placed in it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings
from pclf.door import at_least_0, check_array, check_keys, check_names
from pclf.errors import ModelFileError
from pclf.factors.choices import Choice
from pclf.factors.hyper import Hyper
from pclf.factors.population import HIGHEST, SMALLEST, Population, correlation
from pclf.factors.rows import Floats, logits, tilts

FEW = 3.0            # ratings with which half of a taste is known
CROWD = 5.0          # choosers with which half of an item's company is known
LARGEST = 1e6        # number in a row of a sound model, and squared the largest that single precision must hold
FAR = 1e9            # the same for places of choices: those of rare items are far out
NARROWEST = 1e-9     # spread of the log counts of items
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
    company: Floats           # (V,) how much better those who chose an item meet it than somebody unknown would
    gain: Floats              # (U,) how much more a user likes what they chose than others who chose it
    new_items: Floats         # (V, 1 + F) offset and factors of items as if they were new: by their attributes alone
    appeal: Floats            # () how much a taste for an item raises the log odds of choosing it
    picks: Floats             # (U,) how much better what a user chose is for them than it would seem if it were new
    least: NDArray[np.int64]  # () level from which a rating is a choice
    lift: Floats              # (2,) what was added to the offset of items: a constant, and for the log of their count
    usual: Floats             # () `picks` of somebody of whom nothing is known

    @property
    def n_shape(self) -> int:
        return len(self.tilt)

    @property
    def item_factors(self) -> Floats:
        """(V, F)"""
        return self.items[:, self.n_shape:]

    @cached_property
    def item_rows(self) -> Floats:
        """Rows of all items as users meet them: with two more factors, `company` and how little is known of it.
        (V, D + 2)"""
        return with_extras(self.items, self.company, unknown(self.n_item))

    def user_rows(self, codes: NDArray[np.int32]) -> Floats:
        """Rows of users as items meet them: with two more factors, how little is known of their taste, and `picks`.

        A rating is asked for because somebody chose something. Who is of unknown taste meets it as its company does;
        what is unknown is as good as what this person chose before. (n, D + 2)
        """
        return with_extras(self.users[codes], unknown(self.n_rated[codes]), self.picks[codes])

    def lifts(self, rows: Floats) -> Floats:
        """How many times as probable as for anybody tastes make the choice of each item. rows: (n, D + 2). (n, V)"""
        size = self.users.shape[1]
        taste = (rows[:, self.n_shape:size] - self.user_weights[0, self.n_shape:]) @ self.item_factors.T
        taste = self.appeal * taste
        out: Floats = np.exp(taste - taste.max(axis=1, keepdims=True, initial=0))       # else it could be infinite
        out /= np.maximum(out @ (self.n_item / max(1, self.n_item.sum())), 1e-12)[:, None]
        return out

    @cached_property
    def better(self) -> Floats:
        """Offset and factors of items less what they would be if they were new. (V, 1 + F)"""
        return np.column_stack([self.items[:, 0], self.item_factors]) - self.new_items

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
    n_common: int            # of them, those that mean the same in all domains, the first
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
        means = {name: abouts[name] @ self.domains[name].user_weights if name in given else
                 self._mean(self.domains[name], abouts[name][None])[0] for name in self.domains}
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
        gaps = {z: self._gap(self.domains[name], placed[name][None], abouts[name][None],
                             self._gain(name, placed[name], m))
                for z, name, m in zip(domains, names, met, strict=True)}
        out = {}
        for name, mean in means.items():
            z, own = self.names.index(name), self.domains[name]
            if name in placed:
                codes, row = given[name][0], placed[name][None]
                picks = own.picks_of(row, own.better[codes].sum(axis=0)[None], len(codes))
                out[name] = with_extras(row, unknown(len(codes)), picks)[0]
            else:
                out[name] = with_extras(mean[None] + self.people.expected(z, gaps), self.strange[z], own.usual)[0]
        return out

    def place_item(self, domain: str, users: NDArray[np.int32], levels: NDArray[np.uint8],
                   attributes: Floats | None = None) -> Floats:
        """The row of a new item from its attributes and a few ratings; the users' rows count as certain. (D,)"""
        own, z = self.domains[domain], self.names.index(domain)
        chose = users[levels >= own.least]
        about: Floats = about_items(np.array([len(chose)]), own.count, own.choosers.of_one(chose)[None])
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
        out: Floats = with_extras(row, company, unknown(len(users)))[0]
        return out

    def _gap(self, there: DomainFactors, rows: Floats, about: Floats, gain: Floats) -> Floats:
        """How far rows are from where people are expected, for what it says about their rows elsewhere. (n, D)

        As far as tastes for what is chosen do not carry over, what they did for a person at home goes with the offset:
        who likes what they choose more than others do will choose well here too.
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
                "n_common": self.n_common,
                "freedom": [self.people.freedom, self.things.freedom], "hyper": asdict(self.hyper)}

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], described: Any, data: Ratings) -> "Factors":
        """What `to_arrays` and `described` gave, for these ratings. It is from a file, so it is checked."""
        check_keys("factors", described, {"domains": [data.domains.__contains__], "same_choices": bool,
                                          "n_attribute": int, "n_common": int, "freedom": [at_least_0], "hyper": dict})
        names, hyper = described["domains"], Hyper.from_description(described["hyper"])
        if not names or len(set(names)) < len(names) or len(described["freedom"]) != 2:
            raise ModelFileError("factors must have domains, each once, and two degrees of freedom")
        file = _Arrays(prefix, arrays)
        domains = {name: _domain(file, z, data, name, hyper.shape) for z, name in enumerate(names)}
        sizes = {own.item_factors.shape[1] for own in domains.values()}
        tied = described["same_choices"] or described["n_attribute"]      # else fitted apart, each with its own number
        if (tied and len(sizes) > 1) or not 0 <= described["n_common"] <= described["n_attribute"] <= min(sizes):
            raise ModelFileError(f"all domains must have as many factors, and {described['n_attribute']} of them along "
                                 f"attributes; got {', '.join(map(str, sorted(sizes)))}")
        if described["same_choices"] and len({len(own.chosen.variance) for own in domains.values()}) > 1:
            raise ModelFileError("choices that mean the same in all domains must have as many places in each")
        shapes = tuple(own.n_shape for own in domains.values())
        people, things = (_population(file, side, shapes, [own.users.shape[1] for own in domains.values()], freedom)
                          for side, freedom in zip(("people", "things"), described["freedom"], strict=True))
        strange = file.floats("strange", {"domains": len(names)}, low=0, high=1)
        file.check_all_read()
        return cls(domains, people, things, described["same_choices"], described["n_attribute"],
                   described["n_common"], strange, hyper)


class _Arrays:
    """Arrays of a file under one name, each of which is looked at when it is read."""

    def __init__(self, prefix: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.prefix, self.arrays = prefix, arrays
        self.read: list[str] = []

    def floats(self, name: str, shape: Mapping[str, int | None], low: float = -LARGEST,
               high: float = LARGEST, dtype: str = "float") -> Floats:
        return check_array(f"{self.prefix}.{name}", self._one(name), dtype=dtype, shape=shape, low=low, high=high)

    def whole(self, name: str, shape: Mapping[str, int | None], high: int = 1 << 53) -> NDArray[np.int64]:
        return check_array(f"{self.prefix}.{name}", self._one(name), dtype="int64", shape=shape, low=0, high=high)

    def has(self, name: str) -> bool:
        return f"{self.prefix}.{name}" in self.arrays

    def check_all_read(self) -> None:
        there = [name for name in self.arrays if name.startswith(f"{self.prefix}.")]
        check_names(self.prefix, there, self.read)

    def _one(self, name: str) -> NDArray[Any]:
        self.read.append(f"{self.prefix}.{name}")
        check_names(self.prefix, self.arrays, self.read[-1:], self.arrays)
        return self.arrays[self.read[-1]]


def _domain(file: _Arrays, z: int, data: Ratings, name: str, most: int) -> DomainFactors:
    from pclf.engines.cpu_rows import squares

    d = data[name]
    n_users, n_items, n_levels = d.n_users, d.n_items, len(d.scale)
    users = file.floats(f"{z}.users", {"users": n_users, "D": None}, dtype="float32")      # as kernels take them
    tilt = tilts(n_levels, most)
    size, shape = users.shape[1], len(tilt)
    if not np.allclose(file.floats(f"{z}.tilt", {"tilts": shape, "levels": n_levels}), tilt, atol=1e-6):
        raise ModelFileError(f"{file.prefix}.{z}.tilt must be that of {n_levels} levels")
    if size < shape:
        raise ModelFileError(f"{file.prefix}.{z}.users must have at least the {shape} numbers of a shape; got {size}")
    chosen, choosers = (_choice(file, f"{z}.{kind}", what, n)
                        for kind, what, n in (("chosen", "items", n_items), ("choosers", "users", n_users)))
    n_rated, picks = file.whole(f"{z}.n_rated", {"users": n_users}), file.floats(f"{z}.picks", {"users": n_users})
    usual = file.floats(f"{z}.usual", {"number": 1}).reshape(()) if file.has(f"{z}.usual") else usual_of(picks, n_rated)
    if len(chosen.variance) != len(choosers.variance):
        raise ModelFileError(f"{file.prefix}.{z} must have as many places of items as of users")
    n_factors, n_places, width = size - shape, len(chosen.variance), squares(np.zeros((0, size - shape))).shape[1]
    weights = None
    if file.has(f"{z}.attribute_weights"):
        n_features = 0 if data.attributes is None else len(data.attributes.features)
        weights = file.floats(f"{z}.attribute_weights", {"attributes": n_features, "D": size})
    square = check_squares(f"{file.prefix}.{z}.item_square", n_factors, file.floats(
        f"{z}.item_square", {"items": n_items, "squares": width}, -LARGEST**2, LARGEST**2, "float32"))
    count = file.floats(f"{z}.count", {"numbers": 4})
    if count[1] < NARROWEST:
        raise ModelFileError(f"{file.prefix}.{z}.count must have a spread of at least {NARROWEST}; got {count[1]}")
    return DomainFactors(
        users, file.floats(f"{z}.items", {"items": n_items, "D": size}, dtype="float32"),
        file.floats(f"{z}.base", {"levels": n_levels}), tilt, square,
        file.floats(f"{z}.user_weights", {"places and one": 1 + n_places, "D": size}),
        file.floats(f"{z}.item_weights", {"places and three": 3 + n_places, "D": size}), weights,
        file.floats(f"{z}.user_about", {"users": n_users, "places and one": 1 + n_places}, -FAR, FAR), chosen, choosers,
        count, n_rated, file.whole(f"{z}.n_item", {"items": n_items}),
        file.floats(f"{z}.company", {"items": n_items}), file.floats(f"{z}.gain", {"users": n_users}),
        file.floats(f"{z}.new_items", {"items": n_items, "factors and one": 1 + n_factors}),
        file.floats(f"{z}.appeal", {"number": 1}, 0, LARGEST).reshape(()),
        picks, file.whole(f"{z}.least", {"level": 1}, n_levels - 1).reshape(()),
        file.floats(f"{z}.lift", {"numbers": 2}), usual)


def check_squares(name: str, n: int, square: Floats) -> Floats:
    """Lower triangles of E[f f'] with zeros behind them: no product may be larger than those of squares allow."""
    place = 0
    diagonal = square[:, [i * (i + 3) // 2 for i in range(n)]]
    if diagonal.min(initial=0) < 0 or square[:, n * (n + 1) // 2:].any():
        raise ModelFileError(f"{name} must have squares, which are not negative, and zeros behind them")
    roots = np.sqrt(diagonal) * (1 + 1e-3) + 1e-4
    for i in range(n):
        if (np.abs(square[:, place:place + i + 1]) > roots[:, i:i + 1] * roots[:, :i + 1]).any():
            raise ModelFileError(f"{name} must have products that go with its squares")
        place += i + 1
    return square


def _choice(file: _Arrays, name: str, what: str, n: int) -> Choice:
    places = file.floats(f"{name}.places", {what: n, "places": None}, -FAR, FAR)
    size = places.shape[1]
    variance, turn = file.floats(f"{name}.variance", {"places": size}, 0, FAR**2), None
    if file.has(f"{name}.turn"):
        turn = file.floats(f"{name}.turn", {"places": size, "turned": size}, -1 - 1e-3, 1 + 1e-3)
    return Choice(places, variance, turn)


def _population(file: _Arrays, side: str, shapes: tuple[int, ...], sizes: Sequence[int],
                freedom: float) -> Population:
    """Covariances with which can be computed: symmetric and positive, in each domain and over all of them."""
    own = tuple(file.floats(f"{side}.own.{z}", {"D": n, "again D": n}) for z, n in enumerate(sizes))
    between = {(a, b): file.floats(f"{side}.between.{a}.{b}", {"D": sizes[a], "other D": sizes[b]}, -1, 1)
               for a, b in combinations(range(len(sizes)), 2)}
    out = Population(shapes, own, between, freedom)
    for z, block in enumerate(own):
        if np.abs(block - block.T).max() > 1e-6 * np.abs(block).max() or np.linalg.eigvalsh(block)[0] < SMALLEST / 2:
            raise ModelFileError(f"{file.prefix}.{side}.own.{z} must be a covariance: symmetric and positive")
    if np.linalg.eigvalsh(correlation(out))[0] < (1 - HIGHEST) / 2:
        raise ModelFileError(f"{file.prefix}.{side}.between must be correlations that do not contradict each other")
    return out


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

        return cls(items, levels, *as_met(domain.items[items], domain.tilt), domain.item_square[items], domain.base,
                   domain.tilt)

    @classmethod
    def of_users(cls, domain: DomainFactors, users: NDArray[np.int32], levels: NDArray[np.uint8]) -> "Met":
        from pclf.engines.cpu_rows import as_met, squares

        rows = domain.users[users]
        return cls(users, levels, *as_met(rows, domain.tilt), squares(rows[:, domain.n_shape:]), domain.base,
                   domain.tilt)

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


def usual_of(picks: Floats, n_rated: NDArray[np.int64]) -> Floats:
    """The mean `picks` of a rating. ()"""
    return np.array(np.average(picks, weights=n_rated + 1e-9) if len(picks) else 0.0)


def with_extras(rows: Floats, first: Any, second: Any) -> Floats:
    """Rows with the two factors behind them that `user_rows` and `item_rows` have. (n, D + 2)"""
    more = [np.broadcast_to(extra, len(rows)) for extra in (first, second)]
    return np.column_stack([rows, *more]).astype(np.float32)


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
    """A Newton step of the rows of some people in several domains, laid end to end, in place. Their covariances.
    (n, N, N)

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
    rating counts the same. An item without ratings may be new, so its count says nothing: it is taken for one like
    those that people rate.
    """
    log_count = np.where(n > 0, (np.log(np.maximum(n, 1)) - count[0]) / count[1], count[2])
    square = np.where(n > 0, log_count**2, count[3])
    direction = stands / np.sqrt((stands**2).sum(axis=1, keepdims=True) + NOWHERE)
    return np.column_stack([np.ones_like(log_count), log_count, square, direction])
