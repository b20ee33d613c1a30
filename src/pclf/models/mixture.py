"""Fitting a mixture over co-clusters, which FMM, RMGM and PCLF have in common. A model is a layout of views."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np

from pclf import engines
from pclf.data.events import with_absences
from pclf.data.ratings import Ratings
from pclf.clusters.loop import STARTS, Callback, HeldOut, Run, Schedule, run, to_numpy
from pclf.clusters.mstep import Means, Priors
from pclf.clusters.state import Engine, Params
from pclf.problem import Layout, Problem
from pclf.engines import Machine
from pclf.errors import EngineError, UnknownNameError, did_you_mean
from pclf.models import personal, weights
from pclf.models.base import as_ratings, random_numbers
from pclf.models.factors import check_whole
from pclf.models.people import Member
from pclf.models.personal import Personal
from pclf.models.predictor import _Predictor
from pclf.models.weights import Transfer, softmax
from pclf.progress import progress

FACTORS, EVENT_FACTORS = 12, 20   # of personal_factors="auto": a log supports more, having ten draws an event
RESTARTS = 4                  # of n_restarts="auto", at most
RESTARTED = 400_000           # restarts times ratings, at most: the more ratings, the less restarts add

# The published models: plain annealed EM. It climbs slowly at first, so no tolerance may stop it there, and without
# priors it over-fits in the end: 40 iterations, the last at beta = 0.95, were best for held-out training users of
# Book-Crossing and MovieLens.
PLAIN: dict[str, Any] = {
    "user_prior": 0.0, "item_prior": 0.0, "table_prior": 0.0, "personal_weight": 0.0, "start": "posteriors",
    "betas": (0.8, 0.9, 0.95), "max_iter": 40, "tol": 0.0, "n_restarts": 1,
}


class _Mixture(_Predictor):
    """Settings of all mixtures, in their constructors:

    user_prior, item_prior, table_prior: pseudo-ratings of the priors; 0 is plain maximum likelihood.
    personal_weight: of the personal view in a prediction, 0 (none) to 1; "auto" learns it; or a dict of domains.
    personal_factors: of the personal view, "auto" for 12, or 20 of events; those that are not supported shrink to
    nothing.
    start: "memberships" (cheap) or "posteriors" (the paper's). betas, steps_per_beta: the annealing.
    max_iter, tol: when EM stops. early_stopping: try on four fifths of the ratings first, and stop all fits after the
    iteration that was best for the rest. n_restarts: fits, "auto" for as many as pay. combine: "average" their
    predictions, or keep the "best".
    """

    def fit(self, data: Ratings | Mapping[str, Any], *, engine: str = "auto", dtype: str = "float32",
            n_threads: int | None = None, random_state: int | np.random.Generator | None = 0,
            verbose: bool = False, callbacks: Iterable[Callback] = ()) -> Self:
        """Learn from ratings, or from a dict of data frames, one a domain.

        engine: "auto", "cpu", "gpu" or "reference". dtype, n_threads: of the CPU engine.
        callbacks: called after each iteration with a `Step`; a true answer stops the run.
        Ctrl-C ends a fit early, once EM has begun on all the ratings: the clusters so far are kept, with a warning,
        `interrupted_` is True, and there is no personal view, which comes last.
        """
        known, streams = as_ratings(data), random_numbers(random_state)
        self._check_settings(known)
        split_rng, trial_rng, personal_rng = streams.spawn(3)
        ratings = with_absences(known, split_rng)
        machine = engines.create(engine, dtype=dtype, n_threads=n_threads, n_ratings=ratings.n_ratings)
        layout, rows_machine = self._layout(ratings), engines.for_personal(machine, ratings.n_levels)
        restarts, learning = self._n_restarts(ratings), self._learns_weights(ratings)
        personal_domains = self._personal_domains(ratings, rows_machine)
        seeds, trial_seed, personal_seed = streams.spawn(restarts), *personal_rng.integers(2**63, size=2)

        steps = (restarts + learning) * self.max_iter + (1 + learning) * len(personal_domains) * personal.SWEEPS
        with progress(f"fit {type(self).__name__}", steps, shown=verbose) as advance:
            watchers = [lambda step: advance(1, f"objective {step.objective:,.0f}"), *callbacks]
            chosen: dict[str, tuple[float, float, float]] = {}
            max_iter = self.max_iter
            if learning:
                part, held_out = weights.hold_out_of_each(weights.some_users(ratings, split_rng), split_rng)
                first, max_iter = self._trial(machine, part, held_out, layout, trial_rng, watchers)
                views = self._fit_personal(part, personal_domains, trial_seed, rows_machine, advance)
                trial = self._fresh(part, layout, [first], views)
                chosen = {name: trial._learn(held_out, name) for name in ratings.domains}
            runs: list[Run] = []
            views, interrupted = {}, False
            try:
                for rng in seeds:
                    runs.append(self._run(machine, ratings, layout, rng, watchers, max_iter=max_iter))
                    if runs[-1].interrupted:
                        break
                interrupted = runs[-1].interrupted
                if not interrupted:
                    views = self._fit_personal(ratings, personal_domains, personal_seed, rows_machine, advance)
            except KeyboardInterrupt:
                if not runs:
                    raise
                interrupted = True
                warnings.warn("interrupted before the end; the model has the clusters so far, and no personal view.",
                              UserWarning, stacklevel=2)
        runs = [r for r in runs if not r.interrupted] or runs
        if self.combine == "best":
            runs = [max(runs, key=lambda r: r.trace[-1].objective)]
        fitted = self._fresh(ratings, layout, runs, views)
        fitted._keep(known)
        fitted.interrupted_ = interrupted
        fitted._device = getattr(machine, "device", None)
        for name, (common, own, gain) in chosen.items():
            fitted._set_weights(name, common, own)
            fitted.transfer_[name] = self._transfer(name, common, gain)
        self._forget()                                    # what was kept of an earlier fit
        self.__dict__.update(fitted.__dict__)
        return self

    def _common_weight(self, ratings: Ratings, name: str) -> float | None:
        """W1 of a domain, None where it is to be learned. A model with one view a domain has no choice."""
        return 0.0

    def _transfer(self, domain: str, weight: float, gain: float) -> Transfer:
        return Transfer(weight, gain, f"{type(self).__name__} has no choice between common and specific clusters.")

    def _check_settings(self, ratings: Ratings) -> None:
        for name, low in (("n_user_clusters", 1), ("max_iter", 1), ("steps_per_beta", 1)):
            check_whole(low, **{name: getattr(self, name)})
        for name, low in (("n_restarts", 1), ("personal_factors", 0)):
            if getattr(self, name) != "auto":
                check_whole(low, "'auto' or ", **{name: getattr(self, name)})
        for name in ("common", "users", "personal"):
            if name in ratings.domains:
                raise ValueError(f"a domain must not be called {name!r}: a part of the model is. Give it another name.")
        for view in self._layout(ratings).views:
            check_whole(1, **{f"the number of item clusters of the view {view.name!r}": view.n_clusters})
        for name in ("user_prior", "item_prior", "table_prior"):
            value = getattr(self, name)
            if not is_real(value) or not value >= 0:    # NaN is not either
                raise ValueError(f"{name} must be 0 (off) or positive; got {getattr(self, name)}.")
        if not isinstance(self.betas, (tuple, list)) or not self.betas or any(not 0 < beta <= 1 for beta in self.betas):
            raise ValueError(f"betas must be one or more numbers in (0, 1]; got {self.betas!r}.")
        for name, known in (("start", STARTS), ("combine", ("average", "best"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of: {', '.join(known)}; got {getattr(self, name)!r}.")
        for name in ratings.domains:
            self._personal_weight(ratings, name)
            self._common_weight(ratings, name)
        if self.n_user_clusters > ratings.n_users:
            warnings.warn(f"n_user_clusters={self.n_user_clusters} is more than the {ratings.n_users} users; "
                          f"some clusters will stay empty.", UserWarning, stacklevel=3)

    def _personal_weight(self, ratings: Ratings, name: str) -> float | None:
        """The weight of a domain's personal view, None where it is to be learned."""
        weight = of_domain(self.personal_weight, name, "personal_weight", list(ratings.domains))
        return None if weight == "auto" else checked(weight, "personal_weight", name)

    def _personal_domains(self, ratings: Ratings, machine: Machine) -> list[str]:
        """Domains that get a personal view: all that ask for one, and of those that leave it to us what the machine can
        do in time and memory."""
        out, left_out, why = [], [], ""
        size = len(personal.tilts(ratings.n_levels)) + self._n_factors(ratings)
        for name, d in ratings.domains.items():
            weight = self._personal_weight(ratings, name)
            if weight == 0:
                continue
            try:
                if weight is None and ratings.n_ratings > machine.most:
                    raise EngineError(f"there are more than {machine.most:,} ratings, absences among them")
                machine.check_room(len(d), d.n_users + d.n_items, ratings.n_levels, size)
                out.append(name)
            except EngineError as error:
                if weight is not None:
                    raise
                why = str(error)
                left_out.append(name)
        if left_out:
            warnings.warn(f"no personal view of {', '.join(left_out)}: {why.rstrip('.')}. A GPU can do more; "
                          f"personal_weight=1.0 asks for it whatever it takes, 0.0 does without.",
                          UserWarning, stacklevel=3)
        return out

    def _n_factors(self, ratings: Ratings) -> int:
        if self.personal_factors != "auto":
            return int(self.personal_factors)
        return EVENT_FACTORS if ratings.events else FACTORS

    def _learns_weights(self, ratings: Ratings) -> bool:
        return self.early_stopping or any(
            None in (self._personal_weight(ratings, name), self._common_weight(ratings, name))
            for name in ratings.domains)

    def _n_restarts(self, ratings: Ratings) -> int:
        if self.n_restarts != "auto":
            return int(self.n_restarts)
        return max(1, min(RESTARTS, RESTARTED // max(1, ratings.n_ratings)))

    def _trial(self, machine: Engine, part: Ratings, held_out: Ratings, layout: Layout, rng: np.random.Generator,
               watchers: list[Callback]) -> tuple[Run, int]:
        """EM on a part of the ratings, and how many iterations were best for the rest. Ctrl-C leaves nothing of it."""
        judge = None
        if self.early_stopping and held_out.n_ratings:
            judge = self._judge(machine, part, layout, held_out)
        found = self._run(machine, part, layout, rng, watchers, held_out=judge, keep=False)
        best = max(found.trace, key=lambda step: step.held_out or 0.0).iteration if judge else self.max_iter
        return found, best

    def _run(self, machine: Engine, ratings: Ratings, layout: Layout, rng: np.random.Generator,
             watchers: list[Callback], *, max_iter: int | None = None, held_out: HeldOut | None = None,
             keep: bool = True) -> Run:
        problem = Problem.of(ratings, layout)
        schedule = Schedule(tuple(self.betas), self.steps_per_beta, max_iter or self.max_iter, self.tol)
        priors = Priors(self.user_prior, self.item_prior, self.table_prior)
        start = STARTS[self.start](problem, rng, getattr(machine, "n_threads", 1))
        return run(machine, problem, start, schedule=schedule, priors=priors,
                   held_out=held_out, callbacks=watchers, keep=keep)

    def _judge(self, machine: Engine, part: Ratings, layout: Layout, held_out: Ratings) -> HeldOut:
        """The mean log-likelihood of held-out ratings under the mixture."""
        def judge(params: Params, means: Means) -> float:
            params, means = to_numpy(machine, params, means)
            trial = self._fresh(part, layout, [Run(params, means, (), False)], {})
            logs = [np.log(np.maximum(trial._mixture(
                trial._known_users(name, d.user), trial._known_items(name, d.item), trial.weights_[name],
            )[np.arange(len(d)), held_out.levels(name)], 1e-9)) for name, d in held_out.domains.items() if len(d)]
            return float(np.concatenate(logs).mean()) if logs else 0.0
        return judge

    def _fit_personal(self, ratings: Ratings, domains: list[str], seed: int, machine: Machine,
                      advance: Callable[..., None]) -> dict[str, Personal]:
        """Personal views of some domains, the largest first: where people are the same, it informs the smaller ones.

        Not the other way round as well: their own ratings would come back to them as news. One seed for all, so that a
        domain's view does not depend on the others.
        """
        apart = self._layout(ratings).separate_users
        wanted = [name for name in domains if len(ratings[name])]
        out: dict[str, Personal] = {}
        for name in sorted(wanted, key=lambda name: -len(ratings[name])):
            elsewhere, kin = None, None
            if ratings.shared_users and not apart:
                elsewhere = personal.rows_elsewhere(ratings, name, wanted, out, self._n_factors(ratings))
                kin = next(iter(out.values()), None)
            with machine.here():
                out[name] = personal.fit(ratings[name], ratings.levels(name), ratings.n_levels,
                                         self._n_factors(ratings), np.random.default_rng(seed), machine,
                                         elsewhere=elsewhere, kin=kin,
                                         after_sweep=partial(advance, 1, f"personal view of {name}"))
        return {name: out[name] for name in wanted}

    def _fresh(self, ratings: Ratings, layout: Layout, runs: list[Run], views: dict[str, Personal]) -> Self:
        """A fitted copy, so that this one changes all at once or not at all."""
        out = type(self)(**self.get_params(deep=False))
        problem = Problem.of(ratings, layout)
        out.layout_ = layout
        out.members_ = tuple(Member.of(r, problem) for r in runs)
        out.trace_ = runs[0].trace
        out.n_iter_ = len(out.trace_)
        out.personal_ = views
        out._keep(ratings)
        out.weights_, out.personal_weights_, out.transfer_ = {}, {}, {}
        for name in ratings.domains:
            common, own = out._common_weight(ratings, name), out._personal_weight(ratings, name)
            own = 0.0 if name not in views else 1.0 if own is None else own
            out._set_weights(name, 0.0 if common is None else common, own)
        return out

    def _learn(self, held_out: Ratings, name: str) -> tuple[float, float, float]:
        """Weights of a domain on held-out ratings: those of the settings, or the best of the grid."""
        common, own = self._common_weight(self.data_, name), self._personal_weight(self.data_, name)
        commons, owns = ((w,) if w is not None else grid
                         for w, grid in ((common, weights.COMMON), (own, weights.PERSONAL)))
        domain = held_out.domains[name]
        if not len(domain):
            return commons[0], owns[0], 0.0
        users, items = self._known_users(name, domain.user), self._known_items(name, domain.item)
        views = [i for i, _ in self._views(name)]
        specific = self._mixture(users, items, {views[-1]: 1.0})
        common_part = self._mixture(users, items, {views[0]: 1.0}) if len(views) > 1 else None
        personal_part = None
        if users.personal is not None and items.personal is not None:
            personal_part = softmax(self.personal_[name].logits(users.personal, items.personal))
        return weights.learn(domain.user, held_out.levels(name), common_part, specific, personal_part, commons, owns)


class _OneView(_Mixture):
    """A mixture with one view a domain: FMM, RMGM."""

    def __init__(self, n_user_clusters: int = 20, n_item_clusters: int = 20, *, user_prior: float = 1.0,
                 item_prior: float = 1.0, table_prior: float = 1.0,
                 personal_weight: float | str | Mapping[str, float] = "auto",
                 personal_factors: int | str = "auto",
                 start: str = "memberships", betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5,
                 max_iter: int = 35, tol: float = 1e-5, early_stopping: bool = False,
                 n_restarts: int | str = "auto", combine: str = "average") -> None:
        self.n_user_clusters = n_user_clusters
        self.n_item_clusters = n_item_clusters
        self.user_prior = user_prior
        self.item_prior = item_prior
        self.table_prior = table_prior
        self.personal_weight = personal_weight
        self.personal_factors = personal_factors
        self.start = start
        self.betas = betas
        self.steps_per_beta = steps_per_beta
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.n_restarts = n_restarts
        self.combine = combine

    @classmethod
    def paper(cls, **settings: Any) -> Self:
        """The model as published: plain annealed EM from random posteriors."""
        return cls(**{**PLAIN, **settings})


def of_domain(setting: Any, name: str, what: str, names: list[str]) -> Any:
    """A setting that is one value, or a dict with one for each domain."""
    if not isinstance(setting, Mapping):
        return setting
    for key in setting:
        if key not in names:
            raise UnknownNameError(did_you_mean(key, names, f"domain in {what}"))
    if name not in setting:
        raise ValueError(f"{what} must name every domain; {name!r} is missing from {dict(setting)}.")
    return setting[name]


def checked(weight: Any, what: str, domain: str) -> float:
    if not is_real(weight) or not 0 <= weight <= 1:
        raise ValueError(f"{what} must be 'auto' or a number between 0 and 1; got {weight!r} for domain {domain!r}.")
    return float(weight)


def is_real(value: Any) -> bool:
    """A number of Python or NumPy."""
    return isinstance(value, Real)   # not where it is compared: to a type checker, a Real has no >=
