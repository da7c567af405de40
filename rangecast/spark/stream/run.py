"""A stream of events against a set of subscriptions that may change while it runs.

    run_stream(
        session.readStream.schema(...).parquet("events/"),
        [MatchStep(VersionedSet(Versions("subscriptions/"), space), [Folder("matches/")])],
        checkpoint="checkpoint/",
        rejected=Folder("rejected/"),
    )

Spark cuts the stream into batches, numbers them and repeats the last one after a crash; `batch`
processes a batch. Stop it anywhere, any way, and start it again with the same checkpoint: nothing
is lost and, in sinks that promise it, nothing is there twice.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from rangecast.errors import UsageError
from rangecast.spark.client_query import ClientQuery
from rangecast.spark.session import is_connect
from rangecast.spark.stream.batch import BatchOutcome, BatchRunner, Unread, unknown
from rangecast.spark.stream.sinks.base import FileSink
from rangecast.spark.stream.steps import AnswerStep

AVAILABLE_NOW = "available-now"
METRICS = "rangecast"
"""Name of the metrics of a query, in its progress."""
_STREAM_ID = "sql.streaming.queryId"
_IDLE = 30.0
"""Seconds without a batch of events after which edits are read all the same."""


def run_stream(
    events: DataFrame,
    steps: Sequence[AnswerStep],
    *,
    checkpoint: str | os.PathLike[str],
    rejected: FileSink | None = None,
    ignore_unknown: bool = False,
    nan: str = "error",
    trigger: str = AVAILABLE_NOW,
    report: Callable[[BatchOutcome], None] = lambda _: None,
    watch: Callable[[str], None] = lambda _: None,
    name: str | None = None,
) -> None:
    """Answer a streaming DataFrame until it ends, or until Ctrl-C or SIGTERM.

    steps       operations on each batch of events, and the sinks of their answers
    rejected    where rejected rows go; without, the first one ends the stream
    ignore_unknown   whether events may have columns that are neither attributes nor kept by a step
    nan         "error": NaN in events is rejected; "missing": it is a missing value
    trigger     "available-now": what there is, then end; or the time between batches, "10 seconds"
    report      called with each batch when it is done
    watch       called after each step of a batch
    name        of the query, in Spark's UI and in what its listeners get
    """
    runner = BatchRunner(steps, rejected, nan, report, watch, ignore_unknown)
    run_all([EventStream(events, runner, str(checkpoint), name)], trigger)


class Runner(Protocol):
    """Protocol of a runner, which answers the batches of a stream."""

    closing: ExitStack
    """Left when there are no more batches."""

    def check(
        self, session: SparkSession, events: DataFrame, checkpoint: str | None = None
    ) -> None:
        """Check the stream before anything runs; a batch job has no checkpoint."""

    def answer(self, events: DataFrame, stream: str, number: int, unread: Unread = unknown) -> None:
        """Answer a batch."""


class EventStream(NamedTuple):
    """Stream of events, and the runner that answers its batches."""

    events: DataFrame
    runner: Runner
    checkpoint: str
    name: str | None = None
    """Of the query, in Spark's UI and in its progress."""


class EditStream:
    """Stream of edits that is read to its end on demand.

    Between two calls nothing of it runs: so a batch of events that calls it first is answered with
    all edits that were available when the batch began.
    """

    def __init__(self, flow: EventStream):
        self.flow = flow
        self._one = threading.Lock()
        self._query: StreamingQuery | ClientQuery | None = None
        self._last = 0.0

    def __call__(self) -> None:
        """Read all available edits; return when they are written."""
        with self._one:
            failed: list[BaseException] = []
            try:
                self._query = _started(self.flow, AVAILABLE_NOW, failed)
                self._query.awaitTermination()
            except Exception:
                if failed:  # what Spark raises only wraps it
                    raise failed[0] from None
                raise
            self._last = time.monotonic()

    def stop(self) -> None:
        """Stop the running query."""
        if self._query is not None:
            self._query.stop()

    def if_idle(self) -> None:
        """Read what is available, if no batch has asked for it for a while.

        A source may forget: without events, edits would wait for as long.
        """
        if time.monotonic() - self._last >= _IDLE:
            self()


def run_all(flows: Sequence[EventStream], trigger: str, drains: Sequence[EditStream] = ()) -> None:
    """Answer several streams until all have ended, one fails, or until Ctrl-C or SIGTERM.

    drains   read once before the first batch, and regularly; runners call them, too
    """
    failed: list[BaseException] = []
    with ExitStack() as closing:
        for flow in (*(one.flow for one in drains), *flows):
            if not flow.events.isStreaming:
                raise UsageError(
                    "a stream requires a streaming DataFrame, as from session.readStream"
                )
            closing.enter_context(flow.runner.closing)
            flow.runner.check(flow.events.sparkSession, flow.events, flow.checkpoint)
        for drain in drains:
            drain()
        queries: list[StreamingQuery | ClientQuery] = []
        try:
            for flow in flows:
                queries.append(_started(flow, trigger, failed))
            running = queries
            with _stop_requested() as stop:
                while not stop.is_set() and running:
                    running = [query for query in running if not query.awaitTermination(1)]
                    for drain in drains if running else ():
                        drain.if_idle()
        except Exception:
            if failed:  # what Spark raises only wraps it
                raise failed[0] from None
            raise
        finally:
            for query in queries:
                query.stop()
            for drain in drains:
                drain.stop()


def _started(
    flow: EventStream, trigger: str, failed: list[BaseException]
) -> StreamingQuery | ClientQuery:
    session = flow.events.sparkSession
    started: list[StreamingQuery | ClientQuery] = []

    def unread() -> int | None:
        return unread_events(started[0].lastProgress) if started else None

    def process_batch(batch: DataFrame, number: int, stream: str | None = None) -> None:
        if stream is None:
            stream = str(batch.sparkSession.sparkContext.getLocalProperty(_STREAM_ID))
        try:
            flow.runner.answer(batch, stream, number, unread)
        except BaseException as error:
            failed.append(error)
            raise

    when = {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}
    # Steps read a batch several times: Spark 4.3 tells the rows of the last reading.
    counted = flow.events.observe(METRICS, F.count(F.lit(1)).alias("events"))
    writer = counted.writeStream.trigger(**when)
    active = {query.name for query in session.streams.active}
    if flow.name is not None and flow.name not in active:  # Spark takes a name once at a time
        writer = writer.queryName(flow.name)
    writer = writer.option("checkpointLocation", flow.checkpoint)
    if is_connect(session):
        started.append(ClientQuery(writer, session, process_batch))
    else:
        started.append(writer.foreachBatch(process_batch).start())
    return started[0]


def unread_events(progress: Any) -> int | None:
    """Return how many events all sources had when a batch began, beyond those that it took.

    Topics tell; for other sources Spark doesn't know it.
    """
    ends = [] if progress is None else json.loads(progress.json)["sources"]
    unread = [_behind(end.get("endOffset"), end.get("latestOffset")) for end in ends]
    return None if not unread or None in unread else sum(end for end in unread if end is not None)


def _behind(end: Any, latest: Any) -> int | None:
    """Return the number of messages between two offsets, summed over topics and partitions."""
    try:
        behind = [
            max(0, int(last) - int(end[topic][partition]))
            for topic, partitions in latest.items()
            for partition, last in partitions.items()
        ]
        return sum(behind)
    except (AttributeError, KeyError, TypeError):
        return None


@contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set; by default Spark crashes on Ctrl-C."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
