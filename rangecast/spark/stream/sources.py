"""Sources of events: folders of files, tables and Spark's rate source (topics: see `kafka`).

Every source gives a DataFrame, batch or streaming, with the event's id, its attributes, and what
else the rows have. CSV and JSON are read as texts, as attributes parse them: so a value that can't
be one is a rejected row with a reason, where a typed reader would make it null. A row that can't
even be split is kept whole in the column `BROKEN`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import pyarrow as pa
from msgspec import field
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, LongType, StringType, StructType

from rangecast.errors import FileError, UsageError
from rangecast.model.attributes.base import NanMeaning
from rangecast.model.io.files import format_of
from rangecast.model.space import Space
from rangecast.spark.events import BROKEN
from rangecast.spark.stream.json_rows import TEXT, json_values
from rangecast.spark.stream.pipeline.toml_file import Location, Table, takes

FILE_ORDER = "_file_order"
"""The column that orders rows by their files, the oldest first: Spark reads the largest first."""
_BY_TIME = ("file_modification_time", "file_path", "file_block_start")
_NOT_BY_LINE = {"multiline", "encoding", "charset", "mode"}
"""Options by which Spark's own reader of JSON is needed."""
_CSV = {"header": "true", "enforceSchema": "false", "escape": '"', "multiLine": "true"}


Plain = Annotated[str | int | float | bool, takes("a string, a number, true or false")]
Options = dict[str, Plain]
Columns = Annotated[Options, takes("a table of SQL expressions, one per name")]
"""Columns to add, each by a SQL expression that gives the same when a batch is repeated."""


class SourceTable(Table, kw_only=True, tag_field="type"):
    """Settings of all sources."""

    is_replayable: ClassVar[bool] = True
    """Whether a batch that is read a second time has the same events."""
    name: Annotated[str, takes("a name")] = "events"
    nan: NanMeaning = NanMeaning.ERROR
    """Meaning of NaN in an event."""
    ignore_unknown: Annotated[bool, takes("true or false")] = False
    """Whether events may have columns that are neither attributes nor kept by a step."""
    columns: Columns = field(default_factory=dict)

    @property
    def names_columns(self) -> bool:
        """Whether the file of the pipeline names the columns, so that all of them are meant."""
        return False


class ReadRows(SourceTable, kw_only=True):
    """Settings of reading rows, of files or of messages."""

    schema: Annotated[str | None, takes("columns, as 'id string, price double'")] = None
    """If they are not to be found out."""
    ids: Literal["text", "integer"] = "text"
    """Type of ids that are read as texts."""
    options: Annotated[Options, takes("a table of strings and numbers, for Spark's reader")] = (
        field(default_factory=dict)
    )
    """Such as maxFilesPerTrigger."""

    @property
    def names_columns(self) -> bool:
        return self.schema is not None


class Files(ReadRows, tag="files"):
    """A file, or a folder to which files are added (renamed into it when they are complete)."""

    path: Annotated[Location, takes("a file, or a folder of files")]
    format: Literal["parquet", "json", "csv"]

    def read(
        self,
        session: SparkSession,
        space: Space,
        keep: Sequence[str],
        *,
        stream: bool,
        ordered: bool = False,
    ) -> DataFrame:
        """Return the events; `ordered`: with the place of their file, as `FILE_ORDER`."""
        reader = session.readStream if stream else session.read
        options = {**(_CSV if self.format == "csv" else {}), **self.options}
        schema = self._schema(session, space, keep)
        by_line = self.format == "json" and not {name.lower() for name in options} & _NOT_BY_LINE
        if by_line:
            lines = reader.format("text").schema("value string").options(**options).load(self.path)
            frame = _rows_of_lines(_in_file_order(lines) if ordered else lines, schema, options)
        else:
            frame = reader.format(self.format).schema(schema).options(**options).load(self.path)
            frame = _in_file_order(frame) if ordered else frame
        return with_columns(frame, self.columns)

    def _schema(self, session: SparkSession, space: Space, keep: Sequence[str]) -> StructType:
        if self.schema is not None:
            schema = given_schema(self.schema)
        elif self.format == "parquet":
            if "://" not in self.path:
                first_file(self.path)
            return session.read.parquet(self.path).schema
        else:
            integer_ids = self.ids == "integer"
            if self.format == "csv":
                schema = text_schema(self._header(), integer_ids=integer_ids)
            else:
                schema = event_schema(space, keep, integer_ids=integer_ids)
        if self.format != "parquet" and BROKEN not in schema.names:
            schema = schema.add(BROKEN, StringType())
        return schema

    def _header(self) -> list[str]:
        """Return the names of a CSV file's columns: of any file, as all must have the same."""
        path = first_file(self.path)
        with pa.input_stream(path, compression="detect") as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            header = next(csv.reader(text), None)
        if not header:
            raise FileError(f"{path}: is empty; a CSV file starts with a line of column names")
        return header


def _in_file_order(frame: DataFrame) -> DataFrame:
    return frame.withColumn(FILE_ORDER, F.struct(*(f"_metadata.{name}" for name in _BY_TIME)))


def _rows_of_lines(lines: DataFrame, schema: StructType, options: Options) -> DataFrame:
    """Return the rows of JSON Lines, with the columns that folders are named by."""
    folders = [name for name in lines.columns if name != "value"]
    own = StructType([column for column in schema if column.name not in folders])
    text = F.ltrim(F.col("value"), F.lit("\ufeff"))
    written = lines.filter(F.col("value").rlike(r"\S")).select(text.alias(TEXT), *folders)
    rows, columns = json_values(written, own, options)
    kinds = {column.name: column.dataType for column in schema if column.name in folders}
    places = {name: F.col(f"`{name}`").cast(kind) for name, kind in kinds.items()}
    places |= {name: F.col(f"`{name}`") for name in folders if name not in kinds}
    selected = {**{name: columns[name] for name in own.names}, **places}
    return rows.select([column.alias(name) for name, column in selected.items()])


class Rate(SourceTable, tag="rate"):
    """Numbered rows at a steady rate, for trying things out: `value` is the event's id."""

    rows_per_second: Annotated[int, takes("a whole number", ge=1)] = 10

    def read(
        self, session: SparkSession, space: Space, keep: Sequence[str], *, stream: bool
    ) -> DataFrame:
        """Return the events."""
        if not stream:
            raise UsageError("the rate source never ends: it can't be read as a batch")
        frame = session.readStream.format("rate").option("rowsPerSecond", self.rows_per_second)
        rows = with_columns(frame.load(), {"id": "value", **self.columns})
        wanted = {"id", *self.columns, *space.fields, *keep}
        return rows.drop(*(name for name in ("timestamp", "value") if name not in wanted))


class TableSource(SourceTable, tag="table"):
    """A table that Spark has a reader for, or one of its catalogs: Delta, Iceberg, JDBC."""

    is_replayable: ClassVar[bool] = False

    format: Annotated[
        str | None, takes("a format that Spark reads, such as 'delta' or 'iceberg'")
    ] = None
    path: Annotated[Location | None, takes("the path of the table")] = None
    catalog: Annotated[str | None, takes("a name in Spark's catalog: 'main.market.quotes'")] = None
    options: Annotated[Options, takes("a table of strings and numbers, for Spark's reader")] = (
        field(default_factory=dict)
    )

    def read(
        self, session: SparkSession, space: Space, keep: Sequence[str], *, stream: bool
    ) -> DataFrame:
        """Return the events."""
        named = (self.format, self.path, self.catalog)
        return with_columns(read_table(session, *named, self.options, stream=stream), self.columns)


def read_table(
    session: SparkSession,
    form: str | None,
    path: str | None,
    name: str | None,
    options: Mapping[str, Any],
    *,
    stream: bool = False,
) -> DataFrame:
    """Return a table by Spark's reader of its format, or by its name in the catalog.

    If it can't be read, say what is missing.
    """
    reader = session.readStream if stream else session.read
    if form is not None and name is None:
        reader = reader.format(form)
    try:
        reader = reader.options(**options)
        frame = reader.load(path) if name is None else reader.table(name)
        _ = frame.schema  # Spark Connect looks for the table only now
        return frame
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
            raise UsageError(f"{name or path or form}: can't be read by Spark: {error}") from None
        raise UsageError(
            f"Spark has no reader for {form!r} on its class path\n"
            "  hint: add the format's runtime for your Spark version with spark.jars.packages or "
            "spark.jars"
        ) from None


def first_file(path: str | Path) -> Path:
    """Return a file, or any file of a folder, to detect columns and format."""
    whole = Path(path)
    if "://" in str(path):
        raise FileError(f"{path}: give its columns as schema = 'id string, ...'")
    if whole.is_file():
        return whole
    visible = (
        path
        for path in whole.rglob("*")
        if not any(part[0] in "._" for part in path.relative_to(whole).parts)
    )
    files = sorted(path for path in visible if path.is_file())
    if not files:
        raise FileError(
            f"{path}: no such file, or a folder without files to infer the columns from\n"
            "  hint: add one, or give the columns as schema = 'id string, ...'"
        )
    return files[0]


def files_of(path: str | Path) -> Files:
    """Return a file, or a folder of files of one format, as a source; the suffix tells which."""
    names: dict[str, Any] = {"parquet": "parquet", "jsonl": "json", "csv": "csv"}
    form = format_of(first_file(path))
    if form not in names:
        raise FileError(f"{path}: Spark doesn't read {form} files; use {', '.join(names)}")
    return Files(Location(Path(path).absolute()), names[form])  # the JVM has a folder of its own


def event_schema(space: Space, keep: Sequence[str], *, integer_ids: bool) -> StructType:
    """Return the columns that events have if nothing else is known: texts, in objects if need be.

    Attributes parse them; ids may be numbers.
    """
    tree: dict[str, Any] = {}
    paths = [attribute.path or (attribute.name,) for attribute in space]
    for path in dict.fromkeys([("id",), *paths, *((name,) for name in keep)]):
        fields = tree
        for step in path[:-1]:
            fields = fields.setdefault(step, {})
        fields.setdefault(path[-1], {})
    return _struct_of(tree, integer_ids=integer_ids)


def _struct_of(tree: Mapping[str, Any], *, integer_ids: bool) -> StructType:
    schema = StructType()
    for name, fields in tree.items():
        kind: DataType = LongType() if name == "id" and integer_ids else StringType()
        if fields:
            kind = _struct_of(fields, integer_ids=False)
        schema = schema.add(name, kind)
    return schema


def given_schema(text: str) -> StructType:
    """Parse a schema such as 'id string, price double'."""
    return cast(StructType, StructType.fromDDL(text))


def text_schema(names: Sequence[str], *, integer_ids: bool) -> StructType:
    """Return columns of texts, as attributes parse them; ids may be numbers."""
    return _struct_of(dict.fromkeys(names), integer_ids=integer_ids)


def with_columns(frame: DataFrame, columns: Options) -> DataFrame:
    """Return the rows with more columns, each by a SQL expression."""
    added = {name: F.expr(str(text)) for name, text in columns.items()}
    return frame.withColumns(added) if added else frame
