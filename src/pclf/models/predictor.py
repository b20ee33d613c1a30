"""A fitted mixture: what it predicts, recommends and explains, and how it is kept.

After training, a user u has a membership p_u = P(k | u), an item v one p_v = P(c | v) in each view of its domain,
and the prediction in domain z is eq. (Fr), the views' predictions weighted:

    P(r | u, v) = sum over views of z:  W  p_u P(r | k, c) p_v

whose mean is the paper's W1 p_u S_com p_vcom + W2 p_u S_spe p_vspe. With several restarts, P(r | u, v) is
averaged over them. Where there is a personal view, it is pooled with that (see `weights`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pclf.data.events import DRAWN, absences
from pclf.data.ratings import Ratings
from pclf.em.loop import Step
from pclf.em.state import Layout, Problem, View
from pclf.models import insight, weights
from pclf.models.base import Floats, Recommendation, Recommender, as_list, check_pairs, in_order
from pclf.models.member import Guest, Items, Member, NewItem, Users
from pclf.models.personal import Personal, tilts
from pclf.models.weights import Transfer, softmax

PAIRS = 1 << 14               # pairs whose distributions are computed at a time
NO_RATINGS = np.empty(0, np.int32), np.empty(0, np.uint8)    # items and levels


class _Predictor(Recommender):
    """What all mixtures do once they are fitted."""

    rules: ClassVar[tuple[str, ...]] = ("mean", "median")

    members_: tuple[Member, ...]
    layout_: Layout
    weights_: dict[str, dict[int, float]]   # domain -> view -> W of eq. (Fr)
    personal_: dict[str, Personal]
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

    def fold_in(self, ratings: Mapping[str, Mapping[Hashable, float] | Sequence[Hashable]]) -> Guest:
        """A new user, from ratings in any of the domains: {"movies": {"Alien": 5, "Heat": 2}}.

        In a domain of events, from what they did: {"movies": ["Alien", "Heat"]}. Finds the membership that EM would,
        with everything else kept. Without ratings: the population's.
        """
        self._check_fitted()
        if not isinstance(ratings, Mapping):
            raise ValueError(f"a guest's ratings must be given as {{domain: {{item: rating}}}}; got {ratings!r}.")
        told = {name: self._as_told(name, given, "item") for name, given in ratings.items()}
        rated = {name: self._codes_and_levels(name, given) for name, given in told.items()}
        names = list(self.data_.domains)
        if self.layout_.separate_users:          # clusters of different domains have nothing in common
            memberships = {name: self._memberships({z: rated[z] for z in rated if z == name}, name) for name in names}
        else:
            most = max(rated, key=lambda name: len(rated[name][0]), default=names[0])
            memberships = dict.fromkeys(names, self._memberships(rated, most))
        return Guest(self._mark, told, memberships, self._place(rated))

    def _memberships(self, rated: Mapping[str, tuple[NDArray[np.int32], NDArray[np.uint8]]],
                     home: str) -> tuple[Floats, ...]:
        """P(k | u) of a new user, by each member. Without ratings: that of the users of `home`."""
        from pclf.engines.kernels import fold_in

        out = []
        for member in self.members_:
            rows, counts = [np.empty((0, member.users.shape[1]))], [np.empty(0)]
            for name, (codes, levels) in rated.items():
                for i, item_rows in self._views(name):
                    items = member.items[i][item_rows[codes]]                                    # (n, C)
                    rows.append(np.einsum("nkc,nc->nk", member.tables[i][levels], items))
                    counts.append(np.full(len(codes), self.layout_.views[i].weight))
            share = member.user_shares[self._user_group(home)].astype(np.float64)
            out.append(fold_in(np.concatenate(rows), np.concatenate(counts), share, self.user_prior * share))
        return tuple(out)

    def _as_told(self, domain: str, given: Mapping[Hashable, float] | Sequence[Hashable],
                 what: str) -> dict[Hashable, float]:
        """{item: rating}, or {user: rating} of an item; events may come as a list."""
        if isinstance(given, Mapping):
            return dict(given)
        if not self._domain(domain).events or isinstance(given, str) or not isinstance(given, Iterable):
            raise ValueError(f"{domain!r} must be given as {{{what}: rating}}; got {given!r}.")
        return dict.fromkeys(given, 1.0)

    def _codes_and_levels(self, domain: str,
                          given: dict[Hashable, float]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """What a new user said about items; among events, with the absences that training would have drawn."""
        target = self._domain(domain)
        codes, levels = self._item_codes(target, list(given)), self._to_levels(domain, given)
        if not target.events:
            return codes, levels
        _, absent = absences(np.zeros_like(codes), codes, target.n_items, np.random.default_rng(0))
        return np.concatenate([codes, absent]), np.concatenate([levels, self._not_done(domain, len(absent))])

    def _not_done(self, domain: str, n: int) -> NDArray[np.uint8]:
        """The level of n absences."""
        return np.full(n, self._domain(domain).scale.to_levels(self.data_.n_levels)[0])

    def _place(self, rated: Mapping[str, tuple[NDArray[np.int32], NDArray[np.uint8]]]) -> dict[str, Floats]:
        """The rows of a new user in the personal views: where they rated, and where people are the same, elsewhere."""
        rows = {name: self.personal_[name].place(codes, levels, self._beside(name, {}))
                for name, (codes, levels) in rated.items() if name in self.personal_ and len(codes)}
        if not self._people_are_shared or not rows:
            return rows
        return {name: view.place(*rated.get(name, NO_RATINGS), self._beside(name, rows))
                for name, view in self.personal_.items()}

    def fold_in_item(self, domain: str, ratings: Mapping[Hashable, float] | Sequence[Hashable]) -> NewItem:
        """A new item of a domain, from the ratings its users gave it: {user: rating}; for events, from the users."""
        from pclf.engines.kernels import fold_in

        target, ratings = self._domain(domain), self._as_told(domain, ratings, "user")
        if not ratings:
            raise ValueError(f"a new item of {domain!r} needs at least one rating; got none.")
        users = np.array([target.users.code(user, f"user in {domain!r}") for user in ratings], np.int32)
        levels = self._to_levels(domain, ratings)
        if target.events:                        # those who would have been drawn for an item
            drawn = np.random.default_rng(0).integers(0, target.n_users, round(DRAWN * len(target) / target.n_items))
            absent = np.setdiff1d(drawn, users).astype(np.int32)
            users, levels = (np.concatenate(both) for both in ((users, absent),
                                                               (levels, self._not_done(domain, len(absent)))))
        rows = self._user_rows(domain)[users]
        out = []
        for member in self.members_:
            placed = {}
            for i, item_rows in self._views(domain):
                group = _group(self._groups[1][i], int(item_rows[0]) if len(item_rows) else 0)
                likelihood = np.einsum("nk,nkc->nc", member.users[rows], member.tables[i][levels])
                share = member.item_shares[i][group].astype(np.float64)
                placed[i] = fold_in(likelihood.astype(np.float64), np.ones(len(rows)), share, self.item_prior * share)
            out.append(placed)
        own = self.personal_[domain].place_item(users, levels) if domain in self.personal_ else None
        return NewItem(self._mark, domain, tuple(out), own)

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
        return np.einsum("r,rkc->kc", self.data_.level_values(domain), self.members_[0].tables[view])

    def _layout(self, ratings: Ratings) -> Layout:
        raise TypeError(f"{type(self).__name__} is a base class: use FMM, RMGM or PCLF.")

    def _set_weights(self, domain: str, common: float, own: float) -> None:
        """Set W of eq. (Fr) for a domain, and the weight of its personal view."""
        z = list(self.data_.domains).index(domain)
        self.weights_[domain] = {i: 1.0 for i, view in enumerate(self.layout_.views) if z in view.domains}
        if domain in self.personal_:
            self.personal_weights_[domain] = own
        self._factor_cache.clear()

    # Who and what is asked about

    def _keep(self, ratings: Ratings) -> None:
        super()._keep(ratings)
        problem = Problem.of(ratings, self.layout_)
        self._groups = problem.user_groups, problem.item_groups
        self._people = dict(zip(ratings.domains, problem.user_rows, strict=True))
        self._view_rows = {
            name: [(i, problem.item_rows[i][view.domains.index(z)])
                   for i, view in enumerate(self.layout_.views) if z in view.domains]
            for z, name in enumerate(ratings.domains)
        }
        self._factor_cache: dict[str, Floats] = {}
        self._values = {name: ratings.level_values(name).astype(np.float32) for name in ratings.domains}

    def _views(self, domain: str) -> list[tuple[int, NDArray[np.int32]]]:
        """The views of a domain, the common one first: their numbers, and where in them the domain's items are."""
        return self._view_rows[domain]

    def _user_rows(self, domain: str) -> NDArray[np.int32]:
        return self._people[domain]

    def _user_group(self, domain: str) -> int:
        rows = self._user_rows(domain)
        return _group(self._groups[0], int(rows[0]) if len(rows) else 0)

    def _known_users(self, domain: str, codes: NDArray[np.int32]) -> Users:
        rows = self._user_rows(domain)[codes]
        view = self.personal_.get(domain)
        return Users([member.users[rows] for member in self.members_], view and view.users[codes],
                     view.rated[codes] if view else np.zeros(len(rows), bool))

    def _known_items(self, domain: str, codes: NDArray[np.int32]) -> Items:
        view = self.personal_.get(domain)
        return Items([{i: member.items[i][rows[codes]] for i, rows in self._views(domain)}
                      for member in self.members_], view and view.items[codes])

    def _users(self, domain: str, users: Any, user_domain: str | None) -> Users:
        """Users of any domain, and guests, as `domain` sees them."""
        wanted, home = as_list(users), user_domain or domain
        known = self._domain(home).users
        if (home == domain or not self.data_.shared_users) and not any(isinstance(user, Guest) for user in wanted):
            codes = known.encode(wanted)
            if (codes >= 0).all():
                return self._known_users(domain, codes) if home == domain else self._strangers(domain, home, codes)
        each = [self._one_user(domain, user, user_domain) for user in wanted]
        blank = self.personal_[domain].blank if domain in self.personal_ else None
        return Users(
            [np.stack([own[m] for own, *_ in each]) for m in range(len(self.members_))],
            None if blank is None else np.stack([blank if row is None else row for _, row, _ in each]),
            np.array([rated for *_, rated in each]),
        )

    def _strangers(self, domain: str, home: str, codes: NDArray[np.int32]) -> Users:
        """Users of another domain, of whom the clusters alone know something here: nothing, where these are apart."""
        rows, view = self._user_rows(home)[codes], self.personal_.get(domain)
        if self.layout_.separate_users:
            memberships = [np.tile(member.user_shares[self._user_group(domain)], (len(codes), 1))
                           for member in self.members_]
        else:
            memberships = [member.users[rows] for member in self.members_]
        return Users(memberships, view and np.tile(view.blank, (len(codes), 1)), np.zeros(len(codes), bool))

    def _one_user(self, domain: str, user: Any,
                  user_domain: str | None) -> tuple[tuple[Floats, ...], Floats | None, bool]:
        """Memberships, a member each, the row in the domain's personal view, and if they have ratings there."""
        if isinstance(user, Guest):
            if user.model != self._mark:
                raise ValueError("this guest was placed by another fit: call fold_in of this model again.")
            return user.memberships[domain], user.personal.get(domain), bool(user.ratings.get(domain))
        home, code = self._find_user(domain, user, user_domain)
        if home == domain:
            one = self._known_users(domain, np.array([code]))
            row = None if one.personal is None else one.personal[0]
            return tuple(p[0] for p in one.memberships), row, bool(one.rated[0])
        stranger = self._strangers(domain, home, np.array([code]))
        return tuple(p[0] for p in stranger.memberships), self._visitor(domain, user), False

    def _own_weights(self, domain: str, users: Users) -> Floats:
        """What the personal view says about each of some users. (n,)"""
        weight = np.float32(self.personal_weights_.get(domain, 0.0))
        return np.where(users.rated, weight, np.minimum(weight, np.float32(weights.VISITOR)))

    @cached_property
    def _mark(self) -> int:
        """What tells one fit from another: clusters and factors have other meanings there."""
        mark = 0
        for array in [*(table for member in self.members_ for table in member.tables),
                      *(view.items for view in self.personal_.values())]:
            mark = crc32(np.ascontiguousarray(array).tobytes(), mark)
        return mark

    @property
    def _people_are_shared(self) -> bool:
        return self.data_.shared_users and not self.layout_.separate_users

    def _visitor(self, domain: str, user: Hashable) -> Floats | None:
        """The row in the domain's personal view of a person who rated in others alone."""
        if not self._people_are_shared or domain not in self.personal_:
            return None
        rows = {}
        for name, view in self.personal_.items():
            code = int(self.data_[name].users.encode([user])[0])
            if code >= 0 and view.rated[code]:
                rows[name] = view.users[code]
        return self.personal_[domain].place(*NO_RATINGS, self._beside(domain, rows)) if rows else None

    def _beside(self, domain: str, rows: Mapping[str, Floats]) -> Floats:
        """One person's rows in the other domains, 0 where there is none, as the domain's personal view reads them."""
        if not self._people_are_shared:
            return np.empty(0)
        blank = np.zeros(len(self.personal_[domain].blank))
        return np.concatenate([np.empty(0), *(rows.get(name, blank) for name in self.personal_ if name != domain)])

    def _items(self, domain: str, items: Any) -> Items:
        if isinstance(items, list) and any(isinstance(item, NewItem) for item in items):
            return Items.joined([self._items(domain, item) for item in items])
        if isinstance(items, NewItem):
            if items.model != self._mark:
                raise ValueError("this new item was placed by another fit: call fold_in_item of this model again.")
            if items.domain != domain:
                raise ValueError(f"this new item belongs to {items.domain!r}; got domain {domain!r}.")
            return Items([{i: p[None, :] for i, p in member.items()} for member in items.memberships],
                         None if items.personal is None else items.personal[None, :])
        return self._known_items(domain, self._item_codes(self._domain(domain), as_list(items)))

    def _to_levels(self, domain: str, ratings: Mapping[Hashable, float]) -> NDArray[np.uint8]:
        """Levels of ratings by item, or by user."""
        scale = self.data_.domains[domain].scale
        places, off = scale.locate(np.array(list(ratings.values()), np.float64))
        for (name, rating), bad in zip(ratings.items(), off, strict=True):
            if bad:
                raise ValueError(f"the rating of {name!r} must be on the scale of {domain!r}, {scale}; got {rating!r}.")
        return scale.to_levels(self.data_.n_levels)[places]

    # Prediction

    def _decide(self, domain: str, rule: str, users: Users, items: Items) -> Floats:
        check_pairs(users, items)
        values = self.data_.level_values(domain)
        if self._device is not None and rule == "mean":
            return self._on_scale(domain, self._mean_on_device(domain, users, items))
        probability = self._distribution(domain, users, items)
        if rule == "mean":
            return self._on_scale(domain, probability @ values)
        return values[(probability.cumsum(axis=1) < 0.5).sum(axis=1).clip(0, len(values) - 1)]

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
        parts = (users.personal, items, view.base, tilts(len(values)), values, weight)
        own = Own(*(np.ascontiguousarray(x, np.float32) for x in parts), weights.FLOOR)
        if (weight == 1).all():
            return np.empty((len(values), len(users), 0), np.float32), own
        return np.stack(self._user_factors_by(domain, users, np.eye(len(values)))), own

    def _distribution(self, domain: str, users: Users, items: Items) -> Floats:
        """P(r | u, v) of pairs; one user or item against many is repeated. (n, R)"""
        parts, n = [], max(len(users), len(items)) if len(users) and len(items) else 0
        for start in range(0, n, PAIRS):
            some_users, some_items = users[start:start + PAIRS], items[start:start + PAIRS]
            weight, own = self._own_weights(domain, some_users), None
            if weight.any() and some_users.personal is not None and some_items.personal is not None:
                logits = self.personal_[domain].logits(*_same_length(some_users.personal, some_items.personal))
                own = softmax(logits)
            unheard = own is not None and (weight == 1).all()
            mixture = own if unheard else self._mixture(some_users, some_items, self.weights_[domain])
            parts.append(mixture if own is None else weights.pool(own, mixture, weight))
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
        return out / out.sum(axis=1)[:, None]

    def _top_n(self, domain: str, users: list[Any] | None, n: int, exclude_seen: bool, allowed: NDArray[np.bool_],
               user_domain: str | None) -> tuple[NDArray[np.int32], Floats]:
        """On the GPU that the model was fitted on, if there is one."""
        if self._device is None or not allowed.all():
            return super()._top_n(domain, users, n, exclude_seen, allowed, user_domain)
        from pclf.engines.gpu import score_top_n

        codes = self._codes_in(domain, users, user_domain)
        side = self._known_users(domain, codes) if users is None else self._users(domain, users, user_domain)
        view = self.personal_.get(domain)
        factors, own = self._for_device(domain, side, view and view.items)
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
            return product(self._user_factors_by(domain, users, values[None, :])[0], items)
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

    def _seen_by(self, domain: str, users: list[Any] | None, codes: NDArray[np.int32],
                 user_domain: str | None) -> tuple[Any, Any]:
        if not users or not any(isinstance(user, Guest) for user in users):
            return super()._seen_by(domain, users, codes, user_domain)
        own = [self._rated_by(domain, user) if isinstance(user, Guest)
               else super(_Predictor, self)._seen_by(domain, [user], codes[i:i + 1], user_domain)[1]
               for i, user in enumerate(users)]
        return np.concatenate([[0], np.cumsum([len(o) for o in own])]), np.concatenate(own).astype(np.int32)

    def _rated_by(self, domain: str, guest: Guest) -> NDArray[np.int32]:
        """Codes of the items that a guest rated: there or, where items are shared, elsewhere."""
        homes = guest.ratings if self.data_.shared_items else [domain]
        codes = self.data_[domain].items.encode([item for name in homes for item in guest.ratings.get(name, ())])
        return codes[codes >= 0]

    # Files

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
        layout = extra["layout"]                 # not that of the settings, which may have been changed after fitting
        views = tuple(View(**{**view, "domains": tuple(view["domains"])}) for view in layout["views"])
        self.layout_ = Layout(**{**layout, "views": views})
        self.members_ = tuple(Member.from_arrays(f"member.{m}", arrays, len(views)) for m in range(extra["members"]))
        self.personal_ = {name: Personal.from_arrays(f"personal.{z}", arrays) for z, name in enumerate(data.domains)
                          if f"personal.{z}.users" in arrays}
        self.weights_ = {name: {int(i): w for i, w in views.items()} for name, views in extra["weights"].items()}
        self.personal_weights_ = extra["personal_weights"]
        self.transfer_ = {name: Transfer(*t) for name, t in extra["transfer"].items()}
        self.trace_ = tuple(Step(*step) for step in extra["trace"])
        self.n_iter_ = len(self.trace_)
        self.interrupted_ = extra.get("interrupted", False)


def _group(groups: tuple[tuple[int, int], ...], row: int) -> int:
    return next((g for g, (start, stop) in enumerate(groups) if start <= row < stop), 0)


def _same_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    n = max(len(a), len(b))
    return np.broadcast_to(a, (n, *a.shape[1:])), np.broadcast_to(b, (n, *b.shape[1:]))
