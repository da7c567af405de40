"""Matching a live set: what its parts find as one answer, rows renumbered, dead ones left out.

The kernel is short and keeps the GIL: giving it up beside a busy thread costs far more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U32
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.choose import Index
from rangecast.match.recent import match_recent
from rangecast.match.result import Matches, Work, single
from rangecast.model.rowstore import Columns

_CHUNK = 32
"""Rows that are looked at together."""
_FIRST, _LEAST = 512, 64
"""Events that are matched at first, and at least."""
_ROWS = 1 << 20
"""Matches that are found before they are sifted, about."""


@jit
def _is_gone(gone: Any, died: I64, edit: int, row: int) -> bool:
    return bool((gone[row >> 5] >> np.uint32(row & 31)) & np.uint32(1)) and died[row] <= edit


@jit_single
def _merge(
    offsets: I64,
    rows: I32,
    names: I32,
    gone: U32,
    died: I64,
    edit: int,
    other_offsets: I64,
    other_rows: I32,
    out_offsets: I64,
    out: I32,
) -> None:
    """Write the live rows of each event, then the other rows of that event.

    `names` are the set's own numbers, none if the rows are that already. `gone` has a bit for
    every row that was ever removed: it is small enough to stay in the cache, and the few rows that
    it marks are looked up in `died`. Most chunks of rows have none: they are copied whole.
    """
    at = 0
    renumber = len(names) > 0
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
                    row = names[given[i]] if renumber else given[i]
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


class LivePart(Protocol):
    """What a part of a live set shows to be matched."""

    @property
    def index(self) -> Index:
        """Its structure."""

    @property
    def names(self) -> I32:
        """The set's row of each of its rows."""

    @property
    def is_whole(self) -> bool:
        """Whether its rows are the set's first, in the same order."""


class Live(NamedTuple):
    """A live set at one edit."""

    parts: Sequence[LivePart]
    recent: tuple[int, int]
    """Rows in no part: the first, and the one after the last."""
    columns: Columns
    edit: int
    dead: int
    """How many rows don't live any more."""


def match_live(live: Live, points: F64) -> Matches:
    """Return the live rows that hold each event, (events, d).

    They are found some events at a time, so that what a part finds is still in the cache when it
    is sifted, and only the answer itself takes new memory. A single event is matched without
    counting the work.
    """
    one = len(points) == 1
    if not live.parts:
        return _match_others(live, points, one)
    base = live.parts[0]
    if base.is_whole and len(live.parts) == 1 and not live.dead and not _has_recent(live):
        return _matches(base, points, one)
    offsets = np.zeros(len(points) + 1, np.int64)
    rows = np.empty(0, np.int32)
    work = Work()
    first, at, take = 0, 0, _FIRST
    while first < len(points):
        last = min(first + take, len(points))
        others = _match_others(live, points[first:last], one)
        found = _matches(base, points[first:last], one)
        end = at + len(found.rows) + len(others.rows)
        if end > len(rows):
            room = end if last == len(points) else int(1.1 * end * len(points) / last)
            rows, so_far = np.empty(room, np.int32), rows
            rows[:at] = so_far[:at]
        mine = offsets[first : last + 1]
        _merge_into(found, base, live, others, mine, rows[at:])
        mine += at
        at = int(mine[-1])
        work = work.plus(found.work).plus(others.work)
        first, take = last, max(_LEAST, _ROWS * last // max(1, at))
    return Matches(offsets, rows[:at], work)


def _has_recent(live: Live) -> bool:
    return live.recent[0] < live.recent[1]


def _matches(part: LivePart, points: F64, one: bool) -> Matches:
    return single(part.index.match_one(points[0])) if one else part.index.match(points)


def _none(events: int) -> Matches:
    return Matches(np.zeros(events + 1, np.int64), np.empty(0, np.int32))


def _match_others(live: Live, points: F64, one: bool) -> Matches:
    """Return the live rows of all but the first part, which is by far the largest."""
    found = _none(len(points))
    if _has_recent(live):
        found = match_recent(live.columns, live.edit, *live.recent, points, one=one)
    for part in reversed(live.parts[1:]):
        found = _sifted(_matches(part, points, one), part, live, found)
    return found


def _sifted(matches: Matches, part: LivePart, live: Live, others: Matches) -> Matches:
    """Return a part's live matches in the set's own rows, and the others."""
    offsets = np.empty_like(matches.offsets)
    out = np.empty(len(matches.rows) + len(others.rows), np.int32)
    _merge_into(matches, part, live, others, offsets, out)
    return Matches(offsets, out[: offsets[-1]], matches.work.plus(others.work))


def _merge_into(
    matches: Matches,
    part: LivePart,
    live: Live,
    others: Matches,
    offsets: I64,
    out: I32,
) -> None:
    """Write the same into `offsets` and `out`."""
    names = part.names[:0] if part.is_whole else part.names
    gone, died = live.columns.gone, live.columns.died
    given = matches.offsets, matches.rows, names, gone, died, live.edit
    _merge(*given, others.offsets, others.rows, offsets, out)
