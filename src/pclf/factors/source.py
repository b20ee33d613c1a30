"""Source: the ratings of one domain, as the factor model reads them, and what ties several together."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.factors.rows import Floats


@dataclass(frozen=True)
class Counts:
    """How many ratings of a domain there are."""

    levels: NDArray[np.int64]           # (R,) of each level
    items: NDArray[np.int64]            # (V,) of each item
    chosen: NDArray[np.int64]           # (V,) of each item, those that are choices

    @property
    def total(self) -> int:
        return int(self.levels.sum())


@dataclass(frozen=True)
class Source:
    """The ratings of one domain, as the factor model reads them. Of those in blocks, only the counts are here."""

    name: str
    user: NDArray[np.int32]             # (n,) codes
    item: NDArray[np.int32]
    level: NDArray[np.uint8]
    n_users: int
    n_items: int
    n_levels: int
    least: int                          # level from which a rating is a choice
    person: NDArray[np.int32]           # (U,) rows among the people of all sources
    thing: NDArray[np.int32]            # (V,)
    attributes: Any = None              # (V, P), sparse
    counted: Counts | None = None       # of all, where the ratings are not here
    keys: NDArray[np.uint64] | None = None      # (V,) hashes of ids, for start values that do not depend on their order

    @cached_property
    def counts(self) -> Counts:
        return self.counted or Counts(np.bincount(self.level, minlength=self.n_levels),
                                      np.bincount(self.item, minlength=self.n_items),
                                      np.bincount(self.item[self.chosen], minlength=self.n_items))

    @property
    def chosen(self) -> NDArray[np.bool_]:
        return self.level >= self.least


@dataclass(frozen=True)
class Ties:
    """Which rows of the domains belong together."""

    people: bool
    things: bool
    attributes: bool
    inside: bool = False     # attributes are used, and every domain has a regression of its own: nothing is tied

    @property
    def number(self) -> int:
        """How many bridges there are."""
        return self.people + self.things + self.attributes

    @property
    def any(self) -> bool:
        return self.people or self.things or self.attributes

    @property
    def choices(self) -> bool:
        """Whether the axes of choices mean the same in all domains."""
        return self.people or self.things


def draw_weights(n: NDArray[np.int64], power: float) -> Floats:
    """How often items with n events each are drawn as absences, up to a constant."""
    out: Floats = np.maximum(n, 1.0) ** power
    return out
