"""The report's figures: functions that draw on an Axes of yours, or on a new one, and return it.

    ax = pclf.plots.fit_trace(model)
    ax.figure.savefig("fit.svg")

Titles state what is to be seen. Colours can be told apart by the colour-blind: viridis for amounts, the
palette of Okabe & Ito for domains. Nothing here touches pyplot or its global state.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from pclf.data.ratings import Ratings
from pclf.errors import UnknownNameError, did_you_mean
from pclf.models.base import Floats
from pclf.report import facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pclf.models.mixture import Mixture

__all__ = ["affinity", "calibration", "cluster_shares", "fit_trace", "learning_curve",
           "predicted_against_true", "rating_matrix", "shares"]

DOMAIN_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
COMMON_COLOUR = "#8A919C"
GRID = 0.15           # opacity
WIDTH = 350 / 72      # inches: as wide as a phone when an inch is 72 pixels
ANNOTATED = 1200      # cells that are annotated at most


def fit_trace(model: "Mixture", ax: "Axes | None" = None) -> "Axes":
    """The objective by iteration, and the beta at which it was climbed. It compares at the same beta only."""
    ax = _axes(ax, WIDTH, 3.0)
    trace = model.trace_
    stages = [[trace[0]]]
    for step in trace[1:]:
        stages.append([step]) if step.beta != stages[-1][-1].beta else stages[-1].append(step)
    for number, steps in enumerate(stages):
        first, last = steps[0].iteration, steps[-1].iteration
        ax.plot([s.iteration for s in steps], [s.objective for s in steps], color=DOMAIN_COLOURS[0], lw=1.8,
                marker="o", ms=3.2)
        if number % 2 == 0 and len(stages) > 1:
            ax.axvspan(first - 0.5, last + 0.5, color=COMMON_COLOUR, alpha=0.14, lw=0)
        if len(steps) > 0.06 * len(trace):   # else too narrow for a number
            ax.text((first + last) / 2, 1.01, f"{steps[0].beta:g}", ha="center", va="bottom",
                    fontsize="small", transform=ax.get_xaxis_transform())
    ax.text(-0.015, 1.01, "β", ha="right", va="bottom", fontsize="small", transform=ax.transAxes)
    ax.set_xlim(0.5, len(trace) + 0.5)
    ax.locator_params(axis="x", integer=True)
    ax.locator_params(axis="y", nbins=6)
    ax.yaxis.set_major_formatter(_thousands)
    ax.set_xlabel("iteration")
    ax.set_ylabel("log-likelihood, tempered by β")
    ax.grid(axis="y", alpha=GRID)
    return _finished(ax, _how_it_ended(model), pad=20)   # the betas stand between title and axes


def rating_matrix(model: "Mixture", view: int | str = 0, domain: str | None = None,
                  ax: "Axes | None" = None) -> "Axes":
    """Mean ratings of user clusters for the item clusters of a view, on a domain's scale, like beside like; of events,
    their share in % among events and absences.

    view: its number, or its name ("common", or a domain). Clusters with hardly any ratings are left out.
    """
    number = _view_number(model, view)
    names = facts.view_domains(model, number)
    domain = names[0] if domain is None else domain
    if domain not in names:
        raise UnknownNameError(did_you_mean(domain, names, "domain of this view"))
    matrix = model.rating_matrix(number, domain)
    users, items = _user_share_of(model, names), facts.pooled(model, facts.item_shares(model, number))
    rows, columns = np.flatnonzero(users >= facts.EMPTY), np.flatnonzero(items >= facts.EMPTY)
    matrix = matrix[np.ix_(rows, columns)]
    by_row, by_column = facts.seriation(matrix)
    rows, columns, matrix = rows[by_row], columns[by_column], matrix[np.ix_(by_row, by_column)]

    n, m = matrix.shape
    ax = _axes(ax, max(WIDTH, (60 + 20 * m) / 72), (52 + 17 * n) / 72)
    ax.grid(False)
    decimals = facts.decimals(model, domain)
    text = [[f"{100 * x:.0f}" if model.data_[domain].events else f"{x:.{decimals}f}" for x in row] for row in matrix]
    _heat_map(ax, matrix, text, "viridis", *np.percentile(matrix, [2, 98]))
    ax.set_xticks(np.arange(m) + 0.5, [f"{c}\n{_percent(items[c], '')}" for c in columns], fontsize="x-small")
    ax.set_yticks(np.arange(n) + 0.5, [f"{k} · {_percent(users[k])}" for k in rows], fontsize="x-small")
    ax.set_xlabel(f"{_view_label(model, number)} cluster, with its % of the {facts.word(model.data_)}s")
    ax.set_ylabel("user cluster")
    return _finished(ax, _where_tastes_differ(_view_label(model, number), matrix, rows, columns, users[rows],
                                              items[columns], decimals))


def shares(model: "Mixture", ax: "Axes | None" = None) -> "Axes":
    """How common clusters, the domain's own clusters and factors share the prediction of each domain.

    The clusters' parts are W1 and W2 of eq. (Fr), times what the factors leave them.
    """
    names = list(model.data_.domains)
    ax = _axes(ax, WIDTH, (34 + 34 * len(names)) / 72)
    for y, name in enumerate(names):
        own = _colour(model, name)
        colours = {"common": COMMON_COLOUR, "own": own, "factors": _lighter(own)}
        left = 0.0
        for kind, weight in facts.parts(model, name).items():
            ax.barh(y, weight, left=left, height=0.62, color=colours[kind])
            label = f"{kind} {_percent(weight)}"
            if weight < 0.022 * len(label):   # wider than its bar
                label = _percent(weight) if weight >= 0.1 else ""
            ax.text(left + weight / 2, y, label, ha="center", va="center", fontsize="small",
                    color=_readable_on(colours[kind]))
            left += weight
    ax.set_yticks(range(len(names)), [_short(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    return _finished(ax, _who_carries(model))


def cluster_shares(model: "Mixture", view: int | str | None = None, ax: "Axes | None" = None) -> "Axes":
    """The share of each domain's ratings that a cluster has: user clusters, or the item clusters of a view.

    FMM's user clusters are other ones in each domain, though they are numbered alike.
    """
    number = None if view is None else _view_number(model, view)
    by_domain = facts.user_shares(model) if number is None else facts.item_shares(model, number)
    total = facts.pooled(model, by_domain)
    order = [int(c) for c in np.argsort(-total, kind="stable") if total[c] >= facts.EMPTY]
    what = "user" if number is None else _view_label(model, number)
    legend_rows = -(-len(by_domain) // 3) if len(by_domain) > 1 else 0
    ax = _axes(ax, WIDTH, (58 + 15 * len(order) + 18 * legend_rows) / 72)
    y = np.arange(len(order))
    values = np.stack(list(by_domain.values()))[:, order]
    ax.hlines(y, values.min(axis=0), values.max(axis=0), color=COMMON_COLOUR, lw=1.5, alpha=0.6, zorder=1)
    for name, row, marker in zip(by_domain, values, _markers(), strict=False):
        ax.scatter(row, y, s=26, color=_colour(model, name), marker=marker, label=_short(name), zorder=2)
    ax.set_yticks(y, [str(c) for c in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.3g}\u00a0%")
    ax.set_xlabel(f"share of the domain's {facts.word(model.data_)}s")
    ax.set_ylabel(f"{what} cluster")
    ax.grid(axis="x", alpha=GRID)
    if legend_rows:
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=3,
                  fontsize="small", handletextpad=0.2, columnspacing=1.2)
    return _finished(ax, _how_even(by_domain, total, what, facts.word(model.data_)), pad=6 + 18 * legend_rows)


def predicted_against_true(model: "Mixture", domain: str, test: Ratings | None = None,
                           ax: "Axes | None" = None) -> "Axes":
    """For each true rating the predictions made: the middle, the middle half and the middle four fifths.

    On `test` ratings where given, else on the ratings that the model was fitted to.
    """
    return _predicted(model, facts.check(model, domain, test), ax)


def calibration(model: "Mixture", test: Ratings | None = None, ax: "Axes | None" = None) -> "Axes":
    """How often what the model claims comes true, a line a domain.

    Claims are "the rating is at most t", as in `evaluate.metrics.ece`, in ten bins by claimed probability.
    """
    names = [name for name in model.data_.domains if test is None or name in test.domains]
    return _calibration(model, [facts.check(model, name, test) for name in names], ax)


def _predicted(model: "Mixture", checked: facts.Checked, ax: "Axes | None" = None) -> "Axes":
    ax = _axes(ax, WIDTH, 3.3)
    if not len(checked.truth):
        return _finished(ax, f"There are no {facts.word(model.data_)}s of {checked.domain} to predict")
    scale, colour = model.data_.domains[checked.domain].scale.values, _colour(model, checked.domain)
    ax.axline((scale[0], scale[0]), slope=1, color=COMMON_COLOUR, lw=1, ls=(0, (4, 3)), zorder=0)
    for value in np.unique(checked.truth):
        low, quarter, middle, three_quarters, high = np.percentile(
            checked.prediction[checked.truth == value], [10, 25, 50, 75, 90])
        ax.plot([value, value], [low, high], color=colour, lw=1.6, solid_capstyle="round")
        ax.plot([value, value], [quarter, three_quarters], color=colour, lw=6, alpha=0.55,
                solid_capstyle="butt")
        ax.plot(value, middle, "o", color=colour, ms=6)
    margin, word = 0.06 * max(scale[-1] - scale[0], 1.0), facts.word(model.data_)
    truth, guess = "true rating", "predicted rating"
    if word == "event":
        truth, guess = "absence (0) or event (1)", "predicted probability of an event"
    ends = scale[0] - margin, scale[-1] + margin
    ax.set(xlim=ends, ylim=ends, xlabel=truth, ylabel=guess)
    if len(scale) <= 11:
        ax.set_xticks(scale, [f"{value:g}" for value in scale])
        ax.set_yticks(scale, [f"{value:g}" for value in scale])
    ax.grid(axis="y", alpha=GRID)
    ground = "" if checked.held_out else f", for the {word}s it was fitted to"
    error = f"{checked.error:.2f} on average"
    return _finished(ax, f"In {checked.domain}, predictions are off by {error}{ground}")


def _calibration(model: "Mixture", checks: list[facts.Checked], ax: "Axes | None" = None) -> "Axes":
    ax = _axes(ax, WIDTH, 3.3)
    ax.axline((0, 0), slope=1, color=COMMON_COLOUR, lw=1, ls=(0, (4, 3)), zorder=0)
    errors = {}
    for checked, marker in zip(checks, _markers(), strict=False):
        if not len(checked.truth) or model.data_.n_levels < 2:
            continue
        errors[checked.domain] = checked.miscalibration
        claimed = np.minimum(checked.proba.cumsum(axis=1)[:, :-1], 1.0)
        came = (checked.levels[:, None] <= np.arange(claimed.shape[1])).ravel()
        bins = np.minimum((claimed * 10).astype(int), 9).ravel()
        n = np.bincount(bins, minlength=10)
        filled = n >= max(5, 0.001 * n.sum())   # a bin of a few claims is noise
        x = np.bincount(bins, claimed.ravel(), 10)[filled] / n[filled]
        y = np.bincount(bins, came, 10)[filled] / n[filled]
        ax.plot(x, y, color=_colour(model, checked.domain), marker=marker, ms=4.5, lw=1.6,
                label=_short(checked.domain))
    ticks = [0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"]
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="claimed probability", ylabel="came true")
    ax.set_xticks(*ticks)
    ax.set_yticks(*ticks)
    ax.grid(alpha=GRID)
    if len(errors) > 1:
        ax.legend(frameon=False, loc="upper left", fontsize="small")
    return _finished(ax, _how_calibrated(errors))


def learning_curve(curves: Mapping[str, Sequence[tuple[float, float, float, float]]],
                   ax: "Axes | None" = None, *, domain: str | None = None) -> "Axes":
    """Errors by the number of target users: for each model (users, error, low, high), an interval.

    domain: the target, for the title.
    """
    ax = _axes(ax, WIDTH, 3.0)
    for (name, points), colour, marker in zip(curves.items(), cycle(DOMAIN_COLOURS), _markers(), strict=False):
        n, error, low, high = np.array(sorted(points), float).T
        ax.fill_between(n, low, high, color=colour, alpha=0.15, lw=0)
        ax.plot(n, error, color=colour, marker=marker, ms=4.5, lw=1.8, label=name)
    sizes = sorted({point[0] for points in curves.values() for point in points})
    ax.set_xscale("log")
    ax.set_xticks(sizes, [f"{n:,.0f}" for n in sizes])
    ax.xaxis.minorticks_off()
    ax.set_xlabel("users of the target domain")
    ax.set_ylabel("error")
    ax.grid(axis="y", alpha=GRID)
    ax.legend(frameon=False, fontsize="small")
    return _finished(ax, _who_wins(curves, f" in {domain}" if domain else ""))


def affinity(gains: Mapping[str, Mapping[str, float]], ax: "Axes | None" = None, *,
             significant: Mapping[str, Mapping[str, bool]] | None = None) -> "Axes":
    """How much each domain's error falls by pooling with another: gains[target][source], 0.02 for 2 %.

    significant: which of these are not chance. They are starred, and the title speaks of no others.
    """
    targets = list(gains)[::-1]   # the first at the top
    named = {source for row in gains.values() for source in row}
    sources = [t for t in gains if t in named] + sorted(named - set(targets))
    matrix = np.array([[gains[t].get(s, np.nan) for s in sources] for t in targets])
    sure = np.array([[bool((significant or {}).get(t, {}).get(s)) for s in sources] for t in targets])
    ax = _axes(ax, max(WIDTH, (90 + 52 * len(sources)) / 72), (56 + 30 * len(targets)) / 72)
    ax.grid(False)
    text = [["" if np.isnan(x) else f"{_signed(100 * x)} %{'*' * bool(star)}"
             for x, star in zip(row, stars, strict=True)] for row, stars in zip(matrix, sure, strict=True)]
    most = float(np.nanmax(np.abs(matrix), initial=0.02))   # less than 2 % shall look like little
    _heat_map(ax, matrix, text, "PuOr", -most, most)
    ax.set_xticks(np.arange(len(sources)) + 0.5, [_short(s) for s in sources])
    ax.set_yticks(np.arange(len(targets)) + 0.5, [_short(t) for t in targets])
    ax.set_xlabel("pooled with")
    ax.set_ylabel("error of")
    if significant is not None and not sure.any():
        return _finished(ax, "No change of an error by pooling two domains can be told from chance")
    size = np.where(np.isnan(matrix) | (~sure & (significant is not None)), -1, np.abs(matrix))
    t, s = np.unravel_index(size.argmax(), size.shape)
    fall = "falls" if matrix[t, s] > 0 else "rises"
    doubt = "" if significant is not None else ", as measured"
    return _finished(ax, f"Pooling changes {targets[t]} with {sources[s]} most: its error {fall} by "
                         f"{100 * abs(matrix[t, s]):.1f} %{doubt}")


def _axes(ax: "Axes | None", width: float, height: float) -> "Axes":
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=(width, max(height, 1.6)), layout="constrained").subplots()   # room for a title


def _finished(ax: "Axes", title: str, pad: float = 6.0) -> "Axes":
    """The title, no box, and no mathematics: a `$` in a domain's name is a `$`."""
    from textwrap import fill

    from matplotlib.text import Text

    letters = max(24, int(14 * ax.get_window_extent().width / ax.figure.dpi))   # 14 to the inch at 10 points
    ax.set_title(fill(title, letters), loc="left", fontsize="medium", pad=pad)
    ax.spines[["top", "right"]].set_visible(False)
    for text in ax.findobj(Text):
        text.set_parse_math(False)
    return ax


def _heat_map(ax: "Axes", matrix: Floats, text: list[list[str]], colours: str, low: float,
              high: float) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize, to_hex

    n, m = matrix.shape
    norm, palette = Normalize(low, high if high > low else low + 1), colormaps[colours]
    ax.pcolormesh(matrix, cmap=palette, norm=norm)
    if n * m <= ANNOTATED:
        for i, j in np.ndindex(n, m):
            if text[i][j]:
                ax.text(j + 0.5, i + 0.5, text[i][j], ha="center", va="center_baseline", fontsize="x-small",
                        color=_readable_on(to_hex(palette(norm(matrix[i, j])))))
    ax.set_ylim(0, n)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _readable_on(colour: str) -> str:
    """Black or white, whichever has more contrast (WCAG's relative luminance)."""
    parts = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return "#000000" if linear @ [0.2126, 0.7152, 0.0722] > 0.179 else "#ffffff"


def _lighter(colour: str) -> str:
    """Half way to white."""
    return "#" + "".join(f"{(int(colour[i:i + 2], 16) + 255) // 2:02x}" for i in (1, 3, 5))


def _markers() -> Iterator[str]:
    return cycle("osD^vP")


def _colour(model: "Mixture", domain: str) -> str:
    return DOMAIN_COLOURS[list(model.data_.domains).index(domain) % len(DOMAIN_COLOURS)]


def _percent(share: float, sign: str = "\u00a0%") -> str:
    return f"<1{sign}" if 0 < share < 0.005 else f"{100 * share:.0f}{sign}"


def _thousands(x: float, _: Any = None) -> str:
    text = f"{x / 1e6:,.6g} M" if abs(x) >= 1e7 else f"{x:,.0f}" if abs(x) >= 10 else f"{x:g}"
    return text.replace("-", "−")


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"


def _view_number(model: "Mixture", view: int | str) -> int:
    names = [v.name for v in model.layout_.views]
    if isinstance(view, str):
        if view not in names:
            raise UnknownNameError(did_you_mean(view, names, "view"))
        return names.index(view)
    if not 0 <= view < len(names):
        raise UnknownNameError(f"view must be 0 to {len(names) - 1} ({', '.join(names)}); got {view}.")
    return view


def _view_label(model: "Mixture", view: int) -> str:
    return "common" if view == 0 and facts.has_common_view(model) else model.layout_.views[view].name


def _user_share_of(model: "Mixture", names: list[str]) -> Floats:
    """User clusters' shares: of a model with clusters of its own for each domain, in these domains only."""
    shares = facts.user_shares(model)
    return facts.pooled(model, {n: shares[n] for n in names} if model.layout_.separate_users else shares)


def _how_it_ended(model: "Mixture") -> str:
    steps = model.trace_
    n = f"{len(steps)} iteration{'s' * (len(steps) != 1)}"
    if len(steps) < 2 or steps[-1].beta != steps[-2].beta:
        return f"The fit ended after {n}"
    rate = (steps[-1].objective - steps[-2].objective) / max(abs(steps[-1].objective), 1e-300)
    if rate <= model.tol:
        return f"The fit settled after {n}"
    return f"The fit ended after {n}, the last of which gained {100 * rate:.2g}\u00a0%"


def _where_tastes_differ(label: str, matrix: Floats, rows: Any, columns: Any, users: Floats,
                         items: Floats, decimals: int) -> str:
    """The item cluster on which user clusters disagree most, each measured from its own mean."""
    above = facts.above_own_mean(matrix, items)
    j = int((users @ np.square(above - users @ above / users.sum())).argmax())
    high, low = int(above[:, j].argmax()), int(above[:, j].argmin())
    if above[high, j] - above[low, j] < 0.05:
        return f"All user clusters rank the {label} clusters alike"
    most, least = _signed(above[high, j], decimals), _signed(above[low, j], decimals)
    return (f"Tastes differ most on {label} cluster {columns[j]}: against its own mean, user cluster "
            f"{rows[high]} rates it {most}, user cluster {rows[low]} {least}")


def _signed(x: float, decimals: int = 1) -> str:
    return f"{x:+.{decimals}f}".replace("-", "−") if abs(x) >= 0.5 * 0.1**decimals else f"{0:.{decimals}f}"


def _who_wins(curves: Mapping[str, Sequence[tuple[float, float, float, float]]], where: str) -> str:
    """Who has the lowest error with the fewest users and with the most: nobody, where it may be chance."""
    few, many = (_clear_winner({name: end(points) for name, points in curves.items()}) for end in (min, max))
    if few == many:
        return (f"With few users as with many, {few} has the lowest error{where}" if few else
                f"Neither with few users nor with many is one model clearly the best{where}")
    if few and many:
        return f"With few users {few} has the lowest error{where}, with many {many}"
    return (f"With few users {few} has the lowest error{where}, with many none clearly" if few else
            f"With many users {many} has the lowest error{where}, with few none clearly")


def _clear_winner(points: Mapping[str, tuple[float, float, float, float]]) -> str | None:
    """The lowest error, if it is outside the others' intervals and they are outside its own.

    An interval without length belongs to what the others are compared with, and says nothing.
    """
    best = min(points, key=lambda name: points[name][1])

    def inside(error: float, low: float, high: float) -> bool:
        return low < high and low <= error <= high

    error, *interval = points[best][1:]
    others = [point[1:] for name, point in points.items() if name != best]
    return None if any(inside(e, *interval) or inside(error, *own) for e, *own in others) else best


def _who_carries(model: "Mixture") -> str:
    factors = {name: facts.parts(model, name).get("factors", 0.0) for name in model.data_.domains}
    if min(factors.values()) == 1:
        return "Factors carry every prediction alone"
    if max(factors.values()) > 0:
        span = " to ".join(dict.fromkeys(_percent(end(factors.values())) for end in (min, max)))
        return f"Factors carry {span} of a prediction, clusters the rest"
    kind, what = ("common", "The common") if facts.has_common_view(model) else ("own", "A domain's own")
    carried = {name: facts.parts(model, name)[kind] for name in model.data_.domains}
    least, most = min(carried, key=carried.__getitem__), max(carried, key=carried.__getitem__)
    if carried[most] == 0:
        return f"{what} clusters carry nothing of any prediction"
    if carried[least] == 1:
        return f"{what} clusters carry every prediction alone"
    if len(carried) == 1:
        return f"{what} clusters carry {_percent(carried[most])} of the prediction for {most}"
    if _percent(carried[least]) == _percent(carried[most]):
        return f"{what} clusters carry {_percent(carried[most])} of the prediction in every domain"
    return (f"{what} clusters carry {_percent(carried[most])} of the prediction for {most}, "
            f"{_percent(carried[least])} for {least}")


def _how_even(by_domain: dict[str, Floats], total: Floats, what: str, word: str) -> str:
    largest = int(total.argmax())
    if len(by_domain) == 1:
        return f"The largest {what} cluster, {largest}, has {_percent(total[largest])} of the {word}s"
    names, values = list(by_domain), np.stack(list(by_domain.values()))
    c = int(np.ptp(values, axis=0).argmax())
    high, low = int(values[:, c].argmax()), int(values[:, c].argmin())
    return (f"{what[0].upper()}{what[1:]} cluster {c} sets the domains apart most: it has "
            f"{_percent(values[high, c])} of {names[high]}, {_percent(values[low, c])} of {names[low]}")


def _how_calibrated(errors: Mapping[str, float]) -> str:
    if not errors:
        return "There is nothing to check probabilities with"
    worst = max(errors, key=errors.__getitem__)
    where = f" in {worst}, less elsewhere" if len(errors) > 1 else ""
    return f"Claimed probabilities are off by {100 * errors[worst]:.1f} points{where}"
