"""A pipeline from a TOML file: a source of events, subscriptions, a step, sinks; batch or stream.

`settings` has all keys, docs/STREAMING.md explains them. The file is read whole and checked before
Spark is started. Both modes do the same: a batch job is a stream of one batch, without a
checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from rangecast.errors import FileError
from rangecast.model.space import Space
from rangecast.model.subscriptions import read_subscriptions
from rangecast.spark.session import need_classic
from rangecast.spark.stream.batch import BatchRunner, Done
from rangecast.spark.stream.run import run_stream
from rangecast.spark.stream.sets import StaticSet, VersionedSet
from rangecast.spark.stream.settings import Settings
from rangecast.spark.stream.sinks import Folder, Sink
from rangecast.spark.stream.toml_file import read_toml
from rangecast.store.commits import BATCH_JOB
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, as its TOML file describes it. Make one with `Pipeline.load`."""

    space: Space
    settings: Settings

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Read a TOML file and check it, before Spark is started."""
        settings = read_toml(path, Settings)
        problem = settings.problem()
        if problem is not None:
            raise FileError(f"{path}: {problem}")
        return cls(Space.load(settings.space), settings)

    @cached_property
    def sinks(self) -> list[Sink]:
        """Where the answers go."""
        return [one.sink for one in self.settings.sink]

    def run(self, session: SparkSession, report: Callable[[Done], None] = lambda _: None) -> None:
        """Run the pipeline until it ends; `report` is called with each batch when it is done."""
        need_classic(session, "a pipeline")
        given = self.settings
        options, stream = given.step[0].options, given.stream
        quarantine = None if given.quarantine is None else Folder(given.quarantine.path)
        events = given.source.read(session, self.space, options.keep, stream=stream is not None)
        if stream is not None:
            run_stream(
                events,
                self._pinned(stream.checkpoint),
                self.sinks,
                checkpoint=stream.checkpoint,
                options=options,
                quarantine=quarantine,
                trigger=stream.trigger,
                report=report,
            )
            return
        runner = BatchRunner(self._fixed(), options, self.sinks, quarantine, report)
        with runner.closing:
            if given.source.may_grow:  # bad rows are found in a second pass, over the same events
                events = events.persist(StorageLevel.DISK_ONLY)
                runner.closing.callback(events.unpersist)
            runner.check(session, events)
            runner.answer(events, f"{BATCH_JOB} {uuid4()}", 0)

    def _pinned(self, checkpoint: str) -> VersionedSet:
        """Return the subscriptions of a stream; a file that has changed is a new version."""
        given, step = self.settings.subscriptions, self.settings.step[0]
        versions = Versions(given.versions or Path(checkpoint) / "versions")
        edits = None if given.edits is None else Edits(given.edits, versions, self.space)
        if given.file is not None and (edits is None or not versions.all()):
            versions.publish_file(read_subscriptions(given.file, self.space), self.space)
        return VersionedSet(
            versions,
            self.space,
            index=step.index,
            worker_bytes=step.worker_bytes,
            edits=edits,
            keep_versions=given.keep_versions,
        )

    def _fixed(self) -> StaticSet:
        """Return the subscriptions of a batch job."""
        given, step = self.settings.subscriptions, self.settings.step[0]
        if given.file is not None:
            boxes, space, version = read_subscriptions(given.file, self.space), self.space, 0
        else:
            assert given.versions is not None
            versions = Versions(given.versions)
            version = versions.latest()
            boxes, space = versions.load(version)
        return StaticSet(
            boxes, space, index=step.index, worker_bytes=step.worker_bytes, version=version
        )
