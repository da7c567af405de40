"""What `match` and `rank` share: read both files, answer batch by batch, write, sum up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangecast.cli.output import counted
from rangecast.cli.run import Run
from rangecast.model.boxes import Boxes
from rangecast.model.events import Events
from rangecast.model.space import Space

Answer = Callable[[Iterator[Events]], Iterator[list[pa.Array]]]
"""All events -> pieces of the result: the ids of the events, the rows of the subscriptions, and
what else the result has, one array per column."""

_TYPES = {"rank": pa.int64(), "score": pa.float64()}


def answer_events(
    run: Run,
    events: Path,
    subscriptions: Path,
    space: Path,
    columns: list[str],
    start: Callable[[Boxes, Space], Answer],
    facts: Mapping[str, Any],
) -> None:
    """Write the answers to all events; `start` makes the answerer from the subscriptions."""
    where = run.space(space)
    source = run.events(events, where)
    boxes = run.subscriptions(subscriptions, where)
    answer = start(boxes, where)
    types = {"event": source.id_type or pa.int64(), "subscription": boxes.ids.type, **_TYPES}
    schema = pa.schema([(name, types[name]) for name in columns])
    count = 0

    def batches() -> Iterator[Events]:
        nonlocal count
        for batch in run.batches("answering events", source):
            count += len(batch.points)
            yield batch

    with run.writer(schema) as writer:
        for piece in answer(batches()):
            named = dict(zip(columns, piece, strict=True))
            named["subscription"] = boxes.ids.take(named["subscription"])
            writer.write(pa.record_batch(list(named.values()), schema=schema))
    text = f"{counted(count, 'event')} against {counted(boxes.rows, 'subscription')}"
    run.done(
        f"{text}: {counted(writer.rows, 'row')}",
        count,
        {"events": count, "subscriptions": boxes.rows, "rows": writer.rows, **facts},
    )
