"""As many people as things and one rating each, so that nobody has anything in common: does a fit end, and on how much?

    python benchmarks/diagonal.py 1000000

Prints seconds, seconds of all cores, and the most memory, step by step.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pclf


def main(n: int) -> None:
    ratings = np.random.default_rng(0).integers(1, 6, n)
    step = Steps()
    data = pclf.Ratings.from_arrays({"a": (np.arange(n), np.arange(n), ratings)})
    step(f"{n:,} ratings are read")
    model = pclf.PCLF().fit(data)
    step("fitted")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        step(f"saved, {path.stat().st_size / 1e6:,.0f} MB")
        model = pclf.load(path)
        step("loaded")
    lists = model.recommend("a", list(range(0, n, max(1, n // 10))), n=10)
    assert all(len(found) == 10 for found in lists)
    step(f"{len(lists)} lists of 10")
    error = np.abs(model.predict("a", list(range(1000)), 1) - ratings.mean()).max()
    step(f"1,000 predictions, at most {error:.2f} from the mean of all ratings, which is all that can be known")


class Steps:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.wall, self.cores = time.perf_counter(), time.process_time()

    def __call__(self, what: str) -> None:
        wall, cores = time.perf_counter() - self.wall, time.process_time() - self.cores
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{wall:8.1f} s  {cores:8.1f} s of cores  {memory:5.1f} GB  {what}", flush=True)
        self.begin()


if __name__ == "__main__":
    main(int(sys.argv[1]))
