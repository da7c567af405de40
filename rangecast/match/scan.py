"""Oracle for matching: compare every event with every box, in plain NumPy.

This module calls nothing else in the package, so that it can verify everything else. It processes
events in blocks to bound the memory; the time is events x boxes x attributes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.match.result import MatchRows, Work
from rangecast.model.boxes import Boxes

_BLOCK_BYTES = 1 << 22


class Scan:
    """Matching by comparing each event with all boxes."""

    name = "scan"

    def __init__(self, boxes: Boxes):
        self.boxes = boxes

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) block by block; rows ascend within an event."""
        lo, hi = self.boxes.lo, self.boxes.hi
        block = max(1, _BLOCK_BYTES // max(1, len(lo)))
        for start in range(0, len(points), block):
            piece = points[start : start + block]
            held = np.ones((len(piece), len(lo)), dtype=np.bool_)
            for j in range(lo.shape[1]):
                value = piece[:, j, None]
                held &= (lo[:, j] <= value) & (value <= hi[:, j])
            held_pairs = held.size
            if len(lo) != self.boxes.rows:  # a subscription with several boxes matches once
                held = np.logical_or.reduceat(held, self.boxes.box_offsets[:-1], axis=1)
            event, row = np.nonzero(held)
            offsets = np.searchsorted(event, np.arange(len(piece) + 1))
            yield (
                start,
                MatchRows(offsets.astype(np.int64), row.astype(np.int32), Work(tested=held_pairs)),
            )

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event."""
        return self.match(point[None, :]).rows

    @property
    def memory(self) -> int:
        """Size of the boxes in bytes; the scan has no other data."""
        return self.boxes.lo.nbytes + self.boxes.hi.nbytes + self.boxes.owner.nbytes

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        blocks = [block for _, block in self.stream(points)]
        if not blocks:
            return MatchRows(np.zeros(1, np.int64), np.zeros(0, np.int32))
        counts = np.concatenate([np.diff(block.offsets) for block in blocks])
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        work = Work(tested=len(points) * len(self.boxes.lo))
        return MatchRows(offsets, np.concatenate([block.rows for block in blocks]), work)
