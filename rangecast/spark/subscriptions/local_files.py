"""Parquet files of a DataFrame that the driver reads itself: the first job of a JVM is expensive.

Only what Spark and Arrow read alike is read here: whole files of this host with the columns of the
DataFrame, of plain types. Everything else is left to Spark, errors included.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from rangecast.spark.columns import arrow_schema
from rangecast.spark.session import is_local

_SOURCES = "org.apache.spark.sql.execution.datasources."
_PLAIN = {pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()}


def read_files(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a DataFrame that is a scan of local Parquet files, else `None`."""
    if not is_local(frame.sparkSession):
        return None
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
    places = [urlsplit(str(uri)) for uri in relation.location().inputFiles()]
    if any(place.scheme != "file" for place in places):
        return None
    return _tables([unquote(place.path) for place in places], arrow_schema(frame.schema))


def _tables(paths: list[str], expected: pa.Schema) -> pa.Table | None:
    """Return the rows of files, `None` if some can't be read or have other columns."""
    tables = []
    try:
        for path in paths:
            with pq.ParquetFile(path) as file:
                found = file.schema_arrow
                if (found.names, found.types) != (expected.names, expected.types):
                    return None
                if not _PLAIN.issuperset(found.types):
                    return None
                tables.append(file.read().replace_schema_metadata(None))
    except (OSError, pa.ArrowException):
        return None
    return pa.concat_tables(tables) if tables else None


def _is(thing: Any, name: str) -> bool:
    return str(thing.getClass().getName()) == _SOURCES + name
