"""One batch of events, answered and written so that it may crash anywhere and be run again.

The steps, in this order; `watch` is called after each:

    begun               which sinks lack this batch? if none does, there is nothing to do
    pinned              the version of the subscriptions is on the disk (`versions`)
    staged              the answers and bad rows are written; in folders nobody sees them yet
    bad rows committed  the batch's bad rows are in quarantine for good
    committed           the answers are in place for good

A batch that is run again finds the same events (Spark's checkpoint), the same version (the pin)
and so the same answers; a sink that has them already is skipped. Bad rows are committed
before the answers: when all sinks have the batch, so has the quarantine.

For a single folder, answers, bad rows and events are counted while the answers are written, not in
a pass of their own; Parquet is written by the workers (`written`). Otherwise the answers are kept
and counted first: a sink that can't hold back what it writes gets nothing of a batch that a bad row
ends. Bad rows are found once more when there are any, without matching.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from rangecast.errors import BadRow, BadRowError, UsageError, near
from rangecast.model.boxes import Boxes
from rangecast.model.records import REMEDY
from rangecast.spark.steps.match import OUTPUTS, match, question
from rangecast.spark.steps.prepared import Prepared
from rangecast.spark.stream.sets import StaticSet, Subscriptions
from rangecast.spark.stream.sinks import Batch, Commit, Counts, Folder, Sink, no_commit
from rangecast.spark.stream.sources import BROKEN
from rangecast.spark.stream.written import REPORT

_WHOLE = "_whole_row"
_OWN = (BROKEN, _WHOLE)


@dataclass(frozen=True)
class MatchOptions:
    """How a stream matches its events."""

    output: str = "pairs"
    """pairs: a row for each event and subscription; arrays: a row for each event."""
    keep: Sequence[str] = ()
    """Columns of the events to keep in the output."""
    nan: str = "refuse"

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise UsageError(f"no output {self.output!r}: {near(self.output, OUTPUTS)}")


@dataclass(frozen=True)
class Done:
    """What became of one batch."""

    batch: int
    version: int
    subscriptions: int
    events: int
    matches: int
    bad_rows: int
    refused_edits: int
    """Since the batch before."""
    seconds: float

    def facts(self) -> dict[str, Any]:
        """Return it as plain data, with the rate."""
        rate = self.events / self.seconds if self.seconds else 0.0
        return {**asdict(self), "seconds": round(self.seconds, 3), "events_per_second": round(rate)}


@dataclass
class BatchRunner:
    """Answers batches of one stream, or the one batch of a batch job."""

    subscriptions: Subscriptions
    options: MatchOptions
    sinks: Sequence[Sink]
    quarantine: Folder | None = None
    report: Callable[[Done], None] = lambda _: None
    watch: Callable[[str], None] = lambda _: None
    closing: ExitStack = field(default_factory=ExitStack, init=False)
    """Leave it when there are no more batches: it closes the sinks."""
    _stream: str | None = field(default=None, init=False)
    _refused: int = field(default=0, init=False)
    _nobody: StaticSet = field(init=False)

    def __post_init__(self) -> None:
        space = self.subscriptions.space
        none = np.zeros((0, len(space)))
        self._nobody = StaticSet(Boxes.of(none, none), space, index="scan")

    def check(self, session: SparkSession, events: DataFrame) -> None:
        """Refuse, before anything runs, columns, sinks and sets that can't work."""
        for sink in self._all_sinks():
            sink.check(session)
        self._refused += self.subscriptions.refresh()
        self.subscriptions.ready(session, self.subscriptions.latest())
        self._match(events, self._nobody.ready(session, 0), self.options.keep)

    def answer(self, events: DataFrame, stream: str, number: int) -> None:
        """Answer a batch and write it to every sink that lacks it."""
        began = time.perf_counter()
        self._open(stream)
        waiting = [sink for sink in self.sinks if not sink.has(number)]
        self.watch("begun")
        if not waiting:
            return
        refused, self._refused = self._refused + self.subscriptions.refresh(), 0
        version = self.subscriptions.pin(stream, number)
        self.watch("pinned")
        ready = self.subscriptions.ready(events.sparkSession, version)
        batch = Batch(stream, number, version, ready.rows)
        counts, commits, commit_bad_rows = self._write(events, ready, waiting, batch)
        self.watch("staged")
        if counts["bad_rows"]:
            commit_bad_rows({"rows": counts["bad_rows"]})
            self.watch("bad rows committed")
        good = counts["events"] - counts["bad_rows"]
        rows = counts["matches"] if self.options.output == "pairs" else good
        for commit in commits:
            commit({"rows": rows, **counts})
        self.watch("committed")
        seconds = time.perf_counter() - began
        self.report(
            Done(number, version, ready.rows, refused_edits=refused, seconds=seconds, **counts)
        )

    def _all_sinks(self) -> list[Sink]:
        return [*self.sinks, *([self.quarantine] if self.quarantine is not None else [])]

    def _open(self, stream: str) -> None:
        if self._stream is None:
            for sink in self._all_sinks():
                sink.open(stream, self.closing)
            self._stream = stream

    def _match(self, events: DataFrame, ready: Prepared, keep: Sequence[str]) -> DataFrame:
        """Return a row for each event: event, subscriptions, what is kept, what is wrong."""
        broken = [BROKEN] if BROKEN in events.columns else []
        return match(
            _read_whole(events) if broken else events,
            ready,
            ready.space,
            output="arrays",
            keep=[*keep, *broken],
            errors="column",
            nan=self.options.nan,
        )

    def _write(
        self, events: DataFrame, ready: Prepared, sinks: Sequence[Sink], batch: Batch
    ) -> tuple[Counts, list[Commit], Commit]:
        """Write answers and bad rows; return counts, what commits each sink, and the bad rows."""
        if len(sinks) == 1 and isinstance(sinks[0], Folder) and sinks[0].by_workers:
            commit, counts = self._written_by_workers(events, ready, sinks[0], batch)
            return counts, [commit], self._set_aside(events, batch, counts)
        found = self._match(events, ready, self.options.keep)
        if len(sinks) == 1 and sinks[0].stages:
            seen = Observation()
            rows = self._rows(found.observe(seen, *_counts(found)))
            commits = [sinks[0].write(rows, batch)]
            counts = dict(seen.get)
            return counts, commits, self._set_aside(events, batch, counts)
        found = found.persist()  # several readers, or one that may stop early
        try:
            counts = found.agg(*_counts(found)).collect()[0].asDict()
            commit_bad_rows = self._set_aside(events, batch, counts)
            rows = self._rows(found)
            return counts, [sink.write(rows, batch) for sink in sinks], commit_bad_rows
        finally:
            found.unpersist()

    def _written_by_workers(
        self, events: DataFrame, ready: Prepared, sink: Folder, batch: Batch
    ) -> tuple[Commit, Counts]:
        """Let the workers write the answers of a batch; return what commits them, and counts."""
        broken = [BROKEN] if BROKEN in events.columns else []
        asked = question(
            _read_whole(events) if broken else events,
            ready.space,
            output=self.options.output,
            keep=[*self.options.keep, *broken],
            errors="column",
            nan=self.options.nan,
        )
        left_out = ("error", *broken)
        fields = [one for one in asked.schema(ready) if one.name not in left_out]
        files, commit = sink.stage(StructType(fields), batch)
        return commit, files.counted(asked.answer(ready, finish=files, schema=REPORT))

    def _rows(self, found: DataFrame) -> DataFrame:
        """Return the rows that sinks are given."""
        good = found.filter(is_good(found))
        keep = [f"`{name}`" for name in self.options.keep]
        if self.options.output == "arrays":
            return good.select("event", "subscriptions", *keep)
        return good.select("event", F.explode("subscriptions").alias("subscription"), *keep)

    def _set_aside(self, events: DataFrame, batch: Batch, counts: Counts) -> Commit:
        """Write the bad rows of a batch to the quarantine; without one, raise the first."""
        if not counts["bad_rows"] or (self.quarantine and self.quarantine.has(batch.number)):
            return no_commit
        # A set that holds no event: its answers are the errors alone.
        nobody = self._nobody.ready(events.sparkSession, 0)
        found = self._match(_with_whole_row(events), nobody, [_WHOLE])
        bad = _bad_rows(found)
        if self.quarantine is None:
            first = bad.first()
            assert first is not None
            raise BadRowError(
                BadRow(
                    f"batch {batch.number}, event {first['event']}",
                    None,
                    first["column"],
                    str(first["value"]),
                    first["reason"],
                    f"{REMEDY}, or give a folder for bad rows",
                )
            )
        return self.quarantine.write(bad, batch)


def is_good(found: DataFrame) -> Column:
    """Return whether an answered event could be used: whole, with an id and fitting values."""
    good = F.col("error").isNull() & F.col("event").isNotNull()
    return good & F.col(BROKEN).isNull() if BROKEN in found.columns else good


def _counts(found: DataFrame) -> list[Column]:
    good = is_good(found)
    matches = F.sum(F.when(good, F.size("subscriptions")).otherwise(0))
    return [
        F.count(F.lit(1)).alias("events"),
        F.coalesce(matches, F.lit(0)).alias("matches"),
        F.count_if(~good).alias("bad_rows"),
    ]


def _read_whole(events: DataFrame) -> DataFrame:
    """Return events of which every column is needed to tell whether a row is broken.

    Otherwise Spark would parse only the columns that are asked for, and a row could be broken by a
    value in one pass and not in another.
    """
    return events.withColumn(BROKEN, F.when(F.col(BROKEN).isNotNull(), _as_json(events)))


def _with_whole_row(events: DataFrame) -> DataFrame:
    broken = F.col(BROKEN) if BROKEN in events.columns else F.lit(None)
    return events.withColumn(_WHOLE, F.coalesce(broken, _as_json(events)))


def _as_json(events: DataFrame) -> Column:
    return F.to_json(F.struct(*(f"`{name}`" for name in events.columns if name not in _OWN)))


def _bad_rows(found: DataFrame) -> DataFrame:
    """Return the bad rows of a batch, with what is wrong and all that was given."""
    broken = F.col(BROKEN).isNotNull() if BROKEN in found.columns else F.lit(False)
    nameless = F.col("event").isNull()

    def described(of_broken: Any, of_nameless: Any, name: str) -> Column:
        error = F.col(f"error.{name}")
        return F.when(broken, of_broken).when(nameless, of_nameless).otherwise(error).alias(name)

    return found.filter(~is_good(found)).select(
        F.col("event").cast("string").alias("event"),
        described("(all)", "id", "column"),
        described(F.col(_WHOLE), None, "value"),
        described(
            "the row can't be split into its columns",
            "an id is an integer or a text, and never missing",
            "reason",
        ),
        F.col(_WHOLE).alias("data"),
    )
