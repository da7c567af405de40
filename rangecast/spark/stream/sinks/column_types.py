"""Column types that a sink can't hold, and those that Spark alone reads from Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from rangecast.errors import UsageError

UNWRITABLE = ("geometry", "geography", "empty struct")
"""Types that Spark can't write as JSON, and that Parquet has no values for."""
ONLY_SPARK = ("daytimeinterval", "variant")
"""Types that Parquet stores as others: integers and structs."""
_TEXT_KEYS = (StringType, NumericType, BooleanType)
"""Types of keys that JSON has as texts."""
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


def reject_types(columns: StructType, unsupported: Sequence[str], sink: str) -> None:
    """Reject columns of types that a sink can't hold."""
    for column in columns:
        kinds = [_name(kind) for kind in _leaves(column.dataType)]
        if any(kind in unsupported for kind in kinds):
            raise UsageError(
                f"{sink}: the column {column.name!r} has the type "
                f"{column.dataType.simpleString()}, which can't be written there\n"
                f"  expected: a type without {', '.join(unsupported)}\n"
                "  hint: make a text of it by `columns` of the source, with to_json or cast"
            )


def reject_map_keys(columns: StructType, sink: str) -> None:
    """Reject maps whose keys Spark writes to JSON as its own numbers, or not at all."""
    for column in columns:
        for kind in _keys(column.dataType):
            if not isinstance(kind, _TEXT_KEYS):
                raise UsageError(
                    f"{sink}: the column {column.name!r} has a map by {kind.simpleString()}, which "
                    "can't be written as JSON\n"
                    "  expected: keys that are texts, numbers or booleans\n"
                    "  hint: change them by `columns` of the source, with transform_keys"
                )


def spark_footer(columns: StructType) -> dict[str, str] | None:
    """Return the entry of a Parquet file's footer that names Spark's types.

    `None` if Parquet has all of them.
    """
    if any(kind.typeName() in ONLY_SPARK for kind in _leaves(columns)):
        return {_SPARK_SCHEMA: columns.json()}
    return None


def _leaves(kind: DataType) -> Iterator[DataType]:
    """Yield the types that a type is made of."""
    if isinstance(kind, StructType) and kind.fields:
        for column in kind:
            yield from _leaves(column.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.keyType)
        yield from _leaves(kind.valueType)
    else:
        yield kind


def _name(kind: DataType) -> str:
    return "empty struct" if isinstance(kind, StructType) else kind.typeName()


def _keys(kind: DataType) -> Iterator[DataType]:
    """Yield the types of the keys of all maps in a type."""
    if isinstance(kind, StructType):
        for column in kind:
            yield from _keys(column.dataType)
    elif isinstance(kind, ArrayType):
        yield from _keys(kind.elementType)
    elif isinstance(kind, MapType):
        yield kind.keyType
        yield from _keys(kind.valueType)
