"""A stream of events against a set of subscriptions that may change while it runs.

    run_stream(
        session.readStream.schema(...).parquet("events/"),
        VersionedSet(Versions("subscriptions/"), space),
        [Folder("matches/")],
        checkpoint="checkpoint/",
        quarantine=Folder("bad-rows/"),
    )

Spark cuts the stream into batches, numbers them and repeats the last one after a crash; what we
do with a batch is in `answering`. Stop it anywhere, any way, and start it again with the same
checkpoint: nothing is lost and, in sinks that promise it, nothing is there twice.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from rangecast.errors import UsageError
from rangecast.spark.session import need_classic
from rangecast.spark.stream.batch import BatchRunner, Done, MatchOptions
from rangecast.spark.stream.sets import VersionedSet
from rangecast.spark.stream.sinks import Folder, Sink

AVAILABLE_NOW = "available-now"
_STREAM_ID = "sql.streaming.queryId"


def run_stream(
    events: DataFrame,
    subscriptions: VersionedSet,
    sinks: Sequence[Sink],
    *,
    checkpoint: str | os.PathLike[str],
    options: MatchOptions | None = None,
    quarantine: Folder | None = None,
    trigger: str = AVAILABLE_NOW,
    report: Callable[[Done], None] = lambda _: None,
    watch: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer a streaming DataFrame until it ends, or until Ctrl-C or SIGTERM.

    trigger     "available-now": what there is, then end; or the time between batches, "10 seconds"
    quarantine  where bad rows go; without, the first one ends the stream
    report      called with each batch when it is done
    watch       called after each step of a batch
    """
    if not events.isStreaming:
        raise UsageError("a stream takes a streaming DataFrame, as session.readStream gives")
    session = events.sparkSession
    need_classic(session, "run_stream")
    failed: list[BaseException] = []
    runner = BatchRunner(subscriptions, options or MatchOptions(), sinks, quarantine, report, watch)
    with runner.closing:
        runner.check(session, events)

        def each(batch: DataFrame, number: int) -> None:
            stream = batch.sparkSession.sparkContext.getLocalProperty(_STREAM_ID)
            try:
                runner.answer(batch, str(stream), number)
            except BaseException as error:
                failed.append(error)
                raise

        when = {"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger}
        writer = events.writeStream.foreachBatch(each).trigger(**when)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            with _stop_requested() as stop:
                while not stop.is_set() and not query.awaitTermination(1):
                    pass
                query.stop()
        except Exception:
            if failed:  # what Spark raises only wraps it
                raise failed[0] from None
            raise


@contextmanager
def _stop_requested() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set; Spark's own way to hear Ctrl-C is to crash."""
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
