"""`pclf serve`: the service, in one command."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pclf.errors import ArgumentError, visible

EXTRA = "the service needs more packages: pip install 'pclf[serve]'"


def run(settings: dict[str, Any], model: Path | None, demo: bool, seed: int) -> None:
    """Put a model on the shelf, and answer until Ctrl-C."""
    settings_of, store, shelf = _opened(settings)
    store.open()
    if demo and model is None and not store.versions():
        model = _demo(shelf.folder, seed)
    shelf.put_first(model)
    if not settings_of.on_loopback and not store.keys():
        raise ArgumentError(f"a service that others can reach needs a key: pclf serve --db {settings_of.db} --new-key "
                            f"write, and another with --new-key read. Or let it listen on 127.0.0.1.")
    version = shelf.current().version
    store.close()
    _listen(settings_of, version)


def new_key(settings: dict[str, Any], may: str) -> str:
    """A key for a database, shown this once."""
    _, store, _ = _opened(settings)
    from pclf.service.keys import new_key

    store.open()
    made = new_key(store, may)
    store.close()
    return made


def _opened(settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    try:
        from pclf.service.settings import Settings
        from pclf.service.shelf import Shelf
        from pclf.service.store import Store
    except ImportError as error:
        raise ArgumentError(f"{EXTRA} ({error}).") from None
    made = Settings(**settings)
    store = Store(made.db)
    return made, store, Shelf(made.folder, store)


def _demo(folder: Path, seed: int) -> Path:
    """The model of the demo's catalogues, fitted once."""
    from pclf import PCLF, datasets

    path = folder / "demo.model"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        print("fitting the demo's three catalogues, once: half a minute ...", file=sys.stderr)
        PCLF().fit(datasets.load("demo", seed=seed), random_state=seed, verbose=True).save(path)
    return path


def _listen(settings: Any, version: int) -> None:
    from pclf.service.lines import listen

    settings.to_environment()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    print(visible(f"pclf serves model version {version} at http://{host}:{settings.port}/ (Ctrl-C ends it)"),
          file=sys.stderr, flush=True)
    with ExitStack() as until_the_end:
        if settings.workers > 1:                          # whose metrics count together
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = until_the_end.enter_context(
                tempfile.TemporaryDirectory(prefix="pclf-metrics-"))
        listen(settings.host, settings.port, settings.workers)
