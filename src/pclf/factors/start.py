"""Start: where an older fit of the factors ended, in the codes of the ratings that are learned now.

Rows, populations, regressions and base rates are taken from there, so that a few sweeps are enough. A row that is new
begins where it is expected. Choices are analysed anew, but axes come in no particular order and their signs are chance,
so they are brought into the order and the signs that they had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pclf.factors.choices import Choice
from pclf.factors.fitted import Factors
from pclf.factors.population import Population
from pclf.factors.rows import Floats

if TYPE_CHECKING:
    from pclf.factors.side import Side

Codes = NDArray[np.int32]
SWEEPS = 3           # that are enough from where an older fit ended


@dataclass(frozen=True)
class Start:
    """An older fit, and where its rows are now."""

    old: Factors
    users: Mapping[str, Codes]           # a domain: code now -> code then, -1 for who is new
    items: Mapping[str, Codes]
    lift: Mapping[str, Floats]           # (V,) a domain: what was added to the offsets of its items then
    features: NDArray[np.int64] | None = None        # feature of items now -> feature then, -1 for a new one
    sweeps: int = SWEEPS

    def only(self, name: str) -> "Start":
        """Of one domain, which was learned as if there were no other."""
        z = self.old.names.index(name)

        def alone(population: Population) -> Population:
            return Population((population.shapes[z],), (population.own[z],), {}, population.freedom)

        one = replace(self.old, domains={name: self.old.domains[name]}, people=alone(self.old.people),
                      things=alone(self.old.things), strange=self.old.strange[[z]])
        return replace(self, old=one)

    @property
    def size(self) -> int:
        """Factors of a row."""
        return int(next(iter(self.old.domains.values())).item_factors.shape[1])

    def resume(self, people: "Side", things: "Side") -> list[Floats]:
        """Both sides as they were, with rows that are new where they are expected. The base rates, a domain each."""
        people.population, things.population = self.old.people, self.old.things
        for z, own in enumerate(self.old.domains.values()):
            regression = things.attributes[z]
            if regression is not None and own.attribute_weights is not None:
                regression.weights = self._weights(own.attribute_weights)
            name = self.old.names[z]
            items = own.items.astype(np.float64)
            items[:, 0] -= self.lift[name]
            for side, rows, weights, codes in ((people, own.users, own.user_weights, self.users[name]),
                                               (things, items, own.item_weights, self.items[name])):
                side.expect(z, weights if len(weights) == side.about[z].shape[1] else side.guess[z])
                made = side.machine.get(side.mean[z]).copy()
                made[codes >= 0] = rows[codes[codes >= 0]]
                side.start(z, made)
            square = things.machine.get(things.square[z]).copy()
            known = self.items[name] >= 0
            square[known] = own.item_square[self.items[name][known]]
            things.square[z] = things.machine.put(square)
        return [own.base.copy() for own in self.old.domains.values()]

    def as_before(self, found: Choice, kind: str, names: Sequence[str], rows: Sequence[Codes],
                  counts: NDArray[Any]) -> Choice:
        """Choices on the axes of the older fit: in its order, with its signs.

        kind: "chosen" or "choosers". rows: code -> row of `found`, a domain each. counts: how often each row comes.
        """
        if any(getattr(self.old.domains[name], kind).places.shape[1] != found.places.shape[1] for name in names):
            return found                                   # so few were chosen that there were fewer axes
        then = np.zeros_like(found.places)
        for name, own_rows in zip(names, rows, strict=True):
            codes = (self.items if kind == "chosen" else self.users)[name]
            places = getattr(self.old.domains[name], kind).places
            then[own_rows[codes >= 0]] = places[codes[codes >= 0]]
        alike = then.T @ (counts[:, None] * found.places)                    # (Q then, Q now)
        _, order = linear_sum_assignment(-np.abs(alike))
        signs = np.where(alike[np.arange(len(order)), order] < 0, -1.0, 1.0)
        return replace(found, places=found.places[:, order] * signs, variance=found.variance[order])

    def _weights(self, then: Floats) -> Floats:
        """Weights of attributes; a feature that is new has none yet."""
        if self.features is None:
            return then.copy()
        out = np.zeros((len(self.features), then.shape[1]))
        out[self.features >= 0] = then[self.features[self.features >= 0]]
        return out
