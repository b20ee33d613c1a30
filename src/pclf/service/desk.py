"""The desk: answers questions from a live model, keeps what people say, and swaps models while it does.

Questions that come together are answered in one go. What takes a few milliseconds is done at once, since a thread that
must get hold of Python beside a busy loop takes many times as long; what takes longer, or nobody has measured yet, runs
in one thread beside the loop. What was answered is kept until the model, or what is known of the person, changes.
"""

import asyncio
import gc
import hashlib
import secrets
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from threadpoolctl import threadpool_limits

from pclf.errors import ArgumentError, DataError, PclfError, StoreError, UnknownNameError
from pclf.service import answers
from pclf.service.fresh import Follower, Fresh
from pclf.service.lists import Live, Person, as_id
from pclf.service.logs import Log, as_json
from pclf.service.metrics import Metrics
from pclf.service.settings import Settings
from pclf.service.shelf import Shelf
from pclf.service.store import Rating, Store, Version
from pclf.service.words import in_words
from pclf.service.worker import Worker

ANSWERS = 20_000           # that are kept
TOGETHER = 64              # lists made in one go
AT_ONCE = 0.012            # seconds for which nobody else is answered
FLUSH = 0.2                # seconds between two writes of what was shown
SHOWN = 50_000             # lists waiting to be remembered, at most
TURN = 0.0001              # seconds after which whatever computes lets go, so that answers do not wait for it
SWAP, PATIENT = "swap", 10.0    # a lease, and the seconds for which it is waited
KEYS = 5.0                 # seconds between two looks at the keys


class Asked(NamedTuple):
    """A list that somebody wants. Those with the same `how` can be made together."""

    live: Live
    user: str | None                       # by id, or
    guest: Any                             # a question of a guest
    how: tuple[Any, ...]                   # domain, n, rank_by, exclude, explain, user_domain

    @property
    def kind(self) -> tuple[Any, ...]:
        """What the time that it takes depends on."""
        domain, n, rank_by, _, explain, _ = self.how
        return self.live.version.version, domain, n, rank_by, explain, self.user is None


class Desk:
    """One for each process of the service."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings, self.log, self.metrics = settings, log, Metrics()
        self.store = Store(settings.db)
        self.shelf = Shelf(settings.folder, self.store)
        self.worker = Worker(settings, self.store, log)
        self.live: Live
        self.follower: Follower
        self.keys: dict[str, str] = {}
        self._reads = ThreadPoolExecutor(2, "reads")
        self._writes = ThreadPoolExecutor(4, "writes")
        self._computes = ThreadPoolExecutor(1, "computes")
        self._loads = ThreadPoolExecutor(1, "loads")
        self._answers: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], bytes, str, str, int, int]] = OrderedDict()
        self._shown: dict[str, dict[str, Any]] = {}
        self._asked: asyncio.Queue[tuple[Asked, asyncio.Future[Any]]] = asyncio.Queue()
        self._swap = asyncio.Event()
        self._writing = asyncio.Lock()
        self._other: Live | None = None
        self._takes: dict[tuple[Any, ...], float] = {}        # seconds of a list, by what it costs depends on
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Ready to answer when this returns."""
        sys.setswitchinterval(TURN)
        threadpool_limits(1)                      # lists are small: more threads would wait for each other
        await self._in(self._writes, self.store.open)
        self.live = await self._in(self._loads, self._loaded)
        self.keys = await self._in(self._reads, self.store.keys)
        self.follower = Follower(self.store, self.live.fresh, self._reads, self._swap.set)
        for task in (self.follower.run(), self._compute(), self._remember(), self._reload(), self._read_keys(),
                     self.worker.run(lambda: self.live)):
            self._tasks.append(asyncio.create_task(task))
        gc.collect()
        gc.freeze()                               # what is here stays: to look through it again takes 0.1 seconds
        self.log("ready", model=self.live.version.version, domains=list(self.live.model.data_.domains))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.worker.stop()
        with suppress(StoreError):
            await self._flush()
        for pool in (self._reads, self._writes, self._computes, self._loads):
            pool.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    async def recommend(self, user: str, domain: str, n: int, explain: bool, rank_by: str | None,
                        user_domain: str | None) -> bytes:
        """A list for somebody by their id."""
        self._check_n(n)
        await self.follower.up_to_date()
        live = self.live
        key = user, domain, n, explain, rank_by, user_domain
        stamp = id(live), live.fresh.changed.get(user, 0), live.fresh.is_erased(user)
        found = self._answers.get(key)
        if found is None or found[0] != stamp:
            basis, items = await self._list(Asked(live, user, None, (domain, n, rank_by, (), explain, user_domain)))
            name = live.list_id(user, domain, items)
            if not stamp[2]:                                      # who was erased is not written down again
                self._to_remember(name, user, domain, [entry["item"] for entry in items])
            body = as_json({"id": name, "model": live.version.version, "domain": domain, "basis": basis,
                            "items": items})
            found = stamp, body, domain, basis, len(items), live.n_popular(domain, items)
            self._answers[key] = found
            if len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
        self._count(*found[2:])
        return found[1]

    async def next_page(self, list_id: str, n: int, explain: bool) -> bytes:
        """What comes after a list that was shown."""
        self._check_n(n)
        shown = await self._was_shown(list_id)
        if shown is None:
            raise UnknownNameError("unknown list: it was never shown to a user, or too long ago. Ask for a new one.")
        user, domain, before = shown
        await self.follower.up_to_date()
        live, left_out = self.live, tuple(map(str, before))
        basis, items = await self._list(Asked(live, user, None, (domain, n, None, left_out, explain, None)))
        name = live.list_id(user, domain, items, list_id)
        self._to_remember(name, user, domain, [*before, *(entry["item"] for entry in items)])
        self._count(domain, basis, len(items), live.n_popular(domain, items))
        return as_json({"id": name, "model": live.version.version, "domain": domain, "basis": basis, "items": items})

    async def recommend_guest(self, asked: answers.GuestQuestion) -> bytes:
        """A list for somebody who tells what they like. Nothing is stored."""
        self._check_n(asked.n)
        live = await self._version(asked.model)
        how = asked.domain, asked.n, asked.rank_by, tuple(asked.exclude), asked.explain, None
        basis, items = await self._list(Asked(live, None, asked.ratings, how))
        self._count(asked.domain, basis, len(items), live.n_popular(asked.domain, items))
        return as_json({"id": live.list_id("", asked.domain, items, str(sorted(asked.ratings))),
                        "model": live.version.version, "domain": asked.domain, "basis": basis, "items": items})

    async def predict(self, asked: answers.PredictQuestion) -> bytes:
        if (asked.user is None) == (not asked.ratings):
            raise ArgumentError("one of user and ratings must be given, and not both.")
        await self.follower.up_to_date()
        live = self.live

        def work() -> tuple[str, list[dict[str, Any]]]:
            person = live.stranger(asked.ratings) if asked.user is None else live.person(asked.user, asked.domain)
            return person.basis, live.predict(person, asked.domain, asked.items)

        basis, items = await self._in(self._computes, work)
        return as_json({"model": live.version.version, "domain": asked.domain, "basis": basis, "items": items})

    async def similar(self, domain: str, item: str, n: int, to: str | None) -> bytes:
        self._check_n(n)
        live = self.live
        items = await self._in(self._computes, live.similar, domain, item, n, to)
        return as_json({"model": live.version.version, "domain": to or domain, "items": items})

    async def search(self, domain: str, text: str, n: int) -> bytes:
        self._check_n(n)
        return as_json({"domain": domain, "items": await self._in(self._computes, self.live.search, domain, text, n)})

    async def ratings_of(self, user: str) -> bytes:
        await self.follower.up_to_date()
        live = self.live
        rated = live.ratings_of(user)
        titles: dict[str, dict[str, str]] = {}
        for name, mine in rated.items():
            d = live.model.data_[name]
            codes = {item: as_id(d.items, item) for item in mine}
            titles[name] = {item: live.titles[name][d.items.code(known)] if known is not None else
                            live.fresh.titles.get((name, item)) or item for item, known in codes.items()}
        return as_json({"known": bool(rated), "ratings": rated, "titles": titles})

    def domains(self) -> dict[str, Any]:
        live = self.live
        return {"model": live.version.version, "ranks": list(live.model.ranks), "domains": [
            {"name": name, "users": d.n_users, "items": d.n_items, "ratings": len(d), "scale": list(d.scale.values),
             "events": d.events} for name, d in live.model.data_.domains.items()]}

    async def rate(self, rows: Sequence[Any]) -> answers.Kept:
        """Keep the ratings of a batch that can be kept, all at once."""
        good, rejected = self._checked(rows, answers.RatingRow, self._rating_is_wrong)
        new_users = {row.user for row in good if row.user not in self.live.fresh.ratings and not any(
            as_id(d.users, row.user) is not None for d in self.live.model.data_.domains.values())}
        new_items = self._new_items((row.domain, row.item) for row in good)
        told = [(row.domain, row.item, row.title, row.attributes) for row in good
                if (row.title is not None or row.attributes is not None) and (row.domain, row.item) in new_items]
        if good:
            def work() -> None:
                if told:
                    self.store.describe(told)
                self.store.rate([Rating(row.user, row.domain, row.item, row.rating) for row in good], new_items)

            await self._in(self._writes, work)
        self.metrics.kept.inc(len(good))
        return answers.Kept(accepted=len(good), rejected=rejected, new_users=len(new_users), new_items=len(new_items))

    async def describe(self, rows: Sequence[Any]) -> answers.Kept:
        """Keep items with their titles and attributes."""
        good, rejected = self._checked(rows, answers.ItemRow, self._item_is_wrong)
        new_items = self._new_items((row.domain, row.item) for row in good)
        if good:
            await self._in(self._writes, self.store.describe,
                           [(row.domain, row.item, row.title, row.attributes) for row in good])
        return answers.Kept(accepted=len(good), rejected=rejected, new_items=len(new_items))

    async def happened(self, rows: Sequence[Any]) -> answers.Kept:
        """Keep events."""
        good, rejected = self._checked(rows, answers.EventRow, self._item_is_wrong)
        if good:
            now = time.time()
            await self._in(self._writes, self.store.happened, [
                {"id": row.id or _event_id(row), "user_id": row.user, "domain": row.domain, "item": row.item,
                 "kind": row.event, "list": row.list, "at": row.at or now} for row in good])
        return answers.Kept(accepted=len(good), rejected=rejected)

    async def forget(self, user: str) -> answers.Forgotten:
        """Delete a person."""
        async with self._writing:                             # nothing of theirs is on its way to the store
            self._shown = {name: row for name, row in self._shown.items() if row["user_id"] != user}
            rows = await self._in(self._writes, self.store.forget, user)
        await self.follower.up_to_date()
        for key in [key for key in self._answers if key[0] == user]:
            del self._answers[key]
        due = await self._in(self._reads, self.worker.due_at)
        when = "the model files forget this person with the next refit" + (
            "" if due is None else ", which is due at refit_due") + "; answers do without them from now on"
        return answers.Forgotten(forgotten=True, rows=rows, store="now", model=when, refit_due=due)

    async def refit(self) -> answers.RefitAnswer:
        number, state = await self.worker.refit()
        return answers.RefitAnswer(refit=number, state=state)

    async def roll_back(self) -> answers.RollbackAnswer:
        version = await self._in(self._writes, self.store.roll_back)
        if version is None:
            raise DataError("there is no version before this one to go back to.")
        await self.follower.up_to_date()
        await self._swapped(version.version)
        return answers.RollbackAnswer(model=version.version)

    async def facts(self) -> dict[str, Any] | None:
        """What the store says about the model and its refits; None where it is gone."""
        def work() -> dict[str, Any]:
            versions = self.store.versions()
            version = next((v for v in versions if v.version == self.live.version.version), self.live.version)
            return {"version": version, "versions": versions, "refits": self.store.refits(),
                    **self.store.counts(version.known)}

        with suppress(StoreError):
            found: dict[str, Any] = await self._in(self._reads, work)
            return found
        return None

    async def status(self) -> dict[str, Any]:
        """Everything that the operator's page shows."""
        facts, live = await self.facts(), self.live
        out: dict[str, Any] = {
            "model": {"version": live.version.version, "fitted": live.version.at, "kind": type(live.model).__name__,
                      "ratings": live.model.data_.n_ratings, "figures": dict(live.version.figures)},
            "database": facts is not None, "traffic": self.metrics.traffic(), "refit_every": self.settings.refit_every,
            "refit_after": self.settings.refit_after, "now": time.time(),
            "domains": [{**facts_of, "coverage": live.coverage.get(facts_of["name"]),
                         "parts": live.model._parts(facts_of["name"]),
                         "bridges": [{"kind": b.kind, "percent": b.percent, "visitors": b.visitors, "used": b.used,
                                      "text": b.text}
                                     for b in live.model.transfer_[facts_of["name"]].bridges.values()],
                         "verdict": live.model.transfer_[facts_of["name"]].text}
                        for facts_of in self.domains()["domains"]]}
        if facts is not None:
            out["model"]["figures"] = dict(facts["version"].figures)
            out["counts"] = {name: facts[name] for name in ("ratings", "events", "shown", "items", "fresh", "clicked",
                                                           "erasures")}
            out["versions"] = [{"version": v.version, "fitted": v.at, "current": v.current, "figures": dict(v.figures)}
                               for v in facts["versions"]]
            out["refits"] = facts["refits"]
        return out

    async def _list(self, asked: Asked) -> tuple[str, list[dict[str, Any]]]:
        """A list: looked up at once where it was made before, else made in the thread that computes."""
        domain, n, rank_by, exclude, explain, user_domain = asked.how
        asked.live.model.data_[domain]                            # an unknown name is guessed there
        if asked.user is not None and not explain and asked.user not in asked.live.fresh.ratings:
            person = asked.live.person(asked.user, domain, user_domain)
            if asked.live.is_made(person, domain, n, rank_by, exclude):
                return person.basis, asked.live.make(person, domain, n, rank_by, exclude)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((asked, answer))
        found: tuple[str, list[dict[str, Any]]] = await answer
        return found

    async def _compute(self) -> None:
        """Make lists, those of the same kind together."""
        while True:
            first = await self._asked.get()
            kind = first[0].kind
            most = self._at_once(kind)
            waiting, others = [first], list[Any]()
            while not self._asked.empty() and len(waiting) < (most or TOGETHER):
                other = self._asked.get_nowait()
                same = (other[0].live, other[0].how) == (first[0].live, first[0].how)
                (waiting if same else others).append(other)
            for other in others:
                self._asked.put_nowait(other)
            asked = [one for one, _ in waiting]
            found, seconds = self._measured(asked) if most else await self._in(self._computes, self._measured, asked)
            before = self._takes.get(kind, seconds)
            self._takes[kind] = 0.8 * before + 0.2 * seconds
            for (_, answer), result in zip(waiting, found, strict=True):
                if not answer.done():
                    answer.set_exception(result) if isinstance(result, Exception) else answer.set_result(result)
            await asyncio.sleep(0)                            # others are answered between two of these

    def _at_once(self, kind: tuple[Any, ...]) -> int:
        """How many lists of a kind may be made while everybody else waits, 0 for none."""
        seconds = self._takes.get(kind)
        return 0 if seconds is None else min(TOGETHER, int(AT_ONCE / max(seconds, 1e-6)))

    def _measured(self, asked: Sequence[Asked]) -> tuple[list[Any], float]:
        """Lists, and the seconds of work that one of them took."""
        began = time.thread_time()
        found = self._make(asked)
        return found, (time.thread_time() - began) / len(asked)

    def _make(self, asked: Sequence[Asked]) -> list[Any]:
        live, (domain, n, rank_by, exclude, explain, user_domain) = asked[0].live, asked[0].how
        people: list[Any] = []
        for one in asked:
            began = time.perf_counter()
            try:
                if one.user is None:
                    people.append(live.stranger(one.guest))
                    self.metrics.fold_in.observe(time.perf_counter() - began)
                else:
                    people.append(live.person(one.user, domain, user_domain))
                    if one.user in live.fresh.ratings:
                        self.metrics.fold_in.observe(time.perf_counter() - began)
            except Exception as error:                            # of one person; the others get their lists
                people.append(error)
        good = [person for person in people if isinstance(person, Person)]
        try:
            made = iter(live.make_many(good, domain, n, rank_by, exclude) if good else [])
            out: list[Any] = []
            for person in people:
                if isinstance(person, Person):
                    items = next(made)
                    if explain:
                        items = [{**entry, "why": live.reason(person, domain, entry["item"])} for entry in items]
                    out.append((person.basis, items))
                else:
                    out.append(person)
            return out
        except Exception as error:
            return [error] * len(asked)

    async def _version(self, wanted: int | None) -> Live:
        """The live version, or another one that is kept, to look at side by side."""
        await self.follower.up_to_date()
        live = self.live
        if wanted is None or wanted == live.version.version:
            return live
        if self._other is None or self._other.version.version != wanted:
            kept = await self._in(self._reads, self.store.versions)
            version = next((v for v in kept if v.version == wanted), None)
            if version is None:
                known = ", ".join(str(v.version) for v in kept)
                raise UnknownNameError(f"unknown model version {wanted}; kept are {known}.")
            self._other = await self._in(self._loads, self._loaded, version)
        return self._other

    def _loaded(self, version: Version | None = None) -> Live:
        """A version, or the current one, with what is fresh beside it; where its file is gone, the next that loads."""
        wanted = [version] if version is not None else sorted(
            self.store.versions(), key=lambda v: (not v.current, -v.version))
        failed: Exception | None = None
        for one in wanted:
            try:
                model, lists = self.shelf.load(one)
            except PclfError as error:
                self.log("model unusable", "error", model=one.version, reason=str(error))
                failed = error
                continue
            fresh = Fresh(self.store, one.known)
            fresh.apply(*fresh.read())
            live = Live(one, model, lists, fresh)
            live.warm()
            return live
        raise failed or ArgumentError("there is no model to serve: give one, pclf serve MODEL, or say --demo.")

    async def _reload(self) -> None:
        """Follow the store when it names another version, or the files were rewritten."""
        while True:
            await self._swap.wait()
            self._swap.clear()
            turn = secrets.token_hex(8)
            try:
                await self._wait_for_my_turn(turn)
                live = await self._in(self._loads, self._loaded)
                for user, homes in list(self.live.guests):
                    live.place_again(user, homes)
                    await asyncio.sleep(0)                    # others are answered meanwhile
            except (StoreError, PclfError) as error:
                self.log("swap failed", "error", reason=str(error))
                await asyncio.sleep(1)
                self._swap.set()
                continue
            finally:
                with suppress(StoreError):
                    await self._in(self._writes, self.store.release, SWAP, turn)
            self.live, self.follower.fresh = live, live.fresh
            self._other = None
            self._answers.clear()
            self.log("model", model=live.version.version, ratings=live.model.data_.n_ratings)

    async def _wait_for_my_turn(self, turn: str) -> None:
        """Processes load a version one after the other, so that the others have the cores for those who ask."""
        until = time.monotonic() + PATIENT
        while time.monotonic() < until and not await self._in(self._writes, self.store.lease, SWAP, turn, PATIENT):
            await asyncio.sleep(PATIENT / 50)

    async def _swapped(self, version: int) -> None:
        """Return when this process serves a version."""
        for _ in range(300):
            if self.live.version.version == version:
                return
            await asyncio.sleep(0.05)

    async def _remember(self) -> None:
        """Write down what was shown, a few times a second."""
        while True:
            await asyncio.sleep(FLUSH)
            if self._shown and self.follower.available:
                with suppress(StoreError):
                    await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            rows, self._shown = self._shown, {}
            try:
                if rows:
                    await self._in(self._writes, self.store.show, list(rows.values()))
            except StoreError:
                self._shown = {**rows, **self._shown}
                raise

    def _to_remember(self, name: str, user: str, domain: str, items: list[Any]) -> None:
        if len(self._shown) < SHOWN:
            self._shown[name] = {"id": name, "user_id": user, "domain": domain, "contents": as_json(items).decode(),
                                 "at": time.time()}

    async def _was_shown(self, list_id: str) -> tuple[str, str, list[Any]] | None:
        """A list that was shown here a moment ago, or by another process a little earlier."""
        import json

        for wait in (0.0, 2 * FLUSH):
            row = self._shown.get(list_id)
            if row is not None:
                return row["user_id"], row["domain"], json.loads(row["contents"])
            await asyncio.sleep(wait)
            found: tuple[str, str, list[Any]] | None = await self._in(self._reads, self.store.was_shown, list_id)
            if found is not None:
                return found
        return None

    async def _read_keys(self) -> None:
        while True:
            await asyncio.sleep(KEYS)
            with suppress(StoreError):
                self.keys = await self._in(self._reads, self.store.keys)

    def _checked(self, rows: Sequence[Any], kind: type[BaseModel], wrong: Any) -> tuple[list[Any], list[Any]]:
        """The rows of a batch that can be kept, and why the others cannot."""
        if len(rows) > self.settings.max_batch:
            raise ArgumentError(f"a batch must have at most {self.settings.max_batch:,} rows; got {len(rows):,}.")
        good, rejected = [], []
        for at, row in enumerate(rows):
            reason = wrong(row) if isinstance(row, kind) else _what_is_wrong(row, kind)
            if reason:
                rejected.append(answers.Rejected(row=at, reason=reason))
            else:
                good.append(row)
        self.metrics.rejected.inc(len(rejected))
        return good, rejected

    def _rating_is_wrong(self, row: answers.RatingRow) -> str:
        if reason := self._item_is_wrong(row):
            return reason
        scale = self.live.model.data_[row.domain].scale
        _, off = scale.locate(_numbers(row.rating))
        return f"the rating must be on the scale of {row.domain!r}, {scale}; got {row.rating:g}." if off[0] else ""

    def _item_is_wrong(self, row: Any) -> str:
        data = self.live.model.data_
        try:
            data[row.domain]
            attributes = getattr(row, "attributes", None)
            if attributes:
                if data.attributes is None:
                    return "attributes cannot be used: the model was fitted without any."
                data.attributes._encoded([attributes])
        except (PclfError, TypeError, ValueError) as error:
            return str(error)
        return ""

    def _new_items(self, pairs: Any) -> set[tuple[str, str]]:
        data = self.live.model.data_
        return {(domain, item) for domain, item in pairs
                if as_id(data[domain].items, item) is None and (domain, item) not in self.live.fresh.titles}

    def _check_n(self, n: int) -> None:
        if n > self.settings.max_n:
            raise ArgumentError(f"n must be at most {self.settings.max_n}; got {n}.")

    def _count(self, domain: str, basis: str, n: int, popular: int) -> None:
        self.metrics.lists.labels(domain, basis).inc()
        self.metrics.items.labels(domain).inc(n)
        self.metrics.popular.labels(domain).inc(popular)

    async def _in(self, pool: ThreadPoolExecutor, work: Any, *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *given)


def _numbers(value: float) -> Any:
    import numpy as np

    return np.array([value], np.float64)


def _event_id(row: answers.EventRow) -> str:
    told = "\x1f".join(map(str, (row.user, row.domain, row.item, row.event, row.list, row.at)))
    return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:32]


def _what_is_wrong(row: Any, kind: type[BaseModel]) -> str:
    try:
        kind.model_validate(row)
    except ValidationError as error:
        return in_words(error.errors(include_url=False)[:1], "the row")
    return "the row cannot be read"
