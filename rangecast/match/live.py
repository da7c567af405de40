"""Matches of several parts of a live set as one answer: rows renumbered, dead ones left out.

The kernel is short and keeps the GIL: giving it up beside a busy thread costs far more.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.jit import jit_single
from rangecast.match.result import Counts, Matches, Rows
from rangecast.model.rows import Bytes, Columns, Longs


@jit_single
def _merge(
    offsets: Counts,
    rows: Rows,
    names: Rows,
    gone: Bytes,
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
    it marks are looked up in `died`.
    """
    at = 0
    renumber = len(names) > 0
    for event in range(len(offsets) - 1):
        out_offsets[event] = at
        for place in range(offsets[event], offsets[event + 1]):
            row = names[rows[place]] if renumber else rows[place]
            if (gone[row >> 3] >> (row & 7)) & 1 and died[row] <= edit:
                continue
            out[at] = row
            at += 1
        for place in range(other_offsets[event], other_offsets[event + 1]):
            out[at] = other_rows[place]
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
