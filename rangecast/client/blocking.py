"""A client that waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import httpx

from rangecast.client.boards import ClientBoard
from rangecast.client.calls import (
    ATTEMPTS,
    Call,
    Calls,
    Lists,
    Message,
    Messages,
    Published,
    ServerError,
    parts,
    wanted_of,
)
from rangecast.model.sets import Subscription
from rangecast.model.space import Space


class Client(Calls):
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

    def _send(self, call: Call) -> Any:
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
        wanted = wanted_of(filter, score, weights, consumer, ttl)
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
        wanted = wanted_of(filter, score, weights, consumer, ttl)
        self._send(self._put(subscription, wanted, ("If-Match", "*")))

    def upsert(
        self,
        subscription: str | int,
        filter: Any,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
        consumer: str | None = None,
        ttl: float | None = None,
    ) -> None:
        """Add a subscription, or replace all of the one that has its id."""
        wanted = wanted_of(filter, score, weights, consumer, ttl)
        self._send(self._put(subscription, wanted, None))

    def subscribe_many(self, subscriptions: Iterable[Mapping[str, Any]]) -> int:
        """Add many, dicts with `id` and `filter`, whose ids must be new; return how many.

        A request takes 5,000 of them, all or none.
        """
        return sum(map(self._send, self._bulk(subscriptions, ("If-None-Match", "*"))))

    def replace_many(self, subscriptions: Iterable[Mapping[str, Any]]) -> int:
        """Replace many, all of each, given as to `subscribe_many`; return how many."""
        return sum(map(self._send, self._bulk(subscriptions, ("If-Match", "*"))))

    def upsert_many(self, subscriptions: Iterable[Mapping[str, Any]]) -> int:
        """Add or replace many, given as to `subscribe_many`; return how many."""
        return sum(map(self._send, self._bulk(subscriptions)))

    def wait_settled(self, subscription: str | int) -> bool:
        """Wait until all linked servers know of a subscription; return whether they do.

        After 30 seconds the answer is no: some of them can't be reached. Ask again then.
        """
        settled: bool = self._send(self._settled(subscription))
        return settled

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
        for part in parts(events):
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

    def put_board(
        self,
        name: str,
        k: int,
        *,
        space: str | None = None,
        upper: str | None = None,
        descending: bool = False,
    ) -> ClientBoard:
        """Make a board, of x or over a space of the server, and return it."""
        options = {"k": k, "space": space, "upper": upper, "descending": descending}
        self._send(self._put_board(name, options))
        return self.board(name)

    def board(self, name: str) -> ClientBoard:
        """Return a board of the server, under the names of `notify.Board`."""
        return ClientBoard(self, name)

    def delete_board(self, name: str) -> None:
        """End a board, with its objects and interests; its consumers are deleted before."""
        self._send(self._delete_board(name))

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
        self._send(Call("DELETE", self._consumer(name), lambda _: None, repeatable=False))

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

    def follow(self, consumer: str) -> Iterator[Message | Lists]:
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
        found = self._send(Call("GET", "/v1/spaces", lambda one: one["items"]))
        return [one["name"] for one in found]

    def make_token(
        self, label: str, scopes: Sequence[str] | None = None, *, tenant: str = "default"
    ) -> str:
        """Make a token and return it; the server keeps only its digest."""
        found: str = self._send(self._make_token(label, scopes, tenant))
        return found

    def status(self) -> dict[str, Any]:
        """Return how the server does."""
        found: dict[str, Any] = self._send(Call("GET", "/v1/status", lambda one: one))
        return found
