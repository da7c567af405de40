"""Paper 004, figure 10: matching a publication."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.merge.linear import covered
from experiments.merge.workload import (
    DIMENSIONS,
    DISTRIBUTIONS,
    PUBLICATIONS,
    SIZES,
    filled,
    growth,
    made,
)
from experiments.timing import best_of
from rangecast.merge.summary import Summary
from rangecast.report.markdown import Table

PART = "Figure 10"
LINEAR = 200
"""Publications that the linear algorithm gets."""


def points(size: str) -> Iterator[Point]:
    """Each number of subscriptions, attributes and distribution."""
    for distribution in DISTRIBUTIONS:
        for d in DIMENSIONS:
            for n in SIZES[size]:
                sizes = {"n": n, "of": SIZES[size][-1], "publications": 10 * PUBLICATIONS[size]}
                yield {**sizes, "d": d, "as": distribution}


def measure(seed: int, n: int, of: int, publications: int, d: int, **kind: str) -> dict[str, Any]:
    """Match all publications: down the tree, by a bit each, and one by one."""
    one = made(seed, of, d, 2, kind["as"], publications=publications)
    table = filled(one, n)
    blocks = np.array_split(one.points, 50)
    tree = best_of(partial(_in_blocks, table, blocks))  # before there is a bitmap
    bits = best_of(partial(table.may_match_many, one.points))
    few = one.points[:LINEAR]
    out = np.empty(len(few), np.bool_)
    linear = best_of(partial(covered, one.boxes.lo[:n], one.boxes.hi[:n], few, few, out))
    assert (bits.answer[: len(few)] >= out).all(), "the summary lacks a publication"
    return {
        "tree us": tree.least * 1e6 / publications,
        "bitmap us": bits.least * 1e6 / publications,
        "linear us": linear.least * 1e6 / len(few),
        "ranges": len(table.ranges()),
        "held": bits.answer.mean(),
    }


def _in_blocks(table: Summary, blocks: list[Any]) -> None:
    for block in blocks:
        table.may_match_many(block)


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figure."""
    cases = [{"d": d, "as": kind} for kind in DISTRIBUTIONS for d in DIMENSIONS]
    linear = [growth(results, "linear us", **case) for case in cases]
    tree = [growth(results, "tree us", **case) for case in cases]
    more = results.distinct("n")
    times = f"for {more[-1] / more[0]:g} times the subscriptions"
    yield Claim(
        PART,
        "the time of the linear algorithm increases with the subscriptions",
        min(linear) > 1,
        f"{min(linear):.1f} to {max(linear):.1f} times {times}",
    )
    yield Claim(
        PART,
        "that of the summary doesn't significantly (taken as: at most 2.5 times)",
        max(tree) <= 2.5,
        f"{min(tree):.2f} to {max(tree):.2f} times {times}",
    )
    faster = [row["linear us"] / row["tree us"] for row in results]
    yield Claim(
        PART,
        "the summary is significantly faster than the linear algorithm (taken as: ten times)",
        min(faster) > 10,
        f"{min(faster):,.0f} to {max(faster):,.0f} times as fast",
    )
    over = [
        np.mean(results.column("tree us", **{"d": d, "as": "uniform"}))
        / np.mean(results.column("tree us", **{"d": d, "as": "zipf"}))
        for d in DIMENSIONS
    ]
    yield Claim(
        PART,
        "it is faster for Zipf",
        bool(min(over) > 1),
        "uniform / Zipf by attributes: " + ", ".join(f"{ratio:.2f}" for ratio in over),
    )


def tables(results: Results) -> Iterator[Table]:
    """All that was measured."""
    heads = ["tree us", "bitmap us", "linear us", "ranges", "held"]
    rows = [
        [f"{row['as']}, {row['d']} attributes, {row['n']:,}", *(row[head] for head in heads)]
        for row in results
    ]
    yield Table("Per publication; stored ranges; the share that is held", ["", *heads], rows)


def panels(results: Results) -> list[Panel]:
    """Figure 10."""
    lines: dict[str, list[Any]] = {}
    for column in ("tree us", "linear us"):
        for colour, d in enumerate(DIMENSIONS):
            for kind, style in (("zipf", "o-"), ("uniform", "o:")):
                line = results.line(f"{kind}, {d}", "n", column, **{"d": d, "as": kind})
                lines.setdefault(column, []).append(line._replace(colour=colour, style=style))
    titles = ("The summary (figure 10)", "The linear algorithm (figure 10)")
    return [
        Panel(title, "subscriptions", "µs per publication", some)
        for title, some in zip(titles, lines.values(), strict=True)
    ]


EXPERIMENT = Experiment(
    name="merge-matching",
    title="Matching (figure 10)",
    parts=(PART,),
    about="""Boxes of 2 values per attribute; 2, 3 and 4 attributes; uniform publications. In small
    batches the summary goes down its tree, as the paper's does; in one large batch it reads one bit
    per publication. The linear algorithm is compiled, and stops at the first match. The paper
    prints no numbers here.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=4,
    is_timed=True,
    verdicts={
        "Figure 10": """Agrees in part: 220 to 1,900 times as fast as the linear algorithm,
        and 2.1 times the time at most for 7.5 times the subscriptions; Zipf is the faster
        one with 3 and 4 attributes, where its table is smaller, and level with 2, where both
        tables are small.""",
    },
)
