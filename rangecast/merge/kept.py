"""Ranges stored for each subscription, so that they can be removed again.

By row: its boxes on the attributes of the cells, as bytes, from which the ranges are recomputed; or
the ranges themselves, if the client sent them. Free rows are reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np

from rangecast.kernels.arrays import F64, I64, AnyArray
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import Ranges, RangeSets, range_sets
from rangecast.model.boxes import Boxes

BLOCK = 4096
"""Number of subscriptions converted at a time, so that their ranges stay in the cache."""


class Kept:
    """Boxes or ranges by row; `dimensions` are those of the space."""

    def __init__(self, dimensions: int, axes: tuple[int, ...]):
        self._dimensions = dimensions
        self._axes = list(axes)
        self._items: list[bytes | Ranges | None] = []
        self._free: list[int] = []

    def add(self, item: bytes | Ranges) -> int:
        """Store the boxes or ranges of a subscription; return its row."""
        if self._free:
            row = self._free.pop()
            self._items[row] = item
            return row
        self._items.append(item)
        return len(self._items) - 1

    def put(self, rows: Sequence[int], items: Iterator[bytes]) -> None:
        """Replace the boxes of rows."""
        for row, item in zip(rows, items, strict=True):
            self._items[row] = item

    def free(self, rows: Sequence[int]) -> None:
        """Free rows."""
        for row in rows:
            self._items[row] = None
        self._free += rows

    def items_of(self, boxes: Boxes) -> Iterator[bytes]:
        """Yield the data to store for each subscription."""
        both = np.stack([boxes.lo[:, self._axes], boxes.hi[:, self._axes]], axis=1)
        for begin, end in pairwise(boxes.box_offsets.tolist()):
            yield both[begin:end].tobytes()

    def is_ranges(self, row: int) -> bool:
        """Return whether a subscription was given as ranges."""
        return isinstance(self._items[row], Ranges)

    def bounds(self, rows: Sequence[int]) -> tuple[F64, F64, I64]:
        """Return the bounds of rows stored as boxes, (boxes, d), and their number per row."""
        kept = [item for item in map(self._items.__getitem__, rows) if isinstance(item, bytes)]
        both = np.frombuffer(b"".join(kept)).reshape(-1, 2, len(self._axes))
        lo = np.full((len(both), self._dimensions), -np.inf)
        hi = np.full((len(both), self._dimensions), np.inf)
        lo[:, self._axes], hi[:, self._axes] = both[:, 0], both[:, 1]
        return lo, hi, np.array([len(item) // (16 * len(self._axes)) for item in kept], np.int64)

    def ranges(self, rows: Sequence[int]) -> list[Ranges]:
        """Return the ranges of rows given as ranges."""
        return [item for item in map(self._items.__getitem__, rows) if isinstance(item, Ranges)]

    def sets(
        self, rows: Sequence[int], cells: Cells, max_ranges_per_subscription: int
    ) -> Iterator[RangeSets]:
        """Yield the ranges of rows, as given or converted again, one block at a time."""
        for begin in range(0, max(len(rows), 1), BLOCK):
            parts: list[RangeSets] = []
            for as_ranges, group in groupby(rows[begin : begin + BLOCK], self.is_ranges):
                if as_ranges:
                    parts += map(RangeSets.single, self.ranges([*group]))
                else:
                    lo, hi, sizes = self.bounds([*group])
                    owner = np.repeat(np.arange(len(sizes)), sizes)
                    parts.append(range_sets(cells, lo, hi, owner, max_ranges_per_subscription))
            yield RangeSets.joined(parts)

    @property
    def memory(self) -> int:
        """Bytes of all boxes and ranges."""
        sent = sum(16 * len(item) for item in self.ranges(range(len(self._items))))
        return sent + sum(len(item) for item in self._items if isinstance(item, bytes))

    def arrays(self, rows: Sequence[int]) -> dict[str, AnyArray]:
        """Return the stored data of rows as plain arrays, for a snapshot."""
        lo, hi, sizes = self.bounds(rows)
        ranges = RangeSets.joined([*map(RangeSets.single, self.ranges(rows))])
        return {
            "came_as_ranges": np.array([*map(self.is_ranges, rows)], np.bool_),
            "lo": lo[:, self._axes],
            "hi": hi[:, self._axes],
            "sizes": sizes,
            "starts": ranges.starts,
            "ends": ranges.ends,
            "range_at": ranges.offsets,
        }

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Restore what `arrays` returned; rows count from 0 now."""
        ranges = RangeSets(arrays["starts"], arrays["ends"], arrays["range_at"])
        both = np.stack([arrays["lo"], arrays["hi"]], axis=1)
        sent = iter([ranges.of(index) for index in range(len(ranges))])
        boxes = iter(np.split(both, np.cumsum(arrays["sizes"])))
        self._items = [
            next(sent) if as_ranges else next(boxes).tobytes()
            for as_ranges in arrays["came_as_ranges"].tolist()
        ]


def converted(boxes: Boxes, cells: Cells, max_ranges_per_subscription: int) -> Iterator[RangeSets]:
    """Yield the ranges of subscriptions, one block at a time; at least one."""
    for begin in range(0, max(boxes.rows, 1), BLOCK):
        piece = boxes
        if boxes.rows > BLOCK:
            piece = boxes.take(np.arange(begin, min(begin + BLOCK, boxes.rows)))
        yield range_sets(cells, piece.lo, piece.hi, piece.owner, max_ranges_per_subscription)
