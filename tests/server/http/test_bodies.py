"""Bodies of requests: what they come to is bounded before it is held."""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import sys
import zlib
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from rangecast.model.space import Space
from rangecast.server.http.bodies.arrow import lines_of_arrow
from rangecast.server.http.bodies.read import MAX_EVENTS
from rangecast.server.http.middleware import MAX_BODY_BYTES
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import PutSpace
from rangecast.server.state.registry import RequestError
from tests.support.server.serving import T, run, serving
from tests.support.spoken import Spoken

EVENTS = "/v1/spaces/s/events"
ARROW = "application/vnd.apache.arrow.stream"


def stream_of(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def bombs() -> dict[str, bytes]:
    """Return streams of few bytes that come to many."""
    text, rows = pa.array(["x" * (4 << 20)]), 5_000
    one = pa.array([0] * rows, pa.int8())
    views = pa.array(["x" * (1 << 20)] * 1, pa.string_view())
    same = pa.Array.from_buffers(
        pa.string_view(),
        1000,
        [None, pa.py_buffer(views.buffers()[1].to_pybytes() * 1000), *views.buffers()[2:]],
    )
    many = pa.nulls(1 << 30)
    ends = pa.py_buffer(struct.pack("<ii", 0, 1 << 30))
    return {
        "null": stream_of(batch(a=pa.nulls(2_000_000_000))),
        "run ends": stream_of(
            batch(a=pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), [1]))
        ),
        "run ends, few rows": stream_of(
            batch(a=pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), text))
        ),
        "zstd": stream_of(batch(a=pa.array(["y" * 40_000] * 1000)), compression="zstd"),
        "lz4": stream_of(batch(a=pa.array(["y" * 40_000] * 1000)), compression="lz4"),
        "dictionary": stream_of(
            batch(a=pa.DictionaryArray.from_arrays(one, text)), compression="zstd"
        ),
        "views": stream_of(batch(a=same)),
        "list of nulls": stream_of(
            batch(a=pa.Array.from_buffers(pa.list_(pa.null()), 1, [None, ends], children=[many]))
        ),
        "list of a fixed size": stream_of(
            batch(a=pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 30), 1 << 30))
        ),
        "columns": stream_of(
            pa.RecordBatch.from_arrays(
                [pa.array([1] * 5_000, pa.int8())] * 1_500, [f"c{at}" for at in range(1_500)]
            ),
            compression="zstd",
        ),
    }


def test_rows_and_bytes_of_arrow_are_bounded() -> None:
    for name, body in bombs().items():
        before = pa.total_allocated_bytes()
        with pytest.raises(RequestError) as rejected:
            lines_of_arrow(body, MAX_EVENTS, MAX_BODY_BYTES)
        assert rejected.value.status in (400, 413), name
        assert pa.total_allocated_bytes() - before < MAX_BODY_BYTES, name


def test_a_stream_whose_messages_lie_is_rejected() -> None:
    """Any byte of it: never another error, and what is accepted is bounded."""
    body = stream_of(
        batch(price=pa.array([1.0, 2.0]), s=pa.array(["a", "b"]).dictionary_encode()),
        compression="zstd",
    )
    dice = random.Random(5)
    for _ in range(3000):
        wrong = bytearray(body)
        for _ in range(dice.choice([1, 1, 3])):
            wrong[dice.randrange(len(body))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF])
        try:
            lines = lines_of_arrow(bytes(wrong), MAX_EVENTS, MAX_BODY_BYTES)
        except RequestError:
            continue
        assert sum(map(len, lines)) <= MAX_BODY_BYTES
        assert len(lines) <= MAX_EVENTS


def test_many_batches_are_counted_together() -> None:
    one = batch(price=pa.array([1.0] * 3000))
    assert len(lines_of_arrow(stream_of(one, one, one), MAX_EVENTS, MAX_BODY_BYTES)) == 9000
    with pytest.raises(RequestError, match="12,000"):
        lines_of_arrow(stream_of(one, one, one, one), MAX_EVENTS, MAX_BODY_BYTES)
    text = batch(a=pa.array(["x" * (1 << 20)]))
    with pytest.raises(RequestError, match="at most"):
        lines_of_arrow(stream_of(*[text] * 9), MAX_EVENTS, MAX_BODY_BYTES)
    with pytest.raises(RequestError, match="same name"):
        lines_of_arrow(
            stream_of(pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["a", "a"])), 10, 1000
        )


def test_values_that_no_event_has_are_rejected_row_by_row() -> None:
    space = Space.from_toml("""
attribute = [{ name = "price", type = "number" }, { name = "at", type = "timestamp" }]
""")
    prices = pa.array([1.0, float("nan"), float("inf"), float("-inf"), None, 6.0])
    moment = int(datetime(2024, 5, 6).timestamp() * 1e9) // 10**6 * 10**6
    moments = {
        "ns": pa.array([moment, moment, moment, moment, moment, moment + 1], pa.int64()).cast(
            pa.timestamp("ns")
        ),
        "far": pa.array([0, 0, 0, 0, 0, 2**60], pa.int64()).cast(pa.timestamp("s")),
        "day": pa.array([0, 0, 0, 0, 0, 2**30], pa.int32()).cast(pa.date32()),
    }

    async def work() -> None:
        async with serving() as service:
            await result_of(service.core.edit(PutSpace(T, "m", space.definition())))
            spoken = Spoken(service)
            for name, column in moments.items():
                body = stream_of(batch(price=prices, at=column))
                status, content = await spoken.ask(
                    "POST", "/v1/spaces/m/events", body, Content_Type=ARROW
                )
                answer = json.loads(content)
                assert status == 200, name
                assert [one["row"] for one in answer["rejected"]] == [1, 2, 3, 5], content
                assert "NaN" in answer["rejected"][0]["reason"]
                assert answer["accepted"] == 2
            lengths = pa.array([1, 2], pa.int64()).cast(pa.duration("ns"))
            for given in (
                {"at": lengths},
                {"price": pa.array([b"\xff", b"a"])},
                {"price": pa.array([[float("nan")], [1.0]])},
                {"price": pa.array(["x", "y"])},
            ):
                status, content = await spoken.ask(
                    "POST", "/v1/spaces/m/events", stream_of(batch(**given)), Content_Type=ARROW
                )
                assert status == 422, content
            number = pa.array(["1.25", "2.5"]).cast(pa.decimal128(10, 2))
            status, content = await spoken.ask(
                "POST", "/v1/spaces/m/events", stream_of(batch(price=number)), Content_Type=ARROW
            )
            assert json.loads(content)["accepted"] == 2

    run(work)


def test_a_tenant_pays_for_what_a_body_comes_to() -> None:
    """Compressed by Arrow or by gzip, it is the events' bytes that count."""
    texts = ["y" * 1000] * 1000
    column = batch(price=pa.array([1.0] * 1000), id=pa.array(texts))
    lines = b"\n".join(b'{"price": 1, "id": "%s"}' % text.encode() for text in texts)
    bodies = [
        (stream_of(column, compression="zstd"), {"Content_Type": ARROW}),
        (
            gzip.compress(lines),
            {"Content_Type": "application/x-ndjson", "Content_Encoding": "gzip"},
        ),
    ]

    async def work() -> None:
        for body, headers in bodies:
            async with serving() as service:
                spoken = Spoken(service)
                assert len(body) < 100_000
                await spoken.json("PUT", "/v1/tenants/default", {"retained_bytes": 500_000})
                status, _ = await spoken.ask("POST", EVENTS, body, **headers)
                assert status == 403
                await spoken.json("PUT", "/v1/tenants/default", {"bytes_per_second": 200_000})
                status, _ = await spoken.ask("POST", EVENTS, body, **headers)
                assert status == 200
                status, content = await spoken.ask("POST", EVENTS, b'{"price": 1}')
                assert status == 429, content

    run(work)


def test_all_members_of_gzip_are_read() -> None:
    one, two = gzip.compress(b'{"price": 1}\n'), gzip.compress(b'{"price": 2}')
    raw = zlib.compressobj(wbits=-15)
    deflated = raw.compress(b'{"price": 1}') + raw.flush()

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)

            async def ask(body: bytes) -> tuple[int, int]:
                status, content = await spoken.ask(
                    "POST",
                    EVENTS,
                    body,
                    Content_Type="application/x-ndjson",
                    Content_Encoding="gzip",
                )
                return status, json.loads(content).get("accepted", 0)

            assert await ask(one + two) == (200, 2)
            assert await ask(one + gzip.compress(b"") + two) == (200, 2)
            assert await ask(one * 500) == (200, 500)
            for wrong in (
                one + b"rubbish",
                one + b"\0",
                one + two[:-3],
                one[:-1],
                b"",
                deflated,
                b'{"price": 1}',
                gzip.compress(b"") * 5000,
            ):
                assert await ask(wrong) == (400, 0), wrong[:50]

    run(work)


PATHS = [
    ("POST", "spaces/s/events"),
    ("POST", "spaces/s/events:match"),
    ("POST", "spaces/s/subscriptions:bulk"),
    ("POST", "spaces/s/filters:preview"),
    ("POST", "spaces/s/subscriptions:find-covering"),
    ("POST", "spaces/s/why"),
    ("PUT", "spaces/s/subscriptions/a"),
    ("PUT", "spaces/s"),
    ("PUT", "consumers/c"),
    ("PUT", "boards/b"),
    ("PUT", "boards/b/interests/i"),
    ("POST", "boards/b/interests:bulk"),
    ("POST", "boards/b/updates"),
    ("PUT", "tenants/t"),
    ("POST", "tokens"),
]


async def bombard() -> None:
    """Send every path a body that comes to a gigabyte, and each bomb of Arrow; print the growth."""
    import resource

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

    # zeros, written once and repeated: a gigabyte in a megabyte
    body = gzip.compress(b'{"price": "' + b" " * (64 << 20), 9)
    body = (body * 16)[: 7 << 20]
    streams = bombs()
    async with serving() as service:
        spoken = Spoken(service)
        await spoken.json("PUT", "/v1/boards/b", {"k": 2})
        full = b"\n".join([b'{"price": 5, "id": "%s"}' % (b"x" * 1000)] * 7000)
        await spoken.ask("POST", EVENTS, full, Content_Type="application/x-ndjson")
        before = peak()
        for method, path in PATHS:
            status, content = await spoken.ask(
                method,
                f"/v1/{path}",
                body,
                Content_Type="application/json",
                Content_Encoding="gzip",
            )
            assert status == 413, (path, status, content)
        for name, stream in streams.items():
            status, content = await spoken.ask("POST", EVENTS, stream, Content_Type=ARROW)
            assert status in (400, 413), (name, status, content)
        print(peak() - before)


@pytest.mark.process
def test_bombs_take_no_memory() -> None:
    """Seen in practice: the highest resident size of a process of its own."""
    script = (
        "import asyncio; from tests.server.http.test_bodies import bombard; asyncio.run(bombard())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 150  # MiB


def test_the_type_of_a_json_body() -> None:
    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            for path, given in {
                "spaces/s/subscriptions/a": {"filter": "price < 5"},
                "consumers/c": {"space": "s"},
                "boards/b": {"k": 2},
                "tenants/t": {"events_per_second": 5},
            }.items():
                body = json.dumps(given).encode()
                for headers in (
                    {},
                    {"Content_Type": "application/json; charset=utf-8"},
                    {"Content_Type": "application/x-www-form-urlencoded"},
                ):
                    status, content = await spoken.ask("PUT", f"/v1/{path}", body, **headers)
                    assert status == 200, content
                packed = {"Content_Encoding": "gzip"}
                status, content = await spoken.ask(
                    "PUT", f"/v1/{path}", gzip.compress(body), **packed
                )
                assert status == 200, content
                for kind in ("text/plain", "x"):
                    status, content = await spoken.ask(
                        "PUT", f"/v1/{path}", body, Content_Type=kind
                    )
                    detail = json.loads(content)["detail"]
                    assert status == 415
                    assert kind in detail
                    assert "Content-Type: application/json" in detail
            for method, path, given in (
                ("POST", "consumers/c/ack", {"position": "start"}),
                ("POST", "spaces/s/events", {"price": 1}),
                ("POST", "spaces/s/filters:preview", {"filter": "price < 5"}),
                ("POST", "spaces/s/subscriptions:bulk", {"id": "b", "filter": "price < 5"}),
            ):
                status, content = await spoken.ask(
                    method, f"/v1/{path}", json.dumps(given).encode()
                )
                assert status == 200, (path, content)

    run(work)
