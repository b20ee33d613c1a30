"""Shaping: lists that hold what their maker wants, not only what scores best.

A longer list, the *pool*, is gone through from the top. Each next item is the best of those left, where likeness to
what is already on the list counts against it (maximal marginal relevance: Carbonell & Goldstein, SIGIR 1998), and where
an attribute's value that is on the list often enough rules an item out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.errors import DataError, did_you_mean
from pclf.serving.lists import Pool

Floats = NDArray[np.floating[Any]]
LONGER = 10          # times the list: the pool that it is taken from
FEWEST = 100         # items of a pool


@dataclass(frozen=True)
class Shaping:
    """diversity: 0, by score alone, to 1, as unlike each other as can be. at_most: {attribute: items with one value of
    it}.
    boosts: item code -> what its score is multiplied by."""

    diversity: float = 0.0
    at_most: Mapping[str, int] = field(default_factory=dict)
    boosts: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.diversity <= 1:
            raise DataError(f"diversity must be between 0 and 1; got {self.diversity!r}.")
        for name, n in self.at_most.items():
            if not isinstance(n, (int, np.integer)) or n < 1:
                raise DataError(f"at_most must be {{attribute: a whole number from 1 on}}; got {n!r} for {name!r}.")
        for factor in self.boosts.values():
            if not 0 <= factor < np.inf:
                raise DataError(f"a boost must be 0 or a positive number; got {factor!r}.")

    @property
    def any(self) -> bool:
        return bool(self.diversity or self.at_most or self.boosts)

    def pool(self, n: int, n_items: int) -> int:
        """How long a list to start from."""
        return min(n_items, max(LONGER * n, FEWEST, n + len(self.boosts))) if self.any else n

    def apply(self, pool: Pool, n: int, vectors: Floats | None, values: Mapping[str, Any]) -> Pool:
        """Lists of n from longer ones.

        vectors: of the items, (V, D); the cosine of two says how alike they are. values: attribute -> (V, values),
        non-zero where an item has one.
        """
        boosts, known = np.ones(pool.codes.shape), (pool.codes >= 0).sum(axis=1)          # what is there comes first
        for code, factor in self.boosts.items():
            boosts[pool.codes == code] = factor
        pool = replace(pool, scores=np.where(pool.codes >= 0, boosts, 1.0) * pool.scores)
        places = np.full((len(pool.codes), n), -1, np.intp)
        for row, size in enumerate(known):
            found = self._one(pool.codes[row, :size], pool.scores[row, :size], n, vectors, values)
            places[row, :len(found)] = found
        return pool.take(places)

    def _one(self, pool: NDArray[np.int32], score: Floats, n: int, vectors: Floats | None,
             values: Mapping[str, Any]) -> list[int]:
        low, high = (score.min(), score.max()) if len(score) else (0.0, 1.0)
        relevance = (score - low) / max(high - low, 1e-12)
        unit = None
        if self.diversity and vectors is not None:
            own = vectors[pool]
            unit = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)
        alike, open_, chosen = np.zeros(len(pool)), np.ones(len(pool), bool), list[int]()
        has = {name: matrix[pool].toarray() != 0 for name, matrix in values.items()}
        used = {name: np.zeros(matrix.shape[1], int) for name, matrix in has.items()}
        while open_.any() and len(chosen) < n:
            worth = (1 - self.diversity) * relevance - self.diversity * alike
            best = int(np.where(open_, worth, -np.inf).argmax())
            chosen.append(best)
            open_[best] = False
            if unit is not None:
                alike = np.maximum(alike, unit @ unit[best])
            for name, matrix in has.items():
                used[name] += matrix[best]
                open_ &= ~matrix[:, used[name] >= self.at_most[name]].any(axis=1)
        return chosen


def attribute_values(attributes: Any, domain: str, names: Mapping[str, int]) -> dict[str, Any]:
    """The columns of some attributes of a domain's items, as `Shaping.apply` takes them."""
    if not names:
        return {}
    columns = sorted({feature.column for feature in attributes.features}) if attributes is not None else []
    out = {}
    for name in names:
        if name not in columns:
            raise DataError(f"at_most: {did_you_mean(name, columns, 'attribute')}")
        at = [p for p, feature in enumerate(attributes.features) if feature.column == name]
        out[name] = attributes.of(domain)[:, at]
    return out
