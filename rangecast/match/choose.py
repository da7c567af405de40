"""Which structure for this set of boxes? For now: the one asked for, or the scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from rangecast.errors import UsageError, near
from rangecast.match.cells import Cells
from rangecast.match.hilbert import Hilbert
from rangecast.match.result import Matches, Rows
from rangecast.match.rtree import RTree
from rangecast.match.scan import Scan
from rangecast.match.slabs import Slabs
from rangecast.match.vcr import Vcr
from rangecast.model.boxes import Boxes, Floats


class Index(Protocol):
    """What every matching structure does."""

    name: str

    def match(self, points: Floats) -> Matches:
        """Return all matches of all events."""

    def stream(self, points: Floats) -> Iterator[tuple[int, Matches]]:
        """Yield (first event, matches) in pieces of bounded size."""

    def match_one(self, point: Floats) -> Rows:
        """Return the rows that hold one event."""

    @property
    def memory(self) -> int:
        """Bytes of all its arrays."""


INDEXES: dict[str, Callable[[Boxes], Index]] = {
    "scan": Scan,
    "vcr": Vcr,
    "hilbert": Hilbert,
    "rtree": RTree,
    "slabs": Slabs,
    "cells": Cells,
}
"""Every matching structure by its name."""


def check_index(index: str) -> None:
    """Refuse a name that is no structure's."""
    known = ["auto", *INDEXES]
    if index not in known:
        raise UsageError(f"no index {index!r}: {near(index, known)}")


def build(boxes: Boxes, index: str = "auto") -> Index:
    """Return the structure of this name, built; `auto` looks at the boxes."""
    check_index(index)
    return INDEXES["scan" if index == "auto" else index](boxes)
