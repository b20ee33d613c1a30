"""Features: a column of attributes, of any type, as numbers that mean the same in all domains.

Each kind of column gives a row of length about 1, whatever the number of its features:

    category    text; one feature a value
    several     `a|b|c`, or lists of text; one feature a value, k values of one row weigh 1 / sqrt(k) each
    number      hat functions: a value between two knots belongs to both, the more the nearer. So what depends on a
                year can rise and fall again. The knots are the values themselves where there are 3 to 8, and else six
                quantiles, for which a value that n rows have counts sqrt(n): most films are of the last ten years, and
                the decades before must not be one step. Where there are too few rows, one feature: the standardised
                number
    yes or no   0 or 1
    vector      lists of numbers of one length, such as the embedding of a text; standardised, over sqrt(length)

A value that is missing is all zeros. A value of a category counts where at least 3 rows have it, and at most 500 values
a column, the most frequent ones; letter case and blanks around it do not matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pclf import door
from pclf.data.columns import is_missing, is_str, plain_name
from pclf.data.forms import WORDS, Floats, LeftOutError, Part, number_of, one_form, trimmed
from pclf.errors import DataError, ModelFileError, brief

FEWEST = 3             # rows that a value of a category must have
MOST = 500             # values of a category
UNIQUE = 0.9           # the share of different texts from which on they are names or sentences, not categories
FEW = 8                # different numbers that are knots themselves
QUANTILES = (0.02, 0.2, 0.4, 0.6, 0.8, 0.98)
LOOKED_AT = 1000       # rows that show in a moment whether a column differs
SHOWN = 40             # letters of a value in the preview
FARTHEST = 1e6         # from the mean, in spreads: who is farther counts as that far
LEFT_OUT = "left out"

# What a column of each kind has beside its name: one of these.
SAYS = {"category": (("labels",),), "several": (("labels",),), "number": (("knots",), ("mean", "spread")),
        "yes or no": ((),), "vector": (("mean", "spread"),)}


class Feature(NamedTuple):
    """A column of the matrix of attributes: ("genre", "horror"), ("year", "around 1994"), ("embedding", 3)."""

    column: str
    value: str | int | None = None   # None: the column itself, a number or a yes

    def __str__(self) -> str:
        return self.column if self.value is None else f"{self.column} {self.value}"


@dataclass(frozen=True)
class ColumnInfo:
    """How a column was understood, in words and in numbers."""

    name: str
    kind: str                        # category, several, number, yes or no, vector, left out
    found: str                       # in words; of a column that was left out, why
    domains: tuple[str, ...]         # that have it
    labels: tuple[str, ...] = field(default=(), repr=False)      # the values of categories, by feature
    knots: tuple[float, ...] = field(default=(), repr=False)     # of a number, by feature
    mean: tuple[float, ...] = field(default=(), repr=False)      # of a number without knots, and of a vector
    spread: tuple[float, ...] = field(default=(), repr=False)    # what 1 is worth of it

    @property
    def features(self) -> tuple[Feature, ...]:
        if self.kind in ("category", "several"):
            return tuple(Feature(self.name, label) for label in self.labels)
        if self.knots:
            return tuple(Feature(self.name, f"around {knot:.6g}") for knot in self.knots)
        if self.kind == "vector":
            return tuple(Feature(self.name, i) for i in range(len(self.mean)))
        return () if self.kind == LEFT_OUT else (Feature(self.name),)

    def encode(self, values: Any) -> tuple[Any, list[str]]:
        """The features of values in the form that `Values` has them, and the labels that are unknown.   (n, p)"""
        if self.kind in ("category", "several"):
            return _indicators(values, self.labels)
        if self.kind == "vector":
            given = np.isfinite(values).all(axis=1)
            return _dense(np.where(given[:, None], self._standardised(values), 0)), []
        if self.knots:
            return _hats(values, np.array(self.knots)), []
        if self.kind == "number":
            values = self._standardised(values)
        return _dense(np.nan_to_num(values)[:, None]), []

    def _standardised(self, values: Floats) -> Floats:
        out: Floats = np.clip((values - self.mean) / self.spread, -FARTHEST, FARTHEST)
        return out

    @property
    def least(self) -> float:
        """The smallest number that a feature can be."""
        return -self.most if self.mean else 0.0

    @property
    def most(self) -> float:
        return FARTHEST if self.mean else 1.0 + 1e-6

    @classmethod
    def from_description(cls, described: Any) -> "ColumnInfo":
        """What `asdict` gave, from a file."""
        door.check_keys("a column", described, {
            "name": str, "kind": (*SAYS, LEFT_OUT), "found": str, "domains": [str], "labels": [door.text],
            "knots": [door.finite], "mean": [door.finite], "spread": [door.finite]})
        out = cls(described["name"], described["kind"], described["found"],
                  *(tuple(described[key]) for key in ("domains", "labels", "knots", "mean", "spread")))
        sizes = {key: len(getattr(out, key)) for key in ("labels", "knots", "mean", "spread") if getattr(out, key)}
        wanted = SAYS.get(out.kind, ((),))
        if tuple(sizes) not in wanted or sizes.get("mean") != sizes.get("spread") or \
                (out.kind == "number" and sizes.get("mean", 1) != 1):
            raise ModelFileError(f"the column {brief(out.name)} must have what a column of the kind {out.kind!r} has; "
                                 f"got {sizes}")
        if sizes.get("knots", 2) < 2 or any(a >= b for a, b in pairwise(out.knots)):
            raise ModelFileError(f"the knots of {brief(out.name)} must ascend; got {brief(out.knots)}")
        if any(x <= 0 for x in out.spread):
            raise ModelFileError(f"the spread of {brief(out.name)} must be positive; got {brief(out.spread)}")
        if len(set(out.labels)) < len(out.labels):
            raise ModelFileError(f"the values of {brief(out.name)} must differ")
        return out

    def decode(self, row: NDArray[np.float32]) -> Any:
        """What a row of the features says: a text, a list of texts, a number, True; None where it is all zeros."""
        at = np.flatnonzero(row)
        if not len(at):
            return None
        if self.kind in ("category", "several"):
            labels = [self.labels[i] for i in at]
            return labels if self.kind == "several" else labels[0]
        if self.kind == "yes or no":
            return True
        exact = row.astype(np.float64)
        if self.knots:
            return _tidy(exact @ self.knots / exact.sum())
        values = [_tidy(value) for value in exact * self.spread + self.mean]
        return values if self.kind == "vector" else values[0]

    def values(self, given: Sequence[Any]) -> Any:
        """Python objects, one a row, in the form that `encode` takes."""
        import pyarrow as pa

        if self.kind in ("category", "several"):
            return pa.array([self._labels(v) for v in given], pa.list_(pa.large_string()))
        numbers = np.array([self._numbers(v) for v in given], np.float64).reshape(len(given), len(self.mean) or 1)
        return numbers if self.kind == "vector" else numbers[:, 0]

    def _labels(self, value: Any) -> list[str] | None:
        if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
            return [str(v) for v in value if not is_missing(v)]
        if is_missing(value):
            return None
        return str(value).split("|") if self.kind == "several" else [str(value)]

    def _numbers(self, value: Any) -> Any:
        n = len(self.mean) if self.kind == "vector" else 1
        if is_missing(value):
            return [np.nan] * n
        text = str(value).strip().lower()
        value = number_of(value) if self.kind == "number" else value
        try:
            made = np.array(WORDS.get(text, value) if self.kind == "yes or no" else value, np.float64).reshape(-1)
        except (TypeError, ValueError):
            made = np.empty(0)
        if len(made) != n or np.isinf(made).any():
            kind = {"vector": f"a list of {n} numbers", "number": "a number"}.get(self.kind, "true or false")
            raise DataError(f"the attribute {self.name!r} must be {kind}; got {brief(value)}")
        return made


def _tidy(value: float) -> float:
    """Without the digits that float32 adds."""
    return float(f"{value:.6g}")


def understood(name: str, parts: Sequence[Part], start: NDArray[np.intp]) -> tuple[ColumnInfo, Any]:
    """A column of some domains: what it is, and its features for the rows of all parts, one after another.

    start: where the rows of each part begin.
    """
    domains = tuple(part.domain for part in parts)
    try:
        form, values = one_form(name, parts)
        info = _LEARNT[form](name, domains, values)
        matrix, _ = info.encode(values)
    except LeftOutError as why:
        return ColumnInfo(name, LEFT_OUT, str(why), domains), None
    if not _differs(matrix, start):
        same = "it has one value everywhere" if len(parts) == 1 else "it has one value in each domain"
        return ColumnInfo(name, LEFT_OUT, f"{same} ({info.found}), which tells nothing apart", domains), None
    return info, matrix


# What a column has to say


def _learn_text(name: str, domains: tuple[str, ...], texts: Any) -> ColumnInfo:
    import pyarrow.compute as pc

    given = len(texts) - texts.null_count
    distinct = pc.count_distinct(pc.utf8_lower(texts)).as_py()
    if distinct > UNIQUE * given and distinct > 1:
        lists = pc.sum(pc.match_substring(texts, ",")).as_py() > given / 2
        raise LeftOutError(f"nearly every one is another ({distinct:,} values of {given:,}): names or sentences, no "
                            f"categories{'; if they are lists, write a|b and not a,b' if lists else ''}")
    return _categories(name, "category", domains, texts)


def _learn_several(name: str, domains: tuple[str, ...], lists: Any) -> ColumnInfo:
    return _categories(name, "several", domains, lists)


def _categories(name: str, kind: str, domains: tuple[str, ...], texts: Any) -> ColumnInfo:
    table, keys, spelled = _tokens(texts)
    counts, a_row = np.bincount(table.indices, minlength=len(keys)), np.diff(table.indptr)
    often = np.flatnonzero(counts >= FEWEST)
    kept = often[np.argsort(-counts[often], kind="stable")][:MOST]
    if not len(kept):
        raise LeftOutError(f"none of its {len(keys):,} values is found {FEWEST} times")
    labels = tuple(spelled.take(kept).to_pylist())
    found = f"{len(labels):,} value{'s' * (len(labels) > 1)}: {', '.join(map(_short, labels[:3]))}"
    found += f" and {len(labels) - 3:,} more" if len(labels) > 3 else ""
    if kind == "several":
        found += f"; {a_row[a_row > 0].mean():.1f} a row"
    if rare := len(keys) - len(kept):
        found += f"; {rare:,} rarer left out"
    return ColumnInfo(name, kind, found + _gaps(int((a_row == 0).sum())), domains, labels=labels)


def _short(label: str) -> str:
    line = " ".join(label.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def _learn_number(name: str, domains: tuple[str, ...], values: Floats) -> ColumnInfo:
    given = values[~np.isnan(values)]
    distinct, counts = np.unique(given, return_counts=True)
    if plain_name(name).endswith("id") and len(distinct) == len(given) > FEW and not (given % 1).any():
        raise LeftOutError("every number is another, and the name says that they are ids")
    knots = distinct if len(distinct) <= FEW else _quantiles(distinct, np.sqrt(counts))
    found = f"{given.min():.6g} to {given.max():.6g}{{}}{_gaps(len(values) - len(given))}"
    if len(knots) < 3 or len(given) < FEWEST * len(knots):
        spread = float(given.std()) or 1.0
        return ColumnInfo(name, "number", found.format(""), domains, mean=(float(given.mean()),), spread=(spread,))
    around = ", ".join(f"{knot:.6g}" for knot in knots)
    return ColumnInfo(name, "number", found.format(f", around {around}"), domains, knots=tuple(knots.tolist()))


def _quantiles(values: Floats, weights: Floats) -> Floats:
    below = (np.cumsum(weights) - weights / 2) / weights.sum()
    return np.unique(values[np.searchsorted(below, QUANTILES).clip(max=len(values) - 1)])


def _learn_yes_or_no(name: str, domains: tuple[str, ...], values: Floats) -> ColumnInfo:
    found = f"{100 * np.nanmean(values):.2g} % yes{_gaps(int(np.isnan(values).sum()))}"
    return ColumnInfo(name, "yes or no", found, domains)


def _learn_vector(name: str, domains: tuple[str, ...], values: Floats) -> ColumnInfo:
    given = values[np.isfinite(values).all(axis=1)]
    if not len(given):
        raise LeftOutError("it has no values")
    spread = given.std(axis=0)
    spread = np.where(spread > 0, spread, 1) * np.sqrt(values.shape[1])
    found = f"{values.shape[1]:,} numbers{_gaps(len(values) - len(given))}"
    return ColumnInfo(name, "vector", found, domains, mean=tuple(given.mean(axis=0).tolist()),
                      spread=tuple(spread.tolist()))


_LEARNT: dict[str, Callable[[str, tuple[str, ...], Any], ColumnInfo]] = {
    "text": _learn_text, "several": _learn_several, "number": _learn_number, "yes or no": _learn_yes_or_no,
    "vector": _learn_vector,
}


def _gaps(missing: int) -> str:
    return f"; {missing:,} missing" if missing else ""


# Features


def _tokens(texts: Any) -> tuple[Any, Any, Any]:
    """Which rows have which values; the values in lower case; and as first spelled.   (n, values) csr_array of ones"""
    import pyarrow as pa
    import pyarrow.compute as pc
    from scipy import sparse

    if is_str(texts.type):
        row, values = np.arange(len(texts)), texts
    else:
        row, values = pc.list_parent_indices(texts).to_numpy(), pc.list_flatten(texts)
    spellings = values.cast(pa.large_string()).dictionary_encode()       # few, so that few are trimmed and made small
    spelled = trimmed(spellings.dictionary)
    keys = pc.utf8_lower(spelled).dictionary_encode()
    key_of = keys.indices.fill_null(-1).to_numpy()
    spelling = spellings.indices.fill_null(-1).to_numpy()
    code = np.append(key_of, -1)[spelling]                               # -1 where there is no value
    given = code >= 0
    table = sparse.csr_array((given[given], (row[given], code[given])), shape=(len(texts), len(keys.dictionary)))
    table.sum_duplicates()
    first = np.unique(key_of[key_of >= 0], return_index=True)[1]
    return table, keys.dictionary, spelled.drop_null().take(pa.array(first))


def _indicators(texts: Any, labels: tuple[str, ...]) -> tuple[Any, list[str]]:
    """1 / sqrt(k) for each of the k known values of a row, and the values that are unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from scipy import sparse

    table, keys, spelled = _tokens(texts)
    known = pc.utf8_lower(pa.array(labels, pa.large_string()))
    column = pc.index_in(keys, value_set=known).fill_null(-1).to_numpy()[table.indices]
    here = column >= 0
    row = np.repeat(np.arange(len(texts)), np.diff(table.indptr))[here]
    weight = 1 / np.sqrt(np.bincount(row, minlength=len(texts))[row])
    made = sparse.csr_array((weight.astype(np.float32), (row, column[here])), shape=(len(texts), len(labels)))
    return made, spelled.filter(pc.invert(pc.is_in(keys, value_set=known))).to_pylist()


def _hats(values: Floats, knots: Floats) -> Any:
    """How much a value belongs to the knots on both sides of it; beyond the ends, wholly to the last one."""
    from scipy import sparse

    row = np.flatnonzero(~np.isnan(values))
    left = np.clip(np.searchsorted(knots, values[row], side="right") - 1, 0, len(knots) - 2)
    share = np.clip((values[row] - knots[left]) / np.diff(knots)[left], 0, 1)
    weight = np.concatenate([1 - share, share]).astype(np.float32)
    made = sparse.csr_array((weight, (np.tile(row, 2), np.concatenate([left, left + 1]))),
                            shape=(len(values), len(knots)))
    made.eliminate_zeros()
    return made


def _dense(values: Floats) -> Any:
    from scipy import sparse

    n, width = values.shape
    at = np.tile(np.arange(width, dtype=np.int32), n), np.arange(n + 1, dtype=np.int64) * width
    made = sparse.csr_array((values.astype(np.float32).ravel(), *at), shape=values.shape)
    made.eliminate_zeros()
    return made


def _differs(matrix: Any, start: NDArray[np.intp]) -> bool:
    """Whether two rows of one domain differ."""
    for first, end in pairwise([*start.tolist(), matrix.shape[0]]):
        for rows in (matrix[first:min(end, first + LOOKED_AT)], matrix[first:end]):     # mostly the first few do
            if rows.shape[0] and (rows.max(axis=0) - rows.min(axis=0)).max() > 1e-6:
                return True
    return False
