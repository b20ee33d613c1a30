"""Spark: fits of ratings in a data lake, and lists and predictions by the cluster.

    model = pclf.PCLF.paper().fit({"films": films, "books": books}, engine="spark", work="/mnt/shared/night")
    pclf.spark.recommend(model, "books").write.parquet("lists")
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pclf import models
from pclf.blocks.catalogue import part_of
from pclf.data.columns import find_columns
from pclf.data.frames import RatingFrames, check_work, is_frame
from pclf.data.vocabulary import as_written, hashes
from pclf.errors import ArgumentError, DataError, EngineError
from pclf.models import disk

if TYPE_CHECKING:
    from pclf.models.mixture import Mixture

__all__ = ["RatingFrames", "predict", "recommend"]

KINDS = {"int": "long", "str": "string"}
IDS = {"string": "string", **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "long")}


def fit(model: "Mixture", data: Any, *, work: Any, n_threads: int | None, dtype: str, **options: Any) -> None:
    """`disk.fit` by executors of the frames' session, or of the active one."""
    from pclf.spark.cluster import Executors

    disk.fit(model, data, work=check_work(work), n_threads=None, dtype=dtype, **options,
             workers=Executors(_session(data), n_threads))


def begin(master: str | None = None) -> Any:
    """A session, for a program that has none: the one of spark-submit, or of its own with that master.

    Its executors run the Python of this program, unless PYSPARK_PYTHON names another.
    """
    builder = _sessions().builder.appName("pclf")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (builder if master is None else builder.master(master)).getOrCreate()


def recommend(model: Any, domain: str, users: Any = None, n: int = 10, **options: Any) -> Any:
    """Lists as a Spark frame: user_id, item_id, title, score, rank; made by executors, a part of the users at a time.

    model: one whose users are in a folder that executors see. users: None for all, a list of ids, or a Spark frame with
    a column of them. options: those of `recommend` of the model, such as min_ratings.
    """
    folder, catalogue = _folder(model), model.users_.people.catalogue
    home = options.get("user_domain") or domain
    schema = (f"user_id {_user_kind(model, home)}, item_id {KINDS[model._domain(domain).items.kind]}, title string, "
              f"score double, rank int")
    columns = ["user_id", "item_id", "title", "score", "rank"]
    if users is None:
        session = _session(None)

        def of_parts(batches: Iterable[Any]) -> Iterator[Any]:
            for part in (part for batch in batches for part in batch.column(0).to_pylist()):
                own = _part(folder, part)
                if len(own.data_[home].users):
                    found = own.recommend(domain, None, n, **options).to_arrow()
                    yield from _cast(found.select(columns), schema).to_batches()

        return session.range(0, catalogue.n_parts, 1, catalogue.n_parts).mapInArrow(of_parts, schema)

    def of_users(table: Any) -> Any:
        ids = table["user_id"].to_pylist()
        found = _part(folder, table["part"][0].as_py()).recommend(domain, ids, n, **options).to_arrow()
        return _cast(found.select(columns), schema)

    wanted = _with_parts(_as_frame(users, ["user_col"]), model, ["user_col"])
    return wanted.dropDuplicates(["user_id"]).groupBy("part").applyInArrow(of_users, schema)


def predict(model: Any, domain: str, pairs: Any, **options: Any) -> Any:
    """Ratings that pairs of a Spark frame are expected to have, as a frame: user_id, item_id, rating.

    pairs: a Spark frame, or another, with columns of users and items under their usual names. options: those of
    `predict` of the model, such as rule="median" or unknown="skip".
    """
    folder = _folder(model)

    def of_pairs(table: Any) -> Any:
        users, items = table["user_id"].to_pylist(), table["item_id"].to_pylist()
        found = _part(folder, table["part"][0].as_py()).predict(domain, users, items, **options)
        rated = table.select(["user_id", "item_id"])
        return _cast(rated.append_column("rating", [np.asarray(found, np.float64)]), schema)

    wanted = _with_parts(_as_frame(pairs, ["user_col", "item_col"]), model, ["user_col", "item_col"])
    kinds = dict(wanted.dtypes)
    schema = f"user_id {kinds['user_id']}, item_id {kinds['item_id']}, rating double"
    return wanted.groupBy("part").applyInArrow(of_pairs, schema)


def _folder(model: Any) -> Path:
    if model.users_ is None:
        raise ArgumentError("Spark reads the users of a model from its folder, and those of this one are in memory. "
                            "Use model.recommend and model.predict, or fit with engine='spark' or 'disk'.")
    folder: Path = model.users_.people.folder
    return folder.absolute()


def _user_kind(model: Any, domain: str) -> str:
    catalogue = model.users_.people.catalogue
    return KINDS[catalogue.id_kinds[list(catalogue.ratings.domains).index(model._domain(domain).name)]]


def _with_parts(frame: Any, model: Any, roles: Sequence[str]) -> Any:
    """Ids of users and items under these names, and the part that each user is in."""
    from pyspark.sql import functions

    names = [role.replace("_col", "_id") for role in roles]
    found = find_columns(frame.columns, dict.fromkeys(roles), "the frame")
    kinds = dict(frame.dtypes)
    for column in found:
        if kinds[column] not in IDS:
            raise DataError(f"the frame: column {column!r} must have whole numbers or text; got {kinds[column]}.")
    chosen = frame.select([functions.col(f"`{column}`").cast(IDS[kinds[column]]).alias(name)
                           for column, name in zip(found, names, strict=True)])
    n_parts = model.users_.people.catalogue.n_parts

    def placed(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            ids = pa.array(list(map(as_written, batch.column("user_id").to_pylist())), pa.large_string())
            parts = part_of(hashes(ids), n_parts).astype(np.int32)
            yield pa.RecordBatch.from_arrays([pa.array(parts), *batch.columns], ["part", *names])

    schema = ", ".join(["part int", *(f"{name} {kind}" for name, kind in chosen.dtypes)])
    return chosen.mapInArrow(placed, schema)


def _as_frame(data: Any, roles: Sequence[str]) -> Any:
    """A Spark frame of what is one, a list of users, or another frame."""
    if is_frame(data):
        return data
    import pyarrow as pa

    from pclf.data.columns import frame_columns

    if len(roles) == 1 and isinstance(data, (list, tuple, np.ndarray)):
        columns = [pa.array(data)]
    else:
        columns = frame_columns(data, dict.fromkeys(roles), "the frame")
    return _session(None).createDataFrame(pa.table(columns, names=[role.replace("_col", "_id") for role in roles]))


def _cast(table: Any, schema: str) -> Any:
    import pyarrow as pa

    from pclf.spark.intake import arrow_schema

    wanted = arrow_schema(schema)
    return pa.table([column.cast(field.type) for column, field in zip(table.columns, wanted, strict=True)],
                    schema=wanted)


def _part(folder: Path, part: int) -> Any:
    whole = _opened(folder, (folder / disk.SHARED).stat().st_mtime_ns)
    return whole.users_.model(whole, part)


@lru_cache(maxsize=2)        # on an executor, which has several parts, one after another
def _opened(folder: Path, written: int) -> Any:
    return models.load(folder)


def _session(data: Any) -> Any:
    """That of the frames; else the active one."""
    frames = list(data.paths.values()) if isinstance(data, RatingFrames) else list(
        data.values()) if isinstance(data, dict) else []
    found = next((frame.sparkSession for frame in frames if is_frame(frame)), None)
    if found is not None:
        return found
    active = _sessions().getActiveSession()
    if active is None:
        raise EngineError("there must be an active Spark session; there is none. Make one with "
                          "SparkSession.builder.getOrCreate().")
    return active


def _sessions() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError("engine 'spark' needs pyspark: pip install 'pclf[spark]'.") from None
    return SparkSession
