"""implicit's ALS on events: MovieLens 1M, ratings of 4 and 5. Runs in the peers' own environment.

    python benchmarks/accuracy.py events EVENTS.npz          # with pclf: its own rows, and the split
    peers/bin/pip install implicit && peers/bin/python benchmarks/peers_events.py EVENTS.npz

EVENTS.npz holds train, valid and test, (n, 2) each: user, item. Settings are the best of GRID by nDCG@10 on `valid`, after
training on `train` without it; the row is of a fit on both. It goes to
benchmarks/results/peers-events.jsonl.
"""

import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

GRID = [dict(zip(("factors", "alpha", "regularization"), x, strict=True))
        for x in product((12, 32, 64), (1, 5, 20), (0.01, 10.0))]
OUT = Path(__file__).parent / "results/peers-events.jsonl"


def fit(train: np.ndarray, shape: tuple[int, int], settings: dict) -> AlternatingLeastSquares:
    events = csr_matrix((np.ones(len(train), np.float32), train.T), shape=shape)
    model = AlternatingLeastSquares(iterations=15, random_state=0, **settings)
    model.fit(events, show_progress=False)
    return model


def lists(model: AlternatingLeastSquares, train: np.ndarray) -> np.ndarray:
    scores = model.user_factors @ model.item_factors.T
    scores[tuple(train.T)] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


def scores(found: np.ndarray, test: np.ndarray, shape: tuple[int, int]) -> dict[str, float]:
    """The mean over users with something to find."""
    relevant = np.zeros(shape, bool)
    relevant[tuple(test.T)] = True
    users = np.unique(test[:, 0])
    hits, n = np.take_along_axis(relevant, found, 1)[users], relevant[users].sum(axis=1)
    worth = 1 / np.log2(np.arange(2, 12))
    best = np.concatenate([[0], np.cumsum(worth)])[np.minimum(n, 10)]
    return {"ndcg@10": float(((hits * worth).sum(axis=1) / best).mean()), "recall@10": float((hits.sum(axis=1) / n).mean()),
            "precision@10": float(hits.mean())}


def main(path: str) -> None:
    split = np.load(path)
    train, valid, test = split["train"], split["valid"], split["test"]
    shape = tuple(np.concatenate([train, valid, test]).max(axis=0) + 1)
    settings = max(GRID, key=lambda s: scores(lists(fit(train, shape, s), train), valid, shape)["ndcg@10"])
    both = np.concatenate([train, valid])
    began = time.perf_counter()
    model = fit(both, shape, settings)
    seconds = time.perf_counter() - began
    row = {"model": f"implicit ALS, {settings['factors']} factors", "settings": settings,
           **scores(lists(model, both), test, shape), "seconds": round(seconds, 2)}
    OUT.write_text(json.dumps(row) + "\n")
    print(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
