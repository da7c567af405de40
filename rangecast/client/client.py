"""A blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import httpx

from rangecast.client.boards import ClientBoard
from rangecast.client.operations import answers, server, sets
from rangecast.client.operations.base import blocking
from rangecast.client.operations.calls import ATTEMPTS, Calls, encoded_track_rule
from rangecast.client.operations.requests import Call
from rangecast.client.results import AnyMessage
from rangecast.client.tls import Cert, Verify
from rangecast.client.watch import Watch
from rangecast.model.sets.members import Id
from rangecast.track.rules import Rule


class Client(Calls):
    """A client for one space of a server; thread-safe.

    url     the server's address; by default RANGECAST_SERVER, else http://127.0.0.1:8080
    space   its name; needed for everything but `put_space` and consumers
    token   if the server requires one; by default RANGECAST_TOKEN
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

    def _send(self, call: Call[Any]) -> Any:
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

    subscribe = blocking(sets.subscribe)
    replace = blocking(sets.replace)
    upsert = blocking(sets.upsert)
    rescore = blocking(sets.rescore)
    unsubscribe = blocking(sets.unsubscribe)
    subscribe_many = blocking(sets.subscribe_many)
    replace_many = blocking(sets.replace_many)
    upsert_many = blocking(sets.upsert_many)
    unsubscribe_many = blocking(sets.unsubscribe_many)
    select = blocking(sets.select)
    match = blocking(answers.match)
    match_many = blocking(answers.match_many)
    match_each = blocking(answers.match_each)
    count = blocking(answers.count)
    count_many = blocking(answers.count_many)
    rank = blocking(answers.rank)
    rank_many = blocking(answers.rank_many)
    why = blocking(answers.why)
    why_not = blocking(answers.why_not)
    explain = blocking(sets.explain)
    __getitem__ = blocking(sets.get)
    __contains__ = blocking(sets.contains)
    __len__ = blocking(sets.size)

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the ids in order of arrival."""
        after: str | None = ""
        while after is not None:
            page = self._send(self._page(after))
            yield from (item["id"] for item in page["items"])
            after = page["next"]

    # ---- as a server

    put_space = blocking(server.put_space)
    delete_board = blocking(server.delete_board)
    publish = blocking(server.publish)
    wait_until_propagated = blocking(server.wait_until_propagated)
    put_consumer = blocking(server.put_consumer)
    consumers = blocking(server.consumers)
    consumer = blocking(server.consumer)
    delete_consumer = blocking(server.delete_consumer)
    messages = blocking(server.messages)
    acknowledge = blocking(server.acknowledge)
    seek = blocking(server.seek)
    spaces = blocking(server.spaces)
    make_token = blocking(server.make_token)
    ready = blocking(server.ready)
    status = blocking(server.status)

    def put_board(
        self,
        name: str,
        k: int,
        *,
        space: str | None = None,
        upper_bound_attribute: str | None = None,
        descending: bool = False,
    ) -> ClientBoard:
        """Create a board of positions or over a space of the server, and return it."""
        options = {
            "k": k,
            "space": space,
            "upper_bound_attribute": upper_bound_attribute,
            "descending": descending,
        }
        self._send(self._put_board(name, options))
        return self.board(name)

    def board(self, name: str) -> ClientBoard:
        """Return a board of the server, with the method names of `notify.Board`."""
        return ClientBoard(self._send, name)

    def follow(self, consumer: str) -> Iterator[AnyMessage]:
        """Yield messages indefinitely; each is acknowledged when the next one is requested."""
        while True:
            page = self.messages(consumer, wait=30.0)
            for item in page.items:
                yield item
                self.acknowledge(consumer, item.position)
            if not page.items:
                self.acknowledge(consumer, page.position)

    def watch(
        self,
        filter: Any,  # noqa: A002
        *,
        track: Rule | Mapping[str, Any] | None = None,
    ) -> Watch:
        """Return an iterator over the events that match a filter, from now on.

        track   a track rule: transitions come instead of events

        The server stores nothing: `with client.watch("price < 20") as events: ...`. To receive
        every event across reconnects, use a consumer.
        """
        rule = encoded_track_rule(track)
        return Watch(self.url, self._headers, self._tls, self._named_space(), str(filter), rule)
