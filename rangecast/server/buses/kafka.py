"""Kafka: a topic as a source of events, and as a way out, both exactly once.

In: how far a partition was read is in the log, in the same unit as its events.
Out: how far a consumer has got is in the same transaction as its messages, as the offset of a
consumer group that has its name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rangecast.errors import RangecastError, shown
from rangecast.server.buses.bus import AGAIN, TAKEN, BusError, Source, known, published
from rangecast.server.cloudevents import ONE, match_event
from rangecast.server.kafka_log import quiet, silent
from rangecast.server.messages import Message
from rangecast.server.registry import Consumer, RefusedError
from rangecast.server.ways import Way

if TYPE_CHECKING:
    from rangecast.server.service import Service

logger = logging.getLogger("rangecast.server")
LIMIT = 30.0
"""Seconds that the broker has for an answer."""
LOOK = 30.0
"""Seconds after which a source looks for new partitions."""


class KafkaWay(Way):
    """Writes messages to a topic, with the consumer's cursor, in transactions."""

    scope = "admin"
    most = 500

    def __init__(self, service: Service, consumer: Consumer):
        super().__init__(service, consumer)
        self._thread = ThreadPoolExecutor(1, "rangecast-kafka")
        self._producer: Any = None
        self._group: Any = None

    @classmethod
    def checked(
        cls, service: Service, given: dict[str, Any], old: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if service.kafka is None:
            raise RefusedError(
                409, "this server has no Kafka\n  to do: start it with --kafka SERVERS"
            )
        topic = given.get("topic")
        if set(given) != {"kind", "topic"} or not isinstance(topic, str) or not topic:
            raise RefusedError(
                422,
                f'a way out to Kafka is {{"kind": "kafka", "topic": ...}}\n  given: {shown(given)}',
            )
        return given, {}

    async def begin(self) -> int | None:
        after: int = await self._call(self._begin)
        return after

    async def deliver(self, messages: Sequence[Message], upto: int) -> None:
        await self._call(self._deliver, messages, upto)
        self.error = ""

    async def end(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something that waits, in this way's thread: one after the other."""
        import confluent_kafka

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, function, *arguments)
        except confluent_kafka.KafkaException as error:
            raise BusError(f"Kafka: {error.args[0].str()}") from None

    def _begin(self) -> int:
        from confluent_kafka import Consumer as KafkaConsumer
        from confluent_kafka import Producer, TopicPartition

        one, epoch = self.consumer, self.service.log.epoch
        name = f"rangecast-{epoch}-{one.tenant}-{one.name}"
        servers = {"bootstrap.servers": self.service.kafka, "error_cb": silent}
        # What another process with this name has begun is ended or undone before this returns.
        self._producer = Producer({**servers, "transactional.id": name}, logger=quiet)
        self._producer.init_transactions(LIMIT)
        # Moved to another place, a consumer has a new group: the old cursor means nothing.
        group = {**servers, "group.id": f"{name}-{one.moved}", "enable.auto.commit": False}
        self._group = KafkaConsumer(group, logger=quiet)
        found = self._group.committed([TopicPartition(one.out["topic"], 0)], LIMIT)[0]
        committed: int = found.offset  # below 0 if there is none
        return max(one.cursor, committed)

    def _deliver(self, messages: Sequence[Message], upto: int) -> None:
        from confluent_kafka import TopicPartition

        one, epoch, topic = self.consumer, self.service.log.epoch, self.consumer.out["topic"]
        producer = self._producer
        producer.begin_transaction()
        for message in messages:
            body = match_event(message, one, epoch)
            # one key, one partition: messages stay in order
            producer.produce(topic, body, one.name, headers={"content-type": ONE})
        cursor = TopicPartition(topic, 0, upto)
        producer.send_offsets_to_transaction([cursor], self._group.consumer_group_metadata(), LIMIT)
        self._commit()

    def _commit(self) -> None:
        self._producer.commit_transaction(LIMIT)

    def _end(self) -> None:
        if self._group is not None:
            self._group.close()
        self._producer = self._group = None


def kafka_source(servers: str, source: Source) -> Callable[[Service], Awaitable[None]]:
    """Return what reads all partitions of a topic for ever."""

    async def run(service: Service) -> None:
        import confluent_kafka

        thread = ThreadPoolExecutor(1, "rangecast-kafka-in")
        while True:
            try:
                await _read(service, servers, source, thread)
            except (RangecastError, confluent_kafka.KafkaException) as error:
                logger.warning("Kafka, %s: %s; tried again", source.name, error)
            except Exception:
                logger.exception("Kafka, %s: failed; tried again", source.name)
            await asyncio.sleep(AGAIN)

    return run


async def _read(service: Service, servers: str, source: Source, thread: ThreadPoolExecutor) -> None:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition
    from confluent_kafka import Consumer as KafkaConsumer

    loop = asyncio.get_running_loop()
    settings = {
        "bootstrap.servers": servers,
        "group.id": "rangecast",  # not used: how far it was read is in the log
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "error_cb": silent,
    }
    consumer = KafkaConsumer(settings, logger=quiet)
    reading: set[int] = set()
    looked = -LOOK
    try:
        while True:
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                found = await loop.run_in_executor(thread, consumer.list_topics, source.name, LIMIT)
                partitions = set(found.topics[source.name].partitions)
                if partitions != reading:
                    places = []
                    for number in sorted(partitions):
                        at = known(service, f"kafka:{source.name}:{number}", source.space)
                        start = OFFSET_BEGINNING if at is None else at
                        places.append(TopicPartition(source.name, number, start))
                    consumer.assign(places)
                    reading = partitions
            messages: list[Any] = await loop.run_in_executor(thread, consumer.consume, TAKEN, 0.5)
            by_partition: dict[int, list[Any]] = {}
            for one in messages:
                if one.error() is not None:
                    raise BusError(one.error().str())
                by_partition.setdefault(one.partition(), []).append(one)
            for number, some in by_partition.items():
                lines = [one.value() or b"" for one in some]
                place, upto = f"kafka:{source.name}:{number}", some[-1].offset() + 1
                await published(service, source.space, lines, place, upto)
    finally:
        await loop.run_in_executor(thread, consumer.close)
