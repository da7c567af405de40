"""A server from Python, under the names of `Engine`.

    client = Client("http://127.0.0.1:8080", space="market")
    client.subscribe("cheap", "price < 10 and sector = 'tech'")
    client.match({"price": 9.5, "sector": "tech"})           # ["cheap"]
    client.publish([{"price": 9.5, "sector": "tech"}])

`AsyncClient` has the same methods, to be awaited.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import msgspec

from rangecast.errors import RangecastError, UsageError
from rangecast.model.inputs import as_space
from rangecast.model.sets import Subscription
from rangecast.model.space import Space

try:
    import httpx
except ModuleNotFoundError:
    raise UsageError(
        "a client needs httpx, which isn't installed\n  to do: pip install 'rangecast[server]'"
    ) from None

URL = "http://127.0.0.1:8080"
"""Where a server is, if neither the caller nor RANGECAST_SERVER says so."""
BULK = 5_000
"""Subscriptions and events of one request."""
ATTEMPTS = 5
"""How often a request is made that the server couldn't take, or that got no answer."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


class ServerError(RangecastError):
    """The server refused a request, or couldn't be reached."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status
        """The HTTP status; `None`: there was no answer."""


class Published(NamedTuple):
    """What became of events."""

    accepted: int
    first: str | None
    last: str | None
    """The positions of the first and the last event."""
    refused: list[tuple[int, str]]
    """The row of each event that was refused, and why."""
    matches: list[list[str]] | None = None
    """The subscriptions that match each accepted event, if that was asked for."""


class Message(NamedTuple):
    """An event that a consumer's subscriptions match."""

    position: str
    event: dict[str, Any]
    subscriptions: list[str]


class Messages(NamedTuple):
    """Some messages of a consumer."""

    items: list[Message]
    position: str
    """All messages up to here are in `items`, or were before: what to acknowledge."""
    gap: dict[str, str] | None = None
    """What is gone from the log before this consumer got it."""


class _Call(NamedTuple):
    method: str
    path: str
    read: Callable[[Any], Any]
    body: bytes | None = None
    params: dict[str, Any] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    repeatable: bool = True
    """Whether it does no harm to make it twice."""


class _Base:
    def __init__(self, url: str | None, *, space: str | None, token: str | None):
        url = url or os.environ.get("RANGECAST_SERVER", URL)
        token = token or os.environ.get("RANGECAST_TOKEN")
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f"the address of a server begins with http:// or https://\n  given: {url!r}"
            )
        self.url = url.rstrip("/")
        self._space = space
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._space or 'no space'} at {self.url}>"

    # ---- what is asked, and how an answer is read

    def _in_space(self, rest: str) -> str:
        if self._space is None:
            raise UsageError(f"{type(self).__name__}(url, space='...') says which space is meant")
        return f"/v1/spaces/{quote(self._space, safe='')}{rest}"

    def _subscription(self, name: str | int) -> str:
        return self._in_space(f"/subscriptions/{quote(str(name), safe='')}")

    def _put(
        self, name: str | int, wanted: dict[str, Any], condition: tuple[str, str] | None
    ) -> _Call:
        body = {key: value for key, value in wanted.items() if value is not None}
        return _Call(
            "PUT",
            self._subscription(name),
            lambda _: None,
            _encode(body | {"filter": str(wanted["filter"])}),
            headers=dict([condition] if condition else []),
            repeatable=condition is None,
        )

    def _bulk(self, rows: Sequence[Mapping[str, Any]]) -> _Call:
        def read(answer: Any) -> int:
            if answer["refused"]:
                first = answer["refused"][0]
                raise ServerError(f"row {first['row']}: {first['reason']}", 422)
            count: int = answer["accepted"]
            return count

        path = self._in_space("/subscriptions:bulk")
        return _Call("POST", path, read, _encode(list(rows)), params={"strict": "true"})

    def _get(self, name: str | int) -> _Call:
        def read(found: Any) -> Subscription:
            return Subscription(found["id"], found["filter"], found["score"], found["weights"])

        return _Call("GET", self._subscription(name), read)

    def _delete(self, name: str | int) -> _Call:
        return _Call("DELETE", self._subscription(name), lambda _: None, repeatable=False)

    def _page(self, after: str) -> _Call:
        params = {"after": after}
        return _Call("GET", self._in_space("/subscriptions"), lambda one: one, params=params)

    def _match(self, events: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> _Call:
        def read(answer: Any) -> list[list[str]]:
            _check_refused(answer)
            found: list[list[str]] = answer["matches"]
            return found

        path = self._in_space("/events:match")
        return _Call("POST", path, read, _encode(list(events)), params=options)

    def _rank(self, events: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> _Call:
        def read(answer: Any) -> list[list[tuple[str, float]]]:
            _check_refused(answer)
            return [
                [(one["subscription"], one["score"]) for one in best] for best in answer["best"]
            ]

        path = self._in_space("/events:rank")
        return _Call("POST", path, read, _encode(list(events)), params=options)

    def _publish(self, events: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> _Call:
        def read(answer: Any) -> Published:
            refused = [(one["row"], one["reason"]) for one in answer["refused"]]
            ends = answer["first"], answer["last"]
            return Published(answer["accepted"], *ends, refused, answer.get("matches"))

        headers = {"Content-Type": "application/x-ndjson"}
        key = options.pop("key", None)
        if key is not None:
            headers["Idempotency-Key"] = key
        return _Call(
            "POST",
            self._in_space("/events"),
            read,
            b"\n".join(map(_encode, events)),
            params=options,
            headers=headers,
            repeatable=key is not None,
        )

    def _consumer(self, name: str, rest: str = "") -> str:
        return f"/v1/consumers/{quote(name, safe='')}{rest}"

    def _put_consumer(self, name: str, options: dict[str, Any]) -> _Call:
        body = _encode({"space": self._space} | options)
        return _Call("PUT", self._consumer(name), lambda one: one, body)

    def _pull(self, name: str, wait: float, limit: int) -> _Call:
        def read(answer: Any) -> Messages:
            items = [
                Message(one["position"], one["event"], one["subscriptions"])
                for one in answer["items"]
            ]
            return Messages(items, answer["position"], answer.get("gap"))

        params = {"wait": wait, "limit": limit}
        return _Call("GET", self._consumer(name, "/messages"), read, params=params)

    def _ack(self, name: str, position: str) -> _Call:
        body = _encode({"position": position})
        return _Call("POST", self._consumer(name, "/ack"), lambda one: one["position"], body)

    def _seek(self, name: str, position: str, which: str) -> _Call:
        body = _encode({"position": position, "set": which})
        return _Call("POST", self._consumer(name, "/seek"), lambda one: one["position"], body)

    def _put_space(self, name: str, space: Space) -> _Call:
        body = _encode(as_space(space).definition())
        return _Call("PUT", f"/v1/spaces/{quote(name, safe='')}", lambda _: None, body)

    def _request(self, call: _Call) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": self.url + call.path,
            "content": call.body,
            "params": {key: _param(value) for key, value in call.params.items()},
            "headers": self._headers | call.headers,
        }

    def _answered(self, call: _Call, answer: httpx.Response) -> Any:
        try:
            found = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            found = {"detail": answer.text[:200] or answer.reason_phrase}
        if answer.is_success or (answer.status_code == 422 and "refused" in found):
            return call.read(found)
        raise ServerError(str(found.get("detail", found)), answer.status_code)

    def _may_try_again(self, call: _Call, attempt: int, status: int | None) -> bool:
        is_busy = status in (429, 503)
        return attempt < ATTEMPTS and (is_busy or (status is None and call.repeatable))

    def _unreachable(self, error: Exception) -> ServerError:
        return ServerError(
            f"{self.url}: no answer: {error or type(error).__name__}\n"
            "  to do: start a server with `rangecast serve`, or give its address"
        )


class Client(_Base):
    """A space of a server; any number of threads may use it.

    url     where the server is; else RANGECAST_SERVER says so, else http://127.0.0.1:8080
    space   its name; needed for everything but `put_space` and consumers
    token   if the server asks for one; else RANGECAST_TOKEN says it
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        space: str | None = None,
        token: str | None = None,
        timeout: float = 60.0,
    ):
        super().__init__(url, space=space, token=token)
        self._http = httpx.Client(timeout=timeout, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _send(self, call: _Call) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._http.request(**self._request(call))
            except httpx.HTTPError as error:
                if not self._may_try_again(call, attempt, None):
                    raise self._unreachable(error) from None
            else:
                if not self._may_try_again(call, attempt, answer.status_code):
                    return self._answered(call, answer)
            time.sleep(0.1 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    # ---- as an Engine

    def subscribe(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
    ) -> None:
        """Add a subscription; its id must be new. Every event after this is matched with it.

        consumer   who gets its matches
        ttl        seconds after which it ends by itself
        """
        wanted = _wanted(filter, score, weights, consumer, ttl)
        self._send(self._put(subscription, wanted, ("If-None-Match", "*")))

    def replace(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
    ) -> None:
        """Replace a subscription, all of it; it keeps its place in ties."""
        wanted = _wanted(filter, score, weights, consumer, ttl)
        self._send(self._put(subscription, wanted, ("If-Match", "*")))

    def subscribe_many(self, subscriptions: Iterable[Mapping[str, Any]]) -> int:
        """Add or replace many, dicts with `id` and `filter`; return how many.

        A request takes 5,000 of them, all or none.
        """
        rows = list(subscriptions)
        parts = (rows[at : at + BULK] for at in range(0, len(rows), BULK))
        return sum(self._send(self._bulk(part)) for part in parts)

    def unsubscribe(self, subscription: str | int) -> None:
        """End a subscription."""
        self._send(self._delete(subscription))

    def __getitem__(self, subscription: str | int) -> Subscription:
        """Return what a subscription wants, its score and its weights."""
        found: Subscription = self._send(self._get(subscription))
        return found

    def __contains__(self, subscription: object) -> bool:
        if not isinstance(subscription, str | int):
            return False
        try:
            self[subscription]
        except ServerError as error:
            if error.status == 404:
                return False
            raise
        return True

    def __iter__(self) -> Iterator[str]:
        """Go through the ids, ascending."""
        after: str | None = ""
        while after is not None:
            page = self._send(self._page(after))
            yield from (one["id"] for one in page["items"])
            after = page["next"]

    def __len__(self) -> int:
        count: int = self._send(self._page("")._replace(params={"limit": 1}))["count"]
        return count

    def match(self, event: Mapping[str, Any], *, ignore_unknown: bool = False) -> list[str]:
        """Return the subscriptions that match one event, which isn't published."""
        return self.match_many([event], ignore_unknown=ignore_unknown)[0]

    def match_many(
        self, events: Sequence[Mapping[str, Any]], *, ignore_unknown: bool = False
    ) -> list[list[str]]:
        """Return the subscriptions that match each event; they aren't published."""
        found: list[list[str]] = []
        for part in _parts(events):
            found += self._send(self._match(part, {"ignore_unknown": ignore_unknown}))
        return found

    def best(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        relaxed: bool = False,
        ignore_unknown: bool = False,
    ) -> list[tuple[str, float]]:
        """Return the k best subscriptions of one event and their scores, best first."""
        options = {"k": k, "relaxed": relaxed, "ignore_unknown": ignore_unknown}
        found: list[list[tuple[str, float]]] = self._send(self._rank([event], options))
        return found[0]

    # ---- as a server

    def put_space(self, name: str, space: Space) -> None:
        """Make a space, or add attributes and categories to it."""
        self._send(self._put_space(name, space))

    def publish(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        matches: bool = False,
        key: str | None = None,
        ignore_unknown: bool = False,
    ) -> Published:
        """Publish events; when this returns, they are durable.

        matches   wait for the subscriptions that match them, too
        key       for a request that may be repeated: the same key is carried out once
        """
        options: dict[str, Any] = {"ignore_unknown": ignore_unknown}
        if matches:
            options["wait"] = "matches"
        if key is not None:
            options["key"] = key
        found: Published = self._send(self._publish(list(events), options))
        return found

    def put_consumer(self, name: str, *, start: str = "now", **options: Any) -> dict[str, Any]:
        """Make a consumer: from 'start', 'now' or a position on."""
        found: dict[str, Any] = self._send(self._put_consumer(name, {"from": start} | options))
        return found

    def delete_consumer(self, name: str) -> None:
        """End a consumer, with its subscriptions."""
        self._send(_Call("DELETE", self._consumer(name), lambda _: None, repeatable=False))

    def messages(self, consumer: str, *, wait: float = 0.0, limit: int = 500) -> Messages:
        """Return the messages after what was acknowledged; wait for some, at most so long."""
        found: Messages = self._send(self._pull(consumer, wait, limit))
        return found

    def acknowledge(self, consumer: str, position: str) -> str:
        """Note that all messages up to a position have arrived."""
        found: str = self._send(self._ack(consumer, position))
        return found

    def seek(self, consumer: str, position: str, *, set: str = "then") -> str:  # noqa: A002
        """Move a consumer to 'start', 'now' or a position."""
        found: str = self._send(self._seek(consumer, position, set))
        return found

    def follow(self, consumer: str) -> Iterator[Message]:
        """Yield messages for ever; each is acknowledged when the next one is asked for."""
        while True:
            page = self.messages(consumer, wait=30.0)
            for one in page.items:
                yield one
                self.acknowledge(consumer, one.position)
            if not page.items:
                self.acknowledge(consumer, page.position)

    def spaces(self) -> list[str]:
        """Return the names of the spaces."""
        found = self._send(_Call("GET", "/v1/spaces", lambda one: one["items"]))
        return [one["name"] for one in found]

    def make_token(
        self, label: str, scopes: Sequence[str] | None = None, *, tenant: str = "default"
    ) -> str:
        """Make a token and return it; the server keeps only its digest."""
        given: dict[str, Any] = {"label": label, "tenant": tenant}
        if scopes is not None:
            given["scopes"] = list(scopes)
        body = _encode(given)
        call = _Call("POST", "/v1/tokens", lambda one: one["token"], body, repeatable=False)
        found: str = self._send(call)
        return found

    def status(self) -> dict[str, Any]:
        """Return how the server does."""
        found: dict[str, Any] = self._send(_Call("GET", "/v1/status", lambda one: one))
        return found


class AsyncClient(_Base):
    """A space of a server, for a program with an event loop: `Client`, to be awaited."""

    def __init__(
        self,
        url: str | None = None,
        *,
        space: str | None = None,
        token: str | None = None,
        timeout: float = 60.0,
    ):
        super().__init__(url, space=space, token=token)
        self._http = httpx.AsyncClient(timeout=timeout, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _send(self, call: _Call) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = await self._http.request(**self._request(call))
            except httpx.HTTPError as error:
                if not self._may_try_again(call, attempt, None):
                    raise self._unreachable(error) from None
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
    ) -> None:
        """Add a subscription; its id must be new."""
        wanted = _wanted(filter, score, weights, consumer, ttl)
        await self._send(self._put(subscription, wanted, ("If-None-Match", "*")))

    async def replace(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
    ) -> None:
        """Replace a subscription, all of it; it keeps its place in ties."""
        wanted = _wanted(filter, score, weights, consumer, ttl)
        await self._send(self._put(subscription, wanted, ("If-Match", "*")))

    async def subscribe_many(self, subscriptions: Iterable[Mapping[str, Any]]) -> int:
        """Add or replace many, dicts with `id` and `filter`; return how many."""
        rows, count = list(subscriptions), 0
        for at in range(0, len(rows), BULK):
            count += await self._send(self._bulk(rows[at : at + BULK]))
        return count

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

    async def match_many(
        self, events: Sequence[Mapping[str, Any]], *, ignore_unknown: bool = False
    ) -> list[list[str]]:
        """Return the subscriptions that match each event; they aren't published."""
        found: list[list[str]] = []
        for part in _parts(events):
            found += await self._send(self._match(part, {"ignore_unknown": ignore_unknown}))
        return found

    async def best(
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

    async def publish(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        matches: bool = False,
        key: str | None = None,
        ignore_unknown: bool = False,
    ) -> Published:
        """Publish events; when this returns, they are durable."""
        options: dict[str, Any] = {"ignore_unknown": ignore_unknown}
        if matches:
            options["wait"] = "matches"
        if key is not None:
            options["key"] = key
        found: Published = await self._send(self._publish(list(events), options))
        return found

    async def put_consumer(
        self, name: str, *, start: str = "now", **options: Any
    ) -> dict[str, Any]:
        """Make a consumer: from 'start', 'now' or a position on."""
        call = self._put_consumer(name, {"from": start} | options)
        found: dict[str, Any] = await self._send(call)
        return found

    async def messages(self, consumer: str, *, wait: float = 0.0, limit: int = 500) -> Messages:
        """Return the messages after what was acknowledged; wait for some, at most so long."""
        found: Messages = await self._send(self._pull(consumer, wait, limit))
        return found

    async def acknowledge(self, consumer: str, position: str) -> str:
        """Note that all messages up to a position have arrived."""
        found: str = await self._send(self._ack(consumer, position))
        return found

    async def follow(self, consumer: str) -> AsyncIterator[Message]:
        """Yield messages for ever; each is acknowledged when the next one is asked for."""
        while True:
            page = await self.messages(consumer, wait=30.0)
            for one in page.items:
                yield one
                await self.acknowledge(consumer, one.position)
            if not page.items:
                await self.acknowledge(consumer, page.position)


def _wanted(
    filter: Any,  # noqa: A002
    score: float,
    weights: Mapping[str, float] | None,
    consumer: str | None,
    ttl: float | None,
) -> dict[str, Any]:
    return {
        "filter": filter,
        "score": score,
        "weights": None if weights is None else dict(weights),
        "consumer": consumer,
        "ttl": ttl,
    }


def _parts(events: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    for at in range(0, len(events), BULK):
        yield events[at : at + BULK]


def _check_refused(answer: Any) -> None:
    if answer["refused"]:
        first = answer["refused"][0]
        raise ServerError(f"event {first['row']}: {first['reason']}", 422)


def _param(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
