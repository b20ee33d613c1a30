"""`pclf demo`: the whole story on three generated catalogues, in under a minute."""

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pclf.tables import Table

TARGETS = ("music", "books")
LOVED, COLD = 5, 3      # films that a guest loves, and does not


def run(seed: int, as_json: bool) -> None:
    from pclf import PCLF, Popular, datasets

    began = time.perf_counter()
    data = datasets.load("demo", seed=seed)
    say = (lambda *text: None) if as_json else print
    say("Three catalogues without a common user. Every item has a region, which means the same in all of them, and a "
        "genre,\nwhich does not. Somebody who loves Japanese films has never been to the shops with music and books.\n")
    if not as_json:
        Table(["domain", "users", "items", "ratings"],
              [[n, f"{d.n_users:,}", f"{d.n_items:,}", f"{len(d):,}"] for n, d in data.domains.items()]).show()
    model = PCLF().fit(data, random_state=seed, verbose=not as_json)
    say(f"PCLF fitted to {data.n_ratings:,} ratings. What the catalogues bring each other:")
    for transfer in model.transfer_.values():
        for bridge in transfer.bridges.values():
            say(f"  {bridge}")
    guests = {"loves Japan": model.fold_in({"films": _films(seed, "Japanese", "American")}),
              "loves America": model.fold_in({"films": _films(seed, "American", "Japanese")})}
    lists = {name: {domain: model.recommend(domain, guest, n=5) for domain in TARGETS}
             for name, guest in guests.items()}
    popular, visitor = Popular().fit(data), data["films"].users.ids[0]
    say(f"\nTwo guests come in. One rates {LOVED} Japanese films with 5 and {COLD} American ones with 2, the other "
        f"does the opposite.\nNeither has ever rated music or a book. In all three catalogues, people who like what is "
        f"American\ntend to like what is French.\n")
    if not as_json:
        for domain in TARGETS:
            columns = {**{f"a guest who {name}": own[domain] for name, own in lists.items()},
                       "what everybody picks": popular.recommend(domain, visitor, n=5)}
            Table(list(columns), list(zip(*([_placed(seed, domain, r.title) for r in column]
                                            for column in columns.values()), strict=True)), domain.capitalize()).show()
    first = lists["loves Japan"]["music"][0].item
    why = model.explain("music", guests["loves Japan"], first)
    say(f"Why the first?\n{why}\n")

    errors = _visitors(model, seed)
    if not as_json:
        Table(["predicted by", *(f"{domain}, {what}" for domain in TARGETS for what in ("error", "order"))],
              [[name, *(cell for domain in TARGETS for cell in (f"{found[domain][0]:.3f}", f"{found[domain][1]:.0%}"))]
               for name, found in errors.items()],
              "The users of films visit: mean absolute error there, and pairs of items in the right order").show()
    say(f"{time.perf_counter() - began:.0f} seconds. Your own data: pclf fit movies=movies.csv books=books.csv "
        f"--out model")
    if as_json:
        print(json.dumps({
            "ratings": {n: len(d) for n, d in data.domains.items()}, "visitors": errors,
            "transfer": {n: str(t) for n, t in model.transfer_.items()},
            "guests": {name: guest.ratings for name, guest in guests.items()},
            "recommendations": {name: {d: [r._asdict() for r in found] for d, found in own.items()}
                                for name, own in lists.items()},
            "explanation": str(why), "seconds": round(time.perf_counter() - began, 2),
        }, ensure_ascii=False))


def _placed(seed: int, domain: str, title: str) -> str:
    from pclf.datasets.demo import truth

    return f"{title} ({truth(seed).region_of[domain][title]})"


def _films(seed: int, loved: str, cold: str) -> dict[str, float]:
    """What a guest says who is fond of one region and cool towards another."""
    from pclf.datasets.demo import truth

    region = truth(seed).region_of["films"]
    return {**dict.fromkeys([title for title in region if region[title] == loved][:LOVED], 5.0),
            **dict.fromkeys([title for title in region if region[title] == cold][:COLD], 2.0)}


def _visitors(model: Any, seed: int) -> dict[str, dict[str, tuple[float, float]]]:
    """The error of users of films in the other domains, and how many of a user's pairs are in the right order: by the
    model, beside the simplest ways to predict them and the same model without the bridge."""
    from pclf import PCLF
    from pclf.datasets.demo import visits

    alone = PCLF(bridges=(), lists=False).fit(model.data_, random_state=seed)
    home = model.data_["films"]
    out: dict[str, dict[str, tuple[float, float]]] = {}
    for domain in TARGETS:
        users, items, truth = visits("films", domain, seed)
        target = model.data_[domain]
        means = _means(target)
        offset = np.bincount(home.user, home.ratings - _means(home)[home.item]) / np.bincount(home.user)
        there = target.items.encode(items) >= 0                    # nobody may have rated an item yet
        users, items, truth = [u for u, known in zip(users, there, strict=True) if known], [
            i for i, known in zip(items, there, strict=True) if known], truth[there]
        item, user = target.items.encode(items), home.users.encode(users)
        for name, predicted in {
            "mean of the item": means[item],
            "mean of the item + what the visitor gives above it at home": np.clip(means[item] + offset[user], 1, 5),
            "PCLF, each catalogue alone": alone.predict(domain, users, items),
            "PCLF": model.predict(domain, users, items),
        }.items():
            out.setdefault(name, {})[domain] = float(abs(predicted - truth).mean()), _in_order(user, truth, predicted)
    return out


def _means(domain: Any) -> Any:
    """The mean rating of each item."""
    return np.bincount(domain.item, domain.ratings) / np.maximum(np.bincount(domain.item), 1)


def _in_order(user: Any, truth: Any, predicted: Any) -> float:
    """The share of a user's pairs with different ratings that are predicted in the same order; ties count a half."""
    right, pairs = 0.0, 0
    for rows in _by_user(user):
        sign = np.sign(truth[rows][:, None] - truth[rows])
        guess = np.sign(predicted[rows][:, None] - predicted[rows])
        right += float(((sign > 0) & (guess > 0)).sum() + ((sign > 0) & (guess == 0)).sum() / 2)
        pairs += int((sign > 0).sum())
    return right / max(1, pairs)


def _by_user(user: Any) -> Sequence[Any]:
    order = np.argsort(user, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(user[order])) + 1)
