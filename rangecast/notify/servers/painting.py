"""A change in progress at the server that owns the object: its next query, and its messages.

The same steps as `paint.py` takes on one board, with the same geometry, but the lists and the next
object come as answers from other servers. Between two steps other messages may come in, and with
them interests that don't contain the object's position: so each step finds its frontier again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.jit import jit
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.sparse import LARGEST, LEAST, merge_tiles, reach, start_frontier
from rangecast.notify.line.staircase import (
    Scratch,
    gather,
    pass_by,
    steps_of,
    tile_difference,
    tile_gain,
)
from rangecast.notify.line.tree import Frontier, Tree
from rangecast.notify.messages import FIRST_K, MIN_Y, Message, Work
from rangecast.notify.servers.wire import (
    EAST,
    WEST,
    Answer,
    FirstK,
    Lowest,
    MinY,
    Nearest,
    Question,
    WireObject,
)
from rangecast.notify.servers.zone import LineZone


class AnyPainting(Protocol):
    """A change in progress: `questions` are to be asked next; if there are none, it is done."""

    position: int
    """Position of the next message."""
    questions: list[Any]
    messages: list[Any]
    """Messages to send now."""

    @property
    def is_done(self) -> bool:
        """Whether no query or answer is outstanding."""

    def take(self, answer: Any) -> None:
        """Process an answer; continue after the last outstanding one."""


class AnyTiler(Protocol):
    """Working memory and counters of a server's paintings."""

    watches_interests: bool
    """Whether a server has interests at all."""
    hops: list[int]
    """Hops of queries, by kind."""

    @property
    def work(self) -> Sequence[int]:
        """Calls of each kind so far."""

    def paint(self, zone: Any, seq: int, position: int, old: WireObject, y: float) -> AnyPainting:
        """Begin to change an object's value to y; `position` is that of its first message."""

    def answer(self, zone: Any, asked: Any) -> Question | Answer:
        """Answer a question for the zone, or return what the next zone is asked."""


@jit
def _tile_changed(
    tree_table: I64,
    frontier_table: I64,
    scratch_table: I64,
    k: int,
    groups: int,
    uses_interests: bool,
    x: float,
    sweep: F64,
    work: I64,
) -> int:
    """Tile the staircase of a changed object at x with these lists; return the number of tiles."""
    tree, frontier = opened(tree_table, Tree), opened(frontier_table, Frontier)
    scratch = opened(scratch_table, Scratch)
    steps = steps_of(scratch, k, scratch.steps)
    tiles = tile_difference(x, scratch.steps, steps, scratch.other, 0, scratch.tiles)
    tiles = gather(scratch.tiles, tiles, groups)
    if uses_interests:
        start_frontier(tree, frontier, scratch, k, x)
        sweep[LEAST], sweep[LARGEST] = -np.inf, np.inf
        tiles = merge_tiles(tree, frontier, scratch.tiles, tiles, sweep, work)
    return tiles


@jit
def _write_search_range(
    tree_table: I64,
    frontier_table: I64,
    scratch_table: I64,
    k: int,
    uses_interests: bool,
    x: float,
    sweep: F64,
    work: I64,
) -> bool:
    """Write the range in which the next object can lie, LEAST to LARGEST; return False if it is
    empty.
    """
    tree, frontier = opened(tree_table, Tree), opened(frontier_table, Frontier)
    scratch = opened(scratch_table, Scratch)
    if uses_interests:
        start_frontier(tree, frontier, scratch, k, x)
        return reach(tree, frontier, scratch, k, x, sweep, work)
    sweep[LEAST] = np.nextafter(scratch.west[k], np.inf)
    sweep[LARGEST] = np.nextafter(scratch.east[k], -np.inf)
    return bool(scratch.west[k] < x)


@jit
def _tile_passed(
    tree_table: I64,
    frontier_table: I64,
    scratch_table: I64,
    k: int,
    groups: int,
    uses_interests: bool,
    x: float,
    position: float,
    sweep: F64,
    work: I64,
) -> int:
    """Move the object at x behind one at `position`, and tile the interests that gain that one."""
    tree, frontier = opened(tree_table, Tree), opened(frontier_table, Frontier)
    scratch = opened(scratch_table, Scratch)
    tiles = gather(scratch.tiles, tile_gain(scratch, k, x, position), groups)
    if uses_interests:
        start_frontier(tree, frontier, scratch, k, x)
        tiles = merge_tiles(tree, frontier, scratch.tiles, tiles, sweep, work)
    pass_by(scratch, k, x, position)
    return tiles


class Tiler:
    """Working memory and counters of the kernels."""

    def __init__(self, k: int, groups: int, *, uses_interests: bool):
        self.k = k
        self._groups = groups
        self.uses_interests = self.watches_interests = uses_interests
        self._scratch = Bundle(Scratch.of(k))
        self._frontier = Bundle(Frontier.empty())
        self._sweep = np.zeros(5)
        self._work = np.zeros(4, np.int64)
        self.hops = [0, 0]
        """Hops of queries, by kind: first_k, min_y."""

    @property
    def work(self) -> Work:
        """Calls of each kind so far."""
        return Work(*self._work.tolist())

    def count(self, kind: int, calls: int, hops: int = 0) -> None:
        """Count queries."""
        self._work[kind] += calls
        self.hops[kind] += hops

    def paint(self, zone: LineZone, seq: int, position: int, old: WireObject, y: float) -> Painting:
        """Begin to change an object's value to y; `position` is that of its first message."""
        return Painting(self, zone.index, seq, position, old, y)

    def answer(self, zone: LineZone, asked: FirstK | MinY) -> FirstK | MinY | Nearest | Lowest:
        """Answer a question for the zone, or return what the next zone is asked."""
        west = asked.towards == WEST
        beyond = math.nextafter(zone.lo, -math.inf) if west else zone.hi
        if isinstance(asked, FirstK):
            near = zone.nearest(asked.at, asked.y, asked.arrival, asked.wanted, east=not west)
            objects, missing = asked.found + near, asked.wanted - len(near)
            if missing and math.isfinite(beyond):
                return asked._replace(at=beyond, wanted=missing, found=objects)
            return Nearest(asked.home, asked.towards, objects, asked.hops)
        lo, hi = (asked.end, asked.at) if west else (asked.at, asked.end)
        limit = asked.limit_y, asked.limit_arrival
        best = zone.next_best(lo, hi, (asked.y, asked.arrival), limit)
        if best is not None:
            asked = asked._replace(best=best, limit_y=best.y, limit_arrival=best.arrival)
        if asked.end <= beyond if west else beyond <= asked.end:
            return asked._replace(at=beyond)
        return Lowest(asked.home, asked.towards, asked.best, asked.hops)

    def changed(
        self, index: Interests, x: float, west: tuple[float, ...], east: tuple[float, ...]
    ) -> F64:
        """Return the tiles of a changed object at x with these lists."""
        lists = self._scratch.arrays
        for side, values, rest in ((lists.west, west, -math.inf), (lists.east, east, math.inf)):
            side[0], side[1 : len(values) + 1], side[len(values) + 1 :] = x, values, rest
        tiles = _tile_changed(
            index.table,
            self._frontier.table,
            self._scratch.table,
            self.k,
            self._groups,
            self.uses_interests,
            x,
            self._sweep,
            self._work,
        )
        return lists.tiles[:tiles]

    def search_range(self, index: Interests, x: float) -> tuple[float, float] | None:
        """Return the range in which the next object can lie, `None` if it is empty."""
        is_found = _write_search_range(
            index.table,
            self._frontier.table,
            self._scratch.table,
            self.k,
            self.uses_interests,
            x,
            self._sweep,
            self._work,
        )
        return (float(self._sweep[LEAST]), float(self._sweep[LARGEST])) if is_found else None

    def passed(self, index: Interests, x: float, position: float) -> F64:
        """Move the object at x behind another; return the tiles of the other."""
        tiles = _tile_passed(
            index.table,
            self._frontier.table,
            self._scratch.table,
            self.k,
            self._groups,
            self.uses_interests,
            x,
            position,
            self._sweep,
            self._work,
        )
        return self._scratch.arrays.tiles[:tiles]


class Painting:
    """A change of one object: `questions` are to be asked next; if there are none, it is done."""

    def __init__(
        self, tiler: Tiler, index: Interests, seq: int, position: int, old: WireObject, y: float
    ):
        self._tiler = tiler
        self._index = index
        self._seq = seq
        self.position = position
        """Position of the next message."""
        self._old, self._y = old, y
        self._swept = old.y, old.arrival
        self._found: dict[int, tuple[float, ...]] = {}
        self._best: list[WireObject] = []
        self._awaited = 0
        self.questions: list[FirstK | MinY] = []
        self.messages: list[Message] = []
        """Messages to send now."""
        if y != old.y:
            tiler.count(FIRST_K, 2)
            wanted = min(y, old.y), old.arrival, tiler.k, (), 0
            self._ask(FirstK(old.x, WEST, old.x, *wanted))
            east = math.nextafter(old.x, math.inf)
            if east < math.inf:
                self._ask(FirstK(east, EAST, old.x, *wanted))
            else:
                self._found[EAST] = ()  # nothing lies east of the largest number

    def _ask(self, question: FirstK | MinY) -> None:
        self.questions.append(question)
        self._awaited += 1

    @property
    def is_done(self) -> bool:
        """Whether no query or answer is outstanding."""
        return not self._awaited

    def take(self, answer: Nearest | Lowest) -> None:
        """Process an answer; continue after the last outstanding one."""
        self._awaited -= 1
        if isinstance(answer, Nearest):
            self._tiler.count(FIRST_K, 0, answer.hops)
            self._found[answer.towards] = answer.found
            if not self._awaited:
                self._begin()
            return
        self._tiler.count(MIN_Y, 0, answer.hops)
        if answer.best is not None:
            self._best.append(answer.best)
        if not self._awaited and self._best:
            self._pass_by(min(self._best))

    def _begin(self) -> None:
        values = self._found
        tiles = self._tiler.changed(self._index, self._old.x, values[WEST], values[EAST])
        self._send(self._old._replace(y=self._y), tiles)
        if self._y > self._old.y:
            self._look_further()

    def _pass_by(self, next_one: WireObject) -> None:
        self._send(next_one, self._tiler.passed(self._index, self._old.x, next_one.x))
        self._swept = next_one.y, next_one.arrival
        self._look_further()

    def _look_further(self) -> None:
        self._best = []
        self._tiler.count(MIN_Y, 1)
        x = self._old.x
        outlook = self._tiler.search_range(self._index, x)
        if outlook is None:
            return
        lo, hi = outlook
        limit = self._old.arrival if self._y < math.inf else -1
        key = (*self._swept, self._y, limit, None, 0)
        self._ask(MinY(x, WEST, x, lo, *key))
        east = math.nextafter(x, math.inf)
        if east <= hi and east < math.inf:
            self._ask(MinY(east, EAST, x, hi, *key))

    def _send(self, thing: WireObject, tiles: F64) -> None:
        for left_outer, left_inner, right_inner, right_outer in tiles.tolist():
            self.messages.append(
                Message(
                    self._seq,
                    self.position,
                    thing.object,
                    thing.x,
                    thing.y,
                    left_inner,
                    right_inner,
                    left_outer,
                    right_outer,
                    thing.arrival,
                )
            )
            self.position += 1
