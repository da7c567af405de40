"""A clock that jumps forward and back: nothing that waits for a time waits for the jump."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.http.auth import Grant
from rangecast.server.log.clock import SLOWER, Clock
from rangecast.server.maintenance import Retention
from rangecast.server.pipeline.futures import result_of
from rangecast.server.security.hosts import Peer
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSubscription, PutToken
from rangecast.server.state.registry import RequestError
from tests.support.server.serving import Client, T, publish, run, serving, until
from tests.support.server.set_clock import SetClock, clock

__all__ = ["clock"]
HOUR = 3_600.0


def test_it_never_goes_back_and_never_stands_still(clock: SetClock) -> None:
    made = Clock()
    before = made.now()
    assert before == 1_000_000_000
    clock.jump(HOUR)
    ahead = made.now()
    assert ahead == before + HOUR * 1e6
    clock.jump(-HOUR)
    assert made.now() == ahead
    for _ in range(1_000):  # also if it is looked at often
        clock.pass_(0.01)
        made.now()
    assert made.now() == pytest.approx(ahead + 10e6 * SLOWER, abs=2_000)
    clock.pass_(20 * HOUR)  # by then the other one has caught up
    assert made.now() == clock.time_ns() // 1000
    clock.pass_(1)
    assert made.now() == clock.time_ns() // 1000


def test_it_goes_on_after_what_a_log_has(clock: SetClock) -> None:
    made = Clock(after=5_000_000_000)
    assert made.now() == 5_000_000_000
    clock.pass_(10)
    assert made.now() == 5_000_000_000 + 10e6 * SLOWER
    made.advance(9_000_000_000)
    assert made.now() == 9_000_000_000


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_budget_goes_on(tmp_path: Path, clock: SetClock, is_restarted: bool) -> None:
    async def work() -> None:
        async with serving(tmp_path) as service:
            await prepared(service)
            clock.jump(HOUR)
            await publish(service, 1)
            clock.jump(-HOUR)
            if not is_restarted:
                await deliver(service)
        if is_restarted:
            async with serving(tmp_path) as service:
                await deliver(service)

    async def prepared(service: Service) -> None:
        await result_of(service.core.edit(PutConsumer(T, "c", "s", max_per_second=1)))
        await result_of(service.core.edit(PutSubscription(T, "all", "s", "price > 0", "c")))

    async def deliver(service: Service) -> None:
        listener = service.core.hub.open(service.core.registry.consumer(T, "c"))
        found: list[Any] = []
        for price in (2, 3):
            clock.pass_(2)
            await publish(service, price)
        clock.pass_(2)
        while batch := (await listener.next_batch(10, wait=0)).messages:
            found += batch
        assert len(found) == 3
        service.core.hub.close(listener)

    run(work)


def test_subscriptions_and_tokens_expire(tmp_path: Path, clock: SetClock) -> None:
    async def work() -> None:
        async with serving(tmp_path) as service:
            ask, live = Client(service), service.core.registry.space(T, "s").live
            clock.jump(HOUR)
            body = {"filter": "price > 0", "ttl": 60}
            await ask("PUT", "spaces/s/subscriptions/brief", body)
            expires = service.core.clock.now() + 60_000_000
            await result_of(service.core.edit(PutToken(T, "digest", "", ["admin"], expires)))
            grant = Grant(service.core, "digest", Peer(None, ()))
            clock.jump(-HOUR)
            clock.pass_(30)
            service.maintenance._expire()
            grant.caller()
            assert "brief" in live
            clock.pass_(60)
            with pytest.raises(RequestError, match="expired"):
                grant.caller()
            service.maintenance._expire()
            await until(lambda: "brief" not in live)

    run(work)


def test_a_subscription_that_is_renewed_as_it_expires_stays(clock: SetClock) -> None:
    async def work() -> None:
        async with serving() as service:
            core, entry = service.core, service.core.registry.space(T, "s")

            async def put(name: str, seconds: float) -> None:
                expires = core.clock.now() + int(seconds * 1e6) if seconds else 0
                await result_of(
                    core.edit(PutSubscription(T, name, "s", "price > 0", "", 0, {}, expires))
                )

            for name in ("renewed", "kept", "gone"):
                await put(name, 60)
            clock.pass_(61)
            renewals: list[Any] = []

            def renew() -> None:
                """The registry still has the old times, as while these are written."""
                later = core.clock.now() + 60_000_000
                for name, expires in (("renewed", later), ("kept", 0)):
                    edit = PutSubscription(T, name, "s", "price > 0", "", 0, {}, expires)
                    renewals.append(core.edit(edit))
                service.maintenance._expire()

            core.pipeline.quiesced(renew)
            for renewal in renewals:
                await result_of(renewal)
            await until(lambda: "gone" not in entry.live)
            await put("after", 0)  # all that was submitted before is written
            assert [*entry.live] == ["renewed", "kept", "after"]
            clock.pass_(61)
            service.maintenance._expire()
            await until(lambda: "renewed" not in entry.live)
            assert [*entry.live] == ["kept", "after"]

    run(work)


def test_retention_goes_by_the_time_of_the_log(tmp_path: Path, clock: SetClock) -> None:
    async def work() -> None:
        retention = Retention(seconds=600)
        async with serving(tmp_path, retention=retention) as service:
            log: Any = service.core.log
            log._segment_bytes = 200
            for price in range(20):
                await publish(service, price)
            for path in tmp_path.glob("log-*.db"):  # by a clock that was ahead
                os.utime(path, (9e9, 9e9))
            service.maintenance.run_once()
            assert log.first == 1
            clock.jump(-HOUR)
            clock.pass_(700)
            service.maintenance.run_once()
            assert log.first > 10

    run(work)
