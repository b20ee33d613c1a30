"""Refit: a new model version, learned in a process of its own, that replaces the old one only if it is not worse.

    python -m pclf.service.refit refit      # settings are in the environment, see `service.settings`
    python -m pclf.service.refit lists      # make the lists of everybody for the version that has none

One rating in ten, the same ones every time, is held out of a trial fit, and its error and lists on these are what the
version is known by. The next refit is judged on the same ratings: it replaces the version if it predicts and lists
them as well, but for a tolerance. Then a model is fitted to everything, looked at once more, written, and made the
current one in one step. Erasures come first and count whatever becomes of the fit.

What computes runs behind whoever answers, in threads of low priority. What writes to the store does not: it holds a
lock that those who answer wait for.
"""

import argparse
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pclf.data.ratings import Ratings
from pclf.engines.cpu import cores
from pclf.models.mixture import Mixture
from pclf.service.growth import grown
from pclf.service.settings import Settings
from pclf.service.shelf import Shelf
from pclf.service.store import Store, Version

LEASE = "refit"
HELD = 30.0                # seconds that a lease lasts without being renewed
PATIENCE = 3600            # seconds for a statement: all ratings are read, and whole tables rewritten
ONE_IN = 10                # ratings that one is held out of
FEWEST = 50                # held-out ratings that can tell anything
JUDGED = 400               # people whose lists are looked at
LISTED = 10                # places of these
SURE = 2.0                 # standard errors that lists must be worse by
BROKEN = 1.5               # times the error of the trial
BEHIND = 10                # priority of what computes, as `nice` counts: with 19, on a busy machine, it hardly gets on
THREADS = max(1, cores() // 2)      # the others are for whoever answers

Masks = dict[str, NDArray[np.bool_]]
Figures = dict[str, Any]
T = TypeVar("T")


class Refit:
    """One refit, from the store to a new version on the shelf or a reason why there is none."""

    def __init__(self, settings: Settings, store: Store, number: str) -> None:
        self.settings, self.store, self.number, self.started = settings, store, number, time.time()
        self.shelf = Shelf(settings.folder, store)

    def run(self) -> str:
        """Returns the outcome, which the store knows too."""
        try:
            return self._run()
        except BaseException as error:
            said = f": {error}"[:300] if isinstance(error, (OSError, MemoryError)) else ""     # others may name people
            self.note("failed", f"{type(error).__name__}{said}")
            raise

    def note(self, outcome: str, reason: str, version: int | None = None, found: Figures | None = None) -> str:
        self.store.note({"id": self.number, "started": self.started, "outcome": outcome, "reason": reason,
                         "version": version, "figures": json.dumps(found or {}),
                         "ended": None if outcome == "running" else time.time()})
        return outcome

    def _run(self) -> str:
        self.note("running", "reads what is new")
        erased = self._forget()
        current = self.shelf.current()
        model, changes = behind(lambda: (self.shelf.load(current)[0], self.store.changes(-1, current.known)))
        done = self.store.done(current.known, changes.tick)
        if not (changes.ratings or done or erased):
            if not self.shelf.lists(current):
                self._make_lists(current, model)
            return self.note("unchanged", "nothing is new")
        data, kept = behind(lambda: grown(model.data_, changes.ratings, self.store.described(), done))
        figures = current.figures or self._measured(current, model)
        self.note("running", "fits a trial")

        def tried() -> tuple[Masks, Figures, Figures]:
            held = held_out(data)
            trial = fit(model, data.select({name: ~mask for name, mask in held.items()}))
            before = {name: mask & kept[name] for name, mask in held.items()}
            return held, judge(trial, data, held), judge(trial, data, before)

        held, found, same = behind(tried)
        if why := worse(same, figures, self.settings.tolerance):
            return self.note("worse", why, found=found)
        self.note("running", "fits everything")
        fitted = behind(lambda: fit(model, data))
        if why := behind(lambda: broken(fitted, data, held, found)):
            return self.note("worse", why, found=found)
        version = self.store.new_version()
        made = Version(version, f"v{version:04d}.model", None, changes.tick, time.time(), True, found)
        behind(lambda: fitted.save(self.shelf.path(made), force=True))
        self.note("running", "makes the lists of everybody")
        behind(lambda: self.shelf.make_lists(made, fitted))
        self.shelf.adopt(made)
        self.store.trim()
        return self.note("accepted", "not worse than the version before", version, found)

    def _forget(self) -> bool:
        """Take erased people out of all model files, and what databases leave behind of them."""
        erased = self.store.erased()
        if not erased:
            return False
        if behind(lambda: self.shelf.forget(token for token, _ in erased)):
            self.store.touched()
        self.store.scrub(erased)
        return True

    def _measured(self, current: Version, model: Mixture) -> Figures:
        """What a version that somebody gave us would have been known by."""
        self.note("running", "measures the current model")

        def measured() -> Figures:
            held = held_out(model.data_)
            trial = fit(model, model.data_.select({name: ~mask for name, mask in held.items()}))
            return judge(trial, model.data_, held)

        found = behind(measured)
        self.store.figures(current.version, found)
        return found

    def _make_lists(self, current: Version, model: Mixture) -> None:
        self.note("running", "makes the lists of everybody")
        behind(lambda: self.shelf.make_lists(current, model))
        self.store.touched()


def behind(work: Callable[[], T]) -> T:
    """What some work returns that is done at low priority."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(1, "behind", _step_back)
    return _pool.submit(work).result()


_pool: ThreadPoolExecutor | None = None


def _step_back() -> None:
    """This thread, those that it starts, and those that algebra has started already, where threads have priorities of
    their own; elsewhere the whole process. Not SCHED_IDLE: on a machine that is always busy a refit would not end."""
    if sys.platform != "linux":
        if hasattr(os, "nice"):
            os.nice(BEHIND)
        return
    known = {thread.native_id for thread in threading.enumerate()} - {threading.get_native_id()}
    for thread in {int(task.name) for task in Path("/proc/self/task").iterdir()} - known:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, BEHIND)


def fit(model: Mixture, data: Ratings) -> Mixture:
    """A model like another, of these ratings; people and things without any are left out."""
    fresh = type(model)(**model.get_params())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fresh.fit(data.compact(), n_threads=THREADS)


def held_out(data: Ratings) -> Masks:
    """One rating in ten, of people with several, by a hash of both ids: the same ones whatever else there is."""
    out = {}
    for name, d in data.domains.items():
        user, item = (np.array([crc32(str(i).encode(errors="surrogatepass")) for i in ids.ids] or [0], np.uint64)
                      for ids in (d.users, d.items))
        mixed = (user[d.user] * np.uint64(0x9E3779B97F4A7C15) + item[d.item]) * np.uint64(0xD1B54A32D192ED03)
        held = (mixed >> np.uint64(40)) % np.uint64(ONE_IN) == 0
        left = np.bincount(d.user[~held], minlength=d.n_users)
        of_item = np.bincount(d.item[~held], minlength=d.n_items)
        out[name] = held & (left[d.user] > 0) & (of_item[d.item] > 0)        # somebody and something must be left
    return out


def judge(model: Mixture, data: Ratings, held: Mapping[str, NDArray[np.bool_]]) -> Figures:
    """Error, and hits of lists, on held-out ratings that a model has not seen."""
    errors, n, hits = {}, 0, list[float]()
    for name, d in data.domains.items():
        own, rows = model.data_[name], np.flatnonzero(held[name])
        users, items = own.users.encode(d.users.decode(d.user[rows])), own.items.encode(d.items.decode(d.item[rows]))
        there = (users >= 0) & (items >= 0)
        rows, users, items = rows[there], users[there], items[there]
        if not len(rows):
            continue
        if not d.events:
            errors[name] = float(np.abs(model.predict_codes(name, users, items) - d.ratings[rows]).mean())
        n += len(rows)
        hits += _hits(model, name, users[d.liked[rows]], items[d.liked[rows]])
    spread = float(np.std(hits) / np.sqrt(len(hits))) if len(hits) > 1 else 0.0
    return {"error": float(np.mean(list(errors.values()))) if errors else 0.0, "errors": errors, "ratings": n,
            "hits": float(np.mean(hits)) if hits else 0.0, "hits_spread": spread, "people": len(hits)}


def _hits(model: Mixture, name: str, users: NDArray[np.int32], items: NDArray[np.int32]) -> list[float]:
    """Of some people with something that they liked, the share of it that is on their lists."""
    some = np.unique(users)
    some = some[np.argsort((some.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32))][:JUDGED]
    if not len(some):
        return []
    lists = model.recommend(name, model.data_[name].users.decode(some), LISTED)
    return [float(np.isin(items[users == user], codes).mean()) for user, codes in zip(some, lists.codes, strict=True)]


def worse(found: Figures, before: Mapping[str, Any], tolerance: float) -> str:
    """Why a refit is worse than the version before it, on the same ratings; nothing where it is not."""
    if found["ratings"] < FEWEST:
        return ""                                            # too few to tell anything
    if found["error"] > before["error"] * (1 + tolerance):
        return f"the held-out error would rise from {before['error']:.4f} to {found['error']:.4f}"
    spread = SURE * max(found["hits_spread"], before["hits_spread"])
    if found["people"] and found["hits"] < before["hits"] * (1 - tolerance) - spread:
        return f"lists would hold {found['hits']:.3f} of what people like instead of {before['hits']:.3f}"
    return ""


def broken(model: Mixture, data: Ratings, held: Mapping[str, NDArray[np.bool_]], trial: Figures) -> str:
    """Why a fit of everything is not what its trial promised, though it has seen the ratings that are asked for."""
    found = judge(model, data, held)
    if not np.isfinite(found["error"]) or found["error"] > BROKEN * max(trial["error"], 1e-9):
        return f"the fit of everything has the error {found['error']:.4f} on ratings that it has seen"
    return ""


def start(settings: Settings, job: str, number: str) -> int:
    """Do a job under the lease, of which there is one for all processes. Returns the exit code."""
    store = Store(settings.db, PATIENCE)
    store.open()
    if not store.lease(LEASE, number, HELD):
        return 3
    threading.Thread(target=_renew, args=(store, number), daemon=True).start()
    try:
        work = Refit(settings, store, number)
        if job == "refit":
            work.run()
        else:
            current = work.shelf.current()
            if not work.shelf.lists(current):
                behind(lambda: work.shelf.make_lists(current, work.shelf.load(current)[0]))
                store.touched()
        return 0
    finally:
        store.release(LEASE, number)


def _renew(store: Store, number: str) -> None:
    from pclf.errors import StoreError

    while True:
        time.sleep(HELD / 6)
        try:
            store.renew(LEASE, number, HELD)
        except StoreError:
            continue                                         # it may be back in time


def _ends_with_its_parent() -> None:
    """The service holds the other end of our input: when it is gone, whichever way, so are we."""
    while os.read(0, 1024):          # not sys.stdin, whose lock would be held when Python ends
        pass
    os._exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pclf.service.refit", description=__doc__)
    parser.add_argument("job", choices=("refit", "lists"))
    parser.add_argument("--number", default=f"{os.getpid()}-{time.time_ns():x}", help="what the refit is known by")
    parser.add_argument("--watch", action="store_true", help="end when standard input does")
    told = parser.parse_args()
    if told.watch:
        threading.Thread(target=_ends_with_its_parent, daemon=True).start()
    threadpool_limits(THREADS)
    return start(Settings.from_environment(), told.job, told.number)


if __name__ == "__main__":
    sys.exit(main())
