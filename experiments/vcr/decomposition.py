"""Paper 002, section 3.5: simple against overlapped decomposition in a hash table of fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.vcr.workload import (
    EVENTS,
    LARGE,
    SUBSCRIPTIONS,
    index,
    made,
    searched,
)
from rangecast.report.markdown import Table

SPACES = {"tiny": (400, 300), "quick": LARGE, "full": LARGE}
SLOTS = {"tiny": 18_017, "quick": 1_800_017, "full": 1_800_017}
KINDS = {"simple": False, "overlapped": True}


def points(size: str) -> Iterator[Point]:
    """Each number of boxes, in both decompositions."""
    for n in SUBSCRIPTIONS[size]:
        for kind in KINDS:
            sizes = {"n": n, "events": EVENTS[size], "slots": SLOTS[size]}
            yield {**sizes, "space": [*SPACES[size]], "kind": kind}


def measure(
    seed: int, n: int, events: int, slots: int, space: list[int], kind: str
) -> dict[str, Any]:
    """Build one index and search it."""
    area = (space[0], space[1])
    boxes, where = made(seed, n, events, area, 0.1)
    matcher = index(boxes, area, overlapped=KINDS[kind], hashed=True, slots=slots)
    found, us = searched(matcher, where)
    load = matcher.active / matcher.slots
    return {"VCRs per box": matcher.entries / n, "load": load, "us": us, "matches": found}


def _ratios(results: Results, column: str) -> list[float]:
    both = (results.column(column, kind=kind) for kind in KINDS)
    return [simple / overlapped for simple, overlapped in zip(*both, strict=True)]


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about both figures."""
    for part, what, column in (
        ("Figure 9(a)", "the time", "us"),
        ("Figure 9(b)", "the load of the table", "load"),
    ):
        ratios = _ratios(results, column)
        yield Claim(
            part,
            f"{what} of SD is above that of OD",
            min(ratios) > 1,
            f"{min(ratios):.2f} to {max(ratios):.2f} times",
        )
        simple, overlapped = (results.column(column, kind=kind) for kind in KINDS)
        gaps = [one - other for one, other in zip(simple, overlapped, strict=True)]
        yield Claim(
            part,
            "the more so the more boxes there are",
            gaps[-1] > gaps[0],
            f"apart by {gaps[0]:.3g} at the fewest boxes, {gaps[-1]:.3g} at the most",
        )


def facts(results: Results) -> dict[str, str]:
    """Return how many times as long SD takes at the fewest and the most boxes, and its load."""
    times, last = _ratios(results, "us"), results.where(kind="simple")[-1]
    return {
        "first": f"{times[0]:.1f}",
        "last": f"{times[-1]:.1f}",
        "boxes": f"{last['n']:,}",
        "full": f"{last['load']:.0%}",
    }


def tables(results: Results) -> Iterator[Table]:
    """All that was measured."""
    heads = ["VCRs per box", "load", "us"]
    rows = [
        [f"{row['n']:,} boxes, {row['kind']}", *(row[head] for head in heads)] for row in results
    ]
    first = results[0]
    width, height = first["space"]
    title = (
        f"SD and OD, {width:,} x {height:,}, {first['slots']:,} slots, {first['events']:,} events"
    )
    yield Table(title, ["", *heads[:2], "us per event"], rows)


def panels(results: Results) -> list[Panel]:
    """Time and load by the number of boxes."""
    return [
        Panel(title, "boxes", y, [results.line(kind, "n", column, kind=kind) for kind in KINDS])
        for title, y, column in (
            ("Search (figure 9a)", "µs per event", "us"),
            ("Load of the hash table (figure 9b)", "load", "load"),
        )
    ]


EXPERIMENT = Experiment(
    name="vcr-decomposition",
    title="Simple and overlapped decomposition (section 3.5)",
    parts=("Figure 9(a)", "Figure 9(b)"),
    about="""Boxes of up to 40 x 20 in the large space, 90% of them in 10% of it, a hash table of a
    fixed size. SD is the simple decomposition, OD the overlapped one. The paper prints no numbers
    here.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    facts=facts,
    is_timed=True,
    verdicts={
        "Figure 9(a)": """Agrees: SD takes {first} times as long as OD at the fewest boxes, and
        {last} times at {boxes}, where it fills {full} of the table.""",
        "Figure 9(b)": """Agrees: SD fills 1.6 to 1.9 times as much of the table, the more so
        the more boxes there are.""",
    },
)
