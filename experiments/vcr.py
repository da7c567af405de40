"""Section 3 of the VCR paper (002), as work, storage and ratios of time beside what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import DisagreementError, best_of
from rangecast.kernels.arrays import F64, I64
from rangecast.match.cells.index import Cells
from rangecast.match.papers.vcr.index import Vcr
from rangecast.match.result import MatchRows
from rangecast.match.rtree import RTree
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table
from rangecast.workloads import generate

MODERATE = (300, 200)


class Size(NamedTuple):
    """How much to run."""

    subscriptions: tuple[int, ...]
    events: int
    repeats: int
    large: tuple[int, int] = (2_000, 1_500)
    """The larger one of the paper's two spaces."""
    slots: int = 1_800_017
    """Of the hash table of a fixed size."""


SIZES = {
    "quick": Size((500, 1_000), 100, 1, (400, 300), 18_017),
    "usual": Size((32_000, 128_000), 1_000, 3),
    "full": Size((32_000, 64_000, 128_000, 256_000), 100_000, 1),
}
SEED = 0

ABOUT = """
What each choice costs relative to another one: seconds of 2003 and of today don't compare. Times
are of a core, the best of a few runs. Storage is counted twice: as the paper does (a pointer of 4
bytes for every VCR or slot, an id and a pointer, 8 bytes, for every entry), and as it is (all
arrays but the boxes).
"""


def run(report: Report, size: Size, seed: int) -> None:
    """Run all four experiments."""
    report.begin("Section 3 of paper 002: virtual construct rectangles", ABOUT)
    for part in (choice_of_side, overlap, hashing, decompositions):
        part(report, size, seed)


def made(
    size: Size, seed: int, n: int, space: tuple[int, int], skew: float, widest: tuple[int, int]
) -> tuple[Boxes, F64]:
    """Return boxes and events, 90% of them in a middle of the share `skew`; 1: uniform."""
    width, height = space
    max_width, max_height = widest
    workload = generate(
        "crowded-rectangles",
        seed=seed,
        subscriptions=n,
        events=size.events,
        width=width,
        height=height,
        max_width=max_width,
        max_height=max_height,
        beta=skew,
    )
    return workload.boxes, workload.points


def index(boxes: Boxes, space: tuple[int, int], sides: tuple[int, int], **options: object) -> Vcr:
    """Return the index of the paper: unit cells, both attributes, no limit of pieces."""
    grid = [np.arange(length) for length in space]
    return Vcr(boxes, axes=(0, 1), edges=grid, sides=sides, pieces=1 << 40, **options)  # type: ignore[arg-type]


def matches(matcher: Vcr | Cells | RTree, points: F64) -> int:
    """Return how many rows all events match, read piece by piece as they come."""
    return sum(len(piece.rows) for _, piece in matcher.stream(points))


def searched(matcher: Vcr | Cells | RTree, points: F64, repeats: int) -> float:
    """Return the time of all events; the first of several runs warms up."""
    return best_of(lambda: matches(matcher, points), repeats + (repeats > 1)).least


def as_is(matcher: Vcr, boxes: Boxes) -> float:
    """Return the megabytes of all arrays but the boxes."""
    return (matcher.memory - boxes.lo.nbytes - boxes.hi.nbytes - boxes.owner.nbytes) / 1e6


def as_paper(matcher: Vcr) -> float:
    """Return the megabytes that the paper would count."""
    return (4 * matcher.slots + 8 * matcher.entries) / 1e6


def show(
    report: Report, title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], note: str
) -> None:
    """Add a table and what to compare it with."""
    report.table(Table(title, heads, rows))
    report.text(note)


def rtree_by_insertion(boxes: Boxes) -> tuple[Any, float]:
    """Return an R-tree that was built by inserting one box after the other, and the seconds.

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
    start = process_time()
    for row, box in enumerate(corners):
        tree.insert(row, box)
    return tree, process_time() - start


def rows_by_event(tree: Any, points: F64) -> list[I64]:
    """Return the rows of each event, ascending, from an R-tree that was built by insertion."""
    rows, counts = tree.intersection_v(points, points)
    return [np.sort(some) for some in np.split(rows, np.cumsum(counts)[:-1])]


def agree(expected: Sequence[I64], *others: MatchRows) -> None:
    """Raise an error if others give an event other rows than those expected."""
    for event, rows in enumerate(expected):
        for other in others:
            if not np.array_equal(np.sort(other.of(event)), rows):
                raise DisagreementError(f"the R-trees and VCR disagree on event {event}")


def choice_of_side(report: Report, size: Size, seed: int) -> None:
    """Section 3.2: storage and time by the largest side."""
    n = size.subscriptions[-1]
    paper = {20: "8 for storage, 16 for time", 40: "16 for both"}
    for widest in (20, 40):
        boxes, points = made(size, seed, n, MODERATE, 0.1, (widest, widest))
        measured = []
        for side in (2, 4, 8, 16, 32):
            matcher = index(boxes, MODERATE, (side, side))
            took = searched(matcher, points, size.repeats)
            measured.append((side, matcher, took))
        least = min(took for _, _, took in measured)
        stored = min(measured, key=lambda m: as_paper(m[1]))[0]
        fastest = min(measured, key=lambda m: m[2])[0]
        rows = [
            (side, m.entries / n, m.covering, as_paper(m), as_is(m, boxes), took / least)
            for side, m, took in measured
        ]
        chosen = Vcr(boxes, axes=(0, 1), edges=[np.arange(r) for r in MODERATE])
        took = searched(chosen, points, size.repeats)
        show(
            report,
            f"3.2 Largest side L, W = {widest}, n = {n:,}, {MODERATE}, 90%-10%, simple",
            ("L", "VCRs per box", "covering", "MB as paper", "MB as is", "time, best = 1"),
            rows,
            f"best L here: {stored} for storage, {fastest} for time; paper: {paper[widest]}. "
            f"Chosen by the cost model: {chosen.sides}, time {took / least:.2f}",
        )


def overlap(report: Report, size: Size, seed: int) -> None:
    """Section 3.3: time by overlap, beside a packed R-tree and one built by insertion; storage."""
    rows, dynamic = [], []
    for n in size.subscriptions:
        micros, inserted = [], []
        for skew in (0.1, 1.0):
            boxes, points = made(size, seed, n, MODERATE, skew, (40, 20))
            matcher = index(boxes, MODERATE, (16, 8))
            few = points[:50]
            scan = best_of(partial(Scan(boxes).match, few), 1).least / len(few)
            vcr = searched(matcher, points, size.repeats) / len(points)
            cells = searched(Cells(boxes), points, size.repeats) / len(points)
            tree = RTree(boxes)
            rtree = searched(tree, points, size.repeats) / len(points)
            grown, took = rtree_by_insertion(boxes)
            some = points[:1_000]  # it gives all answers at once: those of all events are too many
            asked = best_of(partial(grown.intersection_v, some, some), size.repeats).least
            inserted += [took / n * 1e6, asked / len(some) / vcr]
            agree(rows_by_event(grown, some), matcher.match(some), tree.match(some))
            found = matches(matcher, points)
            micros.append((vcr, scan, cells, rtree, found / len(points)))
            storage = matcher.memory / tree.memory
        (skewed, scan, cells, rtree, crowded), (uniform, _, _, rtree_even, even) = micros
        ratios = (skewed / uniform, scan / skewed, skewed / cells, rtree / skewed)
        rows.append((n, crowded, even, *ratios, rtree_even / uniform, storage))
        dynamic.append((n, *inserted))
    show(
        report,
        "3.3 Overlap: 90%-10% against uniform, W = 40 x 20, L = 16 x 8, simple",
        (
            *("n", "matches, 90-10", "uniform", "time 90-10 / uniform", "NumPy scan / VCR"),
            *("VCR / cell lists", "R-tree / VCR, 90-10", "uniform", "memory VCR / R-tree"),
        ),
        rows,
        "paper, n = 32,000: time 280 / 60 us = 4.7. This R-tree is packed: the paper's is below.",
    )
    show(
        report,
        "3.3 An R-tree built by insertion (libspatialindex, quadratic split) against VCR",
        (
            "n",
            "us per insertion, 90-10",
            "search / VCR",
            "us per insertion, uniform",
            "search / VCR",
        ),
        dynamic,
        "paper, n = 32,000: search 1,300 / 280 us = 4.6 times VCR's, uniform 304 / 60 = 5.1",
    )


def hashing(report: Report, size: Size, seed: int) -> None:
    """Section 3.4: hashed lists against an array of all VCRs."""
    rows = []
    for n in size.subscriptions:
        boxes, points = made(size, seed, n, size.large, 0.01, (40, 20))
        direct = index(boxes, size.large, (16, 8), overlapped=True, hashed=False)
        hashed = index(boxes, size.large, (16, 8), overlapped=True, hashed=True, slots=10 * n + 1)
        times = [searched(m, points, size.repeats) for m in (direct, hashed)]
        both = (direct, hashed)
        stored = (*map(as_paper, both), *(as_is(matcher, boxes) for matcher in both))
        rows.append((n, direct.active, *stored, times[1] / times[0]))
    show(
        report,
        f"3.4 Hashing: {size.large}, 90%-1%, 10 n slots, overlapped",
        ("n", "active VCRs", "MB direct", "hashed", "as is: direct", "hashed", "time ratio"),
        rows,
        "paper: hashed / direct time 400 / 80 us = 5.0 at n = 32,000, 1,300 / 860 = 1.5 at 256,000",
    )


def decompositions(report: Report, size: Size, seed: int) -> None:
    """Section 3.5: simple against overlapped decomposition in a hash table of fixed size."""
    rows = []
    for n in size.subscriptions:
        boxes, points = made(size, seed, n, size.large, 0.1, (40, 20))
        pair = [
            index(boxes, size.large, (16, 8), overlapped=o, hashed=True, slots=size.slots)
            for o in (False, True)
        ]
        times = [searched(m, points, size.repeats) for m in pair]
        entries = (f"{m.entries / n:.4f}" for m in pair)
        rows.append((n, *entries, *(m.active / m.slots for m in pair), times[0] / times[1]))
    show(
        report,
        f"3.5 Simple (SD) against overlapped (OD): {size.large}, 90%-10%, {size.slots:,} slots",
        ("n", "VCRs per box, SD", "OD", "load, SD", "OD", "time SD / OD"),
        rows,
        "paper: expected VCRs per box 6.5213 and 4.1500; the load and the time of SD lie above "
        "those of OD, and more so as n grows (figures without numbers)",
    )
