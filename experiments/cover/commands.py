"""Subscribe and unsubscribe commands as paper 000 has them, and what plays them.

`play` times the commands alone: their boxes are stored beforehand.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from rangecast.cover.choose import INDEXES
from rangecast.cover.coverset import CoverSet
from rangecast.cover.live import Live, RowMessages
from rangecast.kernels.arrays import I64, U8
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.workloads import generate


class Trace(NamedTuple):
    """Commands: every subscription comes once, some go."""

    boxes: Boxes
    ids: I64
    comes: U8


class Played(NamedTuple):
    """The set after a trace, and the messages that it sent."""

    live: Live
    sent: RowMessages

    def work(self, column: int) -> float:
        """Return how many nodes were visited, or points compared, by all commands."""
        return float(self.live.store.arrays.work[:4, column].sum())


def live_set(index: str, dimensions: int, k: int = 1, *, late: bool = True) -> Live:
    """Return an empty set, its kernels compiled."""
    _compile(index, dimensions)
    plan = INDEXES[index]
    roots_only = plan.roots_only and k == 1
    return Live(plan.build(dimensions), dimensions, k, roots_only=roots_only, late=late)


def play(trace: Trace, index: str, k: int = 1, *, late: bool = True) -> Callable[[], Played]:
    """Store the boxes of a trace in a new set; return what plays the commands."""
    boxes = trace.boxes
    live = live_set(index, boxes.dimensions, k, late=late)
    rows = live.new_rows(boxes.lo, boxes.hi, boxes.owner, boxes.rows)
    return lambda: Played(live, live.do(rows[trace.ids], trace.comes))


@cache
def _compile(index: str, dimensions: int) -> None:
    """Let the kernels, those of a rebuild too, be there before anything is timed."""
    ends = np.sort(np.random.default_rng(0).random((2000, dimensions, 2)), axis=2)
    graph = CoverSet(Space(Number(f"a{j}") for j in range(dimensions)), index=index)
    graph.subscribe_many(Boxes.of(ends[..., 0], ends[..., 1]))
    graph.unsubscribe_many(range(10))
    graph.subscribe(-1, (ends[0, :, 0], ends[0, :, 1]))
    graph.unsubscribe(-1)


def paper_trace(
    commands: int, attributes: int, share: float = 0.15, seed: int = 0, segment: str = "ends"
) -> Trace:
    """Return the commands of section V-A."""
    sizes = {"commands": commands, "attributes": attributes, "events": 1}
    made = generate("covering", seed=seed, unsubscribe_share=share, segment=segment, **sizes)
    table = made.tables["commands"]
    words = table["command"].to_numpy() == "subscribe"
    return Trace(made.boxes, table["id"].to_numpy(), words.astype(np.uint8))


def digest(played: Played) -> int:
    """Return a number by which the messages of two runs can be compared."""
    found = 0
    for column in played.sent[:3]:
        found = zlib.crc32(np.ascontiguousarray(column).tobytes(), found)
    return found
