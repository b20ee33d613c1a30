"""Draw the picture of the README from a real fit: `python docs/draw.py` (needs MovieLens 100K and goodbooks)."""

import re
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

COLOURS, MARKERS = ("#d55e00", "#0072b2"), ("s", "o")   # told apart by colour-blind readers too, and in grey


def main() -> None:
    from films_to_books import VISITORS, differences, film, load

    import pclf

    data = load()
    model = pclf.PCLF().fit(data)
    guests = [model.fold_in({"films": {film(data, title): r for title, r in given.items()}})
              for given in VISITORS.values()]
    rows = differences(model, *guests)
    draw([(re.sub(r" \(.*", "", title), a, b) for title, a, b in rows], VISITORS, ROOT / "docs/img/readme.svg")


def draw(rows: list[tuple[str, float, float]], visitors: dict[str, dict[str, float]], path: Path) -> None:
    """A line a book, a mark a visitor."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pclf", "font.family": "sans-serif",
                                "font.sans-serif": ["DejaVu Sans"], "font.size": 10}):
        figure = Figure(figsize=(8.6, 3.6), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for y, (_, *scores) in enumerate(reversed(rows)):
            axes.plot(scores, [y, y], color="0.75", lw=3, zorder=1, solid_capstyle="round")
            for score, colour, marker in zip(scores, COLOURS, MARKERS, strict=True):
                axes.plot(score, y, marker, color=colour, ms=8, zorder=2)
        axes.set_yticks(range(len(rows)), [title for title, *_ in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel("rating that the model expects, 1 to 5")
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        marks = [axes.plot([], [], marker, color=colour, ms=8, ls="")[0]
                 for colour, marker in zip(COLOURS, MARKERS, strict=True)]
        words = [f"{name}: " + ", ".join(f"{re.sub(r' .*?[(].*', '', film)} {r}" for film, r in given.items())
                 for name, given in visitors.items()]
        figure.legend(marks, words, loc="outside lower left", frameon=False, fontsize=9)
        figure.suptitle("Two people rated five films each, and never a book: who will like Twilight?", x=0.01,
                        ha="left", fontsize=11)
        title = "Expected ratings of books by two people, from films"
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Title": title})


if __name__ == "__main__":
    main()
