"""Learner: fits the factors of a PCLF."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pclf.data.events import Urn, absences
from pclf.data.ratings import Ratings
from pclf.engines import Machine
from pclf.engines.cpu import one_thread_of_algebra
from pclf.errors import ArgumentError, EngineError, ModelFileError
from pclf.factors import learn as factor_model
from pclf.factors.fitted import Factors
from pclf.factors.hyper import Hyper
from pclf.factors.source import Source, Ties, draw_weights
from pclf.factors.start import Start
from pclf.models.transfer import BRIDGES, single_bridges, ties_of

if TYPE_CHECKING:
    from pclf.models.pclf import PCLF

FEWEST, MOST = 12, 24          # factors of n_factors="auto"
EVENT_FACTORS = 20             # of events: a log supports more, having ten draws an event
MANY = 150_000                 # ratings that support more than the fewest
AFFORDED = 2.56e8              # ratings times squared factors: what a sweep costs
APART, INSIDE = Ties(False, False, False), Ties(False, False, False, inside=True)


class Learner:
    """Fits the factors of a PCLF: which domains have some, how many, and how ratings become sources."""

    def __init__(self, model: "PCLF", ratings: Ratings, machine: Machine, overlap: bool | None = None) -> None:
        """overlap: whether domains have people in common, where these are not here."""
        self.model, self.machine, self.hyper = model, machine, hyper_of(model.hyper)
        self.events = ratings.events
        self.domains = self._domains(ratings)
        found = ties_of(ratings)
        if overlap is not None:
            found = replace(found, people=overlap and len(ratings.domains) > 1)
        if model.bridges != "auto":
            found = Ties(*(getattr(found, kind) and kind in model.bridges for kind in BRIDGES))
        self.ties = found

    def variants(self) -> list[Ties]:
        """What a trial compares: nothing tied, everything that can be, and each bridge by itself. Attributes tell
        something inside a domain too, and what they do there is no gain from the others."""
        if not self.domains:
            return []
        if self.model.bridges != "auto":
            return [self.ties]
        inside = [INSIDE] if self.ties.attributes and len(self.domains) > 1 else []
        return list(dict.fromkeys([APART, *inside, self.ties, *single_bridges(self.ties).values()]))

    def steps(self, ties: Ties) -> int:
        """How often `fit` says that it did a sweep."""
        return self.hyper.sweeps * (1 if ties.any else len(self.domains))

    def fit(self, ratings: Ratings, ties: Ties, seed: int, after_sweep: Callable[[], None],
            start: Start | None = None) -> Factors:
        if start is not None:
            self.domains = start.old.names
        names = [name for name in self.domains if len(ratings[name])]
        sources = [self._source(ratings, name, ties, seed) for name in names]
        raters = [factor_model.Here(own, self.machine) for own in ([sources] if ties.any else [[s] for s in sources])]
        return self.fit_raters(raters, ties, seed, after_sweep, start)

    def fit_raters(self, raters: Sequence[factor_model.Raters], ties: Ties, seed: int, after_sweep: Callable[[], None],
                   start: Start | None = None) -> Factors:
        """raters: of all domains where something ties these, else of each domain."""
        sizes = [max(self.n_factors(s.counts.total) for s in own.sources) for own in raters]
        with self.machine.here(), one_thread_of_algebra():
            if not ties.any:
                return factor_model.fit_apart(raters, self.hyper, sizes, seed, self.machine, after_sweep, start)
            return factor_model.fit(raters[0], ties, self.hyper, sizes[0], seed, self.machine, after_sweep, start)

    def _source(self, ratings: Ratings, name: str, ties: Ties, seed: int) -> Source:
        """A domain as the factor model reads it: by itself where nothing ties it to others. Events bring absences."""
        d, z = ratings[name], list(ratings.domains).index(name)
        user, item, level = d.user, d.item, d.value
        if d.events:
            done = level > 0
            user, item = user[done], item[done]
            weight = draw_weights(np.bincount(item, minlength=d.n_items), self.hyper.draw)
            drawn = (Urn.of(d, seed, weight).absences(user, item, d.users.keys()) if self.model._draws_by_id else
                     absences(user, item, d.n_items, np.random.default_rng(seed), weight / weight.sum()))
            level = np.repeat(np.array([1, 0], np.uint8), [len(user), len(drawn[0])])
            user, item = np.concatenate([user, drawn[0]]), np.concatenate([item, drawn[1]])
        attributes = None
        if (ties.attributes or ties.inside) and ratings.attributes is not None:
            attributes = ratings.attributes.of(name)
        apart = _numbered(ratings)
        return Source(name, user, item, level, d.n_users, d.n_items, len(d.scale), int(d.events),
                      ratings.user_rows[z] if ties.people else apart[0][z],
                      ratings.item_rows[z] if ties.things else apart[1][z], attributes,
                      keys=d.items.keys() if self.model._draws_by_id else None)

    def n_factors(self, n: int) -> int:
        """How many axes so many ratings get."""
        return n_factors_of(self.model, n, self.events)

    def _domains(self, ratings: Ratings) -> list[str]:
        """Domains that get factors: all that ask for them, and of those that leave it to us what the machine can do in
        time and memory."""
        out, left_out, why = [], [], ""
        for name, d in ratings.domains.items():
            weight = self.model._set(ratings, name)[1]
            n = int(d.item_counts.sum())
            if weight == 0 or not n:
                continue
            try:
                if weight is None and ratings.n_ratings > self.machine.most:
                    raise EngineError(f"there are more than {self.machine.most:,} ratings")
                size = self.hyper.shape + self.n_factors(n) + self.hyper.attribute_factors
                self.machine.check_room(len(d), d.n_users + d.n_items, len(d.scale), size)
                out.append(name)
            except EngineError as error:
                if weight is not None:
                    raise
                why = str(error)
                left_out.append(name)
        if left_out:
            warnings.warn(f"no factors of {', '.join(left_out)}: {why.rstrip('.')}. A GPU can do more; "
                          f"factor_weight=1.0 asks for them whatever they take, 0.0 does without.",
                          UserWarning, stacklevel=4)
        return out


def _numbered(ratings: Ratings) -> tuple[list[Any], list[Any]]:
    """Rows of users and of items, domain after domain, as if nothing were shared."""
    out = []
    for sizes in ([d.n_users for d in ratings.domains.values()], [d.n_items for d in ratings.domains.values()]):
        starts = np.cumsum([0, *sizes])
        out.append([np.arange(a, b, dtype=np.int32) for a, b in pairwise(starts)])
    return out[0], out[1]


def n_factors_of(model: "PCLF", n: int, events: bool) -> int:
    """How many axes so many ratings support in the time that there is, if the model does not say. events: whether all
    of them are."""
    if model.n_factors != "auto":
        return int(model.n_factors)
    if events:
        return EVENT_FACTORS
    affordable = 4 * int(np.sqrt(AFFORDED / max(1, n)) / 4)
    return max(FEWEST, min(MOST, affordable)) if n >= MANY else FEWEST


def hyper_of(given: Hyper | Mapping[str, Any] | None) -> Hyper:
    if given is None or isinstance(given, Hyper):
        return given or Hyper()
    try:
        return Hyper.from_description({**asdict(Hyper()), **given})
    except (TypeError, ModelFileError) as error:
        known = ", ".join(asdict(Hyper()))
        raise ArgumentError(f"hyper must have names among: {known}; got {given!r}: {error}.") from None
