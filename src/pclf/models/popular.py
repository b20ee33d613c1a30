"""Popular: everybody gets what most people chose. Lists that are no better than these know nobody's taste."""

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings
from pclf.models.base import Floats, Recommender, as_ratings, random_numbers


class _Ranker(Recommender):
    """A model that sorts items and predicts no ratings. It learns from ratings and from events."""

    rules: ClassVar[tuple[str, ...]] = ()

    def fit(self, data: Ratings | Mapping[str, Any], *, random_state: int | np.random.Generator | None = 0) -> Self:
        """Learn from ratings or events, or from a dict of data frames, one a domain."""
        ratings = as_ratings(data)
        self._fit(ratings, random_numbers(random_state))
        self._keep(ratings)
        return self

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None) -> NoReturn:
        """There is no rating to predict: this is an error."""
        self._check_fitted()
        raise TypeError(f"{type(self).__name__} sorts items and predicts no ratings. Use recommend, or a model of "
                        f"ratings such as PCLF or Bias.")

    def predict_codes(self, domain: str, users: NDArray[np.int32], items: NDArray[np.int32], *,
                      rule: str = "mean") -> NoReturn:
        """There is no rating to predict: this is an error."""
        self.predict(domain, users, items)

    def _on_scale(self, domain: str, scores: Floats) -> Floats:
        return scores              # they are on no scale


class Popular(_Ranker):
    """The items with the most ratings or events first, for everybody. A score is their number."""

    counts_: dict[str, NDArray[np.int64]]     # domain: (items,)

    def _fit(self, ratings: Ratings, rng: np.random.Generator) -> None:
        self.counts_ = {name: np.bincount(d.item, minlength=d.n_items) for name, d in ratings.domains.items()}

    def _scores(self, domain: str, codes: NDArray[np.int32]) -> Floats:
        return np.tile(self.counts_[domain].astype(np.float32), (len(codes), 1))

    def _scores_of(self, domain: str, users: list[Any], user_domain: str | None) -> Floats:
        for user in users:
            self._find_user(domain, user, user_domain)                         # an unknown one is an error
        return self._scores(domain, np.empty(len(users), np.int32))

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return {f"counts.{z}": counts for z, counts in enumerate(self.counts_.values())}, {}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        self.counts_ = {name: arrays[f"counts.{z}"] for z, name in enumerate(data.domains)}
