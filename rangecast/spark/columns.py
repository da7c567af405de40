"""Checks of column names and types, before a step runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructType

from rangecast.errors import UsageError, did_you_mean
from rangecast.model.attributes.base import Attribute
from rangecast.model.attributes.field_paths import Fields
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import ANY
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.model.validation.unknown_columns import column_hint

_TEXTS = ("string", "varchar", "char")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_WHOLE, "float", "double", "decimal")
_FITS = {
    "number": (*_NUMBERS, *_TEXTS),
    "integer": (*_NUMBERS, *_TEXTS),
    "timestamp": ("timestamp", "timestamp_ntz", "date", *_TEXTS),
    "boolean": ("boolean", *_TEXTS),
    "category": _TEXTS,
    "string": _TEXTS,
    "text": _TEXTS,
    "hierarchy": _TEXTS,
}
"""Column types that can hold the values of a kind of attribute; a text is parsed row by row."""

_ERROR = ("column", "value", "reason", "row")
ERROR = StructType()
for _name in _ERROR:
    ERROR = ERROR.add(_name, StringType())
ERROR_TYPE = pa.struct([(name, pa.string()) for name in _ERROR])
"""Rejection of a row: the column, its value, the reason, and the whole row as text."""


def require_columns(data: DataFrame, names: Iterable[str], what: str) -> None:
    """Reject a DataFrame that lacks columns."""
    need_among(names, data.columns, what)


def need_among(names: Iterable[str], present: Sequence[str], what: str) -> None:
    """Raise an error if some of the names are missing."""
    missing = [name for name in names if name not in present]
    if missing:
        raise UsageError(
            f"{what} lack the columns {', '.join(map(repr, missing))}\n"
            f"  present: {', '.join(map(repr, present)) or 'none'}\n"
            "  hint: add or rename them"
        )


def reject_unknown(data: DataFrame, known: Sequence[str], what: str) -> None:
    """Reject a DataFrame with unknown columns."""
    for name in data.columns:
        if name not in known:
            raise UsageError(
                f"{what}: unknown column {name!r}: {did_you_mean(name, known)}\n"
                f"  expected: {', '.join(known)}\n"
                f"  hint: {column_hint(name, known, may_ignore=False)}"
            )


def reject_unknown_events(
    names: Iterable[str], space: Space, columns: EventColumns, more: Iterable[str]
) -> None:
    """Reject event columns that are neither attributes nor in `more`."""
    known = {*columns.all_names(space), *more}
    for name in names:
        if name not in known:
            hint = column_hint(name, space.names, may_ignore=True)
            if name in ANY.all_names(space):
                hint = "rank takes such columns with span= or probabilities=True"
            raise UsageError(
                f"events: unknown column {name!r}: {did_you_mean(name, space.names)}\n"
                "  expected: a column per attribute of the space, the event's id, and the columns "
                "to keep\n"
                f"  hint: {hint}"
            )


def reject_case_variants(names: Iterable[str], where: str) -> None:
    """Reject names that differ by case alone, which most readers take for one."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise UsageError(
                f"{where}: the columns {other!r} and {name!r} differ by case alone\n"
                "  hint: rename one, or leave it out of `keep`"
            )


def reject_dots(names: Iterable[str]) -> None:
    """Reject column names that Spark can't pass to a Python worker."""
    for name in names:
        if "." in name:
            raise UsageError(
                f"column {name!r} has a dot in its name, which Spark would read as a field of a "
                "struct; hint: rename it"
            )


def need_attributes(
    data: DataFrame, space: Space, columns: EventColumns, *, allow_missing: bool
) -> list[str]:
    """Return the event columns of attributes; reject missing columns and wrong types."""
    if not flag("allow_missing", allow_missing):
        present = {*data.columns}
        names = [columns.names(attribute) for attribute in space.valued]
        absent = [group[0] for group in names if not {*group} & present]
        require_columns(data, absent, "events")
    present_names = [name for name in columns.all_names(space) if name in data.columns]
    reject_dots(present_names)
    need_types(data.schema, space, columns)
    return present_names


def need_types(schema: StructType, space: Space, columns: EventColumns) -> None:
    """Reject event columns whose types can't hold the values of their attributes."""
    for attribute in space.valued:
        value, *others = columns.names(attribute)
        if value in schema.names:
            kind = _field_type(schema, attribute.path or (value,))
            if kind is not None:
                name = attribute.source or value
                check_column_type(name, kind, attribute, pairs=columns.spans)
        for name in others:
            if name in schema.names:
                check_column_type(name, schema[name].dataType, attribute, pairs=columns.spans)


def _field_type(kind: DataType, path: Fields) -> DataType | None:
    """Return the type of a nested field; `None` if it doesn't exist, so its values are missing."""
    for before, step in zip(("", *path), path, strict=False):
        if not isinstance(kind, StructType):
            raise UsageError(
                f"column {before!r} of events has the type {kind.simpleString()}, but the space "
                f"reads its field {step!r}; expected: a struct"
            )
        if step not in kind.names:
            return None
        kind = kind[step].dataType
    return kind


def check_column_type(
    name: str, kind: DataType, attribute: Attribute, *, pairs: bool = False
) -> None:
    """Reject a column whose type can't represent an attribute's values; `pairs`: spans, too."""
    is_probability = name != attribute.name and name.endswith("_probability")
    fits = _NUMBERS if is_probability else _FITS[attribute.type]
    if isinstance(attribute, Timestamp) and attribute.epoch is not None and not is_probability:
        fits = (*fits, *_NUMBERS)
    plain = kind.elementType if isinstance(kind, ArrayType) and pairs else kind
    if _plain(plain) not in (*fits, "void"):
        raise UsageError(
            f"column {name!r} of events has the type {kind.simpleString()}, but the attribute is "
            f"a {attribute.type}; expected: {', '.join(fits)}\n  hint: cast it"
        )


def id_kind(data: DataFrame, column: str, what: str) -> DataType:
    """Return the type of ids, long or string; reject any other."""
    require_columns(data, [column], what)
    reject_dots([column])
    kind = _plain(data.schema[column].dataType)
    if kind in _WHOLE:
        return LongType()
    if kind in _TEXTS:
        return StringType()
    raise UsageError(
        f"column {column!r} of {what} has the type {kind}; an id must be an integer or a string: "
        "cast it"
    )


def arrow_ids(kind: DataType) -> pa.DataType:
    """Return the Arrow type of ids as Spark reads them."""
    return pa.int64() if isinstance(kind, LongType) else pa.string()


def as_spark_ids(ids: pa.Array) -> pa.Array:
    """Convert ids to a type that Spark supports."""
    return ids if pa.types.is_integer(ids.type) else ids.cast(pa.string())


def arrow_schema(columns: StructType) -> pa.Schema:
    """Return the Arrow schema of columns in files, with timestamps in UTC.

    Nested fields may be null, as they are where the whole value is null.
    """
    # Before Spark 4.3 there is no such argument, and UTC is what it does.
    zone: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    fields = to_arrow_schema(columns, **zone)
    return pa.schema([field.with_type(nullable(field.type)) for field in fields])


def nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type whose nested fields may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    return kind


def kept_fields(data: DataFrame, keep: Sequence[str], taken: Iterable[str]) -> StructType:
    """Return the fields of the kept columns; reject a name that the result already uses."""
    if isinstance(keep, str):
        raise UsageError(
            f"keep must be a list of columns\n  given: str {keep!r}\n  hint: give keep=[{keep!r}]"
        )
    require_columns(data, keep, "events")
    for name in keep:
        if name in taken:
            raise UsageError(
                f"column {name!r} can't be kept: the result already has a column of that name"
            )
    names = [*taken, *dict.fromkeys(keep)]
    has_variants = len({name.lower() for name in names}) < len(names)
    if has_variants and data.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        reject_case_variants(names, "the result")
    reject_dots(keep)
    kept = StructType([data.schema[name] for name in dict.fromkeys(keep)])
    for column in kept:
        try:
            arrow_schema(StructType([column]))
        except (PySparkTypeError, ValueError):  # ValueError: lists and maps of void
            raise UsageError(
                f"column {column.name!r} of events has the type {column.dataType.simpleString()}, "
                "which can't be kept\n  expected: a type that Spark hands to Python workers\n"
                f"  hint: make a text of it: cast({column.name} as string)"
            ) from None
    return kept


def _plain(kind: DataType) -> str:
    return kind.simpleString().split("(")[0]
