"""Paint-Dense and Paint-Sparse: changes one after the other, and the messages of each.

A value that got better: its object goes to the staircase of its new key. A value that got worse:
its object goes to the staircase of its old key; then its key is swept up to the new one, and each
object that it falls behind goes to the interests that lose the one to the other, a chain of tiles
from the southwest to the northeast. Objects enter as a change from y = inf and leave as one to it.

Paint-Dense sends all of these tiles: the fewest messages that fit any interests whatever, from the
objects alone. Paint-Sparse knows the interests and sends fewer: see `sparse.py`. With fewer groups
than k the tiles are joined (approximate: some interests get messages in vain).

A run of changes is one call. It stops when the outbox may be too small for the next object's tiles,
at most k, and goes on from `cursor`: change, whether its sweep has begun, ordinal of the next
message, arrival of the key swept to; and `sweep`, its y.

Cost: two first_k, one next_best for each object passed and one more; O(k) for each object sent.
Section III-A of paper 001, Algorithms 3 to 5 as corrected by the reading notes.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit, jit_single
from rangecast.notify.line.objects_line import Line, change, next_best
from rangecast.notify.line.sparse import LARGEST, LEAST, SWEPT_Y, merge_tiles, reach, start_frontier
from rangecast.notify.line.staircase import (
    Scratch,
    fill_lists,
    gather,
    pass_by,
    steps_of,
    tile_difference,
    tile_gain,
)
from rangecast.notify.line.tree import Frontier, Tree
from rangecast.notify.messages import FIRST_K, MIN_Y, Outbox, post

EVENT, SWEEPING, POSITION, ARRIVAL = 0, 1, 2, 3
"""Indexes into `cursor`, which stores the progress of a run."""


@jit
def post_tiles(
    scratch: Scratch,
    tiles: int,
    out: Outbox,
    n: int,
    event: int,
    cursor: I64,
    slot: int,
    arrival: int,
    x: float,
    y: float,
) -> int:
    """Send an object to all tiles; return the new number of messages."""
    for t in range(tiles):
        tile = scratch.tiles[t]
        post(
            out,
            n,
            event,
            cursor[POSITION],
            slot,
            arrival,
            x,
            y,
            tile[0],
            tile[1],
            tile[2],
            tile[3],
        )
        cursor[POSITION] += 1
        n += 1
    return n


@jit_single
def paint_changes(
    objects_table: I64,
    tree_table: I64,
    slots: I32,
    ys: F64,
    k: int,
    groups: int,
    uses_interests: bool,
    scratch_table: I64,
    frontier_table: I64,
    out_table: I64,
    cursor: I64,
    sweep: F64,
    work: I64,
) -> int:
    """Apply changes and write their messages; return their number. `cursor[EVENT]`: progress."""
    line, tree = opened(objects_table, Line), opened(tree_table, Tree)
    scratch, frontier = opened(scratch_table, Scratch), opened(frontier_table, Frontier)
    out = opened(out_table, Outbox)
    room = len(out.slot) - k
    n = 0
    while cursor[EVENT] < len(slots) and n <= room:
        event = cursor[EVENT]
        slot, y = slots[event], ys[event]
        p = line.place[slot]
        x, old, arrival = line.x[p], line.y[p], line.arrival[p]
        if not cursor[SWEEPING] and y != old:
            fill_lists(line, x, min(y, old), arrival, k, scratch)
            work[FIRST_K] += 2
            steps = steps_of(scratch, k, scratch.steps)
            tiles = tile_difference(x, scratch.steps, steps, scratch.other, 0, scratch.tiles)
            tiles = gather(scratch.tiles, tiles, groups)
            if uses_interests:
                start_frontier(tree, frontier, scratch, k, x)
                sweep[LEAST], sweep[LARGEST] = -np.inf, np.inf
                tiles = merge_tiles(tree, frontier, scratch.tiles, tiles, sweep, work)
            n = post_tiles(scratch, tiles, out, n, event, cursor, slot, arrival, x, y)
            if y > old:
                cursor[SWEEPING], sweep[SWEPT_Y], cursor[ARRIVAL] = 1, old, arrival
        limit = arrival if y < np.inf else -1
        while cursor[SWEEPING] and n <= room:
            work[MIN_Y] += 1
            has_west = scratch.west[k] < x
            lo = np.nextafter(scratch.west[k], np.inf)
            hi = np.nextafter(scratch.east[k], -np.inf)
            if uses_interests:
                has_west = reach(tree, frontier, scratch, k, x, sweep, work)
                lo, hi = sweep[LEAST], sweep[LARGEST]
            p = -1
            if has_west:
                p = next_best(line, lo, hi, sweep[SWEPT_Y], cursor[ARRIVAL], y, limit)
            if p < 0:
                cursor[SWEEPING] = 0
                break
            tiles = tile_gain(scratch, k, x, line.x[p])
            tiles = gather(scratch.tiles, tiles, groups)
            if uses_interests:
                tiles = merge_tiles(tree, frontier, scratch.tiles, tiles, sweep, work)
            came, position, value = line.arrival[p], line.x[p], line.y[p]
            n = post_tiles(
                scratch, tiles, out, n, event, cursor, line.slot[p], came, position, value
            )
            pass_by(scratch, k, x, position)
            sweep[SWEPT_Y], cursor[ARRIVAL] = value, came
        if not cursor[SWEEPING]:
            change(line, slot, y)
            cursor[EVENT] += 1
            cursor[POSITION] = 0
    return n
