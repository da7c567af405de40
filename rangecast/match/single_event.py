"""Single-event fast path: one kernel call with one table prepared in advance.

Calling a kernel from Python often takes longer than the search itself. So the fast path keeps
everything in one array: the concatenated tables of several bundles. The first two, `Numbers` and
`Columns`, hold what a live set adds to the rows of an index; the tables of the index itself begin
at `OWN`. The kernel is

    kernel(table, points, others) -> rows

points   (1, d), contiguous; NaN is rejected
others   rows to append unchanged

A single event keeps the GIL: the search ends sooner than a busy thread would return the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, readonly
from rangecast.kernels.bits import ZERO
from rangecast.kernels.bundle import Bundle, opened, pointer, table_size
from rangecast.kernels.callbacks import call_at
from rangecast.kernels.jit import direct, jit, jit_single
from rangecast.match.recent import Columns, list_recent

SingleEvent = Callable[[F64, I32], I32]
"""(points, others) -> rows."""
NO_NAN = "a point must not contain NaN: a missing value is +inf"
NO_ROWS: I32 = readonly(np.empty(0, np.int32))
NO_TABLE: I64 = readonly(np.empty(0, np.int64))


class Numbers(NamedTuple):
    """Row number in the live set of each row of an index, and the verification of candidates."""

    set_rows: I32
    """The set's row of each row; empty: the numbers are equal."""
    verified: I64 = NO_TABLE
    """Tables that the verifying kernel reads."""
    verify: int = 0
    """Address of the kernel that verifies the rows; 0: they are matches."""


ALONE = (
    Bundle(Numbers(NO_ROWS)),
    Bundle(Columns(np.empty(0), np.empty(0, np.int32), np.zeros(1, np.int64), NO_ROWS, 0)),
)
"""Nothing beside the rows of a structure."""
_NUMBERS = table_size(Numbers)
OWN = _NUMBERS + table_size(Columns)
"""Where the tables of the structure begin."""


def single_event(kernel: Callable[..., I32], *bundles: Bundle[Any]) -> SingleEvent:
    """Bind a kernel to the tables of some bundles."""
    table: I64 = np.concatenate([bundle.table for bundle in bundles])
    ready = partial(_entry(kernel), table)
    vars(ready)["bundles"] = bundles  # whose arrays the table points to
    return ready


@cache
def _entry(kernel: Callable[..., I32]) -> Callable[..., I32]:
    return direct(kernel, readonly(np.empty(0, np.int64)), readonly(np.empty((1, 1))), NO_ROWS)


@jit
def reject_nan(points: F64) -> None:
    """Raise an error if a coordinate of the event is NaN."""
    for j in range(points.shape[1]):
        if np.isnan(points[0, j]):
            raise UsageError(NO_NAN)


@jit
def max_beside(table: I64, others: I32) -> int:
    """Return the maximum number of rows that `append_other_rows` appends."""
    return int(opened(table[_NUMBERS:], Columns).rows) + len(others)


@jit
def append_other_rows(table: I64, points: F64, others: I32, rows: I32, filled: int) -> int:
    """Map the rows of an index to row numbers of the set, append all other rows, and verify them.

    The caller ensures that they fit. Returns the new length of `rows`.
    """
    numbers = opened(table, Numbers)
    set_rows = numbers.set_rows
    if len(set_rows):
        for i in range(filled):
            rows[i] = set_rows[rows[i]]
    columns = opened(table[_NUMBERS:], Columns)
    filled = list_recent(columns, pointer(points, 0), ZERO, rows, filled)
    for i in range(len(others)):
        rows[filled + i] = others[i]
    filled += len(others)
    if numbers.verify and filled:
        filled = call_at(numbers.verify, numbers.verified, points, rows[:filled])
    return filled


@jit_single
def match_recent(table: I64, points: F64, others: I32) -> I32:
    """Kernel for a set without an index: match only the newest rows."""
    reject_nan(points)
    rows = np.empty(max_beside(table, others), np.int32)
    return rows[: append_other_rows(table, points, others, rows, ZERO)]
