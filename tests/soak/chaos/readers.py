"""Readers: consumers by pull, WebSocket and server-sent events, as long as an episode lasts."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.soak.chaos.history import History
from tests.soak.chaos.processes import Server
from tests.soak.chaos.wire import Connection, seq_of

PULLED = ("pulled", "budget", "board")


def item_of(message: dict[str, Any]) -> list[Any]:
    """Return a message as the history has it: seq, ids, how many were dropped, the event."""
    if "lists" in message:
        lists = {
            one["interest"]: [(e["object"], e["value"], e["position"]) for e in one["best"]]
            for one in message["lists"]
        }
        return [message["seq"], sorted(lists), 0, json.dumps(lists, sort_keys=True)]
    key = json.dumps(message["event"].get("id"))
    return [message["seq"], message["subscriptions"], message.get("dropped", 0), key]


class Readers:
    """All readers of a server."""

    def __init__(
        self, server: Server, history: History, seed: str, pulled: tuple[str, ...] = PULLED
    ):
        """`pulled`: the consumers that are pulled; all of them: others have their readers too."""
        self._server, self._history, self._seed = server, history, seed
        self._ending = threading.Event()
        self.is_broken = False
        """Whether the disk gives errors."""
        self._numbers = 0
        self._one = threading.Lock()
        self._threads = [threading.Thread(target=self._pull, args=(one,)) for one in pulled]
        if pulled == PULLED:
            self._threads += [threading.Thread(target=one) for one in (self._socket, self._stream)]

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def begin(self, consumer: str, life: int, at: int | None, *, is_cursor: bool = True) -> str:
        """Note that a session begins; return its name."""
        with self._one:
            self._numbers += 1
            session = f"{consumer}-{self._numbers}"
        self._history.note(
            "begin",
            self._server.name,
            session=session,
            consumer=consumer,
            life=life,
            at=at,
            is_cursor=is_cursor,
        )
        return session

    def got(
        self, session: str, messages: list[dict[str, Any]], upto: int | None, gap: Any = None
    ) -> None:
        """Note what a session got."""
        self._history.note(
            "got",
            self._server.name,
            session=session,
            items=[item_of(one) for one in messages],
            upto=upto,
            gap=None if gap is None else [seq_of(gap["after"]), seq_of(gap["upto"])],
        )
        if gap is not None and gap["reason"] != "retention":
            self._history.breaks("one-history", f"{session} got {gap}: nothing was restored here")

    def acked(self, consumer: str, life: int, seq: int | None, *, answered: bool) -> None:
        """Note an acknowledgement: when it is sent, and when it is answered."""
        self._history.note(
            "ack", self._server.name, consumer=consumer, life=life, seq=seq, answered=answered
        )

    def _lives(self) -> Iterator[int]:
        """Yield the life of the server whenever it is up, until the end."""
        while not self._ending.is_set():
            if self._server.is_up.wait(0.1):
                yield self._server.life

    def _pull(self, consumer: str) -> None:
        dice = random.Random(f"{self._seed}/{consumer}")
        with Connection(self._server) as one:
            for life in self._lives():
                if self.pull_once(one, consumer, life, wait=0.3, share=0.7, dice=dice) is None:
                    time.sleep(0.02)
                time.sleep(0.03)

    def pull_once(
        self,
        connection: Connection,
        consumer: str,
        life: int,
        *,
        wait: float,
        share: float,
        dice: random.Random,
    ) -> tuple[int, int] | None:
        """Pull, and acknowledge with a probability; return (messages, how far it got)."""
        path = f"consumers/{consumer}"
        shown = connection.ask("GET", path)
        if shown.status != 200:
            return self._failed(consumer, shown)
        at = seq_of(shown.body["position"])
        limit = 500 if consumer == "budget" else dice.choice([20, 500])
        page = connection.ask("GET", f"{path}/messages?wait={wait}&limit={limit}")
        if page.status != 200 or self._server.life != life:
            return self._failed(consumer, page)
        session = self.begin(consumer, life, at)
        upto = seq_of(page.body["position"])
        assert upto is not None
        self.got(session, page.body["items"], upto, page.body.get("gap"))
        if dice.random() < share:
            self.acked(consumer, life, upto, answered=False)
            answer = connection.ask("POST", f"{path}/ack", {"position": page.body["position"]})
            if answer.status == 200:
                self.acked(consumer, life, upto, answered=True)
        return len(page.body["items"]), upto

    def _failed(self, consumer: str, answer: Any) -> None:
        if answer.status == 500 and not self.is_broken:
            self._history.breaks(
                "readable",
                f"a pull of {consumer} was answered 500: {str(answer.body)[:300]}",
                consumer=consumer,
            )
        if answer.is_late and self._server.code() is None:
            self._history.breaks("answered", f"a pull of {consumer} got no answer in time")

    def _socket(self) -> None:
        dice = random.Random(f"{self._seed}/socket")
        for life in self._lives():
            try:
                self._socket_once(life, dice)
            except (OSError, WebSocketException, TimeoutError):
                time.sleep(0.02)

    def _socket_once(self, life: int, dice: random.Random) -> None:
        address = f"ws://127.0.0.1:{self._server.port}/v1/stream"
        count, is_batched = 0, dice.random() < 0.5
        with connect(address, open_timeout=10, close_timeout=1, proxy=None) as socket:
            socket.send(json.dumps({"type": "attach", "consumer": "socket", "batch": is_batched}))
            session = ""
            while not self._ending.is_set() and self._server.life == life:
                try:
                    frame = json.loads(socket.recv(timeout=0.3))
                except TimeoutError:
                    continue
                if frame["type"] == "attached":
                    session = self.begin("socket", life, seq_of(frame["position"]))
                    continue
                if frame["type"] == "error":
                    if not self.is_broken:
                        self._history.breaks("readable", f"the WebSocket got {frame}")
                    return
                some = frame.get("messages", [frame] if frame["type"] == "match" else [])
                upto = seq_of(frame["position"]) if frame["type"] == "heartbeat" else None
                self.got(session, some, upto, frame.get("gap"))
                count += len(some)
                if some and dice.random() < 0.2:
                    self.acked("socket", life, some[-1]["seq"], answered=False)
                    socket.send(json.dumps({"type": "ack", "position": some[-1]["position"]}))
                if dice.random() < 0.01:
                    return  # come again

    def _stream(self) -> None:
        dice = random.Random(f"{self._seed}/stream")
        last = ""
        for life in self._lives():
            try:
                last = self._stream_once(life, last, dice)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)

    def _stream_once(self, life: int, last: str, dice: random.Random) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=1)
        headers = {"Last-Event-ID": last} if last else {}
        session = ""
        try:
            connection.request("GET", "/v1/consumers/streamed/stream", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return last
            while not self._ending.is_set() and self._server.life == life:
                line = answer.readline().decode().rstrip("\n")
                if not line and answer.isclosed():
                    return last
                if line.startswith(": "):
                    at = seq_of(line[2:])
                    if not session:
                        session = self.begin("streamed", life, at, is_cursor=not last)
                    else:
                        self.got(session, [], at)
                elif line.startswith("data: "):
                    message = json.loads(line[6:])
                    if "gap" in message:
                        self.got(session, [], None, message["gap"])
                        continue
                    self.got(session, [message], None)
                    last = message["position"]
                    if dice.random() < 0.02:
                        return last
        except TimeoutError:
            return last
        finally:
            connection.close()
        return last


class SlowReader:
    """A WebSocket that opens a consumer, and reads nothing."""

    def __init__(self, server: Server):
        self._raw = socket.socket()
        self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._raw.settimeout(10)
        self._raw.connect(("127.0.0.1", server.port))
        self._raw.sendall(
            b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        self._raw.recv(4096)  # 101: switching protocols
        text = json.dumps({"type": "attach", "consumer": "slow"}).encode()
        mask = b"\0\0\0\0"
        self._raw.sendall(bytes([0x81, 0x80 | len(text)]) + mask + text)

    def close(self) -> None:
        """Close it."""
        self._raw.close()
