"""Choice of the covering index: by name, or by default.

A set is empty when its index is chosen, so `auto` has no boxes to look at; and it needs none. In
benchmarks/cover.py `blocks` is the quickest on every workload and at every size: with a few boxes
it is a scan that takes 64 at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rangecast.cover.blocks.index import Blocks
from rangecast.cover.index import Index
from rangecast.cover.papers.kdtree import KdTree
from rangecast.cover.papers.zcurve import ZCurve
from rangecast.cover.scan import Scan
from rangecast.model.index_options import NO_OPTIONS, NamedIndex, Options, read_index, whole


class Plan(NamedTuple):
    """A covering index, and how the graph uses it."""

    name: str
    build: Callable[..., Index]
    roots_only: bool
    """Whether it stores only the roots where that is enough; the paper's indexes store
    everything.
    """


INDEXES: dict[str, Plan] = {
    "scan": Plan("scan", Scan, False),
    "kdtree": Plan("kdtree", KdTree, False),
    "zcurve": Plan("zcurve", ZCurve, False),
    "blocks": Plan("blocks", Blocks, True),
}


OPTIONS: dict[str, Options] = {
    **dict.fromkeys(("auto", *INDEXES), NO_OPTIONS),
    "kdtree": {"overflow": whole("overflow", 2), "underflow": whole("underflow", 0)},
}
"""Options of each index: boxes past which a bucket splits, and below which it is merged."""


def check_index(index: str) -> NamedIndex:
    """Return the index that a text such as `kdtree:overflow=64` names; reject any other text."""
    return read_index(index, OPTIONS, " for covering")


def choose(index: str) -> Plan:
    """Return the index of this name, with its options."""
    name, arguments = check_index(index)
    if name == "auto":
        return INDEXES["blocks"]
    plan = INDEXES[name]
    return plan._replace(name=index, build=partial(plan.build, **arguments))
