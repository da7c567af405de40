"""What structures that are one named tuple of frozen arrays have in common: `rtree`, `hilbert`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit
from rangecast.match.result import BUFFER, Matches, Step, collect, stream
from rangecast.model.boxes import Boxes, frozen


@jit
def held_before(lo: F64, hi: F64, earlier: I32, box: int, point: F64) -> tuple[bool, int]:
    """Whether an earlier box of the same subscription holds the point; and boxes compared."""
    tested = 0
    other = earlier[box]
    while other >= 0:
        tested += 1
        axis = 0
        while axis < len(point) and lo[other, axis] <= point[axis] <= hi[other, axis]:
            axis += 1
        if axis == len(point):
            return True, tested
        other = earlier[other]
    return False, tested


class Packed:
    """A structure that is one named tuple of frozen arrays, with a kernel for batches and for one.

    The kernel for one event takes a plain tuple, which numba reads faster than a named one.
    """

    _kind: ClassVar[Callable[..., Any]]
    _batch: ClassVar[Callable[..., tuple[int, int, int, int, int]]]
    _single: ClassVar[Callable[..., tuple[int, int]]]

    def __init__(self, arrays: Any):
        self._arrays = arrays
        self._plain = tuple(arrays)

    @property
    def memory(self) -> int:
        """Bytes of all arrays held."""
        return sum(array.nbytes for array in self._plain)

    def match(self, points: F64) -> Matches:
        """Return all matches of all events at once."""
        return collect(self._step(points), len(points))

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, Matches]]:
        """Yield (first event, matches) in pieces of at most `buffer` rows."""
        return stream(self._step(points), len(points), buffer)

    def match_one(self, point: F64) -> I32:
        """Return the rows of one event (d,)."""
        point = _readable(point)
        rows = np.empty(1024, np.int32)
        cursor, filled = self._single(self._plain, point, 0, rows)
        while cursor >= 0:
            rows = np.concatenate([rows, np.empty(len(rows), np.int32)])
            cursor, more = self._single(self._plain, point, cursor, rows[filled:])
            filled += more
        return rows[:filled]

    def _step(self, points: F64) -> Step:
        arrays, points = self._arrays, _readable(points)

        def step(event: int, cursor: int, rows: I32, counts: I64) -> tuple[int, int, int, int, int]:
            return self._batch(arrays, points, event, cursor, rows, counts)

        return step

    def __getstate__(self) -> dict[str, Any]:
        return dict(self._arrays._asdict())

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: frozen(array, array.dtype) for name, array in state.items()}
        Packed.__init__(self, self._kind(**arrays))


def _readable(points: F64) -> F64:
    """Return the same memory read-only, so that a kernel has one signature."""
    points = np.ascontiguousarray(points, np.float64).view()
    points.flags.writeable = False
    return points


def earlier_boxes(boxes: Boxes, packed: I64) -> I32:
    """Return where the box before it of the same subscription lies, -1 if there is none.

    Places are those of the order `packed`. Empty if all subscriptions have one box.
    """
    if len(boxes.lo) == boxes.rows:
        return np.zeros(0, np.int32)
    place = np.empty(len(packed), np.int32)
    place[packed] = np.arange(len(packed), dtype=np.int32)
    before = np.full(len(packed), -1, np.int32)
    same = np.flatnonzero(np.diff(boxes.owner) == 0)
    before[same + 1] = place[same]
    return before[packed]
