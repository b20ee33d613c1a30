"""Tuning: the few settings that matter, searched for on training ratings alone, and whether that was worth it.

Trials hold out a tenth of the ratings given, twice, and compare mean absolute errors. The best of many trials is best
by chance too, so at the end it meets the defaults on two tenths that no trial was measured on; each person counts once.
Where the gain is not sure, the defaults win. Optuna (`pip install pclf[tune]`) proposes the settings; a study on disk
goes on where it was stopped.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pclf import models
from pclf.data.ratings import Ratings
from pclf.data.splits import TEST, TRAIN, Split
from pclf.errors import ArgumentError, DataError, EngineError, UnknownNameError, did_you_mean
from pclf.evaluate.significance import Effect, effect
from pclf.progress import log
from pclf.progress import progress as progress_bar
from pclf.tables import Table

if TYPE_CHECKING:
    from optuna import Study, Trial

TENTHS = 10
SPLITS, JUDGED = 2, 2              # tenths that trials are measured on, and tenths for the last word


@dataclass(frozen=True)
class Setting:
    """A range of numbers to search: whole ones, or others by their logarithm. hyper.NAME is a constant of `Hyper`."""

    name: str
    low: float
    high: float
    whole: bool = False

    def propose(self, trial: "Trial") -> float:
        if self.whole:
            return int(trial.suggest_int(self.name, int(self.low), int(self.high)))
        return float(trial.suggest_float(self.name, self.low, self.high, log=True))


SPACES = {
    "PCLF": (Setting("n_factors", 6, 32, whole=True), Setting("hyper.ridge", 40, 600),
             Setting("hyper.taste", 0.3, 1.4), Setting("hyper.places", 4, 24, whole=True),
             Setting("hyper.freedom", 2, 16)),
    "RMGM": (Setting("n_user_clusters", 5, 40, whole=True), Setting("n_item_clusters", 5, 40, whole=True),
             Setting("user_prior", 0.2, 10), Setting("item_prior", 0.2, 10)),
    "FMM": (Setting("n_user_clusters", 5, 40, whole=True), Setting("n_item_clusters", 5, 40, whole=True),
            Setting("user_prior", 0.2, 10), Setting("item_prior", 0.2, 10)),
    "NMF": (Setting("n_factors", 2, 40, whole=True),),
}


@dataclass(frozen=True)
class Tuned:
    """What a search found. `settings` is empty where the defaults win."""

    model: str
    best: dict[str, float]            # of the best trial
    change: Effect                    # of the mean absolute error against the defaults, on other tenths
    n_trials: int
    seconds: float

    @property
    def wins(self) -> bool:
        """Whether the settings found are surely better than the defaults."""
        return bool(self.best) and self.change.high < 0

    @property
    def settings(self) -> dict[str, Any]:
        """What to make the model with: `pclf.models.create(model, **settings)`."""
        return as_settings(self.best) if self.wins else {}

    def toml(self) -> str:
        """For `pclf fit --config`."""
        lines = [f"# {line}" for line in str(self).splitlines()]
        if self.wins:
            plain = {name: value for name, value in self.best.items() if "." not in name}
            hyper = {name.removeprefix("hyper."): value for name, value in self.best.items() if "." in name}
            lines += ["[fit]", f'model = "{self.model}"', "[fit.set]", *(f"{k} = {v!r}" for k, v in plain.items())]
            lines += ["[fit.set.hyper]", *(f"{k} = {v!r}" for k, v in hyper.items())] if hyper else []
        return "\n".join([*lines, ""])

    def __repr__(self) -> str:
        table = Table(["setting", "best of the trials"], [[name, f"{value:.4g}"] for name, value in self.best.items()])
        found = (f"{self.change.percent:+.2f} % ({self.change.low:+.2f} to {self.change.high:+.2f} %) of the mean "
                 f"absolute error on ratings that no trial was measured on")
        verdict = f"Use them: {found}." if self.wins else f"The defaults win: these would bring {found}."
        if not self.best:
            return f"The defaults win: they were the best of {self.n_trials} trials."
        return f"{table.text()}\n\n{self.n_trials} trials of {self.model}. {verdict}"


def tune(data: Ratings, model: str = "PCLF", *, n_trials: int = 20, seconds: float | None = None,
         path: str | Path | None = None, seed: int = 0, progress: bool = False,
         say: Callable[[str], None] = lambda text: None) -> Tuned:
    """Search for settings of a model on training ratings: give it no rating that you want to test on.

    n_trials, seconds: the budget, whichever ends first; the first trial is that of the defaults. path: a file in which
    the study is kept, so that it goes on from there. say: hears what the budget will take once one trial is known.
    """
    name = tunable(model)
    if n_trials < 1:
        raise ArgumentError(f"n_trials must be at least 1; got {n_trials}.")
    if data.events:
        raise DataError("tuning must have ratings, whose error can be measured; got events.")
    study, began = _study(path, name, data, seed), time.perf_counter()
    tenths = _tenths(data, seed)
    splits = tenths[:SPLITS]
    done = len(_finished(study))

    def objective(trial: "Trial") -> float:
        chosen = {setting.name: setting.propose(trial) for setting in SPACES[name]}
        value = float(np.mean([_errors(name, chosen, split, seed)[0].mean() for split in splits]))
        log.info("trial %d of %s: %.5f with %s", trial.number, name, value, chosen)
        return value

    with progress_bar(f"tune {name}", max(0, n_trials - done), shown=progress) as advance:
        if not done:
            default = float(np.mean([_errors(name, {}, split, seed)[0].mean() for split in splits]))
            study.set_user_attr("default", default)
            done = 1
            took = time.perf_counter() - began
            say(f"a trial takes about {took:.1f} s: at most {n_trials} of them, {took * n_trials:.0f} s in all"
                + (f", or {seconds:g} s if that is less" if seconds is not None else ""))
            advance(1)
        while len(_finished(study)) + 1 < n_trials and (seconds is None or time.perf_counter() - began < seconds):
            study.optimize(objective, n_trials=1)
            advance(1, f"best {min(study.best_value, study.user_attrs['default']):.4f}")
    trials = _finished(study)
    nothing = Effect(0.0, 0.0, 0.0, 1.0, 1.0)
    if not trials or study.best_value >= study.user_attrs["default"]:
        return Tuned(name, {}, nothing, len(trials) + 1, time.perf_counter() - began)
    best = dict(study.best_params)
    change = _last_word(name, best, tenths[SPLITS:], seed)
    return Tuned(name, best, change, len(trials) + 1, time.perf_counter() - began)


def tunable(model: str) -> str:
    """The name of a model that can be tuned, upper or lower case."""
    for known in SPACES:
        if known.lower() == model.lower():
            return known
    raise UnknownNameError(did_you_mean(model, list(SPACES), "model that can be tuned"))


def as_settings(chosen: dict[str, Any]) -> dict[str, Any]:
    """Settings by name, of which hyper.NAME are together in `hyper`."""
    hyper = {name.removeprefix("hyper."): value for name, value in chosen.items() if name.startswith("hyper.")}
    plain = {name: value for name, value in chosen.items() if not name.startswith("hyper.")}
    return {**plain, "hyper": hyper} if hyper else plain


def _study(path: str | Path | None, name: str, data: Ratings, seed: int) -> "Study":
    try:
        import optuna
    except ModuleNotFoundError:
        raise EngineError("tuning needs Optuna: pip install 'pclf[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if path is not None:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        storage = JournalStorage(JournalFileBackend(str(path)))
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.TPESampler(seed=seed), load_if_exists=True,
                                study_name="pclf")
    about = json.dumps([name, data.fingerprint, seed])
    if study.user_attrs.setdefault("about", about) != about:
        raise ArgumentError(f"{path} must be a study of the same model, ratings and seed; it is another's. Name "
                            f"another file.")
    study.set_user_attr("about", about)
    return study


def _finished(study: "Study") -> list[Any]:
    return [trial for trial in study.trials if trial.value is not None]


def _errors(name: str, chosen: dict[str, Any], split: Split, seed: int) -> tuple[Any, Any]:
    """Absolute errors of the ratings held out, and whose they are."""
    model = models.create(name, **as_settings(chosen))
    if name == "PCLF":
        model.set_params(lists=False)
    fitted = model.fit(split.train, random_state=seed)
    errors, people = [], []
    for (key, d), rows in zip(split.test.domains.items(), split.test.user_rows, strict=True):
        errors.append(np.abs(fitted.predict_codes(key, d.user, d.item) - d.ratings))
        people.append(rows[d.user])
    return np.concatenate(errors), np.concatenate(people)


def _tenths(data: Ratings, seed: int) -> list[Split]:
    """A tenth of the ratings held out, another each time."""
    rng = np.random.default_rng(seed)
    fold = {name: rng.permutation(len(d)) % TENTHS for name, d in data.domains.items()}
    return [Split.of(data, {name: np.where(own == i, TEST, TRAIN) for name, own in fold.items()})
            for i in range(SPLITS + JUDGED)]


def _last_word(name: str, best: dict[str, Any], splits: list[Split], seed: int) -> Effect:
    """The best settings against the defaults, on tenths that no trial was measured on."""
    own, base, people, repeat = [], [], [], []
    for i, split in enumerate(splits):
        new, person = _errors(name, best, split, seed)
        own.append(new)
        base.append(_errors(name, {}, split, seed)[0])
        people.append(person)
        repeat.append(np.full(len(person), i))
    return effect(*map(np.concatenate, (own, base, people, repeat)))
