"""Who and what a fitted mixture is asked about: known users, strangers of other domains, guests; items old and new."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pclf.data.events import DRAWN, absences
from pclf.data.ratings import Ratings
from pclf.problem import Layout, Problem
from pclf.models.base import Floats, Recommender, as_list
from pclf.models.people import Guest, Items, Member, NewItem, Users
from pclf.models.personal import Personal

NO_RATINGS = np.empty(0, np.int32), np.empty(0, np.uint8)    # items and levels
Rated = Mapping[str, tuple[NDArray[np.int32], NDArray[np.uint8]]]    # by domain: items and levels


class _Lookup(Recommender):
    """Memberships, and rows of the personal views, of everybody and everything that may be asked about."""

    members_: tuple[Member, ...]
    layout_: Layout
    personal_: dict[str, Personal]
    user_prior: float
    item_prior: float

    def fold_in(self, ratings: Mapping[str, Mapping[Any, float] | Sequence[Hashable]]) -> Guest:
        """A new user, from ratings in any of the domains: {"movies": {"Alien": 5, "Heat": 2}}.

        In a domain of events, from what they did: {"movies": ["Alien", "Heat"]}. Finds the membership that EM would,
        with everything else kept. Without ratings: the population's.
        """
        self._check_fitted()
        if not isinstance(ratings, Mapping):
            raise ValueError(f"a guest's ratings must be given as {{domain: {{item: rating}}}}; got {ratings!r}.")
        told = {name: self._as_told(name, given, "item") for name, given in ratings.items()}
        rated = {name: self._codes_and_levels(name, given) for name, given in told.items()}
        names = list(self.data_.domains)
        if self.layout_.separate_users:          # clusters of different domains have nothing in common
            memberships = {name: self._memberships({z: rated[z] for z in rated if z == name}, name) for name in names}
        else:
            most = max(rated, key=lambda name: len(rated[name][0]), default=names[0])
            memberships = dict.fromkeys(names, self._memberships(rated, most))
        return Guest(self._mark, told, memberships, self._place(rated))

    def fold_in_item(self, domain: str, ratings: Mapping[Any, float] | Sequence[Hashable]) -> NewItem:
        """A new item of a domain, from the ratings its users gave it: {user: rating}; for events, from the users."""
        from pclf.engines.kernels import fold_in

        target, ratings = self._domain(domain), self._as_told(domain, ratings, "user")
        if not ratings:
            raise ValueError(f"a new item of {domain!r} needs at least one rating; got none.")
        users = np.array([target.users.code(user, f"user in {domain!r}") for user in ratings], np.int32)
        levels = self._to_levels(domain, ratings)
        if target.events:                        # those who would have been drawn for an item
            drawn = np.random.default_rng(0).integers(0, target.n_users, round(DRAWN * len(target) / target.n_items))
            absent = np.setdiff1d(drawn, users).astype(np.int32)
            users = np.concatenate([users, absent])
            levels = np.concatenate([levels, self._not_done(domain, len(absent))])
        rows = self._user_rows(domain)[users]
        out = []
        for member in self.members_:
            placed = {}
            for i, item_rows in self._views(domain):
                group = _group(self._groups[1][i], int(item_rows[0]) if len(item_rows) else 0)
                likelihood = np.einsum("nk,nkc->nc", member.users[rows], member.tables[i][levels])
                share = member.item_shares[i][group].astype(np.float64)
                placed[i] = fold_in(likelihood.astype(np.float64), np.ones(len(rows)), share, self.item_prior * share)
            out.append(placed)
        own = self.personal_[domain].place_item(users, levels) if domain in self.personal_ else None
        return NewItem(self._mark, domain, tuple(out), own)

    def _keep(self, ratings: Ratings) -> None:
        super()._keep(ratings)
        problem = Problem.of(ratings, self.layout_)
        self._groups = problem.user_groups, problem.item_groups
        self._people = dict(zip(ratings.domains, problem.user_rows, strict=True))
        self._view_rows = {
            name: [(i, problem.item_rows[i][view.domains.index(z)])
                   for i, view in enumerate(self.layout_.views) if z in view.domains]
            for z, name in enumerate(ratings.domains)
        }

    def _views(self, domain: str) -> list[tuple[int, NDArray[np.int32]]]:
        """The views of a domain, the common one first: their numbers, and where in them the domain's items are."""
        return self._view_rows[domain]

    def _user_rows(self, domain: str) -> NDArray[np.int32]:
        return self._people[domain]

    def _user_group(self, domain: str) -> int:
        rows = self._user_rows(domain)
        return _group(self._groups[0], int(rows[0]) if len(rows) else 0)

    def _known_users(self, domain: str, codes: NDArray[np.int32]) -> Users:
        rows = self._user_rows(domain)[codes]
        view = self.personal_.get(domain)
        memberships = [member.users[rows] for member in self.members_]
        if view is None:
            return Users(memberships, None, np.zeros(len(rows), bool))
        return Users(memberships, view.users[codes], view.rated[codes])

    def _known_items(self, domain: str, codes: NDArray[np.int32]) -> Items:
        view = self.personal_.get(domain)
        return Items([{i: member.items[i][rows[codes]] for i, rows in self._views(domain)}
                      for member in self.members_], view.items[codes] if view else None)

    def _users(self, domain: str, users: Any, user_domain: str | None) -> Users:
        """Users of any domain, and guests, as `domain` sees them."""
        wanted, home = as_list(users), user_domain or domain
        known = self._domain(home).users
        if (home == domain or not self.data_.shared_users) and not any(isinstance(user, Guest) for user in wanted):
            codes = known.encode(wanted)
            if (codes >= 0).all():
                return self._known_users(domain, codes) if home == domain else self._strangers(domain, home, codes)
        each = [self._one_user(domain, user, user_domain) for user in wanted]
        blank = self.personal_[domain].blank if domain in self.personal_ else None
        return Users(
            [np.stack([own[m] for own, *_ in each]) for m in range(len(self.members_))],
            None if blank is None else np.stack([blank if row is None else row for _, row, _ in each]),
            np.array([rated for *_, rated in each]),
        )

    def _strangers(self, domain: str, home: str, codes: NDArray[np.int32]) -> Users:
        """Users of another domain, of whom the clusters alone know something here: nothing, where these are apart."""
        rows, view = self._user_rows(home)[codes], self.personal_.get(domain)
        if self.layout_.separate_users:
            memberships = [np.tile(member.user_shares[self._user_group(domain)], (len(codes), 1))
                           for member in self.members_]
        else:
            memberships = [member.users[rows] for member in self.members_]
        blank = np.tile(view.blank, (len(codes), 1)) if view else None
        return Users(memberships, blank, np.zeros(len(codes), bool))

    def _one_user(self, domain: str, user: Any,
                  user_domain: str | None) -> tuple[tuple[Floats, ...], Floats | None, bool]:
        """Memberships, a member each, the row in the domain's personal view, and if they have ratings there."""
        if isinstance(user, Guest):
            if user.model != self._mark:
                raise ValueError("this guest was placed by another fit: call fold_in of this model again.")
            return user.memberships[domain], user.personal.get(domain), bool(user.ratings.get(domain))
        home, code = self._find_user(domain, user, user_domain)
        if home == domain:
            one = self._known_users(domain, np.array([code]))
            row = None if one.personal is None else one.personal[0]
            return tuple(p[0] for p in one.memberships), row, bool(one.rated[0])
        stranger = self._strangers(domain, home, np.array([code]))
        return tuple(p[0] for p in stranger.memberships), self._visitor(domain, user), False

    def _visitor(self, domain: str, user: Hashable) -> Floats | None:
        """The row in the domain's personal view of a person who rated in others alone."""
        if not self._people_are_shared or domain not in self.personal_:
            return None
        rows = {}
        for name, view in self.personal_.items():
            code = int(self.data_[name].users.encode([user])[0])
            if code >= 0 and view.rated[code]:
                rows[name] = view.users[code]
        return self.personal_[domain].place(*NO_RATINGS, self._beside(domain, rows)) if rows else None

    def _beside(self, domain: str, rows: Mapping[str, Floats]) -> Floats:
        """One person's rows in the other domains, 0 where there is none, as the domain's personal view reads them."""
        if not self._people_are_shared:
            return np.empty(0)
        blank = np.zeros(len(self.personal_[domain].blank))
        return np.concatenate([np.empty(0), *(rows.get(name, blank) for name in self.personal_ if name != domain)])

    @property
    def _people_are_shared(self) -> bool:
        return self.data_.shared_users and not self.layout_.separate_users

    @cached_property
    def _mark(self) -> int:
        """What tells one fit from another: clusters and factors have other meanings there."""
        mark = 0
        for array in [*(table for member in self.members_ for table in member.tables),
                      *(view.items for view in self.personal_.values())]:
            mark = crc32(np.ascontiguousarray(array).tobytes(), mark)
        return mark

    def _items(self, domain: str, items: Any) -> Items:
        if isinstance(items, list) and any(isinstance(item, NewItem) for item in items):
            return Items.joined([self._items(domain, item) for item in items])
        if isinstance(items, NewItem):
            if items.model != self._mark:
                raise ValueError("this new item was placed by another fit: call fold_in_item of this model again.")
            if items.domain != domain:
                raise ValueError(f"this new item belongs to {items.domain!r}; got domain {domain!r}.")
            return Items([{i: p[None, :] for i, p in member.items()} for member in items.memberships],
                         None if items.personal is None else items.personal[None, :])
        return self._known_items(domain, self._item_codes(self._domain(domain), as_list(items)))

    def _seen_by(self, domain: str, users: list[Any] | None, codes: NDArray[np.int32],
                 user_domain: str | None) -> tuple[Any, Any]:
        if not users or not any(isinstance(user, Guest) for user in users):
            return super()._seen_by(domain, users, codes, user_domain)
        own = [self._rated_by(domain, user) if isinstance(user, Guest)
               else super(_Lookup, self)._seen_by(domain, [user], codes[i:i + 1], user_domain)[1]
               for i, user in enumerate(users)]
        return np.concatenate([[0], np.cumsum([len(o) for o in own])]), np.concatenate(own).astype(np.int32)

    def _rated_by(self, domain: str, guest: Guest) -> NDArray[np.int32]:
        """Codes of the items that a guest rated: there or, where items are shared, elsewhere."""
        homes = guest.ratings if self.data_.shared_items else [domain]
        codes = self.data_[domain].items.encode([item for name in homes for item in guest.ratings.get(name, ())])
        return codes[codes >= 0]

    def _memberships(self, rated: Rated, home: str) -> tuple[Floats, ...]:
        """P(k | u) of a new user, by each member. Without ratings: that of the users of `home`."""
        from pclf.engines.kernels import fold_in

        out = []
        for member in self.members_:
            rows, counts = [np.empty((0, member.users.shape[1]))], [np.empty(0)]
            for name, (codes, levels) in rated.items():
                for i, item_rows in self._views(name):
                    items = member.items[i][item_rows[codes]]                                    # (n, C)
                    rows.append(np.einsum("nkc,nc->nk", member.tables[i][levels], items))
                    counts.append(np.full(len(codes), self.layout_.views[i].weight))
            share = member.user_shares[self._user_group(home)].astype(np.float64)
            out.append(fold_in(np.concatenate(rows), np.concatenate(counts), share, self.user_prior * share))
        return tuple(out)

    def _place(self, rated: Rated) -> dict[str, Floats]:
        """The rows of a new user in the personal views: where they rated, and where people are the same, elsewhere."""
        rows = {name: self.personal_[name].place(codes, levels, self._beside(name, {}))
                for name, (codes, levels) in rated.items() if name in self.personal_ and len(codes)}
        if not self._people_are_shared or not rows:
            return rows
        return {name: view.place(*rated.get(name, NO_RATINGS), self._beside(name, rows))
                for name, view in self.personal_.items()}

    def _as_told(self, domain: str, given: Mapping[Hashable, float] | Sequence[Hashable],
                 what: str) -> dict[Hashable, float]:
        """{item: rating}, or {user: rating} of an item; events may come as a list."""
        if isinstance(given, Mapping):
            return dict(given)
        if not self._domain(domain).events or isinstance(given, str) or not isinstance(given, Iterable):
            raise ValueError(f"{domain!r} must be given as {{{what}: rating}}; got {given!r}.")
        return dict.fromkeys(given, 1.0)

    def _codes_and_levels(self, domain: str,
                          given: dict[Hashable, float]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """What a new user said about items; among events, with the absences that training would have drawn."""
        target = self._domain(domain)
        codes, levels = self._item_codes(target, list(given)), self._to_levels(domain, given)
        if not target.events:
            return codes, levels
        _, absent = absences(np.zeros_like(codes), codes, target.n_items, np.random.default_rng(0))
        return np.concatenate([codes, absent]), np.concatenate([levels, self._not_done(domain, len(absent))])

    def _not_done(self, domain: str, n: int) -> NDArray[np.uint8]:
        """The level of n absences."""
        return np.full(n, self._domain(domain).scale.to_levels(self.data_.n_levels)[0])

    def _to_levels(self, domain: str, ratings: Mapping[Hashable, float]) -> NDArray[np.uint8]:
        """Levels of ratings by item, or by user."""
        scale = self.data_.domains[domain].scale
        places, off = scale.locate(np.array(list(ratings.values()), np.float64))
        for (name, rating), bad in zip(ratings.items(), off, strict=True):
            if bad:
                raise ValueError(f"the rating of {name!r} must be on the scale of {domain!r}, {scale}; got {rating!r}.")
        return scale.to_levels(self.data_.n_levels)[places]


def _group(groups: tuple[tuple[int, int], ...], row: int) -> int:
    return next((g for g, (start, stop) in enumerate(groups) if start <= row < stop), 0)
