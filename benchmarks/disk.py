"""Fits larger than memory: seconds, memory and disk from 2 M to 200 M ratings, under a limit that the system enforces.

    python benchmarks/disk.py --folder /some/disk --sizes 2,20,200 --memory 4GB            # --lists, --factors: with these
    python benchmarks/disk.py --folder /some/disk --accuracy --memory 2GB                  # ML-1M, PCLF_DATA

Two catalogues with text ids in Parquet parts, 100 ratings a user, items by popularity. Each size is fitted in a process of
its own whose address space is limited (RLIMIT_AS), so a fit that needs more dies. One JSON line a size goes to
benchmarks/results/disk.jsonl. With --accuracy, four fifths of the ratings of MovieLens 1M are fitted on disk and in memory,
each in a process of its own, and lists are judged by the liked items among the others, expected ratings by their errors;
rows go to disk-lists.jsonl. With --factors, a sweep over people and items is timed beside one in memory.
The limit counts mapped files and libraries too, so it is stricter than one on memory alone.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "disk.jsonl"
PLAIN = {"popular": ("count",), "bias": ("rating",)}            # what their lists are sorted by
OF_LISTS = RESULTS.with_name("disk-lists.jsonl")
CATALOGUES = {"films": (15_000, 5), "books": (10_000, 10)}      # items, highest rating
EACH = 100                                                      # ratings a user
ROWS = 2_000_000                                                # of a part
ITERATIONS = 6
N_FACTORS, SWEEPS = 12, 5
IN_MEMORY = 20                                                  # millions of ratings that are fitted in memory, too


def generate(folder, millions):
    """Parts of both catalogues, written once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = folder / f"{millions}M"
    if (made / "done").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    for z, (name, (n_items, high)) in enumerate(CATALOGUES.items()):
        (made / name).mkdir(parents=True)
        n_users = millions * 1_000_000 // len(CATALOGUES) // EACH
        rng = np.random.default_rng((z, millions))
        kinds, quality = rng.normal(size=(n_items, 3)), rng.normal(size=n_items)
        names = pa.array([f"{name[:-1]}-{i:06d}" for i in range(n_items)])
        for part, first in enumerate(range(0, n_users, ROWS // EACH)):
            users = np.arange(first, min(n_users, first + ROWS // EACH))
            n = len(users) * EACH * 2
            user, item = rng.integers(0, len(users), n), (rng.random(n) ** 2 * n_items).astype(np.int64)
            pairs = rng.permutation(np.unique(user * n_items + item))[: len(users) * EACH]
            user, item = pairs // n_items, pairs % n_items
            taste = (rng.normal(size=(len(users), 3))[user] * kinds[item]).sum(axis=1) + quality[item]
            rating = np.clip(np.round(high / 2 + 0.5 + high / 6 * (taste + rng.normal(size=len(user)))), 1, high)
            ids = pa.array([f"{name}-reader-{u:09d}" for u in users])
            pq.write_table(pa.table({"user_id": ids.take(user), "item_id": names.take(item),
                                     "rating": rating.astype(np.int8)}), made / name / f"part-{part:05d}.parquet")
    (made / "done").touch()
    return made


def timed_sweeps(raters):
    """Wall and CPU at the end of each sweep of the factors of such raters."""
    wall, cpu, plain = [], [], raters.swept

    def swept(*arguments):
        plain(*arguments)
        wall.append(time.perf_counter())
        cpu.append(time.process_time())

    raters.swept = swept
    return wall, cpu


def typical(times):
    return round(float(np.median(np.diff(times))), 2) if len(times) > 1 else None


def measure(folder, millions, memory, threads, lists, factors):
    """One fit in this process, under the limit."""
    from pclf.blocks.work import as_bytes

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (as_bytes(memory), hard))
    import pclf
    from pclf.blocks.factors import Spread
    from pclf.factors.learn import Here

    work, sweeps = folder / "work", timed_sweeps(Spread)
    began, steps, cpu = time.perf_counter(), [], [time.process_time()]
    model = pclf.PCLF(20, 10, 15, common_weight=0.35, factor_weight=float(factors), lists=lists, n_restarts=1,
                      max_iter=ITERATIONS, n_factors=N_FACTORS, hyper={"sweeps": SWEEPS}, neighbours=False)
    files = pclf.RatingFiles({name: str(folder / f"{millions}M" / name) for name in CATALOGUES},
                             scale={name: (1, high) for name, (_, high) in CATALOGUES.items()})
    model.fit(files, engine="disk", work=work, memory=memory, n_threads=threads,
              callbacks=[lambda step: steps.append(time.perf_counter()), lambda step: cpu.append(time.process_time())])
    done = time.perf_counter()
    catalogue = model.users_.people.catalogue
    asked = time.perf_counter()
    model.recommend("films", f"films-reader-{7:09d}", 10)
    answered = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = sum(file.stat().st_size for file in work.rglob("*") if file.is_file())
    more = {"factors": N_FACTORS, "seconds_sweep": typical(sweeps[0]), "cpu_sweep": typical(sweeps[1])} if factors else {}
    if factors and millions <= IN_MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        wall, of_cpu = timed_sweeps(Here)
        pclf.PCLF(**model.get_params()).set_params(max_iter=1).fit(files.read(), engine="cpu", n_threads=threads)
        more |= {"memory_seconds_sweep": typical(wall), "memory_cpu_sweep": typical(of_cpu)}
    print(json.dumps({**more,
        "ratings": catalogue.n_ratings, "users": catalogue.n_users, "items": sum(n for n, _ in CATALOGUES.values()),
        "memory": memory, "blocks": catalogue.n_blocks, "parts": catalogue.n_parts, "threads": threads,
        "seconds_read": round(steps[0] - began, 1), "seconds_iteration": round(float(np.median(np.diff(steps))), 2),
        "cpu_read": round(cpu[1] - cpu[0], 1), "cpu_iteration": round(float(np.median(np.diff(cpu[1:]))), 2),
        "objective_per_rating": round(model.trace_[-1].objective / catalogue.n_ratings, 4),
        "seconds_write": round(done - steps[-1], 1), "seconds_first_list": round(answered - asked, 2),
        "peak_bytes": peak, "disk_bytes": size, "clusters": "20/10/15", "lists": lists}))


def judge(folder, way, memory, threads):
    """nDCG@10 of the held-out liked items of MovieLens 1M, in this process."""
    import pclf
    from pclf.evaluate.metrics import LIST

    files = pclf.RatingFiles({"films": str(folder / "ml-1m")}, scale=(1, 5))
    test = dict(np.load(folder / "ml-1m.npz"))
    began = time.perf_counter()
    settings = {"factor_weight": 0} if way.endswith("clusters") else {}
    if way.startswith("disk"):
        model = pclf.PCLF(**settings).fit(files, engine="disk", work=folder / "work", memory=memory, n_threads=threads)
    elif way.startswith("memory"):
        model = pclf.PCLF(**settings).fit(files, engine="cpu", n_threads=threads)
    else:
        model = (pclf.Popular() if way == "popular" else pclf.Bias()).fit(files.read())
    fitted = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {rank: model.recommend("films", test["people"].tolist(), 10, **({} if way in PLAIN else {
        "rank_by": rank})) for rank in PLAIN.get(way, ("liked", "chosen", "rating"))}
    item = next(iter(found.values())).domain.items.encode(test["item"].tolist())
    kept = item >= 0
    errors = {}
    if way != "popular":
        left = model.predict("films", test["all_users"].tolist(), test["all_items"].tolist(), unknown="newcomer") \
            - test["all_ratings"]
        errors = {"mae": round(float(np.abs(left).mean()), 4), "rmse": round(float(np.sqrt((left**2).mean())), 4)}
    print(json.dumps({"way": way, "memory": memory, "threads": threads, "seconds": round(fitted - began, 1),
                      "peak_bytes": peak, "users": len(test["people"]), **errors, **{
                          f"ndcg@10 by {rank}": round(float(LIST["ndcg"](10, lists.codes, test["row"][kept],
                                                                         item[kept])), 4)
                          for rank, lists in found.items()}}))


def accuracy(given):
    import pclf

    data = pclf.datasets.load("ml-1m")
    split = pclf.hold_out(data, 0.2, seed=0)
    train, test = (next(iter(part.domains.values())) for part in (split.train, split.test))
    shutil.rmtree(given.folder / "ml-1m", ignore_errors=True)
    (given.folder / "ml-1m").mkdir(parents=True)
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"user_id": train.users.decode(train.user), "item_id": train.items.decode(train.item),
               "rating": train.ratings.astype(int)}
    pq.write_table(pa.table(columns), given.folder / "ml-1m" / "part-0.parquet")
    people, row = np.unique(test.user[test.liked], return_inverse=True)
    np.savez(given.folder / "ml-1m.npz", people=test.users.decode(people), row=row,
             item=test.items.decode(test.item[test.liked]), all_users=test.users.decode(test.user),
             all_items=test.items.decode(test.item), all_ratings=test.ratings)
    for way in ("popular", "bias", "memory", "disk", "memory clusters", "disk clusters"):
        shutil.rmtree(given.folder / "work", ignore_errors=True)
        found = subprocess.run([sys.executable, __file__, "--folder", given.folder, "--way", way, "--memory",
                                given.memory, "--threads", str(given.threads)], capture_output=True, text=True)
        if found.returncode:
            sys.exit(found.stderr)
        keep(json.loads(found.stdout.splitlines()[-1]),
             f"--accuracy --memory {given.memory} --threads {given.threads}", OF_LISTS)


def keep(row, options, path=RESULTS):
    row |= {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
            "command": f"benchmarks/disk.py {options}"}
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sizes", default="2,20,200", help="millions of ratings")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lists", action="store_true", help="learn what people choose, too")
    parser.add_argument("--factors", action="store_true", help="learn factors, too")
    parser.add_argument("--accuracy", action="store_true", help="lists of MovieLens 1M, and nothing else")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        return measure(given.folder, given.only, given.memory, given.threads, given.lists, given.factors)
    if given.way:
        return judge(given.folder, given.way, given.memory, given.threads)
    if given.accuracy:
        return accuracy(given)
    for millions in map(int, given.sizes.split(",")):
        print(f"{millions} M: generating", file=sys.stderr)
        generate(given.folder, millions)
        shutil.rmtree(given.folder / "work", ignore_errors=True)
        print(f"{millions} M: fitting", file=sys.stderr)
        found = subprocess.run([sys.executable, __file__, "--folder", given.folder, "--only", str(millions), "--memory",
                                given.memory, "--threads", str(given.threads), *["--lists"] * given.lists, *["--factors"] * given.factors],
                               capture_output=True, text=True)
        if found.returncode:
            sys.exit(found.stderr)
        keep(json.loads(found.stdout.splitlines()[-1]),
             f"--sizes {given.sizes} --memory {given.memory} --threads {given.threads}{' --lists' * given.lists}"
             f"{' --factors' * given.factors}")
        shutil.rmtree(given.folder / "work", ignore_errors=True)


if __name__ == "__main__":
    main()
