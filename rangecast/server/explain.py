"""Explain the live set: recipients of an event, near misses, covering, filter previews.

Work is bounded: at most `MAX_EXAMINED` subscriptions or events are examined, and the response says
how many were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, did_you_mean
from rangecast.kernels.arrays import F64, I32
from rangecast.match.choose import build
from rangecast.match.scan import Scan
from rangecast.model.attributes.base import Attribute, Boolean
from rangecast.model.attributes.numbers import MAX
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import encode_event
from rangecast.model.explain import explain_match, lack_of, nearest_misses
from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.server.delivery.messages import position
from rangecast.server.encoding import points_of, rows_of
from rangecast.server.json_text import within_depth
from rangecast.server.log.base import Log
from rangecast.server.state.edits import EVENTS, events_of
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.space_index import SpaceIndex
from rangecast.server.state.versions.version import Version

MAX_EXAMINED = 100_000
"""Subscriptions, or past events, that are examined."""
SHOWN = 100
"""Matching subscriptions that are named."""
EXAMPLES = 5
"""Past events that a preview shows."""
_READ_BYTES = 4 << 20
_UPRIGHT = re.compile(r"(?i)(.*_)?(lat|latitude|y|northing)$")
"""Names of attributes that maps and plots draw upwards."""


class ExplainQuery(NamedTuple):
    """The event to explain."""

    event: Mapping[str, Any]
    ignore_unknown: bool = False
    has_boxes: bool = False
    """Whether all alternatives of a filter are shown, instead of the nearest one."""

    def point(self, space: Space) -> F64:
        """Return the coordinates of the event."""
        return encode_event(self.event, space, ignore_unknown=self.ignore_unknown)


def why(space: Space, version: Version, query: ExplainQuery) -> dict[str, Any]:
    """Explain why a subscription matches an event or doesn't, attribute by attribute."""
    lo, hi = Filter.parse(version.filter, space, max_boxes=ANY_BOXES).arrays()
    return _explained(space, version.id, (lo, hi), query.point(space), query)


def recipients(
    index: SpaceIndex, query: ExplainQuery, sessions: Collection[int] = (), nearest: int = 10
) -> dict[str, Any]:
    """Return the subscriptions that match an event, and the nearest misses with reasons.

    sessions  session subscriptions, which are ignored
    """
    engine = index.engine
    space = engine.space
    point = query.point(space)
    numbers = index.match(point[np.newaxis]).numbers
    numbers = numbers[~np.isin(numbers, list(sessions))]
    boxes = _without_sessions(engine.boxes(MAX_EXAMINED), sessions)
    missed: list[dict[str, Any]] = []
    first = boxes.box_offsets
    for row in nearest_misses(space, boxes, point, nearest):
        part = slice(first[row], first[row + 1])
        name = index.ids[boxes.ids[row].as_py()]
        bounds = boxes.lo[part], boxes.hi[part]
        missed.append(_explained(space, name, bounds, point, query))
    return {
        "count": len(numbers),
        "matches": index.ids.listed(numbers[:SHOWN]),
        "nearest": missed,
        "looked_at": boxes.rows,
        "subscriptions": len(engine) - len(sessions),
    }


def _without_sessions(boxes: Boxes, sessions: Collection[int]) -> Boxes:
    """Return the boxes without those of session subscriptions."""
    if not sessions:
        return boxes
    numbers = boxes.ids.to_numpy(zero_copy_only=False)
    return boxes.take(np.flatnonzero(~np.isin(numbers, list(sessions))))


def find_covering(
    index: SpaceIndex, filter_: Filter, number: int | None = None, sessions: Collection[int] = ()
) -> dict[str, Any]:
    """Return the earliest subscription that covers a filter.

    Covering is defined as in `cover`: each box lies inside a single box of the other subscription;
    of two that cover each other, the earlier one counts. `number` is the filter's own number, if it
    is saved; `sessions` are session subscriptions, which are ignored. A single query compares all
    boxes: building an index and compiling its kernels would take longer.
    """
    boxes = index.engine.boxes(MAX_EXAMINED)
    own = boxes.rows
    if number is not None:
        rows = np.flatnonzero(boxes.ids.to_numpy(zero_copy_only=False) == number)
        own = int(rows[0]) if len(rows) else own
    lo, hi = filter_.arrays()
    by = None
    for row in _coverers(boxes, lo, hi):
        other = boxes.ids[row].as_py()
        if other in sessions or row == own:
            continue
        if row < own or not _covers(lo, hi, boxes.take([row])):
            by = index.ids[other]
            break
    return {"covered_by": by, "looked_at": boxes.rows, "subscriptions": len(index.engine)}


def _coverers(boxes: Boxes, lo: F64, hi: F64) -> list[int]:
    """Return the rows with a box around each of the given boxes, in order of arrival."""
    left = np.arange(len(boxes.lo))
    rows: I32 = boxes.owner[:0]
    for low, high in zip(lo, hi, strict=True):
        around = (boxes.lo[left] <= low).all(axis=1) & (high <= boxes.hi[left]).all(axis=1)
        rows = np.unique(boxes.owner[left[around]])
        left = left[np.isin(boxes.owner[left], rows)]
    return [int(row) for row in rows]


def _covers(lo: F64, hi: F64, other: Boxes) -> bool:
    return all(
        bool(((lo <= low).all(axis=1) & (high <= hi).all(axis=1)).any())
        for low, high in zip(other.lo, other.hi, strict=True)
    )


def boxes_on_axes(
    index: SpaceIndex, x: str = "", y: str = "", sessions: Collection[int] = (), limit: int = 400
) -> dict[str, Any]:
    """Return two attributes and the boxes on them; boxes that bound both come first.

    Bounds are numbers: values, milliseconds for timestamps, indexes into the axis' `labels` for
    text. A missing bound is null.

    x, y   attribute names; if empty, the attribute that most boxes bound
    """
    space = index.engine.space
    for name in (x, y):
        if name and name not in space.axes:
            raise UsageError(f"no attribute {name!r}: {did_you_mean(name, space.mentionable)}")
    boxes = _without_sessions(index.engine.boxes(MAX_EXAMINED), sessions)
    chosen = _axes(space, boxes, [space.axes[name] if name else None for name in (x, y)])
    bounds = boxes.mentions[:, chosen].sum(axis=1)
    places = np.argsort(-bounds, kind="stable")[:limit]
    places = places[bounds[places] > 0]
    return {
        "axes": [_axis(space.attributes[axis]) for axis in chosen],
        "boxes": [
            {
                "subscription": index.ids[boxes.ids[int(boxes.owner[box])].as_py()],
                "x": _bounds(space, chosen[0], boxes, box),
                "y": _bounds(space, chosen[1], boxes, box),
            }
            for box in places.tolist()
        ],
        "bounded": int((bounds > 0).sum()),
        "looked_at": boxes.rows,
        "subscriptions": len(index.engine) - len(sessions),
    }


def _axes(space: Space, boxes: Boxes, wanted: Sequence[int | None]) -> list[int]:
    """Return the two attributes to draw: the given ones, else those that most boxes bound.

    Free text has no ranges to draw, so it is chosen last. The attribute that comes first in the
    space is horizontal, unless its name suggests vertical, as latitude does.
    """
    bounded = boxes.mentions.sum(axis=0)
    is_text = np.array(
        [isinstance(attribute, String) or attribute.of is not None for attribute in space]
    )
    # lexsort: the last key counts first
    order = np.lexsort((np.arange(len(space)), -bounded, is_text, bounded == 0)).tolist()
    free = [axis for axis in order if axis not in wanted]
    chosen = [(free.pop(0) if free else order[0]) if axis is None else axis for axis in wanted]
    if wanted[0] is wanted[1] is None:
        chosen.sort(key=lambda axis: (bool(_UPRIGHT.match(space.names[axis])), axis))
    return chosen


def _explained(
    space: Space, name: Id, bounds: tuple[F64, F64], point: F64, query: ExplainQuery
) -> dict[str, Any]:
    """Compare an event with a subscription: with all its boxes, or only the nearest one."""
    lo, hi = bounds
    count = len(lo)
    if not query.has_boxes:
        box = int(np.argmin(lack_of(space, lo, hi, point)))
        lo, hi = lo[box : box + 1], hi[box : box + 1]
    own = np.zeros(len(lo), np.int32)
    boxes = Boxes.of(lo, hi, owner=own, ids=pa.array([name]), space=space)
    explanation = explain_match(space, boxes, 0, point, dict(query.event))
    nearest = explanation.boxes[explanation.nearest]
    shown: dict[str, Any] = {
        "subscription": name,
        "matches": explanation.matches,
        "verdict": explanation.verdict,
        "alternatives": count,
        "lines": [asdict(line) for line in nearest if line.mentioned],
    }
    if query.has_boxes:
        shown["boxes"] = [[asdict(line) for line in box] for box in explanation.boxes]
        shown["nearest"] = explanation.nearest
    return shown


def _axis(attribute: Attribute) -> dict[str, Any]:
    labels: list[str] | None = None
    if isinstance(attribute, Category):
        labels = list(attribute.values)
    elif isinstance(attribute, Hierarchy):
        labels = list(attribute.leaves)
    elif isinstance(attribute, Boolean):
        labels = ["false", "true"]
    return {"name": attribute.name, "type": attribute.type, "labels": labels}


def _bounds(space: Space, axis: int, boxes: Boxes, box: int) -> list[Any]:
    lo, hi = float(boxes.lo[box, axis]), float(boxes.hi[box, axis])
    attribute = space.attributes[axis]
    if isinstance(attribute, String):  # the order of words is that of their arrival: no range
        word = attribute.value(lo) if lo == hi and lo >= 0 else None
        return [word, word]
    scale = 1000.0 if isinstance(attribute, Timestamp) else 1.0
    return [None if abs(bound) >= MAX else bound / scale for bound in (lo, hi)]


def preview_filter(
    log: Log,
    epoch: str,
    entry: SpaceEntry,
    text: str,
    parse: Callable[[str, Space], Filter] = Filter.parse,
) -> dict[str, Any]:
    """Return the boxes of an unsaved filter, and its matches among the newest events."""
    # A space of its own: the words of a filter that isn't saved don't enter the server's space.
    space = Space.from_definition(entry.space.definition())
    wanted = parse(text, space)
    lo, hi = wanted.arrays()
    own = np.zeros(len(lo), np.int32)
    index = build(Boxes.of(lo, hi, owner=own, ids=[0], space=space), Scan.name)
    looked_at = matched = 0
    examples: list[dict[str, Any]] = []
    by_minute: dict[int, int] = {}
    after = max(log.first - 1, log.last - MAX_EXAMINED)
    while after < log.last:
        units = log.read(after, _READ_BYTES)
        for unit in units:
            after = unit.last
            if unit.kind != EVENTS:
                continue
            head, lines = events_of(unit)
            if (head.tenant, head.space) != (entry.tenant, entry.name):
                continue
            rows = rows_of(lines, head.form)
            hits = np.unique(index.match(points_of(rows, space)).events)
            looked_at += len(rows)
            matched += len(hits)
            if len(hits):
                minute = unit.at // 60_000_000 * 60
                by_minute[minute] = by_minute.get(minute, 0) + len(hits)
            last = hits[-EXAMPLES:]
            shown = rows_of([within_depth(lines[int(hit)]) for hit in last], head.form)
            examples += [
                {"position": position(epoch, unit.first + int(hit)), "event": event}
                for hit, event in zip(last, shown, strict=True)
            ]
            examples = examples[-EXAMPLES:]
        if not units:
            break
    return {
        "filter": str(wanted),
        "boxes": [str(Filter(space, (box,))) for box in wanted.boxes],
        "looked_at": looked_at,
        "matched": matched,
        "by_minute": [[minute, count] for minute, count in sorted(by_minute.items())],
        "examples": examples[::-1],
    }
