"""Boxes cut into VCRs, and an entry for each in the lists: counted, put, appended or removed."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.grid import MAX
from rangecast.kernels.jit import jit
from rangecast.match.papers.vcr.frame import Frame, locate
from rangecast.match.papers.vcr.held import Held
from rangecast.match.papers.vcr.idlists import NewLists, append, claim, put, remove
from rangecast.match.papers.vcr.rectangles import cut, lap_of

COUNT, PUT, APPEND, REMOVE = range(4)
"""Operations on the entries of boxes."""
DONE, FULL_SLOTS, FULL_POOL = range(3)
"""Outcomes."""


@jit
def _range(frame: Frame, held: Held, box: int, y: int) -> tuple[int, int, bool, bool, bool]:
    """Return a box's (first point, last point, starts there, ends there, whole) on an axis."""
    axis = frame.axes[y]
    if axis < 0:
        return 0, 0, True, True, True
    edges = frame.edges_y if y else frame.edges_x
    lo, hi = held.lo[box, axis], held.hi[box, axis]
    first, late = locate(edges, lo)
    last, past = locate(edges, hi)
    ends = not past or hi >= MAX
    return first, last + past, not late or lo <= -MAX, ends, lo == -np.inf and hi == np.inf


@jit
def file_boxes(
    frame_table: I64,
    lists_table: I64,
    held_table: I64,
    boxes: I64,
    cuts: I64,
    slots: I64,
    until: I64,
    work: I64,
    mode: int,
    fullest: float,
) -> int:
    """Cut boxes, and do what the mode says to an entry in the list of each of their VCRs.

    Begins at piece place[1] of boxes[place[0]] and ends before `until`; if slots or the pool are
    full, stops there and says which. `cuts` is scratch; `work` counts lists and ids moved.
    """
    frame, held = opened(frame_table, Frame), opened(held_table, Held)
    lists = opened(lists_table, NewLists)
    kx, ky, overlapped, limit = frame.rules
    while slots[0] < until[0] or (slots[0] == until[0] and slots[1] < until[1]):
        box = boxes[slots[0]]
        x0, x1, x_starts, x_ends, x_whole = _range(frame, held, box, 0)
        y0, y1, y_starts, y_ends, y_whole = _range(frame, held, box, 1)
        x_sure, y_sure = x_whole or x1 > x0, y_whole or y1 > y0
        nx = 1 if x_whole else cut(x0, max(x1 - x0, 1), kx, overlapped, cuts[0], cuts[1])
        ny = 1 if y_whole else cut(y0, max(y1 - y0, 1), ky, overlapped, cuts[2], cuts[3])
        fuller = (x1 - x0) * (len(frame.edges_y) + 3) >= (y1 - y0) * (len(frame.edges_x) + 3)
        if nx * ny > limit and (y_whole or (fuller and not x_whole)):
            x_whole, x_sure, nx = True, False, 1
        if nx * ny > limit and not y_whole:
            y_whole, y_sure, ny = True, False, 1
        if nx * ny > limit:
            x_whole, x_sure, nx = True, False, 1
        section = int(x_whole) * 2 + int(y_whole)
        base, ux, uy, uj = frame.sections[section]
        pieces = nx * ny if slots[0] < until[0] else until[1]
        while slots[1] < pieces:
            p, q = slots[1] % nx, slots[1] // nx
            vcr = base
            sure = held.alone[box] and x_sure and y_sure
            lap_x = lap_y = -1
            if not x_whole:
                x, i = cuts[0, p], cuts[1, p]
                vcr += ux * (x + (1 << kx)) + i
                lap_x = lap_of(x0, x, i)
                sure = sure and (x_starts or x > x0) and (x_ends or x + (1 << i) < x1)
            if not y_whole:
                y, j = cuts[2, q], cuts[3, q]
                vcr += uy * (y + (1 << ky)) + uj * j
                lap_y = lap_of(y0, y, j)
                sure = sure and (y_starts or y > y0) and (y_ends or y + (1 << j) < y1)
            entry = box if sure else ~box
            slot = claim(lists, vcr, fullest)
            if slot < 0:
                return FULL_SLOTS
            if mode == COUNT:
                lists.length[slot] += 1
            elif mode == PUT:
                put(lists, slot, entry, lap_x, lap_y)
            elif mode == REMOVE:
                work[1] += remove(lists, slot, entry)
            else:
                moved = append(lists, slot, entry, lap_x, lap_y)
                if moved < 0:
                    return FULL_POOL
                work[1] += moved
            if mode == REMOVE:
                lists.totals[section] -= 1
            elif mode != COUNT:
                lists.totals[section] += 1
            work[0] += 1
            slots[1] += 1
        slots[0] += 1
        slots[1] = 0
    return DONE
