"""Which rows live: what a live set tells the kernels, so that dead rows never take a place.

A structure numbers its rows from 0; `names` are the set's own numbers of them (none: the same).
The set's row r lives at an edit if edit < died[r]; without `died` all live.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.jit import jit
from rangecast.model.boxes import frozen


class Life(NamedTuple):
    """Names, the edits at which rows died, and the edit at which is asked."""

    names: I32
    died: I64
    edit: int


ALL = Life(frozen([], np.int32), frozen([], np.int64), 0)
"""All rows live."""


@jit
def lives(life: Life, row: int) -> bool:
    """Whether a row of the structure lives."""
    if len(life.died) == 0:
        return True
    if len(life.names):
        return bool(life.died[life.names[row]] > life.edit)
    return bool(life.died[row] > life.edit)
