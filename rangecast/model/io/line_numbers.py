"""Line numbers of rows in text files: a row may span several lines, and empty lines are no rows.

Lines are not counted during normal reading; the file is read again if an error must name a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from rangecast.errors import FileError
from rangecast.model.io.files import format_of

_MAX_LINES = 2_000_000
"""Rows further down aren't looked for: that would take more than a second or two."""


def line_of(source: str, row: int | None) -> tuple[str, int] | None:
    """Return the file and line, counted from 1, of a row of a CSV or JSON Lines file.

    `None` if unknown: for another format, for a row so far down that the search would take long, or
    for a Python table.
    """
    path = Path(source)
    if row is None or row > _MAX_LINES or not path.is_file():
        return None
    try:
        kind = format_of(path)
        if kind in ("csv", "jsonl"):
            for line in islice(_first_lines(path, kind), row, None):
                return source, line
    except (FileError, OSError, UnicodeDecodeError, csv.Error):
        pass
    return None


def _first_lines(path: Path, kind: str) -> Iterator[int]:
    """Yield the line on which each row starts."""
    with pa.input_stream(path, compression="detect") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        if kind == "jsonl":
            yield from (number for number, line in enumerate(text, 1) if line.strip())
            return
        rows = csv.reader(text)
        next(rows, None)
        begin = rows.line_num + 1
        for row in rows:
            if row:
                yield begin
            begin = rows.line_num + 1
