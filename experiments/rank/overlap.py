"""Paper 003, experiment 4: relaxed ranking by the skew of lengths, four attributes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.rank.workload import (
    EVENTS,
    PAPERS_OWN,
    STRUCTURES,
    SUBSCRIPTIONS,
    WARM_UP,
    check_answers,
    relaxed,
)
from rangecast.report.markdown import Table

SKEWS = (0.25, 0.75, 1.25, 1.75)


def points(size: str) -> Iterator[Point]:
    """Each skew with each structure."""
    for skew in SKEWS:
        for structure in STRUCTURES:
            yield {
                "n": SUBSCRIPTIONS[size],
                "events": EVENTS[size],
                "warm_up": WARM_UP[size],
                "skew": skew,
                "structure": structure,
            }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figure."""
    check_answers(results, ["skew"])
    for what, column in (("the whole ranking", "us"), ("getnext alone", "getnext us")):
        change = {}
        for name in PAPERS_OWN:
            times = results.column(column, structure=name)
            change[name] = times[-1] / times[0]
        rtree = change.pop("rtree")
        yield Claim(
            "Figure 9",
            f"all but the R-tree become faster as intervals become shorter ({what})",
            max(change.values()) < 1,
            "time at the largest skew / at the least: "
            + ", ".join(f"{name} {value:.2f}" for name, value in change.items()),
        )
        yield Claim(
            "Figure 9", f"the R-tree becomes slower ({what})", rtree > 1, f"{rtree:.2f} times"
        )
    holes = {name: results.column("holes", structure=name) for name in ("rtree", "sopt", "ir")}
    yield Claim(
        "Figure 9",
        "that is because of its holes; SOPT-R doesn't have that problem",
        holes["rtree"] == sorted(holes["rtree"]) and holes["rtree"][-1] > 2 * holes["sopt"][-1],
        "holes per event at the largest skew: "
        + ", ".join(f"{name} {values[-1]:,.0f}" for name, values in holes.items()),
    )


def tables(results: Results) -> Iterator[Table]:
    """Time and work."""
    heads = ["us", "getnext us", "calls", "examined", "holes"]
    rows = [
        [f"skew {row['skew']}, {row['structure']}", *(row[head] for head in heads)]
        for row in results
    ]
    heads[1] = "getnext alone, us"
    first = results[0]
    title = f"Per event, n = {first['n']:,}, {first['events']:,} events, k = 20"
    yield Table(title, ["", *heads], rows)


def panels(results: Results) -> list[Panel]:
    """Time by skew, whole and getnext alone; holes."""
    x = "skew of lengths: to the right intervals are shorter"
    return [
        Panel(title, x, y, [results.line(name, "skew", column, structure=name) for name in names])
        for title, y, column, names in (
            ("Whole ranking (figure 9)", "µs per event", "us", PAPERS_OWN),
            ("getnext alone", "µs per event", "getnext us", PAPERS_OWN),
            ("Holes", "leaves opened in vain, per event", "holes", PAPERS_OWN),
        )
    ]


EXPERIMENT = Experiment(
    name="rank-overlap",
    title="Experiment 4: overlap",
    parts=("Figure 9",),
    about="""Relaxed ranking with four attributes, over the paper's 1,000 events after 100 of
    warm-up. *Getnext alone* repeats the calls of
    the Threshold Algorithm without looking the subscriptions up. *Holes* are leaves opened in vain.
    All give the same answers.""",
    points=points,
    measure=partial(relaxed, d=4),
    claims=claims,
    tables=tables,
    panels=panels,
    columns=3,
    panel_size=(4.8, 3.8),
    seed=3,
    is_timed=True,
    verdicts={
        "Figure 9": """Agrees in part: the R-tree becomes slower, 2.0 times in getnext, because of
        its holes, of which SOPT-R has a fifth. Differs for the others: over the whole ranking
        they stay level, because the Threshold Algorithm makes more calls, 102,000 to 120,000,
        as intervals become shorter. In getnext alone SOPT-R becomes 1.5 times slower; the times
        of the other three go up and down by up to 1.7 times and show no trend.""",
    },
)
