"""What happens to a row that can't be used: it stops the run, or it is set aside and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from rangecast.errors import BadRow, BadRowError, UsageError, shown
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


class BadRows:
    """Collects bad rows in a file, or, without a path, raises the first one."""

    def __init__(self, path: str | Path | None = None):
        self.count = 0
        self._waiting: list[dict[str, Any]] = []
        self._writer = TableWriter(path, SCHEMA) if path is not None else None

    def add(self, bad: BadRow, data: dict[str, Any] | str) -> None:
        """Raise the bad row, or set it aside with its reason and all of its data."""
        if self._writer is None:
            raise BadRowError(replace(bad, line=line_of(bad.source, bad.row)))
        self.count += 1
        self._waiting.append(
            {
                "file": _carried(bad.source),
                "row": bad.row,
                "column": _carried(bad.column),
                "value": _carried(bad.value),
                "reason": _carried(bad.reason),
                "remedy": _carried(bad.remedy),
                "data": _text(data),
            }
        )
        if len(self._waiting) >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._writer is not None and self._waiting:
            self._writer.write(pa.RecordBatch.from_pylist(self._waiting, SCHEMA))
            self._waiting.clear()

    def __enter__(self) -> BadRows:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            if kind is None:
                self._flush()
            self._writer.__exit__(kind, error, trace)


class KeptRows(BadRows):
    """Keeps bad rows for the caller, each with its reason and its data."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[BadRow, str]] = []

    def add(self, bad: BadRow, data: dict[str, Any] | str) -> None:
        self.count += 1
        self.kept.append((bad, _text(data)))


SetAside = list[BadRow] | str | Path | BadRows | None
"""What `bad_rows` takes: a list, the path of a file, or nothing, so that the first one stops."""


@contextmanager
def setting_aside(given: SetAside) -> Iterator[BadRows]:
    """Give what collects bad rows, for as long as rows are read."""
    if isinstance(given, BadRows):  # whoever made it closes it
        yield given
    elif isinstance(given, list):
        kept = KeptRows()
        yield kept
        given.extend(bad for bad, _ in kept.kept)
    elif given is None or isinstance(given, str | Path):
        with BadRows(given) as bad:
            yield bad
    else:
        raise UsageError(
            "bad_rows is a list, which gets the bad rows, or the path of a file for them\n"
            f"  given: {type(given).__name__} {shown(given)}"
        )


def _text(data: dict[str, Any] | str) -> str:
    """Return a row for a person to read."""
    if not isinstance(data, str):
        data = json.dumps(data, default=str, ensure_ascii=False)
    return _carried(data)


def _carried(text: str) -> str:
    """Return a text as UTF-8 can carry it; a lone surrogate becomes its escape."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
