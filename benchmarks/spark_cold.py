"""Fresh sessions of Spark: start-up with a first answer, and a one-off that prepares nothing.

Each contestant has a process of its own, which says when its session is up and when it has
answered; then this process reads what it and all processes below it took.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import console
from benchmarks.spark_data import Answer, Data, binned_query, cpu_of_tree, inside, make
from experiments.timing import DisagreementError
from rangecast.report.markdown import Table

_BARE = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[*]").getOrCreate()
"""
_OURS = """
from rangecast import Number, Space
from rangecast.spark import get_session, match
session = get_session()
"""
_FILES = """
print("ready", flush=True)
input()
e, s = (session.read.parquet(file) for file in {files})
e.createOrReplaceTempView("e")
s.createOrReplaceTempView("s")
"""
_QUERY = """
row = session.sql({query!r}).first()
"""
_MATCH = """
space = Space([Number(f"a{{axis}}") for axis in range({dimensions})])
row = match(e, s, space).selectExpr("count(*)", "sum(31 * event + subscription)").first()
"""
_THROUGH = """
row = e.mapInArrow(lambda batches: batches, e.schema).selectExpr("count(*)", "sum(id)").first()
"""
_ANSWER = """
print(*row, flush=True)
input()
session.stop()
"""


class Cost(NamedTuple):
    """Seconds of a process until its session was up, and until it had answered."""

    ready_cpu: float
    cpu: float
    wall: float
    answer: Answer


def cold_tables(*, quick: bool) -> list[Table]:
    """Measure start-up, and one-offs of two shapes."""
    small = 1_000 if quick else 100_000
    runs = 1 if quick else 2
    with tempfile.TemporaryDirectory() as folder:
        first = make(Path(folder) / "start", 2, 1_000, 1_000)
        tables = [_started(first, runs)]
        for dimensions, matches in ((3, 0.1), (2, 20.0)):
            data = make(Path(folder) / str(dimensions), dimensions, small, small, matches)
            tables.append(_one_off(data, matches, runs))
    return tables


def _started(data: Data, runs: int) -> Table:
    """Let sessions start and give a first answer."""
    join = f"select count(*), sum(31 * e.id + s.id) from e join s on {inside(data, 'e', 's')}"
    bare = _least(_BARE + _FILES + _QUERY, data, runs, query=join)
    through = _least(_BARE + _FILES + _THROUGH, data, runs)
    ours = _least(_OURS + _FILES + _MATCH, data, runs)
    _need_same(bare, ours)
    rows = [
        [name, cost.wall / bare.wall, cost.cpu / bare.cpu]
        for name, cost in (
            ("Spark, its own join", bare),
            ("Spark, events through mapInArrow, nothing done", through),
            ("rangecast, get_session() and match", ours),
        )
    ]
    title = "start-up with a first answer, 1,000 subscriptions, 1,000 events, in a fresh process"
    return Table(title, ["", "times the wall of the first", "and its CPU"], rows)


def _one_off(data: Data, matches: float, runs: int) -> Table:
    """Let fresh sessions answer once, with nothing prepared."""
    query = binned_query(data, "e", "s", "explode(sequence({}, {}))")
    binned = _least(_OURS + _FILES + _QUERY, data, runs, query=query)
    ours = _least(_OURS + _FILES + _MATCH, data, runs)
    _need_same(binned, ours)
    first = binned.cpu - binned.ready_cpu
    rows = [
        [name, (cost.cpu - cost.ready_cpu) / first]
        for name, cost in (("Spark, bins and explode", binned), ("rangecast, match", ours))
    ]
    title = (
        f"{data.dimensions}-d: a one-off in a fresh session, {data.boxes.rows:,} subscriptions, "
        f"{len(data.points):,} events, about {matches:g} matches each"
    )
    return Table(title, ["", "times the CPU of the first"], rows)


def _least(code: str, data: Data, runs: int, **more: str) -> Cost:
    """Return the run of the least CPU."""
    given = {"files": (data.events, data.subscriptions), "dimensions": data.dimensions, **more}
    costs = [_run(code.format(**given) + _ANSWER) for _ in range(runs)]
    cost = min(costs, key=lambda cost: cost.cpu)
    console.print(f"  {cost}", style="dim", markup=False)
    return cost


def _run(code: str) -> Cost:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = process.stdout.readline().strip()
        if told != "ready":
            raise RuntimeError(f"{code}\nsaid {told!r}")
        ready = cpu_of_tree(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        answer = process.stdout.readline().split()
        wall = time.perf_counter() - began
        cpu = cpu_of_tree(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
    return Cost(ready, cpu, wall, (int(answer[0]), int(answer[1])))


def _need_same(first: Cost, other: Cost) -> None:
    if first.answer != other.answer:
        raise DisagreementError(f"{other.answer}, expected {first.answer}")
