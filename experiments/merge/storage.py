"""Paper 004, figures 11 and 12: stored ranges, by attributes and by the size of boxes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from experiments.merge.workload import (
    DIMENSIONS,
    DISTRIBUTIONS,
    SIZES,
    filled,
    growth,
    made,
)
from rangecast.report.markdown import Table

CASES = [(2, 2), (3, 2), (4, 2), (3, 4), (3, 8)]
"""Attributes, and values of a box per attribute."""


def points(size: str) -> Iterator[Point]:
    """Each number of subscriptions in each case."""
    for distribution in DISTRIBUTIONS:
        for d, width in CASES:
            for n in SIZES[size]:
                yield {"n": n, "of": SIZES[size][-1], "d": d, "width": width, "as": distribution}


def measure(seed: int, n: int, of: int, d: int, width: int, **kind: str) -> dict[str, Any]:
    """Count the ranges of a summary."""
    return {"ranges": len(filled(made(seed, of, d, width, kind["as"]), n).ranges())}


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about both figures."""
    last = results.where(n=results[-1]["n"])
    shares = {
        (d, kind): last.one("ranges", **{"d": d, "width": 2, "as": kind}) / (d * last[0]["n"])
        for d in DIMENSIONS
        for kind in DISTRIBUTIONS
    }
    counts = [last.one("ranges", **{"d": d, "width": 2, "as": "zipf"}) for d in DIMENSIONS]
    yield Claim(
        "Figure 11",
        "more attributes, more ranges",
        counts == sorted(counts),
        "Zipf: " + ", ".join(f"{count:,}" for count in counts),
    )
    yield Claim(
        "Figure 11",
        "fewer ranges than d for each subscription",
        max(shares.values()) < 1,
        ", ".join(f"{d} {kind} {share:.2f} of it" for (d, kind), share in shares.items()),
    )
    yield Claim(
        "Figure 11",
        "fewest for Zipf",
        all(shares[d, "zipf"] < shares[d, "uniform"] for d in DIMENSIONS),
        "Zipf / uniform by attributes: "
        + ", ".join(f"{shares[d, 'zipf'] / shares[d, 'uniform']:.2f}" for d in DIMENSIONS),
    )
    for kind in DISTRIBUTIONS:
        some = [last.one("ranges", **{"d": 3, "width": width, "as": kind}) for width in (2, 4, 8)]
        yield Claim(
            "Figure 12",
            f"many more ranges from size 2 to 8 ({kind})",
            some == sorted(some),
            ", ".join(f"{count:,}" for count in some),
        )
    grown = {
        (width, kind): growth(results, "ranges", **{"d": 3, "width": width, "as": kind})
        for width in (2, 4, 8)
        for kind in DISTRIBUTIONS
    }
    yield Claim(
        "Figure 12",
        "the increase slows down as there are more subscriptions, for large boxes most",
        all(grown[2, kind] > grown[4, kind] > grown[8, kind] for kind in DISTRIBUTIONS),
        "times as many at the end: "
        + ", ".join(f"size {width} {kind} {value:.2f}" for (width, kind), value in grown.items()),
    )


def tables(results: Results) -> Iterator[Table]:
    """Ranges by the number of subscriptions."""
    ns = results.distinct("n")
    rows = [
        [
            f"{d} attributes, size {width}, {kind}",
            *results.column("ranges", **{"d": d, "width": width, "as": kind}),
        ]
        for d, width in CASES
        for kind in DISTRIBUTIONS
    ]
    yield Table("Stored ranges", ["subscriptions", *(f"{n:,}" for n in ns)], rows)


def panels(results: Results) -> list[Panel]:
    """Figures 11 and 12."""
    ns = results.distinct("n")
    eleven: list[Line] = []
    twelve: list[Line] = []
    for kind, style in (("zipf", "o-"), ("uniform", "o:")):
        for d, width in CASES:
            some = results.where(**{"d": d, "width": width, "as": kind})
            if width == 2:
                line = some.line(f"{kind}, {d} attributes", "n", "ranges")
                eleven.append(line._replace(colour=d - 2, style=style))
            if d == 3:
                line = some.line(f"{kind}, size {width}", "n", "ranges")
                twelve.append(line._replace(colour=width // 4, style=style))
    for d in DIMENSIONS:
        eleven.append(Line(f"d each, {d} attributes", ns, [d * n for n in ns], d - 2, "--"))
    return [
        Panel("By attributes (figure 11)", "subscriptions", "ranges", eleven, "y"),
        Panel("By size, 3 attributes (figure 12)", "subscriptions", "ranges", twelve, "y"),
    ]


EXPERIMENT = Experiment(
    name="merge-storage",
    title="Stored ranges (figures 11 and 12)",
    parts=("Figure 11", "Figure 12"),
    about="""The maximal ranges of what all subscriptions hold together. With 4 attributes a box of
    2 values per attribute is 8 ranges by the paper's own formula. The paper prints no numbers
    here.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    seed=4,
    verdicts={
        "Figure 11": """Agrees in part: more attributes mean more ranges; fewer than d per
        subscription only with 2 attributes, and for Zipf with 3: differs with 4, because a
        box is 8 ranges there by the paper's own formula, and boxes of 2 of 256 values have
        too little in common to make up for it. With 2 attributes uniform boxes fill the
        space, and so have fewer ranges than Zipf's.""",
        "Figure 12": """Agrees in part: as printed for Zipf; differs for uniform, because
        150,000 boxes of size 8 fill most of the space and their ranges join.""",
    },
)
