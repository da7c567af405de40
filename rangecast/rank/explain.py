"""Explain the rank of a subscription for an event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.boxes import Boxes
from rangecast.rank.scan import Scan
from rangecast.rank.scores.combine import check_combine
from rangecast.rank.scores.tolerances import NO_TOLERANCES


@dataclass(frozen=True)
class Place:
    """Rank of one subscription for one event."""

    rank: int | None
    """From 1 on; `None` if it isn't ranked at all."""
    score: float | None
    better: int
    """Subscriptions before it."""
    level: int
    """Subscriptions before it with the same score, which arrived earlier."""
    relaxed: bool

    @property
    def verdict(self) -> str:
        """Explanation in one line."""
        if self.rank is None:
            missing = "none of its conditions match" if self.relaxed else "it doesn't match"
            return f"not ranked: {missing} this event"
        many = {0: "no better one matches", 1: "1 better one matches"}.get(
            self.better, f"{self.better} better ones match"
        )
        what = "some of this event" if self.relaxed else "this event"
        text = f"{_ordinal(self.rank)}: score {self.score:g}; {many} {what}"
        if self.level:
            text += f", {self.level} of them with the same score but earlier"
        return text


def explain_rank(
    boxes: Boxes,
    row: int,
    point: F64,
    *,
    relaxed: bool = False,
    combine: str = "sum",
    tolerances: F64 = NO_TOLERANCES,
) -> Place:
    """Rank one subscription among all for one event."""
    check_combine(combine, relaxed=relaxed)
    scan = Scan(boxes, relaxed=relaxed, combine=combine)
    rows, scores = scan.best_near(point[None], max(1, boxes.rows), tolerances).of(0)
    places = np.flatnonzero(rows == row)
    if not len(places):
        return Place(None, None, len(rows), 0, relaxed)
    index = int(places[0])
    score = float(scores[index])
    level = int(np.count_nonzero(scores[:index] == score))
    return Place(index + 1, score, index, level, relaxed)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"
