"""PCLF: the probabilistic cluster-level latent factor model, and the same idea a second time with factors.

Ren & Gao, "Improving Cross-domain Recommendation through Probabilistic Cluster-level Latent Factor Model". Part of a
taste is common to all domains, part belongs to one: learn both and weigh them. The paper does so with clusters. User
clusters are shared by all domains; items have two memberships, in T common clusters, shared by all domains, and in L_z
clusters of their own domain. The prediction in domain z weighs both, eq. (Fr):

    f(u, v) = W1 p_u S_com p_vcom  +  W2 p_u S_spez p_vspez,      W1 + W2 = 1

Nothing in the ratings says which cluster of readers is like which cluster of viewers, so clusters alone carry little
over. Factors (`pclf.factors`) hold on to what domains have in common, *bridges*: people, things, attributes. A bridge
is used in a domain only where held-out ratings allow it, and `transfer_` says what each brought.

Against RMGM: domains keep patterns of their own. Against FMM: they share some. Against both: factors.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pclf import engines
from pclf import neighbours as near
from pclf.blocks.engine import BlockEngine
from pclf.blocks.factors import Spread
from pclf.blocks.groups import Finish
from pclf.choice import Choice, Source, learn_from
from pclf.clusters.loop import Callback
from pclf.clusters.state import Engine
from pclf.data.events import with_absences
from pclf.data.ratings import Ratings
from pclf.door import check_names
from pclf.engines.cpu import cores
from pclf.engines.cpu_rows import Cores
from pclf.errors import ArgumentError, ModelFileError
from pclf.factors.fitted import Factors
from pclf.factors.hyper import Hyper
from pclf.factors.source import Ties
from pclf.factors.start import Start
from pclf.models import weights
from pclf.models.base import Floats, Recommender, as_ratings, random_numbers
from pclf.models.embeddings import Embeddings, learn_embeddings
from pclf.models.factors import check_whole
from pclf.models.learner import APART, Learner, hyper_of, n_factors_of
from pclf.models.lists import POOL, Lists, Told, attributes_of, chosen_in, columns_of
from pclf.models.mixture import PLAIN, Annealing, Mixture, checked, of_domain
from pclf.models.people import People, Users, find
from pclf.models.previous import ITERATIONS, Previous
from pclf.models.transfer import BRIDGES, Bridge, Transfer
from pclf.models.trial import Trial, near_of
from pclf.problem import Layout, View
from pclf.progress import progress
from pclf.serving.lists import Pool, best, in_blocks

Arrays = dict[str, NDArray[Any]]
CHUNK = 25                     # items of a pool that are looked at together


class PCLF(Mixture, Recommender):
    """Common and domain-specific item clusters over shared user clusters, and factors that bridges tie together.

    n_specific_clusters: L, one number or a dict with one for each domain.
    common_weight: W1, a number or a dict; "auto" learns it for each domain from ratings held out of training, and
    leaves it at 0 where the common clusters do not surely help there.
    factor_weight: what factors say beside clusters, 0 (nothing) to 1 (all); "auto" learns it; or a dict of domains.
    n_factors: axes of taste; "auto" takes 12 to 24, as the ratings support and time allows. Those that are not
    supported shrink to nothing.
    bridges: which of "people", "things" and "attributes" to use; "auto" tries those that the data have on held-out
    ratings.
    hyper: constants of the factor model, a `pclf.factors.hyper.Hyper`.
    user_prior, item_prior, table_prior: pseudo-ratings of the clusters' priors; 0 is plain maximum likelihood.
    start: "memberships" (cheap) or "posteriors" (the paper's), either with " by id" behind it for random numbers that
    depend on ids and not on the order of rows. betas, steps_per_beta: the annealing.
    max_iter, tol: when EM stops. early_stopping: try on four fifths of the ratings first, and stop all fits after the
    iteration that was best for the rest. n_restarts: fits of the clusters, "auto" for as many as pay. combine:
    "average" their predictions, or keep the "best".

    neighbours: move predictions by what is left of a person's ratings of things that people rate alike, such as two
    editions of a book, in domains where that surely helps with held-out ratings.
    lists: learn what people choose, so that `recommend` can sort by what they will pick and like.

    `PCLF.paper()` is the model as published. `transfer_` says what the other domains brought to each.
    """

    def __init__(self, n_user_clusters: int = 20, n_common_clusters: int = 10,
                 n_specific_clusters: int | Mapping[str, int] = 15, *,
                 common_weight: float | str | Mapping[str, float] = "auto",
                 factor_weight: float | str | Mapping[str, float] = "auto", n_factors: int | str = "auto",
                 bridges: str | tuple[str, ...] = "auto", hyper: Hyper | Mapping[str, Any] | None = None,
                 user_prior: float = 2.0, item_prior: float = 1.0, table_prior: float = 1.0,
                 start: str = "memberships", betas: tuple[float, ...] = (0.8, 0.9, 1.0), steps_per_beta: int = 5,
                 max_iter: int = 35, tol: float = 1e-5, early_stopping: bool = False,
                 n_restarts: int | str = "auto", combine: str = "average", neighbours: bool = True,
                 lists: bool = True) -> None:
        self.n_user_clusters = n_user_clusters
        self.n_common_clusters = n_common_clusters
        self.n_specific_clusters = n_specific_clusters
        self.common_weight = common_weight
        self.factor_weight = factor_weight
        self.n_factors = n_factors
        self.bridges = bridges
        self.hyper = hyper
        self.user_prior = user_prior
        self.item_prior = item_prior
        self.table_prior = table_prior
        self.start = start
        self.betas = betas
        self.steps_per_beta = steps_per_beta
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.n_restarts = n_restarts
        self.combine = combine
        self.neighbours = neighbours
        self.lists = lists

    @classmethod
    def paper(cls, **settings: Any) -> "PCLF":
        """The model as published: plain annealed EM from random posteriors, K=20, T=10, L=15, W1=0.35."""
        return cls(**{"common_weight": 0.35, "factor_weight": 0.0, "lists": False, **PLAIN, **settings})

    lists_: Lists | None

    def fit(self, data: Any, *, engine: str = "auto", dtype: str = "float32",
            n_threads: int | None = None, random_state: int | np.random.Generator | None = 0,
            verbose: bool = False, callbacks: Iterable[Callback] = (), previous: Any = None,
            work: str | Path | None = None, memory: str | float | None = None) -> Self:
        """Learn from ratings: Ratings, a data frame, or a dict of frames, one a domain.

        engine: "auto", "cpu", "gpu", "reference", or "disk" for files larger than memory, which leaves neighbours
        out. Data are then RatingFiles, or a dict of files, folders or patterns; work is a folder to work in, from
        which the same call goes on after it was stopped, and memory ("4GB") is what it may use. "spark" does the same
        on a cluster; data may be a dict of Spark frames there, and work is a folder that all executors see.
        dtype, n_threads: of the CPU, or of a task.
        callbacks: called after each iteration of EM with a `Step`; a true answer stops the run.
        previous: an older fit of the same domains to go on from, see `update`.
        Ctrl-C ends a fit early, once EM has begun on all the ratings: the clusters so far are kept, with a warning,
        `interrupted_` is True, and there are no factors, which come last.
        """
        if self._fits_on_disk(data, engine, dtype, n_threads, random_state, verbose, callbacks, work, memory,
                              previous):
            return self
        known, streams = as_ratings(data), random_numbers(random_state)
        self._check_settings(known)
        split_rng, trial_rng, factor_rng = streams.spawn(3)
        ratings = with_absences(known, split_rng, self._draws_by_id)
        layout, annealing = self._layout(known), Annealing.of(self)
        machine = engines.create(engine, dtype=dtype, n_threads=n_threads, n_ratings=ratings.n_ratings)
        rows_machine = engines.for_rows(machine, max(len(d.scale) for d in known.domains.values()))
        restarts, learner = self._n_restarts(ratings.n_ratings), Learner(self, known, rows_machine)
        seeds = streams.spawn(restarts)
        trial_seed, factor_seed = (int(seed) for seed in factor_rng.integers(2**63, size=2))
        before = None if previous is None else Previous(previous, type(self), known, layout)
        starts = self._starts(before, ratings, layout)
        if before is not None:
            restarts, seeds = len(starts), seeds[:1] * len(starts)
        learning = self._learns(known) and before is None
        variants = learner.variants() if learning else []
        listed = learner.steps(APART) if self.lists else 0
        steps = (restarts + learning) * self.max_iter + sum(map(learner.steps, [*variants, APART])) + listed
        with progress(f"fit {type(self).__name__}", steps, shown=verbose) as advance:
            watchers = [lambda step: advance(1, f"objective {step.objective:,.0f}"), *callbacks]
            swept = partial(advance, 1, "factors")
            trial, max_iter = None, self.max_iter if before is None else min(self.max_iter, ITERATIONS)
            if learning:
                part, held_out = weights.hold_out_of_each(weights.some_users(ratings, split_rng), split_rng)
                first, max_iter = annealing.trial(machine, part, held_out, layout, trial_rng, watchers,
                                                  self.early_stopping)
                trial = Trial(self, known, part, held_out, annealing.clusters(part, layout, [first]),
                               {ties: learner.fit(part, ties, trial_seed, swept) for ties in variants})
            runs, interrupted = self._restarts(annealing, machine, ratings, layout, seeds, watchers, max_iter, starts)
            factors: dict[str, Factors] = {}
            neighbours: dict[str, near.Neighbours] = {}
            lists = None
            try:
                if not interrupted and learner.domains:
                    wanted = {name: trial.ties(name) if trial else learner.ties for name in learner.domains}
                    starts_of: dict[Ties, Start] = {}
                    if before is not None:
                        wanted = {name: before.ties(name) for name in previous.factors_}
                        starts_of = {ties: before.factors(name) for name, ties in wanted.items()}
                    fits = {ties: learner.fit(known, ties, factor_seed, swept, starts_of.get(ties))
                            for ties in dict.fromkeys(wanted.values())}
                    factors = {name: fits[ties] for name, ties in wanted.items()}
                    wished = before.neighbours if before is not None else trial.neighbours if trial else {}
                    neighbours = {name: near_of(known[name], factors[name].domains[name], *wish)
                                  for name, wish in wished.items() if name in factors}
                if not interrupted and self.lists:
                    advance(0, "lists")
                    everybody = chosen_in(known, getattr(machine, "n_threads", None))
                    sample = everybody
                    if self._draws_by_id:
                        sample = everybody.ordered([d.users.keys() for d in known.domains.values()])
                    lists = Lists(learn_from(everybody, sample, seed=factor_seed,
                                             previous=None if before is None else before.choice,
                                             **self._known_of_items(known)), known)
                    advance(listed, "lists")
            except KeyboardInterrupt:
                interrupted = True
                warnings.warn("interrupted before the end; the model has the clusters, and no factors.", UserWarning,
                              stacklevel=2)
        chosen = self._chosen_runs(runs)
        self._adopt(known, annealing.clusters(ratings, layout, chosen), chosen[0].trace, interrupted, factors,
                    neighbours)
        self._device = getattr(machine, "device", None)
        self._set_after_trial(trial)
        if before is not None:
            for name in known.domains:
                self._set_weights(name, *before.weights[name])
                self.transfer_[name] = before.transfer[name]
        self.lists_ = lists
        return self

    def _row_on_disk(self, data: Ratings, n_ratings: int) -> int:
        hyper = hyper_of(self.hyper)
        return 0 if self.factor_weight == 0 else hyper.shape + hyper.attribute_factors + n_factors_of(
            self, n_ratings, data.events)

    def _factors_on_disk(self, engine: BlockEngine, trial: Any, seed: int, verbose: bool,
                         folder: Callable[..., Path]) -> tuple[dict[str, Factors], list[Finish]]:
        catalogue = engine.catalogue
        learner = Learner(self, catalogue.ratings, Cores(engine.n_threads), overlap=catalogue.overlap)
        wanted = {name: trial.ties(name) if trial and trial.fits else learner.ties for name in learner.domains}
        fits, finishes = {}, []
        with progress("learn factors", sum(map(learner.steps, set(wanted.values()))), shown=verbose) as advance:
            for m, ties in enumerate(dict.fromkeys(wanted.values())):
                spreads = [Spread(engine, names, ties, folder(ties, names, self.n_factors, learner.hyper), seed,
                                  learner.hyper.draw)
                           for names in ([learner.domains] if ties.any else [[name] for name in learner.domains])]
                fits[ties] = learner.fit_raters(spreads, ties, seed, partial(advance, 1, "factors"))
                finishes += [Finish(m, own.plan, own.given, own.rows) for own in spreads]
        return {name: fits[ties] for name, ties in wanted.items()}, finishes

    def _lists_on_disk(self, source: Source, sample: Callable[[], Ratings], data: Ratings, seed: int,
                       kept: Callable[[Callable[[], Arrays]], Arrays]) -> Lists | None:
        if not self.lists:
            return None
        arrays = kept(lambda: learn_from(source, chosen_in(sample(), source.n_threads), seed=seed,
                                         **self._known_of_items(data)).to_arrays("choice"))
        n_features = len(data.attributes.features) if data.attributes is not None else 0
        sizes = [d.n_items for d in data.domains.values()]
        return Lists(Choice.from_arrays("choice", arrays, sizes, 0, n_features), data)

    def _known_of_items(self, data: Ratings) -> dict[str, Any]:
        """What lists may know about items besides who chose them."""
        if (self.bridges != "auto" and "attributes" not in self.bridges) or not columns_of(data):
            return {}
        return {"attributes": [attributes_of(data, name) for name in data.domains], "columns": columns_of(data)}

    def _trial_on(self, sample: Callable[[], Ratings], known: Ratings, layout: Layout, machine: Engine,
                  split_rng: np.random.Generator, trial_rng: np.random.Generator,
                  trial_seed: int) -> tuple[Any, int]:
        if not self._learns(known):
            return None, self.max_iter
        annealing, some = Annealing.of(self), with_absences(sample(), split_rng, self._draws_by_id)
        part, held_out = weights.hold_out_of_each(weights.some_users(some, split_rng), split_rng)
        first, max_iter = annealing.trial(machine, part, held_out, layout, trial_rng, [], self.early_stopping)
        learner = Learner(self, some, Cores(getattr(machine, "n_threads", cores())))
        fits = {ties: learner.fit(part, ties, trial_seed, lambda: None) for ties in learner.variants()}
        clusters = annealing.clusters(part, layout, [first])
        return Trial(self, known, part, held_out, clusters, fits, near=False), max_iter

    def _set_after_trial(self, trial: Any) -> None:
        self.lists_ = None
        for name in self.data_.domains:
            common, own, gain = trial.weights(name) if trial else (*self._fixed(self.data_, name), None)
            self._set_weights(name, common, own)
            self.transfer_[name] = self._transfer(name, common, gain, trial.bridges(name) if trial else {})

    @property
    def ranks(self) -> tuple[str, ...]:                    # type: ignore[override]
        """What lists can be sorted by, the default first."""
        return ("liked", "chosen", "rating") if getattr(self, "lists_", None) is not None else ("rating",)

    def _top_n(self, people: People, n: int, exclude_seen: bool, allowed: NDArray[np.bool_],
               rank: str) -> Pool:
        if self.lists_ is None:
            return super()._top_n(people, n, exclude_seen, allowed, rank)
        n_items = self._domain(people.domain).n_items
        if rank != "rating":
            return in_blocks(lambda some: self._picked(people[some], n, exclude_seen, allowed, rank), len(people),
                             n_items)
        found = super()._top_n(people, n, exclude_seen, allowed, rank)
        return in_blocks(lambda some: self._with_numbers(people[some], found.codes[some], found.scores[some]),
                         len(people), n_items)

    def _picked(self, people: People, n: int, exclude_seen: bool, allowed: NDArray[np.bool_], rank: str) -> Pool:
        """The items that some people will pick, and like where that is the rank."""
        assert self.lists_ is not None
        lists, told, users = self.lists_, self.lists_.told(people), self._users(people)
        target = self._domain(people.domain)
        sorts = rank == "liked" and not target.events          # what was done is liked
        found = best(self._expected(told, people.domain, users), self._left_out(people, exclude_seen),
                     min(target.n_items, max(n, POOL)) if sorts else n, allowed)
        codes, expected = found.codes, np.where(found.codes >= 0, found.scores, 0.0)      # 0 times -inf is no number
        rating, liked, score = (np.zeros(codes.shape) for _ in range(3))
        values, open_ = np.array(target.scale.values), np.arange(len(people))
        for some in (slice(start, start + max(n, CHUNK)) for start in range(0, codes.shape[1], max(n, CHUNK))):
            p = self._of_lists(people.domain, users, open_, codes[open_, some])
            grade, liked[open_, some] = lists.grades(people.domain, p)
            rating[open_, some] = p @ values
            score[open_, some] = expected[open_, some] * liked[open_, some] / grade if sorts else expected[open_, some]
            if some.stop < codes.shape[1]:                     # who may still find something better further down?
                worst = np.partition(score[open_, :some.stop], -n, axis=1)[:, -n]
                open_ = open_[expected[open_, some.stop] * lists.most(people.domain) > worst]
        chosen = lists.probability(told, expected)
        pool = Pool(codes, np.where(codes >= 0, score, -np.inf),
                    {"rating": rating, "liked": chosen * liked, "chosen": chosen})
        return pool.take(np.argsort(-pool.scores, axis=1, kind="stable")[:, :n]) if sorts else pool

    def _with_numbers(self, people: People, codes: NDArray[np.int32], scores: Floats) -> Pool:
        """Lists with what else is known of their items."""
        assert self.lists_ is not None
        lists, told, users = self.lists_, self.lists_.told(people), self._users(people)
        p = self._of_lists(people.domain, users, np.arange(len(people)), codes)
        _, liked = lists.grades(people.domain, p)
        expected = np.take_along_axis(self._expected(told, people.domain, users), np.maximum(codes, 0), 1)
        chosen = lists.probability(told, expected)
        return Pool(codes, scores, {"rating": p @ np.array(self._domain(people.domain).scale.values),
                                    "liked": chosen * liked, "chosen": chosen})

    def _expected(self, told: Told, domain: str, users: Users, least: float = 0.0) -> Floats:
        """z of all items, see `lists`. Of people without choices here, and without others that tell about them, tastes
        say what they will choose among what everybody does: those that their ratings show, and those that the
        attributes of what they chose show. (people, V)"""
        assert self.lists_ is not None
        lists, own = self.lists_, self._here(domain)
        little, new = np.flatnonzero(lists.little(told)), np.flatnonzero(lists.unknown(told))
        odds: Floats | None = None
        if len(little):
            by_attributes = lists.odds(told, little)
            if by_attributes is not None or (own is not None and len(new)):
                odds = np.ones((len(told.people), self._domain(domain).n_items), np.float32)
            if odds is not None and by_attributes is not None:
                odds[little] = by_attributes
            if odds is not None and own is not None and len(new):
                assert users.rows is not None
                odds[new] *= own.lifts(users.rows[new])
        return lists.expected(told, least, odds)

    def _of_lists(self, domain: str, users: Users, some: NDArray[np.intp], codes: NDArray[np.int32]) -> Floats:
        """P(r | u, v) of the items of lists of some users; short lists end in the first item. (some, n, R)"""
        each = np.repeat(some, codes.shape[1])
        pairs = users.take(each)
        items = self._known_items(domain, np.maximum(codes, 0).ravel())
        return self._distribution(domain, pairs, items).reshape(*codes.shape, len(self._domain(domain).scale))

    def embeddings(self, domain: str, size: int = 256, *, random_state: int = 0) -> Embeddings:
        """Vectors of a domain's items and of people, whose inner products sort items as `rank_by="chosen"` does.

        size: numbers of a vector, and one more for what everybody chooses. The more, the closer the lists are to those
        of `recommend`; `agreement` says how close. What a person has is not left out: an index does not know it.

        >>> books = model.embeddings("books")                    # doctest: +SKIP
        >>> books.vectors @ books.embedding("ana-000")           # doctest: +SKIP
        """
        target = self._domain(domain)
        check_whole(1, size=size)
        self._check_users_here("vectors for an index")
        if self.lists_ is None:
            raise ArgumentError("a model without lists has no vectors of what people choose: fit PCLF(lists=True).")
        lists, z = self.lists_, list(self.data_.domains).index(domain)
        setting, items = lists.choice.settings[z], lists.choice.items[z]
        mean = setting.pull * items.mean_times / items.spread

        def of_people(people: People) -> tuple[Floats, Any]:
            told = lists.told(people)
            scores = self._expected(told, domain, self._users(people), least=-np.inf)
            return scores - mean + told.rows[z].toarray(), told.rows[z]      # what is chosen is as if it were not yet

        return learn_embeddings(
            target, mean, lambda codes: of_people(find(self.data_, domain, target.users.decode(codes), None)),
            lambda users, home: of_people(find(self.data_, domain, users, home))[0], size,
            np.random.default_rng(random_state))

    @property
    def common_rating_matrix_(self) -> dict[str, Floats]:
        """S_com of eq. (Scom) on each domain's scale: (K, T). The same matrix where the scales are the same."""
        self._check_fitted()
        return {name: self.rating_matrix(0, name) for name in self.data_.domains}

    @property
    def specific_rating_matrices_(self) -> dict[str, Floats]:
        """S_spez of eqs. (Sspeone), (Sspetwo): (K, L_z) for each domain."""
        self._check_fitted()
        return {name: self.rating_matrix(1 + z, name) for z, name in enumerate(self.data_.domains)}

    def set_common_weight(self, domain: str, weight: float) -> None:
        """Change W1 of a domain after training: predictions follow at once, as far as clusters count in them."""
        self._domain(domain)
        weight = checked(weight, "common_weight", domain)
        self._set_weights(domain, weight, self.factor_weights_.get(domain, 0.0))
        bridges = self.transfer_[domain].bridges
        self.transfer_[domain] = Transfer(weight, None, f"W1 of {domain} is {weight:g}, as set.", bridges)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, extra = super()._state()
        if self.lists_ is not None:
            arrays |= self.lists_.choice.to_arrays("choice")
        for z, name in enumerate(self.data_.domains):
            if name in self.neighbours_:
                arrays |= self.neighbours_[name].to_arrays(f"neighbours.{z}")
        return arrays, {**extra, "lists": self.lists_ is not None}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        of_lists = {name: array for name, array in arrays.items() if name.startswith("choice.")}
        if not isinstance(extra, dict) or not isinstance(extra.get("lists"), bool) or extra["lists"] != bool(of_lists):
            raise ModelFileError("the model must say whether it has lists, and have them if it does")
        found = {name: array for name, array in arrays.items() if name.startswith("neighbours.")}
        super()._set_state(data, {name: a for name, a in arrays.items() if name not in of_lists | found},
                           {key: value for key, value in extra.items() if key != "lists"})
        self._set_neighbours(found)
        sizes = [d.n_items for d in data.domains.values()]
        n_features = len(data.attributes.features) if data.attributes is not None else 0
        self.lists_ = Lists(Choice.from_arrays("choice", of_lists, sizes, data.n_users, n_features),
                            data) if of_lists else None

    def _set_neighbours(self, arrays: dict[str, NDArray[Any]]) -> None:
        prefixes = {f"neighbours.{z}": name for z, name in enumerate(self.data_.domains)}
        self.neighbours_ = {}
        for prefix in sorted({key.rpartition(".")[0] for key in arrays}):
            name = prefixes.get(prefix, "")
            if name not in self.factors_ or self.data_[name].events:
                raise ModelFileError(f"the model must not have {prefix}: only a domain of ratings with factors has "
                                     f"neighbours")
            own = {key: array for key, array in arrays.items() if key.rpartition(".")[0] == prefix}
            check_names(prefix, own, [f"{prefix}.{part}" for part in ("start", "item", "value", "numbers")])
            self.neighbours_[name] = near.Neighbours.from_arrays(prefix, own, self.data_[name].n_items)

    def _layout(self, ratings: Ratings) -> Layout:
        names = list(ratings.domains)
        common = View("common", tuple(range(len(names))), self.n_common_clusters)
        specific = (View(name, (z,), of_domain(self.n_specific_clusters, name, "n_specific_clusters", names))
                    for z, name in enumerate(names))
        return Layout(self.n_user_clusters, (common, *specific))

    def _check_settings(self, ratings: Ratings) -> None:
        super()._check_settings(ratings)
        if self.n_factors != "auto":
            check_whole(0, "'auto' or ", n_factors=self.n_factors)
        for name in ratings.domains:
            self._fixed(ratings, name)
        if self.bridges != "auto" and (not isinstance(self.bridges, (tuple, list))
                                      or any(b not in BRIDGES for b in self.bridges)):
            raise ArgumentError(f"bridges must be 'auto' or some of {', '.join(map(repr, BRIDGES))} in a tuple; got "
                                f"{self.bridges!r}.")
        hyper_of(self.hyper)

    def _fixed(self, ratings: Ratings, name: str) -> tuple[float, float]:
        """The weights of common clusters and of factors as they are set; before "auto" is learned, 0 and 1."""
        common, factors = self._set(ratings, name)
        return 0.0 if common is None else common, 1.0 if factors is None else factors

    def _set(self, ratings: Ratings, name: str) -> tuple[float | None, float | None]:
        """The same, None where it is to be learned."""
        names = list(ratings.domains)
        given = [(what, of_domain(getattr(self, what), name, what, names))
                 for what in ("common_weight", "factor_weight")]
        common, factors = (None if weight == "auto" else checked(weight, what, name) for what, weight in given)
        return common, factors

    def _learns(self, ratings: Ratings) -> bool:
        return self.early_stopping or any(None in self._set(ratings, name) for name in ratings.domains)

    def _set_weights(self, domain: str, common: float, own: float) -> None:
        """W of eq. (Fr) for a domain, and the weight of its factors."""
        z = list(self.data_.domains).index(domain)
        self.mixture_.set_weights(domain, {0: common, 1 + z: 1.0 - common})
        if domain in self.factors_:
            self.factor_weights_[domain] = own

    def _transfer(self, domain: str, weight: float, gain: float | None, bridges: Mapping[str, Bridge]) -> Transfer:
        set_to = self.common_weight[domain] if isinstance(self.common_weight, Mapping) else self.common_weight
        if set_to != "auto":
            text = f"clusters: W1 of {domain} is {weight:g}, as set."
        elif not weight:
            text = f"clusters: held-out ratings of {domain} do not surely gain from common clusters, so W1 is 0."
        else:
            text = (f"clusters: W1 of {domain} is {weight:g}; common clusters lower the error of what is predicted of "
                    f"held-out ratings by {gain or 0:.1g}.")
        return Transfer(weight, gain, text, dict(bridges))
