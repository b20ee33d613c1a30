"""Events: what people did, played or bought, without a word about what they thought of it.

A log holds no zeros, and from ratings that are all 1 there is nothing to learn. So a model is trained on the log and on
*absences*: for each event, items drawn at random that its user had nothing to do with, as ratings of 0. A prediction is
then the probability of an event among so many draws, and the order of items is that of their odds.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from pclf.data.domain import Domain
from pclf.data.ratings import Ratings

DRAWN = 10           # items an event
AT_RANDOM = f"{1 / (1 + DRAWN):.0%} at random"     # beside a probability of an event: what it would be of any item
CLUSTERS = 0         # the seed of what clusters see, where it is drawn by id

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]


def with_absences(data: Ratings, rng: np.random.Generator, by_id: bool = False) -> Ratings:
    """The same data, with ratings of 0 in the domains of events. by_id: they are drawn by an `Urn`, and not by rng."""
    domains = {}
    for name, d in data.domains.items():
        if d.events:
            user, item = (Urn.of(d, CLUSTERS).absences(d.user, d.item, d.users.keys()) if by_id else
                          absences(d.user, d.item, d.n_items, rng))
            value = np.concatenate([d.value, np.zeros(len(user), np.uint8)])
            d = replace(d, user=np.concatenate([d.user, user]), item=np.concatenate([d.item, item]), value=value,
                        time=None, weight=None)
        domains[name] = d
    return replace(data, domains=domains)


def absences(user: NDArray[np.int32], item: NDArray[np.int32], n_items: int, rng: np.random.Generator,
             share: NDArray[np.float64] | None = None) -> Pairs:
    """Users and items of absences, each pair once. What is drawn twice, or was done, is not drawn again, so who did
    much has fewer than DRAWN an event. share: how often each item is drawn; equally often without."""
    drawn = np.repeat(user.astype(np.int64), DRAWN) * n_items
    drawn += rng.integers(0, n_items, len(drawn)) if share is None else rng.choice(n_items, len(drawn), p=share)
    return _new(drawn, user, item, n_items)


@dataclass(frozen=True)
class Urn:
    """Items of a domain, to draw absences from by a hash of ids. So it does not matter where people and items lie: a
    person has the same absences in memory and in any block."""

    order: NDArray[np.int64]        # (V,) items by the hash of their ids
    ends: NDArray[np.float64]       # (V,) how often they are drawn, added up in this order
    seed: np.uint64

    @classmethod
    def of(cls, domain: Domain, seed: int, weight: NDArray[np.floating] | None = None) -> "Urn":
        """weight: how often each item is drawn; equally often without. Domains draw each for itself."""
        order = np.argsort(domain.items.keys(), kind="stable")
        ends = np.cumsum(np.ones(len(order)) if weight is None else weight[order])
        name = sha256(domain.name.encode(errors="surrogatepass")).digest()[:8]
        return cls(order, ends, np.uint64(seed ^ int.from_bytes(name, "little")))

    def absences(self, user: NDArray[np.int32], item: NDArray[np.int32], keys: NDArray[np.uint64]) -> Pairs:
        """As the function of this name does. keys: hashes of the ids of all users."""
        from pclf.engines.kernels import draw

        n_items, n = len(self.order), np.bincount(user, minlength=len(keys)) * DRAWN
        drawn = np.empty(int(n.sum()), np.int64)
        draw(keys, n, self.seed, self.order, self.ends, drawn)
        return _new(drawn, user, item, n_items)


def _new(drawn: NDArray[np.int64], user: NDArray[np.int32], item: NDArray[np.int32], n_items: int) -> Pairs:
    """Pairs that were drawn, each a user times n_items and an item: each once, without what was done."""
    drawn.sort()                                     # five times as fast as NumPy's setdiff1d, which hashes
    drawn = drawn[np.diff(drawn, prepend=-1) > 0]
    done = np.sort(user.astype(np.int64) * n_items + item)
    pairs = drawn[done.take(np.searchsorted(done, drawn), mode="clip") != drawn] if len(done) else drawn
    return (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
