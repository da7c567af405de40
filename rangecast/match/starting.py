"""A structure that answers at once, where kernels would first have to be compiled.

Compiling takes longer than comparing every event with every box, for a small set and some thousand
events. So until another process has compiled the kernels (`kernels.ahead`), the plain scan answers;
then the structure that suits the set is built and takes over. The answers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rangecast.kernels.ahead import must_wait, wait
from rangecast.kernels.arrays import F64, I32
from rangecast.match.choose import Index, build, choose
from rangecast.match.result import MatchRows
from rangecast.match.scan import Scan
from rangecast.match.slabs.lanes import search_batch
from rangecast.model.answers import Choice
from rangecast.model.boxes import Boxes

_LARGEST = 1_000_000
"""Bounds of a set, on all attributes, beyond which it waits for its kernels."""
_MOST = 1_500_000_000
"""Comparisons after which waiting is cheaper: some seconds."""
_WHY = "plain comparison, until the kernels of other structures are compiled"


def starts_plainly(boxes: Boxes, index: str) -> bool:
    """Whether a set would have to wait for kernels, and is small enough to do without."""
    small = boxes.lo.size <= _LARGEST
    return index == "auto" and small and must_wait("match", search_batch)


def begin(boxes: Boxes, index: str = "auto") -> tuple[Index, Choice]:
    """Return a structure that answers without compiling first, and why it was chosen."""
    if starts_plainly(boxes, index):
        return Starting(boxes), Choice(Scan.name, _WHY)
    choice = choose(boxes, index)
    return build(boxes, choice.name), choice


class Starting:
    """The plain scan at first, then the structure that `auto` chooses."""

    name = "starting"

    def __init__(self, boxes: Boxes):
        self.boxes = boxes
        self._index: Index | None = None
        self._left = _MOST

    def __reduce__(self) -> tuple[Any, ...]:
        return Starting, (self.boxes,)

    @property
    def memory(self) -> int:
        """Bytes of the boxes, and of the structure that took over."""
        return Scan(self.boxes).memory + (0 if self._index is None else self._index.memory)

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        return self._for(len(points)).match(points)

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in pieces of bounded size."""
        return self._for(len(points)).stream(points)

    def match_one(self, point: F64) -> I32:
        """Return the rows that hold one event."""
        return self._for(1).match_one(point)

    def _for(self, events: int) -> Index:
        """Return what answers so many events."""
        if self._index is not None:
            return self._index
        self._left -= events * self.boxes.lo.size
        if self._left > 0 and must_wait("match", search_batch):
            return Scan(self.boxes)
        wait("match")
        self._index = build(self.boxes)
        return self._index
