"""Executors: blocks of users on a Spark cluster, by its DataFrame API alone.

A task is asked for a block by its number, and answers with arrays that add up. It keeps nothing: blocks, parameters and
the rows of users are files in `work`, which all executors see. So a task that Spark runs again, because its executor
died, reads the same files and answers the same, and no data of ours go through the JVM but these arrays.
"""

import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import __version__, errors, storage
from pclf.blocks.catalogue import Catalogue
from pclf.blocks.engine import Arrays, BlockEngine
from pclf.blocks.groups import Finish, Given
from pclf.blocks.intake import Advance, Sized
from pclf.blocks.work import Room, as_bytes
from pclf.clusters.state import Params, SpreadCounts, SpreadUsers
from pclf.data.frames import RatingFrames, frames_of
from pclf.data.ratings import Ratings
from pclf.engines.cpu import CpuEngine
from pclf.errors import EngineError, OutputError, PclfError
from pclf.models.disk import no_seals, write_block
from pclf.problem import Layout
from pclf.spark import intake

ROWS = "chunk long, block long, data binary"
CHUNK = 1 << 16          # numbers that travel together
FEW = 64 << 20           # bytes of answers that the driver adds up by itself
RATINGS = 4_000_000      # of a block, at least
OF_ITEM = 10             # ratings of a block for each item: what a block answers with is as large as the items

Task = Callable[[int], Arrays]


class Executors:
    """Those of a session. n_threads: of each task, which has a core of its own unless spark.task.cpus says more."""

    name = "spark"

    def __init__(self, session: Any, n_threads: int | None = None) -> None:
        self.session, self.n_threads = session, n_threads or 1

    def described(self, data: Any) -> RatingFrames:
        return frames_of(self.session, data)

    def sized(self, memory: str | float | None, room: Room) -> Sized:
        """By the data alone, so that a fit is the same on any cluster; by the memory of a task where that is given."""
        def by_data(ratings: Ratings, n_ratings: int, n_users: int) -> int:
            n_items = sum(d.n_items for d in ratings.domains.values())
            least = -(-n_ratings // max(RATINGS, OF_ITEM * n_items))
            return least if memory is None else max(least, room.blocks(as_bytes(memory))(
                ratings, n_ratings, n_users))

        return by_data

    def take_in(self, frames: RatingFrames, folder: Path, n_parts: int, sized: Sized, advance: Advance) -> Catalogue:
        return intake.take_in(frames, folder, n_parts, sized, advance, partial(added, self.session))

    def engine(self, catalogue: Catalogue, blocks: Path, layout: Layout, rows: Path, cpu: CpuEngine) -> "SparkEngine":
        return SparkEngine(self.session, Place.of(blocks, layout, rows, str(cpu.dtype), self.n_threads), catalogue, cpu)

    def seals(self, folder: Path, rules: Sequence[SpreadUsers], engines: Sequence["SparkEngine"],
              finishes: Sequence[Finish], advance: Advance) -> NDArray[np.uint8]:
        catalogue = engines[0].catalogue
        with ExitStack() as stack:
            there = [(own._replace(given=Given(0, {})), stack.enter_context(in_file(own.rows, own.given)))
                     for own in finishes]
            task = partial(_write, folder, rules, [engine.there for engine in engines], there)
            seals, = added(self.session, task, catalogue.n_blocks, [no_seals(catalogue)])
        advance(catalogue.n_blocks)
        return seals


@dataclass(frozen=True)
class Place:
    """What an executor must know to work on the blocks of a fit."""

    blocks: Path
    layout: Layout
    rows: Path
    dtype: str
    n_threads: int
    written: int             # when: other blocks may lie there later

    @classmethod
    def of(cls, blocks: Path, layout: Layout, rows: Path, dtype: str, n_threads: int) -> "Place":
        return cls(blocks, layout, rows, dtype, n_threads, _catalogue_of(blocks).stat().st_mtime_ns)


class SparkEngine(BlockEngine):
    """The same, asked on executors."""

    name = "spark"

    def __init__(self, session: Any, there: Place, catalogue: Catalogue, cpu: CpuEngine) -> None:
        super().__init__(catalogue, there.blocks, there.layout, there.rows, cpu)
        self.session, self.there = session, there

    def asked(self, question: str, like: Arrays, *arguments: Any) -> Iterable[Arrays]:
        with ExitStack() as stack:
            told = [stack.enter_context(in_file(self.rows, x)) if isinstance(x, (Params, Given)) else x
                    for x in arguments]
            return [added(self.session, partial(_answer, self.there, question, told), self.catalogue.n_blocks, like)]


@dataclass(frozen=True)
class InFile:
    """Parameters in a file: they may be larger than what Spark sends with a task."""

    path: Path
    read: Callable[[Path], Any]


@contextmanager
def in_file(folder: Path, what: Params | Given) -> Iterator[InFile]:
    """A file in a folder that executors see, as long as they are asked."""
    read: Callable[[Path], Any]
    if isinstance(what, Given):
        arrays, told, read = what.arrays, [what.at], _given
    else:
        users, read = what.users, _params
        arrays, told = {"sums": users.counts.sums, "mean": users.mean}, [int(users.counts.at), users.strength]
        for name, several in (("items", what.items), ("tables", what.tables)):
            arrays |= {f"{name}.{i}": x for i, x in enumerate(several)}
    path = folder / f"params.{token_hex(8)}"
    storage.write_atomically(path, {name: np.ascontiguousarray(x) for name, x in arrays.items()},
                             {"told": json.dumps(told)}, force=True)
    try:
        yield InFile(path, read)
    finally:
        path.unlink(missing_ok=True)


def added(session: Any, task: Task, n_blocks: int, like: Arrays) -> list[NDArray[Any]]:
    """The sum of task(b) over all blocks, in their order, whoever was done first. like: arrays of the same shapes."""
    version = __version__
    chunks = [(j, start, min(start + CHUNK, array.size)) for j, array in enumerate(like)
              for start in range(0, array.size, CHUNK)]
    dtypes = [array.dtype.str for array in like]

    def answers(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for b in batch.column(0).to_pylist():
                for row in _rows_of(task, b, chunks, dtypes, version):
                    yield pa.RecordBatch.from_arrays([[x] for x in row], schema=_schema())

    def sums(table: Any) -> Any:
        import pyarrow as pa

        table, chunk = table.sort_by("block"), table["chunk"][0].as_py()
        if chunk < 0:
            return table.slice(0, 1)
        dtype = dtypes[chunks[chunk][0]]
        total = np.frombuffer(table["data"][0].as_py(), dtype).copy()
        for data in table["data"][1:]:
            total += np.frombuffer(data.as_py(), dtype)
        return pa.table({"chunk": [chunk], "block": [0], "data": [total.tobytes()]}, schema=_schema())

    rows = session.range(0, n_blocks, 1, n_blocks).mapInArrow(answers, ROWS)
    if n_blocks * sum(array.nbytes for array in like) > FEW:
        rows = rows.groupBy("chunk").applyInArrow(sums, ROWS)
    with plainly():
        found = rows.toArrow()
    total = [np.zeros(array.shape, array.dtype) for array in like]       # in C order: below, they are seen as one row
    chunk_of = found["chunk"].to_numpy()
    for row in np.lexsort((found["block"].to_numpy(), chunk_of)).tolist():
        data = found["data"][row].as_py()
        if chunk_of[row] < 0:
            raise_told(data)
        j, start, stop = chunks[chunk_of[row]]
        total[j].reshape(-1)[start:stop] += np.frombuffer(data, dtypes[j])
    return total


def as_told(error: Exception) -> bytes:
    """An error as an executor reports it: Spark would wrap it in pages of its own."""
    if isinstance(error, OSError) and not isinstance(error, PclfError):
        error = OutputError(f"an executor on {socket.gethostname()} cannot use {error.filename or 'its disk'}: "
                            f"{error.strerror or error}. work must be a folder that the driver and all executors see, "
                            f"with room in it: on one machine any, else one that is mounted on all of them.")
    return json.dumps([type(error).__name__, str(error)]).encode()


def raise_told(told: bytes) -> None:
    name, text = json.loads(told)
    raise getattr(errors, name)(text)


@contextmanager
def plainly() -> Iterator[None]:
    """What Spark says of executors that are not set up, in a sentence."""
    try:
        yield
    except Exception as error:
        missing = re.search(r"No module named '([^']+)'", str(error))
        if missing is None:
            raise
        raise EngineError(f"executors must have pclf {__version__}, and what it needs; they have no module "
                          f"{missing[1]!r}. Install pclf where they run, or send an environment along with "
                          f"spark.archives.") from None


def _rows_of(task: Task, b: int, chunks: Sequence[tuple[int, int, int]], dtypes: Sequence[str],
             version: str) -> Iterator[tuple[int, int, bytes]]:
    """What a block answers, or what was wrong there, as rows."""
    try:
        if version != __version__:
            raise EngineError(f"executors must have the pclf of the driver, {version}; the one on "
                              f"{socket.gethostname()} has {__version__}. Install the same version on both.")
        answer = [np.ascontiguousarray(x, dtype).reshape(-1) for x, dtype in zip(task(b), dtypes, strict=False)]
    except (PclfError, OSError) as error:
        yield -1, b, as_told(error)
        return
    for chunk, (j, start, stop) in enumerate(chunks):
        if j < len(answer):
            yield chunk, b, answer[j][start:stop].tobytes()


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("chunk", pa.int64()), ("block", pa.int64()), ("data", pa.binary())])


def _answer(place: Place, question: str, arguments: Sequence[Any], b: int) -> Arrays:
    told = (x.read(x.path) if isinstance(x, InFile) else x for x in arguments)
    answer: Arrays = getattr(_engine(place), question)(b, *told)
    return answer


def _write(folder: Path, rules: Sequence[SpreadUsers], places: Sequence[Place],
           finishes: Sequence[tuple[Finish, InFile]], b: int) -> Arrays:
    there = [own._replace(given=_given(file.path)) for own, file in finishes]
    return [write_block(folder, b, rules, [_engine(place) for place in places], there)]


@lru_cache(maxsize=4)        # as an executor has several blocks, one after another
def _engine(place: Place) -> BlockEngine:
    catalogue, _ = Catalogue.load(_catalogue_of(place.blocks))
    return BlockEngine(catalogue, place.blocks, place.layout, place.rows, CpuEngine(place.dtype, place.n_threads))


@lru_cache(maxsize=2)
def _given(path: Path) -> Given:
    arrays, metadata = storage.read_arrays(path)
    return Given(json.loads(metadata["told"])[0], arrays)


@lru_cache(maxsize=1)
def _params(path: Path) -> Params:
    arrays, metadata = storage.read_arrays(path)
    at, strength = json.loads(metadata["told"])
    items, tables = (tuple(arrays[f"{kind}.{i}"] for i in range(sum(name.startswith(f"{kind}.") for name in arrays)))
                     for kind in ("items", "tables"))
    return Params(SpreadUsers(SpreadCounts(arrays["sums"], at), strength, arrays["mean"]), items, tables)


def _catalogue_of(blocks: Path) -> Path:
    return blocks.parent / "catalogue.safetensors"
