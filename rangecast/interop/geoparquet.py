"""Geometries of a Parquet or Arrow file as subscriptions: `read`.

The column of geometries is WKB, WKT or GeoArrow (nested lists of x and y). It is the primary column
of GeoParquet, one with a type of GeoArrow, or else the only column of bytes. Rows become features
of GeoJSON, and those become subscriptions (`rangecast.interop.geojson`).
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.interop import geojson
from rangecast.interop.geometry.notes import has_heights
from rangecast.interop.result import ImportResult
from rangecast.kernels.arrays import F64
from rangecast.model.io.files import one_table, read_tables
from rangecast.model.shapes.geometry import ShapeError, read_geometry
from rangecast.model.space import Space

_KINDS = {1: "Point", 2: "LineString", 3: "Polygon", 4: "MultiPoint", 5: "MultiLineString"}
_KINDS |= {6: "MultiPolygon", 7: "GeometryCollection"}
_DEPTHS = {"Point": 0, "LineString": 1, "MultiPoint": 1, "Polygon": 2, "MultiLineString": 2}
_DEPTHS |= {"MultiPolygon": 3}
_Z, _M, _SRID = 0x80000000, 0x40000000, 0x20000000
"""Flags of EWKB."""
_DEEPEST = 8
_LONG_POSITION = re.compile(r"[(,]\s*[^\s(),]+\s+[^\s(),]+\s+[^\s(),]")
"""A position of WKT with more than two numbers."""
_EXTENSION = b"ARROW:extension:name"


def read(
    source: str | Path | pa.Table,
    space: Space | None = None,
    *,
    id_property: str | None = None,
    geometry: str | None = None,
) -> ImportResult:
    """Import the rows of a file with geometries.

    source       a Parquet or Arrow file, or a table
    space        a space with a location; by default one called `position`
    id_property  the column of the ids; by default `id` or `name`, else the number of the row
    geometry     the column of geometries; by default it is detected
    """
    table = source if isinstance(source, pa.Table) else _table(source)
    column = _column(table, geometry)
    others = [name for name in table.column_names if name != column]
    kind = _geoarrow(table.schema.field(column))
    rows = table.select(others).to_pylist() or [{} for _ in range(table.num_rows)]
    features = []
    for properties, value in zip(rows, table.column(column).to_pylist(), strict=True):
        feature = {"type": "Feature", "properties": properties}
        features.append(feature | {"geometry": _geometry(value, kind)})
    return geojson.read({"features": features}, space, id_property=id_property)


def _table(path: str | Path) -> pa.Table:
    parts = [pa.Table.from_batches([batch]) for batch in read_tables(path)]
    if not parts:
        raise UsageError(f"{path}: has no rows")
    return one_table(path, parts)


def _geoarrow(field: pa.Field) -> str:
    """Return the kind of a GeoArrow column, such as `polygon`; empty if it isn't one."""
    name = (field.metadata or {}).get(_EXTENSION, b"").decode(errors="replace")
    if not name and isinstance(field.type, pa.BaseExtensionType):
        name = field.type.extension_name
    prefix, _, kind = name.partition(".")
    return kind if prefix in ("geoarrow", "ogc") else ""


def _column(table: pa.Table, name: str | None) -> str:
    if name is not None:
        if name not in table.column_names:
            raise UsageError(f"no column {name!r}; there are: {', '.join(table.column_names)}")
        return name
    try:
        primary = json.loads((table.schema.metadata or {}).get(b"geo", b"{}")).get("primary_column")
    except (ValueError, AttributeError):
        primary = None
    if primary in table.column_names:
        return str(primary)
    names = [field.name for field in table.schema if _geoarrow(field)]
    types = pa.types
    names = names or [
        field.name
        for field in table.schema
        if types.is_binary(field.type) or types.is_large_binary(field.type)
    ]
    if len(names) != 1:
        listed = ", ".join(map(repr, names)) or "none"
        raise UsageError(
            f"expected exactly one column of geometries; found: {listed}\n"
            "  hint: name it with geometry="
        )
    return str(names[0])


def _geometry(value: Any, kind: str) -> Any:
    """Return a geometry as GeoJSON; an unreadable one becomes a text with the reason."""
    try:
        if isinstance(value, bytes):
            return _Wkb(value).whole()
        if isinstance(value, str):
            return _from_text(value)
        if value is not None and kind in _names():
            name = _names()[kind]
            return {"type": name, "coordinates": _nested(value, _DEPTHS[name])}
    except (struct.error, ShapeError, ValueError, TypeError, KeyError, RecursionError) as error:
        return f"not WKB, WKT or GeoArrow: {error}"
    return value


class GeometryText(NamedTuple):
    """A geometry as GeoJSON text, or the reason why it can't be read."""

    text: str
    has_heights: bool
    """Whether it has heights or measures, which are dropped."""

    @classmethod
    def of(cls, value: Any, kind: str) -> GeometryText:
        """Read a geometry.

        kind   `polygon` or `multipolygon` of nested lists; empty of bytes and texts
        """
        read = _geometry(value, kind)
        if not isinstance(read, dict):
            return cls(str(read).replace("'", ""), False)
        return cls(json.dumps(read), has_heights(read))


def _names() -> dict[str, str]:
    return {name.lower(): name for name in _DEPTHS}


def _nested(value: Any, depth: int) -> Any:
    if depth:
        return [_nested(part, depth - 1) for part in value]
    if isinstance(value, dict):
        return [value["x"], value["y"], *(value[name] for name in ("z", "m") if name in value)]
    return list(value)


def _from_text(text: str) -> Any:
    if text.lstrip()[:1] == "{":
        return json.loads(text)
    shape = read_geometry(text)
    dropped = [0.0] if _LONG_POSITION.search(text) else []

    def positions(corners: F64) -> list[list[float]]:
        return [[*corner, *dropped] for corner in corners.tolist()]

    if hasattr(shape, "polygons"):
        rings = [[*map(positions, polygon)] for polygon in shape.polygons]
        return {"type": "MultiPolygon", "coordinates": rings}
    return {"type": "MultiLineString", "coordinates": [*map(positions, shape.lines)]}


class _Wkb:
    """Reader of well-known binary; positions have their Z and M values, too."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def whole(self) -> dict[str, Any]:
        """Read all of the bytes."""
        geometry = self._one(_DEEPEST)
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at:,} extra bytes at the end")
        return geometry

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def _one(self, depth: int) -> dict[str, Any]:
        if depth == 0:
            raise ValueError("nested too deeply")
        (order,) = self._take("B")
        if order > 1:
            raise ValueError(f"the byte order must be 0 or 1; given: {order}")
        end = "<" if order else ">"
        (code,) = self._take(end + "I")
        if code & _SRID:
            self._take(end + "I")
        base = code & 0x0FFFFFFF
        dimension = base // 1000
        width = 2 + bool(code & _Z) + bool(code & _M) + (0, 1, 1, 2)[min(dimension, 3)]
        kind = _KINDS.get(base % 1000)
        if kind is None or dimension > 3:
            raise ValueError(f"unknown geometry type: {code}")
        if kind == "Point":
            return {"type": kind, "coordinates": list(self._take(f"{end}{width}d"))}
        if kind in ("LineString", "Polygon"):
            read = self._ring if kind == "LineString" else self._rings
            return {"type": kind, "coordinates": read(end, width)}
        parts = [self._one(depth - 1) for _ in range(self._count(end, 5))]
        if kind == "GeometryCollection":
            return {"type": kind, "geometries": parts}
        return {"type": kind, "coordinates": [part["coordinates"] for part in parts]}

    def _count(self, end: str, size: int) -> int:
        """Return the number of parts, each of which has at least this many bytes."""
        (count,) = self._take(end + "I")
        if count * size > len(self._data) - self._at:
            raise ValueError("unexpected end of data")
        return int(count)

    def _ring(self, end: str, width: int) -> list[list[float]]:
        count = self._count(end, 8 * width)
        numbers = self._take(f"{end}{count * width}d")
        return [list(numbers[at : at + width]) for at in range(0, len(numbers), width)]

    def _rings(self, end: str, width: int) -> list[list[list[float]]]:
        return [self._ring(end, width) for _ in range(self._count(end, 4))]
