"""The few exceptions of the library, as one family tree."""

import difflib
from collections.abc import Iterable
from itertools import islice

LOOKED_AT = 20_000   # names compared by spelling: a web service must not spend seconds on an unknown user
SHOWN = 12           # a list of known names up to this length is shown whole


class PclfError(Exception):
    """The root: `except PclfError` catches everything the library raises on purpose."""


class DataError(PclfError, ValueError):
    """Ratings that cannot be used as they are: the message says which, where, and the way out."""


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


def did_you_mean(name: object, known: Iterable[object], what: str) -> str:
    """The sentence for an unknown name, with the closest known ones.

    >>> did_you_mean("gpuu", ["cpu", "gpu", "reference"], "engine")
    "unknown engine 'gpuu': did you mean 'gpu'? (cpu, gpu, reference)"
    """
    names = list(islice(known, LOOKED_AT))
    spelled = {str(n).casefold(): n for n in reversed(names)}
    close = [repr(spelled[s]) for s in difflib.get_close_matches(str(name).casefold(), spelled, n=3)]
    listed = f" ({', '.join(map(str, names))})" if len(names) <= SHOWN else ""
    if close:
        return f"unknown {what} {name!r}: did you mean {' or '.join(close)}?{listed}"
    known_ones = listed or f" (known are {', '.join(map(repr, names[:3]))} and others)"
    return f"unknown {what} {name!r}{known_ones if names else ''}"
