"""Paper 004, sections 3.6 and 6.3, which have no numbers: imperfect merging, and variable cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.merge.workload import EXACT, PUBLICATIONS, SIZES, filled, made, passed
from rangecast.merge.cells import Cells
from rangecast.merge.summary import Summary
from rangecast.report.markdown import Table

GAPS = (0, 1, 4, 16, 64, 256, 1024)
BITS = (4, 5, 6, 7)
KINDS = ("equal", "quantiles")


def points(size: str) -> Iterator[Point]:
    """Each gap; then each number of bits, with cells of equal size and by quantiles."""
    n, publications = SIZES[size][1], 5 * PUBLICATIONS[size]
    for gap in GAPS:
        yield {"n": n, "publications": publications, "gap": gap}
    for distribution, count in (("zipf", n), ("uniform", n // 20)):
        for bits in BITS:
            for cells in KINDS:
                what = {"bits": bits, "cells": cells, "as": distribution}
                yield {"n": count, "publications": publications, **what}


def measure(
    seed: int,
    n: int,
    publications: int,
    gap: int | None = None,
    bits: int = 8,
    cells: str = "equal",
    **kind: str,
) -> dict[str, Any]:
    """Sum all subscriptions up, and let publications pass."""
    data = (seed, n, 3, 4, kind.get("as", "zipf"), "zipf", publications)
    one = made(*data)
    first = 0
    if gap is not None:
        table = filled(one, n, gap=gap)
    else:
        first = publications // 2  # the first half cuts the cells, the second one is counted
        how = (
            Cells.uniform(one.space, bits)
            if cells == "equal"
            else Cells.quantiles(one.space, bits, one.points[:first])
        )
        table = Summary.of(one.boxes, one.space, cells=how, max_ranges_per_subscription=EXACT)
    held, right = passed(table, *data, first=first)
    row = {"ranges": len(table.ranges()), "passed": held, "right": right}
    return row | {"share": 100 * table.coverage()} if gap is not None else row


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims."""
    some = [row for row in results if row.get("gap") is not None]
    ranges, traffic = [row["ranges"] for row in some], [row["passed"] for row in some]
    yield Claim(
        "Section 3.6",
        "imperfect merging trades fewer ranges for false positives",
        ranges == sorted(ranges, reverse=True) and traffic == sorted(traffic),
        f"{ranges[-1] / ranges[0]:.3f} times the ranges, {traffic[-1] / traffic[0]:.3f} passed",
    )
    for kind in ("zipf", "uniform"):
        equal, quantiles = (results.column("passed", **{"cells": c, "as": kind}) for c in KINDS)
        fewer = [a / max(b, 1) for a, b in zip(quantiles, equal, strict=True)]
        yield Claim(
            "Section 6.3",
            f"smaller cells where publications are frequent mean fewer false positives ({kind})",
            max(fewer) < 1,
            "passed, quantiles / equal cells, by bits: "
            + ", ".join(f"{ratio:.2f}" for ratio in fewer),
        )


def tables(results: Results) -> Iterator[Table]:
    """Both trades."""
    some = [row for row in results if row.get("gap") is not None]
    rows = []
    for row in some:
        extra = row["passed"] / max(row["right"], 1) - 1
        rows.append([row["gap"], row["ranges"], row["share"], row["passed"], extra])
    title = f"Gaps closed: {some[0]['n']:,} subscriptions, {some[0]['publications']:,} publications"
    yield Table(title, ["gap", "ranges", "% of the space", "passed", "extra traffic"], rows)
    rows = [
        [
            f"{row['n']:,} subscriptions, {row['as']}, {row['bits']} bits, {row['cells']}",
            *(row["ranges"], row["passed"], 1 - row["right"] / max(row["passed"], 1)),
        ]
        for row in results
        if row.get("gap") is None
    ]
    yield Table("Fewer cells than values", ["", "ranges", "passed", "false"], rows)


def panels(results: Results) -> list[Panel]:
    """Both trades."""
    gaps = Results(row for row in results if row.get("gap") is not None)
    lines = [
        results.line(f"{kind}, {cells}", "bits", "passed", **{"cells": cells, "as": kind})
        for kind in ("zipf", "uniform")
        for cells in KINDS
    ]
    return [
        Panel("Imperfect merging", "ranges", "passed", [gaps.line("", "ranges", "passed")], "x"),
        Panel("Variable cells", "bits per attribute", "passed", lines, "y"),
    ]


EXPERIMENT = Experiment(
    name="merge-imperfect",
    title="Imperfect merging and variable cells",
    parts=("Section 3.6", "Section 6.3"),
    about="""What the paper describes without numbers: 3 attributes, boxes of 4 values per
    attribute, Zipf publications. Gaps of up to this many places are closed; cells are of equal
    size, or cut by quantiles of the first half of the publications and measured on the second.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=4,
    verdicts={
        "Section 3.6": """Agrees: gaps of up to 64 places leave 9% of the ranges for 13% more
        traffic.""",
        "Section 6.3": """Agrees in part: it holds where subscriptions are spread; differs
        where they crowd at the same values as publications, because nearly all is held there
        anyway and coarse cells are better spent elsewhere.""",
    },
)
