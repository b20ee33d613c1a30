"""docs/transfer.md from the rows of benchmarks/transfer.py: `python benchmarks/transfer.py page`."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transfer import TASTES

from pclf.evaluate.significance import paired_tests

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "transfer.md"
BEFORE = "today"          # the label of the rows that were measured before the redesign
WHAT = {"mae": "mean absolute error", "pairs": "share of a visitor's pairs of different ratings in the right order"}

Row = dict[str, Any]
Values = dict[str, dict[int, float]]      # model -> repeat -> value


class Rows:
    """The rows of all cases, and which label is ours."""

    def __init__(self) -> None:
        self.rows: list[Row] = [json.loads(line) for path in sorted(RESULTS.glob("transfer-*.jsonl"))
                                for line in path.read_text().splitlines()]
        self.ours = "PCLF" if any(row["model"].startswith("PCLF") for row in self.rows) else BEFORE
        self.cells: dict[tuple[str, str, str, str], Values] = defaultdict(lambda: defaultdict(dict))
        self.overlap: dict[tuple[str, str], float] = {}
        for row in self.rows:
            cell = self.cells[row["case"], row["setting"], row["rule"], row["metric"]]
            cell[row["model"]][row["repeat"]] = row["value"]
            self.overlap[row["case"], row["setting"]] = row["n"] / row["n_train"]

    def settings(self, case: str) -> list[str]:
        return list(dict.fromkeys(row["setting"] for row in self.rows if row["case"] == case))

    def named(self, model: str) -> str:
        return model.replace("PCLF", self.ours)

    def cell(self, case: str, setting: str, rule: str, metric: str) -> Values:
        return self.cells.get((case, setting, rule, metric), {})


class Change(NamedTuple):
    """A model against another, over the repeats that both have."""

    percent: float
    p: float                    # by t, corrected for the number of others


def changes(rows: Rows, case: str, setting: str, rule: str, metric: str, model: str, others: Iterable[str]) -> dict[str, Change]:
    """The model against each of the others that is there."""
    cell = rows.cell(case, setting, rule, metric)
    family = {name: cell[name] for name in (model, *others) if name in cell}
    if model not in family:
        return {}
    out = {}
    for test in paired_tests(family, model, rows.overlap[case, setting]):
        if test.splits:
            other = np.mean([cell[test.model][repeat] for repeat in cell[model] if repeat in cell[test.model]])
            out[test.model] = Change(-100 * test.effect / other, test.p_t_holm)
    return out


def table(rows: Rows, case: str, rule: str, metric: str, models: Iterable[str], against: Iterable[str],
          settings: list[str] | None = None) -> list[str]:
    """A line a model, a column a setting; below, ours against others with the p of the paired test."""
    settings = settings or rows.settings(case)
    against = list(against)
    cells = {setting: rows.cell(case, setting, rule, metric) for setting in settings}
    most = max((len(values) for cell in cells.values() for values in cell.values()), default=0)
    lines = ["| | " + " | ".join(settings) + " |", "|---" * (len(settings) + 1) + "|"]
    for model in models:
        found = [cells[setting].get(model, {}) for setting in settings]
        if any(found):
            bold = "**" if model == rows.ours else ""
            lines.append(f"| {bold}{model}{bold} | " + " | ".join(
                f"{bold}{np.mean(list(x.values())):.4f}{bold}" + (f" ({len(x)})" if len(x) < most else "") if x else ""
                for x in found) + " |")
    if not most:
        return []
    tests = [changes(rows, case, setting, rule, metric, rows.ours, against) for setting in settings]
    for other in against:
        found = [test.get(other) for test in tests]
        if any(found):
            lines.append(f"| {rows.ours} against {other} | " + " | ".join(
                f"{x.percent:+.2f} % (p {significance(x.p)})" if x else "" for x in found) + " |")
    return ["", f"{WHAT[metric].capitalize()}, {rule} rule, {most} {'repeat' if most == 1 else 'repeats'}:", "", *lines]


def significance(p: float) -> str:
    return "–" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


class Goal(NamedTuple):
    text: str
    case: str
    bound: float                # the largest change, in percent
    against: tuple[str, ...]    # the best of these
    model: str = "PCLF"
    rules: tuple[str, ...] = ("mean",)
    only: str = ""              # a part of the setting's name
    metric: str = "mae"


def goals() -> Iterator[Goal]:
    both = ("mean", "median")
    yield Goal("a catalogue of other levels beside it changes nothing", "levels", 0.2, ("PCLF alone",), rules=both)
    yield Goal("the shops are as good as the merged table", "shops", 0.5, ("PCLF merged",))
    for n, bound in ((10, -6.0), (30, -6.6), (100, -5.3), (300, -3.9), (1000, -1.9)):
        yield Goal("MovieTweetings gains from the same films of MovieLens", "tweets", bound, ("PCLF alone",), only=f"{n} users")
    yield Goal("shared people: not above the better of the merged table and the model before", "people", 0.0,
               ("PCLF merged", BEFORE), rules=both)
    for target, bounds in (("Amazon books", (-6.1, -4.8, -3.2)), ("Amazon films", (-9.0, -7.1, -5.0))):
        for given, bound in zip((0, 1, 3), bounds, strict=True):
            source = {"Amazon books": "films", "Amazon films": "books"}[target]
            yield Goal("shared people gain at least what offsets bring", "people", bound, ("PCLF alone",),
                       only=f"{target} ← {source}, {given} given")
    yield Goal("visitors: not above myFM with the same attributes", "visitors", 0.0, ("myFM",))
    yield Goal("visitors: pairs in order, not below myFM", "visitors", 0.0, ("myFM",), metric="pairs")
    yield Goal("visitors without attributes: not above item mean + offset", "visitors", 0.0, ("offsets",), "PCLF no attributes")
    yield Goal("films without a rating", "new films", -5.0, ("PCLF no attributes", "Bias alone", "offsets alone"))
    yield Goal("few target users", "few users", -1.0, ("PCLF alone, no attributes",))
    for links in ("users permuted", "items permuted"):
        yield Goal("links that say nothing do no harm", "harm", 0.3, ("PCLF alone",), only=links, rules=both)
    yield Goal("attributes that say nothing do no harm", "harm", 0.3, ("PCLF no attributes",), only="attributes permuted", rules=both)
    yield Goal("whole sets: at or below every peer", "whole", 0.0, PEERS, rules=both)


PEERS = ("BaselineOnly", "SVD", "SVDpp", "cmfrec", "LensKit", "myFM", "myFM who rated what")


def judged(rows: Rows) -> list[str]:
    lines = ["| what | at most | worst cell | there | holds |", "|---|---|---|---|---|"]
    for goal in goals():
        found = []
        for setting, rule in product(rows.settings(goal.case), goal.rules):
            if goal.only in setting:
                sign = -1 if goal.metric == "pairs" else 1
                found += [(sign * x.percent, f"{setting}, {rule} rule, {other}") for other, x in changes(
                    rows, goal.case, setting, rule, goal.metric, rows.named(goal.model), map(rows.named, goal.against)).items()]
        lacking = goal.case == "whole" and any(absent(rows, setting) for setting in rows.settings("whole"))
        if found:
            worst, where = max(found)
            lines.append(f"| {goal.text} | {goal.bound:+.1f} % | {where} | {worst:+.2f} % | {'**no**' if worst > goal.bound else 'where measured' if lacking else 'yes'} |")
        else:
            lines.append(f"| {goal.text} | {goal.bound:+.1f} % | {goal.only} | not measured | |")
    listed = {metric: np.mean(list(values[rows.ours].values())) for (case, *_, metric), values in rows.cells.items()
              if case == "books" and rows.ours in values}
    if listed:
        same = listed["in both lists"]
        lines.append(f"| two tastes get different books | 5 of 10 | in both lists | {same:.1f} | {'yes' if same <= 5 else '**no**'} |")
        for taste, other in (TASTES, TASTES[::-1]):
            mine, theirs = (listed[f"{taste} in the list for {reader}"] for reader in (taste, other))
            lines.append(f"| {taste}: at least twice the other list's share | | | {mine:.2f} and {theirs:.2f} | "
                         f"{'yes' if mine >= 2 * theirs else '**no**'} |")
    return lines


def about_books(rows: Rows) -> list[str]:
    names = list(dict.fromkeys(row["metric"] for row in rows.rows if row["case"] == "books"))
    found = [(row["model"], row["metric"]) for row in rows.rows if row["case"] == "books"]
    models = list(dict.fromkeys(model for model, _ in found))
    lines = ["", "| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for model in models:
        means = [np.mean(list(rows.cell("books", "films → books", "list", name)[model].values())) for name in names]
        lines.append(f"| {model} | " + " | ".join(f"{x:.2f}" for x in means) + " |")
    shown = next((row for row in rows.rows if row["case"] == "books" and row["model"] == rows.ours),
                 next((row for row in rows.rows if row["case"] == "books"), None))
    for taste, titles in (shown["lists"] if shown else {}).items():
        lines += ["", f"The books for 15 loved films of the genre {taste} ({shown['model']}, first repeat): {'; '.join(titles)}."]
    return lines


def absent(rows: Rows, setting: str) -> list[str]:
    """The peers that were not measured on a whole set."""
    return [peer for peer in PEERS if peer not in rows.cell("whole", setting, "mean", "mae")]


def above(rows: Rows) -> list[str]:
    """Where a peer has a lower error on a whole set, and by how much; and who was not measured where."""
    worse, missing = [], []
    for setting in rows.settings("whole"):
        for rule in ("mean", "median"):
            found = changes(rows, "whole", setting, rule, "mae", rows.ours, PEERS)
            worse += [f"- {setting}, {rule} rule: {peer}, by {x.percent:.2f} %" for peer, x in found.items() if x.percent > 0]
        lacking = absent(rows, setting)
        missing += [f"{setting} ({'all peers' if len(lacking) == len(PEERS) else ', '.join(lacking)})"] if lacking else []
    lines = ["", f"A peer has a lower error than {rows.ours} here:", "", *worse] if worse else \
        ["", f"{rows.ours} has the lowest error of all that were measured, on every set and by both rules."]
    return [*lines, *(["", f"Not measured yet: {'; '.join(missing)}."] if missing else [])]


def said(rows: Rows) -> list[str]:
    """The model's own words about the links and attributes that say nothing, once a setting."""
    words = {row["setting"]: row["transfer"] for row in rows.rows
             if row["case"] == "harm" and row["model"] == rows.ours and row["repeat"] == 0 and "transfer" in row}
    return ["", *(f"- {setting}: “{text}”" for setting, text in words.items())]


def write() -> None:
    rows = Rows()
    kin = [rows.named(m) for m in ("PCLF", "PCLF alone", "PCLF merged")]
    before = [m.replace("PCLF", BEFORE) for m in ("PCLF", "PCLF alone", "PCLF merged")] if rows.ours != BEFORE else []
    plain = ["Bias merged", "Bias alone", "offsets", "offsets alone"]
    known = [rows.named(m) for m in ("PCLF", "PCLF no attributes", "PCLF alone", "PCLF alone, no attributes")]
    older = [f"{BEFORE} no attributes", f"{BEFORE} alone, no attributes"] if rows.ours != BEFORE else []
    text = [HEAD.format(commits=", ".join(sorted({str(row["commit"]) for row in rows.rows})),
                        machines=", ".join(sorted({row["machine"] for row in rows.rows}))), "", *judged(rows)]
    for case, about in (("levels", LEVELS), ("shops", SHOPS), ("tweets", TWEETS)):
        text += ["", about]
        for rule in ("mean", "median"):
            text += table(rows, case, rule, "mae", [*kin, *plain, *before], [*kin[1:], *plain[::2], *before[:1]])
    text += ["", PEOPLE]
    pairs = list(dict.fromkeys(setting.partition(",")[0] for setting in rows.settings("people")))
    for pair, rule in product(pairs, ("mean", "median")):
        text += ["", f"### {pair}, {rule} rule", *table(rows, "people", rule, "mae", [*kin, *plain, *before], [*kin[1:], *plain[::2], *before[:1]],
                       [s for s in rows.settings("people") if s.startswith(pair)])]
    text += ["", VISITORS]
    for rule, metric in (("mean", "mae"), ("mean", "pairs"), ("median", "mae")):
        text += table(rows, "visitors", rule, metric, [*known, "myFM", *plain, *older], ["myFM", known[1], "offsets", "Bias merged"])
    for case, about in (("new films", NEW), ("few users", FEW)):
        text += ["", about]
        for rule in ("mean", "median"):
            text += table(rows, case, rule, "mae", [*known, "myFM", *plain, *older], [*known[1:], "myFM", *plain])
    text += ["", BOOKS, *about_books(rows), "", HARM]
    for rule in ("mean", "median"):
        text += table(rows, "harm", rule, "mae", known, known[1:])
    text += [*said(rows), "", WHOLE, *above(rows)]
    for rule in ("mean", "median"):
        text += table(rows, "whole", rule, "mae", [*kin, "Bias alone", *PEERS, *before], ["Bias alone", *PEERS, *before[:1]])
    PAGE.write_text("\n".join(text) + "\n")


HEAD = """# What carries over

This page is written by `python benchmarks/transfer.py page` from the rows in `benchmarks/results/transfer-*.jsonl`
(commits {commits}; {machines}).

All models of a table see the same training ratings and are asked for the same test ratings; the number of the repeat alone
decides which. *alone* is the same model on the target domain and nothing else. *merged* is the same model on one table that
holds the ratings of all domains, mapped linearly on the target's scale. *Bias* is mean + user + item. *offsets* is the mean of
the target + what the item is above the mean of its domain + what the user gives above the means of the items, wherever both
are known, damped. *today* is this library before attributes and common factors. Models that predict no distribution are
rounded to the scale for the median rule. A number in brackets after a figure says that it has fewer repeats than the others. p is
that of a paired t test over the repeats that both models have, corrected for the overlap of the splits and, after Holm, for the number of comparisons in a column (`pclf.evaluate.significance`).

## Goals

The change of the error in percent, in the worst of all cells, with the rule and the model that it is compared with."""
LEVELS = """## Levels: a catalogue beside one with another scale

Nothing is shared. A random tenth of the target's ratings is the test."""
SHOPS = """## Shared things: one set of films in two shops

MovieLens 1M: 2000 users rate there, 30, 100 or 300 others here; 200 other users here give five ratings each and are asked for the
rest."""
TWEETS = """## Shared things: MovieTweetings beside MovieLens

The films of ml-latest-small (half stars) and of MovieTweetings (0 to 10) are tied by their IMDb numbers; nobody is shared. 200
users of MovieTweetings give five ratings each and are asked for the rest. They and the users to learn from have 8 ratings or more."""
PEOPLE = """## Shared people: Douban and Amazon

300 people who rate in both domains keep 0, 1, 3 or 5 ratings in the target and all ratings in the other domain; everybody else is
learned from whole. The tested have more than five ratings in the target, and the five that may be given are never asked for, so
the columns of a table are about the same ratings."""
VISITORS = """## Attributes: visitors

The films of MovieLens 1M are cut into two catalogues and its users into two halves; the first half rates in A alone, the second in B
alone. 300 people of the first half are asked for their ratings in B, where the model has never seen them. Genre and decade of
the films are all that the catalogues have in common. myFM (ordered probit, rank 8, 200 samples) sees the merged table with the same attributes."""
NEW = """## Attributes: films without a rating

All ratings of 200 films of MovieLens 1M are hidden and asked for."""
FEW = """## Attributes: few target users

10 or 30 users of B to learn from, 200 others who give five ratings each, and A whole beside it; nothing is shared but genre and decade."""
BOOKS = """## From films to books

MovieLens 1M and goodbooks, with genres alone, by a table of synonyms (`SHELVES` in `benchmarks/transfer.py`). One guest loves 15 horror films, another
15 romances: how many of their first ten books are the same, and what share of each list has the genre."""
HARM = """## Links and attributes that say nothing

The ids of the other domain are permuted, or the rows of the attributes. What the model says of them in the first repeat stands below."""
WHOLE = """## Whole sets

A random tenth is the test. The settings of a peer are the best of a small grid (`benchmarks/peers_transfer.py`) on a tenth of the training ratings of the first
repeat. *myFM who rated what* is a Bayesian SVD++: an ordered probit with the items that a user rated and the users who rated an item as features."""
