"""Odd values of parameters, and what clients send in the server's own lines."""

from __future__ import annotations

import io
import itertools
import json
import logging
import math
from urllib.parse import quote

import pytest

from rangecast import Timestamp
from rangecast.server.encoding import _moments
from rangecast.server.log_format import JsonLines, TextLines, printable
from tests.support.server.serving import run, serving
from tests.support.spoken import Spoken

WHOLE = ["0", "-1", "-9223372036854775809", "1.5", "x", "", "nan", "9" * 5000]
FLOATS = ["nan", "inf", "-inf", "-1", "1e400", "x", ""]


def test_limits_of_the_log_route() -> None:
    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            await spoken.json("POST", "/v1/spaces/s/events", [{"price": 1}, {"price": 2}])
            for limit in WHOLE:
                status, content = await spoken.ask("GET", f"/v1/spaces/s/events?limit={limit}")
                assert status == 422, (limit, content)
                assert json.loads(content)["detail"]
            for limit, count in (("1", 1), ("2", 2), (str(2**63), 2)):
                status, content = await spoken.ask("GET", f"/v1/spaces/s/events?limit={limit}")
                assert (status, len(content.splitlines())) == (200, count)

    run(work)


def test_no_parameter_is_an_internal_error() -> None:
    values = {*WHOLE, *FLOATS, "%00", "%ff", "%ed%a0%80", "1" * 19, "a:b", ":", "0:", "x:1"}
    paths = [
        *("spaces/s/subscriptions?limit=%s", "spaces/s/subscriptions?after=%s"),
        *("spaces/s/subscriptions?contains=%s", "spaces/s/subscriptions?consumer=%s"),
        *("spaces/s/events?limit=%s", "spaces/s/events?after=%s", "spaces/%s/events"),
        *("spaces/s/boxes?x=price&y=price&limit=%s", "spaces/s/boxes?x=%s&y=price"),
        *("spaces/s/shapes?place=%s", "spaces/s/shapes?after=%s", "spaces/s/shapes?limit=%s"),
        *("consumers/c/messages?limit=%s", "consumers/c/messages?wait=%s&limit=1"),
        *("consumers/c/dead-letters?limit=%s", "consumers/c/dead-letters?after=%s", "consumers/%s"),
        *("boards/b/interests?limit=%s", "boards/b/objects?limit=%s", "boards/b/objects?after=%s"),
        *(
            "boards/b/best?k=%s",
            "boards/b/best?position_lo=%s",
            "boards/b/best?position_lo=0&position_hi=%s",
        ),
        *(
            "boards/f/best?filter=%s",
            "boards/%s",
            "spaces/%s",
            "log?after=%s",
            "log?after=0&wait=%s",
        ),
        *("spaces/s/subscriptions/%s", "boards/b/interests/%s"),
    ]

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            await spoken.json("PUT", "/v1/consumers/c", {"space": "s"})
            await spoken.json("PUT", "/v1/boards/b", {"k": 2})
            await spoken.json("PUT", "/v1/boards/f", {"k": 2, "space": "s"})
            await spoken.json("POST", "/v1/spaces/s/events", {"price": 1})
            for path in paths:
                short = {"nan", "-inf", "-1", "x", "", "%00"}  # a long time would be waited for
                for value in sorted(short if "wait" in path else values):
                    status, content = await spoken.ask("GET", f"/v1/{path % value}")
                    assert status < 500, (path, value, content)
            for value in ("%00", "%ff", "%ed%a0%80", "a%0d%0ab", "x" * 60_000, "%", "%zz"):
                for path, body in (
                    ("spaces/s/subscriptions/%s", b'{"filter": "price < 5"}'),
                    ("consumers/%s", b'{"space": "s"}'),
                    ("boards/%s", b'{"k": 2}'),
                    ("boards/b/interests/%s", b'{"position_lo": 0, "position_hi": 1}'),
                    ("spaces/%s", b"attribute = []"),
                    ("tenants/%s", b"{}"),
                ):
                    status, content = await spoken.ask("PUT", f"/v1/{path % value}", body)
                    assert status < 500, (path, value, content)
                    status, content = await spoken.ask("DELETE", f"/v1/{path % value}")
                    assert status < 500, (path, value, content)
            assert not service.why_not_ready()

    run(work)


def lines_of(formatter: logging.Formatter, *messages: str, **fields: str) -> list[str]:
    """Return the lines that a log has of messages."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    for message in messages:
        record = logging.makeLogRecord(
            {"msg": "%s", "args": (message,), "levelname": "INFO", **fields}
        )
        handler.handle(record)
    return out.getvalue().splitlines()


HOSTILE = "/v1/a\r\n2026-01-01 00:00:00 CRITICAL all is lost\x1b[31m\x00\u2028\x85b\ud800"


def test_what_a_client_sends_makes_no_line() -> None:
    (line,) = lines_of(TextLines(), "request", path=HOSTILE, tenant="a\nb")
    assert line.isprintable()
    assert r"\r\n2026-01-01" in line
    assert r"\x1b[31m\x00\u2028\x85b\ud800" in line
    (line,) = lines_of(JsonLines(), "request", path=HOSTILE)
    assert json.loads(line)["path"] == printable(HOSTILE)
    first, *more = lines_of(TextLines(), f"it can't be used: {HOSTILE}\n  hint: none")
    assert first.endswith("/v1/a")
    assert all(one.startswith("    ") and one.isprintable() for one in more)
    assert more[-1] == "      hint: none"
    assert lines_of(JsonLines(), HOSTILE)[0].isprintable()
    assert printable("/v1/ü 1") == "/v1/ü 1"


def test_a_request_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    path = "/v1/spaces/" + quote("s\r\n2026 CRITICAL \x1b[31m", safe="")

    async def work() -> None:
        async with serving() as service:
            with caplog.at_level(logging.INFO, "rangecast.requests"):
                status, _ = await Spoken(service).ask("GET", path)
            assert status == 404

    run(work)
    (record,) = [one for one in caplog.records if one.name == "rangecast.requests"]
    assert len(TextLines().format(record).splitlines()) == 1


def test_moments_of_columns_are_those_of_single_values():
    """Arrow reads the usual forms of timestamps; each has the value that Python finds."""
    attribute, accepted = Timestamp("at"), 0
    days = ("2026-01-31", "20260131", "2024-02-29", "2026-1-31", "9999-12-31", "2026-031")
    clocks = ("09", "09:00", "09:00:00", "09:00:00.5", "09:00:00.123456", "24:00:00", "")
    zones = ("Z", "z", "+01", "+0100", "-01:00", "+23:59", "+24:00", "", " Z")
    for day, gap, clock, zone in itertools.product(days, ("T", " ", ""), clocks, zones):
        text = f"{day}{gap}{clock}{zone}"
        try:
            column = _moments(attribute, [text, None])
        except ValueError:
            continue
        if column is None:
            continue
        accepted += 1
        assert column.tolist() == [attribute.coordinate(text), math.inf], text
    assert accepted > 100
