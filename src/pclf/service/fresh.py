"""Fresh: what a model has not heard of yet, kept in memory and as new as the store.

A process that answers holds a model and, of everybody who has rated since, these ratings. Before it answers it makes
sure that it has read the store's clock after the question came (`Follower.up_to_date`). Questions that come together
share one look at the clock, so a thousand a second cost a few dozen looks. When the database is gone, answers go on
from what is known.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

from pclf.errors import StoreError
from pclf.service.store import Changes, Store

SLOW = 2.0           # seconds that an answer waits for the database
AGAIN = 1.0          # seconds after which a database that failed is asked again
IDLE = 1.0           # seconds between two looks when nobody asks


class Fresh:
    """The ratings that a model does not know, by user; who was erased; items that are new. Beside one model version."""

    def __init__(self, store: Store, known: int) -> None:
        self.store, self.known = store, known
        self.tick = -1
        self.ratings: dict[str, dict[str, dict[str, float]]] = {}     # user -> domain -> item -> rating
        self.changed: dict[str, int] = {}                             # user -> how often what is here changed
        self.erased: set[str] = set()                                 # tokens
        self.titles: dict[tuple[str, str], str | None] = {}           # of items that were told to the service

    def read(self) -> tuple[Changes, list[str]]:
        """What the store has beyond this, and who of those here was erased. Slow: for a thread."""
        changes = self.store.changes(self.tick, max(self.tick, self.known))
        tokens = set(changes.erasures)
        return changes, [user for user in self.ratings if self.store.token(user) in tokens] if tokens else []

    def read_at_once(self) -> Changes | None:
        """The same in microseconds, where that is possible."""
        return self.store.changes_at_once(self.tick, max(self.tick, self.known))

    def apply(self, changes: Changes, gone: Iterable[str]) -> None:
        """Quick: for whoever answers."""
        self.erased.update(changes.erasures)
        for user in gone:
            self.ratings.pop(user, None)
            self.changed[user] = self.changed.get(user, 0) + 1
        for said in changes.ratings:
            self.ratings.setdefault(said.user, {}).setdefault(said.domain, {})[said.item] = said.rating
            self.changed[said.user] = self.changed.get(said.user, 0) + 1
        for domain, item, title in changes.items:
            self.titles[domain, item] = title
        self.tick = max(self.tick, changes.tick)

    def said(self, user: str) -> tuple[int, dict[str, dict[str, float]]]:
        """How often what somebody said changed, and a copy of it that is no older: others write meanwhile."""
        changed = self.changed.get(user, 0)
        return changed, {name: dict(given) for name, given in list(self.ratings.get(user, {}).items())}

    def is_erased(self, user: str) -> bool:
        return bool(self.erased) and self.store.token(user) in self.erased


class Follower:
    """Keeps what is fresh up to date, and tells when the model versions changed."""

    def __init__(self, store: Store, fresh: Fresh, threads: Executor, new_versions: Callable[[], Any]) -> None:
        self.store, self.fresh, self.threads, self.new_versions = store, fresh, threads, new_versions
        self.failed = 0.0                                     # when the database was last found to be gone
        self._running: asyncio.Future[bool] | None = None
        self._next: asyncio.Future[bool] | None = None

    @property
    def available(self) -> bool:
        return self.failed == 0.0

    async def up_to_date(self) -> bool:
        """Return when everything that was acknowledged before this call is here; False where the store is gone."""
        if not self.available and time.monotonic() - self.failed < AGAIN:
            return False
        fresh = self.fresh
        if self.available and self._running is None and self._at_once(fresh):
            return True
        if self._running is None:
            look: asyncio.Future[bool] = asyncio.ensure_future(self._look())
            self._running = look
        else:                                                 # it may have read the clock before this question came
            if self._next is None:
                self._next = asyncio.ensure_future(self._after(self._running))
            look = self._next
        done, _ = await asyncio.wait({look}, timeout=SLOW)
        if not done:
            self.failed = time.monotonic()
        if self.fresh is not fresh:                           # another model came meanwhile, with what it had read
            return await self.up_to_date()
        return bool(done) and look.result()

    def _at_once(self, fresh: Fresh) -> bool:
        """Whether everything is here, or so little is missing that it could be read while everybody else waits."""
        tick = self.store.tick_at_once()
        if tick is None or tick == fresh.tick:
            return tick is not None
        changes = fresh.read_at_once()
        if changes is None:
            return False
        fresh.apply(changes, [])
        if changes.models:
            self.new_versions()
        return True

    async def run(self) -> None:
        """Look now and then while nobody asks, for new model versions and for a database that came back."""
        while True:
            await self.up_to_date()
            await asyncio.sleep(IDLE if self.available else AGAIN)

    async def _after(self, running: "asyncio.Future[bool]") -> bool:
        await asyncio.wait({running})
        self._running, self._next = self._next, None
        return await self._look()

    async def _look(self) -> bool:
        loop, fresh = asyncio.get_running_loop(), self.fresh
        try:
            tick = await loop.run_in_executor(self.threads, self.store.tick)
            if tick != fresh.tick:
                changes, gone = await loop.run_in_executor(self.threads, fresh.read)
                fresh.apply(changes, gone)
                if changes.models:
                    self.new_versions()
            self.failed = 0.0
            return True
        except StoreError:
            self.failed = time.monotonic()
            return False
        finally:
            if self._next is None:
                self._running = None
