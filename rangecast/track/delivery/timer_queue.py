"""Timer queue: names by the time at which they are due."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

_MIN_ENTRIES = 64
"""Entries up to which outdated ones are kept."""
_Name = TypeVar("_Name", bound=Hashable)


class TimerQueue(Generic[_Name]):
    """Names by due time: a heap, in which entries that were replaced or discarded are skipped."""

    def __init__(self) -> None:
        self.visited = 0
        """Entries so far that were taken off the heap."""
        self._due: dict[_Name, int] = {}
        self._heap: list[tuple[int, str, _Name]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, name: _Name, due: int) -> None:
        """Set the due time of a name."""
        if self._due.get(name) == due:
            return
        self._due[name] = due
        heappush(self._heap, (due, repr(name), name))
        if len(self._heap) > 2 * len(self._due) + _MIN_ENTRIES:
            self._heap = [(at, repr(name), name) for name, at in self._due.items()]
            heapify(self._heap)

    def discard(self, name: _Name) -> None:
        """Remove a name, if it is there."""
        self._due.pop(name, None)

    def next(self) -> int | None:
        """Return the earliest due time."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
            self.visited += 1
        return self._heap[0][0] if self._heap else None

    def take(self, limit: int) -> Iterator[_Name]:
        """Remove and yield the names that are due by a moment, in order of time, then of name."""
        while (due := self.next()) is not None and due <= limit:
            _, _, name = heappop(self._heap)
            self.visited += 1
            del self._due[name]
            yield name
