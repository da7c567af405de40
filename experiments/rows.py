"""The rows that were measured, in a file of JSON lines: a stopped run goes on where it was.

A line has the experiment, the seed, the point and what was measured there; nothing in it depends on
the version of the code. Of two lines for one point the later one counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.experiment import Point
from rangecast.errors import FileError


class RowFile:
    """All rows of a folder, by experiment, seed and point."""

    def __init__(self, path: Path):
        self.path = path
        self._rows: dict[str, dict[str, Any]] = {}
        if not path.exists():
            return
        whole, _, rest = path.read_bytes().rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                self._rows[_key(row["experiment"], row["seed"], row["point"])] = row
            except (ValueError, KeyError, TypeError):
                raise FileError(
                    f"{path}, line {number}: isn't a row of an experiment\n"
                    "  hint: remove the line, or choose another folder with -o"
                ) from None
        if rest:  # the last line of a run that was killed while it wrote
            with path.open("rb+") as file:
                file.truncate(len(whole) + (1 if whole else 0))

    def get(self, experiment: str, seed: int, point: Point) -> dict[str, Any] | None:
        """Return a row, or `None` if it hasn't been measured yet."""
        return self._rows.get(_key(experiment, seed, point))

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row; it is in the file when this returns."""
        text = json.dumps(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        self._rows[_key(row["experiment"], row["seed"], row["point"])] = json.loads(text)


def _key(experiment: str, seed: int, point: Point) -> str:
    return json.dumps([experiment, seed, point], sort_keys=True)
