"""Changes of a summary to advertise to neighbours, as ranges.

The order is that of `model.forward`: first the ranges to add, then the ranges to drop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.merge.ranges import Ranges, RangeSets
from rangecast.model.answers.results import Results
from rangecast.model.display import counted

NOTHING = Ranges(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


class RangeForward(NamedTuple):
    """Ranges to advertise after one edit. False if there are none."""

    add: Ranges = NOTHING
    """Ranges to add first."""
    drop: Ranges = NOTHING
    """Ranges to drop afterwards."""

    def __bool__(self) -> bool:
        return bool(len(self.add) or len(self.drop))


@dataclass(frozen=True, eq=False, repr=False)
class RangeForwards(Results[RangeForward]):
    """Ranges to advertise after many edits, one `RangeForward` per edit."""

    add: RangeSets
    drop: RangeSets

    def __len__(self) -> int:
        return len(self.add)

    def _size(self) -> str:
        ranges = counted(len(self.add.starts) + len(self.drop.starts), "range")
        return f"{ranges} of {counted(len(self), 'command')}"

    def _header(self) -> tuple[str, ...]:
        return "command", "add", "drop"

    def _cells(self, index: int) -> tuple[Any, ...]:
        return index, *self._item(index)

    def _item(self, index: int) -> RangeForward:
        return RangeForward(self.add.of(index), self.drop.of(index))

    def table(self) -> pa.Table:
        """Return all ranges in sending order: command, action, start, end."""
        sizes = np.stack([np.diff(self.add.offsets), np.diff(self.drop.offsets)], axis=1)
        command = np.repeat(np.arange(len(self)), sizes.sum(axis=1))
        drops = np.repeat(np.tile([False, True], len(self)), sizes.reshape(-1))
        start, end = np.empty((2, len(drops)), np.uint64)
        start[~drops], start[drops] = self.add.starts, self.drop.starts
        end[~drops], end[drops] = self.add.ends, self.drop.ends
        actions = np.where(drops, "drop", "add")
        return pa.table({"command": command, "action": actions, "start": start, "end": end})
