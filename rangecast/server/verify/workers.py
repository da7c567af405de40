"""Verify the output of workers: each record, by the subscriptions at its log position.

The batches topic has the log seq that each event was matched at. The log is read again with a
`DeliveryOracle`, independent of the workers. Everything compared is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from rangecast.errors import RangecastError, UsageError
from rangecast.server.log.base import Unit
from rangecast.server.log.kafka import LIMIT, KafkaPlace, arrived, connecting, quiet, reading
from rangecast.server.log.kafka_reader import KafkaTail
from rangecast.server.state.edits import EDITS, edits_of
from rangecast.server.verify.deliveries import Report
from rangecast.server.verify.oracle import DeliveryOracle, Wanted
from rangecast.server.workers.worker import BatchRecord, WorkerSettings

Place = tuple[int, int]
"""A partition, and an offset in it."""


class _Data(msgspec.Struct):
    edits: str
    event: Any
    subscriptions: list[str | int]


class _Match(msgspec.Struct):
    data: _Data


@dataclass
class WorkerReport(Report):
    """Result of a verification."""

    events: int = 0
    rejected: int = 0
    waiting: int = 0
    """Events that no worker has matched yet."""

    @property
    def holds(self) -> bool:
        """Whether each match exists exactly once, with nothing else."""
        return super().holds and not self.repeated


def verify_workers(settings: WorkerSettings) -> WorkerReport:
    """Compare the matches topic with the matches implied by events, batches and log."""
    servers, report = KafkaPlace.parse(settings.log).servers, WorkerReport()
    # In this order: matches that are written meanwhile have their event and log position.
    claims = _claims(servers, settings, report)
    batches = _batches(servers, settings)
    events = {
        (record.partition(), record.offset()): record.value() or b""
        for record in _committed(servers, settings.events, is_whole=False)
    }
    _check_cover(batches, events, report)
    judge = DeliveryOracle(settings.tenant)
    for batch in _with_log(settings.log, batches, judge):
        every = ((batch.partition, offset) for offset in range(batch.first, batch.upto))
        places = [at for at in every if at in events]
        matched = judge.recipients(settings.space, [_decoded(events[at]) for at in places])
        for at, wanted in zip(places, matched, strict=True):
            _compare(batch, at, wanted, claims.pop(at, {}), report)
    for at, came in claims.items():
        report.extra += len(came)
        report.note(f"{_place_text(at)}: {', '.join(came)} got it, but no batch has it")
    return report


def _decoded(value: bytes) -> object:
    """Return a decoded event; `None` if it isn't JSON."""
    try:
        return msgspec.json.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None


def _place_text(at: Place) -> str:
    return f"partition {at[0]}, offset {at[1]}"


def _claims(
    servers: str, settings: WorkerSettings, report: WorkerReport
) -> dict[Place, dict[str, tuple[str, _Data]]]:
    """Return the match records of each event: by consumer, the log position and the data."""
    claims: dict[Place, dict[str, tuple[str, _Data]]] = {}
    for record in _committed(servers, settings.matches):
        try:
            head = dict(record.headers() or [])
            at, edits = (int(head["partition"]), int(head["offset"])), head["edits"].decode()
            data, consumer = (
                msgspec.json.decode(record.value(), type=_Match).data,
                record.key().decode(),
            )
        except (KeyError, ValueError, TypeError, AttributeError, msgspec.DecodeError) as error:
            report.extra += 1
            where = _place_text((record.partition(), record.offset()))
            report.note(f"{settings.matches}: {where}: {error!r}")
            continue
        if head.get("topic") != settings.events.encode():
            continue  # of another topic of events
        mine = claims.setdefault(at, {})
        if consumer in mine:
            report.repeated += 1
            report.note(f"{_place_text(at)}: {consumer} got it twice")
        mine[consumer] = edits, data
    return claims


def _batches(servers: str, settings: WorkerSettings) -> list[BatchRecord]:
    records = _committed(servers, settings.batches)
    batches = [msgspec.json.decode(record.value(), type=BatchRecord) for record in records]
    return [batch for batch in batches if batch.topic == settings.events]


def _check_cover(
    batches: list[BatchRecord], events: dict[Place, bytes], report: WorkerReport
) -> None:
    """Verify that each event is in exactly one batch, from the first to the last."""
    reached: dict[int, int] = {}
    for batch in sorted(batches, key=lambda batch: (batch.partition, batch.first)):
        number, at = batch.partition, reached.get(batch.partition, batch.first)
        missed = sum((number, offset) in events for offset in range(at, batch.first))
        if missed:
            report.missing += missed
            report.note(f"partition {number}: {missed} events from {at} on were never matched")
        if batch.first < at:
            report.repeated += min(at, batch.upto) - batch.first
            report.note(f"partition {number}: events from {batch.first} on were matched twice")
        reached[number] = max(at, batch.upto)
    report.waiting = sum(offset >= reached.get(number, 0) for number, offset in events)


def _compare(
    batch: BatchRecord,
    at: Place,
    wanted: Wanted | None,
    came: dict[str, tuple[str, _Data]],
    report: WorkerReport,
) -> None:
    """Compare the records of one event with the expected ones; `None`: the event is invalid."""
    report.events += 1
    is_rejected = at[1] in {offset for offset, _ in batch.rejected}
    report.rejected += is_rejected
    if is_rejected != (wanted is None):
        report.differing += 1
        report.note(
            f"{_place_text(at)}: {'rejected' if is_rejected else 'taken'} against the space"
        )
    for consumer, names in (wanted or {}).items():
        report.expected += 1
        edits, data = came.pop(consumer, ("", None))
        if data is None:
            report.missing += 1
            report.note(f"{_place_text(at)}: {consumer} never got it; it is for {names[:5]}")
        elif sorted(map(str, data.subscriptions)) != sorted(names) or {edits, data.edits} != {
            batch.edits
        }:
            report.differing += 1
            report.note(
                f"{_place_text(at)}: {consumer} got it for {data.subscriptions[:5]} by {edits}; "
                f"it is for {names[:5]} by {batch.edits}"
            )
    report.extra += len(came)
    if came:
        report.note(f"{_place_text(at)}: {', '.join(came)} got it, but it isn't for them")


def _with_log(url: str, batches: list[BatchRecord], judge: DeliveryOracle) -> Iterator[BatchRecord]:
    """Yield batches in log order, each when the oracle has reached its position."""
    tail = KafkaTail(url)
    try:
        if tail.first > 1:
            raise UsageError(
                f"{url}: the start of the log is missing; matches can only be verified from the "
                "first seq on"
            )
        units, reached = _units(tail), 0
        for seq, record in sorted(
            ((_seq(batch, tail), batch) for batch in batches), key=lambda it: it[0]
        ):
            while reached < seq:
                unit = next(units, None)
                if unit is None or unit.last > seq:
                    raise RangecastError(f"{url}: no edit ends at {record.edits}, of a batch")
                if unit.kind == EDITS:
                    judge.apply(edits_of(unit), unit.first)
                reached = unit.last
            yield record
    finally:
        tail.close()


def _units(tail: KafkaTail) -> Iterator[Unit]:
    end = tail.end()
    while tail.at < end:
        yield from tail.next_units(1.0)


def _seq(batch: BatchRecord, tail: KafkaTail) -> int:
    epoch, _, seq = batch.edits.partition(":")
    if epoch != tail.epoch:
        raise UsageError(
            f"a batch was matched with {batch.edits}; this log's epoch is {tail.epoch!r}, so they "
            "belong to different histories"
        )
    return int(seq)


def _committed(servers: str, topic: str, *, is_whole: bool = True) -> Iterator[Any]:
    """Yield all records of a topic that are committed so far."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    reader = Consumer(connecting(servers) | reading("rangecast-verify"), logger=quiet)
    try:
        topic_ = reader.list_topics(topic, LIMIT).topics[topic]
        if topic_.error is not None:
            raise UsageError(f"Kafka: {topic!r}: {topic_.error.str()}")
        places, left = [], set[int]()
        for number in topic_.partitions:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, number), LIMIT)
            if low and is_whole:
                raise UsageError(
                    f"the topic {topic!r} has lost its start to retention, so it can't be verified"
                )
            if high > low:
                places.append(TopicPartition(topic, number, low))
                left.add(number)
        reader.assign(places)
        while left:
            for record in arrived(reader, 10_000, LIMIT):
                error = record.error()
                if error is None and record.partition() in left:
                    yield record
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard(record.partition())
                elif error is not None:
                    raise KafkaException(error)
    except KafkaException as error:
        raise RangecastError(f"Kafka: {error.args[0].str()}") from None
    finally:
        reader.close()
