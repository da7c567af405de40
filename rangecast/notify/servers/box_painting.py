"""A change in progress over a space: the rivals of the object, from all servers that have any.

Over one attribute, Appendix C asks for the k nearest better objects on each side and then for one
exposed object after the other. Over several, no side has k objects that settle all interests: what
decides is the k-skyband around the object, its rivals (`boxes/rivals.py`, theorem 8 of paper 001).
So each side is asked once, and the question takes along the rivals so far. A server adds its own,
drops those that k others rule out, and finds out whether to go on: an interest that holds the
object and reaches beyond the zone also overlaps the zone, so the server knows it. If each of these
has k rivals that are better than the object ever was, nothing further away matters. With one
attribute that is the rule of Algorithm 1: k objects are enough.

From the rivals, the server of the object finds the regions of interests that change as a board
does. It cuts them down to the interests that are there, and merges these in an order that depends
on the interests alone: the messages don't depend on which zones there were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.dense import cut_regions
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, ZERO, KdTree, below
from rangecast.notify.boxes.painter import MAX_DENSE
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.regions import OWN, Tiles, set_tile
from rangecast.notify.boxes.rivals import MOST, Rivals, gather_rivals, in_order
from rangecast.notify.boxes.search import foreign_within
from rangecast.notify.boxes.sparse import PROBES, REGIONS, RIVALS, TOO_MANY, descend
from rangecast.notify.servers.box_zone import LARGEST, BoxZone
from rangecast.notify.servers.wire import EAST, WEST, Gather, Gathered, Tile, WireObject

QUERIES, HOPS, FOUND = 0, 1, 2
"""Indexes of counters of queries, of the further servers that they visited, and of the rivals."""
_NEIGHBOURS = 4
"""Number of preceding tiles that a tile may be merged with."""


@jit
def _gather(
    objects_table: I64,
    p: F64,
    mine: int,
    floor_y: float,
    ceiling_y: float,
    arrival: int,
    hull: F64,
    k: int,
    known: int,
    rivals_table: I64,
    work: I64,
) -> int:
    """Add the rivals of a zone to those that are known; return their number, -1: no room."""
    objects, rivals = opened(objects_table, KdTree), opened(rivals_table, Rivals)
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    ceiling_arrival = arrival if ceiling_y < np.inf else -1
    return gather_rivals(
        objects,
        p,
        mine,
        floor_y,
        arrival,
        ceiling_y,
        ceiling_arrival,
        hull,
        k,
        known,
        rivals,
        stack,
        work,
    )


@jit
def _write_hull(
    tree_table: I64, p: F64, at: F64, k: int, axis: int, towards: int, border: float, hull: F64
) -> bool:
    """Write the box around the interests that hold p, reach a border and contain fewer than k of
    the places `at`; return False if there are none.
    """
    tree = opened(tree_table, KdTree)
    bounds, child, size, after, d = tree.bounds, tree.child, tree.size, tree.after, len(p)
    for j in range(d):
        hull[j], hull[d + j] = np.inf, -np.inf
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    stack[0] = 0
    depth, is_found = 1, False
    while depth:
        depth -= 1
        node = stack[depth]
        apart, widens = size[node] == 0, False
        if towards == EAST:
            apart |= bounds[node, 3 * d + axis] < border
        else:
            apart |= min(bounds[node, axis], LARGEST) > border
        for j in range(d):
            apart |= bounds[node, j] > p[j] or bounds[node, 3 * d + j] < p[j]
            widens |= bounds[node, j] < hull[j] or bounds[node, 3 * d + j] > hull[d + j]
        if apart or not (widens or not is_found):
            continue
        count = 0
        for c in range(len(at)):
            covers = True
            for j in range(d):
                covers &= min(bounds[node, 2 * d + j], p[j]) <= at[c, j]
                covers &= at[c, j] <= max(bounds[node, d + j], p[j])
            count += covers
            if count >= k:
                break
        if count >= k:
            continue
        if child[node] >= 0:
            stack[depth], stack[depth + 1] = child[node] + 1, child[node]
            depth += 2
            continue
        block, left = ~child[node], size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                box = tree.at[e]
                if box[d + axis] < border if towards == EAST else min(box[axis], LARGEST) > border:
                    continue
                holds = True
                for j in range(d):
                    holds &= box[j] <= p[j] <= box[d + j]
                if not holds:
                    continue
                count = 0
                for c in range(len(at)):
                    inside = True
                    for j in range(d):
                        inside &= box[j] <= at[c, j] <= box[d + j]
                    count += inside
                    if count >= k:
                        break
                if count >= k:
                    continue
                is_found = True
                for j in range(d):
                    hull[j], hull[d + j] = min(hull[j], box[j]), max(hull[d + j], box[d + j])
            left -= LEAF
            block = after[block]
    return is_found


@jit
def _sort(rivals_table: I64, n: int, p: F64, floor_y: float, arrival: int, k: int) -> int:
    """Sort the rivals of both sides by key, without those that k others rule out."""
    return in_order(opened(rivals_table, Rivals), n, p, floor_y, arrival, k)


@jit
def _count_below(rivals_table: I64, known: int, floor_y: float, arrival: int) -> int:
    """Return the number of sorted rivals with a key below floor."""
    rivals, floor = opened(rivals_table, Rivals), ZERO
    while floor < known and below(rivals.y[floor], rivals.arrival[floor], floor_y, arrival):
        floor += 1
    return floor


@jit
def _descend(
    tree_table: I64,
    rivals_table: I64,
    known: int,
    p: F64,
    floor: int,
    k: int,
    exposes: bool,
    tiles_table: I64,
    work: I64,
) -> int:
    """Write the regions of interests that change; return their number, -1: no room."""
    tree, rivals = opened(tree_table, KdTree), opened(rivals_table, Rivals)
    tiles = opened(tiles_table, Tiles)
    return descend(tree, p, rivals.at[:known], floor, k, exposes, tiles, work)


@jit
def _cut(
    rivals_table: I64, known: int, p: F64, floor: int, k: int, exposes: bool, tiles_table: I64
) -> int:
    """Write the regions of all interests that could change; return their number, -1: no room."""
    rivals, tiles = opened(rivals_table, Rivals), opened(tiles_table, Tiles)
    return cut_regions(p, rivals.at[:known], floor, k, exposes, tiles)


@jit
def _merge(tree_table: I64, tiles_table: I64, order: I64, out_table: I64, work: I64) -> int:
    """Merge tiles that are ordered by rival, where no other interest lies between them.

    Unlike `boxes/sparse.py`, nothing depends on where interests lie in the tree.
    """
    tree = opened(tree_table, KdTree)
    tiles, out = opened(tiles_table, Tiles), opened(out_table, Tiles)
    width = tiles.bounds.shape[1] // 2
    around, tile = np.empty(2 * width), np.empty(2 * width)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    n = start = ZERO
    for i in order:
        rival = tiles.rival[i]
        if n and out.rival[n - 1] != rival:
            start = n
        for j in range(2 * width):
            tile[j] = tiles.bounds[i, j]
        turn = ZERO
        while turn < min(_NEIGHBOURS, n - start):
            last = n - 1 - turn
            for j in range(width):
                around[j] = min(tile[j], out.bounds[last, j])
                around[width + j] = max(tile[width + j], out.bounds[last, width + j])
            turn += 1
            work[PROBES] += 1
            if foreign_within(tree, around, tile, out.bounds[last], stack) >= 0:
                continue
            for j in range(2 * width):
                tile[j] = around[j]
            n -= 1
            set_tile(out, last, out.rival[n], out.bounds[n])
            turn = ZERO
        set_tile(out, n, rival, tile)
        n += 1
    return n


class BoxTiler:
    """Working memory and counters of the kernels over a space."""

    watches_interests = True
    """Paint-Dense falls back to the interests where it would send too many boxes."""

    def __init__(self, k: int, d: int, axis: int, *, uses_interests: bool):
        self.k, self._d, self._axis = k, d, axis
        self.uses_interests = uses_interests
        self._rivals = Bundle(Rivals.of(d))
        self._tiles, self._out = (Bundle(Tiles.of(d, 1 << 10)) for _ in range(2))
        self._most = None if uses_interests else Bundle(Tiles.of(d, MAX_DENSE))
        self._work = np.zeros(7, np.int64)
        self.hops = [0, 0, 0]
        """Queries, further servers that they visited, and rivals that they found."""

    @property
    def work(self) -> Sequence[int]:
        """Work of all changes so far, as `BoxWork` counts it."""
        return self._work.tolist()

    # ---- questions

    def paint(
        self, zone: BoxZone, seq: int, position: int, old: WireObject, y: float
    ) -> BoxPainting:
        """Begin to change an object's value to y; `position` is that of its first message."""
        return BoxPainting(self, zone, seq, position, old, y)

    def hull(
        self,
        zone: BoxZone,
        thing: WireObject,
        floor_y: float,
        towards: int,
        border: float,
        objects: Sequence[WireObject],
    ) -> tuple[float, ...] | None:
        """Return the box in which objects from a border on may matter, `None` if none does."""
        floor = floor_y, thing.arrival
        better = [other.at for other in objects if (other.y, other.arrival) < floor]
        if not self.uses_interests:
            here = thing.at[: self._axis] + thing.at[self._axis + 1 :]
            line = [at for at in better if at[: self._axis] + at[self._axis + 1 :] == here]
            ends = (-math.inf,) * self._d + (math.inf,) * self._d
            return ends if len(line) < self.k else None
        hull = np.empty(2 * self._d)
        places = np.array(better).reshape(-1, self._d)
        is_found = _write_hull(
            zone.interests.table,
            np.array(thing.at),
            places,
            self.k,
            self._axis,
            towards,
            border,
            hull,
        )
        return tuple(hull.tolist()) if is_found else None

    def answer(self, zone: BoxZone, asked: Gather) -> Gather | Gathered:
        """Add the rivals of the zone; return the answer, or what the next zone is asked."""
        gathered = self._gather(zone, asked)
        west = asked.towards == WEST
        border = math.nextafter(zone.lo, -math.inf) if west else zone.hi
        if math.isfinite(border):
            floor_y = min(asked.y, asked.thing.y)
            hull = self.hull(zone, asked.thing, floor_y, asked.towards, border, gathered)
            if hull is not None:
                return asked._replace(at=border, hull=hull, found=gathered)
        return Gathered(asked.home, gathered, asked.hops)

    def _gather(self, zone: BoxZone, asked: Gather) -> tuple[WireObject, ...]:
        thing, gathered, d, axis = asked.thing, asked.found, self._d, self._axis
        hull = np.array(asked.hull)
        if asked.towards == WEST and asked.at < LARGEST:
            hull[d + axis] = min(hull[d + axis], asked.at)
        if asked.towards == EAST and asked.at > -LARGEST:
            hull[axis] = max(hull[axis], asked.at)
        exposes = asked.y > thing.y
        floor_y = min(asked.y, thing.y)
        while True:
            self._load(gathered)
            known = _gather(
                zone.objects.table,
                np.array(thing.at),
                zone.slot(thing.object),
                floor_y,
                asked.y if exposes else floor_y,
                thing.arrival,
                hull,
                self.k,
                len(gathered),
                self._rivals.table,
                self._work,
            )
            if known >= 0:
                break
            self._rivals = Bundle(Rivals.of(d, 2 * len(self._rivals.arrays.row)))
        rows = self._rivals.arrays.row[:known].tolist()
        own = [row for row in rows if row >= 0]
        new = dict(zip(own, zone.wire_objects(own), strict=True))
        return tuple(new[row] if row >= 0 else gathered[-2 - row] for row in rows)

    def _load(self, objects: Sequence[WireObject]) -> None:
        """Write objects as rivals; their rows are -2, -3, ..."""
        n = len(objects)
        if n >= len(self._rivals.arrays.row):
            self._rivals = Bundle(Rivals.of(self._d, max(MOST, 2 * n)))
        rivals = self._rivals.arrays
        rivals.at[:n] = np.array([other.at for other in objects]).reshape(-1, self._d)
        rivals.y[:n] = [other.y for other in objects]
        rivals.arrival[:n] = [other.arrival for other in objects]
        rivals.row[:n] = np.arange(-2, -2 - n, -1)

    # ---- tiles

    def tiles(
        self, zone: BoxZone, thing: WireObject, y: float, rivals: Sequence[WireObject]
    ) -> tuple[list[WireObject | None], list[list[float]]]:
        """Return the messages of a change: objects, and bounds; `None` is the object itself."""
        exposes, floor_y, p = y > thing.y, min(y, thing.y), np.array(thing.at)
        self._load(rivals)
        table = self._rivals.table
        known = _sort(table, len(rivals), p, floor_y, thing.arrival, self.k)
        floor = _count_below(table, known, floor_y, thing.arrival)
        self._work[RIVALS] += known
        rival, bounds = self._regions(zone.interests, p, known, floor, exposes=exposes)
        rows = self._rivals.arrays.row
        objects = [None if at == OWN else rivals[-2 - int(rows[at])] for at in rival.tolist()]
        return objects, bounds.tolist()

    def _regions(
        self, interests: Points, p: F64, known: int, floor: int, *, exposes: bool
    ) -> tuple[I32, F64]:
        table = self._rivals.table
        if self._most is not None:
            n = _cut(table, known, p, floor, self.k, exposes, self._most.table)
            if n >= 0:
                order = np.argsort(self._most.arrays.rival[:n], kind="stable")
                return self._most.arrays.rival[order], self._most.arrays.bounds[order]
            self._work[TOO_MANY] += 1
        self._work[REGIONS] += 1
        while True:
            tiles = self._tiles.table
            n = _descend(
                interests.table, table, known, p, floor, self.k, exposes, tiles, self._work
            )
            if n >= 0:
                break
            self._make_room(4 * len(self._tiles.arrays.rival))
        regions = self._tiles.arrays
        return self._merged(interests, regions.rival[:n].copy(), regions.bounds[:n].copy())

    def _make_room(self, tiles: int) -> None:
        if tiles > len(self._tiles.arrays.rival):
            self._tiles, self._out = (Bundle(Tiles.of(self._d, tiles)) for _ in range(2))

    def _merged(self, interests: Points, rival: I32, bounds: F64) -> tuple[I32, F64]:
        """Return the regions as tiles around the interests in them, few of them."""
        rivals, points = [np.zeros(0, np.int32)], [np.zeros((0, 2 * self._d))]
        for number in np.unique(rival).tolist():
            entries = [interests.within(region) for region in bounds[rival == number]]
            boxes = np.unique(interests.tree.at[np.concatenate(entries)], axis=0)
            points.append(boxes)
            rivals.append(np.full(len(boxes), number, np.int32))
        boxes, whose = np.concatenate(points), np.concatenate(rivals)
        n = len(boxes)
        self._make_room(n)
        tiles, out = self._tiles, self._out
        tiles.arrays.rival[:n], tiles.arrays.bounds[:n] = whose, np.hstack([boxes, boxes])
        order = np.arange(n)
        for turn in range(2):
            n = _merge(interests.table, tiles.table, order, out.table, self._work)
            if turn == 0:
                last = out.arrays.bounds[:n, 2 * self._d - 1]
                order = np.lexsort((last, out.arrays.rival[:n]))
                tiles, out = out, tiles
        return out.arrays.rival[:n].copy(), out.arrays.bounds[:n].copy()


class BoxPainting:
    """A change of one object: `questions` are to be asked next; if there are none, it is done."""

    def __init__(
        self, tiler: BoxTiler, zone: BoxZone, seq: int, position: int, old: WireObject, y: float
    ):
        self._tiler, self._zone = tiler, zone
        self._seq = seq
        self.position = position
        """Position of the next message."""
        self._old, self._y = old, y
        self._found: list[WireObject] = []
        self._awaited = 0
        self.questions: list[Gather] = []
        self.messages: list[Tile] = []
        """Messages to send now."""
        if y != old.y:
            self._ask(WEST, old.x)
            if old.x < LARGEST:
                self._ask(EAST, math.nextafter(old.x, math.inf))
            if not self.questions:
                self._paint()

    def _ask(self, towards: int, at: float) -> None:
        old, y = self._old, self._y
        hull = self._tiler.hull(self._zone, old, min(y, old.y), towards, at, ())
        if hull is not None:
            self.questions.append(Gather(at, towards, old.x, old, y, hull, (), 0))
            self._awaited += 1
            self._tiler.hops[QUERIES] += 1

    @property
    def is_done(self) -> bool:
        """Whether no query or answer is outstanding."""
        return not self._awaited

    def take(self, answer: Gathered) -> None:
        """Process an answer; continue after the last outstanding one."""
        self._awaited -= 1
        self._tiler.hops[HOPS] += answer.hops
        self._tiler.hops[FOUND] += len(answer.found)
        self._found += answer.found
        if not self._awaited:
            self._paint()

    def _paint(self) -> None:
        objects, bounds = self._tiler.tiles(self._zone, self._old, self._y, self._found)
        changed = self._old._replace(y=self._y)
        for thing, box in zip(objects, bounds, strict=True):
            self.messages.append(Tile(self._seq, self.position, thing or changed, tuple(box)))
            self.position += 1
