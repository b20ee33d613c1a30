"""Progress: bars on stderr, shown in a terminal or a notebook and silent in a pipe; and what is logged.

`logging.getLogger("pclf")` tells when something longer begins (DEBUG) and how long it took (INFO). It is silent unless
somebody listens: `logging.basicConfig(level=logging.INFO)`.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("pclf")
log.addHandler(logging.NullHandler())


@contextmanager
def progress(what: str, total: float | None, *, unit: str = "it", shown: bool = True) -> Iterator[Callable[..., None]]:
    """Yields advance(amount=1, note=""): a bar with rate and remaining time."""
    log.debug("%s: begins", what)
    began = time.perf_counter()
    with _bar(what, total, unit, shown) as advance:
        yield advance
    log.info("%s: %.2f s", what, time.perf_counter() - began)


@contextmanager
def _bar(what: str, total: float | None, unit: str, shown: bool) -> Iterator[Callable[..., None]]:
    if not shown:
        yield lambda amount=1.0, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal
                  and not console.is_jupyter) as bar:
        task = bar.add_task(what, total=total, rate="", note="")

        def advance(amount: float = 1.0, note: str = "") -> None:
            speed = bar.tasks[0].speed
            bar.update(task, advance=amount, note=note, rate=f"{speed:,.1f} {unit}/s" if speed else "")

        yield advance
