"""Messages over a space: an object, its value, and the box of interests that it reaches.

An interest is one or more boxes. A box with bounds lo and hi, coordinates by attribute, is reached
iff low_from <= lo <= low_to and high_from <= hi <= high_to on every attribute. On a location, a
point or arithmetic, both bounds of a box are the number of its condition there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import MISSING
from rangecast.model.attributes.residuals import Residual
from rangecast.model.encoding.columns import decode
from rangecast.model.space import Space
from rangecast.notify.messages import Messages


class BoxMessage(NamedTuple):
    """One message. `arrival` ranks objects of equal value: the earlier one is better."""

    seq: int
    ordinal: int
    object: Any
    position: Mapping[str, Any]
    """The object's values by attribute; None is a missing value."""
    value: float
    low_from: Sequence[float]
    low_to: Sequence[float]
    high_from: Sequence[float]
    high_to: Sequence[float]
    arrival: int

    @property
    def is_gone(self) -> bool:
        """Whether the object was removed."""
        return math.isinf(self.value)

    def reaches(self, lo: Sequence[float], hi: Sequence[float]) -> bool:
        """Return whether it reaches an interest with the box from lo to hi, coordinates by
        attribute.
        """
        return all(
            a <= low <= b and c <= high <= d
            for a, low, b, c, high, d in zip(
                self.low_from, lo, self.low_to, self.high_from, hi, self.high_to, strict=True
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class BoxMessages(Messages):
    """Messages of a board over a space; position and tile have a column per attribute and bound."""

    @property
    def bounds(self) -> F64:
        """Lower and upper limits of the bounds of the interests that each message reaches."""
        return self.tile

    def _item(self, index: int) -> BoxMessage:
        assert self.space is not None
        d = len(self.space)
        tile = self.tile[index].tolist()
        low_from, high_from, low_to, high_to = (tile[d * i : d * i + d] for i in range(4))
        return BoxMessage(
            int(self.seq[index]),
            int(self.ordinal[index]),
            self.objects[index],
            values_of(self.space, self.position[index].tolist()),
            float(self.value[index]),
            low_from,
            low_to,
            high_from,
            high_to,
            int(self.arrival[index]),
        )

    def table(self) -> pa.Table:
        """Return all messages: seq, ordinal, object, the attributes, value, bounds and arrival."""
        assert self.space is not None
        d = len(self.space)
        columns: dict[str, Any] = {
            "seq": self.seq,
            "ordinal": self.ordinal,
            "object": self.objects.tolist(),
        }
        for attribute in self.space.valued:
            at = self.position[:, self.space.axis(attribute.name)]
            columns[attribute.name] = decode(attribute, at)
        columns["value"] = self.value
        for axis, name in enumerate(self.space.names):
            for column, bound in zip((0, 2, 1, 3), BOUNDS, strict=True):
                columns[f"{name}_{bound}"] = self.tile[:, d * column + axis]
        return pa.table(columns | {"arrival": self.arrival})


BOUNDS = ("low_from", "low_to", "high_from", "high_to")


def values_of(space: Space, bounds: Sequence[float]) -> dict[str, Any]:
    """Return coordinates as values by attribute; an object has none of a residual."""
    return {
        attribute.name: None if at == MISSING else attribute.value(at)
        for attribute, at in zip(space, bounds, strict=True)
        if not isinstance(attribute, Residual)
    }


class BoxWork(NamedTuple):
    """Work of the changes of a board over a space so far."""

    regions: int = 0
    """Changes whose interests were found by walking the tree."""
    rivals: int = 0
    """Rival objects gathered."""
    nodes: int = 0
    """Nodes of the tree visited."""
    lists: int = 0
    """Lists computed one by one instead, and for batches."""
    probes: int = 0
    """Checks whether tiles may be merged."""
    too_many: int = 0
    """Changes of Paint-Dense that needed too many boxes and fell back to Paint-Sparse."""
    compared: int = 0
    """Comparisons with rivals."""
    candidates: int = 0
    """Boxes with a shape or arithmetic around changed objects, verified for them."""
    refills: int = 0
    """Lists of such boxes computed from all objects."""
