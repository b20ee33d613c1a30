"""Vocabulary: ids outside, codes inside."""

import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.data.columns import Coded, as_column, check_present, coded, is_int, is_str
from pclf.errors import DataError, UnknownNameError, brief, did_you_mean

FEW = 256   # ids that a dict finds faster than Arrow

Codes = NDArray[np.int32]


class Vocabulary:
    """The ids of a domain's users or items, by code: the first id has code 0, the next code 1.

    Ids are any hashables, and differ as the keys of a dict do: 1, 1.0 and True are one. Integers and strings
    are kept as arrays and encoded without a Python loop.

    >>> films = Vocabulary(["Alien", "Heat"])
    >>> films.encode(["Heat", "Jaws"]).tolist()
    [1, -1]
    >>> films.decode([0])
    ['Alien']
    """

    def __init__(self, ids: Iterable[Hashable]) -> None:
        column = coded(as_column(ids))
        check_present(column, "ids")
        self._ids = _stored(column.distinct)
        if len(self) < len(column):
            row = int(np.argmax(column.codes != np.arange(len(column))))
            raise DataError(f"the ids of a vocabulary must differ; "
                            f"got {brief(self.decode(column.codes[[row]])[0])} again in row {row:,}")

    @classmethod
    def of(cls, column: Coded) -> "Vocabulary":
        """The distinct values of a column."""
        return cls._made(_stored(column.distinct))

    def take(self, codes: NDArray[np.intp]) -> "Vocabulary":
        """Some of the ids, by new codes: 0 for the first of them."""
        return self._made(tuple(self.decode(codes)) if isinstance(self._ids, tuple) else _stored(self._ids.take(codes)))

    def as_text(self) -> "Vocabulary":
        """Whole numbers as they are written; other ids as they are."""
        import pyarrow as pa

        return self._made(self.arrow.cast(pa.large_string())) if self.kind == "int" else self

    def joined(self, other: "Vocabulary") -> tuple["Vocabulary", Codes, Codes]:
        """The ids of both, first ours, and code -> code in it for each of the two."""
        if {self.kind, other.kind} == {"int", "str"}:                              # 7 is "7" there
            return self.as_text().joined(other.as_text())
        mine, theirs = self.union([self, other])
        new = (id for id, code in zip(other.ids, theirs.tolist(), strict=True) if code >= len(self))
        return Vocabulary([*self.ids, *new]), mine, theirs

    @classmethod
    def _made(cls, ids: Any) -> "Vocabulary":
        """Of ids that differ, as they are kept."""
        made = cls.__new__(cls)
        made._ids = ids
        return made

    @property
    def kind(self) -> str:
        """How the ids are kept: as "int" (64 bits), as "str", or as "object"."""
        if isinstance(self._ids, tuple):
            return "object"
        return "int" if isinstance(self._ids, np.ndarray) else "str"

    @cached_property
    def ids(self) -> tuple[Hashable, ...]:
        """All ids, by code, as Python objects."""
        return self._ids if isinstance(self._ids, tuple) else tuple(self._ids.tolist())

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._code_of

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Vocabulary) and self.ids == other.ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.decode(np.arange(min(3, len(self))))))
        return f"Vocabulary({len(self):,} ids: {shown}{', ...' if len(self) > 3 else ''})"

    def code(self, id: Hashable, what: str = "id") -> int:
        """The code of one id. `what` is the word for it in the error: "user", "item of 'books'"."""
        try:
            return self._code_of[id]
        except KeyError:
            pass
        except TypeError:
            raise DataError(f"{what} must be hashable; got {brief(id)}") from None
        if (other := self.written_alike(id)) is not None:
            how = [form(str(i)) if type(id) is type(other) else type(i).__name__ for i in (id, other)]
            raise UnknownNameError(f"unknown {what} {brief(id)} ({how[0]}): did you mean {brief(other)} ({how[1]})?")
        raise UnknownNameError(did_you_mean(id, self.ids, what))

    def written_alike(self, id: Hashable) -> Hashable | None:
        """The id here that reads the same and is another: 7 for "7", or the same letters in another form of Unicode."""
        text = str(id)
        forms = [] if text.isascii() else [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
        return next((other for other in (text, _number(id), *forms) if other is not None and other in self), None)

    def alike(self) -> tuple[str, str] | None:
        """Two ids, if there are any, that look alike and are written in different forms of Unicode."""
        import pyarrow.compute as pc

        if self.kind != "str" or pc.all(pc.string_is_ascii(self._ids)).as_py():
            return None
        first: dict[str, str] = {}
        for id in self._ids.filter(pc.invert(pc.string_is_ascii(self._ids))).tolist():
            other = first.setdefault(unicodedata.normalize("NFC", id), id)
            if other != id:
                return other, id
        return None

    def encode(self, ids: Any) -> Codes:
        """The code of each id, -1 for one that is not here.   (n,)"""
        column: Any = ids if isinstance(ids, (list, tuple)) and len(ids) <= FEW else as_column(ids)
        if isinstance(column, Sequence):
            return self._look_up(column)
        same = is_int(column.type) if self.kind == "int" else self.kind == "str" and is_str(column.type)
        if same and len(column) > max(FEW, len(self) // 8):   # Arrow builds its hash table anew each time
            import pyarrow as pa
            import pyarrow.compute as pc

            known = self.arrow
            try:
                found = pc.index_in(column.cast(known.type), value_set=known)
                return np.asarray(found.fill_null(-1).to_numpy(), np.int32)
            except pa.ArrowInvalid:   # a number beyond 64 bits is not here, and the dict knows
                pass
        return self._look_up(column.to_pylist())

    def find(self, ids: Any) -> Codes:
        """The same for ids that may be written otherwise: 7 and 7.0 find "7", and "7" finds 7.   (n,)"""
        import pyarrow as pa

        column = as_column(ids)
        simple = not isinstance(column, Sequence) and (is_int(column.type) or is_str(column.type))
        if simple and self.kind == ("int" if is_int(column.type) else "str"):
            return self.encode(column)
        text = (column.cast(pa.large_string()) if simple
                else [as_written(id) for id in (column if isinstance(column, Sequence) else column.to_pylist())])
        if self.kind != "object":
            return self.as_text().encode(text)
        known = {as_written(id): code for code, id in enumerate(self.ids)}
        return np.fromiter((known.get(str(id), -1) for id in text), np.int32, len(text))

    def decode(self, codes: ArrayLike) -> list[Any]:
        """The id of each code, as Python objects."""
        codes = np.asarray(codes, np.intp)
        if codes.size and not 0 <= codes.min() <= codes.max() < len(self):
            raise DataError(f"codes must be 0 to {len(self) - 1:,}; got {codes.min():,} to {codes.max():,}")
        if isinstance(self._ids, tuple):
            return [self._ids[c] for c in codes]
        chosen: list[Any] = self._ids.take(codes).tolist()
        return chosen

    def array(self) -> NDArray[Any]:
        """All ids, by code, as a NumPy array of int64 or of objects."""
        if isinstance(self._ids, np.ndarray):
            return self._ids
        made = np.empty(len(self), object)
        made[:] = self.ids
        return made

    def keys(self) -> NDArray[np.uint64]:
        """A hash of each id as it is written, so that 7 and "7" have the same: of 64 bits, the same everywhere."""
        import pyarrow as pa

        simple = self.kind != "object"
        return hashes(self.arrow.cast(pa.large_string()) if simple else pa.array(
            [as_written(id) for id in self.ids], pa.large_string()))

    @staticmethod
    def union(vocabularies: Sequence["Vocabulary"]) -> list[Codes]:
        """For each vocabulary, code -> code in the union of all."""
        import pyarrow as pa

        kinds = {v.kind for v in vocabularies}
        together: Any = ([i for v in vocabularies for i in v.ids] if len(kinds) > 1 or "object" in kinds
                         else pa.chunked_array([v.arrow for v in vocabularies]))
        return np.split(coded(together).codes, np.cumsum([len(v) for v in vocabularies])[:-1])

    @property
    def arrow(self) -> Any:
        """All ids as an Arrow array, of one kind."""
        import pyarrow as pa

        return pa.array(self._ids) if isinstance(self._ids, np.ndarray) else self._ids

    @cached_property
    def _code_of(self) -> dict[Hashable, int]:
        return {id: code for code, id in enumerate(self.ids)}

    def _look_up(self, ids: Sequence[Any]) -> Codes:
        known = self._code_of
        return np.fromiter((known.get(i, -1) for i in ids), np.int32, len(ids))


def hashes(texts: Any) -> NDArray[np.uint64]:
    """A hash of each text of an Arrow array of large strings without nulls."""
    from pclf.engines.kernels import hash_texts

    out = np.empty(len(texts), np.uint64)
    if len(texts):
        _, starts, text = texts.buffers()
        start = np.frombuffer(starts, np.int64)[texts.offset:texts.offset + len(texts) + 1]
        hash_texts(start, np.frombuffer(text or b"\0", np.uint8), out)
    return out


def _stored(distinct: Any) -> Any:
    """As a vocabulary keeps them: int64 array, Arrow strings, or a tuple (floats too)."""
    if isinstance(distinct, np.ndarray):
        if distinct.dtype.kind == "f":
            return tuple(distinct.tolist())
        distinct = distinct.view()
        distinct.flags.writeable = False
    return distinct


def as_written(id: object) -> str:
    """An id as text; 7.0 as 7."""
    return str(int(id) if isinstance(id, float) and id.is_integer() else id)


def form(text: str) -> str:
    """The form of Unicode that a text is in: é is one character in NFC and two in NFD."""
    return next((f for f in ("NFC", "NFD") if unicodedata.is_normalized(f, text)), "neither NFC nor NFD")


def _number(id: object) -> int | None:
    try:
        return int(str(id))
    except ValueError:
        return None
