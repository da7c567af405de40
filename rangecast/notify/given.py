"""What a caller gives a board: columns of objects and interests, changes; checked before all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64

MAX = float(np.finfo(np.float64).max)


class Change(NamedTuple):
    """One row of updates: y None deletes; x on a new object inserts it, on a known one moves it."""

    id: Any
    y: float | None
    x: float | None = None


def columns(
    given: Any, names: Sequence[str], what: str, optional: Iterable[str] = ()
) -> dict[str, pa.Array]:
    """Return the columns of an Arrow table or a dict of columns."""
    if given is None:
        return {name: pa.array([], pa.float64()) for name in names}
    table = given if isinstance(given, Mapping) else {n: given[n] for n in given.column_names}
    missing = [name for name in names if name not in table]
    unknown = [name for name in table if name not in (*names, *optional)]
    if missing or unknown:
        raise UsageError(
            f"{what} have the columns {', '.join(names)}; "
            + (f"missing: {missing[0]!r}" if missing else f"unknown: {unknown[0]!r}")
        )
    found = {name: _array(column, name) for name, column in table.items()}
    if len({len(column) for column in found.values()}) > 1:
        raise UsageError(f"the columns of {what} are not equally long")
    return found


def _array(column: Any, name: str) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    try:
        return column if isinstance(column, pa.Array) else pa.array(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UsageError(f"column {name!r} has values of different types: {error}") from None


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
        raise UsageError(f"{what} is a number; given: {value!r}")
    if not math.isfinite(value):
        raise UsageError(f"{what} is a finite number; given: {value!r}")
    return float(value) + 0.0


def distinct(ids: Sequence[Any], what: str) -> dict[Any, int]:
    """Return the place of each id; refuse one that stands twice."""
    places = {name: place for place, name in enumerate(ids)}
    if len(places) < len(ids) or None in places:
        raise UsageError(f"each of the {what} needs an id of its own")
    return places


def groups_of(epsilon: float | None, k: int) -> int:
    """Return into how many groups tiles are joined at most: 1 / epsilon, but not more than k."""
    if epsilon is None:
        return k
    if not 0 < epsilon <= 1:
        raise UsageError(f"epsilon is above 0 and at most 1; given: {epsilon!r}")
    return min(k, math.ceil(1 / epsilon - 1e-9))
