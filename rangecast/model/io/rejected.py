"""Rejected rows: the first one stops the run, or all are written to a file or a list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangecast.errors import RejectedRow, RejectedRowError, UsageError, abbreviate
from rangecast.model.io.line_numbers import line_of
from rangecast.model.io.writer import TableWriter

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("column", pa.string()),
        ("value", pa.string()),
        ("reason", pa.string()),
        ("remedy", pa.string()),
        ("data", pa.string()),
    ]
)
_FLUSH = 1000


class RejectedRows:
    """Collector that writes rejected rows to a file or, without a path, raises the first one."""

    def __init__(self, path: str | Path | None = None):
        self.count = 0
        self._waiting: list[dict[str, Any]] = []
        self._writer = TableWriter(path, SCHEMA) if path is not None else None

    def add(self, rejected: RejectedRow, data: dict[str, Any] | str) -> None:
        """Raise the rejected row, or write it with its reason and data."""
        if self._writer is None:
            raise RejectedRowError(replace(rejected, line=line_of(rejected.source, rejected.row)))
        self.count += 1
        self._waiting.append(
            {
                "file": _encodable(rejected.source),
                "row": rejected.row,
                "column": _encodable(rejected.column),
                "value": _encodable(rejected.value),
                "reason": _encodable(rejected.reason),
                "remedy": _encodable(rejected.remedy),
                "data": _text(data),
            }
        )
        if len(self._waiting) >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._writer is not None and self._waiting:
            self._writer.write(pa.RecordBatch.from_pylist(self._waiting, SCHEMA))
            self._waiting.clear()

    def __enter__(self) -> RejectedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._writer is not None:
            if kind is None:
                self._flush()
            self._writer.__exit__(kind)


class CollectedRows(RejectedRows):
    """Rejected rows in memory, each with its reason and data."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[RejectedRow, str]] = []

    def add(self, rejected: RejectedRow, data: dict[str, Any] | str) -> None:
        self.count += 1
        self.kept.append((rejected, _text(data)))


RejectedTarget = list[RejectedRow] | str | Path | RejectedRows | None
"""Destination of rejected rows: a list, the path of a file, or None to raise the first one."""


@contextmanager
def collecting_rejected(target: RejectedTarget) -> Iterator[RejectedRows]:
    """Yield the collector for a destination; close it at the end."""
    if isinstance(target, RejectedRows):  # its owner closes it
        yield target
    elif isinstance(target, list):
        kept = CollectedRows()
        yield kept
        target.extend(row for row, _ in kept.kept)
    elif target is None or isinstance(target, str | Path):
        with RejectedRows(target) as rejected:
            yield rejected
    else:
        raise UsageError(
            "rejected must be a list that collects the rejected rows, or the path of a file for "
            "them\n"
            f"  given: {type(target).__name__} {abbreviate(target)}"
        )


def _text(data: dict[str, Any] | str) -> str:
    """Return a row as readable text."""
    if not isinstance(data, str):
        data = json.dumps(data, default=str, ensure_ascii=False)
    return _encodable(data)


def _encodable(text: str) -> str:
    """Escape lone surrogates, so that a text can be encoded as UTF-8."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
