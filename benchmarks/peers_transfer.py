"""A peer on one task of benchmarks/transfer.py. Runs in the peers' own environment, never in the project's.

    python -m venv peers && peers/bin/pip install scikit-surprise cmfrec threadpoolctl myfm lenskit "setuptools<81"
    PCLF_PEERS=peers/bin/python python benchmarks/transfer.py whole        # starts this script for each task and peer

    peers_transfer.py PEER ASK.npz ANSWER.npz SEED SETTINGS

ASK has the merged table as codes: user, item, rating, test_user, test_item, and features, the attributes of each item as
0 and 1. ANSWER gets mean, median (of a distribution), seconds (of the last fit) and settings. SETTINGS is a JSON object, or
null: then those of the peer with the least mean absolute error on a tenth of the training ratings are chosen.

"myFM" is an ordered probit of user, item and the item's attributes. "myFM who rated what" has, besides, the items that a
user rated and the users who rated an item, each with the weight 1 / root of their number: a Bayesian SVD++ in both
directions (Rendle, Zhang & Koren, "On the Difficulty of Evaluating Baselines", 2019).
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import peers_accuracy
from peers_accuracy import GRIDS, Prediction, Settings, Triples, cmfrec, lenskit, probit, shape, surprise
from scipy.sparse import csr_matrix, diags, hstack, identity

HELD = 0.1      # of the training ratings, to choose settings


def machine(item_features: np.ndarray, who_rated_what: bool) -> Callable[..., Prediction]:
    """A factorization machine with a block for users and one for items."""

    def run(name: str, train: Triples, test: Triples, seed: int, settings: Settings) -> Prediction:
        from myfm import RelationBlock

        n_users, n_items = shape(train, test)
        users, items = [identity(n_users)], [identity(n_items)]
        if item_features.shape[1]:
            items.append(csr_matrix(item_features[:n_items]))
        if who_rated_what:
            rated = csr_matrix((np.ones(len(train[0])), (train[0], train[1])), shape=(n_users, n_items))
            users.append(weighed(rated))
            items.append(weighed(rated.T.tocsr()))
        blocks = [hstack(block).tocsr().astype(np.float64) for block in (users, items)]

        def rows(x: Triples) -> dict[str, Any]:
            return {"X": None, "X_rel": [RelationBlock(x[i], block) for i, block in enumerate(blocks)]}

        groups = [part.shape[1] for part in (*users, *items)]
        return probit(train[2], seed, settings, {**rows(train), "group_shapes": groups}, rows(test))

    return run


def weighed(rated: csr_matrix) -> csr_matrix:
    return diags(1 / np.sqrt(np.maximum(np.diff(rated.indptr), 1))) @ rated


def grid(name: str) -> list[Settings]:
    """Fewer settings than for the small samples of peers_accuracy.py, for larger data."""
    return {"BaselineOnly": GRIDS["BaselineOnly"][1][::5],
            "SVD": peers_accuracy._grid(n_factors=[20, 100], n_epochs=[30], reg_all=[0.05, 0.1]),
            "SVDpp": peers_accuracy._grid(n_factors=[20], n_epochs=[20], reg_all=[0.02, 0.05], cache_ratings=[True]),
            "cmfrec": peers_accuracy._grid(k=[20, 40], lambda_=[3.0, 6.0, 12.0], add_implicit_features=[True]),
            "LensKit": peers_accuracy._grid(embedding_size=[10, 40], epochs=[15], regularization=[0.03, 0.1, 0.3], damping=[5.0])}[name]


def peer(name: str, features: np.ndarray) -> tuple[Callable[..., Prediction], list[Settings]]:
    if name.startswith("myFM"):
        ranks = [8] if features.shape[1] else [8, 16]
        return machine(features, name.endswith("who rated what")), peers_accuracy._grid(rank=ranks, n_iter=[200])
    return {"cmfrec": cmfrec, "LensKit": lenskit}.get(name, surprise), grid(name)


def main() -> None:
    name, ask, answer, seed, said = sys.argv[1:]
    with np.load(ask) as x:
        train = x["user"], x["item"], x["rating"]
        test = x["test_user"], x["test_item"], np.zeros(len(x["test_user"]))
        run, settings = peer(name, x["features"])
    chosen = json.loads(said)
    if chosen is None:
        chosen = settings[0] if len(settings) == 1 else best(name, run, settings, train, int(seed))
    began = time.perf_counter()
    mean, median = run(name, train, test, int(seed), chosen)
    mean = np.where(np.isnan(mean), train[2].mean(), mean)
    found = {"mean": mean} if median is None else {"mean": mean, "median": median}
    np.savez(answer, seconds=time.perf_counter() - began, settings=json.dumps(chosen), **found)


def best(name: str, run: Callable[..., Prediction], settings: list[Settings], train: Triples, seed: int) -> Settings:
    held = np.random.default_rng(seed).random(len(train[0])) < HELD
    part, asked = (tuple(column[rows] for column in train) for rows in (~held, held))
    errors = [np.nanmean(np.abs(run(name, part, asked, seed, each)[0] - asked[2])) for each in settings]
    return settings[int(np.argmin(errors))]


if __name__ == "__main__":
    main()
