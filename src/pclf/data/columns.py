"""Columns: the ids and ratings of any sequence or frame, as codes and distinct values, without Python loops.

Arrow's hash tables do the work for integers, floats and strings; a dict does it for everything else that is
hashable (tuples, mixed types).
"""

import difflib
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.errors import DataError, brief, did_you_mean

# What people call the columns, best first, in small letters without accents and digits only: in English, and then in
# German, French, Spanish and Italian, as shops export them.
ALIASES = {
    "user_col": (
        "userid", "user", "users", "uid", "username", "reviewerid", "customerid", "customer", "memberid",
        "personid", "person", "profileid", "visitorid", "playerid", "readerid",
        "kunde", "kundennr", "kundennummer", "kundenid", "nutzer", "nutzerid", "benutzer", "benutzerid", "client",
        "idclient", "clientid", "utilisateur", "idutilisateur", "usuario", "idusuario", "cliente", "idcliente",
        "utente", "idutente"),
    "item_col": (
        "itemid", "item", "items", "iid", "movieid", "movie", "filmid", "film", "bookid", "book", "isbn",
        "musicid", "songid", "song", "trackid", "track", "albumid", "album", "artistid", "artist", "asin",
        "productid", "product", "animeid", "gameid", "game", "jokeid", "showid", "recipeid", "businessid",
        "articleid", "contentid",
        "artikel", "artikelnr", "artikelnummer", "artikelid", "produkt", "produktnr", "produktid", "buch", "buchid",
        "spiel", "spielid", "article", "idarticle", "produit", "idproduit", "livre", "idlivre", "articulo",
        "idarticulo", "producto", "idproducto", "libro", "idlibro", "articolo", "idarticolo", "prodotto",
        "idprodotto"),
    "rating_col": (
        "rating", "ratings", "score", "stars", "star", "value", "overall", "bookrating", "movierating",
        "userrating", "starrating", "ratingvalue", "grade", "vote", "points",
        "bewertung", "wertung", "sterne", "punkte", "note", "etoiles", "puntuacion", "calificacion", "valoracion",
        "valutazione", "voto", "punteggio"),
    "time_col": (
        "timestamp", "time", "datetime", "date", "ts", "when", "unixreviewtime", "reviewtime", "eventtime", "ratedat",
        "createdat", "datum", "zeit", "zeitpunkt", "zeitstempel", "fecha"),
    "weight_col": (
        "weight", "strength", "plays", "playcount", "count", "counts", "times", "listens", "hours", "minutes",
        "amount", "quantity", "duration", "stunden", "minuten", "anzahl", "menge", "heures", "quantite", "horas",
        "cantidad", "quantita"),
    "title_col": (
        "title", "name", "itemtitle", "itemname", "movietitle", "booktitle", "filmtitle", "tracktitle", "songtitle",
        "albumtitle", "gametitle", "moviename", "bookname", "filmname", "trackname", "songname", "albumname",
        "artistname", "gamename", "productname", "producttitle", "animename", "showname", "recipename",
        "businessname", "articletitle", "headline", "titel", "bezeichnung", "titre", "nom", "titulo", "nombre",
        "titolo"),
}


WRITTEN = r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*"      # a number, as people and programs write it


@dataclass(frozen=True)
class Coded:
    """A column as codes into its distinct values, which are in order of first appearance.

    Distinct values are a NumPy array (int64, float64), an Arrow array of strings, or a tuple. A missing value
    (null, None, NaN) has code -1.
    """

    codes: NDArray[np.int32]
    distinct: Any
    rows: NDArray[np.intp] | None = None   # of the caller's table, where the column is a part of it
    line: int | None = None                # of its file, where the first row is

    def values(self) -> list[Any]:
        """All values, None where one is missing."""
        distinct = [*python_values(self.distinct), None]      # which code -1 finds
        return [distinct[code] for code in self.codes]

    def __len__(self) -> int:
        return len(self.codes)

    def where(self, mask: NDArray[np.bool_]) -> str:
        """The rows under the mask, in words."""
        row, more = int(mask.argmax()), int(mask.sum()) - 1
        row = row if self.rows is None else int(self.rows[row])
        place = f"in row {row:,}" if self.line is None else f"in line {row + self.line:,}"
        return place + (f" and {more:,} more" if more else "")


def as_column(values: Any) -> Any:
    """Values as an Arrow chunked array where they are of one simple type, else as a list."""
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _simple(values)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DataError(f"a column must have one dimension; got an array of shape {values.shape}")
        if values.dtype.kind in "iuf":
            return pa.chunked_array([pa.array(values)])
    elif isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DataError(f"a column must be a sequence or an array; got {brief(values)}")
    elif not isinstance(values, Sequence):
        import narwhals as nw

        series = nw.from_native(values, series_only=True, pass_through=True)
        if isinstance(series, nw.Series):
            return _frame_column(series)
        values = list(values)
    try:
        made = pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        made = None
    if made is not None and (is_int(made.type) or is_str(made.type)):
        return pa.chunked_array([made])
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def coded(column: Any) -> Coded:
    """The codes and distinct values of what `as_column` gives."""
    if isinstance(column, list):
        return _coded_objects(column)
    return finished(column.dictionary_encode())


def coded_rows(column: Any, rows: NDArray[np.intp]) -> Coded:
    """The same for some of the rows."""
    part = [column[row] for row in rows] if isinstance(column, list) else column.take(rows)
    return replace(coded(part), rows=rows)


def coded_parts(parts: Sequence[Any]) -> Coded:
    """The same for a column that came in Arrow arrays, each dictionary-encoded by itself."""
    import pyarrow as pa

    return finished(pa.chunked_array(parts).unify_dictionaries())


def finished(encoded: Any) -> Coded:
    """From a dictionary-encoded chunked array whose chunks have one dictionary."""
    import pyarrow as pa

    if not encoded.num_chunks:
        return Coded(np.zeros(0, np.int32), ())
    codes, end = np.empty(len(encoded), np.int32), 0
    for chunk in encoded.chunks:
        start, end = end, end + len(chunk)
        codes[start:end] = chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices
    distinct = encoded.chunk(encoded.num_chunks - 1).dictionary
    if is_str(distinct.type):
        return Coded(codes, distinct.cast(pa.large_string()))
    if pa.types.is_floating(distinct.type):
        values = distinct.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        if np.isnan(values).any():
            codes = np.where(np.isnan(values)[codes], np.int32(-1), codes)
        return Coded(codes, values)
    if is_int(distinct.type):
        try:
            return Coded(codes, distinct.cast(pa.int64()).to_numpy())
        except pa.ArrowInvalid:   # beyond int64
            pass
    return Coded(codes, tuple(distinct.to_pylist()))


def id_column(ids: Any) -> Any:
    """Ids as an Arrow array; those of several types, or beyond 64 bits, as text."""
    import pyarrow as pa

    try:
        return pa.array(ids)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if i is None else str(i) for i in ids])


def numbers(column: Coded, where: str, what: str = "ratings") -> NDArray[np.float64]:
    """The distinct values of a column as finite numbers; an error says in which row one is not."""
    check_present(column, f"{where}: {what}")
    try:
        if isinstance(column.distinct, (np.ndarray, tuple)):
            found = np.array(column.distinct, np.float64)
        else:
            found = column.distinct.cast("float64").to_numpy(zero_copy_only=False)
    except (ValueError, TypeError):   # of which Arrow's are children
        values = python_values(column.distinct)
        found = np.array([_float(v) for v in (with_points(values) if decimal_commas(values) else values)])
    bad = ~np.isfinite(found)
    if bad.any():
        rows = np.isin(column.codes, np.flatnonzero(bad))
        got = python_values(column.distinct)[column.codes[rows.argmax()]]
        raise DataError(f"{where}: {what} must be finite numbers; got {brief(got)} {column.where(rows)}. "
                        f"Drop or correct these rows first.")
    return found


def decimal_commas(values: Sequence[Any]) -> bool:
    """Whether all values with a comma are numbers with a decimal comma, 4,5, as half of Europe writes them.

    Three digits after a comma may be thousands: nobody says what 1,234 is.
    """
    commas = [v for v in values if isinstance(v, str) and "," in v]
    return bool(commas) and all(len(v) < 400 and re.fullmatch(r"\s*[-+]?\d+,(\d{1,2}|\d{4,})\s*", v, re.ASCII)
                                for v in commas)


def with_points(values: Sequence[Any]) -> list[Any]:
    return [v.replace(",", ".") if isinstance(v, str) else v for v in values]


def check_present(column: Coded, what: str) -> None:
    missing = column.codes < 0
    if missing.any():
        raise DataError(f"{what} must not be missing; got none {column.where(missing)}. "
                        f"Drop these rows first.")


def frame_columns(frame: Any, names: Mapping[str, str | None], where: str) -> list[Any]:
    """Columns of a pandas, polars or pyarrow frame, or a dict, found by name or by what they are usually called."""
    by_name = columns_by_name(frame, where)
    return [as_column(by_name[c]) for c in find_columns(list(by_name), names, where)]


def columns_by_name(frame: Any, where: str) -> dict[str, Any]:
    """All columns of such a frame, as they are."""
    import narwhals as nw

    if isinstance(frame, Mapping):
        return {str(name): values for name, values in frame.items()}
    try:
        table = nw.from_native(frame, eager_only=True)
        return {str(c): table.get_column(c) for c in table.columns}
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"{where}: column names must differ; {' '.join(str(error).split())}") from None
    except TypeError:
        hint = " Collect it first." if hasattr(frame, "collect") else ""
        raise DataError(f"{where} must be a pandas, polars or pyarrow frame; "
                        f"got {type(frame).__name__}.{hint}") from None


def as_arrow(values: Any, where: str) -> Any:
    """A column as an Arrow chunked array of whatever type. NaN is missing; values of several types are text."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, (Iterable, pa.Array)):
        raise DataError(f"{where} must be a sequence or an array; got {values!r}")
    if isinstance(values, np.ndarray) and values.ndim > 1:
        if values.ndim > 2 or not values.shape[1]:
            raise DataError(f"{where} must have one value or one row of numbers each; got an array of shape "
                            f"{values.shape}")
        flat = pa.array(np.ascontiguousarray(values).ravel(), from_pandas=True)
        return pa.chunked_array([pa.FixedSizeListArray.from_arrays(flat, values.shape[1])])
    series = nw.from_native(values, series_only=True, pass_through=True)
    try:
        made = series.to_arrow() if isinstance(series, nw.Series) else pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        texts = [_text(v) for v in (series.to_list() if isinstance(series, nw.Series) else values)]
        if any(isinstance(text, list) for text in texts):
            texts = [[text] if isinstance(text, str) else text for text in texts]
        made = pa.array(texts)
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


def _text(value: Any) -> Any:
    """A value as text, several values as a list of text."""
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        several = sorted(map(str, value)) if isinstance(value, (set, frozenset)) else map(str, value)
        return list(several)
    return None if is_missing(value) else str(value)


def find_columns(available: Sequence[str], names: Mapping[str, str | None], where: str) -> list[str]:
    """The column for each role: the one that was named, else the first of the usual names."""
    lost = [role for role, given in names.items() if given is None and find_alias(available, role) is None]
    if len(lost) > 1 and "title_col" not in lost and not ("rating_col" in lost and find_alias(available, "weight_col")):
        *some, last = (repr(ALIASES[role][0]) for role in lost)
        raise DataError(f"{where}: there must be columns like {', '.join(some)} and {last}; got "
                        f"{', '.join(map(brief, available[:20]))}. Pass "
                        f"{', '.join(f'{role}=...' for role in lost)}")
    found = [_find(available, role, given, where) for role, given in names.items()]
    for name in found:
        if available.count(name) > 1:
            raise DataError(f"{where}: column names must differ; got {brief(name)} {available.count(name)} times")
    return found


def _find(available: Sequence[str], role: str, given: str | None, where: str) -> str:
    if given is not None:
        if given not in available:
            raise DataError(f"{where}: {did_you_mean(given, available, 'column')}")
        return given
    if (found := find_alias(available, role)) is not None:
        return found
    plain = {plain_name(name): name for name in reversed(available)}
    guess = next((plain[m[0]] for alias in ALIASES[role]
                  if (m := difflib.get_close_matches(alias, plain, n=1, cutoff=0.75))), None)
    hint = f"did you mean {brief(guess)}? " if guess else ""
    way_out = "Rename one" if role == "title_col" else f"Pass {role}=..."
    counts = find_alias(available, "weight_col") if role == "rating_col" else None
    if counts is not None:
        way_out = f"If {brief(counts)} says how often or how long, these are events: {as_events(counts)}"
    raise DataError(f"{where}: there must be a column like {ALIASES[role][0]!r}; {hint}got "
                    f"{', '.join(map(brief, available[:20]))}. {way_out}")


def as_events(column: str) -> str:
    """How counts are read, in Python and on the command line."""
    return f"Ratings.from_events(..., weight_col={column!r}), or --events --weight-col {column}"


def find_alias(available: Sequence[str], role: str) -> str | None:
    """The first column with one of the usual names, the best name first."""
    plain = {plain_name(name): name for name in reversed(available)}
    return next((plain[alias] for alias in ALIASES[role] if alias in plain), None)


def _frame_column(series: Any) -> Any:
    import narwhals as nw
    import pyarrow as pa

    if series.dtype != nw.Object:
        try:
            return _simple(series.to_arrow())
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass   # pandas columns that looked like text at first
    return as_column(series.to_list())


def _simple(column: Any) -> Any:
    """An Arrow column that has a hash table for its type; a list of the values of one that has none."""
    import pyarrow as pa

    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    kind = column.type
    if pa.types.is_dictionary(kind):   # of a categorical, whose values may be unused and in any order
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return column.to_pylist() if pa.types.is_nested(kind) or pa.types.is_null(kind) else column


def _coded_objects(values: list[Any]) -> Coded:
    seen: dict[Hashable, int] = {}
    try:
        codes = np.fromiter((seen.setdefault(v, len(seen)) for v in values), np.int32, len(values))
    except TypeError:
        row = next(row for row, v in enumerate(values) if not _hashable(v))
        raise DataError(f"ids must be hashable; got {brief(values[row])} in row {row:,}. "
                        f"Use strings, numbers or tuples.") from None
    missing = [code for v, code in seen.items() if is_missing(v)]
    if missing:
        codes[np.isin(codes, missing)] = -1
    plain = (np.number, np.bool_, np.str_)   # equal to the Python object they become
    return Coded(codes, tuple(v.item() if isinstance(v, plain) else v for v in seen))


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_missing(value: Any) -> bool:
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _float(value: Any) -> float:
    if isinstance(value, str) and not (len(value) < 400 and re.fullmatch(WRITTEN, value, re.ASCII)):   # not 1_0 for 10
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def plain_name(name: str) -> str:
    """In small letters and digits alone, without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if c.isalnum())


def python_values(values: Any) -> list[Any]:
    """Distinct values as Python's own."""
    return list(values) if isinstance(values, tuple) else values.tolist()


def is_int(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def is_str(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
