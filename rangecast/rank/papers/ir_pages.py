"""Edits of an IR-tree in place: the list of a node as a tree of pages that split and shrink.

Pages are those of `Source`, with room to grow: a page has 4, 8, 16, ... slots, b at most, and a
full one moves to a larger place or is cut in two. A b below 4 counts as 4: cut in two, a page of 2
or 3 slots would leave one with a single item, and levels would pile up with every box. Slots and
pages that are given up wait in lists for the next that needs them. Boxes stay in the order of their
scores, and the hulls above them tight: so a page whose hull contains a value has a box that does
(Lemma 3.1), as all boxes of a list hold the split.

Arrays don't grow here: `add_boxes` returns where it ran out of room, and `with_room` makes some.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bundle import Bundle, edited, opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.rank.papers.cursor import before
from rangecast.rank.papers.source import Source
from rangecast.rank.result import LEVELS

# Places in `used`.
NODES, PAGES, SLOTS, FREE_PAGE, FREE_SLOTS = 0, 1, 2, 3, 4
_SIZES = 32
"""Sizes that a place of slots can have, at most."""
_ROOM = LEVELS
"""Pages and nodes that one box can take, at most."""
LEAST = 4
"""Slots of the smallest page."""


@edited
class Pool(NamedTuple):
    """The arrays of `Source` that an edit changes, with room, and their used lengths."""

    top: I32
    split: F64
    left: I32
    right: I32
    root: I32
    first: I64
    filled: I32
    level: U8
    capacity: I32
    """(pages,) slots that a page has room for."""
    item: I32
    lo: F64
    hi: F64
    used: I64
    """Nodes, pages and slots in use; first free page; first free place of slots of each size."""
    owner: I32
    worth: F64
    by_row: int
    by_axis: int
    is_arranged: int


class Edits(NamedTuple):
    """Boxes on attributes that are added or removed."""

    axis: I64
    box: I64
    lo: F64
    hi: F64


def pool_of(source: Source, branching: int) -> Bundle[Pool]:
    """Return the arrays of a source, copied, with room for edits."""
    used = np.full(FREE_SLOTS + _SIZES, -1, np.int64)
    used[NODES], used[PAGES] = len(source.split), len(source.first)
    used[SLOTS] = len(source.item)
    copied = {name: getattr(source, name) for name in Pool._fields if name in Source._fields}
    arrays: dict[str, Any] = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in copied.items()
    }
    pool = Pool(**arrays, capacity=source.filled.copy(), used=used)
    return with_room(Bundle(pool), branching)


def with_room(pool: Bundle[Pool], branching: int) -> Bundle[Pool]:
    """Return a pool with room for at least one more box: this one, or a larger copy."""
    nodes, pages, slots = (int(pool.arrays.used[index]) for index in (NODES, PAGES, SLOTS))
    sizes = dict.fromkeys(("split", "left", "right", "root"), nodes + _ROOM)
    sizes |= dict.fromkeys(("first", "filled", "level", "capacity"), pages + _ROOM)
    sizes |= dict.fromkeys(("item", "lo", "hi"), slots + _ROOM * branching)
    return pool.grown(**sizes)


def readonly_arrays(pool: Pool) -> Bundle[Source]:
    """Return what a cursor walks: the same arrays, read-only, for as long as they are in use."""
    arrays: dict[str, Any] = {name: getattr(pool, name, None) for name in Source._fields}
    for name, value in arrays.items():
        if value is None:
            arrays[name] = np.zeros(0, np.int32 if name == "ends" else np.float64)
        elif isinstance(value, np.ndarray):
            arrays[name] = value.view()
    return Bundle(Source(**arrays))


@jit
def _give_slots(pool: Any, start: int, capacity: int, branching: int) -> None:
    """Keep a place of slots for another page."""
    if capacity < LEAST:
        return
    size = 0
    while min(LEAST << (size + 1), branching) <= capacity and LEAST << size < branching:
        size += 1
    pool.item[start] = pool.used[FREE_SLOTS + size]
    pool.used[FREE_SLOTS + size] = start


@jit
def _place_page(pool: Any, page: int, need: int, branching: int) -> None:
    """Give a page a place with room for `need` slots."""
    size = 0
    while min(LEAST << size, branching) < need:
        size += 1
    pool.capacity[page] = min(LEAST << size, branching)
    free = pool.used[FREE_SLOTS + size]
    if free >= 0:
        pool.used[FREE_SLOTS + size] = pool.item[free]
        pool.first[page] = free
    else:
        pool.first[page] = pool.used[SLOTS]
        pool.used[SLOTS] += pool.capacity[page]


@jit
def _new_page(pool: Any, level: int, need: int, branching: int) -> int:
    page = pool.used[FREE_PAGE]
    if page >= 0:
        pool.used[FREE_PAGE] = pool.first[page]
    else:
        page = pool.used[PAGES]
        pool.used[PAGES] += 1
    pool.level[page], pool.filled[page] = level, 0
    _place_page(pool, page, need, branching)
    return int(page)


@jit
def _free_page(pool: Any, page: int, branching: int) -> None:
    _give_slots(pool, pool.first[page], pool.capacity[page], branching)
    pool.first[page] = pool.used[FREE_PAGE]
    pool.used[FREE_PAGE] = page


@jit
def _copy(pool: Any, source: int, target: int, count: int) -> None:
    for i in range(count):
        pool.item[target + i] = pool.item[source + i]
        pool.lo[target + i] = pool.lo[source + i]
        pool.hi[target + i] = pool.hi[source + i]


@jit
def _make_room(pool: Any, page: int, branching: int) -> bool:
    """Move a full page to a larger place if pages may be so large; return whether there is room."""
    if pool.filled[page] < pool.capacity[page]:
        return True
    if pool.capacity[page] >= branching:
        return False
    start, capacity = pool.first[page], pool.capacity[page]
    _place_page(pool, page, pool.filled[page] + 1, branching)
    _copy(pool, start, pool.first[page], pool.filled[page])
    _give_slots(pool, start, capacity, branching)
    return True


@jit
def _put(pool: Any, page: int, slot: int, item: int, lo: float, hi: float) -> None:
    """Write an item into a slot of a page with room; those behind move on."""
    begin = pool.first[page]
    for at in range(begin + pool.filled[page], begin + slot, -1):
        pool.item[at], pool.lo[at], pool.hi[at] = (
            pool.item[at - 1],
            pool.lo[at - 1],
            pool.hi[at - 1],
        )
    pool.item[begin + slot], pool.lo[begin + slot], pool.hi[begin + slot] = item, lo, hi
    pool.filled[page] += 1


@jit
def _hull(pool: Any, page: int) -> tuple[float, float]:
    begin = pool.first[page]
    lo, hi = pool.lo[begin], pool.hi[begin]
    for at in range(begin + 1, begin + pool.filled[page]):
        lo, hi = min(lo, pool.lo[at]), max(hi, pool.hi[at])
    return lo, hi


@jit
def _slot_of(pool: Any, axis: int, page: int, box: int) -> int:
    """Return where a box belongs: its slot in a leaf, the slot of the page below otherwise."""
    begin = pool.first[page]
    inner = pool.level[page] > 0
    low, high = 0, int(pool.filled[page])
    while low < high:
        middle = (low + high) >> 1
        other = pool.item[begin + middle]
        if inner:  # compare with the first box below it
            below = other
            while pool.level[below] > 0:
                below = pool.item[pool.first[below]]
            other = pool.item[pool.first[below]]
        if before(pool, axis, other, box) or (inner and other == box):
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0) if inner else low


@jit
def _insert(
    pool: Any, axis: int, node: int, box: int, lo: float, hi: float, branching: int, path: Any
) -> None:
    """Insert a box into the list of a node."""
    page = int(pool.root[node])
    depth = 0
    while pool.level[page] > 0:
        slot = _slot_of(pool, axis, page, box)
        at = pool.first[page] + slot
        pool.lo[at], pool.hi[at] = min(pool.lo[at], lo), max(pool.hi[at], hi)
        path[2 * depth], path[2 * depth + 1] = page, slot
        depth += 1
        page = int(pool.item[at])
    slot = _slot_of(pool, axis, page, box)
    item = box
    while not _make_room(pool, page, branching):
        count = pool.filled[page]
        half = count // 2
        other = _new_page(pool, pool.level[page], count - half + 1, branching)
        _copy(pool, pool.first[page] + half, pool.first[other], count - half)
        pool.filled[page], pool.filled[other] = half, count - half
        if slot <= half:
            _put(pool, page, slot, item, lo, hi)
        else:
            _put(pool, other, slot - half, item, lo, hi)
        first_lo, first_hi = _hull(pool, page)
        item = other
        lo, hi = _hull(pool, other)
        if depth == 0:
            above = _new_page(pool, pool.level[page] + 1, 2, branching)
            _put(pool, above, 0, page, first_lo, first_hi)
            _put(pool, above, 1, item, lo, hi)
            pool.root[node] = above
            return
        depth -= 1
        page, slot = path[2 * depth], path[2 * depth + 1] + 1
        at = pool.first[page] + slot - 1
        pool.lo[at], pool.hi[at] = first_lo, first_hi
    _put(pool, page, slot, item, lo, hi)


@jit
def _add(
    pool: Any, axis: int, box: int, lo: float, hi: float, branching: int, path: Any
) -> tuple[int, int]:
    """Add a box on an attribute; return how deep its node is, and the levels of its list."""
    node, parent, depth = int(pool.top[axis]), -1, 1
    went_left = False
    while node >= 0 and (hi < pool.split[node] or lo > pool.split[node]):
        parent, went_left = node, hi < pool.split[node]
        node = int(pool.left[node] if went_left else pool.right[node])
        depth += 1
    if node < 0:
        node = pool.used[NODES]
        pool.used[NODES] += 1
        pool.split[node] = lo if lo > -np.inf else hi
        pool.left[node] = pool.right[node] = pool.root[node] = -1
        if parent < 0:
            pool.top[axis] = node
        elif went_left:
            pool.left[parent] = node
        else:
            pool.right[parent] = node
    if pool.root[node] < 0:
        pool.root[node] = _new_page(pool, 0, 1, branching)
    _insert(pool, axis, node, box, lo, hi, branching, path)
    return depth, pool.level[pool.root[node]] + 1


@jit
def _drop(pool: Any, axis: int, box: int, lo: float, hi: float, branching: int, path: Any) -> None:
    """Remove a box from an attribute; it must be there."""
    node = int(pool.top[axis])
    while hi < pool.split[node] or lo > pool.split[node]:
        node = int(pool.left[node] if hi < pool.split[node] else pool.right[node])
    page = int(pool.root[node])
    depth = 0
    while pool.level[page] > 0:
        slot = _slot_of(pool, axis, page, box)
        path[2 * depth], path[2 * depth + 1] = page, slot
        depth += 1
        page = int(pool.item[pool.first[page] + slot])
    slot = _slot_of(pool, axis, page, box)
    while True:
        at = pool.first[page] + slot
        pool.filled[page] -= 1
        _copy(pool, at + 1, at, pool.filled[page] - slot)
        if pool.filled[page] or depth == 0:
            break
        _free_page(pool, page, branching)  # and its slot in the page above
        depth -= 1
        page, slot = path[2 * depth], path[2 * depth + 1]
    while depth:
        child_lo, child_hi = _hull(pool, page)
        depth -= 1
        page = path[2 * depth]
        at = pool.first[page] + path[2 * depth + 1]
        pool.lo[at], pool.hi[at] = child_lo, child_hi
    if pool.filled[page] == 0:
        _free_page(pool, page, branching)
        pool.root[node] = -1
    while pool.root[node] >= 0 and pool.level[page] > 0 and pool.filled[page] == 1:
        pool.root[node] = pool.item[pool.first[page]]
        _free_page(pool, page, branching)
        page = int(pool.root[node])


@jit
def add_boxes(
    table: I64, edits_table: I64, start: int, branching: int, path: I64, deepest: I64
) -> int:
    """Add boxes from `start` on; return how far it came before room ran out.

    path      (2 * LEVELS,) scratch
    deepest   (2,) the most lists on a path and the most levels of a list, kept up to date
    """
    arrays = opened(table, Pool)
    edits = opened(edits_table, Edits)
    nodes, pages, slots = len(arrays.split), len(arrays.first), len(arrays.item)
    pool, steps = pointers(arrays), pointer(path, 0)
    for i in range(start, len(edits.box)):
        if (
            pool.used[NODES] + _ROOM > nodes
            or pool.used[PAGES] + _ROOM > pages
            or pool.used[SLOTS] + _ROOM * branching > slots
        ):
            return i
        axis, box = edits.axis[i], edits.box[i]
        depth, levels = _add(pool, axis, box, edits.lo[i], edits.hi[i], branching, steps)
        deepest[0], deepest[1] = max(deepest[0], depth), max(deepest[1], levels)
    return len(edits.box)


@jit
def drop_boxes(table: I64, edits_table: I64, branching: int, path: I64) -> None:
    """Remove boxes, which must be there."""
    pool, steps = pointers(opened(table, Pool)), pointer(path, 0)
    edits = opened(edits_table, Edits)
    for i in range(len(edits.box)):
        axis, box = edits.axis[i], edits.box[i]
        _drop(pool, axis, box, edits.lo[i], edits.hi[i], branching, steps)


def memory_of(pool: Pool) -> int:
    """Return the bytes of the trees, with the room that they have."""
    arrays: list[Any] = [*pool[: Pool._fields.index("used")]]
    return sum(array.nbytes for array in arrays)
