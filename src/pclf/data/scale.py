"""Scale: the values a rating may take in a domain, and where they fall among the levels all domains share."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pclf.errors import DataError

LONGEST = 256      # positions are kept in one byte
GUESSED = 101      # the longest scale that is inferred: 0 to 100
CLOSE = 1e-4       # of the smallest gap; float32 columns hold 3.7 as 3.7000000477


@dataclass(frozen=True)
class Scale:
    """The ascending values of a rating scale.

    >>> Scale.between(1, 5)
    Scale(1 to 5 by 1)
    >>> Scale.between(0.5, 5, 0.5).to_levels(5).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(float(v) for v in self.values)
        if not 1 <= len(values) <= LONGEST:
            raise DataError(f"a scale must have 1 to {LONGEST} values; got {len(values)}")
        if not all(np.isfinite(values)) or any(b <= a for a, b in pairwise(values)):
            raise DataError(f"the values of a scale must be finite and ascending; got {_listed(values)}")
        object.__setattr__(self, "values", values)

    @classmethod
    def between(cls, low: float, high: float, step: float = 1.0) -> "Scale":
        """Low to high in equal steps."""
        if not (np.isfinite([low, high, step]).all() and step > 0 and high >= low):
            raise DataError(f"a scale must go from low up to high by steps > 0; got {low}, {high}, {step}")
        n = round((high - low) / step) + 1
        if n > LONGEST or abs(low + (n - 1) * step - high) > CLOSE * step:
            raise DataError(f"steps of {step} must lead from {low} to {high} in at most {LONGEST} values")
        return cls(tuple(_tidy(low + step * np.arange(n, dtype=np.float64)).tolist()))

    @classmethod
    def infer(cls, values: ArrayLike, where: str = "ratings") -> "Scale":
        """The evenly spaced scale that the values lie on, with its gaps filled: 1, 2, 5 gives 1 to 5.

        Whole numbers from 0 to 10 go in steps of 1, others in the largest step that meets them all. Where
        that makes a long scale, up to 20 different values are themselves the scale.
        """
        seen = np.unique(_tidy(np.asarray(values, np.float64)))
        if seen.size == 0:
            raise DataError(f"{where}: there are no ratings to infer a scale from; pass scale=(low, high)")
        step = _common_step(np.diff(seen)) if seen.size <= GUESSED else 0.0
        if seen[0] >= 0 and seen[-1] <= 10 and not (seen % 1).any():
            step = min(step, 1.0)
        if step and (seen[-1] - seen[0]) / step < GUESSED:
            return cls.between(seen[0], seen[-1], step)
        if seen.size <= 20:
            return cls(tuple(seen.tolist()))
        way_out = "Round them to a scale first: Scale.between(low, high, step).nearest(ratings)."
        if seen[0] >= 0:
            way_out += " If they say how often or how long, and not how well, these are events: --events"
        raise DataError(f"{where}: ratings must lie on a scale of few values; got {seen.size:,} different "
                        f"ones from {written(seen[0])} to {written(seen[-1])}. {way_out}")

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Scale({self})"

    def __str__(self) -> str:
        gaps = np.diff(self.values)
        if len(self) > 2 and np.allclose(gaps, gaps[0], atol=0):
            step = _rounded(gaps[:1], self.high - self.low)[0]
            return f"{written(self.low)} to {written(self.high)} by {written(step)}"
        return _listed(self.values)

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def low(self) -> float:
        return self.values[0]

    @property
    def high(self) -> float:
        return self.values[-1]

    @cached_property
    def _array(self) -> NDArray[np.float64]:
        return np.array(self.values)

    @cached_property
    def _middles(self) -> NDArray[np.float64]:
        return (self._array[1:] + self._array[:-1]) / 2

    def position(self, ratings: ArrayLike) -> NDArray[np.uint8]:
        """Where on the scale each rating is, 0 to n - 1; a rating off the scale is an error."""
        own = np.asarray(ratings, np.float64)
        found, off = self.locate(own)
        if off.any():
            row, more = int(off.argmax()), int(off.sum()) - 1
            where = f"in row {row:,}" + (f" and {more:,} more" if more else "")
            raise DataError(f"ratings must be on the scale {self}; got {written(own.flat[row])} {where}. "
                            f"Round them with Scale.nearest() first.")
        return found

    def locate(self, ratings: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """The position of the nearest value to each rating, and which ratings are off the scale."""
        found = self._nearest(ratings)
        gap = float(np.diff(self._array).min()) if self.n > 1 else 1.0
        return found, ~(np.abs(self._array[found] - ratings) <= CLOSE * gap)   # so that NaN is off

    def nearest(self, ratings: ArrayLike) -> NDArray[np.float64]:
        """Each number moved to the nearest value of the scale; half-way goes up."""
        own = np.asarray(ratings, np.float64)
        if np.isnan(own).any():
            raise DataError("ratings must be numbers to be rounded; got NaN")
        return self._array[self._nearest(own)]

    def to_levels(self, n_levels: int) -> NDArray[np.uint8]:
        """The level of each value: value i of n falls in level floor((i + 0.5) * n_levels / n).   (n,)"""
        check_levels(n_levels)
        return ((2 * np.arange(self.n) + 1) * n_levels // (2 * self.n)).astype(np.uint8)

    def level_values(self, n_levels: int) -> NDArray[np.float64]:
        """What each level is worth here: the mean of the values that fall in it.   (n_levels,)

        A level in which none falls (a scale with fewer values than levels) lies on the line between its
        neighbours, and never outside the scale.
        """
        levels = self.to_levels(n_levels)
        filled, counts = np.unique(levels, return_counts=True)
        means = np.bincount(levels, weights=self._array, minlength=n_levels)[filled] / counts
        return np.interp(np.arange(n_levels), filled, means)

    def _nearest(self, own: NDArray[np.float64]) -> NDArray[np.uint8]:
        return np.searchsorted(self._middles, own, side="right").astype(np.uint8)


def check_levels(n_levels: int) -> None:
    if not 1 <= n_levels <= LONGEST:
        raise DataError(f"the number of levels must be 1 to {LONGEST}; got {n_levels}")


def as_scale(given: object, name: str) -> Scale | None:
    """The scale a caller means by a Scale, (low, high), (low, high, step), all values, or a dict of these."""
    if isinstance(given, Mapping):
        given = given.get(name)
    if given is None or isinstance(given, Scale):
        return given
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise DataError(f"scale must be (low, high), (low, high, step) or a list of values; got {given!r}")
    values = tuple(float(v) for v in given)
    if len(values) == 2:
        return Scale.between(*values)
    if len(values) == 3 and values[2] <= values[1]:   # (1, 5, 0.5); (1, 2, 3) is a list of values
        return Scale.between(*values)
    return Scale(values)


def written(value: float) -> str:
    """A number as people write it, with all its digits: 1000000001, not 1e+09."""
    return f"{value:.16g}"


def _tidy(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """0.1 * 3 and float32's 3.7 become what people write, whatever the size of the numbers."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if (single == values).all() and (values % 1).any():                 # of a float32 column: its shortest spelling
        values = np.array([float(str(v)) for v in single], np.float64).reshape(values.shape)
    return _rounded(values, float(np.ptp(values)) if values.size else 0.0)


def _rounded(values: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
    """To a millionth of how far they spread, or finer."""
    spread = spread or float(np.abs(values).max(initial=0.0))
    digits = 6 if spread >= 1 or not spread else min(300, 6 - math.floor(math.log10(spread)))
    rounded = np.array([round(float(v), digits) for v in values.flat]).reshape(values.shape)
    return np.where(values % 1 == 0, values, rounded)


def _common_step(gaps: NDArray[np.float64]) -> float:
    """The largest number of which every gap is a multiple; 0 for no gaps."""
    step, spread = 0.0, float(gaps.sum())
    least = 1e-5 * min(1.0, spread)
    for gap in gaps:
        while gap > least:   # Euclid's algorithm
            step, gap = gap, step % gap if gap - step % gap > least else 0.0
    return float(_rounded(np.array([step]), spread)[0])


def _listed(values: tuple[float, ...]) -> str:
    shown = [written(v) for v in values]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]])
