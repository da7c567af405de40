"""Which covering index: by name, or by what is known beforehand.

A set is empty when its index is chosen, so `auto` has no boxes to look at; and it needs none. In
benchmarks/cover.py `blocks` is the quickest on every workload and at every size: with a few boxes
it is a scan that takes 64 at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rangecast.cover.blocks.index import Blocks
from rangecast.cover.index import Index
from rangecast.cover.papers.kdtree import KdTree
from rangecast.cover.papers.zcurve import ZCurve
from rangecast.cover.scan import Scan
from rangecast.model.index_options import NO_OPTIONS, read_index


class Plan(NamedTuple):
    """An index, and how it is used."""

    name: str
    build: Callable[[int], Index]
    roots_only: bool
    """Whether it holds the roots alone if that is enough; the paper's hold everything."""


INDEXES: dict[str, Plan] = {
    "scan": Plan("scan", Scan, False),
    "kdtree": Plan("kdtree", KdTree, False),
    "zcurve": Plan("zcurve", ZCurve, False),
    "blocks": Plan("blocks", Blocks, True),
}


def choose(index: str) -> Plan:
    """Return the index of this name."""
    name = read_index(index, dict.fromkeys(("auto", *INDEXES), NO_OPTIONS)).name
    return INDEXES["blocks" if name == "auto" else name]
