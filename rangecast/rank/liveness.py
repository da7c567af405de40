"""Which rows are live: what a live set says to the kernels, so that dead rows never take a place.

A structure numbers its rows from 0; `set_rows` are the set's own numbers of them (none: the same).
The set's row r is live at an edit if edit < died[r]; without `died` all are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit
from rangecast.model.boxes import frozen


class Liveness(NamedTuple):
    """The set's numbers of rows, the edits at which they died, and the edit of the query."""

    set_rows: I32
    died: I64
    edit: int


ALL = Liveness(frozen([], np.int32), frozen([], np.int64), 0)
"""All rows are live."""


class LiveRows(NamedTuple):
    """The same in kernels: pointers."""

    set_rows: Any
    died: Any
    edit: int
    are_mapped: bool
    some_died: bool


@jit
def live_rows(set_rows: I32, died: I64, edit: int) -> LiveRows:
    """Return the fields of a `Liveness` as `is_live` takes them."""
    pointers = pointer(set_rows, 0), pointer(died, 0)
    return LiveRows(pointers[0], pointers[1], edit, len(set_rows) > 0, len(died) > 0)


@jit
def is_live(live: LiveRows, row: int) -> bool:
    """Whether a row of the structure is live."""
    if not live.some_died:
        return True
    set_row = live.set_rows[row] if live.are_mapped else row
    return bool(live.died[set_row] > live.edit)
