"""The file of a batch without rows has the types of the files that have rows."""

import pyarrow as pa
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from rangecast.spark.stream.sinks.written import LocalFolder, Target

INNER = StructType([StructField("a", IntegerType(), nullable=False)])
COLUMNS = StructType(
    [
        StructField("event", LongType()),
        StructField("value", VariantType()),
        StructField("by", StringType()),
        StructField("named", MapType(StringType(), INNER)),
    ]
)


def inside(kind: pa.DataType) -> list[pa.Field]:
    """All fields inside of a type, but the keys of maps, which are never null."""
    if pa.types.is_map(kind):
        return [kind.item_field, *inside(kind.item_type)]
    if pa.types.is_struct(kind):
        return [one for field in kind for one in (field, *inside(field.type))]
    return []


def test_what_is_inside_of_a_null_may_be_null(tmp_path):
    none = Target(LocalFolder(str(tmp_path)), COLUMNS, ("by",)).no_rows()
    assert none.num_rows == 0
    assert none.schema.names == ["event", "value", "named"]
    fields = [
        field for name in ("value", "named") for field in inside(none.schema.field(name).type)
    ]
    assert {field.name for field in fields} >= {"value", "metadata", "a"}
    assert all(field.nullable for field in fields)
    assert b"variant" in b"".join(none.schema.metadata.values())
