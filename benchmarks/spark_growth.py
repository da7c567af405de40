"""Growth on Spark: what preparing and answering cost for more subscriptions, and for more events.

    python -m benchmarks spark-growth --budget 480

Sizes ascend from a million subscriptions to 50 million; one that would take longer than what is
left of the budget, by the time of the one before it, is left out.

Boxes on 3 attributes become smaller as they become more, so that an event has one match in the mean
whatever the size: what grows is what size costs beyond the matches themselves. All CPU is given
per subscription or per event, and as a multiple of the first row. Memory is what a Python worker
takes for itself at its peak. Some events of each size are verified by comparing everything. The
page is written after each row, and has the sizes that were left out.
"""

from __future__ import annotations

import argparse
import shlex
import time
from functools import partial
from typing import Any, NamedTuple

from benchmarks.frame import ROOT, console, made_on
from benchmarks.spark_data import cpu_seconds
from benchmarks.spark_size import Watch
from experiments.timing import DisagreementError, machine
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.report.markdown import Page, Table

ATTRIBUTES = 3
VERIFIED = 20
PAGE = ROOT / "docs/reference/benchmarks/spark_growth.md"
TEXT = """\
Boxes on 3 attributes become smaller as they become more, so that an event has about 1.3 matches
whatever the size; all matches of some events were verified by comparing everything. CPU is of all
processes, per subscription and per event, as a multiple of the first row, after a small set was
prepared and answered in the same session. Memory is what a Python worker takes for itself at its
peak, Python and its libraries among it, in MB of a million bytes."""
HEADINGS = (
    "subscriptions",
    "shards",
    "events",
    "pairs",
    "preparing, CPU each",
    "a worker, MB",
    "answering, CPU each",
    "a worker, MB",
)
SPACE = Space([Number(f"a{axis}") for axis in range(ATTRIBUTES)])


class Cost(NamedTuple):
    """CPU seconds of a piece of work, and the most bytes that a worker took."""

    cpu: float
    peak: int


def subscriptions(session: Any, count: int) -> Any:
    """Return boxes of which one holds an event, in the mean."""
    side = (1 / count) ** (1 / ATTRIBUTES)
    columns = ["id"]
    for axis in range(ATTRIBUTES):
        begin = f"rand({axis + 1}) * {1 + side} - {side}"
        columns.append(f"{begin} a{axis}_lo")
    rows = session.range(0, count, 1, _tasks(session)).selectExpr(*columns)
    ends = [f"a{axis}_lo + {side} a{axis}_hi" for axis in range(ATTRIBUTES)]
    return rows.selectExpr("*", *ends)


def events(session: Any, count: int) -> Any:
    """Return events that are spread evenly."""
    values = [f"rand({axis + 11}) a{axis}" for axis in range(ATTRIBUTES)]
    return session.range(0, count, 1, _tasks(session)).selectExpr("id", *values)


def _tasks(session: Any) -> int:
    return int(8 * session.sparkContext.defaultParallelism)


def measure(session: Any, work: Any) -> tuple[Any, Cost]:
    """Return a result, and what it cost."""
    watch = Watch(session)
    before = cpu_seconds(session)
    with watch.watching():
        result = work()
    return result, Cost(cpu_seconds(session) - before, watch.peak)


def verify(session: Any, boxes: Any, prepared: Any) -> None:
    """Compare the matches of some events with those of comparing everything."""
    from rangecast.spark import match

    some = events(session, VERIFIED).cache()
    inside = " and ".join(f"a{axis} between a{axis}_lo and a{axis}_hi" for axis in range(3))
    joined = some.withColumnRenamed("id", "event").crossJoin(boxes).filter(inside)
    expected = {(row["event"], row["id"]) for row in joined.select("event", "id").collect()}
    found = [(row["event"], row["subscription"]) for row in match(some, prepared, SPACE).collect()]
    if len(found) != len(expected) or set(found) != expected:
        raise DisagreementError(f"{len(found)} pairs, expected {len(expected)}")


class GrowthPage:
    """The page of a run: a row per size and number of events."""

    def __init__(self, made: str):
        self.made = made
        self.costs: list[tuple[int, int, int, int, Cost, Cost]] = []
        self.left_out: list[str] = []

    def row(self, subscriptions: int, shards: int, events: int, pairs: int, *costs: Cost) -> None:
        """Add what was measured."""
        built, done = costs
        self.costs.append((subscriptions, shards, events, pairs, built, done))
        self.write()

    def write(self) -> None:
        """Write the page as far as it is."""
        subscriptions, _, events, _, *first = self.costs[0]
        each = first[0].cpu / subscriptions, first[1].cpu / events
        rows = [
            (
                *counts,
                built.cpu / counts[0] / each[0],
                round(built.peak / 1e6),
                done.cpu / counts[2] / each[1],
                round(done.peak / 1e6),
            )
            for *counts, built, done in self.costs
        ]
        report = Page(PAGE)
        for block in ("# Growth on Spark", self.made, TEXT, *self.left_out):
            report.text(block)
        report.text(machine(("numpy", "numba", "pyspark", "pyarrow")))
        report.table(Table("3-d", HEADINGS, rows))
        report.write()


def grow(session: Any, given: argparse.Namespace, page: GrowthPage) -> None:
    """Measure each size; print a line for each."""
    from rangecast.spark import match, prepare_match

    def answered(prepared: Any, count: int) -> int:
        return int(match(events(session, count), prepared, SPACE).count())

    warm = prepare_match(session, subscriptions(session, 50_000), SPACE, max_worker_memory=1 << 20)
    answered(warm, 50_000)
    warm.release()
    first: tuple[float, float] | None = None
    began, last = time.perf_counter(), None
    for count in sorted(given.sizes):
        start = time.perf_counter()
        left = given.budget - (start - began)
        needed = 0.0 if last is None else last * count
        if needed > left:
            text = (
                f"{count:,} subscriptions were left out, as they would take about {needed:,.0f} s, "
                f"and {left:,.0f} of {given.budget:,} s were left."
            )
            console.print(f"{text} hint: give a larger --budget", markup=False)
            page.left_out.append(text)
            page.write()
            break
        boxes = subscriptions(session, count)
        prepare = partial(prepare_match, max_worker_memory=given.max_worker_memory)
        prepared, built = measure(session, partial(prepare, session, boxes, SPACE))
        answered(prepared, 10_000)
        for asked in (given.events, *(given.more_events if first is None else ())):
            pairs, done = measure(session, partial(answered, prepared, asked))
            page.row(count, len(prepared.shards), asked, pairs, built, done)
            costs = built.cpu / count, done.cpu / asked
            first = first or costs
            console.print(
                f"{count:,} subscriptions in {len(prepared.shards)} shards, {asked:,} events, "
                f"{pairs:,} pairs: preparing {costs[0] * 1e6:.1f} us each, "
                f"{costs[0] / first[0]:.2f} times, a worker {built.peak / 1e6:,.0f} MB; "
                f"answering {costs[1] * 1e6:.2f} us each, {costs[1] / first[1]:.2f} times, "
                f"a worker {done.peak / 1e6:,.0f} MB",
                markup=False,
            )
        if given.verify:
            verify(session, boxes, prepared)
            console.print(f"verified: all matches of {VERIFIED} events", markup=False)
        prepared.release()
        last = (time.perf_counter() - start) / count


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    from rangecast.spark import get_session

    about, _, more = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks spark-growth",
        description=about + more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000, 50_000_000])
    parser.add_argument("--budget", type=int, default=480, metavar="SECONDS")
    parser.add_argument("--max-worker-memory", type=int, default=10**9)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--more-events", type=int, nargs="*", default=[])
    parser.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True)
    given = parser.parse_args(arguments)
    command = shlex.join(["python", "-m", "benchmarks", "spark-growth", *arguments])
    page = GrowthPage(f"Made by `{command}`{made_on()}.")
    session = get_session(app="growth")
    grow(session, given, page)
    session.stop()
