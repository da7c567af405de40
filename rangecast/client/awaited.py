"""A client for a program with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import httpx

from rangecast.client.boards import AsyncClientBoard
from rangecast.client.calls import ATTEMPTS, Calls, wanted_of
from rangecast.client.many import BulkOptions, is_file, match_parts
from rangecast.client.requests import EXISTS, IS_NEW, Call, Condition
from rangecast.client.results import (
    Lists,
    Message,
    Messages,
    Published,
    RejectedRow,
)
from rangecast.client.tls import Cert, Verify
from rangecast.errors import RangecastError
from rangecast.model.sets import Subscription
from rangecast.model.space import Space


class AsyncClient(Calls):
    """A space of a server, for a program with an event loop: `Client`, to be awaited."""

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

    async def _send(self, call: Call) -> Any:
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

    async def subscribe(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
        create_consumer: bool = False,
    ) -> None:
        """Add a subscription; its id must be new."""
        wanted = wanted_of(filter, score, weights, consumer, ttl)
        call = self._put(subscription, wanted, IS_NEW, create_consumer=create_consumer)
        await self._send(call)

    async def replace(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
        create_consumer: bool = False,
    ) -> None:
        """Replace a subscription, all of it; it keeps its place in ties."""
        wanted = wanted_of(filter, score, weights, consumer, ttl)
        call = self._put(subscription, wanted, EXISTS, create_consumer=create_consumer)
        await self._send(call)

    async def upsert(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
        create_consumer: bool = False,
    ) -> None:
        """Add a subscription, or replace all of the one that has its id."""
        wanted = wanted_of(filter, score, weights, consumer, ttl)
        call = self._put(subscription, wanted, None, create_consumer=create_consumer)
        await self._send(call)

    async def subscribe_many(
        self,
        subscriptions: Any,
        *,
        rejected: list[RejectedRow] | None = None,
        consumer: str | None = None,
        create_consumer: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Add many, whose ids must be new, as `Client.subscribe_many` does; return how many."""
        options = BulkOptions(rejected, consumer, create_consumer, progress)
        return await self._put_many(subscriptions, IS_NEW, options)

    async def replace_many(
        self,
        subscriptions: Any,
        *,
        rejected: list[RejectedRow] | None = None,
        consumer: str | None = None,
        create_consumer: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Replace many, all of each, given as to `subscribe_many`; return how many."""
        options = BulkOptions(rejected, consumer, create_consumer, progress)
        return await self._put_many(subscriptions, EXISTS, options)

    async def upsert_many(
        self,
        subscriptions: Any,
        *,
        rejected: list[RejectedRow] | None = None,
        consumer: str | None = None,
        create_consumer: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Add or replace many, given as to `subscribe_many`; return how many."""
        options = BulkOptions(rejected, consumer, create_consumer, progress)
        return await self._put_many(subscriptions, None, options)

    async def _put_many(
        self, subscriptions: Any, condition: Condition, options: BulkOptions
    ) -> int:
        space = await self._send(self._get_space()) if is_file(subscriptions) else None
        asked = self._subscribing(subscriptions, space, condition, options)
        async for call in _in_thread(asked):
            try:
                asked.add(await self._send(call))
            except RangecastError as error:
                raise asked.failed(error) from None
        return asked.result()

    async def wait_settled(self, subscription: str | int) -> bool:
        """Wait until all linked servers know of a subscription; return whether they do.

        After 30 seconds the answer is no: some of them can't be reached. Ask again then.
        """
        settled: bool = await self._send(self._settled(subscription))
        return settled

    async def unsubscribe(self, subscription: str | int) -> None:
        """End a subscription."""
        await self._send(self._delete(subscription))

    async def get(self, subscription: str | int) -> Subscription:
        """Return what a subscription wants, its score and its weights."""
        found: Subscription = await self._send(self._get(subscription))
        return found

    async def match(self, event: Mapping[str, Any], *, ignore_unknown: bool = False) -> list[str]:
        """Return the subscriptions that match one event, which isn't published."""
        return (await self.match_many([event], ignore_unknown=ignore_unknown))[0]

    async def match_many(self, events: Any, *, ignore_unknown: bool = False) -> list[list[str]]:
        """Return the subscriptions that match each event; they aren't published."""
        found: list[list[str]] = []
        for part in match_parts(events):
            found += await self._send(self._match(part, {"ignore_unknown": ignore_unknown}))
        return found

    async def rank(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        relaxed: bool = False,
        ignore_unknown: bool = False,
    ) -> list[tuple[str, float]]:
        """Return the k best subscriptions of one event and their scores, best first."""
        options = {"k": k, "relaxed": relaxed, "ignore_unknown": ignore_unknown}
        found: list[list[tuple[str, float]]] = await self._send(self._rank([event], options))
        return found[0]

    async def put_space(self, name: str, space: Space) -> None:
        """Make a space, or add attributes and categories to it."""
        await self._send(self._put_space(name, space))

    async def put_board(
        self,
        name: str,
        k: int,
        *,
        space: str | None = None,
        upper: str | None = None,
        descending: bool = False,
    ) -> AsyncClientBoard:
        """Make a board, of x or over a space of the server, and return it."""
        options = {"k": k, "space": space, "upper": upper, "descending": descending}
        await self._send(self._put_board(name, options))
        return self.board(name)

    def board(self, name: str) -> AsyncClientBoard:
        """Return a board of the server, under the names of `notify.Board`."""
        return AsyncClientBoard(self, name)

    async def delete_board(self, name: str) -> None:
        """End a board, with its objects and interests; its consumers are deleted before."""
        await self._send(self._delete_board(name))

    async def publish(
        self,
        events: Any,
        *,
        matches: bool = False,
        key: str | None = None,
        ignore_unknown: bool = False,
        rejected: list[RejectedRow] | None = None,
    ) -> Published:
        """Publish events, as `Client.publish` does; when this returns, they are durable."""
        options: Any = {"matches": matches, "key": key, "ignore_unknown": ignore_unknown}
        asked = self._publishing(events, **options)
        async for call in _in_thread(asked):
            try:
                asked.add(await self._send(call))
            except RangecastError as error:
                raise asked.failed(error) from None
        return asked.result(rejected)

    async def put_consumer(
        self, name: str, *, start: str = "now", **options: Any
    ) -> dict[str, Any]:
        """Make a consumer: from 'start', 'now' or a position on."""
        call = self._put_consumer(name, {"from": start} | options)
        found: dict[str, Any] = await self._send(call)
        return found

    async def consumers(self) -> list[dict[str, Any]]:
        """Return the consumers: the position of each, its lag and its delivery."""
        found: list[dict[str, Any]] = await self._send(self._consumers())
        return found

    async def consumer(self, name: str) -> dict[str, Any]:
        """Return a consumer: its position, its lag and its delivery."""
        found: dict[str, Any] = await self._send(self._get_consumer(name))
        return found

    async def delete_consumer(self, name: str) -> None:
        """End a consumer, with its subscriptions."""
        await self._send(self._delete_consumer(name))

    async def messages(self, consumer: str, *, wait: float = 0.0, limit: int = 500) -> Messages:
        """Return the messages after what was acknowledged; wait for some, at most so long."""
        found: Messages = await self._send(self._pull(consumer, wait, limit))
        return found

    async def acknowledge(self, consumer: str, position: str) -> str:
        """Note that all messages up to a position have arrived."""
        found: str = await self._send(self._ack(consumer, position))
        return found

    async def seek(self, consumer: str, position: str, *, set: str = "then") -> str:  # noqa: A002
        """Move a consumer to 'start', 'now' or a position."""
        found: str = await self._send(self._seek(consumer, position, set))
        return found

    async def follow(self, consumer: str) -> AsyncIterator[Message | Lists]:
        """Yield messages for ever; each is acknowledged when the next one is asked for."""
        while True:
            page = await self.messages(consumer, wait=30.0)
            for one in page.items:
                yield one
                await self.acknowledge(consumer, one.position)
            if not page.items:
                await self.acknowledge(consumer, page.position)

    async def spaces(self) -> list[str]:
        """Return the names of the spaces."""
        found: list[str] = await self._send(self._spaces())
        return found

    async def make_token(
        self, label: str, scopes: Sequence[str] | None = None, *, tenant: str = "default"
    ) -> str:
        """Make a token and return it; the server keeps only its digest."""
        found: str = await self._send(self._make_token(label, scopes, tenant))
        return found

    async def ready(self) -> str:
        """Return 'ok' if events can be published, else why they can't."""
        found: str = await self._send(self._ready())
        return found

    async def status(self) -> dict[str, Any]:
        """Return how the server does."""
        found: dict[str, Any] = await self._send(self._status())
        return found


async def _in_thread(calls: Iterable[Call]) -> AsyncIterator[Call]:
    """Yield requests; to make them may mean to read files."""
    requests = iter(calls)
    while (call := await asyncio.to_thread(next, requests, None)) is not None:
        yield call
