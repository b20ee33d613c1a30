"""Small problems that engines are tested on."""

import numpy as np

from pclf.clusters.state import Params
from pclf.problem import Problem


def made(layout, n_ratings, n_users, n_items, shared=False):
    """Domains, some items popular; in each the last user and the last item have no ratings. Arrays are read-only."""
    rng, n_levels = np.random.default_rng(0), 5
    user = [rng.integers(0, u - 1, n).astype(np.int32) for u, n in zip(n_users, n_ratings, strict=True)]
    item = [(rng.random(n) ** 2 * (v - 1)).astype(np.int32) for v, n in zip(n_items, n_ratings, strict=True)]
    level = [rng.integers(0, n_levels, n).astype(np.uint8) for n in n_ratings]
    for array in (*user, *item, *level):
        array.setflags(write=False)

    def rows(sizes):
        if shared:                           # in another order in each domain, so that rows are not a range
            return tuple(np.random.default_rng(1).permutation(max(sizes))[:n].astype(np.int32) for n in sizes)
        starts = np.cumsum([0, *sizes])
        return tuple(np.arange(a, a + n, dtype=np.int32) for a, n in zip(starts, sizes, strict=False))

    def size(parts):
        return 1 + max(int(part.max()) for part in parts)

    def groups(parts):
        return ((0, size(parts)),) if shared else tuple((int(p[0]), int(p[-1]) + 1) for p in parts)

    item_rows = [rows([n_items[z] for z in view.domains]) for view in layout.views]
    return Problem(layout, n_levels, size(rows(n_users)), tuple(user), tuple(item), tuple(level),
                   rows(n_users), groups(rows(n_users)),
                   tuple(map(size, item_rows)), tuple(item_rows), tuple(map(groups, item_rows)))


def start_of(problem):
    """Random parameters to begin with."""
    rng = np.random.default_rng(1)
    k, sizes = problem.layout.n_user_clusters, [view.n_clusters for view in problem.layout.views]
    users = rng.random((problem.n_users, k)) + 0.1
    items = [rng.random((n, c)) + 0.1 for n, c in zip(problem.n_items, sizes, strict=True)]
    tables = [rng.random((problem.n_levels, k, c)) + 0.1 for c in sizes]
    return Params(users / users.sum(), tuple(x / x.sum() for x in items), tuple(x / x.sum(0) for x in tables))
