"""Requirements of an existing Delta table: this sink obeys them, or rejects the table.

Files are added by the sink's own actions, so that nothing but the sink checks what delta-rs checks
for rows that pass through its writer. Obeyed: the names and types of columns, partitions, NOT NULL,
tables that can only be appended to. Everything else that a table may ask for is rejected by name,
before the first batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StructType

from rangecast.errors import UsageError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KNOWN_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    *("columnMapping", "identityColumns", "deletionVectors", "timestampNtz"),
}
"""Writer features that adding files obeys, or whose use in a table is looked for below."""
_BY_COLUMN = {
    "delta.generationExpression": "generated column",
    "delta.identity.start": "identity column",
    "delta.invariants": "column with an invariant",
    "__CHAR_VARCHAR_TYPE_STRING": "column with a longest text",
}
_PARTITION_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")


class TableRules(NamedTuple):
    """Requirements on the rows of a table."""

    columns: StructType
    partition_by: tuple[str, ...]
    not_null: tuple[str, ...]

    @classmethod
    def of(cls, table: DeltaTable, name: str, *, replace: bool) -> TableRules:
        """Return the requirements of a table; reject those that the sink doesn't support."""
        for feature in _unsupported(table, replace=replace):
            raise UsageError(
                f"{name}: the table has {feature}, which isn't supported here\n"
                "  hint: write to another table, and copy from there with a writer that supports it"
            )
        definition = json.loads(table.schema().to_json())
        required = [field["name"] for field in definition["fields"] if not field["nullable"]]
        columns = StructType.fromJson(definition)
        return cls(columns, tuple(table.metadata().partition_columns), tuple(required))

    def check(self, columns: StructType, name: str) -> None:
        """Reject rows whose columns aren't those of the table, in name, order and type."""
        held, new = _described(self.columns), _described(columns)
        if held != new:
            differing = [field for field in held if field not in new]
            differing += [field for field in new if field not in held]
            raise UsageError(
                f"{name}: the table has the columns {', '.join(held)}; given: {', '.join(new)}\n"
                f"  they differ in {', '.join(differing) or 'their order'}\n"
                "  hint: write to another table, or cast the columns in the source"
            )


def _described(columns: StructType) -> list[str]:
    return [f"{column.name} {column.dataType.simpleString()}" for column in columns]


def _unsupported(table: DeltaTable, *, replace: bool) -> Iterator[str]:
    configuration = table.metadata().configuration
    for key, value in configuration.items():
        if key.startswith("delta.constraints."):
            yield f"the CHECK constraint {key.removeprefix('delta.constraints.')} ({value})"
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "column mapping"
    definition = json.loads(table.schema().to_json())
    for column, metadata in _metadata(definition, ()):
        for key, kind in _BY_COLUMN.items():
            if key in metadata:
                yield f"the {kind} {column!r}"
    for column in definition["fields"]:
        for path in _required(column["type"], column["name"]):
            yield f"the NOT NULL field {path!r}"
    kinds = {field.name: field.dataType.simpleString() for field in StructType.fromJson(definition)}
    for column in table.metadata().partition_columns:
        if kinds[column] not in _PARTITION_TYPES:
            yield f"the partition column {column!r} of the type {kinds[column]}"
    features = set(table.protocol().writer_features or ())
    for feature in sorted(features - _KNOWN_FEATURES):
        yield f"the writer feature {feature}"
    if replace and configuration.get("delta.appendOnly", "false").lower() == "true":
        yield "delta.appendOnly set, so its rows can't be replaced"
    if replace and "deletionVectors" in features:
        yield "deletion vectors, so its rows can't be replaced"


def _metadata(definition: Any, path: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the metadata of every column, including nested ones."""
    if not isinstance(definition, dict):
        return
    for field in definition.get("fields", ()):
        inner = (*path, field["name"])
        yield ".".join(inner), field.get("metadata", {})
        yield from _metadata(field["type"], inner)
    for key in ("elementType", "keyType", "valueType"):
        yield from _metadata(definition.get(key), path)


def _required(kind: Any, path: str) -> Iterator[str]:
    """Yield the paths of nested values that can't be null: only those of columns are looked at."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        if not field["nullable"]:
            yield f"{path}.{field['name']}"
        yield from _required(field["type"], f"{path}.{field['name']}")
    if not kind.get("containsNull", True):
        yield f"{path}.element"
    if not kind.get("valueContainsNull", True):
        yield f"{path}.value"
    for key, name in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        yield from _required(kind.get(key), f"{path}.{name}")
