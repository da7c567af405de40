"""`match --track`: read both files, track the objects batch by batch, write their transitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from rangecast.cli.shared.option_groups import TrackOptions
from rangecast.cli.shared.output import counted
from rangecast.cli.shared.run import Run
from rangecast.cli.shared.subscription_sets import one_set, version_as_of
from rangecast.cli.tasks.track_rules import TrackRules, read_rules
from rangecast.engine import Engine
from rangecast.errors import UsageError, did_you_mean
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space
from rangecast.results import separated
from rangecast.track.delivery.notifications import table_of
from rangecast.track.delivery.notifier import Notifier
from rangecast.track.rules import Rule
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import Transitions


def track_events(
    run: Run,
    files: tuple[Path, Path, Path],
    asked: TrackOptions,
    index: str,
    as_of: str | None = None,
) -> None:
    """Write the transitions of the objects in a file of events.

    files   events, subscriptions and the space
    as_of   the version of the subscriptions, by number or time
    """
    key = asked.track
    assert key is not None
    where = run.space(files[2])
    boxes, where = one_set(run, files[1], where, version_as_of(files[1], as_of))
    engine = Engine(where, index=index)
    ids = int if pa.types.is_integer(boxes.ids.type) else str
    rules = TrackRules() if asked.rules is None else read_rules(asked.rules, ids)
    tracker = Tracker(
        engine,
        key=key,
        time=_time_attribute(where, asked.time),
        rule=_rule(asked, rules),
        rules=rules.rules,
        after=asked.after,
        lateness=asked.lateness,
        inside=asked.inside,
        accuracy=rules.accuracy,
    )
    notifier = Notifier(rules.policy, rules.policies) if rules.has_policies else None
    run.options = replace(run.options, keep=tracker.columns)
    source = run.events(files[0], where)
    for column in tracker.columns:
        if column not in source.kept.names:
            raise UsageError(
                f"--track {column}: events have no such column\n"
                "  hint: name the column that identifies the object of an event"
            )
    engine.subscribe_many(boxes)
    kind = source.kept.field(key).type
    columns = Transitions.none().table().schema
    schema = columns.set(0, pa.field("event", source.id_type or pa.int64()))
    schema = schema.set(1, pa.field("subscription", boxes.ids.type))
    schema = schema.set(3, pa.field("key", kind if pa.types.is_integer(kind) else pa.string()))
    if notifier is not None:
        schema = schema.append(pa.field("notification", pa.string()))
        schema = schema.append(pa.field("window", pa.string()))
    count = 0
    with run.writer(schema) as writer:

        def write(transitions: Transitions) -> None:
            if notifier is None:
                write_table(transitions.table())
            else:
                write_table(table_of(notifier.take(transitions)))

        def write_table(table: pa.Table) -> None:
            if len(table):
                for batch in table.cast(schema).to_batches():
                    writer.write(batch)

        for ids, points in run.batches("tracking events", source):
            count += len(points)
            known, kept = separated(ids)
            assert kept is not None
            columns = [kept.column(name).combine_chunks() for name in tracker.columns]
            write(tracker.update_points(columns[0], points, known, *columns[1:]))
        write(tracker.flush())
        if notifier is not None:
            if tracker.watermark is not None:
                write_table(table_of(notifier.advance(tracker.watermark)))
            write_table(table_of(notifier.close()))
    if notifier is not None and notifier.dropped:
        run.warnings.append(f"{counted(notifier.dropped, 'transition')} dropped by policies")
    ignored = {"late": tracker.late, "repeated": tracker.repeated, "incomplete": tracker.incomplete}
    for reason, number in ignored.items():
        if number:
            run.warnings.append(f"{counted(number, f'{reason} event')} had no effect")
    text = f"{counted(count, 'event')} against {counted(boxes.rows, 'subscription')}"
    facts = {"events": count, "subscriptions": boxes.rows, "rows": writer.rows, **ignored}
    run.done(f"{text}: {counted(writer.rows, 'transition')}", count, facts)


def _rule(asked: TrackOptions, rules: TrackRules) -> Rule:
    """Return the rule of all subscriptions, from the options or from the file."""
    options = {"for_": asked.for_, "dwell": asked.dwell, "first": asked.first}
    named = [name for name, value in options.items() if value]
    if rules.rule is None:
        return Rule(for_=asked.for_, dwell=asked.dwell, first=asked.first or "enter")
    if named:
        raise UsageError(
            f"--{named[0].rstrip('_')} and the table 'rule' of --rules both set the rule of all "
            "subscriptions\n"
            "  hint: leave out one of them"
        )
    return rules.rule


def _time_attribute(space: Space, name: str | None) -> str:
    """Return the timestamp attribute that orders events: the given one, or the only one."""
    known = [attribute.name for attribute in space if isinstance(attribute, Timestamp)]
    if name is not None:
        if name not in known:
            raise UsageError(
                f"--time {name}: the space has no such timestamp: {did_you_mean(name, known)}"
            )
        return name
    if len(known) != 1:
        available = f"{len(known)}: {', '.join(known)}" if known else "none"
        raise UsageError(
            f"--track needs a timestamp; the space has {available}\n  hint: name it with --time"
        )
    return known[0]
