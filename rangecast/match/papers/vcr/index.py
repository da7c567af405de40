"""VCR index: boxes cut into virtual construct rectangles, an id list for each (paper 002).

Two attributes are indexed. `vcr_frame` turns coordinates into points of a grid, and the geometry
of `rectangles` works on those: on integers it is the paper's, closed ends and all. The VCRs that
cover an event lie at the distances of one table from its pivot; the answer is in their lists
(`idlists`, direct or hashed).

Beyond the paper:
- An entry of a list is a box, or `~box` where it is in doubt: the VCR reaches past an end of the
  box (which doesn't lie on the grid, or has no width and was widened), or the box mentions an
  attribute that isn't indexed, or meets another box of its subscription. Only entries in doubt
  are compared with the event.
- A box is in the lists of up to four VCRs that cover a point (more if overlapped): the first
  reports it.
- A whole axis is a VCR side of its own, so a box that doesn't mention an attribute is cut along
  the other one only. A box that would make more than `pieces` VCRs is widened to a whole axis,
  and in doubt.
- Lx and Ly are chosen by a cost model over a sample of the boxes: `choose_sides`.

Cost of an event: its covering VCRs, (2 Lx + kx)(2 Ly + ky) for whole numbers where boxes are cut
both ways (`visited`), and their entries; `tested` counts boxes compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.grid import MAX
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.candidates import (
    Sample,
    earlier_boxes,
    edges_at_bounds,
    held_before,
    holds,
    stand_alone,
)
from rangecast.match.papers.vcr import idlists
from rangecast.match.papers.vcr.frame import (
    SIDES,
    Frame,
    edges_of,
    frame_of,
    levels_of,
    locate,
    read_sides,
    widths_on_grid,
)
from rangecast.match.papers.vcr.idlists import Lists, NewLists, claim, copy, put, slot_of
from rangecast.match.papers.vcr.rectangles import choose_sides, cut, lap_of
from rangecast.match.result import BUFFER, MatchRows, Step, collect, stream
from rangecast.model.boxes import Boxes, as_points
from rangecast.model.index_options import Option, Options, flag, whole

_DIRECT_BYTES, _MOST_DIRECT = 1 << 26, 1 << 31
"""Bytes of direct lists up to which they are chosen, and up to which they can be asked for."""
_MOST_CELLS = 1 << 15
_GROW_AT = 0.6


class Held(NamedTuple):
    """The boxes."""

    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    owner: I32
    earlier: I32
    """See `earlier_boxes`."""
    alone: Bool
    """Meets no other box of its subscription, and mentions only indexed attributes."""
    totals: I64
    """(4,) entries by section; zeros while they are counted."""


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
def _file(
    frame_table: I64,
    lists_table: I64,
    held_table: I64,
    totals: I64,
    cuts: I64,
    place: I64,
    counting: bool,
    fullest: float,
) -> bool:
    """Cut boxes and count, or put, an entry in the list of each of their VCRs.

    Begins at piece place[1] of box place[0]; if slots are full, stops there and returns False.
    `cuts` is scratch; `totals` counts entries by section.
    """
    frame, held = opened(frame_table, Frame), opened(held_table, Held)
    lists = opened(lists_table, NewLists)
    kx, ky, overlapped, limit = frame.rules
    while place[0] < len(held.lo):
        box = place[0]
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
        while place[1] < nx * ny:
            p, q = place[1] % nx, place[1] // nx
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
                return False
            if counting:
                lists.length[slot] += 1
            else:
                put(lists, slot, entry, lap_x, lap_y)
                totals[section] += 1
            place[1] += 1
        place[0] += 1
        place[1] = 0
    return True


@jit
def _match(
    frame: Frame,
    lists: Lists,
    held: Held,
    plain: bool,
    points: F64,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """A `Step`; the cursor is (place in the table) * 2^32 + entry. `plain`: boxes are rows."""
    filled = visited = tested = 0
    while event < len(points):
        begun, point = filled, points[event]
        x, past_x = locate(frame.edges_x, point[frame.axes[0]])
        y, past_y = 0, True
        if frame.axes[1] >= 0:
            y, past_y = locate(frame.edges_y, point[frame.axes[1]])
        for section in range(4):
            if held.totals[section] == 0:
                continue
            base, ux, uy, _ = frame.sections[section]
            pivot = base + ux * x + uy * y
            for t in range(max(frame.ends[section], cursor >> 32), frame.ends[section + 1]):
                before_x, side_x = frame.before[t, 0], frame.sides[t, 0]
                before_y, side_y = frame.before[t, 1], frame.sides[t, 1]
                if (past_x and 0 < side_x == before_x) or (past_y and 0 < side_y == before_y):
                    continue  # it ends at the point that the event lies past
                slot = slot_of(lists.keys, pivot + frame.distance[t])
                count = lists.length[slot]
                skip = 0
                if t == cursor >> 32:
                    skip = cursor & 0xFFFFFFFF
                visited += 1
                if count == 0:
                    continue
                start = lists.start[slot]
                fits = plain and frame.apart[t] and skip == 0 and count <= len(rows) - filled
                if fits and copy(lists.pool, start, count, rows, filled):
                    filled += count
                    continue
                into_x, into_y = before_x + past_x, before_y + past_y
                for i in range(start + skip, start + count):
                    if filled == len(rows):
                        counts[event] += filled - begun
                        return event, (t << 32) + i - start, filled, visited - 1, tested
                    entry = lists.pool[i]
                    box = entry if entry >= 0 else ~entry
                    # Without a branch: whether this list is the first can't be predicted.
                    keep = (into_x > lists.notes[i, 0]) & (into_y > lists.notes[i, 1])
                    if entry < 0 and keep:
                        tested += 1
                        keep = holds(held.lo, held.hi, box, point)
                        if keep:
                            keep = not held_before(held.lo, held.hi, held.earlier, box, point)[0]
                    rows[filled] = box if plain else held.owner[box]
                    filled += keep
        counts[event] += filled - begun
        event += 1
        cursor = 0
    return event, 0, filled, visited, tested


@jit
def _match_all(
    frame_table: I64,
    lists_table: I64,
    held_table: I64,
    plain: bool,
    points: F64,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """Do what `_match` does, for a batch."""
    frame, held = opened(frame_table, Frame), opened(held_table, Held)
    lists = opened(lists_table, Lists)
    return _match(frame, lists, held, plain, points, event, cursor, rows, counts)


@jit_single
def _match_one(
    frame_table: I64, lists_table: I64, held_table: I64, plain: bool, points: F64, rows: I32
) -> tuple[int, int]:
    """Return (1 if the event is done, rows)."""
    frame, held = opened(frame_table, Frame), opened(held_table, Held)
    lists = opened(lists_table, Lists)
    counts = np.zeros(1, np.int64)
    zero = counts[0]  # for a literal 0 numba would compile another version
    event, _, filled, _, _ = _match(frame, lists, held, plain, points, zero, zero, rows, counts)
    return event, filled


class Vcr:
    """All matches of each event from the lists of the VCRs that cover it."""

    name = "vcr"
    options: ClassVar[Options] = {
        "side": Option("sides", SIDES, read_sides),
        "overlapped": flag("overlapped"),
        "hash": flag("hashed"),
        "cells": whole("cells", 2, _MOST_CELLS),
    }

    def __init__(
        self,
        boxes: Boxes,
        *,
        overlapped: bool = False,
        hashed: bool | None = None,
        sides: tuple[int, int] | None = None,
        axes: Sequence[int] | None = None,
        edges: Sequence[npt.ArrayLike] | None = None,
        cells: int = 512,
        pieces: int = 128,
        slots: int | None = None,
    ):
        """Build from boxes; what isn't given is chosen by looking at them.

        `sides`: the largest VCR (Lx, Ly), powers of two. `axes`: the one or two attributes to
        index, with `edges` of their cells, or at most `cells` an axis. `hashed`: False takes 8
        bytes for every VCR there could be, True a table of those in use, of `slots` at first.
        """
        if not 2 <= cells <= _MOST_CELLS or pieces < 1 or (slots is not None and slots < 1):
            takes = f"cells takes 2 to {_MOST_CELLS}, pieces and slots 1 or more"
            raise UsageError(f"{takes}; given: {cells}, {pieces}, {slots}")
        sample = Sample(boxes)
        axes = sample.axes(2) if axes is None else tuple(axes)
        if len(axes) not in (1, 2) or len(set(axes) & set(range(boxes.dimensions))) != len(axes):
            given = f"{axes} of 0 .. {boxes.dimensions - 1}"
            raise UsageError(f"axes takes one attribute or two different ones; given: {given}")
        if edges is None:
            edges = [edges_at_bounds(boxes.lo[:, j], boxes.hi[:, j], cells) for j in axes]
        cut_at = edges_of(edges, len(axes))
        self._expected = sample.matches(axes)
        if sides is None:
            levels = choose_sides(
                widths_on_grid(sample, axes, cut_at),
                (len(cut_at[0]) + 3, len(cut_at[1]) + 3),
                self._expected,
                sample.scale,
                overlapped,
                pieces,
            )
        else:
            levels = levels_of(sides)
        self.dimensions = boxes.dimensions
        self._plain = len(boxes.lo) == boxes.rows
        self._frame = Bundle(frame_of(axes, cut_at, levels, overlapped, pieces))
        alone = np.empty(len(boxes.lo), np.bool_)
        stand_alone(boxes.lo, boxes.hi, boxes.owner, alone)
        alone &= ~np.delete(boxes.mentions, axes, axis=1).any(axis=1)
        earlier = earlier_boxes(boxes, np.arange(len(boxes.lo)))
        totals = np.zeros(4, np.int64)
        held = Held(boxes.lo, boxes.hi, boxes.owner, earlier, alone, totals.copy())
        self._held = Bundle(held)
        vcrs = int(self._frame.arrays.sections[3, 0]) + 1
        if hashed is None:
            hashed = vcrs * 8 > _DIRECT_BYTES
        if not hashed and vcrs * 8 > _MOST_DIRECT:
            raise UsageError(
                f"lists for all of {vcrs:,} VCRs need {8 * vcrs:,} bytes, at most "
                f"{_MOST_DIRECT:,} can be used: hash them, or take fewer cells"
            )
        fullest = _GROW_AT if slots is None else 0.95
        lists = idlists.hashed(slots or 1024) if hashed else idlists.direct(vcrs)
        lists = self._filed(lists, totals, fullest, counting=True)
        lists = self._filed(idlists.laid_out(lists), totals, fullest, counting=False)
        self._lists = Bundle(Lists(*lists.arrays))
        self._held = self._held.replaced(totals=totals)

    @property
    def axes(self) -> tuple[int, ...]:
        """The indexed attributes."""
        return tuple(int(axis) for axis in self._frame.arrays.axes if axis >= 0)

    @property
    def sides(self) -> tuple[int, int]:
        """The largest VCR, (Lx, Ly) in cells."""
        rules = self._frame.arrays.rules
        return 1 << int(rules[0]), 1 << int(rules[1])

    @property
    def covering(self) -> int:
        """Number of VCRs that an event looks at."""
        ends = self._frame.arrays.ends
        return int(np.diff(ends)[self._held.arrays.totals > 0].sum())

    @property
    def entries(self) -> int:
        """Ids in all lists: the VCRs that each box was cut into, added up."""
        return int(self._held.arrays.totals.sum())

    @property
    def active(self) -> int:
        """VCRs that some box was cut into."""
        return int(np.count_nonzero(self._lists.arrays.length))

    @property
    def slots(self) -> int:
        """Places for lists: all VCRs there could be (direct), or the size of the hash table."""
        return len(self._lists.arrays.start)

    @property
    def memory(self) -> int:
        """Bytes of all arrays, boxes included."""
        return self._frame.memory + self._lists.memory + self._held.memory

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events at once."""
        expected = int(1.2 * self._expected * len(points))
        return collect(self._step(points), len(points), expected)

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in pieces of at most `buffer` rows."""
        return stream(self._step(points), len(points), buffer)

    def match_one(self, point: F64) -> I32:
        """Return the rows of one event, (d,)."""
        points = as_points(point, self.dimensions, one=True).reshape(1, -1)
        rows = np.empty(int(2 * self._expected) + 1024, np.int32)
        done, filled = _match_one(*self._tables, self._plain, points, rows)
        return rows[:filled].copy() if done else self.match(points).rows

    @property
    def _tables(self) -> tuple[I64, I64, I64]:
        return self._frame.table, self._lists.table, self._held.table

    def _step(self, points: F64) -> Step:
        given = *self._tables, self._plain, as_points(points, self.dimensions)
        return lambda event, cursor, rows, counts: _match_all(*given, event, cursor, rows, counts)

    def _filed(
        self, lists: Bundle[NewLists], totals: I64, fullest: float, *, counting: bool
    ) -> Bundle[NewLists]:
        """Return the lists with all entries counted, or put."""
        place = np.zeros(2, np.int64)
        frame = self._frame.arrays
        cuts = np.empty((4, max(len(frame.edges_x), len(frame.edges_y)) + 3), np.int64)
        while True:
            tables = self._frame.table, lists.table, self._held.table
            if _file(*tables, totals, cuts, place, counting, fullest):
                return lists
            lists = idlists.with_more_slots(lists)
