"""Paper 001, section IV-C: theorem 8, messages over two attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from rangecast.kernels.bundle import Bundle
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.notify import Board
from rangecast.notify.boxes.regions import Tiles
from rangecast.report.markdown import Table

SPACE = Space([Number("a"), Number("b")])
D = len(SPACE)
GROWTH = "Theorem 8"
EMPTY = "Section IV-C"
OBJECTS = {"tiny": (50, 100), "quick": (1_000, 10_000), "full": (1_000, 3_000, 10_000)}
KS = {"tiny": (1, 2), "quick": (1, 2), "full": (1, 2, 3)}
INTERESTS = {
    "tiny": (100, 300),
    "quick": (1_000, 10_000),
    "full": (1_000, 10_000, 100_000),
}
UPDATES = {"tiny": 20, "quick": 200, "full": 500}
_K, _ROOM = 2, 1 << 20
"""Of the boards with interests; boxes of Paint-Dense that a change may need here."""


def points(size: str) -> Iterator[Point]:
    """Paint-Dense by objects and k; then both algorithms by interests."""
    for k in KS[size]:
        for objects in OBJECTS[size]:
            yield {"objects": objects, "k": k, "interests": 0, "updates": UPDATES[size]}
    for interests in INTERESTS[size]:
        one = {"objects": OBJECTS[size][0], "k": _K, "updates": UPDATES[size]}
        yield {**one, "interests": interests}


def measure(seed: int, objects: int, k: int, interests: int, updates: int) -> dict[str, Any]:
    """Change values of objects at random."""
    random = np.random.default_rng(seed)
    at, ys = random.random((objects, D)), random.random(objects)
    which, values = random.integers(0, objects, updates), random.random(updates)
    ends = np.sort(random.random((interests, 2, D)), axis=1)
    things = {"id": np.arange(objects), "a": at[:, 0], "b": at[:, 1], "value": ys}
    dense = Board(k, space=SPACE, objects=things, algorithm="dense")
    dense_engine: Any = dense.engine
    dense_engine._painter._most = Bundle(Tiles.of(D, _ROOM))
    changes = list(zip(which.tolist(), values.tolist(), strict=True))
    boards = [dense]
    if interests:
        bounds = {
            f"{name}_{end}": ends[:, place, axis]
            for axis, name in enumerate(SPACE.names)
            for place, end in enumerate(("lo", "hi"))
        }
        wishes = {"id": np.arange(interests), **bounds}
        boards.append(Board(k, space=SPACE, objects=things, interests=wishes))
    counts, full = [[0] * updates for _ in boards], 0
    for number, change in enumerate(changes):
        for of_board, board in zip(counts, boards, strict=True):
            messages = board.update_many([change])
            of_board[number] = len(messages)
            if interests and board is dense:
                engine: Any = boards[1].engine
                full += sum(bool(len(engine.tree.within(tile))) for tile in messages.tile)
    found = {
        "dense": float(np.mean(counts[0])),
        "largest": max(counts[0]),
        "rivals": dense.work.rivals / updates,
        "too_many": dense.work.too_many,
    }
    if interests:
        found |= {"sparse": float(np.mean(counts[1])), "filled": full / max(1, sum(counts[0]))}
    return found


def _exponent(rows: Results) -> float:
    """Return by which power of k ln n messages grow, from the first row to the last."""
    first, last = rows[0], rows[-1]
    base = _base(last) / _base(first)
    return float(math.log(last["dense"] / first["dense"]) / math.log(base))


def _base(row: Point) -> float:
    return float(row["k"] * math.log(row["objects"]))


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about boxes."""
    growing = results.where(interests=0)
    by_objects = [_exponent(growing.where(k=k)) for k in growing.distinct("k")]
    by_k = [_exponent(growing.where(objects=n)) for n in growing.distinct("objects")]
    powers = [*by_objects, *by_k]
    yield Claim(
        GROWTH,
        "O((k ln n)^3) messages of Paint-Dense are expected with two independent attributes",
        max(powers) <= D + 1,
        f"(k ln n) to the power of {min(by_objects):.2f} to {max(by_objects):.2f} in n, "
        f"{min(by_k):.2f} to {max(by_k):.2f} in k",
    )
    watched = Results(row for row in results if row["interests"])
    filled, ratios = watched.column("filled"), [row["sparse"] / row["dense"] for row in watched]
    yield Claim(
        EMPTY,
        "many of the regions are empty, so Paint-Sparse is more effective",
        max(filled) < 0.5 and max(ratios) < 1,
        f"{min(filled):.1%} to {max(filled):.1%} of Dense's boxes hold an interest; Sparse sends "
        f"{min(ratios):.1%} to {max(ratios):.1%} of its messages",
    )


def tables(results: Results) -> Iterator[Table]:
    """Messages per update."""
    growing = results.where(interests=0)
    rows = [
        [
            row["k"],
            row["objects"],
            row["rivals"],
            row["dense"],
            row["largest"],
            row["dense"] / _base(row) ** (D + 1),
        ]
        for row in growing
    ]
    heads = ["k", "n", "rivals", "messages", "most", "messages / (k ln n)^3"]
    yield Table("Paint-Dense over two attributes, per update", heads, rows)
    watched = [row for row in results if row["interests"]]
    rows = [[row["interests"], row["dense"], row["filled"], row["sparse"]] for row in watched]
    title = f"Messages per update, {watched[0]['objects']:,} objects, k = {_K}"
    yield Table(title, ["interests", "Dense", "of them with interests", "Sparse"], rows)


def panels(results: Results) -> list[Panel]:
    """Messages of Paint-Dense by k ln n, and of both algorithms by interests."""
    growing = results.where(interests=0)
    watched = Results(row for row in results if row["interests"])
    lines = []
    for k in growing.distinct("k"):
        some = growing.where(k=k)
        lines.append(Line(f"k = {k}", [_base(row) for row in some], some.column("dense")))
    both = [watched.line(name, "interests", name) for name in ("dense", "sparse")]
    return [
        Panel("Paint-Dense, two attributes", "k ln n", "messages per update", lines, "xy"),
        Panel(f"k = {_K}", "interests", "messages per update", both, "xy"),
    ]


EXPERIMENT = Experiment(
    name="notify-boxes",
    title="Boxes over two attributes (theorem 8)",
    parts=(GROWTH, EMPTY),
    about="""Objects and their values are uniform and independent, and so are the ends of interests.
    An update gives an object a new value of the same distribution. The paper has no experiment over
    several attributes. A board sends a change by Paint-Sparse if Paint-Dense needs more than 16,384
    boxes; here it may need a million, so that every change is Paint-Dense's.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=1,
    verdicts={
        GROWTH: """Agrees: messages grow with k ln n to the power of 1.4 to 1.6 as there are more
        objects and of 2.3 as k grows, below the theorem's 3.""",
        EMPTY: "Agrees: of Paint-Dense's boxes, at most a tenth hold an interest.",
    },
)
