"""Clusters: the mixture once it is learned, and how newcomers are placed in it.

After training, a user u has a membership p_u = P(k | u), an item v one p_v = P(c | v) in each view of its domain,
and the prediction in domain z is eq. (Fr), the views' predictions weighted:

    P(r | u, v) = sum over views of z:  W  p_u P(r | k, c) p_v

whose mean is the paper's W1 p_u S_com p_vcom + W2 p_u S_spe p_vspe. With several restarts, P(r | u, v) is
averaged over them. Tables speak of the levels that all domains share; a domain reads them on its own scale.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.loop import Run
from pclf.clusters.mstep import memberships
from pclf.data.ratings import Ratings
from pclf.door import at_least_0, check_array, check_keys, check_names, positive, share
from pclf.errors import ModelFileError
from pclf.problem import Layout, Problem, View

Floats = NDArray[np.floating[Any]]
Rated = Mapping[str, tuple[NDArray[np.int32], NDArray[np.uint8]]]    # by domain: items and levels


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

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        arrays = {f"{prefix}.users": self.users, f"{prefix}.user_shares": self.user_shares}
        for i in range(len(self.items)):
            arrays |= {f"{prefix}.items.{i}": self.items[i], f"{prefix}.tables.{i}": self.tables[i],
                       f"{prefix}.item_shares.{i}": self.item_shares[i]}
        return arrays

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, NDArray[Any]], problem: Problem) -> "Member":
        def one(name: str, *shape: int, along: int = 1) -> Floats:
            return check_array(f"{prefix}.{name}", arrays[f"{prefix}.{name}"], dtype="float", sums_to_one=along,
                               shape=dict(zip(("rows", "clusters", "item clusters"), shape, strict=False)))

        k, views = problem.layout.n_user_clusters, [view.n_clusters for view in problem.layout.views]
        return cls(one("users", problem.n_users, k),
                   tuple(one(f"items.{i}", problem.n_items[i], c) for i, c in enumerate(views)),
                   tuple(one(f"tables.{i}", problem.n_levels, k, c, along=0) for i, c in enumerate(views)),
                   one("user_shares", len(problem.user_groups), k),
                   tuple(one(f"item_shares.{i}", len(problem.item_groups[i]), c) for i, c in enumerate(views)))


@dataclass(frozen=True)
class Clusters:
    """All restarts of a mixture over the domains of some ratings. `weights`: W of eq. (Fr), domain -> view -> W."""

    layout: Layout
    members: tuple[Member, ...]
    user_prior: float
    item_prior: float
    problem: Problem = field(repr=False)
    names: tuple[str, ...]
    spread: dict[str, Floats] = field(repr=False)      # (R_z, R): which of a domain's values a common level stands for
    weights: dict[str, dict[int, float]]

    @classmethod
    def of(cls, ratings: Ratings, layout: Layout, members: tuple[Member, ...], user_prior: float,
           item_prior: float) -> "Clusters":
        """With equal weights for the views of a domain until others are set."""
        problem = Problem.of(ratings, layout)
        weights = {}
        for z, name in enumerate(ratings.domains):
            views = [i for i, view in enumerate(layout.views) if z in view.domains]
            weights[name] = dict.fromkeys(views, 1 / len(views))
        return cls(layout, members, user_prior, item_prior, problem, tuple(ratings.domains),
                   {name: shares_of_levels(ratings, name) for name in ratings.domains}, weights)

    def views(self, domain: str) -> list[tuple[int, NDArray[np.int32]]]:
        """The views of a domain, the common one first: their numbers, and where in them the domain's items are."""
        z = self.names.index(domain)
        return [(i, self.problem.item_rows[i][view.domains.index(z)])
                for i, view in enumerate(self.layout.views) if z in view.domains]

    def user_rows(self, domain: str) -> NDArray[np.int32]:
        """The rows of a domain's users."""
        return self.problem.user_rows[self.names.index(domain)]

    def group(self, domain: str) -> int:
        """The population that the users of a domain belong to."""
        return 0 if len(self.problem.user_groups) == 1 else self.names.index(domain)

    def known_users(self, domain: str, codes: NDArray[np.int32]) -> list[Floats]:
        """Memberships of users of the domain. (n, K) a member"""
        rows = self.user_rows(domain)[codes]
        return [member.users[rows] for member in self.members]

    def visitors(self, domain: str, home: str, codes: NDArray[np.int32]) -> list[Floats]:
        """Memberships of users of another domain; where the clusters of domains are apart, those of anybody."""
        if not self.layout.separate_users:
            return self.known_users(home, codes)
        return [np.tile(member.user_shares[self.group(domain)], (len(codes), 1)) for member in self.members]

    def known_items(self, domain: str, codes: NDArray[np.int32]) -> list[dict[int, Floats]]:
        """Memberships of items: view -> (n, C), a member."""
        return [{i: member.items[i][rows[codes]] for i, rows in self.views(domain)} for member in self.members]

    def place(self, rated: Rated) -> dict[str, tuple[Floats, ...]]:
        """Memberships of a new user from ratings in levels: (K,) a member, by domain.

        Without ratings they are those of the population.
        """
        if self.layout.separate_users:          # clusters of different domains have nothing in common
            return {name: self._place({z: rated[z] for z in rated if z == name}, name) for name in self.names}
        most = max(rated, key=lambda name: len(rated[name][0]), default=self.names[0])
        return dict.fromkeys(self.names, self._place(rated, most))

    def place_item(self, domain: str, users: NDArray[np.int32],
                   levels: NDArray[np.uint8]) -> tuple[dict[int, Floats], ...]:
        """Memberships of a new item from the levels that users gave it: view -> (C,), a member."""
        from pclf.engines.kernels import fold_in

        rows, out = self.user_rows(domain)[users], []
        for member in self.members:
            placed = {}
            for i, item_rows in self.views(domain):
                group = _group(self.problem.item_groups[i], int(item_rows[0]) if len(item_rows) else 0)
                likelihood = np.einsum("nk,nkc->nc", member.users[rows], member.tables[i][levels])
                share = member.item_shares[i][group].astype(np.float64)
                placed[i] = fold_in(likelihood.astype(np.float64), np.ones(len(rows)), share, self.item_prior * share)
            out.append(placed)
        return tuple(out)

    def _place(self, rated: Rated, home: str) -> tuple[Floats, ...]:
        from pclf.engines.kernels import fold_in

        out = []
        for member in self.members:
            rows, counts = [np.empty((0, member.users.shape[1]))], [np.empty(0)]
            for name, (codes, levels) in rated.items():
                for i, item_rows in self.views(name):
                    items = member.items[i][item_rows[codes]]                                    # (n, C)
                    rows.append(np.einsum("nkc,nc->nk", member.tables[i][levels], items))
                    counts.append(np.full(len(codes), self.layout.views[i].weight))
            share = member.user_shares[self.group(home)].astype(np.float64)
            out.append(fold_in(np.concatenate(rows), np.concatenate(counts), share, self.user_prior * share))
        return tuple(out)

    def distribution(self, domain: str, users: list[Floats], items: list[dict[int, Floats]],
                     weights: Mapping[int, float] | None = None) -> Floats:
        """P(r | u, v) of pairs over the values of the domain's scale. (n, R_z)

        One user or item against many is repeated.
        """
        by_level = self.levels(users, items, self.weights[domain] if weights is None else weights)
        out: Floats = by_level @ self.spread[domain].T
        out /= out.sum(axis=1)[:, None]
        return out

    def levels(self, users: list[Floats], items: list[dict[int, Floats]], weights: Mapping[int, float]) -> Floats:
        """The views' tables between the memberships, weighted, averaged over members. (n, R)"""
        n = max(len(users[0]), len(next(iter(items[0].values()))))
        out = np.zeros((n, self.problem.n_levels))
        for member, p_user, p_items in zip(self.members, users, items, strict=True):
            for i, weight in weights.items():
                if weight:
                    table = member.tables[i]                                                # (R, K, C)
                    by_cluster = p_user @ table.transpose(1, 0, 2).reshape(table.shape[1], -1)
                    by_cluster = by_cluster.reshape(len(p_user), *table[:, 0].shape)        # (n, R, C)
                    out += weight * np.einsum("nrc,nc->nr", np.broadcast_to(by_cluster, (n, *by_cluster.shape[1:])),
                                              np.broadcast_to(p_items[i], (n, p_items[i].shape[1])))
        out /= out.sum(axis=1)[:, None]
        return out

    def user_factors(self, domain: str, users: list[Floats], mix: Floats) -> list[Floats]:
        """For each row of `mix`, over the domain's values, p_u times that combination of a table's levels, views side
        by side. (n, D) each"""
        by_level = mix @ self.spread[domain]
        return [np.concatenate([p @ np.einsum("r,rkc->kc", row, member.tables[i].astype(np.float32))
                                for member, p in zip(self.members, users, strict=True)
                                for i in self.weights[domain]], axis=1).astype(np.float32) for row in by_level]

    def item_factors(self, domain: str) -> Floats:
        """W p_v of each member and view, one below the other: (D, V)."""
        if domain not in self._kept:
            rows = dict(self.views(domain))
            self._kept[domain] = np.concatenate(
                [weight / len(self.members) * member.items[i][rows[i]].T
                 for member in self.members for i, weight in self.weights[domain].items()],
            ).astype(np.float32, order="C")
        return self._kept[domain]

    def set_weights(self, domain: str, weights: Mapping[int, float]) -> None:
        """W of eq. (Fr) for a domain."""
        self.weights[domain] = dict(weights)
        self._kept.pop(domain, None)

    @cached_property
    def _kept(self) -> dict[str, Floats]:
        return {}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        out: dict[str, NDArray[Any]] = {}
        for m, member in enumerate(self.members):
            out |= member.to_arrays(f"member.{m}")
        return out

    def described(self) -> dict[str, Any]:
        """What `to_arrays` leaves out, for JSON."""
        return {"layout": asdict(self.layout), "members": len(self.members), "weights": self.weights,
                "priors": [self.user_prior, self.item_prior]}

    @classmethod
    def from_arrays(cls, ratings: Ratings, arrays: Mapping[str, NDArray[Any]],
                    described: Mapping[str, Any]) -> "Clusters":
        check_keys("clusters", described, {"layout": dict, "members": int, "weights": {str: {str: share}},
                                           "priors": [at_least_0]})
        layout, names = _layout(described["layout"], len(ratings.domains)), list(ratings.domains)
        if not 1 <= described["members"] <= len(arrays):
            raise ModelFileError(f"members must be at least 1, and have arrays; got {described['members']}")
        if len(described["priors"]) != 2:
            raise ModelFileError(f"priors must be those of users and of items; got {described['priors']}")
        problem = Problem.of(ratings, layout)
        check_names("the clusters", [name for name in arrays if name.startswith("member.")], [
            f"member.{m}.{name}" for m in range(described["members"])
            for name in ("users", "user_shares", *(f"{kind}.{i}" for i in range(len(layout.views))
                                                   for kind in ("items", "tables", "item_shares")))])
        members = tuple(Member.from_arrays(f"member.{m}", arrays, problem) for m in range(described["members"]))
        out = cls.of(ratings, layout, members, *described["priors"])
        check_names("weights", described["weights"], names)
        for name, weights in described["weights"].items():
            check_names(f"weights of {name}", weights, [str(i) for i in out.weights[name]])
            if abs(sum(weights.values()) - 1) > 1e-6:
                raise ModelFileError(f"weights of {name} must sum to 1; got {weights}")
            out.set_weights(name, {int(i): w for i, w in weights.items()})
        return out


def _layout(described: Mapping[str, Any], n_domains: int) -> Layout:
    """That of the fit: settings may have been changed afterwards."""
    check_keys("layout", described, {"n_user_clusters": positive, "views": [dict], "separate_users": bool})
    for view in described["views"]:
        check_keys("a view", view, {"name": str, "domains": [range(n_domains).__contains__], "n_clusters": positive,
                                    "weight": at_least_0})
        if not view["domains"] or len(set(view["domains"])) < len(view["domains"]):
            raise ModelFileError(f"a view must have domains, each once; got {view['domains']}")
    if {z for view in described["views"] for z in view["domains"]} != set(range(n_domains)):
        raise ModelFileError("the views must have all domains among them")
    views = tuple(View(**{**view, "domains": tuple(view["domains"])}) for view in described["views"])
    return Layout(**{**described, "views": views})


def shares_of_levels(ratings: Ratings, name: str) -> Floats:
    """How often each of a domain's values comes when a common level does. (R_z, R), columns sum to 1

    Several values of a long scale share a level by how often they come. A level that no value of a short scale falls in
    lies between its neighbours.
    """
    domain, n_levels = ratings[name], ratings.n_levels
    n = len(domain.scale)
    if n == n_levels:
        return np.eye(n)
    level = domain.scale.to_levels(n_levels)
    counts = domain.value_counts + 1.0
    out = np.zeros((n, n_levels))
    out[np.arange(n), level] = counts
    filled = np.flatnonzero(out.sum(axis=0))
    out[:, filled] /= out[:, filled].sum(axis=0)
    for r in np.setdiff1d(np.arange(n_levels), filled):
        below, above = filled[filled < r], filled[filled > r]
        if not len(below) or not len(above):
            out[:, r] = out[:, above[0] if len(above) else below[-1]]
        else:
            part = (r - below[-1]) / (above[0] - below[-1])
            out[:, r] = (1 - part) * out[:, below[-1]] + part * out[:, above[0]]
    return out


def _group(groups: tuple[tuple[int, int], ...], row: int) -> int:
    return next((g for g, (start, stop) in enumerate(groups) if start <= row < stop), 0)
