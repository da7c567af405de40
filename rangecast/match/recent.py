"""The newest rows of a live set, too few to index: each compared with the event, compiled.

Works on the sparse bounds of `model.rowstore` between two rows; a box costs as many comparisons as
it mentions attributes, and stops at the first that fails. Work: rows tested. For a single event the
GIL is kept: it is done sooner than a busy thread would give it back.
"""

from __future__ import annotations

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.result import MatchRows, collect
from rangecast.model.rowstore import Bounds, RowArrays


@jit
def _holds(bounds: Bounds, row: int, point: F64) -> bool:
    """Whether one of the boxes of a row holds a point."""
    for box in range(bounds.first_box[row], bounds.first_box[row + 1]):
        held = True
        for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
            value = point[bounds.axis[term]]
            if not (bounds.lo[term] <= value <= bounds.hi[term]):
                held = False
                break
        if held:
            return True
    return False


@jit
def _scan(
    table: I64,
    died: I64,
    edit: int,
    start: int,
    end: int,
    points: F64,
    event: int,
    cursor: int,
    rows: I32,
    counts: I64,
) -> tuple[int, int, int, int, int]:
    """The `Step` of `match.result`; `cursor` is how many rows of the event are done."""
    bounds = pointers(opened(table, Bounds))
    filled = tested = 0
    while event < len(points):
        for row in range(start + cursor, end):
            if died[row] <= edit:
                continue
            if _holds(bounds, row, points[event]):
                if filled == len(rows):
                    return event, row - start, filled, 0, tested
                rows[filled] = row
                filled += 1
                counts[event] += 1
            tested += 1
        event += 1
        cursor = 0
    return event, 0, filled, 0, tested


@jit_single
def _scan_one(
    table: I64,
    died: I64,
    edit: int,
    start: int,
    end: int,
    point: F64,
    rows: I32,
    filled: int,
) -> int:
    """Append the rows that hold a point; return how far `rows` is filled."""
    bounds = pointers(opened(table, Bounds))
    for row in range(start, end):
        if died[row] > edit and _holds(bounds, row, point):
            rows[filled] = row
            filled += 1
    return filled


def match_one_recent(
    rows: RowArrays, edit: int, start: int, end: int, point: F64, out: I32, filled: int
) -> int:
    """Append which of the rows from `start` to before `end` live at an edit and hold one event.

    Returns how far `out` is filled.
    """
    return _scan_one(rows.bounds.table, rows.died, edit, start, end, point, out, filled)


def match_recent(rows: RowArrays, edit: int, start: int, end: int, points: F64) -> MatchRows:
    """Return which of the rows from `start` to before `end` live at an edit and hold each point."""
    table, died = rows.bounds.table, rows.died

    def step(event: int, cursor: int, found: I32, counts: I64) -> tuple[int, int, int, int, int]:
        return _scan(table, died, edit, start, end, points, event, cursor, found, counts)

    return collect(step, len(points), len(points))
