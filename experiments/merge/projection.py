"""Paper 004, table 2: false positives when 3 of 7 attributes are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import (
    Claim,
    Experiment,
    Line,
    Panel,
    Point,
    Results,
    Values,
    in_order,
)
from experiments.merge.workload import (
    DISTRIBUTIONS,
    EXACT,
    PUBLICATIONS,
    SIZES,
    made,
    passed,
)
from rangecast.merge.summary import Summary

PART = "Table 2"
LOWER = 0.95
"""A value counts as lower if it is at most this share; the paper's differ by a tenth and more."""


def points(size: str) -> Iterator[Point]:
    """Each number of subscriptions and distribution."""
    for distribution in DISTRIBUTIONS:
        for n in SIZES[size]:
            yield {"n": n, "publications": PUBLICATIONS[size], "as": distribution}


def measure(seed: int, n: int, publications: int, **kind: str) -> dict[str, Any]:
    """Count the publications that pass, and those that are false."""
    data = (seed, n, 7, 4, kind["as"], kind["as"], publications)
    one = made(*data)
    names = one.space.names[:3]
    table = Summary.of(
        one.boxes, one.space, bits=8, attributes=names, max_ranges_per_subscription=EXACT
    )
    held, right = passed(table, *data)
    return {"traffic": held, "false": 100 * (1 - right / max(held, 1))}


def ours(results: Results) -> dict[str, Values]:
    """Table 2."""
    found: dict[str, Any] = {}
    for kind in DISTRIBUTIONS:
        both = results.by("{n:,}", ["traffic", "false"], **{"as": kind})
        found[f"traffic, {kind}"] = both["traffic"]
        found[f"false, %, {kind}"] = both["false"]
    return {PART: found}


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims of the table."""
    for kind in DISTRIBUTIONS:
        false = results.column("false", **{"as": kind})
        yield Claim(
            PART,
            f"the share of false positives falls with the subscriptions ({kind})",
            false[-1] < LOWER * false[0],
            f"{false[0]:.1f}% to {false[-1]:.1f}%",
        )
    zipf, uniform = (results.column("false", **{"as": kind}) for kind in DISTRIBUTIONS)
    yield Claim(
        PART,
        "it is lower for Zipf than for uniform",
        all(one < LOWER * other for one, other in zip(zipf, uniform, strict=True)),
        f"at most {max(zipf):.1f}% and {max(uniform):.1f}%",
    )


def facts(results: Results) -> dict[str, str]:
    """Return the share of what passes that is false, from the least to the most."""
    false = results.column("false")
    return {"false": f"{min(false):.1f} to {max(false):.1f}%"}


def panels(results: Results) -> list[Panel]:
    """Traffic, the paper's beside ours."""
    lines = []
    for colour, kind in enumerate(DISTRIBUTIONS):
        line = results.line(f"{kind}, ours", "n", "traffic", **{"as": kind})
        lines.append(line._replace(colour=colour))
        paper = EXPERIMENT.printed[PART][f"traffic, {kind}"]
        xs = [int(n.replace(",", "")) for n in paper]
        lines.append(Line(f"{kind}, paper", xs, [*paper.values()], colour, "o:"))
    return [Panel("Publications that pass (table 2)", "subscriptions", "publications", lines)]


EXPERIMENT = Experiment(
    name="merge-projection",
    title="Content space projection (table 2)",
    parts=(PART,),
    about="""10,000 publications, 7 attributes of which 3 are used, boxes of 4 values per attribute;
    subscriptions and publications follow the same distribution. *Traffic* are the publications that
    pass, *false* the share of them that no subscription holds.""",
    points=points,
    measure=measure,
    printed={
        PART: in_order(
            (f"{n:,}" for n in SIZES["full"]),
            {
                "traffic, zipf": (5217, 6472, 7040, 7502),
                "false, %, zipf": (5.54, 3.71, 3.15, 2.57),
                "traffic, uniform": (209, 583, 858, 1325),
                "false, %, uniform": (42.11, 42.37, 36.95, 38.19),
            },
        )
    },
    ours=ours,
    claims=claims,
    panels=panels,
    facts=facts,
    panel_size=(6.8, 4.2),
    seed=4,
    verdicts={
        PART: """Can't be regenerated, because boxes of 4 of 256 values in 7 attributes hold
        so little that almost nothing matches exactly: nearly all that passes is false,
        {false}, where the paper has 3 to 42%. Differences between 98% and 100% say nothing
        of the paper's trends.""",
    },
)
