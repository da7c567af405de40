"""Tables of a board on a line: one position per object, one range per interest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import Attribute, Number
from rangecast.model.boxes import closed_range
from rangecast.model.io.records import Records, Rows, Source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.notify.new_interests import Regions
from rangecast.notify.tables import MISSING_VALUE, BoardTables, records

POSITION = Number("position")


class LineTables(BoardTables):
    """Tables with one number as the position, which every object has."""

    needs = "a position and a value"

    def __init__(self) -> None:
        super().__init__(Space([POSITION]))

    def _coordinates(self, rows: Rows, attribute: Attribute) -> F64:
        return rows.needed(attribute, MISSING_VALUE)

    def _interest_rows(
        self, source: Source, rejected: RejectedRows, ignore_unknown: bool | None
    ) -> Records:
        known = (*self.bound_names, "k")
        return records(source, rejected, ("id",), known, ignore_unknown=ignore_unknown)

    def _regions(self, rows: Rows) -> Regions:
        ends = np.stack(closed_range(*rows.bounds(POSITION)), axis=1)[rows.good]
        return Regions(ends, np.ones(len(ends), np.int64))

    def _position(self, position: list[float]) -> float:
        return position[0]

    @property
    def tile_names(self) -> Sequence[str]:
        """Columns of the bounds of a message."""
        return "left_inner", "right_inner", "left_outer", "right_outer"
