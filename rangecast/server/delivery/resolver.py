"""Name resolution for webhooks: a lookup that hangs delays only its own tenant.

The system's resolver can't be interrupted, and a lookup may take half a minute. So each lookup runs
in its own thread, a tenant has at most `MAX_LOOKUPS` at a time, and a request waits at most
`TIMEOUT` seconds. Concurrent requests for a name share one lookup. Results, including negative
ones, are cached for a short time; whether an address may be called is checked at each attempt.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rangecast.server.delivery.url_guard import AddressError

MAX_LOOKUPS = 16
"""Lookups of a tenant that run at a time."""
MAX_WAITING = 1_000
"""Lookups of a tenant that wait for their turn."""
TIMEOUT = 5.0
"""Seconds that an attempt waits for an address."""
TTL, NEGATIVE_TTL = 30.0, 5.0
"""Seconds for which a result is cached: addresses, and failures."""
MAX_KEPT = 256
"""Answers of a tenant that are kept."""
Lookup = Callable[[str], list[str]]
"""Resolves a name to its addresses; raises an `OSError` if there are none."""


def system_lookup(host: str) -> list[str]:
    """Return the addresses of a host name, using the system's resolver."""
    return _addresses(host, 0)


def _addresses(host: str, flags: int) -> list[str]:
    addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[4][0]) for address in addresses]


class _Answer:
    """Result of a lookup; `addresses` is `None` while it is pending."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.until = 0.0
        self.addresses: list[str] | None = None
        self.came = asyncio.Event()


@dataclass
class _Tenant:
    running: int = 0
    waiting: deque[tuple[str, _Answer]] = field(default_factory=deque)
    answers: OrderedDict[str, _Answer] = field(default_factory=OrderedDict)
    """Results and pending lookups, by name."""


class Resolver:
    """Resolves host names for the webhooks of all tenants; use it on one event loop only."""

    def __init__(self, lookup: Lookup = system_lookup):
        self.lookup = lookup
        self._tenants: dict[str, _Tenant] = {}

    async def addresses(self, tenant: str, host: str) -> list[str]:
        """Return the addresses of a host.

        A literal address, in any notation that the system accepts, needs no lookup.
        """
        try:
            return _addresses(host, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            pass
        answer = self._lookup_of(self._tenants.setdefault(tenant, _Tenant()), host)
        left = answer.begun + TIMEOUT - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await answer.came.wait()
        except TimeoutError:
            raise AddressError(
                f"the host name was not resolved within {TIMEOUT:g} seconds"
            ) from None
        if not answer.addresses:
            raise AddressError("the host name has no address")
        return answer.addresses

    def _lookup_of(self, tenant: _Tenant, host: str) -> _Answer:
        """Return the cached or pending result; start a lookup if there is none."""
        answer = tenant.answers.get(host)
        if answer is not None and (answer.addresses is None or time.monotonic() < answer.until):
            tenant.answers.move_to_end(host)
            return answer
        if len(tenant.waiting) >= MAX_WAITING:
            raise AddressError(f"{MAX_WAITING:,} host names are waiting to be resolved")
        answer = tenant.answers[host] = _Answer()
        tenant.answers.move_to_end(host)
        self._forget(tenant)
        tenant.waiting.append((host, answer))
        self._begin(tenant)
        return answer

    @staticmethod
    def _forget(tenant: _Tenant) -> None:
        if len(tenant.answers) > MAX_KEPT:
            came = [name for name, answer in tenant.answers.items() if answer.addresses is not None]
            for name in came[: len(tenant.answers) - MAX_KEPT]:
                del tenant.answers[name]

    def _begin(self, tenant: _Tenant) -> None:
        """Start queued lookups, as far as the limit allows."""
        loop = asyncio.get_running_loop()
        while tenant.waiting and tenant.running < MAX_LOOKUPS:
            host, answer = tenant.waiting.popleft()
            tenant.running += 1

            def look(host: str = host, answer: _Answer = answer) -> None:
                try:
                    addresses = self.lookup(host)
                except (OSError, UnicodeError):
                    addresses = []
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._resolved, tenant, answer, addresses)

            # A daemon: the process doesn't wait for one that hangs.
            threading.Thread(target=look, name="rangecast-resolve", daemon=True).start()

    def _resolved(self, tenant: _Tenant, answer: _Answer, addresses: list[str]) -> None:
        tenant.running -= 1
        answer.addresses = addresses
        answer.until = time.monotonic() + (TTL if addresses else NEGATIVE_TTL)
        answer.came.set()
        self._begin(tenant)
