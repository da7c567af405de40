"""Match results, which kernels return in bounded chunks.

The kernel of an index is wrapped as a `Step`: it starts at an event, writes rows into the buffer
passed in, and stops when the buffer is full or no events are left. So an event that matches
everything streams through a small buffer instead of exhausting the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64

BUFFER = 1 << 20
"""Rows that a stream hands over at a time."""


class Work(NamedTuple):
    """Counters of the work done: deterministic, so that tests can assert them."""

    visited: int = 0
    """Nodes, cells, lists or words opened: what a structure's docstring says it counts."""
    tested: int = 0
    """Boxes compared with an event, attribute by attribute."""

    def plus(self, other: Work) -> Work:
        """Return the sum."""
        return Work(self.visited + other.visited, self.tested + other.tested)


class MatchRows(NamedTuple):
    """Rows by event: those of event `i` are `rows[offsets[i]:offsets[i + 1]]`, in any order."""

    offsets: I64
    rows: I32
    work: Work = Work()

    def of(self, event: int) -> I32:
        """Return the rows of one event."""
        return self.rows[self.offsets[event] : self.offsets[event + 1]]

    @property
    def events(self) -> I64:
        """Event of each row, for (event, row) pairs."""
        if len(self.offsets) == 2:
            return np.zeros(len(self.rows), np.int64)
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


def joined(pieces: Sequence[MatchRows]) -> MatchRows:
    """Concatenate the matches of consecutive events."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0, *(len(piece.rows) for piece in pieces)])
    offsets = [piece.offsets[:-1] + start for piece, start in zip(pieces, starts, strict=False)]
    work = Work()
    for piece in pieces:
        work = work.plus(piece.work)
    rows = np.concatenate([piece.rows for piece in pieces])
    return MatchRows(np.concatenate([*offsets, starts[-1:]]), rows, work)


Step = Callable[[int, int, I32, I64], tuple[int, int, int, int, int]]
"""(event, cursor, rows, counts) -> (event, cursor, filled, visited, tested).

Starts at `event`, where `cursor` says how far into it an earlier call came (0: not begun; its
meaning is the structure's own); fills `rows`, adds to `counts[e]` for each row of event `e`;
returns where to go on (`len(counts)` when done), how many rows it wrote, and the work.
"""


def stream(step: Step, events: int, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
    """Yield (first event, matches) in chunks of at most `buffer` rows.

    If the rows of an event don't fit, the next chunk starts with the same event.
    """
    event = cursor = 0
    while event < events:
        rows = np.empty(buffer, np.int32)
        counts = np.zeros(events, np.int64)
        start = event
        event, cursor, filled, visited, tested = step(event, cursor, rows, counts)
        end = min(event + 1, events) if cursor else event
        offsets = np.concatenate([[0], np.cumsum(counts[start:end])]).astype(np.int64)
        yield start, MatchRows(offsets, rows[:filled], Work(visited, tested))


def collect(step: Step, events: int, expected: int = 0) -> MatchRows:
    """Collect all matches; `expected` is an estimate of the rows, to size the buffer."""
    rows = np.empty(max(expected, 1024), np.int32)
    counts = np.zeros(events, np.int64)
    event = cursor = filled = 0
    work = Work()
    while event < events:
        event, cursor, more, visited, tested = step(event, cursor, rows[filled:], counts)
        filled += more
        work = work.plus(Work(visited, tested))
        if event < events:
            rows, so_far = np.empty(2 * len(rows), np.int32), rows
            rows[:filled] = so_far[:filled]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return MatchRows(offsets, rows[:filled], work)
