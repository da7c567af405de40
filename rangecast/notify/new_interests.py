"""New interests from tables or callers: ids, boxes, and optional list lengths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64


@dataclass(frozen=True)
class Regions:
    """Boxes of interests as points, lower and then upper bounds, and their number per interest."""

    points: F64
    sizes: I64

    def __getitem__(self, index: Any) -> Any:
        """Return the points of one interest."""
        end = int(self._ends[index])
        return self.points[end - int(self.sizes[index]) : end]

    @cached_property
    def _ends(self) -> I64:
        return np.cumsum(self.sizes)


class NewInterests(NamedTuple):
    """Interests to add: ids, regions, and by index the list lengths that are set."""

    ids: pa.Array
    regions: Regions
    wanted: dict[int, int]

    def part(self, begin: int, end: int) -> NewInterests:
        """Return the interests from index begin to end."""
        first, last = (int(self.regions.sizes[:index].sum()) for index in (begin, end))
        wanted = {index - begin: k for index, k in self.wanted.items() if begin <= index < end}
        regions = Regions(self.regions.points[first:last], self.regions.sizes[begin:end])
        return NewInterests(self.ids[begin:end], regions, wanted)


def checked_boxes(value: Any, attributes: int) -> F64:
    """Return boxes, lower and then upper bounds, as an array of the right shape."""
    boxes = np.ascontiguousarray(value, np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 2 * attributes:
        raise UsageError(f"boxes must have {2 * attributes} columns; given: an array {boxes.shape}")
    if not (boxes[:, :attributes] <= boxes[:, attributes:]).all():
        raise UsageError("a box has a lower bound above its upper one, or NaN")
    return boxes
