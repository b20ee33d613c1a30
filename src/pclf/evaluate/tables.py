"""Tables and the figure of the paper's experiment, in its layout: ours first, the paper's in brackets."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pclf import tables
from pclf.evaluate.significance import interval

TITLES = {"BC": "Book-Crossing", "EM": "EachMovie", "ML": "MovieLens"}
COLOURS = ("#0072b2", "#d55e00", "#009e73")   # told apart by colour-blind readers too
PAPER_WEIGHT = 0.35

Rows = Sequence[Mapping[str, Any]]


class Table:
    """The rows of one pair, preset and rule: lines by (data set, model), columns by given N."""

    def __init__(self, rows: Rows, preset: str, pair: str, rule: str) -> None:
        self.preset, self.pair, self.rule = preset, pair, rule
        self.rows = {(r["dataset"], r["model"], r["given"]): r for r in rows
                     if (r["preset"], r["pair"]) == (preset, pair) and r[f"mae_{rule}"] is not None}
        self.lines = list(dict.fromkeys((dataset, model) for dataset, model, _ in self.rows))
        self.givens = sorted({given for _, _, given in self.rows})
        self.repeats = max((r["repeats"] for r in self.rows.values()), default=0)

    @property
    def title(self) -> str:
        first, second = (TITLES[name] for name in self.pair.split("-"))
        return (f"{first} and {second}: MAE by the {self.rule}, preset {self.preset}, "
                f"{self.repeats} repeat{'s' * (self.repeats > 1)}")

    def cell(self, dataset: str, model: str, given: int) -> tuple[str, str, str, bool] | None:
        """Ours, its standard deviation, the paper's, and whether ours is the best of its column."""
        row = self.rows.get((dataset, model, given))
        if row is None:
            return None
        value, spread = row[f"mae_{self.rule}"], row["mae_sd" if self.rule == "mean" else "mae_median_sd"]
        best = min(r[f"mae_{self.rule}"] for (z, _, n), r in self.rows.items() if (z, n) == (dataset, given))
        paper = row["paper_mae"]
        return (f"{value:.4f}", f"{spread:.4f}" if spread is not None else "",
                f"{paper:.4f}" if paper is not None else "", f"{value:.4f}" == f"{best:.4f}")


def split_tables(rows: Rows) -> Iterator[Table]:
    """The tables in order; the median's only where some system has a distribution."""
    for preset in dict.fromkeys(r["preset"] for r in rows):
        for rule in ("mean", "median"):
            for pair in dict.fromkeys(r["pair"] for r in rows):
                table = Table(rows, preset, pair, rule)
                if table.lines:
                    yield table


def markdown(found: Rows) -> str:
    """A cell: our MAE ± its standard deviation over the repeats (the paper's MAE). The best in bold."""
    parts = []
    for number, table in enumerate(split_tables(found), 1):
        rows = [[dataset, model, *(_text(table.cell(dataset, model, n), "**{}**", " ± {}") for n in table.givens)]
                for dataset, model in table.lines]
        head = ["Data set", "Model", *(f"Given {n}" for n in table.givens)]
        parts.append(tables.Table(head, rows, f"**Table {number}.** {table.title}").markdown())
    return "\n\n".join(parts)


def latex(rows: Rows) -> str:
    """The same tables for a paper: plain `tabular`, no packages needed."""
    parts = []
    for table in split_tables(rows):
        lines, before = [], None
        for dataset, model in table.lines:
            found = (table.cell(dataset, model, n) for n in table.givens)
            cells = [_text(cell, r"\textbf{{{}}}", r" $\pm$ {}") for cell in found]
            lines += [r"\hline"] * (dataset != before)
            lines.append(" & ".join([dataset if dataset != before else "", model, *cells]) + r" \\")
            before = dataset
        head = " & ".join(["Dataset", "Model", *(f"Given {n}" for n in table.givens)]) + r" \\"
        parts.append("\n".join([
            r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{cc|{'c' * len(table.givens)}}}", r"\hline",
            head, *lines, r"\hline", r"\end{tabular}",
            rf"\caption{{{table.title}. The paper's in brackets.}}", r"\end{table}"]))
    return "\n\n".join(parts)


def csv_layout(rows: Rows) -> str:
    """The same tables below each other, three columns a given N: ours, its spread, the paper's."""
    lines = []
    for table in split_tables(rows):
        for dataset, model in table.lines:
            line = {"preset": table.preset, "rule": table.rule, "pair": table.pair, "dataset": dataset,
                    "model": model}
            for n in table.givens:
                ours, sd, paper, _ = table.cell(dataset, model, n) or ("", "", "", False)
                line |= {f"given_{n}": ours, f"given_{n}_sd": sd, f"given_{n}_paper": paper}
            lines.append(line)
    return csv_text(lines)


def csv_text(rows: Rows) -> str:
    """Rows as CSV, with all the columns that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def tests_markdown(tests: Rows) -> str:
    """A line a test: the difference to PCLF with its interval, and both p values after Holm's correction."""
    head = ("Preset", "Rule", "Pair", "Data set", "Given", "Against PCLF", "Difference", "95 % interval",
            "Relative", "p Wilcoxon", "p t")
    return tables.Table(head, [
        [t["preset"], t["rule"], t["pair"], t["dataset"], str(t["given"]), t["model"], f"{t['effect']:+.4f}",
         f"{t['low']:+.4f} to {t['high']:+.4f}", f"{t['relative']:+.1%}", _p(t["p_wilcoxon_holm"]), _p(t["p_t_holm"])]
        for t in tests]).markdown()


def weight_figure(curves: Iterable[Mapping[str, Any]], path: Path) -> list[Path]:
    """MAE against W1, a panel a pair and data set, a curve a given N; writes PNG, SVG and the numbers as CSV.

    The band is the 95 % interval of the mean after each repeat's own level is taken out: repeats differ by
    their samples much more than by the weight, and it is the shape that the figure is about.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    known = list(curves)
    pairs = list(dict.fromkeys(c["pair"] for c in known))
    figure = Figure(figsize=(7.2, 2.3 * len(pairs) + 0.4), layout="constrained")
    panels = figure.subplots(len(pairs), 2, squeeze=False)
    numbers: list[dict[str, Any]] = []
    for row, pair in zip(panels, pairs, strict=True):
        for axes, dataset in zip(row, pair.split("-"), strict=True):
            own = [c for c in known if (c["pair"], c["dataset"]) == (pair, dataset)]
            for colour, curve in zip(COLOURS * len(own), own, strict=False):
                points = list(_band(curve["mae"]))
                mean, low, high = np.transpose(points)
                axes.plot(curve["weights"], mean, color=colour, label=f"given {curve['given']}")
                axes.fill_between(curve["weights"], low, high, color=colour, alpha=0.2, linewidth=0)
                numbers += [{"pair": pair, "dataset": dataset, "given": curve["given"], "weight": w, "mae": m,
                             "low": lo, "high": hi}
                            for w, (m, lo, hi) in zip(curve["weights"], points, strict=True)]
            axes.axvline(PAPER_WEIGHT, color="0.5", linestyle=":", linewidth=1)
            other = next(z for z in pair.split("-") if z != dataset)
            axes.set_title(f"{TITLES[dataset]} (with {TITLES[other]})", fontsize=9)
            axes.set_xlim(0, 1)
            axes.tick_params(labelsize=8)
        row[0].set_ylabel("MAE", fontsize=9)
    figure.supxlabel("$W_1$, the weight of the common clusters (dotted: the paper's 0.35)", fontsize=9)
    panels[0, 0].legend(fontsize=8, frameon=False)
    written = [path.with_suffix(suffix) for suffix in (".png", ".svg", ".csv")]
    figure.savefig(written[0], dpi=150)
    with rc_context({"svg.hashsalt": "pclf"}):                  # the same file for the same numbers
        figure.savefig(written[1], metadata={"Date": None})
    written[2].write_text(csv_text(numbers) + "\n", encoding="utf-8")
    return written


def _band(repeats: Sequence[Sequence[float]]) -> Iterator[tuple[float, float, float]]:
    """Mean, low and high at each weight, of the curves moved to the same mean level."""
    values = np.asarray(repeats)                                                      # (repeats, weights)
    level = values - values.mean(axis=1, keepdims=True) + values.mean()
    for column in level.T:
        mean, low, high = interval(column)
        yield (mean, low, high) if len(column) > 1 else (mean, mean, mean)


def _text(cell: tuple[str, str, str, bool] | None, bold: str, spread: str) -> str:
    if cell is None:
        return "–"
    value, sd, paper, best = cell
    return ((bold.format(value) if best else value) + (spread.format(sd) if sd else "")
            + (f" ({paper})" if paper else ""))


def _p(value: float) -> str:
    return "–" if np.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"
