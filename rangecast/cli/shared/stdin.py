"""stdin as a file: what `-` stands for wherever a command reads one.

It is copied into a temporary file, as most commands read their files more than once. Its first
bytes tell the format: Parquet and Arrow have marks of their own, a line of JSON begins with a
brace, and anything else is CSV.
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
    """Whether a file that was given is stdin, or stdout where it is written."""
    return str(path) == "-"


def copy_stdin(folder: Path) -> Path:
    """Copy stdin into a file in a folder; its suffix says what it holds."""
    begin = sys.stdin.buffer.read(1 << 16)
    target = folder / f"{NAME}.{_format_of(begin)}"
    with target.open("wb") as file:
        file.write(begin)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return target


def _format_of(begin: bytes) -> str:
    for mark, program in _PACKED.items():
        if begin.startswith(mark):
            raise FileError(f"{NAME}: is compressed\n  hint: pipe it through {program} -dc")
    text = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((name for mark, name in _MARKS.items() if text.startswith(mark)), "csv")
