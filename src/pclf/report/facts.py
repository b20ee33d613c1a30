"""What a fitted mixture has to say, in numbers: the material of plots and pages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.events import with_absences
from pclf.data.ratings import Ratings
from pclf.evaluate import metrics
from pclf.models.base import Floats
from pclf.models.insight import user_shares as user_shares

if TYPE_CHECKING:
    from pclf.models.mixture import Mixture

EMPTY = 0.001         # a cluster with less of the ratings than this is not worth a row
LITTLE = 0.05         # of a prediction: a part with less is not worth a section
SAMPLE = 100_000      # ratings of a domain that are predicted for a figure
Order = NDArray[np.integer[Any]]
WORD = re.compile(r"[^\W\d_]{3,}")
# Words so common in titles that they tell nothing, however uneven chance spreads them.
STOP_WORDS = frozenset(WORD.findall("""
    about after again all and any are before book books but can das dem den der des did die does edition ein
    eine film for from had has have her his how into its les los movie not novel one our out over part series
    she story the their them they this trilogy und une vol volume was were what when where who why will with
    you your"""))


@dataclass(frozen=True)
class Checked:
    """Ratings of a domain beside what the model says of them."""

    domain: str
    held_out: bool                 # or ratings that the model was fitted to
    n_ratings: int                 # there were; of many, a sample was predicted
    truth: Floats                  # (n,)    own scale
    prediction: Floats             # (n,)    own scale
    levels: NDArray[np.integer[Any]]   # (n,)   places on the scale
    proba: Floats                  # (n, R)

    @property
    def error(self) -> float:
        """Mean absolute error."""
        return metrics.mae(self.truth, self.prediction)

    @property
    def squared(self) -> float:
        """Root of the mean squared error."""
        return metrics.rmse(self.truth, self.prediction)

    @property
    def covered(self) -> float:
        """How often the central 80 % interval holds the rating."""
        return metrics.coverage(self.proba, self.levels)

    @property
    def miscalibration(self) -> float:
        """Mean distance between claimed probabilities and how often they come true."""
        return metrics.ece(self.proba, self.levels)


def word(data: Ratings) -> str:
    """What the data are: "event", or "rating" where there are any."""
    return "event" if data.events else "rating"


def decimals(model: "Mixture", domain: str) -> int:
    """How many a mean rating of a domain deserves."""
    span = np.ptp(model.data_.domains[domain].scale.values)
    return 0 if span > 20 else 1 if span >= 2 else 2


def check(model: "Mixture", domain: str, test: Ratings | None = None) -> Checked:
    """Predict ratings whose truth is known: those of `test`, else those of the fit. At most `SAMPLE` of them.

    Users and items are matched by id; test ratings of unknown ones are left out.
    """
    own, source = model._domain(domain), (model.data_ if test is None else test)
    given = with_absences(source.only(domain), np.random.default_rng(0))[domain]
    users, items = given.user, given.item
    if given.users is not own.users:
        users = own.users.encode(given.users.ids)[users]
    if given.items is not own.items:
        items = own.items.encode(given.items.ids)[items]
    known = (users >= 0) & (items >= 0)
    if own.events and test is not None:       # what was done before is not an absence
        pairs, done = (np.int64(a) * own.n_items + b for a, b in ((users, items), (own.user, own.item)))
        known &= (given.value > 0) | ~np.isin(pairs, done)
    usable = np.flatnonzero(known)
    chosen = usable
    if len(usable) > SAMPLE:
        chosen = np.sort(np.random.default_rng(0).choice(usable, SAMPLE, replace=False))
    users, items, truth = users[chosen], items[chosen], given.ratings[chosen]
    levels, values = own.scale.position(truth), np.array(own.scale.values)
    prediction: Floats = np.empty(0)
    proba: Floats = np.empty((0, len(values)))
    if len(chosen):
        proba = model._distribution(domain, model._known_users(domain, users),
                                    model._known_items(domain, items))
        prediction = model._on_scale(domain, proba @ values)
    return Checked(domain, test is not None, len(usable), truth, prediction, levels, proba)


def has_common_view(model: "Mixture") -> bool:
    """FMM fits each domain apart; in the other models the first view is common."""
    return not model.layout_.separate_users


def view_domains(model: "Mixture", view: int) -> list[str]:
    names = list(model.data_.domains)
    return [names[z] for z in model.layout_.views[view].domains]


def item_shares(model: "Mixture", view: int) -> dict[str, Floats]:
    """Of each domain's ratings, the share that each item cluster of a view has.   (C,) a domain"""
    out: dict[str, Floats] = {}
    for name in view_domains(model, view):
        d = model.data_.domains[name]
        counts = np.bincount(d.item, minlength=d.n_items)
        out[name] = counts @ model.members_[0].items[view][dict(model.mixture_.views(name))[view]] / max(1, len(d))
    return out


def pooled(model: "Mixture", shares: dict[str, Floats]) -> Floats:
    """Shares of several domains as one, each domain counting by its ratings."""
    sizes = np.array([len(model.data_.domains[name]) for name in shares], float)
    together: Floats = np.einsum("d,dk->k", sizes / sizes.sum(), np.stack(list(shares.values())))
    return together


def user_cluster_means(model: "Mixture", domain: str) -> Floats:
    """The mean rating that each user cluster gives in a domain.   (K,)"""
    d = model.data_.domains[domain]
    counts = np.bincount(d.user, minlength=d.n_users)
    sums = np.bincount(d.user, weights=d.ratings, minlength=d.n_users)
    p = model.members_[0].users[model.mixture_.user_rows(domain)]
    return (sums @ p) / np.maximum(counts @ p, 1e-12)


def above_own_mean(matrix: Floats, item_shares: Floats) -> Floats:
    """How much each user cluster, a row, rates above its own mean over the item clusters.   (K, C)"""
    above: Floats = matrix - (matrix @ item_shares / max(item_shares.sum(), 1e-12))[:, None]
    return above


def effects(matrix: Floats, users: Floats, items: Floats) -> tuple[float, float, float]:
    """Of the differences in a rating matrix, the shares of who rates, of what is rated, and of their match.

    The analysis of variance of its cells, each weighing by the shares of its clusters.
    """
    users, items = users / users.sum(), items / items.sum()
    mean = users @ matrix @ items
    by_user, by_item = matrix @ items - mean, users @ matrix - mean
    match = matrix - mean - by_user[:, None] - by_item
    parts = np.array([users @ by_user**2, by_item**2 @ items, users @ match**2 @ items])
    return tuple((parts / parts.sum()).tolist()) if parts.sum() > 1e-12 else (0.0, 0.0, 0.0)


def seriation(matrix: Floats) -> tuple[Order, Order]:
    """Orders of rows and columns that put like beside like, low first."""
    return _in_line(matrix), _in_line(matrix.T)


def _in_line(rows: Floats) -> Order:
    n = len(rows)
    if n < 3:
        return np.argsort(rows.mean(axis=1), kind="stable")
    from scipy.cluster.hierarchy import leaves_list, linkage

    order = leaves_list(linkage(rows, "average", optimal_ordering=True))
    falls = rows[order[:n // 2]].mean() > rows[order[-(n // 2):]].mean()
    return order[::-1] if falls else order


def distinctive_words(titles: Sequence[str], membership: Floats, n: int = 4) -> list[list[str]]:
    """The words that tell each cluster's titles from the others': n at most, the most telling first.

    Each title counts by its membership, (V, C). Words are ranked by the log-odds between a cluster and the
    rest, shrunk towards the words of all titles, over its standard error (Monroe, Colaresi & Quinn 2008,
    "Fightin' Words"). Words within 2 standard errors, or in a single title of the cluster, are left out.
    """
    from scipy.sparse import csr_array

    words: dict[str, int] = {}
    spelled: list[str] = []
    row, column = [], []
    for v, title in enumerate(titles):
        for word, spelling in {w.casefold(): w for w in WORD.findall(title)}.items():
            if word in STOP_WORDS:
                continue
            if word not in words:
                words[word] = len(words)
                spelled.append(spelling)
            row.append(words[word])
            column.append(v)
    if not words:
        return [[] for _ in range(membership.shape[1])]
    occurs = csr_array((np.ones(len(row)), (row, column)), shape=(len(words), len(titles)))
    inside = occurs @ np.asarray(membership, np.float64)                        # (W, C) expected titles
    total = inside.sum(axis=1, keepdims=True)
    outside = np.maximum(total - inside, 0)
    prior = 0.05 * total                                                        # weak: as 5 % of all titles
    log_odds = _log_odds(inside + prior) - _log_odds(outside + prior)
    score = log_odds / np.sqrt(1 / (inside + prior) + 1 / (outside + prior))
    score[(score < 2) | (inside < 1.5)] = -np.inf
    best = np.argsort(-score, axis=0, kind="stable")[:n]
    return [[spelled[w] for w in best[:, c] if np.isfinite(score[w, c])] for c in range(membership.shape[1])]


def _log_odds(counts: Floats) -> Floats:
    odds: Floats = np.log(counts) - np.log(np.maximum(counts.sum(axis=0) - counts, 1e-12))
    return odds


def view_words(model: "Mixture", view: int, n: int = 4) -> list[list[str]]:
    """Distinctive words of each item cluster of a view, over all its domains that have titles."""
    titles: list[str] = []
    rows: list[Any] = []
    for name in view_domains(model, view):
        d = model.data_.domains[name]
        if d.titles is None and not any(isinstance(i, str) for i in d.items.ids[:1]):
            continue
        rated = np.flatnonzero(np.bincount(d.item, minlength=d.n_items))
        titles += [d.title(int(code)) for code in rated]
        rows.append(model.members_[0].items[view][dict(model.mixture_.views(name))[view][rated]])
    if not rows:
        return [[] for _ in range(model.layout_.views[view].n_clusters)]
    return distinctive_words(titles, np.concatenate(rows), n)


def parts(model: "Mixture", domain: str) -> dict[str, float]:
    """How much of a prediction each kind of view carries: "common" and "own" clusters, "factors"."""
    factors = model.factor_weights_.get(domain, 0.0)
    out = {"common": 0.0, "own": 0.0}
    for view, weight in model.weights_[domain].items():
        out["common" if view == 0 and has_common_view(model) else "own"] += (1 - factors) * weight
    kinds = ["common"] * has_common_view(model) + ["own"] * (len(model.layout_.views) > 1 or not out["common"])
    return {kind: out[kind] for kind in kinds} | ({"factors": factors} if factors else {})


def clusters_count(model: "Mixture") -> bool:
    """Whether clusters have a part in some domain's predictions that is worth showing."""
    return any(1 - parts(model, name).get("factors", 0.0) >= LITTLE for name in model.data_.domains)
