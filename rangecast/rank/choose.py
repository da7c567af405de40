"""Which structure ranks this set of subscriptions?

Slabs. They were the fastest in every case that was measured: one attribute or many, exact and
relaxed, a few matches an event or many (docs/benchmarks/rank.md has the figures). On one attribute,
ranked by score, slabs make lists for small cells of the line, which no other structure comes near:
that pays whatever the ranges are, and memory is bounded, so there is nothing to choose. The
structures of the paper are here to compare with, and for their iterators.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from rangecast.errors import UsageError, one_of
from rangecast.kernels.arrays import F64
from rangecast.model.answers import Choice
from rangecast.model.boxes import Boxes
from rangecast.rank.combine import check_combine
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.papers.interval import interval
from rangecast.rank.papers.ir import ir
from rangecast.rank.papers.rtree import rtree
from rangecast.rank.papers.segment import segment
from rangecast.rank.papers.sopt import sopt
from rangecast.rank.papers.trees import Trees
from rangecast.rank.result import Best
from rangecast.rank.scan import Scan
from rangecast.rank.slabs.index import Slabs


class Index(Protocol):
    """What every ranking structure does."""

    name: str

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the k best of each event, best first."""

    @property
    def memory(self) -> int:
        """Bytes of its arrays."""


class Kind(Protocol):
    """How a structure is built."""

    def __call__(self, boxes: Boxes, *, relaxed: bool = False, combine: str = "sum") -> Index:
        """Build it for exact or for relaxed ranking, by this combination of weights."""


INDEXES: dict[str, Kind] = {
    "scan": Scan,
    "segment": partial(Trees, "segment", segment),
    "interval": partial(Trees, "interval", interval),
    "interval-ends": partial(Trees, "interval-ends", partial(interval, by_ends=True)),
    "rtree": partial(Trees, "rtree", rtree),
    "ir": partial(Trees, "ir", ir),
    "sopt": partial(Trees, "sopt", sopt),
    "slabs": Slabs,
}
"""Every ranking structure by its name."""


def check_index(index: str) -> None:
    """Refuse a name that is no structure's."""
    known = ["auto", *INDEXES]
    if index not in known:
        raise UsageError(f"no index {index!r} for ranking: {one_of(index, known)}")


def choose(boxes: Boxes, index: str = "auto", *, relaxed: bool = False) -> Choice:
    """Return the structure of this name; `auto` looks at the boxes."""
    check_index(index)
    if index != "auto":
        return Choice(index, "it was asked for")
    by = "by the weights that hold" if relaxed else "by score"
    if boxes.dimensions == 1 and not relaxed:
        by += ", from lists of the best of each cell"
    return Choice("slabs", f"{len(boxes.lo):,} boxes on {boxes.dimensions} attributes, ranked {by}")


def build(
    boxes: Boxes, index: str = "auto", *, relaxed: bool = False, combine: str = "sum"
) -> Index:
    """Return the structure that `choose` says, built."""
    check_combine(combine, relaxed=relaxed)
    name = choose(boxes, index, relaxed=relaxed).name
    return INDEXES[name](boxes, relaxed=relaxed, combine=combine)
