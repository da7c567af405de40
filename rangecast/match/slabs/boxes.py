"""Boxes read back from `slabs`, so that a set needs no copy of its own."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, SLOT, BoxesByOwner, Layout


@jit
def read_boxes(table: I64, places: I64, lo: F64, hi: F64) -> None:
    """Write the bounds of the boxes at these places of a `Layout`."""
    layout = opened(table, Layout)
    runs, blocks = layout.runs, layout.blocks
    for k in range(len(places)):
        block = np.searchsorted(blocks, places[k], side="right") - 1
        run = np.searchsorted(runs[:, FIRST_BLOCK], block, side="right") - 1
        first, size = runs[run, FIRST_BLOCK], blocks[block + 1] - blocks[block]
        slots = layout.attributes[runs[run, SLOT] : runs[run + 1, SLOT]]
        at = runs[run, CODE] + 2 * len(slots) * (blocks[block] - blocks[first])
        at += places[k] - blocks[block]
        lo[k] = -np.inf
        hi[k] = np.inf
        for slot in range(len(slots)):
            lo[k, slots[slot]] = layout.bounds[at]
            hi[k, slots[slot]] = layout.bounds[at + size]
            at += 2 * size


def places_of(layout: Layout, known: BoxesByOwner | None, rows: I64) -> I64:
    """Return the places of the boxes of subscriptions that have one each."""
    owner = layout.owner[: layout.blocks[-1]]
    if known is not None:
        return known.boxes[known.first[rows]].astype(np.int64)
    if len(rows) == 1:
        return np.flatnonzero(owner == rows[0])
    places = np.empty(len(owner), np.int64)
    places[owner] = np.arange(len(owner))
    wanted: I64 = places[rows]
    return wanted
