"""Paper 001, Appendix D-C: Tables VII and VIII and figure 26, a range and an upper bound."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

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
from rangecast.notify import Board
from rangecast.notify.boxes.points import Points
from rangecast.report.markdown import Table
from rangecast.workloads import generate
from rangecast.workloads.base import Workload

KS = (1, 2, 5, 10, 15)
K_HEADS = [f"k = {k}" for k in KS]
OBJECTS = {"tiny": 200, "quick": 2_000, "full": 10_000}
INTERESTS = {"tiny": 500, "quick": 40_000, "full": 400_000}
UPDATES = {"tiny": 50, "quick": 1_000, "full": 50_000}
COVERED = {"DS#1": 0, "DS#2": 1000, "DS#3": 100}
"""Objects in the range of each interest; 0: two random ends."""
BYTES = 36
"""Of a message: six bounds, two places and a value, where four, one and one are 24 bytes."""
TABLE_VII = {
    "Paint-Dense": (6.35, 11.31, 26.13, 50.48, 74.40),
    "Paint-Sparse DS#1": (5.68, 9.88, 23.07, 45.85, 68.826),
    "Paint-Sparse DS#2": (5.40, 8.97, 19.45, 36.97, 54.67),
    "Paint-Sparse DS#3": (5.51, 9.36, 21.12, 41.13, 61.07),
}
TABLE_VIII = {
    "Paint-Sparse DS#1": (4.55, 13.86, 88.43, 473.43, 1361.90),
    "Paint-Sparse DS#2": (4.08, 10.92, 51.44, 213.40, 561.45),
    "Paint-Sparse DS#3": (4.29, 12.28, 70.69, 360.45, 1022.86),
}
_CHUNK = 1_000


def points(size: str) -> Iterator[Point]:
    """Dense once; Sparse on each set of interests."""
    for algorithm, data in [("dense", "DS#1"), *(("sparse", data) for data in COVERED)]:
        for k in KS:
            yield {
                "objects": OBJECTS[size],
                "interests": INTERESTS[size],
                "updates": UPDATES[size],
                "data": data,
                "algorithm": algorithm,
                "as_paper": True,
                "k": k,
            }


@lru_cache(1)
def _made(
    seed: int, objects: int, interests: int, updates: int, data: str
) -> tuple[Workload, Points]:
    covered = COVERED[data] * objects // OBJECTS["full"]
    sizes = {"objects": objects, "interests": interests, "updates": updates}
    made = generate("topk-1.5d", seed=seed, covered=covered, **sizes)
    board = Board(
        1, space=made.space, upper_bound_attribute="z", interests=made.tables["interests"]
    )
    engine: Any = board.engine
    return made, engine.tree


def measure(
    seed: int,
    objects: int,
    interests: int,
    updates: int,
    data: str,
    algorithm: str,
    as_paper: bool,
    k: int,
) -> dict[str, Any]:
    """Paint all updates one by one."""
    made, tree = _made(seed, objects, interests, updates, data)
    options: dict[str, Any] = {
        "space": made.space,
        "upper_bound_attribute": "z",
        "algorithm": algorithm,
    }
    board = Board(k, objects=made.tables["objects"], **options)
    engine: Any = board.engine
    engine.tree = tree  # it doesn't change meanwhile
    engine._painter.as_paper = as_paper
    ids, ys = (made.tables["updates"][name].to_pylist() for name in ("id", "value"))
    sent = np.zeros(updates, np.int64)
    for first in range(0, updates, _CHUNK):
        some = slice(first, first + _CHUNK)
        messages = board.update_many(list(zip(ids[some], ys[some], strict=True)))
        sent += np.bincount(messages.seq, minlength=updates)
    work = board.work
    return {
        "sent": sent.sum() / updates,
        "most sent": int(sent.max()),
        "min": (work.min_height + work.min_y) / updates,
        "min_height": work.min_height / updates,
        "snap": work.snap / updates,
    }


def _rows(results: Results, column: str) -> dict[str, list[Any]]:
    """Return a column by algorithm and data, in the order of k."""
    rows = {"Paint-Dense": results.column(column, algorithm="dense")}
    for data in COVERED:
        found = results.column(column, algorithm="sparse", data=data)
        rows[f"Paint-Sparse {data}"] = found
    return rows


def ours(results: Results) -> dict[str, Values]:
    """Both tables."""
    mins, snaps = _rows(results, "min"), _rows(results, "snap")
    del snaps["Paint-Dense"]
    return {"Table VII": in_order(K_HEADS, mins), "Table VIII": in_order(K_HEADS, snaps)}


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims of Table VII."""
    rows = _rows(results, "min")
    dense = rows.pop("Paint-Dense")
    yield Claim(
        "Table VII",
        "Paint-Sparse asks less often than Paint-Dense for every k and each set of interests",
        all(few < many for row in rows.values() for few, many in zip(row, dense, strict=True)),
        ", ".join(f"{name[-4:]} {row[-1] / dense[-1]:.2f} of it" for name, row in rows.items()),
    )


def tables(results: Results) -> Iterator[Table]:
    """Bytes from the server."""
    for title, column in (("on average", "sent"), ("of the largest update", "most sent")):
        rows = [[how, *(BYTES * n for n in row)] for how, row in _rows(results, column).items()]
        yield Table(f"Bytes from the server, {title}", ["", *K_HEADS], rows)


def panels(results: Results) -> list[Panel]:
    """Figure 26."""
    return [
        Panel(
            f"26({letter}) {title}",
            "k",
            "bytes",
            [
                Line(how, KS, [BYTES * n for n in row])
                for how, row in _rows(results, column).items()
            ],
            log="y",
        )
        for letter, title, column in (
            ("a", "average per update", "sent"),
            ("b", "largest update", "most sent"),
        )
    ]


EXPERIMENT = Experiment(
    name="notify-half",
    title="A range and an upper bound (Tables VII and VIII, figure 26)",
    parts=("Table VII", "Table VIII", "Figure 26(a)", "Figure 26(b)"),
    about="""Interests have a range of x and an upper bound of z: two random ends (DS#1), or the
    width of 1,000 or 100 objects (DS#2, DS#3). The paper doesn't say what it counts. These readings
    fit its numbers. *Min queries* are those upwards, for the next better object between the lists,
    of all updates, and those for the next object to be passed; the ones that find nothing count. To
    begin with Paint-Sparse asks in each interval of heights as Paint-Dense does, whatever interests
    there are, and keeps what it found as long as it lies between the lists; after an object is
    passed it asks as far as interests reach, and once if there are none. *Snaps* are the boxes of
    Paint-Dense for the objects that are passed then, merged over neighbouring intervals, without
    those of an interval where there were none. Boards look at the interests first and ask less;
    here they are made to ask as often. A message counts 36 bytes: nine numbers, where one of a
    single attribute has six and 24 bytes.""",
    points=points,
    measure=measure,
    printed={
        "Table VII": in_order(K_HEADS, TABLE_VII),
        "Table VIII": in_order(K_HEADS, TABLE_VIII),
    },
    ours=ours,
    claims=claims,
    tables=tables,
    panels=panels,
    verdicts={
        "Table VII": "Agrees: {least} to {most} times the paper's.",
        "Table VIII": """Agrees: {least} to {most} times the paper's; below by the most at k
        = 1 and 2.""",
        "Figure 26(a)": "Can't be compared: the picture is lost.",
        "Figure 26(b)": "Can't be compared: the picture is lost.",
    },
)
