"""The merged table: all ratings of several domains as one domain, on the scale of one of them.

This is what many would try first, and so it is a baseline of `audit`. People and things that are shared have one row;
otherwise users and items of different domains are different. Ratings are mapped linearly onto the target's scale.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pclf.data.attributes import Attributes, rows_of
from pclf.data.ratings import Domain, Ratings, Vocabulary


def can_merge(data: Ratings) -> bool:
    """Whether all domains hold ratings, or all hold events."""
    return len({d.events for d in data.domains.values()}) == 1


def merged(data: Ratings, target: str) -> Ratings:
    """One domain, called `target`, with a row among all users and items for an id.

    Somebody who rated a shared thing in two domains keeps the target's rating.
    """
    names = sorted(data.domains, key=lambda name: name != target)              # the target first
    places = [list(data.domains).index(name) for name in names]
    scale, domains = data[target].scale, [data[name] for name in names]
    user = np.concatenate([data.user_rows[z][d.user] for z, d in zip(places, domains, strict=True)])
    item = np.concatenate([data.item_rows[z][d.item] for z, d in zip(places, domains, strict=True)])
    value = np.concatenate([_on_scale_of(d, data[target]) for d in domains])
    _, once = np.unique(user.astype(np.int64) * data.n_items + item, return_index=True)
    once.sort()
    domain = Domain(target, Vocabulary(range(data.n_users)), Vocabulary(range(data.n_items)), user[once], item[once],
                    value[once], scale, events=data[target].events)
    known: dict[str, Any] = {
        key: _stacked(getattr(data, key), target, names, [rows[z] for z in places], n)
        for key, rows, n in (("attributes", data.item_rows, data.n_items),
                             ("user_attributes", data.user_rows, data.n_users))}
    return replace(data, domains={target: domain}, shared_users=False, shared_items=False, **known)


def _on_scale_of(d: Domain, target: Domain) -> NDArray[np.uint8]:
    """Positions on the target's scale: the nearest value, once the ends of both scales lie on each other. (n,)"""
    own, its = np.array(d.scale.values), np.array(target.scale.values)
    mapped = its[0] + (own - own[0]) / max(np.ptp(own), 1e-12) * np.ptp(its)
    out: NDArray[np.uint8] = np.abs(mapped[:, None] - its).argmin(axis=1).astype(np.uint8)[d.value]
    return out


def _stacked(known: Attributes | None, target: str, names: list[str], rows: list[NDArray[np.int32]],
             n: int) -> Attributes | None:
    """A row of attributes for each of n: of the first domain that has one."""
    if known is None:
        return None
    at, start = np.full(n, -1), 0
    matrices: list[Any] = []
    for name, row in zip(names, rows, strict=True):
        there = np.flatnonzero(known.known(name))
        new = there[at[row[there]] < 0]
        at[row[new]] = start + new
        start += len(row)
        matrices.append(known.of(name))
    matrix = rows_of(sparse.vstack(matrices, format="csr"), at, at >= 0)
    return replace(known, matrices={target: matrix}, given={target: at >= 0}, unused={})
