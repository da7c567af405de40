"""Events of a file in batches of rows, for `rangecast publish`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rangecast.client.operations.parts import file_rows, line_rows


def batches_of(path: str, size: int) -> Iterator[list[dict[str, Any]]]:
    """Yield batches of rows of a file; rows of stdin are JSON lines, yielded as they arrive."""
    rows = line_rows(sys.stdin.buffer, "stdin") if path == "-" else file_rows(path)
    while piece := list(islice(rows, size)):
        yield piece
