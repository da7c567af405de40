"""A client for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import httpx

from rangecast.client.boards import AsyncClientBoard
from rangecast.client.operations import answers, server, sets
from rangecast.client.operations.base import awaited
from rangecast.client.operations.calls import ATTEMPTS, Calls
from rangecast.client.operations.requests import Call
from rangecast.client.results import AnyMessage
from rangecast.client.tls import Cert, Verify
from rangecast.model.sets.members import Id


class AsyncClient(Calls):
    """A client for one space of a server: like `Client`, but methods are awaited."""

    def __init__(
        self,
        url: str | None = None,
        *,
        space: str | None = None,
        token: str | None = None,
        timeout: float = 60.0,
        verify: Verify = True,
        cert: Cert | None = None,
    ):
        super().__init__(url, space=space, token=token, verify=verify, cert=cert)
        self._http = httpx.AsyncClient(timeout=timeout, trust_env=False, verify=self._tls)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _send(self, call: Call[Any]) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = await self._http.request(**self._request(call))
            except httpx.HTTPError as error:
                if not self._may_try_again(call, attempt, error):
                    raise await asyncio.to_thread(self._unreachable, error) from None
            else:
                if not self._may_try_again(call, attempt, answer.status_code):
                    return self._answered(call, answer)
            await asyncio.sleep(0.1 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    # ---- as an Engine

    subscribe = awaited(sets.subscribe)
    replace = awaited(sets.replace)
    upsert = awaited(sets.upsert)
    rescore = awaited(sets.rescore)
    unsubscribe = awaited(sets.unsubscribe)
    subscribe_many = awaited(sets.subscribe_many, reads_files=True)
    replace_many = awaited(sets.replace_many, reads_files=True)
    upsert_many = awaited(sets.upsert_many, reads_files=True)
    unsubscribe_many = awaited(sets.unsubscribe_many)
    select = awaited(sets.select)
    match = awaited(answers.match)
    match_many = awaited(answers.match_many, reads_files=True)
    match_each = awaited(answers.match_each)
    count = awaited(answers.count)
    count_many = awaited(answers.count_many, reads_files=True)
    rank = awaited(answers.rank)
    rank_many = awaited(answers.rank_many, reads_files=True)
    why = awaited(answers.why)
    why_not = awaited(answers.why_not)
    explain = awaited(sets.explain)
    get = awaited(sets.get)
    contains = awaited(sets.contains)
    size = awaited(sets.size)

    async def __aiter__(self) -> AsyncIterator[Id]:
        """Iterate over the ids in order of arrival."""
        after: str | None = ""
        while after is not None:
            page = await self._send(self._page(after))
            for item in page["items"]:
                yield item["id"]
            after = page["next"]

    # ---- as a server

    put_space = awaited(server.put_space)
    delete_board = awaited(server.delete_board)
    publish = awaited(server.publish, reads_files=True)
    wait_until_propagated = awaited(server.wait_until_propagated)
    put_consumer = awaited(server.put_consumer)
    consumers = awaited(server.consumers)
    consumer = awaited(server.consumer)
    delete_consumer = awaited(server.delete_consumer)
    messages = awaited(server.messages)
    acknowledge = awaited(server.acknowledge)
    seek = awaited(server.seek)
    spaces = awaited(server.spaces)
    make_token = awaited(server.make_token)
    ready = awaited(server.ready)
    status = awaited(server.status)

    async def put_board(
        self,
        name: str,
        k: int,
        *,
        space: str | None = None,
        upper_bound_attribute: str | None = None,
        descending: bool = False,
    ) -> AsyncClientBoard:
        """Create a board of positions or over a space of the server, and return it."""
        options = {
            "k": k,
            "space": space,
            "upper_bound_attribute": upper_bound_attribute,
            "descending": descending,
        }
        await self._send(self._put_board(name, options))
        return self.board(name)

    def board(self, name: str) -> AsyncClientBoard:
        """Return a board of the server, with the method names of `notify.Board`."""
        return AsyncClientBoard(self._send, name)

    async def follow(self, consumer: str) -> AsyncIterator[AnyMessage]:
        """Yield messages indefinitely; each is acknowledged when the next one is requested."""
        while True:
            page = await self.messages(consumer, wait=30.0)
            for item in page.items:
                yield item
                await self.acknowledge(consumer, item.position)
            if not page.items:
                await self.acknowledge(consumer, page.position)
