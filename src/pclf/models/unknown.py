"""Unknown: what a batch does about ids that the model has never seen, so that one of them does not stop a night's job.

    error        the first one is an error, which says what may have been meant
    skip         lists leave them out; predictions of such pairs are NaN, so that they stay in their places
    newcomer     a user is like anybody, and an item like any other

How many there were is said in one warning.
"""

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pclf.errors import UnknownNameError, brief, did_you_mean
from pclf.models.people import NewItem, check_pairs

if TYPE_CHECKING:
    from pclf.models.base import Recommender

Unknown = Literal["error", "skip", "newcomer"]
WORDS = ("error", "skip", "newcomer")


def check(unknown: str) -> None:
    if unknown not in WORDS:
        raise UnknownNameError(did_you_mean(unknown, WORDS, "way with unknown ids"))


def admitted(model: "Recommender", domain: str, users: list[Any], user_domain: str | None, unknown: str) -> list[Any]:
    """The users of a batch of lists: without those who are not known, or with newcomers in their places."""
    check(unknown)
    if unknown == "error":
        return users
    here = model._is_known(domain, users, user_domain)
    if here.all():
        return users
    done = "left out" if unknown == "skip" else "taken for newcomers"
    _say(f"{_count(here, 'user')} not known and {done}: {_first(users, here)}.")
    if unknown == "skip":
        return [user for user, there in zip(users, here, strict=True) if there]
    return _newcomers(model, users, here)


def pairs(model: "Recommender", domain: str, users: list[Any], items: list[Any], user_domain: str | None,
          unknown: str) -> tuple[list[Any], list[Any], NDArray[np.bool_] | None]:
    """Users and items of a batch of pairs; under "skip", those of the pairs that can be answered, and which these are.

    One against many is repeated where pairs are left out.
    """
    check(unknown)
    check_pairs(users, items)
    if unknown == "error":
        return users, items, None
    of_users = model._is_known(domain, users, user_domain)
    new = np.array([isinstance(item, NewItem) for item in items], bool)
    of_items = (model._domain(domain).find_items([None if made else item for item, made
                                                  in zip(items, new, strict=True)]) >= 0) | new
    if of_users.all() and of_items.all():
        return users, items, None
    done = "predicted as NaN" if unknown == "skip" else "taken for newcomers"
    found = [f"{_count(here, what)} not known: {_first(ids, here)}" for ids, here, what
             in ((users, of_users, "user"), (items, of_items, "item")) if not here.all()]
    _say(f"{'; '.join(found)}. They are {done}.")
    if unknown == "newcomer":
        made = [item if there else model._new_item(domain) for item, there in zip(items, of_items, strict=True)]
        return _newcomers(model, users, of_users), made, None
    n = max(len(users), len(items)) if users and items else 0
    kept = np.broadcast_to(of_users, n) & np.broadcast_to(of_items, n)
    at = np.flatnonzero(kept)
    return ([users[i % len(users)] for i in at], [items[i % len(items)] for i in at], kept)


def in_their_places(values: NDArray[Any], kept: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Answers for some of the pairs among all, NaN for the others."""
    if kept is None:
        return values
    out = np.full((len(kept), *values.shape[1:]), np.nan)
    out[kept] = values
    return out


def _newcomers(model: "Recommender", users: list[Any], here: NDArray[np.bool_]) -> list[Any]:
    return [user if there else model._newcomer(user) for user, there in zip(users, here, strict=True)]


def _count(here: NDArray[np.bool_], what: str) -> str:
    n, total = int((~here).sum()), len(here)
    return f"{n:,} of {total:,} {what}{'' if total == 1 else 's'} {'is' if n == 1 else 'are'}"


def _first(ids: list[Any], here: NDArray[np.bool_]) -> str:
    return f"the first is {brief(ids[int((~here).argmax())])}"


def _say(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)
