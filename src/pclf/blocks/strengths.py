"""Strengths: the median of numbers that lie in blocks, without bringing them together.

Numbers above 0 in single precision are in the order of their bits. So one pass over the blocks counts the upper halves
of the bits, and a second the lower halves of those in the middle; what blocks answer adds up.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
HALVES = 1 << 16


class Middle(NamedTuple):
    """Where the two numbers in the middle are, which are one where there is an odd number of them."""

    upper: tuple[int, int]      # halves of their bits
    rank: tuple[int, int]       # which of those that have the same upper half

    @classmethod
    def of(cls, counts: Numbers) -> "Middle":
        """counts: how often each upper half comes."""
        ends, n = np.cumsum(counts), int(counts.sum())
        ranks = (n - 1) // 2, n // 2
        upper = np.searchsorted(ends, ranks, "right").tolist()
        before = (ends - counts)[upper].tolist()
        return cls((upper[0], upper[1]), (ranks[0] - before[0], ranks[1] - before[1]))

    def median(self, counts: Numbers) -> float:
        """counts: how often each lower half comes with the upper ones, (2, HALVES)."""
        lower = [int(np.searchsorted(np.cumsum(own), rank, "right"))
                 for own, rank in zip(counts, self.rank, strict=True)]
        bits = np.array([a * HALVES + b for a, b in zip(self.upper, lower, strict=True)], np.uint32)
        return float(bits.view(np.float32).astype(np.float64).mean())


def upper_halves(numbers: NDArray[Any]) -> Numbers:
    """How often each comes. (HALVES,)"""
    return np.bincount(_bits(numbers) // HALVES, minlength=HALVES)


def lower_halves(numbers: NDArray[Any], middle: Middle) -> Numbers:
    """How often each comes with the upper halves in the middle. (2, HALVES)"""
    bits = _bits(numbers)
    return np.stack([np.bincount(bits[bits // HALVES == upper] % HALVES, minlength=HALVES) for upper in middle.upper])


def _bits(numbers: NDArray[Any]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(numbers, np.float32).view(np.uint32)
