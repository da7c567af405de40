"""A board of a server, under the names of `notify.Board`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from rangecast.client import board_operations
from rangecast.client.board_operations import BoardCalls
from rangecast.client.operation import awaited, blocking

if TYPE_CHECKING:
    from rangecast.client.awaited import AsyncClient
    from rangecast.client.blocking import Client


class ClientBoard(BoardCalls):
    """A board of a server: `Client.board` returns it. Changes are durable when a call returns.

    What changes in lists comes as messages to the consumers of interests, not as an answer.
    """

    def __init__(self, client: Client, name: str):
        super().__init__(name)
        self._send = client._send

    subscribe = blocking(board_operations.subscribe)
    replace = blocking(board_operations.replace)
    upsert = blocking(board_operations.upsert)
    unsubscribe = blocking(board_operations.unsubscribe)
    subscribe_many = blocking(board_operations.subscribe_many)
    replace_many = blocking(board_operations.replace_many)
    upsert_many = blocking(board_operations.upsert_many)
    unsubscribe_many = blocking(board_operations.unsubscribe_many)
    best = blocking(board_operations.best)
    update = blocking(board_operations.update)
    put = blocking(board_operations.put)
    remove = blocking(board_operations.remove)
    move = blocking(board_operations.move)
    update_many = blocking(board_operations.update_many)
    update_batch = blocking(board_operations.update_batch)
    __getitem__ = blocking(board_operations.get)
    __contains__ = blocking(board_operations.contains)
    __len__ = blocking(board_operations.count)

    def __iter__(self) -> Iterator[str]:
        """Go through the ids of interests, ascending."""
        after: str | None = ""
        while after is not None:
            page = self._send(self._page(after))
            yield from (one["id"] for one in page["items"])
            after = page["next"]


class AsyncClientBoard(BoardCalls):
    """A board of a server: `ClientBoard`, to be awaited."""

    def __init__(self, client: AsyncClient, name: str):
        super().__init__(name)
        self._send = client._send

    subscribe = awaited(board_operations.subscribe)
    replace = awaited(board_operations.replace)
    upsert = awaited(board_operations.upsert)
    unsubscribe = awaited(board_operations.unsubscribe)
    subscribe_many = awaited(board_operations.subscribe_many, reads_files=True)
    replace_many = awaited(board_operations.replace_many, reads_files=True)
    upsert_many = awaited(board_operations.upsert_many, reads_files=True)
    unsubscribe_many = awaited(board_operations.unsubscribe_many)
    best = awaited(board_operations.best)
    update = awaited(board_operations.update)
    put = awaited(board_operations.put)
    remove = awaited(board_operations.remove)
    move = awaited(board_operations.move)
    update_many = awaited(board_operations.update_many)
    update_batch = awaited(board_operations.update_batch)
    get = awaited(board_operations.get)
    contains = awaited(board_operations.contains)
    count = awaited(board_operations.count)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Go through the ids of interests, ascending."""
        after: str | None = ""
        while after is not None:
            page = await self._send(self._page(after))
            for one in page["items"]:
                yield one["id"]
            after = page["next"]
