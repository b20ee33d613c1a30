"""Verdicts: what an audit found about a domain, in a few sentences.

    Pooling with music lowers the error of books by 1.8 % (95 % interval 0.9 to 2.6); with films it makes no
    difference. By themselves, the people in common lower it by 1.5 % (95 % interval 0.7 to 2.3). For visitors, whom
    music knows and books does not, it lowers the error by 6.1 % (95 % interval 4.0 to 8.2). Lists are better by 12.0 %
    (95 % interval 5.1 to 18.9) than without the others and no better or worse than the most popular items.

A change is claimed where it is significant after Holm's correction and not negligible. Otherwise the interval
decides between two things that are not the same: there is no difference, or too few users were tested to see
one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pclf.data.ratings import Domain

ALPHA = 0.05       # of p after Holm
NEGLIGIBLE = 0.2   # percent: an interval within plus and minus this is no difference, significant or not
SMALL = 1.0        # percent: the same of a change that is not significant

Row = Mapping[str, Any]


def lowers(row: Row) -> bool:
    """The error is lower, and that is not chance."""
    return _significant(row) and row["effect_percent"] < 0


def raises(row: Row) -> bool:
    """The error is higher, and that is not chance."""
    return _significant(row) and row["effect_percent"] > 0


def verdict(target: str, model: str, rows: Iterable[Row]) -> str:
    """The sentences on a domain, from the rows of an audit.

    What pooling does with each other domain and with all of them, or would do with fewer users; what the
    shuffled controls take away from that; whether something simpler is better; what each bridge does by itself; what
    visitors and lists gain.
    """
    own = _own(target, model, rows)
    return " ".join([_of_pooling(target, model, own), *_of_bridges(own), *_of_visitors(target, own), *_of_lists(own)])


def claims(target: str, model: str, rows: Iterable[Row]) -> list[Row]:
    """The gains that the sentences claim: with all users or, failing these, with the fewest, and those of visitors."""
    own = _own(target, model, rows)
    return _of_known_users(own) + list(filter(lowers, compared(own, "visitors", "alone")))


def _own(target: str, model: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if (row["target"], row["model"], row["shuffled"]) == (target, model, False)]


def _of_known_users(own: Sequence[Row]) -> list[Row]:
    curve = sorted(compared(own, "learning curve", "alone"), key=lambda row: row["size"])[:1]
    return list(filter(lowers, compared(own, "pooling", "alone"))) or list(filter(lowers, curve))


def _of_pooling(target: str, model: str, own: Sequence[Row]) -> str:
    pooling = compared(own, "pooling", "alone")
    clauses = _by_sources(target, pooling)
    claimed = _of_known_users(own)
    if all(row["effect_percent"] == row["low"] == row["high"] == 0 for row in pooling):
        clauses.append("the predictions are the same, since nothing of the others has weight in them")
    clauses += [f"with only {row['size']:,} users of its own to learn from it would lower it {_by(row)}"
                for row in claimed if row["part"] == "learning curve"]
    sentence = "; ".join(clauses) + _doubt(claimed, [row for row in own if row["against"] == "shuffled"])
    last = claimed[-1] if claimed else pooling[0]
    return f"{sentence}{_simpler(model, own, last)}."


def _simpler(model: str, own: Sequence[Row], last: Row) -> str:
    """What does better although it is simpler, where the last claim was made."""
    out = ""
    for against, what in (("merged", "one merged table of all ratings"), ("Bias", "a plain bias model")):
        for row in filter(raises, compared(own, last["part"], against)):
            if row["size"] == last["size"]:
                out += f"; {what} does better ({model} is {row['effect_percent']:.1f} % above it)"
    return out


def _of_bridges(own: Sequence[Row]) -> list[str]:
    """What each bridge does by itself."""
    clauses = []
    for row in compared(own, "bridges", "alone"):
        what = f"the {row['bridges'][0]} in common"
        if _significant(row):
            clauses.append(f"{what} {'lower' if lowers(row) else 'raise'} it {_by(row)}")
        elif _no_difference(row):
            clauses.append(f"{what} make no difference")
        else:
            clauses.append(f"{what} have no effect that could be told from chance (95 % interval {_span(row)})")
    return [f"By themselves, {'; '.join(clauses)}."] if clauses else []


def _of_visitors(target: str, own: Sequence[Row]) -> list[str]:
    out = []
    for row in compared(own, "visitors", "alone"):
        doubt = _doubt([row] if lowers(row) else [], [r for r in own if r["against"] == "shuffled"])
        out.append(f"For visitors, whom {listed(row['sources'])} {'know' if len(row['sources']) > 1 else 'knows'} and "
                   f"{target} does not, it {_change(row, 'the error')}{doubt}{_simpler(row['model'], own, row)}.")
    return out


def _of_lists(own: Sequence[Row]) -> list[str]:
    out = []
    for part, whose in (("lists", "Lists"), ("lists of visitors", "Those of visitors")):
        clauses = [f"{_better(row)} than {what}" for against, what in (("alone", "without the others"),
                                                                      ("most popular", "the most popular items"))
                   for row in compared(own, part, against)]
        out += [f"{whose} are {' and '.join(clauses)}."] if clauses else []
    return out


def _better(row: Row) -> str:
    """How lists compare: of these, more is better."""
    if row["effect_percent"] is None:
        return "not to be told better or worse"
    if _significant(row):
        return f"{'better' if raises(row) else 'worse'} {_by(row)}"
    if _no_difference(row):
        return "no better or worse"
    return f"not surely better or worse (95 % interval {_span(row)})"


def nothing_to_learn(target: str, rating: float) -> str:
    return f"All ratings of {target} are {rating:g}: nothing can be learnt or lost there by pooling."


def too_few_users(domain: Domain, n_known: int, given: int, fewest: int) -> str:
    more = f"have more than {given} {'events' if domain.events else 'ratings'}"
    return (f"{domain.name} has too few users to hold any out: {n_known:,} of {domain.n_users:,} {more}, and {fewest} "
            f"are needed. Use a smaller `given`.")


def listed(names: Sequence[str], joint: str = "and") -> str:
    """a; a and b; a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joint} {names[-1]}"


def compared(rows: Iterable[Row], part: str, against: str) -> list[Row]:
    """The rows of a part with one reference."""
    return [row for row in rows if (row["part"], row["against"]) == (part, against)]


def _significant(row: Row) -> bool:
    return row["p_holm"] is not None and row["p_holm"] < ALPHA and not _within(row, NEGLIGIBLE)


def _no_difference(row: Row) -> bool:
    return not _significant(row) and _within(row, SMALL)


def _within(row: Row, percent: float) -> bool:
    return row["low"] is None or (row["low"] >= -percent and row["high"] <= percent)


def _by_sources(target: str, pooling: Sequence[Row]) -> list[str]:
    """A clause for each source, the largest gain first, one for those that make no difference, one for all."""
    alone = [row for row in pooling if len(row["sources"]) == 1]
    together = [row for row in pooling if len(row["sources"]) > 1]
    same = [row for row in alone if _no_difference(row)]
    found = sorted((row for row in alone if row not in same),
                   key=lambda row: (not lowers(row), not raises(row), row["effect_percent"]))
    groups = [[row] for row in found] + [same] * bool(same) + [[row] for row in together]
    if all(map(_no_difference, pooling)):
        groups = [[*alone, *together]]
    with_whom = [listed([_name(row) for row in group], "or") for group in groups]
    first = f"Pooling with {with_whom[0]} {_change(groups[0][0], f'the error of {target}')}"
    return [first, *(f"with {names} {_change(group[0])}" for names, group
                     in zip(with_whom[1:], groups[1:], strict=True))]


def _change(row: Row, error: str | None = None) -> str:
    """What happens to the error, which the first clause names and the others call "it"."""
    if _significant(row):
        verb = "lowers" if lowers(row) else "raises"
        return f"{verb} {error} {_by(row)}" if error else f"it {verb} it {_by(row)}"
    if _no_difference(row):
        return f"makes no difference to {error}" if error else "it makes no difference"
    chance = f"be told from chance (95 % interval {_span(row)})"
    return f"has no effect on {error} that could {chance}" if error else f"no effect can {chance}"


def _by(row: Row) -> str:
    low, high = sorted((abs(row["low"]), abs(row["high"])))
    return f"by {abs(row['effect_percent']):.1f} % (95 % interval {low:.1f} to {high:.1f})"


def _span(row: Row) -> str:
    low, high = row["low"], row["high"]
    if low < 0 < high:
        return f"{-low:.1f} % lower to {high:.1f} % higher"
    small, large = sorted((abs(low), abs(high)))
    return f"{small:.1f} to {large:.1f} % {'lower' if high <= 0 else 'higher'}"


def _name(row: Row) -> str:
    n = len(row["sources"])
    return row["sources"][0] if n == 1 else "both together" if n == 2 else f"all {n} together"


def _doubt(claims: Sequence[Row], controls: Sequence[Row]) -> str:
    """What the controls take away: claims that hold with shuffled ratings as well, or perhaps."""
    as_much: list[Row] = []
    unsure: list[Row] = []
    for row in claims:
        for control in controls:
            if not lowers(control) and all(control[k] == row[k] for k in ("part", "size", "sources")):
                over_shuffled = control["effect_percent"] or 0.0
                (as_much if over_shuffled > row["effect_percent"] / 2 else unsure).append(row)
    if as_much:
        return (f", but shuffled data of {_whose(as_much, claims)} help as much, so it is not knowledge "
                f"about tastes that is transferred")
    if unsure:
        return f", though shuffled data of {_whose(unsure, claims)} are not clearly worse"
    return ""


def _whose(doubted: Sequence[Row], claims: Sequence[Row]) -> str:
    if len(doubted) == len(claims) and max(len(row["sources"]) for row in claims) > 1:
        return "the others"
    return listed([_name(row) for row in doubted])
