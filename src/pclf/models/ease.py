"""EASE: an item is wanted by those who liked what its admirers liked.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019: with X 1 where a user liked an item,

    score = X B,   B minimising  |X - X B|^2 + penalty |B|^2  with a diagonal of zeros:   B = I - P / diag(P)

where P = (X'X + penalty I)^-1. `pclf.choice.items` computes it. What differs from the paper: the penalty is found on
hidden choices unless it is given, items beyond the most chosen are tied to those alone, and who liked nothing gets the
items that most people liked.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.choice import Choice, Rows, learn
from pclf.choice.items import CORE
from pclf.choice.rows import Setting, as_rows, taken
from pclf.choice.validate import find_setting
from pclf.data.ratings import Domain, Ratings
from pclf.door import check_keys, check_names
from pclf.models.base import Floats, Recommender
from pclf.models.factors import check_at_least, check_whole
from pclf.models.people import People
from pclf.models.popular import Ranker


class EASE(Ranker, Recommender):
    """Linear item-item weights from liked items (ratings at least 70 % up the scale) or events, a domain alone."""

    choice_: Choice

    def __init__(self, penalty: float | None = None, *, n_core_items: int = CORE) -> None:
        self.penalty = penalty
        self.n_core_items = n_core_items

    def _fit(self, ratings: Ratings, rng: np.random.Generator) -> None:
        check_whole(1, n_core_items=self.n_core_items)
        if self.penalty is not None:
            check_at_least(1e-3, penalty=self.penalty)
        rows = [liked_rows(d) for d in ratings.domains.values()]
        settings = [find_setting(of_domain, rng, ease=True) if self.penalty is None else Setting.ease(self.penalty)
                    for of_domain in rows]
        self.choice_ = learn(rows, settings=settings, core=self.n_core_items)

    def _scores(self, people: People) -> Floats:
        target, codes = list(self.data_.domains).index(people.domain), people.here
        chosen = taken(self._rows[target], codes.clip(min=0))
        chosen.data[np.repeat(codes < 0, np.diff(chosen.indptr))] = 0.0
        chosen.eliminate_zeros()
        return self.choice_.scores(target, [chosen if z == target else None for z in range(len(self._rows))])

    @cached_property
    def _rows(self) -> list[Rows]:
        return [liked_rows(d) for d in self.data_.domains.values()]

    def _forget(self) -> None:
        super()._forget()
        self.__dict__.pop("_rows", None)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return self.choice_.to_arrays("choice"), {}

    def _set_state(self, data: Ratings, arrays: dict[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        check_names("the model", arrays, (), [name for name in arrays if name.startswith("choice.")])
        check_keys("the model", extra, {})
        self.choice_ = Choice.from_arrays("choice", arrays, [d.n_items for d in data.domains.values()], data.n_users)


def liked_rows(domain: Domain) -> Rows:
    """1 where a user liked an item.   (U, V)"""
    liked = domain.liked
    return as_rows(domain.user[liked], domain.item[liked], np.ones(int(liked.sum())), (domain.n_users, domain.n_items))
