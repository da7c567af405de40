"""Paper 001, section V: Table IV and figure 11, by the number of interests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Panel, Point, Results, Values
from experiments.notify.painting import OBJECTS, UPDATES, made, painted
from rangecast.notify.messages import BYTES, LETTER_BYTES

NUMBERS = {
    "tiny": (200, 500),
    "quick": (5_000, 20_000, 50_000),
    "full": (200_000, 800_000, 4_000_000, 5_000_000, 10_000_000),
}
LARGEST = {"tiny": 500, "quick": 50_000, "full": 5_000_000}
"""That figure 11 has, and for which the paper gives the largest update; Table IV has more."""
KS = (2, 10, 20)
MOST = "bytes of the largest update, k = 20"
TABLE_IV = {
    "200,000": (3.52, 29.87, 545.23),
    "800,000": (4.784, 37.34, 2181.49),
    "4,000,000": (5.94188, 42.0509, 10906.4),
    "10,000,000": (6.26988, 42.86982, 27267.5),
    "Dense": (6.60, 43.36, None),
}


def points(size: str) -> Iterator[Point]:
    """Paint-Sparse, exact and approximate, with each number of interests; Dense needs none.

    Dense in one rectangle reaches the interests that Unicast looks at.
    """
    sizes = {"objects": OBJECTS[size], "updates": UPDATES[size]}
    for k in KS:
        yield {**sizes, "interests": 0, "algorithm": "dense", "k": k, "epsilon": None}
    for interests in NUMBERS[size]:
        if interests > LARGEST[size]:
            how = {"algorithm": "sparse", "k": 10, "epsilon": None}
            yield {**sizes, "interests": interests, **how}
        else:
            for k in KS:
                for epsilon in (None, 1.0):
                    how = {"algorithm": "sparse", "k": k, "epsilon": epsilon}
                    yield {**sizes, "interests": interests, **how}
        if interests != LARGEST[size]:
            how = {"algorithm": "dense", "k": 10, "epsilon": 1.0}
            yield {**sizes, "interests": interests, **how}


def measure(
    seed: int,
    objects: int,
    updates: int,
    interests: int,
    algorithm: str,
    k: int,
    epsilon: float | None,
) -> dict[str, Any]:
    """Paint all updates."""
    row = painted(made(seed, objects, interests, updates), k, algorithm, epsilon)
    row["bytes"] = BYTES * row["sent"]
    row["unicast bytes"] = LETTER_BYTES * row["received"]
    return row


def _figure(results: Results) -> Results:
    """Return the rows of figure 11."""
    most = max(row["interests"] for row in results if row["k"] == 20)
    return Results(row for row in results if row["interests"] <= most)


def ours(results: Results) -> dict[str, Values]:
    """Table IV, and the bytes that the paper gives of figures 11 and 13."""
    exact = results.where(k=10, epsilon=None)
    names = ("min_y", "snap", "Unicast min_y", "messages")
    calls: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for row in [*exact.where(algorithm="sparse"), *exact.where(algorithm="dense")]:
        name = f"{row['interests']:,}" if row["interests"] else "Dense"
        calls["min_y"][name] = row["min_y"]
        calls["snap"][name] = row["snap"] if row["interests"] else row["sent"]
        calls["messages"][name] = row["sent"]
    for row in results.where(algorithm="dense", epsilon=1.0):
        calls["Unicast min_y"][f"{row['interests']:,}"] = row["received"]
    large = results.where(algorithm="sparse", epsilon=None, k=20)[-1]
    name = f"{large['interests']:,} interests"
    return {
        "Table IV": calls,
        "Figure 11(a)": {
            f"Unicast, {name}": {"bytes at k = 20": large["unicast bytes"]},
            "Paint-Dense": {
                "bytes at k = 20": results.one("bytes", k=20, algorithm="dense", epsilon=None)
            },
        },
        "Figure 13(a), more interests": {
            f"Unicast, {name}": {MOST: LETTER_BYTES * large["most received"]},
            f"Paint-Sparse, {name}": {MOST: BYTES * large["most sent"]},
        },
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the table and the figures."""
    every = results.where(k=10, epsilon=None)
    calls = every.column("min_y", algorithm="sparse")
    many = every.where(algorithm="sparse")[-1]
    ratio = many["sent"] / every.one("sent", algorithm="dense")
    results = _figure(results)
    sparse = results.where(algorithm="sparse", epsilon=None)
    yield Claim(
        "Table IV",
        "the calls of Paint-Sparse increase only by a factor of roughly 2 (taken as: below 2.5)",
        calls[-1] < 2.5 * calls[0],
        f"{calls[-1] / calls[0]:.2f} times for {many['interests']:,} interests",
    )
    yield Claim(
        "Figure 15(a), ten million",
        "Sparse / Dense is 1 with ten million interests, which are basically dense",
        ratio > 0.95,
        f"{ratio:.2f} with {many['interests']:,}",
    )
    ms = sparse.distinct("interests")
    letters = sparse.column("unicast bytes", k=20)
    growth = (letters[-1] / letters[0]) / (ms[-1] / ms[0])
    yield Claim(
        "Figure 11(a)",
        "Unicast's traffic grows in proportion to the interests",
        0.8 < growth < 1.25,
        f"{letters[-1] / letters[0]:.1f} times for {ms[-1] / ms[0]:.0f} times the interests",
    )
    dense = {k: results.one("bytes", algorithm="dense", k=k, epsilon=None) for k in KS}
    ratios = {k: [sent / dense[k] for sent in sparse.column("bytes", k=k)] for k in KS}
    yield Claim(
        "Figure 11(b)",
        "Paint-Sparse sends less than Paint-Dense, the less the fewer interests there are",
        all(max(some) <= 1 and some == sorted(some) for some in ratios.values()),
        "Sparse / Dense at k = 10: " + ", ".join(f"{ratio:.2f}" for ratio in ratios[10]),
    )
    loose = results.where(algorithm="sparse", epsilon=1.0).column("bytes")
    fewer = [some / whole for some, whole in zip(loose, sparse.column("bytes"), strict=True)]
    yield Claim(
        "Figure 11(c)",
        "approximation sends less still",
        max(fewer) <= 1,
        f"{min(fewer):.2f} to {max(fewer):.2f} of it",
    )


def panels(results: Results) -> list[Panel]:
    """Figure 11."""
    results = _figure(results)
    ms = results.where(algorithm="sparse").distinct("interests")
    lines: dict[str, list[Any]] = {"a": [], "b": [], "c": []}
    for colour, k in enumerate(KS):
        some = results.where(algorithm="sparse", k=k)
        flat = [results.one("bytes", algorithm="dense", k=k, epsilon=None)] * len(ms)
        exact = some.line(f"Sparse, k = {k}", "interests", "bytes", epsilon=None)
        dense = exact._replace(label=f"Dense, k = {k}", ys=flat, style="--", colour=colour)
        letters = some.line(f"Unicast, k = {k}", "interests", "unicast bytes", epsilon=None)
        loose = some.line(f"Sparse(1), k = {k}", "interests", "bytes", epsilon=1.0)
        lines["a"] += [letters._replace(colour=colour), dense]
        lines["b"] += [exact._replace(colour=colour), dense]
        lines["c"] += [exact._replace(colour=colour), loose._replace(colour=colour, style="o:")]
    titles = {"a": "Unicast and Dense", "b": "Sparse and Dense", "c": "exact and approximate"}
    return [
        Panel(f"11({key}) {title}", "interests", "bytes per update", lines[key], "xy")
        for key, title in titles.items()
    ]


EXPERIMENT = Experiment(
    name="notify-crowds",
    title="By the number of interests (Table IV, figure 11)",
    parts=(
        "Table IV",
        "Figure 11(a)",
        "Figure 11(b)",
        "Figure 11(c)",
        "Figure 13(a), more interests",
        "Figure 15(a), ten million",
    ),
    about="""The uniform workload. A tile of Paint-Dense is a message: the paper gives their number
    as snaps. The calls of Unicast are interests looked at. CN-Relax has no
    server.""",
    points=points,
    measure=measure,
    printed={
        "Table IV": {
            name: {m: values[place] for m, values in TABLE_IV.items()}
            for place, name in enumerate(("min_y", "snap", "Unicast min_y"))
        },
        "Figure 11(a)": {
            "Unicast, 5,000,000 interests": {"bytes at k = 20": 316_158},
            "Paint-Dense": {"bytes at k = 20": 3_501},
        },
        "Figure 13(a), more interests": {
            "Unicast, 5,000,000 interests": {MOST: 39_998_000},
            "Paint-Sparse, 5,000,000 interests": {MOST: 31_752},
        },
    },
    ours=ours,
    claims=claims,
    panels=panels,
    columns=3,
    panel_size=(4.8, 3.8),
    seed=1,
    verdicts={
        "Table IV": "Agrees: {least} to {most} times the paper's.",
        "Figure 11(a)": "Agrees: {least} to {most} times the paper's.",
        "Figure 11(b)": """Agrees: Paint-Sparse sends less than Paint-Dense, the less the fewer
        interests there are.""",
        "Figure 11(c)": "Agrees: approximation sends less still.",
        "Figure 13(a), more interests": """Agrees in part: Unicast within 0.1%; our largest
        update of Paint-Sparse, a single one of 50,000, sends 1.5 times as much.""",
        "Figure 15(a), ten million": """Differs: we send half of Paint-Dense's messages,
        although we look at as many tiles as the paper does (Table IV).""",
    },
)
