"""Matching a live set: what its parts find, dead rows left out, as one answer in the set's rows.

Each view has structures of its own without the rows that are dead in it (`match.sifted`). They
share all but some bits with those of the view before, and are made for the first answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit
from rangecast.match.cells.index import Cells
from rangecast.match.choose import Index
from rangecast.match.recent import Recent
from rangecast.match.result import MatchRows, Work
from rangecast.match.sifted import without
from rangecast.match.slabs.index import Slabs
from rangecast.model.liveview import IndexPart, LiveView

_FIRST, _LEAST = 512, 64
"""Events that are matched at first, and at least."""
_ROWS = 1 << 20
"""Matches of the first part that are found before others are put behind them, about."""

View = LiveView[Index, Any]
Part = IndexPart[Index, Any]


@jit
def _join(
    offsets: I64, rows: I32, other_offsets: I64, other_rows: I32, out_offsets: I64, out: I32
) -> None:
    """Write the rows of each event, then its other rows."""
    at = 0
    for event in range(len(offsets) - 1):
        out_offsets[event] = at
        start, end = offsets[event], offsets[event + 1]
        for i in range(end - start):
            out[at + i] = rows[start + i]
        at += end - start
        start, end = other_offsets[event], other_offsets[event + 1]
        for i in range(end - start):
            out[at + i] = other_rows[start + i]
        at += end - start
    out_offsets[len(offsets) - 1] = at


def match_one_live(view: View, point: F64) -> I32:
    """Return the live rows that hold one event, (d,); its work isn't counted.

    The array of the event is made read-only, so that kernels have one signature.
    """
    point.flags.writeable = False
    if view.is_plain:
        return view.parts[0].index.match_one(point)
    indexes = _living(view)
    found = [] if view.indexed == view.count else [_recent(view, len(point)).match_one(point)]
    for part, index in zip(view.parts[1:], indexes[1:], strict=True):
        found.append(part.set_rows[index.match_one(point)])
    if not indexes:
        return found[0] if found else np.empty(0, np.int32)
    others = found[0] if len(found) == 1 else np.concatenate(found) if found else None
    base, index = view.parts[0], indexes[0]
    if base.is_whole and others is not None and isinstance(index, Cells | Slabs):
        return index.match_one(point, others)
    rows = index.match_one(point)
    rows = rows if base.is_whole else base.set_rows[rows]
    return rows if others is None else np.concatenate([rows, others])


def match_live(view: View, points: F64) -> MatchRows:
    """Return the live rows that hold each event, (events, d)."""
    if view.is_plain:
        return view.parts[0].index.match(points)
    if not view.parts:
        return _recent(view, points.shape[1]).match(points)
    base, index = view.parts[0], _living(view)[0]
    if len(view.parts) == 1 and view.indexed == view.count:
        return _renumbered(index.match(points), base)
    if isinstance(index, Cells) and base.is_whole:
        others = _match_others(view, points)
        found = index.match(points, others)
        return found._replace(work=found.work.plus(others.work))
    return _match_joined(view, points)


def _match_joined(view: View, points: F64) -> MatchRows:
    """Do the same, some events at a time: only the answer itself takes new memory."""
    base, index = view.parts[0], _living(view)[0]
    offsets = np.zeros(len(points) + 1, np.int64)
    rows = np.empty(0, np.int32)
    work = Work()
    first, at, take = 0, 0, _FIRST
    while first < len(points):
        last = min(first + take, len(points))
        others = _match_others(view, points[first:last])
        found = _renumbered(index.match(points[first:last]), base)
        end = at + len(found.rows) + len(others.rows)
        if end > len(rows):
            room = end if last == len(points) else int(1.1 * end * len(points) / last)
            rows, so_far = np.empty(room, np.int32), rows
            rows[:at] = so_far[:at]
        mine = offsets[first : last + 1]
        _join(found.offsets, found.rows, others.offsets, others.rows, mine, rows[at:])
        mine += at
        at = int(mine[-1])
        work = work.plus(found.work).plus(others.work)
        first, take = last, max(_LEAST, _ROWS * last // max(1, at))
    return MatchRows(offsets, rows[:at], work)


def _living(view: View) -> tuple[Index, ...]:
    """Return the structures of all parts without the rows that are dead in this view."""
    if not view.living:
        view.living.append(tuple(_without_dead(view, part) for part in view.parts))
    return view.living[0]


def _without_dead(view: View, part: Part) -> Index:
    """Return the structure of a part, made from the one of an earlier view if there is one."""
    counted, index = part.sifted[0] if part.sifted else (0, part.index)
    if counted > view.dead:  # a later view was first
        counted, index = 0, part.index
    dead = part.own_rows(view.rows.deaths[counted : view.dead])
    if len(dead):
        index = without(index, dead, len(part.set_rows))
    part.sifted[:] = [(view.dead, index)]
    return index


def _renumbered(found: MatchRows, part: Part) -> MatchRows:
    """Return what a part found in the set's own rows."""
    return found if part.is_whole else found._replace(rows=part.set_rows[found.rows])


def _recent(view: View, dimensions: int) -> Recent:
    """Return the newest rows that live, which are in no part."""
    if not view.recent:
        start, end = view.indexed, view.count
        view.recent.append(Recent(view.rows, view.edit, start, end, dimensions))
    newest: Recent = view.recent[0]
    return newest


def _match_others(view: View, points: F64) -> MatchRows:
    """Return the live rows of all but the first part, which is by far the largest."""
    found = [
        _renumbered(index.match(points), part)
        for part, index in zip(view.parts[1:], _living(view)[1:], strict=True)
    ]
    if view.indexed < view.count:
        found.append(_recent(view, points.shape[1]).match(points))
    joined = found[0]
    for one in found[1:]:
        offsets = np.empty_like(joined.offsets)
        rows = np.empty(len(joined.rows) + len(one.rows), np.int32)
        _join(joined.offsets, joined.rows, one.offsets, one.rows, offsets, rows)
        joined = MatchRows(offsets, rows, joined.work.plus(one.work))
    return joined
