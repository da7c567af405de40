"""Connections that send by turns of the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from rangecast.server.http.write_batching import BatchingTransport


class Transport:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")

    def is_closing(self) -> bool:
        return "close" in self.calls


async def turn() -> None:
    """Wait for the end of this turn of the loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_the_writes_of_a_turn_are_sent_together_and_in_order() -> None:
    async def work() -> None:
        transport = Transport()
        corked = BatchingTransport(transport, asyncio.get_running_loop())
        for part in (b"head", b"", b"body"):
            corked.write(part)
        assert transport.calls == []
        await turn()
        assert transport.calls == [b"headbody"]
        corked.write(b"next")
        await turn()
        assert transport.calls == [b"headbody", b"next"]

    asyncio.run(work())


def test_much_does_not_wait_and_closing_loses_nothing() -> None:
    async def work() -> None:
        transport = Transport()
        corked = BatchingTransport(transport, asyncio.get_running_loop())
        corked.write(b"a")
        corked.write(b"b" * 70_000)
        assert transport.calls == [b"a" + b"b" * 70_000], "who doesn't read is noticed at once"
        corked.write(b"last")
        assert not corked.is_closing()
        corked.close()
        assert transport.calls[1:] == [b"last", "close"]
        assert corked.is_closing()
        await turn()
        assert len(transport.calls) == 3

    asyncio.run(work())
