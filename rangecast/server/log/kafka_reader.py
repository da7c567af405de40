"""Read-only tail of a server's log on Kafka, for other processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rangecast.errors import UsageError
from rangecast.server.calls import close_within
from rangecast.server.log.base import LogError, Unit
from rangecast.server.log.kafka import (
    LIMIT,
    TAKEN,
    KafkaPlace,
    PlacedUnit,
    arrived,
    connecting,
    offset_after,
    quiet,
    reading,
    unit_of,
    with_retries,
)


class KafkaTail:
    """Tails the committed units of a log, in order.

    `begin` sets the start; with `end` and `next_units`, a reader can reach everything acknowledged
    so far.
    """

    def __init__(self, url: str):
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        self._place = place = KafkaPlace.parse(url)
        settings = connecting(place.servers)
        reads = reading(f"{place.prefix}-tail") | {"auto.offset.reset": "error"}
        self._reader = Consumer(settings | reads, logger=quiet)
        self._admin = AdminClient(settings, logger=quiet)
        self.epoch, self.first = "", 1
        """Epoch and first seq of the log; unknown while it is empty."""
        self.at = 0
        """The offset up to which all has been read."""
        with place.converting_errors("can't be read"):
            self._open()

    def _open(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        topic = self._reader.list_topics(self._place.topic, LIMIT).topics[self._place.topic]
        if topic.error is not None:
            if topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(topic.error)
            raise UsageError(
                f"{self._place}: no log found: Kafka has no topic {self._place.topic!r}\n"
                "  hint: start a server with this --log first, or correct the prefix"
            )
        self._partition = self._at(0)
        partition = self._partition
        low, _ = with_retries(lambda: self._reader.get_watermark_offsets(partition, LIMIT))
        end = with_retries(self._end_now)
        self._go_to(low)
        while self.at < end and not self.epoch:
            for _, epoch, unit in self._records(1.0):
                self.epoch, self.first = epoch, unit.first
                break
        self._go_to(low)

    def begin(self, after: int) -> None:
        """Start reading after a seq."""
        with self._place.converting_errors("can't be read"):
            self._go_to(offset_after(self._place, after))

    def end(self) -> int:
        """Return an offset after everything acknowledged so far.

        It is the end of the written records, not of the committed ones: a commit is acknowledged a
        moment before readers see it.
        """
        with self._place.converting_errors("can't be read"):
            return with_retries(self._end_now)

    def next_units(self, seconds: float) -> list[Unit]:
        """Return the next units; wait up to `seconds` for one."""
        with self._place.converting_errors("can't be read"):
            units = []
            for _, epoch, unit in self._records(seconds):
                if epoch != (self.epoch or epoch):
                    raise LogError(f"the epoch changes from {self.epoch} to {epoch} within the log")
                self.epoch = epoch
                units.append(unit)
            return units

    def close(self) -> None:
        """Close the connections, within a bounded time."""
        close_within(self._reader)

    def _end_now(self) -> int:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return self._end()
        except KafkaException:
            # After a restart of the brokers it would ask for the old leader indefinitely.
            self._admin = AdminClient(connecting(self._place.servers), logger=quiet)
            raise

    def _end(self) -> int:
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        latest: Any = OffsetSpec.latest
        asked, level = {self._at(0): latest()}, IsolationLevel.READ_UNCOMMITTED
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=LIMIT)
        return int(next(iter(answers.values())).result().offset)

    def _at(self, offset: int) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._place.topic, 0, offset)

    def _go_to(self, offset: int) -> None:
        self._reader.assign([self._at(offset)])
        self.at = offset

    def _records(self, seconds: float) -> Sequence[PlacedUnit]:
        from confluent_kafka import KafkaError, KafkaException

        records = []
        for record in arrived(self._reader, TAKEN, seconds):
            error = record.error()
            if error is None:
                records.append(unit_of(record))
                self.at = record.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.at = max(self.at, record.offset())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise LogError("the log was truncated or recreated while it was being read")
            else:
                raise KafkaException(error)
        return records
