"""Files that are replaced whole or not at all, and only where they are ours to replace."""

import hashlib
import os
import platform
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from pclf.errors import OutputError

ABANDONED = 86_400.0     # seconds after which a half written file of another machine is nobody's any more

KINDS = {stat.S_ISDIR: "a folder", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device", stat.S_ISFIFO: "a pipe",
         stat.S_ISSOCK: "a socket"}


@contextmanager
def replacing(path: Path, ours: Callable[[Path], bool] | None = None, what: str = "") -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place, and its permissions, at the end; after an error it is
    gone instead. What a process left behind that was killed is swept. `ours`, `what`: see `check_target`."""
    path = check_target(path, ours, what)
    _sweep(path)
    part = path.with_name(f"{_prefix(path)}{_here()}-{os.getpid()}-{token_hex(4)}")
    try:
        part.touch(exist_ok=False)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None
    try:
        mode = stat.S_IMODE((path if path.exists() else part).stat().st_mode)     # of a new file, what the umask says
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(mode)                                                          # whatever the writer made of it
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_target(path: Path, ours: Callable[[Path], bool] | None = None, what: str = "") -> Path:
    """The file that would be written, through links, if it may be: a regular one, or one that is not there yet.

    ours: whether an old file is of the kind that would be written, named by `what`; others are refused, empty ones are
    not. None: any regular file may be replaced.
    """
    target = Path(os.path.realpath(path))
    try:
        found = target.lstat()
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None
    folder = next(place for place in target.parents if place.exists())
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{path} cannot be written: nothing may be written into {folder}.")
    if found is None:
        return target
    if stat.S_ISLNK(found.st_mode):
        raise OutputError(f"{path} is a link that leads to itself; give the name of a file to write.")
    if not stat.S_ISREG(found.st_mode):
        kind = next((word for test, word in KINDS.items() if test(found.st_mode)), "no regular file")
        raise OutputError(f"{path} is {kind}; give the name of a file to write.")
    if ours is not None and found.st_size and not ours(target):
        raise OutputError(f"{path} is there already and is not {what}: it is not replaced. Give another name, or say "
                          f"--force (force=True) if it may go.")
    return target


def _sweep(path: Path) -> None:
    """Remove what earlier writers of the same file left behind when they were killed."""
    here, start = _here(), _prefix(path)
    with suppress(OSError):
        for old in list(path.parent.iterdir()):
            if not old.name.startswith(start):
                continue
            place, _, rest = old.name.removeprefix(start).partition("-")
            pid = rest.partition("-")[0]
            if not pid.isdigit():
                continue
            gone = not _runs(int(pid)) if place == here else time.time() - old.stat().st_mtime > ABANDONED
            if gone:
                old.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    name = os.fsencode(path.name)
    short = path.name if len(name) <= 200 else hashlib.sha256(name).hexdigest()      # systems allow 255
    return f".{short}.part-"


def _here() -> str:
    """This machine or container, in a few letters: a process elsewhere may have the number of one here."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _runs(pid: int) -> bool:
    if os.name == "nt":       # where a signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
