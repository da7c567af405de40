"""What a caller gives a board: columns of objects and interests, changes; checked before all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, near, shown
from rangecast.kernels.arrays import F64, I64
from rangecast.model.tables import table_of

MAX = float(np.finfo(np.float64).max)


class Change(NamedTuple):
    """One change: y None removes an object; an x puts a new one there, or moves a known one."""

    id: Any
    y: float | None
    x: float | None = None


def columns(
    given: Any, names: Sequence[str], noun: str, optional: Sequence[str] = ()
) -> dict[str, pa.Array]:
    """Return the columns of a table, a DataFrame, a list of dicts or a dict of columns.

    Optional ones need not be there.
    """
    if given is None:
        return {name: pa.array([]) for name in names}
    table = table_of(given, noun)
    missing = [name for name in names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in (*names, *optional)]
    if missing or unknown:
        wrong = f"missing: {missing[0]!r}"
        if not missing:
            wrong = f"unknown: {unknown[0]!r}; {near(unknown[0], [*names, *optional])}"
        raise UsageError(f"{noun} have the columns {', '.join(names)}; {wrong}")
    return {name: table[name].combine_chunks() for name in table.column_names}


def changes_of(given: Any) -> list[Change]:
    """Return changes: pairs (id, y), triples (id, y, x), or rows with these columns."""
    is_table = isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__")
    rows: Any = given
    if not is_table:
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise UsageError(
                f"changes are pairs (id, y) or triples (id, y, x); given: {shown(given)}"
            )
        rows = list(given)
        is_table = bool(rows) and isinstance(rows[0], Mapping)
    if is_table:
        table = columns(rows, ("id", "y"), "changes", ["x"])
        rows = zip(*(table[n].to_pylist() for n in ("id", "y", "x") if n in table), strict=True)
    return [_change(row) for row in rows]


def _change(row: Any) -> Change:
    if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) not in (2, 3):
        raise UsageError(f"a change is a pair (id, y) or a triple (id, y, x); given: {shown(row)}")
    return Change(*row)


def numbers(column: pa.Array, what: str, missing: float | None = None) -> F64:
    """Return a column of finite numbers; where there is none, `missing`, or it is refused."""
    if column.type == pa.null() or pa.types.is_integer(column.type):
        column = column.cast(pa.float64(), safe=False)  # to the nearest double
    if missing is not None:
        column = column.fill_null(missing)
    if column.null_count or not pa.types.is_floating(column.type):
        raise UsageError(f"{what} is a number, and never missing")
    found = np.asarray(column.to_numpy(zero_copy_only=False), np.float64) + 0.0
    if not np.isfinite(found).all():
        bad = found[~np.isfinite(found)][0]
        raise UsageError(f"{what} is a finite number; given: {bad}")
    return found


def arrivals(column: pa.Array | None) -> I64 | None:
    """Return the order of arrival of objects, if it is given: whole numbers, each one once."""
    if column is None:
        return None
    if (
        not pa.types.is_integer(column.type)
        or column.null_count
        or len(column.unique()) < len(column)
    ):
        raise UsageError("arrivals of objects are whole numbers, each one once")
    found = np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
    if len(found) and found.min() < 0:
        raise UsageError("arrivals of objects count from 0")
    return found


def number(value: Any, what: str) -> float:
    """Return one finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise UsageError(f"{what} is a number; given: {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise UsageError(f"{what} is a finite number; given: {shown(value)}")
    return found + 0.0


def whole_k(given: Any, most: int, of: str) -> int:
    """Return how many objects a list has, from 1 to `most`."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 1 <= given <= most:
        raise UsageError(f"{of} is a whole number from 1 to {most}; given: {shown(given)}")
    return int(given)


def groups_of(epsilon: float | None, k: int) -> int:
    """Return into how many groups tiles are joined at most: 1 / epsilon, but not more than k."""
    if epsilon is None:
        return k
    if not 0 < epsilon <= 1:
        raise UsageError(f"epsilon is above 0 and at most 1; given: {epsilon!r}")
    return min(k, math.ceil(1 / epsilon - 1e-9))
