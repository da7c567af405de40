"""Parquet files of a DataFrame that the driver reads itself: the first job of a JVM is expensive.

Only what Spark and Arrow read alike is read here: whole files of this host with the columns of the
DataFrame, of plain types. Everything else is left to Spark, errors included.
"""

from __future__ import annotations

from posixpath import basename
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from rangecast.spark.columns import arrow_schema
from rangecast.spark.session import is_local

_SOURCES = "org.apache.spark.sql.execution.datasources."
_PLAIN = {pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()}
_VALUE_BYTES = 8
"""Bytes of a value in memory: of a number, or of the place of a text."""


def read_files(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a DataFrame that is a scan of local Parquet files, else `None`."""
    paths = _local_files(frame)
    return None if paths is None else _rows(paths, arrow_schema(frame.schema))


def exceed(frame: DataFrame, limit: int) -> bool:
    """Return whether a DataFrame is a scan of local Parquet files of more bytes than `limit`.

    The bytes are those in memory: a column of few values takes next to none in a file.
    """
    found = 0
    for path in _local_files(frame) or ():
        try:
            about = pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            return False  # Spark says what is wrong with it
        groups = (about.row_group(index) for index in range(about.num_row_groups))
        decoded = sum(group.total_byte_size for group in groups)
        found += max(decoded, about.num_rows * about.num_columns * _VALUE_BYTES)
        if found > limit:
            return True
    return False


def _local_files(frame: DataFrame) -> list[str] | None:
    """Return the files of a DataFrame that is a scan of whole local Parquet files, else `None`."""
    if not is_local(frame.sparkSession):
        return None
    if any(field.metadata for field in frame.schema):
        return None  # it may say how Spark finds a column, such as by its number in the file
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    if not _is(plan, "LogicalRelation") or not _is(plan.relation(), "HadoopFsRelation"):
        return None
    relation = plan.relation()
    if (
        not _is(relation.fileFormat(), "parquet.ParquetFileFormat")
        or not _is(relation.location(), "InMemoryFileIndex")
        or not relation.partitionSchema().isEmpty()
        or relation.options().keySet().mkString(",") not in ("", "path")
    ):
        return None
    uris = [urlsplit(str(uri)) for uri in relation.location().inputFiles()]
    if any(uri.scheme != "file" for uri in uris):
        return None
    paths = [unquote(uri.path) for uri in uris]
    # Spark lists some of the hidden files, such as `_metadata`, and reads none.
    return None if any(basename(path)[0] in "_." for path in paths) else paths


def _rows(paths: list[str], expected: pa.Schema) -> pa.Table | None:
    """Return the rows of files, `None` if some can't be read or have other columns."""
    # A column may be REQUIRED in one file and OPTIONAL in another.
    columns = pa.schema([(field.name, field.type) for field in expected])
    if not _PLAIN.issuperset(columns.types):
        return None
    tables = []
    try:
        for path in paths:
            with pq.ParquetFile(path) as file:
                found = file.schema_arrow
                if (found.names, found.types) != (columns.names, columns.types):
                    return None
                tables.append(pa.Table.from_arrays(file.read().columns, schema=columns))
        return pa.concat_tables(tables) if tables else None
    except (OSError, pa.ArrowException):
        return None


def _is(thing: Any, name: str) -> bool:
    return str(thing.getClass().getName()) == _SOURCES + name
