"""Webhooks: what arrives, retries, dead letters, gaps, rotated secrets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from rangecast import Engine
from rangecast.errors import RangecastError
from rangecast.server.delivery import webhook
from rangecast.server.delivery.webhook import signature
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
from tests.support.server.webhook import receiver

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
            assert "no longer in the log" in (await client("GET", "consumers/out"))["error"]
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
