"""Inputs of a hostile or careless client. The server must survive each, and every restart after."""

from __future__ import annotations

import gzip
import io
import json
import random
import socket
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.soak.chaos.history import History
from tests.soak.chaos.processes import Server
from tests.soak.chaos.wire import Connection, ask
from tests.soak.chaos.writer import EVENTS, SUBSCRIPTIONS, Writer

_ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
_LINES = {"Content-Type": "application/x-ndjson"}


class Hostile:
    """One hostile client of a server."""

    def __init__(self, server: Server, history: History, writer: Writer, connection: Connection):
        self._server, self._history, self._writer = server, history, writer
        self._connection = connection

    def run(self, kind: str, code: int, dice: random.Random) -> None:
        """Do one harmful thing; the server must answer others afterwards."""
        KINDS[kind](self, code, dice)
        healthy = ask(self._server, "GET", "/healthz")
        if healthy.status != 200 and self._server.code() is None:
            self._history.breaks("alive", f"after {kind!r} /healthz is answered {healthy}")

    def _events(self, code: int, lines: list[bytes], keys: list[str], path: str = EVENTS) -> None:
        rows = [[key, {}] for key in keys]
        number = self._history.op(self._server.name, "events", events=rows)
        body = b"\n".join(lines)
        self._writer.published(number, self._connection.ask("POST", path, body, _LINES))

    def deep(self, code: int, dice: random.Random) -> None:
        """An id that nests deep, in a body large enough for another thread, with dedup=id."""
        depth = dice.choice([40, 65, 500, 984, 985, 986, 987, 988, 989, 990, 2000])
        key = "[" * depth + json.dumps(f"d{code}") + "]" * depth
        lines = [b'{"id": %s, "x": 5, "y": 5}' % key.encode()]
        lines += [b'{"id": "d%d-%d", "x": 5}' % (code, at) for at in range(dice.choice([0, 300]))]
        keys = [key, *(f'"d{code}-{at}"' for at in range(len(lines) - 1))]
        self._events(code, lines, keys, f"{EVENTS}?dedup=id")

    def odd(self, code: int, dice: random.Random) -> None:
        """Numbers that are none, or too large."""
        values = [b"1e999", b"NaN", b"-Infinity", b"9" * 400, b"null", b'"5"', b"true", b"{}"]
        lines = [b'{"id": "n%d-%d", "x": %s}' % (code, at, one) for at, one in enumerate(values)]
        for at, line in enumerate(lines):
            self._events(code, [line], [f'"n{code}-{at}"'])

    def arrow_rows(self, code: int, dice: random.Random) -> None:
        """Millions of rows without a byte."""
        self._limited("Arrow rows", _arrow(pa.table({"x": pa.nulls(5_000_000)})), _ARROW)

    def arrow_bomb(self, code: int, dice: random.Random) -> None:
        """A compressed stream that is larger than a body may be."""
        note = pa.DictionaryArray.from_arrays(
            pa.array([0] * 4000, pa.int8()), pa.array(["n" * 3000])
        )
        ids = pa.array([f"b{code}-{at}" for at in range(4000)])
        table = pa.table({"id": ids, "x": pa.array([5.0] * 4000), "note": note.cast(pa.string())})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._limited("a compressed Arrow stream", _arrow(table, options), _ARROW)

    def gzip_bomb(self, code: int, dice: random.Random) -> None:
        """A body that inflates to more than it may have."""
        body = gzip.compress(b'{"x": 5, "note": "%s"}' % (b"z" * (20 << 20)))
        self._limited("a gzip body", body, {"Content-Encoding": "gzip"})

    def _limited(self, what: str, body: bytes, headers: dict[str, str]) -> None:
        answer = self._connection.ask("POST", EVENTS, body, headers)
        if answer.status in (200, 500):
            self._history.breaks(
                "limits",
                f"{what} beyond the limits was answered {answer.status}: {str(answer.body)[:200]}",
            )

    def long_filter(self, code: int, dice: random.Random) -> None:
        """A filter of 30 KB."""
        text = " or ".join(f"x < {at % 90} and y > -{code}.5" for at in range(1000))
        number = self._history.op(
            self._server.name, "put", puts=[{"name": f"f{code}", "filter": text}]
        )
        answer = self._connection.ask("PUT", f"{SUBSCRIPTIONS}/f{code}", {"filter": text})
        self._writer.edited(number, answer)

    def heads(self, code: int, dice: random.Random) -> None:
        """A head that is too large, and one that never ends."""
        with socket.create_connection(("127.0.0.1", self._server.port), 10) as connection:
            try:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
                for at in range(2000):
                    connection.sendall(b"X-%d: %s\r\n" % (at, b"h" * 500))
            except OSError:
                pass
        with socket.create_connection(("127.0.0.1", self._server.port), 10) as connection:
            connection.sendall(b"GET /healthz HT")

    def paths(self, code: int, dice: random.Random) -> None:
        """Requests that nothing should answer by 500."""
        for path in (
            f"{EVENTS}?limit=0",
            f"{EVENTS}?limit=-1",
            f"{EVENTS}?after=x:{'9' * 30}",
            "consumers/pulled/messages?limit=-5&wait=-1",
            "spaces/%00%0d%0a/events",
            "log?after=-7",
        ):
            answer = self._connection.ask("GET", path)
            if answer.status in (0, 500) and self._server.code() is None:
                self._history.breaks("answered", f"GET {path} was answered {answer.status}")

    def frames(self, code: int, dice: random.Random) -> None:
        """Frames of a WebSocket that nest deep, or are none."""
        address = f"ws://127.0.0.1:{self._server.port}/v1/stream"
        for text in (
            "[" * 100_000,
            '{"type": "publish", "events": ' + "[" * 3000,
            "{}",
            "null",
            "\0",
        ):
            try:
                with connect(address, open_timeout=10, close_timeout=1, proxy=None) as one:
                    one.send(text)
                    one.recv(timeout=5)
            except (OSError, WebSocketException, TimeoutError):
                pass


KINDS: dict[str, Callable[[Hostile, int, random.Random], None]] = {
    "deep": Hostile.deep,
    "odd": Hostile.odd,
    "arrow-rows": Hostile.arrow_rows,
    "arrow-bomb": Hostile.arrow_bomb,
    "gzip-bomb": Hostile.gzip_bomb,
    "long-filter": Hostile.long_filter,
    "heads": Hostile.heads,
    "paths": Hostile.paths,
    "frames": Hostile.frames,
}


def _arrow(table: Any, options: Any = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return sink.getvalue()
