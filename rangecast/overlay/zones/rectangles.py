"""Rectangles by number: which of them does another one meet?"""

from __future__ import annotations

import numpy as np

from rangecast.overlay.zones.geometry import Box


class Rectangles:
    """A table with a row per rectangle; a free row is NaN, which no comparison holds for."""

    def __init__(self, dimensions: int):
        self._lo = np.full((16, dimensions), np.nan)
        self._hi = np.full((16, dimensions), np.nan)
        self._number = np.zeros(16, np.int64)
        self._row: dict[int, int] = {}
        self._free = list(range(16))
        self.comparisons = 0
        """Pairs of rectangles compared so far."""

    def add(self, number: int, box: Box) -> None:
        """Add a rectangle."""
        if not self._free:
            rows = len(self._lo)
            self._lo, self._hi = (
                np.concatenate([array, np.full_like(array, np.nan)])
                for array in (self._lo, self._hi)
            )
            self._number = np.concatenate([self._number, np.zeros_like(self._number)])
            self._free = list(range(rows, 2 * rows))
        row = self._row[number] = self._free.pop()
        self._lo[row], self._hi[row], self._number[row] = box.lo, box.hi, number

    def remove(self, number: int) -> None:
        """Remove a rectangle."""
        row = self._row.pop(number)
        self._lo[row] = self._hi[row] = np.nan
        self._free.append(row)

    def meeting(self, box: Box) -> list[int]:
        """Return the numbers of those that have a point in common with a box, ascending."""
        self.comparisons += len(self._row)
        meets = ((self._lo <= box.hi) & (self._hi >= box.lo)).all(axis=1)
        numbers: list[int] = np.sort(self._number[meets]).tolist()
        return numbers
