"""Shared parts of the experiments of paper 002: rectangles, index, and how storage is counted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from experiments.timing import best_of
from rangecast.kernels.arrays import F64
from rangecast.match.papers.vcr.index import Vcr
from rangecast.model.boxes import Boxes
from rangecast.workloads import generate

MODERATE, LARGE = (300, 200), (2_000, 1_500)
"""The paper gives the areas of its two spaces, 60,000 and 3,000,000, not their sides."""
SIDES = (16, 8)
"""The largest sides of a VCR for boxes of up to 40 x 20, as the paper takes them."""
SUBSCRIPTIONS = {
    "tiny": (500, 1_000),
    "quick": (32_000, 64_000),
    "full": (32_000, 64_000, 128_000, 256_000),
}
EVENTS = {"tiny": 100, "quick": 10_000, "full": 100_000}


class Streaming(Protocol):
    """An index that hands out what events match in pieces."""

    def stream(self, points: F64) -> Any:
        """Yield pieces."""


@lru_cache(2)
def made(
    seed: int,
    n: int,
    events: int,
    space: tuple[int, int],
    crowd: float,
    widest: tuple[int, int] = (40, 20),
) -> tuple[Boxes, F64]:
    """Return boxes and events, 90% of them in a middle of the share `crowd`; 1: uniform."""
    workload = generate(
        "crowded-rectangles",
        seed=seed,
        subscriptions=n,
        events=events,
        width=space[0],
        height=space[1],
        max_width=widest[0],
        max_height=widest[1],
        beta=crowd,
    )
    return workload.boxes, workload.points


def index(
    boxes: Boxes, space: tuple[int, int], sides: tuple[int, int] = SIDES, **options: Any
) -> Vcr:
    """Return the index of the paper: unit cells, both attributes, no limit of pieces."""
    grid = [np.arange(length) for length in space]
    return Vcr(boxes, axes=(0, 1), edges=grid, sides=sides, pieces=1 << 40, **options)


def matches(matcher: Streaming, points: F64) -> int:
    """Return how many rows all events match, read piece by piece as they come."""
    return sum(len(piece.rows) for _, piece in matcher.stream(points))


def searched(matcher: Streaming, points: F64) -> tuple[int, float]:
    """Return how many rows all events match, and the microseconds of an event.

    Many events are their own average; of few the best of three runs is taken.
    """
    matches(matcher, points[:100])
    best = best_of(lambda: matches(matcher, points), 1 if len(points) >= 20_000 else 3)
    return best.answer, best.least / len(points) * 1e6


def stored(matcher: Vcr, boxes: Boxes) -> dict[str, float]:
    """Return megabytes: as the paper counts, and all arrays but the boxes."""
    held = boxes.lo.nbytes + boxes.hi.nbytes + boxes.owner.nbytes
    return {
        "MB as paper": (4 * matcher.slots + 8 * matcher.entries) / 1e6,
        "MB as is": (matcher.memory - held) / 1e6,
    }
