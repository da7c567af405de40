"""Progress of reading files, in bytes on disk, for a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class Reading:
    """Files of one table, and the number of bytes read.

    Readers report their position in the current file; one that does not know it reports nothing.
    """

    def __init__(self) -> None:
        self.total = 0
        """Bytes of all files; 0 if that isn't known."""
        self._before = self._size = 0
        self._share = 0.0

    def begin(self, files: Sequence[Path]) -> None:
        """Start reading the first of these files."""
        self.total = sum(file.stat().st_size for file in files if file.is_file())
        self._before = self._size = 0
        self._share = 0.0

    def next_file(self, path: Path) -> None:
        """Continue with a file; the files before it are done."""
        self._before, self._share = self._before + self._size, 0.0
        self._size = path.stat().st_size if path.is_file() else 0

    def reached(self, part: float, whole: float) -> None:
        """Update the position in the current file, in bytes, rows or any other unit."""
        self._share = min(part / whole, 1.0) if whole else 1.0

    @property
    def done(self) -> int:
        """Number of bytes read."""
        return self._before + int(self._share * self._size)
