"""Slabs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.bits import LANES
from rangecast.match.result import BUFFER, Counts, Matches, Rows, collect, stream
from rangecast.match.slabs_layout import Floats, lay_out
from rangecast.match.slabs_search import (
    TABLE_ROWS,
    Scratch,
    by_event,
    encode,
    search_batch,
    search_single,
    tabulate,
)
from rangecast.model.boxes import Boxes

_PAIRS = 1 << 21
_TABLE_BYTES = 1 << 20
_CHUNKS = 8


class Slabs:
    name = "slabs"

    def __init__(self, boxes: Boxes):
        self.layout = lay_out(boxes)
        self.dimensions = boxes.dimensions

    @property
    def memory(self) -> int:
        return sum(array.nbytes for array in self.layout)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for array in state["layout"]:
            array.flags.writeable = False
        self.__dict__.update(state)

    def _checked(self, points: Floats, shape: tuple[int, ...]) -> Floats:
        """Return a read-only view of events, so that a kernel sees one type."""
        given = np.ascontiguousarray(points, np.float64).view()
        if given.shape != shape:
            raise UsageError(
                f"events of this space have {self.dimensions} attributes, so the shape {shape}; "
                f"given: {given.shape}"
            )
        given.flags.writeable = False
        return given

    def match(self, points: Floats) -> Matches:
        batch = _Batch(self, points)
        return collect(batch, len(points), batch.expected())

    def stream(self, points: Floats, buffer: int = BUFFER) -> Iterator[tuple[int, Matches]]:
        return stream(_Batch(self, points), len(points), buffer)

    def match_one(self, point: Floats) -> Rows:
        point = self._checked(point, (self.dimensions,))
        rows = np.empty(1024, np.int32)
        run, block, filled, _, _ = search_single(self.layout, point, 0, 0, rows)
        while run < len(self.layout.runs) - 1:
            rows = np.concatenate([rows[:filled], np.empty(3 * len(rows), np.int32)])
            run, block, more, _, _ = search_single(self.layout, point, run, block, rows[filled:])
            filled += more
        return rows[:filled]


class _Batch:
    """A `Step` over some events: searches as many at a time as suits, hands over what fits.

    What was found and not yet handed over stays here, so nothing is searched twice.
    """

    def __init__(self, slabs: Slabs, points: Floats):
        self.layout = slabs.layout
        self.points = slabs._checked(points, (len(points), slabs.dimensions))
        fit = _TABLE_BYTES // (slabs.dimensions * TABLE_ROWS * LANES // 8)
        self.chunks = max(1, min(fit, _CHUNKS, -(-len(points) // LANES)))
        self.scratch = Scratch.for_events(slabs.dimensions, self.chunks)
        self.pairs = np.empty(max(_PAIRS, len(self.layout.owner)) + 4, np.int64)
        self.found = 0
        self.take = LANES
        self.first = self.last = 0
        self.offsets = np.zeros(1, np.int64)
        self.rows = np.empty(0, np.int32)
        self.visited = self.tested = 0

    def expected(self) -> int:
        """Search some events and guess how many matches all of them will have."""
        if not len(self.points):
            return 0
        self.search()
        return int(1.1 * self.found / self.last * len(self.points)) + 1024

    def __call__(
        self, event: int, cursor: int, rows: Rows, counts: Counts
    ) -> tuple[int, int, int, int, int]:
        filled = 0
        while event < len(counts) and filled < len(rows):
            if event == self.last:
                self.search()
            mine = self.offsets[event - self.first :]
            begin = mine[0] + cursor
            end = min(begin + len(rows) - filled, mine[-1])
            rows[filled : filled + end - begin] = self.rows[begin:end]
            filled += end - begin
            whole = int(np.searchsorted(mine, end, side="right")) - 1
            upto = np.clip(mine[: whole + 2], begin, end)
            counts[event : event + len(upto) - 1] += np.diff(upto)
            event += whole
            cursor = int(end - mine[whole])
        visited, tested = self.visited, self.tested
        self.visited = self.tested = 0
        return event, cursor, filled, visited, tested

    def search(self) -> None:
        """Find all matches of the next events."""
        layout = self.layout
        while True:
            points = self.points[self.last : self.last + self.take]
            chunks = -(-len(points) // LANES)
            codes = np.empty(points.shape, np.uint8)
            encode(layout.edges, layout.first_edge, points, codes)
            tabulate(codes, chunks, self.scratch.table)
            self.found, visited, tested = search_batch(
                layout, points, codes, chunks, self.scratch, self.pairs
            )
            self.visited += visited
            self.tested += tested
            if self.found >= 0:
                break
            self.take = max(1, self.take // 4)
        self.rows = np.empty(self.found, np.int32)
        self.offsets = np.empty(len(points) + 1, np.int64)
        by_event(self.pairs[: self.found], layout.owner, self.offsets, self.rows)
        self.first, self.last = self.last, self.last + len(points)
        fit = int(len(self.pairs) / 2 / max(1.0, self.found / len(points)))
        self.take = max(1, min(fit, self.chunks * LANES))
        if self.take > LANES:
            self.take = self.take // LANES * LANES
