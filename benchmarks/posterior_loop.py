"""What the CPU engine is measured against: a numba loop that forms the K x C posterior of each rating.

It has the interface of an engine and gives the same counts. It is written with care, so that the comparison is
about the algorithm: float32, fast mathematics, ratings in the order of users, threads that share nothing (users
apart, items and tables a copy for each). `touch` is the floor under both: the memory traffic of the CPU engine's
sweep without its arithmetic.

    python benchmarks/posterior_loop.py --ratings 10e6 --clusters 10 16 32
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from pclf.em.state import Layout, Params, Problem, Stats, View
from pclf.engines.cpu import CpuEngine, cores, width
from pclf.engines.kernels import AHEAD
from pclf.engines.simd import blend, gather, load, prefetch, scatter_add, store, zeros


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def posterior_estep(user, item, level, a, b, g, users, items, table):
    """Adds the expected counts of these ratings to users, items and table; returns the sum of log d."""
    n_clusters, n_columns = a.shape[1], b.shape[1]
    posterior, column = np.empty((n_clusters, n_columns), a.dtype), np.empty(n_columns, a.dtype)
    objective = 0.0
    for j in range(len(user)):
        u, v, r = user[j], item[j], level[j]
        total = a.dtype.type(0)
        for k in range(n_clusters):
            for c in range(n_columns):
                posterior[k, c] = a[u, k] * g[r, k, c] * b[v, c]
                total += posterior[k, c]
        inverse = a.dtype.type(1) / total
        column[:] = 0
        for k in range(n_clusters):
            row = a.dtype.type(0)
            for c in range(n_columns):
                p = posterior[k, c] * inverse
                row += p
                column[c] += p
                table[r, k, c] += p
            users[u, k] += row
        for c in range(n_columns):
            items[v, c] += column[c]
        objective += np.log(total)
    return objective


class PosteriorLoop:
    name = "posterior loop"

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or cores()

    def place(self, problem: Problem) -> tuple[Problem, list[Any]]:
        domains = []
        for user, item, level, rows in zip(problem.user, problem.item, problem.level, problem.user_rows, strict=True):
            order = np.argsort(user, kind="stable")
            user = rows[user[order]]
            changes = np.flatnonzero(np.diff(user)) + 1
            goals = np.linspace(0, len(user), self.n_threads + 1).astype(int)[1:-1]
            cuts = [0, *np.append(changes, len(user))[np.searchsorted(changes, goals)].tolist(), len(user)]
            domains.append((user, item[order], level[order], list(pairwise(cuts))))
        return problem, domains

    def estep(self, data: tuple[Problem, list[Any]], params: Params, beta: float) -> Stats:
        problem, domains = data
        a = params.users**beta
        users, items, tables, objective = np.zeros_like(a), [], [], 0.0
        with ThreadPoolExecutor(self.n_threads) as pool:
            for i, view in enumerate(problem.layout.views):
                # As in the CPU engine, a power of two keeps float32 away from underflow.
                exponent = round(beta * np.log2(problem.n_users * problem.n_items[i]))
                b, g = params.items[i]**beta, (params.tables[i]**beta * 2.0**exponent).astype(a.dtype)
                items.append(np.zeros_like(b))
                tables.append(np.zeros(g.shape))
                for z, rows in zip(view.domains, problem.item_rows[i], strict=True):
                    user, item, level, parts = domains[z]
                    own = [(np.zeros_like(a[:0]), np.zeros_like(b), np.zeros_like(g)) for _ in parts]
                    mine, codes = np.zeros_like(a), rows[item]
                    futures = [
                        pool.submit(posterior_estep, user[p:q], codes[p:q], level[p:q], a, b, g, mine, v, t)
                        for (p, q), (_, v, t) in zip(parts, own, strict=True)]
                    logs = sum(future.result() for future in futures) - len(user) * exponent * np.log(2)
                    users += view.weight * mine
                    items[i] += view.weight * sum(v for _, v, _ in own)
                    tables[i] += view.weight * sum(t.astype(np.float64) for _, _, t in own)
                    objective += view.weight * logs / beta
        return Stats(users, tuple(items), tuple(tables), objective)

    def put(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, np.float32)

    def get(self, array: np.ndarray) -> np.ndarray:
        return array
