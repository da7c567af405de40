"""Matching on Spark beside what one would write in Spark or DuckDB instead.

Everyone answers the same: the number of pairs, and a sum over all of them, from the same Parquet
files. What is too slow for all events is timed on some of them and scaled up; the page says so.
CPU seconds are those of the driver, the JVM and the Python workers together.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Table, show
from benchmarks.page import machine, markdown, write
from rangecast.match.choose import build, choose
from rangecast.model.attributes import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space

MATCHES = 20
"""Subscriptions that hold an event, about."""
_PAGE = Path("docs/benchmarks/spark.md")
_LIMIT = 1000
"""MB of addresses that a worker may take where memory is short; 490 are taken by the start."""
_TICKS = os.sysconf("SC_CLK_TCK")
Answer = tuple[int, int | None]
"""How many pairs, and a sum over them if there is one."""


class Data(NamedTuple):
    """Events and subscriptions, as files and as arrays."""

    dimensions: int
    boxes: Boxes
    points: Any
    space: Space
    events: str
    subscriptions: str


class Run(NamedTuple):
    """What one contestant took for all events."""

    name: str
    wall: float
    cpu: float
    note: str
    answer: Answer | None


def run(*, quick: bool) -> None:
    """Print all tables of this suite, and write the page unless it is a quick look."""
    from rangecast.spark import start

    subscriptions, events = (2_000, 20_000) if quick else (100_000, 1_000_000)
    session = start(app="benchmark")
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        for dimensions in (2, 4):
            data = _make(Path(folder) / str(dimensions), dimensions, subscriptions, events)
            tables += _contest(session, data, quick)
            if not quick:
                _write(tables)
    session.stop()
    tables.append(_limited(400_000 if quick else 6_000_000))
    if not quick:
        _write(tables)


def _make(folder: Path, dimensions: int, subscriptions: int, events: int) -> Data:
    random = np.random.default_rng(dimensions)
    side = (MATCHES / subscriptions) ** (1 / dimensions)
    centre = random.random((subscriptions, dimensions))
    half = side * random.random((subscriptions, dimensions))  # side is the mean length
    boxes = Boxes.of(centre - half, centre + half)
    points = random.random((events, dimensions))
    space = Space([Number(f"a{axis}") for axis in range(dimensions)])
    folder.mkdir()
    columns: dict[str, Any] = {"id": np.arange(events)}
    columns |= {f"a{axis}": points[:, axis] for axis in range(dimensions)}
    pq.write_table(pa.table(columns), folder / "events.parquet", row_group_size=events // 8)
    columns = {"id": np.arange(subscriptions)}
    for axis in range(dimensions):
        columns |= {f"a{axis}_lo": boxes.lo[:, axis], f"a{axis}_hi": boxes.hi[:, axis]}
    pq.write_table(pa.table(columns), folder / "subscriptions.parquet")
    files = str(folder / "events.parquet"), str(folder / "subscriptions.parquet")
    return Data(dimensions, boxes, points, space, *files)


def _contest(session: Any, data: Data, quick: bool) -> list[Table]:
    from rangecast.spark import match, prepare

    events = session.read.parquet(data.events)
    subscriptions = session.read.parquet(data.subscriptions)
    count = len(data.points)
    prepared = prepare(session, subscriptions, data.space)

    def broadcast() -> Answer:
        return _summed(match(events, prepared, data.space))

    def arrays() -> Answer:
        rows = match(events, prepared, data.space, output="arrays")
        return int(rows.selectExpr("sum(size(subscriptions))").first()[0]), None

    def with_build() -> Answer:
        return _summed(match(events, subscriptions, data.space, plan="broadcast"))

    def partitioned() -> Answer:
        return _summed(match(events, subscriptions, data.space, plan="partitioned"))

    some = 500 if quick else 2_000
    few = events.limit(some).cache()
    few.count()
    more = count if data.dimensions == 2 else count // 20
    ours = [
        _timed(session, "rangecast, broadcast, pairs", broadcast, runs=3),
        _timed(session, "rangecast, broadcast, arrays", arrays, runs=3),
        _timed(session, "rangecast, broadcast, with building the index", with_build, runs=2),
        _timed(session, "rangecast, partitioned", partitioned, runs=1),
    ]
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
        _timed(session, "DuckDB, binned", lambda: _duckdb_binned(data), runs=2),
        _duckdb_inequality(session, data, count),
    ]
    right = ours[0].answer
    assert right is not None
    for one in [*ours, *theirs]:
        if one.answer is not None and one.answer not in (right, (right[0], None)):
            raise AssertionError(f"{one.name}: {one.answer}, expected {right}")
    tables = [_beside(data, ours, theirs), _parts(session, data, events, ours)]
    for table in tables:
        show(*table)
    return tables


def _summed(pairs: Any) -> Answer:
    row = pairs.selectExpr("count(*)", "sum(31 * event + subscription)").first()
    return int(row[0]), int(row[1] or 0)


def _inside(data: Data, event: str, subscription: str) -> str:
    return " and ".join(
        f"{event}.a{axis} between {subscription}.a{axis}_lo and {subscription}.a{axis}_hi"
        for axis in range(data.dimensions)
    )


def _own_join(events: Any, subscriptions: Any, data: Data) -> Answer:
    """Join on the ranges as they are, which is what one writes first."""
    events.createOrReplaceTempView("e")
    subscriptions.createOrReplaceTempView("s")
    row = events.sparkSession.sql(
        f"select count(*), sum(31 * e.id + s.id) from e join s on {_inside(data, 'e', 's')}"
    ).first()
    return int(row[0]), int(row[1] or 0)


def _bins(data: Data) -> int:
    """Cells of each of two attributes: about as wide as a mean box."""
    lengths = (data.boxes.hi - data.boxes.lo)[:, :2].mean()
    return max(2, int(1 / lengths))


def _binned(session: Any, data: Data, events: int) -> Answer:
    """Cut two attributes into cells, give each box all its cells, join on them and check."""
    given = session.read.parquet(data.events)
    if events < len(data.points):  # a limit alone would leave one task for all
        given = given.limit(events).repartition(session.sparkContext.defaultParallelism)
    given.createOrReplaceTempView("e")
    session.read.parquet(data.subscriptions).createOrReplaceTempView("s")
    n = _bins(data)
    row = session.sql(
        f"""
        with boxes as (
          select *, explode(sequence(floor(a0_lo * {n}), floor(a0_hi * {n}))) x
          from s),
        cells as (
          select *, explode(sequence(floor(a1_lo * {n}), floor(a1_hi * {n}))) y
          from boxes),
        points as (
          select *, floor(a0 * {n}) x, floor(a1 * {n}) y from e)
        select count(*), sum(31 * p.id + c.id)
        from points p join cells c on p.x = c.x and p.y = c.y and {_inside(data, "p", "c")}
        """
    ).first()
    return int(row[0]), int(row[1] or 0)


def _duckdb_binned(data: Data) -> Answer:
    import duckdb

    n = _bins(data)
    row = duckdb.sql(
        f"""
        with boxes as (
          select *, unnest(range(floor(a0_lo * {n})::int, floor(a0_hi * {n})::int + 1)) x
          from '{data.subscriptions}'),
        cells as (
          select *, unnest(range(floor(a1_lo * {n})::int, floor(a1_hi * {n})::int + 1)) y
          from boxes),
        points as (
          select *, floor(a0 * {n})::int x, floor(a1 * {n})::int y from '{data.events}')
        select count(*), sum(31 * p.id + c.id)
        from points p join cells c on p.x = c.x and p.y = c.y and {_inside(data, "p", "c")}
        """
    ).fetchall()[0]
    return int(row[0]), int(row[1])


def _duckdb_inequality(session: Any, data: Data, count: int) -> Run:
    """Join on the ranges: timed on a few events first, and on as many as some seconds allow."""
    import duckdb

    def on(some: int) -> Answer:
        row = duckdb.sql(
            f"""
            with e as (select * from '{data.events}' limit {some})
            select count(*), sum(31 * e.id + s.id) from e join '{data.subscriptions}' s
            on {_inside(data, "e", "s")}
            """
        ).fetchall()[0]
        return int(row[0]), int(row[1] or 0)

    some = min(count, 5_000)
    once = _timed(session, "DuckDB, its own join", lambda: on(some))
    some = min(count, int(some * max(1.0, 10 / once.wall)))
    done = _timed(session, "DuckDB, its own join", lambda: on(some))
    return done if some == count else _scaled(done, count / some, f"timed on {some:,} events")


def _timed(session: Any, name: str, work: Callable[[], Answer], runs: int = 1) -> Run:
    """Return the fastest of several runs."""
    taken = []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), _cpu(session)
        answer = work()
        taken.append((time.perf_counter() - wall, _cpu(session) - cpu))
    print(f"  {name}: {min(taken)[0]:.1f} s", file=sys.stderr)
    return Run(name, *min(taken), "", answer)


def _scaled(one: Run, times: float, note: str) -> Run:
    if times == 1:
        return one
    return one._replace(wall=one.wall * times, cpu=one.cpu * times, note=note, answer=None)


def _cpu(session: Any) -> float:
    """Return the CPU seconds so far of this process, the JVM and all below it."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    return own.ru_utime + own.ru_stime + _tree(jvm)


def _tree(process: int) -> float:
    """Return the CPU seconds of a process, of its children, and of those that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        below = Path(f"/proc/{process}/task").glob("*/children")
        children = {int(one) for file in below for one in file.read_text().split()}
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(_tree, children))


def _beside(data: Data, ours: list[Run], theirs: list[Run]) -> Table:
    first = ours[0]
    rows = [
        [
            one.name,
            f"{one.wall:,.1f}",
            f"{one.cpu:,.1f}",
            f"{one.wall / first.wall:,.1f}",
            f"{one.cpu / first.cpu:,.1f}",
            one.note,
        ]
        for one in [*ours, *theirs]
    ]
    title = (
        f"{data.dimensions}-d: {data.boxes.rows:,} subscriptions, {len(data.points):,} events, "
        f"{first.answer[0] if first.answer else 0:,} pairs"
    )
    headings = ["", "wall s", "CPU s", "times the wall of the first", "and its CPU", ""]
    return Table(title, headings, rows)


def _parts(session: Any, data: Data, events: Any, ours: list[Run]) -> Table:
    """Where the CPU seconds go: the kernel alone, Spark alone, and what is left."""
    index = build(data.boxes, choose(data.boxes).name)
    index.match(data.points[:1000])

    def kernel() -> float:
        began = time.process_time()
        for place in range(0, len(data.points), 32768):
            index.match(data.points[place : place + 32768])
        return time.process_time() - began

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def through() -> Answer:
        same = events.mapInArrow(unchanged, events.schema)
        return int(same.selectExpr("sum(id)").first()[0]), None

    alone = min(kernel() for _ in range(3))
    passed = _timed(session, "pass-through", through, runs=3)
    base = alone + passed.cpu
    rows = [
        ["the kernel alone, one core", f"{alone:.2f}", ""],
        ["events through mapInArrow and back, nothing done", f"{passed.cpu:.2f}", ""],
        ["both", f"{base:.2f}", "1.00"],
    ]
    rows += [[one.name, f"{one.cpu:.2f}", f"{one.cpu / base:.2f}"] for one in ours]
    return Table(f"{data.dimensions}-d: where the CPU goes", ["", "CPU s", "times both"], rows)


def _limited(subscriptions: int) -> Table:
    """Run both plans with workers that may take little memory, each in a process of its own."""
    rows = []
    for plan in ("broadcast", "partitioned"):
        code = f"from benchmarks.spark import limited; limited({plan!r}, {subscriptions})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        told = done.stdout.strip().splitlines()
        rows.append([plan, told[-1] if done.returncode == 0 and told else "failed"])
    title = (
        f"{subscriptions:,} subscriptions on 4 attributes, workers limited to {_LIMIT} MB of "
        "addresses each"
    )
    table = Table(title, ["plan", "outcome"], rows)
    show(*table)
    return table


def limited(plan: str, subscriptions: int) -> None:
    """Match a thousand events with limited workers; print the outcome."""
    from rangecast.spark import match, start

    cores = 2
    conf = {"spark.executor.pyspark.memory": f"{_LIMIT * cores}m"}
    session = start(f"local[{cores}]", app="limited", conf=conf)
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
        pairs = match(events, data, space, plan=plan, group_bytes=64 << 20)
        print(f"{_summed(pairs)[0]:,} pairs")
    except Exception as error:
        text = str(error)
        known = "MemoryError" in text or "Cannot allocate memory" in text or "ENOMEM" in text
        print("out of memory" if known else f"failed: {text[:300]}")
    session.stop()


def _write(tables: list[Table]) -> None:
    lines = [
        "# Matching on Spark",
        "",
        "Made by `python -m benchmarks spark`. Every row answers the same question on the same",
        "Parquet files in the same run; the answers (how many pairs, and a sum over them) were",
        "compared, but for the rows that were timed on some of the events and scaled up. CPU is of",
        "the driver, the JVM and all Python workers together. Seconds mean little elsewhere; what",
        "to look at are the ratios.",
        "",
        machine(("pyspark", "numpy", "numba", "pyarrow", "duckdb")),
        "",
    ]
    for table in tables:
        lines += markdown(table)
    write(_PAGE, lines)
