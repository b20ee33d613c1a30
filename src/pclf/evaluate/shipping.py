"""Shipping: is tonight's model better than the one in use, on ratings that neither has seen?

Both answer the same questions, and each person counts once: the difference of their mean errors, and of their lists,
with its interval. Who, or what, a model does not know is a newcomer to it, which is where a fresher model should gain.
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf.data.ratings import Domain, Ratings
from pclf.errors import DataError
from pclf.evaluate.metrics import ndcg_of_each
from pclf.evaluate.significance import Effect, effect, mean_by
from pclf.models import RANKERS
from pclf.models.base import Recommender
from pclf.models.people import known
from pclf.tables import Framed, Table

PLACES = 10                   # of the lists that are looked at
TOLERATED = 0.1               # percent: a smaller loss is none
LOWER = ("mean absolute error", "mean squared error")        # is better; the others are better the higher


class Difference(NamedTuple):
    """What two models measure in a domain, and the change from the old to the new."""

    domain: str
    metric: str
    old: float
    new: float
    change: Effect
    people: int

    @property
    def gain(self) -> tuple[float, float, float]:
        """By how many percent the new one is better, and the interval."""
        percent, low, high = self.change[:3]
        return (-percent, -high, -low) if self.metric in LOWER else (percent, low, high)


@dataclass(frozen=True)
class Shipping(Framed):
    """What `compare_models` found."""

    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> str:
        worse = [d for d in self.differences if d.gain[2] < -TOLERATED]
        better = [d for d in self.differences if d.gain[1] > 0]
        if worse:
            return f"Keep the old model: the new one is surely worse ({_listed(worse)})."
        if better:
            return f"Ship the new model: it is surely better ({_listed(better)}), and nowhere surely worse."
        return "Ship the new model if you want what is new in it: no difference is sure."

    @property
    def ship(self) -> bool:
        """Whether nothing speaks against the new model."""
        return not self.verdict.startswith("Keep")

    def to_dict(self) -> dict[str, Any]:
        return {"ship": self.ship, "verdict": self.verdict, "differences": self.to_arrow().to_pylist()}

    def to_arrow(self) -> Any:
        """A pyarrow table, a row a difference."""
        import pyarrow as pa

        return pa.Table.from_pylist([{**d._asdict(), **{f"change_{name}": value for name, value
                                                        in d.change._asdict().items()}, "change": d.change.percent}
                                     for d in self.differences])

    def __repr__(self) -> str:
        rows = [[d.domain, d.metric, f"{d.old:.4f}", f"{d.new:.4f}", *_in_percent(d.change), f"{d.people:,}"]
                for d in self.differences]
        table = Table(["domain", "what", "old", "new", "change", "95 % interval", "people"], rows).markdown()
        return f"{table}\n\n{self.verdict}"

    _repr_markdown_ = __repr__


def compare_models(old: Recommender, new: Recommender, test: Ratings) -> Shipping:
    """Two fitted models on ratings, or events, of domains that both have, which neither has seen."""
    found: list[Difference] = []
    for name, d in test.domains.items():
        for model in (old, new):
            _check_unseen(model, d)
        if not d.events and not any(type(model).__name__ in RANKERS for model in (old, new)):
            errors = [_predicted(model, d) - d.ratings for model in (old, new)]
            found += [_difference(name, metric, measured(errors[0]), measured(errors[1]), d.user)
                      for metric, measured in zip(LOWER, (np.abs, np.square), strict=True)]
        lists = _lists(old, new, d)
        if lists is not None:
            found.append(_difference(name, f"nDCG@{PLACES} of lists", *lists, np.arange(len(lists[0]))))
    if not found:
        raise DataError("there must be something to compare the models on: ratings of people, or what known people "
                        "liked; got neither.")
    return Shipping(tuple(found))


def _difference(domain: str, metric: str, old: NDArray[Any], new: NDArray[Any], user: NDArray[Any]) -> Difference:
    before, now = (float(mean_by(user, values).mean()) for values in (old, new))
    return Difference(domain, metric, before, now, effect(new, old, user, np.zeros(len(user))), len(np.unique(user)))


def _predicted(model: Recommender, d: Domain) -> NDArray[np.float64]:
    users, items = d.users.decode(d.user), d.items.decode(d.item)
    with warnings.catch_warnings():                      # how many are not known is no news here
        warnings.simplefilter("ignore", UserWarning)
        return np.asarray(model.predict(d.name, users, items, unknown="newcomer"), np.float64)


def _lists(old: Recommender, new: Recommender, d: Domain) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """nDCG of the lists of everybody who liked something and whom both models know. None where there is nobody."""
    ids = list(d.users.ids)
    fans = np.bincount(d.user[d.liked], minlength=d.n_users) > 0
    for model in (old, new):
        fans &= known(model.data_, d.name, ids, None)
    people = np.flatnonzero(fans)
    if len(people) < 2:
        return None
    row = np.full(d.n_users, -1)
    row[people] = np.arange(len(people))
    wanted = d.liked & (row[d.user] >= 0)
    out = []
    for model in (old, new):
        lists = model.recommend(d.name, [ids[i] for i in people], n=PLACES)
        code = np.append(d.items.find(list(lists.domain.items.ids)), -1)      # of an item of the model, in the test
        codes = np.where(code[lists.codes] >= 0, code[lists.codes], d.n_items + lists.codes)
        out.append(ndcg_of_each(PLACES, np.where(lists.codes >= 0, codes, -1), row[d.user[wanted]], d.item[wanted]))
    return out[0], out[1]


def _check_unseen(model: Recommender, d: Domain) -> None:
    """A model that was fitted to the test ratings would win."""
    there = model.data_[d.name]
    users, items = there.users.find(list(d.users.ids)), there.items.find(list(d.items.ids))
    pair = there.user.astype(np.int64) * max(1, there.n_items) + there.item
    asked = users[d.user].astype(np.int64) * max(1, there.n_items) + items[d.item]
    seen = np.isin(asked, pair) & (users[d.user] >= 0) & (items[d.item] >= 0)
    if seen.any():
        warnings.warn(f"{int(seen.sum()):,} of {len(d):,} test ratings of {d.name!r} were in the training of "
                      f"{type(model).__name__}: what follows is too good for it.", UserWarning, stacklevel=3)


def _in_percent(change: Effect) -> tuple[str, str]:
    """The change and its interval; nothing where there was nothing to change."""
    return ("", "") if np.isnan(change.percent) else (f"{change.percent:+.2f} %",
                                                      f"{change.low:+.2f} to {change.high:+.2f} %")


def _listed(differences: list[Difference]) -> str:
    return "; ".join(f"{d.metric} of {d.domain} {d.change.percent:+.2f} %" for d in differences)
