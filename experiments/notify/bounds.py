"""Paper 001, Theorem 3 and figure 18: how many messages a change can take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from experiments.notify.painting import OBJECTS, UPDATES, made
from rangecast.notify import Board
from rangecast.report.markdown import Table

KS = {"tiny": (1, 2, 4), "quick": (1, 2, 4, 8, 16), "full": (1, 2, 4, 8, 16, 32, 64)}
NUMBERS = {"tiny": (20, 40), "quick": (100, 200, 400), "full": (100, 300, 1_000, 3_000, 10_000)}
WORST_K = {"tiny": (1, 4), "quick": (1, 4, 16), "full": (1, 4, 16)}


def points(size: str) -> Iterator[Point]:
    """Random objects, each made the worst of all and then as good as before; then figure 18."""
    for k in KS[size]:
        sizes = {"objects": OBJECTS[size], "updates": UPDATES[size] // 50}
        yield {"case": "random", **sizes, "k": k}
    for k in WORST_K[size]:
        for objects in NUMBERS[size]:
            yield {"case": "figure 18", "objects": objects, "updates": 1, "k": k}


def worst(objects: int) -> dict[str, Any]:
    """Return figure 18: values rise inwards on both sides in turn; the best lies in the middle."""
    inwards = np.arange(objects)
    side = np.where(inwards % 2, 1.0, -1.0)
    x = np.append(side * (objects - inwards), 0.0)
    return {"id": np.arange(objects + 1), "position": x, "value": np.append(inwards + 2.0, 1.0)}


def measure(seed: int, case: str, objects: int, updates: int, k: int) -> dict[str, Any]:
    """Count the messages of Paint-Dense, and the objects that they are about."""
    if case == "figure 18":
        board = Board(k, objects=worst(objects), algorithm="dense")
        messages = board.set_value(objects, objects + 2.0)
        about = len(np.unique(messages.slot)) - 1
        return {"raising": None, "lowering": float(len(messages)), "exposed": float(about)}
    data = made(seed, objects, 0, updates)
    board = data.board(k, algorithm="dense")
    raising = lowering = exposed = 0
    rng = np.random.default_rng(seed)
    for one in rng.integers(0, objects, updates).tolist():
        y = board.objects[one].value
        messages = board.set_value(one, 2.0)  # above all others
        lowering += len(messages)
        exposed += len(np.unique(messages.slot)) - 1
        raising += len(board.set_value(one, y))
    values = {"raising": raising, "lowering": lowering, "exposed": exposed}
    return {name: value / updates for name, value in values.items()}


def claims(results: Results) -> Iterator[Claim]:
    """Theorem 3 and Lemma 4."""
    random = results.where(case="random")
    ks, lowering = random.column("k"), random.column("lowering")
    over = [count / k for count, k in zip(random.column("raising"), ks, strict=True)]
    yield Claim(
        "Theorem 3",
        "a value that gets better takes at most k messages",
        max(over) <= 1,
        f"{min(over):.2f} k to {max(over):.2f} k",
    )
    half = len(ks) // 2
    power = np.log(lowering[-1] / lowering[half]) / np.log(ks[-1] / ks[half])
    yield Claim(
        "Theorem 3",
        "one that gets worse takes in the order of k^2, if the object is any one",
        1.7 < power < 2.3,
        f"k^{power:.2f} from k = {ks[half]} to {ks[-1]}; {lowering[-1] / ks[-1] ** 2:.2f} k^2",
    )
    exposed = [count / k for count, k in zip(random.column("exposed"), ks, strict=True)]
    yield Claim(
        "Lemma 4",
        "it exposes at most 2k objects on average (taken as: 2.1k, of a sample)",
        max(exposed) <= 2.1,
        f"{min(exposed):.2f} k to {max(exposed):.2f} k",
    )
    least = min(
        row["lowering"] / (row["objects"] * row["k"]) for row in results.where(case="figure 18")
    )
    yield Claim(
        "Figure 18",
        "one change takes in the order of n k messages (taken as: at least n k / 2)",
        least >= 0.5,
        f"at least {least:.2f} n k",
    )


def tables(results: Results) -> Iterator[Table]:
    """Messages by k, and by the number of objects."""
    rows = [
        [row["k"], row["raising"], row["lowering"], row["lowering"] / row["k"] ** 2, row["exposed"]]
        for row in results.where(case="random")
    ]
    heads = ["k", "gets its value back", "gets worst", "gets worst / k^2", "exposed objects"]
    yield Table("Messages of Paint-Dense for one change of any object", heads, rows)
    worst_rows = results.where(case="figure 18")
    ks = worst_rows.distinct("k")
    rows = [
        [n, *(worst_rows.one("lowering", objects=n, k=k) for k in ks)]
        for n in worst_rows.distinct("objects")
    ]
    yield Table("Messages for the change of figure 18", ["n", *(f"k = {k}" for k in ks)], rows)


def panels(results: Results) -> list[Panel]:
    """Both as lines, beside what the theorem says."""
    random, worst_rows = results.where(case="random"), results.where(case="figure 18")
    ks = random.column("k")
    by_k = [
        random.line("gets worst", "k", "lowering"),
        Line("k^2", ks, [k**2 for k in ks], style="--"),
        random.line("gets its value back", "k", "raising"),
        Line("k", ks, ks, style="--"),
    ]
    by_n = []
    for colour, k in enumerate(worst_rows.distinct("k")):
        line = worst_rows.line(f"k = {k}", "objects", "lowering", k=k)
        by_n += [
            line._replace(colour=colour),
            Line("", line.xs, [n * k for n in line.xs], colour, "--"),
        ]
    return [
        Panel("Theorem 3: any object", "k", "messages", by_k, "xy"),
        Panel("Figure 18: the worst case (dashed: n k)", "objects n", "messages", by_n, "xy"),
    ]


EXPERIMENT = Experiment(
    name="notify-bounds",
    title="How many messages a change can take (Theorem 3, figure 18)",
    parts=("Theorem 3", "Lemma 4", "Figure 18"),
    about="""Paint-Dense, which sends the fewest. Any object of the uniform workload becomes the
    worst of all, and gets its value back. In figure 18 values rise from both ends towards the
    middle, where the best one becomes the worst: each other one is exposed, to k rectangles.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=1,
    verdicts={
        "Theorem 3": "Agrees.",
        "Lemma 4": "Agrees: the bound is tight.",
        "Figure 18": """Agrees: all but the first k - 1 objects are exposed, nearly all to k
        rectangles.""",
    },
)
