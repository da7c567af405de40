"""The files of a board: objects, updates and interests, which several commands read alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangecast.cli.shared.run import Run
from rangecast.errors import UsageError
from rangecast.model.space import Space
from rangecast.notify.choose import board_tables
from rangecast.notify.tables import Updates, common_id_type


class BoardFiles:
    """Objects and interests, read at once, and updates, read as they are applied."""

    def __init__(
        self,
        run: Run,
        files: tuple[Path, Path, Path],
        space: Path | None,
        upper_bound_attribute: str | None = None,
    ):
        if space is None and upper_bound_attribute is not None:
            raise UsageError(
                f"--upper-bound-attribute {upper_bound_attribute} is an attribute of a space, but "
                "--space is missing\n  hint: pass --space, or leave out --upper-bound-attribute"
            )
        self._run, ignores = run, run.options.ignore_unknown
        self.space: Space | None = None if space is None else run.space(space)
        self.tables = board_tables(self.space, upper_bound_attribute)
        objects, self.updates, interests = (self.tables.file_rows(run.file(path)) for path in files)
        self.kind: pa.DataType = common_id_type(objects, self.updates)
        self.objects = self.tables.read_objects(
            objects, run.rejected_rows, kind=self.kind, ignore_unknown=ignores
        )
        with run.task("reading interests") as advance:
            self.interests = self.tables.read_interests(
                interests,
                run.rejected_rows,
                lambda rows: advance(rows, interests.reading),
                ignore_unknown=ignores,
            )

    def max_k(self, k: int) -> int:
        """Return the length of the longest list; k is that of interests without a k."""
        return max([k, *self.interests.wanted.values()])

    def read_updates(self, is_known: Callable[[Any], bool]) -> Iterator[Updates]:
        """Yield the updates in order; `is_known` says whether an object exists."""
        return self.tables.read_updates(
            self.updates,
            self.kind,
            is_known,
            self._run.rejected_rows,
            ignore_unknown=self._run.options.ignore_unknown,
        )
