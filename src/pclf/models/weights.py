"""How much each view says in a prediction, learned from ratings held out of training.

The views of a mixture are averaged, the common one with weight W (eq. Fr); the personal view is pooled with the
average on the log scale, with weight w:

    P(r | u, v)  is proportional to  personal ** w  *  (W common + (1 - W) specific) ** (1 - w)

Both weights of a domain are the best on a grid, by the log score of held-out ratings, each user counting the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Ratings
from pclf.models.base import Floats

COMMON = (0.0, 0.2, 0.35, 0.5, 0.7, 1.0)
PERSONAL = tuple(np.round(np.arange(1.0, 0.19, -0.05), 2).tolist())
FLOOR = 1e-4         # of a probability that is pooled
MOST = 40_000        # held-out ratings a domain that are looked at


@dataclass(frozen=True)
class Transfer:
    """What the common view does for a domain, on held-out ratings: `gain` is in nats a rating."""

    weight: float
    gain: float
    text: str

    def __str__(self) -> str:
        return self.text


def hold_out_of_each(data: Ratings, rng: np.random.Generator, fraction: float = 0.2) -> tuple[Ratings, Ratings]:
    """A share of every user's ratings, at least one where there are two. (training, held out)"""
    masks = {}
    for name, d in data.domains.items():
        count = np.bincount(d.user, minlength=d.n_users)
        order = np.lexsort((rng.random(len(d)), d.user))
        rank = np.empty(len(d), np.int64)
        rank[order] = np.arange(len(d)) - np.repeat(np.cumsum(count) - count, count)
        masks[name] = (rank < np.maximum(1, np.floor(fraction * count))[d.user]) & (count[d.user] > 1)
    return data.select({name: ~mask for name, mask in masks.items()}), data.select(masks)


def softmax(logits: Floats) -> Floats:
    """Probabilities of levels. (n, R)"""
    out = np.exp(logits - logits.max(axis=1, keepdims=True))
    return out / out.sum(axis=1, keepdims=True)


def pool(personal: Floats, mixture: Floats, weight: Floats | float) -> Floats:
    """Two distributions over levels, (n, R) each, pooled on the log scale; weight 0 leaves the mixture as it is."""
    weight = np.broadcast_to(weight, len(mixture))[:, None]
    logs = weight * np.log(np.maximum(personal, FLOOR)) + (1 - weight) * np.log(np.maximum(mixture, FLOOR))
    out = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.where(weight > 0, out / out.sum(axis=1, keepdims=True), mixture)


def learn(user: NDArray[np.int32], level: NDArray[np.uint8], common: Floats | None, specific: Floats,
          personal: Floats | None, common_weights: tuple[float, ...], personal_weights: tuple[float, ...],
          ) -> tuple[float, float, float]:
    """The best common and personal weights, and the gain over the best without the common view."""
    balance = 1.0 / np.bincount(user)[user]
    balance /= balance.sum()
    best: dict[float, tuple[float, float]] = {}
    for w_common in common_weights:
        mixture = specific if common is None else w_common * common + (1 - w_common) * specific
        for w in personal_weights if personal is not None else (0.0,):
            probability = mixture if personal is None else pool(personal, mixture, w)
            score = float(balance @ np.log(np.maximum(probability[np.arange(len(level)), level], 1e-9)))
            if w_common not in best or score > best[w_common][0]:
                best[w_common] = score, w
    chosen = max(best, key=lambda w_common: (best[w_common][0], -w_common))
    return chosen, best[chosen][1], best[chosen][0] - best.get(0.0, best[chosen])[0]
