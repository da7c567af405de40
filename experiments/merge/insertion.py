"""Paper 004, figures 8 and 9: inserting a subscription, and the check for covering alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results, Values
from experiments.merge.linear import covered
from experiments.merge.workload import (
    DIMENSIONS,
    DISTRIBUTIONS,
    NEW,
    SIZES,
    filled,
    growth,
    made,
)
from experiments.timing import best_of, race
from rangecast.report.markdown import Table

LINEAR = 100
"""New subscriptions that the linear check gets."""
FLAT = 2.0
"""At most this many times the time for the largest table counts as flat."""


def points(size: str) -> Iterator[Point]:
    """Each number of subscriptions, attributes and distribution."""
    for distribution in DISTRIBUTIONS:
        for d in DIMENSIONS:
            for n in SIZES[size]:
                largest = SIZES[size][-1]
                yield {"n": n, "of": largest, "new": NEW[size], "d": d, "as": distribution}


def measure(seed: int, n: int, of: int, new: int, d: int, **kind: str) -> dict[str, Any]:
    """Insert new subscriptions; check whether they are covered; check it one by one."""
    one = made(seed, of + new, d, 2, kind["as"])
    table = filled(one, n)
    more = one.boxes.take(np.arange(of, of + new))
    before = table.work.looked
    checked = best_of(partial(table.covers_many, more))
    looked = (table.work.looked - before) / 3 / new

    def without() -> Any:
        table.unsubscribe_many([one for one in more.ids.to_pylist() if one in table])
        return partial(table.subscribe_many, more)

    inserted = race({"": without})[""]
    few = min(LINEAR, new)
    out = np.empty(few, np.bool_)
    bounds = one.boxes.lo[:n], one.boxes.hi[:n], more.lo[:few], more.hi[:few], out
    linear = best_of(partial(covered, *bounds))
    by_one = checked.answer[:few]
    assert (by_one >= out).all(), "a subscription that one covers isn't covered by all"
    return {
        "insertion us": inserted.least * 1e6 / new,
        "covering us": checked.least * 1e6 / new,
        "linear us": linear.least * 1e6 / few,
        "gaps looked for": looked,
        "covered": checked.answer.mean(),
    }


def ours(results: Results) -> dict[str, Values]:
    """The one number of figure 8."""
    times = results.column("insertion us")
    return {"Figure 8": {"insertion, ms": {"in the order of": sum(times) / len(times) / 1000}}}


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about both figures."""
    cases = [{"d": d, "as": kind} for kind in DISTRIBUTIONS for d in DIMENSIONS]
    times = {"Figure 8": "insertion us", "Figure 9": "covering us"}
    for part, column in times.items():
        grown = [growth(results, column, **case) for case in cases]
        more = results.distinct("n")
        yield Claim(
            part,
            f"the time is almost the same for every size (taken as: at most {FLAT:g} times)",
            max(grown) <= FLAT,
            f"{min(grown):.2f} to {max(grown):.2f} times for {more[-1] / more[0]:g} times as many",
        )
    mean = {
        (d, kind): float(np.mean(results.column("insertion us", **{"d": d, "as": kind})))
        for d in DIMENSIONS
        for kind in DISTRIBUTIONS
    }
    yield Claim(
        "Figure 8",
        "it increases with the attributes",
        all(mean[2, kind] < mean[3, kind] < mean[4, kind] for kind in DISTRIBUTIONS),
        "; ".join(
            f"{kind}: " + ", ".join(f"{mean[d, kind]:.1f} us" for d in DIMENSIONS)
            for kind in DISTRIBUTIONS
        ),
    )
    over = [mean[d, "uniform"] / mean[d, "zipf"] for d in DIMENSIONS]
    yield Claim(
        "Figure 8",
        "it is more for uniform than for Zipf",
        min(over) > 1,
        "uniform / Zipf: " + ", ".join(f"{ratio:.2f}" for ratio in over),
    )
    faster = [row["linear us"] / row["covering us"] for row in results]
    yield Claim(
        "Figure 9",
        "the check is much faster than the linear one (taken as: ten times)",
        min(faster) > 10,
        f"{min(faster):.0f} to {max(faster):.0f} times as fast",
    )


def tables(results: Results) -> Iterator[Table]:
    """All that was measured."""
    heads = ["insertion us", "covering us", "linear us", "gaps looked for", "covered"]
    rows = [
        [f"{row['as']}, {row['d']} attributes, {row['n']:,}", *(row[head] for head in heads)]
        for row in results
    ]
    yield Table("Per new subscription; the share of them that is covered", ["", *heads], rows)


def panels(results: Results) -> list[Panel]:
    """Figures 8 and 9."""
    lines: dict[str, list[Any]] = {}
    for column in ("insertion us", "covering us", "linear us"):
        for colour, d in enumerate(DIMENSIONS):
            for kind, style in (("zipf", "o-"), ("uniform", "o:")):
                line = results.line(f"{kind}, {d}", "n", column, **{"d": d, "as": kind})
                lines.setdefault(column, []).append(line._replace(colour=colour, style=style))
    titles = ("Insertion (figure 8)", "Covering (figure 9)", "The linear check (figure 9)")
    return [
        Panel(title, "subscriptions", "µs per new one", some)
        for title, some in zip(titles, lines.values(), strict=True)
    ]


EXPERIMENT = Experiment(
    name="merge-insertion",
    title="Insertion and covering (figures 8 and 9)",
    parts=("Figure 8", "Figure 9"),
    about="""Boxes of 2 values per attribute; 2, 3 and 4 attributes. Insertion is with covering,
    subsumption and merging, and with the conversion to ranges. Covering is the check alone, the
    conversion included: is a new subscription held by earlier ones? The linear check looks for one
    subscription that covers it; it is compiled, and stops at the first.""",
    points=points,
    measure=measure,
    printed={"Figure 8": {"insertion, ms": {"in the order of": 0.1}}},
    ours=ours,
    claims=claims,
    tables=tables,
    panels=panels,
    columns=3,
    panel_size=(4.8, 3.8),
    seed=4,
    is_timed=True,
    verdicts={
        "Figure 8": """Agrees in part: flat within 1.4 times, growing with the attributes, at
        a tenth of the paper's time; differs in that uniform and Zipf take about the same,
        0.94 to 1.12 times.""",
        "Figure 9": """Agrees: flat within 1.5 times, and 22 to 303 times as fast as the
        linear check.""",
    },
)
