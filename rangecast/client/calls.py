"""What a client asks a server for, and how an answer is read: without sending anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from rangecast.errors import RangecastError, UsageError
from rangecast.model.inputs import as_space
from rangecast.model.sets import Subscription
from rangecast.model.space import Space

URL = "http://127.0.0.1:8080"
"""Where a server is, if neither the caller nor RANGECAST_SERVER says so."""
BULK = 5_000
"""Subscriptions and events of one request."""
ATTEMPTS = 5
"""How often a request is made that the server couldn't take, or that got no answer."""
encode = msgspec.json.Encoder(enc_hook=str).encode


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
    shed: int = 0
    """How many messages of its second the consumer's budget has shed."""


class Ranked(NamedTuple):
    """An object of a list."""

    object: str
    y: float
    x: Any
    """Where it lies: a number, or over a space a dict of values."""


def ranked(row: Mapping[str, Any]) -> Ranked:
    """Return an object of a list as the server gives it."""
    return Ranked(row["object"], row["y"], row["values"] if "values" in row else row["x"])


class Lists(NamedTuple):
    """Lists of a board that have changed."""

    position: str
    board: str
    lists: dict[str, list[Ranked]]
    """The new list of each interest, the best first."""


class Messages(NamedTuple):
    """Some messages of a consumer."""

    items: list[Any]
    """`Message`, or `Lists` if the consumer is of a board."""
    position: str
    """All messages up to here are in `items`, or were before: what to acknowledge."""
    gap: dict[str, str] | None = None
    """What is gone from the log before this consumer got it."""


class Call(NamedTuple):
    """One request, and what is made of its answer."""

    method: str
    path: str
    read: Callable[[Any], Any]
    body: bytes | None = None
    params: dict[str, Any] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    repeatable: bool = True
    """Whether it does no harm to make it twice."""


class Calls:
    """All requests, in words of the library; a subclass sends them."""

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
    ) -> Call:
        body = {key: value for key, value in wanted.items() if value is not None}
        return Call(
            "PUT",
            self._subscription(name),
            lambda _: None,
            encode(body | {"filter": str(wanted["filter"])}),
            headers=dict([condition] if condition else []),
            repeatable=condition is None,
        )

    def _bulk(
        self, given: Iterable[Mapping[str, Any]], condition: tuple[str, str] | None = None
    ) -> Iterator[Call]:
        """Yield the requests that put many subscriptions; `condition` holds for each of these."""
        rows, path = list(given), self._in_space("/subscriptions:bulk")
        for at in range(0, len(rows), BULK):
            yield Call(
                "POST",
                path,
                accepted,
                encode(rows[at : at + BULK]),
                params={"strict": True},
                headers=dict([condition] if condition else []),
                repeatable=condition is None,
            )

    def _get(self, name: str | int) -> Call:
        def read(found: Any) -> Subscription:
            return Subscription(found["id"], found["filter"], found["score"], found["weights"])

        return Call("GET", self._subscription(name), read)

    def _settled(self, name: str | int) -> Call:
        params = {"wait": "settled"}
        return Call("GET", self._subscription(name), lambda one: one["settled"], params=params)

    def _delete(self, name: str | int) -> Call:
        return Call("DELETE", self._subscription(name), lambda _: None, repeatable=False)

    def _page(self, after: str) -> Call:
        params = {"after": after}
        return Call("GET", self._in_space("/subscriptions"), lambda one: one, params=params)

    def _match(self, events: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> Call:
        def read(answer: Any) -> list[list[str]]:
            _check_refused(answer)
            found: list[list[str]] = answer["matches"]
            return found

        path = self._in_space("/events:match")
        return Call("POST", path, read, encode(list(events)), params=options)

    def _rank(self, events: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> Call:
        def read(answer: Any) -> list[list[tuple[str, float]]]:
            _check_refused(answer)
            return [
                [(one["subscription"], one["score"]) for one in best] for best in answer["best"]
            ]

        path = self._in_space("/events:rank")
        return Call("POST", path, read, encode(list(events)), params=options)

    def _publish(self, events: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> Call:
        def read(answer: Any) -> Published:
            refused = [(one["row"], one["reason"]) for one in answer["refused"]]
            ends = answer["first"], answer["last"]
            return Published(answer["accepted"], *ends, refused, answer.get("matches"))

        headers = {"Content-Type": "application/x-ndjson"}
        key = options.pop("key", None)
        if key is not None:
            headers["Idempotency-Key"] = key
        return Call(
            "POST",
            self._in_space("/events"),
            read,
            b"\n".join(map(encode, events)),
            params=options,
            headers=headers,
            repeatable=key is not None,
        )

    def _consumer(self, name: str, rest: str = "") -> str:
        return f"/v1/consumers/{quote(name, safe='')}{rest}"

    def _put_consumer(self, name: str, options: dict[str, Any]) -> Call:
        body = encode(options if "board" in options else {"space": self._space} | options)
        return Call("PUT", self._consumer(name), lambda one: one, body)

    def _pull(self, name: str, wait: float, limit: int) -> Call:
        def read(answer: Any) -> Messages:
            items = [_message(one) for one in answer["items"]]
            return Messages(items, answer["position"], answer.get("gap"))

        params = {"wait": wait, "limit": limit}
        return Call("GET", self._consumer(name, "/messages"), read, params=params)

    def _ack(self, name: str, position: str) -> Call:
        body = encode({"position": position})
        return Call("POST", self._consumer(name, "/ack"), lambda one: one["position"], body)

    def _seek(self, name: str, position: str, which: str) -> Call:
        body = encode({"position": position, "set": which})
        return Call("POST", self._consumer(name, "/seek"), lambda one: one["position"], body)

    def _put_space(self, name: str, space: Space) -> Call:
        body = encode(as_space(space).definition())
        return Call("PUT", f"/v1/spaces/{quote(name, safe='')}", lambda _: None, body)

    def _put_board(self, name: str, options: dict[str, Any]) -> Call:
        body = encode({key: value for key, value in options.items() if value is not None})
        return Call("PUT", f"/v1/boards/{quote(name, safe='')}", lambda _: None, body)

    def _delete_board(self, name: str) -> Call:
        path = f"/v1/boards/{quote(name, safe='')}"
        return Call("DELETE", path, lambda _: None, repeatable=False)

    def _make_token(self, label: str, scopes: Sequence[str] | None, tenant: str) -> Call:
        given: dict[str, Any] = {"label": label, "tenant": tenant}
        if scopes is not None:
            given["scopes"] = list(scopes)
        body = encode(given)
        return Call("POST", "/v1/tokens", lambda one: one["token"], body, repeatable=False)

    def _request(self, call: Call) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": self.url + call.path,
            "content": call.body,
            "params": {key: _param(value) for key, value in call.params.items()},
            "headers": self._headers | call.headers,
        }

    def _answered(self, call: Call, answer: httpx.Response) -> Any:
        try:
            found = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            found = {"detail": answer.text[:200] or answer.reason_phrase}
        if answer.is_success or (answer.status_code == 422 and "refused" in found):
            return call.read(found)
        raise ServerError(str(found.get("detail", found)), answer.status_code)

    def _may_try_again(self, call: Call, attempt: int, status: int | None) -> bool:
        is_busy = status in (429, 503)
        return attempt < ATTEMPTS and (is_busy or (status is None and call.repeatable))

    def _unreachable(self, error: Exception) -> ServerError:
        return ServerError(
            f"{self.url}: no answer: {error or type(error).__name__}\n"
            "  to do: start a server with `rangecast serve`, or give its address"
        )


def wanted_of(
    filter: Any,  # noqa: A002
    score: float,
    weights: Mapping[str, float] | None,
    consumer: str | None,
    ttl: float | None,
) -> dict[str, Any]:
    """Return a subscription as the server takes it."""
    return {
        "filter": filter,
        "score": score,
        "weights": None if weights is None else dict(weights),
        "consumer": consumer,
        "ttl": ttl,
    }


def parts(events: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield events in parts that fit into a request."""
    for at in range(0, len(events), BULK):
        yield events[at : at + BULK]


def accepted(answer: Any) -> int:
    """Return how many of a request were taken; raise an error for the first that wasn't."""
    if answer["refused"]:
        first = answer["refused"][0]
        raise ServerError(f"row {first['row']}: {first['reason']}", 422)
    count: int = answer["accepted"]
    return count


def _message(one: Mapping[str, Any]) -> Message | Lists:
    if "lists" in one:
        lists = {
            found["interest"]: [ranked(row) for row in found["best"]] for found in one["lists"]
        }
        return Lists(one["position"], one["board"], lists)
    return Message(one["position"], one["event"], one["subscriptions"], one.get("shed", 0))


def _check_refused(answer: Any) -> None:
    if answer["refused"]:
        first = answer["refused"][0]
        raise ServerError(f"event {first['row']}: {first['reason']}", 422)


def _param(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
