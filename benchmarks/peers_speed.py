"""Speed of a whole fit beside the peers, on one split of MovieLens 1M: 90 % to train on, 10 % for the MAE.

The peers live in an environment of their own:

    python -m venv peers && peers/bin/pip install scikit-surprise cmfrec threadpoolctl implicit cornac lenskit \\
        "setuptools<81" wheel && CXXFLAGS="-O3 -march=native -DUSEAVX" peers/bin/pip install --no-build-isolation libmf
    PCLF_DATA=... python benchmarks/peers_speed.py --peers peers/bin/python

This runs in the project's environment and starts one process a fit: all models once, then all again, so that a
change in the machine's load meets everybody. In a process, data are brought into the form the model wants first;
a fit of one rating in a hundred follows, which loads libraries and compiles (`warm_up`); then the fit that counts
(`seconds`). All get the same threads; a library that has threads of its own gets a BLAS with one.

Peers have 20 factors, as PCLF has 20 user clusters, and the iterations that are usual for them: 15 for alternating
least squares, 20 for stochastic gradient descent. Plain PCLF makes 50; it is also timed as published, and with its
defaults, which add factors and learn their weight. Settings are the fast ones that their documentation or
benchmarks name; penalties give a sensible error and are not tuned.

`--lists` times top-10 lists for all users: `recommend` beside Surprise's documented way, which predicts all pairs
that are not in training one by one. That is timed on some users and multiplied.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

FACTORS, ALS, SGD = 20, 15, 20
SAMPLE = 60                                                 # users of Surprise's top-10 lists
Triples = tuple[np.ndarray, np.ndarray, np.ndarray]         # user, item, rating
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]    # users, items -> ratings
Fit = Callable[[], Predict | None]                          # None: the model does not predict ratings


def plain() -> Any:
    """EM alone, 50 iterations: neither priors nor factors, and nothing to choose."""
    import pclf

    return pclf.PCLF.paper(start="memberships", betas=(0.8, 0.9, 1.0), max_iter=50, tol=0.0)


def published() -> Any:
    import pclf

    return pclf.PCLF.paper()


def defaults() -> Any:
    import pclf

    return pclf.PCLF()


def pclf(make: Callable[[], Any], train: Triples, threads: int) -> Fit:
    import pclf

    data = pclf.Ratings.from_arrays({"movies": train}, scale=(1, 5))
    movies = data.domains["movies"]

    def fit() -> Predict:
        model = make().fit(data, engine="cpu", n_threads=threads)

        def predict(users: np.ndarray, items: np.ndarray) -> np.ndarray:
            user, item = movies.users.encode(users), movies.items.encode(items)
            known = (user >= 0) & (item >= 0)
            out = np.full(len(users), movies.ratings.mean())
            out[known] = model.predict_codes("movies", user[known], item[known])
            return out
        return predict
    return fit


def surprise_svd(train: Triples, threads: int) -> Fit:
    import surprise

    trainset = _surprise_trainset(train)

    def fit() -> Predict:
        model = surprise.SVD(n_factors=FACTORS, n_epochs=SGD, random_state=0)
        model.fit(trainset)
        return lambda users, items: np.array([model.predict(u, v).est for u, v in zip(users, items, strict=True)])
    return fit


def cmfrec_als(train: Triples, threads: int) -> Fit:
    from cmfrec import CMF
    from scipy.sparse import coo_matrix

    matrix = coo_matrix((train[2].astype(np.float32), (train[0], train[1])))

    def fit() -> Predict:
        model = CMF(k=FACTORS, lambda_=0.05, scale_lam=True, method="als", use_cg=True, finalize_chol=False,
                    niter=ALS, use_float=True, precompute_for_predictions=False, produce_dicts=False,
                    nthreads=threads, verbose=False)
        model.fit(matrix)
        return model.predict
    return fit


def implicit_als(train: Triples, threads: int) -> Fit:
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    matrix = csr_matrix((train[2].astype(np.float32), (train[0], train[1])))

    def fit() -> None:
        AlternatingLeastSquares(FACTORS, iterations=ALS, num_threads=threads).fit(matrix, show_progress=False)
    return fit


def lenskit_als(train: Triples, threads: int) -> Fit:
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.training import TrainingOptions

    frame = pd.DataFrame({"user_id": train[0], "item_id": train[1], "rating": train[2].astype(np.float32)})
    data, mean = from_interactions_df(frame), train[2].mean()

    def fit() -> Predict:
        model = BiasedMFScorer(embedding_size=FACTORS, epochs=ALS, regularization=0.1)
        model.train(data, TrainingOptions(rng=0))

        def predict(users: np.ndarray, items: np.ndarray) -> np.ndarray:
            out = np.empty(len(users))
            for user in np.unique(users):
                rows = np.flatnonzero(users == user)
                out[rows] = model(query=int(user), items=ItemList(item_ids=items[rows])).scores()
            return np.where(np.isnan(out), mean, out)
        return predict
    return fit


def libmf_sgd(train: Triples, threads: int) -> Fit:
    from libmf import mf

    mean, matrix = float(train[2].mean()), np.column_stack(train).astype(np.float32)

    def fit() -> Predict:
        model = mf.MF(fun=mf.P_L2_MFR, k=FACTORS, nr_threads=threads, nr_bins=2 * threads + 1, nr_iters=SGD,
                      lambda_p1=0.0, lambda_q1=0.0, lambda_p2=0.05, lambda_q2=0.05, quiet=True)
        model.fit(matrix)
        rows = {"P": model.model.m, "Q": model.model.n}
        p, q = (np.ctypeslib.as_array(ctypes.cast(getattr(model.model, name), ctypes.POINTER(ctypes.c_float)),
                                      (n, model.model.k)).copy() for name, n in rows.items())

        def predict(users: np.ndarray, items: np.ndarray) -> np.ndarray:
            known = (users < len(p)) & (items < len(q))
            out = np.full(len(users), mean)
            out[known] = np.einsum("nk,nk->n", p[users[known]], q[items[known]])
            return np.where(np.isnan(out), mean, out)          # rows without ratings
        return predict
    return fit


def cornac_mf(train: Triples, threads: int) -> Fit:
    from cornac.data import Dataset
    from cornac.models import MF

    data = Dataset.from_uir(list(zip(*(x.tolist() for x in train), strict=True)))

    def fit() -> Predict:
        model = MF(k=FACTORS, max_iter=SGD, learning_rate=0.01, lambda_reg=0.02, num_threads=threads, seed=None)
        model.fit(data)
        users = np.array([data.uid_map.get(u, -1) for u in range(1 + max(data.uid_map))])
        items = np.array([data.iid_map.get(v, -1) for v in range(1 + max(data.iid_map))])

        def predict(who: np.ndarray, what: np.ndarray) -> np.ndarray:
            out = np.full(len(who), float(train[2].mean()))
            u, v = (np.where(x < len(m), m[np.minimum(x, len(m) - 1)], -1) for x, m in ((who, users), (what, items)))
            k = (u >= 0) & (v >= 0)
            out[k] = (model.global_mean + model.u_biases[u[k]] + model.i_biases[v[k]]
                      + np.einsum("nk,nk->n", model.u_factors[u[k]], model.i_factors[v[k]]))
            return out
        return predict
    return fit


MODELS: dict[str, tuple[Callable[[Triples, int], Fit], str, int]] = {   # how, package, iterations
    "PCLF": (partial(pclf, plain), "pclf", 50),
    "PCLF as published": (partial(pclf, published), "pclf", 40),
    "PCLF with its defaults": (partial(pclf, defaults), "pclf", 35),
    "LensKit BiasedMF": (lenskit_als, "lenskit", ALS),
    "cmfrec ALS": (cmfrec_als, "cmfrec", ALS),
    "implicit ALS": (implicit_als, "implicit", ALS),
    "LIBMF": (libmf_sgd, "libmf", SGD),
    "Surprise SVD": (surprise_svd, "scikit-surprise", SGD),
    "Cornac MF": (cornac_mf, "cornac", SGD),
}
ONE_THREAD = ("Surprise SVD",)


def fit_here(name: str, file: Path, threads: int) -> dict[str, Any]:
    """One model in this process: a small fit, the fit that counts, its MAE."""
    from importlib.metadata import version

    prepare, package, iterations = MODELS[name]
    x = np.load(file)
    train, (users, items, ratings) = (tuple(x[f"{part}_{c}"] for c in ("user", "item", "rating"))
                                      for part in ("train", "test"))
    began = time.perf_counter()
    prepare(tuple(c[::100] for c in train), threads)()
    warm_up = time.perf_counter() - began
    fit = prepare(train, threads)
    began, cpu = time.perf_counter(), time.process_time()
    predict = fit()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    row = {"name": name, "version": version(package), "iterations": iterations, "ratings": len(train[0]),
           "threads": 1 if name in ONE_THREAD else threads, "warm_up": warm_up, "seconds": seconds, "cpu_seconds": cpu,
           "mae": None, "rmse": None}
    if predict is not None:
        error = np.clip(predict(users, items), 1, 5) - ratings
        row |= {"mae": float(np.abs(error).mean()), "rmse": float(np.sqrt((error**2).mean()))}
    return row


def lists_here(name: str, file: Path, threads: int) -> dict[str, Any]:
    """Top-10 lists of all users, as the library's documentation says."""
    x = np.load(file)
    train = tuple(x[f"train_{c}"] for c in ("user", "item", "rating"))
    if name == "PCLF":
        import pclf

        data = pclf.Ratings.from_arrays({"movies": train}, scale=(1, 5))
        model = plain().fit(data, engine="cpu", n_threads=threads)
        times = []
        for _ in range(6):
            began = time.perf_counter()
            model.recommend("movies", n=10)
            times.append(time.perf_counter() - began)
        return {"name": f"top-10 lists, {name}", "users": data.domains["movies"].n_users, "warm_up": times[0],
                "seconds": statistics.median(times[1:]), "threads": threads, "extrapolated_from": None}
    import surprise

    trainset = _surprise_trainset(train)
    model = surprise.SVD(n_factors=FACTORS, n_epochs=SGD, random_state=0).fit(trainset)
    chosen = np.random.default_rng(0).choice(trainset.n_users, SAMPLE, replace=False)
    began = time.perf_counter()
    pairs = []                                     # build_anti_testset, for these users
    for u in chosen:
        seen = {v for v, _ in trainset.ur[u]}
        pairs += [(trainset.to_raw_uid(u), trainset.to_raw_iid(v), trainset.global_mean)
                  for v in trainset.all_items() if v not in seen]
    best: dict[Any, list[tuple[Any, float]]] = {}
    for user, item, _, estimate, _ in model.test(pairs):
        best.setdefault(user, []).append((item, estimate))
    for found in best.values():
        found.sort(key=lambda pair: pair[1], reverse=True)
        del found[10:]
    seconds = time.perf_counter() - began
    return {"name": f"top-10 lists, {name}", "users": trainset.n_users, "warm_up": 0.0,
            "seconds": seconds * trainset.n_users / SAMPLE, "threads": 1, "extrapolated_from": SAMPLE}


def write_split(folder: Path) -> Path:
    """The split, as numbers that mean the same to everybody."""
    from pclf import datasets
    from pclf.data import splits

    split = splits.hold_out(datasets.load("ml-1m"), 0.1, seed=0)
    columns = {}
    for part, data in (("train", split.train), ("test", split.test)):
        movies = data.domains["movies"]
        columns |= {f"{part}_user": movies.user, f"{part}_item": movies.item,
                    f"{part}_rating": movies.ratings.astype(np.float32)}
    path = folder / "ml-1m.npz"
    np.savez(path, **columns)
    return path


def in_a_process(task: str, name: str, python: str, file: Path, threads: int) -> dict[str, Any] | str:
    """The row that a process of its own found, or why it found none."""
    own = {"LK_NUM_THREADS": str(threads), "LK_NUM_BACKEND_THREADS": "1", "RAYON_NUM_THREADS": str(threads),
           "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [python, "-W", "ignore", __file__, f"--{task}", name, "--file", str(file), "--threads", str(threads)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **own})
    if said.returncode:
        return said.stderr.strip().splitlines()[-1] if said.stderr.strip() else f"exit status {said.returncode}"
    return json.loads(said.stdout.strip().splitlines()[-1])


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the repeats, and the distance between the quartiles of the seconds."""
    out = dict(rows[0])
    for key in ("warm_up", "seconds", "cpu_seconds", "mae", "rmse"):
        if isinstance(out.get(key), float):
            out[key] = round(statistics.median(row[key] for row in rows), 4)
    low, high = np.percentile([row["seconds"] for row in rows], [25, 75])
    return {**out, "spread": round(float(high - low), 4), "repeats": len(rows)}


def drive(options: argparse.Namespace) -> None:
    from pclf import bench

    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = write_split(Path(folder))
        tasks = [("fit", name) for name in options.models]
        tasks += [("list", name) for name in ("PCLF", "Surprise SVD") if options.lists]
        for _ in range(options.repeats):
            for task, name in list(tasks):
                row = in_a_process(task, name, sys.executable if name.startswith("PCLF") else options.peers, file,
                                   options.threads)
                if isinstance(row, str):
                    print(f"{name} does not run here: {row}", file=sys.stderr)
                    tasks.remove((task, name))
                else:
                    found.setdefault(row["name"], []).append({**row, "load": bench.load()})
                    print(json.dumps(row), file=sys.stderr, flush=True)
    about = {"data": "MovieLens 1M", "commit": bench.commit(), "machine": bench.machine(), "cores": bench.cores(),
             "date": time.strftime("%Y-%m-%d %H:%M")}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as out:
        for rows in found.values():
            line = json.dumps({**together(rows), **about})
            print(line)
            out.write(line + "\n")


def _surprise_trainset(train: Triples) -> Any:
    import pandas as pd
    import surprise

    frame = pd.DataFrame(dict(zip(("user", "item", "rating"), train, strict=True)))
    return surprise.Dataset.load_from_df(frame, surprise.Reader(rating_scale=(1, 5))).build_full_trainset()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=sys.executable, help="Python of the peers' environment")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--lists", action="store_true", help="top-10 lists too")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/speed-ml1m.jsonl"))
    parser.add_argument("--fit", dest="fit_name", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--list", dest="list_name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit_name:
        print(json.dumps(fit_here(options.fit_name, options.file, options.threads)))
    elif options.list_name:
        print(json.dumps(lists_here(options.list_name, options.file, options.threads)))
    else:
        drive(options)


if __name__ == "__main__":
    main()
