"""Intake: from Spark frames to blocks of users, by executors, in three jobs.

The first checks every row, and finds the items and the different ratings. The second gives them codes and sends each
rating to the part that its user belongs to; there the ratings lie by user and item, wherever they came from. The third
builds blocks of these parts, as `pclf.blocks.intake` does of files.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf import storage
from pclf.blocks.catalogue import Catalogue, Numbers, part_of
from pclf.blocks.intake import (
    RECORD,
    Advance,
    Builder,
    Found,
    Sized,
    Spools,
    block_ends,
    catalogue_of,
    check_parts,
    items_of,
    keys_of,
    lower_of,
    rated_twice,
)
from pclf.blocks.strengths import HALVES
from pclf.data.columns import Coded, as_column, coded, numbers
from pclf.data.parts import RatingFiles
from pclf.data.ratings import Ratings
from pclf.data.times import strengths
from pclf.errors import EngineError, OutputError, PclfError

ITEMS = "items.safetensors"
FINDINGS = "z int, what string, id string, value double, n long"
RECORDS = "part int, z int, key long, id string, item int, rating int, weight float, origin int, row long"
REPORT = "part int, n long, error binary"

Added = Callable[..., list[NDArray[Any]]]


def take_in(frames: Any, folder: Path, n_parts: int, sized: Sized, advance: Advance, added: Added) -> Catalogue:
    """Blocks of some frames in a folder that all executors see. added: `cluster.added` in a session."""
    check_parts(n_parts)
    spools = Spools(folder / "spool", n_parts)
    spools.folder.mkdir(parents=True)
    found = _looked_at(frames)
    n_ratings = int(sum(f.item_counts.sum() for f in found))
    advance(n_ratings / 2, "rows are checked")
    ratings = items_of(frames, found)
    storage.save(folder / ITEMS, "Catalogue", {}, ratings, {}, {})
    for z, (name, domain) in enumerate(ratings.domains.items()):
        _save_keys(folder, z, name, domain.items.keys())
    _send(frames, folder, n_parts, found, n_ratings)
    advance(n_ratings / 2, "rows are sorted")
    ends = block_ends(frames, spools, ratings, found, sized)
    light = [replace(f, items={}, item_counts=np.zeros(0, np.int64)) for f in found]
    builder = Builder(frames.options, spools, ratings, found)
    total = added(partial(_build, frames.options, folder, n_parts, light, ends), len(ends), builder.nothing(ends))
    advance(n_ratings, "blocks")
    shutil.rmtree(folder / "spool")
    for path in folder.glob("items.*"):
        path.unlink()
    for path in folder.glob(".*"):                   # of attempts that came to nothing
        shutil.rmtree(path)
    return catalogue_of(ratings, builder.kinds, ends, total, lambda middles: added(
        partial(lower_of, folder, middles), len(ends), [np.zeros((2, HALVES), np.int64)] * len(middles)))


def _looked_at(frames: Any) -> list[Found]:
    """The first job."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions

    from pclf.spark.cluster import plainly, raise_told

    told, found = None, []
    for z, (name, frame) in enumerate(frames.chosen.items()):
        found.append(Found(name, frames.scale_of(name), name in frames.as_text))
        own = frame.mapInArrow(_look(z, replace(found[z])), FINDINGS).groupBy("z", "what", "id", "value").agg(
            functions.sum("n").alias("n"))
        told = own if told is None else told.unionAll(own)
    with plainly():
        rows = told.toArrow().sort_by([("value", "ascending"), ("id", "ascending")])    # type: ignore[union-attr]

    def those(z: int, what: str) -> Any:
        return rows.filter(pc.and_(pc.equal(rows["z"], z), pc.equal(rows["what"], what)))

    for z, own in enumerate(found):
        for error in those(z, "error")["id"].to_pylist():             # the partition with the lowest number comes first
            raise_told(error.encode())
        own.kinds = {role: (kind, "") for role in ("user", "item") for kind in those(z, role)["id"].to_pylist()}
        own.whole_numbers = not len(those(z, "text"))
        items = those(z, "items")
        if own.kinds.get("item", ("",))[0] == "whole numbers":
            items = items.set_column(2, "id", items["id"].cast(pa.int64())).sort_by("id")
        own.items = {id: code for code, id in enumerate(items["id"].to_pylist())}
        own.item_counts = items["n"].to_numpy()
        own.ratings = {value: code for code, value in enumerate(those(z, "ratings")["value"].to_pylist())}
        own.check_any()
    return found


def _look(z: int, found: Found) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a partition has, in rows: items and ratings with how many there are, kinds of ids, and what is wrong."""
    def look(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from pclf.spark.cluster import as_told

        own = replace(found, items={}, ratings={}, item_counts=np.zeros(0, np.int64), kinds={})
        partition = _partition()
        rows: list[tuple[str, str | None, float | None, int]] = []
        try:
            for columns in _coded(batches):
                own.take(columns, f"{own.name!r}, partition {partition}")
        except PclfError as error:
            rows = [("error", as_told(error).decode(), float(partition), 1)]
        rows += [(role, kind, None, 1) for role, (kind, _) in own.kinds.items()]
        rows += [("items", str(id), None, int(n)) for id, n in zip(own.items, own.item_counts, strict=False)]
        rows += [("ratings", None, value, 1) for value in own.ratings]
        rows += [] if own.whole_numbers else [("text", None, None, 1)]
        yield pa.RecordBatch.from_pylist([{"z": z, "what": what, "id": id, "value": value, "n": n}
                                          for what, id, value, n in rows], schema=arrow_schema(FINDINGS))
    return look


def _send(frames: Any, folder: Path, n_parts: int, found: Sequence[Found], n_ratings: int) -> None:
    """The second job."""
    from pclf.spark.cluster import plainly, raise_told

    sent = None
    for z, (frame, own) in enumerate(zip(frames.chosen.values(), found, strict=True)):
        records = frame.mapInArrow(_code(z, own.name, list(own.ratings), n_parts, folder), RECORDS)
        sent = records if sent is None else sent.unionAll(records)
    whole = [f.kinds["user"][0] == "whole numbers" for f in found]
    spool = _spool(folder, n_parts, whole, list(map(frames.policy, frames.paths)))
    with plainly():
        report = sent.groupBy("part").applyInArrow(                                    # type: ignore[union-attr]
            spool, REPORT).toArrow().sort_by("part").to_pylist()
    for row in report:
        if row["error"] is not None:
            raise_told(row["error"])
    written = sum(row["n"] for row in report)
    if written != n_ratings:
        raise _changing(", ".join(frames.paths), f"{n_ratings:,} and then {written:,}")
    arrived = sum(path.stat().st_size for path in (folder / "spool").glob("*.ratings")) // RECORD.itemsize
    if arrived != written:
        raise OutputError(f"{folder} must be a folder that the driver and all executors see; executors wrote "
                          f"{written:,} ratings to it, and {arrived:,} are there. Give work on a mounted disk.")


def _code(z: int, name: str, ratings: Sequence[float], n_parts: int,
          folder: Path) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Ratings as records: in codes, and with the part they are to go to."""
    def code(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        partition, values = _partition(), np.array(ratings)
        keys_of_items, item_codes = _load_keys(folder, z)
        for users, items, rated, *weights in _coded(batches):
            keys = keys_of(users.distinct)
            own = keys_of(items.distinct)
            at = np.minimum(np.searchsorted(keys_of_items, own), len(keys_of_items) - 1)
            of_rating = numbers(rated, name)
            value = np.minimum(np.searchsorted(values, of_rating), len(values) - 1)
            if (keys_of_items[at] != own).any() or (values[value] != of_rating).any():
                raise _changing(name, "others the second time")
            texts = pa.array(users.distinct).cast(pa.string()) if isinstance(
                users.distinct, np.ndarray) else users.distinct.cast(pa.string())
            key, n = keys[users.codes], len(users)
            weight = pa.array(strengths(weights[0], name), pa.float32()) if weights else pa.nulls(n, pa.float32())
            yield pa.RecordBatch.from_arrays([
                pa.array(part_of(key, n_parts).astype(np.int32)), pa.array(np.full(n, z, np.int32)),
                pa.array(key.view(np.int64)), texts.take(pa.array(users.codes)),
                pa.array(item_codes[at][items.codes].astype(np.int32)), pa.array(value[rated.codes].astype(np.int32)),
                weight, pa.array(np.full(n, partition, np.int32)), pa.array(users.rows)], schema=arrow_schema(RECORDS))
    return code


def _spool(folder: Path, n_parts: int, whole: Sequence[bool], policies: Sequence[str]) -> Callable[[Any], Any]:
    """A part as files, its ratings by user and by item, whatever order they came in."""
    def spool(table: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        from pclf.spark.cluster import as_told

        part, n, told = table["part"][0].as_py(), 0, None
        try:
            if not (folder / "spool").is_dir():
                raise OutputError(f"{folder} must be a folder that the driver and all executors see; an executor does "
                                  f"not see it. Give work on a mounted disk.")
            with TemporaryDirectory() as local:
                spools = Spools(Path(local), n_parts)
                for z, (is_whole, policy) in enumerate(zip(whole, policies, strict=True)):
                    own = table.filter(pc.equal(table["z"], z)).combine_chunks()
                    if not len(own):
                        continue
                    key, item, rating, origin, row = (
                        own[name].to_numpy() for name in ("key", "item", "rating", "origin", "row"))
                    weight = own["weight"].to_numpy(zero_copy_only=False)
                    order = np.lexsort((row, origin, item, key))
                    again = (np.diff(key[order]) == 0) & (np.diff(item[order]) == 0)
                    if policy == "error" and again.any():
                        one = order[1:][int(again.argmax())]
                        name, domain = list(_items(folder).domains.items())[z]
                        user = own["id"][int(one)].as_py()
                        raise rated_twice(name, int(user) if is_whole else user, domain.items.decode([item[one]])[0],
                                          f" in row {row[one]:,} of partition {origin[one]}")
                    spools.add(z, key[order].view(np.uint64), item[order], rating[order],
                               None if own["weight"].null_count else weight[order])
                    ids = pc.unique(own["id"]).cast(pa.large_string())
                    spools.add_ids(z, keys_of(ids), ids.cast(pa.int64()).to_numpy() if is_whole else ids)
                n = len(table)
                for path in Path(local).iterdir():
                    _publish(path, folder / "spool" / path.name)
        except (PclfError, OSError) as error:
            told = as_told(error)
        return pa.table({"part": [part], "n": [n], "error": [told]}, schema=arrow_schema(REPORT))
    return spool


def _build(options: RatingFiles, folder: Path, n_parts: int, found: Sequence[Found], ends: Numbers,
           b: int) -> list[Numbers]:
    """The third job: a block, built on the executor's own disk and then put where all see it."""
    builder = Builder(options, Spools(folder / "spool", n_parts), _items(folder), found)
    with TemporaryDirectory() as local:
        counts = builder.block(Path(local) / "block", b, ends)
        _publish(Path(local) / "block", folder / f"{b:05d}")
    return counts


def _publish(source: Path, target: Path) -> None:
    """A file or a folder, whole or not at all. Where another attempt was first, its own is there already."""
    beside = target.with_name(f".{target.name}.{token_hex(8)}")
    if source.is_file():
        shutil.copyfile(source, beside)
        beside.replace(target)
        return
    shutil.copytree(source, beside)
    try:
        beside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(beside)


def _coded(batches: Iterable[Any]) -> Iterator[list[Coded]]:
    """Columns of a batch as codes, with their rows in the partition."""
    start = 0
    for batch in batches:
        if len(batch):
            rows = np.arange(start, start + len(batch))
            yield [replace(coded(as_column(column)), rows=rows) for column in batch.columns]
            start += len(batch)


def _changing(name: str, got: str) -> EngineError:
    return EngineError(f"the frame of {name} must give the same rows whenever it is asked; it gave {got}. Write it to "
                       f"Parquet first, and read that.")


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return -1 if context is None else int(context.partitionId())


def _save_keys(folder: Path, z: int, name: str, keys: NDArray[np.uint64]) -> None:
    """Hashes of items in order, and the codes of these items."""
    order = np.argsort(keys)
    if (np.diff(keys[order].view(np.int64)) == 0).any():
        raise EngineError(f"two items of {name!r} have the same hash of 64 bits, so they cannot be told apart. Rename "
                          f"one of them.")
    np.save(folder / f"items.{z}.keys.npy", keys[order])
    np.save(folder / f"items.{z}.codes.npy", order.astype(np.int32))


def _load_keys(folder: Path, z: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    keys, codes = (np.load(folder / f"items.{z}.{what}.npy", mmap_mode="r") for what in ("keys", "codes"))
    return keys, codes


def _items(folder: Path) -> Ratings:
    return _items_at(folder / ITEMS, (folder / ITEMS).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _items_at(path: Path, written: int) -> Ratings:
    return storage.load(path).data


def arrow_schema(schema: str) -> Any:
    """A schema of Spark as Arrow's."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "long": pa.int64(), "bigint": pa.int64(), "double": pa.float64(), "float": pa.float32(),
             "string": pa.string(), "binary": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in (column.split() for column in schema.split(", "))])
