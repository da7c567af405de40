"""Matches of several parts of a live set as one answer: rows renumbered, dead ones left out.

The kernel is short and keeps the GIL: giving it up beside a busy thread costs far more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.bits import pointer
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.result import Counts, Matches, Rows
from rangecast.model.rows import Columns, Longs, Words32

_CHUNK = 32
"""Rows that are looked at together."""


@jit
def _is_gone(gone: Any, died: Longs, edit: int, row: int) -> bool:
    return bool((gone[row >> 5] >> np.uint32(row & 31)) & np.uint32(1)) and died[row] <= edit


@jit_single
def _merge(
    offsets: Counts,
    rows: Rows,
    names: Rows,
    gone: Words32,
    died: Longs,
    edit: int,
    other_offsets: Counts,
    other_rows: Rows,
    out_offsets: Counts,
    out: Rows,
) -> None:
    """Write the live rows of each event, then the other rows of that event.

    `names` are the set's own numbers, none if the rows are that already. `gone` has a bit for
    every row that was ever removed: it is small enough to stay in the cache, and the few rows that
    it marks are looked up in `died`. Most chunks of rows have none: they are copied whole.
    """
    at = 0
    renumber = len(names) > 0
    marks, given, written = pointer(gone, 0), pointer(rows, 0), pointer(out, 0)
    for event in range(len(offsets) - 1):
        out_offsets[event] = at
        place, end = offsets[event], offsets[event + 1]
        while place < end:
            until = min(place + _CHUNK, end)
            some = np.uint32(renumber or until - place < _CHUNK)
            if not some:
                for i in range(place, place + _CHUNK):
                    some |= marks[given[i] >> 5] >> np.uint32(given[i] & 31)
            if some & np.uint32(1):
                for i in range(place, until):
                    row = names[given[i]] if renumber else given[i]
                    if not _is_gone(marks, died, edit, row):
                        written[at] = row
                        at += 1
            else:
                for i in range(_CHUNK):
                    written[at + i] = given[place + i]
                at += _CHUNK
            place = until
        for place in range(other_offsets[event], other_offsets[event + 1]):
            written[at] = other_rows[place]
            at += 1
    out_offsets[len(offsets) - 1] = at


def merged(
    matches: Matches, names: Rows, columns: Columns, edit: int, other: Matches | None
) -> Matches:
    """Return a part's live matches at `edit`, in the set's own rows, and those of other parts."""
    if other is None:
        other = Matches(np.zeros_like(matches.offsets), np.empty(0, np.int32))
    offsets = np.empty_like(matches.offsets)
    out = np.empty(len(matches.rows) + len(other.rows), np.int32)
    _merge(
        matches.offsets,
        matches.rows,
        names,
        columns.gone,
        columns.died,
        edit,
        other.offsets,
        other.rows,
        offsets,
        out,
    )
    return Matches(offsets, out[: offsets[-1]], matches.work.plus(other.work))
