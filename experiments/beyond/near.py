"""Ranking by distance: what tolerances cost beside relaxed ranking and beside a scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.timing import DisagreementError, best_of
from rangecast.model.boxes import Boxes, frozen
from rangecast.rank.scan import Scan
from rangecast.rank.slabs.index import Slabs
from rangecast.report.markdown import Table

PART = "Ranked fuzzy matching (003, future work)"
NUMBERS = {"tiny": (300,), "quick": (10_000,), "full": (10_000, 100_000)}
DIMENSIONS = {"tiny": (2,), "quick": (2, 8), "full": (2, 8)}
TOLERANCES = (0.01, 0.1, 0.5)
"""Of each attribute, as a share of its domain."""
WIDTH = 0.1
"""Of the widest ranges, as a share of the domain."""
EVENTS = {"tiny": 5, "quick": 50, "full": 100}
SCANNED = 5
"""Events that are scanned, too: each takes the whole set."""
K = 20


def points(size: str) -> Iterator[Point]:
    """Boxes with random weights on a few and on several attributes."""
    for d in DIMENSIONS[size]:
        for n in NUMBERS[size]:
            for tolerance in TOLERANCES:
                yield {"n": n, "events": EVENTS[size], "d": d, "tolerance": tolerance}


def measure(seed: int, n: int, events: int, d: int, tolerance: float) -> dict[str, Any]:
    """Rank with tolerances, without them, and by a scan; the scan must give the same."""
    rng = np.random.default_rng(seed)
    lo = rng.random((n, d))
    boxes = Boxes.of(lo, lo + rng.random((n, d)) * WIDTH, weights=rng.random((n, d)))
    slabs, scan = Slabs(boxes, relaxed=True), Scan(boxes, relaxed=True)
    where, widths = rng.random((events, d)), frozen([tolerance] * d, np.float64)
    near = best_of(lambda: slabs.best_near(where, K, widths))
    relaxed = best_of(lambda: slabs.best(where, K))
    scanned = best_of(lambda: scan.best_near(where[:SCANNED], K, widths))
    for event in range(SCANNED):
        (rows, scores), (right, exact) = near.answer.of(event), scanned.answer.of(event)
        if not (np.array_equal(rows, right) and np.array_equal(scores, exact)):
            raise DisagreementError("slabs don't rank as the scan does")
    return {
        "near": near.least / events * 1e6,
        "relaxed": relaxed.least / events * 1e6,
        "scan": scanned.least / SCANNED * 1e6,
        "tested": near.answer.work.tested / events / n,
        "words": near.answer.work.words / events / n * 64 / d,
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims that a separate index would have to beat."""
    gains = [row["scan"] / row["near"] for row in results]
    yield Claim(
        PART,
        "ranking with tolerances takes less than a scan, at every size",
        min(gains) > 1,
        f"{min(gains):.1f} to {max(gains):.1f} times faster",
        is_ours=True,
    )


def tables(results: Results) -> Iterator[Table]:
    """Time and the share of the set that is compared."""
    heads = ["near", "relaxed", "scan", "words", "tested"]
    named = ["tolerant, us", "relaxed, us", "scan, us", "compared by codes", "by bounds"]
    for d in dict.fromkeys(row["d"] for row in results):
        rows = [
            [f"{row['n']:,} boxes, tolerance {row['tolerance']:g}", *(row[head] for head in heads)]
            for row in results.where(d=d)
        ]
        yield Table(f"Per event, {d} attributes, k = {K}", ["", *named], rows)


def panels(results: Results) -> list[Panel]:
    """Time by the number of boxes, on the most attributes."""
    d = max(row["d"] for row in results)
    lines = [
        results.line(f"tolerance {tolerance:g}", "n", "near", d=d, tolerance=tolerance)
        for tolerance in TOLERANCES
    ]
    for what in ("relaxed", "scan"):
        lines.append(results.line(what, "n", what, d=d, tolerance=TOLERANCES[0]))
    return [Panel(f"{d} attributes", "boxes", "µs per event", lines, "xy")]


def facts(results: Results) -> dict[str, str]:
    """Return the numbers of the largest set."""
    last = [row for row in results if row["n"] == max(one["n"] for one in results)]
    times = [row["near"] / row["relaxed"] for row in last]
    gains = [row["scan"] / row["near"] for row in last]
    return {
        "n": f"{last[0]['n']:,}",
        "least": f"{min(times):.1f}",
        "most": f"{max(times):.1f}",
        "gain": f"{min(gains):.1f}",
        "gains": f"{max(gains):.0f}",
    }


EXPERIMENT = Experiment(
    name="beyond-near",
    title="Ranking by distance",
    parts=(PART,),
    about="""Boxes of up to 10% of each attribute, with random weights. *Tolerant* is relaxed
    ranking with a tolerance on every attribute, a share of the domain: an attribute outside its
    range counts weight * (1 - distance / tolerance). *Relaxed* counts attributes inside alone, by
    the same structure. The *scan* scores all in NumPy, for the first 5 events, and gives the same
    rows and scores. *Compared by codes* is the share of all pairs of box and attribute that was
    looked at, *by bounds* the number of such pairs per box whose bounds were.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    facts=facts,
    is_timed=True,
    verdicts={
        PART: """No claim of the paper: ours. With {n} boxes a ranking with tolerances takes {least}
        to {most} times as long as a relaxed one, and is {gain} to {gains} times as fast as a
        scan.""",
    },
)
