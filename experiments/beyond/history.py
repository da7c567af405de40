"""Match as of an earlier time: all versions of a set as boxes with one more attribute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.timing import DisagreementError, best_of
from rangecast.kernels.arrays import F64
from rangecast.match.choose import build
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table

PART = "Multi-version structures (003, future work)"
SUBSCRIPTIONS = {"tiny": 200, "quick": 20_000, "full": 50_000}
VERSIONS = {"tiny": (1, 4), "quick": (1, 4, 16), "full": (1, 4, 16)}
EVENTS = {"tiny": 20, "quick": 500, "full": 1_000}
WIDTH = 0.1


def points(size: str) -> Iterator[Point]:
    """The same number of subscriptions that live, after more and more edits."""
    for versions in VERSIONS[size]:
        yield {"n": SUBSCRIPTIONS[size], "versions": versions, "events": EVENTS[size]}


def _versions(rng: np.random.Generator, n: int, versions: int) -> tuple[F64, F64]:
    """Return boxes on two attributes and time: each subscription is replaced at random times."""
    times = np.sort(rng.random((n, versions - 1)), axis=1) if versions > 1 else np.zeros((n, 0))
    since = np.hstack([np.full((n, 1), -np.inf), times])
    until = np.hstack([np.nextafter(times, -np.inf), np.full((n, 1), np.inf)])
    lo = rng.random((n * versions, 2))
    hi = lo + rng.random((n * versions, 2)) * WIDTH
    return np.column_stack([lo, since.ravel()]), np.column_stack([hi, until.ravel()])


def measure(seed: int, n: int, versions: int, events: int) -> dict[str, Any]:
    """Match events as of random times; compare with the set as it was at one of them."""
    rng = np.random.default_rng(seed)
    lo, hi = _versions(rng, n, versions)
    where = np.column_stack([rng.random((events, 2)), rng.random(events)])
    history = build(Boxes.of(lo, hi))
    asked = best_of(lambda: history.match(where))
    then = where[0, 2]
    alive = np.flatnonzero((lo[:, 2] <= then) & (then <= hi[:, 2]))
    alone = build(Boxes.of(lo[alive, :2], hi[alive, :2]))
    known = best_of(lambda: alone.match(where[:, :2]))
    if not np.array_equal(np.sort(alive[known.answer.of(0)]), np.sort(asked.answer.of(0))):
        raise DisagreementError("the history and the set of that time match differently")
    return {
        "matches": len(asked.answer.rows) / events,
        "us": asked.least / events * 1e6,
        "alone": known.least / events * 1e6,
        "MB": history.memory / 1e6,
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims for a multi-version structure."""
    first, last = results[0], results[-1]
    grown, more = last["us"] / first["us"], last["versions"] / first["versions"]
    yield Claim(
        PART,
        "an answer takes less than in proportion to the versions",
        grown < more,
        f"{grown:.1f} times for {more:.0f} times the versions",
        is_ours=True,
    )


def tables(results: Results) -> Iterator[Table]:
    """Time and memory."""
    heads = ["matches", "us", "alone", "MB"]
    rows = [[row["versions"], *(row[head] for head in heads)] for row in results]
    named = ["versions of each", "matches", "as of a time, us", "the set of that time, us", "MB"]
    yield Table(f"{results[0]['n']:,} subscriptions, two attributes", named, rows)


def panels(results: Results) -> list[Panel]:
    """Time by versions."""
    lines = [
        results.line("as of a time", "versions", "us"),
        results.line("the set of that time alone", "versions", "alone"),
    ]
    return [
        Panel("Match as of a time", "versions of each subscription", "µs per event", lines, "xy")
    ]


def facts(results: Results) -> dict[str, str]:
    """Return the numbers of the most versions."""
    last = results[-1]
    return {
        "versions": f"{last['versions']}",
        "us": f"{last['us']:.1f}",
        "alone": f"{last['alone']:.1f}",
    }


EXPERIMENT = Experiment(
    name="beyond-history",
    title="Match as of an earlier time",
    parts=(PART,),
    about=f"""Subscriptions on two attributes, of up to {WIDTH:.0%} of each, replaced at random
    times. All versions are boxes with their lifetime as a third attribute, as `History` has them;
    each event is asked about at a time of its own. Beside it, the set of one of these times
    alone, which would have to be kept for every time.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    facts=facts,
    is_timed=True,
    verdicts={
        PART: """No claim of the paper: ours. With {versions} versions of each subscription an
        answer takes {us} us, where the set of that time alone takes {alone}.""",
    },
)
