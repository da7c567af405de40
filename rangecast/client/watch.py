"""Watch: stream the events that match a filter over a WebSocket; the server stores nothing."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self

import websockets
from websockets.sync.client import connect

from rangecast.client import tls
from rangecast.client.errors import ServerError, error_of
from rangecast.client.results import AnyMessage, message

_OPENING = 10.0


class Watch:
    """Events that match a filter, from now on, as they arrive; returned by `Client.watch`.

    The subscription lives as long as the connection.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        secure: ssl.SSLContext | bool,
        space: str,
        filter: str,  # noqa: A002
        track: Mapping[str, Any] | None = None,
    ):
        self._url = url
        self._open = ExitStack()
        try:
            connecting = connect(
                url.replace("http", "ws", 1) + "/v1/stream",
                additional_headers={
                    name: value for name, value in headers.items() if name == "Authorization"
                },
                ssl=secure if isinstance(secure, ssl.SSLContext) else None,
                proxy=None,
                open_timeout=_OPENING,
                max_size=None,
            )
            self._socket = self._open.enter_context(connecting)
        except (OSError, websockets.WebSocketException) as error:
            reason = tls.failure(url, error) or f"no WebSocket: {error}"
            raise ServerError(f"{url}: {reason}") from None
        try:
            wanted = {"type": "follow", "space": space, "filter": filter}
            tracked = {} if track is None else {"track": track}
            self._socket.send(json.dumps(wanted | tracked))
            while self._received(None)["type"] != "attached":
                pass
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription."""
        self._open.close()

    def __iter__(self) -> Iterator[AnyMessage]:
        """Yield messages indefinitely."""
        while True:
            item = self.next()
            if item is not None:
                yield item

    def next(self, wait: float | None = None) -> AnyMessage | None:
        """Return the next message; `None` if none arrives within `wait` seconds."""
        try:
            frame = self._received(wait)
        except TimeoutError:
            return None
        return message(frame) if frame["type"] == "match" else None

    def _received(self, wait: float | None) -> dict[str, Any]:
        try:
            frame: dict[str, Any] = json.loads(self._socket.recv(timeout=wait))
        except websockets.ConnectionClosed as closed:
            why = closed.rcvd.reason if closed.rcvd is not None else "the connection is lost"
            raise ServerError(
                f"{self._url}: the server closed the WebSocket: {why}\n  hint: reconnect"
            ) from None
        if frame["type"] == "error":
            raise error_of(frame, frame["status"])
        return frame
