"""Webhooks: what is sent, when it is tried again, and whom the server never calls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from rangecast import Engine
from rangecast.errors import RangecastError
from rangecast.server.delivery import webhook
from rangecast.server.delivery.resolver import Resolver
from rangecast.server.delivery.url_guard import AddressError, address_of, is_global, target_of
from rangecast.server.delivery.webhook import DELAYS, HOUR, Answer, Delivery, seconds_of, signature
from tests.support.server.serving import (
    SPACE,
    WANTED,
    Client,
    T,
    publish,
    run,
    serving,
    subscribe,
    until,
)


class Receiver:
    """A tiny web server: what it answers depends on the path."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.more = ""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                headers = {}
                while (header := (await reader.readline()).strip()) != b"":
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.got.append((path, headers, body))
                if path == "/slow":
                    while True:
                        writer.write(b"H")
                        await asyncio.sleep(0.02)
                elif path == "/slow-body":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
                    await asyncio.sleep(60)
                elif path == "/endless":
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        writer.write(b"x" * 65536)
                        await writer.drain()
                elif path == "/headers":
                    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X-Y: zzzzzzzzzzzzzzzz\r\n" * 20_000)
                elif path == "/nonsense":
                    writer.write(b"\0\1\2\r\n\r\n")
                    return
                else:
                    head = f"HTTP/1.1 {self.status} X\r\n{self.more}Content-Length: 6\r\n\r\nsecret"
                    writer.write(head.encode())
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    made = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(made.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# ---- addresses

HOSTILE = """
http://127.0.0.1/ http://127.1/ http://2130706433/ http://0x7f000001/ http://0177.0.0.1/
http://127.0.0.1.:80/ http://localhost/ http://localhost.:8080/ http://0.0.0.0/ http://0/
http://[::1]/ http://[::]/ http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/ http://[::127.0.0.1]/
http://[64:ff9b::7f00:1]/ http://[64:ff9b::10.0.0.1]/ http://[64:ff9b:1::a00:1]/
http://[2002:7f00:1::]/ http://[2002:a00:1::1]/ http://[2001:0:7f00:1::]/ http://[fe80::1]/
http://[fc00::1]/ http://[fec0::1]/ http://[ff02::1]/ http://[2001:db8::1]/ http://[3fff::1]/
http://10.1.2.3/ http://172.16.0.1/ http://192.168.0.1/ http://169.254.169.254/latest/meta-data
http://100.64.0.1/ http://192.0.0.8/ http://198.18.0.1/ http://203.0.113.1/ http://224.0.0.1/
http://240.0.0.1/ http://255.255.255.255/
"""
NOT_URLS = """
ftp://example.com/
file:///etc/passwd
//example.com/
example.com
http://
http:///x
http://user:pass@example.com/
http://example.com@127.0.0.1/
http://[fe80::1%25eth0]/
http://example.com:0/
http://example.com:99999/
http://example.com\\@127.0.0.1/
http://[::1
http://ex\u0430mple.com/
http://example.com/\t
http://example.com/ x
"""


def test_hostile_addresses_are_never_called() -> None:
    async def work() -> None:
        resolve = partial(Resolver().addresses, T)
        for url in HOSTILE.split():
            with pytest.raises(AddressError):
                await address_of(target_of(url), resolve, allow_private=False)
        for url in [*NOT_URLS.split("\n"), "http://x/" + "a" * 2000]:
            with pytest.raises(AddressError):
                target_of(url)

        async def both(_host: str) -> list[str]:
            return ["93.184.215.14", "10.0.0.1"]

        with pytest.raises(AddressError, match="open internet"):
            await address_of(target_of("https://x.example/"), both, allow_private=False)
        assert await address_of(target_of("https://x/"), both, allow_private=True)

    run(work)
    for address in ("93.184.215.14", "2606:2800:21f::1", "64:ff9b::5db8:d70e", "2002:5db8:d70e::"):
        assert is_global(address)
    target = target_of("https://[2606:2800:21f::1]:8443/a?b=c#d")
    assert (target.name, target.path) == ("[2606:2800:21f::1]:8443", "/a?b=c")
    assert target_of("http://a.example:80").at("1.2.3.4") == "http://1.2.3.4:80/"


def test_the_address_that_was_judged_is_the_one_that_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def loopback(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    async def work() -> None:
        async with receiver() as there, serving() as service:
            service.deliveries.settings.resolver.lookup = loopback
            client = Client(service)
            await client.webhook(f"http://hook.example:{there.port}/ok")
            assert (await client("POST", "consumers/out:test"))["delivered"]
            assert asked == ["hook.example"]
            assert there.got[0][1]["host"] == f"hook.example:{there.port}"
            # a name that has a private address now, whatever it had when it was put
            await client.webhook(f"http://hook.example:{there.port}/ok", allow_private=False)
            answer = await client("POST", "consumers/out:test")
            assert not answer["delivered"]
            assert "open internet" in answer["error"]
            # and a server that wasn't started so calls none, whatever the consumer says
            await client.webhook(f"http://hook.example:{there.port}/ok")
            service.deliveries.settings.allow_private_webhooks = False
            assert not (await client("POST", "consumers/out:test"))["delivered"]
            await client.webhook("http://hook.example/", status=403)
            await client.webhook("http://10.0.0.1/", allow_private=False, status=422)
            assert len(there.got) == 1

    run(work)


def test_a_certificate_is_that_of_the_name_and_not_of_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-subj", "/CN=hook.example", "-keyout", str(key)]
    made += ["-addext", "subjectAltName=DNS:hook.example", "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    ours = ssl.create_default_context(cafile=certificate)

    trusted = webhook._tls

    async def work() -> None:
        async with receiver(theirs) as there, serving() as service:
            service.deliveries.settings.resolver.lookup = lambda _host: ["127.0.0.1"]
            client = Client(service)
            for name, context, is_good in (
                ("hook.example", lambda: ours, True),
                ("other.example", lambda: ours, False),
                ("hook.example", trusted, False),  # nobody whom the system trusts has signed it
            ):
                monkeypatch.setattr(webhook, "_tls", context)
                await client.webhook(f"https://{name}:{there.port}/")
                answer = await client("POST", "consumers/out:test")
                assert answer["delivered"] == is_good, (name, answer)
            assert [one[1]["host"] for one in there.got] == [f"hook.example:{there.port}"]

    run(work)


def test_hostile_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with receiver() as there, receiver() as other, serving() as service:
            client = Client(service)
            there.status, there.more = 302, f"Location: http://127.0.0.1:{other.port}/\r\n"
            table = {
                "/slow": (None, "no answer within 0.3 seconds"),
                "/endless": (200, None),
                "/slow-body": (200, None),
                "/headers": (None, "no answer: RemoteProtocolError"),
                "/nonsense": (None, "no answer: RemoteProtocolError"),
                "/": (302, "answered 302: redirects aren't followed"),
            }
            for path, (status, error) in table.items():
                # short only where nothing else ends it: a busy machine is slow, too
                limit = {"/slow": 0.3, "/slow-body": 2.0}.get(path, 20.0)
                monkeypatch.setattr(webhook, "LIMIT", limit)
                await client.webhook(f"http://127.0.0.1:{there.port}{path}")
                answer = await client("POST", "consumers/out:test")
                assert (path, answer["status"], answer["error"]) == (path, status, error)
                assert answer["delivered"] == (status == 200)
                assert "secret" not in json.dumps(answer)
            assert not other.got

    run(work)


# ---- when


def test_ten_attempts_over_three_days() -> None:
    for chance in (0.0, 0.999):
        now = 1000.0
        delivery = Delivery(now)
        verdicts = []
        while not verdicts or verdicts[-1] == "later":
            now = delivery.due
            verdicts.append(delivery.handle(now, Answer(500), chance))
        assert verdicts == ["later"] * 9 + ["dead"]
        assert 72 * HOUR < now - 1000 < 84 * HOUR
    assert len(DELAYS) == 10


def test_what_an_answer_means() -> None:
    table: list[tuple[Answer, str, float]] = [
        (Answer(200), "done", 0),
        (Answer(299), "done", 0),
        (Answer(410), "stop", 0),
        (Answer(404), "later", 5),
        (Answer(302), "later", 5),
        (Answer(None), "later", 5),
        (Answer(429, "", 120.0), "later", 120),
        (Answer(503, "", 1.0), "later", 5),
        (Answer(429, "", 1e9), "later", 24 * HOUR),
    ]
    for answer, verdict, wait in table:
        delivery = Delivery(0.0)
        assert delivery.handle(0.0, answer, 0.0) == verdict
        assert delivery.due == wait
    assert seconds_of("7", 0) == 7
    assert seconds_of("Thu, 01 Jan 1970 00:01:00 GMT", 20.0) == 40
    assert seconds_of("soon", 0) is None


def test_the_signature_is_that_of_standard_webhooks() -> None:
    given = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert given == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


# ---- what


def test_matches_arrive_once_and_signed_and_go_on_after_a_crash(tmp_path: Path) -> None:
    engine = Engine(SPACE)
    for name, wanted in WANTED.items():
        engine.subscribe(name, wanted)
    prices = [float(one) for one in range(-5, 95, 5)]

    async def work() -> None:
        async with receiver() as there:
            async with serving(tmp_path) as service:
                put = await Client(service).webhook(f"http://127.0.0.1:{there.port}/x")
                secret = put["delivery"]["secret"]
                again = await Client(service).webhook(f"http://127.0.0.1:{there.port}/x")
                assert again["delivery"]["secret"] == "..."
                await subscribe(service)
                first = await publish(service, *prices[:10])
                await until(lambda: service.core.registry.consumer(T, "out").cursor >= first + 9)
                assert len(there.got) == 8
            async with serving(tmp_path) as service:
                then = await publish(service, *prices[10:])
                await until(lambda: service.core.registry.consumer(T, "out").cursor >= then + 9)
                assert len(there.got) == 18
            async with serving(tmp_path) as service:
                await Client(service).webhook(f"http://127.0.0.1:{there.port}/x", batch=10)
                second = await publish(service, *prices)
                await until(lambda: len(there.got) == 20)
        expected = {}
        for base, some in ((first, prices[:10]), (first + 10, prices[10:]), (second, prices)):
            for price in some:
                if found := set(engine.match({"price": price})):
                    expected[price, base == second] = found
        singles = [json.loads(body) for _, _, body in there.got[:18]]
        events = singles + [one for _, _, body in there.got[18:] for one in json.loads(body)]
        got = {
            (one["data"]["event"]["price"], one["data"]["seq"] >= second): set(
                one["data"]["subscriptions"]
            )
            for one in events
        }
        assert got == expected
        assert len(events) == len(expected)
        assert [one["data"]["seq"] for one in events] == sorted(
            one["data"]["seq"] for one in events
        )
        for one in events:
            assert (one["specversion"], one["type"]) == ("1.0", "rangecast.match")
            assert one["id"] == one["data"]["position"]
        key = base64.b64decode(secret.removeprefix("whsec_"))
        for _, headers, body in there.got:
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            found = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
            assert headers["webhook-signature"] == f"v1,{found}"
        assert there.got[0][1]["content-type"] == "application/cloudevents+json"
        assert there.got[-1][1]["content-type"] == "application/cloudevents-batch+json"

    run(work)


def test_what_fails_comes_again_under_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "DELAYS", (0.0, 0.05, 0.05, 60.0))

    async def work() -> None:
        async with receiver() as there, serving() as service:
            client = Client(service)
            there.status = 500
            await client.webhook(f"http://127.0.0.1:{there.port}/x")
            await subscribe(service)
            await publish(service, 1, 2)
            await until(lambda: len(there.got) == 2)
            there.status = 200
            await until(lambda: len(there.got) == 4)
            ids = [headers["webhook-id"] for _, headers, _ in there.got]
            assert ids[0] == ids[1] == ids[2] != ids[3]
            there.status, there.more = 429, "Retry-After: 3600\r\n"
            await publish(service, 3)
            await until(lambda: len(there.got) == 5)
            while (shown := await client("GET", "consumers/out"))["state"] != "failing":
                await asyncio.sleep(0.01)
            assert (shown["state"], shown["error"]) == ("failing", "answered 429")
            assert (shown["attempts"], len(there.got)) == (1, 5)
            # put again, it begins again; 410 ends it, and the message stays unacknowledged
            there.status, there.more = 410, ""
            await client.webhook(f"http://127.0.0.1:{there.port}/x")
            await until(lambda: service.core.registry.consumer(T, "out").stopped)
            shown = await client("GET", "consumers/out")
            assert shown["state"] == "stopped"
            assert "410" in shown["error"]
            there.status = 200
            await publish(service, 4)
            await asyncio.sleep(0.1)
            assert len(there.got) == 6
            await client.webhook(f"http://127.0.0.1:{there.port}/x")
            await until(lambda: len(there.got) == 8)
            prices = [json.loads(body)["data"]["event"]["price"] for _, _, body in there.got]
            assert prices == [1, 1, 1, 2, 3, 3, 3, 4]

    run(work)


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_dead_letters_survive_a_restart_and_can_be_redriven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_snapshot: bool
) -> None:
    monkeypatch.setattr(webhook, "DELAYS", (0.0, 0.01))

    async def work() -> None:
        async with receiver() as there:
            url = f"http://127.0.0.1:{there.port}/x"
            async with serving(tmp_path) as service:
                there.status = 500
                await Client(service).webhook(url)
                await subscribe(service)
                first = await publish(service, 1, -1, 2)
                await until(lambda: len(service.core.registry.consumer(T, "out").dead_letters) == 2)
                there.status = 200
                last = await publish(service, 3)
                await until(lambda: service.core.registry.consumer(T, "out").cursor >= last)
                if with_snapshot:
                    await asyncio.to_thread(service.core.snapshot)
            async with serving(tmp_path) as service:
                client = Client(service)
                page = await client("GET", "consumers/out/dead-letters")
                epoch = service.core.log.epoch
                assert [one["position"] for one in page["items"]] == [
                    f"{epoch}:{first}",
                    f"{epoch}:{first + 2}",
                ]
                assert page["items"][0]["reason"] == "answered 500"
                there.status = 503
                left = await client("POST", "consumers/out/dead-letters:redrive")
                assert (left["delivered"], left["left"], left["error"]) == ([], 2, "answered 503")
                there.status = 200
                del there.got[:]
                left = await client("POST", "consumers/out/dead-letters:redrive")
                assert (len(left["delivered"]), left["left"], left["gone"]) == (2, 0, [])
                assert [json.loads(one[2])["data"]["seq"] for one in there.got] == [
                    first,
                    first + 2,
                ]
                # or it stops at the first
                there.status = 500
                await client.webhook(url, on_dead="stop")
                await publish(service, 1, 2)
                await until(lambda: service.core.registry.consumer(T, "out").stopped)
                assert len(service.core.registry.consumer(T, "out").dead_letters) == 1
            async with serving(tmp_path) as service:
                consumer = service.core.registry.consumer(T, "out")
                assert consumer.stopped
                assert len(consumer.dead_letters) == 1
                del there.got[:]
                there.status = 200
                await Client(service).webhook(url)
                await until(lambda: there.got)
                assert json.loads(there.got[0][2])["data"]["event"] == {"price": 2}

    run(work)


def test_what_is_gone_from_the_log_is_told() -> None:
    async def work() -> None:
        async with receiver() as there, serving() as service:
            client = Client(service)
            await client("PUT", "consumers/out", {"space": "s"})
            await subscribe(service)
            last = await publish(service, 1, 2, 3) + 2
            service.core.log.drop(last)
            url = f"http://127.0.0.1:{there.port}/x"
            await client.webhook(url)
            await publish(service, 4)
            await until(lambda: len(there.got) == 2)
            gap, match = (json.loads(body) for _, _, body in there.got)
            assert gap["type"] == "rangecast.gap"
            assert gap["data"]["gap"]["upto"] == f"{service.core.log.epoch}:{last}"
            assert match["data"]["event"] == {"price": 4}
            # or it stops, and tells why
            await client("PUT", "consumers/out", {"space": "s"})
            last = await publish(service, 5)
            await until(lambda: service.core.pipeline.matched >= last)
            service.core.log.drop(last)
            out = {"kind": "webhook", "url": url, "allow_private": True}
            await client("PUT", "consumers/out", {"space": "s", "on_gap": "stop", "delivery": out})
            await until(lambda: service.core.registry.consumer(T, "out").stopped)
            assert "gone from the log" in (await client("GET", "consumers/out"))["error"]
            assert len(there.got) == 2
            await client("DELETE", "consumers/out")
            assert not service.deliveries._running

    run(work)


def test_a_rotated_secret_and_the_one_before_both_sign() -> None:
    async def work() -> None:
        async with receiver() as there, serving() as service:
            client = Client(service)
            put = await client.webhook(f"http://127.0.0.1:{there.port}/x")
            new = (await client("POST", "consumers/out/secret:rotate"))["secret"]
            assert (await client("POST", "consumers/out:test"))["delivered"]
            _, headers, body = there.got[0]
            named = headers["webhook-id"], int(headers["webhook-timestamp"]), body
            assert headers["webhook-signature"].split() == [
                signature(new, *named),
                signature(put["delivery"]["secret"], *named),
            ]
            shown = json.dumps(await client("GET", "consumers/out"))
            assert "whsec" not in shown

    run(work)


def test_options_that_make_no_sense_are_rejected() -> None:
    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            for options in (
                {"url": "ftp://x"},
                {"url": 5},
                {"batch": 0},
                {"batch": 101},
                {"on_dead": "cry"},
                {"secret": "abc"},
                {"secret": "whsec_YWJj"},
                {"old_secret": "whsec_x"},
                {"colour": "red"},
                {"kind": "pigeon"},
                {"kind": "session"},
            ):
                await client.webhook(**{"url": "http://x.example/", **options}, status=422)
            assert not service.core.registry.consumers
            await client("PUT", "consumers/plain", {"space": "s"})
            for path in ("plain:test", "plain/secret:rotate", "plain/dead-letters:redrive"):
                await client("POST", f"consumers/{path}", status=409)
            with pytest.raises(RangecastError):
                webhook.key_of("whsec_")

    run(work)
