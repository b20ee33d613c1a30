"""Who and what a model is asked about.

A person is found once: known in the domain, a visitor from another, or a guest.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.errors import ArgumentError, UnknownNameError, did_you_mean
from pclf.neighbours import Left

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Guest:
    """A user who was not in the training ratings, placed by `fold_in`."""

    model: int = field(repr=False)                                   # the mark of the fit that placed them
    ratings: Mapping[str, Mapping[Hashable, float]]                  # 1 for an event
    memberships: Mapping[str, tuple[Floats, ...]] = field(repr=False)   # (K,) a member, by domain
    rows: Mapping[str, Floats] = field(repr=False)                   # (D,) by domain
    name: Hashable = None                                            # an id to tell them from others, if they have one


@dataclass(frozen=True, eq=False)
class NewItem:
    """An item that was not in the training ratings, placed by `fold_in_item`."""

    model: int = field(repr=False)                                   # the mark of the fit that placed it
    domain: str
    memberships: tuple[dict[int, Floats], ...] = field(repr=False)   # view -> (C,), a member
    row: Floats | None = field(repr=False)                           # (D,)


@dataclass(frozen=True)
class Users:
    """Some users, as the parts of a model see them in a domain."""

    memberships: list[Floats]               # (n, K) a member of the clusters
    rows: Floats | None                     # (n, D) of the factors
    left: Left | None = None                # what rows leave of their ratings, for neighbours

    def __len__(self) -> int:
        return len(self.memberships[0])

    def __getitem__(self, some: slice) -> "Users":
        return self if len(self) == 1 else self.take(some)

    def take(self, places: Any) -> "Users":
        """Some of them, by their places."""
        return Users([p[places] for p in self.memberships], None if self.rows is None else self.rows[places],
                     None if self.left is None else self.left[places])


@dataclass(frozen=True)
class Items:
    """Some items of a domain, in the same way."""

    memberships: list[dict[int, Floats]]    # view -> (n, C), a member
    rows: Floats | None                     # (n, D)
    codes: Codes                            # (n,) -1 for new ones

    def __len__(self) -> int:
        return len(next(iter(self.memberships[0].values())))

    @classmethod
    def joined(cls, parts: list["Items"]) -> "Items":
        """One after the other."""
        memberships = [{i: np.concatenate([member[i] for member in members]) for i in members[0]}
                       for members in zip(*(part.memberships for part in parts), strict=True)]
        own = [part.rows for part in parts]
        return cls(memberships, None if own[0] is None else np.concatenate([x for x in own if x is not None]),
                   np.concatenate([part.codes for part in parts]))

    def take(self, places: Any) -> "Items":
        """Some of them, by their places."""
        return Items([{i: p[places] for i, p in member.items()} for member in self.memberships],
                     None if self.rows is None else self.rows[places], self.codes[places])

    def __getitem__(self, some: slice) -> "Items":
        return self if len(self) == 1 else self.take(some)


@dataclass(frozen=True)
class People:
    """Some people who are asked about in a domain."""

    domain: str
    ids: Sequence[Any]                      # ids and guests
    here: Codes                             # (n,) codes in the domain, -1 for visitors and guests
    homes: dict[str, Codes]                 # of visitors: codes in other domains, -1 where they are not known

    def __len__(self) -> int:
        return len(self.here)

    def __getitem__(self, some: slice) -> "People":
        return People(self.domain, self.ids[some], self.here[some], {name: c[some] for name, c in self.homes.items()})

    @property
    def visiting(self) -> NDArray[np.bool_]:
        """Who is known in another domain alone. (n,)"""
        known = np.zeros(len(self), bool)
        for codes in self.homes.values():
            known |= codes >= 0
        return known & (self.here < 0)

    def by_home(self) -> list[tuple[dict[str, Codes], NDArray[np.intp]]]:
        """Visitors by the domains in which they are known: their codes there, and their places among these people."""
        names = list(self.homes)
        if not names or not self.visiting.any():
            return []
        known = np.stack([self.homes[name] >= 0 for name in names])
        pattern = np.where(self.visiting, (known * (1 << np.arange(len(names)))[:, None]).sum(axis=0), 0)
        out = []
        for found in np.unique(pattern[pattern > 0]):
            at = np.flatnonzero(pattern == found)
            out.append(({name: self.homes[name][at] for i, name in enumerate(names) if found >> i & 1}, at))
        return out


def find(data: Ratings, domain: str, users: list[Any] | None, user_domain: str | None) -> People:
    """People of a domain, of others, and guests; everybody of the domain where `users` is None.

    An id is looked up in the domain, then in the others, or only in `user_domain` where that is given. Where people are
    not shared, an id that several other domains know may be several people, so it has to be said where.
    """
    if users is None:
        target = data[domain]
        return People(domain, target.users.ids, np.arange(target.n_users, dtype=np.int32), {})
    here, homes, lost = _located(data, domain, users, user_domain)
    if lost.any():
        raise_unknown(data, domain, users[int(lost.argmax())], user_domain)
    return People(domain, users, here, homes)


def known(data: Ratings, domain: str, users: list[Any], user_domain: str | None) -> NDArray[np.bool_]:
    """Whom `find` would find. (n,)"""
    return ~_located(data, domain, users, user_domain)[2]


def _located(data: Ratings, domain: str, users: list[Any],
             user_domain: str | None) -> tuple[Codes, dict[str, Codes], NDArray[np.bool_]]:
    """Codes of people in the domain and, of visitors, in others; and who is nowhere to be found. See `find`."""
    target = data[domain]
    if user_domain is not None:
        data[user_domain]                                            # which must be one, also where all are guests
    elsewhere = user_domain is not None and user_domain != domain
    names = [None if isinstance(user, Guest) or not hashable(user) else user for user in users]
    here = (np.full(len(users), -1, np.int32) if elsewhere and not data.shared_users else target.users.encode(names))
    wanted = [user_domain] if elsewhere and not data.shared_users else [name for name in data.domains if name != domain]
    guests = np.array([isinstance(user, Guest) for user in users], bool)
    left = (here < 0) & ~guests
    homes: dict[str, Codes] = {}
    if left.any():
        for name in wanted:
            codes = np.full(len(users), -1, np.int32)
            codes[left] = data[str(name)].users.encode([names[i] for i in np.flatnonzero(left)])
            if (codes >= 0).any():
                homes[str(name)] = codes
    lost = left.copy()
    if left.any():
        n_homes = np.sum([codes >= 0 for codes in homes.values()] or [np.zeros(len(users), int)], axis=0)
        lost &= (n_homes == 0) if data.shared_users else (n_homes != 1)
        if elsewhere and data.shared_users:                      # the person must be known where they are said to be
            lost |= left & (homes.get(str(user_domain), np.full(len(users), -1)) < 0)
    return here, homes, lost


def raise_unknown(data: Ratings, domain: str, user: Any, user_domain: str | None) -> None:
    """An error that says whom we know."""
    if user_domain is not None:
        data[user_domain].users.code(user, f"user in {user_domain!r}")
    homes = [name for name, d in data.domains.items() if name != domain and hashable(user) and user in d.users]
    if homes:
        raise UnknownNameError(f"user {user!r} is not in {domain!r} and is known in several other domains "
                               f"({', '.join(homes)}): say which with user_domain=...")
    known: dict[str, Domain] = {domain: data[domain], **data.domains}
    for name, d in known.items():
        if len(known) == 1 or not hashable(user) or d.users.written_alike(user) is not None:
            d.users.code(user, f"user in {name!r}")                        # says what was meant
    raise UnknownNameError(did_you_mean(user, (id for d in known.values() for id in d.users.ids), "user"))


def check_pairs(users: Any, items: Any) -> None:
    if len(users) != len(items) and 1 not in (len(users), len(items)):
        raise ArgumentError(f"users and items must be equally many, or one of either; got {len(users):,} users and "
                            f"{len(items):,} items.")


def hashable(user: Any) -> bool:
    return getattr(type(user), "__hash__", None) is not None
