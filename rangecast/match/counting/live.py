"""Counts of a live set: those of its parts, less the dead rows, and of the newest rows.

A part gets a counter (`counter.py`) when it is first counted. Rows that died since the part was
built are counted by one of their own, and the latest of them are compared one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.match.counting.counter import Counter
from rangecast.match.live import Part, View, match_live
from rangecast.match.recent import Recent
from rangecast.match.scan import Scan
from rangecast.model.sets.rowstore import boxes_of
from rangecast.model.space import Space

_FEW = 512
"""Dead rows that are compared one by one."""


class PartCounter(NamedTuple):
    """The counter of a part, and one of the rows that died first."""

    all_rows: Counter
    dead: int
    """Number of its rows that `dead_rows` has."""
    dead_rows: Counter | None


def count_live(view: View, points: F64, space: Space) -> I64:
    """Return how many live rows match each event, (events, d).

    Where places or texts have to be verified, the rows are enumerated.
    """
    if view.has_words:
        return np.diff(match_live(view, points).offsets)
    counts = np.zeros(len(points), np.int64)
    for part in view.parts:
        counts += _count_part(view, part, points, space)
    if view.indexed < view.count:
        newest = Recent(view.rows, view.edit, view.indexed, view.count, len(space), [])
        counts += np.diff(newest.match(points).offsets)
    return counts


def _count_part(view: View, part: Part, points: F64, space: Space) -> I64:
    own = part.own_rows(view.rows.deaths[: view.dead])
    dead = own if part.renumbered is None else part.renumbered[own].astype(np.int64)
    counter: PartCounter | None = part.counters[0] if part.counters else None
    if counter is None:
        boxes = boxes_of(view.rows, part.set_rows.astype(np.int64), space)
        counter = PartCounter(Counter(boxes), 0, None)
    if counter.dead > len(dead):  # a later view was first
        counter = PartCounter(counter.all_rows, 0, None)
    if len(dead) - counter.dead > _FEW:
        gone = Counter(boxes_of(view.rows, dead, space))
        counter = PartCounter(counter.all_rows, len(dead), gone)
    part.counters[:] = [counter]
    counts = counter.all_rows.count(points)
    if counter.dead_rows is not None:
        counts -= counter.dead_rows.count(points)
    latest = dead[counter.dead :]
    if len(latest):
        counts -= np.diff(Scan(boxes_of(view.rows, latest, space)).match(points).offsets)
    return counts
