"""Section 3 of the VCR paper (002), as work, storage and ratios of time beside what it reports.

    python -m experiments.vcr            a minute: small sets, few events
    python -m experiments.vcr --full     the paper's sizes

Seconds of 2003 and of today don't compare; what is shown is what each choice costs relative to
another one. Times are processor time, the best of a few runs. Storage is counted twice: as the
paper does (a pointer of 4 bytes for every VCR or slot, an id and a pointer, 8 bytes, for every
entry), and as it is (all arrays but the boxes).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.match.cells.index import Cells
from rangecast.match.papers.vcr.index import Vcr
from rangecast.match.rtree import RTree
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes

MODERATE, LARGE = (300, 200), (2000, 1500)
HASH_SLOTS = 1_800_017


class Size(NamedTuple):
    """How much to run."""

    subscriptions: tuple[int, ...]
    events: int
    repeats: int


QUICK = Size((32_000, 128_000), 1_000, 3)
FULL = Size((32_000, 64_000, 128_000, 256_000), 100_000, 1)


def corners(rng: np.random.Generator, n: int, space: tuple[int, int], skew: float) -> F64:
    """Return points: 90% in a middle rectangle of the share `skew` of the space; 1: uniform."""
    size = np.asarray(space)
    middle = np.maximum(1, np.round(size * np.sqrt(skew))).astype(np.int64)
    inside = (size - middle) // 2 + rng.integers(0, middle, (n, 2))
    anywhere = rng.integers(0, size, (n, 2))
    return np.where(rng.random((n, 1)) < 0.9, inside, anywhere).astype(np.float64)


def predicates(n: int, space: tuple[int, int], skew: float, widest: tuple[int, int]) -> Boxes:
    """Return boxes with the paper's corners, widths 1 .. widest, clipped to the space."""
    rng = np.random.default_rng(n)
    lo = corners(rng, n, space, skew)
    hi = lo + rng.integers(1, np.asarray(widest) + 1, (n, 2))
    return Boxes.of(lo, np.minimum(hi, np.asarray(space) - 1))


def events(m: int, space: tuple[int, int], skew: float) -> F64:
    """Return events, placed as the corners are."""
    return corners(np.random.default_rng(m + 1), m, space, skew)


def index(boxes: Boxes, space: tuple[int, int], sides: tuple[int, int], **options: object) -> Vcr:
    """Return the index of the paper: unit cells, both attributes, no limit of pieces."""
    grid = [np.arange(length) for length in space]
    return Vcr(boxes, axes=(0, 1), edges=grid, sides=sides, pieces=1 << 40, **options)  # type: ignore[arg-type]


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the processor time of the best run, after one to warm up if there are several."""
    best = np.inf
    for _ in range(repeats + (repeats > 1)):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def searched(matcher: Vcr | Cells | RTree, points: F64, repeats: int) -> float:
    """Return the time of all events, their rows read piece by piece as they come."""
    return seconds(lambda: sum(len(piece.rows) for _, piece in matcher.stream(points)), repeats)


def as_is(matcher: Vcr, boxes: Boxes) -> float:
    """Return the megabytes of all arrays but the boxes."""
    return (matcher.memory - boxes.lo.nbytes - boxes.hi.nbytes - boxes.owner.nbytes) / 1e6


def as_paper(matcher: Vcr) -> float:
    """Return the megabytes that the paper would count."""
    return (4 * matcher.slots + 8 * matcher.entries) / 1e6


def table(title: str, heads: Iterable[str], rows: Iterable[Iterable[object]], note: str) -> None:
    """Print a table."""
    print(f"\n{title}\n")
    lines = [[str(cell) for cell in row] for row in [list(heads), *rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print(f"  {note}")


def choice_of_side(size: Size) -> None:
    """Section 3.2: storage and time by the largest side."""
    n = size.subscriptions[-1]
    paper = {20: "8 for storage, 16 for time", 40: "16 for both"}
    points = events(size.events, MODERATE, 0.1)
    for widest in (20, 40):
        boxes = predicates(n, MODERATE, 0.1, (widest, widest))
        measured = []
        for side in (2, 4, 8, 16, 32):
            matcher = index(boxes, MODERATE, (side, side))
            took = searched(matcher, points, size.repeats)
            measured.append((side, matcher, took))
        least = min(took for _, _, took in measured)
        stored = min(measured, key=lambda m: as_paper(m[1]))[0]
        fastest = min(measured, key=lambda m: m[2])[0]
        rows = [
            (
                side,
                f"{matcher.entries / n:.2f}",
                matcher.covering,
                f"{as_paper(matcher):.1f}",
                f"{as_is(matcher, boxes):.1f}",
                f"{took / least:.2f}",
            )
            for side, matcher, took in measured
        ]
        chosen = Vcr(boxes, axes=(0, 1), edges=[np.arange(r) for r in MODERATE])
        took = searched(chosen, points, size.repeats)
        table(
            f"3.2 Largest side L, W = {widest}, n = {n}, 300 x 200, 90%-10%, simple",
            ("L", "VCRs a box", "covering", "MB as paper", "MB as is", "time, best = 1"),
            rows,
            f"best L here: {stored} for storage, {fastest} for time; paper: {paper[widest]}. "
            f"Chosen by the cost model: {chosen.sides}, time {took / least:.2f}",
        )


def overlap(size: Size) -> None:
    """Section 3.3: time by overlap, beside the packed R-tree, and storage."""
    rows = []
    for n in size.subscriptions:
        micros = []
        for skew in (0.1, 1.0):
            boxes = predicates(n, MODERATE, skew, (40, 20))
            points = events(size.events, MODERATE, skew)
            matcher = index(boxes, MODERATE, (16, 8))
            few = points[:50]
            scan = seconds(lambda b=boxes, p=few: Scan(b).match(p), 1) / len(few)
            vcr = searched(matcher, points, size.repeats) / len(points)
            cells = searched(Cells(boxes), points, size.repeats) / len(points)
            tree = RTree(boxes)
            rtree = searched(tree, points, size.repeats) / len(points)
            found = sum(map(len, _pieces(matcher, points))) / len(points)
            micros.append((vcr, scan, cells, rtree, found))
            storage = matcher.memory / tree.memory
        (skewed, scan, cells, rtree, matches), (uniform, _, _, rtree_even, even) = micros
        rows.append(
            (
                n,
                f"{matches:.0f}",
                f"{even:.0f}",
                f"{skewed / uniform:.1f}",
                f"{scan / skewed:.0f}",
                f"{skewed / cells:.1f}",
                f"{rtree / skewed:.1f}",
                f"{rtree_even / uniform:.1f}",
                f"{storage:.1f}",
            )
        )
    table(
        "3.3 Overlap: 90%-10% against uniform, W = 40 x 20, L = 16 x 8, simple",
        (
            "n",
            "matches, 90-10",
            "uniform",
            "time 90-10 / uniform",
            "NumPy scan / VCR",
            "VCR / cell lists",
            "R-tree / VCR, 90-10",
            "uniform",
            "memory VCR / R-tree",
        ),
        rows,
        "paper, n = 32,000: time 280 / 60 us = 4.7; R-tree 1,300 / 280 = 4.6 and 304 / 60 = 5.1 "
        "times VCR",
    )


def _pieces(matcher: Vcr, points: F64) -> Iterable[F64]:
    return (piece.rows for _, piece in matcher.stream(points))  # type: ignore[misc]


def hashing(size: Size) -> None:
    """Section 3.4: hashed lists against an array of all VCRs."""
    points = events(size.events, LARGE, 0.01)
    rows = []
    for n in size.subscriptions:
        boxes = predicates(n, LARGE, 0.01, (40, 20))
        direct = index(boxes, LARGE, (16, 8), overlapped=True, hashed=False)
        hashed = index(boxes, LARGE, (16, 8), overlapped=True, hashed=True, slots=10 * n + 1)
        times = [searched(m, points, size.repeats) for m in (direct, hashed)]
        rows.append(
            (
                n,
                direct.active,
                f"{as_paper(direct):.0f}",
                f"{as_paper(hashed):.0f}",
                f"{as_is(direct, boxes):.0f}",
                f"{as_is(hashed, boxes):.0f}",
                f"{times[1] / times[0]:.2f}",
            )
        )
    table(
        "3.4 Hashing: 2,000 x 1,500, 90%-1%, 10 n slots, overlapped",
        ("n", "active VCRs", "MB direct", "hashed", "as is: direct", "hashed", "time ratio"),
        rows,
        "paper: hashed / direct time 400 / 80 us = 5.0 at n = 32,000, 1,300 / 860 = 1.5 at 256,000",
    )


def decompositions(size: Size) -> None:
    """Section 3.5: simple against overlapped decomposition in a hash table of fixed size."""
    points = events(size.events, LARGE, 0.1)
    rows = []
    for n in size.subscriptions:
        boxes = predicates(n, LARGE, 0.1, (40, 20))
        pair = [
            index(boxes, LARGE, (16, 8), overlapped=o, hashed=True, slots=HASH_SLOTS)
            for o in (False, True)
        ]
        times = [searched(m, points, size.repeats) for m in pair]
        rows.append(
            (
                n,
                *(f"{m.entries / n:.4f}" for m in pair),
                *(f"{m.active / m.slots:.3f}" for m in pair),
                f"{times[0] / times[1]:.2f}",
            )
        )
    table(
        f"3.5 Simple (SD) against overlapped (OD): 2,000 x 1,500, 90%-10%, {HASH_SLOTS} slots",
        ("n", "VCRs a box, SD", "OD", "load, SD", "OD", "time SD / OD"),
        rows,
        "paper: expected VCRs a box 6.5213 and 4.1500; the load and the time of SD lie above those "
        "of OD, and more so as n grows (figures without numbers)",
    )


def main() -> None:
    """Run all four."""
    parser = argparse.ArgumentParser(description="Section 3 of paper 002.")
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    size = FULL if parser.parse_args().full else QUICK
    for experiment in (choice_of_side, overlap, hashing, decompositions):
        experiment(size)


if __name__ == "__main__":
    main()
