"""The step `notify` of a pipeline: updates of objects in, top-k lists kept, messages out.

The lists are those of `TopKLists`, in a folder of their own. A batch of updates is applied there
once, whatever crashes; its messages are kept with it, and so a sink that lacks them gets them when
the batch is run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.errors import RejectedRow, RejectedRowError, UsageError
from rangecast.model.io.atomic import write_whole
from rangecast.model.io.records import REMEDY
from rangecast.model.io.rejected import CollectedRows
from rangecast.model.space import Space
from rangecast.spark.columns import require_columns
from rangecast.spark.events import BROKEN, UNSPLIT
from rangecast.spark.session import job_name
from rangecast.spark.steps.notify.board_schema import BoardSchema
from rangecast.spark.steps.notify.buckets import STATE
from rangecast.spark.steps.notify.step import TopKLists
from rangecast.spark.stream.batch import BatchOutcome, Unread, lag, unknown
from rangecast.spark.stream.pipeline.settings import NotifyStep
from rangecast.spark.stream.sinks.base import Batch, FileSink, Sink
from rangecast.spark.stream.sinks.shapes import Output, OutputShapes, outputs
from rangecast.store.commits import BATCH_JOB

_OWNER = "stream.json"


class NotifyRunner:
    """Runner that applies updates to the lists of a `notify` step, and writes their messages."""

    def __init__(
        self,
        step: NotifyStep,
        space: Space | None,
        name: str,
        sinks: Sequence[Sink],
        rejected_sink: FileSink | None,
        report: Callable[[BatchOutcome], None],
    ):
        self.closing = ExitStack()
        self._step, self._name = step, name
        self._board_schema = BoardSchema(space, step.upper_bound_attribute)
        self._sinks, self._rejected_sink = sinks, rejected_sink
        self._report = report
        self._lists: TopKLists | None = None
        self._stream: str | None = None
        self._outputs: list[Output] = []
        self._shapes: OutputShapes | None = None

    def check(
        self, session: SparkSession, events: DataFrame, checkpoint: str | None = None
    ) -> None:
        """Check columns, sinks and lists before anything runs; a batch job has no checkpoint."""
        require_columns(events, ("id", "seq", "value"), "updates")
        for sink in self._all_sinks():
            sink.check(session)
        kind = pa.string() if dict(events.dtypes)["id"] == "string" else pa.int64()
        messages = self._board_schema.files.message_schema(kind)
        columns = from_arrow_schema(messages.append(pa.field("arrival", pa.int64())))
        for sink in self._sinks:
            sink.check_columns(columns)
        self._outputs = outputs([(self._name, self._sinks, columns, 0)])
        if checkpoint is not None:
            self._shapes = OutputShapes(session, checkpoint)
            self._shapes.check(self._outputs)
        self._lists = self.closing.enter_context(self._opened(session, kind))

    def answer(self, events: DataFrame, stream: str, number: int, unread: Unread = unknown) -> None:
        """Apply a batch of updates, and write its messages to every sink that lacks them."""
        with job_name(events.sparkSession, f"batch {number}, step {self._name}"):
            self._answer(events, stream, number, unread)

    def _answer(self, events: DataFrame, stream: str, number: int, unread: Unread) -> None:
        began = time.perf_counter()
        self._open(stream)
        lists = self._lists
        assert lists is not None
        batch = lists.committed + 1 if stream.startswith(BATCH_JOB) else number
        waiting = [sink for sink in self._sinks if not sink.has(number)]
        if batch <= lists.committed and not waiting:
            return
        updates, bad = 0, CollectedRows()
        facts = Batch(stream, number, 0, 0)
        if batch > lists.committed:
            rows = _in_order(events, self._board_schema)
            changes = lists.valid_updates(_whole(rows, bad), bad)
            self._write_rejected(events.sparkSession, bad, facts)
            lists.apply_changes(changes, batch, rows.schema.field("id").type)
            updates = len(changes)
        messages = lists.messages(batch)
        sent = messages.count()
        if self._shapes is not None:
            self._shapes.record(self._outputs, number)
        for commit in [sink.write(messages, facts) for sink in waiting]:
            commit({"rows": sent})
        self._report(
            BatchOutcome(
                number,
                0,
                0,
                events=updates + bad.count,
                matches=sent,
                rejected=bad.count,
                rejected_edits=0,
                seconds=time.perf_counter() - began,
                steps={self._name: sent},
                lag=lag(unread(), updates + bad.count),
            )
        )

    def _all_sinks(self) -> list[Sink]:
        return [*self._sinks, *([self._rejected_sink] if self._rejected_sink is not None else [])]

    def _open(self, stream: str) -> None:
        if self._stream is not None:
            return
        for sink in self._all_sinks():
            sink.open(stream, self.closing)
        self._take(BATCH_JOB if stream.startswith(BATCH_JOB) else stream)
        self._stream = stream

    def _take(self, stream: str) -> None:
        """Reject the lists of another stream: the numbers of its batches mean other updates."""
        owner = self._step.lists / _OWNER
        known = json.loads(owner.read_bytes())["stream"] if owner.exists() else stream
        if known != stream:
            raise UsageError(
                f"{self._step.lists}: contains the lists of another stream, {known}; this one is "
                f"{stream}\n  hint: use a new folder, or continue with the old checkpoint; batch "
                "jobs and streams can't share lists"
            )
        write_whole(owner, json.dumps({"stream": stream}).encode())

    def _opened(self, session: SparkSession, kind: pa.DataType) -> TopKLists:
        """Return the lists; those that aren't there yet begin with the files of the step."""
        step, files = self._step, self._board_schema.files
        how: dict[str, Any] = {"k": step.k, "descending": step.descending}
        how["space"] = self._board_schema.space
        how["upper_bound_attribute"] = step.upper_bound_attribute
        if (step.lists / STATE).exists():
            return TopKLists(session, step.lists, **how)
        objects = files.read_objects(files.file_rows(step.objects), kind=kind)
        interests = files.read_interests(files.file_rows(step.interests), max_k=step.k)
        return TopKLists(session, step.lists, objects, interests, **how)

    def _write_rejected(self, session: SparkSession, bad: CollectedRows, batch: Batch) -> None:
        """Write rejected rows to their sink; without one, raise the first."""
        if not bad.kept or (self._rejected_sink and self._rejected_sink.has(batch.number)):
            return
        if self._rejected_sink is None:
            first = bad.kept[0][0]
            remedy = f"{REMEDY}, or set a folder for rejected rows"
            raise RejectedRowError(
                RejectedRow(
                    f"batch {batch.number}, updates",
                    first.row,
                    first.column,
                    first.value,
                    first.reason,
                    remedy,
                )
            )
        columns = {
            "row": pa.array([rejection.row for rejection, _ in bad.kept], pa.int64()),
            "column": pa.array([rejection.column for rejection, _ in bad.kept], pa.string()),
            "value": pa.array([rejection.value for rejection, _ in bad.kept], pa.string()),
            "reason": pa.array([rejection.reason for rejection, _ in bad.kept], pa.string()),
            "data": pa.array([data for _, data in bad.kept], pa.string()),
        }
        rows = session.createDataFrame(pa.table(columns))
        self._rejected_sink.write(rows, batch)({"rows": len(bad.kept)})


def _in_order(events: DataFrame, board_schema: BoardSchema) -> pa.Table:
    """Return updates in the order of `seq`, those without one first."""
    seq = F.expr("try_cast(seq as bigint)")
    known = ("id", "value", *board_schema.places, BROKEN)
    names = [name for name in known if name in events.columns]
    ordered = events.withColumn("_seq", seq).orderBy(F.col("_seq").asc_nulls_first())
    return ordered.select("_seq", F.col("seq").cast("string").alias("seq"), *names).toArrow()


def _whole(rows: pa.Table, bad: CollectedRows) -> pa.Table:
    """Return the updates that are complete and have a number; reject the others."""
    broken = rows[BROKEN] if BROKEN in rows.column_names else pa.nulls(len(rows), pa.string())
    good = pc.and_(pc.is_null(broken), pc.is_valid(rows["_seq"]))
    for index in np.flatnonzero(~good.to_numpy()).tolist():
        row = rows.slice(index, 1).to_pylist()[0]
        whole = row.pop(BROKEN, None)
        del row["_seq"]
        if whole is not None:
            why = ("(all)", whole, UNSPLIT)
        else:
            why = ("seq", str(row["seq"]), "an update needs a whole number in this column")
        bad.add(RejectedRow("updates", None, *why, REMEDY), whole or row)
    left_out = [name for name in ("_seq", "seq", BROKEN) if name in rows.column_names]
    return rows.filter(good).drop_columns(left_out)
