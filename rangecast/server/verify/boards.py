"""Verification of the lists delivered to a board's consumer: recomputed after every change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

import numpy as np

from rangecast.errors import RangecastError
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.verification.places import bounds_hold, places_of
from rangecast.model.space import Space
from rangecast.server.log.base import Unit
from rangecast.server.state.boards import BoardEntry, updates_of
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteBoard,
    DeleteConsumer,
    DeleteInterest,
    PutBoard,
    PutConsumer,
    PutInterest,
)

Expected = tuple[int, list[str]]
"""A seq, and the lists that changed by it, in words."""


def in_words(interest: str, best: Iterable[tuple[str, float]]) -> str:
    """Return a list as text."""
    return f"{interest}: " + ", ".join(f"{id_}={value:g}" for id_, value in best)


class BoardOracle:
    """The interests of one consumer and their lists, derived from the edits of a log."""

    def __init__(self, tenant: str, consumer: str):
        self.board: str | None = None
        """The board of the consumer, if it is of one."""
        self._tenant = tenant
        self._consumer = consumer
        self._start = 0
        self._boards: dict[str, BoardEntry] = {}
        self._interests: dict[str, PutInterest] = {}
        self._lists: dict[str, list[Any]] = {}

    def edits(self, edits: Sequence[AnyEdit], first: int) -> Iterator[Expected]:
        """Apply edits; yield the lists of new interests."""
        for seq, edit in enumerate(edits, first):
            if edit.tenant != self._tenant:
                continue
            self._apply(edit, seq)
            is_mine = isinstance(edit, PutInterest) and edit.name in self._interests
            if is_mine and isinstance(edit, PutInterest) and edit.board == self.board:
                self._lists[edit.name] = self._list(edit)
                if seq > self._start:
                    yield seq, [self._difference_text(edit.name)]

    def _apply(self, edit: AnyEdit, seq: int) -> None:
        match edit:
            case PutBoard():
                self._boards.setdefault(edit.name, BoardEntry(edit, seq))
            case DeleteBoard():
                del self._boards[edit.name]
            case PutConsumer() if edit.name == self._consumer and edit.board:
                if self.board is None:
                    self.board = edit.board
                    self._start = seq if edit.start < 0 else edit.start
                elif edit.start >= 0:
                    raise RangecastError(
                        f"the consumer was moved at seq {seq}, so its messages can't be verified"
                    )
            case DeleteConsumer() if edit.name == self._consumer:
                self._interests.clear()
            case PutInterest() | DeleteInterest() if edit.board == self.board:
                self._interests.pop(edit.name, None)
                if isinstance(edit, PutInterest) and edit.consumer == self._consumer:
                    self._interests[edit.name] = edit

    def updates(self, unit: Unit) -> Iterator[Expected]:
        """Apply changes of objects; yield the lists that they alter."""
        head, changes = updates_of(unit)
        if head.tenant != self._tenant:
            return
        entry = self._boards[head.board]
        step = len(changes) if head.is_batch else 1
        for at in range(0, len(changes), step):
            entry.take_some(changes[at : at + step], unit.first + at)
            if head.board != self.board:
                continue
            changed = []
            for name, interest in self._interests.items():
                before, self._lists[name] = self._lists[name], self._list(interest)
                if self._lists[name] != before:
                    changed.append(self._difference_text(name))
            seq = unit.first + at + step - 1
            if changed and seq > self._start:
                yield seq, changed

    def _list(self, interest: PutInterest) -> list[Any]:
        entry = self._boards[interest.board]
        if entry.space is None:
            lo, hi = interest.position_lo, interest.position_hi
            boxes = [([-inf if lo is None else lo], [inf if hi is None else hi])]
        else:
            bounds = Filter.parse(interest.filter, entry.space).arrays()
            boxes = [*zip(*(bound.tolist() for bound in bounds), strict=True)]
        sign = -1 if entry.made.descending else 1
        inside = [
            (sign * object_.value, object_.arrival, name, object_)
            for name, object_ in entry.objects.items()
            if any(_lies_in(entry.space, object_.place, lo, hi) for lo, hi in boxes)
        ]
        best = sorted(inside)[: interest.k or entry.made.k]
        return [(name, item.value, item.place) for _, _, name, item in best]

    def _difference_text(self, name: str) -> str:
        return in_words(name, [(id_, value) for id_, value, _ in self._lists[name]])


def _lies_in(
    space: Space | None, position: Sequence[float], lo: Sequence[float], hi: Sequence[float]
) -> bool:
    """Return whether a point lies in a box, with its shapes and arithmetic."""
    places = None if space is None else places_of(space)
    verified = () if places is None else places.axes
    inside = all(
        axis in verified or low <= at <= high
        for axis, (low, at, high) in enumerate(zip(lo, position, hi, strict=True))
    )
    if places is None or not inside:
        return inside
    return bounds_hold(places, *map(np.array, (lo, hi, position)))
