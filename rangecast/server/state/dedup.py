"""Deduplication of requests by `Idempotency-Key`, and of events by id.

A window of the newest keys and ids is kept. It is rebuilt from a snapshot and the log after it, so
that a restart forgets nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rangecast.server.encoding import rows_of
from rangecast.server.json_text import shallow
from rangecast.server.state.edits import EventsHead
from rangecast.server.state.registry import RequestError

REQUESTS = 100_000
IDS = 1_000_000


class PreviousRequest(NamedTuple):
    """Result of a request that was already applied."""

    digest: str
    first: int
    length: int
    rejected: list[tuple[int, str]]


class Deduplicator:
    """The newest requests with a key, and the newest ids of deduplicated events."""

    def __init__(self) -> None:
        self.requests: OrderedDict[str, PreviousRequest] = OrderedDict()
        self.ids: OrderedDict[str, None] = OrderedDict()
        self.offsets: dict[str, int] = {}
        """Position up to which each source was read."""
        self.marks: dict[str, str] = {}
        """Checksum at that position, by source, if the source is another server."""
        self._old_offsets: dict[str, tuple[int | None, str]] = {}
        self._new_requests: set[str] = set()
        self._new_ids: set[str] = set()

    def begin(self) -> None:
        """Start a new group; the previous one is written, so the oldest entries are evicted."""
        self._old_offsets.clear()
        self._new_requests.clear()
        self._new_ids.clear()
        while len(self.requests) > REQUESTS:
            self.requests.popitem(last=False)
        while len(self.ids) > IDS:
            self.ids.popitem(last=False)

    def undo(self) -> None:
        """Forget the current group, which was not written."""
        for key in self._new_requests:
            self.requests.pop(key, None)
        for key in self._new_ids:
            self.ids.pop(key, None)
        for key, (old, mark) in self._old_offsets.items():
            self.marks[key] = mark
            if old is None:
                self.offsets.pop(key, None)
                self.marks.pop(key, None)
            else:
                self.offsets[key] = old

    def request(self, head: EventsHead) -> PreviousRequest | None:
        """Return the result of an earlier request with the same key; reject a different body."""
        request = self.requests.get(_key(head, head.key))
        if request is not None and request.digest != head.digest:
            raise RequestError(
                422,
                f"the Idempotency-Key {head.key!r} was already used with another body\n"
                "  hint: use a new key for each request; reuse one only to retry",
            )
        return request

    def is_pending(self, head: EventsHead) -> bool:
        """Return whether the request with the same key is in the current, unwritten group."""
        return _key(head, head.key) in self._new_requests

    def record(self, head: EventsHead, first: int, count: int) -> None:
        """Remember a request."""
        key = _key(head, head.key)
        self.requests[key] = PreviousRequest(head.digest, first, count, head.rejected)
        self._new_requests.add(key)

    def unseen(self, head: EventsHead, rows: Sequence[dict[str, Any]]) -> tuple[list[int], bool]:
        """Return the rows of events with new ids, and remember the ids; also return whether a
        repeated id is in the current, unwritten group.
        """
        places, is_pending = [], False
        for index, row in enumerate(rows):
            id_ = row.get("id")
            if id_ is not None:
                key = _key(head, f"{type(id_).__name__}:{id_}")
                if key in self.ids:
                    is_pending = is_pending or key in self._new_ids
                    continue
                self.ids[key] = None
                self._new_ids.add(key)
            places.append(index)
        return places, is_pending

    def check_source(self, head: EventsHead, follows: int) -> None:
        """Reject events that don't directly follow the source's read position, so that each event
        is written once, in order.
        """
        before = self.offsets.get(_key(head, head.source), 0)
        if before != follows:
            raise RequestError(
                409, f"{head.source} was read up to {before}; given: the part after {follows}"
            )

    def read_from(self, tenant: str, space: str, prefix: str) -> dict[str, int]:
        """Return the read positions of a space's sources with this name prefix."""
        begin = f"{tenant}/{space}/{prefix}"
        offsets = self.offsets.items()
        return {key.removeprefix(begin): at for key, at in offsets if key.startswith(begin)}

    def marks_from(self, tenant: str, space: str, prefix: str) -> dict[str, bytes]:
        """Return the checksums of a space's sources with this name prefix."""
        begin = f"{tenant}/{space}/{prefix}"
        marks = self.marks.items()
        return {
            key.removeprefix(begin): bytes.fromhex(mark)
            for key, mark in marks
            if key.startswith(begin)
        }

    def note_source(self, head: EventsHead) -> None:
        """Record the read position of a source."""
        key = _key(head, head.source)
        self._old_offsets.setdefault(key, (self.offsets.get(key), self.marks.get(key, "")))
        self.offsets[key] = head.upto
        if head.mark:
            self.marks[key] = head.mark

    def replay(self, first: int, head: EventsHead, lines: Sequence[bytes]) -> None:
        """Restore the state from a unit of the log."""
        self.begin()
        if head.key:
            self.record(head, first, len(lines))
        if head.source:
            self.note_source(head)
        if head.dedup:
            try:
                self.unseen(head, rows_of(lines, head.form))
            except RecursionError:  # an id that an earlier version accepted is too deep
                self.unseen(head, rows_of([shallow(line) for line in lines], head.form))


def _key(head: EventsHead, name: str) -> str:
    return f"{head.tenant}/{head.space}/{name}"
