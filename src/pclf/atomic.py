"""Files that are replaced whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place, and its permissions, at the end; after an error it is
    gone instead."""
    path = path.resolve()                # through a link, to the file itself
    part = path.with_name(f".{path.name}.{token_hex(4)}")
    part.touch(exist_ok=False)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
