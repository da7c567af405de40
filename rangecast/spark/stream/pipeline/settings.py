"""The keys of a pipeline's TOML file: their names, types, defaults and meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta, field

from rangecast.errors import UsageError
from rangecast.model.space import Space
from rangecast.rank.scores.combine import Combine
from rangecast.spark.steps.match import OUTPUTS
from rangecast.spark.steps.prepared import MAX_WORKER_MEMORY
from rangecast.spark.steps.track import BUCKETS, TrackSettings, only_timestamp
from rangecast.spark.stream.kafka import KafkaSink, KafkaSource
from rangecast.spark.stream.pipeline.toml_file import Location, Table, takes
from rangecast.spark.stream.run import AVAILABLE_NOW
from rangecast.spark.stream.sinks.base import (
    CatalogTable,
    Console,
    FileSink,
    Folder,
    JsonFolder,
    SinkTable,
)
from rangecast.spark.stream.sinks.delta import Delta
from rangecast.spark.stream.sinks.join_files import TARGET_FILE_BYTES
from rangecast.spark.stream.sources import Files, Options, Rate, TableSource
from rangecast.track.delivery.policies import Policy
from rangecast.track.rules import Rule

if TYPE_CHECKING:
    Output = str
else:
    Output = Literal[*OUTPUTS]


T = TypeVar("T")
Count = Annotated[int, Meta(ge=1)]
Column = Annotated[str, takes("the name of a column")]
Keep = Annotated[tuple[Column, ...], takes("a list of columns")]
Named = Annotated[str | None, takes("the name of a source, a set or a step")]
Index = Annotated[str, takes("the name of an index, such as 'auto'")]
Device = Annotated[str | None, takes("the name of a device, 'cuda'")]
Bytes = Annotated[Count, takes("a number of bytes")]
Url = Annotated[str, Meta(pattern=r"^https?://[^/?#]+/?$")]
Fields = dict[str, Any]
Replace = Annotated[bool, takes("true or false")]
"""Whether a batch job replaces what an earlier run wrote."""


class Subscriptions(Table):
    """Where a set comes from, and its changes."""

    name: Annotated[str, takes("a name")] = "subscriptions"
    file: Annotated[Path | None, takes("a file of subscriptions")] = None
    table: Annotated[Location | None, takes("a table of subscriptions that Spark reads")] = None
    format: Annotated[str, takes("the format of the table, as Spark names it")] = "parquet"
    catalog: Annotated[str | None, takes("a table by its name in Spark's catalog")] = None
    versions: Annotated[Path | None, takes("a folder of versions")] = None
    edits: Annotated[Path | None, takes("a folder of files of edits")] = None
    edits_source: Annotated[str | None, takes("the name of a source of edits")] = None
    delta: Annotated[Location | None, takes("a Delta table whose changes are followed")] = None
    server: Annotated[Url | None, takes("the URL of a server")] = None
    server_space: Annotated[str | None, takes("the space of that server")] = None
    keep_versions: Annotated[Count | None, takes("number of versions to keep")] = None


class Step(Table, kw_only=True, tag_field="type"):
    """Settings of all steps."""

    name: Annotated[str | None, takes("a name")] = None
    """Its type, if not given."""

    @property
    def called(self) -> str:
        return self.name or str(self.__struct_config__.tag)


class MatchStep(Step, tag="match"):
    """Which subscriptions match each event."""

    input: Named = None
    subscriptions: Named = None
    output: Output = "rows"
    keep: Keep = ()
    index: Index = "auto"
    device: Device = None
    max_worker_memory: Bytes = MAX_WORKER_MEMORY


class RankStep(Step, tag="rank"):
    """The top k subscriptions of each event."""

    input: Named = None
    subscriptions: Named = None
    k: Annotated[Count, takes("a whole number")] = 10
    relaxed: Annotated[bool, takes("true or false")] = False
    combine: Combine = "sum"
    tolerances: Annotated[dict[str, float], takes("a table such as { price = 5 }")] = field(
        default_factory=dict
    )
    max_per_second: Annotated[Count | None, takes("a whole number")] = None
    time_attribute: Annotated[str | None, takes("the name of a timestamp attribute")] = None
    keep: Keep = ()
    index: Index = "auto"
    device: Device = None
    max_worker_memory: Bytes = MAX_WORKER_MEMORY


class FilterStep(Step, tag="filter"):
    """The events that may match a subscription, by the summary of a step `merge`."""

    input: Named = None
    summary: Named = None
    keep: Keep = ()


class CoverStep(Step, tag="cover"):
    """The subscriptions of a set that no other one covers, as a set."""

    input: Named = None


class MergeStep(Step, tag="merge"):
    """The union of a set, as ranges."""

    input: Named = None
    attributes: Annotated[tuple[str, ...] | None, takes("a list of attributes")] = None
    bits: Annotated[Count, takes("bits per attribute")] = 8
    gap: Annotated[int, takes("a whole number", ge=0)] = 0


class NotifyStep(Step, kw_only=True, tag="notify"):
    """Top-k lists of interests, kept up to date by the updates of a source."""

    input: Named = None
    objects: Annotated[Path, takes("a file of objects: id, position, value")]
    interests: Annotated[Path, takes("a file of interests: id, position_lo, position_hi")]
    space: Annotated[
        Path | None, takes("a space file with the attributes of objects, if not position")
    ] = None
    upper_bound_attribute: Annotated[
        str | None, takes("the attribute on which interests have no lower bound")
    ] = None
    lists: Annotated[Path, takes("a folder for the lists")]
    k: Annotated[Count, takes("a whole number")] = 10
    descending: Annotated[bool, takes("true or false")] = False


class TrackStep(Step, kw_only=True, tag="track"):
    """When objects enter and leave subscriptions."""

    input: Named = None
    subscriptions: Named = None
    key: Column
    time: Annotated[str | None, takes("the name of a timestamp attribute")] = None
    rule: Annotated[Fields, takes("a table such as { dwell = '10 min' }")] = field(
        default_factory=dict
    )
    """Rule of all subscriptions without their own."""
    rules: Annotated[list[Fields], takes("tables, each with a subscription and its rule")] = field(
        default_factory=list
    )
    policy: Annotated[Fields, takes("a table such as { throttle = [3, '1 h'] }")] = field(
        default_factory=dict
    )
    """Delivery policy of all subscriptions without their own."""
    policies: Annotated[list[Fields], takes("tables, each with a subscription and its policy")] = (
        field(default_factory=list)
    )
    after: Annotated[str | None, takes("a length of time, such as '1 h'")] = None
    lateness: Annotated[str | None, takes("a length of time, such as '30 s'")] = None
    inside: Annotated[bool, takes("true or false")] = False
    accuracy: Column | None = None
    state: Annotated[Path | None, takes("a folder for the state of objects")] = None
    """If not given, beside the checkpoint."""
    buckets: Annotated[Count, takes("a whole number")] = BUCKETS

    @property
    def keep(self) -> tuple[str, ...]:
        """Columns of events beside attributes."""
        return (self.key,) if self.accuracy is None else (self.key, self.accuracy)

    def settings(self, space: Space) -> TrackSettings:
        """Return the arguments of its trackers; reject what can't work."""
        track_settings = TrackSettings(
            self.key,
            only_timestamp(space, self.time),
            _read("rule", Rule.of, self.rule),
            _by_subscription("rule", Rule.of, self.rules),
            self.after,
            self.lateness,
            self.inside,
            self.accuracy,
            _read("policy", Policy.of, self.policy) if self.policy else None,
            _by_subscription("policy", Policy.of, self.policies),
        )
        track_settings.columns(space)
        track_settings.check_buckets(self.buckets)
        return track_settings


def _read(name: str, read: Callable[[Fields], T], fields: Fields) -> T:
    try:
        return read(fields)
    except TypeError as error:
        raise UsageError(f"a {name} can't be read: {error}") from None


def _by_subscription(
    name: str, read: Callable[[Fields], T], tables: Sequence[Fields]
) -> dict[str | int, T]:
    """Return what each table has for the subscription that it names."""
    fields_of = {}
    for table in tables:
        if not isinstance(table.get("subscription"), str | int):
            raise UsageError(f"each {name} must name its subscription; given: {table}")
        fields = {key: value for key, value in table.items() if key != "subscription"}
        fields_of[table["subscription"]] = _read(name, read, fields)
    return fields_of


AnyStep = MatchStep | RankStep | FilterStep | CoverStep | MergeStep | NotifyStep | TrackStep


PartitionBy = Annotated[tuple[Column, ...], takes("a list of columns")]
FileBytes = Annotated[int, takes("a number of bytes, 0 for one file per task", ge=0)]


class FolderSink(SinkTable):
    """A folder of files."""

    path: Annotated[Path, takes("a folder")]
    replace: Replace = False
    partition_by: PartitionBy = ()
    target_file_bytes: FileBytes = TARGET_FILE_BYTES


class ParquetSink(FolderSink, tag="parquet"):
    """A folder of Parquet files."""

    sink_class = Folder


class JsonSink(FolderSink, tag="json"):
    """A folder of files of JSON Lines."""

    sink_class = JsonFolder


class DeltaSink(SinkTable, tag="delta"):
    """A Delta table, in a folder or at a URL."""

    sink_class = Delta
    path: Annotated[Location, takes("a folder, or the URL of an object store")]
    options: Annotated[Options, takes("a table of strings, for delta-rs")] = field(
        default_factory=dict
    )
    replace: Replace = False
    shared: Annotated[bool, takes("true or false")] = False
    """Whether several streams write to the table."""
    partition_by: PartitionBy = ()
    target_file_bytes: FileBytes = TARGET_FILE_BYTES


class CatalogSink(SinkTable, tag="table"):
    """A table in a Spark catalog."""

    sink_class = CatalogTable
    catalog: Annotated[str, takes("a name in Spark's catalog: 'main.market.matches'")]
    format: Annotated[str | None, takes("the format of a new table, such as 'iceberg'")] = None
    replace: Replace = False


class ConsoleSink(SinkTable, tag="console"):
    """The standard output."""

    sink_class = Console
    rows: Annotated[Count, takes("number of rows to show")] = 20


AnySink = ParquetSink | JsonSink | DeltaSink | CatalogSink | ConsoleSink | KafkaSink


class RejectedSettings(Table):
    """Where rejected rows go."""

    path: Annotated[Location, takes("a folder for rejected rows, or the URL of a Delta table")]
    type: Literal["parquet", "delta"] = "parquet"
    options: Annotated[Options, takes("a table of strings, for delta-rs")] = field(
        default_factory=dict
    )

    def sink(self, source: str | None) -> FileSink:
        """Return where the rejected rows of a source go; `None`: there is only one."""
        path = self.path if source is None else f"{self.path}/{source}"
        return Delta(path, self.options) if self.type == "delta" else Folder(path)


class Stream(Table):
    """Settings of streams."""

    checkpoint: Annotated[Location, takes("the folder where Spark keeps its progress")]
    trigger: Annotated[
        str,
        takes(
            f"{AVAILABLE_NOW!r}, or the time between batches such as '10 seconds'",
            pattern=rf"^({AVAILABLE_NOW}|\d+ (millisecond|second|minute|hour)s?)$",
        ),
    ] = AVAILABLE_NOW


class Spark(Table):
    """Where to run."""

    master: Annotated[str | None, takes("a master URL such as 'local[4]'")] = None
    conf: Annotated[Options, takes("a table of strings and numbers")] = field(default_factory=dict)


AnySource = Files | Rate | KafkaSource | TableSource


class Settings(Table):
    """A whole file."""

    mode: Literal["batch", "stream"]
    space: Annotated[Path, takes("the file of the space")]
    step: Annotated[list[AnyStep], takes("tables [[step]]", min_length=1)]
    sink: Annotated[list[AnySink], takes("tables [[sink]]")] = field(default_factory=list)
    source: Annotated[list[AnySource], takes("tables [[source]]")] = field(default_factory=list)
    subscriptions: Annotated[list[Subscriptions], takes("tables [[subscriptions]]")] = field(
        default_factory=list
    )
    rejected: Annotated[RejectedSettings | None, takes("a table with a path")] = None
    stream: Annotated[Stream | None, takes("a table with a checkpoint and a trigger")] = None
    spark: Annotated[Spark, takes("a table with master and conf")] = field(default_factory=Spark)

    def problem(self) -> str | None:
        """Return the fault of keys of the right type, alone or combined, if there is one."""
        if self.rejected and self.rejected.type != "delta" and "://" in self.rejected.path:
            return "rejected.type: a URL requires a table\n  expected: type = 'delta'"
        for index, source in enumerate(self.source):
            if isinstance(source, TableSource) and (source.format is None) == (
                source.catalog is None
            ):
                return f"source[{index}].format: give either a format or a name in the catalog"
        problems = self._stream_problems() if self.mode == "stream" else self._batch_problems()
        return next(problems, None)

    def _batch_problems(self) -> Iterator[str]:
        for index, source in enumerate(self.source):
            if isinstance(source, Rate):
                at = f"source[{index}].type"
                yield f"{at}: the rate source never ends\n  expected: mode = 'stream'"
        if self.stream is not None:
            yield "stream: has no effect in a batch job\n  expected: mode = 'stream'"
        for index, subscription in enumerate(self.subscriptions):
            at = f"subscriptions[{index}]"
            for key in ("edits", "edits_source", "delta", "server", "keep_versions"):
                if getattr(subscription, key) is not None:
                    yield f"{at}.{key}: is only for streams\n  expected: mode = 'stream'"
            places = (
                subscription.file,
                subscription.table,
                subscription.catalog,
                subscription.versions,
            )
            if sum(path is not None for path in places) != 1:
                yield f"{at}.file: give either a file, a table or a folder of versions"

    def _stream_problems(self) -> Iterator[str]:
        if self.stream is None:
            yield "stream: is missing\n  expected: a table with a checkpoint"
            return
        for index, subscription in enumerate(self.subscriptions):
            at = f"subscriptions[{index}]"
            whole = (subscription.file, subscription.table, subscription.catalog)
            if sum(name is not None for name in whole) > 1:
                yield f"{at}.table: give either a file or a table"
            others = (*whole, subscription.edits, subscription.edits_source)
            if subscription.delta is not None and any((*others, subscription.server)):
                yield f"{at}.delta: the table has the whole set; leave out the other sources of it"
            if subscription.server is not None and any(others):
                yield f"{at}.server: it has the whole set; leave out the other sources of it"
            if (subscription.server is None) != (subscription.server_space is None):
                yield f"{at}.server_space: give both a server and its space"
            if not any((*others, subscription.versions, subscription.delta, subscription.server)):
                yield f"{at}.file: give a file, a table, a folder of versions, or a folder of edits"
            if "://" in self.stream.checkpoint:
                needed = "a folder on a file system, as the checkpoint isn't one"
                if subscription.versions is None:
                    yield f"{at}.versions: is missing\n  expected: {needed}"
                if subscription.edits_source is not None and subscription.edits is None:
                    yield f"{at}.edits: is missing\n  expected: {needed}"
                for key in ("delta", "server"):
                    if getattr(subscription, key) is not None:
                        yield f"{at}.{key}: the checkpoint is a URL\n  expected: {needed}"
        is_remote = "://" in self.stream.checkpoint
        for index, step in enumerate(self.step):
            if isinstance(step, TrackStep) and step.state is None and is_remote:
                needed = "a folder on a file system, as the checkpoint isn't one"
                yield f"step[{index}].state: is missing\n  expected: {needed}"
        for index, sink in enumerate(self.sink):
            if getattr(sink, "replace", False):
                yield f"sink[{index}].replace: is only for batch jobs\n  expected: mode = 'batch'"
