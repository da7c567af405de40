"""Matching index over the bounding boxes of shapes, which verifies its candidates.

The index has only the boxes, not the shapes (`rangecast.model.shapes`), so each candidate is
compared again. Work: candidates count as tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.match.result import MatchRows
from rangecast.model.boxes import Boxes, as_points
from rangecast.model.shapes.verification.candidates import (
    CandidateCounts,
    Verifier,
    bounds_of_boxes,
)


class Unverified(Protocol):
    """Protocol of an index that finds candidates."""

    name: str

    def match(self, points: F64) -> MatchRows:
        """Return all candidates of all events."""

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, candidates) in chunks of bounded size."""

    def match_one(self, point: F64) -> I32:
        """Return the candidates of one event."""

    @property
    def memory(self) -> int:
        """Size of all arrays in bytes."""


class Verified:
    """Matching index that verifies the candidates of another index."""

    def __init__(self, index: Unverified, boxes: Boxes):
        assert boxes.space is not None
        self.index = index
        self.name = index.name
        self.space = boxes.space
        self.rows = boxes.rows
        self._verifier = Verifier(boxes.space)
        self._bounds = bounds_of_boxes(boxes)

    @property
    def memory(self) -> int:
        """Size in bytes of the index and of the boxes used to verify candidates."""
        return self.index.memory + self._bounds.memory + self._verifier.memory

    @property
    def counts(self) -> CandidateCounts:
        """Numbers of candidates so far."""
        return self._verifier.counts

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        read, alive = self._verifier.places.readable(points)
        matches = self._verified(self.index.match(read), read)
        del alive  # the texts that were read
        return matches

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in chunks of bounded size."""
        read, alive = self._verifier.places.readable(points)
        for first, matches in self.index.stream(read):
            own_points = read[first : first + len(matches.offsets) - 1]
            yield first, self._verified(matches, own_points)
        del alive  # the texts that were read

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event."""
        points = as_points(point, len(self.space), one=True)[None]
        read, alive = self._verifier.places.readable(points)
        rows = self.index.match_one(read[0])
        matched = self._verified(MatchRows(np.array([0, len(rows)]), rows), read).rows
        del alive  # the texts that were read
        return matched

    def _verified(self, matches: MatchRows, points: F64) -> MatchRows:
        candidates = matches.offsets, matches.rows
        offsets, rows = self._verifier.verified(self._bounds, self.rows, points, *candidates)
        work = matches.work._replace(tested=matches.work.tested + len(matches.rows))
        return MatchRows(offsets, rows, work)
