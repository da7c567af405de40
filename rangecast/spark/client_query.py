"""Streaming on Spark Connect: the client that started a stream answers its batches.

There a function of `foreachBatch` runs on the server, which has neither the sets nor the sinks nor
the functions of the client. So it only hands its batch over:

    server    batch n -> view rangecast_<key>_<n>, waits          -> batch n + 1
    client               finds the view, answers the batch,
                         makes the view rangecast_<key>_<n>_done

The views are global temporary ones, which all sessions of a server see. They hold no rows: the
client's query over such a view reads the source of the stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_PREFIX = "rangecast_"
_DONE = "_done"
_STOP = "stop"
_DATABASE = "spark.sql.globalTempDatabase"
_MIN_WAIT = 0.02
_MAX_WAIT = 0.25
"""Seconds between two looks for a view."""
_PATIENCE = 300.0
"""Seconds for which a query is tried to start on a busy server."""
_TOO_SLOW = "Python worker failed to connect back"


@dataclass(frozen=True)
class BatchForwarder:
    """Function for `foreachBatch`, on the server, that hands each batch to the client."""

    key: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        name = f"{self.key}_{number}"
        batch.createOrReplaceGlobalTempView(name)
        try:
            for _ in _waits():
                present = _views(session, self.key)
                if f"{self.key}_{_STOP}" in present:
                    raise RuntimeError("the client has stopped the stream")
                if f"{name}{_DONE}" in present:
                    return
        finally:
            session.catalog.dropGlobalTempView(name)
            session.catalog.dropGlobalTempView(f"{name}{_DONE}")


class ClientQuery:
    """Spark Connect query whose batches are answered in this process.

    answer   called with each batch, its number and the id of the query
    `stop` waits for the current batch. Everything else is that of Spark's `StreamingQuery`.
    """

    def __init__(self, writer: Any, session: SparkSession, answer: Callable[..., None]):
        self._session = session
        self._key = f"{_PREFIX}{uuid4().hex}"
        self._answer = answer
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._query = _started(writer.foreachBatch(BatchForwarder(self._key)))
        self._thread = threading.Thread(target=self._answer_all, daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait until the query has ended; return whether it has."""
        try:
            ended: bool | None = self._query.awaitTermination(timeout)
        except PySparkException:
            if self._error is not None:  # what Spark raises only follows from it
                raise self._error from None
            raise
        if timeout is None or ended:
            self._thread.join()
        return ended

    def stop(self) -> None:
        """End the query."""
        self._stopped.set()
        self._thread.join()
        with suppress(PySparkException):  # the server may be gone, and the query with it
            self._make_view(_STOP)
            self._query.stop()
            self._session.catalog.dropGlobalTempView(f"{self._key}_{_STOP}")

    def _answer_all(self) -> None:
        """Answer batches until the query ends; the first failure ends it."""
        answered = ""
        waits = _waits()
        while not self._stopped.is_set():
            names = _views(self._session, self._key) - {f"{self._key}_{_STOP}", answered}
            waiting = [name for name in names if not name.endswith(_DONE)]
            if not waiting:
                if not self._query.isActive:
                    return
                next(waits)
                continue
            answered = waiting[0]
            number = answered.rpartition("_")[2]
            try:
                batch = self._session.read.table(f"{_database(self._session)}.{answered}")
                self._answer(batch, int(number), str(self._query.id))
            except BaseException as error:
                self._error = error
                self._make_view(_STOP)
                return
            self._make_view(f"{number}{_DONE}")
            waits = _waits()

    def _make_view(self, name: str) -> None:
        self._session.range(0).createOrReplaceGlobalTempView(f"{self._key}_{name}")


def _started(writer: Any) -> Any:
    """Start a query; a busy server may be too slow for the 10 seconds that Spark allows Python."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return writer.start()
        except PySparkException as error:
            if _TOO_SLOW not in str(error) or time.monotonic() > end:
                raise


def _waits() -> Iterator[None]:
    """Sleep at each step, longer each time."""
    seconds = _MIN_WAIT
    while True:
        yield
        time.sleep(seconds)
        seconds = min(_MAX_WAIT, 1.5 * seconds)


def _views(session: SparkSession, key: str) -> set[str]:
    """Return the names of a stream's views."""
    tables = session.catalog.listTables(_database(session), pattern=f"{key}_*")
    return {table.name for table in tables}


def _database(session: SparkSession) -> str:
    return str(session.conf.get(_DATABASE, "global_temp"))
