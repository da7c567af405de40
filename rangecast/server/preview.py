"""A filter that isn't saved: what it means, what covers it, and what it would have matched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rangecast.match.choose import build
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.server.delivery.messages import position
from rangecast.server.json_text import within_depth
from rangecast.server.log.base import Log
from rangecast.server.pipeline.encoding import points_of, rows_of
from rangecast.server.state.edits import EVENTS, events_of
from rangecast.server.state.registry import SpaceEntry

LOOKED_AT = 100_000
"""Events of the log that a filter is tried on, the newest."""
EXAMPLES = 5
_BYTES = 4 << 20


def tried(
    log: Log,
    epoch: str,
    entry: SpaceEntry,
    text: str,
    parse: Callable[[str, Space], Filter] = Filter.parse,
) -> dict[str, Any]:
    """Return what a person wants to know of a filter before it is saved."""
    # Words of its own: those of a filter that isn't saved don't become words of the server's space.
    space = Space.from_definition(entry.space.definition())
    wanted = parse(text, space)
    lo, hi = wanted.arrays()
    own = np.zeros(len(lo), np.int32)
    index = build(Boxes.of(lo, hi, owner=own, ids=[0], space=space), Scan.name)
    looked_at = matched = 0
    examples: list[dict[str, Any]] = []
    by_minute: dict[int, int] = {}
    after = max(log.first - 1, log.last - LOOKED_AT)
    while after < log.last:
        units = log.read(after, _BYTES)
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
