"""Paper 004, figure 7: subscriptions sent on to a neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from experiments.merge.workload import DIMENSIONS, EXACT, SIZES, made
from rangecast.merge.summary import Summary
from rangecast.report.markdown import Table

PART = "Figure 7"


def points(size: str) -> Iterator[Point]:
    """Each number of subscriptions and attributes."""
    for d in DIMENSIONS:
        for n in SIZES[size]:
            yield {"n": n, "of": SIZES[size][-1], "d": d}


def measure(seed: int, n: int, of: int, d: int) -> dict[str, Any]:
    """Count what is sent on with covering, and with subsumption."""
    one = made(seed, of, d, 4, "zipf")
    some = one.boxes.take(np.arange(n))
    gained = Summary(one.space, bits=8, max_ranges_per_subscription=EXACT).subscribe_many(some).add
    return {
        "covering": len(np.unique(some.lo, axis=0)),
        "subsumption": (np.diff(gained.offsets) > 0).sum(),
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figure."""
    last = results.where(n=results[-1]["n"])
    shares = [(row["covering"] / row["n"], row["subsumption"] / row["n"]) for row in last]
    yield Claim(
        PART,
        "covering and subsumption both reduce the traffic",
        all(subsumed < covered < 1 for covered, subsumed in shares),
        "left of it by attributes: "
        + ", ".join(f"{covered:.0%} and {subsumed:.0%}" for covered, subsumed in shares),
    )
    gains = [covered / subsumed for covered, subsumed in shares]
    yield Claim(
        PART,
        "subsumption reduces it more, the more so with few attributes",
        gains == sorted(gains, reverse=True) and gains[-1] > 1,
        "covering / subsumption: " + ", ".join(f"{gain:.2f}" for gain in gains),
    )


def tables(results: Results) -> Iterator[Table]:
    """Yield the table of forwarded messages."""
    ns = results.distinct("n")
    rows = [
        [f"{what}, {d} attributes", *results.column(what, d=d)]
        for d in DIMENSIONS
        for what in ("covering", "subsumption")
    ]
    yield Table("Subscriptions sent on, of", ["", *(f"{n:,}" for n in ns)], rows)


def panels(results: Results) -> list[Panel]:
    """Figure 7."""
    ns = results.distinct("n")
    lines = [Line("neither", ns, ns, 5, "o--")]
    for colour, d in enumerate(DIMENSIONS):
        for what, style in (("covering", "o:"), ("subsumption", "o-")):
            line = results.line(f"{what}, {d} attributes", "n", what, d=d)
            lines.append(line._replace(colour=colour, style=style))
    return [Panel("Sent on (figure 7)", "subscriptions", "subscriptions", lines, "y")]


EXPERIMENT = Experiment(
    name="merge-traffic",
    title="Covering and subsumption (figure 7)",
    parts=(PART,),
    about="""Boxes of 4 values per attribute, Zipf. All boxes have one size here, so one covers
    another only if they are equal. The paper prints no numbers here.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(7.0, 4.0),
    seed=4,
    verdicts={
        "Figure 7": """Agrees: subsumption leaves 6%, 42% and 82% of the traffic with 2, 3 and 4
        attributes, where covering leaves 17%, 66% and 93%.""",
    },
)
