"""Start-up, the filter language, and the memory of reading files: our own promises, measured."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import best_of, peak_memory, show
from rangecast import Filter, FilterError, Space
from rangecast.workloads import generate

COMMAND = str(Path(sys.executable).with_name("rangecast"))


def run(*, quick: bool) -> None:
    """Print all tables of this suite."""
    _start_up()
    _filters(2_000 if quick else 100_000)
    _hard_filters()
    _memory(20_000 if quick else 1_000_000)


def _start_up() -> None:
    def seconds(*arguments: str) -> float:
        return best_of(lambda: subprocess.run(arguments, check=True, capture_output=True), 5)[0]

    nothing = seconds(sys.executable, "-c", "pass")
    light = seconds(sys.executable, "-c", "import rangecast")
    rows = [
        ["import rangecast", f"{light - nothing:.3f} s", "0.25 s"],
        ["rangecast --help", f"{seconds(COMMAND, '--help'):.3f} s", "0.5 s"],
    ]
    show("Start-up (python itself taken off the first)", ["what", "seconds", "at most"], rows)


def _filters(count: int) -> None:
    made = generate("market", subscriptions=count, events=1, seed=1)
    texts = made.tables["subscriptions"].column("filter").to_pylist()
    space = _market_space()
    Filter.parse("true", space)
    seconds, _ = best_of(lambda: [Filter.parse(text, space) for text in texts], 1, process_time)
    rows = [[f"{count:,}", f"{seconds:.1f} s", f"{seconds / count * 1e6:.0f} us", "200 us"]]
    headings = ["filters", "all", "each", "each at most"]
    show("Market filters to boxes, seconds of one core", headings, rows)


def _market_space() -> Space:
    return generate("market", subscriptions=1, events=1).space


def _hard_filters() -> None:
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
        answers: list[str] = []

        def attempt(text: str = text, answers: list[str] = answers) -> None:
            try:
                answers.append(f"{len(Filter.parse(text, space).boxes):,} boxes")
            except FilterError:
                answers.append("refused")

        seconds, _ = best_of(attempt, 3, process_time)
        rows.append([name, f"{len(text):,}", answers[0], f"{seconds * 1e3:.1f} ms", "50 ms"])
    headings = ["filter", "characters", "answer", "time", "at most"]
    show("Long filters, time of one core", headings, rows)


def _memory(events: int) -> None:
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
            seconds, peak = peak_memory([COMMAND, *arguments.split()], folder)
            peaks.append(peak)
            rows.append([f"{count:,}", f"{seconds:.1f} s", f"{peak:.0f} MB"])
    rows.append(["growth", "", f"{peaks[1] - peaks[0]:+.0f} MB (at most 200)"])
    show("Memory of rangecast match", ["events", "time", "peak memory"], rows)


def _write_events(path: Path, count: int) -> None:
    rng = np.random.default_rng(1)
    schema = pa.schema([("price", pa.float64()), ("volume", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, 100_000):
            size = min(100_000, count - start)
            columns = {"price": rng.random(size) * 100, "volume": rng.integers(0, 9, size)}
            writer.write_table(pa.table(columns))
