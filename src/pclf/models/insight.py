"""What a fitted model says in words: explanations, similar items, clusters with their typical members."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pclf.data.events import AT_RANDOM
from pclf.errors import ArgumentError
from pclf.models.base import Floats, is_batch
from pclf.models.people import Guest, Items, NewItem, People, Users, find
from pclf.serving.lists import Recommendation

if TYPE_CHECKING:
    from pclf.models.mixture import Mixture

FEW = 5.0            # ratings with which an item is half as surely like another as it looks
ALIKE = 0.4          # likeness from which one item is a reason for another
TOLD = 0.05          # of a rating: tastes that are worth a word
OFTEN = 1.5          # times as probable: what somebody often chooses


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
    """What one part contributes to a prediction. Factors have no clusters."""

    view: str                                  # "factors", "common", or a domain
    weight: float                              # of the parts together, 1
    prediction: float                          # of this part alone
    cell: tuple[int, int] | None = None        # the user and item cluster, of the first fit, that matter most
    cell_weight: float = 0.0                   # P(k | u) P(c | v) there
    cell_rating: float = 0.0                   # S there


class Nearest(NamedTuple):
    """Something that a user rated, and how much it is like something else, at most 1."""

    title: str
    rating: float
    likeness: float
    domain: str = ""


class Taste(NamedTuple):
    """What an attribute of an item does to the rating that is expected of a person, beside what it does for anybody."""

    column: str
    value: Any                                 # None for the numbers of a vector
    effect: float                              # in ratings


class Draw(NamedTuple):
    """What an attribute of an item does to the chance that a person picks it, beside what it does for anybody."""

    column: str
    value: Any
    times: float                               # as probable


@dataclass(frozen=True)
class Explanation:
    """Why a rating is predicted, and why a thing is offered: in words (`text`) and in numbers."""

    text: str
    prediction: float
    distribution: Floats                                   # (R,)
    parts: tuple[Part, ...]
    user_clusters: tuple[tuple[int, float], ...]           # the strongest, with P(k | u)
    nearest: tuple[Nearest, ...] = ()                      # what the user rated alike that is most like the item
    tastes: tuple[Taste, ...] = ()                         # for its attributes, the strongest first
    draws: tuple[Draw, ...] = ()                           # the attributes that make a visitor pick it, likewise
    picked: float = 1.0                                    # how many times as probable as by anybody they make it

    def __repr__(self) -> str:
        return self.text


def clusters(model: "Mixture", n: int = 10) -> list[Cluster]:
    """User clusters, of each domain where they are apart, then the item clusters of each view, of the first member."""
    member, out = model.members_[0], []
    top_users = {name: _top(member.users[model.mixture_.user_rows(name)], _counts(d.user, d.n_users), d.users, None, n)
                 for name, d in model.data_.domains.items()}
    shares = user_shares(model)
    for names in [[name] for name in shares] if model.layout_.separate_users else [list(shares)]:
        mass = sum((len(model.data_[name]) * shares[name] for name in names), np.zeros(member.users.shape[1]))
        for k, share in enumerate(mass / mass.sum()):
            out.append(Cluster("users", k, float(share), {name: top_users[name][k] for name in names}))
    for i, view in enumerate(model.layout_.views):
        names = [name for z, name in enumerate(model.data_.domains) if z in view.domains]
        rows = {name: dict(model.mixture_.views(name))[i] for name in names}
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


def explain(model: "Mixture", domain: str, user: Any, item: Hashable, user_domain: str | None) -> Explanation:
    target = model._domain(domain)
    if is_batch(user) or is_batch(item):
        raise ArgumentError(f"one prediction is explained at a time; got {user!r} and {item!r}.")
    people = find(model.data_, domain, [user], user_domain)
    if not isinstance(item, NewItem):
        item = target.items.decode([target.item_code(item)])[0]                # which may have been a title
    users, items = model._users(people), model._items(domain, item)
    distribution = model._distribution(domain, users, items)[0]
    values = np.array(target.scale.values)
    prediction = float(distribution @ values)
    p_user, member = users.memberships[0][0], model.members_[0]
    strongest = tuple((int(k), float(p_user[k])) for k in np.argsort(-p_user)[:3])
    own, here, parts = model._weight(domain, users, items.rows), model._here(domain), []
    if own and here is not None and users.rows is not None and items.rows is not None:
        parts.append(Part("factors", own, float(model._by_factors(domain, users, items)[0] @ values)))
    for i, weight in model.weights_[domain].items():
        s = np.einsum("r,rkc->kc", model.data_.level_values(domain), member.tables[i])
        joint = np.outer(p_user, items.memberships[0][i][0])
        k, c = np.unravel_index(joint.argmax(), joint.shape)
        alone = float(model.mixture_.distribution(domain, users.memberships, items.memberships, {i: 1.0})[0] @ values)
        parts.append(Part(model.layout_.views[i].name, (1 - own) * weight, alone,
                          (int(k), int(c)), float(joint[k, c]), float(s[k, c])))
    title = target.title(int(target.items.encode([item])[0])) if item in target.items else "the new item"
    nearest = _nearest(model, people, item, items, prediction)
    tastes = _tastes(model, domain, item, users, distribution) if own else ()
    picked, draws = _draws(model, people, item)
    text = _in_words(model, domain, title, prediction, parts, strongest, nearest, tastes, picked, draws)
    return Explanation(text, prediction, distribution, tuple(parts), strongest, nearest, tastes, draws, picked)


def _draws(model: "Mixture", people: People, item: Hashable) -> tuple[float, tuple[Draw, ...]]:
    """How many times as probable as anybody somebody picks an item, by the attributes of what they chose elsewhere."""
    lists, target = getattr(model, "lists_", None), model._domain(people.domain)
    if lists is None or item not in target.items:
        return 1.0, ()
    code = target.items.code(item)
    picked, effects = lists.draws(lists.told(people), code)
    if not effects:
        return picked, ()
    traits = _traits(model.data_.attributes, people.domain, code, effects)
    return picked, tuple(Draw(column, value, float(np.exp(effect))) for column, value, effect in traits)


def _tastes(model: "Mixture", domain: str, item: Hashable, users: Users, distribution: Floats) -> tuple[Taste, ...]:
    """What a person's tastes for the attributes of an item do to the expected rating, against anybody's.

    A taste moves the logits of the levels; near the distribution that is predicted, the mean rating moves by the
    covariance of rating and tilt.
    """
    attributes, here, target = model.data_.attributes, model._here(domain), model._domain(domain)
    if (attributes is None or here is None or here.attribute_weights is None or users.rows is None
            or item not in target.items):
        return ()
    n, size = here.n_shape, here.users.shape[1]
    taste = users.rows[0, n:size] - here.user_weights[0, n:]
    by_feature = here.attribute_weights[:, n:] @ taste                               # (P,)
    row, values = attributes.of(domain)[[target.items.code(item)]], np.array(target.scale.values)
    slope = float(distribution @ (values * here.tilt[0]) - (distribution @ values) * (distribution @ here.tilt[0]))
    effects = {p: float(x * by_feature[p] * slope) for p, x in zip(row.indices, row.data, strict=True)}
    return tuple(Taste(*trait) for trait in _traits(attributes, domain, target.items.code(item), effects))


def _traits(attributes: Any, domain: str, code: int, effects: Mapping[int, float]) -> list[tuple[str, Any, float]]:
    """What features of an item do, as columns with values, the strongest first."""
    categories = {column.name for column in attributes.columns if column.labels}
    found: dict[tuple[str, Any], float] = {}
    for p, effect in effects.items():
        feature = attributes.features[p]
        key = (feature.column, feature.value if feature.column in categories else None)
        found[key] = found.get(key, 0.0) + effect
    facts = attributes.facts(domain, code)
    out = [(column, _as_given(facts.get(column), value), effect) for (column, value), effect in found.items()]
    return sorted(out, key=lambda trait: -abs(trait[2]))


def _as_given(fact: Any, value: Any) -> Any:
    """A value of an attribute as it was given: features know it in small letters, and a number by what is near it.
    None for the numbers of a vector."""
    if value is not None:
        given = fact if isinstance(fact, (list, tuple)) else [fact]
        return next((x for x in given if str(x).casefold() == str(value).casefold()), value)
    if isinstance(fact, list):
        return None
    return int(fact) if isinstance(fact, float) and fact.is_integer() else fact


def _nearest(model: "Mixture", people: People, item: Hashable, items: Items, prediction: float,
             n: int = 3) -> tuple[Nearest, ...]:
    """What a person rated, in any domain, that is most like an item. What they did not like is no reason to expect that
    they will like it, and the other way round."""
    domain, part = people.domain, model.factors_.get(people.domain)
    here = model._here(domain)
    if part is None or here is None or items.rows is None:
        return ()
    person, found = people.ids[0], []
    for name in [domain, *(other for other in part.names if other != domain)]:
        there, d = part.domains[name], model.data_[name]
        axes = _common_axes(part, name, domain)
        if not axes.stop - axes.start:
            continue
        if isinstance(person, Guest):
            given = person.ratings.get(name, {})
            codes, ratings = d.items.encode(list(given)), np.array(list(given.values()))
        else:
            code = int(people.here[0]) if name == domain else int(d.users.encode([person])[0]) if (
                model.data_.shared_users or name in people.homes) else -1
            mine = np.flatnonzero(d.user == code) if code >= 0 else np.empty(0, int)
            codes, ratings = d.item[mine], np.array(d.scale.values)[d.value[mine]]      # not everybody's
        likeness = _cosines(there.item_factors[codes][:, axes], items.rows[0, here.n_shape:][axes])
        if not d.events:
            likeness[_side(d, ratings) * _side(model.data_[domain], prediction) < 0] = -1
        if name == domain and item in d.items:
            likeness[codes == d.items.code(item)] = -1              # it is no reason for itself
        found += [Nearest(d.title(int(c)), float(r), float(x), name)
                  for c, r, x in zip(codes, ratings, likeness, strict=True) if x >= ALIKE]
    return tuple(sorted(found, key=lambda near: -near.likeness)[:n])


def _side(d: Any, rating: Any) -> Any:
    """Of the middle of the scale: above 0 for what is liked, below for what is not; above for all events."""
    return 1.0 if d.events else rating - (d.scale.low + d.scale.high) / 2


def _common_axes(part: Any, a: str, b: str) -> slice:
    """Factors that mean the same in two domains: in one domain and where choices tie them all, else attributes'."""
    size = part.domains[a].item_factors.shape[1]
    return slice(0, size if a == b or part.same_choices else part.n_common)


def user_shares(model: "Mixture") -> dict[str, Floats]:
    """Of each domain's ratings, the share that each user cluster of the first member gave.   (K,) a domain"""
    out: dict[str, Floats] = {}
    for name, d in model.data_.domains.items():
        memberships = model.members_[0].users[model.mixture_.user_rows(name)]
        out[name] = _counts(d.user, d.n_users) @ memberships / max(1, len(d))
    return out


def similar_items(model: "Mixture", domain: str, item: Hashable, n: int, to: str) -> list[Recommendation]:
    """Items of `to` that are most like an item.

    By the direction of their factors, where there are some: who likes the one, likes the other. The fewer ratings an
    item has, the less surely it is like another. Between domains the factors that a bridge ties together are compared.
    Without any, items are compared by profiles: the mean rating that each user cluster gives, less what is given to
    all. User clusters are shared by all domains, so profiles of a film and a book compare.
    """
    source, target = model._domain(domain), model._domain(to)
    part = model.factors_.get(to)
    axes = _common_axes(part, domain, to) if part is not None and domain in part.domains else slice(0, 0)
    if model.layout_.separate_users and to != domain:
        raise ArgumentError(f"{type(model).__name__} fits each domain apart, so items of {domain!r} and {to!r} do not "
                            f"compare. Use PCLF or RMGM.")
    if n < 1:
        raise ArgumentError(f"n must be at least 1; got {n}.")
    code = source.item_code(item)
    lists = getattr(model, "lists_", None)
    alike = lists.alike(domain, code) if to == domain and lists is not None else None
    if alike is not None:
        rated = target.item_counts
        scores = alike * rated / (rated + FEW)
    elif part is not None and axes.stop > axes.start:
        counts = target.item_counts
        scores = _cosines(part.domains[to].item_factors[:, axes], part.domains[domain].item_factors[code, axes])
        scores = scores * counts / (counts + FEW)
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


def _profiles(model: "Mixture", domain: str) -> Floats:
    """Mean rating of each item by each user cluster, less the item's mean, scaled by the cluster's share. (V, K)"""
    values, parts = model.data_.level_values(domain), []
    rows = dict(model.mixture_.views(domain))
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


def _in_words(model: "Mixture", domain: str, title: str, prediction: float, parts: list[Part],
              strongest: tuple[tuple[int, float], ...], nearest: tuple[Nearest, ...], tastes: tuple[Taste, ...],
              picked: float, draws: tuple[Draw, ...]) -> str:
    target = model.data_.domains[domain]
    expected = f"{prediction:.2f} of {target.scale.values[-1]:g} expected"
    if target.events:
        expected = f"{prediction:.0%} probable, where it would be {AT_RANDOM}"
    lines = [f"{title}: {expected}."]
    counting = [part for part in sorted(parts, key=lambda part: -part.weight) if part.weight >= 0.05]
    told = [taste for taste in tastes if abs(taste.effect) >= TOLD][:3]
    if told:
        likes = "; ".join(f"you {'like' if t.effect > 0 else 'do not like'} {_trait(t)}: {t.effect:+.1f}" for t in told)
        lines.append(f"Y{likes[1:]}.")
    often = [draw for draw in draws if draw.times >= OFTEN][:2]
    if often and picked >= OFTEN:
        lines.append(f"You often choose {' and '.join(_trait(draw) for draw in often)}: you are {picked:.2g} times as "
                     f"likely as others to pick it next.")
    if nearest:
        said = "; ".join(near.title + ("" if model.data_[near.domain].events else f", rated {near.rating:g}")
                         + ("" if near.domain == domain else f" ({near.domain})") for near in nearest)
        lines.append(f"Most like it, among what you know: {said}.")
    if any(part.cell for part in counting):
        clusters = ", ".join(f"cluster {k} ({p:.0%})" for i, (k, p) in enumerate(strongest) if p >= 0.05 or not i)
        lines.append(f"You belong to user {clusters}.")
    for part in counting:
        if part.cell is None:
            if len(counting) > 1:
                lines.append(f"{part.weight:.0%} comes from the factors, which say {part.prediction:.2f}.")
            continue
        kind = "common" if part.view == "common" else f"{part.view}-only"
        like = ", ".join(name for name in _typical(model, domain, part.view, part.cell[1]) if name != title)
        lines.append(f"{part.weight:.0%} comes from the {kind} clusters, which say {part.prediction:.2f}: user cluster "
                     f"{part.cell[0]} gives {part.cell_rating:.2f} to items like {like or 'no other'}.")
    if len(lines) == 1:
        done = "chose" if target.events else "rated"
        lines.append(f"Nothing that you {done} says much about what you would think of it.")
    return "\n".join(lines)


def _trait(taste: Taste | Draw) -> str:
    """Japanese (region), 1994 (year); of a yes or no, and of a vector, the name of the column."""
    return f"its {taste.column}" if taste.value is None or taste.value is True else f"{taste.value} ({taste.column})"


def _typical(model: "Mixture", domain: str, view: str, cluster: int, n: int = 3) -> list[str]:
    """Titles of items of a domain that are typical of a cluster of the first fit."""
    d = model.data_[domain]
    i, rows = next((i, rows) for i, rows in model.mixture_.views(domain) if model.layout_.views[i].name == view)
    membership = model.members_[0].items[i][rows][:, cluster:cluster + 1]
    return [title for _, title, _ in _top(membership, _counts(d.item, d.n_items), d.items, d.title, n)[0]]
