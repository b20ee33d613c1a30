"""Where data sets are, and how they get there: downloaded, checked, unpacked and renamed into place.

Whatever goes wrong on the way, a file that was there before stays as it was.
"""

import errno
import hashlib
import http.client
import lzma
import os
import re
import stat
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from pclf.errors import DataError, DownloadError, brief, visible

CHUNK = 1 << 18
TIMEOUT = 30.0   # seconds without an answer
PATIENCE = 1800.0   # seconds for all of it: a server that drips a byte a minute always answers
MB = 1_000_000


@dataclass(frozen=True)
class Archive:
    """A zip file at a public address, its checksum ("sha256:...") and the most room it may take."""

    url: str
    checksum: str
    size: int | None = None          # bytes, where known
    max_bytes: int = 100 * MB
    max_unpacked: int = 500 * MB


def data_folders() -> list[Path]:
    """Where data sets are looked for, in this order."""
    own = os.environ.get("PCLF_DATA")
    try:
        named = [Path(own).expanduser()] if own else []
    except RuntimeError:
        raise DataError(f"PCLF_DATA must be a folder; got {brief(own)}, and there is no such user here") from None
    cache = cache_folder()
    return [*named, cache] if cache else named


def cache_folder() -> Path | None:
    """The user's cache folder for pclf, by the custom of the platform; None for a user without a home, as containers
    have them."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named) / "pclf"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "pclf"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "pclf" / "Cache"
    return home / ".cache" / "pclf"


def find(folder: str, groups: Sequence[Sequence[str]]) -> tuple[Path, ...] | None:
    """The first file there is of each group, all in one data folder; None where no folder has them all."""
    for root in data_folders():
        found = [next((root / folder / name for name in group if (root / folder / name).is_file()), None)
                 for group in groups]
        if all(found):
            return tuple(path for path in found if path)
    return None


def locate(dataset: Any, file: str | Path | Sequence[str | Path] | None, download: bool) -> tuple[Path, ...]:
    """The files of a data set, downloaded first where that is needed, allowed and possible."""
    if file is not None:
        return _chosen(dataset, [file] if isinstance(file, str | Path) else list(file))
    found = find(dataset.folder, dataset.files)
    if found is None and download and dataset.archive:
        fetch(dataset)
        found = find(dataset.folder, dataset.files)
    if found is None:
        why = "it is not to be downloaded" if dataset.archive else dataset.note
        raise DownloadError(f"the data set {dataset.name!r} is not here ({why}). {by_hand(dataset)}")
    return found


def _chosen(dataset: Any, files: list[str | Path]) -> tuple[Path, ...]:
    if len(files) != len(dataset.files):
        raise DataError(f"file must name {len(dataset.files)} file(s) for {dataset.name!r}; got {files}")
    paths = []
    for file in files:
        places = [Path(file), *(root / dataset.folder / file for root in data_folders())]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise DownloadError(f"no file {str(file)!r} here; looked at {', '.join(map(str, places))}")
        paths.append(path)
    return tuple(paths)


def by_hand(dataset: Any) -> str:
    """What somebody can do who has the files, or can get them elsewhere."""
    files = " and ".join(" or ".join(group) for group in dataset.files)
    source = dataset.url or dataset.homepage
    first, cache = f"{dataset.folder}/{dataset.files[0][0]}", cache_folder()
    place = f"{cache / dataset.folder}, or set PCLF_DATA to a folder that has {first}." if cache else \
        f"a folder as {first}, and set PCLF_DATA to that folder."
    return f"Put {files}{f' (from {source})' if source else ''} into {place}"


def fetch(dataset: Any) -> Path:
    """Download and unpack a data set into the cache; its folder changes only at the end, by renaming."""
    cache = cache_folder()
    if cache is None:
        raise DownloadError(f"the data set {dataset.name!r} cannot be kept: this user has no home folder. Let "
                            f"XDG_CACHE_HOME name a folder. {by_hand(dataset)}")
    target: Path = cache / dataset.folder
    needed = [name for group in dataset.files for name in group]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            packed = Path(scratch) / "archive.zip"
            download(dataset.archive, packed)
            limit = dataset.archive.max_unpacked
            files = unpack(packed, Path(scratch) / "files", needed, dataset.extras, limit=limit)
            target.mkdir(exist_ok=True)
            for file in reversed(files):   # the ratings come last: with them the data set is there, and whole
                file.replace(target / file.name)
    except DownloadError as error:
        raise DownloadError(f"{error}. {by_hand(dataset)}") from error.__cause__
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise DownloadError(f"{dataset.archive.url} could not be kept in {target}: {why}. Make room there, "
                            f"or let XDG_CACHE_HOME name another folder. {by_hand(dataset)}") from error
    return target


def download(archive: Archive, target: Path) -> None:
    """The archive in the file `target`, once its size and checksum are right."""
    method, _, expected = archive.checksum.partition(":")
    digest = hashlib.new(method, usedforsecurity=False)
    if not archive.url.startswith(("https://", "http://")):
        raise DownloadError(f"an address must start with https:// or http://; got {archive.url}")
    request = urllib.request.Request(archive.url, headers={"User-Agent": "pclf"})
    ends = time.monotonic() + PATIENCE
    with _answer(request, archive.url) as answer, target.open("wb") as file:
        length = answer.headers.get("Content-Length") or ""
        promised = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else 0      # else it is none: not to be trusted
        received = 0
        with _progress(archive.url, promised or archive.size) as advance:
            while chunk := _read(answer, archive.url):
                received += len(chunk)
                if time.monotonic() > ends:
                    raise DownloadError(f"{archive.url} sent {received:,} bytes in {PATIENCE:.0f} seconds: too slow")
                if (seen := max(received, promised)) > archive.max_bytes:
                    raise DownloadError(f"{archive.url} must have at most {archive.max_bytes:,} bytes; "
                                        f"got {seen:,}")
                digest.update(chunk)
                file.write(chunk)
                advance(len(chunk))
    if received < promised:
        raise DownloadError(f"{archive.url} broke off after {received:,} of {promised:,} bytes")
    if digest.hexdigest() != expected:
        raise DownloadError(f"{archive.url} must have the {method} checksum {expected}; got "
                            f"{digest.hexdigest()}: it has changed, there or on the way")


def unpack(packed: Path, target: Path, needed: Sequence[str], extras: Sequence[str] = (), *,
           limit: int) -> list[Path]:
    """The files of a zip that have these names, written flat into `target`, needed ones first.

    A zip that could do harm, or has not all that is needed, is refused whole.
    """
    target.mkdir()
    written: list[Path] = []
    try:
        with _opened(packed) as archive:
            members = archive.infolist()
            for member in members:
                _refuse_unsafe(member)
            if (total := sum(member.file_size for member in members)) > limit:
                raise DownloadError(f"the archive must unpack to at most {limit:,} bytes; got {total:,}")
            for name in (*needed, *extras):
                named = [m for m in members if PurePosixPath(m.filename).name == name and not m.is_dir()]
                if named:   # the one nearest the top: a folder of samples may have the same names
                    member = min(named, key=lambda m: m.filename.count("/"))
                    written.append(target / name)
                    with written[-1].open("wb") as file:
                        for chunk in _unpacked(archive, member, limit):
                            file.write(chunk)
                elif name in needed:
                    raise DownloadError(f"the archive must have the file {name}; "
                                        f"got {_line(', '.join(m.filename for m in members[:8])) or 'none'}")
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError,
            OverflowError, struct.error) as error:
        raise DownloadError(f"the archive is damaged or cut off ({_line(error)})") from error
    return written


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int) -> Iterator[bytes]:
    """Whatever size an archive says that a file has, no more than the limit comes out of it."""
    left = limit
    try:
        with archive.open(member) as source:
            while chunk := source.read(CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise DownloadError(f"the archive must unpack to at most {limit:,} bytes; got more")
                yield chunk
    except OSError as error:           # of its bytes, which are all here: not of the disk that they go to
        if isinstance(error, DownloadError):
            raise
        raise zipfile.BadZipFile(str(error)) from error


def _opened(packed: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(packed)
    except OSError as error:           # places before its beginning
        raise zipfile.BadZipFile(str(error)) from error


def _refuse_unsafe(member: zipfile.ZipInfo) -> None:
    name = member.filename.replace("\\", "/")
    if name.startswith("/") or ".." in name.split("/") or ":" in name.split("/")[0]:
        raise DownloadError(f"the archive must not name files outside its folder; got {member.filename!r}")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise DownloadError(f"the archive must not have links; got {member.filename!r}")


def _answer(request: urllib.request.Request, url: str) -> http.client.HTTPResponse:
    """The beginning of an answer. It is waited for aside, because headers may drip too."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(urllib.request.urlopen(request, timeout=TIMEOUT))
        except Exception as error:      # raised below, by the thread that asked
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    answer = found[0] if found else TimeoutError(f"no answer in {PATIENCE:.0f} seconds")
    if isinstance(answer, urllib.error.HTTPError):
        answer.close()
        raise DownloadError(f"{url} answered {answer.code} {_line(answer.reason)}") from answer
    if isinstance(answer, (OSError, http.client.HTTPException, ValueError)):
        reason = _line(getattr(answer, "reason", answer))
        raise DownloadError(f"{url} could not be reached ({reason}); is there a network?") from answer
    if isinstance(answer, Exception):
        raise answer
    return cast(http.client.HTTPResponse, answer)


def _read(answer: http.client.HTTPResponse, url: str) -> bytes:
    """What has come, without waiting for more: else the clock would not be looked at."""
    try:
        return answer.read1(CHUNK)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(f"{url} broke off ({_line(error)})") from error


def _line(said: object) -> str:
    """What a server said, as it may be shown."""
    return visible(" ".join(str(said)[:200].split()))


@contextmanager
def _progress(url: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for people, one line for logs."""
    if not sys.stderr.isatty():
        print(f"downloading {url}" + (f" ({total / MB:.1f} MB)" if total else ""), file=sys.stderr)
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(url.rpartition("/")[2], total=total)
        yield lambda n: bar.advance(task, n)
