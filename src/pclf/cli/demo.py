"""`pclf demo`: the whole story on three generated catalogues, in under a minute."""

import json
import time

from pclf.cli import tables

GIVEN = 10   # ratings a held-out user keeps


def run(seed: int, as_json: bool) -> None:
    from pclf import PCLF, datasets, given_n, models

    began = time.perf_counter()
    data = datasets.load("demo", seed=seed)
    say = (lambda *text: None) if as_json else print
    say("Three catalogues without a common user. Items have a region, which means the same in all, and a genre of "
        "their own;\nthe names tell both. The model sees ratings alone, so it must find out what carries over.\n")
    if not as_json:
        tables.show("", ["domain", "users", "items", "ratings"],
                    [[n, f"{d.n_users:,}", f"{d.n_items:,}", f"{len(d):,}"] for n, d in data.domains.items()])

    split = given_n(data, GIVEN, seed=seed)
    errors: dict[str, dict[str, float]] = {}
    for name in ("Bias", "FMM", "RMGM", "PCLF"):
        rival = models.create(name).fit(split.train, random_state=seed)
        errors[name] = {d.name: float(abs(rival.predict_codes(d.name, d.user, d.item) - d.ratings).mean())
                        for d in split.test.domains.values()}
    if not as_json:
        tables.show(f"Mean absolute error on users of whom {GIVEN} ratings are known", ["model", *data.domains],
                    [[name, *(f"{e[d]:.3f}" for d in data.domains)] for name, e in errors.items()])

    model = PCLF().fit(data, random_state=seed, verbose=not as_json)
    films = _favourites(seed)
    guest = model.fold_in({"films": films})
    say(f"PCLF fitted to {data.n_ratings:,} ratings: {model.n_iter_} iterations, {len(model.members_)} fits averaged.")
    for transfer in model.transfer_.values():
        say(f"  {transfer}")
    say("A guest comes in and rates five films:")
    for title, rating in films.items():
        say(f"  {rating:g}  {title}")
    lists = {domain: model.recommend(domain, guest, n=5) for domain in data.domains if domain != "films"}
    for domain, found in lists.items():
        say(f"\n{domain.capitalize()} for the guest, who never rated any:")
        for r in found:
            say(f"  {r.score:.2f}  {r.title}")
    why = model.explain("books", guest, lists["books"][0].item)
    say(f"\nWhy the first book?\n{why}")
    say(f"\n{time.perf_counter() - began:.0f} seconds. Your own data: pclf fit movies=movies.csv books=books.csv "
        f"--out model")
    if as_json:
        print(json.dumps({
            "ratings": {n: len(d) for n, d in data.domains.items()}, "given": GIVEN, "mae": errors,
            "iterations": model.n_iter_, "guest": {"films": films},
            "recommendations": {d: [r._asdict() for r in found] for d, found in lists.items()},
            "explanation": str(why), "seconds": round(time.perf_counter() - began, 2),
        }, ensure_ascii=False))


def _favourites(seed: int) -> dict[str, float]:
    """Five films of one guest: fond of one region, cool towards another."""
    from pclf.datasets.demo import truth

    region = truth(seed).region_of["films"]
    loved = [title for title in region if region[title] == "Japanese"][:3]
    cold = [title for title in region if region[title] == "American"][:2]
    return {**dict.fromkeys(loved, 5.0), **dict.fromkeys(cold, 2.0)}
