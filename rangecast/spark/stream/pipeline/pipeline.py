"""A pipeline from a TOML file: sources of events, sets, steps between them, sinks; batch or stream.

`settings` has all keys, `graph` resolves their names, docs/how-to/streaming.md explains them. The
file is read whole and checked before Spark is started. Both modes do the same: a batch job is a
stream of one batch, without a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from rangecast.device.devices import check_device_index
from rangecast.errors import FileError, SpaceError, UsageError
from rangecast.match.choose import check_index as check_match_index
from rangecast.merge.cells import Cells
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import PLAIN
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.space import Space
from rangecast.notify.line.tables import POSITION
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.rate_limit import time_axis
from rangecast.rank.scores.combine import check_combine
from rangecast.rank.scores.tolerances import check_tolerances, encode_tolerances
from rangecast.spark.steps.notify.board_schema import BoardSchema
from rangecast.spark.steps.prepared import gathered_set
from rangecast.spark.stream.batch import BatchOutcome, BatchRunner
from rangecast.spark.stream.edits.delta import DeltaEdits
from rangecast.spark.stream.edits.files import EDITS, EditsRunner
from rangecast.spark.stream.edits.server import ServerEdits
from rangecast.spark.stream.kafka import KafkaSource
from rangecast.spark.stream.lists import NotifyRunner
from rangecast.spark.stream.pipeline.graph import Graph, graph_of
from rangecast.spark.stream.pipeline.settings import (
    CoverStep,
    FilterStep,
    MatchStep,
    MergeStep,
    NotifyStep,
    RankStep,
    Settings,
    TrackStep,
)
from rangecast.spark.stream.pipeline.settings import Subscriptions as SetTable
from rangecast.spark.stream.pipeline.toml_file import read_toml
from rangecast.spark.stream.run import EditStream, EventStream, Runner, run_all
from rangecast.spark.stream.set_rows import (
    check_set_rows,
    covered_rows,
    merged_rows,
    write_set_rows,
)
from rangecast.spark.stream.sets import (
    CoveredSet,
    FixedSet,
    MergedSet,
    Subscriptions,
    VersionedSet,
)
from rangecast.spark.stream.sinks.base import Sink
from rangecast.spark.stream.sources import Files, read_table
from rangecast.spark.stream.steps import AnswerStep
from rangecast.spark.stream.steps import FilterStep as Filtering
from rangecast.spark.stream.steps import MatchStep as Matching
from rangecast.spark.stream.steps import RankStep as Ranking
from rangecast.spark.stream.tracks import TrackStep as Tracking
from rangecast.store.commits import BATCH_JOB
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

Report = Callable[[BatchOutcome], None]
_UPDATES = ("seq", "value")
"""Columns of updates beside the id and where an object lies."""
_OF_IDS = (_UPDATES, EDITS)
"""Columns of rows whose id says what they are about: it can't be made up."""
_LINE = Space([POSITION])
"""Where objects lie if a step `notify` has no space."""


@dataclass(frozen=True)
class Pipeline:
    """Pipeline described by a TOML file; create it with `Pipeline.load`."""

    space: Space
    settings: Settings
    graph: Graph

    @classmethod
    def load(cls, path: str | Path) -> Pipeline:
        """Read a TOML file and check it, before Spark is started."""
        settings = read_toml(path, Settings)
        try:
            problem = settings.problem()
            if problem is not None:
                raise FileError(problem)
            graph = graph_of(settings)
            space = Space.load(settings.space)
            _check_steps(settings, space)
        except FileError as error:
            raise FileError(f"{path}: {error}") from None
        return cls(space, settings, graph)

    @cached_property
    def sinks(self) -> dict[str, list[Sink]]:
        """Sinks of each step."""
        return {name: [sink.sink for sink in node.sinks] for name, node in self.graph.nodes.items()}

    def run(self, session: SparkSession, report: Report = lambda _: None) -> None:
        """Run the pipeline until it ends; `report` is called with each batch when it is done."""
        build = _Build(self, session)
        stream = self.settings.stream
        runners = {name: self._runner(build, name, report) for name in self.graph.sources}
        if stream is not None:
            flows = {
                name: EventStream(
                    build.events(name, stream=True),
                    runner,
                    f"{stream.checkpoint}/sources/{name}",
                    name,
                )
                for name, runner in runners.items()
            }
            feeding = {set_.edits_source for set_ in self.graph.sets.values()}
            drains = [EditStream(flow) for name, flow in flows.items() if name in feeding]
            for runner in runners.values():
                if isinstance(runner, BatchRunner):
                    runner.drains = [*drains, *build.followed]
            answered = [flow for name, flow in flows.items() if name not in feeding]
            run_all(answered, stream.trigger, drains)
            return
        with build.closing:
            rows_of_sets = {}
            for name, node in self.graph.nodes.items():
                if node.sinks and isinstance(node.step, CoverStep):
                    rows_of_sets[name] = covered_rows(build.set_of(node.takes))
                elif node.sinks and isinstance(node.step, MergeStep):
                    rows_of_sets[name] = merged_rows(build.merged(name), name)
            for name, rows in rows_of_sets.items():
                check_set_rows(session, rows, self.sinks[name])
            for name, runner in runners.items():
                self._answer_once(build, name, runner)
            for name, rows in rows_of_sets.items():
                write_set_rows(session, rows, self.sinks[name], name, report)

    def _runner(self, build: _Build, source: str, report: Report) -> Runner:
        set_ = self.settings.rejected
        alone = len(self.graph.sources) == 1
        rejected = None if set_ is None else set_.sink(None if alone else source)
        fed = [set_ for set_ in self.graph.sets.values() if set_.edits_source == source]
        if fed:
            return EditsRunner([build.edits_folder(set_) for set_ in fed], rejected, report)
        names = self.graph.steps_on(source)
        first = self.graph.nodes[names[0]].step
        if isinstance(first, NotifyStep):
            sinks, space = self.sinks[names[0]], _space_of(first)
            return NotifyRunner(first, space, names[0], sinks, rejected, report)
        steps = [build.step(name) for name in names]
        table = self.graph.sources[source]
        may_have_more = table.ignore_unknown or table.names_columns
        return BatchRunner(steps, rejected, table.nan, report, ignore_unknown=may_have_more)

    def _answer_once(self, build: _Build, source: str, runner: Runner) -> None:
        """Answer a source as a batch job."""
        events = build.events(source, stream=False)
        with runner.closing as closing:
            if not self.graph.sources[source].is_replayable:
                # rejected rows are found in a second pass, over the same events
                events = events.persist(StorageLevel.DISK_ONLY)
                closing.callback(events.unpersist)
            runner.check(events.sparkSession, events)
            runner.answer(events, f"{BATCH_JOB} {uuid4()}", 0)


class _Build:
    """Parts of a running pipeline, each built once."""

    def __init__(self, pipeline: Pipeline, session: SparkSession):
        self._pipeline = pipeline
        self._session = session
        self._sets: dict[str, Subscriptions] = {}
        self._merged: dict[tuple[str, str], MergedSet] = {}
        self.closing = ExitStack()
        """Left at the end of a batch job."""
        self.followed: list[DeltaEdits | ServerEdits] = []
        """Tables and servers whose subscriptions are looked at before each batch."""

    def events(self, source: str, *, stream: bool) -> DataFrame:
        """Return the events of a source, with the columns that steps ask for."""
        graph = self._pipeline.graph
        steps = [graph.nodes[name].step for name in graph.steps_on(source)]
        keep = [getattr(step, "keep", _UPDATES) for step in steps] or [EDITS]
        space = self._pipeline.space
        if steps and isinstance(steps[0], NotifyStep):
            space = _space_of(steps[0]) or _LINE
        names = list(dict.fromkeys(name for kept_names in keep for name in kept_names))
        settings = graph.sources[source]
        more = {"named": False} if isinstance(settings, KafkaSource) and keep[0] in _OF_IDS else {}
        if isinstance(settings, Files) and keep[0] == EDITS:
            more = {"ordered": True}
        events = settings.read(self._session, space, names, stream=stream, **more)
        if isinstance(settings, Files) and settings.schema is None and keep[0] not in _OF_IDS:
            _need_columns(settings, events, space)
        return events

    def step(self, name: str) -> AnswerStep:
        """Return a step that answers events."""
        graph = self._pipeline.graph
        settings, of = graph.nodes[name].step, graph.nodes[name].of
        how: dict[str, Any]
        sinks, filters = (
            self._pipeline.sinks[name],
            [self.merged(filter_, graph.source_of(name)) for filter_ in graph.filters_of(name)],
        )
        if isinstance(settings, FilterStep):
            return Filtering(filters, sinks, keep=settings.keep, name=name)
        assert of is not None
        if isinstance(settings, TrackStep):
            how = settings.settings(self._pipeline.space)._asdict()
            state = settings.state or self._beside_checkpoint("tracks", name)
            return Tracking(
                self.set_of(of), sinks, name=name, state=state, buckets=settings.buckets, **how
            )
        assert isinstance(settings, MatchStep | RankStep)
        how = {
            "keep": settings.keep,
            "filters": filters,
            "index": settings.index,
            "device": settings.device,
            "max_worker_memory": settings.max_worker_memory,
            "name": name,
        }
        if isinstance(settings, MatchStep):
            return Matching(self.set_of(of), sinks, output=settings.output, **how)
        return Ranking(
            self.set_of(of),
            sinks,
            k=settings.k,
            relaxed=settings.relaxed,
            combine=settings.combine,
            tolerances=settings.tolerances,
            max_per_second=settings.max_per_second,
            time_attribute=settings.time_attribute,
            **how,
        )

    def merged(self, name: str, source: str = "") -> MergedSet:
        """Return the summary that a step `merge` makes; each source is at a version of its own."""
        if (source, name) not in self._merged:
            node = self._pipeline.graph.nodes[name]
            step = node.step
            assert isinstance(step, MergeStep)
            of = self.set_of(node.takes)
            self._merged[source, name] = MergedSet(
                of, bits=step.bits, attributes=step.attributes, gap=step.gap
            )
        return self._merged[source, name]

    def set_of(self, name: str) -> Subscriptions:
        """Return a set, or the uncovered subscriptions that a `cover` step leaves."""
        if name not in self._sets:
            graph = self._pipeline.graph
            if name in graph.nodes:
                self._sets[name] = CoveredSet(self.set_of(graph.nodes[name].takes))
            elif self._pipeline.settings.stream is not None:
                self._sets[name] = self._pinned(graph.sets[name])
            else:
                self._sets[name] = self._fixed(graph.sets[name])
        return self._sets[name]

    def _pinned(self, table: SetTable) -> VersionedSet:
        """Return a set of a stream; a file that has changed is a new version."""
        stream, space = self._pipeline.settings.stream, self._pipeline.space
        assert stream is not None
        own = Path(stream.checkpoint) / "sets" / table.name
        versions = Versions(table.versions or own / "versions")
        folder = self.edits_folder(table)
        edits = None if folder is None else Edits(folder, versions, space)
        if table.delta is not None and folder is not None:
            self.followed.append(DeltaEdits(table.delta, folder))
        elif table.server is not None and table.server_space is not None and folder is not None:
            self.followed.append(ServerEdits(table.server, table.server_space, folder))
        if table.delta is not None or table.server is not None:
            self.followed[-1]()
        if (table.file or table.table or table.catalog) and (edits is None or not versions.all()):
            versions.commit_file(*self._read(table))
        elif table.edits_source is not None and not versions.all():
            none = np.zeros((0, len(space)))  # the first edits come by a stream that isn't started
            versions.commit(Boxes.of(none, none), space)
        return VersionedSet(versions, space, edits=edits, keep_versions=table.keep_versions)

    def edits_folder(self, table: SetTable) -> Path | None:
        """Return the folder of a set's edits; those of a source are put there."""
        if table.edits is not None or not any((table.edits_source, table.delta, table.server)):
            return table.edits
        return self._beside_checkpoint("sets", table.name, "edits")

    def _beside_checkpoint(self, *names: str) -> Path | None:
        """Return the stream's own folder; a batch job has none."""
        stream = self._pipeline.settings.stream
        return None if stream is None else Path(stream.checkpoint, *names)

    def _fixed(self, table: SetTable) -> FixedSet:
        """Return a set of a batch job."""
        space = self._pipeline.space
        if table.table is not None or table.catalog is not None:
            set_ = FixedSet(self._table(table), space)
            if len(self._pipeline.graph.nodes) > 1:
                set_.read_once(self.closing)
            return set_
        if table.file is not None:
            return FixedSet(*self._read(table))
        assert table.versions is not None
        versions = Versions(table.versions)
        version = versions.latest()
        return FixedSet(*versions.load(version), version=version)

    def _read(self, table: SetTable) -> tuple[Boxes, Space]:
        """Return the subscriptions of a file or a table on the driver."""
        space = self._pipeline.space
        if table.file is not None:
            return read_subscriptions(table.file, space), space
        return gathered_set(self._table(table), space)

    def _table(self, table: SetTable) -> DataFrame:
        return read_table(self._session, table.format, table.table, table.catalog, {})


def _need_columns(source: Files, events: DataFrame, space: Space) -> None:
    """Reject files without the columns of attributes: newer ones may have them."""
    present = {*events.columns}
    absent = [attribute for attribute in space if not {*PLAIN.names(attribute)} & present]
    if absent and source.format == "parquet":
        names = ", ".join(repr(PLAIN.names(column)[0]) for column in absent)
        raise FileError(
            f"{source.path}: the file from which Spark infers the columns lacks {names}\n"
            f"  present: {', '.join(map(repr, events.columns))}\n"
            "  hint: if other files of the folder have them, list all columns in the source's "
            "schema = 'id long, ...'; rows of older files then have missing values"
        )


def _space_of(step: NotifyStep) -> Space | None:
    """Return the space of a step `notify`, if it has one."""
    return None if step.space is None else Space.load(step.space)


def _check_steps(settings: Settings, space: Space) -> None:
    """Reject options of steps that don't fit together or don't fit the space."""
    for index, step in enumerate(settings.step):
        key = "index"
        try:
            if isinstance(step, MatchStep):
                check_match_index(step.index)
                key = "device"
                check_device_index(step.device, step.index)
            elif isinstance(step, RankStep):
                check_rank_index(step.index)
                key = "device"
                check_device_index(step.device, step.index)
                key = "combine"
                check_combine(step.combine, relaxed=step.relaxed)
                key = "tolerances"
                check_tolerances(step.tolerances, relaxed=step.relaxed, index=step.index)
                encode_tolerances(step.tolerances, space)
                key = "time_attribute"
                time_axis(space, step.max_per_second, step.time_attribute)
            elif isinstance(step, NotifyStep):
                key = "space"
                BoardSchema(_space_of(step))
                key = "upper_bound_attribute"
                BoardSchema(_space_of(step), step.upper_bound_attribute)
            elif isinstance(step, TrackStep):
                key = "key"
                step.settings(space)
            elif isinstance(step, MergeStep):
                key = "attributes"
                Cells.chosen(space, step.bits, step.attributes, None)
        except (UsageError, SpaceError) as error:
            raise FileError(f"step[{index}].{key}: {error}") from None
