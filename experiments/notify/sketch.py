"""Paper 001, the remark of section III-B: fewer rectangles for the interests, more messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from experiments.notify.painting import INTERESTS, OBJECTS, UPDATES, line_engine, made
from experiments.notify.shapes import SHAPES
from rangecast.report.markdown import Table

K = 10
RECTANGLES = {
    "tiny": (10, 100),
    "quick": (100, 1_000, 10_000),
    "full": (100, 1_000, 10_000, 100_000, 1_000_000),
}
CROWDS = ("uniform", "clustered, lambda 0.1")


def points(size: str) -> Iterator[Point]:
    """Paint-Dense, a sketch of each size, and Paint-Sparse."""
    sizes = {"objects": OBJECTS[size], "interests": INTERESTS[size], "updates": UPDATES[size]}
    for shape in CROWDS:
        yield {**sizes, "shape": shape, "algorithm": "dense", "sketch": None}
        for rectangles in RECTANGLES[size]:
            yield {**sizes, "shape": shape, "algorithm": "sparse", "sketch": rectangles}
        yield {**sizes, "shape": shape, "algorithm": "sparse", "sketch": None}


def measure(
    seed: int,
    objects: int,
    interests: int,
    updates: int,
    shape: str,
    algorithm: str,
    sketch: int | None,
) -> dict[str, Any]:
    """Paint all updates; count messages, those that reach nobody, and bytes."""
    data = made(seed, objects, interests, updates, **SHAPES[shape])
    board = data.board(K, algorithm=algorithm, sketch=sketch)
    messages = board.update_many(data.changes)
    reached = data.interests.reached(messages.tile)
    looked_at = 0 if algorithm == "dense" else line_engine(board).index.memory
    return {
        "sent": len(messages) / updates,
        "in vain": float((reached == 0).sum() / max(len(messages), 1)),
        "received": float(reached.sum() / updates),
        "index bytes": looked_at,
        "board bytes": board.memory,
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims of the remark."""
    for shape in CROWDS:
        sent = results.column("sent", shape=shape)
        saved = (sent[0] - sent[-2]) / (sent[0] - sent[-1])
        yield Claim(
            "Section III-B, remark",
            f"B trades memory for messages, {shape} (taken as: ever fewer, and the largest B saves "
            "half of what the interests themselves save)",
            sent == sorted(sent, reverse=True) and saved >= 0.5,
            f"messages per update: {', '.join(f'{one:.1f}' for one in sent)}; saved: {saved:.0%}",
        )
    received = [results.column("received", shape=shape) for shape in CROWDS]
    yield Claim(
        "Section III-B, remark",
        "whatever B is, the same interests are reached",
        all(max(some) == min(some) for some in received),
        ", ".join(f"{some[0]:,.0f} per update" for some in received),
    )


def _name(row: dict[str, Any]) -> str:
    if row["sketch"] is not None:
        return f"B = {row['sketch']:,}"
    return "Paint-Dense" if row["algorithm"] == "dense" else "Paint-Sparse"


def tables(results: Results) -> Iterator[Table]:
    """Messages and bytes."""
    for shape in CROWDS:
        rows = [
            [_name(row), row["sent"], row["in vain"], row["index bytes"], row["board bytes"]]
            for row in results.where(shape=shape)
        ]
        heads = ["", "messages per update", "share that reaches no interest"]
        heads += ["bytes looked at", "bytes of the board"]
        m = results[0]["interests"]
        yield Table(f"{m:,} interests, {shape}, k = {K}", heads, rows)


def panels(results: Results) -> list[Panel]:
    """Messages by B, and by bytes looked at."""
    by_b, by_bytes = [], []
    for colour, shape in enumerate(CROWDS):
        some = [row for row in results.where(shape=shape) if row["sketch"] is not None]
        bs, sent = [row["sketch"] for row in some], [row["sent"] for row in some]
        by_b.append(Line(shape, bs, sent, colour))
        for algorithm, style in (("dense", ":"), ("sparse", "--")):
            flat = results.one("sent", shape=shape, algorithm=algorithm, sketch=None)
            by_b.append(
                Line(
                    f"{shape}, Paint-{algorithm.capitalize()}", bs, [flat] * len(bs), colour, style
                )
            )
        exact = results.where(shape=shape, algorithm="sparse", sketch=None)[0]
        sizes = [row["index bytes"] / 1e6 for row in [*some, exact]]
        by_bytes.append(Line(shape, sizes, [*sent, exact["sent"]], colour))
    return [
        Panel("Messages by B", "rectangles B", "messages per update", by_b, "x"),
        Panel("Messages by memory", "MB looked at", "messages per update", by_bytes, "x"),
    ]


EXPERIMENT = Experiment(
    name="notify-sketch",
    title="A sketch of the interests (remark of section III-B)",
    parts=("Section III-B, remark",),
    about=f"""Paint-Sparse over B rectangles that cover the interests, beside Paint-Dense, which
    knows none of them, and Paint-Sparse over all, at k = {K}. *Looked at* is the index; the board
    has the objects too, and with a sketch 16 bytes per interest to say what it is. Rectangles are
    those of nodes of the index, so there are at most as many as it has leaves.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=1,
    verdicts={
        "Section III-B, remark": """Agrees in part: for clustered interests 100 rectangles save half
        of Paint-Dense's messages, and each ten times as many some more; differs for uniform ones,
        which leave no gaps that rectangles could show: only the interests themselves save messages.
        """
    },
)
