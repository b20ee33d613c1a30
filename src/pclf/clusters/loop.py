"""Annealed EM: start values, temperatures, stopping, trace, callbacks. No device and no domain in sight."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.mstep import Means, Priors, log_prior, mstep, prior_means
from pclf.clusters.state import Engine, Params, Stats
from pclf.problem import GOLDEN, Keys, Problem

Floats = NDArray[np.float64]
CHUNK = 1 << 20      # ratings whose keys are held at a time


@dataclass(frozen=True)
class Step:
    """One iteration of EM. Objectives compare at the same beta only."""

    iteration: int                   # from 1, over all temperatures
    beta: float
    objective: float                 # tempered log-likelihood, plus the log-prior
    held_out: float | None = None    # mean log-likelihood a held-out rating, where some are held out
    seconds: float = 0.0             # since the start of the run


Callback = Callable[[Step], bool | None]          # a true answer stops the run
HeldOut = Callable[[Params, Means], float]         # mean log-likelihood of held-out ratings


@dataclass(frozen=True)
class Schedule:
    """Temperatures of the annealing, and when to stop.

    Each beta but the last is kept for `steps` iterations; the last until the objective has grown by less than
    `tol` of its value, and by less each time, in `patience` iterations running, until the held-out likelihood has
    not risen in as many, or until `max_iter` iterations were made in all. Next to the saddle where all clusters
    are alike EM creeps too, but there each step is larger than the one before.
    """

    betas: tuple[float, ...] = (0.8, 0.9, 1.0)
    steps: int = 5
    max_iter: int = 50
    tol: float = 1e-5
    patience: int = 3


@dataclass(frozen=True)
class Saved:
    """Where a run stood after some iterations: enough to go on with the same bits."""

    stats: Stats
    means: Means
    trace: tuple[Step, ...]


@dataclass(frozen=True)
class Run:
    """What one run of EM leaves: parameters, the populations they shrink to, the trace."""

    params: Params
    means: Means
    trace: tuple[Step, ...]
    converged: bool
    interrupted: bool = False


def run(
    engine: Engine,
    problem: Problem,
    start: Stats,
    *,
    schedule: Schedule = Schedule(),
    priors: Priors = Priors(),
    held_out: HeldOut | None = None,
    callbacks: Iterable[Callback] = (),
    keep: bool = True,
    saved: Saved | None = None,
    save: Callable[[Saved], None] | None = None,
) -> Run:
    """Annealed EM (Hofmann & Puzicha 1998; Si & Jin 2003) from start counts to parameters.

    At a fixed beta the recorded objective never falls. With `held_out`, the parameters returned are those
    with the best held-out likelihood. Ctrl-C ends the run early, with a warning, and what was learned is kept, unless
    `keep` is false. `save` is called after each iteration; with what it was `saved`, a run without `held_out` goes on.
    """
    data, began = engine.place(problem), time.perf_counter() - (saved.trace[-1].seconds if saved else 0.0)
    stats = Stats(
        engine.put(start.users), tuple(map(engine.put, start.items)), tuple(map(engine.put, start.tables)), 0.0
    )
    trace: list[Step] = []
    params, means = Params(stats.users, stats.items, stats.tables), prior_means(stats, problem)
    best, best_value, waited, converged = None, -np.inf, 0, False
    gain, slow = np.inf, 0
    callbacks, interrupted = list(callbacks), False
    past = list(saved.trace) if saved else []              # iterations that were made before: only decided upon again
    try:
        for stage, beta in enumerate(schedule.betas):
            last = stage == len(schedule.betas) - 1
            left = schedule.max_iter - len(trace)
            previous, waited = -np.inf, 0
            if not past:
                means = prior_means(stats, problem)
                params = mstep(stats, problem, priors, means)
            for _ in range(left if last else min(schedule.steps, left)):
                old, value = bool(past), None
                if old and saved:
                    step, objective = past[0], past.pop(0).objective
                    stats, means = saved.stats, saved.means
                else:
                    stats = engine.estep(data, params, beta)
                    objective = stats.objective + log_prior(params, problem, priors, means)
                    value = held_out(params, means) if held_out else None
                    step = Step(len(trace) + 1, beta, objective, value, time.perf_counter() - began)
                trace.append(step)
                if value is not None:
                    waited = 0 if value > best_value else waited + 1
                    if value > best_value:
                        best, best_value = (params, means), value
                stop = [callback(step) for callback in callbacks]
                before, gain = gain, objective - previous
                slow = slow + 1 if gain <= min(schedule.tol * abs(objective), before) else 0
                converged = last and (slow >= schedule.patience or waited >= schedule.patience)
                if (any(stop) and not old) or converged:
                    break
                previous = objective
                if not past:
                    params = mstep(stats, problem, priors, means)
                if save and not old:
                    save(Saved(stats, means, tuple(trace)))
            else:
                continue
            break
    except KeyboardInterrupt:
        if not (trace and keep):
            raise
        interrupted = True
        warnings.warn(
            f"interrupted after {len(trace)} of {schedule.max_iter} iterations; the model so far is kept.",
            UserWarning, stacklevel=2,
        )
    return Run(*to_numpy(engine, *(best or (params, means))), tuple(trace), converged, interrupted)


def random_posteriors(problem: Problem, rng: np.random.Generator, n_threads: int = 1) -> Stats:
    """The paper's start: a random normalised posterior for each rating and view, and the counts it implies.

    Costs ratings x K x C random numbers, added up as they are made. Views are made at the same time.
    """
    return posteriors_from(seeds_of_posteriors(problem, rng), problem, n_threads)


def seeds_of_posteriors(problem: Problem, rng: np.random.Generator) -> Keys:
    """(views, domains)"""
    return rng.integers(2**64, size=(len(problem.layout.views), len(problem.user)), dtype=np.uint64)


def posteriors_from(seeds: Keys, problem: Problem, n_threads: int = 1) -> Stats:
    """The same from seeds: counts of two parts of the data add up, where rows have keys."""
    from pclf.engines.kernels import add_random_posteriors

    stats, views = _zeros(problem), problem.layout.views
    users = np.zeros((len(views), *stats.users.shape))

    def add(i: int) -> None:
        for z, item_rows in zip(views[i].domains, problem.item_rows[i], strict=True):
            for some in (slice(start, start + CHUNK) for start in range(0, len(problem.user[z]), CHUNK)):
                row, column = problem.user_rows[z][problem.user[z][some]], item_rows[problem.item[z][some]]
                if problem.user_keys is None or problem.item_keys is None:
                    key = np.arange(some.start, some.start + len(row), dtype=np.uint64)      # the place of a rating
                else:
                    key = problem.user_keys[row] * np.uint64(GOLDEN) + problem.item_keys[i][column]
                add_random_posteriors(row, column, problem.level[z][some], key, views[i].weight, seeds[i, z], users[i],
                                      stats.items[i], stats.tables[i])

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(add, range(len(views))))
    users.sum(axis=0, out=stats.users)
    return stats


def random_memberships(problem: Problem, rng: np.random.Generator, n_threads: int = 1) -> Stats:
    """A cheap start: each user and item a random membership, each table cell the levels of its view, jittered.

    Costs (users + items) x clusters random numbers, however many ratings there are.
    """
    of_item = [np.bincount(codes, minlength=n) for codes, n in zip(problem.item, problem.sizes, strict=True)]
    of_level = [np.bincount(levels, minlength=problem.n_levels) for levels in problem.level]
    items, tables = memberships_of_items(problem, of_item, of_level, rng)
    users = np.zeros((problem.n_users, problem.layout.n_user_clusters))
    _spread(users, counts_of_users(problem), problem.user_keys, rng)
    return Stats(users, items, tables, 0.0)


def memberships_of_items(problem: Problem, of_item: Sequence[NDArray[Any]], of_level: Sequence[NDArray[Any]],
                         rng: np.random.Generator) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Items and tables of that start, from how many ratings items and levels have in each domain."""
    stats = _zeros(problem)
    for i, view in enumerate(problem.layout.views):
        n_items, n_levels = np.zeros(problem.n_items[i]), np.zeros(problem.n_levels)
        for z, item_rows in zip(view.domains, problem.item_rows[i], strict=True):
            np.add.at(n_items, item_rows, view.weight * of_item[z])
            n_levels += view.weight * of_level[z]
        _spread(stats.items[i], n_items, None if problem.item_keys is None else problem.item_keys[i], rng)
        jitter = rng.uniform(0.5, 1.5, stats.tables[i].shape)
        stats.tables[i][:] = n_levels[:, None, None] * jitter / jitter[0].size
    return stats.items, stats.tables


def counts_of_users(problem: Problem) -> Floats:
    """How many ratings each user row has, times the views that count them, by their weights. (U,)"""
    out, views = np.zeros(problem.n_users), problem.layout.views
    for z, rows in enumerate(problem.user_rows):
        weight = sum(view.weight for view in views if z in view.domains)
        np.add.at(out, rows, weight * np.bincount(problem.user[z], minlength=len(rows)))
    return out


def resumed(problem: Problem, users: NDArray[Any], items: Sequence[NDArray[Any]],
            tables: Sequence[NDArray[Any]]) -> Stats:
    """Where an older run ended: memberships of all rows, (U, K) and (V, C) a view, and its tables, (R, K, C) a view.

    The counts are those of the ratings as they are now; a cell has what its clusters' shares give it.
    """
    stats, n_users = _zeros(problem), np.zeros(problem.n_users)
    for i, view in enumerate(problem.layout.views):
        n_items, total = np.zeros(problem.n_items[i]), 0.0
        for z, item_rows in zip(view.domains, problem.item_rows[i], strict=True):
            n_users += view.weight * np.bincount(problem.user_rows[z][problem.user[z]], minlength=problem.n_users)
            n_items += view.weight * np.bincount(item_rows[problem.item[z]], minlength=len(n_items))
            total += view.weight * len(problem.user[z])
        stats.items[i][:] = n_items[:, None] * items[i]
        shares = stats.items[i].sum(axis=0) / max(total, 1e-12)                                # (C,)
        stats.tables[i][:] = tables[i] * total * shares
    stats.users[:] = n_users[:, None] * users
    of_user = stats.users.sum(axis=0) / max(stats.users.sum(), 1e-12)                          # (K,)
    for table in stats.tables:
        table *= of_user[:, None]
    return stats


STARTS: dict[str, Callable[[Problem, np.random.Generator, int], Stats]] = {
    "posteriors": random_posteriors,
    "memberships": random_memberships,
}
BY_ID = " by id"      # behind the name of a start whose random numbers depend on ids, and not on the order of rows


def _spread(out: Floats, counts: Floats, keys: Keys | None, rng: np.random.Generator) -> None:
    """Rows of a flat Dirichlet, scaled to the counts."""
    if keys is None:
        out[:] = rng.standard_exponential(out.shape)
        out *= (counts / out.sum(axis=1))[:, None]
    else:
        spread(out, counts, keys, rng.integers(2**64, dtype=np.uint64))


def spread(out: Floats, counts: Floats, keys: Keys, seed: np.uint64) -> None:
    """The same, each row from its key and the seed alone."""
    from pclf.engines.kernels import fill_exponential

    fill_exponential(keys, seed, out)
    out *= (counts / out.sum(axis=1))[:, None]


def _zeros(problem: Problem) -> Stats:
    k, views = problem.layout.n_user_clusters, problem.layout.views
    return Stats(
        np.zeros((problem.n_users, k)),
        tuple(np.zeros((v, view.n_clusters)) for v, view in zip(problem.n_items, views, strict=True)),
        tuple(np.zeros((problem.n_levels, k, view.n_clusters)) for view in views),
        0.0,
    )


def to_numpy(engine: Engine, params: Params, means: Means) -> tuple[Params, Means]:
    """Parameters and prior means, away from the engine."""
    def get(x: Params | Means) -> tuple[NDArray[Any], tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
        return engine.get(x.users), tuple(map(engine.get, x.items)), tuple(map(engine.get, x.tables))

    return Params(*get(params)), Means(*get(means))
