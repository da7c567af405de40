"""Matching a live set: what its parts find as one answer, rows renumbered, dead ones left out.

The kernel is short and keeps the GIL: giving it up beside a busy thread costs far more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U32
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.choose import Index
from rangecast.match.recent import match_one_recent, match_recent
from rangecast.match.result import MatchRows, Work
from rangecast.match.slabs.index import Slabs
from rangecast.model.boxes import Boxes
from rangecast.model.liveview import IndexPart, LiveView
from rangecast.model.rowstore import bounds_of

_CHUNK = 32
"""Rows that are looked at together."""
_FIRST, _LEAST = 512, 64
"""Events that are matched at first, and at least."""
_WORTH_INDEXING = 100_000
"""Comparisons of newest rows with events beyond which a structure over those rows pays."""
_ROWS = 1 << 20
"""Matches that are found before they are sifted, about."""

View = LiveView[Index, Any]
Part = IndexPart[Index, Any]


@jit
def _is_gone(gone: Any, died: I64, edit: int, row: int) -> bool:
    return bool((gone[row >> 5] >> np.uint32(row & 31)) & np.uint32(1)) and died[row] <= edit


@jit_single
def _sift_one(
    found: I32, set_rows: I32, gone: U32, died: I64, edit: int, out: I32, filled: int
) -> int:
    """Append the live rows of one event, `set_rows` as for `_merge`; return how far it came."""
    renumber = len(set_rows) > 0
    marks, rows, written = pointer(gone, 0), pointer(found, 0), pointer(out, 0)
    for i in range(len(found)):
        row = set_rows[rows[i]] if renumber else rows[i]
        written[filled] = row
        filled += not _is_gone(marks, died, edit, row)
    return filled


@jit_single
def _merge(
    offsets: I64,
    rows: I32,
    set_rows: I32,
    gone: U32,
    died: I64,
    edit: int,
    other_offsets: I64,
    other_rows: I32,
    out_offsets: I64,
    out: I32,
) -> None:
    """Write the live rows of each event, then the other rows of that event.

    `set_rows` are the set's own rows, none if the given ones are that already. `gone` has a bit
    for every row that was ever removed: it is small enough to stay in the cache, and the few rows
    that it marks are looked up in `died`. Most chunks of rows have none: they are copied whole.
    """
    at = 0
    renumber = len(set_rows) > 0
    marks, given, written = pointer(gone, 0), pointer(rows, 0), pointer(out, 0)
    for event in range(len(offsets) - 1):
        out_offsets[event] = at
        place, end = offsets[event], offsets[event + 1]
        while place < end:
            until = min(place + _CHUNK, end)
            some = np.uint32(renumber or until - place < _CHUNK)
            if not some:
                for i in range(place, place + _CHUNK):
                    some |= marks[given[i] >> 5] >> np.uint32(given[i] & 31)
            if some & np.uint32(1):
                for i in range(place, until):
                    row = set_rows[given[i]] if renumber else given[i]
                    if not _is_gone(marks, died, edit, row):
                        written[at] = row
                        at += 1
            else:
                for i in range(_CHUNK):
                    written[at + i] = given[place + i]
                at += _CHUNK
            place = until
        for place in range(other_offsets[event], other_offsets[event + 1]):
            written[at] = other_rows[place]
            at += 1
    out_offsets[len(offsets) - 1] = at


def match_one_live(view: View, point: F64) -> I32:
    """Return the live rows that hold one event, (d,); its work isn't counted.

    The array of the event is made read-only, so that kernels have one signature.
    """
    point.flags.writeable = False
    if view.is_plain:
        return view.parts[0].index.match_one(point)
    found = [part.index.match_one(point) for part in view.parts]
    start, end = view.indexed, view.count
    out = np.empty(sum(map(len, found)) + end - start, np.int32)
    filled, rows = 0, view.rows
    for part, mine in zip(view.parts, found, strict=True):
        filled = _sift_one(mine, part.renumbered, rows.gone, rows.died, view.edit, out, filled)
    if start < end:
        filled = match_one_recent(rows, view.edit, start, end, point, out, filled)
    return out[:filled]


def match_live(view: View, points: F64) -> MatchRows:
    """Return the live rows that hold each event, (events, d).

    They are found some events at a time, so that what a part finds is still in the cache when it
    is sifted, and only the answer itself takes new memory.
    """
    if view.is_plain:
        return view.parts[0].index.match(points)
    _index_recent(view, points)
    if not view.parts:
        return _match_others(view, points)
    base = view.parts[0]
    offsets = np.zeros(len(points) + 1, np.int64)
    rows = np.empty(0, np.int32)
    work = Work()
    first, at, take = 0, 0, _FIRST
    while first < len(points):
        last = min(first + take, len(points))
        others = _match_others(view, points[first:last])
        found = base.index.match(points[first:last])
        end = at + len(found.rows) + len(others.rows)
        if end > len(rows):
            room = end if last == len(points) else int(1.1 * end * len(points) / last)
            rows, so_far = np.empty(room, np.int32), rows
            rows[:at] = so_far[:at]
        mine = offsets[first : last + 1]
        _merge_into(found, base, view, others, mine, rows[at:])
        mine += at
        at = int(mine[-1])
        work = work.plus(found.work).plus(others.work)
        first, take = last, max(_LEAST, _ROWS * last // max(1, at))
    return MatchRows(offsets, rows[:at], work)


def _none(events: int) -> MatchRows:
    return MatchRows(np.zeros(events + 1, np.int64), np.empty(0, np.int32))


def _index_recent(view: View, points: F64) -> None:
    """Build a structure over the newest rows, if that is quicker than to compare each of them."""
    start, end = view.indexed, view.count
    if view.recent or (end - start) * len(points) < _WORTH_INDEXING:
        return
    live = start + np.flatnonzero(view.rows.died[start:end] > view.edit)
    lo, hi, owner = bounds_of(view.rows, live, points.shape[1])
    view.recent.append((Slabs(Boxes.of(lo, hi, owner=owner)), live.astype(np.int32)))


def _match_newest(view: View, points: F64) -> MatchRows:
    """Return the live ones of the newest rows, which are in no part."""
    if not view.recent:
        return match_recent(view.rows, view.edit, view.indexed, view.count, points)
    index, live = view.recent[0]
    found = index.match(points)
    return found._replace(rows=live[found.rows])


def _match_others(view: View, points: F64) -> MatchRows:
    """Return the live rows of all but the first part, which is by far the largest."""
    found = _none(len(points))
    if view.indexed < view.count:
        found = _match_newest(view, points)
    for part in reversed(view.parts[1:]):
        found = _sifted(part.index.match(points), part, view, found)
    return found


def _sifted(matches: MatchRows, part: Part, view: View, others: MatchRows) -> MatchRows:
    """Return a part's live matches in the set's own rows, and the others."""
    offsets = np.empty_like(matches.offsets)
    out = np.empty(len(matches.rows) + len(others.rows), np.int32)
    _merge_into(matches, part, view, others, offsets, out)
    return MatchRows(offsets, out[: offsets[-1]], matches.work.plus(others.work))


def _merge_into(
    matches: MatchRows,
    part: Part,
    view: View,
    others: MatchRows,
    offsets: I64,
    out: I32,
) -> None:
    """Write the same into `offsets` and `out`."""
    gone, died = view.rows.gone, view.rows.died
    given = matches.offsets, matches.rows, part.renumbered, gone, died, view.edit
    _merge(*given, others.offsets, others.rows, offsets, out)
