"""The worker: starts refits in a process of their own, by clock, by count or when asked, and sees how they end."""

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

from pclf.errors import StoreError
from pclf.service.lists import Live
from pclf.service.logs import Log
from pclf.service.refit import HELD, LEASE
from pclf.service.settings import VARIABLE, Settings
from pclf.service.store import Store

LOOK = 2.0                 # seconds between two looks at the clock


class Worker:
    """At most one job at a time of all processes that share a store: the store's lease sees to that."""

    def __init__(self, settings: Settings, store: Store, log: Log) -> None:
        self.settings, self.store, self.log = settings, store, log
        self._child: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def run(self, live: Callable[[], Live]) -> None:
        """Start what is due."""
        if not live().lists:
            await self._start("lists", secrets.token_hex(8))
        while True:
            await asyncio.sleep(LOOK)
            with contextlib.suppress(StoreError):
                due = await asyncio.get_running_loop().run_in_executor(None, self._is_due)
                if due and not self._busy:
                    await self._start("refit", secrets.token_hex(8))

    async def refit(self) -> tuple[str, str]:
        """Start a refit now. Returns its number and whether it started or another is running."""
        number = secrets.token_hex(8)
        free = await asyncio.get_running_loop().run_in_executor(None, self.store.lease, LEASE, number, HELD)
        if not free or self._busy:
            if free:
                await asyncio.get_running_loop().run_in_executor(None, self.store.release, LEASE, number)
            return number, "another is running"
        await self._start("refit", number)
        return number, "started"

    def due_at(self) -> float | None:
        """When the next refit is due by the clock."""
        if not self.settings.refit_every:
            return None
        last = next(iter(self.store.refits(1)), None)
        versions = self.store.versions()
        since = max([v.at for v in versions if v.current] + ([last["started"]] if last else []))
        return float(since + 3600 * self.settings.refit_every)

    async def stop(self) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.terminate()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._child.wait(), 5)
        if self._watch is not None:
            self._watch.cancel()

    @property
    def _busy(self) -> bool:
        return self._child is not None and self._child.returncode is None

    def _is_due(self) -> bool:
        due = self.due_at()
        if due is not None and time.time() >= due:
            return True
        if not self.settings.refit_after:
            return False
        last = next(iter(self.store.refits(1)), None)
        return self.store.rated_since(last["started"] if last else 0.0) >= self.settings.refit_after

    async def _start(self, job: str, number: str) -> None:
        self.settings.to_environment()
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pclf.service.refit", job, "--number", number, "--watch",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, VARIABLE: os.environ[VARIABLE]})
        self.log("job started", job=job, number=number)
        self._watch = asyncio.create_task(self._ended(self._child, job, number))

    async def _ended(self, child: asyncio.subprocess.Process, job: str, number: str) -> None:
        """Log how a job ended, and tell the store where the job could not."""
        assert child.stderr is not None
        said = b""
        while line := await child.stderr.readline():
            said = (said + line)[-2000:]
        code = await child.wait()
        self.log("job ended", "info" if code in (0, 3) else "error", job=job, number=number, code=code,
                 **({"said": said.decode(errors="replace")} if code not in (0, 3) and self.log.with_ids else {}))
        if job == "refit" and code not in (0, 3):
            with contextlib.suppress(StoreError):
                await asyncio.get_running_loop().run_in_executor(None, self._failed, number, code)

    def _failed(self, number: str, code: int) -> None:
        mine: dict[str, Any] | None = next((r for r in self.store.refits() if r["id"] == number), None)
        if mine is None or mine["ended"] is None:
            self.store.note({"id": number, "started": mine["started"] if mine else time.time(), "ended": time.time(),
                             "outcome": "failed", "reason": f"the process ended with code {code}"})
        self.store.release(LEASE, number)
