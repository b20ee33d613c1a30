"""Compare: models x splits -> a tidy table, and whether the differences are more than luck.

    >>> found = compare({"pclf": PCLF(), "bias": Bias()}, user_folds(data))     # doctest: +SKIP
    >>> print(found)                                                            # doctest: +SKIP
    >>> found.paired("bias")                                                    # doctest: +SKIP
"""

import inspect
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from pclf.data.ratings import Ratings
from pclf.data.splits import Split
from pclf.errors import ArgumentError, UnknownNameError, did_you_mean
from pclf.evaluate import metrics as by
from pclf.evaluate.significance import PairedTest, paired_tests
from pclf.models.base import RULES, Recommender
from pclf.models.ease import EASE
from pclf.models.popular import Popular
from pclf.progress import progress as progress_bar
from pclf.tables import Framed, Table

ERRORS, LISTS = ("mae", "rmse"), ("ndcg@10", "recall@10")   # what is measured by default
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")   # numba's is an option of fit
Metric = str | Callable[[Any, Any], float]


class Score(NamedTuple):
    """One number of the table. `rule` is None for metrics of a distribution or a list."""

    model: str
    split: int
    domain: str
    metric: str
    rule: str | None
    value: float
    seconds: float   # of the fit
    n: int           # test ratings
    n_train: int     # training ratings, of the same domain


class Paired(NamedTuple):
    """The test of one model against the reference, in one domain, by one metric and rule."""

    domain: str
    metric: str
    rule: str | None
    test: PairedTest


@dataclass(frozen=True)
class Comparison(Framed):
    """What `compare` found: `scores` is the tidy table, everything else is computed from it."""

    scores: tuple[Score, ...]

    def __add__(self, other: "Comparison") -> "Comparison":
        """The same models on further splits, which were measured apart: on another machine, or another day."""
        models = [list(dict.fromkeys(s.model for s in part.scores)) for part in (self, other)]
        if set(models[0]) != set(models[1]):
            raise ArgumentError(f"only comparisons of the same models add up; got {', '.join(models[0])} and "
                                f"{', '.join(models[1])}.")
        first = 1 + max(s.split for s in self.scores)
        return Comparison(self.scores + tuple(s._replace(split=first + s.split) for s in other.scores))

    def to_arrow(self) -> Any:
        """A pyarrow table, a row a score."""
        import pyarrow as pa

        return pa.table({name: [getattr(s, name) for s in self.scores] for name in Score._fields})

    def summary(self) -> list[dict[str, Any]]:
        """Mean and standard deviation over the splits, for each model, domain, metric and rule."""
        rows = []
        for (domain, metric, rule), models in self._families().items():
            for model, values in models.items():
                mean, sd = mean_sd([s.value for s in values])
                seconds, _ = mean_sd([s.seconds for s in values])
                rows.append({"domain": domain, "metric": metric, "rule": rule, "model": model, "mean": mean,
                             "sd": sd, "splits": len(values), "seconds": seconds})
        return rows

    def paired(self, reference: str) -> list[Paired]:
        """Every model against a reference, over the splits, by Wilcoxon and t, which allows for their overlap.

        Holm's correction is over the models inside one domain, metric and rule.
        """
        known = dict.fromkeys(s.model for s in self.scores)
        if reference not in known:
            raise UnknownNameError(did_you_mean(reference, known, "model"))
        out = []
        for family, models in self._families().items():
            if reference in models:   # it may have no distribution
                values = {model: {s.split: s.value for s in scores} for model, scores in models.items()}
                overlap = float(np.mean([s.n / max(1, s.n_train) for s in models[reference]]))
                out += [Paired(*family, test) for test in paired_tests(values, reference, overlap)]
        return out

    def __repr__(self) -> str:
        """A Markdown table: a line a domain, metric and rule, a column a model, mean ± sd."""
        models = list(dict.fromkeys(s.model for s in self.scores))
        lines: dict[tuple[str, ...], dict[str, str]] = {}
        for row in self.summary():
            spread = f" ± {row['sd']:.4f}" if row["sd"] is not None else ""
            key = (row["domain"], row["metric"], row["rule"] or "")
            lines.setdefault(key, {})[row["model"]] = f"{row['mean']:.4f}{spread}"
        rows = [[*key, *(cells.get(model, "") for model in models)] for key, cells in lines.items()]
        return Table(["domain", "metric", "rule", *models], rows).markdown()

    _repr_markdown_ = __repr__

    def _families(self) -> dict[tuple[str, str, str | None], dict[str, list[Score]]]:
        out: dict[tuple[str, str, str | None], dict[str, list[Score]]] = {}
        for s in self.scores:
            out.setdefault((s.domain, s.metric, s.rule), {}).setdefault(s.model, []).append(s)
        return out


def compare(models: Mapping[str, Recommender], splits: Iterable[Split], *, rules: Sequence[str] = RULES,
            metrics: Sequence[Metric] | None = None, n_jobs: int = 1, random_state: int = 0,
            fit_options: Mapping[str, Any] | None = None, baselines: bool | None = None,
            progress: bool = False) -> Comparison:
    """Fit every model on every split, once each, and score it on the split's test ratings.

    models: settings, by the names they get in the table; they are cloned and stay unfitted.
    rules: "mean" and "median"; a model without a distribution is scored by the mean alone.
    metrics: "mae", "rmse" (by rule); "log_score", "ece", "coverage", "crps" (models with a distribution);
    "precision@10", "recall@10", "ndcg@10" or any other n: of lists drawn from all items that the user did not
    rate in training, where a test rating at least 70 % up the scale is a hit; "catalogue@10", "popular@10",
    "novelty@10", "similarity@10", "overlap@10", of what these lists are made of; or a function of your own, of test
    ratings and predictions (by rule). By default "mae", "rmse", "ndcg@10" and "recall@10", for events the last two,
    which are the ones measured in a domain of events.
    n_jobs: processes; with more than one each is single-threaded, a script needs `if __name__ == "__main__":`, and
    models must be of a module. fit_options: passed to every `fit` that knows them (engine, dtype, ...). baselines:
    measure `Popular` and `EASE` too, which is done where no metrics are given. progress: show a bar.
    """
    if isinstance(rules, str) or isinstance(metrics, str):
        raise ArgumentError(f"rules and metrics must be lists of names; got {rules!r} and {metrics!r}.")
    check_rules(rules)
    if not models or not isinstance(models, Mapping):
        raise ArgumentError("compare needs at least one model: pass a dict of name and model.")
    parts = [splits] if isinstance(splits, Split) else [] if isinstance(splits, Ratings) else list(splits)
    if not parts or not all(isinstance(part, Split) for part in parts):
        raise ArgumentError("compare needs at least one split, such as pclf.hold_out(data); got none, or something "
                            "else.")
    if n_jobs < 1:
        raise ArgumentError(f"n_jobs must be at least 1; got {n_jobs}.")
    events = all(d.events for split in parts for d in split.test.domains.values())
    if baselines or (baselines is None and metrics is None):
        models = {**_baselines(models), **models}
    metrics = metrics if metrics is not None else LISTS if events else ERRORS + LISTS
    metrics = list(dict.fromkeys(metrics))
    check_metrics(metrics)
    if events and (of_ratings := [_name(metric) for metric in metrics if "@" not in _name(metric)]):
        raise ArgumentError(f"{of_ratings[0]} measures predictions of ratings, and test events are all 1. Measure "
                            f"lists: metrics={LISTS}.")
    options = {"random_state": random_state, **alone(n_jobs, fit_options or {}, models.values())}
    jobs = [(name, i, models[name], split) for (i, split), name in product(enumerate(parts), models)]
    done: dict[tuple[str, int], list[Score]] = {}
    with progress_bar("compare", len(jobs), unit="fit", shown=progress) as advance:
        def finished(job: Any, scores: list[Score]) -> None:
            done[job[:2]] = scores
            advance(1)

        run_all(partial(_job, rules=rules, metrics=metrics, options=options), jobs, n_jobs, finished)
    found = Comparison(tuple(score for job in jobs for score in done[job[:2]]))
    for name in models:
        if not any(s.model == name for s in found.scores):
            asked = ", ".join(map(_name, metrics))
            warnings.warn(f"{name} has no score: {asked} cannot be asked of it, or nothing is tested.", UserWarning,
                          stacklevel=2)
    return found


def _baselines(models: Mapping[str, Recommender]) -> dict[str, Recommender]:
    """What lists are to be compared with, unless it is there: a list for everybody, and a plain good one."""
    there = {type(model) for model in models.values()}
    return {kind.__name__: kind() for kind in (Popular, EASE) if kind not in there and kind.__name__ not in models}


def alone(n_jobs: int, options: Mapping[str, Any], models: Iterable[Recommender]) -> dict[str, Any]:
    """Options of `fit` that some model knows, and one thread each where several processes share the cores."""
    known = {name for model in models for name in inspect.signature(model.fit).parameters}
    for name in options:
        if name not in known:
            raise ArgumentError(f"no model here has an option {name!r} of fit.")
    single = n_jobs > 1 and options.get("engine", "auto") in ("auto", "cpu")
    return {"n_threads": 1, **options} if single else dict(options)


def mean_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the standard deviation, which a single value does not have."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def fit_timed(model: Recommender, train: Ratings, options: Mapping[str, Any]) -> tuple[Recommender, float]:
    """A fitted clone and the seconds it took. Options that the model's `fit` does not know are left out."""
    fresh = clone(model)
    known = inspect.signature(fresh.fit).parameters
    start = time.perf_counter()
    fresh.fit(train, **{name: value for name, value in options.items() if name in known})
    if getattr(fresh, "interrupted_", False):   # a half-trained model must not be measured
        raise KeyboardInterrupt
    return fresh, time.perf_counter() - start


def score(model: Recommender, test: Ratings, rules: Sequence[str],
          metrics: Sequence[Metric]) -> Iterator[tuple[str, str, str | None, float, int]]:
    """Domain, metric, rule, value and number of ratings, for all that a fitted model can be asked."""
    points = {_name(metric): metric if callable(metric) else by.POINT[metric] for metric in metrics
              if callable(metric) or metric in by.POINT}
    for name, domain in test.domains.items():
        if not len(domain):
            continue
        point = {rule: model.predict_codes(name, domain.user, domain.item, rule=rule)
                 for rule in rules if rule in model.rules and points and not domain.events}
        proba = None
        asked = not domain.events and any(metric in by.DISTRIBUTION for metric in metrics)
        if hasattr(model, "predict_proba") and asked:
            pairs = domain.users.decode(domain.user), domain.items.decode(domain.item)
            proba = model.predict_proba(name, *pairs)
        names = list(map(_name, metrics))
        lists = _Lists(model, test, name, names)
        for metric in names:
            if metric in points:
                for rule, prediction in point.items():
                    yield name, metric, rule, float(points[metric](domain.ratings, prediction)), len(domain)
            elif metric in by.DISTRIBUTION:
                if proba is not None:
                    worth = (domain.scale.values,) if metric == "crps" else ()
                    value = by.DISTRIBUTION[metric](proba, domain.value, *worth)
                    yield name, metric, None, value, len(domain)
            elif lists.rows.size:
                yield name, metric, None, lists.score(metric), len(domain)


def run_all(work: Callable[[Any], Any], jobs: Sequence[Any], n_jobs: int,
            done: Callable[[Any, Any], None]) -> None:
    """done(job, work(job)) for every job as it finishes, in this process (n_jobs=1) or in several.

    Stopped by Ctrl-C or an error, it lets the running jobs finish, reports them too, and drops the others.
    """
    if n_jobs == 1:
        for job in jobs:
            done(job, work(job))
        return
    waiting = iter(jobs)
    running: dict[Future[Any], Any] = {}
    with (_single_threaded(), ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn"),
                                                  initializer=_ignore_ctrl_c) as pool):
        try:
            # No more than one a process is submitted: what has been cannot be taken back on Ctrl-C.
            while True:
                with _ctrl_c_held():
                    running |= {pool.submit(work, job): job for job in islice(waiting, n_jobs - len(running))}
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    done(running.pop(future), result)
        except BrokenProcessPool:
            raise ArgumentError(f"n_jobs={n_jobs} starts new Python processes, and one of them ended. In a script, "
                                'call it under `if __name__ == "__main__":`; in a notebook, use n_jobs=1.') from None
        except BaseException:
            for future in wait(running).done:
                if future.exception() is None:
                    done(running.pop(future), future.result())
            raise


def check_metrics(metrics: Sequence[Metric]) -> None:
    known = [*by.POINT, *by.DISTRIBUTION, *(f"{name}@10" for name in (*by.LIST, *by.MADE_OF))]
    for metric in (metric for metric in metrics if not callable(metric)):
        name, at, n = metric.partition("@")
        if metric not in known and not (f"{name}@10" in known and at and n.isdigit() and int(n) > 0):
            raise UnknownNameError(did_you_mean(metric, known, "metric"))


def _name(metric: Metric) -> str:
    return metric if isinstance(metric, str) else metric.__name__


def check_rules(rules: Sequence[str]) -> None:
    for rule in rules:
        if rule not in RULES:
            raise ArgumentError(f"rules must be among: {', '.join(RULES)}; got {rule!r}.")


def _job(job: tuple[str, int, Recommender, Split], rules: Sequence[str], metrics: Sequence[Metric],
         options: Mapping[str, Any]) -> list[Score]:
    name, i, model, split = job
    fitted, seconds = fit_timed(model, split.train, options)
    return [Score(name, i, domain, metric, rule, value, seconds, n, len(split.train[domain]))
            for domain, metric, rule, value, n in score(fitted, split.test, rules, metrics)]


class _Lists:
    """Top-N lists for those who liked something in the test, made once for all metrics that look at them."""

    def __init__(self, model: Recommender, test: Ratings, name: str, metrics: Sequence[str]) -> None:
        domain, longest = test.domains[name], max((int(m.partition("@")[2]) for m in metrics if "@" in m), default=0)
        liked = domain.liked
        users, self.rows = np.unique(domain.user[liked], return_inverse=True)
        self.items = domain.item[liked]
        if longest and self.rows.size:
            self.codes: NDArray[np.int32] = model.recommend(name, domain.users.decode(users), longest).codes
            train = model.data_[name]
            self.chosen = csr_array((np.ones(len(train), np.float32), (train.user, train.item)),
                                    shape=(train.n_users, train.n_items))

    def score(self, metric: str) -> float:
        kind, _, n = metric.partition("@")
        if kind in by.LIST:
            return by.LIST[kind](int(n), self.codes, self.rows, self.items)
        return by.MADE_OF[kind](int(n), self.codes, self.chosen)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes started inside compute with one thread each, or n of them would fight for n cores."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Processes started inside never get Ctrl-C, not even while they begin; ours comes as soon as they have begun."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_ctrl_c() -> None:
    """Ctrl-C reaches the whole process group; the parent decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
