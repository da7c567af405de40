"""One cursor for all trees: the boxes of an attribute that contain a value, one by one, best first.

An event goes down one path of an attribute's tree. The best box of each list on the path waits in a
heap; `getnext` takes the best of them and walks on in the list that it came from: from page to page
depth first, only into pages whose hull contains the value. So it neither sorts nor scans the boxes
that it was built from; the counters say what it looked at. For one call with p lists on the path,
of pages with b slots: b log n slots and log p places of the heap.

In the endpoint-sorted interval tree a list isn't in the order of scores: all its boxes that hold
the value go into the heap at once.

A value may be a span. A box holds it if lo <= above and below <= hi, with both ends the value of a
point, `above` the end of a span that boxes must overlap, and its beginning if they must contain it.
The same rule says where to go: left of a split that is after `below`, right of one up to `above`.
So there is one path for a point, at most one to contain a span, and all of the tree between the
ends to overlap it: a box may then come more than once, one time after the other, if it is in
several lists. Boxes that overlap a span need not meet each other. So in the arrangement of SOPT-R,
which keeps the order of those alone that do, they all go into the heap at once.

    steps    (d * lists, 2 + 2 * levels)   of each list: pages on the stack, whether the leaf held
             something, then page and next slot for each of them
    heap     (d, 2 * room)  box, and the list that it came from
    sizes    (d,)           places of the heap in use
    taken    (d,)           1 if the first of the heap was handed out already
    nodes    (depth,)       nodes of the tree that are still to be visited
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import Bundle, edited, opened, pointer, pointers
from rangecast.kernels.jit import jit, jit_single
from rangecast.rank.papers.source import Source
from rangecast.rank.result import CALLS, EXAMINED, HOLES, LEVEL, Work, new_counters

DEPTH, FOUND, STACK = 0, 1, 2


@edited
class Cursor(NamedTuple):
    """Where the walks of one event stand, one for each attribute; made for a source, reusable."""

    steps: Annotated[I64, 2]
    heap: Annotated[I64, 2]
    sizes: I64
    taken: I64
    nodes: I64


class Walks(NamedTuple):
    """A source, a cursor and counters as pointers."""

    source: Source
    by_construction: bool
    """Whether all boxes of a list contain every value that reaches the list."""
    by_ends: bool
    has_hulls: bool
    """Whether the hull of a node's list says that it can't contain a value."""
    cursor: Cursor
    width: int
    """Places of a list in `steps`."""
    lists: int
    """Lists of an attribute in `steps`."""
    room: int
    """Places of an attribute in `heap`."""
    counters: Any


@jit
def walks_of(source_table: I64, cursor_table: I64, counters: I64) -> Walks:
    """Return what the tables of bundles lead to."""
    source, cursor = opened(source_table, Source), opened(cursor_table, Cursor)
    return Walks(
        pointers(source),
        len(source.lo) == 0,
        len(source.ends) > 0,
        len(source.hull_lo) > 0,
        pointers(cursor),
        cursor.steps.shape[1],
        len(cursor.steps) // len(cursor.sizes),
        cursor.heap.shape[1] // 2,
        pointer(counters, 0),
    )


@jit
def worth(source: Any, axis: int, box: int) -> float:
    """Return the score of a box on an attribute; of a source or what has its fields."""
    return float(source.worth[source.by_row * source.owner[box] + source.by_axis * axis])


@jit
def before(source: Any, axis: int, a: int, b: int) -> bool:
    """Return whether box a comes before box b: by score, then arrival, then number."""
    mine, other = worth(source, axis, a), worth(source, axis, b)
    if mine != other:
        return mine > other
    if source.owner[a] != source.owner[b]:
        return bool(source.owner[a] < source.owner[b])
    return a < b


@jit
def _walk(walks: Walks, above: float, below: float, slot: int) -> int:
    """Return the next box of a list that contains the value, -1 if there is none."""
    steps, stack = walks.cursor.steps, slot * walks.width
    lo, hi = walks.source.lo, walks.source.hi
    depth = steps[stack + DEPTH]
    while depth > 0:
        top = stack + STACK + 2 * (depth - 1)
        page = steps[top]
        begin, end = walks.source.first[page], walks.source.first[page] + walks.source.filled[page]
        at = begin + steps[top + 1]
        leaf = walks.source.level[page] == 0
        start = at
        if not walks.by_construction:
            while at < end and not ((lo[at] <= above) & (below <= hi[at])):
                at += 1
        if leaf:
            walks.counters[EXAMINED] += at - start + (at < end)
        if at == end:
            walks.counters[HOLES] += leaf and not steps[stack + FOUND]
            depth -= 1
            continue
        steps[top + 1] = at + 1 - begin
        if leaf:
            steps[stack + FOUND] = 1
            steps[stack + DEPTH] = depth
            return int(walks.source.item[at])
        page = walks.source.item[at]
        steps[top + 2], steps[top + 3] = page, 0
        steps[stack + FOUND] = 0
        depth += 1
        walks.counters[LEVEL + walks.source.level[page]] += 1
    steps[stack + DEPTH] = 0
    return -1


@jit
def _sink(walks: Walks, axis: int, slot: int) -> None:
    """Sift an item down the heap."""
    heap, base, size = walks.cursor.heap, 2 * axis * walks.room, walks.cursor.sizes[axis]
    box, origin = heap[base + 2 * slot], heap[base + 2 * slot + 1]
    while 2 * slot + 1 < size:
        child = 2 * slot + 1
        if child + 1 < size and before(
            walks.source, axis, heap[base + 2 * child + 2], heap[base + 2 * child]
        ):
            child += 1
        if not before(walks.source, axis, heap[base + 2 * child], box):
            break
        heap[base + 2 * slot] = heap[base + 2 * child]
        heap[base + 2 * slot + 1] = heap[base + 2 * child + 1]
        slot = child
    heap[base + 2 * slot], heap[base + 2 * slot + 1] = box, origin


@jit
def _wait(walks: Walks, axis: int, box: int, origin: int) -> None:
    """Put a box at the end of the heap, wherever it belongs."""
    at = 2 * (axis * walks.room + walks.cursor.sizes[axis])
    walks.cursor.heap[at], walks.cursor.heap[at + 1] = box, origin
    walks.cursor.sizes[axis] += 1


@jit
def _gather(walks: Walks, axis: int, page: int, above: float, below: float, by_lower: bool) -> None:
    """Put boxes of an endpoint-sorted list that contain the value into the heap, in any order."""
    begin, end = walks.source.first[page], walks.source.first[page] + walks.source.filled[page]
    walks.counters[LEVEL] += 1
    at = begin
    while at < end and (
        walks.source.lo[at] <= above if by_lower else below <= walks.source.ends_hi[at]
    ):
        _wait(walks, axis, walks.source.item[at] if by_lower else walks.source.ends[at], -1)
        at += 1
    walks.counters[EXAMINED] += at - begin + (at < end)
    walks.counters[HOLES] += at == begin


@jit
def begin(walks: Walks, axis: int, above: float, below: float) -> None:
    """Start a walk: the boxes of an attribute that contain a value."""
    walks.cursor.sizes[axis] = walks.cursor.taken[axis] = 0
    node = walks.source.top[axis]
    slot = axis * walks.lists
    drained = walks.source.is_arranged and below < above
    waiting = 0
    while node >= 0:
        page = walks.source.root[node]
        is_left, is_right = below < walks.source.split[node], walks.source.split[node] <= above
        may_hold = page >= 0
        if may_hold and walks.has_hulls:
            lowest, highest = walks.source.hull_lo[node], walks.source.hull_hi[node]
            may_hold = lowest <= above and below <= highest
        if may_hold and walks.by_ends:
            _gather(walks, axis, page, above, below, is_left)
        elif may_hold:
            stack = slot * walks.width
            walks.cursor.steps[stack + DEPTH], walks.cursor.steps[stack + FOUND] = 1, 0
            walks.cursor.steps[stack + STACK], walks.cursor.steps[stack + STACK + 1] = page, 0
            walks.counters[LEVEL + walks.source.level[page]] += 1
            box = _walk(walks, above, below, slot)
            while drained and box >= 0:
                _wait(walks, axis, box, -1)
                box = _walk(walks, above, below, slot)
            if box >= 0:
                _wait(walks, axis, box, slot)
                slot += 1
        left, right = walks.source.left[node], walks.source.right[node]
        node = left if is_left else -1
        if is_right and node < 0:
            node = right
        elif is_right and right >= 0:
            walks.cursor.nodes[waiting] = right
            waiting += 1
        if node < 0 and waiting:
            waiting -= 1
            node = walks.cursor.nodes[waiting]
    for item in range(walks.cursor.sizes[axis] // 2 - 1, -1, -1):
        _sink(walks, axis, item)


@jit
def getnext(walks: Walks, axis: int, above: float, below: float) -> int:
    """Return the next best box of an attribute that contains the value, -1 when there is none."""
    walks.counters[CALLS] += 1
    base = 2 * axis * walks.room
    if walks.cursor.taken[
        axis
    ]:  # only now: the last call would have looked further than it was asked
        origin = walks.cursor.heap[base + 1]
        follower = _walk(walks, above, below, origin) if origin >= 0 else -1
        if follower >= 0:
            walks.cursor.heap[base] = follower
        else:
            walks.cursor.sizes[axis] -= 1
            last = base + 2 * walks.cursor.sizes[axis]
            walks.cursor.heap[base], walks.cursor.heap[base + 1] = (
                walks.cursor.heap[last],
                walks.cursor.heap[last + 1],
            )
        if walks.cursor.sizes[axis] > 1:
            _sink(walks, axis, 0)
    walks.cursor.taken[axis] = walks.cursor.sizes[axis] > 0
    return int(walks.cursor.heap[base]) if walks.cursor.sizes[axis] else -1


@jit
def fetch_rounds(source: I64, points: F64, rounds: I64, cursor: I64, counters: I64) -> None:
    """Call getnext on all attributes in turn, `rounds[e]` times for event e."""
    walks = walks_of(source, cursor, counters)
    for event in range(len(points)):
        point = points[event]
        for axis in range(len(point)):
            begin(walks, axis, point[axis], point[axis])
        for _ in range(rounds[event]):
            for axis in range(len(point)):
                getnext(walks, axis, point[axis], point[axis])


@jit
def _depth(table: I64, stack: I64, depths: I64) -> int:
    """Return how many lists a path has at most; both arrays are scratch, a place a node."""
    source = opened(table, Source)
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
def _begin_one(source: I64, cursor: I64, counters: I64, axis: int, value: float) -> None:
    begin(walks_of(source, cursor, counters), axis, value, value)


@jit_single
def _next_one(source: I64, cursor: I64, counters: I64, axis: int, value: float) -> int:
    return getnext(walks_of(source, cursor, counters), axis, value, value)


@jit
def _max_lists(table: I64, above: F64, below: F64, stack: I64) -> int:
    """Return how many lists an event looks at on one attribute, at most; `stack` is scratch."""
    source = opened(table, Source)
    most = 0
    for event in range(len(above)):
        for axis in range(len(source.top)):
            lists = waiting = 0
            node = source.top[axis]
            while node >= 0:
                lists += source.root[node] >= 0
                split, right = source.split[node], source.right[node]
                node = source.left[node] if below[event, axis] < split else -1
                if split <= above[event, axis] and right >= 0:
                    stack[waiting] = right
                    waiting += 1
                if node < 0 and waiting:
                    waiting -= 1
                    node = stack[waiting]
            most = max(most, lists)
    return most


class Shape(NamedTuple):
    """Sizes of the cursors of a source."""

    depth: int
    levels: int
    room: int
    lists: int
    """Lists of an attribute that an event looks at, at most."""

    @classmethod
    def of(cls, source: Bundle[Source]) -> Shape:
        """Measure a source."""
        arrays = source.arrays
        nodes = len(arrays.split) + 1
        depth = _depth(source.table, np.empty(nodes, np.int64), np.empty(nodes, np.int64))
        levels = int(arrays.level.max(initial=0)) + 1
        return cls(max(depth, 1), levels, max(depth, len(arrays.ends), 1), max(depth, 1))

    def overlapping(self, source: Bundle[Source], above: F64, below: F64) -> Shape:
        """Return the sizes for spans that boxes overlap, which descend more than one path."""
        lists = _max_lists(source.table, above, below, np.empty(self.depth + 1, np.int64))
        lists = max(lists, self.lists)
        drained = len(source.arrays.item) if source.arrays.is_arranged else 0
        return self._replace(lists=lists, room=max(self.room, lists, drained))

    def cursor(self, dimensions: int) -> Bundle[Cursor]:
        """Return a fresh cursor."""
        cursor = Cursor(
            np.zeros((dimensions * self.lists, STACK + 2 * self.levels), np.int64),
            np.empty((dimensions, 2 * self.room), np.int64),
            np.zeros(dimensions, np.int64),
            np.zeros(dimensions, np.int64),
            np.zeros(self.depth + 1, np.int64),
        )
        return Bundle(cursor)


class Walk:
    """Iterator over the boxes of one attribute that contain a value, best first."""

    def __init__(self, source: Bundle[Source], shape: Shape, axis: int, value: float):
        self._counters = new_counters()
        self._source_and_cursor = source, shape.cursor(len(source.arrays.top))
        self._axis_and_value = axis, float(value)
        _begin_one(*self._tables, *self._axis_and_value)

    @property
    def _tables(self) -> tuple[I64, I64, I64]:
        source, cursor = self._source_and_cursor
        return source.table, cursor.table, self._counters

    def getnext(self) -> int | None:
        """Return the next box, `None` when there is none."""
        box = _next_one(*self._tables, *self._axis_and_value)
        return None if box < 0 else box

    def __iter__(self) -> Iterator[int]:
        while (box := self.getnext()) is not None:
            yield box

    @property
    def work(self) -> Work:
        """Work done so far."""
        return Work.of(self._counters)
