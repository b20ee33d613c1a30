"""What a fitted mixture is made of: members, and the users and items they are asked about."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.door import check_array
from pclf.em.loop import Run
from pclf.em.mstep import memberships
from pclf.em.state import Problem
from pclf.models.base import Floats


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


@dataclass(frozen=True, eq=False)
class Guest:
    """A user who was not in the training ratings, placed by `fold_in`."""

    model: int = field(repr=False)                                   # the mark of the fit that placed them
    ratings: Mapping[str, Mapping[Hashable, float]]                  # 1 for an event
    memberships: Mapping[str, tuple[Floats, ...]] = field(repr=False)   # (K,) a member, by domain
    personal: Mapping[str, Floats] = field(repr=False)               # (D,) a domain that knows them


@dataclass(frozen=True, eq=False)
class NewItem:
    """An item that was not in the training ratings, placed by `fold_in_item`."""

    model: int = field(repr=False)                                   # the mark of the fit that placed it
    domain: str
    memberships: tuple[dict[int, Floats], ...] = field(repr=False)   # view -> (C,), a member
    personal: Floats | None = field(repr=False)                      # (D,)


@dataclass(frozen=True)
class Users:
    """Some users, as a domain sees them. `rated`: those with ratings there."""

    memberships: list[Floats]               # (n, K) a member
    personal: Floats | None                 # (n, D)
    rated: NDArray[np.bool_]                # (n,)

    def __len__(self) -> int:
        return len(self.rated)

    def __getitem__(self, rows: slice) -> "Users":
        if len(self) == 1:
            return self
        personal = None if self.personal is None else self.personal[rows]
        return Users([p[rows] for p in self.memberships], personal, self.rated[rows])


@dataclass(frozen=True)
class Items:
    """Some items of a domain."""

    memberships: list[dict[int, Floats]]    # view -> (n, C), a member
    personal: Floats | None                 # (n, D)

    def __len__(self) -> int:
        return len(next(iter(self.memberships[0].values())))

    @classmethod
    def joined(cls, parts: list["Items"]) -> "Items":
        """One after the other."""
        memberships = [{i: np.concatenate([member[i] for member in members]) for i in members[0]}
                       for members in zip(*(part.memberships for part in parts), strict=True)]
        own = [part.personal for part in parts]
        return cls(memberships, None if own[0] is None else np.concatenate([x for x in own if x is not None]))

    def __getitem__(self, rows: slice) -> "Items":
        if len(self) == 1:
            return self
        personal = None if self.personal is None else self.personal[rows]
        return Items([{i: p[rows] for i, p in member.items()} for member in self.memberships], personal)
