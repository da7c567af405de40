"""Matches of several parts of a live set as one answer: rows renumbered, dead ones left out.

These kernels are short and keep the GIL: giving it up beside a busy thread costs far more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rangecast.kernels.jit import jit_single
from rangecast.match.result import Counts, Matches, Rows, Work
from rangecast.model.rows import Longs


@jit_single
def _count(
    offsets: Counts, rows: Rows, names: Rows, died: Longs, edit: int, counts: Counts
) -> None:
    """Add to `counts` how many rows of each event live at `edit`; `names` are the set's rows."""
    for event in range(len(offsets) - 1):
        live = 0
        for place in range(offsets[event], offsets[event + 1]):
            live += died[names[rows[place]]] > edit
        counts[event] += live


@jit_single
def _place(
    offsets: Counts, rows: Rows, names: Rows, died: Longs, edit: int, following: Counts, out: Rows
) -> None:
    """Write the live rows of each event from `following[event]` on, and move that forward."""
    for event in range(len(offsets) - 1):
        at = following[event]
        for place in range(offsets[event], offsets[event + 1]):
            row = names[rows[place]]
            if died[row] > edit:
                out[at] = row
                at += 1
        following[event] = at


def joined(found: Sequence[tuple[Matches, Rows]], died: Longs, edit: int, events: int) -> Matches:
    """Return the live rows of all parts; each part comes with the set's row of each of its own."""
    counts = np.zeros(events, np.int64)
    for matches, names in found:
        _count(matches.offsets, matches.rows, names, died, edit, counts)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    out = np.empty(offsets[-1], np.int32)
    following = offsets[:-1].copy()
    work = Work()
    for matches, names in found:
        _place(matches.offsets, matches.rows, names, died, edit, following, out)
        work = work.plus(matches.work)
    return Matches(offsets, out, work)
