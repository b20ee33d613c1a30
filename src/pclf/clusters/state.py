"""The words of EM: Params, Stats, Engine.

Shapes: U user rows, V item rows of a view, R rating levels, K user clusters, C item clusters of a view.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pclf.problem import Array, Problem


@dataclass(frozen=True)
class Params:
    """The paper's eleven parameter sets, for any number of domains, as joint probabilities.

    P(u, k) = P(k) P(u | k) and P(v, c) = P(c) P(v | c); the methods give the factors of the paper back.
    """

    users: Array               # (U, K)     P(u, k), or SpreadUsers
    items: tuple[Array, ...]   # (V, C)     P(v, c), a view
    tables: tuple[Array, ...]  # (R, K, C)  P(r | k, c), a view; sums to 1 over R

    def user_clusters(self) -> Array:
        """P(C_u) of eq. (Cu): (K,)."""
        return self.users.sum(0)

    def users_given_cluster(self) -> Array:
        """P(u | C_u) of eq. (uConCu): (U, K)."""
        return given_column(self.users)

    def item_clusters(self, view: int) -> Array:
        """P(C_v) of eqs. (Cvcom), (Cvspeone), (Cvspetwo): (C,)."""
        return self.items[view].sum(0)

    def items_given_cluster(self, view: int) -> Array:
        """P(v | C_v) of eqs. (vConCvcom), (vConCvspeone), (vConCvspetwo): (V, C)."""
        return given_column(self.items[view])


@dataclass(frozen=True)
class Stats:
    """Expected counts. Two parts of the data add up: stats(a) + stats(b) == stats(a and b)."""

    users: Array               # (U, K)     summed over views, each with its weight, or SpreadCounts
    items: tuple[Array, ...]   # (V, C)
    tables: tuple[Array, ...]  # (R, K, C)
    objective: float           # sum over ratings and views of weight * log(sum of joint**beta) / beta

    def __add__(self, other: "Stats") -> "Stats":
        return Stats(
            self.users + other.users,
            tuple(a + b for a, b in zip(self.items, other.items, strict=True)),
            tuple(a + b for a, b in zip(self.tables, other.tables, strict=True)),
            self.objective + other.objective,
        )


@dataclass(frozen=True)
class SpreadCounts:
    """Counts of users whose rows lie in blocks somewhere. What all blocks need to know of each other is here."""

    sums: NDArray[np.float64]  # (G, K)  a row for each group
    at: Any                    # where the blocks find their own counts


@dataclass
class SpreadUsers:
    """P(u, k) of such users, as a rule: what a block is to make of its own counts."""

    counts: SpreadCounts
    strength: float            # of the prior
    mean: NDArray[Any]         # (G, K)  and where it pulls to
    log_density: float = 0.0   # of the prior at P(u, k): known once the blocks have been asked for an E-step


class Engine(Protocol):
    """Computes the E-step somewhere: CPU, GPU, cluster.

    An engine does not draw random numbers, choose start values, normalise, smooth or decide when to stop.
    Those exist once, in clusters/, so no two engines can disagree about them.
    """

    name: str

    def place(self, problem: Problem) -> Any:
        """Move the ratings close to the compute, once."""

    def estep(self, data: Any, params: Params, beta: float) -> Stats:
        """Expected counts under the tempered posterior. The arrays are of the kind `put` returns."""

    def put(self, array: NDArray[Any]) -> Array:
        """An array of the engine's own kind and precision."""

    def get(self, array: Array) -> NDArray[Any]:
        """Back to NumPy."""


def given_column(joint: Array) -> Array:
    """P(row | column) from P(row, column); an empty column stays zero."""
    total = joint.sum(0)
    return joint / (total + (total == 0))
