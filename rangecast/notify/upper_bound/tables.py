"""Tables over a space of two attributes, one of which has only upper bounds."""

from __future__ import annotations

import numpy as np

from rangecast.errors import FilterError, UsageError, did_you_mean
from rangecast.kernels.arrays import F64
from rangecast.model.encoding.subscriptions import Part, encode_part
from rangecast.model.filters.filter import Filter
from rangecast.model.io.records import Rows
from rangecast.model.space import Space
from rangecast.notify.boxes.tables import SpaceTables, reject_residuals


class UpperBoundTables(SpaceTables):
    """Reader of such tables; an interest with a lower bound on that attribute is rejected."""

    def __init__(self, space: Space, attribute: str):
        super().__init__(space)
        names = space.names
        if attribute not in names:
            known = did_you_mean(str(attribute), names)
            raise UsageError(
                f"upper_bound_attribute is {attribute!r}, which isn't an attribute of the space: "
                f"{known}"
            )
        reject_residuals(
            space, "a board with upper_bound_attribute", "leave out upper_bound_attribute"
        )
        if len(space) != 2:
            raise UsageError(
                f"a board with upper_bound_attribute must have two attributes; the space has "
                f"{len(space)}: "
                f"{', '.join(names)}\n  hint: leave it out, or use a space with two of them"
            )
        if not space[attribute].ordered:
            raise UsageError(
                f"upper_bound_attribute is {attribute!r}, a {space[attribute].type}, which has no "
                "order\n"
                "  hint: name an attribute that filters can bound from above"
            )
        self.attribute = attribute
        self.axis = 1 - space.axis(attribute)
        """Axis of the other attribute."""
        self.least = space[attribute].domain[0]
        """Largest lower bound that counts as unbounded."""

    def check(self, boxes: F64) -> None:
        """Reject boxes with a lower bound, given by their first columns."""
        if (boxes[:, 1 - self.axis] > self.least).any():
            raise FilterError(*self._words)

    @property
    def _words(self) -> tuple[str, str]:
        """Error message for a lower bound, with a hint."""
        return (
            f"interests have no lower bound on {self.attribute!r}, the upper_bound_attribute",
            f"write only {self.attribute} <= ..., or leave out upper_bound_attribute",
        )

    def _part(self, rows: Rows) -> Part:
        column = f"{self.attribute}_lo"
        if column in rows:
            lo, _ = rows.bounds(self.space[self.attribute])
            for index in np.flatnonzero((lo > self.least) & rows.good).tolist():
                rows.reject(index, column, *self._words)
        return encode_part(self.space, rows, self._parsed)

    def _parsed(self, _: int, text: str) -> Filter:
        filter_ = Filter.parse(text, self.space)
        self.check(filter_.arrays()[0])
        return filter_
