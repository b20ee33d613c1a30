"""What FMM, RMGM and PCLF have in common: a mixture over co-clusters. A model is a layout of views.

After training, a user u has a membership p_u = P(k | u), an item v one p_v = P(c | v) in each view of its domain,
and the prediction in domain z is eq. (Fr), the views' predictions weighted:

    P(r | u, v) = sum over views of z:  W  p_u P(r | k, c) p_v

whose mean is the paper's W1 p_u S_com p_vcom + W2 p_u S_spe p_vspe. With several restarts, P(r | u, v) is
averaged over them.
"""

import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pclf import engines
from pclf.data.ratings import Ratings
from pclf.em.loop import STARTS, Callback, Run, Schedule, Step, run
from pclf.em.mstep import Priors, memberships
from pclf.em.state import Layout, Problem
from pclf.models import insight
from pclf.models.base import Floats, Recommender, as_list, as_ratings
from pclf.progress import progress

PAIRS = 1 << 14   # pairs whose distributions are computed at a time


@dataclass(frozen=True)
class Member:
    """One fitted restart, ready to predict."""

    users: Floats                       # (U, K)     P(k | u)
    items: tuple[Floats, ...]           # (V, C)     P(c | v), a view
    tables: tuple[Floats, ...]          # (R, K, C)  P(r | k, c), a view
    user_shares: Floats                 # (G, K)     a row for each population of users
    item_shares: tuple[Floats, ...]     # (G, C)     a view

    @classmethod
    def of(cls, fitted: Run, problem: Problem) -> "Member":
        """P(C_u | u), P(C_vcom | v), P(C_vspe | v) by Bayes' rule, as in Model Inference."""
        params, means = fitted.params, fitted.means
        return cls(
            memberships(params.users, problem.user_groups, means.users),
            tuple(memberships(items, groups, mean) for items, groups, mean
                  in zip(params.items, problem.item_groups, means.items, strict=True)),
            params.tables, means.users, means.items,
        )


@dataclass(frozen=True)
class Guest:
    """A user who was not in the training ratings, placed by `fold_in`."""

    ratings: Mapping[str, Mapping[Hashable, float]]
    memberships: tuple[Floats, ...] = field(repr=False)              # (K,) a member


@dataclass(frozen=True)
class NewItem:
    """An item that was not in the training ratings, placed by `fold_in_item`."""

    domain: str
    memberships: tuple[dict[int, Floats], ...] = field(repr=False)   # view -> (C,), a member


class _Mixture(Recommender):
    rules: ClassVar[tuple[str, ...]] = ("mean", "median")

    members_: tuple[Member, ...]
    layout_: Layout
    weights_: dict[str, dict[int, float]]   # domain -> view -> W of eq. (Fr)
    trace_: tuple[Step, ...]
    n_iter_: int

    def fit(self, data: Ratings | Mapping[str, Any], *, engine: str = "auto", dtype: str = "float32",
            n_threads: int | None = None, random_state: int | np.random.Generator | None = 0,
            verbose: bool = False, callbacks: Iterable[Callback] = ()) -> Self:
        """Learn from ratings, or from a dict of data frames, one a domain.

        engine: "auto", "cpu", "gpu" or "reference". dtype, n_threads: of the CPU engine.
        callbacks: called after each iteration with a `Step`; a true answer stops the run.
        """
        ratings = as_ratings(data)
        layout = self._layout(ratings)
        self._check_settings(ratings)
        machine = engines.create(engine, dtype=dtype, n_threads=n_threads, n_ratings=ratings.n_ratings)
        problem, schedule = Problem.of(ratings, layout), self._schedule()
        runs = []
        with progress(f"fit {type(self).__name__}", self.n_restarts * schedule.max_iter, shown=verbose) as advance:
            watchers = [lambda step: advance(1, f"objective {step.objective:,.0f}"), *callbacks]
            for rng in np.random.default_rng(random_state).spawn(self.n_restarts):
                start = STARTS[self.start](problem, rng)
                runs.append(run(machine, problem, start, schedule=schedule, priors=self._priors(),
                                callbacks=watchers))
        if self.combine == "best":
            runs = [max(runs, key=lambda r: r.trace[-1].objective)]
        self.layout_ = layout
        self.members_ = tuple(Member.of(r, problem) for r in runs)
        self.trace_ = runs[0].trace
        self.n_iter_ = len(self.trace_)
        self.weights_ = self._weights(ratings)
        self._keep(ratings)
        return self

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None) -> Floats:
        self._check_rule(rule)
        self._domain(domain)
        return self._decide(domain, rule, self._user_side(domain, users, user_domain), self._item_side(domain, items))

    def predict_codes(self, domain: str, users: NDArray[np.int32], items: NDArray[np.int32], *,
                      rule: str = "mean") -> Floats:
        self._check_rule(rule)
        self._domain(domain)
        return self._decide(domain, rule, self._known_users(domain, users), self._known_items(domain, items))

    def predict_proba(self, domain: str, users: Any, items: Any, *, user_domain: str | None = None) -> Floats:
        """P(r | u, v), (pairs, levels); the levels' ratings are `data_.level_values(domain)`."""
        self._domain(domain)
        return self._distribution(domain, self._user_side(domain, users, user_domain), self._item_side(domain, items))

    def fold_in(self, ratings: Mapping[str, Mapping[Hashable, float]]) -> Guest:
        """A new user, from ratings in any of the domains: {"movies": {"Alien": 5, "Heat": 2}}.

        Finds the membership that EM would, with everything else kept. Without ratings: the population's.
        """
        from pclf.engines.kernels import fold_in

        self._check_fitted()
        domains = [(name, *self._rated(name, given)) for name, given in ratings.items()]
        most = max(domains, key=lambda d: len(d[1]), default=None)
        group = self._user_group(most[0]) if most else 0
        out = []
        for member in self.members_:
            rows, weights = [np.empty((0, member.users.shape[1]))], [np.empty(0)]
            for name, codes, levels in domains:
                for i, item_rows in self._views(name):
                    items = member.items[i][item_rows[codes]]                                    # (n, C)
                    rows.append(np.einsum("nkc,nc->nk", member.tables[i][levels], items))
                    weights.append(np.full(len(codes), self.layout_.views[i].weight))
            share = member.user_shares[group].astype(np.float64)
            out.append(fold_in(np.concatenate(rows), np.concatenate(weights), share,
                               self._priors().users * share))
        return Guest(ratings, tuple(out))

    def fold_in_item(self, domain: str, ratings: Mapping[Hashable, float]) -> NewItem:
        """A new item of a domain, from the ratings its users gave it: {user: rating}."""
        from pclf.engines.kernels import fold_in

        target = self._domain(domain)
        users = [self._find_user(domain, user, domain)[1] for user in ratings]
        levels = self._to_levels(domain, list(ratings.values()))
        rows = self._user_rows(domain)[users]
        out = []
        for member in self.members_:
            placed = {}
            for i, item_rows in self._views(domain):
                group = self._item_group(i, item_rows[0] if target.n_items else 0)
                likelihood = np.einsum("nk,nkc->nc", member.users[rows], member.tables[i][levels])
                share = member.item_shares[i][group].astype(np.float64)
                placed[i] = fold_in(likelihood, np.ones(len(rows)), share, self._priors().items * share)
            out.append(placed)
        return NewItem(domain, tuple(out))

    def similar_items(self, domain: str, item: Hashable, n: int = 10, *, to: str | None = None) -> list[Any]:
        """Items that the user clusters rate alike, in the same domain or in another (`to`)."""
        return insight.similar_items(self, domain, item, n, to or domain)

    def explain(self, domain: str, user: Any, item: Hashable, *, user_domain: str | None = None) -> Any:
        """Why this rating is predicted: the clusters involved and what each view contributes."""
        return insight.explain(self, domain, user, item, user_domain)

    @property
    def clusters_(self) -> list[Any]:
        """Each user cluster and item cluster with its share and its typical members."""
        self._check_fitted()
        return insight.clusters(self)

    def rating_matrix(self, view: int, domain: str) -> Floats:
        """S of eqs. (Scom), (Sspeone), (Sspetwo): the mean rating of each co-cluster, on a domain's scale. (K, C)"""
        return np.einsum("r,rkc->kc", self.data_.level_values(domain), self.members_[0].tables[view])

    def _layout(self, ratings: Ratings) -> Layout:
        raise TypeError(f"{type(self).__name__} is a base class: use FMM, RMGM or PCLF.")

    def _weights(self, ratings: Ratings) -> dict[str, dict[int, float]]:
        """One view a domain: all of the prediction."""
        views = self.layout_.views
        return {name: {i: 1.0 for i, view in enumerate(views) if z in view.domains}
                for z, name in enumerate(ratings.domains)}

    def _schedule(self) -> Schedule:
        return Schedule(tuple(self.betas), self.steps_per_beta, self.max_iter, self.tol)

    def _priors(self) -> Priors:
        return Priors(self.user_prior, self.item_prior, self.table_prior)

    def _check_settings(self, ratings: Ratings) -> None:
        at_least_one = ("n_user_clusters", "max_iter", "n_restarts", "steps_per_beta")
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for view in self._layout(ratings).views:
            if view.n_clusters < 1:
                raise ValueError(f"the number of item clusters must be at least 1; got {view.n_clusters} "
                                 f"for the view {view.name!r}.")
        for name in ("user_prior", "item_prior", "table_prior"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 (off) or positive; got {getattr(self, name)}.")
        if not self.betas or any(not 0 < beta <= 1 for beta in self.betas):
            raise ValueError(f"betas must be one or more numbers in (0, 1]; got {self.betas!r}.")
        for name, known in (("start", STARTS), ("combine", ("average", "best"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of: {', '.join(known)}; got {getattr(self, name)!r}.")
        if self.n_user_clusters > ratings.n_users:
            warnings.warn(f"n_user_clusters={self.n_user_clusters} is more than the {ratings.n_users} users; "
                          f"some clusters will stay empty.", UserWarning, stacklevel=3)

    def _views(self, domain: str) -> list[tuple[int, NDArray[np.int32]]]:
        """The views of a domain: their numbers, and where in them the domain's items are."""
        return self._problem_rows[domain]

    @property
    def _problem_rows(self) -> dict[str, list[tuple[int, NDArray[np.int32]]]]:
        if "_rows" not in self.__dict__:
            problem = Problem.of(self.data_, self.layout_)
            self._groups = problem.user_groups, problem.item_groups
            self._people = dict(zip(self.data_.domains, problem.user_rows, strict=True))
            self._rows = {
                name: [(i, problem.item_rows[i][view.domains.index(z)])
                       for i, view in enumerate(self.layout_.views) if z in view.domains]
                for z, name in enumerate(self.data_.domains)
            }
        return self._rows

    def _keep(self, ratings: Ratings) -> None:
        super()._keep(ratings)
        self.__dict__.pop("_rows", None)

    def _user_rows(self, domain: str) -> NDArray[np.int32]:
        self._views(domain)
        return self._people[domain]

    def _user_group(self, domain: str) -> int:
        rows = self._user_rows(domain)
        return _group(self._groups[0], int(rows[0]) if len(rows) else 0)

    def _item_group(self, view: int, row: int) -> int:
        return _group(self._groups[1][view], int(row))

    def _known_users(self, domain: str, codes: NDArray[np.int32]) -> list[Floats]:
        rows = self._user_rows(domain)[codes]
        return [member.users[rows] for member in self.members_]

    def _known_items(self, domain: str, codes: NDArray[np.int32]) -> list[dict[int, Floats]]:
        return [{i: member.items[i][rows[codes]] for i, rows in self._views(domain)} for member in self.members_]

    def _user_side(self, domain: str, users: Any, user_domain: str | None) -> list[Floats]:
        """Memberships of users of any domain, and of guests: (n, K) a member."""
        wanted = as_list(users)
        own = self._domain(user_domain or domain)
        if not any(isinstance(user, Guest) for user in wanted):
            codes = own.users.encode(wanted)
            if (codes >= 0).all() and (own.name == domain or not self.layout_.separate_users):
                return self._known_users(own.name, codes)
        rows = [self._one_user(domain, user, user_domain) for user in wanted]
        return [np.stack([row[m] for row in rows]) for m in range(len(self.members_))]

    def _one_user(self, domain: str, user: Any, user_domain: str | None) -> tuple[Floats, ...]:
        if isinstance(user, Guest):
            if len(user.memberships) != len(self.members_):
                raise ValueError("this guest was folded into another model: call fold_in of this one.")
            return user.memberships
        home, code = self._find_user(domain, user, user_domain)
        if self.layout_.separate_users and home != domain:
            # User clusters of different domains have nothing in common: all we know is the population.
            return tuple(member.user_shares[self._user_group(domain)] for member in self.members_)
        return tuple(member.users[self._user_rows(home)[code]] for member in self.members_)

    def _item_side(self, domain: str, items: Any) -> list[dict[int, Floats]]:
        if isinstance(items, NewItem):
            if items.domain != domain:
                raise ValueError(f"this new item belongs to {items.domain!r}; got domain {domain!r}.")
            return [{i: p[None, :] for i, p in member.items()} for member in items.memberships]
        return self._known_items(domain, self._item_codes(self._domain(domain), as_list(items)))

    def _decide(self, domain: str, rule: str, users: list[Floats], items: list[dict[int, Floats]]) -> Floats:
        probability = self._distribution(domain, users, items)
        values = self.data_.level_values(domain)
        if rule == "mean":
            return self._on_scale(domain, probability @ values)
        return values[(probability.cumsum(axis=1) < 0.5).sum(axis=1).clip(0, len(values) - 1)]

    def _distribution(self, domain: str, users: list[Floats], items: list[dict[int, Floats]]) -> Floats:
        """P(r | u, v): the views' tables between the memberships, weighted, averaged over members. (n, R)"""
        n = max(len(users[0]), *(len(p) for p in items[0].values()))
        out = np.zeros((n, self.data_.n_levels))
        for start in range(0, n, PAIRS):
            block = slice(start, start + PAIRS)
            for member, p_users, p_items in zip(self.members_, users, items, strict=True):
                p_user = p_users[block] if len(p_users) > 1 else p_users
                for i, weight in self.weights_[domain].items():
                    p_item = p_items[i][block] if len(p_items[i]) > 1 else p_items[i]
                    table = member.tables[i]                                                # (R, K, C)
                    by_cluster = p_user @ table.transpose(1, 0, 2).reshape(table.shape[1], -1)
                    by_cluster = by_cluster.reshape(len(p_user), *table[:, 0].shape)        # (n, R, C)
                    out[block] += weight * np.einsum("nrc,nc->nr", *_same_length(by_cluster, p_item))
        out /= out.sum(axis=1)[:, None]
        return out

    def _factors(self, domain: str) -> tuple[Floats, Floats]:
        target = self.data_.domains[domain]
        users = self._mean_factors(domain, self._known_users(domain, np.arange(target.n_users)))
        return users, self._item_factors(domain)

    def _user_factors(self, domain: str, users: list[Any], user_domain: str | None) -> Floats:
        return self._mean_factors(domain, self._user_side(domain, users, user_domain))

    def _mean_factors(self, domain: str, users: list[Floats]) -> Floats:
        """p_u S of each member and view, side by side: (n, D)."""
        values = self.data_.level_values(domain)
        return np.concatenate([p @ np.einsum("r,rkc->kc", values, member.tables[i])
                               for member, p in zip(self.members_, users, strict=True)
                               for i in self.weights_[domain]], axis=1)

    def _item_factors(self, domain: str) -> Floats:
        """W p_v of each member and view, side by side: (V, D)."""
        rows = dict(self._views(domain))
        return np.concatenate([weight / len(self.members_) * member.items[i][rows[i]]
                               for member in self.members_
                               for i, weight in self.weights_[domain].items()], axis=1)

    def _rated(self, domain: str, given: Mapping[Hashable, float]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        codes = self._item_codes(self._domain(domain), list(given))
        return codes, self._to_levels(domain, list(given.values()))

    def _to_levels(self, domain: str, ratings: list[float]) -> NDArray[np.uint8]:
        scale = self.data_.domains[domain].scale
        return scale.to_levels(self.data_.n_levels)[scale.position(np.asarray(ratings, np.float64))]

    def _seen_items(self, domain: str, user: Any) -> NDArray[np.int32]:
        if isinstance(user, Guest):
            return self._item_codes(self.data_.domains[domain], list(user.ratings.get(domain, {})))
        return super()._seen_items(domain, user)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays = {}
        for m, member in enumerate(self.members_):
            arrays[f"{m}.users"], arrays[f"{m}.user_shares"] = member.users, member.user_shares
            for i in range(len(self.layout_.views)):
                arrays[f"{m}.items.{i}"], arrays[f"{m}.tables.{i}"] = member.items[i], member.tables[i]
                arrays[f"{m}.item_shares.{i}"] = member.item_shares[i]
        steps = [[s.iteration, s.beta, s.objective, s.held_out, s.seconds] for s in self.trace_]
        return arrays, {"members": len(self.members_), "weights": self.weights_, "trace": steps}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        self.layout_ = self._layout(data)
        views = range(len(self.layout_.views))
        self.members_ = tuple(
            Member(arrays[f"{m}.users"], tuple(arrays[f"{m}.items.{i}"] for i in views),
                   tuple(arrays[f"{m}.tables.{i}"] for i in views), arrays[f"{m}.user_shares"],
                   tuple(arrays[f"{m}.item_shares.{i}"] for i in views))
            for m in range(extra["members"])
        )
        self.weights_ = {name: {int(i): w for i, w in views.items()} for name, views in extra["weights"].items()}
        self.trace_ = tuple(Step(*step) for step in extra["trace"])
        self.n_iter_ = len(self.trace_)


def _group(groups: tuple[tuple[int, int], ...], row: int) -> int:
    return next((g for g, (start, stop) in enumerate(groups) if start <= row < stop), 0)


def _same_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    n = max(len(a), len(b))
    return np.broadcast_to(a, (n, *a.shape[1:])), np.broadcast_to(b, (n, *b.shape[1:]))
