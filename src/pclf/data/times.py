"""Times and strengths: when something was done, and how much of it."""

import time
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pclf.data.columns import Coded, check_present, numbers, python_values
from pclf.errors import DataError, brief

UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))     # from so large on, so many a second: nano-, micro-, milliseconds
DAY = 86_400
EARLIEST = -719_162 * DAY                          # the first day of the year 1
SLACK = 2 * DAY                                     # clocks and time zones
MOST = 1e30                                         # of a strength: sums of it fit 32 bits, and so does 1 / MOST, faded


def seconds(column: Coded, where: str) -> NDArray[np.int64]:
    """Seconds since 1970 of each row, from numbers or dates; an error says in which row there is neither.   (n,)"""
    check_present(column, f"{where}: times")
    found = np.array([_second(value) for value in python_values(column.distinct)], np.float64)
    _check(column, ~(found >= EARLIEST), f"{where}: times must be seconds since 1970 or dates such as 2024-05-31 12:00",
           "Correct these rows, or leave time_col out.")
    _check(column, found > time.time() + SLACK, f"{where}: times must not lie in the future",
           "Correct these rows first.")
    return found.astype(np.int64)[column.codes]


def strengths(column: Coded, where: str) -> NDArray[np.float64]:
    """How much was done in each row: plays, hours, amounts.   (n,)"""
    found = numbers(column, where, "strengths")
    _check(column, found <= 0, f"{where}: strengths must be above 0", "Drop these rows, or leave weight_col out.")
    _check(column, (found < 1 / MOST) | (found > MOST), f"{where}: strengths must be from {1 / MOST:g} to {MOST:g}",
           "Pass them in another unit.")
    return found[column.codes]


def faded(when: NDArray[np.int64], half_life: float, where: str) -> NDArray[np.float64]:
    """What is left of each row where it loses half in so many days, counted back from the latest row.   (n,)"""
    if not (isinstance(half_life, (int, float, np.number)) and np.isfinite(half_life) and half_life > 0):
        raise DataError(f"{where}: half_life must be a number of days above 0; got {brief(half_life)}. Leave it out, "
                        f"and old events count like new ones.")
    return np.asarray(np.maximum(0.5 ** ((when.max() - when) / (half_life * DAY)), 1e-6))


def _check(column: Coded, bad: NDArray[np.bool_], rule: str, way_out: str) -> None:
    if bad.any():
        rows = np.isin(column.codes, np.flatnonzero(bad))
        got = python_values(column.distinct)[column.codes[rows.argmax()]]
        raise DataError(f"{rule}; got {brief(got)} {column.where(rows)}. {way_out}")


def _second(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                return float("nan")
    if isinstance(value, date):                     # of which datetime is a child
        whole = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        return (whole if whole.tzinfo else whole.replace(tzinfo=UTC)).timestamp()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return float("nan")
    if not np.isfinite(number):
        return float("nan")
    return number / next((unit for least, unit in UNITS if abs(number) >= least), 1.0)
