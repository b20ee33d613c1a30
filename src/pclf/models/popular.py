"""Popular: everybody gets what most people chose. Lists that are no better than these know nobody's taste."""

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings
from pclf.door import check_array, check_keys, check_names
from pclf.errors import ArgumentError
from pclf.models.base import Floats, Recommender, as_ratings, random_numbers
from pclf.models.people import People
from pclf.models.unknown import Unknown

if TYPE_CHECKING:
    from pclf.models.base import Recommender as _Contract  # beside which this always stands
else:
    _Contract = object


class Ranker(_Contract):
    """What a model does that sorts items and predicts no ratings. It learns from ratings and from events."""

    rules: ClassVar[tuple[str, ...]] = ()

    def fit(self, data: Any, *, random_state: int | np.random.Generator | None = 0) -> Self:
        """Learn from ratings or events, or from a dict of data frames, one a domain."""
        ratings = as_ratings(data)
        self._fit(ratings, random_numbers(random_state))
        self._keep(ratings)
        return self

    def predict(self, domain: str, users: Any, items: Any, *, rule: str = "mean",
                user_domain: str | None = None, unknown: Unknown = "error") -> NoReturn:
        """There is no rating to predict: this is an error."""
        self._check_fitted()
        raise ArgumentError(f"{type(self).__name__} sorts items and predicts no ratings. Use recommend, or a model of "
                            f"ratings such as PCLF or Bias.")

    def predict_codes(self, domain: str, users: NDArray[np.int32], items: NDArray[np.int32], *,
                      rule: str = "mean") -> NoReturn:
        """There is no rating to predict: this is an error."""
        self.predict(domain, users, items)

    def _on_scale(self, domain: str, scores: Floats) -> Floats:
        return scores              # they are on no scale


class Popular(Ranker, Recommender):
    """The items with the most ratings or events first, for everybody. A score is their number."""

    counts_: dict[str, NDArray[np.int64]]     # domain: (items,)

    def _fit(self, ratings: Ratings, rng: np.random.Generator) -> None:
        self.counts_ = {name: np.bincount(d.item, minlength=d.n_items) for name, d in ratings.domains.items()}

    def _scores(self, people: People) -> Floats:
        return np.tile(self.counts_[people.domain].astype(np.float32), (len(people), 1))

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return {f"counts.{z}": counts for z, counts in enumerate(self.counts_.values())}, {}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        check_names("the model", arrays, [f"counts.{z}" for z in range(len(data.domains))])
        check_keys("the model", extra, {})
        self.counts_ = {name: check_array(f"counts.{z}", arrays[f"counts.{z}"], dtype="int64", low=0,
                                          shape={"items": d.n_items})
                        for z, (name, d) in enumerate(data.domains.items())}
