"""Trial: what held-out ratings say about bridges, weights and neighbours."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pclf import neighbours as near
from pclf.clusters.fitted import Clusters
from pclf.data.domain import Domain
from pclf.data.ratings import Ratings
from pclf.factors.fitted import DomainFactors, Factors
from pclf.factors.rows import Floats, softmax
from pclf.factors.source import Ties
from pclf.models import weights
from pclf.models.learner import APART, INSIDE
from pclf.models.transfer import Bridge, bridge_text, single_bridges

if TYPE_CHECKING:
    from pclf.models.pclf import PCLF

LESS = 0.003         # of a score: harm that a bridge may do, for what it does for visitors
ENOUGH = 0.5         # share of the ratings that a trial must see to speak for clusters beside factors


class Trial:
    """Parts that were learned from a part of the ratings, and what held-out ratings say about them."""

    def __init__(self, model: "PCLF", known: Ratings, part: Ratings, held_out: Ratings, clusters: Clusters,
                 fits: Mapping[Ties, Factors], near: bool = True) -> None:
        """near: whether neighbours may be used."""
        self.near = near and model.neighbours
        self.model, self.known, self.part, self.held_out = model, known, part, held_out
        self.clusters, self.fits = clusters, fits
        self._chosen: dict[str, Ties] = {}
        self._moves: dict[str, Floats] = {}          # of held-out ratings, by neighbours
        self._scores: dict[tuple[str, Ties], Floats] = {}

    def ties(self, name: str) -> Ties:
        """What a domain is tied by: all bridges, or the most of them that do no harm to held-out ratings.

        Bridges do most for people who are new in a domain, and of these the held-out ratings of known people cannot
        tell. So a bridge is left out only where it surely does harm, or surely much less good than others. Links that
        are wrong harm every domain, and a small one has too few ratings to be sure of it: ties that surely harm another
        domain are used here only where they seem to help. Attributes that do not help known people of all domains
        together say nothing, which would mislead those who are new.
        """
        if name not in self._chosen:
            best = max(self.fits, key=lambda ties: float(np.sum(self._met(name, ties))))

            def trusted(ties: Ties) -> bool:
                if APART not in self.fits:
                    return ties == best
                if self._surely(name, APART, ties) or self._surely(name, best, ties, by=LESS):
                    return False
                if (ties.attributes or ties.inside) and not self._helps(ties):
                    return False
                others = (other for other in self.fits[ties].domains if other != name)
                return self._gain(name, ties) > 0 or not any(self._surely(other, APART, ties) for other in others)

            self._chosen[name] = max(filter(trusted, self.fits), key=lambda ties: (ties.number, ties == best),
                                     default=APART)
        return self._chosen[name]

    def _surely(self, name: str, better: Ties, worse: Ties, by: float = 0.0) -> bool:
        """Whether held-out ratings of a domain are better met with these ties than with those, beyond chance, and by
        that share of their score."""
        if better == worse:
            return False
        scores = self._met(name, better)
        gain = scores - self._met(name, worse)
        return len(gain) > 1 and bool(gain.mean() > max(weights.SURE * gain.std(ddof=1) / np.sqrt(len(gain)),
                                                        by * np.abs(scores).mean()))

    def _helps(self, ties: Ties) -> bool:
        """Whether held-out ratings of all domains together are better met with these ties than with none."""
        return sum(self._gain(name, ties) for name in self.fits[ties].domains) > 0

    def _gain(self, name: str, ties: Ties) -> float:
        """By how much held-out ratings of a domain are better met with these ties than with none, over its people."""
        return float(np.sum(self._met(name, ties) - self._met(name, APART)))

    def weights(self, name: str) -> tuple[float, float, float]:
        """The weights of common clusters and of factors, and what the common clusters gain."""
        common, own = self.model._set(self.known, name)
        commons = weights.COMMON if common is None else (common,)
        owns = weights.FACTORS if own is None else (own,)
        domain, clusters = self.held_out[name], self.clusters
        if not len(domain):
            return commons[0], owns[0], 0.0
        seen = len(self.part[name]) / max(1, self.known[name].item_counts.sum())
        if seen < ENOUGH and own is None and self.fits:           # factors gain more from more ratings than clusters do
            owns = (1.0,)
        users, items = clusters.known_users(name, domain.user), clusters.known_items(name, domain.item)
        views = [i for i, _ in clusters.views(name)]
        specific = clusters.distribution(name, users, items, {views[-1]: 1.0})
        common_part = clusters.distribution(name, users, items, {views[0]: 1.0})
        factors = self._distribution(name, self.ties(name), moved=name in self.neighbours) if self.fits else None
        return weights.learn(domain.user, domain.value, domain.scale.values, common_part, specific, factors, commons,
                             owns)

    def bridges(self, name: str) -> dict[str, Bridge]:
        """What each bridge does to the error of a domain, by itself."""
        if APART not in self.fits or not len(self.held_out[name]):
            return {}
        out = {}
        for kind, ties in single_bridges(max(self.fits, key=lambda ties: ties.number)).items():
            alone = INSIDE if kind == "attributes" and INSIDE in self.fits else APART
            percent, visitors = (self._change(name, alone, ties, who) for who in (~self._new(name), self._new(name)))
            used = bool(getattr(self.ties(name), kind))
            text = bridge_text(kind, name, self.known, percent or 0.0, visitors, used)
            out[kind] = Bridge(kind, percent or 0.0, used, text, visitors)
        return out

    def _new(self, name: str) -> NDArray[np.bool_]:
        """Which held-out ratings are those of visitors. (n,)"""
        here = np.bincount(self.part[name].user, minlength=self.part[name].n_users) > 0
        return ~here[self.held_out[name].user]

    def _change(self, name: str, alone: Ties, ties: Ties, who: NDArray[np.bool_]) -> float | None:
        """The change of the error by a bridge in percent, None where there is nobody to tell."""
        if not who.any():
            return None
        errors = [self._errors(name, fit) for fit in (alone, ties)]
        user = self.held_out[name].user[who]
        before, after = (float(weights.by_user(user, error[who]).mean()) for error in errors)
        return 100 * (after / max(before, 1e-12) - 1)

    def _distribution(self, name: str, ties: Ties, moved: bool = False) -> Floats | None:
        """P(r) of the held-out ratings by factors, moved by neighbours or not. (n, R)"""
        own, domain = self.fits[ties].domains.get(name), self.held_out[name]
        if own is None:
            return None
        logits = own.logits(own.user_rows(domain.user), own.item_rows[domain.item]).astype(np.float64)
        if moved:
            logits += self._moves[name][:, None] * own.tilt[0]
        return softmax(logits)

    @cached_property
    def neighbours(self) -> dict[str, tuple[float, float]]:
        """The penalty and the strength of neighbours, of domains where held-out ratings surely gain."""
        out: dict[str, tuple[float, float]] = {}
        for name, held_out in self.held_out.domains.items() if self.near and self.fits else ():
            fit, part = self.fits[self.ties(name)].domains.get(name), self.part[name]
            if fit is None or part.events or not len(held_out) or not near.affordable(self.known[name].user):
                continue
            plain = fit.logits(fit.user_rows(held_out.user), fit.item_rows[held_out.item]).astype(np.float64)
            left, spread = _left_of(part, fit)
            asked = near.Left(left, held_out.user)

            def scores(moved: Floats, plain: Floats = plain, tilt: Floats = fit.tilt,
                       held_out: Domain = held_out) -> Floats:
                return _score(held_out, softmax(plain + moved[:, None] * tilt[0]))

            found, moves = {(0.0, 0.0): scores(np.zeros(len(held_out)))}, {}
            for one in near.learn(left, spread):
                for strength in near.STRENGTHS[1:]:
                    key = one.penalty, strength
                    moves[key] = near.strengthened(one, strength).offsets(asked, held_out.item)
                    found[key] = scores(moves[key])
                best = weights.surely_best(found)
                if best not in moves:
                    break
            if best in moves:
                out[name] = best
                self._moves[name] = moves[best]
        return out

    def _met(self, name: str, ties: Ties) -> Floats:
        """How well the held-out ratings of each user are met."""
        if (name, ties) not in self._scores:
            self._scores[name, ties] = self._scored(name, ties)
        return self._scores[name, ties]

    def _scored(self, name: str, ties: Ties) -> Floats:
        domain, p = self.held_out[name], self._distribution(name, ties)
        if p is None or not len(domain):
            return np.empty(0)
        return _score(domain, p)

    def _errors(self, name: str, ties: Ties) -> Floats:
        """The absolute errors of the held-out ratings. (n,)"""
        domain, p = self.held_out[name], self._distribution(name, ties)
        if p is None:
            return np.zeros(len(domain))
        out: Floats = np.abs(p @ np.array(domain.scale.values) - domain.ratings)
        return out


def _score(domain: Domain, p: Floats) -> Floats:
    """The mean score of the ratings of each user, for distributions over their levels."""
    return weights.by_user(domain.user, weights.scores_of(p, domain.value, domain.scale.values))


def _left_of(domain: Domain, own: DomainFactors) -> tuple[Any, float]:
    """What rows leave of the ratings of a domain, and their spread."""
    everybody = own.user_rows(np.arange(domain.n_users, dtype=np.int32))
    return near.left_of(own, everybody, domain.user, domain.item, domain.value)


def near_of(domain: Domain, own: DomainFactors, penalty: float, strength: float) -> near.Neighbours:
    left, spread = _left_of(domain, own)
    return near.strengthened(next(near.learn(left, spread, (penalty,))), strength)
