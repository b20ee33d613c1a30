"""Growth: the ratings of a model, and those that people gave since.

Ids come from the store as text and go back to what the model calls them. Where catalogues did not share people and had
none in common, somebody who has rated in two of them since ties the two: from then on people are shared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.attributes import Attributes, inverse, rows_of
from pclf.data.domain import Domain
from pclf.data.ratings import Ratings
from pclf.data.vocabulary import Vocabulary
from pclf.service.lists import as_id
from pclf.service.store import Rating

Described = tuple[str, str, str | None, Mapping[str, Any] | None]       # domain, item, title, attributes
Masks = dict[str, NDArray[np.bool_]]


def grown(data: Ratings, rated: Sequence[Rating], described: Iterable[Described],
          done: Iterable[tuple[str, str, str]]) -> tuple[Ratings, Masks]:
    """Ratings with those that came since, the last word of a person on an item, and with items that were told.

    done: events, user, domain and item, which count in domains of events. Returns also which ratings were there before,
    as they are.
    """
    said: dict[str, dict[tuple[str, str], float]] = {name: {} for name in data.domains}
    for row in rated:
        if row.domain in said:
            said[row.domain][row.user, row.item] = row.rating
    for user, domain, item in done:
        if domain in said and data[domain].events:
            said[domain][user, item] = 1.0
    facts: dict[str, dict[str, tuple[str | None, Mapping[str, Any] | None]]] = {name: {} for name in data.domains}
    for domain, item, title, attributes in described:
        if domain in facts:
            facts[domain][item] = title, attributes
    disjoint = not data.shared_users and _disjoint(data.domains)
    domains, kept, known = {}, {}, data.attributes
    for name, d in data.domains.items():
        domains[name], kept[name] = _grown(d, said[name], facts[name])
        known = known and _described(known, d, domains[name], facts[name])
    shared = data.shared_users or (disjoint and not _disjoint(domains))
    if shared and {d.users.kind for d in domains.values()} == {"int", "str"}:        # 7 is "7" elsewhere
        domains = {name: replace(d, users=d.users.as_text()) for name, d in domains.items()}
    users = data.user_attributes and data.user_attributes.take(
        {name: inverse(np.arange(data[name].n_users), d.n_users) for name, d in domains.items()})
    return replace(data, domains=domains, shared_users=shared, attributes=known, user_attributes=users), kept


def _grown(d: Domain, said: Mapping[tuple[str, str], float],
           facts: Mapping[str, tuple[str | None, Any]]) -> tuple[Domain, NDArray[np.bool_]]:
    """One domain with new ratings behind its own; a pair that is rated again leaves its old place."""
    who, what = (native(ids, list(dict.fromkeys(texts))) for ids, texts in (
        (d.users, (user for user, _ in said)), (d.items, [*(item for _, item in said), *facts])))
    users, items = (ids.joined(Vocabulary(new.values()))[0] if new else ids
                    for ids, new in ((d.users, who), (d.items, what)))
    user, item = (_codes(ids, [new[text] for text in texts]) for ids, new, texts in (
        (users, who, [u for u, _ in said]), (items, what, [i for _, i in said])))
    value, off = d.scale.locate(np.array(list(said.values()), np.float64))
    user, item, value = user[~off], item[~off], value[~off]              # a scale may have changed since they were kept
    again = np.isin(d.user.astype(np.int64) * len(items) + d.item, user.astype(np.int64) * len(items) + item)
    titles = [*(d.titles or map(str, d.items.ids)), *map(str, items.ids[len(d.items):])]
    code = {str(i): c for c, i in enumerate(items.ids)} if facts else {}
    for text, (title, _) in facts.items():
        if title is not None:
            titles[code[text]] = title
    ends: dict[str, Any] = {name: np.concatenate([column[~again], np.full(len(user), new, column.dtype)])
            for name, new in (("time", _latest(d)), ("weight", 1.0)) if (column := getattr(d, name)) is not None}
    made = replace(d, users=users, items=items, titles=tuple(titles) if d.titles is not None or facts else None,
                   user=np.concatenate([d.user[~again], user]), item=np.concatenate([d.item[~again], item]),
                   value=np.concatenate([d.value[~again], value]), **ends)
    return made, np.arange(len(made)) < (~again).sum()


def native(known: Vocabulary, texts: Sequence[str]) -> dict[str, Any]:
    """Texts as the ids that a vocabulary has, or would have: numbers where all are."""
    found = {text: as_id(known, text) for text in texts}
    new = [text for text, id in found.items() if id is None]
    numbers = known.kind == "int" and all(_is_number(text) for text in new)
    return {text: id if id is not None else int(text) if numbers else text for text, id in found.items()}


def _is_number(text: str) -> bool:
    plain = text.removeprefix("-")
    return plain.isascii() and plain.isdigit() and len(plain) < 19 and str(int(text)) == text


def _codes(ids: Vocabulary, wanted: list[Any]) -> NDArray[np.int32]:
    return ids.find(wanted) if wanted else np.empty(0, np.int32)


def _latest(d: Domain) -> int:
    """When new ratings are said to be: with the last of the old ones, for models that learn from the order."""
    return int(d.time.max()) if d.time is not None and len(d.time) else 0


def _described(known: Attributes, before: Domain, after: Domain,
               facts: Mapping[str, tuple[str | None, Any]]) -> Attributes:
    """Attributes with a row for each item, those of new ones as they were told."""
    out = known.take({after.name: inverse(np.arange(before.n_items), after.n_items)})
    rows = {str(i): code for code, i in enumerate(after.items.ids[before.n_items:], before.n_items)}
    told = {rows[item]: dict(attributes) for item, (_, attributes) in facts.items() if attributes and item in rows}
    if not told:
        return out
    place = inverse(np.array(list(told)), after.n_items)
    here = place >= 0
    matrix = out.of(after.name) + rows_of(known._encoded(list(told.values()))[0], place, here)
    return replace(out, matrices={**out.matrices, after.name: matrix},
                   given={**out.given, after.name: out.known(after.name) | here})


def _disjoint(domains: Mapping[str, Domain]) -> bool:
    """Whether nobody is in two of them."""
    return all((a.users.find(list(b.users.ids)) < 0).all() for a, b in combinations(domains.values(), 2))
