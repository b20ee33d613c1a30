"""implicit's ALS and BPR, and ALS with a frequency-scaled penalty, on a split of benchmarks/lists.py.

    peers/bin/pip install implicit && PCLF_PEERS=peers/bin/python python benchmarks/lists.py ratings

SPLIT.npz holds the training choices (user, item, liked, grade), the people to make lists for and the shape. ALS is tried
on liked items and on graded choices, BPR on liked items. Settings are the best of GRID by nDCG@10 of a tenth of the
liked training choices, hidden; the lists are of a fit on all of them. They go to SPLIT.npy, and what they are to SPLIT.json.
implicit does not scale its penalty by how often a row occurs, so the grid of penalties is wide. iALS is written out here
after Rendle, Krichene, Zhang & Koren, "Revisiting the Performance of iALS on Item Recommendation Benchmarks", RecSys 2022:
what was not chosen counts alpha, and the penalty of a row with n choices is reg (n + alpha rows on the other side).
With a number of threads behind SPLIT, ALS of 64 factors is timed, and nothing else.
"""

import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_matrix

N = 10
GRID = {
    "implicit ALS": [{"rows": rows, "factors": factors, "alpha": alpha, "regularization": penalty}
                     for rows, factors, alpha, penalty in product(("liked", "grade"), (32, 64, 128), (1, 5),
                                                                  (0.1, 10.0, 50.0))],
    "iALS, scaled penalty": [{"rows": "liked", "factors": 64, "alpha": alpha, "regularization": penalty}
                             for alpha, penalty in product((0.05, 0.2), (0.003, 0.01, 0.03))],
    "implicit BPR": [{"rows": "liked", "factors": factors, "regularization": penalty, "iterations": 100}
                     for factors, penalty in product((64, 128), (0.01, 0.05))],
}


class Scaled:
    """iALS."""

    def __init__(self, factors: int, alpha: float, regularization: float, iterations: int = 10) -> None:
        self.size, self.alpha, self.penalty, self.iterations = factors, alpha, regularization, iterations

    def fit(self, rows: csr_matrix) -> None:
        rng = np.random.default_rng(0)
        self.users, self.items = (rng.normal(0, 0.1 / np.sqrt(self.size), (n, self.size)).astype(np.float32)
                                  for n in rows.shape)
        turned = rows.T.tocsr()
        for _ in range(self.iterations):
            self._step(self.users, self.items, rows)
            self._step(self.items, self.users, turned)

    def _step(self, own: np.ndarray, other: np.ndarray, rows: csr_matrix) -> None:
        square = self.alpha * other.T @ other
        for i in range(len(own)):
            chosen = other[rows.indices[rows.indptr[i]:rows.indptr[i + 1]]]
            penalty = self.penalty * (len(chosen) + self.alpha * len(other))
            table = square + chosen.T @ chosen
            table.flat[::self.size + 1] += penalty
            own[i] = np.linalg.solve(table, chosen.sum(axis=0))

    def recommend(self, people: np.ndarray, seen: csr_matrix, N: int, filter_already_liked_items: bool) -> Any:
        parts = []
        for start in range(0, len(people), 2000):
            scores = self.users[people[start:start + 2000]] @ self.items.T
            here = seen[start:start + 2000]
            scores[np.repeat(np.arange(len(scores)), np.diff(here.indptr)), here.indices] = -np.inf
            best = np.argpartition(-scores, N, axis=1)[:, :N]
            order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
            parts.append(np.take_along_axis(best, order, 1))
        return np.concatenate(parts), None


def fit(kind: str, settings: dict[str, Any], split: Any, kept: np.ndarray) -> Any:
    settings = dict(settings)
    weight = split[settings.pop("rows")].astype(np.float32) * kept
    rows = csr_matrix((weight, (split["user"], split["item"])), shape=tuple(split["shape"]))
    rows.eliminate_zeros()
    if kind.startswith("iALS"):
        scaled = Scaled(**settings)
        scaled.fit(rows)
        return scaled
    made = (AlternatingLeastSquares(iterations=15, random_state=0, **settings) if kind == "implicit ALS" else
            BayesianPersonalizedRanking(random_state=0, **settings))
    made.fit(rows, show_progress=False)
    return made


def lists(model: Any, people: np.ndarray, seen: csr_matrix) -> np.ndarray:
    codes, _ = model.recommend(people, seen[people], N=N, filter_already_liked_items=True)
    return codes


def ndcg(codes: np.ndarray, people: np.ndarray, wanted: csr_matrix) -> float:
    hits = np.take_along_axis(wanted[people].toarray() > 0, codes, 1)
    worth = 1 / np.log2(np.arange(2, N + 2))
    n = np.diff(wanted[people].indptr)
    return float((hits @ worth / np.concatenate([[0], np.cumsum(worth)])[np.minimum(n, N)]).mean())


def timed(path: str, threads: int) -> None:
    """Seconds of a fit, and of lists for everybody, and both on all cores together: the best of three."""
    split = dict(np.load(path))
    rows = csr_matrix((np.ones(len(split["user"]), np.float32), (split["user"], split["item"])), shape=tuple(split["shape"]))
    found = []
    for _ in range(3):
        model = AlternatingLeastSquares(factors=64, iterations=15, random_state=0, num_threads=threads)
        clocks = [(time.perf_counter(), time.process_time())]
        model.fit(rows, show_progress=False)
        clocks.append((time.perf_counter(), time.process_time()))
        model.recommend(np.arange(rows.shape[0]), rows, N=N, filter_already_liked_items=True)
        clocks.append((time.perf_counter(), time.process_time()))
        found.append(np.diff(clocks, axis=0))
    seconds, cpu = np.min(found, axis=0).T.tolist()
    Path(path).with_suffix(".json").write_text(json.dumps([*seconds, cpu]))


def main(path: str, *threads: str) -> None:
    if threads:
        return timed(path, int(threads[0]))
    split = dict(np.load(path))
    shape, user, item = tuple(split["shape"]), split["user"], split["item"]
    rng = np.random.default_rng(0)
    hidden = split["liked"] & (rng.random(len(user)) < 0.1)
    everything = np.ones(len(user), bool)
    seen = csr_matrix((np.ones(len(user), np.float32), (user, item)), shape=shape)
    shown = csr_matrix((np.ones((~hidden).sum(), np.float32), (user[~hidden], item[~hidden])), shape=shape)
    wanted = csr_matrix((np.ones(hidden.sum(), np.float32), (user[hidden], item[hidden])), shape=shape)
    tested = rng.permutation(np.unique(user[hidden]))[:3000]
    rows, codes = [], []
    for kind, grid in GRID.items():
        best = max(grid, key=lambda s, kind=kind: ndcg(lists(fit(kind, s, split, ~hidden), tested, shown), tested, wanted))
        began = time.perf_counter()
        model = fit(kind, best, split, everything)
        fitted = time.perf_counter()
        codes.append(lists(model, split["people"], seen))
        rows.append({"model": kind, "place": len(rows), "settings": best, "seconds": fitted - began,
                     "lists_seconds": time.perf_counter() - fitted})
    np.save(Path(path).with_suffix(".npy"), np.array(codes))
    Path(path).with_suffix(".json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
