"""The words of EM: View, Layout, Problem, Params, Stats, Engine.

Shapes: U user rows, V item rows of a view, R rating levels, K user clusters, C item clusters of a view.

The paper's models are one mixture with different *views*. A view pools some domains; it has item clusters
and a table P(r | k, c) of its own. User clusters are shared by all views.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings

Array = Any  # a NumPy array, or a tensor of the engine that made it
IntArray = NDArray[np.int32]
Groups = tuple[tuple[int, int], ...]  # ranges of rows


@dataclass(frozen=True)
class View:
    """Some domains, the item clusters they share, and how much their ratings count here in training."""

    name: str
    domains: tuple[int, ...]
    n_clusters: int
    weight: float = 1.0


@dataclass(frozen=True)
class Layout:
    """Which views a model has. `separate_users` gives a person one membership row for each domain."""

    n_user_clusters: int
    views: tuple[View, ...]
    separate_users: bool = False


@dataclass(frozen=True)
class Problem:
    """Ratings under a layout, as an engine sees them: codes alone, neither ids nor scales.

    A rating of domain z is (user[z][j], item[z][j], level[z][j]) in codes of that domain. `user_rows[z]`
    leads from these to rows of P(u, k), `item_rows[i]` from the items of the i-th view's domains, one after
    the other, to rows of P(v, c). Groups are ranges of rows, one a domain, or one for all where domains share
    rows. A group is a population: the prior mean of a membership, and the prediction for a row without
    ratings, is the share of each cluster among its group.
    """

    layout: Layout
    n_levels: int
    n_users: int
    user: tuple[IntArray, ...]
    item: tuple[IntArray, ...]
    level: tuple[NDArray[np.uint8], ...]
    user_rows: tuple[IntArray, ...]               # (U_z,) a domain
    user_groups: Groups
    n_items: tuple[int, ...]                      # V, a view
    item_rows: tuple[tuple[IntArray, ...], ...]   # (V_z,) a domain of a view
    item_groups: tuple[Groups, ...]               # a view

    @property
    def n_ratings(self) -> int:
        return sum(len(level) for level in self.level)

    @classmethod
    def of(cls, ratings: Ratings, layout: Layout) -> "Problem":
        domains = list(ratings.domains.values())
        user_rows = ratings.user_rows
        if layout.separate_users:
            user_rows = _one_after_another([d.n_users for d in domains])
        item_rows: list[tuple[IntArray, ...]] = []
        for view in layout.views:
            if len(view.domains) == 1:
                item_rows.append((np.arange(domains[view.domains[0]].n_items, dtype=np.int32),))
            else:
                rows = [ratings.item_rows[z] for z in view.domains]
                item_rows.append(tuple(_compact(rows)))
        return cls(
            layout=layout,
            n_levels=ratings.n_levels,
            n_users=_size(user_rows),
            user=tuple(d.user for d in domains),
            item=tuple(d.item for d in domains),
            level=tuple(ratings.levels(name) for name in ratings.domains),
            user_rows=user_rows,
            user_groups=_groups(user_rows),
            n_items=tuple(_size(rows) for rows in item_rows),
            item_rows=tuple(item_rows),
            item_groups=tuple(_groups(rows) for rows in item_rows),
        )


@dataclass(frozen=True)
class Params:
    """The paper's eleven parameter sets, for any number of domains, as joint probabilities.

    P(u, k) = P(k) P(u | k) and P(v, c) = P(c) P(v | c); the methods give the factors of the paper back.
    """

    users: Array               # (U, K)     P(u, k)
    items: tuple[Array, ...]   # (V, C)     P(v, c), a view
    tables: tuple[Array, ...]  # (R, K, C)  P(r | k, c), a view; sums to 1 over R

    def user_clusters(self) -> Array:
        """P(C_u) of eq. (Cu): (K,)."""
        return self.users.sum(0)

    def users_given_cluster(self) -> Array:
        """P(u | C_u) of eq. (uConCu): (U, K)."""
        return given_column(self.users)

    def item_clusters(self, view: int) -> Array:
        """P(C_v) of eqs. (Cvcom), (Cvspeone), (Cvspetwo): (C,)."""
        return self.items[view].sum(0)

    def items_given_cluster(self, view: int) -> Array:
        """P(v | C_v) of eqs. (vConCvcom), (vConCvspeone), (vConCvspetwo): (V, C)."""
        return given_column(self.items[view])


@dataclass(frozen=True)
class Stats:
    """Expected counts. Two parts of the data add up: stats(a) + stats(b) == stats(a and b)."""

    users: Array               # (U, K)     summed over views, each with its weight
    items: tuple[Array, ...]   # (V, C)
    tables: tuple[Array, ...]  # (R, K, C)
    objective: float           # sum over ratings and views of weight * log(sum of joint**beta) / beta

    def __add__(self, other: "Stats") -> "Stats":
        return Stats(
            self.users + other.users,
            tuple(a + b for a, b in zip(self.items, other.items, strict=True)),
            tuple(a + b for a, b in zip(self.tables, other.tables, strict=True)),
            self.objective + other.objective,
        )


class Engine(Protocol):
    """Computes the E-step somewhere: CPU, GPU, cluster.

    An engine does not draw random numbers, choose start values, normalise, smooth or decide when to stop.
    Those exist once, in em/, so no two engines can disagree about them.
    """

    name: str

    def place(self, problem: Problem) -> Any:
        """Move the ratings close to the compute, once."""

    def estep(self, data: Any, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posterior. The arrays are of the kind `put` returns."""

    def put(self, array: NDArray[Any]) -> Array:
        """An array of the engine's own kind and precision."""

    def get(self, array: Array) -> NDArray[Any]:
        """Back to NumPy."""


def given_column(joint: Array) -> Array:
    """P(row | column) from P(row, column); an empty column stays zero."""
    total = joint.sum(0)
    return joint / (total + (total == 0))


def _one_after_another(sizes: Sequence[int]) -> tuple[IntArray, ...]:
    starts = np.cumsum([0, *sizes])
    return tuple(np.arange(a, b, dtype=np.int32) for a, b in pairwise(starts))


def _compact(rows: Sequence[IntArray]) -> list[IntArray]:
    """The same ties between domains, renumbered 0.. when a view leaves some domains out."""
    _, inverse = np.unique(np.concatenate(rows), return_inverse=True)
    return [part.astype(np.int32) for part in np.split(inverse, np.cumsum([len(r) for r in rows])[:-1])]


def _size(rows: Sequence[IntArray]) -> int:
    return 1 + max((int(r.max()) for r in rows if len(r)), default=-1)


def _groups(rows: Sequence[IntArray]) -> Groups:
    size = _size(rows)
    if sum(len(r) for r in rows) > size:
        return ((0, size),)
    starts = np.cumsum([0, *(len(r) for r in rows)]).tolist()
    return tuple(pairwise(starts))
