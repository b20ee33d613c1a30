"""Problem: ratings as codes, and which rows are tied. What every engine is given.

Shapes: U user rows, V item rows of a view, R rating levels, K user clusters, C item clusters of a view.

The paper's models are one mixture with different *views*. A view pools some domains; it has item clusters
and a table P(r | k, c) of its own. User clusters are shared by all views.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings

Array = Any  # a NumPy array, or a tensor of the engine that made it
IntArray = NDArray[np.int32]
Keys = NDArray[np.uint64]
Groups = tuple[tuple[int, int], ...]  # ranges of rows
GOLDEN = 0x9E3779B97F4A7C15              # odd, with its bits all over


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
    user_keys: Keys | None = None                 # (U,) for start values that depend on ids, see `row_keys`
    item_keys: tuple[Keys, ...] | None = None     # (V,) a view

    @property
    def n_ratings(self) -> int:
        return sum(len(level) for level in self.level)

    @property
    def sizes(self) -> list[int]:
        """How many items each domain has."""
        sizes = {z: len(rows) for view, parts in zip(self.layout.views, self.item_rows, strict=True)
                 for z, rows in zip(view.domains, parts, strict=True)}
        return [sizes.get(z, 0) for z in range(len(self.user))]

    @classmethod
    def of(cls, ratings: Ratings, layout: Layout, keyed: bool = False) -> "Problem":
        """keyed: with a key for each row."""
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
        user_keys, item_keys = None, None
        if keyed:
            tied = ratings.shared_users and not layout.separate_users
            user_keys = row_keys([d.users.keys() for d in domains], user_rows, tied)
            of_items = [d.items.keys() for d in domains]
            item_keys = tuple(row_keys([of_items[z] for z in view.domains], rows, ratings.shared_items, view.domains)
                              for view, rows in zip(layout.views, item_rows, strict=True))
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
            user_keys=user_keys,
            item_keys=item_keys,
        )


def row_keys(keys: Sequence[Keys], rows: Sequence[IntArray], tied: bool, domains: Sequence[int] | None = None) -> Keys:
    """The key of each row, from the hashes of ids, a domain each: where ids are not tied, the same id in two domains is
    two rows with two keys."""
    out = np.zeros(_size(rows), np.uint64)
    for z, own, at in zip(domains or range(len(rows)), keys, rows, strict=True):
        out[at] = own if tied else own + np.uint64((z + 1) * GOLDEN % 2**64)
    return out


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
