"""Spaces with many attributes: sum up over a few of them (paper 004, sections 5 and 8).

The number of ranges grows fast with the number of attributes, so a table takes a few: those that
tell subscriptions apart best (`chosen_attributes`). The others are not looked at, which lets more
events through; `trade.py` measures how many more.

`Subsets` keeps one table for each of several subsets of attributes, in one of two ways:

    all    a subscription is in every table; an event must be held by all of them. For spaces where
           subscriptions mention most attributes.
    any    a subscription is in one table, that of the largest subset which it mentions all of; an
           event must be held by one of them. For spaces where each mentions a few of many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import F64, Bool
from rangecast.kernels.hilbert import axes_by_selectivity, groups_by_axes
from rangecast.merge.cells import axes_of
from rangecast.merge.table import Id, Table
from rangecast.model.boxes import Boxes
from rangecast.model.events import encode_event
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space

Subset = tuple[str, ...]


def chosen_attributes(space: Space, boxes: Boxes, most: int, events: F64 | None = None) -> Subset:
    """Return the attributes that rule out the most subscriptions, the best first.

    Judged by events (m, d), or by the bounds of the subscriptions themselves.
    """
    if not 1 <= most <= len(space):
        raise UsageError(f"a table takes 1 to {len(space)} attributes of this space; given: {most}")
    order = axes_by_selectivity(boxes.lo, boxes.hi, events)
    return tuple(space.names[axis] for axis in order[:most])


def mentioned_subsets(
    space: Space, boxes: Boxes, most: int, events: F64 | None = None, company: int = 8
) -> list[Subset]:
    """Return subsets of up to `most` attributes for tables of the kind `any`.

    Each subscription has one that it mentions all of; a subset of s attributes stands for at least
    `company` * 3^s subscriptions. The empty subset, for those that fit no other, is left out.
    """
    order = axes_by_selectivity(boxes.lo, boxes.hi, events)
    _, groups = groups_by_axes(boxes.mentions, order, most, company)
    return [tuple(space.names[axis] for axis in axes) for axes in groups if axes]


class Subsets:
    """One table for each subset of attributes; `options` are those of `Table`."""

    def __init__(
        self,
        space: Space,
        subsets: Sequence[Sequence[str]],
        bits: int = 8,
        *,
        combine: Literal["all", "any"] = "all",
        **options: Any,
    ):
        if not subsets:
            raise UsageError("subsets need at least one subset of attributes")
        if combine not in ("all", "any"):
            raise UsageError(f"combine takes 'all' or 'any'; given: {combine!r}")
        self.space = space
        self.combine = combine
        self.tables = [Table(space, bits, attributes=subset, **options) for subset in subsets]
        self._axes = [list(axes_of(space, subset)) for subset in subsets]
        self._in: dict[Id, list[Table]] = {}
        self._fallback = 0
        """Subscriptions of the kind `any` that mention no subset: every event may be theirs."""

    def __len__(self) -> int:
        return len(self._in)

    def add(self, subscription: Id, filter: str | Filter) -> None:  # noqa: A002
        """Add a subscription to the tables that it belongs in."""
        if subscription in self._in:
            raise UsageError(f"subscription {subscription!r} is there already; remove it first")
        one = filter if isinstance(filter, Filter) else Filter.parse(filter, self.space)
        tables = self.tables if self.combine == "all" else self._fitting(*one.arrays())
        for table in tables:
            table.add(subscription, one)
        self._fallback += not tables
        self._in[subscription] = list(tables)

    def remove(self, subscription: Id) -> None:
        """Remove a subscription."""
        if subscription not in self._in:
            hint = near(str(subscription), [str(one) for one in self._in])
            raise UsageError(f"no subscription {subscription!r}: {hint}")
        tables = self._in.pop(subscription)
        for table in tables:
            table.remove(subscription)
        self._fallback -= not tables

    def holds(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event may match a subscription; if not, it matches none."""
        return bool(self.holds_many(encode_event(event, self.space)[None])[0])

    def holds_many(self, events: Any) -> Bool:
        """Return the same for each of many, as `Table.holds_many` takes them."""
        answers = np.stack([table.holds_many(events) for table in self.tables])
        if self.combine == "all":
            return np.asarray(answers.all(axis=0))
        return np.asarray(answers.any(axis=0) | (self._fallback > 0))

    def _fitting(self, lo: F64, hi: F64) -> list[Table]:
        """Return the table of the largest subset that all boxes mention all of; none if none."""
        mentioned = ~((lo == -np.inf) & (hi == np.inf)).any(axis=0)
        fits = [i for i, axes in enumerate(self._axes) if mentioned[axes].all()]
        best = max(fits, key=lambda i: len(self._axes[i]), default=None)
        return [] if best is None else [self.tables[best]]
