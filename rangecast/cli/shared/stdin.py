"""stdin as a file: the meaning of `-` wherever a command reads a file.

It is copied to a temporary file, as most commands read their files more than once. Its first bytes
determine the format: Parquet and Arrow have magic numbers, JSON lines begin with a brace, and
anything else is CSV.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rangecast.errors import FileError

NAME = "stdin"
"""Name of stdin in messages."""
_MARKS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow", b"{": "jsonl"}
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}


def is_pipe(path: object) -> bool:
    """Return whether a path stands for stdin, or for stdout if it is written to."""
    return str(path) == "-"


def copy_stdin(folder: Path) -> Path:
    """Copy stdin to a file in a folder, with the suffix of its format."""
    head = sys.stdin.buffer.read(1 << 16)
    target = folder / f"{NAME}.{_format_of(head)}"
    with target.open("wb") as file:
        file.write(head)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return target


def _format_of(head: bytes) -> str:
    for mark, program in _PACKED.items():
        if head.startswith(mark):
            raise FileError(f"{NAME}: is compressed\n  hint: pipe it through {program} -dc")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((name for mark, name in _MARKS.items() if text.startswith(mark)), "csv")
