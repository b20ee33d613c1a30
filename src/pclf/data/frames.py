"""Frames: ratings in Spark, described as those in files are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from pclf.data import files
from pclf.data.columns import find_columns
from pclf.data.parts import ROLES, RatingFiles
from pclf.data.ratings import Ratings
from pclf.errors import ArgumentError, DataError

PRIME = 2**31 - 1


@dataclass(frozen=True)
class RatingFrames(RatingFiles):
    """Ratings in Spark frames, {domain: frame}. The other fields are those of `RatingFiles`.

    as_text: domains whose ids came from text, and are numbers where all of them are written so.
    """

    paths: Mapping[str, Any]
    as_text: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, frame in self.paths.items():
            if not is_frame(frame):
                raise DataError(f"frames must be Spark frames, {{domain: frame}}; got {type(frame).__name__} for "
                                f"{name!r}. Use session.createDataFrame for what is in memory.")
        if self.encoding != "utf-8":
            raise ArgumentError(f"frames have no encoding; got {self.encoding!r}. Leave it out.")
        replace(self.options, **{role: getattr(self, role) for role in ROLES}, scale=self.scale, titles=self.titles,
                attributes=self.attributes)
        object.__setattr__(self, "events", self.options.events)

    @property
    def options(self) -> RatingFiles:
        """What blocks are built by, without the frames."""
        return RatingFiles({name: name for name in self.paths}, levels=self.levels, shared_users=self.shared_users,
                           shared_items=self.shared_items, duplicates=self.duplicates, events=self.events)

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """Of each frame users, items and ratings, and strengths of events, under these names. See `parts.whole`."""
        from pyspark.sql import functions

        out = {}
        for name, frame in self.paths.items():
            roles = self.columns(name)
            found = [functions.col(f"`{column.replace('`', '``')}`")
                     for column in find_columns(frame.columns, roles, f"the frame of {name!r}")]
            if name in self.events:
                found = [*found[:2], functions.lit(1.0), *(found[2:] or [functions.lit(1.0)])]
            out[name] = frame.select([column.alias(role) for column, role in
                                      zip(found, ("user", "item", "rating", "weight"), strict=False)])
        return out

    def read(self) -> Ratings:
        raise DataError("Spark frames are fitted by engine 'spark' or 'auto'. Collect them first, with toPandas(), for "
                        "other engines.")

    @property
    def _n_rows(self) -> dict[str, int]:
        return {name: int(numbers[0]) for name, numbers in zip(self.paths, self._summed, strict=True)}

    def fingerprint(self) -> str:
        """A hash of all ratings, in whatever order they come, and of all options."""
        return sha256(repr([self.told(), list(self.paths), self._summed]).encode()).hexdigest()

    @cached_property
    def _summed(self) -> list[tuple[Any, ...]]:
        """How many rows each frame has, and two sums over hashes of them."""
        from pyspark.sql import functions as f

        return [tuple(frame.select(f.xxhash64(*frame.columns).alias("hash")).agg(
            f.count("*"), f.bit_xor("hash"), f.sum(f.pmod("hash", f.lit(PRIME)))).first())
            for frame in self.chosen.values()]


def is_frame(data: Any) -> bool:
    """A Spark frame, of a session here or of one far away (Spark Connect)."""
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "mapInArrow")


def has_frames(data: Any) -> bool:
    """Whether ratings come in Spark frames."""
    return isinstance(data, RatingFrames) or is_frame(data) or (
        isinstance(data, Mapping) and any(map(is_frame, data.values())))


def frames_of(session: Any, data: Any) -> RatingFrames:
    """The frames that a caller means: their own, or those of files, which Spark reads."""
    if isinstance(data, RatingFrames):
        return data
    if isinstance(data, Mapping) and data and all(map(is_frame, data.values())):
        return RatingFrames(data)
    if isinstance(data, Mapping) and data and all(isinstance(path, (str, Path)) for path in data.values()):
        data = RatingFiles(data)
    if not isinstance(data, RatingFiles):
        raise DataError(f"engine 'spark' reads frames and files: data must be {{domain: Spark frame}}, {{domain: file, "
                        f"folder or pattern}}, RatingFrames or RatingFiles; got {type(data).__name__}.")
    read, as_text = {}, []
    for name, path in data.paths.items():
        if "://" in str(path):
            read[name] = session.read.parquet(str(path))
            continue
        parts = [str(part.absolute()) for part in data.parts(name) if part.stat().st_size]
        if not parts:
            raise DataError(f"domain {name!r} must have at least one row of data; got none. Leave the domain out.")
        if files.is_text(parts[0]):
            form = files.form_of(Path(parts[0]), data.columns(name), data.encoding)
            if form.blank:
                raise DataError(f"{parts[0]}: the first line must not be empty with engine 'spark'. Remove it.")
            frame = session.read.csv(parts, sep=form.separator, header=form.header, encoding=data.encoding, escape='"',
                                     mode="FAILFAST")
            read[name] = frame if form.header else frame.toDF(*form.fields)
            as_text.append(name)
        else:
            read[name] = session.read.parquet(*parts)
    options = {name: value for name, value in vars(data).items() if name not in ("paths", "encoding")}
    return RatingFrames(read, **options, as_text=tuple(as_text))


def check_work(work: Any) -> Path | None:
    """A folder of the file system, wherever an executor stands."""
    if work is not None and "://" in str(work):
        raise ArgumentError(f"work must be a folder that the driver and all executors see as a path; got "
                            f"{str(work)!r}. Mount the bucket, and give the path where it is.")
    return None if work is None else Path(work).expanduser().absolute()
