"""What the CPU engine is measured against: a numba loop that forms the K x C posterior of each rating.

It has the interface of an engine and gives the same counts. It is written with care, so that the comparison
is about the algorithm: float32, fast mathematics, ratings in the order of users, threads that share nothing
(users apart, items and tables a copy each). `touch` is the floor: what the CPU engine reads and writes for each
rating, without its arithmetic.

    python benchmarks/posterior_loop.py --ratings 10e6 --clusters 10 16 32
"""

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from pclf.em.state import Layout, Params, Problem, Stats, View
from pclf.engines.cpu import CpuEngine, cores, width
from pclf.engines.kernels import AHEAD
from pclf.engines.simd import blend, gather, load, prefetch, scatter_add, store, zeros

K = 20


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def posterior_estep(user, item, level, a, b, g, users, items, table):
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
                given = a, b[i], g[i], mine
                futures = [pool.submit(posterior_estep, user[p:q], item[p:q], level[p:q], *given, *own)
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


@njit(nogil=True, cache=True)
def touch(row_ptr, item, first, last, b, t, out, lanes):
    """Reads b[v] and adds to t[v] for every rating of some rows: the traffic of `kernels.expect`."""
    ones = np.ones((1, 4), b.dtype)
    for row in range(first, last):
        own, total, w = load(b, 0, lanes), zeros(b, lanes), load(ones, 0, (0, 0, 0, 0))
        for j in range(row_ptr[row], row_ptr[row + 1], 4):
            prefetch(b, item, j + AHEAD, lanes)
            prefetch(t, item, j + AHEAD, lanes)
            total = blend(gather(b, item, j, 0, lanes), w, total)
            scatter_add(t, item, j, own, w)
        store(out, 0, total)


def touch_all(engine: CpuEngine, data: Any) -> None:
    """`touch` for the parts that a sweep of the first view's first domain has."""
    view, n_levels = data.problem.layout.views[0], data.problem.n_levels
    index, lanes = data.indices[view.domains[0]], (0,) * width(view.n_clusters)
    n_parts, n_items = len(index.parts), len(data.problem.item_rows[0][0])
    *t, b = data.scratch[:(n_parts + 1) * n_items * len(lanes)].reshape(n_parts + 1, n_items, len(lanes))
    out = np.empty((n_parts, 1, len(lanes)), engine.dtype)

    def touch_part(p: int) -> None:
        first, last = (int(index.groups[block * n_levels]) for block in index.parts[p])
        t[p][:] = 0
        touch(index.row_ptr, index.item, first, last, b, t[p], out[p], lanes)

    engine._map(touch_part, range(n_parts))


def synthetic(
    n_ratings: int, n_clusters: int, n_items: int = 50_000, per_user: int = 100
) -> tuple[Problem, Params]:
    """Items by Zipf's law, users of log-normal activity, five levels, one view; random start values."""
    rng, n_levels, n_users = np.random.default_rng(0), 5, max(1, n_ratings // per_user)
    activity, popularity = rng.lognormal(0, 1, n_users), rng.permutation(1 / np.arange(1, n_items + 1))

    def draw(weights: np.ndarray) -> np.ndarray:
        ends = np.cumsum(weights)
        out = np.empty(n_ratings, np.int32)
        for start in range(0, n_ratings, 1 << 20):
            part = out[start:start + (1 << 20)]
            part[:] = np.searchsorted(ends[:-1], rng.random(len(part)) * ends[-1])
        return out

    user, item = draw(activity), draw(popularity)
    level = draw(np.array([0.06, 0.11, 0.27, 0.35, 0.21])).astype(np.uint8)
    users, items = np.arange(n_users, dtype=np.int32), np.arange(n_items, dtype=np.int32)
    problem = Problem(
        Layout(K, (View("all", (0,), n_clusters),)), n_levels, n_users, (user,), (item,), (level,),
        (users,), ((0, n_users),), (n_items,), ((items,),), (((0, n_items),),))
    p, q = rng.random((n_users, K), np.float32), rng.random((n_items, n_clusters))
    table = rng.random((n_levels, K, n_clusters))
    return problem, Params(p / p.sum(), (q / q.sum(),), (table / table.sum(0),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=float, default=10e6)
    parser.add_argument("--items", type=float, default=50e3)
    parser.add_argument("--per-user", type=float, default=100)
    parser.add_argument("--clusters", type=int, nargs="+", default=[10, 16, 32])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    sizes = int(options.items), int(options.per_user)
    for n_clusters in options.clusters:
        problem, start = synthetic(int(options.ratings), n_clusters, *sizes)
        runs: dict[tuple[str, int], Callable[[], Any]] = {}
        for n_threads in sorted({1, cores()}):
            for engine in (CpuEngine(n_threads=n_threads), PosteriorLoop(n_threads)):
                data = engine.place(problem)
                users, items, table = map(engine.put, (start.users, start.items[0], start.tables[0]))
                params = Params(users, (items,), (table,))
                runs[engine.name, n_threads] = lambda e=engine, d=data, p=params: e.estep(d, p, 1.0)
                if engine.name == "cpu":
                    runs["memory traffic alone", n_threads] = lambda e=engine, d=data: touch_all(e, d)
        seconds = {key: [] for key in runs}
        for _ in range(options.repeats + 1):                     # interleaved; the first round compiles
            for key, run in runs.items():
                began = time.perf_counter()
                run()
                seconds[key].append(time.perf_counter() - began)
        for (name, n_threads), times in seconds.items():
            best, median = min(times[1:]), float(np.median(times[1:]))
            print(json.dumps({
                "name": name, "threads": n_threads, "ratings": problem.n_ratings, "clusters": n_clusters,
                "seconds": round(best, 4), "median": round(median, 4),
                "updates_per_s": round(problem.n_ratings / best),
            }), flush=True)


if __name__ == "__main__":
    main()
