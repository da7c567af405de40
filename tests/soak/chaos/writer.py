"""A writer: carries out ops, and notes what it asked for and what came of it."""

from __future__ import annotations

import gzip
import io
import json
import socket
import threading
import time
from typing import Any

import pyarrow as pa

from tests.soak.chaos.history import History
from tests.soak.chaos.processes import Server
from tests.soak.chaos.wire import Answer, Connection, outcome_of, reset, seq_of
from tests.soak.chaos.workload import Op, rows_of

EVENTS = "spaces/points/events"
SUBSCRIPTIONS = "spaces/points/subscriptions"


class Writer:
    """Writes to one server."""

    def __init__(self, server: Server, history: History):
        self._server, self._history = server, history
        self._connection = Connection(server)
        self.is_broken = False
        """Whether the disk gives errors."""
        self.done = 0

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def run(self, op: Op) -> None:
        """Carry out an op, in all its attempts."""
        if op.kind in ("keyed", "dedup"):
            self._repeat(op)
        elif op.kind == "reset":
            self._reset(op)
        elif op.events:
            self._publish(op)
        elif op.puts:
            self._put(op)
        elif op.kind == "delete":
            number = self._history.op(self._server.name, "delete", name=op.name)
            self.edited(number, self._connection.ask("DELETE", f"{SUBSCRIPTIONS}/{op.name}"))
        elif op.kind == "interest":
            lo = op.position_lo
            body = {"position_lo": lo, "position_hi": lo + 30, "consumer": "board"}
            number = self._history.op(self._server.name, "interest", name=op.name, position_lo=lo)
            path = f"boards/board/interests/{op.name}"
            self.edited(number, self._connection.ask("PUT", path, body))
        else:
            self._update(op)
        self.done += 1

    # ---- events

    def _publish(self, op: Op) -> None:
        path, headers = EVENTS, {}
        body: Any = op.events[0] if op.kind == "single" else op.events
        if op.kind == "matches":
            path += "?wait=matches"
        elif op.kind == "part" and op.code % 2:
            path += "?strict=true"
        elif op.kind == "many":
            headers = {"Content-Type": "application/x-ndjson"}
            body = "\n".join(map(json.dumps, op.events)).encode()
        elif op.kind == "gzip":
            headers = {"Content-Encoding": "gzip"}
            body = gzip.compress(json.dumps(body).encode())
        elif op.kind == "arrow":
            headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
            body = arrow(op.events)
        number = self._history.op(self._server.name, "events", events=rows_of(op.events))
        self.published(number, self._connection.ask("POST", path, body, headers))

    def published(self, number: int, answer: Answer) -> None:
        """Note what became of events."""
        outcome = self._outcome(number, answer)
        found: dict[str, Any] = {}
        if outcome == "ok":
            said = answer.body
            found = {
                "first": seq_of(said["first"]),
                "count": said["accepted"],
                "rejected": [one["row"] for one in said["rejected"]],
                "skipped": said.get("skipped", 0),
                "repeated": said.get("repeated", False),
                "matches": said.get("matches"),
            }
        self._history.end(self._server.name, number, outcome, status=answer.status, **found)

    def _repeat(self, op: Op) -> None:
        """Ask several times at once for the same."""
        path, headers = EVENTS, {"Idempotency-Key": f"k{op.code}"}
        if op.kind == "dedup":
            path, headers = f"{EVENTS}?dedup=id", {}
        number = self._history.op(
            self._server.name, "events", events=rows_of(op.events), attempts=op.attempts
        )

        def attempt(connection: Connection) -> None:
            self.published(number, connection.ask("POST", path, op.events, headers))

        others = [Connection(self._server) for _ in range(op.attempts - 1)]
        threads = [threading.Thread(target=attempt, args=(one,)) for one in others]
        for thread in threads:
            thread.start()
        attempt(self._connection)
        for thread, one in zip(threads, others, strict=True):
            thread.join()
            one.close()

    def _reset(self, op: Op) -> None:
        """Send a request, or half of one, and reset the connection."""
        body = json.dumps(op.events[0]).encode()
        head = (
            f"POST /v1/{EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        )
        text = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        is_half = op.code % 2 == 0
        number = self._history.op(self._server.name, "events", events=rows_of(op.events))
        try:
            with socket.create_connection(("127.0.0.1", self._server.port), 10) as connection:
                connection.sendall(text[: -len(body) // 2] if is_half else text)
                reset(connection)
        except OSError:
            pass
        self._history.end(self._server.name, number, "rejected" if is_half else "unknown")

    # ---- the rest

    def _put(self, op: Op) -> None:
        puts = [{key: one[key] for key in ("name", "filter")} for one in op.puts]
        number = self._history.op(self._server.name, "put", puts=puts)
        rows = [
            {"id": one["name"], **{key: value for key, value in one.items() if key != "name"}}
            for one in op.puts
        ]
        if op.kind == "bulk":
            self.edited(number, self._connection.ask("POST", f"{SUBSCRIPTIONS}:bulk", rows))
            return
        body = {key: value for key, value in rows[0].items() if key != "id"}
        path = f"{SUBSCRIPTIONS}/{op.puts[0]['name']}"
        self.edited(number, self._connection.ask("PUT", path, body))

    def _update(self, op: Op) -> None:
        changes = op.changes or [{"id": op.name, "value": None}]
        what: dict[str, Any] = {"name": op.name} if op.name else {"changes": changes}
        kind = "remove" if op.name else "updates"
        number = self._history.op(self._server.name, kind, **what)
        path = f"boards/board/updates{'?batch=true' if op.kind == 'batch' else ''}"
        self.published(number, self._connection.ask("POST", path, changes))

    def edited(self, number: int, answer: Answer) -> None:
        """Note what became of edits."""
        outcome = self._outcome(number, answer)
        found: dict[str, Any] = {}
        if outcome == "ok":
            last, count = seq_of(answer.body["position"]), answer.body.get("accepted", 1)
            found = {"first": None if last is None else last - count + 1, "count": count}
            found["rejected"] = [one["row"] for one in answer.body.get("rejected", ())]
        self._history.end(self._server.name, number, outcome, status=answer.status, **found)

    def _outcome(self, number: int, answer: Answer) -> str:
        server = self._server
        if answer.is_unsent:
            time.sleep(0.05)
        if answer.is_late and server.code() is None:
            self._history.breaks("answered", f"op {number} got no answer in time", ops=[number])
        if answer.status == 500 and not self.is_broken:
            self._history.breaks(
                "answered", f"op {number} was answered 500: {str(answer.body)[:300]}", ops=[number]
            )
        return outcome_of(answer, is_broken=self.is_broken)


def arrow(events: list[dict[str, Any]]) -> bytes:
    """Return events as an Arrow stream."""
    sink = io.BytesIO()
    table = pa.Table.from_pylist([{**one, "x": float(one["x"])} for one in events])
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
