"""Forms: a column of attributes of any type, of some domains, in one form for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.data.columns import is_str
from pclf.errors import DataError, brief

SEVERAL = 0.05         # the share of texts with a bar from which on bars are separators
DAY, MONTH, CLOCK = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])", r"(?:[ Tt]\d{1,2}:.*)?$"
DATES = (rf"^(?P<year>\d{{4}})[-/.]{MONTH}(?:[-/.]{DAY})?{CLOCK}",                          # 2024-05-31, 2024-05
         rf"^{DAY}[-/. ](?:{DAY}[-/.]|[A-Za-z]{{3}}[-/. ])(?P<year>\d{{4}}){CLOCK}")        # 31.05.2024, 31-May-2024
POINT = r"^[-+]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?$"       # 1,299.00
COMMA = r"^[-+]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?$"      # 1.299,00
CURRENCY = r"[€$£¥]|(?i:eur|usd|gbp|chf)"
AMOUNT = (rf"^(?P<before>{CURRENCY})?\s*(?P<digits>[-+]?\d[\d.,]*)\s*"
          rf"(?P<after>{CURRENCY}|%|(?i:mins?|minutes|minuten|hours|h|kg|g|km|cm|mm|m|ml|l))?\.?$")
WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A column of the attributes of one domain: an Arrow array, of the rows whose ids are known."""

    domain: str
    values: Any
    where: Callable[[int], str]      # a row in words: "attributes of 'films': ... in line 7"


class Values(NamedTuple):
    """A column of all domains in one form: text or lists of text as Arrow arrays, numbers as NumPy arrays."""

    form: str
    values: Any


class LeftOutError(Exception):
    """Why a column is of no use."""


def one_form(name: str, parts: Sequence[Part]) -> Values:
    """The rows of all parts, one after another. What is of no use is a LeftOutError."""
    import pyarrow as pa

    read = [(part, *_form(part.values)) for part in parts]
    forms = {form for _, form, _ in read} - {"missing"}
    if not forms:
        raise LeftOutError("it has no values")
    if "odd" in forms:
        kind = next(part.values.type for part, form, _ in read if form == "odd")
        raise LeftOutError(f"values of the type {kind} are neither text, numbers, true or false, nor lists of these")
    texts = [values for _, form, values in read if form == "text"]
    if texts and not forms & {"several", "vector"} and (as_numbers := _reading(texts)) is not None:
        forms = (forms - {"text"}) | {as_numbers}
    if forms == {"text"} and _barred(texts):
        forms = {"several"}
    for wider, forms_of_it in (("several", {"several", "text"}), ("number", {"number", "yes or no"})):
        if len(forms) > 1 and forms <= forms_of_it:
            forms = {wider}
    if len(forms) > 1:
        found = " and ".join(f"{_CALLED[form]} in {part.domain!r}" for part, form, _ in read if form != "missing")
        raise DataError(f"attribute {brief(name)} must mean the same in all domains; got {found}. Rename the column in "
                        f"one of them.")
    form, = forms
    if form == "vector":
        return Values(form, _vectors(name, read))
    if form in ("text", "several"):
        kind = pa.large_string() if form == "text" else pa.large_list(pa.large_string())
        return Values(form, pa.concat_arrays([_texts(form, values, len(part.values)).cast(kind)
                                              for part, _, values in read]))
    numbers = [_numbers(form, values, len(part.values)) for part, form, values in read]
    for part, column in zip(parts, numbers, strict=True):
        if (bad := np.isinf(column)).any():
            raise DataError(f"{part.where(int(bad.argmax()))}: attribute {brief(name)} must be a finite number; got "
                            f"{column[bad][0]}. Leave the field empty where the number is unknown.")
    together = np.concatenate(numbers)
    if form == "number" and np.isin(together[~np.isnan(together)], (0, 1)).all():
        form = "yes or no"
    return Values(form, together)


_CALLED = {"text": "text", "several": "lists of text", "number": "numbers", "yes or no": "true and false",
           "vector": "lists of numbers"}


def _form(values: Any) -> tuple[str, Any]:
    """What an Arrow column holds, and it in a plainer type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        values = values.cast(kind)
    if is_str(kind) or pa.types.is_string_view(kind):
        values = trimmed(values.cast(pa.large_string()))
        return ("missing" if values.null_count == len(values) else "text"), values
    if pa.types.is_null(kind) or values.null_count == len(values):
        return "missing", values
    if pa.types.is_boolean(kind):
        return "yes or no", values
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = values.cast(pa.float64(), safe=False)      # beyond 2^53 the nearest one
        return ("missing" if pc.all(pc.is_nan(numbers)).as_py() else "number"), numbers
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "number", pc.year(values).cast(pa.float64())
    if not any(check(kind) for check in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return "odd", values
    inside = kind.value_type
    if pa.types.is_null(inside):
        return "missing", values
    if is_str(inside) or pa.types.is_string_view(inside):
        return "several", values
    return ("vector" if pa.types.is_integer(inside) or pa.types.is_floating(inside) else "odd"), values


def trimmed(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def _reading(texts: Sequence[Any]) -> str | None:
    """What texts are if all of them read as numbers, or as true and false; each domain writes them its own way."""
    import pyarrow as pa
    import pyarrow.compute as pc

    each = [pc.unique(text).drop_null() for text in texts]
    distinct = pc.unique(pa.chunked_array(each))
    if pc.all(pc.is_in(pc.utf8_lower(distinct), value_set=pa.array(list(WORDS), distinct.type))).as_py():
        return "yes or no"
    return "number" if all(written_numbers(one) is not None for one in each) else None


def written_numbers(texts: Any) -> Any:
    """The numbers that an Arrow array of texts says, or None where one of them says none.   (n,) Arrow array

    Of dates, in any order of day and month, the year. An amount may have a currency or a unit, one for all, and a
    decimal comma where no point can be meant: 12,25 € is 12.25, and 1,234 may be either. 02139 is no number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    years = pc.coalesce(*(pc.struct_field(pc.extract_regex(texts, pattern), ["year"]) for pattern in DATES))
    if not years.null_count:
        return years.cast(pa.float64())
    if pc.any(pc.match_substring_regex(texts, r"^[-+]?0\d")).as_py():
        return None
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return _amounts(texts)


def number_of(value: Any) -> Any:
    """The number that a single text or date says, as in a column of them; other values as they are."""
    import pyarrow as pa

    if isinstance(value, date):
        return float(value.year)
    found = written_numbers(pa.array([value.strip()])) if isinstance(value, str) else None
    return value if found is None else found[0].as_py()


def _amounts(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(texts, AMOUNT)
    if parts.null_count:
        return None
    before, digits, after = (pc.struct_field(parts, [name]) for name in ("before", "digits", "after"))
    units = {unit for found in (before, after) for unit in pc.unique(pc.utf8_lower(found)).to_pylist()}
    if len(units - {""}) > 1:
        return None
    point, comma = (pc.all(pc.match_substring_regex(digits, pattern)).as_py() for pattern in (POINT, COMMA))
    marked = pc.any(pc.match_substring_regex(digits, "[.,]")).as_py()
    if point == comma and (marked or not point):
        return None
    thousands = "," if point else "."
    return pc.replace_substring(pc.replace_substring(digits, thousands, ""), ",", ".").cast(pa.float64())


def _barred(texts: Sequence[Any]) -> bool:
    """Whether a good share of texts are several, with bars between them."""
    import pyarrow.compute as pc

    barred = sum(pc.sum(pc.match_substring(text, "|")).as_py() or 0 for text in texts)
    return bool(barred > SEVERAL * sum(len(text) - text.null_count for text in texts))


def _texts(form: str, values: Any, n: int) -> Any:
    """Text, or lists of it, as one Arrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_str(values.type) and not hasattr(values.type, "value_type"):       # all are missing
        values = pa.chunked_array([pa.nulls(n, pa.large_string())])
    if form == "several" and is_str(values.type):
        values = pc.split_pattern(values, "|")
    return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)


def _numbers(form: str, values: Any, n: int) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    if form == "missing":
        return np.full(n, np.nan)
    if form == "text":
        words = pc.utf8_lower(values)
        for word, number in WORDS.items():
            words = pc.if_else(pc.equal(words, word), str(number), words)
        distinct = pc.unique(words).drop_null()
        values = written_numbers(distinct).take(pc.index_in(words, value_set=distinct))
    return np.asarray(values.cast(pa.float64()).to_numpy(), np.float64)


def _vectors(name: str, read: Sequence[tuple[Part, str, Any]]) -> Floats:
    """Lists of numbers, all of one length.   (n, length)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    length, first, made = 0, "", []
    for part, form, values in read:
        if form == "missing":
            continue
        lengths = pc.list_value_length(values).fill_null(0).to_numpy()
        if not length:
            at = int(np.argmax(lengths > 0))
            length, first = int(lengths[at]), part.where(at)
        other = (lengths != length) & (lengths > 0)
        if other.any():
            at = int(other.argmax())
            raise DataError(f"{part.where(at)}: the vector {brief(name)} must have as many numbers as the first one "
                            f"has, {length:,} ({first}); got {int(lengths[at]):,}. Make them equally long, or text if "
                            f"they are the numbers of categories.")
    for part, form, values in read:
        rows = np.full((len(part.values), length), np.nan)
        if form != "missing":
            given = pc.list_value_length(values).fill_null(0).to_numpy() > 0
            flat = pc.list_flatten(values.filter(pa.array(given))).cast(pa.float64(), safe=False).to_numpy()
            rows[given] = flat.reshape(-1, length)
            if np.isinf(rows).any():
                at = int(np.isinf(rows).any(axis=1).argmax())
                raise DataError(f"{part.where(at)}: the numbers of the vector {brief(name)} must be finite; got "
                                f"{rows[at][np.isinf(rows[at])][0]}.")
        made.append(rows)
    return np.concatenate(made)
