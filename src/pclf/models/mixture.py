"""What models with clusters have in common: FMM, RMGM and PCLF. Each *has* its parts; here is what they do with them.

The parts are clusters (`pclf.clusters`), which all three have, and factors (`pclf.factors`), which PCLF adds. Each part
says P(r | u, v); they are pooled with the weights that `weights` learned.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pclf import engines
from pclf.choice import Source
from pclf.clusters.fitted import Clusters, Member
from pclf.clusters.loop import BY_ID, STARTS, Callback, HeldOut, Run, Schedule, Step, run, to_numpy
from pclf.clusters.mstep import Means, Priors
from pclf.clusters.state import Engine, Params, Stats
from pclf.data.events import DRAWN, absences, with_absences
from pclf.data.frames import has_frames
from pclf.data.ratings import Ratings
from pclf.door import check_keys, check_names, finite, positive, share
from pclf.engines.cpu import one_thread_of_algebra
from pclf.errors import ArgumentError, ModelFileError, UnknownNameError, brief, did_you_mean
from pclf.factors.fitted import DomainFactors, Factors
from pclf.factors.rows import softmax
from pclf.models import insight, weights
from pclf.models import unknown as unknown_ids
from pclf.models.base import Floats, as_list, as_ratings, in_order, packed, random_numbers
from pclf.models.factors import check_whole
from pclf.models.people import Guest, Items, NewItem, People, Users, check_pairs, find, hashable
from pclf.models.previous import ITERATIONS, Previous
from pclf.models.transfer import Transfer
from pclf.models.unknown import Unknown
from pclf.neighbours import Left, Neighbours, left_of
from pclf.problem import Layout, Problem
from pclf.progress import progress
from pclf.serving.lists import Pool, Recommendation

if TYPE_CHECKING:
    from pclf.blocks.engine import BlockEngine
    from pclf.blocks.groups import Finish
    from pclf.models.base import Recommender as _Contract  # beside which a mixture always stands
else:
    _Contract = object

Told = Mapping[str, Mapping[Any, float] | Sequence[Hashable]]     # by domain: ratings of items, or what was done
PAIRS = 1 << 14               # pairs whose distributions are computed at a time
RESTARTS = 4                  # of n_restarts="auto", at most
RESTARTED = 400_000           # restarts times ratings, at most: the more ratings, the less restarts add

# The published models: plain annealed EM. It climbs slowly at first, so no tolerance may stop it there, and without
# priors it over-fits in the end: 40 iterations, the last at beta = 0.95, were best for held-out training users of
# Book-Crossing and MovieLens.
PLAIN: dict[str, Any] = {
    "user_prior": 0.0, "item_prior": 0.0, "table_prior": 0.0, "start": "posteriors", "betas": (0.8, 0.9, 0.95),
    "max_iter": 40, "tol": 0.0, "n_restarts": 1,
}


@dataclass(frozen=True)
class Annealing:
    """How clusters are learned: the settings that FMM, RMGM and PCLF have in common."""

    user_prior: float
    item_prior: float
    table_prior: float
    start: str
    betas: tuple[float, ...]
    steps_per_beta: int
    max_iter: int
    tol: float

    @classmethod
    def of(cls, model: Any) -> "Annealing":
        return cls(*(getattr(model, name) for name in cls.__dataclass_fields__))

    def run(self, machine: Engine, ratings: Ratings, layout: Layout, rng: np.random.Generator,
            watchers: list[Callback], *, max_iter: int | None = None, held_out: HeldOut | None = None,
            keep: bool = True, start: Stats | None = None) -> Run:
        """EM from one start, a random one unless it is given. From a given one nothing is annealed any more."""
        problem, schedule = Problem.of(ratings, layout, keyed=self.start.endswith(BY_ID)), self.schedule(max_iter)
        if start is None:
            start = STARTS[self.start.removesuffix(BY_ID)](problem, rng, getattr(machine, "n_threads", 1))
        else:
            schedule = replace(schedule, betas=schedule.betas[-1:])
        with one_thread_of_algebra():
            return run(machine, problem, start, schedule=schedule, priors=self.priors, held_out=held_out,
                       callbacks=watchers, keep=keep)

    def schedule(self, max_iter: int | None = None) -> Schedule:
        return Schedule(tuple(self.betas), self.steps_per_beta, max_iter or self.max_iter, self.tol)

    @property
    def priors(self) -> Priors:
        return Priors(self.user_prior, self.item_prior, self.table_prior)

    def trial(self, machine: Engine, part: Ratings, held_out: Ratings, layout: Layout, rng: np.random.Generator,
              watchers: list[Callback], early_stopping: bool) -> tuple[Run, int]:
        """EM on a part of the ratings, and how many iterations were best for the rest. Ctrl-C leaves nothing of it."""
        judge = self._judge(machine, part, layout, held_out) if early_stopping and held_out.n_ratings else None
        found = self.run(machine, part, layout, rng, watchers, held_out=judge, keep=False)
        best = max(found.trace, key=lambda step: step.held_out or 0.0).iteration if judge else self.max_iter
        return found, best

    def clusters(self, ratings: Ratings, layout: Layout, runs: Sequence[Run]) -> Clusters:
        problem = Problem.of(ratings, layout)
        members = tuple(Member.of(r, problem) for r in runs)
        return Clusters.of(ratings, layout, members, self.user_prior, self.item_prior)

    def _judge(self, machine: Engine, part: Ratings, layout: Layout, held_out: Ratings) -> HeldOut:
        """The mean log-likelihood of held-out ratings under the mixture."""
        def judge(params: Params, means: Means) -> float:
            params, means = to_numpy(machine, params, means)
            trial = self.clusters(part, layout, [Run(params, means, (), False)])
            logs = []
            for name, d in held_out.domains.items():
                if len(d):
                    users, items = trial.known_users(name, d.user), trial.known_items(name, d.item)
                    p = trial.levels(users, items, trial.weights[name])
                    logs.append(np.log(np.maximum(p[np.arange(len(d)), held_out.levels(name)], 1e-9)))
            return float(np.concatenate(logs).mean()) if logs else 0.0
        return judge


class Mixture(_Contract):
    """What FMM, RMGM and PCLF do: EM, and the answers of a fitted model."""

    rules: ClassVar[tuple[str, ...]] = ("mean", "median")

    data_: Ratings
    mixture_: Clusters                      # the part with clusters
    factors_: dict[str, Factors]            # the part with factors, by domain; two domains may have the same one
    factor_weights_: dict[str, float]       # w of `weights`
    neighbours_: dict[str, Neighbours]      # by domain, where they help
    transfer_: dict[str, Transfer]
    trace_: tuple[Step, ...]
    n_iter_: int
    interrupted_: bool
    lists_: Any = None                      # a `lists.Lists`, of a PCLF that learned what people choose
    _device: str | None = None              # the GPU that the model was fitted on

    def fit(self, data: Any, *, engine: str = "auto", dtype: str = "float32",
            n_threads: int | None = None, random_state: int | np.random.Generator | None = 0,
            verbose: bool = False, callbacks: Iterable[Callback] = (), previous: Any = None,
            work: str | Path | None = None, memory: str | float | None = None) -> Self:
        """Learn from ratings: Ratings, a data frame, or a dict of frames, one a domain.

        engine: "auto", "cpu", "gpu", "reference", or "disk" for files larger than memory: data are then RatingFiles, or
        a dict of files, folders or patterns; work is a folder to work in, from which the same call goes on after it was
        stopped, and memory ("4GB") is what it may use. "spark" does the same on a cluster; data may be a dict of Spark
        frames there, and work is a folder that all executors see. dtype, n_threads: of the CPU, or of a task.
        callbacks: called after each iteration with a `Step`; a true answer stops the run.
        previous: an older fit of the same domains to go on from, see `update`.
        Ctrl-C ends a fit early, once EM has begun on all the ratings: the clusters so far are kept, with a warning, and
        `interrupted_` is True.
        """
        if self._fits_on_disk(data, engine, dtype, n_threads, random_state, verbose, callbacks, work, memory,
                              previous):
            return self
        known, streams = as_ratings(data), random_numbers(random_state)
        self._check_annealing(known)
        split_rng, trial_rng, _ = streams.spawn(3)          # as many as of PCLF, so that restarts begin alike
        ratings, layout = with_absences(known, split_rng, self._draws_by_id), self._layout(known)
        machine = engines.create(engine, dtype=dtype, n_threads=n_threads, n_ratings=ratings.n_ratings)
        restarts, annealing, max_iter = self._n_restarts(ratings.n_ratings), Annealing.of(self), self.max_iter
        before = None if previous is None else Previous(previous, type(self), known, layout)
        starts = self._starts(before, ratings, layout)
        if before is not None:
            restarts, max_iter = len(starts), min(max_iter, ITERATIONS)
        steps = (restarts + self.early_stopping) * max_iter
        with progress(f"fit {type(self).__name__}", steps, shown=verbose) as advance:
            watchers = [lambda step: advance(1, f"objective {step.objective:,.0f}"), *callbacks]
            if self.early_stopping and before is None:
                part, held_out = weights.hold_out_of_each(weights.some_users(ratings, split_rng), split_rng)
                _, max_iter = annealing.trial(machine, part, held_out, layout, trial_rng, watchers, True)
            runs, interrupted = self._restarts(annealing, machine, ratings, layout, streams.spawn(restarts), watchers,
                                               max_iter, starts)
        chosen = self._chosen_runs(runs)
        clusters = annealing.clusters(ratings, layout, chosen)
        self._adopt(known, clusters, chosen[0].trace, interrupted)
        self._device = getattr(machine, "device", None)
        self._set_after_trial(None)
        return self

    def _refit(self, data: Ratings, **options: Any) -> Self:
        return self.fit(data, previous=self, **options)

    def _fits_on_disk(self, data: Any, engine: str, dtype: str, n_threads: int | None, random_state: Any, verbose: bool,
                      callbacks: Iterable[Callback], work: str | Path | None, memory: str | float | None,
                      previous: Any) -> bool:
        """Whether it was asked for, and is done: by this process, or by a Spark cluster."""
        engine = "spark" if engine == "auto" and has_frames(data) else engine
        if engine not in ("disk", "spark"):
            for name, given in (("work", work), ("memory", memory)):
                if given is not None:
                    raise ArgumentError(f"engine {engine!r} has no use for {name}: leave it out, or use engine='disk'.")
            return False
        if previous is not None:
            raise ArgumentError(f"engine {engine!r} has no use for previous: leave it out, or use engine='cpu'.")
        if engine == "disk":
            from pclf.models.disk import fit
        else:
            from pclf.spark import fit
        fit(self, data, work=work, memory=memory, dtype=dtype, n_threads=n_threads, random_state=random_state,
            verbose=verbose, callbacks=callbacks)
        return True

    def _check_on_disk(self, ratings: Ratings) -> None:
        """Whether this model can be fitted in blocks of users."""
        with warnings.catch_warnings():          # about the number of users, whom nobody has counted yet
            warnings.simplefilter("ignore")
            self._check_settings(ratings)

    def _lists_on_disk(self, source: Source, sample: Callable[[], Ratings], data: Ratings, seed: int,
                       kept: Callable[[Callable[[], Any]], Any]) -> Any:
        """What people choose, from sums over all of them, and what a sample of them decides; None without lists.

        kept: arrays that an earlier run left, or those that are made now.
        """
        return None

    def _trial_on(self, sample: Callable[[], Ratings], known: Ratings, layout: Layout, machine: Engine,
                  split_rng: np.random.Generator, trial_rng: np.random.Generator,
                  trial_seed: int) -> tuple[Any, int]:
        """What a trial on a sample of the users says, and how many iterations were best there."""
        if not self.early_stopping:
            return None, self.max_iter
        some = with_absences(sample(), split_rng, self._draws_by_id)
        part, held_out = weights.hold_out_of_each(weights.some_users(some, split_rng), split_rng)
        return None, Annealing.of(self).trial(machine, part, held_out, layout, trial_rng, [], True)[1]

    def _row_on_disk(self, data: Ratings, n_ratings: int) -> int:
        """How many numbers a row of factors has with so many ratings, at most; 0 without factors."""
        return 0

    def _factors_on_disk(self, engine: "BlockEngine", trial: Any, seed: int, verbose: bool,
                         folder: Callable[..., Path]) -> tuple[dict[str, Factors], list["Finish"]]:
        """The factors of each domain, without anybody's rows, and what blocks must know to keep these. folder: where a
        fit of factors works, told from others by what it is called with."""
        return {}, []

    def _set_after_trial(self, trial: Any) -> None:
        """Weights, and what they mean."""
        text = f"{type(self).__name__} has no choice between common and specific clusters."
        self.transfer_ = {name: Transfer(0.0, None, text) for name in self.data_.domains}

    def _restarts(self, annealing: Annealing, machine: Engine, ratings: Ratings, layout: Layout,
                  seeds: Sequence[np.random.Generator], watchers: list[Callback], max_iter: int,
                  starts: Sequence[Stats] = ()) -> tuple[list[Run], bool]:
        """EM from several starts; after Ctrl-C, those so far, and True."""
        runs: list[Run] = []
        try:
            for i, rng in enumerate(seeds):
                runs.append(annealing.run(machine, ratings, layout, rng, watchers, max_iter=max_iter,
                                          start=starts[i] if starts else None))
                if runs[-1].interrupted:
                    return runs, True
        except KeyboardInterrupt:
            if not runs:
                raise
            warnings.warn("interrupted before the end; the model has the clusters so far.", UserWarning, stacklevel=3)
            return runs, True
        return runs, False

    @staticmethod
    def _starts(before: Previous | None, ratings: Ratings, layout: Layout) -> list[Stats]:
        """Where EM goes on from; nothing where it begins anew."""
        return [] if before is None else before.clusters(Problem.of(ratings, layout))

    @property
    def members_(self) -> tuple[Member, ...]:
        """The restarts of the clusters."""
        return self.mixture_.members

    @property
    def layout_(self) -> Layout:
        """The views of the clusters."""
        return self.mixture_.layout

    @property
    def weights_(self) -> dict[str, dict[int, float]]:
        """W of eq. (Fr): domain -> view -> weight among the clusters."""
        return self.mixture_.weights

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None, unknown: Unknown = "error") -> Floats:
        """Ratings on the domain's own scale, for pairs of users and items.

        users, items: one id, or a list or array of ids; one against many is repeated. A user is looked up in
        `domain`, then in the other domains, or only in `user_domain` where that is given. An item may be given by its
        title.
        rule: "mean" is best for squared error, "median" for absolute error.
        unknown: what to do about ids that are not known: "error", "skip" (NaN in their places) or "newcomer".
        """
        self._check_rule(rule)
        some_users, some_items, kept = self._pairs(domain, users, items, user_domain, unknown)
        return unknown_ids.in_their_places(self._decide(domain, rule, some_users, some_items), kept)

    def predict_codes(self, domain: str, users: NDArray[np.int32], items: NDArray[np.int32], *,
                      rule: str = "mean") -> Floats:
        """`predict` for codes of the domain instead of ids: what evaluation uses."""
        self._check_rule(rule)
        self._domain(domain)
        self._check_users_here("codes of users")
        return self._decide(domain, rule, self._known_users(domain, users), self._known_items(domain, items))

    def predict_proba(self, domain: str, users: Any, items: Any, *, user_domain: str | None = None,
                      unknown: Unknown = "error") -> Floats:
        """P(r | u, v), (pairs, values): a column for each value of the domain's scale. `unknown` as in `predict`."""
        users, items, kept = self._pairs(domain, users, items, user_domain, unknown)
        check_pairs(users, items)
        return unknown_ids.in_their_places(self._distribution(domain, users, items), kept)

    @overload
    def fold_in(self, ratings: Told) -> Guest: ...

    @overload
    def fold_in(self, ratings: Sequence[Told]) -> list[Guest]: ...

    def fold_in(self, ratings: Told | Sequence[Told]) -> Guest | list[Guest]:
        """A new user, from ratings in any of the domains: {"movies": {"Alien": 5, "Heat": 2}}; several from a list.

        In a domain of events, from what they did: {"movies": ["Alien", "Heat"]}. Every part places them as training
        would, with everything else kept. Without ratings they are like anybody. Items may be given by their titles.
        """
        self._check_fitted()
        if isinstance(ratings, (list, tuple)):
            return [self.fold_in(one) for one in ratings]
        if not isinstance(ratings, Mapping):
            raise ArgumentError(f"a guest's ratings must be given as {{domain: {{item: rating}}}}; got "
                                f"{brief(ratings)}.")
        told = {name: self._by_id(name, self._as_told(name, given, "item")) for name, given in ratings.items()}
        rated = {name: self._codes_and_values(name, given) for name, given in told.items()}
        parts = {id(part): part for part in self.factors_.values()}          # two domains may have the same one
        placed = {key: part.place(rated) for key, part in parts.items()}
        rows = {name: placed[id(part)][name] for name, part in self.factors_.items()}
        return Guest(self._mark, told, self.mixture_.place(self._in_levels(rated)), rows)

    def fold_in_item(self, domain: str, ratings: Mapping[Any, float] | Sequence[Hashable] = (), *,
                     attributes: Mapping[str, Any] | None = None) -> NewItem:
        """A new item of a domain, from the ratings its users gave it, {user: rating}, from its attributes,
        {"genre": "horror"}, or both; for events, from the users."""
        target = self._domain(domain)
        told = self._as_told(domain, ratings, "user") if ratings else {}
        if told or target.events:                # of whom absences are drawn
            self._check_users_here("a new item with ratings" if told else "a new item among events")
        known = self._attribute_row(domain, attributes)
        if not told and known is None:
            raise ArgumentError(f"a new item of {domain!r} needs at least one rating, or attributes; got neither.")
        users = np.array([target.users.code(user, f"user in {domain!r}") for user in told], np.int32)
        values = self._to_values(domain, told)
        if target.events:                        # those who would have been drawn for an item
            drawn = np.random.default_rng(0).integers(0, target.n_users, round(DRAWN * len(target) / target.n_items))
            absent = np.setdiff1d(drawn, users).astype(np.int32)
            users, values = np.concatenate([users, absent]), np.concatenate([values, np.zeros(len(absent), np.uint8)])
        return self._place_item(domain, users, values, known)

    def _place_item(self, domain: str, users: NDArray[np.int32], values: NDArray[np.uint8],
                    attributes: Floats | None) -> NewItem:
        levels = self.data_[domain].scale.to_levels(self.data_.n_levels)[values]
        row = self.factors_[domain].place_item(domain, users, values, attributes) if domain in self.factors_ else None
        return NewItem(self._mark, domain, self.mixture_.place_item(domain, users, levels), row)

    def similar_items(self, domain: str, item: Hashable, n: int = 10, *, to: str | None = None) -> list[Recommendation]:
        """Items that are liked by the same people or, in another domain (`to`), by the same tastes.

        A score is at most 1.
        """
        return insight.similar_items(self, domain, item, n, to or domain)

    def explain(self, domain: str, user: Any, item: Hashable, *,
                user_domain: str | None = None) -> insight.Explanation:
        """Why this rating is predicted: what each part says, tastes for attributes, and what is most like the item."""
        self._check_fitted()
        model = self if self.users_ is None else next(self.users_.by_part(self, [user]))[0]
        return insight.explain(model, domain, user, item, user_domain)

    @property
    def clusters_(self) -> list[insight.Cluster]:
        """Each user cluster and item cluster with its share and its typical members."""
        self._check_users_here("the typical members of clusters")
        return insight.clusters(self)

    def report(self, path: str | Path = "report.html", *, test: Ratings | None = None, audit: Any = None) -> Path:
        """Write one self-contained HTML page: what predictions use, what was pooled, the fit, calibration, clusters."""
        from pclf import report

        self._check_users_here("a report")
        return report.write(self, path, test=test, audit=audit)

    def save(self, path: str | Path, *, key: str | bytes | None = None, force: bool = False) -> None:
        """Write the model to one file (safetensors with a JSON manifest), or to a folder where its users are on disk,
        replacing it whole or not at all.

        key: a secret to sign it with, for `pclf.load(path, key=...)`. force: replace a file that is no model, too.
        """
        if self.users_ is None:
            return super().save(path, key=key, force=force)
        from pclf.models import disk

        disk.save(self, path, key, force)

    def _check_users_here(self, what: str) -> None:
        self._check_fitted()
        if self.users_ is not None:
            raise ArgumentError(f"{what} must have all users in memory, and those of this model are on disk. Fit a "
                                f"sample of them with engine='cpu'.")

    def rating_matrix(self, view: int, domain: str) -> Floats:
        """S of eqs. (Scom), (Sspeone), (Sspetwo): the mean rating of each co-cluster, on a domain's scale. (K, C)"""
        self._check_fitted()
        means: Floats = np.einsum("r,rkc->kc", self.data_.level_values(domain), self.members_[0].tables[view])
        return means

    def _layout(self, ratings: Ratings) -> Layout:
        raise ArgumentError(f"{type(self).__name__} must say which views it has.")

    def _check_settings(self, ratings: Ratings) -> None:
        self._check_annealing(ratings)

    def _check_annealing(self, ratings: Ratings) -> None:
        """The settings of the clusters."""
        for name, low in (("n_user_clusters", 1), ("max_iter", 1), ("steps_per_beta", 1)):
            check_whole(low, **{name: getattr(self, name)})
        if self.n_restarts != "auto":
            check_whole(1, "'auto' or ", n_restarts=self.n_restarts)
        for name in ("common", "users", "factors"):
            if name in ratings.domains:
                raise ArgumentError(f"a domain must not be called {name!r}: a part of the model is. Give it another "
                                    f"name.")
        for view in self._layout(ratings).views:
            check_whole(1, **{f"the number of item clusters of the view {view.name!r}": view.n_clusters})
        for name in ("user_prior", "item_prior", "table_prior", "tol"):
            value = getattr(self, name)
            if not is_real(value) or not 0 <= value < np.inf:    # NaN is not either
                raise ArgumentError(f"{name} must be 0 (off) or positive; got {value!r}.")
        if not isinstance(self.betas, (tuple, list)) or not self.betas or any(
                not is_real(beta) or not 0 < beta <= 1 for beta in self.betas):
            raise ArgumentError(f"betas must be one or more numbers in (0, 1]; got {self.betas!r}.")
        for name, known in (("start", (*STARTS, *(start + BY_ID for start in STARTS))),
                            ("combine", ("average", "best"))):
            if getattr(self, name) not in known:
                raise ArgumentError(f"{name} must be one of: {', '.join(known)}; got {getattr(self, name)!r}.")
        if self.n_user_clusters > ratings.n_users:
            warnings.warn(f"n_user_clusters={self.n_user_clusters} is more than the {ratings.n_users} users; "
                          f"some clusters will stay empty.", UserWarning, stacklevel=4)

    @property
    def _draws_by_id(self) -> bool:
        """Whether what chance decides depends on ids, and not on the order of rows."""
        return bool(self.start.endswith(BY_ID))

    def _n_restarts(self, n_ratings: int) -> int:
        if self.n_restarts != "auto":
            return int(self.n_restarts)
        return max(1, min(RESTARTS, RESTARTED // max(1, n_ratings)))

    def _chosen_runs(self, runs: list[Run]) -> list[Run]:
        """The restarts that predictions are made of: those that were not interrupted, all or the best."""
        whole = [r for r in runs if not r.interrupted] or runs
        return [max(whole, key=lambda r: r.trace[-1].objective)] if self.combine == "best" else whole

    def _adopt(self, ratings: Ratings, clusters: Clusters, trace: tuple[Step, ...], interrupted: bool,
               factors: Mapping[str, Factors] | None = None,
               neighbours: Mapping[str, Neighbours] | None = None) -> None:
        """A fit is here, all at once. Weights of the parts are set afterwards."""
        self._forget()                                    # what was kept of an earlier fit
        self.users_ = None
        self.mixture_, self.factors_ = clusters, dict(factors or {})
        self.factor_weights_ = dict.fromkeys(self.factors_, 1.0)
        self.neighbours_ = dict(neighbours or {})
        self.transfer_ = {}
        self.trace_, self.n_iter_, self.interrupted_ = trace, len(trace), interrupted
        self.data_ = ratings

    def _forget(self) -> None:
        for name in ("_seen", "_mark", "_values", "_anybody", "_left"):
            self.__dict__.pop(name, None)

    def _parts(self, domain: str) -> dict[str, float]:
        own = self.factor_weights_.get(domain, 0.0)
        names = [view.name for view in self.layout_.views]
        clusters = {f"{'its own' if names[i] == domain else names[i]} clusters": (1 - own) * weight
                    for i, weight in self.weights_[domain].items()}
        factors = "factors and neighbours" if domain in self.neighbours_ else "factors"
        return ({factors: own} if own else {}) | clusters

    @cached_property
    def _values(self) -> dict[str, Floats]:
        """The values of each domain's scale."""
        return {name: np.array(d.scale.values, np.float32) for name, d in self.data_.domains.items()}

    @cached_property
    def _mark(self) -> int:
        """What tells one fit from another: clusters and factors have other meanings there."""
        mark = 0
        for array in [*(table for member in self.members_ for table in member.tables),
                      *(part.domains[name].items for name, part in self.factors_.items())]:
            mark = crc32(np.ascontiguousarray(array).tobytes(), mark)
        return mark

    def _pairs(self, domain: str, users: Any, items: Any, user_domain: str | None,
               unknown: str) -> tuple[Users, Items, NDArray[np.bool_] | None]:
        """The users and items of pairs; and which of all pairs these are, where some are left out."""
        self._domain(domain)
        in_order(users, items)
        some_users, some_items, kept = unknown_ids.pairs(self, domain, as_list(users), as_list(items), user_domain,
                                                         unknown)
        if self.users_ is not None:
            return self.users_.users(self, domain, some_users, user_domain), self._items(domain, some_items), kept
        return self._users(find(self.data_, domain, some_users, user_domain)), self._items(domain, some_items), kept

    def _newcomer(self, name: Hashable) -> Guest:
        """Somebody of whom nothing is known."""
        return replace(self._anybody, name=name if hashable(name) else None)

    @cached_property
    def _anybody(self) -> Guest:
        return self.fold_in({})

    def _new_item(self, domain: str) -> NewItem:
        """An item of which nothing is known."""
        return self._place_item(domain, np.empty(0, np.int32), np.empty(0, np.uint8), None)

    def _here(self, domain: str) -> DomainFactors | None:
        part = self.factors_.get(domain)
        return None if part is None else part.domains[domain]

    def _known_users(self, domain: str, codes: NDArray[np.int32]) -> Users:
        own = self._here(domain)
        left = Left(self._left_of(domain), codes) if domain in self.neighbours_ else None
        return Users(self.mixture_.known_users(domain, codes), None if own is None else own.user_rows(codes), left)

    def _left_of(self, domain: str) -> Any:
        """What rows leave of the ratings of the users of a domain. (U, V)"""
        if domain not in self._left:
            own, d = self._here(domain), self.data_[domain]
            assert own is not None
            everybody = own.user_rows(np.arange(d.n_users, dtype=np.int32))
            self._left[domain] = left_of(own, everybody, d.user, d.item, d.value, self.neighbours_[domain].spread)[0]
        return self._left[domain]

    @cached_property
    def _left(self) -> dict[str, Any]:
        """Kept from one question to the next."""
        return {}

    def _known_items(self, domain: str, codes: NDArray[np.int32]) -> Items:
        own = self._here(domain)
        return Items(self.mixture_.known_items(domain, codes), None if own is None else own.item_rows[codes], codes)

    def _users(self, people: People) -> Users:
        """People as the parts of the model see them in a domain."""
        domain, known = people.domain, people.here >= 0
        if known.all():
            return self._known_users(domain, people.here)
        if len(self.data_[domain].users):
            out = self._known_users(domain, np.where(known, people.here, 0))
        else:                                     # all of them are on disk
            out = self._nobody(domain, len(people))
        part = self.factors_.get(domain)
        memberships, rows = [p.copy() for p in out.memberships], None if out.rows is None else out.rows.copy()
        for homes, at in people.by_home():
            home = max(homes, key=lambda name: len(self.data_[name]))
            for own, theirs in zip(memberships, self.mixture_.visitors(domain, home, homes[home]), strict=True):
                own[at] = theirs
            if rows is not None and part is not None:
                there = {name: codes for name, codes in homes.items() if name in part.domains}
                rows[at] = part.visitors(domain, there) if there else part.place({})[domain]
        guests = np.flatnonzero(~known & ~people.visiting)
        for i in guests:
            guest = people.ids[int(i)]
            if guest.model != self._mark:
                raise ArgumentError("this guest was placed by another fit: call fold_in of this model again.")
            for own, theirs in zip(memberships, guest.memberships[domain], strict=True):
                own[i] = theirs
            if rows is not None:
                rows[i] = guest.rows[domain]
        left = out.left
        if left is not None:
            assert rows is not None
            left = Left(left.ratings, np.where(known, left.rows, -1).astype(np.int32))
            left = left.with_others(guests, self._left_of_guests(domain, [people.ids[int(i)] for i in guests],
                                                                 rows[guests]))
        return Users(memberships, rows, left)

    def _nobody(self, domain: str, n: int) -> Users:
        """Room for so many users, of whom nothing is said yet."""
        own = self._here(domain)
        return Users([np.empty((n, member.users.shape[1])) for member in self.members_],
                     None if own is None else np.empty((n, own.item_rows.shape[1]), np.float32))

    def _left_of_guests(self, domain: str, guests: Sequence[Guest], rows: Floats) -> Any:
        """What rows leave of what guests rated. (guests, V)"""
        own = self._here(domain)
        assert own is not None
        told = [self._codes_and_values(domain, dict(guest.ratings.get(domain, {}))) for guest in guests]
        user = np.repeat(np.arange(len(told), dtype=np.int32), [len(codes) for codes, _ in told])
        item = np.concatenate([np.empty(0, np.int32), *(codes for codes, _ in told)])
        level = np.concatenate([np.empty(0, np.uint8), *(values for _, values in told)])
        return left_of(own, rows, user, item, level, self.neighbours_[domain].spread)[0]

    def _items(self, domain: str, items: Any) -> Items:
        if isinstance(items, list) and any(isinstance(item, NewItem) for item in items):
            known = [i for i, item in enumerate(items) if not isinstance(item, NewItem)]
            new = [i for i, item in enumerate(items) if isinstance(item, NewItem)]
            parts = ([self._items(domain, [items[i] for i in known])] if known else []) \
                + [self._items(domain, items[i]) for i in new]
            return Items.joined(parts).take(np.argsort([*known, *new]))
        if isinstance(items, NewItem):
            if items.model != self._mark:
                raise ArgumentError("this new item was placed by another fit: call fold_in_item of this model again.")
            if items.domain != domain:
                raise ArgumentError(f"this new item belongs to {items.domain!r}; got domain {domain!r}.")
            return Items([{i: p[None, :] for i, p in member.items()} for member in items.memberships],
                         None if items.row is None else items.row[None, :], np.array([-1], np.int32))
        return self._known_items(domain, self._item_codes(self._domain(domain), as_list(items)))

    def _weight(self, domain: str, users: Users, items_rows: Floats | None) -> float:
        """What the factors say in a prediction."""
        return 0.0 if users.rows is None or items_rows is None else self.factor_weights_.get(domain, 0.0)

    def _decide(self, domain: str, rule: str, users: Users, items: Items) -> Floats:
        check_pairs(users, items)
        values = np.array(self.data_[domain].scale.values)
        if self._device is not None and rule == "mean" and domain not in self.neighbours_:
            return self._on_scale(domain, self._mean_on_device(domain, users, items))
        probability = self._distribution(domain, users, items)
        if rule == "mean":
            return self._on_scale(domain, probability @ values)
        median: Floats = values[(probability.cumsum(axis=1) < 0.5).sum(axis=1).clip(0, len(values) - 1)]
        return median

    def _distribution(self, domain: str, users: Users, items: Items) -> Floats:
        """P(r | u, v) of pairs; one user or item against many is repeated. (n, R)"""
        parts, n = [], max(len(users), len(items)) if len(users) and len(items) else 0
        weight, own = self._weight(domain, users, items.rows), self._here(domain)
        for start in range(0, n, PAIRS):
            some_users, some_items = users[start:start + PAIRS], items[start:start + PAIRS]
            by_factors = None
            if weight and own is not None and some_users.rows is not None and some_items.rows is not None:
                by_factors = self._by_factors(domain, some_users, some_items)
            if by_factors is not None and weight == 1:
                parts.append(weights.pool(by_factors, by_factors, 1.0))
                continue
            mixture = self.mixture_.distribution(domain, some_users.memberships, some_items.memberships)
            parts.append(mixture if by_factors is None else weights.pool(by_factors, mixture, weight))
        return np.concatenate(parts) if parts else np.empty((0, len(self.data_[domain].scale)))

    def _by_factors(self, domain: str, users: Users, items: Items) -> Floats:
        """What factors say of pairs, moved by neighbours. (n, R)"""
        own = self._here(domain)
        assert own is not None
        assert users.rows is not None
        assert items.rows is not None
        logits = own.logits(*_same_length(users.rows, items.rows)).astype(np.float64)
        if users.left is not None:
            logits += self.neighbours_[domain].offsets(users.left, items.codes)[:, None] * own.tilt[0]
        return softmax(logits)

    def _mean_on_device(self, domain: str, users: Users, items: Items) -> Floats:
        """The mean of pairs, on the GPU that the model was fitted on. (n,)"""
        from pclf.engines.gpu import score_pairs

        theirs = np.concatenate([weight / len(self.members_) * member[i] for member in items.memberships
                                 for i, weight in self.weights_[domain].items()], axis=1).astype(np.float32)
        each = np.arange(max(len(users), len(items)))
        factors, own = self._for_device(domain, users, items.rows)
        return score_pairs(factors, theirs, each % len(users), each % len(items), self._device or "cuda", own)

    def _for_device(self, domain: str, users: Users, items: Floats | None) -> tuple[Floats, Any]:
        """Users' factors of the clusters, (n, D) or, where factors are to be pooled with them, (R, n, D) and these. D
        is 0 where nothing is left for the clusters to say."""
        from pclf.engines.gpu import Own

        values, weight, own = self._values[domain], self._weight(domain, users, items), self._here(domain)
        if not weight or own is None or users.rows is None or items is None:
            return self.mixture_.user_factors(domain, users.memberships, values[None, :])[0], None
        pooled = Own(packed(users.rows), packed(items), packed(own.base), packed(own.tilt), packed(values),
                     packed(np.full(len(users), weight)), weights.FLOOR)
        if weight == 1:
            return np.empty((len(values), len(users), 0), np.float32), pooled
        return np.stack(self.mixture_.user_factors(domain, users.memberships, np.eye(len(values)))), pooled

    def _item_vectors(self, domain: str) -> Floats | None:
        own = self._here(domain)
        return self.mixture_.item_factors(domain).T if own is None else own.item_factors

    def _top_n(self, people: People, n: int, exclude_seen: bool, allowed: NDArray[np.bool_],
               rank: str) -> Pool:
        """On the GPU that the model was fitted on, if there is one."""
        if self._device is None or not allowed.all() or people.domain in self.neighbours_:
            return super()._top_n(people, n, exclude_seen, allowed, rank)
        from pclf.engines.gpu import score_top_n

        side, own = self._users(people), self._here(people.domain)
        factors, pooled = self._for_device(people.domain, side, None if own is None else own.item_rows)
        left_out, items = self._left_out(people, exclude_seen), self.mixture_.item_factors(people.domain)
        found, score = score_top_n(factors, items.T, *left_out, n, self._device, pooled)
        return Pool(found.astype(np.int32), np.where(found >= 0, self._on_scale(people.domain, score), -np.inf))

    def _scores(self, people: People) -> Floats:
        """The mean rating of every item of the domain: one product of factors, or one a level to pool. (n, V)"""
        from pclf.engines.kernels import product
        from pclf.engines.pooling import pooled_means

        domain, users = people.domain, self._users(people)
        values, own = self._values[domain], self._here(domain)
        weight = self._weight(domain, users, None if own is None else own.item_rows)
        if not weight or own is None or users.rows is None:
            means: Floats = product(self.mixture_.user_factors(domain, users.memberships, values[None, :])[0],
                                    self.mixture_.item_factors(domain))
            return means
        mixture, shift = np.empty((0, 0, 0), np.float32), np.empty((0, 0), np.float32)
        if users.left is not None:
            shift = self.neighbours_[domain].of_all(users.left)
        if weight < 1:
            by_level = self.mixture_.user_factors(domain, users.memberships, np.eye(len(values), dtype=np.float32))
            items = self.mixture_.item_factors(domain)
            mixture = np.stack([product(row, items) for row in by_level])                   # (R, n, V)
        pooled: Floats = pooled_means(packed(users.rows), packed(own.item_rows.T), packed(own.base), packed(own.tilt),
                                      shift, mixture, packed(np.full(len(users), weight)), np.float32(weights.FLOOR),
                                      values)
        return pooled

    def _attribute_row(self, domain: str, attributes: Mapping[str, Any] | None) -> Floats | None:
        """The features of a new item. (1, P)"""
        if attributes is None:
            return None
        if self.data_.attributes is None:
            raise ArgumentError(f"the items of {domain!r} were fitted without attributes, so a new one cannot be "
                                f"placed by them. Pass attributes= to Ratings and fit again.")
        row: Floats = self.data_.attributes.encode([attributes]).toarray()
        return row

    def _as_told(self, domain: str, given: Mapping[Hashable, float] | Sequence[Hashable],
                 what: str) -> dict[Hashable, float]:
        """{item: rating}, or {user: rating} of an item; events may come as a list."""
        if isinstance(given, Mapping):
            return dict(given)
        if not self._domain(domain).events or isinstance(given, str) or not isinstance(given, Iterable):
            raise ArgumentError(f"{domain!r} must be given as {{{what}: rating}}; got {brief(given)}.")
        return dict.fromkeys(given, 1.0)

    def _by_id(self, domain: str, told: Mapping[Hashable, float]) -> dict[Hashable, float]:
        """What was said about items, which may have been named by their titles."""
        target = self._domain(domain)
        ids = target.items.decode(self._item_codes(target, list(told)))
        if len(set(ids)) < len(ids):
            twice = next(id for id in ids if ids.count(id) > 1)
            raise ArgumentError(f"an item must be rated once; {brief(twice)} of {domain!r} is there by id and by "
                                f"title.")
        return dict(zip(ids, told.values(), strict=True))

    def _codes_and_values(self, domain: str,
                          given: dict[Hashable, float]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """What a new user said about items, as positions on the scale; among events, with the absences that training
        would have drawn."""
        target = self._domain(domain)
        codes, values = self._item_codes(target, list(given)), self._to_values(domain, given)
        if not target.events:
            return codes, values
        _, absent = absences(np.zeros_like(codes), codes, target.n_items, np.random.default_rng(0))
        return np.concatenate([codes, absent]), np.concatenate([values, np.zeros(len(absent), np.uint8)])

    def _in_levels(self, rated: Mapping[str, tuple[NDArray[np.int32], NDArray[np.uint8]]]) -> dict[str, Any]:
        """Positions on the scales of domains as the levels that all of them share."""
        return {name: (codes, self.data_[name].scale.to_levels(self.data_.n_levels)[values])
                for name, (codes, values) in rated.items()}

    def _to_values(self, domain: str, ratings: Mapping[Hashable, float]) -> NDArray[np.uint8]:
        """Positions on the scale of ratings by item, or by user."""
        scale = self.data_.domains[domain].scale
        try:
            places, off = scale.locate(np.array(list(ratings.values()), np.float64))
        except (TypeError, ValueError):
            raise ArgumentError(f"ratings must be numbers on the scale of {domain!r}, {scale}; got "
                                f"{brief(list(ratings.values()))}.") from None
        for (name, rating), bad in zip(ratings.items(), off, strict=True):
            if bad:
                raise ArgumentError(f"the rating of {brief(name)} must be on the scale of {domain!r}, {scale}; got "
                                    f"{brief(rating)}.")
        return places

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_device": None, "_left": {}}      # who unpickles it may have no GPU

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, parts = self.mixture_.to_arrays(), list({id(part): part for part in self.factors_.values()}.values())
        for i, part in enumerate(parts):
            arrays |= part.to_arrays(f"factors.{i}")
        steps = [[s.iteration, s.beta, s.objective, s.held_out, s.seconds] for s in self.trace_]
        return arrays, {
            "clusters": self.mixture_.described(), "factors": [part.described() for part in parts],
            "factors_of": {name: next(i for i, part in enumerate(parts) if part is own)
                           for name, own in self.factors_.items()},
            "factor_weights": self.factor_weights_, "trace": steps, "interrupted": self.interrupted_,
            "transfer": {name: t.to_list() for name, t in self.transfer_.items()}}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        with warnings.catch_warnings():          # about the size of a fit that is over
            warnings.simplefilter("ignore")
            self._check_settings(data)
        _check_extra(extra, data)
        parts = [Factors.from_arrays(f"factors.{i}", arrays, described, data)
                 for i, described in enumerate(extra["factors"])]
        clusters = Clusters.from_arrays(data, arrays, extra["clusters"])
        _check_views(clusters.layout, self._layout(data))
        check_names("the model", arrays, (), [name for name in arrays if name.startswith("member.") or any(
            name.startswith(f"factors.{i}.") for i in range(len(parts)))])
        for name, i in extra["factors_of"].items():
            if i >= len(parts) or name not in parts[i].domains:
                raise ModelFileError(f"factors_of {name} must be a part that has the domain; got {i}")
        if set(extra["factors_of"].values()) != set(range(len(parts))):
            raise ModelFileError("factors must be those of some domain")
        self._adopt(data, clusters, tuple(Step(*step) for step in extra["trace"]), extra["interrupted"],
                    {name: parts[i] for name, i in extra["factors_of"].items()})
        self.factor_weights_ = extra["factor_weights"]
        self.transfer_ = {name: Transfer.from_list(t) for name, t in extra["transfer"].items()}


def _check_extra(extra: dict[str, Any], data: Ratings) -> None:
    """What a mixture keeps besides arrays: of which part the factors are, and what was found on the way."""
    def step(value: Any) -> bool:
        """a step of EM: iteration, beta, objective, held out or null, seconds"""
        return (isinstance(value, list) and len(value) == 5 and positive(value[0])
                and all(v is None or finite(v) for v in value[1:]) and None not in (*value[1:3], value[4]))

    def place(value: Any) -> bool:
        """a whole number of at least 0"""
        return value == 0 or positive(value)

    check_keys("the model", extra, {"clusters": dict, "factors": [dict], "factors_of": {str: place},
                                    "factor_weights": {str: share}, "trace": [step], "interrupted": bool,
                                    "transfer": {str: Transfer.is_list}})
    check_names("factors_of", extra["factors_of"], (), data.domains)
    check_names("factor_weights", extra["factor_weights"], extra["factors_of"])
    check_names("transfer", extra["transfer"], data.domains)


def _check_views(found: Layout, own: Layout) -> None:
    """A model of this class has these views; how many clusters they have may have been set anew after the fit."""
    if [(v.name, v.domains) for v in found.views] != [(v.name, v.domains) for v in own.views] \
            or found.separate_users != own.separate_users:
        raise ModelFileError(f"the layout must have the views {', '.join(view.name for view in own.views)}; got "
                                f"{', '.join(view.name for view in found.views)}")


def of_domain(setting: Any, name: str, what: str, names: list[str]) -> Any:
    """A setting that is one value, or a dict with one for each domain."""
    if not isinstance(setting, Mapping):
        return setting
    for key in setting:
        if key not in names:
            raise UnknownNameError(did_you_mean(key, names, f"domain in {what}"))
    if name not in setting:
        raise ArgumentError(f"{what} must name every domain; {name!r} is missing from {brief(dict(setting))}.")
    return setting[name]


def checked(weight: Any, what: str, domain: str) -> float:
    if not is_real(weight) or not 0 <= weight <= 1:
        raise ArgumentError(f"{what} must be 'auto' or a number between 0 and 1; got {weight!r} for domain {domain!r}.")
    return float(weight)


def is_real(value: Any) -> bool:
    """A number of Python or NumPy."""
    return isinstance(value, Real)   # not where it is compared: to a type checker, a Real has no >=


def _same_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    n = max(len(a), len(b))
    return np.broadcast_to(a, (n, *a.shape[1:])), np.broadcast_to(b, (n, *b.shape[1:]))
