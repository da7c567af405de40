"""Liveness of rows, as kernels need it to keep dead rows out of the top k.

An index numbers its rows from 0; `set_rows` maps them to rows of the set (empty: the same numbers).
Row r of the set is live at an edit if edit < died[r]; without `died`, all rows are live. A row
whose bit isn't set in `dead_bits` was never removed; without bits, any row may have been.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64, U8
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit
from rangecast.model.boxes import frozen

_NO_BITS = frozen([], np.uint8)


class Liveness(NamedTuple):
    """Row numbers in the set, the edits at which rows died, and the edit of the query."""

    set_rows: I32
    died: I64
    edit: int
    dead_bits: U8 = _NO_BITS


ALL = Liveness(frozen([], np.int32), frozen([], np.int64), 0)
"""All rows are live."""


class LiveRows(NamedTuple):
    """`Liveness` as pointers, for kernels."""

    set_rows: Any
    died: Any
    edit: int
    dead_bits: Any
    are_mapped: bool
    some_died: bool
    have_bits: bool


@jit
def live_rows(set_rows: I32, died: I64, edit: int, dead_bits: U8) -> LiveRows:
    """Convert the fields of a `Liveness` for `is_live`."""
    return LiveRows(
        pointer(set_rows, 0),
        pointer(died, 0),
        edit,
        pointer(dead_bits, 0),
        len(set_rows) > 0,
        len(died) > 0,
        len(dead_bits) > 0,
    )


@jit
def is_live(live: LiveRows, row: int) -> bool:
    """Return whether a row of the index is live."""
    if not live.some_died:
        return True
    set_row = live.set_rows[row] if live.are_mapped else row
    if live.have_bits and not live.dead_bits[set_row >> 3] >> (set_row & 7) & 1:
        return True
    return bool(live.died[set_row] > live.edit)
