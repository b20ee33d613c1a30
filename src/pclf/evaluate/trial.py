"""Trial: one fit of an audit, from who is tested to what is measured of each test user.

The target's test users keep `given` ratings; `size` other users of it, and the sources, are trained on whole. Visitors
keep none: they are test users who are known in a source. The error of a rating is absolute. That of an event is its
*rank*: how far down it is in the list of everything that its user has not yet done, from 0, the first, to 1, the last
(Hu, Koren & Volinsky 2008); by chance it would be 0.5. A list of ten is measured by the nDCG of the held-out items that
its user liked or, of events, did.

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
from pclf.data.vocabulary import Codes
from pclf.evaluate.compare import fit_timed
from pclf.evaluate.merged import merged
from pclf.evaluate.metrics import ndcg_of_each
from pclf.models.base import Floats, Recommender
from pclf.models.bias import Bias
from pclf.models.fmm import FMM
from pclf.models.pclf import PCLF

PARTS = 5            # of a domain's users: after so many repeats each was a test user once
MOST_TESTED = 200    # users a repeat, as in the paper
BY_DOMAIN = ("n_specific_clusters", "common_weight", "factor_weight")      # settings that may differ
LISTED = 10          # items of a list
FEW_REPEATS = 3      # are enough for lists, visitors and learning curves

ALONE, MERGED, BIAS, POPULAR = "alone", "merged", "Bias", "most popular"      # arms beside the pooled model


class Arm(NamedTuple):
    """A model, and the other domains it is pooled with: as they are or shuffled, over all bridges or some.

    `alone` is the twin: the same model on the target by itself; `merged` the same model on one table.
    """

    model: str
    sources: tuple[str, ...] = ()
    shuffled: bool = False
    bridges: tuple[str, ...] = ()      # none: as the model is set


class Fit(NamedTuple):
    """What is fitted once, however many comparisons need it."""

    target: str
    size: int      # users of the target to learn from
    given: int     # ratings that a test user keeps
    repeat: int
    arm: Arm


class Measured(NamedTuple):
    """What a fit says of its test users. NaN where it cannot say it."""

    user: Codes              # (n,) codes of the test users
    error: Floats            # (n,) the mean over the test ratings of each
    ndcg: Floats             # (n,) of the lists


@dataclass(frozen=True)
class Trial:
    """Everything that fits have in common. Called with a `Fit`, it returns what is measured of the test users."""

    data: Ratings
    model: Recommender
    given: int
    seed: int
    options: Mapping[str, Any]

    def __call__(self, fit: Fit) -> Measured:
        target, kept = self.data[fit.target], self._kept(fit)
        asked = np.isin(target.user, self._asked(fit)) & ~kept
        user, item = target.user[asked], target.item[asked]
        users, row = np.unique(user, return_inverse=True)
        error = ndcg = np.full(len(users), np.nan)
        wanted = asked & self._wanted(fit.target)
        goal = np.searchsorted(users, target.user[wanted]), target.item[wanted]
        if fit.arm.model == POPULAR:
            return Measured(users, error, _ndcg(_popular(target, kept, users), *goal, len(users)))
        train = self._pool(fit).select({fit.target: kept})
        of_user, of_item = (rows[list(train.domains).index(fit.target)] for rows in (train.user_rows, train.item_rows))
        if fit.arm.model == MERGED:
            train = merged(train, fit.target)
        else:
            of_user, of_item = (np.arange(n, dtype=np.int32) for n in (target.n_users, target.n_items))
        seed = int(self._rng(fit.target, fit.repeat, "start").integers(2**31))
        fitted = _fitted(self._model(fit), train, {"random_state": seed, **self.options})
        n_lists = target.n_items if target.events else LISTED if self.listed(fit) else 0
        lists = _lists(fitted, fit.target, of_user[users], of_item, n_lists) if n_lists else None
        if target.events and lists is not None:
            errors = ranks(lists, row, of_item[item], fitted.data_[fit.target].n_items)
        else:
            errors = np.abs(fitted.predict_codes(fit.target, of_user[user], of_item[item]) - target.ratings[asked])
        error = np.bincount(row, errors, len(users)) / np.maximum(np.bincount(row, minlength=len(users)), 1)
        if lists is not None and self.listed(fit):
            ndcg = _ndcg(lists, goal[0], of_item[goal[1]], len(users))
        return Measured(users, error, ndcg)

    @property
    def lists(self) -> bool:
        """Whether lists are measured at all: those of a model that learns what people choose."""
        return isinstance(self.model, PCLF) and self.model.lists

    def listed(self, fit: Fit) -> bool:
        """Whether the lists of a fit are measured: those of the pooled model and of its twin."""
        arm = fit.arm
        pooled = arm.model == type(self.model).__name__ and len(arm.sources) == len(self.data.domains) - 1
        return (self.lists and (pooled or arm.model == ALONE) and not arm.shuffled and not arm.bridges
                and fit.repeat < FEW_REPEATS and fit.size == self.n_training_users(fit.target))

    def n_testable(self, name: str) -> int:
        """Users with more than `given` ratings."""
        return len(self._testable(self.data[name]))

    def n_visitors(self, name: str) -> int:
        """Those among them whom another domain knows."""
        return int(np.isin(self._testable(self.data[name]), self._elsewhere(name)).sum())

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

    def _asked(self, fit: Fit) -> NDArray[np.intp]:
        """The test users of a fit; where they keep nothing, the visitors among them."""
        tested = self._tested(fit.target, fit.repeat)
        return tested if fit.given else np.intersect1d(tested, self._elsewhere(fit.target))

    def _elsewhere(self, name: str) -> NDArray[np.intp]:
        """Users of a domain who have ratings in another one."""
        if not self.data.shared_users:
            return np.empty(0, np.intp)
        others = [rows[d.user] for d, rows in zip(self.data.domains.values(), self.data.user_rows, strict=True)
                  if d.name != name]
        own = self.data.user_rows[list(self.data.domains).index(name)]
        return np.flatnonzero(np.isin(own, np.concatenate(others)))

    def _wanted(self, name: str) -> NDArray[np.bool_]:
        """Ratings of a domain that a list should find: of what was liked, and not rated elsewhere already.   (n,)"""
        liked = self.data[name].liked
        if not (self.data.shared_users and self.data.shared_items):
            return liked
        rows = zip(self.data.domains.values(), self.data.user_rows, self.data.item_rows, strict=True)
        pairs = {other.name: users[other.user].astype(np.int64) * self.data.n_items + items[other.item]
                 for other, users, items in rows}
        return liked & ~np.isin(pairs[name], np.concatenate([p for other, p in pairs.items() if other != name]))

    def _kept(self, fit: Fit) -> NDArray[np.bool_]:
        """The target's ratings to learn from: `given` of each test user, all of `size` others.   (n,)"""
        domain, rng = self.data[fit.target], self._rng(fit.target, fit.repeat, "ratings")
        tested, place = self._tested(fit.target, fit.repeat), random_places(domain.user, rng)
        others = rng.permutation(np.setdiff1d(np.arange(domain.n_users), tested))
        learnt = np.isin(domain.user, others[:fit.size])       # so that small sizes are parts of large ones
        return learnt | (np.isin(domain.user, tested) & (place < fit.given))

    def _pool(self, fit: Fit) -> Ratings:
        """The target and the sources, in the order of the data."""
        pool = self.data.only([name for name in self.data.domains if name in (fit.target, *fit.arm.sources)])
        if not fit.arm.shuffled:
            return pool
        shuffled = {name: _shuffled(pool[name], self._rng(name, fit.repeat, "shuffle")) for name in fit.arm.sources}
        return replace(pool, domains={**pool.domains, **shuffled})

    def _model(self, fit: Fit) -> Recommender:
        if fit.arm.model == BIAS:
            return Bias()
        if fit.arm.model in (ALONE, MERGED):
            model = twin(self.model, fit.target)
        else:
            model = type(self.model)(**_for_domains(self.model, (fit.target, *fit.arm.sources)))
        if fit.arm.bridges:
            model.set_params(bridges=fit.arm.bridges)
        if isinstance(model, PCLF) and not self.data[fit.target].events and not self.listed(fit):
            model.set_params(lists=False)                      # nobody asks for them, and they take longest
        return model

    def _rng(self, name: str, number: int, purpose: str) -> np.random.Generator:
        domain = list(self.data.domains).index(name)
        return np.random.default_rng([self.seed, domain, number, *purpose.encode()])


def ranks(lists: NDArray[np.int32], row: NDArray[np.intp], item: NDArray[np.int32], n_items: int) -> Floats:
    """Where items are in lists of everything: 0 at the top, 1 at the end.   (n,)"""
    last = np.maximum((lists >= 0).sum(axis=1, keepdims=True) - 1, 1)
    rank = np.ones((len(lists), n_items + 1))
    np.put_along_axis(rank, np.where(lists < 0, n_items, lists), np.arange(lists.shape[1]) / last, axis=1)
    return rank[row, item]


def _lists(fitted: Recommender, name: str, users: NDArray[np.int32], items: NDArray[np.int32],
           n: int) -> NDArray[np.int32]:
    """The first n of some items, for users by their codes.   (users, n)"""
    domain = fitted.data_[name]
    some = domain.items.decode(items) if len(items) < domain.n_items else None
    return fitted.recommend(name, domain.users.decode(users), n, candidates=some).codes


def _popular(target: Domain, kept: NDArray[np.bool_], users: Codes) -> NDArray[np.int32]:
    """For each user, what most people have among the training ratings and the user has not.   (users, n)"""
    often = np.tile(np.bincount(target.item[kept], minlength=target.n_items).astype(float), (len(users), 1))
    known = kept & np.isin(target.user, users)
    often[np.searchsorted(users, target.user[known]), target.item[known]] = -1
    return np.argsort(-often, axis=1, kind="stable")[:, :LISTED].astype(np.int32)


def _ndcg(lists: NDArray[np.int32], row: NDArray[np.intp], item: NDArray[Any], n_users: int) -> Floats:
    """Of each list, NaN where nothing was liked.   (n,)"""
    return ndcg_of_each(LISTED, lists, row, item) if len(row) else np.full(n_users, np.nan)


def _shuffled(domain: Domain, rng: np.random.Generator) -> Domain:
    """As many ratings of each user and item as before. Of events, all of which are 1, the items change places."""
    if not domain.events:
        return replace(domain, value=rng.permutation(domain.value))
    item = rng.permutation(domain.item)
    _, once = np.unique(domain.user.astype(np.int64) * domain.n_items + item, return_index=True)
    return replace(domain, item=item).take(once)


def twin(model: Recommender, target: str) -> Recommender:
    """The same model for one domain alone; of RMGM, which pools everything it has, that is FMM."""
    settings = _for_domains(model, [target])
    if isinstance(model, PCLF):
        return PCLF(**settings)
    known = FMM().get_params()
    return FMM(**{name: value for name, value in settings.items() if name in known})


def _for_domains(model: Recommender, names: Iterable[str]) -> dict[str, Any]:
    """Settings of a model; those that are given by domain, for some of the domains."""
    chosen = set(names)
    return {key: {n: v for n, v in value.items() if n in chosen}
            if isinstance(value, Mapping) and key in BY_DOMAIN else value
            for key, value in model.get_params(deep=False).items()}


def _fitted(model: Recommender, train: Ratings, options: Mapping[str, Any]) -> Recommender:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_user_clusters=", UserWarning)   # the twin of a small target
        warnings.filterwarnings("ignore", "interrupted", UserWarning)        # then there is no audit
        return fit_timed(model, train, options)[0]
