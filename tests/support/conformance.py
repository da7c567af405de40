"""Conformance of matching structures: all give the same answers as the oracle.

A structure is a class that is built from `Boxes` and has `match(points) -> MatchRows`.
`MATCHERS` lists them; adding one there is all it takes to be judged.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from rangecast.match.cells.index import Cells
from rangecast.match.choose import INDEXES, build
from rangecast.match.masked import without
from rangecast.match.papers.hilbert import Hilbert
from rangecast.match.papers.vcr.index import Vcr
from rangecast.match.result import MatchRows
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes


class Matcher(Protocol):
    def match(self, points: np.ndarray) -> MatchRows: ...


def in_little_memory(boxes: Boxes) -> Matcher:
    """Cell lists that must do with few cells."""
    held = boxes.lo.nbytes + boxes.hi.nbytes + boxes.owner.nbytes
    return Cells(boxes, memory=held + 6 * len(boxes.lo) + 200)


MATCHERS: dict[str, Callable[[Boxes], Matcher]] = {
    **INDEXES,
    "cells in little memory": in_little_memory,
    **{
        text: partial(build, index=text)
        for text in (
            "vcr:hash",
            "vcr:overlapped,side=8",
            "vcr:overlapped,hash,side=2x4,cells=9",
            "vcr:hash=no,cells=40",
            "hilbert:bits=3,ranges=2",
            "cells:memory=100MB",
        )
    },
    "vcr coarse": partial(Vcr, sides=(2, 2), cells=6, pieces=3),
    "hilbert in small groups": partial(Hilbert, company=0, ranges=3),
}


def by_hand(boxes: Boxes, points: np.ndarray) -> list[set[int]]:
    """The meaning, spelled out a value at a time: this is what judges the oracle itself."""
    answer = []
    for point in points.tolist():
        rows = set()
        for row, lo, hi in zip(
            boxes.owner.tolist(), boxes.lo.tolist(), boxes.hi.tolist(), strict=True
        ):
            if all(a <= x <= b for a, x, b in zip(lo, point, hi, strict=True)):
                rows.add(row)
        answer.append(rows)
    return answer


def streamed(matcher: Any, points: Any, buffer: int) -> list[set[int]]:
    """Return the rows of each event from a stream of small pieces; each keeps to the buffer."""
    answer: list[list[int]] = [[] for _ in points]
    for first, piece in matcher.stream(points, buffer):
        assert len(piece.rows) <= buffer
        for event in range(len(piece.offsets) - 1):
            answer[first + event] += piece.of(event).tolist()
    assert all(len(rows) == len(set(rows)) for rows in answer)
    return [set(rows) for rows in answer]


def as_sets(matches: MatchRows) -> list[set[int]]:
    """Rows by event; an id that was reported twice is an error of its own."""
    answer = []
    for event in range(len(matches.offsets) - 1):
        rows = matches.of(event).tolist()
        assert len(rows) == len(set(rows)), f"event {event}: a subscription was reported twice"
        answer.append(set(rows))
    return answer


def check_matcher(build: Callable[[Boxes], Matcher], boxes: Boxes, points: np.ndarray) -> None:
    """Same id sets as the oracle, before and after a pickle; inputs left as they were.

    The same without some subscriptions, then without the others as well, beside the whole.
    """
    expected = as_sets(Scan(boxes).match(points))
    before = boxes.lo.copy(), boxes.hi.copy(), boxes.owner.copy(), points.copy()
    matcher = build(boxes)
    assert as_sets(matcher.match(points)) == expected
    assert as_sets(pickle.loads(pickle.dumps(matcher)).match(points)) == expected
    assert as_sets(matcher.match(points[:1])) == expected[:1]
    dead = np.arange(0, boxes.rows, 3)
    some = without(matcher, dead, boxes.rows)
    left = [rows - set(dead.tolist()) for rows in expected]
    assert as_sets(some.match(points)) == left
    assert [set(some.match_one(point).tolist()) for point in points[:3]] == left[:3]
    none = without(some, np.setdiff1d(np.arange(boxes.rows), dead), boxes.rows)
    assert as_sets(none.match(points)) == [set() for _ in points]
    assert as_sets(matcher.match(points)) == expected
    after = boxes.lo, boxes.hi, boxes.owner, points
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
