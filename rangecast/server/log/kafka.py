"""A log in a Kafka topic: `rangecast serve --log kafka://HOST:PORT/PREFIX`.

The topic PREFIX-log has one partition, and one record per unit: its body, with everything else in
headers. A group of units is one transaction; it is durable once the transaction is committed by as
many brokers as the topic's `min.insync.replicas` requires. Only committed records are read.

One server writes at a time. The one started last owns the transactional id; another one that still
runs is fenced by the brokers, and stops at its next write.

The unit of a seq is found by binary search: seqs grow with offsets, and offsets have gaps, as
transaction markers are records, too.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from rangecast.errors import UsageError
from rangecast.server.calls import CLOSE_SECONDS, close_within
from rangecast.server.log.base import START, Draft, LogError, Unit, chained, is_chained, new_epoch

LIMIT = 30.0
"""Timeout in seconds for an answer of the brokers."""
LARGEST = 64 << 20
"""Bytes that a unit may have."""
TAKEN = 500
"""Units that are read at a time."""
_EMPTY_ANSWER = 20
"""Milliseconds after which the broker says that there is no more. Before, a reader neither knows
that it is at the end nor can go elsewhere.
"""
_KNOWN = 1000
"""Log positions that are remembered: readers continue where they were."""
_URL = re.compile(r"kafka://([^/]+)/([A-Za-z0-9._-]{1,200})")
_TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(LARGEST),
}
T = TypeVar("T")
quiet = logging.getLogger("rangecast.server.kafka")
"""Discards the client's own log; relevant errors are raised by calls."""
quiet.setLevel(logging.CRITICAL + 1)


class PlacedUnit(NamedTuple):
    """A unit and its offset in the topic."""

    offset: int
    epoch: str
    unit: Unit


class KafkaPlace(NamedTuple):
    """Location of a log on Kafka."""

    servers: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> KafkaPlace:
        """Parse kafka://HOST:PORT,.../PREFIX."""
        match = _URL.fullmatch(url)
        if match is None:
            raise UsageError(
                f"a log on Kafka must have the form kafka://HOST:PORT/PREFIX; given: {url!r}"
            )
        return cls(match[1], match[2])

    @property
    def topic(self) -> str:
        """Topic that holds the units."""
        return f"{self.prefix}-log"

    def __str__(self) -> str:
        return f"kafka://{self.servers}/{self.prefix}"

    @contextmanager
    def converting_errors(self, action: str) -> Iterator[None]:
        """Convert Kafka errors to `LogError`."""
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, BufferError, LogError) as error:
            text, remedy = str(error), "check the brokers, then restart"
            if isinstance(error, KafkaException):
                text = error.args[0].str()
                if is_fence(error.args[0]):
                    text = "another server is writing this log"
                    remedy = "run one server per prefix"
            raise LogError(f"{self}: {action}: {text}\n  hint: {remedy}") from None


def is_fence(error: Any) -> bool:
    """Return whether an error says that another producer has taken the transactional id."""
    from confluent_kafka import KafkaError

    fences = KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH
    return error.code() in fences


def connecting(servers: str) -> dict[str, Any]:
    """Return the settings common to all clients."""
    return {"bootstrap.servers": servers, "error_cb": silent, "message.max.bytes": LARGEST}


def reading(group: str) -> dict[str, Any]:
    """Return the settings of a reader of units. It doesn't join a group: offsets are explicit."""
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": _EMPTY_ANSWER,
        "fetch.message.max.bytes": LARGEST,
        "fetch.max.bytes": 2 * LARGEST,
        "receive.message.max.bytes": 3 * LARGEST,
    }


def with_retries(call: Callable[[], T]) -> T:
    """Return the result of a call; retry while brokers start or a partition moves."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + LIMIT
    while True:
        try:
            return call()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def arrived(reader: Any, limit: int, seconds: float) -> list[Any]:
    """Return the next record and those that arrived with it; wait up to `seconds`."""
    first = reader.poll(seconds)
    return [] if first is None else [first, *reader.consume(limit - 1, 0)]


def make_topic(
    settings: dict[str, Any], name: str, partitions: int, config: dict[str, str] | None = None
) -> int:
    """Create a topic, if it doesn't exist; return the number of its partitions."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient(settings, logger=quiet)
    topic = NewTopic(name, partitions, config=config or {})
    for made in admin.create_topics([topic], request_timeout=LIMIT).values():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    deadline = time.monotonic() + LIMIT
    while not (count := len(admin.list_topics(name, LIMIT).topics[name].partitions)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)  # it is made, but not every broker knows of it yet
    return count


class KafkaLog:
    """A log in a topic. Opening it fences the previous writer."""

    def __init__(self, url: str):
        self._place = place = KafkaPlace.parse(url)
        self._settings = connecting(place.servers)
        self._one = threading.Lock()
        self._broken: str | None = None
        self.damage: dict[int, str] = {}
        self._begins: dict[int, tuple[int, bytes]] = {}
        """Of the last seqs up to which was read: the offset where that goes on, and the checksum of
        the unit before it.
        """
        with self._place.converting_errors("can't be opened"):
            self._open()

    def _open(self) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._make_topic()
        name = f"{self._place.prefix}-writer"
        # Should it be killed, readers wait for the end of its open transaction.
        patience = {"transaction.timeout.ms": int(LIMIT * 1000)}
        writing = self._settings | patience | {"transactional.id": name, "acks": "all"}
        # From here on no other producer writes; an open transaction of another one is aborted.
        self._producer = Producer(writing, logger=quiet)
        self._producer.init_transactions(LIMIT)
        self._reader = Consumer(self._settings | reading(name), logger=quiet)
        self._partition = TopicPartition(self._place.topic, 0)
        low, high = self._reader.get_watermark_offsets(self._partition, LIMIT)
        first, last = next(self._records(low), None), self._last_record(low, high)
        self.epoch, self.first, self.last, self.chain = new_epoch(), 1, 0, START
        if first is not None and last is not None:
            (_, self.epoch, unit), (_, _, end) = first, last
            self.first, self.last, self.chain = unit.first, end.last, end.chain

    def _make_topic(self) -> None:
        count = make_topic(self._settings, self._place.topic, 1, _TOPIC)
        if count != 1:
            raise LogError(
                f"the topic {self._place.topic!r} has {count} partitions; a log must have one\n"
                "  hint: choose another prefix"
            )

    # ---- writing

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        """Append units in one transaction, which is committed when this returns."""
        if self._broken is not None:
            raise LogError(self._broken)
        added: list[Unit] = []
        chain, last = self.chain, self.last
        for draft in drafts:
            unit = chained(chain, last + 1, draft)
            chain, last = unit.chain, unit.last
            added.append(unit)
        # What became of a transaction that failed isn't known: so nothing more is taken, as after
        # a failed write to a disk. A restarted server reads the log.
        try:
            with self._place.converting_errors("writing failed, and nothing more is accepted"):
                self._producer.begin_transaction()
                for unit in added:
                    self._produce(unit)
                self._producer.commit_transaction(LIMIT)
        except LogError as error:
            self._broken = str(error)
            raise
        self.chain, self.last = chain, last
        return added

    def _produce(self, unit: Unit) -> None:
        headers: dict[str, str | bytes | None] = {
            "epoch": self.epoch,
            "first": str(unit.first),
            "length": str(unit.length),
            "kind": unit.kind,
            "at": str(unit.at),
            "chain": unit.chain,
        }
        topic = self._place.topic
        self._producer.produce(topic, unit.body, partition=0, headers=headers)

    def drop(self, upto: int) -> None:
        """Delete the records of units that lie entirely at or before a seq."""
        from confluent_kafka.admin import AdminClient

        with self._one, self._place.converting_errors("can't be cut"):
            # The last one stays: a log without any would begin a new history.
            begin = offset_after(self._place, min(upto, self.last - 1))
            self._begins.clear()
            self._partition.offset = begin
            admin = AdminClient(self._settings, logger=quiet)
            for done in admin.delete_records([self._partition]).values():
                done.result()
            record = next(self._records(begin), None)
            if record is not None:
                self.first = record.unit.first

    # ---- reading

    def read(self, after: int, max_bytes: int) -> list[Unit]:
        """Return the units after a seq."""
        if after >= self.last:
            return []
        last = self.last
        units: list[Unit] = []
        size = 0
        with self._one, self._place.converting_errors("can't be read"):
            end, chain = self._begins.get(after, (-1, b""))
            if end < 0:
                end = offset_after(self._place, after)
            for offset, _, unit in self._records(end):
                if units and size + len(unit.body) > max_bytes:
                    break
                # Of the first one after a jump, the brokers' own checksum has to do.
                is_next = unit.first == (units[-1].last if units else after) + 1
                if chain and is_next and not is_chained(chain, unit):
                    if units:
                        break  # it is met again, as the first one
                    raise self._damaged(unit.first, offset)
                units.append(unit)
                chain = unit.chain
                size += len(unit.body)
                end = offset + 1
                if unit.last >= last:
                    break
            if units:
                self._begins[units[-1].last] = end, chain
            if len(self._begins) > _KNOWN:
                del self._begins[next(iter(self._begins))]
        return units

    def _damaged(self, seq: int, offset: int) -> LogError:
        """Record damage found while reading, for readiness and status."""
        self.damage[seq] = f"the unit at seq {seq}, offset {offset}, is damaged or follows another"
        return LogError(self.damage[seq])

    def _records(self, begin: int) -> Iterator[PlacedUnit]:
        return records(self._reader, self._place.topic, begin)

    def _last_record(self, low: int, high: int) -> PlacedUnit | None:
        """Return the last committed unit; a topic may end with control records."""
        step = 16
        while True:
            begin = max(low, high - step)
            records = [*self._records(begin)]
            if records or begin == low:
                return records[-1] if records else None
            step *= 16

    def close(self) -> None:
        """Close the connections, within a bounded time."""
        # A thread that reads holds the reader: closed meanwhile, it would fail in odd ways.
        is_free = self._one.acquire(timeout=CLOSE_SECONDS)
        close_within(self._reader)
        if is_free:
            self._one.release()


def records(reader: Any, topic: str, begin: int) -> Iterator[PlacedUnit]:
    """Yield the committed units of a topic, from an offset to the end."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    reader.assign([TopicPartition(topic, 0, begin)])
    while True:
        arrived_ = arrived(reader, TAKEN, LIMIT)
        if not arrived_:
            raise LogError(f"the brokers didn't respond within {LIMIT:g} seconds")
        for record in arrived_:
            error = record.error()
            if error is None:
                yield unit_of(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)


def offset_after(place: KafkaPlace, seq: int) -> int:
    """Return the offset of the first unit with a later seq, or the end offset."""
    from confluent_kafka import Consumer, TopicPartition

    settings = connecting(place.servers) | reading(f"{place.prefix}-finder")
    finder = Consumer(settings | {"fetch.message.max.bytes": 1024}, logger=quiet)
    try:
        partition = TopicPartition(place.topic, 0)
        low, high = with_retries(lambda: finder.get_watermark_offsets(partition, LIMIT))
        while low < high:
            middle = (low + high) // 2
            record = next(records(finder, place.topic, middle), None)
            if record is None or record.unit.last > seq:
                high = middle
            else:
                low = record.offset + 1
        return int(low)
    finally:
        close_within(finder)


def unit_of(record: Any) -> PlacedUnit:
    """Return the unit of a record."""
    head = dict(record.headers() or [])
    try:
        numbers = int(head["first"]), int(head["length"]), head["kind"].decode(), int(head["at"])
        unit = Unit(*numbers, record.value() or b"", head["chain"])
        return PlacedUnit(record.offset(), head["epoch"].decode(), unit)
    except (KeyError, ValueError) as error:
        raise LogError(
            f"the record at offset {record.offset()} isn't a unit of a log: {error!r}\n"
            "  hint: choose another prefix"
        ) from None


def silent(_error: Any) -> None:
    """Ignore errors in a callback: the calls raise them as well."""
