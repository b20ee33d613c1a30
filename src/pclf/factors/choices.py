"""What people chose to rate, whatever they thought of it.

Who rates a horror film is more likely to like the next one, and a film that the fans of another rate is more likely
to be good in the same way. Correspondence analysis of the matrix "who rated what" (Benzecri 1973; Greenacre 1984)
gives every user and item a place, such that users are near the items they chose:

    (A - sum over domains z of r_z c_z' / n_z)  scaled by  1 / sqrt(r c / n)   =   X diag(s) Y'

where A is 1 where somebody rated something, r, c and n are its sums, and r_z, c_z, n_z those of one domain. Domains
that are tied by common people or things are analysed together. What is taken out is what chance would choose *within*
each of them: otherwise the first axes would tell the domains apart, and not the tastes.

Where a user stands is then the mean of the items chosen. Of five items that mean is mostly chance, of five hundred it
is not: with the variance of chosen items around their user set to 1 and that between users estimated (one-way
analysis of variance), the best linear guess is the mean times  variance * n / (variance * n + 1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.engines import Lists, Machine
from pclf.factors.rows import Floats, normals

SPARE = 8            # more of them while they are sought
PASSES = 6           # of subspace iteration
LEAST = 1e-6         # variance within choosers: there is none where groups of them have no item in common


@dataclass(frozen=True)
class Choice:
    """Where the chosen lie, and how much more choosers differ than chance makes them."""

    places: Floats       # (chosen, Q) uncorrelated within a chooser, of variance 1
    variance: Floats     # (Q,) between choosers, the largest first
    turn: Floats | None = None          # (Q, Q) to axes that mean the same in another domain, where some do

    def of_one(self, chosen: NDArray[np.int32]) -> Floats:
        """The best guess of where somebody stands who chose these. (Q,)"""
        return self.shrunk(self.places[chosen].sum(axis=0), np.float64(len(chosen)))

    def of_all(self, lists: Lists, machine: Machine) -> Floats:
        """The same for every row of lists of choices. (rows, Q)"""
        return self.shrunk(machine.get(lists.sums(machine.put(self.places))), lists.n_chosen[:, None])

    def shrunk(self, sums: Floats, n: Floats | float) -> Floats:
        """The best guess from the sum of n places."""
        out: Floats = sums * self.variance / (self.variance * n + 1)
        return out if self.turn is None else out @ self.turn


def learn_choices(by_user: Lists, by_item: Lists, of_domains: tuple[Floats, Floats], n_places: int, seed: int,
                  machine: Machine, keys: NDArray[np.uint64] | None = None) -> tuple[Choice, Choice]:
    """What users choose, and by whom items are chosen.

    by_user, by_item: lists of the machine that has them. of_domains: choices of each user, and of each item, by domain,
    (U, Z) and (V, Z). seed, keys: of the items, see `normals`.
    """
    users, items = _correspondence(by_user, by_item, of_domains, n_places, seed, machine, keys)
    return _choice(by_user, by_item.n_chosen, items, machine), _choice(by_item, by_user.n_chosen, users, machine)


def leading(forth: Callable[[Any], Any], back: Callable[[Any], Any], start: Any, n_passes: int,
            get: Callable[[Any], Any] = np.asarray, put: Callable[[Any], Any] = np.asarray) -> tuple[Any, Any]:
    """Orthonormal bases of about the leading left and right singular vectors of a matrix, by subspace iteration.

    forth, back: products with the matrix and with its transpose. start: random, as many columns as vectors. get, put:
    from where the products are computed to NumPy, and back.
    """
    right = start
    for _ in range(n_passes):
        left = orthonormal(forth(right), get, put)
        right = orthonormal(back(left), get, put)
    return left, right


def orthonormal(x: Any, get: Callable[[Any], Any] = np.asarray, put: Callable[[Any], Any] = np.asarray) -> Any:
    """A basis of the columns, which are few, by their inner products. Rounding spoils small ones the first time, so
    twice."""
    for _ in range(2):
        products = get(x.T @ x)
        x = x @ put(to_orthonormal(products).astype(products.dtype))
    return x


def to_orthonormal(products: Floats) -> Floats:
    """What turns columns with these inner products into orthonormal ones."""
    squares, axes = np.linalg.eigh(products.astype(np.float64))
    out: Floats = axes / np.sqrt(np.maximum(squares, 1e-12 * squares[-1] + 1e-30))
    return out


def _correspondence(by_user: Lists, by_item: Lists, of_domains: tuple[Floats, Floats], n_places: int,
                    seed: int, machine: Machine, keys: NDArray[np.uint64] | None) -> tuple[Floats, Floats]:
    """The places of users and of items. (U, Q), (V, Q)"""
    sides, get, put = (by_user, by_item), machine.get, machine.put
    sums = [side.n_chosen.astype(np.float64) for side in sides]
    n_users, n_items, total = len(sums[0]), len(sums[1]), max(1, int(sums[0].sum()))
    scale = [np.sqrt(np.maximum(s, 1) / total).astype(np.float32) for s in sums]
    domain_totals = np.maximum(of_domains[0].sum(axis=0), 1)                       # (Z,)
    chance = [put((counts / (root[:, None] * np.sqrt(total * domain_totals))).astype(np.float32))
              for counts, root in zip(of_domains, scale, strict=True)]       # singular vectors of what chance chooses
    scale = [put(root[:, None]) for root in scale]

    def product(own: int, other: int, x: Any) -> Any:
        scaled = sides[own].sums(x / scale[other]) / (scale[own] * total)
        return scaled - chance[own] @ (chance[other].T @ x)

    size = min(n_users, n_items, n_places + SPARE)
    start = put(normals(n_items, size, seed, keys).astype(np.float32))
    left, right = leading(lambda x: product(0, 1, x), lambda x: product(1, 0, x), start, PASSES, get, put)
    u, _, v = np.linalg.svd(get(left.T @ product(0, 1, right)))
    n = min(size, n_places)
    return get(left @ put(u[:, :n]) / scale[0]), get(right @ put(v[:n].T) / scale[1])


def _choice(lists: Lists, chosen: NDArray[Any], places: Floats, machine: Machine) -> Choice:
    """Places turned so that those chosen by one chooser are uncorrelated, and the variance between choosers.

    chosen: how often each of them was.
    """
    counts = lists.n_chosen
    n = int(counts.sum())
    places = places - chosen @ places / max(1, n)
    sums = machine.get(lists.sums(machine.put(places)))
    between = (sums / np.maximum(counts, 1)[:, None]).T @ sums
    of_counts = np.array([n, np.count_nonzero(counts), (counts.astype(np.float64) ** 2).sum()])
    whiten, turn, variance = whitening(places.T @ (chosen[:, None] * places), between, of_counts)
    places = places @ whiten @ turn
    return Choice(places * signs(chosen @ places**3), variance)


def whitening(squares: Floats, between: Floats, of_counts: Floats) -> tuple[Floats, Floats, Floats]:
    """What makes places uncorrelated within a chooser, what turns them to axes along which choosers differ most, and
    how much they do: (Q, Q), (Q, Q), (Q,).

    squares: of the places of all that was chosen, around their mean. between: of the means of choosers, each as often
    as the chooser chose. of_counts: choices, choosers, and the sum of squared choices of a chooser.
    """
    n, choosers, squared = of_counts
    within = (squares - between) / max(1, n - choosers)
    per_chooser = n - squared / max(1, n)
    between = (between - choosers * within) / max(1.0, per_chooser)
    spread, axes = np.linalg.eigh(within)
    whiten = (axes / np.sqrt(np.maximum(spread, LEAST))).T
    variance, turn = np.linalg.eigh(whiten @ between @ whiten.T)
    return whiten.T, turn[:, ::-1], np.maximum(variance[::-1], 0)


def signs(skew: Floats) -> Floats:
    """Which way axes point: without it their signs were chance, and differed between machines."""
    return np.where(skew < 0, -1, 1)
