"""Tables of a board over a space: a column per attribute; interests are filters or bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rangecast.errors import FileError, UsageError, abbreviate, did_you_mean
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import Arithmetic, Residual
from rangecast.model.attributes.text import String
from rangecast.model.encoding.events import encode_event
from rangecast.model.encoding.subscriptions import Part, encode_part
from rangecast.model.io.records import Records, Rows, Source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.model.validation.unknown_columns import column_hint
from rangecast.notify.boxes.messages import BOUNDS
from rangecast.notify.new_interests import Regions
from rangecast.notify.tables import BoardTables

_RESERVED = ("value", "arrival", "k", "object", "ordinal", "interest", "rank")


def _check(space: Space) -> None:
    """Reject a space without positions for objects."""
    for attribute in space:
        if attribute.name in _RESERVED:
            raise UsageError(
                f"an attribute called {attribute.name!r} conflicts with the column of that name\n"
                "  hint: rename the attribute"
            )
        if isinstance(attribute, String) and not isinstance(attribute, Place | Arithmetic):
            raise UsageError(
                f"{attribute.name!r} is a string, whose words are numbered as interests mention "
                "them, possibly after an object with that word was added\n"
                "  hint: make it a category, which lists its values"
            )


def reject_residuals(space: Space, what: str, hint: str) -> None:
    """Reject a space with shapes or arithmetic, for what takes only ranges."""
    for attribute in space:
        if isinstance(attribute, Residual):
            raise UsageError(
                f"{attribute.name!r}, of type {attribute.type}, has conditions that aren't ranges, "
                f"which {what} doesn't support\n  hint: {hint}"
            )


def coordinates_after(
    space: Space, before: tuple[float, ...] | None, position: Any
) -> tuple[float, ...]:
    """Return the coordinates of an object after a change: a dict of values, or coordinates.

    `place` are the old ones, `None` if it is new.
    """
    here = before or (math.inf,) * len(space)
    if isinstance(position, tuple):
        return tuple(
            new if new < math.inf else old for new, old in zip(position, here, strict=True)
        )
    if not isinstance(position, Mapping):
        raise UsageError(
            f"a position must be a dict of values by attribute; given: {abbreviate(position)}\n"
            f"  hint: give {{{space.names[0]!r}: ...}}"
        )
    point = encode_event(position, space, by_name=True).tolist()
    return tuple(
        new if name in position else old
        for name, new, old in zip(space.names, point, here, strict=True)
    )


class SpaceTables(BoardTables):
    """Tables with one position column per attribute of a space that objects have values of."""

    needs = "its attributes and a value"

    def __init__(self, space: Space):
        _check(space)
        super().__init__(space)
        self._known = ("id", "filter", "k", *self.bound_names)

    def _interest_rows(
        self, source: Source, rejected: RejectedRows, ignore_unknown: bool | None
    ) -> Records:
        known = self._known

        def check(names: Sequence[str], where: str) -> None:
            for name in names:
                if name not in known and not ignore_unknown:
                    raise FileError(
                        f"{where}: unknown column {name!r}: {did_you_mean(name, known)}\n"
                        "  expected: 'id', then 'filter' or <attribute>_lo and <attribute>_hi "
                        "columns, and optionally 'k'\n"
                        f"  hint: {column_hint(name, known, may_ignore=ignore_unknown is not None)}"
                    )
            both = "filter" in names and any(name in names for name in self.bound_names)
            if "id" not in names or both:
                raise FileError(
                    f"{where}: interests need 'id' and either 'filter' or <attribute>_lo and "
                    f"<attribute>_hi columns; found: {', '.join(names)}"
                )

        return Records(source, rejected, check)

    def _regions(self, rows: Rows) -> Regions:
        for name in [*rows.batch.columns]:  # a score or a weight means nothing here
            if name not in self._known or name == "k":
                rows.batch.columns.pop(name)
        part = self._part(rows)
        return Regions(np.concatenate([part.lo, part.hi], axis=1), part.sizes)

    def _part(self, rows: Rows) -> Part:
        """Encode the boxes of rows; reject rows that have none."""
        return encode_part(self.space, rows)

    @property
    def tile_names(self) -> Sequence[str]:
        """Columns of the bounds of a message."""
        return [f"{name}_{bound}" for name in self.space.names for bound in BOUNDS]
