"""A reader of Delta tables that shares no code with the writer: the log by hand, files by DuckDB.

It follows the protocol's text for what a reader must do, and checks what a writer must have done:
files that exist, with the size and the number of rows that the log has, and one value of each
partition column per file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
from deltalake import DeltaTable

_TYPES = {
    "string": str,
    "long": int,
    "integer": int,
    "short": int,
    "byte": int,
    "boolean": {"true": True, "false": False}.__getitem__,
}


def delta_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a table; delta-rs and the reader of this file must agree on them."""
    rows = _read(path)
    others = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(map(repr, map(_plain, rows))) == sorted(map(repr, map(_plain, others)))
    return others


def _plain(value: Any) -> Any:
    """Return a value in which moments and maps are alike, in whatever form a reader gives them."""
    if hasattr(value, "timestamp"):
        return value.timestamp()
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _read(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a table as its newest version has them."""
    table = Path(path)
    files: dict[str, dict[str, Any]] = {}
    schema: dict[str, Any] = {}
    partitions: list[str] = []
    for number, entry in enumerate(sorted((table / "_delta_log").glob("*.json"))):
        assert int(entry.stem) == number, "a version is missing"
        for line in entry.read_text().splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "protocol":
                assert action["minReaderVersion"] == 1, "its features must be known to a reader"
            elif kind == "metaData":
                schema = json.loads(action["schemaString"])
                partitions = action["partitionColumns"]
            elif kind == "add":
                files[action["path"]] = action
            elif kind == "remove":
                del files[action["path"]]
    types = {field["name"]: field["type"] for field in schema["fields"]}
    return [row for action in files.values() for row in _rows(table, action, types, partitions)]


def _rows(
    table: Path, action: dict[str, Any], types: dict[str, Any], partitions: list[str]
) -> list[dict[str, Any]]:
    file = table / unquote(action["path"])
    assert file.stat().st_size == action["size"]
    assert {*action["partitionValues"]} == {*partitions}
    values = {
        name: None if text is None else _TYPES[types[name]](text)
        for name, text in action["partitionValues"].items()
    }
    source = duckdb.read_parquet(str(file), hive_partitioning=False)
    assert {*source.columns} == {*types} - {*partitions}
    rows = source.to_arrow_table().to_pylist()
    if action.get("stats"):
        assert json.loads(action["stats"])["numRecords"] == len(rows)
    return [{name: (row | values)[name] for name in types} for row in rows]
