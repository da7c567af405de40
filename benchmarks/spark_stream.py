"""A long stream of small batches: whether memory stays where it is, and the least time of a batch.

    python -m benchmarks spark-stream --batches 500

Each batch is a file of events, answered by a version of the subscriptions of its own: one edit
arrives per batch. Memory is what a process takes for itself; pages of files that it maps don't
count. The JVM's is its heap after a collection.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.frame import console
from benchmarks.spark_size import below, own_memory
from experiments.timing import DisagreementError
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

_SIDE = 0.02
"""Of a subscription; the domain is from 0 to 1."""


def hunt(session: Any, folder: Path, given: argparse.Namespace) -> list[list[float]]:
    """Run the stream; return megabytes of driver, JVM heap and workers, ten times on the way."""
    from rangecast.spark import Folder, MatchStep, VersionedSet, run_stream

    rng = np.random.default_rng(3)
    space = Space([Number("a"), Number("b")])
    lo = rng.random((given.subscriptions, 2))
    versions = Versions(folder / "versions")
    versions.commit(Boxes.of(lo, lo + _SIDE), space)
    edits = folder / "edits"
    edits.mkdir()
    events = folder / "events"
    events.mkdir()
    for number in range(given.batches):
        points = rng.random((given.events, 2))
        rows = {"id": np.arange(given.events), "a": points[:, 0], "b": points[:, 1]}
        pq.write_table(pa.table(rows), events / f"{number:06}.parquet")
    stream = (
        session.readStream.schema("id long, a double, b double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(events))
    )
    measured: list[list[float]] = []
    seconds: list[float] = []
    answered: list[int] = []

    def report(done: Any) -> None:
        seconds.append(done.seconds)
        answered.append(done.events)
        edit = {"op": "replace", "id": done.batch, "filter": "a < 0.01"}
        (edits / f"{done.batch:06}.jsonl").write_text(json.dumps(edit) + "\n")
        if len(seconds) % (given.batches // 10) == 0:
            measured.append(_megabytes(session))
            driver, heap, worker = measured[-1]
            last = np.median(seconds[-(given.batches // 10) :])
            console.print(
                f"batch {len(seconds):,}, version {done.version}: {last:.2f} s per batch; "
                f"driver {driver:,.0f} MB, JVM heap {heap:,.0f} MB, largest worker {worker:,.0f} MB"
            )

    followed = Edits(edits, versions, space)
    chosen = VersionedSet(versions, space, edits=followed, keep_versions=3)
    step = MatchStep(chosen, [Folder(folder / "matches")])
    run_stream(stream, [step], checkpoint=folder / "checkpoint", report=report)
    if answered != [given.events] * given.batches:
        raise DisagreementError(f"{sum(answered):,} events in {len(answered)} batches")
    return measured


def _megabytes(session: Any) -> list[float]:
    """Return the memory of the driver, of the JVM's heap and of the largest worker."""
    jvm = session.sparkContext._jvm.java.lang
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    heap = runtime.totalMemory() - runtime.freeMemory()
    workers = below(jvm.ProcessHandle.current().pid())
    sizes = own_memory("self"), heap, max(map(own_memory, workers), default=0)
    return [size / 1e6 for size in sizes]


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    from rangecast.spark import get_session

    about, _, more = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks spark-stream",
        description=about + more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default, text in (
        ("batches", 500, "how many batches the stream has, at least 10"),
        ("events", 1_000, "events per batch"),
        ("subscriptions", 100_000, "how many subscriptions there are"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)
    given = parser.parse_args(arguments)
    session = get_session(app="stream")
    with tempfile.TemporaryDirectory() as folder:
        measured = hunt(session, Path(folder), given)
    session.stop()
    first, last = measured[1], measured[-1]
    told = ", ".join(
        f"{name} {now / then:.2f}"
        for name, then, now in zip(("driver", "JVM heap", "worker"), first, last, strict=True)
    )
    console.print(f"memory at the end to that after a fifth: {told}")
