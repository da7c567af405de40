"""The steps `cover_commands` and `merge_commands`: what to advertise as subscriptions come and go.

    sent = cover_commands(commands, space, by="broker")    # broker, seq, action, subscription, ...

Commands of one set are done one after the other, in one task, in the order of `seq`. With `by`,
each value of that column has a set of its own, and sets are worked on side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from rangecast.cover.coverset import CoverSet
from rangecast.errors import UsageError
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import MAX_RANGES
from rangecast.merge.summary import Summary
from rangecast.model.attributes.text import String
from rangecast.model.commands import as_commands
from rangecast.model.space import Space
from rangecast.spark.columns import arrow_schema, require_columns
from rangecast.spark.steps.merge import check_width

_NEEDED = ("seq", "command", "id")


def cover_commands(
    commands: DataFrame,
    space: Space,
    *,
    index: str = "auto",
    k: int | str = 1,
    by: str | None = None,
) -> DataFrame:
    """Return what commands advertise to neighbours: seq, action, subscription, exposed.

    commands    seq, command (subscribe, unsubscribe, replace), id, and filter or bounds
    index, k    as `rangecast.cover.CoverSet` takes them
    by          a column: each of its values has a set of its own. It comes first in the result

    `exposed`: whether a message is sent because its coverer left or shrank. A command that can't be
    done fails the job.
    """
    CoverSet(space, index=index, k=k)  # rejects wrong options here, and compiles

    def done(table: pa.Table) -> pa.Table:
        todo = as_commands(table, space)
        return todo.messages(CoverSet(space, index=index, k=k).update_many(todo))

    require_columns(commands, _NEEDED, "commands")
    kind = commands.schema["id"].dataType
    named = StructType().add("action", StringType()).add("subscription", kind)
    return _run_commands(commands, done, named.add("exposed", BooleanType()), by)


def merge_commands(
    commands: DataFrame,
    space: Space,
    bits: int = 8,
    *,
    attributes: Sequence[str] | None = None,
    cells: Cells | None = None,
    max_ranges_per_subscription: int = MAX_RANGES,
    gap: int = 0,
    by: str | None = None,
) -> DataFrame:
    """Return what commands advertise to neighbours: seq, action (add, drop), start, end.

    Commands and `by` are as in `cover_commands`; the rest is what `rangecast.merge.Summary` takes.
    """
    grid = Cells.chosen(space, bits, attributes, cells)
    check_width(grid)
    texts = [space.names[axis] for axis in grid.axes if isinstance(space.attributes[axis], String)]
    if texts:
        raise UsageError(
            f"tasks would number the strings of {', '.join(map(repr, texts))} differently\n"
            "  hint: leave string attributes out of the cells, with attributes="
        )

    def done(table: pa.Table) -> pa.Table:
        return (
            Summary(
                space, cells=grid, max_ranges_per_subscription=max_ranges_per_subscription, gap=gap
            )
            .update_many(table)
            .table()
        )

    named = StructType().add("action", StringType())
    return _run_commands(commands, done, named.add("start", LongType()).add("end", LongType()), by)


def _run_commands(
    commands: DataFrame,
    done: Callable[[pa.Table], pa.Table],
    named: StructType,
    by: str | None,
) -> DataFrame:
    """Run the commands of each set in one task; each answer refers to the row of its command."""
    if commands.isStreaming:
        raise UsageError(
            "commands must be a batch DataFrame: a set can't be kept between the batches of a "
            "stream\n"
            "  hint: use edits in a pipeline instead: docs/how-to/streaming.md"
        )
    require_columns(commands, [*_NEEDED, *([] if by is None else [by])], "commands")
    schema = StructType().add("seq", commands.schema["seq"].dataType)
    if by is not None:
        schema = StructType().add(commands.schema[by]).add(schema[0])
    for field in named:
        schema = schema.add(field)
    written = arrow_schema(schema)

    def play(table: pa.Table) -> pa.Table:
        table = table.sort_by("seq")
        own = [] if by is None else [by]
        answers = done(table.drop_columns(own))
        rows = answers["command"]
        columns: dict[str, Any] = {name: table[name].take(rows) for name in (*own, "seq")}
        columns |= {name.name: answers[name.name] for name in named}
        return pa.table(columns).cast(written)

    sets = commands.groupBy() if by is None else commands.groupBy(by)
    return sets.applyInArrow(play, schema)
