"""How fast this installation is on this machine: what `pclf bench` prints.

A row is one measurement, with the same keys in all of them:

    name                   copy, gather, estep, posterior loop, bound, traffic, fit, default fit, recommend, fold_in,
                           growth
    data, ratings          what was measured; for `recommend` the pairs scored, for `gather` the rows read
    clusters, views        item clusters, views of the model
    threads
    seconds, spread        the median, and the distance between the quartiles
    updates_per_s          ratings x views x iterations a second; pairs for `recommend`, guests for `fold_in`
    bytes_per_s            where bytes are what is counted
    peak_bytes_per_rating  memory allocated at the peak, beyond the codes that go in; `growth` counts these too
    ratio, against         how this compares with what

What `ratio` says: of `estep`, how many times as fast as the posterior loop; of `bound` and `traffic`, how much of
their speed the E-step reaches; of `fit`, the share of its time that its E-steps need alone; of `default fit`, which has
factors and learns their weight, how many times as long as `fit` it takes; of `growth`, time a
rating in the smallest data over time a rating here (1 is linear); of `recommend` and `fold_in`, the goal over the
time (above 1 is better than the goal); of `gather`, bytes a second over those of a copy.

`bound` is the time for the bytes that an E-step must move, at the speed at which rows of the same items are gathered
in the same run; `traffic` is the same loads and stores without the arithmetic. `memory` has the sums.

Repeats of what is compared are interleaved, so that a busy moment slows all of them down, and a first round, which
compiles, is left out.
"""

import json
import os
import platform
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pclf.bench import memory
from pclf.bench.posterior_loop import PosteriorLoop
from pclf.clusters.loop import Schedule, random_memberships, run
from pclf.clusters.mstep import Priors, mstep, prior_means
from pclf.clusters.state import Engine, Params, Stats
from pclf.data.ratings import Ratings
from pclf.engines.cpu import CpuEngine, cores
from pclf.problem import Layout, Problem, View
from pclf.progress import progress as progress_bar

Row = dict[str, Any]
Key = TypeVar("Key", bound=Hashable)   # of a job

K, T, L = 20, 10, 15                   # clusters of the paper
LEVELS = np.repeat(np.arange(5), [6, 11, 27, 35, 21]).astype(np.uint8)   # an urn of levels
CHUNK = 1 << 20                        # ratings drawn at a time
RECOMMEND_GOAL, FOLD_IN_GOAL = 0.1, 1e-3


def quick(*, n_ratings: int = 10_000_000, n_items: int = 50_000, clusters: Sequence[int] = (10, 16, 32),
          fit_ratings: int = 1_000_000, n_guests: int = 1000, repeats: int = 9, sizes: Sequence[int] = (),
          progress: bool = False) -> list[Row]:
    """The main figures, in well under 90 seconds with the default sizes; growth too, if it is given sizes."""
    parts = {"memory": partial(bandwidths, n_ratings, n_items, repeats),
             **{f"E-step, C = {c}": partial(esteps, n_ratings, n_items, c, repeats) for c in clusters},
             "fit and lists": partial(whole_model, fit_ratings, n_guests, repeats),
             **({"growth": partial(growth, sizes)} if sizes else {})}
    rows: list[Row] = []
    with progress_bar("bench", len(parts), unit="part", shown=progress) as advance:
        for name, measure in parts.items():
            advance(0, name)
            rows += measure()
            advance()
    return rows


def full(*, sizes: Sequence[int] = (1_000_000, 10_000_000, 100_000_000), **options: Any) -> list[Row]:
    """`quick`, and how time and memory grow with the number of ratings."""
    return quick(sizes=sizes, **options)


def write(rows: Sequence[Row], folder: str | Path) -> Path:
    """Append the rows to `cpu.jsonl` in a folder, each with the commit, the machine and its load."""
    path = Path(folder) / "cpu.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"commit": commit(), "machine": machine(), "cores": cores(), "load": load(),
             "date": time.strftime("%Y-%m-%d %H:%M")}
    with path.open("a") as file:
        file.writelines(json.dumps({**row, **about}) + "\n" for row in rows)
    return path


def esteps(n_ratings: int, n_items: int, n_clusters: int, repeats: int) -> list[Row]:
    """The E-step of one view beside the posterior loop and the bounds, on one thread and on all.

    The loop gets a tenth of the ratings: it takes as long for each of them, and would take all the time.
    """
    layout = Layout(K, (View("all", (0,), n_clusters),))
    problem, few = (synthetic(n, layout, n_items) for n in (n_ratings, n_ratings // 10))
    jobs: dict[tuple[str, int], Callable[[], Any]] = {}
    peaks = {"bound": 0.0, "traffic": 0.0}
    for n_threads in sorted({1, cores()}):
        for name, engine, its in (("estep", CpuEngine(n_threads=n_threads), problem),
                                  ("posterior loop", PosteriorLoop(n_threads), few)):
            job, peak = _estep(engine, its)
            jobs[name, n_threads], peaks[name] = job, peak / its.n_ratings
        jobs["bound", n_threads] = memory.reading(problem.item[0], n_items, n_clusters, n_threads, times=3)
        jobs["traffic", n_threads] = memory.traffic(problem.item[0], n_items, n_clusters, n_threads)
    times = interleaved(jobs, repeats)
    moved, read = memory.bytes_per_update(n_clusters), 3 * memory.bytes_per_read(n_clusters)
    times |= {key: [moved / read * t for t in times[key]] for key in times if key[0] == "bound"}
    n = dict.fromkeys(("estep", "bound", "traffic"), n_ratings) | {"posterior loop": few.n_ratings}
    speed = {(name, threads): n[name] / float(np.median(t)) for (name, threads), t in times.items()}
    rows = []
    for (name, threads), seconds in times.items():
        mine = speed["estep", threads]
        ratio, against = (mine / speed[name, threads], "the E-step over this")
        if name == "estep":
            ratio, against = mine / speed["posterior loop", threads], "this over the posterior loop"
        elif name == "posterior loop":
            ratio, against = 1.0, "itself"
        rows.append(_row(name, "synthetic", n[name], n_clusters, 1, threads, seconds, peak=peaks[name],
                         bytes_per_s=None if name == "posterior loop" else moved * speed[name, threads],
                         ratio=ratio, against=against))
    return rows


def bandwidths(n_rows: int, n_items: int, repeats: int) -> list[Row]:
    """What the bound is made of: a copy in memory, and rows of 64 bytes from a table as large as the items'.

    Bytes of a copy are counted twice, read and written.
    """
    n_bytes, item = 64 * min(n_rows, 1 << 22), np.random.default_rng(0).integers(0, n_items, n_rows, np.int32)
    jobs = {}
    for n_threads in sorted({1, cores()}):
        jobs["copy", n_threads] = memory.copying(n_bytes, n_threads)
        jobs["gather", n_threads] = memory.reading(item, n_items, 16, n_threads)
    times = interleaved(jobs, repeats)
    n = {"copy": n_bytes // 64, "gather": n_rows}
    speed = {key: n[key[0]] * {"copy": 128, "gather": 68}[key[0]] / np.median(t) for key, t in times.items()}
    return [_row(name, "rows of 64 bytes", n[name], 16, 1, threads, seconds, bytes_per_s=speed[name, threads],
                 ratio=speed[name, threads] / speed["copy", threads], against="a copy in memory")
            for (name, threads), seconds in times.items()]


def whole_model(n_ratings: int, n_guests: int, repeats: int) -> list[Row]:
    """A plain PCLF fit of 50 iterations, top-10 lists for everybody, and guests: folded in, with a top-10 list."""
    from pclf.models import PCLF

    name, data = _movies(n_ratings)
    domain = data.domains["movies"]
    n, clusters, threads = data.n_ratings, f"{T}+{L}", cores()
    model = PCLF.paper(n_user_clusters=K, n_common_clusters=T, n_specific_clusters=L, start="memberships",
                       betas=(0.8, 0.9, 1.0), max_iter=50, tol=0.0)
    peak = peak_bytes(lambda: PCLF.paper(start="memberships", max_iter=2).fit(data, engine="cpu")) / n
    engine, problem = CpuEngine(), Problem.of(data, PCLF.paper()._layout(data))
    estep, _ = _estep(engine, problem)
    times = interleaved({"fit": lambda: model.fit(data, engine="cpu"), "estep": estep,
                         "recommend": lambda: model.recommend("movies")}, repeats)
    steps = model.n_iter_ * np.median(times["estep"]) / np.median(times["fit"])
    rows = [_row("fit", name, n, clusters, 2, threads, times["fit"], peak=peak, ratio=steps,
                 against="its E-steps alone", updates=2 * n * model.n_iter_)]
    peak = peak_bytes(lambda: PCLF().fit(data, engine="cpu")) / n              # the first, which compiles
    full = [_seconds(lambda: PCLF().fit(data, engine="cpu")) for _ in range(3)]
    rows.append(_row("default fit", name, n, clusters, 2, threads, full, updates=n, peak=peak,
                     ratio=np.median(full) / np.median(times["fit"]), against="the plain fit"))
    pairs = domain.n_users * domain.n_items
    rows.append(_row("recommend", name, pairs, clusters, 2, threads, times["recommend"], updates=pairs,
                     peak=peak_bytes(lambda: model.recommend("movies")) / n,
                     ratio=RECOMMEND_GOAL / np.median(times["recommend"]), against=f"{RECOMMEND_GOAL} s"))
    guests = [_some_ratings(data, code) for code in np.random.default_rng(0).integers(0, domain.n_users, n_guests)]

    def serve(guest: dict[str, dict[Hashable, float]]) -> None:
        model.recommend("movies", model.fold_in(guest))

    waits = np.array([_seconds(partial(serve, guest)) for guest in guests])
    for quantile in (50, 99):
        wait = float(np.percentile(waits, quantile))
        rows.append(_row(f"fold_in p{quantile}", name, 10, clusters, 2, 1, [wait], updates=1.0,
                         peak=peak_bytes(lambda: serve(guests[0])) / 10,
                         ratio=FOLD_IN_GOAL / wait, against=f"{FOLD_IN_GOAL} s"))
    return rows


def growth(sizes: Sequence[int], iterations: int = 3) -> list[Row]:
    """EM of a PCLF model of two domains from start to end, a few iterations, on more and more ratings.

    Catalogues grow too, up to 50,000 items a domain.
    """
    layout = Layout(K, (View("common", (0, 1), T), View("a", (0,), L), View("b", (1,), L)))
    schedule, rows, first = Schedule(betas=(1.0,), max_iter=iterations, tol=0.0), [], 0.0
    _em(synthetic(100_000, layout, 500), schedule)                        # compiles
    for size in sizes:
        tracemalloc.start()
        problem = synthetic(size, layout, min(50_000, max(20, size // 200)))
        n, seconds = problem.n_ratings, _seconds(partial(_em, problem, schedule))
        peak = tracemalloc.get_traced_memory()[1] / n
        tracemalloc.stop()
        del problem
        first = first or seconds / n
        rows.append(_row("growth", "synthetic", n, f"{T}+{L}+{L}", 2, cores(), [seconds], peak=peak,
                         updates=2 * n * iterations, ratio=first * n / seconds, against="linear growth"))
    return rows


def synthetic(n_ratings: int, layout: Layout, n_items: int = 50_000, per_user: int = 100, seed: int = 0) -> Problem:
    """Codes of domains with users of log-normal activity, items by Zipf's law, five levels, in random order.

    A pair may come twice: engines do not care.
    """
    rng = np.random.default_rng(seed)
    n_domains = 1 + max(z for view in layout.views for z in view.domains)
    n = n_ratings // n_domains
    n_users = max(1, n // per_user)
    users, items = (np.arange(size, dtype=np.int32) for size in (n_users, n_items))
    codes = []
    for _ in range(n_domains):
        urn = np.repeat(users, np.ceil(4 * rng.lognormal(0, 1, n_users)).astype(int))
        names = rng.permutation(items)
        user, item, level = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.uint8)
        for start in range(0, n, CHUNK):
            some = slice(start, min(start + CHUNK, n))
            size = some.stop - start
            user[some] = urn[rng.integers(0, len(urn), size, np.int32)]
            rank = np.exp(np.log(n_items + 1) * rng.random(size)).astype(np.int32) - 1      # P ~ 1 / (rank + 1)
            item[some] = names[np.minimum(rank, n_items - 1)]
            level[some] = LEVELS[rng.integers(0, len(LEVELS), size, np.uint8)]
        codes.append((user, item, level))
    of_users, of_items, levels = zip(*codes, strict=True)

    def stacked(rows: np.ndarray, n_parts: int) -> tuple[np.ndarray, ...]:
        return tuple(rows + np.int32(i * len(rows)) for i in range(n_parts))

    def groups(size: int, n_parts: int) -> tuple[tuple[int, int], ...]:
        return tuple((i * size, (i + 1) * size) for i in range(n_parts))

    parts = [len(view.domains) for view in layout.views]
    return Problem(layout, 5, n_domains * n_users, of_users, of_items, levels, stacked(users, n_domains),
                   groups(n_users, n_domains), tuple(p * n_items for p in parts),
                   tuple(stacked(items, p) for p in parts), tuple(groups(n_items, p) for p in parts))


def start_of(engine: Engine, problem: Problem) -> Params:
    """Parameters that EM would begin with, as the engine wants them."""
    counts = random_memberships(problem, np.random.default_rng(0))
    stats = Stats(engine.put(counts.users), tuple(map(engine.put, counts.items)),
                  tuple(map(engine.put, counts.tables)), 0.0)
    return mstep(stats, problem, Priors(), prior_means(stats, problem))


def interleaved(jobs: Mapping[Key, Callable[[], Any]], repeats: int) -> dict[Key, list[float]]:
    """Seconds of each job in each round; the first round is left out."""
    rounds = [{key: _seconds(job) for key, job in jobs.items()} for _ in range(repeats + 1)]
    return {key: [times[key] for times in rounds[1:]] for key in jobs}


def peak_bytes(job: Callable[[], Any]) -> int:
    """The most memory that a job has allocated at a time, beyond what was there before it."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def commit() -> str | None:
    """The commit of a checkout, marked where code differs from it, and not where results do; None where pclf is
    installed."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True,
                              check=True).stdout.strip()

    try:
        return git("describe", "--always") + ("-dirty" if git("status", "--porcelain", ":/*.py", ":/src") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine() -> str:
    """The model of the processor."""
    info = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in info.read_text().splitlines()
              if line.startswith("model name")] if info.exists() else []
    return models[0] if models else platform.processor() or platform.machine()


def load() -> float | None:
    """How many processes wanted to run in the last minute: those of a quiet machine are our own."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _row(name: str, data: str, ratings: int, clusters: int | str, views: int, threads: int, seconds: Sequence[float],
         *, updates: float | None = None, bytes_per_s: float | None = None, peak: float = 0.0, ratio: float = 1.0,
         against: str = "") -> Row:
    median, (low, high) = float(np.median(seconds)), np.percentile(seconds, [25, 75])
    numbers = {"seconds": median, "spread": high - low,
               "updates_per_s": (ratings * views if updates is None else updates) / median,
               "bytes_per_s": bytes_per_s, "peak_bytes_per_rating": peak, "ratio": ratio}
    return {"name": name, "data": data, "ratings": ratings, "clusters": clusters, "views": views, "threads": threads,
            **{key: x if x is None else float(f"{x:.4g}") for key, x in numbers.items()}, "against": against}


def _estep(engine: Engine, problem: Problem) -> tuple[Callable[[], Stats], int]:
    """A job, and the most memory that placing the data and one E-step take."""
    params = start_of(engine, problem)
    peak = peak_bytes(lambda: engine.estep(engine.place(problem), params, 1.0))
    data = engine.place(problem)
    return lambda: engine.estep(data, params, 1.0), peak


def _em(problem: Problem, schedule: Schedule) -> None:
    run(CpuEngine(), problem, random_memberships(problem, np.random.default_rng(0)), schedule=schedule)


def _movies(n_ratings: int) -> tuple[str, Ratings]:
    """MovieLens 1M where it is here, else ratings of its size; fewer where fewer are asked for."""
    from pclf import datasets

    if datasets.info("ml-1m").here:
        data = datasets.load("ml-1m")
        if n_ratings >= 1_000_000:
            return "MovieLens 1M", data
        some = np.random.default_rng(0).permutation(data.n_ratings) < n_ratings
        return "a part of MovieLens 1M", data.select({"movies": some})
    layout = Layout(1, (View("all", (0,), 1),))
    problem = synthetic(2 * n_ratings, layout, n_items=min(3706, max(20, n_ratings // 200)),
                        per_user=2 * max(20, n_ratings // 6040))
    _, first = np.unique(problem.user[0].astype(np.int64) << 32 | problem.item[0], return_index=True)
    kept = np.sort(np.random.default_rng(0).permutation(first)[:n_ratings])
    triple = problem.user[0][kept], problem.item[0][kept], problem.level[0][kept] + 1
    return "synthetic", Ratings.from_arrays({"movies": triple}, scale=(1, 5))


def _some_ratings(data: Ratings, user: int) -> dict[str, dict[Hashable, float]]:
    """Ten ratings of a user, or all of fewer."""
    domain = data.domains["movies"]
    rows = np.flatnonzero(domain.user == user)[:10]
    return {"movies": dict(zip(domain.items.decode(domain.item[rows]), domain.ratings[rows].tolist(), strict=True))}


def _seconds(job: Callable[[], Any]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began
