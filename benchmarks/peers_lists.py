"""implicit's ALS and BPR on a split of benchmarks/lists.py. Runs in the peers' own environment.

    peers/bin/pip install implicit && python benchmarks/lists.py ratings peers/bin/python

SPLIT.npz holds the training choices (user, item, liked, grade), the people to make lists for and the shape. ALS is tried
on liked items and on graded choices, BPR on liked items. Settings are the best of GRID by nDCG@10 of a tenth of the
liked training choices, hidden; the lists are of a fit on all of them. They go to SPLIT.npy, and what they are to SPLIT.json.
implicit does not scale its penalty by how often a row occurs, so the grid of penalties is wide.
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
    "implicit BPR": [{"rows": "liked", "factors": factors, "regularization": penalty, "iterations": 100}
                     for factors, penalty in product((64, 128), (0.01, 0.05))],
}


def fit(kind: str, settings: dict[str, Any], split: Any, kept: np.ndarray) -> Any:
    settings = dict(settings)
    weight = split[settings.pop("rows")].astype(np.float32) * kept
    rows = csr_matrix((weight, (split["user"], split["item"])), shape=tuple(split["shape"]))
    rows.eliminate_zeros()
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


def main(path: str) -> None:
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
