"""Column types that a sink can't hold, and those that Spark alone reads from Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from rangecast.errors import UsageError

SHAPES = ("geometry", "geography")
"""Types that Spark can't write as JSON, and that Parquet has no values for."""
ONLY_SPARK = ("daytimeinterval", "variant")
"""Types that Parquet stores as others: integers and structs."""
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


def reject_types(columns: StructType, unsupported: Sequence[str], sink: str) -> None:
    """Reject columns of types that a sink can't hold."""
    for column in columns:
        kinds = [kind.typeName() for kind in _leaves(column.dataType)]
        if any(kind in unsupported for kind in kinds):
            raise UsageError(
                f"{sink}: the column {column.name!r} has the type "
                f"{column.dataType.simpleString()}, which can't be written there\n"
                f"  expected: a type without {', '.join(unsupported)}\n"
                "  hint: make a text of it by `columns` of the source, with to_json or cast"
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
    if isinstance(kind, StructType):
        for column in kind:
            yield from _leaves(column.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.keyType)
        yield from _leaves(kind.valueType)
    else:
        yield kind
