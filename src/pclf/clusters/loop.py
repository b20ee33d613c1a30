"""Annealed EM: start values, temperatures, stopping, trace, callbacks. No device and no domain in sight."""

import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.mstep import Means, Priors, log_prior, mstep, prior_means
from pclf.clusters.state import Engine, Params, Stats
from pclf.problem import Problem


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
) -> Run:
    """Annealed EM (Hofmann & Puzicha 1998; Si & Jin 2003) from start counts to parameters.

    At a fixed beta the recorded objective never falls. With `held_out`, the parameters returned are those
    with the best held-out likelihood. Ctrl-C ends the run early, with a warning, and what was learned is kept, unless
    `keep` is false.
    """
    data, began = engine.place(problem), time.perf_counter()
    stats = Stats(
        engine.put(start.users), tuple(map(engine.put, start.items)), tuple(map(engine.put, start.tables)), 0.0
    )
    trace: list[Step] = []
    params, means = Params(stats.users, stats.items, stats.tables), prior_means(stats, problem)
    best, best_value, waited, converged = None, -np.inf, 0, False
    gain, slow = np.inf, 0
    callbacks, interrupted = list(callbacks), False
    try:
        for stage, beta in enumerate(schedule.betas):
            last = stage == len(schedule.betas) - 1
            left = schedule.max_iter - len(trace)
            means, previous, waited = prior_means(stats, problem), -np.inf, 0
            params = mstep(stats, problem, priors, means)
            for _ in range(left if last else min(schedule.steps, left)):
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
                if any(stop) or converged:
                    break
                params, previous = mstep(stats, problem, priors, means), objective
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
    from pclf.engines.kernels import add_random_posteriors

    stats, views = _zeros(problem), problem.layout.views
    users = np.zeros((len(views), *stats.users.shape))
    seeds = rng.integers(2**64, size=(len(views), len(problem.user)), dtype=np.uint64)

    def add(i: int) -> None:
        for z, item_rows in zip(views[i].domains, problem.item_rows[i], strict=True):
            rows = problem.user_rows[z][problem.user[z]], item_rows[problem.item[z]], problem.level[z]
            add_random_posteriors(*rows, views[i].weight, seeds[i, z], users[i], stats.items[i], stats.tables[i])

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(add, range(len(views))))
    users.sum(axis=0, out=stats.users)
    return stats


def random_memberships(problem: Problem, rng: np.random.Generator, n_threads: int = 1) -> Stats:
    """A cheap start: each user and item a random membership, each table cell the levels of its view, jittered.

    Costs (users + items) x clusters random numbers, however many ratings there are.
    """
    stats = _zeros(problem)
    n_users = np.zeros(problem.n_users)
    of_user, of_item, of_level = ([np.bincount(codes) for codes in of_domains]
                                  for of_domains in (problem.user, problem.item, problem.level))
    for i, view in enumerate(problem.layout.views):
        n_items, n_levels = np.zeros(problem.n_items[i]), np.zeros(problem.n_levels)
        for z, item_rows in zip(view.domains, problem.item_rows[i], strict=True):
            np.add.at(n_users, problem.user_rows[z][:len(of_user[z])], view.weight * of_user[z])
            np.add.at(n_items, item_rows[:len(of_item[z])], view.weight * of_item[z])
            n_levels[:len(of_level[z])] += view.weight * of_level[z]
        _spread(stats.items[i], n_items, rng)
        jitter = rng.uniform(0.5, 1.5, stats.tables[i].shape)
        stats.tables[i][:] = n_levels[:, None, None] * jitter / jitter[0].size
    _spread(stats.users, n_users, rng)
    return stats


STARTS: dict[str, Callable[[Problem, np.random.Generator, int], Stats]] = {
    "posteriors": random_posteriors,
    "memberships": random_memberships,
}


def _spread(out: NDArray[np.float64], counts: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Rows of a flat Dirichlet, scaled to the counts."""
    out[:] = rng.standard_exponential(out.shape)
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
