"""The boxes of a VCR index, in order of arrival; more can be added.

A box that was deleted stays where it is, so that numbers keep their meaning, and is in no list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import F64, I32, I64, AnyArray, Bool
from rangecast.kernels.bundle import Bundle, edited
from rangecast.match.shared.candidates import earlier_boxes, mark_disjoint
from rangecast.model.boxes import Boxes


class Held(NamedTuple):
    """The arrays; those that were added to have room behind the last box."""

    lo: Annotated[F64, 2]
    hi: Annotated[F64, 2]
    owner: I32
    earlier: I32
    """See `earlier_boxes`."""
    alone: Bool
    """Meets no other box of its subscription, and mentions only indexed attributes."""


@edited
class NewHeld(Held):
    """Arrays of one's own, which boxes can be added to."""


class HeldBoxes:
    """The boxes as a bundle, and the subscriptions that were deleted."""

    def __init__(self, boxes: Boxes, axes: Sequence[int]):
        self.axes = tuple(axes)
        self.count, self.rows = len(boxes.lo), boxes.rows
        earlier = earlier_boxes(boxes, np.arange(self.count))
        held = Held(boxes.lo, boxes.hi, boxes.owner, earlier, self._alone(boxes))
        self.bundle = Bundle(held)
        self._deleted: Bool | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every box is a subscription, so that its number is its row."""
        return self.count == self.rows

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return self.bundle.memory + (0 if self._deleted is None else self._deleted.nbytes)

    def add(self, boxes: Boxes) -> I64:
        """Add boxes as new subscriptions; return their numbers."""
        dimensions = self.bundle.arrays.lo.shape[1]
        if boxes.dimensions != dimensions:
            sizes = f"given: boxes of {boxes.dimensions}"
            raise UsageError(f"the index has boxes of {dimensions} attributes; {sizes}")
        first, last, rows = self.count, self.count + len(boxes.lo), self.rows + boxes.rows
        bundle, old = self.bundle, self.bundle.arrays
        have_siblings = last > rows
        if (
            not old.lo.flags.writeable
            or last > len(old.lo)
            or have_siblings > (len(old.earlier) > 0)
        ):
            room = max(2 * last, 64)
            lo, hi, owner, alone = (
                _copied(part, first, room) for part in (old.lo, old.hi, old.owner, old.alone)
            )
            earlier = np.full(room if have_siblings else 0, -1, np.int32)
            earlier[: min(first, len(old.earlier))] = old.earlier[:first]
            bundle = Bundle(NewHeld(lo, hi, owner, earlier, alone))
        new = bundle.arrays
        new.lo[first:last], new.hi[first:last] = boxes.lo, boxes.hi
        new.owner[first:last] = boxes.owner + np.int32(self.rows)
        new.alone[first:last] = self._alone(boxes)
        before = earlier_boxes(boxes, np.arange(len(boxes.lo)))
        if len(before):
            new.earlier[first:last] = np.where(before < 0, -1, before + first)
        elif len(new.earlier):
            new.earlier[first:last] = -1
        self.bundle, self.count, self.rows = bundle, last, rows
        return np.arange(first, last)

    def take_back(self, count: int, rows: int) -> None:
        """Forget the boxes that were added last."""
        self.count, self.rows = count, rows

    def boxes_of(self, rows: npt.ArrayLike) -> I64:
        """Return the boxes of subscriptions; reject rows that aren't there or come twice."""
        rows_ = np.asarray(rows)
        wanted = np.unique(rows_)
        if rows_.dtype.kind not in "iu" and len(wanted):
            raise UsageError(f"rows must be whole numbers; given: {abbreviate(rows)}")
        wanted = wanted.astype(np.int64)  # numbers of any size, to be compared with those there are
        known = (wanted >= 0) & (wanted < self.rows)
        known[known] = ~self._is_deleted(wanted[known])
        if not known.all():
            raise UsageError(f"there is no row {wanted[~known][0]}, of {self.rows} in all")
        if len(wanted) < rows_.size:
            raise UsageError(f"a row appears twice: {abbreviate(rows)}")
        owner = self.bundle.arrays.owner[: self.count]
        same = wanted.astype(owner.dtype)  # else it would convert all owners
        first, last = (np.searchsorted(owner, same, side) for side in ("left", "right"))
        counts = last - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(first, counts) + within, np.int64)

    def forget(self, rows: npt.ArrayLike) -> None:
        """Record that subscriptions were deleted."""
        marks = np.zeros(0, np.bool_) if self._deleted is None else self._deleted
        if self.rows > len(marks) or not marks.flags.writeable:
            marks = _copied(marks, len(marks), 2 * self.rows)
        marks[np.asarray(rows, np.int64)] = True
        self._deleted = marks

    def _is_deleted(self, rows: I64) -> Bool:
        deleted = np.zeros(len(rows), np.bool_)
        if self._deleted is not None:
            early = rows < len(self._deleted)
            deleted[early] = self._deleted[rows[early]]
        return deleted

    def _alone(self, boxes: Boxes) -> Bool:
        alone = np.empty(len(boxes.lo), np.bool_)
        mark_disjoint(boxes.lo, boxes.hi, boxes.owner, alone)
        alone &= ~np.delete(boxes.mentions, self.axes, axis=1).any(axis=1)
        return alone


def _copied(array: AnyArray, count: int, room: int) -> AnyArray:
    """Return an array of one's own with the first items of another one, and room for more."""
    larger = np.zeros((room, *array.shape[1:]), array.dtype)
    larger[:count] = array[:count]
    return larger
