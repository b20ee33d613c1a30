"""Trial: one fit of an audit, from who is tested to the error of each test user.

The target's test users keep `given` ratings; `size` other users of it, and the sources, are trained on whole. The
error of a rating is absolute. That of an event is its *rank*: how far down it is in the list of everything that its
user has not yet done, from 0, the first, to 1, the last (Hu, Koren & Volinsky 2008); by chance it would be 0.5.

Everything drawn at random depends on the seed, the domain and the repeat alone, so that two arms of a
comparison have the same test users, the same training ratings of the target, and the same seed for the fit.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.data.splits import random_places
from pclf.evaluate.compare import fit_timed
from pclf.models.base import Floats, Recommender
from pclf.models.bias import Bias
from pclf.models.fmm import FMM
from pclf.models.rmgm import RMGM

PARTS = 5            # of a domain's users: after so many repeats each was a test user once
MOST_TESTED = 200    # users a repeat, as in the paper


class Arm(NamedTuple):
    """A model, and the other domains it is pooled with, as they are or shuffled."""

    model: str
    sources: tuple[str, ...] = ()
    shuffled: bool = False


class Fit(NamedTuple):
    """What is fitted once, however many comparisons need it."""

    target: str
    size: int      # users of the target to learn from
    repeat: int
    arm: Arm


class Errors(NamedTuple):
    user: NDArray[np.intp]   # (n,) codes of the test users
    error: Floats            # (n,) the mean over the test ratings of each


@dataclass(frozen=True)
class Trial:
    """Everything that fits have in common. Called with a `Fit`, it returns the errors of the test users."""

    data: Ratings
    model: Recommender
    given: int
    seed: int
    options: Mapping[str, Any]

    def __call__(self, fit: Fit) -> Errors:
        target, tested = self.data[fit.target], self._tested(fit.target, fit.repeat)
        kept = self._kept(fit, tested)
        seed = int(self._rng(fit.target, fit.repeat, "start").integers(2**31))
        fitted = _fitted(self._model(fit), self._pool(fit).select({fit.target: kept}),
                         {"random_state": seed, **self.options})
        asked = np.isin(target.user, tested) & ~kept
        user, item = target.user[asked], target.item[asked]
        error = (ranks(fitted, target, user, item) if target.events
                 else np.abs(fitted.predict_codes(fit.target, user, item) - target.ratings[asked]))
        n = np.bincount(user, minlength=target.n_users)
        users = np.flatnonzero(n)
        return Errors(users, np.bincount(user, error, target.n_users)[users] / n[users])

    def n_testable(self, name: str) -> int:
        """Users with more than `given` ratings."""
        return len(self._testable(self.data[name]))

    def n_training_users(self, name: str) -> int:
        """Users of a domain that can be learnt from in every repeat."""
        return self.data[name].n_users - max(len(self._tested(name, repeat)) for repeat in range(PARTS))

    def _testable(self, domain: Domain) -> NDArray[np.intp]:
        return np.flatnonzero(np.bincount(domain.user, minlength=domain.n_users) > self.given)

    def _tested(self, name: str, repeat: int) -> NDArray[np.intp]:
        """The test users of a repeat: part after part of all who can be, two or more."""
        testable = self._testable(self.data[name])
        n_parts = min(PARTS, len(testable) // 2)
        turn, part = divmod(repeat, n_parts)
        order = self._rng(name, turn, "parts").permutation(testable)
        return np.array_split(order, n_parts)[part][:MOST_TESTED]

    def _kept(self, fit: Fit, tested: NDArray[np.intp]) -> NDArray[np.bool_]:
        """The target's ratings to learn from: `given` of each test user, all of `size` others.   (n,)"""
        domain, rng = self.data[fit.target], self._rng(fit.target, fit.repeat, "ratings")
        place = random_places(domain.user, rng)
        others = rng.permutation(np.setdiff1d(np.arange(domain.n_users), tested))
        learnt = np.isin(domain.user, others[:fit.size])       # so that small sizes are parts of large ones
        return learnt | (np.isin(domain.user, tested) & (place < self.given))

    def _pool(self, fit: Fit) -> Ratings:
        """The target and the sources, in the order of the data."""
        pool = self.data.only([name for name in self.data.domains if name in (fit.target, *fit.arm.sources)])
        if not fit.arm.shuffled:
            return pool
        shuffled = {name: _shuffled(pool[name], self._rng(name, fit.repeat, "shuffle")) for name in fit.arm.sources}
        return replace(pool, domains={**pool.domains, **shuffled})

    def _model(self, fit: Fit) -> Recommender:
        name = fit.arm.model
        if name == type(self.model).__name__:
            return type(self.model)(**_for_domains(self.model.get_params(), (fit.target, *fit.arm.sources)))
        if name == "Bias":
            return Bias()
        return twin(self.model, fit.target, RMGM if name == "RMGM" else FMM, fit.arm.sources)

    def _rng(self, name: str, number: int, purpose: str) -> np.random.Generator:
        domain = list(self.data.domains).index(name)
        return np.random.default_rng([self.seed, domain, number, *purpose.encode()])


def ranks(fitted: Recommender, target: Domain, user: NDArray[np.int32], item: NDArray[np.int32]) -> Floats:
    """Where the items are in the lists of their users: 0 at the top, 1 at the end.   (n,)"""
    users, row = np.unique(user, return_inverse=True)
    lists = fitted.recommend(target.name, target.users.decode(users), target.n_items).codes     # -1 behind the last
    last = np.maximum((lists >= 0).sum(axis=1, keepdims=True) - 1, 1)
    rank = np.ones((len(users), target.n_items + 1))
    np.put_along_axis(rank, np.where(lists < 0, target.n_items, lists), np.arange(lists.shape[1]) / last, axis=1)
    return rank[row, item]


def _shuffled(domain: Domain, rng: np.random.Generator) -> Domain:
    """As many ratings of each user and item as before. Of events, all of which are 1, the items change places."""
    if not domain.events:
        return replace(domain, value=rng.permutation(domain.value))
    item = rng.permutation(domain.item)
    _, once = np.unique(domain.user.astype(np.int64) * domain.n_items + item, return_index=True)
    return replace(domain, item=item).rated(once)


def twin(model: Recommender, target: str, kind: type[Recommender] = FMM, sources: Iterable[str] = ()) -> Recommender:
    """An FMM (or RMGM, of the sources too) with as many clusters as `model` predicts `target` with, and its other
    settings."""
    settings = _for_domains(model.get_params(), [target, *sources])
    if "n_item_clusters" not in settings:
        specific = settings["n_specific_clusters"]
        own = specific[target] if isinstance(specific, Mapping) else specific
        settings["n_item_clusters"] = settings["n_common_clusters"] + own
        settings["user_prior"] /= 2          # where a rating counts in one view, as much as there in two
    known = kind().get_params()
    return kind(**{name: value for name, value in settings.items() if name in known})


def _for_domains(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Settings that are given by domain, for some of the domains."""
    chosen = set(names)
    return {key: {n: v for n, v in value.items() if n in chosen} if isinstance(value, Mapping) else value
            for key, value in settings.items()}


def _fitted(model: Recommender, train: Ratings, options: Mapping[str, Any]) -> Recommender:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_user_clusters=", UserWarning)   # the twin of a small target
        warnings.filterwarnings("ignore", "interrupted", UserWarning)        # then there is no audit
        return fit_timed(model, train, options)[0]
