"""A board of a server, with the method names of `notify.Board`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from rangecast.client.operations import boards
from rangecast.client.operations.base import awaited, blocking
from rangecast.client.operations.boards import BoardCalls
from rangecast.client.operations.requests import Call


class ClientBoard(BoardCalls):
    """A board of a server, as returned by `Client.board`. Changes are durable when a call returns.

    Changes of lists are sent as messages to the consumers of interests, not returned.
    """

    def __init__(self, send: Callable[[Call[Any]], Any], name: str):
        """Use a board; `send` sends a request and returns the answer."""
        super().__init__(name)
        self._send = send

    subscribe = blocking(boards.subscribe)
    replace = blocking(boards.replace)
    upsert = blocking(boards.upsert)
    unsubscribe = blocking(boards.unsubscribe)
    subscribe_many = blocking(boards.subscribe_many)
    replace_many = blocking(boards.replace_many)
    upsert_many = blocking(boards.upsert_many)
    unsubscribe_many = blocking(boards.unsubscribe_many)
    best = blocking(boards.best)
    set_value = blocking(boards.set_value)
    add = blocking(boards.add)
    remove = blocking(boards.remove)
    move = blocking(boards.move)
    update_many = blocking(boards.update_many)
    update_batch = blocking(boards.update_batch)
    __getitem__ = blocking(boards.get)
    __contains__ = blocking(boards.contains)
    __len__ = blocking(boards.size)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of interests, ascending."""
        after: str | None = ""
        while after is not None:
            page = self._send(self._page(after))
            yield from (item["id"] for item in page["items"])
            after = page["next"]


class AsyncClientBoard(BoardCalls):
    """A board of a server: like `ClientBoard`, but methods are awaited."""

    def __init__(self, send: Callable[[Call[Any]], Awaitable[Any]], name: str):
        """Use a board; `send` sends a request and returns the answer."""
        super().__init__(name)
        self._send = send

    subscribe = awaited(boards.subscribe)
    replace = awaited(boards.replace)
    upsert = awaited(boards.upsert)
    unsubscribe = awaited(boards.unsubscribe)
    subscribe_many = awaited(boards.subscribe_many, reads_files=True)
    replace_many = awaited(boards.replace_many, reads_files=True)
    upsert_many = awaited(boards.upsert_many, reads_files=True)
    unsubscribe_many = awaited(boards.unsubscribe_many)
    best = awaited(boards.best)
    set_value = awaited(boards.set_value)
    add = awaited(boards.add)
    remove = awaited(boards.remove)
    move = awaited(boards.move)
    update_many = awaited(boards.update_many)
    update_batch = awaited(boards.update_batch)
    get = awaited(boards.get)
    contains = awaited(boards.contains)
    size = awaited(boards.size)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Iterate over the ids of interests, ascending."""
        after: str | None = ""
        while after is not None:
            page = await self._send(self._page(after))
            for item in page["items"]:
                yield item["id"]
            after = page["next"]
