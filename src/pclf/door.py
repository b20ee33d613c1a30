"""The door: what is read from a file is checked here, once, before anything computes with it.

A model file may come from anywhere. Its checksum says that it is whole, not who made it: anybody can compute one. So
every number that a kernel will use as a place in memory, every shape that two arrays must have in common, every
probability and every key is looked at first, and what no model has is refused.

    check_array("users.0", users, dtype="float", shape={"users": 40, "factors": None})
    check_array("member.0.table", table, dtype="float", shape={"levels": 5, "clusters": 20}, sums_to_one=0)
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.errors import ModelFileError, brief, visible

FLOATS = ("float32", "float64")
DEPTH = 24                   # of lists in lists: manifests have 6
LONGEST = 100_000_000        # characters of JSON, as many as the header of a safetensors file may have
LINE = 600                   # characters of what is said about a file
SUM = 1e-3                   # sums of probabilities in single precision

Shape = Mapping[str, int | None]


@contextmanager
def opening(path: str | Path) -> Iterator[None]:
    """Whatever is wrong with what a file holds is one kind of error, and names the file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:   # of any parser, of any check: a file must not choose the error
        why = str(error) if isinstance(error, ModelFileError) else f"{type(error).__name__}, {error}"
        why = visible(why[:LINE]).rstrip(".")
        raise ModelFileError(f"{path} cannot be read as a model: {why}. It was altered, or something else "
                             f"wrote it: save the model again.") from error


def check_array(name: str, array: Any, *, dtype: str | tuple[str, ...], shape: Shape, low: float | None = None,
                high: float | None = None, finite: bool = True, sums_to_one: int | None = None) -> NDArray[Any]:
    """The array, if it is what it must be.

    dtype: the name of one, or several; "float" is single or double precision. shape: a size for each axis, by name,
    None for any. low, high: of its numbers. finite: neither NaN nor infinite. sums_to_one: an axis of probabilities.
    """
    if not isinstance(array, np.ndarray):
        raise ModelFileError(f"{name} must be an array; got {type(array).__name__}")
    known = FLOATS if dtype == "float" else (dtype,) if isinstance(dtype, str) else dtype
    if array.dtype.name not in known or not array.dtype.isnative:
        raise ModelFileError(f"{name} must be of type {' or '.join(known)}; got {array.dtype}")
    sizes = zip(shape.values(), array.shape, strict=False)
    if array.ndim != len(shape) or any(n not in (None, own) for n, own in sizes):
        wanted = ", ".join(what if n is None else f"{n:,} {what}" for what, n in shape.items())
        raise ModelFileError(f"{name} must have the shape ({wanted}); got {array.shape}")
    if not array.size:
        return array
    if sums_to_one is not None:
        low, high = 0.0 if low is None else low, 1.0 + SUM if high is None else high
    least, most = array.min(), array.max()               # NaN, where there is one: no array of booleans is needed
    if finite and array.dtype.kind == "f" and not (np.isfinite(least) and np.isfinite(most)):
        raise ModelFileError(f"{name} must have finite numbers; got {least} to {most}")
    if (low is not None and not least >= low) or (high is not None and not most <= high):
        raise ModelFileError(f"{name} must have numbers {_between(low, high)}; got {least} to {most}")
    if sums_to_one is not None:
        sums = array.sum(axis=sums_to_one, dtype=np.float64)
        if np.abs(sums - 1).max() > SUM:
            raise ModelFileError(f"{name} must have probabilities that sum to 1 along axis {sums_to_one}; got sums "
                                 f"from {sums.min():.6g} to {sums.max():.6g}")
    return array


def check_codes(name: str, array: Any, n: int, shape: Shape, dtype: str = "int32") -> NDArray[Any]:
    """Places among n things: 0 to n - 1."""
    return check_array(name, array, dtype=dtype, shape=shape, low=0, high=n - 1)


def check_names(what: str, found: Collection[str], wanted: Collection[str], may: Collection[str] = ()) -> None:
    """These names and no others; some of them need not be there."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ModelFileError(f"{what} must have {', '.join(missing[:5])}; got {brief(', '.join(sorted(found)))}")
    strange = [name for name in found if name not in wanted and name not in may]
    if strange:
        raise ModelFileError(f"{what} must not have {brief(', '.join(map(str, strange)))}")


def check_keys(what: str, found: Any, kinds: Mapping[str, Any], may: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A dict with these keys, each with a value of its kind; `may`: keys that need not be there.

    A kind is a type (an int is a float too, a bool is neither), a tuple of words to choose from, a list of one kind for
    lists of it, a dict of one {str: kind} for dicts of it, or a function that says whether a value is right.
    """
    if not isinstance(found, dict):
        raise ModelFileError(f"{what} must be a table of names; got {type(found).__name__}")
    check_names(what, found, kinds, may or ())
    for key, kind in {**kinds, **(may or {})}.items():
        if key in found and not _is(found[key], kind):
            raise ModelFileError(f"{what}: {key} must be {_named(kind)}; got {brief(found[key])}")
    return found


def text(value: Any) -> bool:
    """text without halves of characters"""
    return type(value) is str and not any("\ud800" <= letter <= "\udfff" for letter in value)


def finite(value: Any) -> bool:
    """a finite number"""
    return _is(value, float) and bool(np.isfinite(value))


def share(value: Any) -> bool:
    """a number from 0 to 1"""
    return finite(value) and 0 <= value <= 1


def at_least_0(value: Any) -> bool:
    """a finite number of at least 0"""
    return finite(value) and value >= 0


def positive(value: Any) -> bool:
    """a whole number from 1 on"""
    return type(value) is int and 1 <= value < 1 << 31


def from_json(what: str, text: str | bytes) -> Any:
    """JSON of a bearable size and depth, with numbers that are numbers."""
    if len(text) > LONGEST:
        raise ModelFileError(f"{what} must have at most {LONGEST:,} characters; got {len(text):,}")
    try:
        found = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ModelFileError(f"{what} must have at most {DEPTH} lists in each other") from None
    except ValueError as error:
        raise ModelFileError(f"{what} must be JSON: {error}") from None
    layer = [found]
    for _ in range(DEPTH):
        layer = [part for whole in layer if isinstance(whole, (dict, list))
                 for part in (whole.values() if isinstance(whole, dict) else whole) if isinstance(part, (dict, list))]
        if not layer:
            return found
    raise ModelFileError(f"{what} must have at most {DEPTH} lists in each other")


def _is(value: Any, kind: Any) -> bool:
    if isinstance(kind, type):
        return type(value) is kind or (kind is float and type(value) is int and abs(value) < 1 << 1000)
    if isinstance(kind, list):
        return isinstance(value, list) and all(_is(v, kind[0]) for v in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(_is(v, kind[str]) for v in value.values())
    return bool(kind(value)) if callable(kind) else value in kind


def _named(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a table of names",
             list: "a list", type(None): "null"}
    if isinstance(kind, list):
        return f"a list, each {_named(kind[0])}"
    if isinstance(kind, dict):
        return f"a table, each {_named(kind[str])}"
    if isinstance(kind, tuple):
        return f"one of {', '.join(map(str, kind))}"
    return words.get(kind) or (kind.__doc__ or kind.__name__)


def _between(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"of at most {high}" if low is None else f"of at least {low}"
    return f"from {low} to {high}"


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")
