"""Vocabulary: ids outside, codes inside."""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.errors import DataError, UnknownNameError, did_you_mean

FEW = 256   # below this many ids a dict is faster than building Arrow's hash table anew

Codes = NDArray[np.int32]


class Vocabulary:
    """The ids of a domain's users or items, in order of first appearance: the first id has code 0.

    Ids are any hashables. Integers and strings are kept as arrays and encoded without a Python loop.

    >>> v = Vocabulary(["Alien", "Heat"])
    >>> v.encode(["Heat", "Jaws"]).tolist(), v.decode([0])
    ([1, -1], ['Alien'])
    """

    def __init__(self, ids: Iterable[Hashable]) -> None:
        column = as_column(ids)
        codes, self._store = encode(column)
        if len(self) < len(codes):
            row = int(np.argmax(codes != np.arange(len(codes))))
            raise DataError(f"the ids of a vocabulary must differ; got {self.decode(codes[[row]])[0]!r} twice")

    @classmethod
    def _of(cls, store: Any) -> "Vocabulary":
        made = cls.__new__(cls)
        made._store = store
        return made

    @property
    def kind(self) -> str:
        """How ids are kept: "int" (int64), "str", or "object" (anything hashable)."""
        return "int" if isinstance(self._store, np.ndarray) else "object" if self._odd else "str"

    @cached_property
    def ids(self) -> tuple[Hashable, ...]:
        """All ids, by code, as Python objects."""
        return self._store if self._odd else tuple(self._store.tolist())

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, id: object) -> bool:
        return id in self._code_of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.ids == other.ids

    def __hash__(self) -> int:
        return hash((len(self), self.ids[:1]))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.decode(range(min(3, len(self))))))
        return f"Vocabulary({len(self):,} ids: {shown}{', ...' if len(self) > 3 else ''})"

    def code(self, id: Hashable, what: str = "id") -> int:
        """The code of one id. `what` is the word for it in the error: "user", "item of 'books'"."""
        try:
            return self._code_of[id]
        except KeyError:
            pass
        for other in (str(id), _number(id)):   # "7" for 7: a file read with another type
            if other is not None and other in self._code_of:
                raise UnknownNameError(f"unknown {what} {id!r} of type {type(id).__name__}: did you mean "
                                       f"{other!r} of type {type(other).__name__}?")
        raise UnknownNameError(did_you_mean(id, self.ids, what))

    def encode(self, ids: Any) -> Codes:
        """The code of each id, -1 for one that is not here.   (n,)"""
        column = as_column(ids)
        if len(column) > FEW and not self._odd and not isinstance(column, list):
            if _is_int(column.type) and self.kind == "int" or _is_str(column.type) and self.kind == "str":
                return _index_in(column, self._arrow)
        known = self._code_of
        return np.fromiter((known.get(i, -1) for i in _python(column)), np.int32, len(column))

    def decode(self, codes: ArrayLike) -> list[Any]:
        """The id of each code, as Python objects."""
        codes = np.asarray(codes, np.intp)
        if self._odd:
            return [self._store[c] for c in codes]
        chosen: list[Any] = (self._store[codes] if self.kind == "int" else self._store.take(codes)).tolist()
        return chosen

    def array(self) -> NDArray[Any]:
        """All ids as a NumPy array: int64, or objects."""
        if isinstance(self._store, np.ndarray):
            return self._store
        made = np.empty(len(self), object)
        made[:] = self.ids
        return made

    @property
    def _odd(self) -> bool:
        return isinstance(self._store, tuple)

    @property
    def _arrow(self) -> Any:
        import pyarrow as pa

        return pa.array(self._store) if isinstance(self._store, np.ndarray) else self._store

    @cached_property
    def _code_of(self) -> dict[Hashable, int]:
        return {id: code for code, id in enumerate(self.ids)}


def as_column(ids: Any) -> Any:
    """Ids as an Arrow chunked array where they are all integers or all strings, else as a list."""
    import pyarrow as pa

    if isinstance(ids, pa.ChunkedArray):
        return ids
    if isinstance(ids, pa.Array):
        return pa.chunked_array([ids])
    if not isinstance(ids, np.ndarray):
        ids = ids if isinstance(ids, Sequence) else list(ids)
    try:
        made = pa.array(ids)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        made = None
    if made is not None and len(made) and (_is_int(made.type) or _is_str(made.type)):
        return pa.chunked_array([made])
    return ids.tolist() if isinstance(ids, np.ndarray) else list(ids)


def encode(column: Any) -> tuple[Codes, Any]:
    """Codes in order of first appearance, and the distinct ids as a Vocabulary stores them."""
    if isinstance(column, list):
        seen: dict[Hashable, int] = {}
        codes = np.fromiter((seen.setdefault(i, len(seen)) for i in column), np.int32, len(column))
        return codes, tuple(seen)
    encoded = column.dictionary_encode()
    return _codes(encoded), _stored(encoded)


def _codes(encoded: Any) -> Codes:
    parts = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate(parts).astype(np.int32, copy=False) if parts else np.zeros(0, np.int32)


def _stored(encoded: Any) -> Any:
    import pyarrow as pa

    if not encoded.num_chunks:
        return ()
    distinct = encoded.chunk(encoded.num_chunks - 1).dictionary
    if _is_int(distinct.type) and distinct.type != pa.uint64():
        return distinct.cast(pa.int64()).to_numpy()
    if _is_str(distinct.type):
        return distinct.cast(pa.large_string())
    return tuple(distinct.to_pylist())


def _index_in(column: Any, value_set: Any) -> Codes:
    import pyarrow.compute as pc

    found = pc.index_in(column.cast(value_set.type), value_set=value_set).fill_null(-1)
    return np.asarray(found.to_numpy(), np.int32)


def _is_int(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def _is_str(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _python(column: Any) -> list[Any]:
    return column if isinstance(column, list) else column.to_pylist()


def _number(id: object) -> int | None:
    try:
        return int(str(id))
    except ValueError:
        return None
