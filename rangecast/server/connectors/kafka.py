"""Kafka: a topic as a source of events or as a delivery target, exactly once either way.

Source: the read position of a partition is in the log, in the same unit as its events. Delivery:
the consumer's cursor is committed in the same transaction as its messages, as the offset of a
consumer group with the consumer's name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from rangecast.errors import abbreviate
from rangecast.server.calls import CLOSE_SECONDS, Caller, StuckError, close_within
from rangecast.server.connectors.base import (
    TAKEN,
    BusError,
    Source,
    published,
    read_positions,
    source_task,
)
from rangecast.server.core import Core
from rangecast.server.delivery.cloudevents import ONE, match_event
from rangecast.server.delivery.messages import Message
from rangecast.server.delivery.push import DeliverySettings, PushDelivery, about
from rangecast.server.log.kafka import quiet, silent
from rangecast.server.state.entries import Consumer
from rangecast.server.state.lineage import LostPositionError
from rangecast.server.state.registry import RequestError
from rangecast.server.state.sources import SourceState

logger = logging.getLogger("rangecast.server")
LIMIT = 20.0
"""Timeout in seconds for an answer of the broker."""
STUCK = 2 * LIMIT + 5
"""Seconds after which calls that ignore their own timeouts are abandoned."""
LOOK = 30.0
"""Seconds after which a source that gets nothing looks for new partitions."""
_NO_ID = "A" * 22
"""Answer of brokers that have no ids of topics."""


class KafkaDelivery(PushDelivery):
    """Writes messages to a topic, together with the consumer's cursor, in transactions."""

    scope = "admin"
    batch_size = 500

    def __init__(self, core: Core, consumer: Consumer, settings: DeliverySettings):
        super().__init__(core, consumer, settings)
        self._caller = Caller("rangecast-kafka")
        self._producer: Any = None
        self._group: Any = None

    @classmethod
    def checked(
        cls, settings: DeliverySettings, options: dict[str, Any], old: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if settings.kafka is None:
            raise RequestError(
                409, "this server has no Kafka\n  hint: start it with --kafka SERVERS"
            )
        topic = options.get("topic")
        if set(options) != {"kind", "topic"} or not isinstance(topic, str) or not topic:
            raise RequestError(
                422,
                'a delivery to Kafka must be {"kind": "kafka", "topic": ...}\n'
                f"  given: {abbreviate(options)}",
            )
        return options, {}

    async def begin(self) -> int | None:
        self._caller = Caller("rangecast-kafka")
        after: int = await self._call(self._begin)
        return after

    async def deliver(self, messages: Sequence[Message], upto: int) -> None:
        await self._call(self._deliver, messages, upto)
        self.error = ""

    async def end(self) -> None:
        group, self._producer, self._group = self._group, None, None
        if group is not None:
            with suppress(StuckError):
                await self._caller.call(CLOSE_SECONDS + 1, close_within, group, CLOSE_SECONDS)
        self._caller.end()

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking call in this delivery's thread, one at a time.

        A call that hangs is abandoned. The next producer uses the same transactional id, so the
        brokers abort the hanging transaction and reject its later writes.
        """
        import confluent_kafka

        try:
            return await self._caller.call(STUCK, function, *arguments)
        except confluent_kafka.KafkaException as error:
            raise BusError(f"Kafka: {error.args[0].str()}") from None
        except StuckError as error:
            raise BusError(f"Kafka: {error}") from None

    def _begin(self) -> int:
        from confluent_kafka import Consumer as KafkaConsumer
        from confluent_kafka import Producer, TopicPartition

        consumer, root = self.consumer, self.core.log.epoch
        name = f"rangecast-{root}-{consumer.tenant}-{consumer.name}"
        servers = {"bootstrap.servers": self.settings.kafka, "error_cb": silent}
        # What another process with this name has begun is ended or undone before this returns.
        self._producer = Producer({**servers, "transactional.id": name}, logger=quiet)
        self._producer.init_transactions(LIMIT)
        # Moved to another place, a consumer has a new group: the old cursor means nothing.
        group = {**servers, "group.id": f"{name}-{consumer.moved}", "enable.auto.commit": False}
        self._group = KafkaConsumer(group, logger=quiet)
        committed = self._group.committed([TopicPartition(consumer.delivery["topic"], 0)], LIMIT)[0]
        if committed.offset < 0:  # there is none
            return consumer.cursor
        try:
            position = f"{committed.metadata or root}:{committed.offset}"
            return max(consumer.cursor, self.core.seq_of(position))
        except LostPositionError as lost:  # what was delivered after that is gone from this log
            logger.warning("%s", lost, extra=about(consumer))
            return consumer.cursor if lost.resume is None else max(consumer.cursor, lost.resume)

    def _deliver(self, messages: Sequence[Message], upto: int) -> None:
        from confluent_kafka import TopicPartition

        consumer, lineage, topic = self.consumer, self.core.lineage, self.consumer.delivery["topic"]
        producer = self._producer
        producer.begin_transaction()
        for message in messages:
            body = match_event(message, consumer, lineage.at(message.seq))
            # one key, one partition: messages stay in order
            producer.produce(topic, body, consumer.name, headers={"content-type": ONE})
        cursor = TopicPartition(topic, 0, upto, self.core.lineage.at(upto))
        producer.send_offsets_to_transaction([cursor], self._group.consumer_group_metadata(), LIMIT)
        self._commit()

    def _commit(self) -> None:
        self._producer.commit_transaction(LIMIT)


def kafka_source(servers: str, source: Source) -> Callable[[Core], Awaitable[None]]:
    """Return the task that reads all partitions of a topic."""
    return source_task(
        "Kafka", source, lambda core, state: _read(core, servers, source, state), _reason
    )


def _reason(error: Exception) -> str | None:
    import confluent_kafka

    return error.args[0].str() if isinstance(error, confluent_kafka.KafkaException) else None


async def _read(core: Core, servers: str, source: Source, state: SourceState) -> None:
    topic = _Topic(core, servers, source, state)
    try:
        await topic.look_up_topic()
        while await topic.step():
            pass
    finally:
        await topic.close()


class _Topic:
    """Reads all partitions of a topic, each from its position in the log.

    A topic that was deleted and recreated has a new id. The id is part of the names of its read
    positions.
    """

    def __init__(self, core: Core, servers: str, source: Source, state: SourceState):
        from confluent_kafka import Consumer as KafkaConsumer
        from confluent_kafka.admin import AdminClient

        self._core, self._source, self._state = core, source, state
        common: dict[str, Any] = {"bootstrap.servers": servers, "error_cb": silent}
        settings: dict[str, Any] = {
            "group.id": "rangecast",  # not used: how far it was read is in the log
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",  # dropped records are reported, not skipped
        }
        self._consumer: Any = KafkaConsumer(common | settings, logger=quiet)
        self._admin: Any = AdminClient(common, logger=quiet)
        self._caller = Caller("rangecast-kafka-in")
        self._id: str | None = None
        self._looked = 0.0
        self._next: dict[int, int] = {}
        """Next offset of each partition; negative: its beginning."""

    async def look_up_topic(self) -> bool:
        """Look up the topic's id and partitions; return False if the topic was recreated."""
        from confluent_kafka import OFFSET_BEGINNING

        self._looked = time.monotonic()
        identity, partitions = await self._call(self._describe_topic)
        if self._id not in (None, identity):
            return False
        known = self._known()
        if self._id is None:
            self._id = identity
            if identity:
                self._state.identify(identity, {*known} - {""})
        if partitions != {*self._next}:
            at = known.get(identity, {})
            if not {*known} - {"", identity}:  # places of an earlier version have no id
                at = known.get("", {}) | at
            begins = {number: at.get(number, OFFSET_BEGINNING) for number in partitions}
            self._next = begins | {n: at for n, at in self._next.items() if n in partitions}
            self._assign()
        return True

    async def step(self) -> bool:
        """Publish the next messages; return False if the topic was recreated."""
        from confluent_kafka import KafkaError

        messages = await self._call(self._consumer.consume, TAKEN, 0.5)
        # Messages that were fetched before this check are of the topic with this id: no id comes
        # back.
        if (messages or time.monotonic() - self._looked > LOOK) and not await self.look_up_topic():
            return False
        by_partition: dict[int, list[Any]] = {}
        out_of_range = []
        for message in messages:
            number = message.partition()
            if message.error() is None:
                if message.offset() >= self._next[number]:
                    by_partition.setdefault(number, []).append(message)
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                out_of_range.append(number)
            else:
                raise BusError(message.error().str())
        for number, records in by_partition.items():
            lines = [pending.value() or b"" for pending in records]
            upto = records[-1].offset() + 1
            await published(
                self._core,
                self._source.space,
                lines,
                self._place(number),
                upto,
                self._state,
                numbers=[pending.offset() for pending in records],
            )
            self._next[number] = upto
        if out_of_range:
            for number in out_of_range:
                await self._skip_missing(number)
            self._assign()
        return True

    async def close(self) -> None:
        """Close the connection, within a bounded time."""
        with suppress(StuckError):
            await self._caller.call(CLOSE_SECONDS + 1, close_within, self._consumer, CLOSE_SECONDS)
        self._caller.end()

    async def _skip_missing(self, number: int) -> None:
        """Report the missing messages of a partition, and continue after them."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        partition, at = TopicPartition(self._source.name, number), self._next[number]
        low, high = await self._call(self._consumer.get_watermark_offsets, partition, LIMIT)
        if 0 <= at < low:
            self._state.missing(self._place(number), at, low - 1)
        elif at > high:
            self._state.truncated(self._place(number), at, high)
        if not low <= at <= high:
            self._next[number] = OFFSET_BEGINNING

    def _assign(self) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(self._source.name, *at) for at in self._next.items()])

    def _describe_topic(self) -> tuple[str, set[int]]:
        """Return the topic's id (empty if the brokers don't have ids) and its partitions."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        name = self._source.name
        asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=LIMIT)
        try:
            topic = asked[name].result(LIMIT)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BusError(f"Kafka has no topic {name!r}") from None
            raise
        identity = str(topic.topic_id)
        return "" if identity == _NO_ID else identity, {
            partition.id for partition in topic.partitions
        }

    def _place(self, number: int) -> str:
        return f"kafka:{self._source.name}:{self._id}:{number}".replace("::", ":")

    def _known(self) -> dict[str, dict[int, int]]:
        """Return the offsets recorded in the log, by topic id (or "") and partition."""
        offsets: dict[str, dict[int, int]] = {}
        prefix = f"kafka:{self._source.name}:"
        for rest, at in read_positions(self._core, prefix, self._source.space).items():
            identity, _, number = rest.rpartition(":")
            offsets.setdefault(identity, {})[int(number)] = at
        return offsets

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._caller.call(STUCK, function, *arguments)
