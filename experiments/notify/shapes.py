"""Paper 001, section V: figure 15, other distributions of objects, interests and changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from experiments.notify.painting import (
    INTERESTS,
    K_HEADS,
    KS,
    OBJECTS,
    UPDATES,
    made,
    painted,
)
from rangecast.notify.messages import BYTES
from rangecast.report.markdown import Table

SHAPES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "clustered, lambda 0.5": {"interest_distribution": "clustered", "spread": 0.5},
    "clustered, lambda 0.25": {"interest_distribution": "clustered", "spread": 0.25},
    "clustered, lambda 0.1": {"interest_distribution": "clustered", "spread": 0.1},
    "correlated": {"object_distribution": "clustered", "interest_distribution": "correlated"},
    "anti-correlated": {
        "object_distribution": "clustered",
        "interest_distribution": "anti-correlated",
    },
}
VOLATILITIES = (0.125, 1.0)


def points(size: str) -> Iterator[Point]:
    """Both algorithms on each shape; Paint-Dense by k where values change a little."""
    sizes = {"objects": OBJECTS[size], "updates": UPDATES[size]}
    for shape in SHAPES:
        for algorithm in ("dense", "sparse"):
            yield {
                **sizes,
                "interests": INTERESTS[size],
                "shape": shape,
                "volatility": None,
                "algorithm": algorithm,
                "k": 10,
            }
    for volatility in VOLATILITIES:
        for k in KS:
            yield {
                **sizes,
                "interests": 0,
                "shape": "uniform",
                "volatility": volatility,
                "algorithm": "dense",
                "k": k,
            }


def measure(
    seed: int,
    objects: int,
    updates: int,
    interests: int,
    shape: str,
    volatility: float | None,
    algorithm: str,
    k: int,
) -> dict[str, Any]:
    """Paint all updates."""
    settings = dict(SHAPES[shape])
    if volatility is not None:
        settings |= {"change": "gaussian", "volatility": volatility}
    return painted(made(seed, objects, interests, updates, **settings), k, algorithm)


def _ratio(results: Results, shape: str) -> float:
    dense, sparse = results.column("sent", shape=shape, volatility=None)
    return float(sparse / dense)


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figures."""
    clustered = [_ratio(results, shape) for shape in [*SHAPES][:4]]
    yield Claim(
        "Figure 15(a)",
        "Paint-Sparse sends less with more clustered interests",
        clustered == sorted(clustered, reverse=True),
        "Sparse / Dense: " + ", ".join(f"{ratio:.3f}" for ratio in clustered),
    )
    anti, correlated = _ratio(results, "anti-correlated"), _ratio(results, "correlated")
    yield Claim(
        "Figure 15(a)",
        "it skips more for the anti-correlated workload than for the correlated one",
        anti < correlated,
        f"Sparse / Dense: {anti:.3f} and {correlated:.3f}",
    )
    low, high = (results.column("sent", volatility=c) for c in VOLATILITIES)
    yield Claim(
        "Figure 15(b)",
        "Paint-Dense sends fewer messages when values change less",
        all(few < many for few, many in zip(low, high, strict=True)),
        f"{low[-1] / high[-1]:.2f} of them at k = {KS[-1]}",
    )


def tables(results: Results) -> Iterator[Table]:
    """Messages per update."""
    rows = []
    for shape in SHAPES:
        dense, sparse = results.where(shape=shape, volatility=None)
        ratio = sparse["sent"] / dense["sent"]
        rows.append([shape, dense["sent"], sparse["sent"], ratio, sparse["min_y"]])
    title = f"Messages per update, k = 10, {results[0]['interests']:,} interests"
    yield Table(title, ["workload", "Dense", "Sparse", "Sparse / Dense", "Sparse min_y"], rows)
    changing = [[f"c = {c:g}", *results.column("sent", volatility=c)] for c in VOLATILITIES]
    title = "Messages of Paint-Dense per update when values change a little"
    yield Table(title, ["volatility", *K_HEADS], changing)


def panels(results: Results) -> list[Panel]:
    """Figure 15."""
    shapes = [*SHAPES]
    bars = Line("", shapes, [_ratio(results, shape) for shape in shapes])
    changing = [
        Line(f"c = {c:g}", KS, [BYTES * sent for sent in results.column("sent", volatility=c)])
        for c in VOLATILITIES
    ]
    return [
        Panel("15(a) messages, Sparse / Dense", "", "", [bars], bars=True),
        Panel("15(b) Gaussian changes, Dense", "k", "bytes per update", changing),
    ]


EXPERIMENT = Experiment(
    name="notify-shapes",
    title="Other workloads (figure 15)",
    parts=("Figure 15(a)", "Figure 15(b)"),
    about="""The values of lambda and c are in the paper's pictures only, which are lost; ours are a
    guess. Changes are Gaussian with c / 8 of
    the range of values as standard deviation.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=1,
    verdicts={
        "Figure 15(a)": """Agrees in its directions; the values can't be compared, because
        those of lambda are lost.""",
        "Figure 15(b)": """Agrees in its direction; the values can't be compared, because
        those of c are lost.""",
    },
)
