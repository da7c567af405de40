"""One cursor for all trees: the boxes of an attribute that hold a value, best first, one at a time.

An event goes down one path of an attribute's tree. The best box of each list on the path waits in a
heap; `getnext` takes the best of them and walks on in the list that it came from: from page to page
depth first, only into pages whose hull holds the value. So it neither sorts nor scans what it was
built from; the counters say what it did look at. For one call with p lists on the path, of pages
with b slots: b log n slots and log p places of the heap.

In the endpoint-sorted interval tree a list isn't in the order of scores: all its boxes that hold
the value go into the heap at once.

    steps    (d * depth, 2 + 2 * levels)   of each list: pages on the stack, whether the leaf held
             something, then page and next slot for each of them
    heap     (d, room, 2)   box, and the list that it came from
    sizes    (d,)           places of the heap in use
    taken    (d,)           1 if the first of the heap was handed out already
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.jit import jit, jit_single
from rangecast.rank.result import (
    CALLS,
    EXAMINED,
    HOLES,
    LEVEL,
    Counters,
    Longs,
    Work,
    new_counters,
)
from rangecast.rank.source import Source

DEPTH, FOUND, STACK = 0, 1, 2


class Cursor(NamedTuple):
    """Where the walks of one event stand, one for each attribute; made for a source, reusable."""

    steps: Longs
    heap: npt.NDArray[np.int64]
    sizes: Longs
    taken: Longs


@jit
def worth(source: Any, axis: int, box: int) -> float:
    """Return the score of a box on an attribute; of a `Source` or a `Pool` that is edited."""
    return float(source.worth[source.by_row * source.owner[box] + source.by_axis * axis])


@jit
def before(source: Any, axis: int, a: int, b: int) -> bool:
    """Whether box a comes before box b: by score, then arrival, then number."""
    mine, other = worth(source, axis, a), worth(source, axis, b)
    if mine != other:
        return mine > other
    if source.owner[a] != source.owner[b]:
        return bool(source.owner[a] < source.owner[b])
    return a < b


@jit
def _walk(source: Source, value: float, cursor: Cursor, place: int, counters: Counters) -> int:
    """Return the next box of a list that holds the value, -1 if there is none."""
    stack = cursor.steps[place]
    depth = stack[DEPTH]
    by_construction = len(source.lo) == 0
    while depth > 0:
        top = STACK + 2 * (depth - 1)
        page = stack[top]
        begin, end = source.first[page], source.first[page] + source.filled[page]
        at = begin + stack[top + 1]
        leaf = source.level[page] == 0
        start = at
        while at < end and not (
            by_construction or (source.lo[at] <= value and value <= source.hi[at])
        ):
            at += 1
        if leaf:
            counters[EXAMINED] += at - start + (at < end)
        if at == end:
            counters[HOLES] += leaf and not stack[FOUND]
            depth -= 1
            continue
        stack[top + 1] = at + 1 - begin
        if leaf:
            stack[FOUND] = 1
            stack[DEPTH] = depth
            return int(source.item[at])
        page = source.item[at]
        stack[top + 2], stack[top + 3] = page, 0
        stack[FOUND] = 0
        depth += 1
        counters[LEVEL + source.level[page]] += 1
    stack[DEPTH] = 0
    return -1


@jit
def _sink(source: Source, axis: int, cursor: Cursor, place: int) -> None:
    """Move an item of the heap down to where it belongs."""
    heap, size = cursor.heap[axis], cursor.sizes[axis]
    box, origin = heap[place, 0], heap[place, 1]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and before(source, axis, heap[child + 1, 0], heap[child, 0]):
            child += 1
        if not before(source, axis, heap[child, 0], box):
            break
        heap[place, 0], heap[place, 1] = heap[child, 0], heap[child, 1]
        place = child
    heap[place, 0], heap[place, 1] = box, origin


@jit
def _gather(
    source: Source, axis: int, page: int, value: float, below: bool, cursor: Cursor, work: Counters
) -> None:
    """Put all boxes of an endpoint-sorted list that hold the value into the heap, in any order."""
    begin, end = source.first[page], source.first[page] + source.filled[page]
    work[LEVEL] += 1
    size = cursor.sizes[axis]
    at = begin
    while at < end and (source.lo[at] <= value if below else value <= source.ends_hi[at]):
        cursor.heap[axis, size, 0] = source.item[at] if below else source.ends[at]
        cursor.heap[axis, size, 1] = -1
        size += 1
        at += 1
    work[EXAMINED] += at - begin + (at < end)
    work[HOLES] += at == begin
    cursor.sizes[axis] = size


@jit
def begin(source: Source, axis: int, value: float, cursor: Cursor, counters: Counters) -> None:
    """Start a walk: the boxes of an attribute that hold a value."""
    cursor.sizes[axis] = cursor.taken[axis] = 0
    node = source.top[axis]
    by_ends = len(source.ends) > 0
    place = axis * (len(cursor.steps) // len(cursor.sizes))
    while node >= 0:
        page = source.root[node]
        below = value < source.split[node]
        if page >= 0 and by_ends:
            _gather(source, axis, page, value, below, cursor, counters)
        elif page >= 0:
            stack = cursor.steps[place]
            stack[DEPTH], stack[FOUND], stack[STACK], stack[STACK + 1] = 1, 0, page, 0
            counters[LEVEL + source.level[page]] += 1
            box = _walk(source, value, cursor, place, counters)
            if box >= 0:
                size = cursor.sizes[axis]
                cursor.heap[axis, size, 0], cursor.heap[axis, size, 1] = box, place
                cursor.sizes[axis] = size + 1
                place += 1
        node = source.left[node] if below else source.right[node]
    for item in range(cursor.sizes[axis] // 2 - 1, -1, -1):
        _sink(source, axis, cursor, item)


@jit
def getnext(source: Source, axis: int, value: float, cursor: Cursor, counters: Counters) -> int:
    """Return the next best box of an attribute that holds the value, -1 when there is none."""
    counters[CALLS] += 1
    heap = cursor.heap[axis]
    if cursor.taken[axis]:  # only now: the last call would have looked further than it was asked
        size, origin = cursor.sizes[axis], heap[0, 1]
        follower = _walk(source, value, cursor, origin, counters) if origin >= 0 else -1
        if follower >= 0:
            heap[0, 0] = follower
        else:
            heap[0, 0], heap[0, 1] = heap[size - 1, 0], heap[size - 1, 1]
            cursor.sizes[axis] = size - 1
        if cursor.sizes[axis] > 1:
            _sink(source, axis, cursor, 0)
    cursor.taken[axis] = cursor.sizes[axis] > 0
    return int(heap[0, 0]) if cursor.sizes[axis] else -1


@jit
def _depth(source: Source, stack: Longs, depths: Longs) -> int:
    """Return how many lists a path has at most; both arrays are scratch, a place a node."""
    deepest = 0
    for axis in range(len(source.top)):
        waiting = 0
        if source.top[axis] >= 0:
            stack[0], depths[0] = source.top[axis], 1
            waiting = 1
        while waiting:
            waiting -= 1
            node, depth = stack[waiting], depths[waiting]
            deepest = max(deepest, depth)
            for child in (source.left[node], source.right[node]):
                if child >= 0:
                    stack[waiting], depths[waiting] = child, depth + 1
                    waiting += 1
    return deepest


@jit_single
def _begin_one(source: Source, axis: int, value: float, cursor: Cursor, counters: Counters) -> None:
    begin(source, axis, value, cursor, counters)


@jit_single
def _next_one(source: Source, axis: int, value: float, cursor: Cursor, counters: Counters) -> int:
    return getnext(source, axis, value, cursor, counters)


class Shape(NamedTuple):
    """How large the cursors of a source are."""

    depth: int
    levels: int
    room: int

    @classmethod
    def of(cls, source: Source) -> Shape:
        """Measure a source."""
        nodes = len(source.split) + 1
        depth = _depth(source, np.empty(nodes, np.int64), np.empty(nodes, np.int64))
        levels = int(source.level.max(initial=0)) + 1
        return cls(max(depth, 1), levels, max(depth, len(source.ends), 1))

    def cursor(self, dimensions: int) -> Cursor:
        """Return a fresh cursor."""
        return Cursor(
            np.zeros((dimensions * self.depth, STACK + 2 * self.levels), np.int64),
            np.empty((dimensions, self.room, 2), np.int64),
            np.zeros(dimensions, np.int64),
            np.zeros(dimensions, np.int64),
        )


class Walk:
    """An iterator over the boxes of one attribute that hold a value, best first."""

    def __init__(self, source: Source, shape: Shape, axis: int, value: float):
        self._place = source, axis, float(value), shape.cursor(len(source.top))
        self._counters = new_counters()
        _begin_one(*self._place, self._counters)

    def getnext(self) -> int | None:
        """Return the next box, `None` when there is none."""
        box = _next_one(*self._place, self._counters)
        return None if box < 0 else box

    def __iter__(self) -> Iterator[int]:
        while (box := self.getnext()) is not None:
            yield box

    @property
    def work(self) -> Work:
        """What was done so far."""
        return Work.of(self._counters)


__all__ = ["Cursor", "Shape", "Walk", "before", "begin", "getnext", "worth"]
