"""Indexes that leave out some subscriptions: dead ones, or those of another consumer.

`Slabs`, `Cells`, `Tiles`, `Values` and `Selected` skip them during the search. The matches of any
other index are filtered afterwards. Either way the index itself is unchanged, for views that still
use it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.jit import jit
from rangecast.match.cells.index import Cells
from rangecast.match.choose import Index
from rangecast.match.result import MatchRows
from rangecast.match.slabs.index import Slabs
from rangecast.match.terms.index import Selected
from rangecast.match.tiles import Tiles
from rangecast.match.values.index import Values
from rangecast.match.warmup import WarmupIndex


@jit
def _keep(offsets: I64, rows: I32, dead: Bool, kept_offsets: I64, kept: I32) -> None:
    """Copy the rows that aren't dead, event by event; `kept` needs room for one extra row."""
    filled = 0
    for event in range(len(offsets) - 1):
        kept_offsets[event] = filled
        for slot in range(offsets[event], offsets[event + 1]):
            kept[filled] = rows[slot]
            filled += not dead[rows[slot]]
    kept_offsets[len(offsets) - 1] = filled


class MaskedIndex:
    """Wrapper that filters some subscriptions out of any index."""

    def __init__(self, index: Index, dead: Bool):
        """Wrap an index; `dead` (rows,) marks the subscriptions to leave out."""
        self.name = index.name
        self.index = index
        self.dead = dead
        self.dead.flags.writeable = False

    @property
    def memory(self) -> int:
        """Size of the index and of the mask in bytes."""
        return self.index.memory + self.dead.nbytes

    def without(self, rows: I64) -> MaskedIndex:
        """Return a copy that leaves out more subscriptions."""
        dead = self.dead.copy()
        dead[rows] = True
        return MaskedIndex(self.index, dead)

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        return self._kept(self.index.match(points))

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in chunks of bounded size."""
        for first, matches in self.index.stream(points):
            yield first, self._kept(matches)

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event."""
        rows = self.index.match_one(point)
        return rows[~self.dead[rows]]

    def _kept(self, matches: MatchRows) -> MatchRows:
        offsets = np.empty_like(matches.offsets)
        rows = np.empty(len(matches.rows) + 1, np.int32)
        _keep(matches.offsets, matches.rows, self.dead, offsets, rows)
        return MatchRows(offsets, rows[: offsets[-1]], matches.work)


def without(index: Index, rows: I64, count: int) -> Index:
    """Return an index of `count` subscriptions without some rows; share as much as possible."""
    index = built_index(index)
    if isinstance(index, Slabs | Cells | Tiles | Values | MaskedIndex):
        return index.without(rows)
    if isinstance(index, Selected):
        return _selected_without(index, rows)
    return MaskedIndex(index, np.zeros(count, np.bool_)).without(rows)


def _selected_without(index: Selected, rows: I64) -> Selected:
    placed = index.placed
    if placed is not None:
        own = np.searchsorted(index.rows, rows)
        own = own[own < np.searchsorted(index.rows, rows, side="right")]
        placed = without(placed, own, len(index.rows)) if len(own) else placed
    return Selected(placed, index.rows, index.terms.without(rows))


def built_index(index: Index) -> Index:
    """Return the index that replaced the plain scan, if warmup is over; else the given one."""
    if isinstance(index, MaskedIndex):
        built = built_index(index.index)
        same = built is index.index
        return index if same else without(built, np.flatnonzero(index.dead), len(index.dead))
    return index.interim.built or index if isinstance(index, WarmupIndex) else index
