"""VCR index: boxes cut into virtual construct rectangles, an id list for each (paper 002).

Two attributes are indexed. `frame` turns coordinates into points of a grid, and the geometry of
`rectangles` works on those: on integers it is the paper's, closed ends and all. The VCRs that cover
an event lie at the distances of one table from its pivot; the answer is in their lists (`idlists`,
direct or hashed). `filing` cuts boxes and edits the lists, when the index is built and later.

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
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle, opened
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.papers.vcr import idlists
from rangecast.match.papers.vcr.filing import (
    APPEND,
    COUNT,
    DONE,
    FULL_POOL,
    PUT,
    REMOVE,
    file_boxes,
)
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
from rangecast.match.papers.vcr.held import Held, HeldBoxes
from rangecast.match.papers.vcr.idlists import Lists, copy, slot_of
from rangecast.match.papers.vcr.rectangles import choose_sides
from rangecast.match.result import BUFFER, MatchRows, Step, collect, stream
from rangecast.match.shared.candidates import Sample, edges_at_bounds, held_before, holds
from rangecast.model.boxes import Boxes, as_points
from rangecast.model.index_options import Option, Options, flag, whole

_DIRECT_BYTES, _MAX_DIRECT = 1 << 26, 1 << 31
"""Bytes of direct lists up to which they are chosen, and up to which they can be asked for."""
_MAX_CELLS = 1 << 15
_GROW_AT = 0.6


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
            if lists.totals[section] == 0:
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


class EditWork(NamedTuple):
    """Work of edits: the same on every machine."""

    lists: int
    """Lists that an id was added to, or removed from."""
    ids: int
    """Ids that were read to find one, or that moved with their list."""

    def plus(self, other: EditWork) -> EditWork:
        """Return the sum."""
        return EditWork(self.lists + other.lists, self.ids + other.ids)


class Vcr:
    """All matches of each event from the lists of the VCRs that cover it."""

    name = "vcr"
    options: ClassVar[Options] = {
        "side": Option("sides", SIDES, read_sides),
        "overlapped": flag("overlapped"),
        "hash": flag("hashed"),
        "cells": whole("cells", 2, _MAX_CELLS),
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
        if not 2 <= cells <= _MAX_CELLS or pieces < 1 or (slots is not None and slots < 1):
            takes = f"cells must be 2 to {_MAX_CELLS}, pieces and slots 1 or more"
            raise UsageError(f"{takes}; given: {cells}, {pieces}, {slots}")
        sample = Sample(boxes)
        axes = sample.axes(2) if axes is None else tuple(axes)
        if len(axes) not in (1, 2) or len(set(axes) & set(range(boxes.dimensions))) != len(axes):
            axes_ = f"{axes} of 0 .. {boxes.dimensions - 1}"
            raise UsageError(f"axes must be one attribute or two different ones; given: {axes_}")
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
        self._frame = Bundle(frame_of(axes, cut_at, levels, overlapped, pieces))
        self._held = HeldBoxes(boxes, axes)
        vcrs = int(self._frame.arrays.sections[3, 0]) + 1
        if hashed is None:
            hashed = vcrs * 8 > _DIRECT_BYTES
        if not hashed and vcrs * 8 > _MAX_DIRECT:
            raise UsageError(
                f"lists for all of {vcrs:,} VCRs need {8 * vcrs:,} bytes, at most "
                f"{_MAX_DIRECT:,} can be used: hash them, or take fewer cells"
            )
        self._fullest = _GROW_AT if slots is None else 0.95
        self._lists = idlists.hashed(slots or 1024) if hashed else idlists.direct(vcrs)
        new = np.arange(len(boxes.lo))
        self._file(new, COUNT)
        self._lists = idlists.laid_out(self._lists)
        self._file(new, PUT)
        self._lists, self._edit_work = idlists.finished(self._lists), EditWork(0, 0)

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
        return int(np.diff(ends)[self._lists.arrays.totals > 0].sum())

    @property
    def entries(self) -> int:
        """Ids in all lists: the VCRs that each box was cut into, added up."""
        return int(self._lists.arrays.totals.sum())

    @property
    def active(self) -> int:
        """VCRs that some box was cut into."""
        return int(np.count_nonzero(self._lists.arrays.length))

    @property
    def slots(self) -> int:
        """Places for lists: all VCRs there could be (direct), or the size of the hash table."""
        return len(self._lists.arrays.start)

    @property
    def edit_work(self) -> EditWork:
        """Work of all insertions and deletions so far."""
        return self._edit_work

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
        done, filled = _match_one(*self._tables, self._held.is_plain, points, rows)
        return rows[:filled].copy() if done else self.match(points).rows

    @property
    def _tables(self) -> tuple[I64, I64, I64]:
        return self._frame.table, self._lists.table, self._held.bundle.table

    def _step(self, points: F64) -> Step:
        arguments = self._held.is_plain, as_points(points, self.dimensions)
        # Tables are addresses of arrays: the step holds the index, or they would be gone with it.
        return lambda *place: _match_all(*self._tables, *arguments, *place)

    def insert(self, boxes: Boxes) -> I32:
        """Add subscriptions; return their rows, which follow those there were.

        Axes, cells and sides stay as they are. No match may run at the same time.
        """
        count, rows = self._held.count, self._held.rows
        self._lists = idlists.editable(self._lists)
        new = self._held.add(boxes)
        slot = np.zeros(2, np.int64)
        try:
            work = self._file(new, APPEND, slot)
        except BaseException:
            self._file(new, REMOVE, until=slot)
            self._held.take_back(count, rows)
            raise
        self._edit_work = self._edit_work.plus(work)
        return np.arange(rows, self._held.rows, dtype=np.int32)

    def delete(self, rows: npt.ArrayLike) -> None:
        """Remove subscriptions by row; their rows aren't used again.

        No match may run at the same time.
        """
        boxes = self._held.boxes_of(rows)
        self._lists = idlists.editable(self._lists)
        self._edit_work = self._edit_work.plus(self._file(boxes, REMOVE))
        self._held.forget(rows)

    def _file(
        self, boxes: I64, mode: int, slot: I64 | None = None, until: I64 | None = None
    ) -> EditWork:
        """Count, put, append or remove the entries of boxes.

        `slot` notes how far it came, should it fail; `until` is such a place.
        """
        slot = np.zeros(2, np.int64) if slot is None else slot
        until = np.array([len(boxes), 0]) if until is None else until
        frame = self._frame.arrays
        cuts = np.empty((4, max(len(frame.edges_x), len(frame.edges_y)) + 3), np.int64)
        work = np.zeros(2, np.int64)
        while True:
            full = file_boxes(*self._tables, boxes, cuts, slot, until, work, mode, self._fullest)
            if full == DONE:
                return EditWork(int(work[0]), int(work[1]))
            grow = idlists.with_larger_pool if full == FULL_POOL else idlists.with_more_slots
            self._lists = grow(self._lists)
