"""Start-up, the filter language, and the memory of reading files: our own promises, measured."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.frame import Report
from benchmarks.harness import expected
from experiments.timing import best_of, timed
from rangecast import Filter, FilterError, Space
from rangecast.report.markdown import Table
from rangecast.workloads import generate

COMMAND = [sys.executable, "-m", "rangecast"]


def run(report: Report, *, quick: bool) -> None:
    """Measure start-up, filters and memory."""
    report.begin("The foundation", "Our own promises: start-up, filters, the memory of reading.")
    report.table(_start_up(1 if quick else 5))
    report.table(_filters(200 if quick else 100_000))
    report.table(_hard_filters())
    report.table(_memory(2_000 if quick else 1_000_000))


def _start_up(runs: int) -> Table:
    def seconds(*arguments: str) -> float:
        start = partial(subprocess.run, [sys.executable, *arguments], capture_output=True)
        return best_of(partial(start, check=True), runs, time.perf_counter).least

    light = seconds("-c", "import rangecast") - seconds("-c", "pass")
    usage = seconds("-m", "rangecast", "--help")
    rows = [
        ["import rangecast, python itself taken off", light, expected(light, most=0.25)],
        ["rangecast --help", usage, expected(usage, most=0.5)],
    ]
    return Table("Start-up", ["what", "seconds", "at most"], rows)


def _filters(count: int) -> Table:
    made = generate("market", subscriptions=count, events=1, seed=1)
    texts = made.tables["subscriptions"].column("filter").to_pylist()
    Filter.parse("true", made.space)
    seconds = timed(lambda: [Filter.parse(text, made.space) for text in texts])[1]
    each = seconds / count * 1e6
    rows = [[f"{count:,}", seconds, each, expected(each, most=200)]]
    headings = ["filters", "all, s", "each, us", "each at most"]
    return Table("Market filters to boxes, seconds of one core", headings, rows)


def _market_space() -> Space:
    return generate("market", subscriptions=1, events=1).space


def _answer(text: str, space: Space) -> str:
    try:
        return f"{len(Filter.parse(text, space).boxes):,} boxes"
    except FilterError:
        return "rejected"


def _hard_filters() -> Table:
    space = _market_space()
    names = ["price", "pe", "risk"]
    pairs = [names[:2], names[1:]]
    cases = {
        "or of 1,000 on one attribute": " or ".join(f"price = {i}" for i in range(1000)),
        "or of 1,000 on three": " or ".join(f"{names[i % 3]} > {i / 2000}" for i in range(1000)),
        "and of 1,000 !=": " and ".join(f"price != {i}" for i in range(1000)),
        "in of 1,000 texts": f"symbol in ({', '.join(repr(f'S{i}') for i in range(1000))})",
        "a product that blows up": " and ".join(
            f"({a} < 0.{i} or {b} > 0.{i})" for i in range(100, 350) for a, b in pairs
        ),
        "10,000 parentheses": "(" * 10_000,
        "10,000 characters of words": "and " * 2_500,
    }
    rows = []
    for name, text in cases.items():
        one = best_of(partial(_answer, text, space))
        took = one.least * 1e3
        rows.append([name, len(text), one.answer, took, expected(took, most=50)])
    headings = ["filter", "characters", "answer", "ms", "at most"]
    return Table("Long filters, time of one core", headings, rows)


def _memory(events: int) -> Table:
    rows = []
    peaks = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _market_space().save(folder / "space.toml")
        filters = [f"price between {i} and {i}.05" for i in range(20)]
        pq.write_table(pa.table({"id": range(20), "filter": filters}), folder / "subs.parquet")
        for count in (events, 10 * events):
            _write_events(folder / "events.parquet", count)
            arguments = "match events.parquet subs.parquet --space space.toml -o out.parquet"
            seconds, peak = _peak_memory([*COMMAND, *arguments.split()], folder)
            peaks.append(peak)
            rows.append([f"{count:,}", seconds, peak, ""])
    more = peaks[1] - peaks[0]
    rows.append(["growth", "", more, expected(more, most=200)])
    return Table("Memory of rangecast match", ["events", "seconds", "peak MB", "at most"], rows)


def _peak_memory(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Run a command in a process of its own; return its seconds and its peak memory in MB."""
    code = (
        "import resource, subprocess, sys, time; began = time.perf_counter();"
        "subprocess.run(sys.argv[1:], check=True);"
        "print(time.perf_counter() - began,"
        "resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    asked = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(asked, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    seconds, megabytes = done.stdout.split()[-2:]
    return float(seconds), float(megabytes)


def _write_events(path: Path, count: int) -> None:
    rng = np.random.default_rng(1)
    schema = pa.schema([("price", pa.float64()), ("volume", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, 100_000):
            size = min(100_000, count - start)
            columns = {"price": rng.random(size) * 100, "volume": rng.integers(0, 9, size)}
            writer.write_table(pa.table(columns))
