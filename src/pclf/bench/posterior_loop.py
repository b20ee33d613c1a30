"""What the CPU engine is measured against: a numba loop that forms the K x C posterior of each rating.

It has the interface of an engine and gives the same counts. It is written with care, so that the comparison is
about the algorithm: float32, fast mathematics, ratings in the order of users, threads that share nothing (users
apart, items and tables a copy each).
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pclf.clusters.state import Params, Stats
from pclf.engines.cpu import cores
from pclf.engines.kernels import Array, compiled
from pclf.problem import Problem


@partial(compiled, fastmath=True)
def posterior_estep(user: Array, item: Array, level: Array, a: Array, b: Array, g: Array, users: Array, items: Array,
                    table: Array) -> float:
    """Adds the expected counts of these ratings to users, items and table; returns the sum of log d."""
    n_clusters, n_columns = a.shape[1], b.shape[1]
    posterior, column = np.empty((n_clusters, n_columns), a.dtype), np.empty(n_columns, a.dtype)
    objective = 0.0
    for j in range(len(user)):
        u, v, r = user[j], item[j], level[j]
        d = np.float32(0)
        for k in range(n_clusters):
            for c in range(n_columns):
                posterior[k, c] = a[u, k] * g[r, k, c] * b[v, c]
                d += posterior[k, c]
        inverse = np.float32(1) / d
        column[:] = 0
        for k in range(n_clusters):
            row = np.float32(0)
            for c in range(n_columns):
                p = posterior[k, c] * inverse
                row += p
                column[c] += p
                table[r, k, c] += p
            users[u, k] += row
        for c in range(n_columns):
            items[v, c] += column[c]
        objective += np.log(d)
    return objective


class PosteriorLoop:
    name = "posterior loop"

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or cores()

    def place(self, problem: Problem) -> tuple[Problem, list[Any]]:
        """For each view and domain: rows of users and items, levels, and where threads begin and end."""
        sweeps = []
        for i, view in enumerate(problem.layout.views):
            for z, item_rows in zip(view.domains, problem.item_rows[i], strict=True):
                order = np.argsort(problem.user[z], kind="stable")
                user = problem.user_rows[z][problem.user[z][order]]
                starts = np.append(np.flatnonzero(np.diff(user, prepend=-1)), len(user))      # of users
                goals = np.linspace(0, len(user), self.n_threads + 1)
                parts = list(pairwise(starts[np.searchsorted(starts, goals)].tolist()))
                sweeps.append((i, user, item_rows[problem.item[z][order]], problem.level[z][order], parts))
        return problem, sweeps

    def estep(self, data: tuple[Problem, list[Any]], params: Params, beta: float) -> Stats:
        problem, sweeps = data
        views = problem.layout.views
        # A power of two brings d near 1, as in the CPU engine.
        exponents = [round(beta * np.log2(problem.n_users * n)) for n in problem.n_items]
        a, b = params.users**beta, [x**beta for x in params.items]
        g = [(x**beta * 2.0**e).astype(np.float32) for x, e in zip(params.tables, exponents, strict=True)]
        users, items, tables = np.zeros_like(a), [np.zeros_like(x) for x in b], [np.zeros(x.shape) for x in g]
        objective = 0.0
        with ThreadPoolExecutor(self.n_threads) as pool:
            for i, user, item, level, parts in sweeps:
                counts = [(np.zeros_like(b[i]), np.zeros_like(g[i])) for _ in parts]
                mine = np.zeros_like(a)
                futures = [pool.submit(posterior_estep, user[p:q], item[p:q], level[p:q], a, b[i], g[i], mine, *own)
                           for (p, q), own in zip(parts, counts, strict=True)]
                logs = sum(future.result() for future in futures) - len(user) * exponents[i] * np.log(2)
                users += np.float32(views[i].weight) * mine
                for of_items, of_table in counts:
                    items[i] += np.float32(views[i].weight) * of_items
                    tables[i] += views[i].weight * of_table
                objective += views[i].weight * logs / beta
        return Stats(users, tuple(items), tuple(tables), float(objective))

    def put(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, np.float32)

    def get(self, array: np.ndarray) -> np.ndarray:
        return array
