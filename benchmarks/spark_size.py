"""A hunt for size: sets that no worker could hold whole, made by the workers and built in shards.

    python -m benchmarks spark-size --subscriptions 50000000 --max-worker-memory 1000000000

The subscriptions mention 4 of 20 attributes. Some events are answered, and those of a sample are
verified: the workers make all subscriptions once more and compare them one by one. Memory is what a
Python worker takes for itself at its peak; pages of files that it maps don't count. The ratio is
the CPU of answering in shards to that of answering with one structure, where that is possible.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.frame import console
from benchmarks.spark_data import cpu_seconds
from experiments.timing import DisagreementError
from rangecast.kernels.arrays import F64, AnyArray
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space

ATTRIBUTES, MENTIONED = 20, 4
_CHUNK = 16_384
"""Subscriptions that are made at a time: the same ones, whoever makes them."""
_POLL = 0.1


class Chunk(NamedTuple):
    """Some subscriptions: what they mention, (n, MENTIONED)."""

    ids: AnyArray
    axes: AnyArray
    lo: F64
    hi: F64


def chunk(number: int, subscriptions: int) -> Chunk:
    """Return the subscriptions of a chunk: intervals of 10% to 30% of the domain."""
    rng = np.random.default_rng([6, number])
    axes = np.argsort(rng.random((_CHUNK, ATTRIBUTES)), axis=1)[:, :MENTIONED]
    width = rng.uniform(0.1, 0.3, axes.shape)
    lo = rng.random(axes.shape) * (1 - width)
    ids = np.arange(number * _CHUNK, min((number + 1) * _CHUNK, subscriptions))
    rows = slice(0, len(ids))
    return Chunk(ids, axes[rows], lo[rows], (lo + width)[rows])


def made(session: Any, subscriptions: int) -> Any:
    """Return the subscriptions as a DataFrame, made by the workers."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                ids, axes, *ends = chunk(number, subscriptions)
                columns = {"id": pa.array(ids)}
                mentioned = np.zeros((len(ids), ATTRIBUTES), np.bool_)
                np.put_along_axis(mentioned, axes, True, axis=1)
                for name, values in zip(("lo", "hi"), ends, strict=True):
                    wide = np.zeros(mentioned.shape)
                    np.put_along_axis(wide, axes, values, axis=1)
                    for axis in range(ATTRIBUTES):
                        column = pa.array(wide[:, axis], mask=~mentioned[:, axis])
                        columns[f"a{axis}_{name}"] = column
                yield pa.record_batch(columns)

    names = [f"a{axis}_{end} double" for end in ("lo", "hi") for axis in range(ATTRIBUTES)]
    return _chunks(session, subscriptions).mapInArrow(make, ", ".join(["id long", *names]))


def scanned(session: Any, subscriptions: int, points: F64) -> list[set[int]]:
    """Return which subscriptions hold each event, by comparing all."""

    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                some = chunk(number, subscriptions)
                for event, point in enumerate(points):
                    values = point[some.axes]
                    held = ((some.lo <= values) & (values <= some.hi)).all(axis=1)
                    ids = pa.array(some.ids[held])
                    yield pa.record_batch({"event": pa.array(np.full(len(ids), event)), "id": ids})

    found = _chunks(session, subscriptions).mapInArrow(compare, "event long, id long").toArrow()
    events, ids = found["event"].to_numpy(), found["id"].to_numpy()
    return [set(ids[events == event].tolist()) for event in range(len(points))]


def _chunks(session: Any, subscriptions: int) -> Any:
    count = -(-subscriptions // _CHUNK)
    return session.range(0, count, 1, min(count, 16 * session.sparkContext.defaultParallelism))


class Watch:
    """The most memory of its own that a Python worker took, as far as it was looked at."""

    def __init__(self, session: Any):
        self._jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        self.peak = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at all workers, again and again."""
        self.peak, done = 0, threading.Event()

        def look() -> None:
            while not done.wait(_POLL):
                self.peak = max([self.peak, *map(own_memory, below(self._jvm))])

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def below(process: int) -> set[int]:
    """Return all processes below one."""
    children: set[int] = set()
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            children |= {int(one) for one in file.read_text().split()}
    return children.union(*map(below, children))


def own_memory(process: int | str) -> int:
    """Return the bytes of a process that are in memory and not pages of files."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields.get(name, "0").split()[0]) << 10 for name in ("RssAnon", "RssShmem"))


def hunt(session: Any, given: argparse.Namespace) -> None:
    """Prepare, answer, verify; print what each took."""
    from rangecast.spark import match, prepare_match

    space = Space([Number(f"a{axis}") for axis in range(ATTRIBUTES)])
    points = np.random.default_rng(9).random((given.events, ATTRIBUTES))
    columns = {f"a{axis}": points[:, axis] for axis in range(ATTRIBUTES)}
    table = pa.table({"id": np.arange(len(points)), **columns})
    events = session.createDataFrame(table).repartition(session.sparkContext.defaultParallelism)
    watch = Watch(session)

    def step(text: str, work: Any) -> tuple[Any, float]:
        began, cpu = time.perf_counter(), cpu_seconds(session)
        with watch.watching():
            result = work()
        seconds, cpu = time.perf_counter() - began, cpu_seconds(session) - cpu
        told = (
            f"{text}: {seconds:,.1f} s, {cpu:,.1f} CPU s, a worker took {watch.peak / 1e6:,.0f} MB"
        )
        console.print(told, markup=False)
        return result, cpu

    def answered(prepared: Any) -> int:
        rows: Any = match(events, prepared, space, output="arrays")
        return int(rows.selectExpr("sum(size(subscriptions))").first()[0])

    def build(count: int, max_worker_memory: int) -> Any:
        return prepare_match(
            session, made(session, count), space, max_worker_memory=max_worker_memory
        )

    count = given.subscriptions
    whole, _ = step("prepare, warm-up", lambda: build(2 * _CHUNK, 1 << 40))
    step("answer, warm-up", lambda: answered(whole))
    prepared, _ = step(f"prepare {count:,}", lambda: build(count, given.max_worker_memory))
    console.print(prepared.explain(events), markup=False)
    step("answer, first", lambda: answered(prepared))
    pairs, cpu = step("answer, again", lambda: answered(prepared))
    console.print(f"{pairs:,} pairs, {cpu / pairs * 1e9:,.1f} CPU ns each", markup=False)
    _verify(session, prepared, events, space, points[: given.verify], count, step)
    prepared.release()
    few = min(count, given.whole)
    ratio = _ratio(step, build, answered, few, given.max_worker_memory * few // count)
    console.print(f"{few:,} subscriptions: in shards {ratio:.2f} times the CPU of one structure")


def _verify(
    session: Any, prepared: Any, events: Any, space: Space, points: F64, count: int, step: Any
) -> None:
    """Compare all answers to some events with those of comparing everything."""
    from rangecast.spark import match

    some = events.filter(f"id < {len(points)}")
    found = match(some, prepared, space, output="arrays").toArrow().sort_by("event")
    expected, _ = step(
        f"compare {count:,} with {len(points)}", lambda: scanned(session, count, points)
    )
    need_equal(found, expected)
    total = sum(map(len, expected))
    console.print(f"verified: all {total:,} matches of {len(points)} events", markup=False)


def need_equal(found: pa.Table, expected: list[set[int]]) -> None:
    """Reject answers, a row per event, that aren't the ones expected."""
    for event, ids in zip(found["event"].to_pylist(), found["subscriptions"], strict=True):
        answer = ids.values.to_numpy()
        if len(answer) != len(expected[event]) or {*answer.tolist()} != expected[event]:
            raise DisagreementError(f"event {event}: {len(answer)}, not {len(expected[event])}")
    if len(found) != len(expected):
        raise DisagreementError(f"{len(found)} events were answered, not {len(expected)}")


def _ratio(step: Any, build: Any, answered: Any, count: int, size: int) -> float:
    """Return the CPU of answering by workers of a size to that of one structure."""
    taken = []
    for name, max_worker_memory in (("one", 1 << 40), ("shards", size)):
        prepared, _ = step(
            f"prepare {count:,}, {name}", lambda size=max_worker_memory: build(count, size)
        )
        runs = [step("answer", lambda made=prepared: answered(made))[1] for _ in range(3)]
        taken.append(min(runs))
        console.print(f"{len(prepared.shards)} shards", markup=False)
        prepared.release()
    return float(taken[1] / taken[0])


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    from rangecast.spark import get_session

    about, _, more = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks spark-size",
        description=about + more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default, text in (
        ("subscriptions", 1_000_000, "how many subscriptions there are"),
        ("max-worker-memory", 1 << 30, "about what a worker may take"),
        ("events", 500, "events that are answered"),
        ("verify", 10, "events whose answers are verified"),
        ("whole", 1_000_000, "subscriptions of the set that is also answered in one structure"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)
    given = parser.parse_args(arguments)
    session = get_session(app="size")
    hunt(session, given)
    session.stop()
