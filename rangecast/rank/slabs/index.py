"""Score-ordered slabs: the top k in any number of dimensions, without a structure per attribute.

The idea. Boxes are sorted best first, in blocks of 64, with their bounds as one-byte codes. A block
is compared with an event in two instructions per attribute; the remaining bits are its matches, and
the search stops when it has k. Only where an event shares a slab with a bound is the box itself
compared. So an event that many subscriptions match is done after a few blocks; one that few match
looks at the hulls of all blocks, and into the blocks near it.

With a single attribute, the best boxes of each of many cells are stored (`lists`): if k is at most
64, an event then looks up a list, whatever the number of boxes.

An event may be a span of values on some attributes. It is compared as its two ends: a box that it
must overlap begins before its end and ends after its beginning; one that must contain it, the other
way round.

Layout: see `layout`. Work: `words` of 64 comparisons, boxes `tested` exactly.
The structure is new.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, readonly
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.jit import direct
from rangecast.model.boxes import Boxes
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.result import (
    Best,
    Span,
    Work,
    checked,
    ends_of,
    new_best,
    new_counters,
    not_exact,
)
from rangecast.rank.scores.combine import number_of
from rangecast.rank.scores.tolerances import NO_TOLERANCES
from rangecast.rank.slabs.adding import add_exact, add_exact_one, add_relaxed
from rangecast.rank.slabs.exact import search_exact, search_exact_one
from rangecast.rank.slabs.layout import lay_out
from rangecast.rank.slabs.lists import CellResolution
from rangecast.rank.slabs.relaxed import search_relaxed, search_relaxed_one

Call = tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]
"""Kernel for one event, with its arguments before `above` and `below` and before the top k."""
_FINENESS = CellResolution()
_NO_FLOOR = np.array([-np.inf])


class Slabs:
    """Ranking index: blocks of boxes in score order, compared with events by slab codes."""

    name = "slabs"

    def __init__(
        self,
        boxes: Boxes,
        *,
        relaxed: bool = False,
        combine: str = "sum",
        fineness: CellResolution = _FINENESS,
    ):
        self.dimensions, self.rows = boxes.dimensions, boxes.rows
        self.relaxed = relaxed
        self._combine = number_of(combine)
        self.layout = Bundle(lay_out(boxes, relaxed=relaxed, combine=combine, fineness=fineness))

    @property
    def memory(self) -> int:
        """Bytes of all arrays held; the boxes are among them."""
        return self.layout.memory

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event."""
        if self.relaxed:
            return self.best_near(points, k, NO_TOLERANCES, liveness=liveness)
        events = checked(points, self.dimensions, k)
        return self._exact(events, events, k, liveness, is_span=False)

    def best_near(self, points: F64, k: int, tolerances: F64, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event in relaxed ranking, with a tolerance per attribute."""
        assert self.relaxed
        events = checked(points, self.dimensions, k)
        search = search_relaxed_one if len(events) == 1 else search_relaxed
        rows, scores, counts = new_best(len(events), min(k, self.rows))
        counters = new_counters(levels=0)
        how = self._combine, tolerances
        arguments = self.layout.table, *how, events, *liveness, _no_floors(len(events))
        search(*arguments, rows, scores, counts, counters)
        return Best(rows, scores, counts, Work.of(counters))

    def best_spans(self, lo: F64, hi: F64, k: int, span: Span, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of events that are spans, (events, d) from lo to hi, both included.

        span   `overlap`: a subscription must meet the span; `contain`: hold all of it.
        """
        if self.relaxed:
            raise not_exact()
        above, below = ends_of(lo, hi, self.dimensions, k, span)
        return self._exact(above, below, k, liveness, is_span=True)

    def add(
        self,
        best: Best,
        above: F64,
        below: F64,
        is_span: bool,
        liveness: Liveness,
        arrival: I64,
        tolerances: F64 = NO_TOLERANCES,
    ) -> Work:
        """Merge this index's top k into `best`, the top k of the set's other rows; return the work.

        best           changed in place; its rows are those of the set
        above, below   checked events, (events, d): a box contains one if lo <= above, below <= hi
        arrival        of the rows of the set; it breaks ties
        """
        counters = new_counters(levels=0)
        others = *liveness, arrival, best.rows, best.scores, best.counts, counters
        if self.relaxed:
            add_relaxed(self.layout.table, self._combine, tolerances, above, *others)
        else:
            add = _add_one() if len(above) == 1 else add_exact
            add(self.layout.table, above, below, is_span, *others)
        return Work.of(counters)

    def single_event(self, liveness: Liveness, arrival: I64) -> Call:
        """Return how the top k of one event is merged into the one of other rows, as in `add`."""
        return _add_one(), (self.layout.table,), (False, *liveness, arrival)

    def _exact(self, above: F64, below: F64, k: int, liveness: Liveness, *, is_span: bool) -> Best:
        rows, scores, counts = new_best(len(above), min(k, self.rows))
        counters = new_counters(levels=0)
        search = _exact_one() if len(above) == 1 else search_exact
        how = self.layout.table, above, below, is_span, *liveness, _no_floors(len(above))
        search(*how, rows, scores, counts, counters)
        return Best(rows, scores, counts, Work.of(counters))


@cache
def _exact_one() -> Callable[..., None]:
    """Return the kernel for one event, which takes its arguments as they are."""
    event = readonly(np.empty((1, 1)))
    out = *new_best(1, 1), new_counters(levels=0)
    return direct(search_exact_one, ALL.died, event, event, False, *ALL, _NO_FLOOR, *out)


@cache
def _add_one() -> Callable[..., None]:
    """Return the kernel that adds to the best of one event, without type dispatch."""
    event = readonly(np.empty((1, 1)))
    out = *new_best(1, 1), new_counters(levels=0)
    return direct(add_exact_one, ALL.died, event, event, False, *ALL, ALL.died, *out)


def _no_floors(events: int) -> F64:
    return _NO_FLOOR if events == 1 else np.full(events, -np.inf)
