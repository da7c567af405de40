"""The engine and the tables of a board, by its options. Modules load on demand."""

from __future__ import annotations

from rangecast.model.space import Space
from rangecast.notify.base import BoardEngine, BoardOptions
from rangecast.notify.tables import BoardTables


def board_engine(options: BoardOptions) -> BoardEngine:
    """Return the engine of a board."""
    if options.space is None:
        from rangecast.notify.line.engine import LineEngine

        return LineEngine(options)
    if options.upper_bound_attribute is None:
        from rangecast.notify.boxes.engine import BoxEngine

        return BoxEngine(options)
    from rangecast.notify.upper_bound.engine import UpperBoundEngine

    return UpperBoundEngine(options)


def board_tables(
    space: Space | None = None, upper_bound_attribute: str | None = None
) -> BoardTables:
    """Return the reader of the tables of a board."""
    if space is None:
        from rangecast.notify.line.tables import LineTables

        return LineTables()
    if upper_bound_attribute is None:
        from rangecast.notify.boxes.tables import SpaceTables

        return SpaceTables(space)
    from rangecast.notify.upper_bound.tables import UpperBoundTables

    return UpperBoundTables(space, upper_bound_attribute)
