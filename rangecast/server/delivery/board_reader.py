"""Read the log for a consumer of a board: the board as of its cursor, then the log from there.

Every change in the log records the previous state of its object. So the objects at a past seq are
the current ones, except that each object changed since then has the previous state recorded in its
first change after that seq.
"""

from __future__ import annotations

import threading
from collections import deque

from rangecast.server.delivery.log_reader import CHUNK
from rangecast.server.delivery.messages import Batch, BoardMessage, Gap
from rangecast.server.log.base import Log, Unit
from rangecast.server.state.board_index import BoardIndex
from rangecast.server.state.boards import BoardEntry, PlacedObject, updates_of, was_of
from rangecast.server.state.edits import EDITS, UPDATES, DeleteInterest, PutInterest, edits_of
from rangecast.server.state.entries import Consumer


class BoardReader:
    """Reads the log for one consumer of a board, considering only that consumer's interests."""

    def __init__(self, log: Log, consumer: Consumer, entry: BoardEntry):
        self._log = log
        self._consumer = consumer
        self._entry = entry
        self._index: BoardIndex | None = None
        self._at = 0
        """The messages up to this seq were returned."""
        self._carried = 0
        """The index has all up to this seq."""
        self._found: deque[BoardMessage] = deque()
        """Messages between those two."""
        self._one = threading.Lock()

    def read(self, after: int, durable: int, limit: int) -> Batch:
        """Return up to `limit` durable messages after a seq."""
        with self._one:
            return self._read(after, durable, limit)

    def _read(self, after: int, durable: int, limit: int) -> Batch:
        gap = None
        if after < self._log.first - 1:
            gap = Gap(after, self._log.first - 1)
            after = gap.upto
        if self._index is None or self._at != after:
            self._begin(after)
        if not self._found:
            for unit in self._log.read(self._carried, CHUNK):
                if unit.last > durable:
                    break
                if unit.first > self._carried + 1:  # retention was quicker, or a part is missing
                    if self._found:
                        break  # reported by the next read
                    gap = Gap(after if gap is None else gap.after, unit.first - 1)
                    after = gap.upto
                    self._begin(after)
                self._apply_unit(unit)
                self._carried = unit.last
                if len(self._found) >= limit:
                    break
        messages = [self._found.popleft() for _ in range(min(limit, len(self._found)))]
        self._at = messages[-1].seq if self._found else max(after, self._carried)
        return Batch([*messages], self._at, gap)

    def _begin(self, after: int) -> None:
        """Rebuild the board as of a seq."""
        objects: dict[str, PlacedObject] = dict(
            self._entry.objects
        )  # of now; the log has all until then
        last, at = self._log.last, after
        changed: set[str] = set()
        self._carried = after
        while at < last:
            for unit in self._log.read(at, CHUNK):
                at = unit.last
                if unit.kind != UPDATES:
                    continue
                head, changes = updates_of(unit)
                if (head.tenant, head.board) != (self._entry.tenant, self._entry.name):
                    continue
                if unit.first <= self._entry.since:
                    continue  # of another board of this name
                if head.is_batch and unit.first <= after:
                    self._carried = unit.first - 1  # all of it is made again, at once
                for seq, change in enumerate(changes, unit.first):
                    if seq > self._carried and change.name not in changed:
                        changed.add(change.name)
                        was = was_of(change)
                        if was is None:
                            objects.pop(change.name, None)
                        else:
                            objects[change.name] = was
        mine = [
            interest
            for interest in list(self._consumer.interests)
            if interest.born <= after < interest.died
        ]
        self._index = BoardIndex(self._entry, objects, mine)
        self._at = after
        self._found.clear()

    def _apply_unit(self, unit: Unit) -> None:
        index, entry, mine = self._index, self._entry, self._consumer
        assert index is not None
        board = entry.tenant, entry.name
        messages: list[BoardMessage] = []
        if unit.kind == EDITS:
            put = {
                interest.born: interest
                for interest in list(mine.interests)
                if interest.born >= unit.first
            }
            for seq, edit in enumerate(edits_of(unit), unit.first):
                if seq <= self._carried or not isinstance(edit, PutInterest | DeleteInterest):
                    continue
                if (edit.tenant, edit.board) == board:
                    index.remove(edit.name)
                if seq in put:
                    index.put(put[seq])
                    messages.append(index.first_list(put[seq], seq)[1])
        elif unit.kind == UPDATES:
            head, changes = updates_of(unit)
            if (head.tenant, head.board) == board and unit.first > entry.since:
                skip = max(0, self._carried + 1 - unit.first)
                first, unseen = unit.first + skip, changes[skip:]
                updated = index.update(unseen, first, head.is_batch, lambda _: True)
                messages += [message for _, message in updated]
        self._found.extend(note for note in messages if note.seq > self._at)
