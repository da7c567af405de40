"""Transactional member of a consumer group: events in, records out, exactly once.

The results of a batch and its read positions are committed together. The group's coordinator checks
that the batch was fetched in the current generation of the group; so a member that was considered
dead, and has lost its partitions, can't commit anything. Rebalancing is eager: all partitions are
revoked, then assigned again. It happens between two batches, when nothing is in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rangecast.errors import RangecastError, UsageError
from rangecast.server.calls import Caller, StuckError, close_within
from rangecast.server.log.kafka import LIMIT, arrived, connecting, is_fence, quiet, with_retries
from rangecast.server.workers.matcher import Event

logger = logging.getLogger("rangecast.server")
SESSION = 10.0
"""Seconds of silence after which a member is thought dead, and others get its partitions."""
OPEN = 10.0
"""Seconds that a transaction may stay open, and that readers wait for one of a killed writer."""


STUCK = 2 * LIMIT + 15
"""Seconds after which a commit that ignores its own timeouts is abandoned."""


class FencedError(RangecastError):
    """Another process has taken over the work of this member."""


class AbortedError(RangecastError):
    """A transaction was aborted; the new owner of its partitions fetches the batch again."""


class Record(NamedTuple):
    """A record to write."""

    topic: str
    key: str
    body: bytes
    headers: dict[str, str | bytes | None]


class Batch(NamedTuple):
    """Events fetched together, and the offsets committed with them."""

    events: list[Event]
    begins: dict[int, int]
    """Offset of each partition before the batch."""
    ends: dict[int, int]
    """Offset of each partition after the batch."""
    generation: Any


class Member:
    """Group member that fetches batches and commits their results."""

    def __init__(self, servers: str, topic: str, group: str, name: str):
        from confluent_kafka import Consumer, Producer

        self._topic = topic
        self._group = group
        self._name = name
        writing = {
            "transactional.id": f"{group}-{name}",
            "transaction.timeout.ms": int(OPEN * 1000),
            "acks": "all",
        }
        self._producer = Producer(connecting(servers) | writing, logger=quiet)
        # What another process of this name has begun is undone before this returns.
        self._converting_errors(lambda: self._producer.init_transactions(LIMIT))
        joining = {
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # where to begin is said when partitions come
            "partition.assignment.strategy": "range",
            "session.timeout.ms": int(SESSION * 1000),
            "heartbeat.interval.ms": int(SESSION * 300),
        }
        self._consumer = Consumer(connecting(servers) | joining, logger=quiet)
        self._commits = Caller("rangecast-commit")
        self._is_closing = False
        self._generation: Any = None
        self.times_given = 0
        """Number of partition assignments by the group."""
        self._next: dict[int, int] = {}
        """Next offset of each assigned partition."""
        self._seen_end: dict[int, int] = {}

    # ---- joining

    def join(self, *, from_start: bool) -> None:
        """Join the group; a new group starts at the beginning or at the end of the topic."""
        self._converting_errors(lambda: self._join(from_start=from_start))

    def _join(self, *, from_start: bool) -> None:
        places = self._all()
        if self._is_new(places):
            # All partitions at once: one that is added later begins at its start.
            for partition in places:
                partition.offset = self._consumer.get_watermark_offsets(partition, LIMIT)[
                    not from_start
                ]
            with_retries(lambda: self._begin_at(places))
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone
        )

    def _is_new(self, places: Sequence[Any]) -> bool:
        return all(partition.offset < 0 for partition in self._committed(places))

    def _begin_at(self, places: Sequence[Any]) -> None:
        """Commit the starting offsets of a new group, unless another member was faster."""
        from confluent_kafka import KafkaException

        try:
            self._consumer.commit(offsets=[*places], asynchronous=False)
        except KafkaException:
            if self._is_new(places):
                raise

    def _committed(self, places: Sequence[Any]) -> list[Any]:
        """Return the committed offsets of the group; pending transactions finish first."""
        from confluent_kafka import KafkaException

        committed: list[Any] = with_retries(lambda: self._consumer.committed([*places], LIMIT))
        for partition in committed:
            if partition.error is not None:
                raise KafkaException(partition.error)
        return committed

    def ends(self) -> dict[int, int]:
        """Return the current end offset of each partition of the topic."""
        ends = {}
        for partition in self._all():
            ends[partition.partition] = self._consumer.get_watermark_offsets(partition, LIMIT)[1]
        return ends

    def _all(self) -> list[Any]:
        """Return all partitions of the topic."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        topic = self._consumer.list_topics(self._topic, LIMIT).topics[self._topic]
        if topic.error is not None:
            if topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(topic.error)
            raise UsageError(
                f"Kafka has no topic {self._topic!r}\n"
                "  hint: create it with at least one partition per worker, or correct --events"
            )
        return [TopicPartition(self._topic, number) for number in sorted(topic.partitions)]

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        from confluent_kafka import TopicPartition

        if self._is_closing:
            return  # closing serves what the group gave last; nothing can be asked any more
        generation = consumer.consumer_group_metadata()
        self.times_given += 1
        self._next.clear()
        self._seen_end.clear()
        # Without an id it is no member any more: another call will tell that all is lost.
        self._generation = generation if consumer.memberid() else None
        for partition in self._committed(partitions) if partitions else ():
            low, _ = consumer.get_watermark_offsets(partition, LIMIT)
            if 0 <= partition.offset < low:
                logger.warning(
                    "partition %s: events %s to %s were deleted before they were matched",
                    *(partition.partition, partition.offset, low - 1),
                )
            self._next[partition.partition] = max(low, partition.offset)
        consumer.assign([TopicPartition(self._topic, *item) for item in self._next.items()])
        logger.info("has partitions %s", ", ".join(map(str, self._next)) or "none")

    def _gone(self, _consumer: Any, _partitions: Any) -> None:
        self._generation = None
        self._next.clear()
        self._seen_end.clear()

    # ---- batches

    def fetch(self, limit: int, seconds: float) -> Batch:
        """Return up to `limit` events; wait up to `seconds` for the first."""
        begins: dict[int, int] = {}
        events = []
        for record in self._converting_errors(lambda: self._fetched(limit, seconds)):
            number, offset = record.partition(), record.offset()
            # What was fetched before partitions came and went may still be among it.
            if offset >= self._next.get(number, offset + 1):
                begins.setdefault(number, self._next[number])
                events.append(Event(number, offset, record.value() or b""))
                self._next[number] = offset + 1
        ends = {number: self._next[number] for number in begins}
        return Batch(events, begins, ends, self._generation)

    def _fetched(self, limit: int, seconds: float) -> list[Any]:
        from confluent_kafka import KafkaError, KafkaException

        records = []
        for record in arrived(self._consumer, limit, seconds):
            error = record.error()
            if error is None:
                records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._seen_end[record.partition()] = record.offset()
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._MAX_POLL_EXCEEDED):
                raise AbortedError(error.str())
            else:
                raise KafkaException(error)
        return records

    @property
    def has_joined(self) -> bool:
        """Whether the group has assigned partitions, possibly none."""
        return self._generation is not None

    def lags(self) -> dict[int, int]:
        """Return the lag of each assigned partition, as far as known."""
        from confluent_kafka import TopicPartition

        lags = {}
        for number, at in self._next.items():
            partition = TopicPartition(self._topic, number)
            _, end = self._consumer.get_watermark_offsets(partition, cached=True)
            # The end has records that aren't data: of those, only their end is seen.
            lags[number] = max(0, end - max(at, self._seen_end.get(number, 0)))
        return lags

    def has_reached(self, ends: dict[int, int]) -> bool:
        """Return whether all assigned partitions are committed up to the given ends."""
        return self.has_joined and all(
            max(at, self._seen_end.get(number, 0)) >= ends.get(number, 0)
            for number, at in self._next.items()
        )

    def commit(self, batch: Batch, records: Iterable[Record]) -> None:
        """Commit the records and offsets of a batch, both or neither.

        `AbortedError`: neither was committed; leave the group and rejoin.
        """
        if batch.generation is None:
            raise AbortedError("the partitions were lost")
        try:
            self._converting_errors(lambda: self._commits.wait(STUCK, self._commit, batch, records))
        except StuckError as error:
            raise AbortedError(f"Kafka: {error}") from None

    def _commit(self, batch: Batch, records: Iterable[Record]) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        producer = self._producer
        is_ending = False
        try:
            producer.begin_transaction()
            for record in records:
                self._produce(record)
            producer.flush(LIMIT)
            places = [TopicPartition(self._topic, *item) for item in batch.ends.items()]
            producer.send_offsets_to_transaction(places, batch.generation, LIMIT)
            is_ending = True
            self._end_transaction()
        except KafkaException as failure:
            error = failure.args[0]
            is_known = not is_ending or error.txn_requires_abort()
            if error.fatal() or is_fence(error) or not is_known:
                raise  # its outcome isn't known: the next process reads the outcome
            producer.abort_transaction(LIMIT)
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise UsageError(
                    "an event with all its subscriptions of one consumer exceeds the size limit "
                    "of a Kafka record\n  hint: raise max.message.bytes of the topic of matches, "
                    "and message.max.bytes of the brokers"
                ) from None
            raise AbortedError(error.str()) from None

    def _produce(self, record: Record) -> None:
        topic, key, body, headers = record
        while True:
            try:
                self._producer.produce(topic, body, key, headers=headers)
                self._producer.poll(0)
                return
            except BufferError:  # more than may wait
                self._producer.poll(1.0)

    def _end_transaction(self) -> None:
        self._producer.commit_transaction(LIMIT)

    def close(self) -> None:
        """Leave the group, within a bounded time."""
        self._is_closing = True
        self._commits.end()
        close_within(self._consumer)

    def _converting_errors(self, call: Callable[[], Any]) -> Any:
        """Call a Kafka function; convert its errors."""
        from confluent_kafka import KafkaException

        try:
            return call()
        except KafkaException as failure:
            error = failure.args[0]
            if is_fence(error) or error.fatal():
                raise FencedError(
                    f"this worker is fenced off ({error.str()}): another one uses its name, "
                    f"{self._name!r}, or it or the brokers stalled for more than {OPEN:g} "
                    "seconds\n"
                    "  hint: give every worker a unique --name, or none; restart it"
                ) from None
            raise RangecastError(
                f"Kafka: {error.str()}\n  hint: check the brokers, then restart the worker"
            ) from None
