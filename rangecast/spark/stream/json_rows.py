"""JSON objects as rows, one per text; a text that isn't one whole object is kept in `BROKEN`.

Spark's parser stops behind the first value of a text. What follows, such as a second object without
a line break between them, would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from rangecast.spark.events import BROKEN

TEXT = "_text"
"""The column of texts."""
_VALUES = "_values"


def json_values(
    texts: DataFrame, schema: StructType, options: Mapping[str, Any] | None = None
) -> tuple[DataFrame, dict[str, Column]]:
    """Return the rows, parsed, and the columns that select the fields of the schema, and `BROKEN`.

    options   for Spark's parser
    """
    whole = schema if BROKEN in schema.names else schema.add(BROKEN, StringType())
    how = {"mode": "PERMISSIVE", **(options or {}), "columnNameOfCorruptRecord": BROKEN}
    text = F.col(TEXT)
    ends_at_first_brace = F.locate("}", TEXT) == F.length(F.rtrim(TEXT))
    as_list = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>", how)
    is_one = ends_at_first_brace | F.coalesce(F.size(as_list) == 1, F.lit(False))
    columns = {name: F.col(f"{_VALUES}.`{name}`") for name in whole.names}
    is_broken = F.col(_VALUES).isNull() | ~is_one
    columns[BROKEN] = F.when(is_broken, text).otherwise(columns[BROKEN])
    return texts.withColumn(_VALUES, F.from_json(text, whole, how)), columns
