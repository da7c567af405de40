"""Convert geometry columns (WKB, WKT, GeoJSON or GeoArrow) to filters."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    StringType,
    StructType,
)

from rangecast.errors import UsageError
from rangecast.interop.geoparquet import GeometryText
from rangecast.model.attributes.places import Place
from rangecast.model.filters.lexer import name_text
from rangecast.model.space import Space
from rangecast.spark.columns import require_columns

_FILTER = "filter"
_DROPPED = "_rangecast_heights"
_HEIGHTS = "heights_or_measures"
"""Metric of the notes: geometries with heights or measures, which are dropped."""
_HAS_HEIGHTS = (
    "a geometry with heights or measures, which are not compared; notes=Observation() of "
    "filters_of_geometries drops and counts them"
)
_NESTED = {2: "polygon", 3: "multipolygon"}


def filters_of_geometries(
    subscriptions: DataFrame,
    space: Space,
    *,
    geometry: str = "geometry",
    place: str | None = None,
    notes: Observation | None = None,
) -> DataFrame:
    """Return subscriptions with the polygons of a column added to their filters.

    subscriptions   a DataFrame; an existing filter is combined with the polygon by `and`
    space           a space with a location or a point
    geometry        the column of polygons: WKB, WKT, GeoJSON or the nested lists of GeoArrow
    place           the attribute of the polygons; default: the only one of the space
    notes           drops Z and M values, and receives `heights_or_measures`, the number of
                    geometries that have any, when the first action on the result has ended

    An invalid geometry becomes a filter that is rejected with the reason; so does one with Z or M
    values, if there are no notes.
    """
    require_columns(subscriptions, [geometry], "subscriptions")
    name = name_text(_place(space, place))
    kind = _kind(subscriptions.schema[geometry].dataType, geometry)
    others = [column for column in subscriptions.columns if column not in (geometry, _FILTER)]
    schema = subscriptions.select(*others).schema.add(_FILTER, StringType())
    schema = schema.add(_DROPPED, BooleanType())
    has_filter, dropping = _FILTER in subscriptions.columns, notes is not None

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts, dropped = [], []
            filters = batch.column(_FILTER).to_pylist() if has_filter else [None] * len(batch)
            for value, more in zip(batch.column(geometry).to_pylist(), filters, strict=True):
                read = GeometryText.of(value, kind)
                text = _HAS_HEIGHTS if read.has_heights and not dropping else read.text
                text = f"within({name}, '{text}')"
                texts.append(f"{text} and ({more})" if more else text)
                dropped.append(read.has_heights)
            columns = [batch.column(column) for column in others]
            yield pa.RecordBatch.from_arrays(
                [*columns, pa.array(texts, pa.string()), pa.array(dropped, pa.bool_())],
                names=[*others, _FILTER, _DROPPED],
            )

    converted = subscriptions.mapInArrow(convert, schema)
    if notes is not None:
        converted = converted.observe(notes, F.count_if(_DROPPED).alias(_HEIGHTS))
    return converted.drop(_DROPPED)


def _place(space: Space, name: str | None) -> str:
    places = [attribute.name for attribute in space if isinstance(attribute, Place)]
    if name is not None and name not in places:
        listed = ", ".join(map(repr, places)) or "none"
        raise UsageError(f"{name!r} isn't a location or point; the space has: {listed}")
    if name is None and len(places) != 1:
        listed = ", ".join(map(repr, places)) or "none"
        raise UsageError(
            f"geometries belong to one location or point; the space has: {listed}\n"
            "  hint: name it with place="
        )
    return name or places[0]


def _kind(type_: DataType, column: str) -> str:
    """Return the geometry kind of nested lists by their depth; empty for bytes and strings."""
    if isinstance(type_, BinaryType | StringType):
        return ""
    depth, inner = 0, type_
    while isinstance(inner, ArrayType):
        depth, inner = depth + 1, inner.elementType
    if isinstance(inner, StructType) and {"x", "y"} <= set(inner.names) and depth in _NESTED:
        return _NESTED[depth]
    raise UsageError(
        "a geometry must be WKB, WKT, GeoJSON, or lists of {x, y}; "
        f"{column!r} is {type_.simpleString()}"
    )
