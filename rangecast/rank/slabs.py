"""Score-ordered slabs: the k best in any number of dimensions, without a structure an attribute.

The idea. Boxes lie best first, in blocks of 64, their bounds as codes of a byte. A block is
compared with an event in two instructions an attribute; the bits that are left are its matches, and
the search stops when it has k. Only where an event shares a slab with a bound is the box itself
looked at. So an event that many subscriptions hold is done after a few blocks; one that few hold
looks at the hulls of all, and into the blocks near it.

With a single attribute, the best of each cell between the bounds of the 1024 best boxes are written
down: most events then only look up a list.

An event may be a span of values on some attributes. It is compared as its two ends: a box that it
must overlap begins before its end and ends after its beginning; one that must contain it, the other
way round.

Layout: see `slabs_layout`. Work: `words` of 64 comparisons, boxes `tested` exactly.
The structure is our own.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.codes import Bytes, encode_points
from rangecast.kernels.grid import cells_of
from rangecast.model.boxes import Boxes, Floats, Rows
from rangecast.rank.life import ALL, Life
from rangecast.rank.result import Best, Work, checked, new_best, new_counters
from rangecast.rank.slabs_exact import search_exact
from rangecast.rank.slabs_layout import LIST, Layout, Lists, Slots, lay_out
from rangecast.rank.slabs_relaxed import search_relaxed

How = Literal["overlap", "contain"]


class Slabs:
    """The best subscriptions of events by the slabs that they and the bounds of boxes lie in."""

    name = "slabs"

    def __init__(self, boxes: Boxes, *, relaxed: bool = False):
        self.dimensions, self.rows = boxes.dimensions, boxes.rows
        self.relaxed = relaxed
        self.layout = lay_out(boxes, relaxed=relaxed)

    @property
    def memory(self) -> int:
        """Bytes of all arrays held; the boxes are among them."""
        return sum(array.nbytes for array in _arrays(self.layout))

    def best(self, points: Floats, k: int, *, life: Life = ALL) -> Best:
        """Return the k best of each event."""
        events = checked(points, self.dimensions, k)
        if not self.relaxed:
            cells = self._cells(events, k, life)
            done = len(cells) and bool((self.layout.lists.counts[cells] >= k).all())
            codes = np.empty(events.shape, np.uint8) if done else self._codes(events)
            return self._exact(events, events, codes, codes, cells, k, life)
        codes = self._codes(events)
        rows, scores, counts = new_best(len(events), min(k, self.rows))
        counters = new_counters()
        search_relaxed(self.layout, events, codes, life, rows, scores, counts, counters)
        return Best(rows, scores, counts, Work.of(counters))

    def best_spans(self, lo: Floats, hi: Floats, k: int, how: How, *, life: Life = ALL) -> Best:
        """Return the k best of events that are spans, (events, d) from lo to hi, both included.

        how    `overlap`: a subscription must meet the span; `contain`: hold all of it.
        """
        if self.relaxed:
            raise UsageError("events that are spans are ranked exactly; give relaxed=False")
        if how not in ("overlap", "contain"):
            raise UsageError(f"how is 'overlap' or 'contain'; given: {how!r}")
        first, last = checked(lo, self.dimensions, k), checked(hi, self.dimensions, k)
        if first.shape != last.shape or not (first <= last).all():
            raise UsageError("a span begins where it ends or before; some given don't")
        above, below = (last, first) if how == "overlap" else (first, last)
        codes = self._codes(above), self._codes(below)
        return self._exact(above, below, *codes, np.empty(0, np.int32), k, life)

    def _cells(self, events: Floats, k: int, life: Life) -> Rows:
        """Return where events are found in the lists; none if lists are of no use."""
        lists = self.layout.lists
        if not len(lists.counts) or k > LIST or len(life.died):
            return np.empty(0, np.int32)
        cells = np.empty(len(events), np.int32)
        cells_of(lists.edges, events[:, 0], cells)
        return cells

    def _codes(self, events: Floats) -> Bytes:
        codes = np.empty(events.shape, np.uint8)
        encode_points(self.layout.edges, self.layout.first_edge, events, codes)
        return codes

    def _exact(
        self,
        above: Floats,
        below: Floats,
        over: Bytes,
        under: Bytes,
        cells: Rows,
        k: int,
        life: Life,
    ) -> Best:
        rows, scores, counts = new_best(len(above), min(k, self.rows))
        counters = new_counters()
        search_exact(
            self.layout, above, below, over, under, cells, life, rows, scores, counts, counters
        )
        return Best(rows, scores, counts, Work.of(counters))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for array in _arrays(self.layout):
            array.flags.writeable = False


def _arrays(layout: Layout) -> list[Any]:
    arrays: list[Any] = []
    for part in layout:
        arrays += part if isinstance(part, Slots | Lists) else [part]
    return arrays
