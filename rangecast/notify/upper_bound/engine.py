"""The engine of a board over two attributes: a range on one, an upper bound on the other.

It differs from a board over any space only in how it finds tiles: see `boxes/engine.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.sets.members import Id
from rangecast.notify.boxes.engine import BoxEngine
from rangecast.notify.boxes.sparse import LISTS, PROBES, TOO_MANY
from rangecast.notify.new_interests import Regions
from rangecast.notify.upper_bound.painter import MAX_BOXES, UpperBoundPainter
from rangecast.notify.upper_bound.sweep import FIRST_K, MIN_HEIGHT, MIN_Y, SNAP
from rangecast.notify.upper_bound.tables import UpperBoundTables


class UpperBoundWork(NamedTuple):
    """Calls of each kind, as paper 001 counts them in Appendix D."""

    first_k: int = 0
    """Queries for the nearest better objects on one side, up to a height."""
    min_height: int = 0
    """Queries for the next better object upwards, including the last, which finds nothing."""
    min_y: int = 0
    """Queries for the next object of a rectangle, including those that find nothing."""
    snap: int = 0
    """Boxes that might be sent: one per tile, over all intervals of heights that it spans."""
    probe: int = 0
    """Checks whether boxes may be merged."""
    lists: int = 0
    """Lists computed for batches."""
    too_many: int = 0
    """Changes of Paint-Dense that needed too many boxes and fell back to Paint-Sparse."""


class UpperBoundEngine(BoxEngine):
    """Engine of a board over two attributes, one of which has only upper bounds."""

    tables: UpperBoundTables
    _painter: UpperBoundPainter

    def _tools(self) -> tuple[UpperBoundTables, UpperBoundPainter]:
        options = self.options
        if options.sketch is not None:
            raise UsageError("a sketch is only for boards without a space")
        assert options.upper_bound_attribute is not None
        tables = UpperBoundTables(self.space, options.upper_bound_attribute)
        painter = UpperBoundPainter(
            options.k, tables.axis, tables.least, options.groups, dense=options.is_dense
        )
        return tables, painter

    def region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        """Return the boxes of an interest; reject a lower bound."""
        region = self.boxes(where)
        self.tables.check(region)
        return region

    def add_regions(self, regions: Regions) -> range | list[int]:
        self.tables.check(regions.points)  # those of a snapshot may be of another board
        return super().add_regions(regions)

    def plan(self, slots: list[int]) -> tuple[str, str]:
        if self.options.is_dense:
            return "dense", f"uses only the objects; beyond {MAX_BOXES:,} boxes, like sparse"
        bounded, other = self.tables.attribute, self.space.names[self.tables.axis]
        return "sweep", f"{bounded} has only upper bounds: staircases over {other}, swept upwards"

    @property
    def work(self) -> UpperBoundWork:
        which = (FIRST_K, MIN_HEIGHT, MIN_Y, SNAP, PROBES, LISTS, TOO_MANY)
        return UpperBoundWork(*self._painter.work[list(which)].tolist())
