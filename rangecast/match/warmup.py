"""Matching index that answers at once, while the kernels are still being compiled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from rangecast.kernels.ahead import WHY, Interim, starts_with_numpy
from rangecast.kernels.arrays import F64, I32
from rangecast.match.choose import Index, build, choose
from rangecast.match.result import MatchRows
from rangecast.match.scan import Scan
from rangecast.match.slabs.lanes import search_batch
from rangecast.match.terms.index import select
from rangecast.match.terms.search import search
from rangecast.model.answers.answerer import Choice
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.verification.places import without_places

_VERB = "match"


def begin(boxes: Boxes, index: str = "auto") -> tuple[Index, Choice]:
    """Return an index that answers before the kernels are compiled, and why it was chosen."""
    plain = index == "auto" and without_places(boxes) is boxes
    if plain and starts_with_numpy(boxes.lo.size, _VERB, search_batch):
        return WarmupIndex(boxes), Choice(Scan.name, WHY)
    choice = choose(boxes, index)
    return build(boxes, choice.name), choice


def begin_selection(boxes: Boxes, index: str = "auto") -> Index:
    """Return an index that selects by the texts of boxes, as soon as the kernels are compiled."""
    has_texts = boxes.space is not None and bool(boxes.space.patterns)
    is_selected = has_texts and without_places(boxes) is not boxes
    if is_selected and starts_with_numpy(boxes.lo.size, _VERB, search):
        return WarmupSelection(boxes, index)
    return _selection(boxes, index)


def _selection(boxes: Boxes, index: str) -> Index:
    selected: Index = select(boxes, lambda free: begin(free, index)[0])
    return selected


class WarmupIndex:
    """Index that starts as a plain scan, then switches to the index that `auto` chooses."""

    name = "warmup"

    def __init__(self, boxes: Boxes):
        self.boxes = boxes
        self.interim = Interim[Index](_VERB, search_batch, Scan(boxes), partial(build, boxes))

    def __reduce__(self) -> tuple[Any, ...]:
        return WarmupIndex, (self.boxes,)

    @property
    def memory(self) -> int:
        """Size in bytes of the boxes, and of the index after the switch."""
        built = self.interim.built
        return self.interim.plain.memory + (0 if built is None else built.memory)

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        return self._for(len(points)).match(points)

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in chunks of bounded size."""
        return self._for(len(points)).stream(points)

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event."""
        return self._for(1).match_one(point)

    def _for(self, events: int) -> Index:
        """Return the index to use for this many events."""
        return self.interim.answering(events * self.boxes.lo.size)


class WarmupSelection(WarmupIndex):
    """Index over ranges alone until the kernels that select by terms are compiled."""

    def __init__(self, boxes: Boxes, index: str):
        self.boxes, self._index = boxes, index
        plain, _ = begin(without_places(boxes), index)
        self.interim = Interim[Index](_VERB, search, plain, partial(_selection, boxes, index))

    def __reduce__(self) -> tuple[Any, ...]:
        return WarmupSelection, (self.boxes, self._index)
