"""Factors: what the baselines have in common. A fit ends in two matrices a domain, and predicts by them."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.models.base import Floats

if TYPE_CHECKING:
    from pclf.models.base import Recommender as _Contract  # beside which this always stands
else:
    _Contract = object


class Factorised(_Contract):
    """What a model does that predicts in each domain by the factors it learned for that domain."""

    kept: ClassVar[tuple[str, ...]] = ("trace_",)   # what else is saved with the model, as JSON

    factors_: dict[str, tuple[Floats, Floats]]      # domain: (users, D), (items, D)
    trace_: dict[str, list[float]]                  # domain: the objective after each pass

    def _factors(self, domain: str) -> tuple[Floats, Floats]:
        self._domain(domain)   # an unknown name is guessed there
        return self.factors_[domain]

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for z, (users, items) in enumerate(self.factors_.values()):
            arrays |= {f"users.{z}": users, f"items.{z}": items}
        return arrays, {name: getattr(self, name) for name in self.kept}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        self.factors_ = {name: (arrays[f"users.{z}"], arrays[f"items.{z}"])
                         for z, name in enumerate(data.domains)}
        for name in self.kept:
            setattr(self, name, extra[name])


def check_at_least(low: float, **settings: float) -> None:
    for name, value in settings.items():
        if not value >= low:
            raise ValueError(f"{name} must be at least {low}; got {value}.")


def check_whole(low: int, instead: str = "", /, **settings: Any) -> None:
    """instead: what else is allowed, "'auto' or "."""
    for name, value in settings.items():
        if not isinstance(value, (int, np.integer)):
            raise ValueError(f"{name} must be {instead}a whole number; got {value!r}.")
        if value < low:
            raise ValueError(f"{name} must be {instead}at least {low}; got {value}.")


def has_ratings(domain: Domain) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Who rated anything (users,), and what was rated by anyone (items,)."""
    return (np.bincount(domain.user, minlength=domain.n_users) > 0,
            np.bincount(domain.item, minlength=domain.n_items) > 0)
