"""Lists of a few people, as examples: what somebody liked, what they are offered, and why the first."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pclf.data.events import AT_RANDOM
from pclf.data.ratings import Domain
from pclf.serving.lists import Recommendation

if TYPE_CHECKING:
    from pclf.models.mixture import Mixture

SHOWN = 5        # items of a list
LIKED = 3        # things that somebody liked


@dataclass(frozen=True)
class Example:
    """The list of one person in one domain."""

    domain: str
    who: str
    liked: list[str]                                # titles, the best rated first
    items: list[tuple[str, list[str]]]              # title, numbers
    numbers: list[str]                              # what the numbers are
    why: list[str]                                  # sentences about the first item


def examples(model: "Mixture") -> list[Example]:
    """For each domain the list of somebody who is known there and, where there are others, of a visitor."""
    found = (_example(model, name, home) for name in model.data_.domains for home in _homes(model, name))
    return [example for example in found if example]


def _homes(model: "Mixture", name: str) -> list[str]:
    """The domain itself, and the largest of those that it has something in common with."""
    data, part = model.data_, model.factors_.get(name)
    tied = part is not None and (part.same_choices or part.n_attribute > 0)
    others = [other for other in data.domains if other != name] if data.shared_users or tied else []
    return [name, *sorted(others, key=lambda other: -len(data[other]))[:1]]


def _example(model: "Mixture", name: str, home: str) -> Example | None:
    target, known = model.data_[name], model.data_[home]
    counts = np.bincount(known.user, minlength=known.n_users)
    if home != name:                                     # a visitor is new here
        here = target.users.encode(list(known.users.ids)) >= 0
        counts = np.where(here & model.data_.shared_users, 0, counts)
    if not counts.any():
        return None
    code = int(counts.argmax())
    person = known.users.decode([code])[0]
    found = model.recommend(name, [person], SHOWN, user_domain=home)[0]
    if not found:
        return None
    numbers = _numbers(target, found)
    rows = [[values[i] for values in numbers.values()] for i in range(len(found))]
    who = f"{person}" if home == name else f"{person}, a visitor from {home}"
    why = str(model.explain(name, person, found[0].item, user_domain=home)).splitlines()[1:3]
    return Example(name, who, _liked(known, code), [(r.title, row) for r, row in zip(found, rows, strict=True)],
                   list(numbers), why)


def _numbers(target: Domain, found: list[Recommendation]) -> dict[str, list[str]]:
    """What is known about the items of a list, by what it is called."""
    if found[0].chosen is not None:
        rated = {} if target.events else {"rating": [f"{r.rating:.2f}" for r in found]}
        return {**rated, "liked": [_percent(r.liked) for r in found], "chosen": [_percent(r.chosen) for r in found]}
    if target.events:
        return {f"probability ({AT_RANDOM})": [_percent(r.score) for r in found]}
    return {"rating": [f"{r.score:.2f}" for r in found]}


def _liked(d: Domain, user: int) -> list[str]:
    """What somebody rated best."""
    own = np.flatnonzero(d.user == user)
    best = own[np.argsort(-d.ratings[own], kind="stable")][:LIKED]
    return [d.title(int(d.item[j])) for j in best]


def _percent(share: Any) -> str:
    return f"{100 * float(share):.2g}\u00a0%"
