"""Matching on Spark beside what one would write in Spark or DuckDB instead.

Everyone answers the same: the number of pairs, and a sum over all of them, from the same Parquet
files. What is too slow for all events is timed on some of them and scaled up; the page says so.
CPU seconds are those of the driver, the JVM and the Python workers together.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.frame import Report, console
from benchmarks.spark_cold import cold_tables
from benchmarks.spark_data import Answer, Data, binned_query, cpu_seconds, inside, make
from experiments.timing import DisagreementError, best_of
from rangecast.match.choose import build, choose
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.report.markdown import Table
from rangecast.store.commits import BATCH_JOB

_LIMIT = 1000
"""MB of addresses that a worker may take where memory is short; 490 are taken by the start."""

ABOUT = """
Every row answers the same query on the same Parquet files in the same run; the answers (how many
pairs, and a sum over them) were compared, but for the rows that were timed on some of the events
and scaled up. CPU is of the driver, the JVM and all Python workers together. Seconds mean little
elsewhere, so there are only ratios. Fresh sessions have a process each: a start-up counts from
the start of Python, a one-off from when its session is up, which is the same for both.
"""


class Run(NamedTuple):
    """Cost of one contestant for all events."""

    name: str
    wall: float
    cpu: float
    note: str
    answer: Answer | None


def run(report: Report, *, quick: bool) -> None:
    """Match in two and in four dimensions; then with workers that may take little memory."""
    from rangecast.spark import get_session

    report.begin("Matching on Spark", ABOUT, "pyspark", "pyarrow", "duckdb")
    session = get_session(app="benchmark")
    compare(report, session, quick=quick)
    session.stop()
    for table in cold_tables(quick=quick):
        report.table(table)
        report.write()
    report.table(_limited(2_000 if quick else 6_000_000))


def compare(report: Report, session: Any, *, quick: bool) -> None:
    """Let everybody match the same files, in two and in four dimensions."""
    subscriptions, events = (200, 2_000) if quick else (100_000, 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        for dimensions in (2,) if quick else (2, 4):
            data = make(Path(folder) / str(dimensions), dimensions, subscriptions, events)
            _contest(report, session, data, quick)
            report.write()  # so that a run of hours loses nothing


def _contest(report: Report, session: Any, data: Data, quick: bool) -> None:
    from rangecast.spark import match, prepare_match
    from rangecast.spark.steps.prepared import Prepared

    events = session.read.parquet(data.events)
    subscriptions = session.read.parquet(data.subscriptions)
    count, often = len(data.points), 1 if quick else 3
    prepared = prepare_match(session, subscriptions, data.space)

    def pairs(ready: Prepared = prepared) -> Answer:
        return _summed(match(events, ready, data.space))

    def arrays() -> Answer:
        rows: Any = match(events, prepared, data.space, output="arrays")
        return int(rows.selectExpr("sum(size(subscriptions))").first()[0]), None

    def with_build() -> Answer:
        return _summed(match(events, subscriptions, data.space))

    some = 50 if quick else 2_000
    few = events.limit(some).cache()
    few.count()
    more, bins_often = (count, often) if data.dimensions == 2 else (count // 20, 1)
    ours = [
        _timed(session, "rangecast, pairs", pairs, runs=often),
        _timed(session, "rangecast, arrays", arrays, runs=often),
        _timed(session, "rangecast, with building the index", with_build, runs=often),
    ]
    for wanted in (4, 16):
        limit = _memory_for(data.boxes, wanted)
        cut = prepare_match(session, subscriptions, data.space, max_worker_memory=limit)
        name = f"rangecast, pairs, in {len(cut.shards)} shards"
        ours.append(_timed(session, name, partial(pairs, cut), runs=often))
    theirs = [
        _scaled(
            _timed(session, "Spark, bins and explode", lambda: _binned(session, data, more)),
            count / more,
            "" if more == count else f"timed on {more:,} events",
        ),
        _scaled(
            _timed(session, "Spark, its own join", lambda: _own_join(few, subscriptions, data)),
            count / some,
            f"timed on {some:,} events",
        ),
        _timed(session, "DuckDB, binned", lambda: _duckdb_binned(data), runs=bins_often),
        _duckdb_inequality(session, data, count),
    ]
    ours += _written(session, data, events, often)
    theirs.append(
        _timed(session, "DuckDB, binned, written", partial(_duckdb_written, data), runs=bins_often)
    )
    right = ours[0].answer
    assert right is not None
    for one in [*ours, *theirs]:
        if one.answer is not None and one.answer not in (right, (right[0], None)):
            raise DisagreementError(f"{one.name}: {one.answer}, expected {right}")
    report.table(_beside(data, ours, theirs))
    report.table(_parts(session, data, events, ours))


def _memory_for(boxes: Boxes, wanted: int) -> int:
    """Return the least `max_worker_memory` with which a set takes no more than some shards."""
    from rangecast.spark.steps.shards.memory import shards_wanted
    from rangecast.spark.subscriptions.kept import SetSize

    size, step = SetSize.of_boxes(boxes), 1 << 14
    return next(
        limit for limit in range(step, 1 << 40, step) if shards_wanted(size, limit) <= wanted
    )


def _written(session: Any, data: Data, events: Any, often: int) -> list[Run]:
    """Write the answers, as a pipeline does: to a folder and to a Delta table."""
    from rangecast.spark import Delta, FixedSet, Folder, MatchStep
    from rangecast.spark.stream.batch import BatchOutcome, BatchRunner

    folder = Path(data.events).parent

    def write(step: MatchStep) -> Answer:
        done: list[BatchOutcome] = []
        runner = BatchRunner([step], report=done.append)
        with runner.closing:
            runner.check(session, events)
            runner.answer(events, f"{BATCH_JOB} {uuid4()}", 0)
        return done[0].matches, None

    subscriptions = FixedSet(data.boxes, data.space)
    ways: list[tuple[str, type[Folder] | type[Delta], str]] = [
        ("pairs written as Parquet", Folder, "rows"),
        ("arrays written as Parquet", Folder, "arrays"),
        ("pairs written to a Delta table", Delta, "rows"),
    ]
    runs = []
    for place, (name, kind, output) in enumerate(ways):
        sink = kind(folder / f"out{place}", replace=True)
        step = MatchStep(subscriptions, [sink], output=output)
        runs.append(_timed(session, f"rangecast, {name}", partial(write, step), runs=often))
    return runs


def _duckdb_written(data: Data) -> Answer:
    """Let DuckDB write the pairs as Parquet, by its best query."""
    import duckdb

    wanted = "p.id as event, c.id as subscription"
    files = f"'{data.events}'", f"'{data.subscriptions}'"
    query = binned_query(data, *files, "unnest(range({}, {} + 1))", wanted)
    out = Path(data.events).with_name("duckdb.parquet")
    duckdb.sql(f"copy ({query}) to '{out}' (format parquet)")
    return pq.read_metadata(out).num_rows, None


def _summed(pairs: Any) -> Answer:
    row = pairs.selectExpr("count(*)", "sum(31 * event + subscription)").first()
    return int(row[0]), int(row[1] or 0)


def _own_join(events: Any, subscriptions: Any, data: Data) -> Answer:
    """Join on the ranges as they are, which is what one writes first."""
    events.createOrReplaceTempView("e")
    subscriptions.createOrReplaceTempView("s")
    row = events.sparkSession.sql(
        f"select count(*), sum(31 * e.id + s.id) from e join s on {inside(data, 'e', 's')}"
    ).first()
    return int(row[0]), int(row[1] or 0)


def _binned(session: Any, data: Data, events: int) -> Answer:
    given = session.read.parquet(data.events)
    if events < len(data.points):  # a limit alone would leave one task for all
        given = given.limit(events).repartition(session.sparkContext.defaultParallelism)
    given.createOrReplaceTempView("e")
    session.read.parquet(data.subscriptions).createOrReplaceTempView("s")
    row = session.sql(binned_query(data, "e", "s", "explode(sequence({}, {}))")).first()
    return int(row[0]), int(row[1] or 0)


def _duckdb(query: str) -> Answer:
    import duckdb

    row = duckdb.execute(query).fetchall()[0]
    return int(row[0]), int(row[1] or 0)


def _duckdb_binned(data: Data) -> Answer:
    files = f"'{data.events}'", f"'{data.subscriptions}'"
    return _duckdb(binned_query(data, *files, "unnest(range({}, {} + 1))"))


def _duckdb_inequality(session: Any, data: Data, count: int) -> Run:
    """Join on the ranges: timed on a few events first, and on as many as some seconds allow."""

    def on(some: int) -> Answer:
        return _duckdb(
            f"""
            with e as (select * from '{data.events}' limit {some})
            select count(*), sum(31 * e.id + s.id) from e join '{data.subscriptions}' s
            on {inside(data, "e", "s")}
            """
        )

    some = min(count, 5_000)
    once = _timed(session, "DuckDB, its own join", lambda: on(some))
    some = min(count, int(some * max(1.0, 10 / once.wall)))
    done = _timed(session, "DuckDB, its own join", lambda: on(some))
    return done if some == count else _scaled(done, count / some, f"timed on {some:,} events")


def _timed(session: Any, name: str, work: Callable[[], Answer], runs: int = 1) -> Run:
    """Return the fastest of several runs."""
    taken = []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), cpu_seconds(session)
        answer = work()
        taken.append((time.perf_counter() - wall, cpu_seconds(session) - cpu))
    console.print(f"  {name}: {min(taken)[0]:.1f} s", style="dim", markup=False)
    return Run(name, *min(taken), "", answer)


def _scaled(one: Run, times: float, note: str) -> Run:
    if times == 1:
        return one
    return one._replace(wall=one.wall * times, cpu=one.cpu * times, note=note, answer=None)


def _beside(data: Data, ours: list[Run], theirs: list[Run]) -> Table:
    first = ours[0]
    rows = [
        [one.name, one.wall / first.wall, one.cpu / first.cpu, one.note] for one in [*ours, *theirs]
    ]
    title = (
        f"{data.dimensions}-d: {data.boxes.rows:,} subscriptions, {len(data.points):,} events, "
        f"{first.answer[0] if first.answer else 0:,} pairs"
    )
    headings = ["", "times the wall of the first", "and its CPU", ""]
    return Table(title, headings, rows)


def _parts(session: Any, data: Data, events: Any, ours: list[Run]) -> Table:
    """Where the CPU seconds go: the kernel alone, Spark alone, and what is left."""
    index = build(data.boxes, choose(data.boxes).name)
    index.match(data.points[:1000])

    def kernel() -> None:
        for place in range(0, len(data.points), 32768):
            index.match(data.points[place : place + 32768])

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def through() -> Answer:
        same = events.mapInArrow(unchanged, events.schema)
        return int(same.selectExpr("sum(id)").first()[0]), None

    alone = best_of(kernel).least
    passed = _timed(session, "pass-through", through, runs=3).cpu
    base = alone + passed
    rows: list[list[object]] = [
        ["the kernel alone, one core", alone / base],
        ["events through mapInArrow and back, nothing done", passed / base],
        ["both", 1.0],
    ]
    rows += [[one.name, one.cpu / base] for one in ours]
    return Table(f"{data.dimensions}-d: where the CPU goes", ["", "times both"], rows)


def _limited(subscriptions: int) -> Table:
    """Match with workers that may take little memory, each in a process of its own."""
    rows = []
    for max_worker_memory in (1 << 40, _LIMIT << 18):
        code = (
            f"from benchmarks.spark import limited; limited({max_worker_memory}, {subscriptions})"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        told = done.stdout.strip().splitlines()
        name = "whole" if max_worker_memory >= 1 << 40 else f"{max_worker_memory >> 20} MB"
        rows.append([name, told[-1] if done.returncode == 0 and told else "failed"])
    title = (
        f"{subscriptions:,} subscriptions on 4 attributes, workers limited to {_LIMIT} MB of "
        "addresses each"
    )
    return Table(title, ["max_worker_memory", "outcome"], rows)


def limited(max_worker_memory: int, subscriptions: int) -> None:
    """Match a thousand events with limited workers; print the outcome."""
    from rangecast.spark import get_session, match

    cores = 2
    conf = {"spark.executor.pyspark.memory": f"{_LIMIT * cores}m"}
    session = get_session(f"local[{cores}]", app="limited", conf=conf)
    session.sparkContext.setLogLevel("OFF")
    wide = ", ".join(f"rand({axis}) a{axis}_lo" for axis in range(4))
    ends = ", ".join(f"a{axis}_lo, a{axis}_lo + 0.1 a{axis}_hi" for axis in range(4))
    data = session.sql(f"select id, {wide} from range({subscriptions})").selectExpr(
        "id", *ends.split(", ")
    )
    events = session.sql(
        f"select id, {', '.join(f'rand({axis + 9}) a{axis}' for axis in range(4))} from range(1000)"
    )
    space = Space([Number(f"a{axis}") for axis in range(4)])
    try:
        pairs = match(events, data, space, max_worker_memory=max_worker_memory)
        print(f"{_summed(pairs)[0]:,} pairs")
    except Exception as error:
        text = str(error)
        known = "MemoryError" in text or "Cannot allocate memory" in text or "ENOMEM" in text
        print("out of memory" if known else f"failed: {text[:300]}")
    session.stop()
