"""Paper 003, section 3.1: IR-trees that are edited in place, by the number of intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.rank.workload import SKEW, K, made, ranked
from experiments.timing import DisagreementError, timed
from rangecast.model.boxes import Boxes
from rangecast.rank.papers.ir import IrTrees
from rangecast.report.markdown import Table

PART = "Section 3.1, updates"
NUMBERS = {"tiny": (300, 500), "quick": (10_000, 100_000), "full": (10_000, 100_000, 1_000_000)}
EDITS = {"tiny": 50, "quick": 2_000, "full": 2_000}
EVENTS = {"tiny": 5, "quick": 500, "full": 500}


def points(size: str) -> Iterator[Point]:
    """More and more intervals, as many edits."""
    for n in NUMBERS[size]:
        yield {"n": n, "changes": EDITS[size], "events": EVENTS[size]}


def _taken(boxes: Boxes, first: int, last: int) -> Boxes:
    return boxes.take(np.arange(first, last))


def measure(seed: int, n: int, changes: int, events: int) -> dict[str, Any]:
    """Insert some intervals and delete as many; compare with trees that were built so."""
    boxes, where = made(seed, n + changes, events, 1, SKEW)
    trees, seconds = timed(lambda: IrTrees(_taken(boxes, 0, n)))
    trees.delete(trees.insert(_taken(boxes, 0, 1)))  # the first edit copies the arrays
    _, inserting = timed(lambda: trees.insert(_taken(boxes, n, n + changes)))
    after = ranked(trees, where, 1, K, 3)
    whole = ranked(IrTrees(boxes), where, 1, K, 3)
    if trees.best(where, K).scores.tolist() != IrTrees(boxes).best(where, K).scores.tolist():
        raise DisagreementError("trees that were edited rank differently from those built anew")
    _, deleting = timed(lambda: trees.delete(np.arange(changes)))
    return {
        "build": seconds,
        "insert": inserting / changes * 1e6,
        "delete": deleting / changes * 1e6,
        "edited": after["us"],
        "built": whole["us"],
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about updates."""
    costs = [row["insert"] / row["build"] / 1e6 for row in results]
    yield Claim(
        PART,
        "IR-trees are easily updated (taken as: an edit takes below a thousandth of building)",
        max(costs) < 1e-3,
        ", ".join(f"{1 / cost:,.0f} insertions take as long as building" for cost in costs),
    )


def tables(results: Results) -> Iterator[Table]:
    """Times."""
    heads = ["build", "insert", "delete", "edited", "built"]
    rows = [[row["n"], *(row[head] for head in heads)] for row in results]
    named = ["build, s", "insertion, us", "deletion, us", "rank, edited, us", "rank, built, us"]
    yield Table("Intervals on one attribute, k = 20", ["n", *named], rows)


def panels(results: Results) -> list[Panel]:
    """Time of an edit."""
    lines = [results.line(what, "n", what) for what in ("insert", "delete")]
    return [Panel("Edits in place", "intervals", "µs per interval", lines, "xy")]


def facts(results: Results) -> dict[str, str]:
    """Return the times at the most intervals."""
    last = results[-1]
    slower = max(row["edited"] / row["built"] for row in results)
    return {
        "insert": f"{last['insert']:.1f}",
        "delete": f"{last['delete']:.1f}",
        "n": f"{last['n']:,}",
        "slower": f"{slower:.2f}",
    }


EXPERIMENT = Experiment(
    name="rank-edits",
    title="Updates of an IR-tree (section 3.1)",
    parts=(PART,),
    about="""Intervals of Table 1 on one attribute: as many are inserted as one batch, and others
    are deleted. Ranking afterwards is compared with trees that are built of the same intervals;
    both give the same scores. The paper has no experiment on updates.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    facts=facts,
    seed=3,
    is_timed=True,
    verdicts={
        PART: """Agrees: with {n} intervals an insertion takes {insert} us and a deletion {delete},
        and edited trees rank in up to {slower} times the time of trees that are built.""",
    },
)
