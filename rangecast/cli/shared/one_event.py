"""Common part of `why` and `why-not`: one event against a set of subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rangecast.cli.shared.option_groups import RunOptions
from rangecast.cli.shared.output import counted
from rangecast.cli.shared.run import Run
from rangecast.cli.shared.subscription_sets import one_set
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import encode_events
from rangecast.model.space import Space


class EventQuery(NamedTuple):
    """One event, its values and its point, and the subscriptions that it is compared with."""

    run: Run
    space: Space
    boxes: Boxes
    values: dict[str, Any]
    point: F64

    def done(self, facts: dict[str, Any]) -> None:
        """Set the summary."""
        rows = self.boxes.rows
        self.run.done(f"{counted(rows, 'subscription')} read", rows, facts)


@contextmanager
def event_query(
    event: str,
    subscriptions: Path,
    space: Path,
    events: Path | None,
    options: RunOptions,
    *,
    is_row: bool,
) -> Iterator[EventQuery]:
    """Read the event and the subscriptions."""
    reads = [event if event == "-" else None, subscriptions, space, events]
    with Run.started(reads=reads, options=options) as run:
        boxes, set_space = one_set(run, subscriptions, run.space(space), None)
        values, point = _event_of(run, event, set_space, events, is_row=is_row)
        yield EventQuery(run, set_space, boxes, values, point)


def _event_of(
    run: Run, text: str, space: Space, events: Path | None, *, is_row: bool
) -> tuple[dict[str, Any], F64]:
    """Return the values by attribute and the point of the event given to a command."""
    if events is not None:
        return _event_in_file(run, events, space, text, is_row=is_row)
    if is_row:
        raise UsageError("--row requires a file of events\n  hint: pass --events FILE")
    return _event(run, text, space)


def _event(run: Run, text: str, space: Space) -> tuple[dict[str, Any], F64]:
    """Parse an event given as JSON; return its values by attribute, and its point."""
    values = _values(run.file(Path(text)).read_text() if text == "-" else text)
    ignored = {run.options.event_id or "id"}
    if run.options.ignore_unknown:
        ignored |= {*values} - space.fields
    values = {name: value for name, value in values.items() if name not in ignored}
    return values, encode_events([values], space, nan=run.options.nan).points[0]


def _event_in_file(
    run: Run, path: Path, space: Space, wanted: str, *, is_row: bool
) -> tuple[dict[str, Any], F64]:
    """Return an event of a file, by its id or its row."""
    source = run.events(path, space)
    if is_row and not wanted.isdecimal():
        raise UsageError(f"--row must be a number, counted from 0; given: {wanted!r}")
    event = source.find(int(wanted) if is_row else wanted)
    if event is None:
        what = f"row {wanted}" if is_row else f"event {wanted!r}"
        raise UsageError(f"{path} has no {what}, or it is a rejected row")
    return event


def _values(text: str) -> dict[str, Any]:
    """Parse an event given as JSON."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the event is not JSON: {error}; given: {text}") from None
    if not isinstance(values, dict):
        raise UsageError(f"an event must be a JSON object from attributes to values; given: {text}")
    return values
