"""A worker: fetch a batch, catch up with the log, match, commit; repeat.

The order is the guarantee. The end of the log is read *after* the batch was fetched, and the log is
applied up to there. So an event that was produced after an edit was acknowledged is always matched
with that edit.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rangecast.errors import UsageError
from rangecast.server.delivery.cloudevents import ONE
from rangecast.server.log.kafka import KafkaPlace, connecting, make_topic
from rangecast.server.log.kafka_reader import KafkaTail
from rangecast.server.workers.group_member import AbortedError, Batch, Member, Record
from rangecast.server.workers.matcher import Answer, Matcher

logger = logging.getLogger("rangecast.server")
TAKEN = 2_000
"""Events that are matched at a time, at most."""
AGAIN = 1.0
"""Seconds after which a worker that lost its partitions joins again."""
_LOOK = 0.5
_TELL = 30.0
"""Seconds after which a worker logs what it waits for."""
STILL = 60.0
"""Seconds without a loop iteration after which a worker isn't ready: it hangs."""
STOP_SECONDS = 10.0
"""Seconds that a batch under way has to end after a signal; then it is left undone."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker."""

    log: str
    """The server's log: kafka://HOST:PORT/PREFIX."""
    space: str
    events: str
    """The topic that is read."""
    matches: str
    """The topic that is written."""
    tenant: str = "default"
    group: str = ""
    name: str = ""
    """Static name of this process; after a crash, its transaction is aborted at once."""
    from_start: bool = True
    """Whether a new group begins at the start."""
    data: Path | None = None
    """A folder with snapshots of the server."""
    max_events: int = 0
    """Events after which it ends; 0: never."""
    until_end: bool = False
    """Whether to stop at the initial end of the topic."""

    @property
    def batches(self) -> str:
        """Topic that records the log position that each batch was matched at."""
        return f"{self.matches}-batches"

    @property
    def group_name(self) -> str:
        """Name of the consumer group."""
        return self.group or f"{KafkaPlace.parse(self.log).prefix}-{self.space}-{self.matches}"


class BatchRecord(msgspec.Struct):
    """Record of a batch, one for each of its partitions."""

    topic: str
    partition: int
    first: int
    """The offset where it begins."""
    upto: int
    """The offset where the next one begins."""
    edits: str
    """Log position that it was matched with."""
    worker: str
    rejected: list[tuple[int, str]]
    """The events that can't be used: offset and reason."""


@dataclass
class Totals:
    """Totals of a worker."""

    events: int = 0
    matches: int = 0
    rejected: int = 0
    batches: int = 0
    transactions_aborted: int = 0
    edits: str = ""
    seconds: float = 0.0
    """Total seconds spent on batches."""
    rebalances: int = 0
    lags: dict[int, int] = field(default_factory=dict)
    """Lag of each assigned partition; replaced, never mutated."""


class Worker:
    """Matches the partitions assigned by the group, with the whole log of subscriptions."""

    def __init__(self, settings: WorkerSettings):
        self._settings = settings
        self._place = place = KafkaPlace.parse(settings.log)
        topics = settings.events, settings.matches, place.topic
        if len({*topics}) < len(topics):
            raise UsageError(
                "events, matches and the log must be three topics; given: " + ", ".join(topics)
            )
        self.name = settings.name or secrets.token_hex(4)
        self.totals = Totals()
        self.subscriptions = 0
        """Subscriptions when it had read the log."""
        self._tail = KafkaTail(settings.log)
        self._matcher = Matcher(place, settings.tenant, settings.space, settings.events)
        self._member: Member | None = None
        self._turned = time.monotonic()
        """Time of the last loop iteration."""
        self._ends: dict[int, int] | None = None

    def prepare(self, is_over: Callable[[], bool]) -> None:
        """Read the log and join the group; reject an incompatible setup."""
        tail, settings = self._tail, self._settings
        tail.begin(self._matcher.begin(settings.data, tail.epoch, tail.first))
        self._catch_up(is_over)
        if not is_over():
            self._join()
            self.subscriptions = len(self._matcher.entry().live)
            self._matcher.match(())  # builds the index

    def run(self, is_over: Callable[[], bool]) -> None:
        """Process batches until `is_over` returns true."""
        while not is_over():
            try:
                if self._member is None:
                    self._join()
                while not is_over() and not self._is_done():
                    self._turn(is_over)
                return
            except AbortedError as error:
                self.totals.transactions_aborted += 1
                logger.warning("a batch was rolled back: %s; rejoining the group", error)
                time.sleep(AGAIN)
            finally:
                self._leave()

    def why_not_ready(self) -> str:
        """Return why the worker can't match events now; empty if it can. Any thread may call."""
        member, still = self._member, time.monotonic() - self._turned
        if member is None:
            return "reading the log, or joining the group"
        if not member.has_joined:
            return "no partitions assigned yet"
        return f"no progress for {still:.0f} seconds" if still > STILL else ""

    @property
    def seq(self) -> int:
        """Seq up to which the log is applied."""
        return self._matcher.seq

    @property
    def position(self) -> str:
        """Position up to which the log is applied."""
        return self._matcher.position

    def close(self) -> None:
        """Close the connections."""
        self._leave()
        self._tail.close()

    def _join(self) -> None:
        settings, servers = self._settings, self._place.servers
        arguments = servers, settings.events, settings.group_name, self.name
        self._member = member = Member(*arguments)
        ends = member.ends()
        with self._place.converting_errors("the topics of matches can't be created"):
            make_topic(connecting(servers), settings.matches, len(ends))
            make_topic(connecting(servers), settings.batches, 1)
        if settings.until_end and self._ends is None:
            self._ends = ends
        member.join(from_start=settings.from_start)

    def _leave(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None
            self.totals.lags = {}

    def _is_done(self) -> bool:
        settings = self._settings
        if settings.max_events and self.totals.events >= settings.max_events:
            return True
        assert self._member is not None
        return self._ends is not None and self._member.has_reached(self._ends)

    def _turn(self, is_over: Callable[[], bool]) -> None:
        """Fetch and process a batch, if there are events; record the state."""
        member, totals = self._member, self.totals
        assert member is not None
        self._turned = time.monotonic()
        before = member.times_given
        try:
            self._batch(member, is_over)
        finally:
            totals.rebalances += member.times_given - before
        totals.lags = member.lags()

    def _batch(self, member: Member, is_over: Callable[[], bool]) -> None:
        limit = self._settings.max_events
        batch = member.fetch(TAKEN if not limit else min(TAKEN, limit - self.totals.events), _LOOK)
        if not batch.events:
            self._matcher.take(self._tail.next_units(0))
            return
        self._catch_up(is_over)
        if is_over():
            return  # nothing of it is committed: others, or the next start, get it
        began = time.monotonic()
        answer = self._matcher.match(batch.events)
        member.commit(batch, self._records(batch, answer))
        self._count(batch, answer, time.monotonic() - began)

    def _catch_up(self, is_over: Callable[[], bool]) -> None:
        """Apply the log up to everything acknowledged so far."""
        end, reported = self._tail.end(), time.monotonic()
        while self._tail.at < end and not is_over():
            units = self._tail.next_units(_LOOK)
            self._matcher.take(units)
            if units:
                reported = time.monotonic()
            elif time.monotonic() - reported > _TELL:
                reported = time.monotonic()
                logger.warning("waiting for the end of a transaction of the server")

    def _records(self, batch: Batch, answer: Answer) -> Iterator[Record]:
        settings = self._settings
        for event, consumer, body in answer.matches:
            headers: dict[str, str | bytes | None] = {
                "content-type": ONE,
                "topic": settings.events,
                "partition": str(event.partition),
                "offset": str(event.offset),
                "edits": answer.edits,
            }
            yield Record(settings.matches, consumer, body, headers)
        rejected: dict[int, list[tuple[int, str]]] = {}
        for event, why in answer.rejected:
            rejected.setdefault(event.partition, []).append((event.offset, why))
        for number, first in batch.begins.items():
            range_ = settings.events, number, first, batch.ends[number]
            batch_record = BatchRecord(*range_, answer.edits, self.name, rejected.get(number, []))
            yield Record(settings.batches, f"{settings.events}:{number}", _encode(batch_record), {})

    def _count(self, batch: Batch, answer: Answer, seconds: float) -> None:
        totals = self.totals
        totals.events += len(batch.events)
        totals.matches += len(answer.matches)
        totals.rejected += len(answer.rejected)
        totals.batches += 1
        totals.seconds += seconds
        totals.edits = answer.edits
        for event, why in answer.rejected[:1]:
            logger.warning(
                "%s events were rejected; partition %s, offset %s: %s",
                *(len(answer.rejected), event.partition, event.offset, why),
            )
        report: dict[str, Any] = {"seconds": round(seconds, 4)}
        logger.info(
            "%s events, %s matches, at %s",
            *(len(batch.events), len(answer.matches), answer.edits),
            extra=report,
        )
