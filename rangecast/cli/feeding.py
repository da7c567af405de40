"""Events of a file as rows, some at a time: for `rangecast publish`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from rangecast.errors import FileError
from rangecast.model.files import format_of, parts_of, read_tables


def batches_of(path: str, size: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file, or of stdin as JSON lines, as they come."""
    if path == "-":
        rows = _lines(sys.stdin.buffer, "stdin")
    elif format_of(path) == "jsonl" and Path(path).suffix in (".jsonl", ".ndjson", ".json"):
        rows = chain.from_iterable(map(_file_lines, parts_of(path)))
    else:
        rows = _rows(path)
    while some := list(islice(rows, size)):
        yield some


def _file_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            yield from _lines(file, str(path))
    except OSError as error:
        raise FileError(f"{path}: can't be read: {error.strerror}") from None


def _lines(lines: Iterable[bytes], source: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise FileError(f"{source}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise FileError(f"{source}, line {number}: an event is a JSON object")
            yield row


def _rows(path: str) -> Iterator[dict[str, Any]]:
    for batch in read_tables(path):
        for row in batch.to_pylist():
            yield {name: value for name, value in row.items() if value not in (None, "")}
