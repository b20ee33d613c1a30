"""Tonight's refit: MovieLens 1M with 1 % new ratings, from nothing and from the model of the day before.

    python benchmarks/update.py            # one JSON line to benchmarks/results/update.jsonl

A tenth of the ratings is held out and belongs to neither. Of the rest, 1 % drawn at random came in since; fits of both
kinds alternate, and the fastest of each counts.
"""

import json
import os
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import pclf
from pclf import datasets
from pclf.data.update import updated

REPEATS = 5
OUT = Path(__file__).parent / "results" / "update.jsonl"


def errors(model, test):
    """Mean absolute and root mean squared error by the mean rule, and mean absolute error by the median rule."""
    d = test["movies"]
    pairs = d.users.decode(d.user), d.items.decode(d.item)
    mean, median = (model.predict("movies", *pairs, rule=rule, unknown="newcomer") - d.ratings
                    for rule in ("mean", "median"))
    return [float(np.abs(mean).mean()), float(np.sqrt(np.square(mean).mean())), float(np.abs(median).mean())]


def main(seed=0):
    warnings.simplefilter("ignore")
    split = pclf.hold_out(datasets.load("ml-1m"), 0.1, seed=seed)
    late = np.random.default_rng(seed).random(len(split.train["movies"])) < 0.01
    new = split.train.select({"movies": late})
    before = split.train.select({"movies": ~late}).compact()
    yesterday, today = pclf.PCLF().fit(before), updated(before, new)
    seconds, cpu = {"anew": [], "update": []}, {"anew": [], "update": []}
    for _ in range(REPEATS):
        for kind, previous in (("anew", None), ("update", yesterday)):
            began, of_cpu = time.perf_counter(), time.process_time()
            fitted = pclf.PCLF().fit(today, previous=previous)
            seconds[kind].append(time.perf_counter() - began)
            cpu[kind].append(time.process_time() - of_cpu)
            if kind == "anew":
                anew = fitted
    found = {"anew": errors(anew, split.test), "update": errors(fitted, split.test),
             "yesterday": errors(yesterday, split.test)}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    row = {"what": "update, ML-1M, 1 % new", "commit": commit, "machine": platform.processor() or platform.machine(),
           "cores": os.cpu_count(), "seed": seed, "new": int(late.sum()), "ratings": today.n_ratings,
           "seconds": {kind: min(times) for kind, times in seconds.items()},
           "cpu_seconds": {kind: min(times) for kind, times in cpu.items()},
           "times_as_fast": min(seconds["anew"]) / min(seconds["update"]), "mae_rmse_median": found,
           "percent": [100 * (a / b - 1) for a, b in zip(found["update"], found["anew"], strict=True)]}
    with OUT.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
