"""A client that waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Self

import httpx

from rangecast.client import server_operations, set_operations
from rangecast.client.boards import ClientBoard
from rangecast.client.calls import ATTEMPTS, Calls
from rangecast.client.operation import blocking
from rangecast.client.requests import Call
from rangecast.client.results import Lists, Message
from rangecast.client.tls import Cert, Verify
from rangecast.client.watch import Watch
from rangecast.model.members import Id


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

    subscribe = blocking(set_operations.subscribe)
    replace = blocking(set_operations.replace)
    upsert = blocking(set_operations.upsert)
    rescore = blocking(set_operations.rescore)
    unsubscribe = blocking(set_operations.unsubscribe)
    subscribe_many = blocking(set_operations.subscribe_many)
    replace_many = blocking(set_operations.replace_many)
    upsert_many = blocking(set_operations.upsert_many)
    unsubscribe_many = blocking(set_operations.unsubscribe_many)
    select = blocking(set_operations.select)
    match = blocking(set_operations.match)
    match_many = blocking(set_operations.match_many)
    match_each = blocking(set_operations.match_each)
    rank = blocking(set_operations.rank)
    rank_many = blocking(set_operations.rank_many)
    why = blocking(set_operations.why)
    why_not = blocking(set_operations.why_not)
    explain = blocking(set_operations.explain)
    __getitem__ = blocking(set_operations.get)
    __contains__ = blocking(set_operations.contains)
    __len__ = blocking(set_operations.count)

    def __iter__(self) -> Iterator[Id]:
        """Go through the ids, in order of arrival."""
        after: str | None = ""
        while after is not None:
            page = self._send(self._page(after))
            yield from (one["id"] for one in page["items"])
            after = page["next"]

    # ---- as a server

    put_space = blocking(server_operations.put_space)
    delete_board = blocking(server_operations.delete_board)
    publish = blocking(server_operations.publish)
    wait_settled = blocking(server_operations.wait_settled)
    put_consumer = blocking(server_operations.put_consumer)
    consumers = blocking(server_operations.consumers)
    consumer = blocking(server_operations.consumer)
    delete_consumer = blocking(server_operations.delete_consumer)
    messages = blocking(server_operations.messages)
    acknowledge = blocking(server_operations.acknowledge)
    seek = blocking(server_operations.seek)
    spaces = blocking(server_operations.spaces)
    make_token = blocking(server_operations.make_token)
    ready = blocking(server_operations.ready)
    status = blocking(server_operations.status)

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
