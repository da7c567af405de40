"""Approaches without staircases, which section V of paper 001 compares with.

    Unicast    the server finds the interests that may be affected, asks for each of them whether
               it is and which object replaces the changed one, and writes to each of them alone;
               `by_staircase`: it knows from the lists of the changed object which are affected
    CN-Relax   an object goes to all interests that contain its position, which rank on their own
    Online     a batch one change at a time
    Coalesce   a batch one object at a time, from its first value to its last

Unicast uses the same indexes as ours: the region is bounded by the lists of the changed object.
How it ranks with an interest, and which object replaces it, is found by asking for the next best
object of the interest repeatedly, since the server keeps no lists. The last two
are here as `coalesced`; a board does the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.jit import jit
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.objects import Objects
from rangecast.notify.line.objects_line import Line, change, next_best
from rangecast.notify.line.staircase import Scratch, fill_lists
from rangecast.notify.line.tree import LEAF, STACK, Tree
from rangecast.notify.messages import FIRST_K, MIN_Y


class Letters(NamedTuple):
    """Messages to single interests: the recipient, the change, the object and its new value."""

    row: I32
    event: I64
    slot: I32
    arrival: I64
    y: F64


class Sent(NamedTuple):
    """Messages that an approach sent: by the server, and how often one was received."""

    sent: int
    received: int
    looked_at: int = 0
    """Interests that may have been affected, each of which was asked about."""
    min_y: int = 0


@jit
def _ask_each(
    line_table: I64,
    tree_table: I64,
    row: I32,
    slots: I32,
    ys: F64,
    k: int,
    scratch_table: I64,
    letters: Letters,
    by_staircase: bool,
    keep: bool,
    stack: I32,
    work: I64,
) -> tuple[int, int, int]:
    """Write a letter for each change of each list; `keep` them all, or only the latest ones.

    Returns letters, interests looked at, and interests affected.
    """
    line, tree = opened(line_table, Line), opened(tree_table, Tree)
    scratch = opened(scratch_table, Scratch)
    west, east = scratch.west, scratch.east
    n = looked_at = affected = 0
    for event in range(len(slots)):
        slot, y = slots[event], ys[event]
        p = line.place[slot]
        x, old, arrival = line.x[p], line.y[p], line.arrival[p]
        if y == old:
            continue
        fill_lists(line, x, min(y, old), arrival, k, scratch)
        work[FIRST_K] += 2
        limit = arrival if y < np.inf else -1
        stack[0] = 0
        depth = 1
        while depth:
            depth -= 1
            node = stack[depth]
            bounds = tree.bounds[node]
            if bounds[0] > x or bounds[1] <= west[k] or bounds[2] >= east[k] or bounds[3] < x:
                continue
            if tree.child[node] >= 0:
                stack[depth], stack[depth + 1] = tree.child[node] + 1, tree.child[node]
                depth += 2
                continue
            for e in range(LEAF * ~tree.child[node], LEAF * ~tree.child[node] + tree.size[node]):
                left, right = tree.low_l[e], tree.low_r[e]
                if not (west[k] < left <= x and x <= right < east[k]):
                    continue
                looked_at += 1
                rank = 1
                if by_staircase:
                    while rank <= k and west[rank] >= left:
                        rank += 1
                    z = 1
                    while z <= k and rank <= k and east[z] <= right:
                        z += 1
                        rank += 1
                else:
                    level, came = -np.inf, -1
                    while rank <= k:
                        work[MIN_Y] += 1
                        p = next_best(line, left, right, level, came, min(y, old), arrival)
                        if p < 0:
                            break
                        level, came = line.y[p], line.arrival[p]
                        rank += 1
                if rank > k:
                    continue
                affected += 1
                at = n if keep else n % len(letters.row)
                letters.row[at], letters.event[at] = row[e], event
                letters.slot[at], letters.arrival[at], letters.y[at] = slot, arrival, y
                n += 1
                if y < old:
                    continue
                level, came, p = old, arrival, 0
                for _ in range(rank, k + 1):
                    work[MIN_Y] += 1
                    p = next_best(line, left, right, level, came, y, limit)
                    if p < 0:
                        break
                    level, came = line.y[p], line.arrival[p]
                if p >= 0:
                    at = n if keep else n % len(letters.row)
                    letters.row[at], letters.event[at] = row[e], event
                    letters.slot[at], letters.arrival[at] = line.slot[p], came
                    letters.y[at] = level
                    n += 1
        change(line, slot, y)
    return n, looked_at, affected


def _letters(room: int) -> Letters:
    return Letters(
        np.zeros(room, np.int32),
        np.zeros(room, np.int64),
        np.zeros(room, np.int32),
        np.zeros(room, np.int64),
        np.zeros(room),
    )


def unicast(
    objects: Objects,
    interests: Interests,
    slots: I32,
    ys: F64,
    k: int,
    *,
    by_staircase: bool = False,
    room: int = 0,
) -> tuple[Sent, Letters]:
    """Apply changes and write to each affected interest; keep at most `room` letters, 0: none.

    Those for exposed objects are sent but, as in the paper's counts, not counted as received.
    """
    work = np.zeros(4, np.int64)
    letters = _letters(room or 1 << 16)
    _, row, _ = interests.entries()
    scratch = Bundle(Scratch.of(k))
    stack = np.empty(STACK, np.int32)
    n, looked_at, affected = _ask_each(
        objects.table,
        interests.table,
        row,
        slots,
        ys,
        k,
        scratch.table,
        letters,
        by_staircase,
        bool(room),
        stack,
        work,
    )
    end = n if room else 0
    kept = Letters(
        letters.row[:end],
        letters.event[:end],
        letters.slot[:end],
        letters.arrival[:end],
        letters.y[:end],
    )
    return Sent(n, affected, looked_at, int(work[MIN_Y])), kept


def relaxed(objects: Objects, interests: Interests, slots: I32) -> Sent:
    """Send each change to all interests that contain the position of its object."""
    received = 0
    for slot in slots.tolist():
        x = objects.of(slot)[0]
        received += interests.number_within(-np.inf, x, x, np.inf)
    return Sent(len(slots), received)


def coalesced(slots: Any, ys: Any) -> tuple[I32, F64]:
    """Return each object once, in the order of its last change, with its last value."""
    slots, ys = np.asarray(slots, np.int32), np.asarray(ys, np.float64)
    _, last = np.unique(slots[::-1], return_index=True)
    places = np.sort(len(slots) - 1 - last)
    return slots[places], ys[places]
