"""Events of a file as rows, some at a time: for `rangecast publish`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rangecast.client.operations.parts import file_rows, line_rows


def batches_of(path: str, size: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file, or of stdin as JSON lines, as they come."""
    rows = line_rows(sys.stdin.buffer, "stdin") if path == "-" else file_rows(path)
    while some := list(islice(rows, size)):
        yield some
