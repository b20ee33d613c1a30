"""Hyper: the settings of the factor model that are not learned from the data."""

from dataclasses import dataclass
from typing import Any

from pclf.door import at_least_0, check_keys, positive

LONGEST = 1000       # steps, axes and dimensions that a model from a file may have


@dataclass(frozen=True)
class Hyper:
    """Every constant of the factor model. The defaults were chosen on training ratings (docs/accuracy.md)."""

    shape: int = 4            # numbers of a shape, at most
    attribute_factors: int = 8          # axes that begin with attributes, where items have some
    attribute_start: float = 1.0        # variance of tastes for attributes to begin with
    sweeps: int = 12          # over users and items
    newton: int = 10          # steps that place a newcomer
    places: int = 12          # dimensions of the correspondence analysis of choices
    ridge: float = 150.0      # rows that speak against each weight of a regression
    taste: float = 0.7        # length of an item's factors before ratings say otherwise
    freedom: float = 4.0      # degrees of freedom of the users' shapes
    kin: float = 50.0         # rows that the other domains' covariance is worth, where domains are tied
    habit: float = 0.95       # correlation of a person's rows in two domains before common people say what it is
    sameness: float = 0.99    # the same for a thing that is sold in two domains
    draw: float = 0.5         # absences of an item are drawn by this power of its events

    @classmethod
    def from_description(cls, described: Any) -> "Hyper":
        """What `asdict` gave, from a file: of the kinds that the defaults have."""
        def few(value: Any) -> bool:
            """a whole number of at most 1000"""
            return value == 0 or (positive(value) and value <= LONGEST)

        def few_or_none(value: Any) -> bool:
            """a whole number of at most 1000, or null"""
            return value is None or few(value)

        kinds = {int: few, float: at_least_0, type(None): few_or_none}
        check_keys("hyper", described, {name: kinds[type(field.default)]
                                        for name, field in cls.__dataclass_fields__.items()})
        return cls(**described)
