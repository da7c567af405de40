"""Conditions at the sources: how many updates need not be sent, and how often ranges shrink."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.notify.painting import line_engine, made
from experiments.timing import DisagreementError, timed
from rangecast.report.markdown import Table

PART = "Conditions at the sources (001, section VI)"
OBJECTS = {"tiny": 100, "quick": 2_000, "full": 10_000}
INTERESTS = {"tiny": (50,), "quick": (2_000, 50_000), "full": (2_000, 20_000, 200_000, 2_000_000)}
KS = (1, 10)
UPDATES = {"tiny": 20, "quick": 200, "full": 500}
WATCHED = 20
"""Objects whose ranges are computed anew after each update."""


def points(size: str) -> Iterator[Point]:
    """The uniform workload of the paper, with few interests and with many."""
    for k in KS:
        for m in INTERESTS[size]:
            yield {"objects": OBJECTS[size], "interests": m, "updates": UPDATES[size], "k": k}


def measure(seed: int, objects: int, interests: int, updates: int, k: int) -> dict[str, Any]:
    """Apply all updates; before each, ask whether its source would have sent it."""
    data = made(seed, objects, interests, updates)
    board = data.board(k)
    index = line_engine(board).index
    watched = list(range(0, objects, -(-objects // WATCHED)))
    held = [board.quiet_range(one) for one in watched]
    unsent = shrunk = silent = 0
    seconds = 0.0
    for one, value in data.changes:
        (lo, hi), took = timed(partial(board.quiet_range, one))
        seconds += took
        is_quiet = lo <= value <= hi
        messages = board.set_value(one, value)
        if is_quiet == bool(index.reached(messages.tile).sum()):
            raise DisagreementError("a quiet range contradicts the lists that an update changed")
        unsent += is_quiet
        now = [board.quiet_range(other) for other in watched]
        for other, before, after in zip(watched, held, now, strict=True):
            if other != one and before[0] < before[1]:
                silent += 1
                shrunk += after[0] > before[0] or after[1] < before[1]
        held = now
    quiet = np.mean([lo < hi for lo, hi in held])
    return {
        "unsent": unsent / updates,
        "quiet": float(quiet),
        "shrunk": shrunk / max(1, silent),
        "asked": shrunk / updates / len(watched) * objects,
        "us": seconds / updates * 1e6,
    }


def claims(results: Results) -> Iterator[Claim]:
    """The question that the paper asks."""
    sizes = sorted({row["interests"] for row in results})
    times = [
        results.one("us", k=k, interests=sizes[-1]) / results.one("us", k=k, interests=sizes[0])
        for k in KS
    ]
    growth = sizes[-1] / sizes[0]
    yield Claim(
        PART,
        "conditions can be kept for many interests: one per object, found in less than "
        "proportional time",
        max(times) < growth / 4 or growth == 1,
        f"{max(times):.1f} times the time for {growth:,.0f} times the interests",
        is_ours=True,
    )


def tables(results: Results) -> Iterator[Table]:
    """Shares and time."""
    named = [
        "updates never sent",
        "objects with a range",
        "ranges that an update narrows",
        "sources to ask per update",
        "us per range",
    ]
    heads = ["unsent", "quiet", "shrunk", "asked", "us"]
    rows = [
        [f"{row['interests']:,} interests, k = {row['k']}", *(row[head] for head in heads)]
        for row in results
    ]
    yield Table(f"{results[0]['objects']:,} objects, uniform", ["", *named], rows)


def panels(results: Results) -> list[Panel]:
    """Shares by the number of interests."""
    lines = [
        results.line(f"{name}, k = {k}", "interests", what, k=k)
        for what, name in (("unsent", "never sent"), ("shrunk", "narrowed"))
        for k in KS
    ]
    return [Panel("Updates never sent, ranges narrowed", "interests", "share", lines, "x")]


def facts(results: Results) -> dict[str, str]:
    """Return the shares with the fewest and the most interests, for k = 10."""
    some = results.where(k=KS[-1])
    return {
        "k": str(KS[-1]),
        "few": f"{some[0]['interests']:,}",
        "unsent": f"{some[0]['unsent']:.0%}",
        "asked": f"{some[0]['asked']:.1f}",
        "many": f"{some[-1]['interests']:,}",
        "least": f"{some[-1]['unsent']:.1%}",
    }


EXPERIMENT = Experiment(
    name="beyond-quiet",
    title="Conditions at the sources",
    parts=(PART,),
    about="""The uniform workload of the paper. Before each update, `Board.quiet_range` says whether
    its source could have kept it to itself; what is not quiet reaches an interest, and the reverse
    is checked as well. *Objects with a range* are in no list, and quiet from some value on. An
    update may narrow the ranges of others: then their sources, which may have moved within the old
    range, must be asked for their values before the lists are right. That is counted on 20 objects
    and scaled up to all.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    facts=facts,
    is_timed=True,
    verdicts={
        PART: """No claim of the paper: ours. It asks whether conditions can be kept for every
        object and interest; one range per object is enough. For k = {k} and {few} interests
        {unsent} of the updates are never sent, and an update narrows the ranges of {asked} other
        objects; with {many} interests nearly every object is in some list, and {least} are never
        sent.""",
    },
)
