"""Meeting: what the tastes of people say of the items that they chose, once rows are learned.

A rating is asked for because somebody chose something. How much better than others the choosers of an item meet it, how
much better somebody's choices are for them than they would seem if they were new, and how much a taste raises the odds
of a choice, are sums over people: those of some people and those of others add up.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.engines import Lists, Machine
from pclf.factors.fitted import FEW, company_of
from pclf.factors.rows import Floats
from pclf.factors.source import Counts, Source

MOST = 3.0           # appeal


class Items(NamedTuple):
    """The items of a domain, as people meet them."""

    rows: Floats         # (V, D)
    new: Floats          # (V, 1 + F) offset and factors, as if they were new
    n_shape: int
    n_attribute: int

    @property
    def factors(self) -> Floats:
        return self.rows[:, self.n_shape:]

    @property
    def better(self) -> Floats:
        """Offset and factors less what they would be if the items were new. (V, 1 + F)"""
        return np.column_stack([self.rows[:, 0], self.factors]) - self.new


def choices_of(source: Source, machine: Machine) -> tuple[Lists, Lists]:
    """Who chose what in a domain, by user and by item."""
    user, item = source.user[source.chosen], source.item[source.chosen]
    return machine.lists(user, item, np.zeros(len(user), np.uint8), source.n_users, source.n_items, 1, 0)


def meeting(by_user: Lists, by_item: Lists, users: Floats, tastes: Floats, items: Items,
            machine: Machine) -> list[Floats]:
    """Sums over people, of each item: their tastes, (V, F); over their choices: the tastes for what was chosen, the
    tastes, (F,), their squares, (F, F), how much better the chosen is, and how many there are.

    users: their rows. tastes: their factors less what everybody's are. (U, F)
    """
    n = by_user.n_chosen
    of_items = machine.get(by_item.sums(machine.put(tastes)))
    chosen = np.einsum("uf,uf->", tastes, machine.get(by_user.sums(machine.put(items.factors))))
    return [of_items, np.array([chosen]), n @ tastes, tastes.T @ (n[:, None] * tastes),
            np.array([better_choices(by_user, users, items, machine).sum()]), np.array([n.sum()])]


def better_choices(by_user: Lists, users: Floats, items: Items, machine: Machine) -> Floats:
    """How much better what each chose is for them than it would seem if it were new, in all. (U,)"""
    better = machine.get(by_user.sums(machine.put(items.better)))
    out: Floats = better[:, 0] + np.einsum("uf,uf->u", users[:, items.n_shape:], better[:, 1:])
    return out


@dataclass(frozen=True)
class Met:
    """See `DomainFactors`, which says what these are."""

    company: Floats          # (V,)
    appeal: Floats           # ()
    usual: float             # how much better a choice is, over all of them

    @classmethod
    def of(cls, sums: list[Floats], counts: Counts, items: Items) -> "Met":
        """From the sums over everybody, see `meeting`."""
        of_items, chosen, tastes, squares, picks, total = sums
        n, factors = max(1.0, float(total[0])), items.factors
        company = company_of(of_items, counts.chosen, factors, items.n_attribute)
        if total[0]:                                 # whoever rates something new, chose it
            company[counts.chosen == 0] = np.average(company, weights=counts.chosen)
        of_item = counts.chosen / n
        mean = float((tastes / n) @ (of_item @ factors))
        square = float(np.einsum("fg,fg->", squares / n, factors.T @ (of_item[:, None] * factors)))
        appeal = np.clip((float(chosen[0]) / n - mean) / max(square - mean**2, 1e-9), 0, MOST)
        return cls(company, np.array(appeal), float(picks[0]) / n)

    def gains(self, by_user: Lists, users: Floats, tastes: Floats, items: Items,
              machine: Machine) -> tuple[Floats, Floats]:
        """The gain and the picks of every user. (U,), (U,)"""
        factors, first = items.factors, items.n_attribute
        met = machine.get(by_user.sums(machine.put(np.column_stack([factors[:, first:], self.company]))))
        more = np.einsum("uf,uf->u", tastes[:, first:], met[:, :-1]) - met[:, -1]
        n: NDArray[np.floating] = by_user.n_chosen + FEW
        picks = better_choices(by_user, users, items, machine)
        return (more / n).astype(np.float32), ((picks + FEW * self.usual) / n).astype(np.float32)
