"""A server can read again all that it has accepted: after a crash, by pull, and from the log."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from rangecast.server.encoding import encoded, points_of_lines, rows_of
from rangecast.server.explain import preview_filter
from rangecast.server.json_text import MAX_DEPTH, DepthError, decode, decoder_for, shallow
from rangecast.server.links.journal import ServerJournal
from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    EventsHead,
    PutConsumer,
    PutSubscription,
    events_draft,
)
from tests.support.seeds import seeds
from tests.support.server.serving import SPACE, T, run, serving
from tests.support.spoken import Spoken

EVENTS = "/v1/spaces/s/events"
JSON, LINES = "application/json", "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
DEPTHS = [1, 2, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 300, 988, 990, 1000, 5000]


def deep(levels: int, inside: str = "") -> str:
    """Return a JSON text that is nested this deep."""
    return "[" * levels + inside + "]" * levels


def deep_event(levels: int, field: str = "id") -> bytes:
    """Return an event that is nested this deep, itself included."""
    return f'{{"price": 5, "{field}": {deep(levels - 1)}}}'.encode()


class Bodies:
    """Makes bodies, by seed: what a client might send, and what it shouldn't."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)

    def request(self) -> tuple[str, bytes, dict[str, str], list[str] | None]:
        """Return a path, a body, headers, and the events if they are texts that stay."""
        dice = self.dice
        options = [one for one in ("ignore_unknown=true", "dedup=id") if dice.random() < 0.5]
        options += ["strict=true"] if dice.random() < 0.1 else []
        path = EVENTS + ("?" + "&".join(options) if options else "")
        headers: dict[str, str] = {}
        count = dice.choice([1, 1, 1, 3, 40, 300])
        form = dice.choice(["one", "list", "lines", "pretty", "envelope", "batch", "head", "arrow"])
        events = [self._event() for _ in range(count)]
        if form == "arrow":
            headers["Content_Type"], body = ARROW, self._arrow(count)
        elif form == "lines":
            headers["Content_Type"], body = LINES, "\n".join(events).encode("utf-8", "replace")
        elif form in ("envelope", "batch"):
            made = [f'{{"specversion":"1.0","id":{self._id()},"data":{event}}}' for event in events]
            kind = "cloudevents-batch+json" if form == "batch" else "cloudevents+json"
            headers["Content_Type"], events = f"application/{kind}", made
            body = (f"[{','.join(made)}]" if form == "batch" else made[0]).encode(
                "utf-8", "replace"
            )
        else:
            headers["Content_Type"] = JSON
            text = {
                "one": events[0],
                "head": events[0],
                "list": f"[{', '.join(events)}]",
                "pretty": events[0].replace(",", ",\n"),
            }[form]
            body = text.encode("utf-8", "replace")
            if form == "head":
                headers |= {"ce_specversion": "1.0", "ce_id": "e1"}
        if dice.random() < 0.2:
            headers["Idempotency_Key"] = f"k{dice.randrange(10**9)}"
        if dice.random() < 0.25:
            half = dice.randrange(len(body) + 1)
            members = (body,) if dice.random() < 0.7 else (body[:half], body[half:])
            headers["Content_Encoding"] = "gzip"
            body = b"".join(map(gzip.compress, members))
            body += b"x" if dice.random() < 0.1 else b""
        return path, body, headers, None if form in ("arrow", "head") else events

    def _event(self) -> str:
        dice = self.dice
        fields = {"price": self._price()}
        if dice.random() < 0.7:
            fields["id"] = self._id()
        if dice.random() < 0.3:
            fields[dice.choice(["note", "", "\\u0000", "\\ud800", "price", "x y"])] = self._value()
        parts = [f'"{name}": {value}' for name, value in fields.items()]
        return "{" + ", ".join(parts) + "}" + ("]" if dice.random() < 0.01 else "")

    def _price(self) -> str:
        odd = ["null", '"x"', "NaN", "-Infinity", "1e400", "1" * 400, "true", deep(70), "[]"]
        good = self.dice.random() < 0.9
        return f"{self.dice.uniform(0, 100):.3f}" if good else self.dice.choice(odd)

    def _id(self) -> str:
        if self.dice.random() < 0.6:
            return f'"{self.dice.randrange(10**9)}"'
        return self._value()

    def _value(self) -> str:
        dice = self.dice
        plain = ["1", "-0", "1.5e300", "9" * 25, '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud800"', "{}"]
        plain += ['"' + "[{" * 100 + '"', '"a\\"[[\\\\"', '"ü"', "false", "null", "[1, [2, {}]]"]
        if dice.random() < 0.6:
            return dice.choice(plain)
        levels = dice.choice(DEPTHS)
        return (
            deep(levels, dice.choice(plain))
            if dice.random() < 0.7
            else '{"a":' * levels + ("1" + "}" * levels)
        )

    def _arrow(self, count: int) -> bytes:
        dice = self.dice
        prices = [
            dice.choice([1.0, 5.5, None, 99.25, float("nan"), float("inf")]) for _ in range(count)
        ]
        columns: dict[str, Any] = {"price": pa.array(prices, pa.float64())}
        kinds = [
            pa.array([b"\x00\xff"] * count),
            pa.array(range(count)).cast(pa.timestamp("ns")),
            pa.array([2**60] * count).cast(pa.timestamp("s"), safe=False),
            pa.array(range(count)).cast(pa.duration("ns")),
            pa.array(["1.25"] * count).cast(pa.decimal128(20, 5)),
            pa.array(["a"] * count).dictionary_encode(),
            pa.array([[[float("nan")]]] * count),
            pa.array([{"a": None}] * count),
            pa.nulls(count),
            pa.array(["x" * 20] * count, pa.string_view()),
            pa.array([[1]] * count, pa.list_view(pa.int64())),
            pa.RunEndEncodedArray.from_arrays([count], pa.array([1])),
            pa.array([[("k", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        ]
        if dice.random() < 0.7:
            columns[dice.choice(["note", "id", "price2"])] = dice.choice(kinds)
        if dice.random() < 0.2:
            values: Any = pa.array([1] * count)
            for _ in range(dice.choice([10, 60])):
                values = pa.StructArray.from_arrays([values], ["a"])
            columns["deep"] = values
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=dice.choice([None, "zstd", "lz4"]))
        with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
            stream.write_table(table, max_chunksize=dice.choice([10, 1000]))
        body: bytes = sink.getvalue().to_pybytes()
        if dice.random() < 0.1:  # damaged
            place = dice.randrange(len(body))
            body = body[:place] + dice.randbytes(1) + body[place + 1 :]
        return body


async def pulled(spoken: Spoken) -> dict[str, Any]:
    """Return all messages of the consumer, by position."""
    found: dict[str, Any] = {}
    while True:
        page = await spoken.json("GET", "/v1/consumers/all/messages?limit=500")
        if not page["items"]:
            return found
        found |= {one["position"]: one["event"] for one in page["items"]}
        await spoken.json("POST", "/v1/consumers/all/ack", {"position": page["position"]})


async def logged(spoken: Spoken) -> dict[str, Any]:
    """Return all events of the log, by position."""
    status, content = await spoken.ask("GET", f"{EVENTS}?limit=1000000")
    assert status == 200
    lines = [json.loads(line) for line in content.splitlines()]
    return {one["position"]: one["event"] for one in lines}


async def prepared(service: Service) -> None:
    await result_of(service.core.edit(PutConsumer(T, "all", "s")))
    await result_of(service.core.edit(PutSubscription(T, "every", "s", "true", "all")))


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_what_was_accepted_is_read_again_after_a_crash(tmp_path: Path, seed: int) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    bodies, count = Bodies(seed), 0
    seen: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    statuses: set[int] = set()

    async def publish() -> None:
        nonlocal count, seen, expected
        async with serving(before) as service:
            await prepared(service)
            spoken = Spoken(service)
            for _ in range(60):
                path, body, headers, events = bodies.request()
                status, content = await spoken.ask("POST", path, body, **headers)
                assert status in (200, 400, 413, 422), (path, headers, body[:300], content)
                statuses.add(status)
                answer = json.loads(content)
                count += answer.get("accepted", 0)
                if events and answer.get("accepted") and "skipped" not in answer:
                    expected |= places_of(events, answer)
            seen = await logged(spoken)
            # A crash: the files as they are, while the server runs.
            shutil.copytree(before, after, ignore=shutil.ignore_patterns("lock"))

    async def restart() -> None:
        async with serving(after) as service:
            spoken = Spoken(service)
            assert len(seen) == count
            assert same(expected).items() <= same(seen).items()
            assert same(await logged(spoken)) == same(seen)
            assert same(await pulled(spoken)) == same(seen)
            status, _ = await spoken.ask(
                "POST", "/v1/spaces/s/filters:preview", b'{"filter": "price > 0"}'
            )
            assert status == 200

    run(publish)
    run(restart)
    assert expected
    assert {200, 422} <= statuses


def places_of(events: list[str], answer: Any) -> dict[str, Any]:
    """Return the events that an answer says are in the log, by position."""
    rejected = {one["row"] for one in answer["rejected"]}
    rows = range(answer["accepted"] + len(rejected))
    epoch, _, first = answer["first"].partition(":")
    taken = [msgspec.json.decode(events[row]) for row in rows if row not in rejected]
    return {f"{epoch}:{seq}": one for seq, one in enumerate(taken, int(first))}


def same(events: dict[str, Any]) -> dict[str, str]:
    """Return events as texts, which NaN doesn't hinder from being equal."""
    return {place: json.dumps(one) for place, one in events.items()}


@pytest.mark.parametrize("levels", DEPTHS[1:])
def test_nesting_is_bounded_on_every_way(levels: int) -> None:
    """One event, few, many; as JSON, a list, lines, CloudEvents; on the short way and the usual."""
    one, good = deep_event(levels), b'{"price": 5}'
    envelope = b'{"specversion":"1.0","id":1,"data":%s}' % deep_event(levels - 1)
    bodies = [
        (one, JSON, 1),
        (one, LINES, 1),
        (b"\n".join([good, one]), LINES, 2),
        (b"\n".join([one, *[good] * 300]), LINES, 301),
        (b"\n".join([one, good]), JSON, 2),
        (b"[%s]" % one, JSON, 1),
        (b"[%s]" % b",".join([one, *[good] * 300]), JSON, 301),
    ]
    if levels > 2:
        bodies += [
            (envelope, "application/cloudevents+json", 1),
            (b"[%s]" % envelope, "application/cloudevents-batch+json", 1),
        ]

    async def work() -> None:
        async with serving() as service:
            await prepared(service)
            spoken = Spoken(service)
            for body, kind, count in bodies:
                for more in ({}, {"Content_Encoding": "identity"}):
                    status, content = await spoken.ask(
                        "POST", EVENTS, body, Content_Type=kind, **more
                    )
                    answer = json.loads(content)
                    if levels <= MAX_DEPTH:
                        assert (status, answer["accepted"]) == (200, count)
                    else:
                        assert status in (200, 400, 422), content
                        assert answer.get("accepted", 0) in (0, count - 1)
                        assert b"nested deeper" in content
            count = len(await logged(spoken))
            assert len(await pulled(spoken)) == count

    run(work)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "spaces/s/subscriptions/a"),
        ("PUT", "consumers/c"),
        ("PUT", "boards/b"),
        ("PUT", "boards/there/interests/i"),
        ("PUT", "spaces/other"),
        ("PUT", "tenants/t"),
        ("POST", "tokens"),
        ("POST", "boards/there/updates"),
        ("POST", "boards/there/interests:bulk"),
        ("POST", "spaces/s/subscriptions:bulk"),
        ("POST", "spaces/s/filters:preview"),
        ("POST", "spaces/s/subscriptions:find-covering"),
        ("POST", "spaces/s/why"),
        ("POST", "spaces/s/why-not"),
        ("POST", "consumers/all/ack"),
        ("POST", "consumers/all/seek"),
    ],
)
def test_no_body_is_nested_deeper(method: str, path: str) -> None:
    """Nor is what an edit keeps: one that can't be encoded would end the server."""
    shapes = [
        '{"filter": "price < 5", "weights": %s}',
        '{"space": "s", "delivery": {"kind": "webhook", "url": %s}}',
        '{"space": "s", "delivery": %s}',
        '{"k": 2, "x": %s}',
        '{"id": "a", "filter": %s}',
        '{"event": {"price": 1, "id": %s}, "subscription": "every"}',
        '{"attribute": %s}',
        '{"label": "x", "scopes": %s}',
        '{"position": %s}',
        "%s",
    ]

    async def work() -> None:
        async with serving() as service:
            await prepared(service)
            spoken = Spoken(service)
            await spoken.json("PUT", "/v1/boards/there", {"k": 2})
            for levels in (MAX_DEPTH + 1, 990):
                for shape in shapes:
                    for value in (deep(levels), '{"a":' * levels + "1" + "}" * levels):
                        status, content = await spoken.ask(
                            method, f"/v1/{path}", (shape % value).encode(), Content_Type=JSON
                        )
                        assert 400 <= status < 500, content
                        assert b"went wrong" not in content
            assert not service.why_not_ready()
            assert (await spoken.json("POST", EVENTS, {"price": 1}))["accepted"] == 1

    run(work)


async def old_log(folder: Path) -> list[bytes]:
    """Write a log with events that were accepted before nesting was bounded."""
    async with serving(folder) as service:
        await prepared(service)
    lines = [deep_event(levels) for levels in (2, 70, 300, 600, 989)]
    lines += [b'{"price": 5, "id": %d}' % at for at in range(8)]
    log = SqliteLog(folder, durability="fsync")
    for head in (EventsHead(T, "s", dedup=True), EventsHead(T, "s")):
        log.append([events_draft(head, lines, 1)])
    envelope = b'{"specversion":"1.0","id":1,"data":%s}' % deep_event(980, "note")
    log.append([events_draft(EventsHead(T, "s", form="cloudevents"), [envelope], 1)])
    log.close()
    return [*lines, *lines, envelope]


def test_a_log_with_deep_events_starts_and_is_read(tmp_path: Path) -> None:
    async def work() -> None:
        lines = await old_log(tmp_path)
        async with serving(tmp_path) as service:
            spoken = Spoken(service)
            status, content = await spoken.ask("GET", f"{EVENTS}?limit=1000")
            assert status == 200
            got = [line.partition(b',"event":')[2][:-1] for line in content.splitlines()]
            assert got == lines
            status, content = await spoken.ask("GET", "/v1/consumers/all/messages?limit=1000")
            assert status == 200
            assert all(line in content for line in lines)
            assert content.count(b'"every"') == len(lines)
            entry = service.core.registry.space(T, "s")
            assert preview_filter(service.core.log, service.core.epoch, entry, "price = 5")[
                "matched"
            ] == len(lines)
            status, _ = await spoken.ask(
                "POST", "/v1/spaces/s/filters:preview", b'{"filter": "price = 5"}'
            )
            assert status == 200
            journal = ServerJournal(service.core.log, service.core.lineage, entry, "origin")
            texts = [text for _, block in journal.between(0, 1 << 40) for text in block.texts]
            assert len(texts) == len(lines)
            for text in texts:
                decode(text)  # as a neighbour does
            assert (await spoken.json("POST", f"{EVENTS}?dedup=id", {"price": 1, "id": 3})) == {
                "accepted": 0,
                "first": None,
                "last": None,
                "rejected": [],
                "durability": "fsync",
                "skipped": 1,
            }

    run(work)


def test_depth_is_that_of_brackets_outside_texts() -> None:
    for levels in (1, 63, 64, 65, 66, 1000, 100_000):
        for text in (
            deep(levels),
            deep(levels, '"]]]}}}\\"]]"'),
            '{"a]":' * levels + '"[[["' + "}" * levels,
            "[" + deep(levels - 1) + ("," + deep(levels - 1)) * 3 + "]" if levels > 1 else "[]",
        ):
            if levels <= MAX_DEPTH:
                decode(text.encode())
            else:
                with pytest.raises(DepthError):
                    decode(text.encode())
                with pytest.raises(msgspec.DecodeError):
                    decode(text.encode()[: levels + 5])
            assert decode(shallow(text.encode())) is not None
    wide = json.dumps([[1, "[" * 100, {"a": "\\"}]] * 1000)
    assert decode(wide.encode()) == json.loads(wide)
    assert shallow(wide.encode()) == wide.encode()
    with pytest.raises(msgspec.DecodeError):
        decode(b'"' + b'\\"' * 50_000 + b"[" * 100)


def test_many_texts_are_looked_at_together() -> None:
    """One that is deep is found among any others, also where these have no brackets at all."""
    flat, nested = b'{"price": 5}', b'{"price": 5, "id": [{"a": [1]}]}'
    others = [[flat] * 99, [b"5"] * 99, [nested] * 99, [b" " + flat] * 99, [b"[\n{}]"] * 99]
    for some in others:
        decoder_for(some)(some[0])
        for levels in (MAX_DEPTH, MAX_DEPTH + 1, 80, 200):
            lined = b"[\n" * levels + b"]" * levels
            for one in (
                deep_event(levels),
                lined,
                lined.replace(b"[", b'{"a":').replace(b"]", b"}"),
            ):
                for texts in ([one, *some], [*some, one], [*some, one, *some]):
                    read = decoder_for(texts)
                    if levels > MAX_DEPTH:
                        with pytest.raises(msgspec.DecodeError):
                            read(one)
    assert decoder_for([flat] * 99) is not decode  # so it is quick


def test_points_of_deep_lines_are_those_of_their_values() -> None:
    lines = [deep_event(levels) for levels in (2, 990, 990, 3, 4, 5, 6)]
    assert points_of_lines(lines, "", SPACE).tolist() == [[5.0]] * 7
    assert [row["price"] for row in rows_of(lines, "")] == [5] * 7
    taken, rejected = encoded(lines, SPACE, ignore_unknown=True)
    assert [place for place, _ in rejected] == [1, 2]
    assert np.array_equal(taken.points, [[5.0]] * 5)
