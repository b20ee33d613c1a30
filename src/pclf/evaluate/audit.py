"""Audit: does pooling help here? Each domain in turn is predicted with the others and without them.

    >>> found = audit(data)                                                     # doctest: +SKIP
    >>> print(found)                                                            # doctest: +SKIP

The pooled model is measured against its *twin*, the same model on the target *alone*, with the attributes of its own
items, and against what else one could do: a *merged* table, which is the same model on one domain that holds all
ratings, and Bias, which knows no tastes. Each *bridge* (people, things or attributes that domains have in common) is
measured by itself. A *control* is the pooled model with the ratings of the other domains shuffled among themselves,
which keeps how many there are and destroys what they say about tastes. What the control gains is not transfer.

Where people are shared, *visitors* are measured too: held-out people of whom other domains know something and the
target nothing. Lists are measured against the twin's and against the most popular items.

Predictions are means. The error is the mean absolute error of a user or, where the target has events, the mean rank of
what was held out (`trial`), and each test user counts once. Tests are paired over users. The users of a repeat share a
fit, which may have been a lucky one, so what the repeats differ by, beyond what their users explain, is added to the
variance. Holm's correction is over all tests of one model against one reference, in all domains; in the learning
curve, over those of one size.

What keeps the number of fits down: a fit that several comparisons need is made once; lists, visitors and the learning
curve are measured in the first three repeats; and a control is fitted for all sources together and else only where a
gain is to be claimed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from pclf.data.domain import count
from pclf.data.ratings import Ratings
from pclf.data.splits import Seed, as_generator, as_recorded
from pclf.errors import ArgumentError, DataError
from pclf.evaluate import verdicts as say
from pclf.evaluate.compare import alone, run_all
from pclf.evaluate.merged import can_merge
from pclf.evaluate.significance import effect, holm, mean_by
from pclf.evaluate.trial import ALONE, BIAS, FEW_REPEATS, LISTED, MERGED, POPULAR, Arm, Fit, Measured, Trial
from pclf.models.base import Recommender, as_ratings
from pclf.models.pclf import PCLF
from pclf.models.rmgm import RMGM
from pclf.models.transfer import BRIDGES, ties_of
from pclf.progress import progress as progress_bar
from pclf.tables import Framed, Table

MEASURES = {False: "MAE", True: "mean rank"}      # of ratings, of events
NDCG = f"nDCG@{LISTED}"
CHANGE = ("change", "95 % interval", "p (Holm)")
FEWEST_USERS = 5     # with more than `given` ratings: of fewer, an interval says nothing
TABLES = (("", ("pooling", "bridges", "left out")), (", visitors", ("visitors",)), (", lists", ("lists",)),
          (", lists of visitors", ("lists of visitors",)))       # which parts stand together


@dataclass(frozen=True)
class Audit(Framed):
    """What `audit` found. `verdicts` are sentences, `rows` the tidy table; the rest is computed from that.

    A row is one comparison in one `target`: the `mean` over its users of a `measure` ("MAE", the "mean rank" of events,
    or "nDCG@10" of lists) of a `model` pooled with `sources` (`shuffled`, for a control; over some `bridges`, where one
    is measured by itself), having learnt from `size` users of the target and `given` ratings of a test user. It says by
    how many percent that is above or, negative, below what it is `against`: the same model "alone", a "merged" table,
    "Bias", the "most popular" items, itself with the sources "shuffled", or with "all" sources. `low` and `high` are
    the 95 % interval, `p` is of the t test, `p_holm` is that corrected, and `p_wilcoxon` of the signed-rank test.
    `part` is "pooling", "bridges", "left out", "learning curve", "visitors", "lists" or "lists of visitors".
    """

    verdicts: list[str]
    rows: list[dict[str, Any]]
    recipe: dict[str, Any]   # model, given, repeats, seed, fingerprint of the data

    @property
    def affinity(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """[target][source]: percent, low, high, p_holm of the change when that source alone is pooled."""
        out: dict[str, dict[str, dict[str, float | None]]] = {}
        for row in self._against_twin("pooling"):
            if len(row["sources"]) == 1:
                out.setdefault(row["target"], {})[row["sources"][0]] = {
                    "percent": row["effect_percent"], **{key: row[key] for key in ("low", "high", "p_holm")}}
        return out

    @property
    def gains(self) -> dict[str, dict[str, float]]:
        """The affinities as `pclf.plots.affinity` takes them: 0.02 where the error falls by 2 %."""
        return {target: {source: -cell["percent"] / 100 for source, cell in row.items()
                         if cell["percent"] is not None} for target, row in self.affinity.items()}

    @property
    def significant(self) -> dict[str, dict[str, bool]]:
        """Which of the affinities the verdicts speak of as more than chance."""
        out: dict[str, dict[str, bool]] = {}
        for row in self._against_twin("pooling"):
            if len(row["sources"]) == 1:
                out.setdefault(row["target"], {})[row["sources"][0]] = say.lowers(row) or say.raises(row)
        return out

    @property
    def learning_curve(self) -> dict[str, dict[str, list[tuple[int, float, float, float]]]]:
        """[target][model]: (users, error, low, high), as `pclf.plots.learning_curve` takes those of a target.

        low and high are the interval of the difference to the twin, laid around the error: where the twin's
        line is outside the band, there is a difference.
        """
        out: dict[str, dict[str, list[tuple[int, float, float, float]]]] = {}
        twin = 0.0
        for row in self.rows:
            if row["part"] == "learning curve" and not row["shuffled"] and row["against"] in (None, ALONE):
                twin = row["mean"] if row["against"] is None else twin   # at each size the twin comes first
                low, high = (twin * (1 + (row[end] or 0.0) / 100) for end in ("low", "high"))
                points = out.setdefault(row["target"], {}).setdefault(row["model"], [])
                points.append((row["size"], row["mean"], low, high))
        return out

    def to_arrow(self) -> Any:
        """A pyarrow table of the rows."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {"verdicts": list(self.verdicts), "recipe": dict(self.recipe), "affinity": self.affinity,
                "learning_curve": self.learning_curve, "rows": [dict(row) for row in self.rows]}

    def __repr__(self) -> str:
        return "\n\n".join([self._title(), "\n".join(f"* {v}" for v in self.verdicts),
                            *(table.text() for table in self._tables())])

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(verdict)}</li>" for verdict in self.verdicts)
        return f"<h3>{escape(self._title())}</h3><ul>{said}</ul>" + "".join(table.html() for table in self._tables())

    def _against_twin(self, part: str) -> list[say.Row]:
        return [row for row in say.compared(self.rows, part, ALONE)
                if row["model"] == self.recipe["model"] and not row["shuffled"]]

    def _title(self) -> str:
        r = self.recipe
        return (f"Does pooling help? {r['model']} on held-out users known by {count(r['given'], r['of'])}, "
                f"{count(r['repeats'], 'repeat')}")

    def _tables(self) -> Iterator[Table]:
        for target in dict.fromkeys(row["target"] for row in self.rows):
            for suffix, parts in TABLES:
                own = [row for row in self.rows if row["target"] == target and row["part"] in parts]
                head = ["model", "pooled with", *{row["measure"]: "" for row in own}, "against", *CHANGE]
                lines = [[row["model"], _sources(row), f"{row['mean']:.4f}", row["against"] or "",
                          *_change(row["effect_percent"], row)] for row in own]
                for row in own[:1]:
                    yield Table(head, lines,
                                f"{target}{suffix}: {row['n_users']:,} users tested, {row['size']:,} to learn from")
        if self.affinity:
            sources = list(dict.fromkeys(source for row in self.affinity.values() for source in row))
            yield Table(["", *sources],
                        [[target, *(" ".join(_change(row[s]["percent"], row[s])[:2]) if s in row else ""
                                    for s in sources)] for target, row in self.affinity.items()],
                        "Affinity: change of a domain's error (line) by pooling it with one other domain (column)")
        changes = {(row["target"], row["size"]): row for row in self._against_twin("learning curve")}
        for target, curves in self.learning_curve.items():
            by_size = list(zip(*curves.values(), strict=True))
            measure = changes[target, by_size[0][0][0]]["measure"]
            yield Table(["users", *curves, f"{self.recipe['model']} against {ALONE}", "95 % interval", "p (Holm)"],
                        [[f"{points[0][0]:,}", *(f"{error:.4f}" for _, error, *_ in points),
                          *_change(row["effect_percent"], row)]
                         for points in by_size for row in [changes[target, points[0][0]]]],
                        f"Learning curve of {target}: {measure} by the number of its users to learn from")


def audit(data: Ratings | Mapping[str, Any], *, given: int = 10, repeats: int = 5,
          sizes: Sequence[int | None] = (10, 100, None), model: Recommender | None = None,
          seed: Seed = 0, n_jobs: int = 1, progress: bool = False,
          fit_options: Mapping[str, Any] | None = None) -> Audit:
    """Measure on held-out users of each domain whether pooling it with the other domains lowers its error.

    given: ratings, or events, by which a test user is known. repeats: in each, a fifth of those who can be are tested,
    in turn, at most 200. sizes: of the learning curve, in users of the target to learn from besides the test
    users' given ratings; None is all there are, and larger numbers than that are left out. model: a PCLF or
    RMGM with the settings to audit; by default PCLF(). n_jobs: processes. fit_options: for every `fit` that
    knows them (engine, dtype, ...).
    """
    ratings, model = as_ratings(data), PCLF() if model is None else model
    _check(ratings, model, given, repeats, sizes, n_jobs)
    options = alone(n_jobs, fit_options or {}, [model])
    # "auto" restarts depend on the number of ratings; here, no arm may average more of them than another.
    fair = clone(model).set_params(n_restarts=model._n_restarts(ratings.n_ratings))
    trial = Trial(ratings, fair, given, int(as_generator(seed).integers(2**32)), options)
    skipped = {name: reason for name in ratings.domains if (reason := _why_not(trial, name))}
    targets = [name for name in ratings.domains if name not in skipped]
    if not targets:
        raise DataError(f"no domain can be audited: {' '.join(skipped.values())}")

    label, measured = type(model).__name__, dict[Fit, Measured]()
    plan = [contrast for name in targets for contrast in _plan(trial, name, repeats, sizes)]
    _measure(trial, plan, measured, n_jobs, progress)
    rows = _corrected([_row(contrast, ratings, measured) for contrast in plan])
    claims = [row for name in targets for row in say.claims(name, label, rows)]
    plan += [control for contrast, row in zip(plan, rows, strict=True) if row in claims
             for control in _controls(contrast) if control not in plan]
    _measure(trial, plan, measured, n_jobs, progress)
    plan.sort(key=lambda contrast: targets.index(contrast.target))   # controls to the rows of their domain
    rows = [row for row in _corrected([_row(contrast, ratings, measured) for contrast in plan]) if row["n_users"]]
    return Audit([skipped.get(name) or say.verdict(name, label, rows) for name in ratings.domains], rows,
                 {"model": label, "given": given, "of": "event" if ratings.events else "rating", "repeats": repeats,
                  "seed": as_recorded(seed), "fingerprint": ratings.fingerprint})


class Contrast(NamedTuple):
    """A row to be: one arm against another, or the twin by itself."""

    part: str
    target: str
    size: int
    given: int
    repeats: int
    own: Arm
    base: Arm | None

    def fits(self, arm: Arm | None) -> list[Fit]:
        return [Fit(self.target, self.size, self.given, repeat, arm) for repeat in range(self.repeats)] if arm else []

    @property
    def of_lists(self) -> bool:
        return self.part.startswith("lists")


def _check(ratings: Ratings, model: Any, given: int, repeats: int, sizes: Sequence[int | None],
           n_jobs: int) -> None:
    if len(ratings.domains) < 2:
        raise DataError(f"an audit needs at least two domains; got 1 ({next(iter(ratings.domains))!r}). Add "
                        f"the ratings of another catalogue, or use `pclf.compare` (`pclf evaluate`) for a single one.")
    if not isinstance(model, PCLF | RMGM):
        raise ArgumentError(f"the model of an audit must be a PCLF or RMGM, which pool domains; got "
                            f"{type(model).__name__}.")
    for name, value, least in (("given", given, 1), ("repeats", repeats, 1), ("n_jobs", n_jobs, 1)):
        if value < least:
            raise ArgumentError(f"{name} must be at least {least}; got {value}.")
    for size in sizes:
        if size is not None and size < 1:
            raise ArgumentError(f"sizes must be numbers of users, 1 or more, or None for all; got {size}.")


def _why_not(trial: Trial, name: str) -> str | None:
    """Why a domain cannot be a target."""
    domain = trial.data[name]
    if np.ptp(domain.value) == 0 and not domain.events:
        return say.nothing_to_learn(name, float(domain.ratings[0]))
    if trial.n_testable(name) < FEWEST_USERS:
        return say.too_few_users(domain, trial.n_testable(name), trial.given, FEWEST_USERS)
    return None


def _plan(trial: Trial, target: str, repeats: int, sizes: Sequence[int | None]) -> Iterator[Contrast]:
    """What is compared in a domain, in the order of the tables. Controls of further claims come later."""
    label, full, few = type(trial.model).__name__, trial.n_training_users(target), min(repeats, FEW_REPEATS)
    others = tuple(name for name in trial.data.domains if name != target)
    twin, pooled = Arm(ALONE), Arm(label, others)
    plain = [] if trial.data[target].events else [Arm(BIAS)]             # knows no tastes, and no events
    table = [Arm(MERGED, others)] if can_merge(trial.data) else []
    whole = "pooling", target, full, trial.given, repeats
    yield Contrast(*whole, twin, None)
    yield from (Contrast(*whole, arm, twin) for arm in (*plain, *table))
    yield from (Contrast(*whole, pooled, base) for base in (twin, *plain, *table))
    yield from _controls(Contrast(*whole, pooled, twin))
    for bridge in _bridges(trial):
        same = (bridge,) if trial.data.attributes is not None else ()      # attributes in both arms or in neither
        yield Contrast("bridges", *whole[1:], pooled._replace(bridges=(bridge,)), twin._replace(bridges=same))
    if len(others) > 1:
        for source in others:
            yield Contrast(*whole, Arm(label, (source,)), twin)
        for source in others:
            rest = tuple(name for name in others if name != source)
            yield Contrast("left out", *whole[1:], Arm(label, rest), pooled)
    for size in sorted({full if size is None else size for size in sizes if size is None or size < full}):
        point = "learning curve", target, size, trial.given, few
        yield Contrast(*point, twin, None)
        yield from (Contrast(*point, bias, twin) for bias in plain)
        yield from (Contrast(*point, pooled, base) for base in [twin, *plain])
    visits = trial.n_visitors(target) >= FEWEST_USERS
    if visits:
        visit = "visitors", target, full, 0, few
        yield Contrast(*visit, twin, None)
        yield from (Contrast(*visit, arm, twin) for arm in (*plain, *table))
        yield from (Contrast(*visit, pooled, base) for base in (twin, *plain, *table))
    for part, given in (("lists", trial.given), *((("lists of visitors", 0),) if visits else ())):
        if trial.lists:
            lists = part, target, full, given, few
            yield Contrast(*lists, twin, None)
            yield Contrast(*lists, Arm(POPULAR), twin)
            yield from (Contrast(*lists, pooled, base) for base in (twin, Arm(POPULAR)))


def _bridges(trial: Trial) -> list[str]:
    """What the domains have in common, where a model can be told to use one thing of it at a time."""
    ties = ties_of(trial.data)
    return [kind for kind in BRIDGES if getattr(ties, kind)] if isinstance(trial.model, PCLF) else []


def _controls(claim: Contrast) -> list[Contrast]:
    """The control against the twin, and what is claimed against the control."""
    control = claim.own._replace(shuffled=True)
    return [claim._replace(own=control), claim._replace(base=control)]


def _measure(trial: Trial, plan: Iterable[Contrast], measured: dict[Fit, Measured], n_jobs: int,
             shown: bool) -> None:
    """Make the fits that are still missing."""
    needed = dict.fromkeys(fit for c in plan for fit in c.fits(c.own) + c.fits(c.base))
    jobs = [fit for fit in needed if fit not in measured]
    if not jobs:
        return
    with progress_bar("audit", len(jobs), unit="fit", shown=shown) as advance:
        def done(fit: Fit, found: Measured) -> None:
            measured[fit] = found
            advance(1, fit.target)

        run_all(trial, jobs, n_jobs, done)


def _row(contrast: Contrast, ratings: Ratings, measured: Mapping[Fit, Measured]) -> dict[str, Any]:
    fits = [measured[fit] for fit in contrast.fits(contrast.own)]
    own, base = (np.concatenate([(m.ndcg if contrast.of_lists else m.error) for m in found] or [np.empty(0)])
                 for found in (fits, [measured[fit] for fit in contrast.fits(contrast.base)]))
    user, repeat = np.concatenate([m.user for m in fits]), np.repeat(np.arange(len(fits)), [len(m.user) for m in fits])
    some = np.isfinite(own)                                          # who liked nothing that was held out has no list
    user, own, repeat, base = user[some], own[some], repeat[some], base[some] if len(base) else base
    found = effect(own, base, user, repeat) if len(base) else None
    percent, low, high, p, p_wilcoxon = map(_number, found or [np.nan] * 5)
    return {"part": contrast.part, "target": contrast.target, "size": contrast.size, "given": contrast.given,
            "model": contrast.own.model, "sources": list(contrast.own.sources),
            "shuffled": contrast.own.shuffled, "bridges": list(contrast.own.bridges),
            "measure": NDCG if contrast.of_lists else MEASURES[ratings[contrast.target].events],
            "mean": float(mean_by(user, own).mean()) if len(user) else None,
            "against": _name(contrast.base), "effect_percent": percent, "low": low, "high": high, "p": p,
            "p_holm": None, "p_wilcoxon": p_wilcoxon, "n_users": len(np.unique(user))}


def _corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with p_holm, by families: one model against one reference, with one size or all there are."""
    full = {row["target"]: row["size"] for row in rows if row["part"] == "pooling"}
    families: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        size = row["size"] if row["size"] < full[row["target"]] else None
        key = row["part"], row["model"], row["shuffled"], row["against"], size
        families.setdefault(key, []).append(row)
    for family in families.values():
        for row, p in zip(family, holm([np.nan if r["p"] is None else r["p"] for r in family]), strict=True):
            row["p_holm"] = _number(p)
    return rows


def _name(base: Arm | None) -> str | None:
    if base is None:
        return None
    return "shuffled" if base.shuffled else base.model if base.model in (ALONE, MERGED, BIAS, POPULAR) else "all"


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _sources(row: Mapping[str, Any]) -> str:
    over = f", by {say.listed(row['bridges'])}" if row["bridges"] else ""
    return say.listed(row["sources"]) + ", shuffled" * row["shuffled"] + over if row["sources"] else ""


def _change(percent: float | None, row: Mapping[str, Any]) -> list[str]:
    """Effect, interval and p as cells."""
    if percent is None or row["low"] is None:
        return ["", "", ""]
    p = row["p_holm"]
    return [f"{percent:+.1f} %", f"({row['low']:+.1f} to {row['high']:+.1f})",
            "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"]
