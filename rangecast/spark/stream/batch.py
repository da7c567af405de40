"""Answer and write one batch of events so that a crash at any point can be retried.

The steps, in this order; `watch` is called after each:

    begun               which sinks lack this batch? if none does, there is nothing to do
    pinned              the version of the subscriptions is on the disk (`versions`)
    staged              the answers and rejected rows are written; in folders they are not visible
                        yet
    rejected rows committed  the batch's rejected rows are committed
    committed           the answers are in place for good

A batch that is run again finds the same events (Spark's checkpoint), the same version (the pin)
and so the same answers; a sink that has them already is skipped. Rejected rows are committed
before the answers: when all sinks have the batch, its rejected rows are committed.

Folders of Parquet and Delta tables are written by the workers (`written`): answers, rejected rows
and events are counted in the same pass. For other sinks the answers are kept and counted first: a
sink that can't hold back what it writes gets nothing of a batch that a rejected row ends. Rejected
rows are found once more when there are any, without matching.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from rangecast.errors import RejectedRow, RejectedRowError, UsageError, for_interface
from rangecast.model.encoding.events import PLAIN
from rangecast.model.io.records import REMEDY
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.spark.columns import reject_unknown_events
from rangecast.spark.events import BROKEN, UNSPLIT
from rangecast.spark.session import job_name
from rangecast.spark.shipped import ship
from rangecast.spark.steps.filter import PassThroughQuery
from rangecast.spark.steps.query import EventQuery
from rangecast.spark.stream.sets import FixedSet, Subscriptions
from rangecast.spark.stream.sinks.base import (
    MOMENTS,
    Batch,
    Commit,
    Counts,
    FileSink,
    Sink,
    cast_ids,
    lies_inside,
    location,
    no_commit,
)
from rangecast.spark.stream.sinks.shapes import Output, OutputShapes, output_of, outputs
from rangecast.spark.stream.sinks.written import REPORT, AnswerWriter, collected
from rangecast.spark.stream.steps import AnswerStep, FilterStep, is_good

_WHOLE = "_whole_row"
_OWN = (BROKEN, _WHOLE)


Unread = Callable[[], int | None]
"""Returns how many events the source had at the start of the batch before, beyond that one."""


def unknown() -> int | None:
    """Return `None`: the number of unread events is unknown."""
    return None


@dataclass(frozen=True)
class BatchOutcome:
    """Outcome of one batch."""

    batch: int
    version: int
    subscriptions: int
    events: int
    matches: int
    """Matches of all sets; if several steps read a set, those of the step that found most."""
    rejected: int
    rejected_edits: int
    """Edits rejected since the previous batch."""
    seconds: float
    steps: dict[str, int] = field(default_factory=dict)
    """Number of answers of each step."""
    lag: int | None = None
    """Events that wait in the source, as of the start of the batch before; `None`: not known."""

    def facts(self) -> dict[str, Any]:
        """Return the outcome as plain data, including the rate."""
        rate = self.events / self.seconds if self.seconds else 0.0
        return {**asdict(self), "seconds": round(self.seconds, 3), "events_per_second": round(rate)}


@dataclass
class BatchRunner:
    """Runner that answers the batches of a stream, or the single batch of a batch job."""

    steps: Sequence[AnswerStep]
    rejected_sink: FileSink | None = None
    nan: str = "error"
    report: Callable[[BatchOutcome], None] = lambda _: None
    watch: Callable[[str], None] = lambda _: None
    ignore_unknown: bool = False
    """Whether events may have columns that are neither attributes nor kept by a step."""
    drains: Sequence[Callable[[], None]] = ()
    """Called before a batch is pinned: they bring the edits that are available."""
    closing: ExitStack = field(default_factory=ExitStack, init=False)
    """Leave it when there are no more batches: it closes the sinks."""
    _stream: str | None = field(default=None, init=False)
    _rejected_edits: int = field(default=0, init=False)
    _passing: PassThroughQuery | None = field(default=None, init=False)
    _shapes: OutputShapes | None = field(default=None, init=False)

    def check(
        self, session: SparkSession, events: DataFrame, checkpoint: str | None = None
    ) -> None:
        """Check columns, sinks and sets before anything runs; a batch job has no checkpoint."""
        exact = [sink for sink in self._all_sinks() if sink.promise == "exactly once"]
        names = [location(sink.name) for sink in exact]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(f"{twice[0]}: is given twice\n  hint: give each sink its own path")
        inside = lies_inside(names, names)
        if inside is not None:
            raise UsageError(
                f"{inside[0]}: lies inside of {inside[1]}, whose readers would see both\n"
                "  hint: give each sink a folder beside the others"
            )
        for sink in self._all_sinks():
            sink.check(session)
        if not flag("ignore_unknown", self.ignore_unknown):
            self._reject_unknown(events)
        self._rejected_edits += self._refresh()
        if sum(len(step.sets) for step in self.steps) > 1:
            for set_ in self._sets():
                if isinstance(set_.base, FixedSet):
                    set_.base.read_once(self.closing)
        written = []
        for step in self.steps:
            self.closing.callback(step.release)
            ready, rows = step.ready(session, step.subscriptions.latest())
            answers = self._query(step, events).schema(ready, step.settings)
            columns = _columns(step.columns(answers))
            for sink in step.sinks:
                sink.check_columns(columns)
            written.append((step.name, step.sinks, columns, rows))
        if checkpoint is not None:
            self._shapes = OutputShapes(session, checkpoint)
            self._shapes.check(outputs(written))

    def answer(self, events: DataFrame, stream: str, number: int, unread: Unread = unknown) -> None:
        """Answer a batch and write it to every sink that lacks it."""
        began = time.perf_counter()
        self._open(stream)
        lacking = [[sink for sink in step.sinks if not sink.has(number)] for step in self.steps]
        waiting = [(step, sinks) for step, sinks in zip(self.steps, lacking, strict=True) if sinks]
        self.watch("begun")
        if not waiting:
            return
        for drain in self.drains:
            drain()
        rejected_edits, self._rejected_edits = self._rejected_edits + self._refresh(), 0
        for set_ in self._sets():
            set_.pin(stream, number)
        self.watch("pinned")
        with ExitStack() as held:
            parts = []
            for step, sinks in waiting:
                with job_name(events.sparkSession, f"batch {number}, step {step.name}"):
                    batch = Batch(stream, number, 0, 0)
                    parts.append(self._answered(step, sinks, events, batch, held))
            counts = {name: parts[0].counts[name] for name in ("events", "rejected")}
            with job_name(events.sparkSession, f"batch {number}, rejected rows"):
                commit_rejected = self._write_rejected(events, parts[0].batch, counts["rejected"])
            ids: Mapping[Output, str] = {}
            if self._shapes is not None:
                ids = self._shapes.record(outputs(part.written for part in parts), number)
            commits = [(part, commit) for part in parts for commit in part.write_rest(ids)]
        self.watch("staged")
        if counts["rejected"]:
            commit_rejected({"rows": counts["rejected"]})
            self.watch("rejected rows committed")
        for part, commit in commits:
            commit(part.counts)
        self.watch("committed")
        first = parts[0].batch
        self.report(
            BatchOutcome(
                number,
                first.version,
                first.subscriptions,
                rejected_edits=rejected_edits,
                seconds=time.perf_counter() - began,
                matches=_matches(parts),
                steps={part.name: part.counts["matches"] for part in parts},
                lag=lag(unread(), counts["events"]),
                **counts,
            )
        )

    def _reject_unknown(self, events: DataFrame) -> None:
        """Reject columns that are neither attributes nor kept by a step."""
        kept = [name for step in self.steps for name in step.keep]
        try:
            for space in {id(step.space): step.space for step in self.steps}.values():
                reject_unknown_events(events.columns, space, PLAIN, ("id", *kept, *_OWN))
        except UsageError as error:
            raise UsageError(for_interface(str(error), "stream")) from None

    def _all_sinks(self) -> list[Sink]:
        sinks = [sink for step in self.steps for sink in step.sinks]
        return [*sinks, *([self.rejected_sink] if self.rejected_sink is not None else [])]

    def _sets(self) -> list[Subscriptions]:
        return list({id(set_): set_ for step in self.steps for set_ in step.sets}.values())

    def _refresh(self) -> int:
        return sum(set_.refresh() for set_ in self._sets())

    def _open(self, stream: str) -> None:
        if self._stream is None:
            for sink in self._all_sinks():
                sink.open(stream, self.closing)
            self._stream = stream

    def _query(self, step: AnswerStep, events: DataFrame) -> EventQuery:
        broken = [BROKEN] if BROKEN in events.columns else []
        whole = _read_whole(events) if broken else events
        return step.query(whole, [*step.keep, *broken], self.nan)

    def _answered(
        self,
        step: AnswerStep,
        sinks: Sequence[Sink],
        events: DataFrame,
        batch: Batch,
        held: ExitStack,
    ) -> _Part:
        """Answer a batch; the workers write the files of sinks that accept files."""
        session = events.sparkSession
        version = step.subscriptions.pin(batch.stream, batch.number)
        ready, rows = step.ready(session, version)
        batch = batch._replace(version=version, subscriptions=rows)
        asked = self._query(step, events)
        prefilters = step.prefilters(session, batch.stream, batch.number)
        part = _Part(step, batch)
        files = [sink_ for sink_ in sinks if isinstance(sink_, FileSink) and step.by_workers]
        if files:
            columns = _columns(asked.schema(ready, step.settings))
            targets = [sink.target(columns, batch) for sink in files]
            finish = AnswerWriter(targets, step.arrays)
            reports = asked.answer(
                ready, step.settings, prefilters=prefilters, finish=finish, schema=REPORT
            )
            written = collected(reports, targets, f"rangecast {step.name}")
            part.counts = written.counts
            part.commits = [
                sink.written(target, written_files, batch)
                for sink, target, written_files in zip(files, targets, written.files, strict=True)
            ]
        part.rest = [sink_ for sink_ in sinks if sink_ not in files]
        if part.rest:
            seen = Observation(f"rangecast {step.name} events")
            counted = replace(
                asked, events=asked.events.observe(seen, F.count(F.lit(1)).alias("events"))
            )
            answers = counted.answer(ready, step.settings, prefilters=prefilters)
            found = step.finish(answers, batch, held).persist()
            held.callback(found.unpersist)  # several readers, or one that may stop early
            part.found = found
            part.counts = found.agg(*_counts(step)).collect()[0].asDict() | seen.get
        return part

    def _write_rejected(self, events: DataFrame, batch: Batch, rejected: int) -> Commit:
        """Write the rejected rows of a batch to their sink; without one, raise the first."""
        if not rejected or (self.rejected_sink and self.rejected_sink.has(batch.number)):
            return no_commit
        space = self.steps[0].space
        if self._passing is None:
            self._passing = PassThroughQuery(ship(events.sparkSession, space))
            self.closing.callback(self._passing.shipped_space.release)
        bad = _rejected_rows(_with_whole_row(events), space, self.nan, self._passing)
        if self.rejected_sink is None:
            first = bad.first()
            assert first is not None
            raise RejectedRowError(
                RejectedRow(
                    f"batch {batch.number}, event {first['event']}",
                    None,
                    first["column"],
                    str(first["value"]),
                    first["reason"],
                    f"{REMEDY}, or set a folder for rejected rows",
                )
            )
        return self.rejected_sink.write(bad, batch)


@dataclass
class _Part:
    """Answers of one step to a batch, and the part to write."""

    step: AnswerStep
    batch: Batch
    counts: Counts = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    rest: Sequence[Sink] = ()
    found: DataFrame | None = None

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def written(self) -> tuple[str, Sequence[Sink], StructType, int]:
        """Step, sinks and columns of the rows that are left to write; number of subscriptions."""
        columns = StructType() if self.found is None else _columns(self.found.schema)
        return self.name, self.rest, columns, self.batch.subscriptions

    def write_rest(self, ids: Mapping[Output, str]) -> list[Commit]:
        """Write to the sinks that take a DataFrame; return what commits each sink.

        ids   types of the ids of subscriptions that readers of sinks know
        """
        if self.found is None:
            return self.commits
        columns = _columns(self.found.schema)
        names = [f"`{name}`" for name in columns.names]
        rows = self.found.filter(self.step.good).select(names)
        commits = list(self.commits)
        for sink in self.rest:
            text = f"batch {self.batch.number}, step {self.name}, {sink.name}"
            output = output_of(self.name, sink, columns, self.batch.subscriptions)
            kind = ids.get(output, "") if output is not None else ""
            with job_name(rows.sparkSession, text):
                commits.append(sink.write(cast_ids(rows, kind), self.batch))
        return commits


def lag(unread: int | None, events: int) -> int | None:
    """Return the lag after a batch: the unread events minus those of the batch."""
    return None if unread is None else max(0, unread - events)


def _matches(parts: Sequence[_Part]) -> int:
    """Return how many matches there are: steps on the same set find the same ones.

    A step that filters passes events on, and matches none.
    """
    of_sets: dict[int, int] = {}
    for part in parts:
        if not isinstance(part.step, FilterStep):
            of = id(part.step.subscriptions)
            of_sets[of] = max(of_sets.get(of, 0), part.counts["matches"])
    return sum(of_sets.values())


def _columns(answers: StructType) -> StructType:
    """Return the schema of the answers for sinks."""
    return StructType([answer for answer in answers if answer.name not in ("error", BROKEN)])


def _counts(step: AnswerStep) -> list[Column]:
    good = step.good
    answers = F.size("subscriptions") if step.arrays else F.lit(1)
    return [
        F.coalesce(F.sum(F.when(good, answers).otherwise(0)), F.lit(0)).alias("matches"),
        F.count_if(good).alias("rows"),
        F.count_if(~good).alias("rejected"),
    ]


def _read_whole(events: DataFrame) -> DataFrame:
    """Return events of which every column is needed to tell whether a row is broken.

    Otherwise Spark would parse only the columns that are needed, and a row could be broken by a
    value in one pass and not in another.
    """
    return events.withColumn(BROKEN, F.when(F.col(BROKEN).isNotNull(), _as_json(events)))


def _with_whole_row(events: DataFrame) -> DataFrame:
    broken = F.col(BROKEN) if BROKEN in events.columns else F.lit(None)
    return events.withColumn(_WHOLE, F.coalesce(broken, _as_json(events)))


def _as_json(events: DataFrame) -> Column:
    values = F.struct(*(f"`{name}`" for name in events.columns if name not in _OWN))
    return F.to_json(values, MOMENTS)


def _rejected_rows(
    events: DataFrame, space: Space, nan: str, passing: PassThroughQuery
) -> DataFrame:
    """Return the rejected rows of a batch, with the reason and all their values."""
    broken = [BROKEN] if BROKEN in events.columns else []
    whole = _read_whole(events) if broken else events
    query = EventQuery.of(
        whole,
        space,
        taken=(),
        keep=[_WHOLE, *broken],
        rejected="column",
        nan=nan,
        ignore_unknown=True,
    )
    rejected = query.answer(passing)
    is_broken = F.col(BROKEN).isNotNull() if broken else F.lit(False)
    nameless = F.col("event").isNull()

    def described(of_broken: Any, of_nameless: Any, name: str) -> Column:
        error = F.col(f"error.{name}")
        return F.when(is_broken, of_broken).when(nameless, of_nameless).otherwise(error).alias(name)

    return rejected.filter(~is_good()).select(
        F.col("event").cast("string").alias("event"),
        described("(all)", "id", "column"),
        described(F.col(_WHOLE), None, "value"),
        described(
            UNSPLIT,
            "an id must be an integer or a non-empty string",
            "reason",
        ),
        F.col(_WHOLE).alias("data"),
    )
