"""Choose and build the ranking index for a set of subscriptions.

Slabs. They were the fastest in every case that was measured: one attribute or many, exact and
relaxed, a few matches per event or many (docs/reference/benchmarks/rank.md). On one attribute,
ranked by score, slabs make lists for small cells of the line, which no other structure comes near:
that pays whatever the ranges are, and memory is bounded, so there is nothing to choose. The
structures of the paper are here to compare with, and for their iterators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

from rangecast.device.devices import check_device_index
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.answers.answerer import Choice
from rangecast.model.boxes import Boxes
from rangecast.model.index_options import NO_OPTIONS, NamedIndex, Options, read_index
from rangecast.model.shapes.verification.places import without_places
from rangecast.rank.device import NOT_ON_A_DEVICE, OnDevice
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.papers.interval import interval
from rangecast.rank.papers.ir import IrTrees
from rangecast.rank.papers.rtree import TREE_OPTIONS, rtree
from rangecast.rank.papers.segment import segment
from rangecast.rank.papers.sopt import sopt
from rangecast.rank.papers.trees import Trees
from rangecast.rank.result import Best, Span
from rangecast.rank.scan import Scan
from rangecast.rank.scores.combine import check_combine
from rangecast.rank.scores.tolerances import not_tolerant
from rangecast.rank.slabs.index import Slabs
from rangecast.rank.verified import Verified, VerifiedScan


class Index(Protocol):
    """Protocol of a ranking index."""

    name: str

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, best first."""

    @property
    def memory(self) -> int:
        """Size of its arrays in bytes."""


@runtime_checkable
class TolerantIndex(Protocol):
    """Protocol of a ranking index that ranks with tolerances."""

    def best_near(self, points: F64, k: int, tolerances: F64, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event in relaxed ranking, with a tolerance per attribute."""


def best_near(index: Index, points: F64, k: int, tolerances: F64, liveness: Liveness) -> Best:
    """Return the top k of each event; an error if there are tolerances and the index has none."""
    if not len(tolerances):
        return index.best(points, k, liveness=liveness)
    if not isinstance(index, TolerantIndex):
        raise not_tolerant(index.name)
    return index.best_near(points, k, tolerances, liveness=liveness)


@runtime_checkable
class SpanIndex(Protocol):
    """Protocol of a ranking index that ranks events with spans."""

    def best_spans(self, lo: F64, hi: F64, k: int, span: Span, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of events that are spans, (events, d) from lo to hi, both included."""


def check_spans(index: Index) -> SpanIndex:
    """Return an index that ranks spans; raise an error if it doesn't."""
    if isinstance(index, OnDevice):
        raise UsageError(NOT_ON_A_DEVICE)
    if not isinstance(index, SpanIndex):
        raise UsageError("spans can't be ranked by subscriptions with shapes")
    return index


def best_spans(index: Index, lo: F64, hi: F64, k: int, span: Span, liveness: Liveness) -> Best:
    """Return the top k of each event with spans; an error if the index ranks none."""
    return check_spans(index).best_spans(lo, hi, k, span, liveness=liveness)


INDEXES: dict[str, Callable[..., Index]] = {
    "scan": Scan,
    "segment": partial(Trees, "segment", segment),
    "interval": partial(Trees, "interval", interval),
    "interval-ends": partial(Trees, "interval-ends", partial(interval, by_ends=True)),
    "rtree": partial(Trees, "rtree", rtree),
    "ir": IrTrees,
    "sopt": partial(Trees, "sopt", sopt),
    "slabs": Slabs,
}
"""Every ranking structure by its name; built from `Boxes`, `relaxed`, `combine` and its options."""
OPTIONS: dict[str, Options] = {
    **dict.fromkeys(("auto", *INDEXES), NO_OPTIONS),
    **dict.fromkeys(("rtree", "ir", "sopt"), TREE_OPTIONS),
}
"""Options of each ranking structure."""


def check_index(index: str) -> NamedIndex:
    """Parse an index name such as `ir:branching=20`; raise an error if it is invalid."""
    return read_index(index, OPTIONS, " for ranking")


def choose(
    boxes: Boxes, index: str = "auto", *, relaxed: bool = False, device: str | None = None
) -> Choice:
    """Return the requested index; `auto` chooses by the boxes. A device has its own index."""
    check_index(index)
    if device is not None:
        check_device_index(device, index)
        return Choice(device, "it was requested")
    if index != "auto":
        return Choice(index, "it was requested")
    by = "by the weights of matching attributes" if relaxed else "by score"
    if boxes.dimensions == 1 and not relaxed:
        by += ", from lists of the best of each cell"
    return Choice("slabs", f"{len(boxes.lo):,} boxes on {boxes.dimensions} attributes, ranked {by}")


def build(
    boxes: Boxes,
    index: str = "auto",
    *,
    relaxed: bool = False,
    combine: str = "sum",
    device: str | None = None,
) -> Index:
    """Build the index that `choose` selects."""
    check_combine(combine, relaxed=relaxed)
    free = without_places(boxes)
    if device is not None:
        check_device_index(device, index)
        built: Index = OnDevice(free, device, relaxed=relaxed)
        return built if free is boxes else Verified(built, boxes)
    named = check_index(choose(free, index, relaxed=relaxed).name)
    if free is not boxes and relaxed:
        return VerifiedScan(boxes, combine)
    built = INDEXES[named.name](free, relaxed=relaxed, combine=combine, **named.arguments)
    return built if free is boxes else Verified(built, boxes)
