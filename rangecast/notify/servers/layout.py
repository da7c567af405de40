"""Positions of objects and interests as servers have them, and their messages as subscribers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rangecast.errors import UsageError, did_you_mean
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite
from rangecast.model.validation.inputs import as_space
from rangecast.notify.boxes.messages import BoxMessage, BoxWork, values_of
from rangecast.notify.boxes.tables import SpaceTables, coordinates_after, reject_residuals
from rangecast.notify.line.tables import LineTables
from rangecast.notify.messages import FIRST_K, MIN_Y, Message, Work
from rangecast.notify.new_interests import Regions
from rangecast.notify.servers.box_zone import position_of
from rangecast.notify.servers.wire import Range, Tile, WireObject
from rangecast.notify.tables import BoardTables


class QueryCounts(NamedTuple):
    """Number of queries of servers, and of further servers that they visited.

    first_k counts each side, min_y both sides as one.
    """

    first_k: int
    first_k_hops: int
    min_y: int
    min_y_hops: int


class SpaceQueryCounts(NamedTuple):
    """Number of queries of servers over a space, of further servers that they visited, and of the
    objects that the answers had.
    """

    queries: int
    hops: int
    rivals: int


class Layout(Protocol):
    """Positions of a row of servers."""

    tables: BoardTables
    attributes: int
    """Number of attributes of the space; 0: a line."""
    axis: int
    """Number of the attribute that zones divide."""

    def place(self, coordinates: Sequence[float]) -> Any:
        """Return coordinates as a position in comparable form."""

    def moved(self, before: Any, position: Any) -> Any:
        """Return a position after a change; `before` is the old one, `None` if it is new."""

    def x(self, at: Any) -> float:
        """Return the coordinate of a position on the axis that zones divide."""

    def wire_object(self, y: float, arrival: int, at: Any, object_id: Id) -> WireObject:
        """Return an object as servers have it."""

    def ranges(self, ids: Sequence[Id], regions: Regions) -> tuple[Range, ...]:
        """Return interests as servers have them."""

    def message(self, output: Any, value: float) -> Any:
        """Return a message with this value as subscribers get it."""

    def work(self, counts: Sequence[int]) -> Any:
        """Return the counted work of all servers."""

    def queries(self, work: Sequence[int], hops: Sequence[int]) -> Any:
        """Return the counted queries of all servers."""


class LineLayout:
    """One position per object, one range per interest."""

    attributes = axis = 0

    def __init__(self) -> None:
        self.tables: BoardTables = LineTables()

    def place(self, coordinates: Sequence[float]) -> float:
        """Return the position."""
        return coordinates[0]

    def moved(self, _: float | None, position: Any) -> float:
        """Return the new position."""
        return check_finite("position", position)

    def x(self, at: float) -> float:
        """Return the coordinate of a position on the axis that zones divide."""
        return at

    def wire_object(self, y: float, arrival: int, at: float, object_id: Id) -> WireObject:
        """Return an object as servers have it."""
        return WireObject(y, arrival, at, object_id)

    def ranges(self, ids: Sequence[Id], regions: Regions) -> tuple[Range, ...]:
        """Return interests as servers have them."""
        return tuple(map(Range, ids, *regions.points.T.tolist()))

    def message(self, output: Message, value: float) -> Message:
        """Return a message with this value as subscribers get it."""
        return output._replace(value=value)

    def work(self, counts: Sequence[int]) -> Work:
        """Return the counted work of all servers."""
        return Work(*counts)

    def queries(self, work: Sequence[int], hops: Sequence[int]) -> QueryCounts:
        """Return the counted queries of all servers."""
        return QueryCounts(work[FIRST_K], hops[FIRST_K], work[MIN_Y], hops[MIN_Y])


class SpaceLayout:
    """A point per object and boxes per interest; zones divide one attribute."""

    def __init__(self, space: Space, zone_attribute: str | None):
        self._space = as_space(space)
        reject_residuals(
            self._space, "a row of servers", "use a Board, or give ranges around the shapes"
        )
        self.tables: BoardTables = SpaceTables(self._space)
        self.attributes, self.axis = len(self._space), 0
        if zone_attribute is not None:
            names = self._space.names
            if zone_attribute not in names:
                hint = did_you_mean(str(zone_attribute), names)
                raise UsageError(f"zone_attribute: no attribute {zone_attribute!r}: {hint}")
            self.axis = self._space.axis(zone_attribute)

    def place(self, coordinates: Sequence[float]) -> tuple[float, ...]:
        """Return coordinates as a tuple."""
        return tuple(coordinates)

    def moved(self, before: tuple[float, ...] | None, position: Any) -> tuple[float, ...]:
        """Return the coordinates after a change."""
        return coordinates_after(self._space, before, position)

    def x(self, at: tuple[float, ...]) -> float:
        """Return the coordinate of a position on the axis that zones divide."""
        return position_of(at[self.axis])

    def wire_object(
        self, y: float, arrival: int, at: tuple[float, ...], object_id: Id
    ) -> WireObject:
        """Return an object as servers have it."""
        return WireObject(y, arrival, self.x(at), object_id, at)

    def ranges(self, ids: Sequence[Id], regions: Regions) -> tuple[Range, ...]:
        """Return interests as servers have them."""
        ranges = []
        for index, interest in enumerate(ids):
            boxes = regions[index]
            lo, hi = boxes[:, self.axis].min(), boxes[:, self.attributes + self.axis].max()
            ends = position_of(float(lo)), position_of(float(hi))
            ranges.append(Range(interest, *ends, tuple(map(tuple, boxes.tolist()))))
        return tuple(ranges)

    def message(self, output: Tile, value: float) -> BoxMessage:
        """Return a message with this value as subscribers get it."""
        thing, d = output.thing, self.attributes
        low_from, high_from, low_to, high_to = (
            list(output.bounds[d * i : d * i + d]) for i in range(4)
        )
        return BoxMessage(
            output.seq,
            output.ordinal,
            thing.object,
            values_of(self._space, thing.at),
            value,
            low_from,
            low_to,
            high_from,
            high_to,
            thing.arrival,
        )

    def work(self, counts: Sequence[int]) -> BoxWork:
        """Return the counted work of all servers."""
        return BoxWork(*counts)

    def queries(self, work: Sequence[int], hops: Sequence[int]) -> SpaceQueryCounts:
        """Return the counted queries of all servers."""
        return SpaceQueryCounts(*hops)


def layout_of(space: Space | None, zone_attribute: str | None) -> Layout:
    """Return the layout of a line, or of a space."""
    if space is not None:
        return SpaceLayout(space, zone_attribute)
    if zone_attribute is not None:
        raise UsageError(
            f"zone_attribute={zone_attribute!r} is an attribute of a space, which isn't given\n"
            "  hint: pass space=, or leave out zone_attribute="
        )
    return LineLayout()


def value_of(output: Message | Tile) -> float:
    """Return the value of the object of a message, as servers have it."""
    return output.value if isinstance(output, Message) else output.thing.y
