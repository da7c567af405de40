"""Numbers of a report, counted from the files of a run: events, subscriptions and a result.

Memory: a few numbers per event and one per subscription; the result streams through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.match.verification.claims import rows_of
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import Category, Hierarchy
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import Events
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space
from rangecast.report.facts import BusySubscription, Group, Region

_CELLS = 28
_SPANS = 39
_EDGE = 0.005
"""Share of events at either end of an attribute that a map omits."""


@dataclass(frozen=True)
class Tally:
    """Matches of each event and of each subscription, and the coordinates of the events."""

    space: Space
    boxes: Boxes
    axes: dict[str, F64]
    """Coordinates of the events, by attribute shown."""
    per_event: I64
    per_subscription: I64
    map_of: tuple[str, str] | None

    def busiest(self, most: int) -> list[BusySubscription]:
        """Return the subscriptions with the most matches."""
        order = np.argsort(-self.per_subscription, kind="stable")[:most].tolist()
        return [
            BusySubscription(
                str(self.boxes.ids[row]), int(self.per_subscription[row]), self.filter_of(row)
            )
            for row in order
            if self.per_subscription[row]
        ]

    def idle(self, most: int) -> list[tuple[str, str]]:
        """Return some subscriptions without a match, spread over the set."""
        rows = np.flatnonzero(self.per_subscription == 0)
        spread = rows[:: max(1, len(rows) // most)][:most].tolist()
        return [(str(self.boxes.ids[row]), self.filter_of(row)) for row in spread]

    def filter_of(self, row: int) -> str:
        """Return the filter of a subscription as text."""
        own = slice(*self.boxes.box_offsets[row : row + 2].tolist())
        return text_of_bounds(self.space, self.boxes.lo[own], self.boxes.hi[own])

    def over_time(self) -> Group | None:
        """Return the events without a match over the first attribute of time."""
        name = _named(self.space, (Timestamp,))
        if name is None or not len(self.per_event):
            return None
        when = self.axes[name]
        here = np.isfinite(when)
        if not here.any():
            return None
        edges = np.linspace(when[here].min(), when[here].max() + 1, _SPANS + 1)
        counts, unwanted = self._count_by(np.searchsorted(edges, when, "right") - 1, here, _SPANS)
        starts = edges[:-1].astype(np.int64).astype("datetime64[us]")
        return Group(name, starts, counts, unwanted)

    def by_value(self) -> Group | None:
        """Return the events without a match by the first attribute with listed values."""
        name = _named(self.space, (Hierarchy, Category))
        if name is None:
            return None
        codes = self.axes[name]
        here = np.isfinite(codes)
        known, places = np.unique(codes[here], return_inverse=True)
        whole = np.zeros(len(codes), np.int64)
        whole[here] = places
        labels = [str(self.space[name].value(code)) for code in known.tolist()]
        return Group(name, labels, *self._count_by(whole, here, len(known))) if labels else None

    def _count_by(self, column: I64, mask: Bool, size: int) -> tuple[I64, I64]:
        unwanted = mask & (self.per_event == 0)
        return (
            np.bincount(column[mask], minlength=size),
            np.bincount(column[unwanted], minlength=size),
        )

    def region(self) -> Region | None:
        """Return the events and the matches over two attributes."""
        if self.map_of is None or not len(self.per_event):
            return None
        x, y = (self.axes[name] for name in self.map_of)
        here = np.isfinite(x) & np.isfinite(y)
        if not here.any():
            return None
        x, y, matches = x[here], y[here], self.per_event[here]
        bins = [_edges(y), _edges(x)]
        seen, _, _ = np.histogram2d(y, x, bins)
        weighted, _, _ = np.histogram2d(y, x, bins, weights=matches)
        return Region(
            *self.map_of, bins[1], bins[0], seen.astype(np.int64), weighted.astype(np.int64)
        )


def tally(
    events: Iterable[Events],
    boxes: Boxes,
    space: Space,
    result: Iterable[pa.RecordBatch],
    *,
    map_of: tuple[str, str] | None = None,
) -> Tally:
    """Count matches. The map is over two attributes, by default the first two numbers."""
    numbers = [a.name for a in space if isinstance(a, Number | Integer)]
    shown = map_of or ((numbers[0], numbers[1]) if len(numbers) > 1 else None)
    names = [_named(space, (Timestamp,)), _named(space, (Hierarchy, Category)), *(shown or ())]
    wanted = {name: space.axis(name) for name in names if name is not None}
    ids, columns = [], []
    for named, coordinates in events:
        ids.append(named)
        columns.append(coordinates[:, list(wanted.values())])
    points = np.concatenate(columns) if columns else np.zeros((0, len(wanted)))
    of_event = Places(pa.concat_arrays(ids) if ids else pa.array([], pa.int64()))
    of_row = Places(boxes.ids)
    per_event = np.zeros(len(points), np.int64)
    per_subscription = np.zeros(boxes.rows, np.int64)
    for batch in result:
        rows = rows_of(batch)
        event = np.repeat(of_event.find(rows.events), rows.sizes)
        row = of_row.find(rows.subscriptions)
        per_event += np.bincount(event[event >= 0], minlength=len(per_event))
        per_subscription += np.bincount(row[row >= 0], minlength=boxes.rows)
    axes = {name: points[:, index] for index, name in enumerate(wanted)}
    return Tally(space, boxes, axes, per_event, per_subscription, shown)


def _named(space: Space, kinds: tuple[type[Any], ...]) -> str | None:
    """Return the first attribute of one of these kinds."""
    return next((attribute.name for attribute in space if isinstance(attribute, kinds)), None)


def _edges(values: F64) -> F64:
    """Return cell edges; they grow by a factor if the values span decades."""
    low = float(np.quantile(values, _EDGE, method="lower"))
    high = float(np.quantile(values, 1 - _EDGE, method="higher"))
    if low == high:
        return np.array([low - 0.5, low + 0.5])
    if low > 0 and high / low > 20:
        return np.geomspace(low, high, _CELLS + 1)
    return np.linspace(low, high, _CELLS + 1)
