"""Paper 002, section 3.3: VCR beside R-trees, with boxes that overlap much and little."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results, Values
from experiments.timing import DisagreementError, best_of, timed
from experiments.vcr.workload import (
    EVENTS,
    MODERATE,
    SUBSCRIPTIONS,
    index,
    made,
    searched,
)
from rangecast.kernels.arrays import I64
from rangecast.match.cells.index import Cells
from rangecast.match.result import MatchRows
from rangecast.match.rtree import RTree
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table

CROWDS = {"90%-10%": 0.1, "uniform": 1.0}
PIECE = 2_000
"""Events that the dynamic tree is asked about at once: it gives all their answers."""


def points(size: str) -> Iterator[Point]:
    """Each number of boxes, crowded and not."""
    for n in SUBSCRIPTIONS[size]:
        for crowd in CROWDS:
            yield {"n": n, "events": EVENTS[size], "crowd": crowd}


def measure(seed: int, n: int, events: int, crowd: str) -> dict[str, Any]:
    """Search all indexes; they must find the same number of rows."""
    boxes, where = made(seed, n, events, MODERATE, CROWDS[crowd])
    vcr, packed, cells = index(boxes, MODERATE), RTree(boxes), Cells(boxes)
    found, us = searched(vcr, where)
    row: dict[str, Any] = {"matches": found / events, "vcr": us}
    for name, matcher in (("packed", packed), ("cells", cells)):
        also, row[name] = searched(matcher, where)
        if also != found:
            raise DisagreementError(f"{name} finds {also} rows, VCR {found}")
    few = where[:50]
    row["scan"] = best_of(lambda: Scan(boxes).match(few)).least / len(few) * 1e6
    tree, row["us per insertion"] = _by_insertion(boxes)
    row["us per insertion, vcr"] = _inserted(boxes)
    took = 0.0
    for first in range(0, events, PIECE):
        some = where[first : first + PIECE]
        asked = best_of(partial(tree.intersection_v, some, some), 1)
        took += asked.least
        _agree(asked.answer, vcr.match(some), packed.match(some))
    row["dynamic"] = took / events * 1e6
    tree.close()
    return row | {"MB vcr": vcr.memory / 1e6, "MB packed": packed.memory / 1e6}


def _by_insertion(boxes: Boxes) -> tuple[Any, float]:
    """Return an R-tree that was built by inserting one box after the other, and us per box.

    It is libspatialindex with Guttman's quadratic split: the dynamic R-tree of the paper's time.
    Nodes of 50 entries are pages of 1 KB with 20 bytes per entry.
    """
    from rtree import index as libspatialindex

    settings = libspatialindex.Property(
        dimension=boxes.dimensions,
        variant=libspatialindex.RT_Quadratic,
        leaf_capacity=50,
        index_capacity=50,
        fill_factor=0.4,
    )
    tree = libspatialindex.Index(properties=settings)
    corners = np.hstack([boxes.lo, boxes.hi]).tolist()

    def insert() -> None:
        for row, box in enumerate(corners):
            tree.insert(row, box)

    return tree, timed(insert)[1] / len(corners) * 1e6


def _inserted(boxes: Boxes) -> float:
    """Return the microseconds of inserting a box into a VCR index that has most of them."""
    first = max(len(boxes.lo) - 1_000, len(boxes.lo) // 2)
    vcr = index(Boxes.of(boxes.lo[:first], boxes.hi[:first]), MODERATE)
    rest = [Boxes.of(boxes.lo[[i]], boxes.hi[[i]]) for i in range(first, len(boxes.lo))]
    vcr.insert(rest[0])  # the first edit copies the lists

    def insert() -> None:
        for box in rest[1:]:
            vcr.insert(box)

    return timed(insert)[1] / (len(rest) - 1) * 1e6


def _agree(found: tuple[I64, I64], *others: MatchRows) -> None:
    """Reject answers of which an event has other rows than those of the dynamic tree."""
    rows, counts = found
    for event, some in enumerate(np.split(rows, np.cumsum(counts)[:-1])):
        for other in others:
            if not np.array_equal(np.sort(other.of(event)), np.sort(some)):
                raise DisagreementError(f"the R-trees and VCR disagree on event {event}")


def _times(results: Results, which: str, crowd: str, n: int) -> float:
    """Return how many times as long as VCR another index takes."""
    some = results.where(n=n, crowd=crowd)
    return float(some.one(which) / some.one("vcr"))


def ours(results: Results) -> dict[str, Values]:
    """Search times at the smallest number of boxes, and ratios."""
    n = results[0]["n"]
    at = f"n = {n:,}"
    times = {
        f"{name}, {at}, us": {crowd: results.one(column, n=n, crowd=crowd) for crowd in CROWDS}
        for name, column in (("R-tree", "dynamic"), ("VCR", "vcr"))
    }
    ratios = {
        f"{name} / VCR, {at}": {crowd: _times(results, column, crowd, n) for crowd in CROWDS}
        for name, column in (("R-tree", "dynamic"), ("packed R-tree", "packed"))
    }
    return {"Figure 7(a)": times | ratios}


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about both figures."""
    ns = results.distinct("n")
    ratios = {
        (name, crowd): [_times(results, name, crowd, n) for n in ns]
        for name in ("dynamic", "packed")
        for crowd in CROWDS
    }
    for name in ("dynamic", "packed"):
        both = [*ratios[name, "90%-10%"], *ratios[name, "uniform"]]
        yield Claim(
            "Figure 7(a)",
            f"VCR is faster than an R-tree ({name})",
            min(both) > 1,
            f"{min(both):.1f} to {max(both):.1f} times as fast",
        )
        first, *_, last = ratios[name, "90%-10%"]
        yield Claim(
            "Figure 7(a)",
            f"the more so the more boxes there are ({name}, 90%-10%)",
            last > first,
            f"{first:.1f} times at n = {ns[0]:,}, {last:.1f} at {ns[-1]:,}",
        )
    slower = [
        results.one("vcr", n=n, crowd="90%-10%") / results.one("vcr", n=n, crowd="uniform")
        for n in ns
    ]
    yield Claim(
        "Figure 7(a)",
        "VCR takes longer where boxes crowd (280 / 60 = 4.7 times at n = 32,000)",
        min(slower) > 1,
        f"{slower[0]:.1f} times at n = {ns[0]:,}",
    )
    more = [row["MB vcr"] / row["MB packed"] for row in results]
    measured = f"{min(more):.1f} to {max(more):.1f} times the packed tree"
    yield Claim("Figure 7(b)", "VCR takes more storage than an R-tree", min(more) > 1, measured)
    modest = "the increase is modest (taken as: at most 3 times)"
    yield Claim("Figure 7(b)", modest, max(more) <= 3, measured)


def tables(results: Results) -> Iterator[Table]:
    """All that was measured."""
    heads = ["vcr", "dynamic", "packed", "cells", "scan"]
    heads += ["us per insertion", "us per insertion, vcr", "matches", "MB vcr", "MB packed"]
    rows = [
        [f"{row['n']:,} boxes, {row['crowd']}", *(row[head] for head in heads)] for row in results
    ]
    yield Table(
        "Microseconds per event or insertion, matches per event, megabytes of all arrays",
        [
            "",
            "VCR",
            "dynamic R-tree",
            "packed R-tree",
            "cells (ours)",
            "NumPy scan",
            "dynamic, insertion",
            "VCR, insertion",
            *heads[7:],
        ],
        rows,
    )


def panels(results: Results) -> list[Panel]:
    """Time and storage by the number of boxes."""
    names = {"vcr": "VCR", "dynamic": "dynamic R-tree", "packed": "packed R-tree"}
    lines = [
        results.line(f"{label}, {crowd}", "n", name, crowd=crowd)._replace(
            colour=number, style="o-" if crowd != "uniform" else "o:"
        )
        for number, (name, label) in enumerate(names.items())
        for crowd in CROWDS
    ]
    storage = [
        results.line(label, "n", f"MB {name}", crowd="uniform")
        for name, label in (("vcr", "VCR"), ("packed", "packed R-tree"))
    ]
    return [
        Panel("Search (figure 7a)", "boxes", "µs per event", lines, "xy"),
        Panel("Storage (figure 7b)", "boxes", "MB", storage, "x"),
    ]


EXPERIMENT = Experiment(
    name="vcr-overlap",
    title="VCR and R-trees, by overlap (section 3.3)",
    parts=("Figure 7(a)", "Figure 7(b)"),
    about="""Boxes of up to 40 x 20 in the moderate space, sides of up to 16 x 8, simple
    decomposition; uniform, or 90% of the boxes in 10% of the space. The paper's R-tree is dynamic:
    beside it is that of libspatialindex (the package rtree) with a quadratic split, built box by
    box and queried in bulk, and our own packed R-tree, which is built at once.""",
    points=points,
    measure=measure,
    printed={
        "Figure 7(a)": {
            "R-tree / VCR, n = 32,000": {"90%-10%": 1_300 / 280, "uniform": 304 / 60},
            "R-tree, n = 32,000, us": {"90%-10%": 1_300, "uniform": 304},
            "VCR, n = 32,000, us": {"90%-10%": 280, "uniform": 60},
        }
    },
    ours=ours,
    claims=claims,
    tables=tables,
    panels=panels,
    is_timed=True,
    needs=("rtree",),
    verdicts={
        "Figure 7(a)": """Agrees in part: VCR is 6 to 45 times as fast as a dynamic R-tree, the
        more so the more boxes there are and the more they overlap. A packed R-tree, which the
        paper didn't have, is faster than VCR up to 64,000 boxes and wherever boxes don't
        crowd.""",
        "Figure 7(b)": """Agrees in part: VCR takes more storage, and not modestly: the
        factor falls from 9 to 3 as n grows, because an array of all VCRs is most of it for
        few boxes. The tree beside it is the packed one.""",
    },
)
