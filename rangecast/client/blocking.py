"""A client that waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import httpx

from rangecast.client.boards import ClientBoard
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
from rangecast.client.watch import Watch
from rangecast.errors import RangecastError, UnknownIdError
from rangecast.model.sets import Subscription
from rangecast.model.space import Space


class Client(Calls):
    """A space of a server; any number of threads may use it.

    url     where the server is; else RANGECAST_SERVER says so, else http://127.0.0.1:8080
    space   its name; needed for everything but `put_space` and consumers
    token   if the server asks for one; else RANGECAST_TOKEN says it
    verify  with https: the file of the authorities to trust, or an `ssl.SSLContext`; by default
            those of SSL_CERT_FILE, or else public ones. `False` trusts any server
    cert    a client certificate, if the server asks for one: a PEM file, or (certificate, key)
    """

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
        self._http = httpx.Client(timeout=timeout, trust_env=False, verify=self._tls)

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
                if not self._may_try_again(call, attempt, error):
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
        create_consumer: bool = False,
    ) -> None:
        """Add a subscription; its id must be new. Every event after this is matched with it.

        consumer          gets its matches
        ttl               seconds after which it ends by itself
        create_consumer   create the consumer with it, if there is none of this name
        """
        wanted = wanted_of(filter, score, weights, consumer, ttl)
        call = self._put(subscription, wanted, IS_NEW, create_consumer=create_consumer)
        self._send(call)

    def replace(
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
        self._send(call)

    def upsert(
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
        self._send(call)

    def subscribe_many(
        self,
        subscriptions: Any,
        *,
        rejected: list[RejectedRow] | None = None,
        consumer: str | None = None,
        create_consumer: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Add many, whose ids must be new; return how many.

        They are dicts with `id` and `filter`, the path of a file, an Arrow table, a DataFrame or a
        dict of columns, with the columns of a file (docs/SPACE.md) and `consumer`. A request takes
        5,000 of them, all or none.

        rejected          a list that gets the rows that can't be used, while the others are saved;
                          without, the first one is a `SubscribeError`
        consumer          gets the matches of those that name none
        create_consumer   create the consumers that don't exist
        progress          is called with the rows of each request
        """
        options = BulkOptions(rejected, consumer, create_consumer, progress)
        return self._put_many(subscriptions, IS_NEW, options)

    def replace_many(
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
        return self._put_many(subscriptions, EXISTS, options)

    def upsert_many(
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
        return self._put_many(subscriptions, None, options)

    def _put_many(self, subscriptions: Any, condition: Condition, options: BulkOptions) -> int:
        space = self._send(self._get_space()) if is_file(subscriptions) else None
        asked = self._subscribing(subscriptions, space, condition, options)
        for call in asked:
            try:
                asked.add(self._send(call))
            except RangecastError as error:
                raise asked.failed(error) from None
        return asked.result()

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
        except UnknownIdError:
            return False
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

    def match_many(self, events: Any, *, ignore_unknown: bool = False) -> list[list[str]]:
        """Return the subscriptions that match each event; they aren't published."""
        found: list[list[str]] = []
        for part in match_parts(events):
            found += self._send(self._match(part, {"ignore_unknown": ignore_unknown}))
        return found

    def rank(
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
        events: Any,
        *,
        matches: bool = False,
        key: str | None = None,
        ignore_unknown: bool = False,
        rejected: list[RejectedRow] | None = None,
    ) -> Published:
        """Publish events; when this returns, they are durable.

        They are one dict, a list of dicts, the path of a file, an Arrow table or a DataFrame; many
        of them take several requests. A request whose answer is lost is repeated, and carried out
        once. If not all are published, a `PublishError` says which are.

        matches    wait for the subscriptions that match them, too
        key        for a call that may be repeated: the same key is carried out once
        rejected   a list that gets the events that the server can't use, instead of the error
        """
        options: Any = {"matches": matches, "key": key, "ignore_unknown": ignore_unknown}
        asked = self._publishing(events, **options)
        for call in asked:
            try:
                asked.add(self._send(call))
            except RangecastError as error:
                raise asked.failed(error) from None
        return asked.result(rejected)

    def put_consumer(self, name: str, *, start: str = "now", **options: Any) -> dict[str, Any]:
        """Make a consumer: from 'start', 'now' or a position on."""
        found: dict[str, Any] = self._send(self._put_consumer(name, {"from": start} | options))
        return found

    def consumers(self) -> list[dict[str, Any]]:
        """Return the consumers: the position of each, its lag and its delivery."""
        found: list[dict[str, Any]] = self._send(self._consumers())
        return found

    def consumer(self, name: str) -> dict[str, Any]:
        """Return a consumer: its position, its lag and its delivery."""
        found: dict[str, Any] = self._send(self._get_consumer(name))
        return found

    def delete_consumer(self, name: str) -> None:
        """End a consumer, with its subscriptions."""
        self._send(self._delete_consumer(name))

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

    def watch(self, filter: Any) -> Watch:  # noqa: A002
        """Return the events that match a filter, from now on, as they come.

        The server keeps nothing of it: `with client.watch("price < 20") as events: ...`. To miss
        nothing over a reconnect, use a consumer.
        """
        return Watch(self.url, self._headers, self._tls, self._named_space(), str(filter))

    def spaces(self) -> list[str]:
        """Return the names of the spaces."""
        found: list[str] = self._send(self._spaces())
        return found

    def make_token(
        self, label: str, scopes: Sequence[str] | None = None, *, tenant: str = "default"
    ) -> str:
        """Make a token and return it; the server keeps only its digest."""
        found: str = self._send(self._make_token(label, scopes, tenant))
        return found

    def ready(self) -> str:
        """Return 'ok' if events can be published, else why they can't."""
        found: str = self._send(self._ready())
        return found

    def status(self) -> dict[str, Any]:
        """Return how the server does."""
        found: dict[str, Any] = self._send(self._status())
        return found
