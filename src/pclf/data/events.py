"""Events: what people did, played or bought, without a word about what they thought of it.

A log holds no zeros, and from ratings that are all 1 there is nothing to learn. So a model is trained on the log and on
*absences*: for each event, items drawn at random that its user had nothing to do with, as ratings of 0. A prediction is
then the probability of an event among so many draws, and the order of items is that of their odds.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings

DRAWN = 10           # items an event
AT_RANDOM = f"{1 / (1 + DRAWN):.0%} at random"     # beside a probability of an event: what it would be of any item


def with_absences(data: Ratings, rng: np.random.Generator) -> Ratings:
    """The same data, with ratings of 0 in the domains of events."""
    domains = {}
    for name, d in data.domains.items():
        if d.events:
            user, item = absences(d.user, d.item, d.n_items, rng)
            value = np.concatenate([d.value, np.zeros(len(user), np.uint8)])
            d = replace(d, user=np.concatenate([d.user, user]), item=np.concatenate([d.item, item]), value=value,
                        time=None, weight=None)
        domains[name] = d
    return replace(data, domains=domains)


def absences(user: NDArray[np.int32], item: NDArray[np.int32], n_items: int, rng: np.random.Generator,
             share: NDArray[np.float64] | None = None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Users and items of absences, each pair once. What is drawn twice, or was done, is not drawn again, so who did
    much has fewer than DRAWN an event. share: how often each item is drawn; equally often without."""
    drawn = np.repeat(user.astype(np.int64), DRAWN) * n_items
    drawn += rng.integers(0, n_items, len(drawn)) if share is None else rng.choice(n_items, len(drawn), p=share)
    drawn.sort()                                     # five times as fast as NumPy's setdiff1d, which hashes
    drawn = drawn[np.diff(drawn, prepend=-1) > 0]
    done = np.sort(user.astype(np.int64) * n_items + item)
    pairs = drawn[done.take(np.searchsorted(done, drawn), mode="clip") != drawn] if len(done) else drawn
    return (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
