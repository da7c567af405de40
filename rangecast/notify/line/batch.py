"""Paint-Batch: many changes at once; a subscriber gets only their net effect.

Changes of one object count as one, from its first value to its last. With the values before
and after, an interest gets messages of

    an object that got worse     if it is in its list after; or was in it before, and with its old
                                 value still would be: else the old value would stay there
    an object that didn't change if it is in the list after and was not before
    an object that got better    if it is in the list after

the worse ones first, from the worst new key to the best; the others then, in any order. (The set
is the smallest one for this order. The printed algorithm leaves stale entries behind.)

As regions these are staircases with the object as apex: after u (before n old value after), after
without before, and after. Which objects that didn't change are concerned is found by sweeping:
first the better ones are applied, then the worse ones one by one, and what a sweep passes gains.

Two lines of objects are kept, one that lags a batch behind, so that both states can be asked.

Cost: one sweep for each object that got worse, at most six first_k for each object sent, and
nothing that grows with the number of objects (Theorem 6) but the logarithms of the line.
Section IV-A of paper 001, corrected by the reading notes.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I8, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.line.objects_line import Line, change, next_best
from rangecast.notify.line.paint import EVENT, post_tiles
from rangecast.notify.line.sparse import LARGEST, LEAST, merge_tiles, reach, start_frontier
from rangecast.notify.line.staircase import (
    ROOM,
    Scratch,
    combine,
    fill_lists,
    gather,
    pass_by,
    steps_of,
    tile_difference,
)
from rangecast.notify.line.tree import Frontier, Rectangle, Tree, advance
from rangecast.notify.messages import FIRST_K, MIN_Y, Outbox

WORSE, SAME, BETTER = 0, 1, 2


@jit
def sweep_all(
    objects_table: I64,
    tree_table: I64,
    slots: I32,
    ys: F64,
    k: int,
    uses_interests: bool,
    scratch_table: I64,
    frontier_table: I64,
    sweep: F64,
    batch: int,
    marks: I64,
    exposed: I32,
    work: I64,
) -> int:
    """Worsen objects one by one; write the objects that overtake them, once each; return their
    number.

    `marks` is by slot: an object marked with the number of this batch is skipped, and written
    objects are marked.
    """
    line, tree = opened(objects_table, Line), opened(tree_table, Tree)
    scratch, frontier = opened(scratch_table, Scratch), opened(frontier_table, Frontier)
    n = 0
    for i in range(len(slots)):
        p = line.place[slots[i]]
        x, level_y, arrival = line.x[p], line.y[p], line.arrival[p]
        limit = arrival if ys[i] < np.inf else -1
        fill_lists(line, x, level_y, arrival, k, scratch)
        work[FIRST_K] += 2
        sweep[LEAST], sweep[LARGEST] = -np.inf, np.inf
        if uses_interests:
            start_frontier(tree, frontier, scratch, k, x)
        while True:
            lo, hi = np.nextafter(scratch.west[k], np.inf), np.nextafter(scratch.east[k], -np.inf)
            has_west = scratch.west[k] < x
            if uses_interests and has_west:
                has_west = reach(tree, frontier, scratch, k, x, sweep, work)
                lo, hi = sweep[LEAST], sweep[LARGEST]
            work[MIN_Y] += 1
            p = next_best(line, lo, hi, level_y, arrival, ys[i], limit) if has_west else -1
            if p < 0:
                break
            if marks[line.slot[p]] != batch:
                marks[line.slot[p]] = batch
                exposed[n] = line.slot[p]
                n += 1
            pass_by(scratch, k, x, line.x[p])
            level_y, arrival = line.y[p], line.arrival[p]
        change(line, slots[i], ys[i])
    return n


@jit
def _region(
    line: Line, x: float, y: float, arrival: int, k: int, scratch: Scratch, steps: F64, work: I64
) -> int:
    """Write the steps of the interests whose lists would contain an object with this key."""
    if y == np.inf:
        return 0
    fill_lists(line, x, y, arrival, k, scratch)
    work[FIRST_K] += 2
    return steps_of(scratch, k, steps)


@jit
def _tiles(
    after: Line,
    before: Line,
    slot: int,
    kind: int,
    k: int,
    scratch: Scratch,
    work: I64,
) -> int:
    """Tile the interests that an object is sent to; return the number of tiles."""
    p = after.place[slot]
    x, y, arrival = after.x[p], after.y[p], after.arrival[p]
    old = before.y[before.place[slot]]
    if kind == WORSE:
        m = _region(before, x, old, arrival, k, scratch, scratch.steps, work)
        n = _region(after, x, old, arrival, k, scratch, scratch.other, work)
        m = combine(scratch.steps, m, scratch.other, n, True, scratch.third)
        n = _region(after, x, y, arrival, k, scratch, scratch.other, work)
        m = combine(scratch.third, m, scratch.other, n, False, scratch.steps)
        return tile_difference(x, scratch.steps, m, scratch.other, 0, scratch.tiles)
    m = _region(after, x, y, arrival, k, scratch, scratch.steps, work)
    n = _region(before, x, y, arrival, k, scratch, scratch.other, work) if kind == SAME else 0
    return tile_difference(x, scratch.steps, m, scratch.other, n, scratch.tiles)


@jit
def paint_batch(
    after_table: I64,
    before_table: I64,
    tree_table: I64,
    slots: I32,
    kinds: I8,
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
    """Write the messages of objects in this order; return their number. `cursor[EVENT]`:
    progress.
    """
    after, before, tree = (
        opened(after_table, Line),
        opened(before_table, Line),
        opened(tree_table, Tree),
    )
    scratch, frontier = opened(scratch_table, Scratch), opened(frontier_table, Frontier)
    out = opened(out_table, Outbox)
    sweep[LEAST], sweep[LARGEST] = -np.inf, np.inf
    n = 0
    while cursor[EVENT] < len(slots) and n + 2 * k + ROOM <= len(out.slot):
        slot = slots[cursor[EVENT]]
        cursor[EVENT] += 1
        count = _tiles(after, before, slot, kinds[cursor[EVENT] - 1], k, scratch, work)
        if not count:
            continue
        count = gather(scratch.tiles, count, groups)
        p = after.place[slot]
        arrival, x, y = after.arrival[p], after.x[p], after.y[p]
        if uses_interests:
            top = scratch.tiles[0, 3]
            for t in range(1, count):
                top = max(top, scratch.tiles[t, 3])
            l0, l1 = np.nextafter(scratch.tiles[0, 0], np.inf), scratch.tiles[count - 1, 1]
            advance(tree, Rectangle(l0, l1, x, np.nextafter(top, -np.inf)), frontier)
            count = merge_tiles(tree, frontier, scratch.tiles, count, sweep, work)
        n = post_tiles(scratch, count, out, n, 0, cursor, slot, arrival, x, y)
    return n
