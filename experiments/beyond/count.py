"""Counts without enumeration: how many match, beside listing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.timing import DisagreementError, best_of, timed
from rangecast.match.choose import build
from rangecast.match.counting.counter import Counter
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table

PART = "Aggregate counts (003, future work)"
NUMBERS = {"tiny": (300, 500), "quick": (10_000, 100_000), "full": (10_000, 100_000, 1_000_000)}
WIDTHS = {"narrow": 0.05, "wide": 0.5}
"""Of the widest boxes, as a share of each attribute."""
EVENTS = {"tiny": 20, "quick": 500, "full": 1_000}


def points(size: str) -> Iterator[Point]:
    """Boxes on two attributes, narrow and wide."""
    for width in WIDTHS:
        for n in NUMBERS[size]:
            yield {"n": n, "events": EVENTS[size], "width": width}


def measure(seed: int, n: int, events: int, width: str) -> dict[str, Any]:
    """Count and list what events match; both must come to the same numbers."""
    rng = np.random.default_rng(seed)
    lo = rng.random((n, 2))
    boxes = Boxes.of(lo, lo + rng.random((n, 2)) * WIDTHS[width])
    counter, seconds = timed(lambda: Counter(boxes))
    matcher, where = build(boxes), rng.random((events, 2))
    counted = best_of(lambda: counter.count(where))
    listed = best_of(lambda: matcher.match(where))
    if not np.array_equal(np.diff(listed.answer.offsets), counted.answer):
        raise DisagreementError("the counts aren't the numbers of rows that match")
    return {
        "matches": float(counted.answer.mean()),
        "count": counted.least / events * 1e6,
        "match": listed.least / events * 1e6,
        "build": seconds,
        "bytes": counter.memory / n,
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims for counting."""
    wide = results.where(width="wide")
    gains = [row["match"] / row["count"] for row in wide]
    yield Claim(
        PART,
        "counting takes less than listing, the more so the more match",
        gains == sorted(gains) and gains[-1] > 2,
        ", ".join(
            f"{gain:.1f} times at {row['matches']:,.0f} matches"
            for gain, row in zip(gains, wide, strict=True)
        ),
        is_ours=True,
    )


def tables(results: Results) -> Iterator[Table]:
    """Time and memory."""
    heads = ["matches", "count", "match", "build", "bytes"]
    rows = [
        [f"{row['n']:,} boxes, {row['width']}", *(row[head] for head in heads)] for row in results
    ]
    named = ["matches per event", "count, us", "match, us", "build, s", "bytes per box"]
    yield Table("Per event, two attributes", ["", *named], rows)


def panels(results: Results) -> list[Panel]:
    """Time by the number of boxes."""
    lines = [
        results.line(f"{what}, {width}", "n", what, width=width)
        for width in WIDTHS
        for what in ("count", "match")
    ]
    return [Panel("Counting and listing", "boxes", "µs per event", lines, "xy")]


def facts(results: Results) -> dict[str, str]:
    """Return the numbers of the most boxes that are wide."""
    last = results.where(width="wide")[-1]
    return {
        "count": f"{last['count']:.0f}",
        "match": f"{last['match']:.0f}",
        "matches": f"{last['matches']:,.0f}",
        "bytes": f"{last['bytes']:.0f}",
        "n": f"{last['n']:,}",
    }


EXPERIMENT = Experiment(
    name="beyond-count",
    title="Counts without enumeration",
    parts=(PART,),
    about="""Boxes on two attributes, of up to 5% or 50% of each. *Match* lists the rows, by the
    structure that `auto` takes; *count* is `Engine.count`: four counts of points in a quadrant by
    wavelet matrices. The paper names aggregate R-trees for it; over two attributes these were
    slower here than to list.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    facts=facts,
    is_timed=True,
    verdicts={
        PART: """No claim of the paper: ours. Of {n} wide boxes {matches} match an event; they are
        counted in {count} us, and listed in {match}. Where few match, listing is as quick: counting
        pays from some hundred matches on. It takes {bytes} bytes per box.""",
    },
)
