"""Factors: what the baselines have in common. A fit ends in two matrices a domain, and predicts by them."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.door import check_array, check_keys, check_names
from pclf.errors import ArgumentError
from pclf.models.base import Floats

if TYPE_CHECKING:
    from pclf.models.base import Recommender as _Contract  # beside which this always stands
else:
    _Contract = object


class Factorised(_Contract):
    """What a model does that predicts in each domain by the factors it learned for that domain."""

    kept: ClassVar[tuple[str, ...]] = ("trace_",)   # what else is saved with the model, as JSON, by domain
    kinds: ClassVar[dict[str, Any]] = {"trace_": [float], "weights_": {str: float}}

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
        check_names("the model", [n for n in arrays if not n.startswith("codebook.")],
                    [f"{side}.{z}" for z in range(len(data.domains)) for side in ("users", "items")])
        self.factors_ = {}
        for z, (name, d) in enumerate(data.domains.items()):
            users = check_array(f"users.{z}", arrays[f"users.{z}"], dtype="float",
                                shape={"users": d.n_users, "D": None})
            items = check_array(f"items.{z}", arrays[f"items.{z}"], dtype="float",
                                shape={"items": d.n_items, "D": users.shape[1]})
            self.factors_[name] = users, items
        check_keys("the model", extra, {name: {str: self.kinds[name]} for name in self.kept})
        for name in self.kept:
            check_names(name, extra[name], data.domains)
            setattr(self, name, extra[name])


def check_at_least(low: float, **settings: float) -> None:
    for name, value in settings.items():
        if not isinstance(value, (int, float, np.number)) or not value >= low:
            raise ArgumentError(f"{name} must be at least {low}; got {value!r}.")


def check_whole(low: int, instead: str = "", /, **settings: Any) -> None:
    """instead: what else is allowed, "'auto' or "."""
    for name, value in settings.items():
        if not isinstance(value, (int, np.integer)):
            raise ArgumentError(f"{name} must be {instead}a whole number; got {value!r}.")
        if value < low:
            raise ArgumentError(f"{name} must be {instead}at least {low}; got {value}.")


def has_ratings(domain: Domain) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Who rated anything (users,), and what was rated by anyone (items,)."""
    return (np.bincount(domain.user, minlength=domain.n_users) > 0,
            np.bincount(domain.item, minlength=domain.n_items) > 0)
