"""Run seeds of the broker simulator on the workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from rangecast.overlay.simulation.run import Outcome, simulate

_SCHEMA = "seed long, wrong array<string>, counts string"
_AT_ONCE = 50
"""Seeds of a task, at least."""


def outcomes_on_spark(session: SparkSession, seeds: range) -> list[Outcome]:
    """Simulate consecutive seeds on the workers; return the outcomes in order."""
    tasks = max(1, min(len(seeds) // _AT_ONCE, 1000))
    frame = session.range(seeds.start, seeds.stop, 1, tasks)
    rows = frame.mapInArrow(_simulated, _SCHEMA).collect()
    outcomes = [
        Outcome(row.seed, list(row.wrong), Counter(json.loads(row.counts)), []) for row in rows
    ]
    return sorted(outcomes, key=lambda outcome: outcome.seed)


def _simulated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        outcomes = [simulate(seed) for seed in batch.column(0).to_pylist()]
        columns = {
            "seed": pa.array([outcome.seed for outcome in outcomes], pa.int64()),
            "wrong": pa.array([outcome.wrong for outcome in outcomes], pa.list_(pa.string())),
            "counts": pa.array([json.dumps(outcome.counts) for outcome in outcomes], pa.string()),
        }
        yield pa.RecordBatch.from_pydict(columns)
