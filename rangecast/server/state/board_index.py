"""Index of a board: which lists a change of objects affects, and their new contents.

A consumer gets a message for each change that alters the list of one of its interests. The message
has the whole list, so the consumer needs no earlier state. `notify.Board` returns the interests
that a change may affect; their previous lists are computed from the new ones. So messages depend on
the log alone, not on how the board was built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET

from rangecast.model.sets.members import Id
from rangecast.notify.tables import Change, ObjectColumns
from rangecast.server.delivery.messages import BoardMessage
from rangecast.server.state.boards import (
    BoardEntry,
    Interest,
    ObjectChange,
    PlacedObject,
    carried_out,
    empty_board,
)

_encode = msgspec.json.Encoder().encode
Addressed = tuple[int, BoardMessage]
"""Number of a consumer, and its message."""
Listened = Callable[[int], bool]
"""Whether a consumer has a listener."""


class BoardIndex:
    """Objects and interests of a board at one seq. Any thread may query lists."""

    def __init__(
        self, entry: BoardEntry, objects: Mapping[str, PlacedObject], interests: Iterable[Interest]
    ):
        self._entry = entry
        self._objects = dict(objects)
        self._interests: dict[str, Interest] = {}
        self._board = empty_board(entry.made, entry.space, _columns(entry, self._objects))
        self._one = threading.RLock()
        for interest in interests:
            self.put(interest)

    def __contains__(self, interest: str) -> bool:
        return interest in self._interests

    def put(self, interest: Interest) -> None:
        """Add an interest, or replace the one with this id."""
        with self._one:
            self.remove(interest.name)
            self._board.subscribe(interest.name, *interest.where, k=interest.k or None)
            self._interests[interest.name] = interest

    def remove(self, interest: str) -> None:
        """Remove an interest, if it exists."""
        with self._one:
            if self._interests.pop(interest, None) is not None:
                self._board.unsubscribe(interest)

    def first_list(self, interest: Interest, seq: int) -> Addressed:
        """Return the first message of a new interest, with its consumer."""
        with self._one:
            best = self._board.best(*interest.where, k=self._wants(interest))
        lists = {interest.id: self._shown(best)}
        return interest.consumer, BoardMessage.of(seq, self._entry.name, lists)

    def update(
        self, changes: Sequence[ObjectChange], first: int, is_batch: bool, listened: Listened
    ) -> Iterator[Addressed]:
        """Apply changes, one after another or as a batch; yield messages with their consumers."""
        step = len(changes) if is_batch else 1
        for at in range(0, len(changes), step):
            piece = changes[at : at + step]
            with self._one:
                lists = self._updated(piece, first + at, is_batch, listened)
            for consumer, messages in lists.items():
                yield consumer, BoardMessage.of(first + at + step - 1, self._entry.name, messages)

    def best(self, where: tuple[Any, ...], k: int | None) -> list[dict[str, Any]]:
        """Return the top k objects of a range or filter."""
        with self._one:
            return self._shown(self._board.best(*where, k=k))

    def _updated(
        self, changes: Sequence[ObjectChange], first: int, is_batch: bool, listened: Listened
    ) -> dict[int, dict[Id, Any]]:
        """Apply changes; return the changed lists, by consumer."""
        before: dict[str, PlacedObject | None] = {}
        messages = []
        for at, change in enumerate(changes):
            old = self._objects.get(change.name)
            before.setdefault(change.name, old)
            carried_out(self._objects, change, first + at, self._entry.space)
            new = self._objects.get(change.name)
            position = None if change.position is UNSET else change.position
            messages.append(Change(change.name, None if new is None else new.value, position))
        make = self._board.update_batch if is_batch else self._board.update_many
        lists: dict[int, dict[Id, Any]] = {}
        for name in self._board.affected_interests(make(messages)):
            interest = self._interests[name]
            if not listened(interest.consumer):
                continue
            changed = self._changed_list(interest, before)
            if changed is not None:
                lists.setdefault(interest.consumer, {})[interest.id] = changed
        return lists

    def _changed_list(self, interest: Interest, before: Mapping[str, PlacedObject | None]) -> Any:
        """Return the list of an interest; `None` if the changes left it unchanged."""
        k = self._wants(interest)
        best = self._board.best(*interest.where, k=k + len(before))
        old = [(entry.object, self._objects[entry.object]) for entry in best]
        new = old[:k]
        old = [(name, item) for name, item in old if name not in before]
        gone = [(name, was) for name, was in before.items() if was is not None]
        if gone:
            places = np.array([was.place for _, was in gone])
            inside = self._board.engine.contain(self._board.bounds(interest.name), places)
            old += [gone[at] for at in np.flatnonzero(inside)]
        sign = -1 if self._entry.made.descending else 1
        old.sort(key=lambda item: (sign * item[1].value, item[1].arrival))
        before_and_after = (
            [(item.id, item.value, item.place) for _, item in ranking] for ranking in (old[:k], new)
        )
        if next(before_and_after) == next(before_and_after):
            return None
        return self._shown(best[:k])

    def _wants(self, interest: Interest) -> int:
        return interest.k or self._entry.made.k

    def _shown(self, entries: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "object": self._objects[entry.object].id,
                "value": entry.value,
                "position": entry.position,
            }
            for entry in entries
        ]


def _columns(entry: BoardEntry, objects: Mapping[str, PlacedObject]) -> ObjectColumns:
    """Return objects in the format that a board takes."""
    ids = pa.array(list(objects), pa.large_string())
    ys = np.array([object_.value for object_ in objects.values()], np.float64)
    came = np.array([object_.arrival for object_ in objects.values()], np.int64)
    d = 1 if entry.space is None else len(entry.space)
    at = np.array([object_.place for object_ in objects.values()], np.float64).reshape(len(ys), d)
    return ObjectColumns(ids, at, ys, came)
