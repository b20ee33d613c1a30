"""Accuracy of the library by default: against the peers, without each ingredient, with few users, on dense data.

    python benchmarks/accuracy.py splits SPLITS     # the frozen samples as .npz, for benchmarks/peers_accuracy.py
    python benchmarks/accuracy.py ablation          # each ingredient left out in turn
    python benchmarks/accuracy.py constants         # other constants of the factors, on training users alone
    python benchmarks/accuracy.py curve             # 10, 30 and 100 target users beside a full other domain
    python benchmarks/accuracy.py overlap           # the same with people who rate in both domains (Douban)
    python benchmarks/accuracy.py dense             # MovieLens 1M, random 90/10
    python benchmarks/accuracy.py events [FILE.npz] # MovieLens 1M without ratings; the split for peers_events.py
    python benchmarks/accuracy.py similar           # do similar films have genres in common? (MovieLens 100K)
    python benchmarks/accuracy.py score             # the distribution against a Gaussian around the bias model
    python benchmarks/accuracy.py page              # docs/accuracy.md, from benchmarks/results
    python benchmarks/accuracy.py all               # all of them but `splits`, in turn; an hour or two on 2 cores

Data are found through PCLF_DATA. Results are JSON lines in benchmarks/results/accuracy-NAME.jsonl; the main table comes
from `pclf reproduce --preset best` (benchmarks/results/reproduction.json) and from benchmarks/peers_accuracy.py
(benchmarks/results/peers-accuracy.jsonl), and that of events has a row from benchmarks/peers_events.py.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm, ttest_rel
from sklearn.base import clone

from pclf import FMM, PCLF, Bias, compare, hold_out
from pclf.bench import commit, interleaved
from pclf.data.ratings import Ratings
from pclf.data.splits import random_places
from pclf.engines.cpu import cores
from pclf.evaluate import metrics, paper, protocol
from pclf.evaluate.significance import holm
from pclf.factors.hyper import Hyper

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
DOMAINS, GIVEN = ("BC", "ML", "EM"), (5, 10, 15)
MEDIAN = ", its own median"      # of a peer that predicts a distribution
MEASURED = ("ablation", "constants", "curve", "overlap", "score", "dense", "events", "similar")
CLUSTERS = {"factor_weight": 0.0, "lists": False}
ABLATION: dict[str, dict[str, Any]] = {
    "everything": {},
    "factors without axes of taste": {"n_factors": 0},
    "shapes of offset and spread alone": {"hyper": Hyper(shape=2)},
    "Gaussian users": {"hyper": Hyper(freedom=0.0)},
    "factors without a direction to begin with": {"hyper": Hyper(taste=0.0)},
    "nothing from choices and counts": {"hyper": Hyper(ridge=1e12, taste=0.0)},
    "clusters alone": CLUSTERS,
    "clusters alone, none of them common": {**CLUSTERS, "common_weight": 0.0},
    "clusters alone, common weight 0.35": {**CLUSTERS, "common_weight": 0.35},
    "clusters alone, one restart": {**CLUSTERS, "n_restarts": 1},
    "clusters alone, no priors": {**CLUSTERS, "user_prior": 0.0, "item_prior": 0.0, "table_prior": 0.0},
}
FACTORS = {"factor_weight": 1.0, "common_weight": 0.0, "lists": False, "max_iter": 1, "n_restarts": 1}      # alone
CONSTANTS: tuple[dict[str, float], ...] = (
    {}, {"taste": 0.0}, {"taste": 0.5}, {"taste": 1.0}, {"ridge": 75.0}, {"ridge": 300.0}, {"sweeps": 10}, {"sweeps": 15},
    {"freedom": 2.0}, {"freedom": 8.0}, {"freedom": 0.0})


def splits(folder: str) -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    domains = protocol.load(DOMAINS)
    for name in DOMAINS:
        for repeat in range(10):
            s = protocol.sample(name, domains[name], repeat)
            np.savez_compressed(out / f"{name}-{repeat}.npz", user=s.user, item=s.item, rating=s.rating, rank=s.rank)


def ablation(repeats: int = 3) -> Iterator[dict[str, Any]]:
    models = {name: PCLF(**settings) for name, settings in ABLATION.items()}
    models["as published"] = PCLF.paper()
    found = paper.reproduce(["BC-ML", "ML-EM"], [5, 15], repeats, models, "best", n_jobs=cores(), progress=True)
    for row in found.summary:
        yield {key: row[key] for key in ("pair", "dataset", "given", "model", "repeats", "mae_mean", "mae_median",
                                         "rmse", "log_score", "ece", "coverage")}


def constants(repeats: int = 4, n_folds: int = 5) -> Iterator[dict[str, Any]]:
    """The factors with other constants, judged without any test user: by a fifth of the training users in turn."""
    domains = protocol.load(DOMAINS)
    for name, given in product(DOMAINS, GIVEN):
        errors = [np.zeros(2) for _ in CONSTANTS]
        for repeat, fold in product(range(repeats), range(n_folds)):
            s = protocol.sample(name, domains[name], repeat)
            data = Ratings.from_arrays({name: (s.user, s.item, s.rating)}, scale=(1, protocol.N_LEVELS))
            mine, asked = s.user < protocol.N_TRAIN_USERS, s.user % n_folds == fold
            train = data.select({name: mine & (~asked | (s.rank < given))})
            test = data.select({name: mine & asked & (s.rank >= given)})[name]
            for changed, so_far in zip(CONSTANTS, errors, strict=True):
                model = PCLF(hyper=Hyper(**changed), **FACTORS).fit(train)
                so_far += [metrics.mae(test.ratings, model.predict_codes(name, test.user, test.item, rule=rule))
                           / (repeats * n_folds) for rule in ("mean", "median")]
        for changed, (mean, median) in zip(CONSTANTS, errors, strict=True):
            yield {"domain": name, "given": given, "repeats": repeats, "constants": changed, "mae_mean": mean, "mae_median": median}


def curve(repeats: int = 5, given: int = 10) -> Iterator[dict[str, Any]]:
    """Target users cut down to the first n; the source domain whole, or not there: PCLF and its twin, same test users."""
    domains = protocol.load(DOMAINS)
    for repeat in range(repeats):
        samples = {name: protocol.sample(name, domains[name], repeat) for name in DOMAINS}
        for target in DOMAINS:
            for source in (name for name in DOMAINS if name != target):
                split = protocol.split({target: samples[target], source: samples[source]}, given)
                for n in (10, 30, 100):
                    train = fewer(split.train, samples[target], target, given, n)
                    for data, settings in product((train.only([target]), train), ({}, CLUSTERS)):
                        began = time.perf_counter()
                        model = PCLF(**settings).fit(data, random_state=repeat)
                        test = split.test[target]
                        errors = np.abs(model.predict_codes(target, test.user, test.item) - test.ratings)
                        median = np.abs(model.predict_codes(target, test.user, test.item, rule="median") - test.ratings)
                        yield {"target": target, "source": source, "users": n, "given": given, "repeat": repeat,
                               "model": "PCLF" if data is train else "twin", "clusters_alone": bool(settings),
                               "mae": errors.mean(),
                               "mae_median": median.mean(),
                               "seconds": round(time.perf_counter() - began, 2)}


def overlap(repeats: int = 10) -> Iterator[dict[str, Any]]:
    """People who rate books and music: of 500 with more than 16 of each, n and the given of 200 train in the target."""
    from pclf import datasets

    data = datasets.load("douban")
    ids = {name: d.users.array()[d.user] for name, d in data.domains.items()}
    often = [set(user[n > 16]) for user, n in (np.unique(i, return_counts=True) for i in ids.values())]
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        place = {user: i for i, user in enumerate(rng.permutation(sorted(often[0] & often[1]))[:500])}
        who = {name: np.array([place.get(user, -1) for user in i]) for name, i in ids.items()}
        for target, source in (("books", "music"), ("music", "books")):
            own = who[target]
            rank = random_places(own, rng)
            for given, n in product((0, 1, 3), (10, 30, 300)):
                kept, asked = (own >= 0) & (own < n) | (own >= 300) & (rank < given), (own >= 300) & (rank >= given)
                train = data.select({target: kept, source: who[source] >= 0})
                test = data.select({target: asked, source: np.zeros(len(who[source]), bool)})[target]
                for part in (train.only([target]), train):
                    model = PCLF(n_restarts=1).fit(part, random_state=repeat)
                    errors = {f"mae_{rule}": metrics.mae(test.ratings, model.predict_codes(
                        target, test.user, test.item, rule=rule)) for rule in ("mean", "median")}
                    yield {"target": target, "source": source, "users": n, "given": given, "repeat": repeat,
                           "model": "PCLF" if part is train else "twin", **errors}


def fewer(train: Ratings, sample: protocol.Sample, name: str, given: int, n: int) -> Ratings:
    """Of the target's training users the first n; the test users keep what they are given."""
    own = sample.user[sample.kept(given)]
    return train.select({name: (own < n) | (own >= protocol.N_TRAIN_USERS)})


def dense() -> Iterator[dict[str, Any]]:
    from pclf import datasets

    split = hold_out(datasets.load("ml-1m"), 0.1, seed=0)
    test = split.test["movies"]
    models = {"Bias": Bias(), "FMM as published": FMM.paper(), "PCLF as published": PCLF.paper(), "FMM": FMM(),
              "PCLF": PCLF(lists=False), "PCLF and lists": PCLF()}
    times = interleaved({name: lambda m=model: m.fit(split.train, random_state=0) for name, model in models.items()}, 5)
    for name, model in models.items():
        row = {"model": name, "seconds": round(float(np.median(times[name])), 2)}
        for rule in model.rules:
            found = model.predict_codes("movies", test.user, test.item, rule=rule)
            row[f"mae_{rule}"] = metrics.mae(test.ratings, found)
            if rule == "mean":
                row["rmse"] = metrics.rmse(test.ratings, found)
        yield row


def events(path: str | None = None) -> Iterator[dict[str, Any]]:
    """MovieLens 1M without its ratings: those of 4 and 5 are events, a fifth of them held out."""
    from pclf import datasets

    rated = datasets.load("ml-1m")["movies"]
    liked = rated.ratings >= 4
    log = Ratings.from_events({"movies": (rated.user[liked], rated.item[liked])})
    split = hold_out(log, 0.2, seed=0)
    if path:
        pairs, last = (np.stack([part["movies"].user, part["movies"].item], axis=1) for part in (split.train, split.test))
        valid = np.random.default_rng(0).random(len(pairs)) < 0.1
        np.savez_compressed(path, train=pairs[~valid], valid=pairs[valid], test=last)

    popular = PCLF(1, 1, 1, factor_weight=1.0, n_factors=0, lists=False)     # an offset an item: about the order of counts
    models = {"popularity": popular, "clusters alone": PCLF(**CLUSTERS), "factors alone": PCLF(lists=False), "PCLF": PCLF()}
    few = split.train.select({"movies": split.train["movies"].user < 200}).compact()
    for model in models.values():
        clone(model).fit(few)                                          # compiles
    found = compare(models, [split], metrics=("ndcg@10", "recall@10", "precision@10"))
    for name in models:
        rows = [r for r in found.scores if r.model == name]
        yield {"model": name, **{r.metric: r.value for r in rows}, "seconds": round(rows[0].seconds, 2)}


def similar(n_films: int = 300, n: int = 10) -> Iterator[dict[str, Any]]:
    """Of the best known films of MovieLens 100K, the genres that they have in common with those most like them."""
    from pclf import datasets

    films = datasets.load("ml-100k")
    d = films["movies"]
    lines = datasets.info("ml-100k").paths[0].with_name("u.item").read_text("latin-1").splitlines()
    genres = {int(row[0]): np.array(row[5:], int) for row in (line.split("|") for line in lines)}
    has = np.stack([genres[int(film)] for film in d.items.ids])                      # (V, genres)
    common, either = has @ has.T, has.sum(axis=1)[:, None] + has.sum(axis=1) - has @ has.T
    jaccard, counts = common / np.maximum(either, 1), np.bincount(d.item, minlength=d.n_items)
    known = np.argsort(-counts, kind="stable")[:n_films]
    for name, model in {"PCLF": PCLF(bridges=()), "clusters alone": PCLF(**CLUSTERS)}.items():
        model.fit(films)
        found = [d.items.encode([r.item for r in model.similar_items("movies", d.items.ids[film], n)]) for film in known]
        yield {"by": name, "films": n_films, "n": n, "jaccard": float(jaccard[known[:, None], found].mean())}
    rated = np.zeros((d.n_users, d.n_items), np.float32)
    rated[d.user, d.item] = 1
    together = rated.T @ rated / np.sqrt(np.outer(counts, counts))
    np.fill_diagonal(together, -1)
    yield {"by": "rated by the same people (cosine)", "films": n_films, "n": n,
           "jaccard": float(jaccard[known[:, None], np.argsort(-together[known], axis=1)[:, :n]].mean())}
    yield {"by": "chance", "films": n_films, "n": n, "jaccard": float(jaccard[known].mean())}


def score(repeats: int = 10, given: int = 10) -> Iterator[dict[str, Any]]:
    """Log score of a Gaussian around the bias model, cut at the middles between levels; its spread is that of the
    training residuals."""
    domains = protocol.load(DOMAINS)
    for name in DOMAINS:
        for repeat in range(repeats):
            split = protocol.split({name: protocol.sample(name, domains[name], repeat)}, given)
            model = Bias().fit(split.train)
            train, test = split.train[name], split.test[name]
            sd = (model.predict_codes(name, train.user, train.item) - train.ratings).std()
            mean = model.predict_codes(name, test.user, test.item)
            edges = norm.cdf((np.array([1.5, 2.5, 3.5, 4.5]) - mean[:, None]) / sd)
            probability = np.diff(np.concatenate([np.zeros((len(mean), 1)), edges, np.ones((len(mean), 1))], axis=1))
            yield {"dataset": name, "given": given, "repeat": repeat, "model": "Gaussian around Bias",
                   "log_score": metrics.log_score(probability, split.test.levels(name))}


def page() -> None:
    ours = json.loads((RESULTS / "reproduction.json").read_text())
    best = {(r["dataset"], r["given"], r["model"]): r for r in averaged(r for r in ours if r["preset"] == "best")}
    peers = peer_table(read("peers-accuracy"))
    draw({cell: {key: float(np.mean(list(found.values()))) for key, found in keys.items()} for cell, keys in peers.items()}, best)
    text = [HEAD, "", "PCLF, RMGM and FMM in the next four tables:" + when([r for r in ours if r["preset"] == "best"
            and r["model"] in ("PCLF", "RMGM", "FMM")]).replace(" M", " m")]
    for title, key, peer_keys in (
        ("Mean rule: mean absolute error", "mae_mean", ("mae",)),
        ("Median rule: mean absolute error, peers rounded where that helps them", "mae_median",
         ("mae", "mae_rounded", "mae_median")),
        ("Root mean squared error", "rmse", ("rmse",)),
    ):
        text += ["", f"### {title}", "", table(best, peers, key, peer_keys)]
    text += ["", *distribution(ours), "", *ablation_part(), "", *constants_part(), "", *curve_part(), "", *overlap_part(), "", *dense_part(), "", *events_part(), "",
             *similar_part(), "", TAIL]
    (DOCS / "accuracy.md").write_text("\n".join(text) + "\n")


def averaged(rows: Any) -> Iterator[dict[str, Any]]:
    """Each domain averaged over its two pairs."""
    cells = defaultdict(list)
    for r in rows:
        cells[r["dataset"], r["given"], r["model"]].append(r)
    for (dataset, given, model), found in cells.items():
        row = {"dataset": dataset, "given": given, "model": model}
        for key in found[0]:
            values = [f[key] for f in found]
            if all(isinstance(v, float) for v in values):
                row[key] = float(np.mean(values))
        yield row


def peer_table(rows: list[dict[str, Any]]) -> dict[tuple[str, int, str], dict[str, dict[int, float]]]:
    """Domain, given and peer -> measure -> repeat -> value, where all repeats are there."""
    cells: dict[tuple[str, int, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for r in rows:
        for key in ("mae", "mae_rounded", "mae_median", "rmse"):
            by = "rmse" if key == "rmse" else "mae"
            if r.get(key) is not None and r["chosen_by"] in ("both", by):
                peer = r["peer"] + (MEDIAN if key == "mae_median" else "")
                cells[r["domain"], r["given"], peer][key][r["repeat"]] = r[key]
    return {cell: {k: v for k, v in found.items() if len(v) == 10} for cell, found in cells.items()}


def our_repeats(key: str) -> dict[tuple[str, int], dict[int, float]]:
    """Domain and given -> repeat -> value of PCLF, averaged over the two pairs of the domain."""
    cells: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for r in read("reproduction-repeats"):
        if r["model"] == "PCLF":
            cells[r["dataset"], r["given"]][r["repeat"]].append(r[key])
    return {cell: {repeat: float(np.mean(v)) for repeat, v in found.items()} for cell, found in cells.items()}


def table(best: dict, peers: dict, key: str, peer_keys: tuple[str, ...]) -> str:
    columns = [(d, g) for d in DOMAINS for g in GIVEN]
    lines = ["| | " + " | ".join(f"{d} {g}" for d, g in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    least: dict[str, dict[tuple[str, int], tuple[float, dict[int, float]]]] = {"the best peer": {}, "the best, medians too": {}}
    for name in dict.fromkeys(p for _, _, p in peers):
        cells = {}
        for cell in columns:
            found = [x for x in map(peers.get((*cell, name), {}).get, peer_keys) if x is not None]
            if found:
                cells[cell] = min((float(np.mean(list(x.values()))), x) for x in found)
        if not cells:
            continue
        lines.append(f"| {name} | " + " | ".join(f"{cells[c][0]:.4f}" if c in cells else "" for c in columns) + " |")
        for kind, so_far in least.items():
            if kind != "the best peer" or not name.endswith(MEDIAN):
                so_far |= {c: min(x, so_far.get(c, (np.inf, {})), key=lambda pair: pair[0]) for c, x in cells.items()}
    for name in ("FMM", "RMGM", "PCLF"):
        lines.append(f"| **{name}** (pclf) | " + " | ".join(f"**{best[*c, name][key]:.4f}**" for c in columns) + " |")
    against = least if "mae_median" in peer_keys else {"the best peer": least["the best peer"]}
    ours = our_repeats(key)
    for name, peer in against.items():
        lines.append(f"| PCLF against {name} | "
                     + " | ".join(f"{100 * (best[*c, 'PCLF'][key] / peer[c][0] - 1):+.2f} %" for c in columns) + " |")
        p = holm([ttest_rel(*([of[repeat] for repeat in sorted(ours[c])] for of in (ours[c], peer[c][1]))).pvalue
                  for c in columns])
        lines.append("| p | " + " | ".join("< 0.001" if x < 0.001 else f"{x:.3f}" for x in p) + " |")
    lines.append("| PCLF against FMM | " + " | ".join(
        f"{100 * (best[*c, 'PCLF'][key] / best[*c, 'FMM'][key] - 1):+.2f} %" for c in columns) + " |")
    return "\n".join(lines)


def draw(peers: dict, best: dict) -> None:
    """Of each cell the errors of the peers, in percent above that of PCLF."""
    names, most = {"BC": "Book-Crossing", "ML": "MovieLens 100K", "EM": "EachMovie"}, 14
    style = {"svg.fonttype": "none", "svg.hashsalt": "pclf", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
             "font.size": 10}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(8.6, 3.9), layout="constrained", facecolor="white")
        axes, ticks = figure.subplots(), {}
        for i, (domain, given) in enumerate((d, g) for d in DOMAINS for g in GIVEN):
            y = -(i + 0.6 * DOMAINS.index(domain))
            ticks[y] = f"{names[domain]}, {given} ratings"
            above = {peer: 100 * (found["mae"] / best[domain, given, "PCLF"]["mae_mean"] - 1)
                     for (d, g, peer), found in peers.items() if (d, g) == (domain, given) and "mae" in found}
            shown = [x for x in above.values() if x <= most]
            axes.plot([0, most], [y, y], color="0.9", lw=1, zorder=1)
            axes.plot(shown, [y] * len(shown), "o", color="0.55", ms=6, mec="white", zorder=2)
            axes.plot(0, y, "D", color="#0072b2", ms=8, zorder=3)
            nearest = min(above, key=above.__getitem__)
            assert above[nearest] > 0, "the title is wrong now"
            beyond = len(above) - len(shown)
            axes.annotate(f"nearest: {nearest}" + (f"; {beyond} beyond" if beyond else ""), (most, y), xytext=(6, 0),
                          textcoords="offset points", va="center", fontsize=8, color="0.35")
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.set_xlim(-0.6, most)
        axes.set_xlabel("mean absolute error above that of PCLF, in % (diamond: PCLF; dots: nine other models)")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.suptitle("With 5, 10 or 15 ratings a user, each of nine other models errs more", x=0.01, ha="left", fontsize=11)
        figure.savefig(DOCS / "img/accuracy.svg", metadata={"Date": None, "Creator": None, "Title": "Errors of nine models above that of PCLF"})


def distribution(ours: list[dict[str, Any]]) -> list[str]:
    rows, plain = ({(r["dataset"], r["given"], r["model"]): r for r in averaged(r for r in ours if r["preset"] == preset)}
                   for preset in ("best", "paper"))
    gauss = defaultdict(list)
    for r in read("accuracy-score"):
        gauss[r["dataset"]].append(r["log_score"])
    lines = ["## The distribution", "", "Mean log probability of a test rating (higher is better), calibration error over "
             "cumulative probabilities, and the share of test ratings in the central 80 % interval, border levels counting by the "
             "part that is inside; 10 ratings given, 10 repeats.",
             "", "| | Gaussian around Bias | FMM as published | FMM | PCLF | ECE of PCLF | 80 % interval of PCLF |",
             "|---|---|---|---|---|---|---|"]
    for d in DOMAINS:
        f, p = rows[d, 10, "FMM"], rows[d, 10, "PCLF"]
        lines.append(f"| {d} | {np.mean(gauss[d]):.4f} | {plain[d, 10, 'FMM']['log_score']:.4f} | {f['log_score']:.4f} | {p['log_score']:.4f} | {p['ece']:.4f} | "
                     f"{p['coverage']:.1%} |")
    return lines


def ablation_part() -> list[str]:
    rows = {(r["dataset"], r["given"], r["model"]): r for r in averaged(read("accuracy-ablation"))}
    columns = list(dict.fromkeys((d, g) for d, g, _ in rows))
    names = list(dict.fromkeys(m for _, _, m in rows))
    lines = ["## Each ingredient left out", "", "MAE, mean rule / median rule; pairs BC-ML and ML-EM, 3 repeats "
             "(`python benchmarks/accuracy.py ablation`). Known users are predicted by factors in nearly all of these cells, so what "
             "belongs to the clusters shows only without them." + when(read("accuracy-ablation")), "",
             "| | " + " | ".join(f"{d} {g}" for d, g in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(
            f"{rows[d, g, name]['mae_mean']:.4f} / {rows[d, g, name]['mae_median']:.4f}" for d, g in columns) + " |")
    return lines


def constants_part() -> list[str]:
    rows = read("accuracy-constants")
    errors = {(json.dumps(r["constants"]), r["domain"], r["given"]): np.array([r["mae_mean"], r["mae_median"]]) for r in rows}
    lines = ["## Other constants of the factors", "", "Change of the MAE in %, mean rule / median rule, averaged over 5, 10 and 15 "
             "ratings given, when a constant of `pclf.factors.hyper.Hyper` is changed. Judged by training users alone, a fifth of them at a "
             f"time, {rows[0]['repeats']} repeats (`python benchmarks/accuracy.py constants`): constants were chosen by figures like these." + when(rows), "",
             "| | BC | ML | EM |", "|---|---|---|---|"]
    for key in dict.fromkeys(key for key, *_ in errors if key != "{}"):
        changes = [np.mean([100 * (errors[key, d, g] / errors["{}", d, g] - 1) for g in GIVEN], axis=0) for d in DOMAINS]
        (name, value), = json.loads(key).items()
        name = name.lower()                                         # as version 0.1 did not write them
        gaussian = " (Gaussian users)" if name == "freedom" and not 0 < value < 100 else ""
        lines.append(f"| {name} = {value:g} instead of {getattr(Hyper(), name):g}{gaussian} | "
                     + " | ".join(f"{a:+.2f} / {b:+.2f}" for a, b in changes) + " |")
    return lines


def curve_part() -> list[str]:
    cells = defaultdict(lambda: defaultdict(dict))
    for r in read("accuracy-curve"):
        who = "PCLF" if r["model"] == "PCLF" else "twin"             # of version 0.1, FMM, which had factors there
        cells[r["target"], r["source"], r["users"], r["clusters_alone"]][who][r["repeat"]] = r["mae"]
    defaults = max(abs(100 * (np.mean(list(found["PCLF"].values())) / np.mean(list(found["twin"].values())) - 1))
                   for (*_, alone), found in cells.items() if not alone)
    lines = ["## Few users in the target domain", "", "PCLF beside a full other domain against its twin, the same model on the "
             "target alone, nobody and nothing in common: change of the MAE (mean rule), 5 repeats, 10 ratings given; p of a paired "
             "t-test over the repeats, Holm's correction over the 18 cells (`python benchmarks/accuracy.py curve`). Nothing ties "
             "these domains, so factors are learned domain by domain, and held-out ratings hardly ever give common clusters a "
             f"weight beside them: with the defaults the two differ by at most {defaults:.2f} % in any of these cells."
             + when(read("accuracy-curve")) + " With clusters alone (`factor_weight=0`) one sees what pooling does to them:", "",
             "| target ← source | 10 users | 30 users | 100 users |", "|---|---|---|---|"]
    rows, changes, p = [], [], []
    for target in DOMAINS:
        for source in (name for name in DOMAINS if name != target):
            for n in (10, 30, 100):
                found = cells[target, source, n, True]
                a, b = (np.array([found[m][k] for k in sorted(found["PCLF"])]) for m in ("PCLF", "twin"))
                changes.append(100 * (a.mean() / b.mean() - 1))
                p.append(ttest_rel(a, b).pvalue)
            rows.append(f"| {target} ← {source} |")
    parts = [f" {change:+.2f} % (p = {q:.2g}) |" for change, q in zip(changes, holm(p), strict=True)]
    return lines + [row + "".join(parts[3 * i:3 * i + 3]) for i, row in enumerate(rows)]


def overlap_part() -> list[str]:
    cells = defaultdict(lambda: defaultdict(dict))
    for r in read("accuracy-overlap"):
        who = "PCLF" if r["model"] == "PCLF" else "twin"
        cells[r["target"], r["source"], r["given"], r["users"]][who][r["repeat"]] = r["mae_mean"], r["mae_median"]
    sizes = list(dict.fromkeys(users for *_, users in cells))
    lines = ["## Few users in the target domain, who are known elsewhere", "", "Douban: 500 people who rate books and music, "
             "`shared_users=True`; the ratings in the source are all known. PCLF against its twin on the target alone, change of the MAE by "
             "the mean rule / the median rule; a star is p < 0.05 in a paired t-test over 10 repeats, Holm's correction "
             "over the table (`python benchmarks/accuracy.py overlap`)." + when(read("accuracy-overlap")), "",
             "| target ← source, ratings given | " + " | ".join(f"{n} users" for n in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    changes, p = {}, {}
    for cell, found in cells.items():
        ours, twin = (np.array([found[m][k] for k in sorted(found["PCLF"])]) for m in ("PCLF", "twin"))        # (repeats, 2)
        changes[cell], p[cell] = 100 * (ours.mean(axis=0) / twin.mean(axis=0) - 1), ttest_rel(ours, twin).pvalue
    corrected = dict(zip(p, holm(np.ravel(list(p.values()))).reshape(-1, 2), strict=True))
    for key in dict.fromkeys(cell[:3] for cell in cells):
        parts = [" / ".join(f"{c:+.1f} %{'*' if q < 0.05 else ''}" for c, q in
                            zip(changes[*key, n], corrected[*key, n], strict=True)) for n in sizes]
        lines.append("| {} ← {}, {} | ".format(*key) + " | ".join(parts) + " |")
    return lines


def dense_part() -> list[str]:
    rows = read("accuracy-dense")
    seconds = {r["model"]: r["seconds"] for r in rows}
    lines = ["## One dense domain", "", "MovieLens 1M, random 90/10 (`python benchmarks/accuracy.py dense`); seconds are medians of "
             "five interleaved fits on 2 cores, after one that compiles. The peers on the same split, with their times, are on the "
             "page about [performance](performance.md). Here factors do all of the work, and there is nothing to "
             f"pool. With all they learn, the defaults take {seconds['PCLF'] / seconds['PCLF as published']:.1f} times "
             "as long as the model as published." + when(rows), "",
             "| model | MAE, mean rule | MAE, median rule | RMSE | seconds |", "|---|---|---|---|---|"]
    for r in rows:
        median = f"{r['mae_median']:.4f}" if "mae_median" in r else ""
        lines.append(f"| {r['model']} | {r['mae_mean']:.4f} | {median} | {r['rmse']:.4f} | {r['seconds']} |")
    return lines


def events_part() -> list[str]:
    lines = ["## Events instead of ratings", "", "MovieLens 1M without its ratings: the 575,281 of 4 and 5 stars are events, a fifth of "
             "them held out; lists of 10 from all films that a user has no event with (`python benchmarks/accuracy.py events`; implicit's ALS "
             "at the best of 18 settings on validation events, `benchmarks/peers_events.py`). The clusters alone rank films about as their "
             "popularity does; what is gained beyond it comes from factors." + when(read("accuracy-events")), "",
             "| model | nDCG@10 | recall@10 | precision@10 | seconds |", "|---|---|---|---|---|"]
    for r in read("accuracy-events") + read("peers-events"):
        lines.append(f"| {r['model']} | {r['ndcg@10']:.4f} | {r['recall@10']:.4f} | {r['precision@10']:.4f} | {r['seconds']} |")
    return lines


def similar_part() -> list[str]:
    rows = read("accuracy-similar")
    lines = ["## Similar items", "", f"MovieLens 100K: the {rows[0]['n']} films most like each of the {rows[0]['films']} with most ratings, "
             "and the share of genres that they have in common with it (Jaccard index). No model sees genres "
             "(`python benchmarks/accuracy.py similar`). In one domain, and between domains that a bridge ties, "
             "`similar_items` compares factors; without them, what the user clusters think." + when(rows), "", "| similar by | genres in common |", "|---|---|"]
    return lines + [f"| {r['by']} | {r['jaccard']:.3f} |" for r in rows]


def when(rows: list[dict[str, Any]]) -> str:
    """What code rows were measured with, as a sentence. Version 0.1 did not write it down."""
    known = sorted({r["commit"] for r in rows if r.get("commit")})
    if all(r.get("commit") for r in rows):
        return f" Measured at commit {', '.join(known)}."
    return " Measured with version 0.1 of the code."


def read(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


HEAD = """# Accuracy

How accurate `PCLF()` is with its defaults, beside other libraries, on the paper's protocol: 500 users and 1000 items a
domain, 300 training users, 5, 10 or 15 ratings given of each test user, 10 repeats, the same splits for everybody.
BC is Book-Crossing, ML MovieLens 100K, EM EachMovie; each cell of ours is averaged over the two pairs of the domain.
Peers see one domain at a time, with the given ratings of the test users among their training ratings, each at the best of
a small grid chosen on validation ratings, by the absolute error of unrounded predictions, or by the squared one where that is
shown (`benchmarks/peers_accuracy.py`). Our settings were chosen on validation ratings too,
with more looks than the peers' grids had.

`PCLF` is clusters and factors. `FMM` and `RMGM` are the published cluster models, with priors and restarts.

**None of this is transfer.** These domains have nobody and nothing in common, and no attributes here, so nothing ties their factors:
these are learned as if each domain were alone. [Below](#where-pooling-helps-and-where-not) is where other domains do help,
and the page [What carries over](transfer.md) measures it.

![Each of nine other models errs more than PCLF in all nine cells](img/accuracy.svg)

p is of a paired t test over the ten repeats against the best peer of each cell, with Holm's correction over the nine cells. The repeats
draw users from the same data sets, and of Book-Crossing the same 500, so p says that the order holds for these data. Peers
were what pip found for Python 3.11 in November 2026 (LensKit 2025.8.1).

This page is written by `python benchmarks/accuracy.py page` from the files in `benchmarks/results`. What was measured with version 0.1
of the code says so. There, factors were called a *personal view*, every domain had its own, and FMM and RMGM had them too."""

TAIL = """## What did not help

Tried on validation ratings while the defaults were chosen, and left out:

- More or fewer clusters (K from 20 to 80, T and L from 6 to 20), other prior strengths (0.5 to 4), 15 to 50 iterations: all
  within 0.002 of each other once factors are there.
- Moving the mixture's mean by user and item offsets afterwards, learned from cross-fitted residuals: the size of the offsets
  is learned from heavy users, whom the mixture already explains, so it comes out near 0 for users with five ratings.
- The best pair of weights of the grid without asking whether it is surely the best: what it gains in log score it loses
  in absolute error.
- Learning the degrees of freedom of the users' distribution: mean-field inference drifts towards a Gaussian. Between 2 and
  10 degrees nothing changes by more than 0.3 % on validation ratings; a Gaussian is worse on Book-Crossing and better on EachMovie.
- Any other prior of the users' shapes: with the people themselves as atoms of the prior (the posteriors of all others, each shape
  weighted by how well it explains a user's ratings), the log score is that of the Student distribution to 0.001.
- Sharing the covariance of shapes between domains without common people.
- Giving the clusters a weight where held-out ratings do not surely ask for it, also with 10 or 30 target users: between 0.26 %
  worse and 0.17 % better by the mean rule.
- The means of the chosen items' own rows instead of correspondence analysis: they count ratings twice, and EachMovie suffers.
- More dimensions of choices (24, 48), or a penalty found by empirical Bayes, which is too small.
- Going on from the trial's factors instead of starting again: more sweeps raise the likelihood and the error.
- Sharpening the pooled distribution: lowers the error of the mean rule, but raises the squared error and harms calibration.
- Averaging several fits of the factors, and integrating over its uncertainty in predictions. Sampling users, items
  and priors from the posterior (Metropolis steps from Laplace approximations, 80 samples) raises the error of the median rule
  by 0.9 % and of the mean rule by 1.3 % on average.
- Boosted trees on top (the predicted distribution, the mixture's, counts, means and spreads of user and item as features, 240
  training users): up to 2.7 % worse alone, 0.3 % better to 0.6 % worse averaged with the model. Other thresholds than a half
  for the median, the best on the very ratings they are judged by, would gain 0.2 to 0.4 % in most cells; learned on held-out ratings,
  they are between 0.1 % better and 0.6 % worse.
- Heavy tails for items; a weight for the factors below 1.
- How popular a user's choices are, and how active the choosers of an item: within 0.1 % by either rule.
- Starting the items' factors from who chose them without expecting them to stay there, or with the length of their places instead of
  length 1. Directions of 3 to 8 places instead of 12, and lengths from 0.5 to 1, are within 0.1 % of each other on average; 1 would be
  better for Book-Crossing and worse for MovieLens.

## Where pooling helps, and where not

Without a bridge, what common clusters add to factors is so little that held-out ratings hardly ever confirm it, and then they get
no weight: PCLF predicts as its twin does, and does no harm. That pooling without common users transfers little is what Cremonesi &
Quadrana (RecSys 2014) found for other models. What carries over, carries over by bridges: common people, common things, attributes.
The table of Douban says what common people bring, most where a person has few ratings in the target;
[What carries over](transfer.md) has the others. Run `pclf audit` on your own data."""


def measure(word: str, *options: Any) -> None:
    """Results take the place of older ones when all of them are there."""
    RESULTS.mkdir(exist_ok=True)
    rows = []
    for row in globals()[word](*options):
        rows.append(json.dumps({**row, "commit": commit()}) + "\n")
        print(row, flush=True)
    (RESULTS / f"accuracy-{word}.jsonl").write_text("".join(rows))


if __name__ == "__main__":
    word, *rest = sys.argv[1:] or ["page"]
    if word == "all":
        for each in MEASURED:
            measure(each)
        page()
    elif word in ("splits", "page"):
        globals()[word](*rest)
    elif word in MEASURED:
        measure(word, *(int(x) if x.isdigit() else x for x in rest))
    else:
        sys.exit(f"unknown word {word!r}: {', '.join(('all', 'splits', 'page', *MEASURED))}")
