"""GPU models of other libraries beside ours: seconds an iteration on the same synthetic ratings, or why they do not run.

    python benchmarks/gpu_peers.py --ratings 20000000 > benchmarks/results/gpu-peers-h200.jsonl

implicit's ALS (for implicit feedback; every rating counts as an event) and Cornac's MF with its PyTorch backend. Both are
given their data in host memory, as they want it; data transfer and set-up are timed apart where the library allows it.
"""

import argparse
import json
import time
import traceback
from typing import Any

import numpy as np


def ratings(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """Zipf items, log-normal users: 200 ratings a user on average, 100,000 items. Pairs may repeat."""
    rng = np.random.default_rng(seed)
    n_users, n_items = max(100, n // 200), 100_000
    activity = rng.lognormal(0, 1, n_users).cumsum()
    popularity = (1 / np.arange(1, n_items + 1) ** 0.8).cumsum()
    user = np.searchsorted(activity, rng.random(n) * activity[-1]).astype(np.int32)
    item = np.searchsorted(popularity, rng.random(n) * popularity[-1]).astype(np.int32)
    return user, item, rng.integers(1, 6, n).astype(np.float32), n_users, n_items


def ours(data: tuple, iterations: int) -> dict[str, Any]:
    import torch

    from pclf.clusters.loop import Schedule, random_memberships, run
    from pclf.engines.gpu import GpuEngine
    from pclf.problem import Layout, Problem, View

    user, item, rating, n_users, n_items = data
    rows_u, rows_v = np.arange(n_users, dtype=np.int32), np.arange(n_items, dtype=np.int32)
    layout = Layout(20, (View("common", (0,), 10), View("a", (0,), 15)))
    problem = Problem(layout, 5, n_users, (user,), (item,), ((rating - 1).astype(np.uint8),), (rows_u,), ((0, n_users),),
                      (n_items, n_items), ((rows_v,), (rows_v,)), (((0, n_items),), ((0, n_items),)))
    start = random_memberships(problem, np.random.default_rng(0))
    for n in (2, iterations):
        torch.cuda.synchronize()
        began = time.perf_counter()
        fit = run(GpuEngine(), problem, start, schedule=Schedule((1.0,), max_iter=n, tol=0))
        torch.cuda.synchronize()
        total = time.perf_counter() - began
    steps = np.diff([s.seconds for s in fit.trace])
    return {"model": "pclf PCLF, K=20, T=10, L=15", "iterations": iterations, "seconds": total,
            "seconds_an_iteration": float(np.median(steps))}


def implicit_als(data: tuple, iterations: int) -> dict[str, Any]:
    import implicit.gpu.als
    from scipy.sparse import csr_matrix

    user, item, rating, n_users, n_items = data
    matrix = csr_matrix((rating, (user, item)), shape=(n_users, n_items))
    model = implicit.gpu.als.AlternatingLeastSquares(factors=32, iterations=2, random_state=0)
    model.fit(matrix, show_progress=False)
    stamps: list[float] = []
    model = implicit.gpu.als.AlternatingLeastSquares(factors=32, iterations=iterations, random_state=0)
    began = time.perf_counter()
    model.fit(matrix, show_progress=False, callback=lambda *a: stamps.append(time.perf_counter()))
    times = np.diff(stamps)
    return {"model": "implicit ALS, 32 factors", "iterations": iterations, "seconds": time.perf_counter() - began,
            "seconds_an_iteration": float(np.median(times)) if len(times) else None}


def cornac_mf(data: tuple, iterations: int) -> dict[str, Any]:
    import cornac
    from cornac.models import MF

    user, item, rating, *_ = (x[:1_000_000] if isinstance(x, np.ndarray) else x for x in data)
    keep = np.unique(user.astype(np.int64) * 100_000 + item, return_index=True)[1]
    rows = list(zip(user[keep].tolist(), item[keep].tolist(), rating[keep].tolist(), strict=True))
    train = cornac.data.Dataset.from_uir(rows)
    for n in (1, iterations):                   # the first is the warm-up
        model = MF(k=32, backend="pytorch", max_iter=n, batch_size=1 << 16, optimizer="adam", verbose=False, seed=0)
        began = time.perf_counter()
        model.fit(train)
        seconds = time.perf_counter() - began
    return {"model": "Cornac MF, PyTorch, 32 factors", "iterations": iterations, "ratings": len(rows), "seconds": seconds,
            "seconds_an_iteration": seconds / iterations}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ratings", type=int, default=20_000_000)
    parser.add_argument("--iterations", type=int, default=15)
    arguments = parser.parse_args()
    made = ratings(arguments.ratings)
    for fit in (ours, implicit_als, cornac_mf):
        row: dict[str, Any] = {"name": fit.__name__, "ratings": arguments.ratings}
        try:
            row |= fit(made, arguments.iterations)
            row["ratings_an_iteration_per_s"] = row["ratings"] / row["seconds_an_iteration"]
        except Exception as error:
            row["does_not_run"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            traceback.print_exc()
        print(json.dumps(row), flush=True)
