"""Interests, the ranges [l, r] that subscriptions ask about, as points (l, r) in a k-d tree.

The one question is `snap`: which is the smallest rectangle that holds all interests of a given
rectangle? A node knows the rectangle of what is below it: a node that lies inside the asked
rectangle answers at once, and one that can't widen the answer is passed over.

Nodes are cut in turn by l (even depth) and by r (odd depth), ties by row, so that even equal points
can be told apart. Leaves have room for 32. Children come in pairs, so a node knows only the first.
An entry is a point, or a rectangle in a sketch: `low_l` and `high_l` are then two arrays, and
else one array twice.

    low_l, high_l, low_r, high_r   (32 leaves,)  the entries of leaf f from 32 f on, in any order
    bounds   (nodes, 4)   least and largest l, least and largest r of what is below a node
    child    (nodes,)     first of two children; of a leaf ~f
    size     (nodes,)     entries below a node
    row      (32 leaves,) the interest of an entry
    cut, cut_row (nodes,) an entry goes to the second child if its (coordinate, row) is not below
    home     (rows,)      the leaf's node of each row, -1: none
    used     (4,)         nodes, leaves, spare pairs of nodes and spare leaves, which are listed in
    pairs, leaves         (leaves,)

A leaf that is full becomes two. If that makes the tree too deep, the highest lopsided subtree on
the way is built anew, as a scapegoat tree does: amortised O(log m) work for an entry. When half of
them are gone all is built anew. About 35 bytes an interest.

`Front` holds at most 64 nodes that together hold all interests of a region, so that many snaps
within it don't all start at the root.

Section II-B of paper 001; the sketch is the remark at the end of its section III-B.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.jit import jit

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

LEAF = 16
FILL = 13
"""Entries of a leaf when it is built: some room, so that not every new one splits a leaf."""
FRONT = 32
STACK = 256
_LOPSIDED = 0.7
_NODES, _LEAVES, _PAIRS_SPARE, _LEAVES_SPARE = 0, 1, 2, 3


class Tree(NamedTuple):
    """What a search reads: see the module's docstring."""

    low_l: Floats
    high_l: Floats
    low_r: Floats
    high_r: Floats
    bounds: Floats
    child: Rows
    size: Rows


class Upkeep(NamedTuple):
    """What an edit needs beside it."""

    row: Rows
    cut: Floats
    cut_row: Rows
    home: Rows
    used: Counts
    pairs: Rows
    leaves: Rows


class Front(NamedTuple):
    """Nodes that hold all interests of a region, their bounds, and room for a search."""

    node: Rows
    bounds: Floats
    stack: Rows

    @classmethod
    def empty(cls) -> Front:
        """Return one with room for the most nodes that there may be."""
        return cls(np.zeros(FRONT, np.int32), np.zeros((FRONT, 4)), np.zeros(STACK, np.int32))


Rectangle = tuple[float, float, float, float]
"""Least and largest l, least and largest r, all closed; (inf, -inf, inf, -inf) is none."""


@jit
def _apart(bounds: Floats, at: int, l0: float, l1: float, r0: float, r1: float) -> bool:
    return bool(
        bounds[at, 0] > l1 or bounds[at, 1] < l0 or bounds[at, 2] > r1 or bounds[at, 3] < r0
    )


@jit
def advance(tree: Tree, l0: float, l1: float, r0: float, r1: float, front: Front) -> int:
    """Fill a front for a region and return how many nodes it has; level by level while they fit."""
    bounds, children, nodes, queue = tree.bounds, tree.child, front.node, front.stack
    queue[0] = 0
    head, tail, n = 0, 1, 0
    while head < tail and n + tail - head < FRONT:
        node = queue[head & (FRONT - 1)]
        head += 1
        if (
            bounds[node, 0] > l1
            or bounds[node, 1] < l0
            or bounds[node, 2] > r1
            or bounds[node, 3] < r0
        ):
            continue
        child = children[node]
        if child < 0:
            nodes[n] = node
            n += 1
        else:
            queue[tail & (FRONT - 1)], queue[(tail + 1) & (FRONT - 1)] = child, child + 1
            tail += 2
    while head < tail:
        nodes[n] = queue[head & (FRONT - 1)]
        head, n = head + 1, n + 1
    for at in range(n):
        for side in range(4):
            front.bounds[at, side] = bounds[nodes[at], side]
    return n


@jit
def search(
    tree: Tree,
    front: Front,
    n: int,
    l0: float,
    l1: float,
    r0: float,
    r1: float,
    known: Rectangle,
    any_will_do: bool,
    upward: int,
) -> Rectangle:
    """Widen a rectangle so that it holds all interests of [l0, l1] x [r0, r1] below a front.

    A node that can't widen it is passed over: so a side that is infinite from the start doesn't
    count. With `any_will_do` it ends at the first find. `upward` is 1 to look at large ends first.
    """
    entries_low_l, entries_high_l = tree.low_l, tree.high_l
    entries_low_r, entries_high_r = tree.low_r, tree.high_r
    bounds, children, sizes = tree.bounds, tree.child, tree.size
    nodes, near, stack = front.node, front.bounds, front.stack
    a, b, c, d = known
    for at in range(n):
        if near[at, 0] > l1 or near[at, 1] < l0 or near[at, 2] > r1 or near[at, 3] < r0:
            continue
        stack[0] = nodes[at]
        depth = 1
        while depth:
            depth -= 1
            node = stack[depth]
            low_l, high_l = bounds[node, 0], bounds[node, 1]
            low_r, high_r = bounds[node, 2], bounds[node, 3]
            if low_l > l1 or high_l < l0 or low_r > r1 or high_r < r0:
                continue
            inside = low_l >= l0 and high_l <= l1 and low_r >= r0 and high_r <= r1
            low_l, high_l = max(low_l, l0), min(high_l, l1)
            low_r, high_r = max(low_r, r0), min(high_r, r1)
            if low_l >= a and high_l <= b and low_r >= c and high_r <= d:
                continue
            if inside:
                a, b, c, d = min(a, low_l), max(b, high_l), min(c, low_r), max(d, high_r)
                if any_will_do:
                    return a, b, c, d
            elif children[node] >= 0:
                stack[depth] = children[node] + 1 - upward
                stack[depth + 1] = children[node] + upward
                depth += 2
            else:
                found = False
                first = LEAF * ~children[node]
                for e in range(first, first + sizes[node]):
                    low_l, high_l = max(entries_low_l[e], l0), min(entries_high_l[e], l1)
                    low_r, high_r = max(entries_low_r[e], r0), min(entries_high_r[e], r1)
                    if low_l <= high_l and low_r <= high_r:
                        found = True
                        a, b, c, d = min(a, low_l), max(b, high_l), min(c, low_r), max(d, high_r)
                if found and any_will_do:
                    return a, b, c, d
    return a, b, c, d


NONE: Rectangle = (np.inf, -np.inf, np.inf, -np.inf)
_ONLY_LEAST: Rectangle = (np.inf, np.inf, -np.inf, np.inf)
_ONLY_LARGEST: Rectangle = (-np.inf, np.inf, -np.inf, -np.inf)


@jit
def snap(
    tree: Tree, front: Front, n: int, l0: float, l1: float, r0: float, r1: float
) -> Rectangle:
    """Return the smallest rectangle around all interests of [l0, l1] x [r0, r1]."""
    return search(tree, front, n, l0, l1, r0, r1, NONE, False, 0)


@jit
def some(
    tree: Tree, front: Front, n: int, l0: float, l1: float, r0: float, r1: float
) -> Rectangle:
    """Return a rectangle around some interests of [l0, l1] x [r0, r1], if there are any."""
    return search(tree, front, n, l0, l1, r0, r1, NONE, True, 0)


@jit
def least_left(
    tree: Tree, front: Front, n: int, l0: float, l1: float, r0: float, r1: float
) -> float:
    """Return the least l of the interests of [l0, l1] x [r0, r1]; inf: there are none."""
    return search(tree, front, n, l0, l1, r0, r1, _ONLY_LEAST, False, 0)[0]


@jit
def largest_right(
    tree: Tree, front: Front, n: int, l0: float, l1: float, r0: float, r1: float
) -> float:
    """Return the largest r of the interests of [l0, l1] x [r0, r1]; -inf: there are none."""
    return search(tree, front, n, l0, l1, r0, r1, _ONLY_LARGEST, False, 1)[3]


@jit
def rows_within(
    tree: Tree,
    row: Rows,
    l0: float,
    l1: float,
    r0: float,
    r1: float,
    found: Rows,
    stack: Rows,
) -> int:
    """Write the rows of a region until `found` is full; return how many there are in all."""
    stack[0] = 0
    depth, n = 1, 0
    while depth:
        depth -= 1
        node = stack[depth]
        if _apart(tree.bounds, node, l0, l1, r0, r1):
            continue
        bounds = tree.bounds[node]
        inside = bounds[0] >= l0 and bounds[1] <= l1 and bounds[2] >= r0 and bounds[3] <= r1
        if inside and n >= len(found):
            n += tree.size[node]
        elif tree.child[node] >= 0:
            stack[depth], stack[depth + 1] = tree.child[node] + 1, tree.child[node]
            depth += 2
        else:
            first = LEAF * ~tree.child[node]
            for e in range(first, first + tree.size[node]):
                if (
                    tree.high_l[e] >= l0
                    and tree.low_l[e] <= l1
                    and tree.high_r[e] >= r0
                    and tree.low_r[e] <= r1
                ):
                    if n < len(found):
                        found[n] = row[e]
                    n += 1
    return n


@jit
def _before(key: float, row: int, other_key: float, other_row: int) -> bool:
    return bool(key < other_key or (key == other_key and row < other_row))


@jit
def _select(order: Rows, begin: int, end: int, nth: int, keys: Floats, rows: Rows) -> None:
    """Move the entries that come before the nth in (key, row) before it, and the rest after it."""
    end -= 1
    while begin < end:
        middle = (begin + end) >> 1
        for low, high in ((begin, middle), (begin, end), (middle, end)):
            one, two = order[low], order[high]
            if _before(keys[two], rows[two], keys[one], rows[one]):
                order[low], order[high] = two, one
        key, row = keys[order[middle]], rows[order[middle]]
        i, j = begin, end
        while i <= j:
            while _before(keys[order[i]], rows[order[i]], key, row):
                i += 1
            while _before(key, row, keys[order[j]], rows[order[j]]):
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if nth <= j:
            end = j
        elif nth >= i:
            begin = i
        else:
            return


@jit
def _take(spare: Rows, used: Counts, listed: int, made: int, step: int) -> int:
    """Return a spare number if one is listed, else a new one."""
    if used[listed]:
        used[listed] -= 1
        return int(spare[used[listed]])
    used[made] += step
    return int(used[made] - step)


@jit
def _bound(tree: Tree, node: int) -> None:
    """Work out the bounds of a node from what is right below it."""
    bounds, child = tree.bounds[node], tree.child[node]
    if child >= 0:
        one, two = tree.bounds[child], tree.bounds[child + 1]
        bounds[0], bounds[1] = min(one[0], two[0]), max(one[1], two[1])
        bounds[2], bounds[3] = min(one[2], two[2]), max(one[3], two[3])
        return
    bounds[0], bounds[1], bounds[2], bounds[3] = np.inf, -np.inf, np.inf, -np.inf
    for e in range(LEAF * ~child, LEAF * ~child + tree.size[node]):
        bounds[0], bounds[1] = min(bounds[0], tree.low_l[e]), max(bounds[1], tree.high_l[e])
        bounds[2], bounds[3] = min(bounds[2], tree.low_r[e]), max(bounds[3], tree.high_r[e])


@jit
def build(
    tree: Tree,
    keep: Upkeep,
    root: int,
    root_depth: int,
    low_l: Floats,
    high_l: Floats,
    low_r: Floats,
    high_r: Floats,
    rows: Rows,
) -> None:
    """Put entries below a node that has nothing below it."""
    order = np.arange(len(rows)).astype(np.int32)
    nodes, spans = np.empty(STACK, np.int64), np.empty((STACK, 3), np.int64)
    made = np.empty(4 * (len(rows) // FILL + 1), np.int32)
    nodes[0] = root
    spans[0, 0], spans[0, 1], spans[0, 2] = 0, len(rows), root_depth
    waiting, count = 1, 0
    while waiting:
        waiting -= 1
        node, begin, end = nodes[waiting], spans[waiting, 0], spans[waiting, 1]
        depth = spans[waiting, 2]
        tree.size[node] = end - begin
        made[count] = node
        count += 1
        if end - begin <= FILL:
            leaf = _take(keep.leaves, keep.used, _LEAVES_SPARE, _LEAVES, 1)
            tree.child[node] = ~leaf
            for j in range(begin, end):
                e, o = LEAF * leaf + j - begin, order[j]
                tree.low_l[e], tree.high_l[e] = low_l[o], high_l[o]
                tree.low_r[e], tree.high_r[e] = low_r[o], high_r[o]
                keep.row[e] = rows[o]
                keep.home[rows[o]] = node
            continue
        whole = (end - begin + FILL - 1) // FILL
        middle = begin + (whole // 2) * FILL
        keys = low_r if depth & 1 else low_l
        _select(order, begin, end, middle, keys, rows)
        keep.cut[node], keep.cut_row[node] = keys[order[middle]], rows[order[middle]]
        pair = _take(keep.pairs, keep.used, _PAIRS_SPARE, _NODES, 2)
        tree.child[node] = pair
        for side in range(2):
            nodes[waiting] = pair + side
            spans[waiting, 0] = middle if side else begin
            spans[waiting, 1] = end if side else middle
            spans[waiting, 2] = depth + 1
            waiting += 1
    for turn in range(count):
        _bound(tree, made[count - 1 - turn])


@jit
def dissolve(
    tree: Tree,
    keep: Upkeep,
    root: int,
    low_l: Floats,
    high_l: Floats,
    low_r: Floats,
    high_r: Floats,
    rows: Rows,
) -> None:
    """Copy out the entries below a node, and put what held them on the lists of spares."""
    stack = np.empty(STACK, np.int32)
    stack[0] = root
    depth, n = 1, 0
    while depth:
        depth -= 1
        node = stack[depth]
        child = tree.child[node]
        if child >= 0:
            stack[depth], stack[depth + 1] = child, child + 1
            depth += 2
            keep.pairs[keep.used[_PAIRS_SPARE]] = child
            keep.used[_PAIRS_SPARE] += 1
            continue
        for e in range(LEAF * ~child, LEAF * ~child + tree.size[node]):
            low_l[n], high_l[n], low_r[n], high_r[n] = (
                tree.low_l[e],
                tree.high_l[e],
                tree.low_r[e],
                tree.high_r[e],
            )
            rows[n] = keep.row[e]
            n += 1
        keep.leaves[keep.used[_LEAVES_SPARE]] = ~child
        keep.used[_LEAVES_SPARE] += 1


@jit
def _move(tree: Tree, keep: Upkeep, target: int, source: int, node: int) -> None:
    tree.low_l[target], tree.high_l[target] = tree.low_l[source], tree.high_l[source]
    tree.low_r[target], tree.high_r[target] = tree.low_r[source], tree.high_r[source]
    keep.row[target] = keep.row[source]
    keep.home[keep.row[target]] = node


@jit
def _split(tree: Tree, keep: Upkeep, node: int, depth: int) -> None:
    """Make two leaves of a full one."""
    old = ~tree.child[node]
    new = _take(keep.leaves, keep.used, _LEAVES_SPARE, _LEAVES, 1)
    pair = _take(keep.pairs, keep.used, _PAIRS_SPARE, _NODES, 2)
    keys = tree.low_r if depth & 1 else tree.low_l
    order = np.arange(LEAF * old, LEAF * old + LEAF).astype(np.int32)
    _select(order, 0, LEAF, LEAF // 2, keys, keep.row)
    middle = order[LEAF // 2]
    keep.cut[node], keep.cut_row[node] = keys[middle], keep.row[middle]
    stay = move = 0
    for e in range(LEAF * old, LEAF * old + LEAF):
        if _before(keys[e], keep.row[e], keep.cut[node], keep.cut_row[node]):
            _move(tree, keep, LEAF * old + stay, e, pair)
            stay += 1
        else:
            _move(tree, keep, LEAF * new + move, e, pair + 1)
            move += 1
    tree.child[node] = pair
    tree.child[pair], tree.child[pair + 1] = ~old, ~new
    tree.size[pair], tree.size[pair + 1] = stay, move
    _bound(tree, pair)
    _bound(tree, pair + 1)


@jit
def insert(
    tree: Tree,
    keep: Upkeep,
    row: int,
    low_l: float,
    high_l: float,
    low_r: float,
    high_r: float,
    deepest: int,
    path: Rows,
) -> int:
    """Put in an entry; return the depth in `path` of a subtree to build anew, or -1."""
    node = depth = 0
    while True:
        tree.size[node] += 1
        bounds, child = tree.bounds[node], tree.child[node]
        bounds[0], bounds[1] = min(bounds[0], low_l), max(bounds[1], high_l)
        bounds[2], bounds[3] = min(bounds[2], low_r), max(bounds[3], high_r)
        path[depth] = node
        if child < 0:
            break
        key = low_r if depth & 1 else low_l
        node = child + (not _before(key, row, keep.cut[node], keep.cut_row[node]))
        depth += 1
    e = LEAF * ~child + tree.size[node] - 1
    tree.low_l[e], tree.high_l[e], tree.low_r[e], tree.high_r[e] = low_l, high_l, low_r, high_r
    keep.row[e], keep.home[row] = row, node
    if tree.size[node] < LEAF:
        return -1
    _split(tree, keep, node, depth)
    if depth < deepest:
        return -1
    lopsided = -1
    for above in range(depth):
        if tree.size[path[above + 1]] > _LOPSIDED * tree.size[path[above]]:
            lopsided = above
            break
    return lopsided


@jit
def delete(tree: Tree, keep: Upkeep, row: int, path: Rows) -> None:
    """Take out the entry of a row."""
    home = keep.home[row]
    e = LEAF * ~tree.child[home]
    while keep.row[e] != row:
        e += 1
    node = depth = 0
    while True:
        path[depth] = node
        tree.size[node] -= 1
        if node == home:
            break
        key = tree.low_r[e] if depth & 1 else tree.low_l[e]
        node = tree.child[node] + (not _before(key, row, keep.cut[node], keep.cut_row[node]))
        depth += 1
    last = LEAF * ~tree.child[home] + tree.size[home]
    if e != last:
        _move(tree, keep, e, last, home)
    keep.home[row] = -1
    for turn in range(depth + 1):
        _bound(tree, path[depth - turn])


class Interests:
    """Interests by row: a small number that is given anew after an interest left."""

    def __init__(self, l: npt.ArrayLike = (), r: npt.ArrayLike = ()):  # noqa: E741
        left, right = np.asarray(l, np.float64), np.asarray(r, np.float64)
        self._start(left, left, right, right)

    def _start(self, low_l: Floats, high_l: Floats, low_r: Floats, high_r: Floats) -> None:
        self._points = low_l is high_l
        self.count = len(low_l)
        self._free: list[int] = []
        self._path = np.zeros(STACK, np.int32)
        rows = np.arange(self.count, dtype=np.int32)
        self._lay_out(low_l, high_l, low_r, high_r, rows, self.count)

    def _lay_out(
        self, low_l: Floats, high_l: Floats, low_r: Floats, high_r: Floats, row: Rows, rows: int
    ) -> None:
        leaves = len(row) // FILL + 2
        low = np.zeros(LEAF * leaves), np.zeros(LEAF * leaves)
        high = low if self._points else (np.zeros(LEAF * leaves), np.zeros(LEAF * leaves))
        self.tree = Tree(
            low[0],
            high[0],
            low[1],
            high[1],
            np.zeros((2 * leaves, 4)),
            np.zeros(2 * leaves, np.int32),
            np.zeros(2 * leaves, np.int32),
        )
        self._keep = Upkeep(
            np.zeros(LEAF * leaves, np.int32),
            np.zeros(2 * leaves),
            np.zeros(2 * leaves, np.int32),
            np.full(rows, -1, np.int32),
            np.array([1, 0, 0, 0]),
            np.zeros(leaves, np.int32),
            np.zeros(leaves, np.int32),
        )
        build(self.tree, self._keep, 0, 0, low_l, high_l, low_r, high_r, row)
        self._built = self.count
        self.arrays = tuple(self.tree)

    def _room(self, leaves: int) -> None:
        """Make room for so many more leaves."""
        have = len(self._keep.leaves)
        used = self._keep.used
        needed = int(used[_LEAVES] - used[_LEAVES_SPARE]) + leaves
        if needed <= have:
            return
        to = max(needed, have + have // 4) + 1

        def wider(array: Any, times: int) -> Any:
            more = np.zeros((times * to, *array.shape[1:]), array.dtype)
            more[: len(array)] = array
            return more

        tree, keep = self.tree, self._keep
        low_l, low_r = wider(tree.low_l, LEAF), wider(tree.low_r, LEAF)
        self.tree = Tree(
            low_l,
            low_l if self._points else wider(tree.high_l, LEAF),
            low_r,
            low_r if self._points else wider(tree.high_r, LEAF),
            wider(tree.bounds, 2),
            wider(tree.child, 2),
            wider(tree.size, 2),
        )
        self._keep = keep._replace(
            row=wider(keep.row, LEAF),
            cut=wider(keep.cut, 2),
            cut_row=wider(keep.cut_row, 2),
            pairs=wider(keep.pairs, 1),
            leaves=wider(keep.leaves, 1),
        )
        self.arrays = tuple(self.tree)

    def add(self, l: float, r: float) -> int:  # noqa: E741
        """Put in an interest and return its row."""
        row = self._free.pop() if self._free else self.count
        if row >= len(self._keep.home):
            home = np.full(row + row // 4 + 16, -1, np.int32)
            home[: len(self._keep.home)] = self._keep.home
            self._keep = self._keep._replace(home=home)
        self._room(1)
        self.count += 1
        deepest = math.ceil(math.log(max(self.count / LEAF, 1.0), 1 / _LOPSIDED)) + 1
        above = insert(self.tree, self._keep, row, l, l, r, r, deepest, self._path)
        if above >= 0:
            self._rebuild(int(self._path[above]), above)
        return row

    def _rebuild(self, node: int, depth: int) -> None:
        n = int(self.tree.size[node])
        columns = [np.empty(n) for _ in range(4)]
        rows = np.empty(n, np.int32)
        dissolve(self.tree, self._keep, node, *columns, rows)
        self._room(n // FILL + 2)
        build(self.tree, self._keep, node, depth, *columns, rows)

    def remove(self, row: int) -> None:
        """Take out an interest."""
        delete(self.tree, self._keep, row, self._path)
        self._free.append(row)
        self.count -= 1
        if self.count < self._built // 2:
            self._rebuild(0, 0)
            self._built = self.count

    def snap(self, l0: float, l1: float, r0: float, r1: float) -> Rectangle | None:
        """Return the smallest rectangle around all interests of [l0, l1] x [r0, r1]."""
        front = Front.empty()
        n = advance(self.tree, l0, l1, r0, r1, front)
        found = snap(self.tree, front, n, l0, l1, r0, r1)
        return found if found[0] <= found[1] else None

    def within(self, l0: float, l1: float, r0: float, r1: float) -> Rows:
        """Return the rows of all interests of [l0, l1] x [r0, r1]."""
        rows = np.empty(self.number_within(l0, l1, r0, r1), np.int32)
        rows_within(self.tree, self._keep.row, l0, l1, r0, r1, rows, np.empty(STACK, np.int32))
        return rows

    def number_within(self, l0: float, l1: float, r0: float, r1: float) -> int:
        """Return how many interests lie in [l0, l1] x [r0, r1]."""
        none, stack = np.empty(0, np.int32), np.empty(STACK, np.int32)
        return rows_within(self.tree, self._keep.row, l0, l1, r0, r1, none, stack)

    def of(self, row: int) -> tuple[float, float]:
        """Return the range of an interest."""
        first = LEAF * ~int(self.tree.child[self._keep.home[row]])
        e = first + int(np.flatnonzero(self._keep.row[first : first + LEAF] == row)[0])
        return float(self.tree.low_l[e]), float(self.tree.low_r[e])

    def sketch(self, rectangles: int) -> Interests:
        """Return a cover of all interests by at most so many rectangles, to use in their stead.

        The rectangles are those of nodes: the largest of them is opened while there may be more.
        """
        tree = self.tree
        cover = [(-int(tree.size[0]), 0)] if self.count else []
        while cover and len(cover) < rectangles and tree.child[cover[0][1]] >= 0:
            child = int(tree.child[heapq.heappop(cover)[1]])
            for node in (child, child + 1):
                if tree.size[node]:
                    heapq.heappush(cover, (-int(tree.size[node]), node))
        bounds = tree.bounds[[node for _, node in cover]].reshape(-1, 4)
        sketch = Interests()
        sketch._start(*(np.ascontiguousarray(bounds[:, side]) for side in range(4)))
        return sketch

    @property
    def memory(self) -> int:
        """Bytes of all arrays; an array that serves twice counts once."""
        arrays = {id(array): array for array in (*self.tree, *self._keep)}
        return sum(array.nbytes for array in arrays.values())
