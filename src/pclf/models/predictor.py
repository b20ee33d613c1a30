"""A fitted mixture: what it predicts, recommends and explains, and how it is kept.

After training, a user u has a membership p_u = P(k | u), an item v one p_v = P(c | v) in each view of its domain,
and the prediction in domain z is eq. (Fr), the views' predictions weighted:

    P(r | u, v) = sum over views of z:  W  p_u P(r | k, c) p_v

whose mean is the paper's W1 p_u S_com p_vcom + W2 p_u S_spe p_vspe. With several restarts, P(r | u, v) is
averaged over them. Where there is a personal view, it is pooled with that (see `weights`).
"""

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings
from pclf.door import check_keys, check_names
from pclf.em.loop import Step
from pclf.em.state import Layout, Problem, View
from pclf.errors import ModelFileError
from pclf.models import insight, weights
from pclf.models.base import Floats, Recommendation, check_pairs, in_order, packed
from pclf.models.lookup import _Lookup
from pclf.models.member import Items, Member, Users
from pclf.models.personal import Personal, tilts
from pclf.models.weights import Transfer, softmax

PAIRS = 1 << 14               # pairs whose distributions are computed at a time


class _Predictor(_Lookup):
    """What all mixtures do once they are fitted."""

    rules: ClassVar[tuple[str, ...]] = ("mean", "median")

    weights_: dict[str, dict[int, float]]   # domain -> view -> W of eq. (Fr)
    personal_weights_: dict[str, float]
    transfer_: dict[str, Transfer]
    trace_: tuple[Step, ...]
    n_iter_: int
    interrupted_: bool
    _device: str | None = None              # the GPU that the model was fitted on

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None) -> Floats:
        self._check_rule(rule)
        self._domain(domain)
        in_order(users, items)
        return self._decide(domain, rule, self._users(domain, users, user_domain), self._items(domain, items))

    def predict_codes(self, domain: str, users: NDArray[np.int32], items: NDArray[np.int32], *,
                      rule: str = "mean") -> Floats:
        self._check_rule(rule)
        self._domain(domain)
        return self._decide(domain, rule, self._known_users(domain, users), self._known_items(domain, items))

    def predict_proba(self, domain: str, users: Any, items: Any, *, user_domain: str | None = None) -> Floats:
        """P(r | u, v), (pairs, levels); the levels' ratings are `data_.level_values(domain)`."""
        self._domain(domain)
        in_order(users, items)
        pairs = self._users(domain, users, user_domain), self._items(domain, items)
        check_pairs(*pairs)
        return self._distribution(domain, *pairs)

    def similar_items(self, domain: str, item: Hashable, n: int = 10, *, to: str | None = None) -> list[Recommendation]:
        """Items that are liked by the same people or, in another domain (`to`), rated alike by the user clusters.

        A score is at most 1.
        """
        return insight.similar_items(self, domain, item, n, to or domain)

    def explain(self, domain: str, user: Any, item: Hashable, *,
                user_domain: str | None = None) -> insight.Explanation:
        """Why this rating is predicted: the clusters involved and what each view says."""
        return insight.explain(self, domain, user, item, user_domain)

    @property
    def clusters_(self) -> list[insight.Cluster]:
        """Each user cluster and item cluster with its share and its typical members."""
        self._check_fitted()
        return insight.clusters(self)

    def report(self, path: str | Path = "report.html", *, test: Ratings | None = None, audit: Any = None) -> Path:
        """Write one self-contained HTML page: what was pooled, the fit, clusters, matrices, calibration."""
        from pclf import report

        self._check_fitted()
        return report.write(self, path, test=test, audit=audit)

    def rating_matrix(self, view: int, domain: str) -> Floats:
        """S of eqs. (Scom), (Sspeone), (Sspetwo): the mean rating of each co-cluster, on a domain's scale. (K, C)"""
        self._check_fitted()
        means: Floats = np.einsum("r,rkc->kc", self.data_.level_values(domain), self.members_[0].tables[view])
        return means

    def _layout(self, ratings: Ratings) -> Layout:
        raise TypeError(f"{type(self).__name__} is a base class: use FMM, RMGM or PCLF.")

    def _keep(self, ratings: Ratings) -> None:
        super()._keep(ratings)
        self._factor_cache: dict[str, Floats] = {}
        self._values = {name: ratings.level_values(name).astype(np.float32) for name in ratings.domains}

    def _set_weights(self, domain: str, common: float, own: float) -> None:
        """Set W of eq. (Fr) for a domain, and the weight of its personal view."""
        z = list(self.data_.domains).index(domain)
        self.weights_[domain] = {i: 1.0 for i, view in enumerate(self.layout_.views) if z in view.domains}
        if domain in self.personal_:
            self.personal_weights_[domain] = own
        self._factor_cache.clear()

    def _own_weights(self, domain: str, users: Users) -> Floats:
        """What the personal view says about each of some users. (n,)"""
        weight = np.float32(self.personal_weights_.get(domain, 0.0))
        return np.where(users.rated, weight, np.minimum(weight, np.float32(weights.VISITOR)))

    def _decide(self, domain: str, rule: str, users: Users, items: Items) -> Floats:
        check_pairs(users, items)
        values = self.data_.level_values(domain)
        if self._device is not None and rule == "mean":
            return self._on_scale(domain, self._mean_on_device(domain, users, items))
        probability = self._distribution(domain, users, items)
        if rule == "mean":
            return self._on_scale(domain, probability @ values)
        median: Floats = values[(probability.cumsum(axis=1) < 0.5).sum(axis=1).clip(0, len(values) - 1)]
        return median

    def _mean_on_device(self, domain: str, users: Users, items: Items) -> Floats:
        """The mean of pairs, on the GPU that the model was fitted on. (n,)"""
        from pclf.engines.gpu import score_pairs

        theirs = np.concatenate([weight / len(self.members_) * member[i] for member in items.memberships
                                 for i, weight in self.weights_[domain].items()], axis=1).astype(np.float32)
        each = np.arange(max(len(users), len(items)))
        factors, own = self._for_device(domain, users, items.personal)
        return score_pairs(factors, theirs, each % len(users), each % len(items), self._device or "cuda", own)

    def _for_device(self, domain: str, users: Users, items: Floats | None) -> tuple[Floats, Any]:
        """Users' factors, (n, D) or, where a personal view is to be pooled, (R, n, D) and that view. D is 0 where
        nothing is left for the mixture to say."""
        from pclf.engines.gpu import Own

        values, weight = self._values[domain], self._own_weights(domain, users)
        if users.personal is None or items is None or not weight.any():
            return self._user_factors_by(domain, users, values[None, :])[0], None
        view = self.personal_[domain]
        own = Own(packed(users.personal), packed(items), packed(view.base), packed(tilts(len(values))), packed(values),
                  packed(weight), weights.FLOOR)
        if (weight == 1).all():
            return np.empty((len(values), len(users), 0), np.float32), own
        return np.stack(self._user_factors_by(domain, users, np.eye(len(values)))), own

    def _distribution(self, domain: str, users: Users, items: Items) -> Floats:
        """P(r | u, v) of pairs; one user or item against many is repeated. (n, R)"""
        parts, n = [], max(len(users), len(items)) if len(users) and len(items) else 0
        for start in range(0, n, PAIRS):
            some_users, some_items = users[start:start + PAIRS], items[start:start + PAIRS]
            weight = self._own_weights(domain, some_users)
            if some_users.personal is None or some_items.personal is None or not weight.any():
                parts.append(self._mixture(some_users, some_items, self.weights_[domain]))
                continue
            own = softmax(self.personal_[domain].logits(*_same_length(some_users.personal, some_items.personal)))
            unheard = (weight == 1).all()
            mixture = own if unheard else self._mixture(some_users, some_items, self.weights_[domain])
            parts.append(weights.pool(own, mixture, weight))
        return np.concatenate(parts) if parts else np.empty((0, self.data_.n_levels))

    def _mixture(self, users: Users, items: Items, view_weights: Mapping[int, float]) -> Floats:
        """The views' tables between the memberships, weighted, averaged over members. (n, R)"""
        out = np.zeros((max(len(users), len(items)), self.data_.n_levels))
        for member, p_user, p_items in zip(self.members_, users.memberships, items.memberships, strict=True):
            for i, weight in view_weights.items():
                if not weight:
                    continue
                table = member.tables[i]                                                # (R, K, C)
                by_cluster = p_user @ table.transpose(1, 0, 2).reshape(table.shape[1], -1)
                by_cluster = by_cluster.reshape(len(p_user), *table[:, 0].shape)        # (n, R, C)
                out += weight * np.einsum("nrc,nc->nr", *_same_length(by_cluster, p_items[i]))
        out /= out.sum(axis=1)[:, None]
        return out

    def _top_n(self, domain: str, users: list[Any] | None, n: int, exclude_seen: bool, allowed: NDArray[np.bool_],
               user_domain: str | None) -> tuple[NDArray[np.int32], Floats]:
        """On the GPU that the model was fitted on, if there is one."""
        if self._device is None or not allowed.all():
            return super()._top_n(domain, users, n, exclude_seen, allowed, user_domain)
        from pclf.engines.gpu import score_top_n

        codes = self._codes_in(domain, users, user_domain)
        side = self._known_users(domain, codes) if users is None else self._users(domain, users, user_domain)
        view = self.personal_.get(domain)
        factors, own = self._for_device(domain, side, view.items if view else None)
        left_out = self._left_out(domain, users, codes, exclude_seen, user_domain)
        found, score = score_top_n(factors, self._item_factors(domain).T, *left_out, n, self._device, own)
        return found.astype(np.int32), np.where(found >= 0, self._on_scale(domain, score), -np.inf)

    def _scores(self, domain: str, codes: NDArray[np.int32]) -> Floats:
        return self._mean_of_all(domain, self._known_users(domain, codes))

    def _scores_of(self, domain: str, users: list[Any], user_domain: str | None) -> Floats:
        return self._mean_of_all(domain, self._users(domain, users, user_domain))

    def _mean_of_all(self, domain: str, users: Users) -> Floats:
        """The mean rating of every item of the domain: one product of factors, or one a level to pool. (n, V)"""
        from pclf.engines.kernels import product

        values = self._values[domain]
        items = self._item_factors(domain)                                              # (D, V)
        weight = self._own_weights(domain, users)
        if users.personal is None or not weight.any():
            means: Floats = product(self._user_factors_by(domain, users, values[None, :])[0], items)
            return means
        mixture = np.empty((0, 0, 0), np.float32)
        if (weight < 1).any():
            by_level = self._user_factors_by(domain, users, np.eye(len(values), dtype=np.float32))
            mixture = np.stack([product(row, items) for row in by_level])                   # (R, n, V)
        return self.personal_[domain].pooled_means(users.personal, mixture, weight, np.float32(weights.FLOOR), values)

    def _user_factors_by(self, domain: str, users: Users, mix: Floats) -> list[Floats]:
        """For each row of `mix`, p_u times that combination of a table's levels, views side by side. (n, D) each"""
        return [np.concatenate([p @ np.einsum("r,rkc->kc", row, member.tables[i].astype(np.float32))
                                for member, p in zip(self.members_, users.memberships, strict=True)
                                for i in self.weights_[domain]], axis=1).astype(np.float32) for row in mix]

    def _item_factors(self, domain: str) -> Floats:
        """W p_v of each member and view, one below the other: (D, V)."""
        if domain not in self._factor_cache:
            rows = dict(self._views(domain))
            self._factor_cache[domain] = np.concatenate(
                [weight / len(self.members_) * member.items[i][rows[i]].T
                 for member in self.members_ for i, weight in self.weights_[domain].items()],
            ).astype(np.float32, order="C")
        return self._factor_cache[domain]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_device": None}      # who unpickles it may have no GPU

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for m, member in enumerate(self.members_):
            arrays |= member.to_arrays(f"member.{m}")
        for z, name in enumerate(self.data_.domains):
            if name in self.personal_:
                arrays |= self.personal_[name].to_arrays(f"personal.{z}")
        steps = [[s.iteration, s.beta, s.objective, s.held_out, s.seconds] for s in self.trace_]
        transfer = {name: [t.weight, t.gain, t.text] for name, t in self.transfer_.items()}
        return arrays, {"layout": asdict(self.layout_), "members": len(self.members_), "weights": self.weights_,
                        "personal_weights": self.personal_weights_, "trace": steps, "transfer": transfer,
                        "interrupted": self.interrupted_}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        with warnings.catch_warnings():          # about the size of a fit that is over
            warnings.simplefilter("ignore")
            self._check_settings(data)
        layout = extra["layout"]                 # not that of the settings, which may have been changed after fitting
        check_keys("layout", layout, {"n_user_clusters": int, "views": [dict], "separate_users": bool})
        for view in layout["views"]:
            check_keys("a view", view, {"name": str, "domains": [range(len(data.domains)).__contains__],
                                        "n_clusters": int, "weight": float})
        views = tuple(View(**{**view, "domains": tuple(view["domains"])}) for view in layout["views"])
        self.layout_ = Layout(**{**layout, "views": views})
        problem = Problem.of(data, self.layout_)
        _check_extra(extra, data, views)
        self.members_ = tuple(Member.from_arrays(f"member.{m}", arrays, problem) for m in range(extra["members"]))
        self.personal_ = {name: Personal.from_arrays(f"personal.{z}", arrays) for z, name in enumerate(data.domains)
                          if f"personal.{z}.users" in arrays}
        self.weights_ = {name: {int(i): w for i, w in views.items()} for name, views in extra["weights"].items()}
        self.personal_weights_ = extra["personal_weights"]
        self.transfer_ = {name: Transfer(*t) for name, t in extra["transfer"].items()}
        self.trace_ = tuple(Step(*step) for step in extra["trace"])
        self.n_iter_ = len(self.trace_)
        self.interrupted_ = extra.get("interrupted", False)


def _check_extra(extra: dict[str, Any], data: Ratings, views: tuple[View, ...]) -> None:
    """What a mixture keeps besides arrays: a weight for each view of each domain, and what was found on the way."""
    def share(value: Any) -> bool:
        """a number from 0 to 1"""
        return type(value) in (int, float) and 0 <= value <= 1

    check_keys("the model", extra, {"layout": dict, "members": int, "weights": {str: {str: share}},
                                    "personal_weights": {str: share}, "trace": [list], "transfer": {str: list}},
               {"interrupted": bool})
    if extra["members"] < 1:
        raise ModelFileError(f"members must be at least 1; got {extra['members']}")
    check_names("weights", extra["weights"], data.domains)
    for z, name in enumerate(data.domains):
        check_names(f"weights of {name}", extra["weights"][name],
                    [str(i) for i, view in enumerate(views) if z in view.domains])
        if abs(sum(extra["weights"][name].values()) - 1) > 1e-6:
            raise ModelFileError(f"weights of {name} must sum to 1; got {extra['weights'][name]}")
    for key in ("personal_weights", "transfer"):
        check_names(key, extra[key], (), data.domains)


def _same_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    n = max(len(a), len(b))
    return np.broadcast_to(a, (n, *a.shape[1:])), np.broadcast_to(b, (n, *b.shape[1:]))
