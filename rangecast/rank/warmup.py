"""Ranking index that answers at once, while the kernels are still being compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

from rangecast.kernels.ahead import WHY, Interim, starts_with_numpy
from rangecast.kernels.arrays import F64
from rangecast.model.answers.answerer import Choice
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.verification.places import without_places
from rangecast.rank.choose import Index, best_near, best_spans, build, choose
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.result import Best, Span
from rangecast.rank.scan import Scan
from rangecast.rank.slabs.exact import search_exact
from rangecast.rank.slabs.relaxed import search_relaxed

_VERB = "rank"
_COST_FACTOR = 4
"""Times what a comparison of matching takes, as weights are added up and sorted."""


def begin(
    boxes: Boxes, index: str = "auto", *, relaxed: bool = False, combine: str = "sum"
) -> tuple[Index, Choice]:
    """Return an index that answers before the kernels are compiled, and why it was chosen."""
    choice = choose(boxes, index, relaxed=relaxed)
    kernel = search_relaxed if relaxed else search_exact
    plain = index == "auto" and without_places(boxes) is boxes
    if plain and starts_with_numpy(boxes.lo.size, _VERB, kernel):
        return WarmupIndex(boxes, relaxed=relaxed, combine=combine), Choice(Scan.name, WHY)
    return build(boxes, choice.name, relaxed=relaxed, combine=combine), choice


class WarmupIndex:
    """Index that starts as a plain scan, then switches to slabs."""

    name = "warmup"

    def __init__(self, boxes: Boxes, *, relaxed: bool = False, combine: str = "sum"):
        self.boxes = boxes
        self._how: dict[str, Any] = {"relaxed": relaxed, "combine": combine}
        self.interim = Interim[Index](
            _VERB,
            search_relaxed if relaxed else search_exact,
            Scan(boxes, **self._how),
            partial(build, boxes, **self._how),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(WarmupIndex, **self._how), (self.boxes,)

    @property
    def memory(self) -> int:
        """Size in bytes of the boxes, and of the index after the switch."""
        built = self.interim.built
        return self.interim.plain.memory + (0 if built is None else built.memory)

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event."""
        comparisons = _COST_FACTOR * len(points) * self.boxes.lo.size
        return self.interim.answering(comparisons).best(points, k, liveness=liveness)

    def best_near(self, points: F64, k: int, tolerances: F64, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event in relaxed ranking, with a tolerance per attribute."""
        comparisons = _COST_FACTOR * len(points) * self.boxes.lo.size
        index = self.interim.answering(comparisons)
        return best_near(index, points, k, tolerances, liveness)

    def best_spans(self, lo: F64, hi: F64, k: int, span: Span, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of events with spans; wait for the kernels to compile."""
        return best_spans(self.interim.wait_until_built(), lo, hi, k, span, liveness)
