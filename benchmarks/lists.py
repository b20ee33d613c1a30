"""Lists: what people pick and like, beside the peers, from ratings and from events.

    python benchmarks/lists.py ratings [PEERS]     # held-out liked items, 20 % of the ratings at random
    python benchmarks/lists.py events [PEERS]      # MovieLens 1M, ratings of 4 and 5 as events
    python benchmarks/lists.py visitors            # people known in another catalogue alone (Douban, Amazon)
    python benchmarks/lists.py known               # people known in both
    python benchmarks/lists.py fake                # one account that praises a new item
    python benchmarks/lists.py similar             # genres in common of similar films
    python benchmarks/lists.py page                # docs/lists.md, from benchmarks/results

PEERS is the Python of an environment with implicit (`pip install implicit`); without it the peers' rows stay as they
are. Data are found through PCLF_DATA. Results are JSON lines in benchmarks/results/lists-NAME.jsonl. All models see the
same split, and choose among all items that a person has no training rating of.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, vstack
from scipy.stats import ttest_rel, wilcoxon

import pclf
from pclf import EASE, Popular, Ratings, datasets, hold_out
from pclf.choice import Choice, graded, learn
from pclf.choice.rows import as_rows, taken
from pclf.data.ratings import Domain
from pclf.engines.cpu import cores
from pclf.engines.kernels import top_n
from pclf.evaluate import metrics

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
DATA = Path(os.environ.get("PCLF_DATA", "data")).expanduser()
N = 10
BLOCK = 1000
METRICS = ("catalogue", "popular", "novelty", "similarity", "overlap")


def load(name: str) -> Ratings:
    """A data set of one domain, with the scale that its people saw."""
    files: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "MovieTweetings": ("movietweetings/ratings.dat", (0, 10), {}),
        "ml-latest-small": ("ml-latest-small/ratings.csv", (0.5, 5, 0.5), {}),
        "Book-Crossing": ("book-crossing/BX-Book-Ratings-popular.csv", (1, 10), {}),
        "Amazon films": ("amazon/movies.inter", (1, 5), {"duplicates": "last"}),
        "Amazon books": ("amazon/books.inter", (1, 5), {"duplicates": "last"}),
        "Douban books": ("douban/book_ratings.dat", (1, 5), {}),
        "Douban music": ("douban/music_ratings.dat", (1, 5), {}),
    }
    if name in files:
        path, scale, options = files[name]
        source = as_csv(DATA / path)
        return Ratings.from_files({name: source}, scale=scale, **options)
    loaded = datasets.load({"MovieLens 1M": "ml-1m", "MovieLens 100K": "ml-100k", "goodbooks": "goodbooks"}[name])
    return Ratings({name: next(iter(loaded.domains.values()))})


def as_csv(path: Path) -> Path:
    """The file itself, or a copy with a suffix that says what it is."""
    if path.suffix != ".inter":
        return path
    copy = Path(tempfile.gettempdir()) / f"{path.parent.name}-{path.stem}.tsv"
    copy.write_bytes(path.read_bytes())
    return copy


def ratings(peers: str | None = None) -> Iterator[dict[str, Any]]:
    for name in ("MovieLens 1M", "MovieTweetings", "goodbooks", "Amazon films", "Amazon books", "Book-Crossing",
                 "ml-latest-small", "Douban books", "Douban music"):
        split = hold_out(load(name), 0.2, seed=0)
        yield from measured(name, split.train[name], split.test[name], peers)


def events(peers: str | None = None) -> Iterator[dict[str, Any]]:
    d = load("MovieLens 1M")["MovieLens 1M"]
    log = Ratings.from_events({"MovieLens 1M, 4 and 5 stars": (d.user[d.liked], d.item[d.liked])})
    name = next(iter(log.domains))
    split = hold_out(log, 0.2, seed=0)
    yield from measured(name, split.train[name], split.test[name], peers)


def measured(name: str, train: Domain, test: Domain, peers: str | None) -> Iterator[dict[str, Any]]:
    """Rows of our models and of the peers on one split."""
    liked = test.liked
    people, rows = np.unique(test.user[liked], return_inverse=True)
    seen = as_rows(train.user, train.item, np.ones(len(train)), (train.n_users, train.n_items))
    data = Ratings({name: train})

    def row(model: str, codes: Any, seconds: float, listed: float, **more: Any) -> dict[str, Any]:
        found = {f"{kind}@{N}": metrics.LIST[kind](N, codes, rows, test.item[liked]) for kind in metrics.LIST}
        found |= {f"{kind}@{N}": metrics.MADE_OF[kind](N, codes, seen) for kind in METRICS}
        return {"data": name, "model": model, "users": len(people), **{k: round(v, 5) for k, v in found.items()},
                "titles": len(np.unique(codes)), "seconds": round(seconds, 2), "lists_seconds": round(listed, 2),
                "cores": cores(), **more}

    for kind in (Popular, EASE):
        began = time.perf_counter()
        model = kind().fit(data)
        fitted = time.perf_counter()
        codes = model.recommend(name, train.users.decode(people), N).codes
        more = {"penalty": round(model.choice_.settings[0].penalty, 1)} if kind is EASE else {}
        yield row(kind.__name__, codes, fitted - began, time.perf_counter() - fitted, **more)
    began = time.perf_counter()
    chosen = graded(train)
    choice = learn([chosen])
    fitted = time.perf_counter()
    codes = lists(choice, 0, [chosen], seen, people)
    penalty, pull = choice.settings[0]
    yield row("choice", codes, fitted - began, time.perf_counter() - fitted, penalty=round(penalty, 1), pull=pull)
    if peers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "split.npz"
            np.savez(path, user=train.user, item=train.item, liked=train.liked, grade=chosen[train.user, train.item],
                     people=people, shape=(train.n_users, train.n_items))
            script = Path(__file__).with_name("peers_lists.py")
            subprocess.run([peers, str(script), str(path)], check=True,
                           env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
            for found in json.loads(path.with_suffix(".json").read_text()):
                yield row(found["model"], np.load(path.with_suffix(".npy"))[found["place"]], found["seconds"],
                          found["lists_seconds"], settings=found["settings"])


def lists(choice: Choice, target: int, chosen: list[Any], seen: Any, people: Any, own: Any = None) -> Any:
    """The first N items for some people."""
    parts = []
    for start in range(0, len(people), BLOCK):
        some = people[start:start + BLOCK]
        scores = choice.scores(target, [None if rows is None else taken(rows, some) for rows in chosen],
                               None if own is None else own[some])
        left_out = taken(seen, some)
        parts.append(top_n(scores, left_out.indptr.astype(np.int64), left_out.indices.astype(np.int32), N)[0])
    return np.concatenate(parts)


def pair(first: str, second: str) -> tuple[Domain, Domain, Any, int]:
    """Two catalogues whose people are the same, their rows among all, and how many there are."""
    data = Ratings({name: load(name)[name] for name in (first, second)}, shared_users=True)
    return data[first], data[second], data.user_rows, data.n_users


def crossings() -> Iterator[tuple[str, str]]:
    for first, second in (("Amazon films", "Amazon books"), ("Douban books", "Douban music")):
        yield first, second
        yield second, first


def visitors(repeats: int = 5) -> Iterator[dict[str, Any]]:
    """A fifth of the shared people at a time have no rating in the target: all are tested once."""
    for source, target in crossings():
        there, here, rows, n = pair(source, target)
        both = np.intersect1d(rows[0][np.unique(there.user)], rows[1][np.unique(here.user)])
        fold = np.random.default_rng(0).permutation(len(both)) % repeats
        x = _by_person(graded(there), rows[0], n)
        found: dict[str, list[Any]] = {"Popular": [], "merged table": [], "choice": []}
        for f in range(repeats):
            hidden = np.isin(rows[1][here.user], both[fold == f])
            known = here.rated(~hidden)
            y = _by_person(graded(known), rows[1], n)
            tested = here.rated(hidden & here.liked)
            people, place = np.unique(rows[1][tested.user], return_inverse=True)
            nothing = csr_array((n, here.n_items), dtype=np.float32)
            choice = learn([x, y], [np.arange(n)] * 2)
            merged = learn([csr_array(hstack([x, y], format="csr"))])
            popular = np.tile(np.argsort(-np.bincount(known.item, minlength=here.n_items), kind="stable")[:N],
                              (len(people), 1))
            union = merged.scores(0, [taken(csr_array(hstack([x, y], format="csr")), people)])[:, there.n_items:]
            got = {"Popular": popular, "choice": lists(choice, 1, [x, None], nothing, people),
                   "merged table": np.argsort(-union, axis=1, kind="stable")[:, :N]}
            for model, codes in got.items():
                found[model].append(each_ndcg(codes, place, tested.item))
        by_model = {model: np.concatenate(parts) for model, parts in found.items()}
        yield from against(f"{source} to {target}", by_model)


def known(fraction: float = 0.2) -> Iterator[dict[str, Any]]:
    """People of both catalogues, a fifth of the target's ratings held out: with and without the other catalogue."""
    for source, target in crossings():
        there, here, rows, n = pair(source, target)
        split = hold_out(Ratings({target: here}), fraction, seed=0)
        train, test = split.train[target], split.test[target]
        x, y = _by_person(graded(there), rows[0], n), _by_person(graded(train), rows[1], n)
        ready = (np.diff(x.indptr) > 0) & (np.diff(y.indptr) > 0)
        tested = test.rated(test.liked & ready[rows[1][test.user]])
        people, place = np.unique(rows[1][tested.user], return_inverse=True)
        choice, merged = learn([x, y], [np.arange(n)] * 2), csr_array(hstack([x, y], format="csr"))
        union = learn([merged]).scores(0, [taken(merged, people)])[:, there.n_items:]
        left_out = taken(y, people)
        union[np.repeat(np.arange(len(people)), np.diff(left_out.indptr)), left_out.indices] = -np.inf
        got = {"alone": lists(choice, 1, [None, y], y, people),
               "merged table": np.argsort(-union, axis=1, kind="stable")[:, :N],
               "choice": lists(choice, 1, [x, y], y, people, np.arange(n))}
        by_model = {model: each_ndcg(codes, place, tested.item) for model, codes in got.items()}
        few = np.diff(left_out.indptr) < 10
        yield from against(f"{source} beside {target}", by_model)
        yield from against(f"{source} beside {target}, fewer than 10", {m: v[few] for m, v in by_model.items()})


def against(what: str, by_model: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a model, with tests of `choice` against it over people."""
    own = by_model["choice"]
    for model, values in by_model.items():
        row = {"data": what, "model": model, "users": len(values), f"ndcg@{N}": round(float(values.mean()), 5)}
        if model != "choice":
            row |= {"p_t": float(ttest_rel(own, values).pvalue),
                    "p_wilcoxon": float(wilcoxon(own, values).pvalue) if (own != values).any() else 1.0}
        yield row


def each_ndcg(codes: Any, place: Any, item: Any) -> Any:
    """nDCG of each list by itself."""
    hits = np.zeros(codes.shape, bool)
    wanted = np.bincount(place, minlength=len(codes))
    key = place.astype(np.int64) * (1 + max(int(item.max()), int(codes.max()))) + item
    hits = np.isin(np.arange(len(codes))[:, None] * (1 + max(int(item.max()), int(codes.max()))) + codes, key)
    discount = 1 / np.log2(np.arange(2, N + 2))
    return hits @ discount / np.concatenate([[0], np.cumsum(discount)])[np.minimum(wanted, N)]


def fake() -> Iterator[dict[str, Any]]:
    """An account that gives the top mark to the most popular items and to a new one."""
    for name in ("MovieLens 1M", "MovieTweetings", "goodbooks", "Book-Crossing"):
        d = load(name)[name]
        real = graded(d)
        counts = np.bincount(d.item, minlength=d.n_items)
        for favourites in (3, 20):
            praised = np.append(np.sort(np.argsort(-counts, kind="stable")[:favourites]), d.n_items)
            account = as_rows(np.zeros(len(praised), int), praised, np.ones(len(praised)), (1, d.n_items + 1))
            wide = csr_array((real.data, real.indices, real.indptr), shape=(d.n_users, d.n_items + 1))
            rows = csr_array(vstack([wide, account], format="csr"))
            codes = lists(learn([rows]), 0, [rows], rows, np.arange(d.n_users))
            single = np.append(counts == 1, False)
            yield {"data": name, "favourites": favourites, "users": d.n_users,
                   "in_first_ten": float((codes == d.n_items).any(axis=1).mean()),
                   "single_first": float(single[codes[:, 0]].mean()),
                   "single_share": float(counts[counts == 1].sum() / counts.sum()), "titles": len(np.unique(codes))}


def similar(n_films: int = 300, n: int = 10) -> Iterator[dict[str, Any]]:
    """Genres that the best known films have in common (Jaccard) with those most like them, by several measures."""
    for name, path, mark in (("MovieLens 100K", "ml-100k/u.item", "|"), ("ml-latest-small", "ml-latest-small/movies.csv", ","),
                             ("MovieTweetings", "movietweetings/movies.dat", "::")):
        d = load(name)[name]
        genres = genre_table(DATA / path, mark, d)
        rows = graded(d)
        chosen = as_rows(d.user, d.item, np.ones(len(d)), (d.n_users, d.n_items))
        usable = np.flatnonzero(genres.any(axis=1))
        best = usable[np.argsort(-np.bincount(d.item, minlength=d.n_items)[usable], kind="stable")[:n_films]]
        among = genres[best] @ genres[best].T
        union = genres[best].sum(axis=1)[:, None] + genres[best].sum(axis=1) - among
        jaccard = among / union
        off = ~np.eye(len(best), dtype=bool)

        def common(likeness: Any, jaccard: Any = jaccard, n: int = n) -> float:
            likeness = np.array(likeness, float)
            np.fill_diagonal(likeness, -np.inf)
            nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :n]
            return float(np.take_along_axis(jaccard, nearest, 1).mean())

        yield {"data": name, "measure": "chance", "genres": round(float(jaccard[off].mean()), 4)}
        for measure, table in (("cosine of who rated them", chosen), ("cosine of graded choices", rows)):
            x = taken(table, items=best).toarray()
            x /= np.linalg.norm(x, axis=0)
            yield {"data": name, "measure": measure, "genres": round(common(x.T @ x), 4)}
        items = learn([rows]).items[0]
        partial = -items.times(np.eye(d.n_items, dtype=np.float32)[best])[:, best]
        partial /= np.sqrt(items.spread[best][:, None] * items.spread[best])
        yield {"data": name, "measure": "partial correlation", "genres": round(common(partial), 4)}
        x = rows.toarray() - rows.mean(axis=0)
        x = x[:, best] / np.linalg.norm(x[:, best], axis=0)
        yield {"data": name, "measure": "correlation of graded choices", "genres": round(common(x.T @ x), 4)}


def genre_table(path: Path, mark: str, d: Domain) -> Any:
    """Which genres each item has.   (V, genres)"""
    import csv

    known: dict[str, list[str]] = {}
    text = path.read_text("latin-1" if mark == "|" else "utf-8").splitlines()
    lines = [line.split(mark) for line in text] if mark != "," else list(csv.reader(text[1:]))
    for line in lines:
        known[str(int(line[0]))] = ([str(i) for i, flag in enumerate(line[5:]) if flag == "1"] if mark == "|" else
                                    [g for g in line[-1].split("|") if g and not g.startswith("(")])
    names = sorted({g for genres in known.values() for g in genres})
    out = np.zeros((d.n_items, len(names)), int)
    for code, item in enumerate(d.items.ids):
        out[code, [names.index(g) for g in known.get(str(int(str(item))), [])]] = 1
    return out


def _by_person(rows: Any, of_person: Any, n: int) -> Any:
    """Rows of a catalogue at the rows of their people among all."""
    at = np.repeat(of_person, np.diff(rows.indptr))
    return as_rows(at, rows.indices, rows.data, (n, rows.shape[1]))


def page() -> None:
    """docs/lists.md from the rows."""
    parts = [HEAD]
    for title, name, text, columns in SECTIONS:
        path = RESULTS / f"lists-{name}.jsonl"
        if path.exists():
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            parts += [f"## {title}", text, table(rows, columns)]
    (DOCS / "lists.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + " --- |" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(cell(row.get(key)) for key in columns) + " |" for row in rows])


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.001 else f"{value:.4g}" if abs(value) >= 1 else f"{value:.4f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


LISTED = {"data": "data", "model": "model", "ndcg@10": "nDCG@10", "recall@10": "recall@10", "precision@10": "precision@10",
          "titles": "titles", "catalogue@10": "share of the catalogue", "popular@10": "popular",
          "novelty@10": "novelty, bits", "similarity@10": "similarity in a list", "overlap@10": "overlap of two people",
          "seconds": "fit, s", "lists_seconds": "lists, s"}
TESTED = {"data": "data", "model": "model", "users": "people", "ndcg@10": "nDCG@10", "p_t": "p of `choice` against it (t)",
          "p_wilcoxon": "p (Wilcoxon)"}
HEAD = """# Lists

What people pick and like, from ratings and from events. `python benchmarks/lists.py` measures, and writes this page from
the rows in `benchmarks/results`. In all tables, models see the same split and choose among all items that a person has no
training rating of. *Liked* is a rating at least 70 % up the scale. `choice` is `pclf.choice`: a Gaussian over who chose
what, each choice graded by its rating, whose penalty and mean are found on hidden choices of the training part. ALS and
BPR are those of implicit, with the best of a grid of settings by nDCG@10 on hidden training choices; EASE is the
library's, with the penalty found the same way as for `choice`.

*titles*: different items on the lists of all tested people. *popular*: places held by the most chosen items, which
together have half of all choices. *novelty*: -log2 of the share of people who chose an item. *similarity*: cosine of
who chose them between items of a list. *overlap*: what two people have in common."""
SECTIONS = (
    ("Liked items, from ratings", "ratings", "A fifth of the ratings is held out at random.", LISTED),
    ("Events", "events", "Ratings of 4 and 5 stars as events, a fifth held out at random.", LISTED),
    ("Visitors", "visitors", "People with ratings in one catalogue and none in the other, where a fifth of the people of "
     "both at a time is hidden. *merged table*: the same model on the items of both side by side, which takes what a "
     "visitor has not rated in the other catalogue as turned down.", TESTED),
    ("People of both catalogues", "known", "A fifth of the ratings of one catalogue is held out; what the same people rated "
     "in the other one is used or not.", TESTED),
    ("Fake accounts", "fake", "One account gives the top mark to so many of the most popular items and to a new one. How "
     "many people find that item among their first ten; and how often an item with a single rating is first, beside the "
     "share of choices that such items have.",
     {"data": "data", "favourites": "favourites", "users": "users", "in_first_ten": "new item in the first ten",
      "single_first": "single-rating items first", "single_share": "their share of choices", "titles": "titles"}),
    ("Similar films", "similar", "Genres in common (Jaccard) of the 300 best known films with the ten of them most like "
     "each.", {"data": "data", "measure": "measure", "genres": "genres in common"}),
)


def main(word: str, *peers: str) -> None:
    if word == "page":
        return page()
    work = {"ratings": ratings, "events": events, "visitors": visitors, "known": known, "fake": fake,
            "similar": similar}[word]
    path = RESULTS / f"lists-{word}.jsonl"
    kept: list[dict[str, Any]] = []
    if path.exists() and word in ("ratings", "events") and not peers:
        kept = [row for row in map(json.loads, path.read_text().splitlines()) if row["model"].startswith("implicit")]
    rows = []
    for row in work(*peers):
        print(json.dumps(row), flush=True)
        rows.append(row)
    order = list(dict.fromkeys(row["data"] for row in rows))
    rows = sorted(rows + kept, key=lambda row: order.index(row["data"]))
    path.write_text("".join(json.dumps({**row, "pclf": pclf.__version__}) + "\n" for row in rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
