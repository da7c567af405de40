"""`match --track`: read both files, follow the objects batch by batch, write their transitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from rangecast.cli.shared.option_groups import TrackOptions
from rangecast.cli.shared.output import counted
from rangecast.cli.shared.run import Run
from rangecast.cli.shared.subscription_sets import one_set
from rangecast.engine import Engine
from rangecast.errors import UsageError, did_you_mean
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space
from rangecast.results import separated
from rangecast.track.rules import Rule
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import Transitions


def track_events(run: Run, files: tuple[Path, Path, Path], asked: TrackOptions, index: str) -> None:
    """Write the transitions of the objects of a file of events.

    files   events, subscriptions and the space
    """
    key = asked.track
    assert key is not None
    where = run.space(files[2])
    boxes, where = one_set(run, files[1], where, None)
    engine = Engine(where, index=index)
    tracker = Tracker(
        engine,
        key=key,
        time=_time(where, asked.time),
        rule=Rule(for_=asked.for_, dwell=asked.dwell, first=asked.first or "enter"),
        after=asked.after,
        lateness=asked.lateness,
        inside=asked.inside,
    )
    run.options = replace(run.options, keep=[key])
    source = run.events(files[0], where)
    if key not in source.kept.names:
        raise UsageError(
            f"--track {key}: events have no such column\n"
            "  hint: name the column that has the object of an event"
        )
    engine.subscribe_many(boxes)
    kind = source.kept.field(key).type
    columns = Transitions.none().table().schema
    schema = columns.set(0, pa.field("event", source.id_type or pa.int64()))
    schema = schema.set(1, pa.field("subscription", boxes.ids.type))
    schema = schema.set(3, pa.field("key", kind if pa.types.is_integer(kind) else pa.string()))
    count = 0
    with run.writer(schema) as writer:

        def write(found: Transitions) -> None:
            if len(found):
                for batch in found.table().cast(schema).to_batches():
                    writer.write(batch)

        for ids, points in run.batches("tracking events", source):
            count += len(points)
            known, kept = separated(ids)
            assert kept is not None
            write(tracker.update_points(kept.column(0).combine_chunks(), points, known))
        write(tracker.flush())
    ignored = {"late": tracker.late, "repeated": tracker.repeated, "incomplete": tracker.incomplete}
    for reason, number in ignored.items():
        if number:
            run.warnings.append(f"{counted(number, f'{reason} event')} changed nothing")
    text = f"{counted(count, 'event')} against {counted(boxes.rows, 'subscription')}"
    facts = {"events": count, "subscriptions": boxes.rows, "rows": writer.rows, **ignored}
    run.done(f"{text}: {counted(writer.rows, 'transition')}", count, facts)


def _time(space: Space, given: str | None) -> str:
    """Return the timestamp that orders events: the one that is given, or the only one."""
    known = [attribute.name for attribute in space if isinstance(attribute, Timestamp)]
    if given is not None:
        if given not in known:
            raise UsageError(
                f"--time {given}: the space has no such timestamp: {did_you_mean(given, known)}"
            )
        return given
    if len(known) != 1:
        found = f"{len(known)}: {', '.join(known)}" if known else "none"
        raise UsageError(
            f"--track needs a timestamp; the space has {found}\n  hint: name it by --time"
        )
    return known[0]
