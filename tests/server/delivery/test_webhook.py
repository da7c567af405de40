"""Webhooks: what is sent, when it is tried again, and whom the server never calls."""

from __future__ import annotations

import json
import ssl
import subprocess
from functools import partial
from pathlib import Path

import pytest

from rangecast.server.delivery import webhook
from rangecast.server.delivery.resolver import Resolver
from rangecast.server.delivery.url_guard import AddressError, address_of, is_global, target_of
from rangecast.server.delivery.webhook import DELAYS, HOUR, Answer, Delivery, seconds_of, signature
from tests.support.server.serving import (
    Client,
    T,
    run,
    serving,
)
from tests.support.server.webhook import receiver

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

        with pytest.raises(AddressError, match="public internet"):
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
            assert "public internet" in answer["error"]
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
                "/slow": (None, "no response within 0.3 seconds"),
                "/endless": (200, None),
                "/slow-body": (200, None),
                "/headers": (None, "no response: RemoteProtocolError"),
                "/nonsense": (None, "no response: RemoteProtocolError"),
                "/": (302, "answered 302: redirects aren't followed"),
            }
            for path, (status, error) in table.items():
                # short only where nothing else ends it: a busy machine is slow, too
                limit = {"/slow": 0.3, "/slow-body": 2.0}.get(path, 20.0)
                monkeypatch.setattr(webhook, "ATTEMPT_TIMEOUT", limit)
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
