"""Transfer: what a domain gains from the others, bridge by bridge, in numbers and in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pclf.data.domain import count
from pclf.data.ratings import Ratings
from pclf.door import finite, share
from pclf.factors.source import Ties

SMALL = 0.05         # percent: a smaller change of the error is none
BRIDGES = ("people", "things", "attributes")


@dataclass(frozen=True)
class Bridge:
    """What one bridge does to the error of a domain, on ratings held out of a trial."""

    kind: str            # people, things or attributes
    percent: float       # change of the mean absolute error for people who are known in the domain; negative is better
    used: bool
    text: str
    visitors: float | None = None        # the same for people who are known elsewhere alone, where there were some

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Transfer:
    """What the other domains do for one: by bridges, and by common clusters.

    `weight` is that of the common clusters, W1; `gain` by how much they lower the ranked probability score of a
    held-out rating, where that was measured.
    """

    weight: float
    gain: float | None
    text: str
    bridges: Mapping[str, Bridge] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.bridges.values()), self.text])

    def to_list(self) -> list[Any]:
        return [self.weight, self.gain, self.text,
                [[b.kind, b.percent, b.used, b.text, b.visitors] for b in self.bridges.values()]]

    @staticmethod
    def is_list(kept: Any) -> bool:
        """what a transfer is kept as: weight, gain, text, bridges"""
        def bridge(found: Any) -> bool:
            return (isinstance(found, list) and len(found) == 5 and found[0] in BRIDGES and finite(found[1])
                    and type(found[2]) is bool and type(found[3]) is str and (found[4] is None or finite(found[4])))

        return (isinstance(kept, list) and len(kept) == 4 and share(kept[0]) and (kept[1] is None or finite(kept[1]))
                and type(kept[2]) is str and isinstance(kept[3], list) and all(map(bridge, kept[3])))

    @classmethod
    def from_list(cls, kept: list[Any]) -> "Transfer":
        weight, gain, text, bridges = kept
        return cls(weight, gain, text, {b[0]: Bridge(*b) for b in bridges})


def ties_of(data: Ratings) -> Ties:
    """Which bridges there are: people or things that two domains have in common, and attributes."""
    several = len(data.domains) > 1
    people = several and data.shared_users and data.n_users < sum(d.n_users for d in data.domains.values())
    things = several and data.shared_items and data.n_items < sum(d.n_items for d in data.domains.values())
    return Ties(people, things, data.attributes is not None)


def single_bridges(ties: Ties) -> dict[str, Ties]:
    """Each bridge by itself."""
    return {kind: Ties(**{other: other == kind for other in BRIDGES}) for kind in BRIDGES if getattr(ties, kind)}


def bridge_text(kind: str, domain: str, data: Ratings, percent: float, visitors: float | None, used: bool) -> str:
    """What a bridge brought, for the owner of a shop. percent, visitors: see `Bridge`."""
    others = [name for name in data.domains if name != domain]
    if kind == "people":
        shared = _in_both(data, domain, "users")
        people, rate = ("person", "rates") if shared == 1 else ("people", "rate")
        number = f"{shared:,} " if len(data[domain].users) else ""           # those on disk are not counted here
        what = f"{number}{people} of {domain} also {rate} {_listed(others)}"
    elif kind == "things":
        shared = _in_both(data, domain, "items")
        what = f"{count(shared, 'item')} of {domain} {'is' if shared == 1 else 'are'} also in {_listed(others)}"
    else:
        assert data.attributes is not None
        columns = sorted({feature.column for feature in data.attributes.features})
        what = f"the items of {domain} have attributes ({_listed(columns)}"
        what += f"), as those of {_listed(others)} have" if others else ")"
    if not used:
        harm = f"it would raise the error of {domain} by {percent:.1f} %" if percent > 0 else \
            f"with it, held-out ratings of {domain} are met less well"
        return f"{kind}: {what}; that brings nothing, {harm}, so it is not used."
    if visitors is not None and visitors < -SMALL:
        return (f"{kind}: {what}; knowing that lowers the error of {domain} by {-visitors:.1f} % for visitors, who "
                f"never rated there; for people who did, it {_changes(percent)}.")
    if percent > -SMALL:
        return (f"{kind}: {what}; that brings nothing to people who are known in {domain}, and may help those who are "
                f"new.")
    return f"{kind}: {what}; knowing that lowers the error of {domain} by {-percent:.1f} %."


def _changes(percent: float) -> str:
    if abs(percent) < SMALL:
        return "does not change the error"
    return f"{'raises' if percent > 0 else 'lowers'} the error by {abs(percent):.1f} %"


def _in_both(data: Ratings, domain: str, side: str) -> int:
    mine = getattr(data[domain], side)
    theirs = [getattr(d, side) for name, d in data.domains.items() if name != domain]
    found = sum((other.encode(list(mine.ids)) >= 0 for other in theirs), start=0)
    return int((found > 0).sum()) if theirs else 0


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "no other domain"
