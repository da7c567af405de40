"""The boxes of a VCR index, in arrays that grow: box after box in order of arrival.

Kernels see read-only views (`Held`) of as much as is filled. A deleted box stays where it is, so
that numbers keep their meaning, and is only marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, AnyArray, Bool
from rangecast.match.candidates import stand_alone
from rangecast.model.boxes import Boxes


class Held(NamedTuple):
    """The boxes."""

    lo: F64
    hi: F64
    owner: I32
    alone: Bool
    """Meets no other box of its subscription, and mentions only indexed attributes."""
    live: Bool


class BoxStore:
    """All boxes that an index was given."""

    def __init__(self, boxes: Boxes, axes: Sequence[int]):
        self.axes = tuple(axes)
        self.rows = 0
        self._arrays: list[AnyArray] = []
        self.add(boxes)

    @property
    def plain(self) -> bool:
        """Whether every box is a subscription, so that its number is its row."""
        return len(self.held.lo) == self.rows

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays)

    def add(self, boxes: Boxes) -> I64:
        """Take boxes over as new subscriptions; return their numbers."""
        before = len(self.held.lo) if self._arrays else 0
        if self._arrays and boxes.dimensions != self.held.lo.shape[1]:
            expected = self.held.lo.shape[1]
            raise UsageError(f"boxes of {expected} attributes expected, given: {boxes.dimensions}")
        after = before + len(boxes.lo)
        alone = np.empty(len(boxes.lo), np.bool_)
        stand_alone(boxes.lo, boxes.hi, boxes.owner, alone)
        alone &= ~np.delete(boxes.mentions, self.axes, axis=1).any(axis=1)
        owner = boxes.owner + np.int32(self.rows) if self.rows else boxes.owner
        new: list[AnyArray] = [boxes.lo, boxes.hi, owner, alone, np.ones(len(alone), np.bool_)]
        if before == 0:
            self._arrays = new
        else:
            if after > len(self._arrays[0]):
                self._arrays = [_extended(array[:before], 2 * after) for array in self._arrays]
            for array, more in zip(self._arrays, new, strict=True):
                array[before:after] = more
        self.rows += boxes.rows
        self._show(after)
        return np.arange(before, after)

    def of_rows(self, rows: npt.ArrayLike) -> I64:
        """Return the boxes of subscriptions; refuse rows that aren't there or come twice."""
        wanted = np.unique(np.asarray(rows, np.int64))
        first = np.searchsorted(self.held.owner, wanted)
        known = len(wanted) == np.size(rows) and ((wanted >= 0) & (wanted < self.rows)).all()
        if not known or not self.held.live[first].all():
            raise UsageError(f"delete takes rows that are there, each once; given: {rows!r}")
        counts = np.searchsorted(self.held.owner, wanted, side="right") - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(first, counts) + within, np.int64)

    def forget(self, boxes: I64) -> None:
        """Mark boxes as deleted."""
        self._arrays[-1][boxes] = False

    def _show(self, count: int) -> None:
        views = [array[:count] for array in self._arrays]
        for view in views:
            view.flags.writeable = False
        self.held = Held(*views)

    def __getstate__(self) -> dict[str, Any]:
        return {"axes": self.axes, "rows": self.rows, "_arrays": list(self.held)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._show(len(self._arrays[0]))


def _extended(array: AnyArray, length: int) -> AnyArray:
    larger = np.empty((length, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
