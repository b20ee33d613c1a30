"""Words: what is wrong with a question, said as the library says it: what must be what, and what it was."""

from collections.abc import Mapping, Sequence
from typing import Any

from pclf.errors import brief

SAID = 5                   # faults that are told at once
MUST: dict[str, str] = {   # kinds of faults of pydantic
    "missing": "must be given", "extra_forbidden": "is no name that is known here",
    "int_type": "must be a whole number", "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number", "int_from_float": "must be a whole number",
    "float_type": "must be a number", "float_parsing": "must be a number", "finite_number": "must be a finite number",
    "bool_type": "must be true or false", "bool_parsing": "must be true or false", "string_type": "must be text",
    "string_unicode": "must be text", "list_type": "must be a list", "dict_type": "must be an object",
    "model_type": "must be an object", "model_attributes_type": "must be an object",
    "greater_than_equal": "must be at least {ge}", "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} character",
    "too_short": "must have at least {min_length} entry",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
}
WITHOUT_VALUE = ("missing", "extra_forbidden", "too_short", "too_long", "string_too_long")


def in_words(faults: Sequence[Mapping[str, Any]], whole: str = "the body") -> str:
    """What pydantic found, in sentences. whole: what is asked for when it is no part that is wrong."""
    return " ".join(_in_words(fault, whole) for fault in faults[:SAID])


def _in_words(fault: Mapping[str, Any], whole: str) -> str:
    kind, value, why = fault["type"], fault.get("input"), fault.get("ctx", {})
    path = [str(part) for part in fault["loc"] if part not in ("body", "query", "path")]
    name = ".".join(path) or whole
    if kind == "json_invalid":
        return f"{whole} must be JSON: {why.get('error', 'it cannot be read')} at character {fault['loc'][-1]}."
    if kind == "value_error":
        return f"{name} {why.get('error', 'cannot be used')}."
    if not path and (kind == "missing" or isinstance(value, (str, bytes))):
        return f"{whole} must be a JSON object, sent with Content-Type: application/json."
    if kind == "too_long" and isinstance(value, str):             # an id, which may be a number as well
        kind = "string_too_long"
    if kind not in MUST:
        return f"{name}: {fault['msg']}."
    got = "" if kind in WITHOUT_VALUE else f"; got {brief(value)}"
    if "_than_equal" in kind:                                     # a number, in an address as text
        got = f"; got {brief(str(value))[1:-1]}"
    if kind in ("too_long", "string_too_long"):
        got = f"; got {len(value or ()):,}"
    return f"{name} {MUST[kind].format(**why)}{got}."
