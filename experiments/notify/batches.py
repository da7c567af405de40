"""Paper 001, section V: figure 16, many updates as one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.notify.baselines import coalesced
from experiments.notify.painting import INTERESTS, KS, OBJECTS, UPDATES, line_engine, made
from rangecast.report.markdown import Table

WAYS = ("Online", "Coalesce", "Paint-Batch")
COUNTS = {"Figure 16(a)": "sent", "Figure 16(b)": "received", "Figure 16(c)": "min_y"}
_CHUNK = 2_000


def points(size: str) -> Iterator[Point]:
    """Each way for each k."""
    sizes = {
        "objects": OBJECTS[size],
        "interests": INTERESTS[size],
        "updates": UPDATES[size],
    }
    for way in WAYS:
        for k in KS:
            yield {**sizes, "way": way, "k": k}


def measure(
    seed: int, objects: int, interests: int, updates: int, way: str, k: int
) -> dict[str, Any]:
    """Play all updates in one way."""
    data = made(seed, objects, interests, updates)
    board = data.board(k)
    changes = data.changes
    if way == "Coalesce":
        ids, ys = coalesced(data.ids, data.ys)
        changes = list(zip(ids.tolist(), ys.tolist(), strict=True))
    sent = received = 0
    step = len(changes) if way == "Paint-Batch" else _CHUNK
    for first in range(0, len(changes), step):
        some = changes[first : first + step]
        messages = board.update_batch(some) if way == "Paint-Batch" else board.update_many(some)
        sent += len(messages)
        received += int(line_engine(board).index.reached(messages.tile).sum())
    return {"sent": sent, "received": received, "min_y": board.work.min_y}


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figures."""
    for part, count in COUNTS.items():
        online, coalesce, batch = (results.column(count, way=way) for way in WAYS)
        first, second = (
            [few / many for few, many in zip(batch, others, strict=True)]
            for others in (online, coalesce)
        )
        yield Claim(
            part,
            "Paint-Batch dominates the other ways",
            max(first) <= 1 and max(second) <= 1,
            f"{min(first):.2f} to {max(first):.2f} of Online, "
            f"{min(second):.2f} to {max(second):.2f} of Coalesce",
        )
        saved = [(a - b, b - c) for a, b, c in zip(online, coalesce, batch, strict=True)]
        yield Claim(
            part,
            "sorting saves less than coalescing",
            all(by_coalescing > by_sorting for by_coalescing, by_sorting in saved),
            "saved by sorting / by coalescing: "
            + ", ".join(f"{b / a:.2f}" if a else "-" for a, b in saved),
        )


def facts(results: Results) -> dict[str, str]:
    """Return what Paint-Batch leaves of Coalesce, in each count."""
    found = {}
    for count in COUNTS.values():
        both = (results.column(count, way=way) for way in WAYS[:0:-1])
        shares = [few / many for few, many in zip(*both, strict=True)]
        found[count] = f"{min(shares):.2f} to {max(shares):.2f}"
    return found


def tables(results: Results) -> Iterator[Table]:
    """Counts at k = 10."""
    some = results.where(k=10)
    rows = [[row["way"], row["sent"], row["received"], row["min_y"]] for row in some]
    title = f"{some[0]['updates']:,} updates as one batch, k = 10"
    yield Table(title, ["", "sent", "received", "min_y"], rows)


def panels(results: Results) -> list[Panel]:
    """Figure 16."""
    titles = ("16(a) messages sent", "16(b) messages received", "16(c) calls of min_y")
    return [
        Panel(title, "k", count, [results.line(way, "k", count, way=way) for way in WAYS], "y")
        for title, count in zip(titles, COUNTS.values(), strict=True)
    ]


EXPERIMENT = Experiment(
    name="notify-batches",
    title="Batches (figure 16)",
    parts=tuple(COUNTS),
    about="""All updates as one batch, over Paint-Sparse: one by one (Online), each object once
    (Coalesce), or sorted as well (Paint-Batch). The paper has 50,000 updates, as here, and prints
    no numbers.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    facts=facts,
    columns=3,
    panel_size=(4.6, 3.8),
    seed=1,
    verdicts={
        "Figure 16(a)": """Agrees: Paint-Batch sends {sent} of what Coalesce sends, and
        sorting saves less than coalescing.""",
        "Figure 16(b)": """Agrees: Paint-Batch is received {received} of what Coalesce is,
        and sorting saves less than coalescing.""",
        "Figure 16(c)": """Agrees: Paint-Batch calls {min_y} as often as Coalesce, and
        sorting saves less than coalescing.""",
    },
)
