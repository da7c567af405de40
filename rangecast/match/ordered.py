"""A structure's matches in a fixed order: by event, then by arrival; on several threads if asked.

Structures report the rows of an event in any order. Where a person or a file reads them, the order
must not depend on the structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from rangecast.kernels.jit import jit
from rangecast.match.choose import Index
from rangecast.match.result import Counts, Matches, Rows
from rangecast.model.boxes import Floats

_BLOCK = 1024
"""Events that a thread takes at a time: all their matches are in memory at once."""


@jit
def _sort(offsets: Counts, rows: Rows) -> None:
    """Sort the rows of each event, in place."""
    for event in range(len(offsets) - 1):
        rows[offsets[event] : offsets[event + 1]].sort()


def stream_ordered(index: Index, points: Floats, threads: int) -> Iterator[tuple[int, Matches]]:
    """Yield (first event, matches) in pieces; rows ascend within an event, and within a piece.

    Only an event whose rows fill more than one piece is ordered piece by piece.
    """
    if threads == 1:
        for first, matches in index.stream(points):
            _sort(matches.offsets, matches.rows)
            yield first, matches
        return

    def answer(first: int) -> tuple[int, Matches]:
        matches = index.match(points[first : first + _BLOCK])
        _sort(matches.offsets, matches.rows)
        return first, matches

    with ThreadPoolExecutor(threads) as pool:
        starts = range(0, len(points), _BLOCK)
        for wave in range(0, len(starts), 2 * threads):  # so that few answers wait at a time
            yield from pool.map(answer, starts[wave : wave + 2 * threads])
