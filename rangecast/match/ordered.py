"""Matches in a fixed order, by event, then by arrival; optionally on several threads.

An index returns the rows of an event in any order. Output for people and files must not depend
on the index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.match.choose import Index
from rangecast.match.result import MatchRows

_BLOCK = 1024
"""Events that a thread takes at a time: all their matches are in memory at once."""


def _sort(rows: MatchRows) -> None:
    """Sort the rows of each event in place, in one NumPy call, which is far faster."""
    keys = rows.events << 32
    keys |= rows.rows
    keys.sort()
    rows.rows[:] = keys & 0xFFFFFFFF


def stream_ordered(index: Index, points: F64, threads: int) -> Iterator[tuple[int, MatchRows]]:
    """Yield (first event, matches) in chunks that never split an event; rows ascend per event.

    The chunk size is bounded, unless a single event has more matches.
    """
    if threads == 1:
        for first, matches in _whole_events(index.stream(points)):
            _sort(matches)
            yield first, matches
        return

    def answer(first: int) -> tuple[int, MatchRows]:
        matches = index.match(points[first : first + _BLOCK])
        _sort(matches)
        return first, matches

    with ThreadPoolExecutor(threads) as pool:
        starts = iter(range(0, len(points), _BLOCK))
        first_starts = islice(starts, 2 * threads)  # few answers wait at a time, and no thread does
        waiting = deque(pool.submit(answer, first) for first in first_starts)
        while waiting:
            answered = waiting.popleft().result()
            waiting.extend(pool.submit(answer, first) for first in islice(starts, 1))
            yield answered


def _whole_events(pieces: Iterator[tuple[int, MatchRows]]) -> Iterator[tuple[int, MatchRows]]:
    """Regroup chunks so that none splits an event."""
    begun: list[I32] = []
    piece = next(pieces, None)
    while piece is not None:
        following = next(pieces, None)
        first, matches = piece
        whole = len(matches.offsets) - 1
        goes_on = following is not None and following[0] == first + whole - 1
        if goes_on:
            whole -= 1
        if whole:
            offsets, rows = matches.offsets[: whole + 1], matches.rows[: matches.offsets[whole]]
            if begun:
                earlier = sum(map(len, begun))
                offsets = np.concatenate([[0], offsets[1:] + earlier])
                rows = np.concatenate([*begun, rows])
                begun = []
            yield first, MatchRows(offsets, rows, matches.work)
        if goes_on:
            begun.append(matches.of(whole))
        piece = following
