"""The shelf: model versions as files in a folder, each with the lists of everybody beside it.

The store says which version is the current one; here are the bytes. A file is written whole before the store hears of
it, so whatever the store names can be loaded, and what it does not name is left over from a process that was killed.

The lists of everybody are made once for a version, by the process that fitted it. Serving one is then a matter of
looking it up: known people, in the catalogues in which they are known.
"""

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import models, storage
from pclf.atomic import replacing
from pclf.data.ratings import Domain, Ratings
from pclf.data.vocabulary import Vocabulary
from pclf.errors import ArgumentError, ModelFileError
from pclf.models.mixture import Mixture
from pclf.service.store import Store, Version

KEPT = 3                   # versions
LONG = 30                  # places of the lists that are made for everybody
TOGETHER = 256             # people whose lists are made in one go
MOST = 30_000_000          # places of all of them: beyond, lists are made when they are asked for
LEFT_OVER = 3600.0         # seconds after which a file that no version names is swept

Lists = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Shelf:
    """A folder of model versions, and the store that says which there are."""

    folder: Path
    store: Store

    def path(self, version: Version) -> Path:
        return self.folder / version.file

    def lists_path(self, version: Version) -> Path:
        return self.path(version).with_suffix(".lists")

    def put_first(self, given: Path | None) -> None:
        """Make a model that somebody gave the current version, unless it was given before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.store.versions()
        if given is None:
            if not kept:
                raise ArgumentError("there is no model to serve: give one, pclf serve MODEL, or say --demo.")
            return
        seal = _seal(given)
        if self.store.was_given(seal):
            return
        load(given)                                          # or say what is wrong with it, before anything changes
        version = self.store.new_version()
        path = self.folder / f"v{version:04d}.model"
        with replacing(path) as part:
            shutil.copyfile(given, part)
        self.adopt(Version(version, path.name, seal, self.store.tick(), time.time(), True, {}))

    def adopt(self, made: Version) -> None:
        """A version whose file is here becomes the current one; the oldest beyond those kept goes."""
        for old in self.store.adopt(made, KEPT):
            self._remove(old)
        self.sweep()

    def current(self) -> Version:
        kept = self.store.versions()
        return next((version for version in kept if version.current), kept[0])

    def load(self, version: Version) -> tuple[Mixture, Lists]:
        """A model, and the lists of everybody where they were made."""
        return load(self.path(version)), self.lists(version)

    def lists(self, version: Version) -> Lists:
        from safetensors.numpy import load_file

        with suppress(Exception):                   # without them, lists are made when they are asked for
            found: Lists = load_file(self.lists_path(version))
            return found
        return {}

    def make_lists(self, version: Version, model: Mixture) -> None:
        """The lists of everybody in the domains that know them, for `service.lists`."""
        from safetensors.numpy import save_file

        places = sum(d.n_users for d in model.data_.domains.values()) * LONG
        made = {name: _of_everybody(model, d) for name, d in model.data_.domains.items()} if places <= MOST else {}
        arrays = {f"{name}/{part}": array for name, parts in made.items() for part, array in parts.items()}
        with replacing(self.lists_path(version)) as part:
            save_file(arrays, part)

    def forget(self, tokens: Iterable[str]) -> bool:
        """Take people out of the files of all versions, by their tokens. Whether any file had one of them."""
        gone, changed = set(tokens), False
        for version in self.store.versions():
            file = storage.load(self.path(version))
            data, found = without(file.data, self.store, gone)
            if found:
                storage.save(self.path(version), file.kind, file.settings, data, file.arrays, file.extra, force=True)
                self.lists_path(version).unlink(missing_ok=True)
                changed = True
        return changed

    def sweep(self) -> None:
        """Remove what no version names: left by processes that were killed."""
        named = {path for version in self.store.versions() for path in (self.path(version), self.lists_path(version))}
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path not in named and time.time() - path.stat().st_mtime > LEFT_OVER:
                    path.unlink(missing_ok=True)

    def _remove(self, version: Version) -> None:
        for path in (self.path(version), self.lists_path(version)):
            path.unlink(missing_ok=True)


def load(path: Path) -> Mixture:
    """A model that can be served: it must place guests and explain."""
    model = models.load(path)
    if not isinstance(model, Mixture):
        raise ArgumentError(f"a service needs a model that can place guests, PCLF, RMGM or FMM; {path} holds "
                            f"{type(model).__name__}.")
    return model


def without(data: Ratings, store: Store, tokens: set[str]) -> tuple[Ratings, bool]:
    """Ratings in which some people have no ratings and no name; everybody keeps their code."""
    domains = dict(data.domains)
    for name, d in data.domains.items():
        gone = [code for code, user in enumerate(d.users.ids) if store.token(str(user)) in tokens]
        if gone:
            domains[name] = _anonymous(d, gone)
    changed = any(domains[name] is not d for name, d in data.domains.items())
    return (replace(data, domains=domains), True) if changed else (data, False)


def _anonymous(d: Domain, codes: list[int]) -> Domain:
    ids: list[Any] = list(d.users.ids)
    numbered, free = d.users.kind == "int", min([0, *(i for i in ids if isinstance(i, int))]) - 1
    for n, code in enumerate(codes):
        ids[code] = free - n if numbered else f"erased {free - n}"      # below all others, so it is nobody's
    return replace(d.take(~np.isin(d.user, codes)), users=Vocabulary(ids))


def _of_everybody(model: Mixture, d: Domain) -> dict[str, NDArray[Any]]:
    """codes (U, n), score, rating, and the distribution of each item, (U, n, R)"""
    ids, n = list(d.users.ids), min(LONG, d.n_items)
    codes = np.full((len(ids), n), -1, np.int32)
    score, rating = np.zeros((len(ids), n), np.float32), np.zeros((len(ids), n), np.float32)
    levels = np.zeros((len(ids), n, len(d.scale)), np.float16)
    for start in range(0, len(ids), TOGETHER):
        some = slice(start, start + TOGETHER)
        found = model.recommend(d.name, ids[some], n)
        codes[some], score[some] = found.codes, np.where(found.codes >= 0, found.scores, 0)
        at, place = np.nonzero(found.codes >= 0)
        if len(at):
            people = [ids[start + int(row)] for row in at]
            p = model.predict_proba(d.name, people, d.items.decode(found.codes[at, place]))
            levels[start + at, place] = p
            rating[start + at, place] = p @ np.array(d.scale.values)
    return {"codes": codes, "score": score, "rating": rating, "levels": levels}


def _seal(path: Path) -> str:
    """What tells one model file from another: the checksum in its header."""
    from safetensors import safe_open

    if not path.is_file():
        raise ModelFileError(f"no model file at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            return str((file.metadata() or {})["sha256"])
    except Exception as error:
        raise ModelFileError(f"{path} is not a model file: {error}. Save the model again.") from None
