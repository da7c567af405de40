"""A board over two attributes: interests are a range on one and an upper bound on the other.

Everything but how tiles are found is as over any space: see `boxes/board.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.sets.members import Id
from rangecast.notify.boxes.engine import BoxBoard
from rangecast.notify.boxes.sparse import LISTS, PROBES, TOO_MANY
from rangecast.notify.interest_set import Regions
from rangecast.notify.line.painter import groups_of
from rangecast.notify.upper_bound.painter import MOST_BOXES, UpperBoundPainter
from rangecast.notify.upper_bound.sweep import FIRST_K, MIN_HEIGHT, MIN_Y, SNAP
from rangecast.notify.upper_bound.tables import UpperBoundTables


class UpperBoundWork(NamedTuple):
    """Calls of each kind, as paper 001 counts them in Appendix D."""

    first_k: int = 0
    """Nearest better objects on one side, up to a height."""
    min_height: int = 0
    """Next better object upwards; the last one, which finds nothing more, counts too."""
    min_y: int = 0
    """Next object of a rectangle; those that find nothing count too."""
    snap: int = 0
    """Boxes that might be sent: tiles, each through all intervals of heights where it is there."""
    probe: int = 0
    """Questions whether boxes may be merged."""
    lists: int = 0
    """Lists that were worked out for batches."""
    too_many: int = 0
    """Changes of Paint-Dense that needed too many boxes, and were given to Paint-Sparse."""


class UpperBoundBoard(BoxBoard):
    """A board over a space of two attributes, of which one has upper bounds alone."""

    upper_bound_attribute: str
    _tables: UpperBoundTables
    _painter: UpperBoundPainter

    def _tools(self) -> tuple[UpperBoundTables, UpperBoundPainter]:
        if self.sketch is not None:
            raise UsageError("a sketch is for boards without a space")
        tables, groups = (
            UpperBoundTables(self.space, self.upper_bound_attribute),
            groups_of(self.epsilon, self.k),
        )
        dense = self.algorithm == "dense"
        return tables, UpperBoundPainter(self.k, tables.axis, tables.least, groups, dense=dense)

    def _region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        region = super()._region(interest, where)
        self._tables.check(region)
        return region

    def _add_regions(self, regions: Regions) -> range | list[int]:
        self._tables.check(regions.points)  # those of a snapshot may be of another board
        return super()._add_regions(regions)

    @property
    def plan(self) -> tuple[str, str]:
        """How changes become messages, and why: a name and a reason."""
        if self.algorithm == "dense":
            return "dense", f"from the objects alone; beyond {MOST_BOXES:,} boxes, like sparse"
        other = self.space.names[self._tables.axis]
        return (
            "sweep",
            f"{self.upper_bound_attribute} has upper bounds alone: staircases over {other}, swept",
        )

    @property
    def work(self) -> UpperBoundWork:
        """Calls of each kind so far."""
        work = self._painter.work
        which = (FIRST_K, MIN_HEIGHT, MIN_Y, SNAP, PROBES, LISTS, TOO_MANY)
        return UpperBoundWork(*work[list(which)].tolist())

    def _meta(self) -> dict[str, Any]:
        return super()._meta() | {
            "upper_bound_attribute": self.upper_bound_attribute,
            "epsilon": self.epsilon,
        }

    @classmethod
    def _options(cls, meta: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: meta[name] for name in ("upper_bound_attribute", "epsilon") if name in meta}
        return super()._options(meta) | own
