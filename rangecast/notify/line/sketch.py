"""The interests of a board with a sketch: only their ends, 16 bytes each.

They are stored to look up interests and to build another sketch. To compute the lists of all
interests, an index is built temporarily.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, grown
from rangecast.notify.line.interests import Interests


class Ranges:
    """Ranges by row, a small number that is reused."""

    def __init__(self, lo: F64, hi: F64):
        self._ends = np.stack([lo, hi], axis=1)
        self._free: list[int] = []
        self.rows = len(lo)
        """One more than the largest row in use."""

    @property
    def count(self) -> int:
        """Number of ranges."""
        return self.rows - len(self._free)

    def add(self, lo: float, hi: float) -> int:
        """Add a range and return its row."""
        row = self._free.pop() if self._free else self.rows
        self.rows = max(self.rows, row + 1)
        self._ends = grown(self._ends, self.rows)
        self._ends[row] = lo, hi
        return row

    def add_many(self, lo: F64, hi: F64) -> I32:
        """Add ranges and return their rows."""
        pairs = zip(lo.tolist(), hi.tolist(), strict=True)
        return np.array([self.add(*pair) for pair in pairs], np.int32)

    def remove(self, row: int) -> None:
        """Remove a range."""
        self._ends[row] = np.inf, -np.inf  # nothing reaches it
        self._free.append(row)

    def of(self, row: int) -> tuple[float, float]:
        """Return a range."""
        lo, hi = self._ends[row].tolist()
        return lo, hi

    def columns(self) -> tuple[I32, F64, F64]:
        """Return row, lo and hi of all ranges."""
        ends = self._ends[: self.rows]
        rows = np.flatnonzero(ends[:, 0] <= ends[:, 1]).astype(np.int32)
        return rows, ends[rows, 0], ends[rows, 1]

    def index(self) -> Interests:
        """Return an index of all rows; unused rows are never reached."""
        ends = self._ends[: self.rows]
        return Interests(ends[:, 0].copy(), ends[:, 1].copy())

    def sketch(self, rectangles: int) -> Interests:
        """Return a cover of all ranges by at most this many rectangles."""
        _, lo, hi = self.columns()
        return Interests(lo, hi).sketch(rectangles)

    @property
    def memory(self) -> int:
        """Bytes of all ranges."""
        return self._ends.nbytes
