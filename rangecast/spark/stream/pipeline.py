"""A pipeline from a TOML file: a source of events, subscriptions, a step, sinks; batch or stream.

docs/STREAMING.md has all keys. The file is read whole and checked before Spark is started. Both
modes do the same: a batch job is a stream of one batch, without a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from rangecast.match.choose import INDEXES
from rangecast.model.attributes import NanMeaning
from rangecast.model.space import Space
from rangecast.model.subscriptions import read_subscriptions
from rangecast.spark.steps.match import OUTPUTS
from rangecast.spark.steps.question import PLANS
from rangecast.spark.stream.batch import Answering, Done, Step
from rangecast.spark.stream.pinned import Fixed, Pinned
from rangecast.spark.stream.run import AVAILABLE_NOW, run_stream
from rangecast.spark.stream.settings import Settings
from rangecast.spark.stream.sinks import Console, Folder, Sink
from rangecast.spark.stream.sinks import Topic as TopicSink
from rangecast.spark.stream.sources import FORMATS, Files, Rate, Source, Topic
from rangecast.store.commits import BATCH_JOB
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

MODES = ("batch", "stream")
_TIME = r"\d+ (second|minute|hour)s?"
_TRIGGER = f"{AVAILABLE_NOW!r}, or the time between batches such as '10 seconds'"
_SCALARS = "a table of texts and numbers"


class Subscriptions(NamedTuple):
    """Where the set comes from, and its changes."""

    file: Path | None
    versions: Path | None
    edits: Path | None
    keep_versions: int | None


class Stream(NamedTuple):
    """What only a stream has."""

    checkpoint: str
    trigger: str


class Spark(NamedTuple):
    """Where to run."""

    master: str | None
    conf: dict[str, str]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, as its TOML file describes it. Make one with `Pipeline.load`."""

    space: Space
    source: Source
    subscriptions: Subscriptions
    step: Step
    index: str
    plan: str
    sinks: Sequence[Sink]
    quarantine: Folder | None
    stream: Stream | None
    """`None`: it is a batch job."""
    spark: Spark

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Read a TOML file and check it, before Spark is started."""
        given = Settings.load(path)
        mode = given.choice("mode", MODES)
        step, index, plan = _step(given)
        pipeline = cls(
            space=Space.load(given.path("space", "the file of the space")),
            source=_source(given.table("source", "a table [source]"), mode),
            subscriptions=_subscriptions(given.table("subscriptions", "a table"), mode),
            step=step,
            index=index,
            plan=plan,
            sinks=[_sink(one) for one in given.tables("sink", "tables [[sink]]")],
            quarantine=_quarantine(given),
            stream=_stream(given, mode),
            spark=_spark(given),
        )
        given.done()
        stream = pipeline.stream
        if stream and "://" in stream.checkpoint and pipeline.subscriptions.versions is None:
            needed = "a folder on a file system, as the checkpoint is none"
            raise given.error("subscriptions.versions", f"is missing\n  expected: {needed}")
        return pipeline

    def run(self, session: SparkSession, report: Callable[[Done], None] = lambda _: None) -> None:
        """Run the pipeline until it ends; `report` is called with each batch when it is done."""
        is_stream = self.stream is not None
        events = self.source.read(session, self.space, self.step.keep, stream=is_stream)
        if self.stream is not None:
            run_stream(
                events,
                self._pinned(self.stream.checkpoint),
                self.sinks,
                checkpoint=self.stream.checkpoint,
                step=self.step,
                quarantine=self.quarantine,
                trigger=self.stream.trigger,
                report=report,
            )
            return
        answering = Answering(self._fixed(), self.step, self.sinks, self.quarantine, report)
        with answering.closing:
            answering.check(session, events)
            answering.answer(events, f"{BATCH_JOB} {uuid4()}", 0)

    def _pinned(self, checkpoint: str) -> Pinned:
        """Return the subscriptions of a stream; a file that has changed is a new version."""
        given = self.subscriptions
        versions = Versions(given.versions or Path(checkpoint) / "versions")
        edits = None if given.edits is None else Edits(given.edits, versions, self.space)
        if given.file is not None and (edits is None or not versions.all()):
            versions.publish_file(read_subscriptions(given.file, self.space), self.space)
        return Pinned(
            versions,
            self.space,
            index=self.index,
            plan=self.plan,
            edits=edits,
            keep_versions=given.keep_versions,
        )

    def _fixed(self) -> Fixed:
        """Return the subscriptions of a batch job."""
        given = self.subscriptions
        if given.file is not None:
            boxes, space, version = read_subscriptions(given.file, self.space), self.space, 0
        else:
            assert given.versions is not None
            versions = Versions(given.versions)
            version = versions.latest()
            boxes, space = versions.load(version)
        return Fixed(boxes, space, index=self.index, plan=self.plan, version=version)


def _source(given: Settings, mode: str) -> Source:
    kind = given.choice("type", ("files", "rate", "kafka"))
    columns = given.scalars("columns", "a table of SQL expressions, a name each")
    source: Source
    if kind == "rate":
        if mode == "batch":
            raise given.error("type", "the rate source has no end; expected: mode = 'stream'")
        source = Rate(given.count("rows_per_second", "a whole number", 10), columns)
    else:
        how: dict[str, Any] = {
            "schema": given.optional_text("schema", "columns, as 'id string, price double'"),
            "integer_ids": given.choice("ids", ("text", "integer"), "text") == "integer",
            "columns": columns,
            "options": given.scalars("options", f"{_SCALARS}, for Spark's reader"),
        }
        if kind == "kafka":
            source = Topic(*_topic(given), **how)
        else:
            path = given.location("path", "a file, or a folder of files")
            source = Files(path, given.choice("format", FORMATS), **how)
    given.done()
    return source


def _topic(given: Settings) -> tuple[str, str]:
    servers = given.text("servers", "host:port, several with commas")
    return servers, given.text("topic", "the name of a topic")


def _subscriptions(given: Settings, mode: str) -> Subscriptions:
    what = Subscriptions(
        file=given.optional_path("file", "a file of subscriptions"),
        versions=given.optional_path("versions", "a folder of versions"),
        edits=given.optional_path("edits", "a folder of files of edits"),
        keep_versions=given.optional_count("keep_versions", "how many versions to keep"),
    )
    given.done()
    if mode == "batch":
        for key in ("edits", "keep_versions"):
            if given.has(key):
                raise given.error(key, "is for streams\n  expected: mode = 'stream'")
        if given.has("file") == given.has("versions"):
            raise given.error("file", "give either a file or a folder of versions")
    elif not any(given.has(key) for key in ("file", "versions", "edits")):
        raise given.error("file", "give a file, a folder of versions, or a folder of edits")
    return what


def _step(given: Settings) -> tuple[Step, str, str]:
    steps = given.tables("step", "a table [[step]]")
    if len(steps) > 1:
        raise given.error("step", f"there are {len(steps)}\n  expected: one, of type 'match'")
    one = steps[0]
    one.choice("type", ("match",))
    step = Step(
        output=one.choice("output", OUTPUTS, "pairs"),
        keep=one.texts("keep", "a list of columns"),
        nan=one.choice("nan", [*map(str, NanMeaning)], "refuse"),
    )
    index = one.choice("index", ("auto", *INDEXES), "auto")
    plan = one.choice("plan", PLANS, "auto")
    one.done()
    return step, index, plan


def _sink(given: Settings) -> Sink:
    kind = given.choice("type", ("parquet", "json", "console", "kafka"))
    sink: Sink
    if kind == "console":
        sink = Console(given.count("rows", "how many rows to show", 20))
    elif kind == "kafka":
        sink = TopicSink(*_topic(given), given.scalars("options", _SCALARS))
    else:
        sink = Folder(given.path("path", "a folder"), kind)
    given.done()
    return sink


def _quarantine(given: Settings) -> Folder | None:
    table = given.optional_table("quarantine", "a table with a path")
    if table is None:
        return None
    folder = Folder(table.path("path", "a folder for bad rows"))
    table.done()
    return folder


def _stream(given: Settings, mode: str) -> Stream | None:
    table = given.optional_table("stream", "a table with checkpoint and trigger")
    if mode == "batch":
        if table is not None:
            raise given.error("stream", "means nothing in a batch job\n  expected: mode = 'stream'")
        return None
    if table is None:
        raise given.error("stream", "is missing\n  expected: a table with a checkpoint")
    checkpoint = table.location("checkpoint", "the folder where Spark notes how far it is")
    trigger = table.text("trigger", _TRIGGER, AVAILABLE_NOW)
    if trigger != AVAILABLE_NOW and not re.fullmatch(_TIME, trigger):
        raise table.error("trigger", f"can't be {trigger!r}\n  expected: {_TRIGGER}")
    table.done()
    return Stream(checkpoint, trigger)


def _spark(given: Settings) -> Spark:
    table = given.optional_table("spark", "a table with master and conf")
    if table is None:
        return Spark(None, {})
    master = table.optional_text("master", "a master URL such as 'local[4]'")
    spark = Spark(master, table.scalars("conf", _SCALARS))
    table.done()
    return spark
