"""Result of a background rebuild, and the replay of edits made in the meantime."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.match.choose import Index
from rangecast.match.slabs.index import Slabs
from rangecast.model.sets.live_view import IndexPart, LiveView
from rangecast.model.sets.members import Members
from rangecast.model.sets.rowstore import (
    RowArrays,
    append,
    boxes_of,
    mark_dead,
    mention_any,
    with_room_for_deaths,
    with_source,
)
from rangecast.model.shapes.verification.candidates import Verifier
from rangecast.model.shapes.verification.places import places_of
from rangecast.model.space import Space
from rangecast.rank.live import RankedPart

View = LiveView[Index, RankedPart]
Part = IndexPart[Index, RankedPart]


class Rebuilt(NamedTuple):
    """Live rows of a view, rebuilt as new rows and parts."""

    begun: View
    """The view that was rebuilt."""
    live: I64
    """Its live rows, in order of arrival: their new numbers are 0, 1, 2 ..."""
    rows: RowArrays
    base: tuple[Part, ...]
    members: Members

    def with_later_edits(self, now: View, space: Space) -> View:
        """Replay the edits made since the rebuild began, also in `members`; return the new view."""
        begun, live, rows = self.begun, self.live, self.rows
        tail = np.arange(begun.count, now.count)
        if len(tail):
            boxes = boxes_of(now.rows, tail, space)
            ids = now.rows.ids[tail].tolist()
            rows = append(rows, len(live), boxes, now.rows.arrival[tail], ids)
        died = now.rows.died[np.concatenate([live, tail])]
        dead = np.flatnonzero(died <= now.edit)
        rows = with_room_for_deaths(rows, 0, len(dead))
        mark_dead(rows, 0, dead, died[dead])
        self.members.forget(rows.ids[dead[dead < len(live)]].tolist())
        added = len(live) + np.flatnonzero(died[len(live) :] > now.edit)
        self.members.bind_many(rows.ids[added].tolist(), added.tolist())
        later = [
            _shifted(part, len(live) - begun.count)
            for part in now.parts
            if part.start >= begun.count
        ]
        verifier = Verifier.of(space)
        if verifier is not None and now.verifier is not None:
            verifier.counts = now.verifier.counts
        count = len(live) + len(tail)
        is_ascending = now.ascending == now.count or len(tail) == 0
        return LiveView(
            rows,
            count,
            len(dead),
            now.edit,
            now.arrivals,
            count if is_ascending else len(live),
            (*self.base, *later),
            verifier,
            now.lineage + 1,
        )


def without_own_boxes(part: Part, rows: RowArrays, count: int, space: Space) -> RowArrays:
    """Drop the set's copy of the boxes of the first `count` rows if the index has them all.

    Shapes and texts are verified on the set's own boxes, so these rows must not have such
    conditions.
    """
    index, places = part.index, places_of(space)
    is_all = part.is_whole and part.end == count
    if not (is_all and isinstance(index, Slabs) and index.has_boxes):
        return rows
    if places is not None and mention_any(rows, count, places.axes):
        return rows
    return with_source(rows, count, index)


def _shifted(part: Part, shift: int) -> Part:
    rankings = {combine: ranking.shifted(shift) for combine, ranking in [*part.rankings.items()]}
    rows = part.set_rows + np.int32(shift)
    return IndexPart.of(part.index, rows, part.start + shift, part.end + shift, rankings)
