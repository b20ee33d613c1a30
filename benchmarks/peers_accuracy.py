"""Accuracy of the peers on the paper's protocol. Runs in the peers' own environment, never in the project's.

    python -m venv peers && peers/bin/pip install scikit-surprise cmfrec threadpoolctl myfm lenskit "setuptools<81"
    peers/bin/python benchmarks/peers_accuracy.py --splits SPLITS --out peers.jsonl

SPLITS holds one file a domain and repeat, `BC-0.npz` ... `EM-9.npz`, with four arrays: user (0..499), item
(0..999), rating (1..5) and rank, the place of a rating in a random order of its user's. Users 0..299 train
whole; the others keep the ratings with rank < N. Every peer sees one domain, and the N ratings of the test users
are among its training ratings, since most of them cannot fold a user in.

Settings come from a small grid a peer (`GRIDS`), chosen for each domain and N on validation ratings alone: in
repeats 0 and 1, the last 80 of the training users keep N ratings and are scored on the rest. The best by MAE
gives the row for MAE, the best by RMSE the row for RMSE; where they agree there is one row with `chosen_by` "both".

myFM's import needs setuptools < 81; cmfrec's needs threadpoolctl. On Python 3.11 pip finds LensKit 2025.8.1.

A row: {"peer", "domain", "given", "repeat", "chosen_by", "settings", "mae", "mae_rounded", "rmse", "seconds"};
`mae_median` as well for peers that predict a distribution. Rows that are in the file already are not run again.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DOMAINS = ("BC", "ML", "EM")
GIVEN = (5, 10, 15)
N_TRAIN_USERS = 300
N_VALIDATION_USERS = 80
VALIDATION_REPEATS = (0, 1)

Settings = dict[str, Any]
Triples = tuple[np.ndarray, np.ndarray, np.ndarray]     # user, item, rating
Prediction = tuple[np.ndarray, np.ndarray | None]       # mean, median where there is a distribution


def surprise(name: str, train: Triples, test: Triples, seed: int, settings: Settings) -> Prediction:
    import pandas as pd
    import surprise as s

    frame = pd.DataFrame(dict(zip(("user", "item", "rating"), train, strict=True)))
    data = s.Dataset.load_from_df(frame, s.Reader(rating_scale=(train[2].min(), train[2].max()))).build_full_trainset()
    if name == "BaselineOnly":
        model = s.BaselineOnly(bsl_options={"method": "als", **settings}, verbose=False)
    elif name == "SlopeOne":
        model = s.SlopeOne()
    else:
        model = getattr(s, name)(random_state=seed, **settings)
    model.fit(data)
    return np.array([model.predict(u, v).est for u, v in zip(test[0].tolist(), test[1].tolist(), strict=True)]), None


def cmfrec(name: str, train: Triples, test: Triples, seed: int, settings: Settings) -> Prediction:
    from cmfrec import CMF
    from scipy.sparse import coo_matrix

    matrix = coo_matrix((train[2].astype(float), (train[0], train[1])), shape=shape(train, test))
    model = CMF(method="als", use_cg=False, random_state=seed, verbose=False, nthreads=1, **settings).fit(matrix)
    return model.predict(test[0], test[1]), None


def lenskit(name: str, train: Triples, test: Triples, seed: int, settings: Settings) -> Prediction:
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.basic import BiasModel
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.training import TrainingOptions

    frame = pd.DataFrame({"user_id": train[0], "item_id": train[1], "rating": train[2].astype(float)})
    data = from_interactions_df(frame)
    model = BiasedMFScorer(**settings)
    model.train(data, TrainingOptions(rng=seed))
    bias = BiasModel.learn(data, damping=settings.get("damping", 5.0))
    out = np.empty(len(test[0]))
    for user in np.unique(test[0]):
        rows = np.flatnonzero(test[0] == user)
        items = ItemList(item_ids=test[1][rows])
        scores = np.asarray(model(query=int(user), items=items).scores(), dtype=float)
        fallback, _ = bias.compute_for_items(items, user_id=int(user))
        out[rows] = np.where(np.isnan(scores), fallback, scores)   # an item nobody rated in training
    return out, None


def myfm(name: str, train: Triples, test: Triples, seed: int, settings: Settings) -> Prediction:
    from scipy.sparse import csr_matrix

    n_users, n_items = shape(train, test)

    def features(x: Triples) -> csr_matrix:
        n = len(x[0])
        columns = np.c_[x[0], n_users + x[1]].ravel()
        return csr_matrix((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, n_users + n_items))

    return probit(train[2], seed, settings, {"X": features(train), "group_shapes": [n_users, n_items]}, {"X": features(test)})


def probit(rating: np.ndarray, seed: int, settings: Settings, train: Settings, test: Settings) -> Prediction:
    """Mean and median by myFM's ordered probit; `train` and `test` hold the features."""
    from myfm import MyFMOrderedProbit

    settings = dict(settings)
    n_iter = settings.pop("n_iter")
    values, levels = np.unique(rating, return_inverse=True)
    model = MyFMOrderedProbit(random_seed=seed, **settings)
    model.fit(y=levels, n_iter=n_iter, n_kept_samples=n_iter // 2, **train)
    proba = model.predict_proba(**test)
    return proba @ values, values[np.minimum((proba.cumsum(1) < 0.5).sum(1), len(values) - 1)]


def shape(train: Triples, test: Triples) -> tuple[int, int]:
    """How many users and items there are."""
    users, items = (1 + int(max(train[i].max(), test[i].max())) for i in (0, 1))
    return users, items


def _grid(**choices: list[Any]) -> list[Settings]:
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


Peer = Callable[[str, Triples, Triples, int, Settings], Prediction]
GRIDS: dict[str, tuple[Peer, list[Settings]]] = {
    "BaselineOnly": (surprise, _grid(n_epochs=[20], reg_u=[2, 5, 10, 15], reg_i=[2, 5, 10, 20])),
    "SVD": (surprise, _grid(n_factors=[20, 100], n_epochs=[20, 40], reg_all=[0.02, 0.05, 0.1])),
    "SlopeOne": (surprise, [{}]),
    "CoClustering": (surprise, _grid(n_cltr_u=[2, 3, 5], n_cltr_i=[2, 3, 5], n_epochs=[20])),
    "NMF": (surprise, _grid(n_factors=[5, 15], n_epochs=[50], reg_pu=[0.06, 0.2], reg_qi=[0.06, 0.2])
            + _grid(n_factors=[5], n_epochs=[50], biased=[True], reg_pu=[0.2], reg_qi=[0.2], reg_bu=[0.05],
                    reg_bi=[0.05])),
    "cmfrec": (cmfrec, _grid(k=[5, 20, 40], lambda_=[3.0, 6.0, 12.0, 24.0], add_implicit_features=[False, True])),
    "myFM": (myfm, _grid(rank=[0, 2, 4, 8, 16], n_iter=[200])),
    "SVDpp": (surprise, _grid(n_factors=[10], n_epochs=[20, 40], reg_all=[0.02, 0.1], cache_ratings=[True])),
    "LensKit": (lenskit, _grid(embedding_size=[5, 20, 40], epochs=[15], regularization=[0.1, 0.3, 1.0],
                               damping=[5.0])),
}


def split(file: Path, given: int, validation: bool) -> tuple[Triples, Triples]:
    """Training and test ratings; of training users alone when for validation."""
    x = np.load(file)
    user, item, rating, rank = x["user"].astype(int), x["item"].astype(int), x["rating"].astype(int), x["rank"]
    train = (user < N_TRAIN_USERS) | (rank < given)
    test = ~train
    if validation:
        test = (user >= N_TRAIN_USERS - N_VALIDATION_USERS) & (user < N_TRAIN_USERS) & (rank >= given)
        train = train & ~test
    return (user[train], item[train], rating[train]), (user[test], item[test], rating[test])


def scores(prediction: Prediction, rating: np.ndarray) -> dict[str, float]:
    mean, median = np.clip(prediction[0], 1, 5), prediction[1]
    out = {"mae": float(np.abs(mean - rating).mean()),
           "mae_rounded": float(np.abs(np.rint(mean) - rating).mean()),
           "rmse": float(np.sqrt(((mean - rating) ** 2).mean()))}
    if median is not None:
        out["mae_median"] = float(np.abs(median - rating).mean())
    return out


def choose(peer: str, splits: Path, domain: str, given: int) -> dict[str, Settings]:
    """The settings with the lowest validation MAE and with the lowest validation RMSE."""
    run, grid = GRIDS[peer]
    if len(grid) == 1:
        return {"both": grid[0]}
    table = []
    for settings in grid:
        found = []
        for repeat in VALIDATION_REPEATS:
            train, held = split(splits / f"{domain}-{repeat}.npz", given, validation=True)
            found.append(scores(run(peer, train, held, repeat, settings), held[2]))
        table.append([np.mean([f[name] for f in found]) for name in ("mae", "rmse")])
    by_mae, by_rmse = np.argmin(table, axis=0)
    return {"both": grid[by_mae]} if by_mae == by_rmse else {"mae": grid[by_mae], "rmse": grid[by_rmse]}


def cells(peers: list[str], n_repeats: int, done: set[tuple[Any, ...]]) -> Iterator[tuple[str, str, int, list[int]]]:
    for peer, domain, given in itertools.product(peers, DOMAINS, GIVEN):
        repeats = [r for r in range(n_repeats) if (peer, domain, given, r, "both") not in done
                   and not {(peer, domain, given, r, "mae"), (peer, domain, given, r, "rmse")} <= done]
        if repeats:
            yield peer, domain, given, repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--peers", nargs="+", default=list(GRIDS), choices=list(GRIDS))
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()

    lines = args.out.read_text().splitlines() if args.out.exists() else []
    keys = ("peer", "domain", "given", "repeat", "chosen_by")
    done = {tuple(row[key] for key in keys) for row in map(json.loads, lines)}
    with args.out.open("a") as out:
        for peer, domain, given, repeats in cells(args.peers, args.repeats, done):
            chosen = choose(peer, args.splits, domain, given)
            for repeat, (chosen_by, settings) in itertools.product(repeats, chosen.items()):
                if (peer, domain, given, repeat, chosen_by) in done:
                    continue
                train, test = split(args.splits / f"{domain}-{repeat}.npz", given, validation=False)
                start = time.perf_counter()
                prediction = GRIDS[peer][0](peer, train, test, repeat, settings)
                row = {"peer": peer, "domain": domain, "given": given, "repeat": repeat, "chosen_by": chosen_by,
                       "settings": settings, **scores(prediction, test[2]),
                       "seconds": round(time.perf_counter() - start, 3)}
                out.write(json.dumps(row) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
