"""Names that webhooks call: one that hangs holds up nothing but itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from rangecast.server.delivery import resolver
from rangecast.server.delivery.resolver import MAX_LOOKUPS, Resolver
from rangecast.server.delivery.url_guard import AddressError
from tests.support.server.serving import Client, run, serving
from tests.support.server.webhook import receiver

PUBLIC = "93.184.215.14"


class Names:
    """A resolver of a system: names that begin with `hang` don't come back until they may."""

    def __init__(self, address: str = PUBLIC) -> None:
        self.asked: Counter[str] = Counter()
        self.go_on = threading.Event()
        self.running = self.most = 0
        self._one = threading.Lock()
        self._address = address

    def __call__(self, host: str) -> list[str]:
        with self._one:
            self.asked[host] += 1
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            if host.startswith("hang"):
                assert self.go_on.wait(90)
            if host.startswith("none"):
                raise OSError("no such name")
            if host.startswith("odd"):
                raise UnicodeError("label too long")
            return [self._address]
        finally:
            with self._one:
                self.running -= 1


def test_a_tenant_has_a_share_of_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()

    async def work() -> None:
        found = Resolver(names)
        hanging = [
            asyncio.ensure_future(found.addresses("hostile", f"hang{one}.example"))
            for one in range(3 * MAX_LOOKUPS)
        ]
        while names.running < MAX_LOOKUPS:
            await asyncio.sleep(0.005)
        assert await found.addresses("other", "good.example") == [PUBLIC]
        assert await found.addresses("other", "127.1") == ["127.0.0.1"]  # takes no lookup
        assert names.running == MAX_LOOKUPS
        names.go_on.set()
        assert await asyncio.gather(*hanging) == [[PUBLIC]] * len(hanging)
        assert names.most <= MAX_LOOKUPS + 1
        assert not found._tenants["hostile"].running

    monkeypatch.setattr(resolver, "TIMEOUT", 90.0)
    run(work)


def test_a_name_that_hangs_is_given_up_and_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    monkeypatch.setattr(resolver, "TIMEOUT", 0.05)
    monkeypatch.setattr(resolver, "MAX_WAITING", 2)

    async def work() -> None:
        found = Resolver(names)
        for _ in range(3):
            with pytest.raises(AddressError, match="within"):
                await found.addresses("a", "hang.example")
        assert names.asked["hang.example"] == 1
        for one in range(MAX_LOOKUPS + 1):
            with pytest.raises(AddressError, match="within"):
                await found.addresses("a", f"hang{one}.example")
        with pytest.raises(AddressError, match="2 host names are waiting"):
            await found.addresses("a", "one-more.example")
        names.go_on.set()
        monkeypatch.setattr(resolver, "TIMEOUT", 90.0)
        assert await found.addresses("a", "hang.example") == [PUBLIC]
        assert await found.addresses("a", "one-more.example") == [PUBLIC]
        assert names.asked["hang.example"] == 1

    run(work)


def test_answers_are_kept_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    names, now = Names(), time.monotonic()
    monkeypatch.setattr(resolver, "MAX_KEPT", 4)
    monkeypatch.setattr(resolver.time, "monotonic", lambda: now)

    async def work() -> None:
        nonlocal now
        found = Resolver(names)
        for _ in range(2):
            assert await found.addresses("a", "good.example") == [PUBLIC]
            for name in ("none.example", "odd.example"):
                with pytest.raises(AddressError, match="has no address"):
                    await found.addresses("a", name)
        assert set(names.asked.values()) == {1}
        now += resolver.NEGATIVE_TTL
        with pytest.raises(AddressError):
            await found.addresses("a", "none.example")
        assert await found.addresses("a", "good.example") == [PUBLIC]
        assert (names.asked["none.example"], names.asked["good.example"]) == (2, 1)
        now += resolver.TTL
        await found.addresses("a", "good.example")
        assert names.asked["good.example"] == 2
        for one in range(9):
            await found.addresses("a", f"{one}.example")
        assert len(found._tenants["a"].answers) == 4

    run(work)


def test_webhooks_with_names_that_hang_delay_no_other() -> None:
    names = Names("127.0.0.1")

    async def work() -> None:
        async with receiver() as there, serving() as service:
            service.deliveries.settings.resolver.lookup = names
            client = Client(service)
            tests = []
            for one in range(12):
                url = f"http://hang{one}.example:{there.port}/"
                out = {"kind": "webhook", "url": url, "allow_private": True}
                await client("PUT", f"consumers/c{one}", {"space": "s", "delivery": out})
                tests.append(asyncio.ensure_future(client("POST", f"consumers/c{one}:test")))
            while names.running < 12:
                await asyncio.sleep(0.005)
            await client.webhook(f"http://good.example:{there.port}/")
            assert (await client("POST", "consumers/out:test"))["delivered"]
            assert names.running == 12
            names.go_on.set()
            await asyncio.gather(*tests)

    run(work)
