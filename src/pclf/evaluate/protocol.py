"""The paper's protocol: which ratings are sampled, who is tested, and the numbers it printed.

From the Experiments of Ren & Gao: 500 users and 1000 items of each data set, users with more than 16 ratings
(EachMovie: 20; of Book-Crossing the paper says it of books); the first 300 users train, the last 200 keep 5, 10
or 15 of their ratings and are tested on the others; three pairs of domains; 10 repeats.

Where it is silent: the items are drawn first, among those that are rated, then the users, among those with
enough ratings of the drawn items; both in random order, so "the first 300" are random ones. Book-Crossing
comes as the 500 x 1000 sub-matrix of the literature: a repeat is a new order of its users. Its ten values are
halved, 1 + (x - 1) // 2; all errors are on 1 to 5. The ratings of a user get a random order once, and given N
keeps the first N of it: given 5 is a part of given 10. A sample depends on the data set and the repeat alone,
so that a single-domain system has the same error in both pairs, as in the paper's tables.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.data.splits import TEST, TRAIN, Split, random_places
from pclf.errors import DataError

PAIRS = {"BC-EM": ("BC", "EM"), "BC-ML": ("BC", "ML"), "ML-EM": ("ML", "EM")}
GIVENS = (5, 10, 15)
REPEATS = 10
CATALOGUE = {"BC": "book-crossing-500", "EM": "eachmovie", "ML": "ml-100k"}
MORE_THAN = {"BC": 16, "EM": 20, "ML": 16}   # ratings of a user among the sampled items
N_USERS, N_ITEMS, N_TRAIN_USERS, N_LEVELS = 500, 1000, 300, 5

_BC = {"NMF": (0.6575, 0.6375, 0.6301), "FMM": (0.6451, 0.6196, 0.6125)}
_EM = {"NMF": (0.9345, 0.8861, 0.8799), "FMM": (0.9132, 0.8831, 0.8771)}
_ML = {"NMF": (0.8365, 0.8016, 0.7933), "FMM": (0.8052, 0.7838, 0.7721)}

# Tables BCEM, BCML and MLEM: pair -> data set -> model -> MAE at given 5, 10, 15.
PAPER: dict[str, dict[str, dict[str, tuple[float, float, float]]]] = {
    "BC-EM": {"BC": {**_BC, "RMGM": (0.6378, 0.6115, 0.6092), "PCLF": (0.6252, 0.5994, 0.5969)},
              "EM": {**_EM, "RMGM": (0.9021, 0.8743, 0.8637), "PCLF": (0.8838, 0.8677, 0.8533)}},
    "BC-ML": {"BC": {**_BC, "RMGM": (0.6364, 0.6054, 0.5994), "PCLF": (0.6284, 0.5990, 0.5950)},
              "ML": {**_ML, "RMGM": (0.8039, 0.7769, 0.7692), "PCLF": (0.7922, 0.7729, 0.7653)}},
    "ML-EM": {"ML": {**_ML, "RMGM": (0.7985, 0.7736, 0.7677), "PCLF": (0.7878, 0.7724, 0.7639)},
              "EM": {**_EM, "RMGM": (0.9017, 0.8733, 0.8601), "PCLF": (0.8820, 0.8658, 0.8498)}},
}


def paper_mae(pair: str, dataset: str, model: str, given: int) -> float | None:
    """The paper's number, or None where it has none."""
    numbers = PAPER[pair][dataset].get(model)
    return numbers[GIVENS.index(given)] if numbers and given in GIVENS else None


@dataclass(frozen=True)
class Sample:
    """The ratings of one data set in one repeat, sorted by user and item, which are numbered as drawn."""

    dataset: str
    repeat: int
    user_ids: NDArray[Any]       # (500,)
    item_ids: NDArray[Any]       # (1000,)
    user: NDArray[np.int32]      # (n,) 0 to 499
    item: NDArray[np.int32]      # (n,) 0 to 999
    rating: NDArray[np.int8]     # (n,) 1 to 5
    rank: NDArray[np.int32]      # (n,) place in the random order of the user's ratings

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything: ids, ratings and their order."""
        ids = [self.user_ids.tolist(), self.item_ids.tolist()]
        seal = hashlib.sha256(json.dumps(ids, default=str).encode())
        for array in (self.user, self.item, self.rating, self.rank):
            seal.update(array.tobytes())
        return seal.hexdigest()

    def kept(self, given: int) -> NDArray[np.bool_]:
        """The training ratings: all of a training user, the first `given` of a test user.   (n,)"""
        return (self.user < N_TRAIN_USERS) | (self.rank < given)


def load(names: Iterable[str]) -> dict[str, Domain]:
    """The whole data sets, from the catalogue."""
    from pclf import datasets

    return {name: next(iter(datasets.load(CATALOGUE[name]).domains.values())) for name in names}


def sample(dataset: str, domain: Domain, repeat: int) -> Sample:
    """The 500 users and 1000 items of a repeat. The order of the file does not matter, only the ids."""
    user_ids, who = np.unique(domain.users.array()[domain.user], return_inverse=True)
    item_ids, what = np.unique(domain.items.array()[domain.item], return_inverse=True)
    rng = np.random.default_rng(repeat)
    items = rng.permutation(len(item_ids))[:N_ITEMS]
    drawn = np.isin(what, items)
    often = np.bincount(who[drawn], minlength=len(user_ids)) > MORE_THAN[dataset]
    users = rng.permutation(np.flatnonzero(often))[:N_USERS]
    if len(items) < N_ITEMS or len(users) < N_USERS:
        raise DataError(f"{CATALOGUE[dataset]}: the paper's protocol needs {N_USERS} users with more than "
                        f"{MORE_THAN[dataset]} ratings among {N_ITEMS} items; got {len(users)} users and "
                        f"{len(items)} items.")
    user, item = _places(users, len(user_ids))[who], _places(items, len(item_ids))[what]
    rating = 1 + domain.scale.to_levels(N_LEVELS)[domain.value]
    chosen = np.flatnonzero((user >= 0) & (item >= 0))
    chosen = chosen[np.lexsort((item[chosen], user[chosen]))]
    user, item, rating = user[chosen], item[chosen], rating[chosen]
    rank = random_places(user, rng).astype(np.int32)
    return Sample(dataset, repeat, user_ids[users], item_ids[items], user, item, rating.astype(np.int8), rank)


def split(samples: Mapping[str, Sample], given: int) -> Split:
    """The training and test ratings of one or several samples, as domains of these names."""
    ratings = Ratings.from_arrays({name: (s.user_ids[s.user], s.item_ids[s.item], s.rating)
                                   for name, s in samples.items()}, scale=(1, N_LEVELS), levels=N_LEVELS)
    parts = {name: np.where(s.kept(given), np.uint8(TRAIN), np.uint8(TEST)) for name, s in samples.items()}
    return Split.of(ratings, parts, {"kind": "paper", "given": given,
                                     "samples": {name: s.fingerprint for name, s in samples.items()}})


def recipe(samples: Iterable[Sample]) -> dict[str, Any]:
    """What freezes the splits: the rules, the seeds, and a fingerprint of every sample."""
    rules = {"users": N_USERS, "items": N_ITEMS, "training_users": N_TRAIN_USERS, "more_than": MORE_THAN,
             "data": CATALOGUE, "scale": [1, N_LEVELS]}
    return {"protocol": rules,
            "samples": [{"dataset": s.dataset, "repeat": s.repeat, "seed": s.repeat, "ratings": len(s.user),
                         "sha256": s.fingerprint} for s in samples]}


def check_recipe(frozen: Mapping[str, Any], samples: Iterable[Sample], where: str | Path) -> None:
    """An error where a sample is not the one that a recipe file froze. Samples it does not name are new."""
    known = {(row["dataset"], row["repeat"]): row["sha256"] for row in frozen["samples"]}
    for s in samples:
        if known.get((s.dataset, s.repeat), s.fingerprint) != s.fingerprint:
            raise DataError(f"the sample of {s.dataset} in repeat {s.repeat} is not the one frozen in {where}"
                            f": the data files or NumPy's random numbers changed. Use the data it was made "
                            f"from, or another output folder.")


def _places(chosen: NDArray[np.integer[Any]], n: int) -> NDArray[np.int32]:
    """Old number -> place among the chosen, -1 for the others.   (n,)"""
    places = np.full(n, -1, np.int32)
    places[chosen] = np.arange(len(chosen))
    return places
