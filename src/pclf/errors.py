"""The few exceptions of the library, as one family tree, and how they show what was found."""

import difflib
import re
from collections.abc import Iterable
from itertools import islice

LOOKED_AT = 20_000   # names compared by spelling: a web service must not spend seconds on an unknown user
SHOWN = 12           # a list of known names up to this length is shown whole
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST = 120        # characters of a value that a message shows


class PclfError(Exception):
    """The root: `except PclfError` catches everything the library raises on purpose."""


class DataError(PclfError, ValueError):
    """Ratings that cannot be used as they are: the message says which, where, and the way out."""


class MissingFileError(DataError, FileNotFoundError):
    """A file of ratings that is not there."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ArgumentError(PclfError, ValueError, TypeError):
    """An argument or a setting that cannot be used."""


class OutputError(PclfError, OSError):
    """A place where a file cannot, or must not, be written."""


class UnknownNameError(PclfError, KeyError):
    """A user, item, domain, data set or engine nobody has heard of."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""   # KeyError would show the message in quotes


class NotFittedError(PclfError, ValueError, AttributeError):
    """A model was asked something before `fit`."""


class ModelFileError(PclfError, ValueError):
    """A file that is not a saved model, or no longer one."""


class EngineError(PclfError, RuntimeError):
    """An engine that cannot run here."""


class DownloadError(PclfError, OSError):
    """A data set that could not be fetched."""


class StoreError(PclfError, RuntimeError):
    """A database that cannot be reached, or cannot write: what was sent is not kept."""


class ServiceError(PclfError, RuntimeError):
    """A service that does not answer, or answers that it cannot."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def brief(value: object, most: int = LONGEST) -> str:
    """A value as a message shows it: in Python's spelling, in which nothing controls a terminal, and not at length."""
    if isinstance(value, (str, bytes)):
        shown = repr(value[:most])
        return shown if len(value) <= most else f"{shown}... ({len(value):,} characters)"
    shown = repr(value)
    return visible(shown if len(shown) <= most else f"{shown[:most]}...")


def visible(text: str) -> str:
    r"""Text whose control characters are shown instead of obeyed: escape sequences, turned writing, halves of
    characters. Ends of lines and tabs stay.

    >>> visible("\x1b[31mred")
    '\\x1b[31mred'
    """
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def did_you_mean(name: object, known: Iterable[object], what: str) -> str:
    """The sentence for an unknown name, with the closest known ones.

    >>> did_you_mean("gpuu", ["cpu", "gpu", "reference"], "engine")
    "unknown engine 'gpuu': did you mean 'gpu'? (cpu, gpu, reference)"
    >>> did_you_mean("Heta", ["Heat"], "item in 'films'")
    "unknown item 'Heta' in 'films': did you mean 'Heat'? (Heat)"
    """
    kind, _, place = what.partition(" in ")
    said = f"unknown {kind} {brief(name)}{f' in {place}' if place else ''}"
    names = list(islice(known, LOOKED_AT))
    spelled = {str(n)[:LONGEST].casefold(): n for n in reversed(names)}
    asked = str(name)[:LONGEST].casefold()
    similar = difflib.get_close_matches(asked, spelled, n=3)
    if not similar and len(asked) > 2:                                     # Alien, of Alien (1979)
        similar = sorted((s for s in spelled if asked in s), key=len)[:3]
    close = [brief(spelled[s]) for s in similar]
    listed = f" ({', '.join(visible(str(n)[:LONGEST]) for n in names)})" if len(names) <= SHOWN else ""
    if close:
        return f"{said}: did you mean {' or '.join(close)}?{listed}"
    known_ones = listed or f" (known are {', '.join(map(brief, names[:3]))} and others)"
    return f"{said}{known_ones if names else ''}"
