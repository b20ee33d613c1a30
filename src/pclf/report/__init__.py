"""One self-contained HTML page about a fitted model: what predictions use, how good they are, lists, and clusters.

    pclf.report.write(model, "report.html", test=split.test)

The page needs no network and no script. Its figures are SVG with real text in the page's own colours, so that
they follow light and dark; the same figures are functions in `pclf.plots`.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pclf.atomic import check_target, replacing
from pclf.data.ratings import Ratings
from pclf.data.scale import Scale
from pclf.errors import ArgumentError, visible
from pclf.evaluate.verdicts import listed
from pclf.report import facts, lists, plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as WholeFigure

    from pclf.models.mixture import Mixture

__all__ = ["render", "write"]

INK = "#1b2c3d"   # stands for the page's text colour: in the SVG it becomes currentColor
STYLE: dict[Any, Any] = {   # the keys have a type of their own in some versions of matplotlib
    "svg.fonttype": "none", "svg.hashsalt": "pclf", "font.family": ["DejaVu Sans"], "font.size": 12,
    "axes.labelsize": "small", "xtick.labelsize": "small", "ytick.labelsize": "small",
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "grid.color": INK, "axes.linewidth": 0.8, "axes.facecolor": "none", "figure.facecolor": "none",
}


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str
    caption: str
    width: int   # pixels


@dataclass(frozen=True)
class Card:
    """An item cluster: what it is called, how much it has, what is in it, who likes it."""

    label: str
    words: list[str]
    share: float
    lists: list[tuple[str, int, float, list[tuple[str, float]]]]   # domain, its number, share, items
    opinion: str


@dataclass(frozen=True)
class ViewPage:
    """An item view: its heat maps and its cards."""

    label: str
    common: bool
    domains: list[str]
    figures: list[Figure]
    cards: list[Card]
    n_empty: int


def write(model: "Mixture", path: str | Path, *, test: Ratings | None = None, audit: Any = None,
          force: bool = False) -> Path:
    """Write the report of a fitted FMM, RMGM or PCLF to an HTML file, whole or not at all.

    test: ratings to check predictions with; without them those of the fit are used, and the page says so.
    audit: what `pclf.audit` found, or any object whose `verdicts` are sentences. force: replace a file that is no
    report, too.
    """
    path, ours = Path(path), None if force else is_report
    check_target(path, ours, "a report")
    page = render(model, test=test, audit=audit)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, ours, "a report") as part:
        part.write_text(page, encoding="utf-8", newline="\n")
    return path


def is_report(path: Path) -> bool:
    """Whether a file begins as a report does."""
    with path.open("rb") as file:
        return b'<meta name="generator" content="pclf' in file.read(400)


def render(model: "Mixture", *, test: Ratings | None = None, audit: Any = None) -> str:
    """The report as a string of HTML. The same model and ratings give the same page."""
    import jinja2
    import matplotlib

    import pclf

    model._check_fitted()
    if not hasattr(model, "layout_"):
        raise ArgumentError(f"a report must be of a model with clusters: FMM, RMGM or PCLF; got "
                            f"{type(model).__name__}.")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters |= {"percent": plots._percent, "listed": listed, "thousands": "{:,}".format,
                            "span": _span}
    page = environment.from_string(files("pclf.report").joinpath("page.html").read_text("utf-8"))
    with matplotlib.rc_context(STYLE):
        views = [_view_page(model, i) for i in range(len(model.layout_.views))]
        figures = {"fit": _fit_figure(model), "user_figure": _user_figure(model),
                   "shares": _shares_figure(model), "audited": _audit_figures(audit)}
        checked, checks, scores = _checks(model, test)
    return visible(page.render(
        **figures, model=model, kind=type(model).__name__, version=pclf.__version__, data=model.data_,
        domains=list(model.data_.domains.values()), colours=plots.DOMAIN_COLOURS,
        verdicts=[str(v) for v in getattr(audit, "verdicts", None) or []],
        pooled=_what_was_pooled(model.data_), views=views, word=facts.word(model.data_),
        clusters=_how_many_clusters(views, facts.word(model.data_)),
        patterns=_what_matters(model, 0, views[0].domains[0])[0], users=_user_tables(model, views),
        carried=plots._who_carries(model), brought=_what_was_brought(model), weighed=facts.clusters_count(model),
        checked=checked, checks=checks, scores=scores, held_out=test is not None, examples=lists.examples(model),
        listed_by=getattr(model, "ranks", ("rating",))[0], settings=model.get_params(),
    )) + "\n"


def _figure(ax: "Axes", kind: str, caption: str, detail: str = "") -> Figure:
    """An Axes as a figure of the page: its title becomes text, what is drawn becomes SVG with an alt text."""
    title = ax.get_title(loc="left").replace("\n", " ")
    ax.set_title("", loc="left")
    axes = "; ".join(label for label in (f"across: {ax.get_xlabel()}" * bool(ax.get_xlabel()),
                                         f"up: {ax.get_ylabel()}" * bool(ax.get_ylabel())) if label)
    alt = f"{kind}. {title}. {detail}{' ' * bool(detail)}{axes}".strip()
    return Figure(title, _svg(ax, alt), caption, round(72 * _whole(ax).get_figwidth()))


def _whole(ax: "Axes") -> "WholeFigure":
    """The figure that an Axes is in; where that is a part of another, the other."""
    return ax.figure.figure


def _svg(ax: "Axes", alt: str) -> str:
    """Inline SVG: no namespaces, no ids that clash with other figures, text in the page's fonts and ink."""
    import hashlib
    from io import StringIO
    from xml.etree import ElementTree

    from markupsafe import Markup

    buffer = StringIO()
    _whole(ax).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    mark = hashlib.sha256((alt + text).encode()).hexdigest()[:8]
    root = ElementTree.fromstring(text)
    used = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", text))
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        for child in list(element):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                element.remove(child)
        old, element.attrib = element.attrib, {}
        for key, value in old.items():
            name = key.rpartition("}")[2]
            if name == "id":
                if value not in used:
                    continue
                value = mark + value
            if name == "href":
                value = f"#{mark}{value[1:]}"
            if name == "style":
                value = re.sub(r"font-family:[^;]*;? *", "", value)
                value = re.sub(r"font: *([\d.]+px)[^;]*", r"font-size: \1", value)   # matplotlib before 3.10
                value = value.replace(INK, "currentColor")
            value = value.replace("url(#", f"url(#{mark}")
            element.attrib[name] = value
    box = root.attrib["viewBox"]
    root.attrib = {"viewBox": box, "role": "img", "aria-label": alt}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _fit_figure(model: "Mixture") -> Figure:
    steps = model.trace_
    betas = listed([f"{beta:g}" for beta in dict.fromkeys(s.beta for s in steps)])
    caption = (f"Annealed EM climbs at the inverse temperatures β = {betas}; heights compare within one β "
               f"only. These iterations took {max(steps[-1].seconds, 0.01):,.2f} seconds.")
    held_out = {s.iteration: s.held_out for s in steps if s.held_out is not None}
    if held_out:
        best = max(held_out, key=held_out.__getitem__)
        caption += (f" Ratings held out of it were predicted best after iteration {best} "
                    f"(log-likelihood {held_out[best]:.3f} a rating), and that state was kept.")
    if len(model.members_) > 1:
        caption += (f" Shown is the first of {len(model.members_)} fits from different starts, here and in "
                    f"all clusters below; predictions average them.")
    detail = f"From {steps[0].objective:,.0f} to {steps[-1].objective:,.0f}."
    return _figure(plots.fit_trace(model), "Line chart", caption, detail)


def _view_page(model: "Mixture", view: int) -> ViewPage:
    names = facts.view_domains(model, view)
    common = view == 0 and facts.has_common_view(model)
    label = plots._view_label(model, view)
    figures, scales = [], set()
    for name in names:
        scale = model.data_.domains[name].scale
        if scale in scales:
            continue   # the same numbers again
        scales.add(scale)
        alike = [n for n in names if model.data_.domains[n].scale == scale]
        figures.append(_matrix_figure(model, view, name, alike if len(alike) < len(names) else []))
    cards, empty = _cards(model, view, names, label)
    return ViewPage(label, common, names, figures, cards, empty)


def _matrix_figure(model: "Mixture", view: int, domain: str, alike: list[str]) -> Figure:
    ax = plots.rating_matrix(model, view, domain)
    cells = np.asarray(ax.collections[0].get_array())
    on_scale = f", on the scale of {listed(alike)}" if alike else ""
    caption = f"{_what_matters(model, view, domain)[1]}{on_scale}."
    decimals = facts.decimals(model, domain)
    detail = (f"{cells.shape[0]} user clusters by {cells.shape[1]} item clusters, mean {facts.word(model.data_)}s from "
              f"{cells.min():.{decimals}f} to {cells.max():.{decimals}f}.")
    return _figure(ax, "Heat map", caption, detail)


def _cards(model: "Mixture", view: int, names: list[str], label: str) -> tuple[list[Card], int]:
    """A card for each item cluster with ratings, the largest first, and how many have none."""
    from pclf.models import insight

    found = [cluster for cluster in insight.clusters(model, 5 if len(names) < 3 else 4)
             if cluster.view == model.layout_.views[view].name]
    by_domain, words = facts.item_shares(model, view), facts.view_words(model, view)
    numbers = {name: z for z, name in enumerate(model.data_.domains)}
    opinions = _opinions(model, view, names)
    cards = []
    for cluster in sorted(found, key=lambda c: -c.share):
        if cluster.share < facts.EMPTY:
            continue
        c = cluster.index
        lists = [(name, numbers[name], float(by_domain[name][c]),
                  [(title, p) for _, title, p in cluster.members[name]]) for name in names]
        cards.append(Card(f"{label} {c}", words[c], cluster.share, lists, opinions[c]))
    return cards, len(found) - len(cards)


def _opinions(model: "Mixture", view: int, names: list[str]) -> list[str]:
    """Who likes each item cluster best and least, each user cluster measured from its own mean."""
    users = plots._user_share_of(model, names)
    rows = np.flatnonzero(users >= facts.EMPTY)
    matrix = model.rating_matrix(view, names[0])[rows]
    above = facts.above_own_mean(matrix, facts.pooled(model, facts.item_shares(model, view)))
    if len(rows) < 2:
        return [""] * matrix.shape[1]
    decimals = facts.decimals(model, names[0])
    return [f"Against its own mean, user cluster {rows[b]} rates it {plots._signed(above[b, c], decimals)}, "
            f"user cluster {rows[w]} {plots._signed(above[w, c], decimals)}."
            for c, (b, w) in enumerate(zip(above.argmax(axis=0), above.argmin(axis=0), strict=True))]


def _user_tables(model: "Mixture", views: list[ViewPage]) -> list[dict[str, Any]]:
    """User clusters, largest first: one table, or one a domain where each domain has its own."""
    shares = facts.user_shares(model)
    if not model.layout_.separate_users:
        return [_user_table(model, list(shares), 0, views)]
    return [_user_table(model, [name], z, views) for z, name in enumerate(shares)]


def _user_table(model: "Mixture", names: list[str], view: int, views: list[ViewPage]) -> dict[str, Any]:
    users = facts.pooled(model, {name: facts.user_shares(model)[name] for name in names})
    items = facts.pooled(model, facts.item_shares(model, view))
    means = {name: facts.user_cluster_means(model, name) for name in names
             if not model.data_[name].events}                      # which are all 1
    above = facts.above_own_mean(model.rating_matrix(view, names[0]), items)
    above -= users @ above                       # what everybody likes tells nothing about one cluster
    above[:, items < facts.EMPTY] = 0
    words = {card.label: card.words[:2] for card in views[view].cards}
    rows = []
    for k in np.argsort(-users, kind="stable"):
        if users[k] < facts.EMPTY:
            continue
        labels = [f"{views[view].label} {c}" for c in (above[k].argmax(), above[k].argmin())]
        rows.append({"index": int(k), "share": float(users[k]), "means": [float(mean[k]) for mean in means.values()],
                     "likes": [(label, words.get(label, [])) for label in labels]})
    return {"names": names, "rated": list(means), "rows": rows, "n_empty": len(users) - len(rows)}


def _user_figure(model: "Mixture") -> Figure | None:
    if model.layout_.separate_users and len(model.data_.domains) > 1:
        return None   # clusters of the same number are not the same clusters
    caption = f"A point for each domain: the part of its {facts.word(model.data_)}s that is by the cluster's users."
    return _figure(plots.cluster_shares(model), "Dot chart", caption)


def _shares_figure(model: "Mixture") -> Figure | None:
    parts = {name: facts.parts(model, name) for name in model.data_.domains}
    if all(len(kinds) == 1 for kinds in parts.values()):
        return None
    caption = "How much each part counts in a prediction: the clusters that all domains share, a domain's own clusters"
    if any("factors" in kinds for kinds in parts.values()):
        caption += ", and the factors"
    said = "; ".join(f"{name}: " + ", ".join(f"{kind} {plots._percent(w)}" for kind, w in kinds.items())
                     for name, kinds in parts.items())
    return _figure(plots.shares(model), "Stacked bars", f"{caption}. The weights were found on held-out "
                   f"{facts.word(model.data_)}s, unless they were set.", f"{said}.")


def _what_was_brought(model: "Mixture") -> list[tuple[str, int, list[str]]]:
    """For each domain, with its number, what bridges and common clusters bring to it."""
    if not hasattr(model, "bridges"):
        return []
    return [(name, z, [bridge.text for bridge in model.transfer_[name].bridges.values()] + [model.transfer_[name].text])
            for z, name in enumerate(model.data_.domains)]


def _audit_figures(audit: Any) -> list[Figure]:
    """Affinities and learning curves, where the audit has them."""
    figures = []
    gains = {target: row for target, row in (getattr(audit, "gains", None) or {}).items() if row}
    if gains:
        caption = ("By how much the error of a domain falls (+) or rises (−) when it is pooled with one other "
                   "domain. A star: not by chance (p < 0.05, Holm's correction), and not negligible.")
        figures.append(_figure(plots.affinity(gains, significant=audit.significant), "Heat map", caption))
    for target, curves in (getattr(audit, "learning_curve", None) or {}).items():
        caption = (f"By the number of users of {target} to learn from. Bands are 95\u00a0% intervals of the "
                   f"difference to the model of one domain alone: its line is outside where there is one.")
        figures.append(_figure(plots.learning_curve(curves, domain=target), "Line chart", caption))
    return figures


def _checks(model: "Mixture", test: Ratings | None) -> tuple[str, list[Figure], list[facts.Checked]]:
    """The finding, predicted against true ratings of each domain, and calibration; and what they are made from."""
    known = [name for name in model.data_.domains if test is None or name in test.domains]
    checks = [c for c in (facts.check(model, name, test) for name in known) if len(c.truth)]
    if not checks:
        return f"There are no test {facts.word(model.data_)}s of these users and items", [], []
    figures = []
    for checked in checks:
        ax = plots._predicted(model, checked)
        dots = [np.asarray(line.get_xydata())[0] for line in ax.lines if line.get_marker() == "o"]
        decimals = facts.decimals(model, checked.domain)
        detail = "; ".join(f"true {x:g}, middle prediction {y:.{decimals}f}" for x, y in dots)
        figures.append(_figure(ax, "Range chart", _on_which(checked, facts.word(model.data_)), f"{detail}."))
    claim = "there is no event" if facts.word(model.data_) == "event" else "the rating is at most t"
    caption = (f"How often it came true that “{claim}”, by the probability that the model "
               "gave this. On the dashed line, claims are right as often as they say.")
    figures.append(_figure(plots._calibration(model, checks), "Line chart", caption))
    errors = sorted((c.error, c.domain) for c in checks)
    if len(errors) > 3:
        errors = [errors[0], errors[-1]]
    where = listed([f"{error:.2f} in {name}" for error, name in errors])
    between = "between " if len(checks) > 3 else ""
    return f"On average, predictions are off by {between}{where}", figures, checks


def _on_which(checked: facts.Checked, word: str) -> str:
    n, sample = checked.n_ratings, ""
    if n > len(checked.truth):
        sample = f"a sample of {len(checked.truth):,} of "
    things = "events and absences" if word == "event" else "ratings"
    ground = (f"On {sample}{n:,} test {things} that are no part of the fit." if checked.held_out else
              f"On {sample}the {n:,} {things} of the fit itself: errors on new ones will be larger.")
    return f"{ground} Dot: median prediction; thick and thin bar: the middle 50 and 80\u00a0%."


def _what_was_pooled(data: Ratings) -> str:
    densities = {name: len(d) / max(1, d.n_users * d.n_items) for name, d in data.domains.items()}
    sparsest = min(densities, key=densities.__getitem__)
    filled = f"{100 * densities[sparsest]:.2g}\u00a0% of its cells filled"
    if len(densities) == 1:
        return f"{data.n_ratings:,} {facts.word(data)}s of {sparsest}, {filled}"
    return f"{data.n_ratings:,} {facts.word(data)}s of {len(densities)} domains; the sparsest is {sparsest}, {filled}"


def _what_matters(model: "Mixture", view: int, domain: str) -> tuple[str, str]:
    """Where the differences in a rating matrix lie: the headline, and the numbers."""
    names, label = facts.view_domains(model, view), plots._view_label(model, view)
    users, items = plots._user_share_of(model, names), facts.pooled(model, facts.item_shares(model, view))
    parts = facts.effects(model.rating_matrix(view, domain), users, items)
    if not any(parts):
        mean = "share of events" if model.data_.events else "mean rating"
        alike = f"All pairs of user clusters and {label} clusters have the same {mean}"
        return alike, alike
    most = ("who rates", "what is rated", "the match of both")[int(np.argmax(parts))]
    who, what, match = map(plots._percent, parts)
    return (f"Between user clusters and {label} clusters, {most} matters most",
            f"Of the differences between {label} {facts.word(model.data_)}s, {who} lie in who rates, {what} in what is "
            f"rated, {match} in their match")


def _how_many_clusters(views: list[ViewPage], word: str) -> str:
    common = [v for v in views if v.common]
    if common and len(common[0].domains) > 1:
        n = len(common[0].cards)
        return (f"{n} {'clusters are' if n != 1 else 'cluster is'} common to all domains; the largest has "
                f"{plots._percent(common[0].cards[0].share)} of the {word}s")
    n = sum(len(v.cards) for v in views)
    return f"{n} item cluster{'s' * (n != 1)}, each with its typical items"


def _span(scale: Scale) -> str:
    """1–5 where the scale goes by ones, else its own words."""
    by_ones = len(scale) > 1 and all(np.diff(scale.values) == 1)
    return f"{scale.values[0]:g}–{scale.values[-1]:g}" if by_ones else str(scale)
