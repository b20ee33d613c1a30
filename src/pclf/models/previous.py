"""Previous: what tonight's fit keeps of yesterday's.

Kept as they were decided: the weights of the parts, which bridges are used, how many factors there are, the settings of
the choices. Kept as where learning begins: memberships and tables of the clusters, rows and populations of the factors.
So nothing is tried again, and a few iterations are enough. Users, items and ratings may have come and gone.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pclf.clusters.fitted import Member
from pclf.clusters.loop import resumed
from pclf.clusters.state import Stats
from pclf.data.ratings import Ratings
from pclf.errors import ArgumentError
from pclf.factors.source import Ties
from pclf.factors.start import Start
from pclf.problem import Layout, Problem

if TYPE_CHECKING:
    from pclf.models.mixture import Mixture

ITERATIONS = 8       # of EM that are enough from where an older fit ended
Codes = NDArray[np.int32]


class Previous:
    """An older fit, as seen from the ratings of a new one."""

    def __init__(self, model: "Mixture", kind: type[Any], data: Ratings, layout: Layout) -> None:
        self.model, self.data = model, data
        self._check(kind, layout)
        self.transfer, self.choice = dict(model.transfer_), getattr(getattr(model, "lists_", None), "choice", None)
        # Of each domain, W1 and the weight of its factors, copied: the older fit may be the one that is updated.
        self.weights = {name: (views.get(0, 0.0), model.factor_weights_.get(name, 0.0))
                        for name, views in model.weights_.items()}
        self.neighbours = {name: (own.penalty, own.strength) for name, own in model.neighbours_.items()}
        then = model.data_
        self.users: dict[str, Codes] = {}            # a domain: code now -> code then, -1 for who is new
        self.items: dict[str, Codes] = {}
        for name, d in data.domains.items():
            self.users[name] = then[name].users.find(list(d.users.ids))
            self.items[name] = then[name].items.find(list(d.items.ids))

    def clusters(self, problem: Problem) -> list[Stats]:
        """Where EM begins, a restart each."""
        return [self._start(member, problem) for member in self.model.members_]

    def ties(self, name: str) -> Ties:
        """What tied a domain to others."""
        part, used = self.model.factors_[name], self.model.transfer_[name].bridges
        inside = part.domains[name].attribute_weights is not None
        people = used["people"].used if "people" in used else self.data.shared_users and part.same_choices
        things = used["things"].used if "things" in used else self.data.shared_items and part.same_choices
        attributes = used["attributes"].used if "attributes" in used else inside
        return Ties(people, things, attributes and inside, inside and not attributes)

    def factors(self, name: str) -> Start:
        """Where the factors of a domain, and of those it was learned with, begin."""
        part, then, now = self.model.factors_[name], self.model.data_, self.data
        lift = {}
        for other, own in part.domains.items():
            d = then[other]
            n = np.bincount(d.item[d.value >= own.least], minlength=d.n_items)
            lift[other] = own.lift[0] + own.lift[1] * np.log(np.maximum(n, 1))
        features = None
        if now.attributes is not None and then.attributes is not None:
            place = {feature: i for i, feature in enumerate(then.attributes.features)}
            features = np.array([place.get(feature, -1) for feature in now.attributes.features], np.int64)
        return Start(part, self.users, self.items, lift, features)

    @cached_property
    def _rows(self) -> Problem:
        return self.model.mixture_.problem

    def _start(self, member: Member, problem: Problem) -> Stats:
        """Memberships of those who are new are those of their population."""
        then, names = self._rows, list(self.data.domains)
        users = np.empty((problem.n_users, member.users.shape[1]))
        for g, (start, stop) in enumerate(problem.user_groups):
            users[start:stop] = member.user_shares[min(g, len(member.user_shares) - 1)]
        for z, name in enumerate(names):
            codes = self.users[name]
            users[problem.user_rows[z][codes >= 0]] = member.users[then.user_rows[z][codes[codes >= 0]]]
        items = []
        for i, view in enumerate(problem.layout.views):
            own = np.empty((problem.n_items[i], view.n_clusters))
            for g, (start, stop) in enumerate(problem.item_groups[i]):
                own[start:stop] = member.item_shares[i][min(g, len(member.item_shares[i]) - 1)]
            for z, now_rows, then_rows in zip(view.domains, problem.item_rows[i], then.item_rows[i], strict=True):
                codes = self.items[names[z]]
                own[now_rows[codes >= 0]] = member.items[i][then_rows[codes[codes >= 0]]]
            items.append(own)
        return resumed(problem, users, items, member.tables)

    def _check(self, kind: type[Any], layout: Layout) -> None:
        """Whether what was learned then means anything now."""
        if not isinstance(self.model, kind) or not hasattr(self.model, "data_"):
            raise ArgumentError(f"previous must be a fitted {kind.__name__}; got {type(self.model).__name__}"
                                f"{'' if hasattr(self.model, 'data_') else ', not fitted yet'}.")
        then, now = self.model.data_, self.data
        for what, of in (("domains", lambda data: list(data.domains)), ("levels", lambda data: data.n_levels),
                         ("scales", _scales), ("shared users", lambda data: data.shared_users),
                         ("shared items", lambda data: data.shared_items), ("columns of attributes", _columns)):
            a, b = of(then), of(now)
            if a != b:
                raise ArgumentError(f"previous must have the same {what} as the ratings; it has {a}, and these have "
                                    f"{b}. Fit from nothing.")
        if layout != self.model.layout_:
            raise ArgumentError("previous must have as many clusters as are asked for now. Fit from nothing.")


def _scales(data: Ratings) -> list[str]:
    return ["events" if d.events else str(d.scale) for d in data.domains.values()]


def _columns(data: Ratings) -> list[str]:
    return [] if data.attributes is None else [column.name for column in data.attributes.columns]
