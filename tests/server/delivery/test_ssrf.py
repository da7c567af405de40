"""Webhooks against sockets that really listen: what is private never sees a connection."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rangecast.server.delivery import url_guard, webhook
from rangecast.server.delivery.url_guard import BLOCKED_PORTS, AddressError, check_port, target_of
from tests.support.server.serving import Client, run, serving


class Trap:
    """Listens on loopback, at one port, and counts connections."""

    def __init__(self) -> None:
        self.port = 0
        self.connections: list[str] = []
        self.requests: list[bytes] = []
        self.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer.get_extra_info("sockname")[0])
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.reply)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def trap(*addresses: str) -> AsyncIterator[Trap]:
    made = Trap()
    servers: list[asyncio.Server] = []
    for address in addresses or ("127.0.0.1", "::1"):
        try:
            servers.append(await asyncio.start_server(made.serve, address, made.port))
        except OSError:
            assert address == "::1", address  # a machine without IPv6
            continue
        made.port = servers[0].sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        for server in servers:
            server.close()


LITERALS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 0x7F.1 127.0.0.1.
127.255.255.254 0.0.0.0 0 00.00.00.00 localhost LOCALHOST localhost. LocalHost
[::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:7F00:0001] [::127.0.0.1]
[64:ff9b::7f00:1] [64:ff9b::127.0.0.1] [2002:7f00:1::] [2001:0:7f00:1::] [2001::7f00:1]
[::ffff:0:127.0.0.1] [fe80::1%25lo] [fe80::1%lo] [::1%25lo]
user@127.0.0.1 user:pass@localhost example.com@127.0.0.1 127.0.0.1%2f@example.com %31%32%37.0.0.1
127.0.0.1%00.example.com 127。0。0。1 127.0.0.1\u3002 \uff11\uff12\uff17.0.0.1
\u2460\u2461\u2466.0.0.1 ⓛⓞⓒⓐⓛⓗⓞⓢⓣ loc\u0430lhost 127.0.0.1\\@example.com
127.0.0.1\t 127.0.0.1#@example.com
"""
NAMES = [
    ["127.0.0.1"],
    ["::1"],
    ["0.0.0.0"],
    ["::"],
    ["10.0.0.1"],
    ["169.254.169.254"],
    ["::ffff:127.0.0.1"],
    ["64:ff9b::7f00:1"],
    ["2002:7f00:1::"],
    ["2001:0:7f00:1::"],
    ["fe80::1%lo"],
    ["93.184.215.14", "127.0.0.1"],
    ["127.0.0.1", "93.184.215.14"],
    [],
    ["nonsense"],
]
"""Addresses of a name, none of which may be called."""


def test_nothing_private_is_ever_connected() -> None:
    async def work() -> None:
        async with trap() as there, serving() as service:
            client = Client(service)
            before = service.deliveries.settings.resolver.lookup
            urls = [
                f"{scheme}://{host}:{there.port}/"
                for host in LITERALS.split()
                for scheme in ("http", "HTTP", "https")
            ]
            urls += [
                f"{scheme}://127.0.0.1:{there.port}/"
                for scheme in ("ftp", "file", "gopher", "dict", "ws", "unix", "javascript", "")
            ]
            urls += [
                f"http://127.0.0.1:{there.port}\r\nHost: x/",
                f"http://x.example:{there.port}/\r\nX: y",
                f"//127.0.0.1:{there.port}/",
                f"http:127.0.0.1:{there.port}",
                f"http:/127.0.0.1:{there.port}/",
                f"http:///127.0.0.1:{there.port}/",
                f"http://127.0.0.1:{there.port}:80/",
            ]
            tried = 0
            for url in urls:
                out = {"kind": "webhook", "url": url}
                answer = await client._http.request(
                    "PUT", "/v1/consumers/out", json={"space": "s", "delivery": out}
                )
                assert answer.status_code in (200, 422), (url, answer.text)
                if answer.status_code == 200:
                    tried += 1
                    found = await client("POST", "consumers/out:test")
                    assert not found["delivered"], url
                    assert found["status"] is None, url
            assert tried  # names and odd notations are judged when they are called
            for number, addresses in enumerate(NAMES):
                service.deliveries.settings.resolver.lookup = lambda _host, found=addresses: found  # type: ignore[misc]
                url = f"http://n{number}.example:{there.port}/"
                await client.put_out(kind="webhook", url=url)
                assert not (await client("POST", "consumers/out:test"))["delivered"], addresses
            assert there.connections == []
            # the same socket is reached by whoever may
            service.deliveries.settings.resolver.lookup = before
            await client.webhook(f"http://127.0.0.1:{there.port}/")
            assert (await client("POST", "consumers/out:test"))["delivered"]
            assert there.connections == ["127.0.0.1"]

    run(work)


def test_redirects_to_what_is_private_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    # 127.0.0.2 plays a receiver of the open internet
    monkeypatch.setattr(url_guard, "is_global", lambda address: address == "127.0.0.2")

    async def work() -> None:
        async with trap("127.0.0.2") as there, trap("127.0.0.1") as secret, serving() as service:
            service.deliveries.settings.resolver.lookup = lambda _host: ["127.0.0.2"]
            client = Client(service)
            await client.put_out(kind="webhook", url=f"http://hook.example:{there.port}/")
            for status in (300, 301, 302, 303, 307, 308):
                for header in ("Location", "Refresh", "Content-Location"):
                    goal = f"http://127.0.0.1:{secret.port}/"
                    value = f"0; url={goal}" if header == "Refresh" else goal
                    there.reply = (
                        f"HTTP/1.1 {status} X\r\n{header}: {value}\r\nContent-Length: 0\r\n"
                        "Connection: close\r\n\r\n"
                    ).encode()
                    found = await client("POST", "consumers/out:test")
                    assert (found["status"], found["delivered"]) == (status, False)
            assert len(there.connections) == 18
            assert secret.connections == []

    run(work)


def test_a_name_that_is_bound_again_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_guard, "is_global", lambda address: address == "127.0.0.2")

    async def work() -> None:
        async with trap("127.0.0.2") as there, serving() as service:
            secret = await asyncio.start_server(lambda *_: seen.append(1), "127.0.0.1", there.port)
            seen: list[int] = []
            answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])
            monkeypatch.setattr("rangecast.server.delivery.resolver.TTL", 0.0)
            service.deliveries.settings.resolver.lookup = lambda _host: next(answers)
            client = Client(service)
            await client.put_out(kind="webhook", url=f"http://hook.example:{there.port}/x?y=z")
            assert (await client("POST", "consumers/out:test"))["delivered"]
            for _ in range(2):
                found = await client("POST", "consumers/out:test")
                assert "outside the public internet" in found["error"]
            assert (there.connections, seen) == (["127.0.0.2"], [])
            head = there.requests[0].decode()
            assert head.startswith("POST /x?y=z HTTP/1.1\r\n")
            assert f"\r\nHost: hook.example:{there.port}\r\n" in head
            secret.close()

    run(work)


def test_ports_of_other_protocols_are_not_called() -> None:
    for port in (22, 25, 53, 110, 143, 445, 587, 3306, 5432, 6379, 6667, 11211, 27017):
        assert port in BLOCKED_PORTS
        with pytest.raises(AddressError, match=f"port {port} is reserved for a protocol"):
            check_port(target_of(f"https://hook.example:{port}/"))
    for port in (80, 443, 3000, 5000, 8000, 8080, 8443, 9000, 50_000):
        check_port(target_of(f"http://hook.example:{port}/"))

    async def work() -> None:
        async with serving() as service:
            service.deliveries.settings.resolver.lookup = lambda _host: ["127.0.0.1"]
            client = Client(service)
            await client.put_out(422, kind="webhook", url="http://hook.example:25/")
            # one that was put while it was allowed is judged again at each attempt
            await client.webhook("http://hook.example:25/")
            found = await client("POST", "consumers/out:test")
            assert "a protocol other than HTTP" not in found["error"]
            service.deliveries.settings.allow_private_webhooks = False
            found = await client("POST", "consumers/out:test")
            assert "port 25 is reserved for a protocol" in found["error"]

    run(work)


def _chunks(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


BOMB = gzip.compress(b"\0" * 50_000_000)
REPLIES: dict[str, tuple[bytes, int | None]] = {
    "a bomb": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)
        + BOMB,
        200,
    ),
    "more than it says": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + b"x" * 100_000, 200),
    "a long body": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000, 200),
    "a huge chunk": (_chunks(b"ffffffff\r\n" + b"x" * 100_000), 200),
    "a bad chunk": (_chunks(b"zz\r\n"), 200),
    "a negative length": (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", None),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", None),
    "a long line": (b"HTTP/1.1 200 " + b"x" * 1_000_000, None),
    "a long head": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000, None),
    "many answers before the answer": (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, None),
    "a switch": (b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n", None),
    "nothing": (b"", None),
    "not HTTP": (b"220 mail.example ESMTP\r\n", None),
}


@pytest.mark.parametrize("kind", REPLIES)
def test_answers_of_a_hostile_receiver(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reply, status = REPLIES[kind]
    read = 0
    drained = webhook._drained

    async def counted(response: Any) -> None:
        nonlocal read
        raw = response.aiter_raw

        async def parts() -> AsyncIterator[bytes]:
            nonlocal read
            async for part in raw():
                read += len(part)
                yield part

        response.aiter_raw = parts
        response.aiter_bytes = response.aiter_text = None  # nothing is decompressed
        await drained(response)

    monkeypatch.setattr(webhook, "_drained", counted)

    async def work() -> None:
        async with trap("127.0.0.1") as there, serving() as service:
            there.reply = reply
            client = Client(service)
            await client.webhook(f"http://127.0.0.1:{there.port}/")
            found = await client("POST", "consumers/out:test")
            assert found["status"] == status, found
            assert found["delivered"] == (status == 200)
            assert len(json.dumps(found)) < 500
            assert read <= webhook.MAX_ANSWER_BYTES + (1 << 20)  # and what came with its last part

    run(work)


def test_a_receiver_that_answers_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "ATTEMPT_TIMEOUT", 0.3)

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        try:
            while True:
                writer.write(b"X: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            writer.close()

    async def work() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with socket.socket() as deaf:  # takes connections, never reads
            deaf.bind(("127.0.0.1", 0))
            deaf.listen()
            async with serving() as service:
                client = Client(service)
                for one in (port, deaf.getsockname()[1]):
                    await client.webhook(f"http://127.0.0.1:{one}/")
                    found = await client("POST", "consumers/out:test")
                    assert found["error"] == "no response within 0.3 seconds"
        server.close()

    run(work)
