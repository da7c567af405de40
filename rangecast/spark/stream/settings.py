"""The keys of a pipeline's TOML file: their names, types, defaults and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, field

from rangecast.errors import UsageError
from rangecast.match.choose import check_index
from rangecast.model.attributes import NanMeaning
from rangecast.spark.steps.match import OUTPUTS
from rangecast.spark.steps.prepared import WORKER_BYTES
from rangecast.spark.stream.batch import MatchOptions
from rangecast.spark.stream.kafka import KafkaSink, KafkaSource
from rangecast.spark.stream.run import AVAILABLE_NOW
from rangecast.spark.stream.sinks import Console, Folder, Sink
from rangecast.spark.stream.sources import Files, Options, Rate
from rangecast.spark.stream.toml_file import Location, Table, takes

if TYPE_CHECKING:
    Output = str
else:
    Output = Literal[*OUTPUTS]


Count = Annotated[int, Meta(ge=1)]
Name = Annotated[str, takes("the name of a column")]


class Subscriptions(Table):
    """Where the set comes from, and its changes."""

    file: Annotated[Path | None, takes("a file of subscriptions")] = None
    versions: Annotated[Path | None, takes("a folder of versions")] = None
    edits: Annotated[Path | None, takes("a folder of files of edits")] = None
    keep_versions: Annotated[Count | None, takes("how many versions to keep")] = None


class MatchStep(Table):
    """How events are matched."""

    type: Literal["match"]
    output: Output = "pairs"
    keep: Annotated[tuple[Name, ...], takes("a list of columns")] = ()
    nan: NanMeaning = NanMeaning.REFUSE
    index: Annotated[str, takes("the name of an index, such as 'auto'")] = "auto"
    worker_bytes: Annotated[Count, takes("a number of bytes")] = WORKER_BYTES

    @property
    def options(self) -> MatchOptions:
        return MatchOptions(output=self.output, keep=self.keep, nan=self.nan)


class ParquetSink(Table, tag_field="type", tag="parquet"):
    """A folder of Parquet files."""

    path: Annotated[Path, takes("a folder")]

    @property
    def sink(self) -> Sink:
        return Folder(self.path, "parquet")


class JsonSink(Table, tag_field="type", tag="json"):
    """A folder of files of JSON Lines."""

    path: Annotated[Path, takes("a folder")]

    @property
    def sink(self) -> Sink:
        return Folder(self.path, "json")


class ConsoleSink(Table, tag_field="type", tag="console"):
    """The standard output."""

    rows: Annotated[Count, takes("how many rows to show")] = 20

    @property
    def sink(self) -> Sink:
        return Console(self.rows)


class Quarantine(Table):
    """Where bad rows go."""

    path: Annotated[Path, takes("a folder for bad rows")]


class Stream(Table):
    """What only a stream has."""

    checkpoint: Annotated[Location, takes("the folder where Spark notes how far it is")]
    trigger: Annotated[
        str,
        takes(
            f"{AVAILABLE_NOW!r}, or the time between batches such as '10 seconds'",
            pattern=rf"^({AVAILABLE_NOW}|\d+ (second|minute|hour)s?)$",
        ),
    ] = AVAILABLE_NOW


class Spark(Table):
    """Where to run."""

    master: Annotated[str | None, takes("a master URL such as 'local[4]'")] = None
    conf: Annotated[Options, takes("a table of texts and numbers")] = field(default_factory=dict)


class Settings(Table):
    """A whole file."""

    mode: Literal["batch", "stream"]
    space: Annotated[Path, takes("the file of the space")]
    source: Annotated[Files | Rate | KafkaSource, takes("a table [source]")]
    subscriptions: Annotated[Subscriptions, takes("a table [subscriptions]")]
    step: Annotated[
        list[MatchStep], takes("one table [[step]], of type 'match'", min_length=1, max_length=1)
    ]
    sink: Annotated[
        list[ParquetSink | JsonSink | ConsoleSink | KafkaSink],
        takes("tables [[sink]]", min_length=1),
    ]
    quarantine: Annotated[Quarantine | None, takes("a table with a path")] = None
    stream: Annotated[Stream | None, takes("a table with a checkpoint and a trigger")] = None
    spark: Annotated[Spark, takes("a table with master and conf")] = field(default_factory=Spark)

    def problem(self) -> str | None:
        """Return what is wrong with keys that are of the right type, one by one or together."""
        try:
            check_index(self.step[0].index)
        except UsageError as error:
            return f"step[0].index: {error}"
        return self._stream_problem() if self.mode == "stream" else self._batch_problem()

    def _batch_problem(self) -> str | None:
        given = self.subscriptions
        if isinstance(self.source, Rate):
            return "source.type: the rate source has no end; expected: mode = 'stream'"
        if self.stream is not None:
            return "stream: means nothing in a batch job\n  expected: mode = 'stream'"
        for key in ("edits", "keep_versions"):
            if getattr(given, key) is not None:
                return f"subscriptions.{key}: is for streams\n  expected: mode = 'stream'"
        if (given.file is None) == (given.versions is None):
            return "subscriptions.file: give either a file or a folder of versions"
        return None

    def _stream_problem(self) -> str | None:
        given = self.subscriptions
        if given.file is given.versions is given.edits is None:
            return "subscriptions.file: give a file, a folder of versions, or a folder of edits"
        if self.stream is None:
            return "stream: is missing\n  expected: a table with a checkpoint"
        if "://" in self.stream.checkpoint and given.versions is None:
            needed = "a folder on a file system, as the checkpoint is none"
            return f"subscriptions.versions: is missing\n  expected: {needed}"
        return None
