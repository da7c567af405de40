"""Requests, answers and messages of clients: lines that the model reads."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any


class BrokenPromiseError(Exception):
    """A promise of the server is broken."""

    def __init__(self, promise: str, detail: str, **keys: Any):
        super().__init__(f"{promise}: {detail}")
        self.promise, self.detail, self.keys = promise, detail, keys


class History:
    """The lines of an episode, and its numbers. Any thread may note."""

    def __init__(self, path: Path):
        self.path = path
        self.outcomes: Counter[str] = Counter()
        """Requests by outcome."""
        self.broken: list[BrokenPromiseError] = []
        """Violations that clients saw themselves."""
        self._lock = threading.Lock()
        self._file = path.open("w")
        self._ops = 0

    def note(self, t: str, server: str, **line: Any) -> None:
        """Note a line."""
        text = json.dumps({"t": t, "s": server, **line})
        with self._lock:
            self._file.write(text + "\n")
            self._file.flush()

    def op(self, server: str, kind: str, **what: Any) -> int:
        """Note that something is about to be asked for; return its number."""
        with self._lock:
            self._ops += 1
            number = self._ops
        self.note("op", server, n=number, kind=kind, **what)
        return number

    def end(self, server: str, number: int, outcome: str, **what: Any) -> None:
        """Note what became of an attempt."""
        self.outcomes[outcome] += 1
        self.note("end", server, n=number, outcome=outcome, **what)

    def breaks(self, promise: str, detail: str, **keys: Any) -> None:
        """Note a broken promise that a client has seen."""
        with self._lock:
            self.broken.append(BrokenPromiseError(promise, detail, **keys))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def about(self, keys: dict[str, Any], most: int = 25) -> list[str]:
        """Return the lines that touch what a broken promise is about."""
        ops, names = set(keys.get("ops", ())), {keys.get("name"), keys.get("consumer")} - {None}
        seq = keys.get("seq")
        found = []
        for text in self.path.read_text().splitlines():
            line = json.loads(text)
            if line.get("n") in ops or _touches(line, names, seq):
                found.append(text if len(text) < 400 else text[:400] + " ...")
        return found[-most:]


def _touches(line: dict[str, Any], names: set[Any], seq: int | None) -> bool:
    if line["t"] == "op":
        given = {line.get("name")} | {one["name"] for one in line.get("puts", ())}
        return bool(given & names)
    if line["t"] in ("begin", "ack"):
        return line.get("consumer") in names and seq is None
    if line["t"] == "got":
        return seq is not None and any(item[0] == seq for item in line["items"])
    if line["t"] == "end" and seq is not None and line.get("first") is not None:
        return bool(line["first"] <= seq < line["first"] + line.get("count", 1))
    return False
