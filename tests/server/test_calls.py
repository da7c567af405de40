"""Calls that never return, sources that fail, members that leave: bounded, and said."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangecast.server.calls import Caller, StuckError, close_within
from rangecast.server.connectors import base as bus
from rangecast.server.connectors import kafka, nats
from rangecast.server.connectors.base import BusError, Source, published
from rangecast.server.connectors.kafka import KafkaDelivery, kafka_source
from rangecast.server.delivery import push
from rangecast.server.log.base import MemoryLog
from rangecast.server.log.kafka import KafkaPlace
from rangecast.server.log.kafka_reader import KafkaTail
from rangecast.server.metrics import exposition
from rangecast.server.state.edits import PutConsumer, PutSpace, PutSubscription, edits_draft
from rangecast.server.state.sources import STUCK, SourceState
from rangecast.server.workers.group_member import Member
from rangecast.server.workers.matcher import Event, Matcher
from tests.support.server.serving import SPACE, Client, T, publish, run, serving, subscribe, until

POISON = [
    b"[" * 3_000,
    b'{"price": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    b'{"price": 1, "id": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
    b'{"price": "\xff"}',
    b"\xff\xfe",
    b'{"price": NaN}',
    b'{"price": 1e400}',
    b"null",
    b"",
    b'{"price": "\\ud800"}',
    b'{"price": 1' + b"0" * 5_000 + b"}",
]
"""Records that can't be used; each is rejected where it enters."""


def test_a_call_that_hangs_is_left_behind_and_the_next_is_made() -> None:
    go_on, made = threading.Event(), []
    caller = Caller("test")
    with pytest.raises(StuckError, match=r"within 0\.05 seconds"):
        caller.wait(0.05, go_on.wait, 90)
    assert caller.wait(90, lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(TimeoutError, match="its own"):
        caller.wait(90, _raise, TimeoutError("its own"))

    async def work() -> None:
        with pytest.raises(StuckError):
            await caller.call(0.05, go_on.wait, 90)
        await asyncio.gather(*(caller.call(90, made.append, one) for one in range(5)))
        assert made == [*range(5)]  # one after the other
        with pytest.raises(KeyError):
            await caller.call(90, _raise, KeyError())

    run(work)
    go_on.set()
    caller.end()


def _raise(error: Exception) -> None:
    raise error


def test_closing_neither_hangs_nor_raises() -> None:
    go_on = threading.Event()

    class Hangs:
        def close(self) -> None:
            go_on.wait(90)

    class Fails:
        def close(self) -> None:
            raise RuntimeError("closed already")

    close_within(Hangs(), 0.05)
    close_within(Fails(), 90)
    go_on.set()


def test_a_member_that_is_given_partitions_while_it_leaves_just_leaves() -> None:
    from confluent_kafka import KafkaError, KafkaException

    class Closing:
        """A consumer that serves a rebalance when it is closed, as librdkafka does."""

        is_closed = False

        def close(self) -> None:
            member._assigned(self, ["a partition"])
            self.is_closed = True

        def committed(self, *_: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError._DESTROY))

        consumer_group_metadata = memberid = get_watermark_offsets = assign = committed

    errors: list[BaseException] = []
    consumer = Closing()
    member = Member.__new__(Member)
    member._consumer, member._commits = consumer, Caller("test")  # type: ignore[assignment]
    member._is_closing, member._next, member._seen_end = False, {}, {}
    member.times_given = 0
    try:
        member.close()
    except KafkaException as error:
        errors.append(error)
    assert (errors, consumer.is_closed) == ([], True)


def test_a_tail_asks_anew_for_the_leader_after_a_restart_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    tail = KafkaTail.__new__(KafkaTail)
    tail._place, old = KafkaPlace("127.0.0.1:1", "p"), object()
    tail._admin = old  # type: ignore[assignment]

    def end(tail: KafkaTail) -> int:
        if tail._admin is old:  # it knows the leader of before, and doesn't ask again
            raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
        return 7

    monkeypatch.setattr(KafkaTail, "_end", end)
    assert tail.end() == 7


def test_records_that_can_t_be_decoded_are_rejected_by_workers() -> None:
    log, matcher = MemoryLog(), Matcher("here", T, "s", "in")
    matcher.begin(None, log.epoch, 1)
    edits = [
        PutSpace(T, "s", SPACE.definition()),
        PutConsumer(T, "one", "s"),
        PutSubscription(T, "a", "s", "price > 0", "one"),
    ]
    matcher.take(log.append([edits_draft([*edits], 0)]))
    good = b'{"price": 1}'
    events = [Event(0, at, line) for at, line in enumerate([good, *POISON, good])]
    answer = matcher.match(events)
    assert [event.offset for event, _ in answer.rejected] == [*range(1, len(POISON) + 1)]
    assert [one.event.offset for one in answer.matches] == [0, len(POISON) + 1]


def test_a_source_that_fails_at_the_same_messages_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "AGAIN", 0.01)
    is_away, is_broken = False, False

    async def read(service: Any, _servers: str, source: Source, state: SourceState) -> None:
        if is_away:
            raise BusError("can't be reached")
        lines = [b'{"price": 1}', *POISON]
        upto = 12 + state.failures  # more has come meanwhile
        await published(service, source.space, lines, "kafka:quotes:0", upto, state)
        await asyncio.Event().wait()

    monkeypatch.setattr(kafka, "_read", read)

    async def work() -> None:
        nonlocal is_away, is_broken
        async with serving(tmp_path) as service:
            client = Client(service)
            publish = service.core.publish

            def failing(*given: Any, **more: Any) -> Any:
                if is_broken:
                    raise RecursionError("too deep")
                return publish(*given, **more)

            monkeypatch.setattr(service.core, "publish", failing)
            is_away = True
            reading = asyncio.ensure_future(kafka_source("x", Source("quotes", "s"))(service.core))
            await until(
                lambda: service.core.sources and service.core.source("kafka:quotes").failures > 9
            )
            assert service.why_not_ready() == ""  # requests are taken; the bus is away
            (shown,) = (await client("GET", "status"))["sources"]
            assert (shown["state"], shown["error"]) == ("failing", "can't be reached")
            is_away, is_broken = False, True
            await until(lambda: service.core.source("kafka:quotes").is_stuck)
            assert (await client._http.get("/readyz")).status_code == 503
            assert "kafka:quotes is stuck" in service.why_not_ready()
            (shown,) = (await client("GET", "status"))["sources"]
            assert (shown["state"], shown["error"]) == ("stuck", "internal error: RecursionError")
            text = exposition(service, None)[0].decode()
            assert 'rangecast_source_stuck{source="kafka:quotes"} 1.0' in text
            is_broken = False
            await until(lambda: service.why_not_ready() == "")
            (shown,) = (await client("GET", "status"))["sources"]
            assert (shown["state"], shown["events"]) == ("running", 1)
            assert shown["rejected"] == len(POISON)
            text = exposition(service, None)[0].decode()
            assert 'rangecast_source_rejected_total{source="kafka:quotes"} 11.0' in text
            assert "kafka" not in exposition(service, "other")[0].decode()
            reading.cancel()
            await asyncio.wait([reading])

    run(work)


def test_a_message_that_fails_each_time_is_skipped_if_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "AGAIN", 0.01)
    lines = [b'{"price": 1}', b'{"price": 2, "deadly": 1}', b'{"price": 3}']

    async def read(service: Any, _servers: str, source: Source, state: SourceState) -> None:
        place, at = "kafka:quotes:0", [7, 8, 10]
        await published(service, source.space, lines, place, 11, state, numbers=at)
        await asyncio.Event().wait()

    monkeypatch.setattr(kafka, "_read", read)

    async def work() -> None:
        async with serving(tmp_path) as service:
            client, encode = Client(service), service.core.encode

            def failing(entry: Any, lines: list[bytes], **more: Any) -> Any:
                if any(b"deadly" in line for line in lines):
                    raise ZeroDivisionError("deadly")
                return encode(entry, lines, **more)

            monkeypatch.setattr(service.core, "encode", failing)
            source = Source.parse("quotes:s", skips=True)
            reading = asyncio.ensure_future(kafka_source("x", source)(service.core))
            await until(lambda: service.core.sources and service.core.source("kafka:quotes").events)
            (shown,) = (await client("GET", "status"))["sources"]
            assert shown["dead_letters"] == [
                {
                    "source": "kafka:quotes:0",
                    "number": 8,
                    "error": "internal error: ZeroDivisionError: deadly",
                }
            ]
            state = "running", 2, 1, 1, STUCK
            told = ("state", "events", "rejected", "skipped", "failures")
            assert tuple(shown[name] for name in told) == state
            assert service.why_not_ready() == ""
            assert service.core.deduplicator.offsets["default/s/kafka:quotes:0"] == 11
            text = exposition(service, None)[0].decode()
            assert 'rangecast_source_skipped_total{source="kafka:quotes"} 1.0' in text
            reading.cancel()
            await asyncio.wait([reading])

    run(work)


def test_a_way_out_whose_client_hangs_begins_anew_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction never returns: that is said, another one delivers, and a stop is quick."""
    monkeypatch.setattr(push, "AGAIN", 0.01)
    monkeypatch.setattr(kafka, "STUCK", 0.2)
    monkeypatch.setattr(kafka, "CLOSE_SECONDS", 0.05)
    go_on, got, begun = threading.Event(), [], []

    class Group:
        def close(self) -> None:
            go_on.wait(90)

    def begin(way: KafkaDelivery) -> int:
        begun.append(1)
        way._group = Group()
        return max(way.consumer.cursor, *got, 0)

    def deliver(way: KafkaDelivery, messages: Any, upto: int) -> None:
        if len(begun) < 3:
            go_on.wait(90)
        got.append(upto)

    monkeypatch.setattr(KafkaDelivery, "_begin", begin)
    monkeypatch.setattr(KafkaDelivery, "_deliver", deliver)

    async def work() -> None:
        async with serving(kafka="127.0.0.1:1") as service:
            client = Client(service)
            await client.put_out(kind="kafka", topic="t")
            await subscribe(service)
            await publish(service, 1)
            await until(lambda: len(begun) == 2)
            shown = await client("GET", "consumers/out")
            assert (shown["state"], "no response within" in shown["error"]) == ("failing", True)
            await until(lambda: got)
            await until(lambda: service.deliveries.shown(service.core.registry.consumer(T, "out")))
        assert len(got) == 1

    run(work)
    go_on.set()


def test_a_fetch_of_nats_that_brings_nothing_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after the other side stood still: then a fetch returns an empty list."""

    class Fake:
        """A connection, its stream, and what reads it, in one."""

        is_connected = True
        created = config = retention = None
        fetches = 0

        def jetstream(self) -> Fake:
            return self

        async def find_stream_name_by_subject(self, _subject: str) -> str:
            return "in"

        async def stream_info(self, _name: str) -> Any:
            config = SimpleNamespace(retention=None, subjects=["q"])
            state = SimpleNamespace(first_seq=1, last_seq=1)
            return SimpleNamespace(config=config, state=state, created="now")

        async def pull_subscribe(self, *_: Any, **__: Any) -> Fake:
            return self

        async def fetch(self, _count: int, timeout: float) -> list[Any]:
            self.fetches += 1
            if self.fetches == 1:
                return []
            if self.fetches == 2:
                sequence = SimpleNamespace(consumer=1, stream=1)
                metadata = SimpleNamespace(sequence=sequence)
                return [SimpleNamespace(data=b'{"price": 1}', metadata=metadata)]
            self.is_connected = self.fetches < 4
            await asyncio.sleep(0.01)
            raise TimeoutError

        async def close(self) -> None:
            await asyncio.Event().wait()

    async def connected(_url: str) -> Fake:
        return Fake()

    monkeypatch.setattr(nats, "_connected", connected)
    monkeypatch.setattr(nats, "CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(bus, "AGAIN", 90.0)

    async def work() -> None:
        async with serving() as service:
            reading = asyncio.ensure_future(nats.nats_source("x", Source("q", "s"))(service.core))
            await until(lambda: service.core.sources and service.core.source("nats:q").failures)
            state = service.core.source("nats:q").status()
            assert (state["events"], state["error"]) == (1, "the connection was lost")
            reading.cancel()
            await asyncio.wait([reading])

    run(work)


def test_an_error_without_words_is_named() -> None:
    assert bus.error_text(TimeoutError()) == "TimeoutError"
    assert bus.error_text(TimeoutError("late")) == "late"
