"""What a fitted mixture says in words: clusters with their typical members, explanations, similar items."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pclf.models.base import Floats, Recommendation, is_batch
from pclf.models.people import Guest
from pclf.models.weights import softmax

if TYPE_CHECKING:
    from pclf.models.mixture import _Mixture

FEW = 5.0            # ratings with which an item is half as surely like another as it looks
ALIKE = 0.4          # likeness from which one item is a reason for another


@dataclass(frozen=True)
class Cluster:
    """A cluster with its typical members: (id, title, membership), best first, for each domain."""

    view: str                                                          # "users", "common", or a domain
    index: int
    share: float                                                       # of the ratings of its view
    members: dict[str, list[tuple[Hashable, str, float]]] = field(repr=False)

    def __str__(self) -> str:
        names = "; ".join(f"{domain}: {', '.join(title for _, title, _ in top[:3])}"
                          for domain, top in self.members.items() if top)
        return f"{self.view} cluster {self.index} ({self.share:.0%}): {names}"


@dataclass(frozen=True)
class Part:
    """What one view contributes to a prediction. The personal view has no clusters."""

    view: str                                  # "common", a domain, or "personal"
    weight: float                              # of the views together, 1
    prediction: float                          # of this view alone
    cell: tuple[int, int] | None = None        # the user and item cluster, of the first fit, that matter most
    cell_weight: float = 0.0                   # P(k | u) P(c | v) there
    cell_rating: float = 0.0                   # S there


class Nearest(NamedTuple):
    """Something that a user rated, and how much it is like something else, at most 1."""

    title: str
    rating: float
    likeness: float


@dataclass(frozen=True)
class Explanation:
    """Why a rating is predicted: in words (`text`) and in numbers."""

    text: str
    prediction: float
    distribution: Floats = field(repr=False)               # (R,)
    parts: tuple[Part, ...]
    user_clusters: tuple[tuple[int, float], ...]           # the strongest, with P(k | u)
    nearest: tuple[Nearest, ...] = ()                      # what the user rated that is most like the item

    def __str__(self) -> str:
        return self.text


def clusters(model: "_Mixture", n: int = 10) -> list[Cluster]:
    """User clusters, of each domain where they are apart, then the item clusters of each view, of the first member."""
    member, out = model.members_[0], []
    top_users = {name: _top(member.users[model._user_rows(name)], _counts(d.user, d.n_users), d.users, None, n)
                 for name, d in model.data_.domains.items()}
    shares = user_shares(model)
    for names in [[name] for name in shares] if model.layout_.separate_users else [list(shares)]:
        mass = sum((len(model.data_[name]) * shares[name] for name in names), np.zeros(member.users.shape[1]))
        for k, share in enumerate(mass / mass.sum()):
            out.append(Cluster("users", k, float(share), {name: top_users[name][k] for name in names}))
    for i, view in enumerate(model.layout_.views):
        names = [name for z, name in enumerate(model.data_.domains) if z in view.domains]
        rows = {name: dict(model._views(name))[i] for name in names}
        top_items, total = {}, np.zeros(view.n_clusters)
        for name in names:
            d = model.data_.domains[name]
            counts = _counts(d.item, d.n_items)
            total += counts @ member.items[i][rows[name]]
            top_items[name] = _top(member.items[i][rows[name]], counts, d.items, d.title, n)
        for c in range(view.n_clusters):
            out.append(Cluster(view.name, c, float(total[c] / total.sum()),
                               {name: top_items[name][c] for name in names}))
    return out


def explain(model: "_Mixture", domain: str, user: Any, item: Hashable, user_domain: str | None) -> Explanation:
    target = model._domain(domain)
    if is_batch(user) or is_batch(item):
        raise ValueError(f"one prediction is explained at a time; got {user!r} and {item!r}.")
    users, items = model._users(domain, user, user_domain), model._items(domain, item)
    distribution = model._distribution(domain, users, items)[0]
    values = model.data_.level_values(domain)
    prediction = float(distribution @ values)
    p_user, member = users.memberships[0][0], model.members_[0]
    strongest = tuple((int(k), float(p_user[k])) for k in np.argsort(-p_user)[:3])
    parts = []
    own = float(model._own_weights(domain, users)[0])
    for i, weight in model.weights_[domain].items():
        s = np.einsum("r,rkc->kc", values, member.tables[i])
        joint = np.outer(p_user, items.memberships[0][i][0])
        k, c = np.unravel_index(joint.argmax(), joint.shape)
        alone = float(model._mixture(users, items, {i: 1.0})[0] @ values)
        parts.append(Part(model.layout_.views[i].name, (1 - own) * weight, alone,
                          (int(k), int(c)), float(joint[k, c]), float(s[k, c])))
    if own and users.personal is not None and items.personal is not None:
        probability = softmax(model.personal_[domain].logits(users.personal, items.personal))[0]
        parts.append(Part("personal", own, float(probability @ values)))
    title = target.title(int(target.items.encode([item])[0])) if item in target.items else "the new item"
    nearest = _nearest(model, domain, user, item, items.personal, user_domain)
    return Explanation(_in_words(model, domain, title, prediction, parts, strongest, nearest), prediction, distribution,
                       tuple(parts), strongest, nearest)


def _nearest(model: "_Mixture", domain: str, user: Any, item: Hashable, rows: Floats | None,
             user_domain: str | None, n: int = 3) -> tuple[Nearest, ...]:
    """What the user rated in a domain that is most like an item. rows: its row in the personal view, (1, D)."""
    target, view = model._domain(domain), model.personal_.get(domain)
    if view is None or rows is None or not view.item_factors.shape[1]:
        return ()
    if isinstance(user, Guest):
        given = user.ratings.get(domain, {})
        codes, ratings = target.items.encode(list(given)), np.array(list(given.values()))
    else:
        home, code = model._find_user(domain, user, user_domain)
        mine = np.flatnonzero(target.user == code) if home == domain else np.empty(0, int)
        codes, ratings = target.item[mine], target.ratings[mine]
    likeness = _cosines(view.item_factors[codes], rows[0, -view.item_factors.shape[1]:])
    if item in target.items:
        likeness[codes == target.items.code(item)] = -1              # it is no reason for itself
    best = [i for i in np.argsort(-likeness, kind="stable")[:n] if likeness[i] >= ALIKE]
    return tuple(Nearest(target.title(int(codes[i])), float(ratings[i]), float(likeness[i])) for i in best)


def user_shares(model: "_Mixture") -> dict[str, Floats]:
    """Of each domain's ratings, the share that each user cluster of the first member gave.   (K,) a domain"""
    out: dict[str, Floats] = {}
    for name, d in model.data_.domains.items():
        out[name] = _counts(d.user, d.n_users) @ model.members_[0].users[model._user_rows(name)] / max(1, len(d))
    return out


def similar_items(model: "_Mixture", domain: str, item: Hashable, n: int, to: str) -> list[Recommendation]:
    """Items of `to` that are most like an item.

    In one domain, by the direction of their factors in the personal view, where there is one: who likes the one, likes
    the other, and the same people choose them. The fewer ratings an item has, the less surely it is like another.
    Between domains, and without such a view, by profiles: the mean rating that each user cluster gives, less what is
    given to all. User clusters are shared by all domains, so profiles of a film and a book compare.
    """
    source, target = model._domain(domain), model._domain(to)
    if model.layout_.separate_users and to != domain:
        raise ValueError(f"{type(model).__name__} fits each domain apart, so items of {domain!r} and {to!r} do not "
                         f"compare. Use PCLF or RMGM.")
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}.")
    code = source.items.code(item, f"item in {domain!r}")
    view = model.personal_.get(domain)
    if to == domain and view is not None and view.item_factors.shape[1]:
        counts = _counts(target.item, target.n_items)
        scores = _cosines(view.item_factors, view.item_factors[code]) * counts / (counts + FEW)
    else:
        scores = _cosines(_profiles(model, to), _profiles(model, domain)[code])
    if to == domain:
        scores[code] = -np.inf
    order = np.argsort(-scores, kind="stable")[: min(n, len(scores) - (to == domain))]
    return [Recommendation(i, float(scores[c]), target.title(int(c)))
            for i, c in zip(target.items.decode(order), order, strict=True)]


def _cosines(rows: Floats, own: Floats) -> Floats:
    """Of the angles between rows and one of their kind. (n,)"""
    out: Floats = rows @ own / np.maximum(np.linalg.norm(rows, axis=1) * np.linalg.norm(own), 1e-12)
    return out


def _profiles(model: "_Mixture", domain: str) -> Floats:
    """Mean rating of each item by each user cluster, less the item's mean, scaled by the cluster's share. (V, K)"""
    values, parts = model.data_.level_values(domain), []
    rows = dict(model._views(domain))
    for member in model.members_:
        profile = sum(weight * member.items[i][rows[i]] @ np.einsum("r,rkc->ck", values, member.tables[i])
                      for i, weight in model.weights_[domain].items())
        share = member.user_shares.mean(axis=0)
        parts.append((profile - (profile @ share)[:, None]) * np.sqrt(share))
    profiles = np.concatenate(parts, axis=1)
    # What a cluster gives to everything says nothing about one item: centre on the domain's items.
    centred: Floats = profiles - profiles.mean(axis=0)
    return centred


def _top(membership: Floats, counts: Floats, vocabulary: Any, title: Any, n: int) -> list[list[Any]]:
    """For each cluster its n most typical rows: strong members that are not too rare to be known."""
    out = []
    for c in range(membership.shape[1]):
        order = np.argsort(-(membership[:, c] ** 2) * np.log1p(counts), kind="stable")[:n]
        order = order[counts[order] > 0]
        out.append([(i, title(int(row)) if title else str(i), float(membership[row, c]))
                    for i, row in zip(vocabulary.decode(order), order, strict=True)])
    return out


def _counts(codes: Any, size: int) -> Floats:
    return np.bincount(codes, minlength=size).astype(np.float64)


def _in_words(model: "_Mixture", domain: str, title: str, prediction: float, parts: list[Part],
              strongest: tuple[tuple[int, float], ...], nearest: tuple[Nearest, ...]) -> str:
    target = model.data_.domains[domain]
    expected = f"{prediction:.2f} of {target.scale.values[-1]:g} expected"
    if target.events:
        expected = f"probability {prediction:.2f} among draws"
    lines = [f"{title}: {expected}."]
    heard = [part for part in sorted(parts, key=lambda part: -part.weight) if part.weight >= 0.05]
    if any(part.cell for part in heard):
        tastes = ", ".join(f"cluster {k} ({p:.0%})" for i, (k, p) in enumerate(strongest) if p >= 0.05 or not i)
        lines.append(f"The user's tastes: {tastes}.")
    for part in heard:
        if part.cell is None:
            lines.append(f"{part.weight:.0%} from what is known of this user and this item alone, which says "
                         f"{part.prediction:.2f}.")
            if nearest:
                said = "; ".join(x.title if target.events else f"{x.title}, rated {x.rating:g}" for x in nearest)
                lines.append(f"Of all that the user {'did' if target.events else 'rated'}, most like it: {said}.")
            continue
        kind = "common" if part.view == "common" else f"{part.view}-only"
        like = ", ".join(name for name in _typical(model, domain, part.view, part.cell[1]) if name != title)
        lines.append(f"{part.weight:.0%} from the {kind} clusters, which say {part.prediction:.2f}: user cluster "
                     f"{part.cell[0]} gives {part.cell_rating:.2f} to items like {like or 'no other'}.")
    return "\n".join(lines)


def _typical(model: "_Mixture", domain: str, view: str, cluster: int, n: int = 3) -> list[str]:
    """Titles of items of a domain that are typical of a cluster of the first fit."""
    d = model.data_[domain]
    i, rows = next((i, rows) for i, rows in model._views(domain) if model.layout_.views[i].name == view)
    membership = model.members_[0].items[i][rows][:, cluster:cluster + 1]
    return [title for _, title, _ in _top(membership, _counts(d.item, d.n_items), d.items, d.title, n)[0]]
