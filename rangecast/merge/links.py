"""The tables of a broker: one for each link, and what each neighbour must be told.

The table of a link sums up what came in over it; an event goes out over the links whose table
holds it. A neighbour must know what came in over all other links, so it is told the difference
that a change makes to the tables of the others (paper 004, sections 2 and 4.2): the part of the
change that none of them holds. A subscription that is covered or subsumed by them is told to
nobody, and when it is the last one that holds something, that something is just not retracted: no
subscription need be sent again later, as with a passive list of whole subscriptions.

A neighbour is told ranges, not subscriptions: more to hold, or less. It applies them to its own
table for the link and goes on in the same way. Cost: for n links at most n * n look-ups for each
part of a change, and a change that nobody needs to know of stops at the first table that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError, near
from rangecast.merge.ranges import Ranges, joined
from rangecast.merge.table import Id, Table
from rangecast.model.events import encode_event
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space

Link = str | int


class Notice(NamedTuple):
    """What a neighbour is told: ranges to hold from now on, or to hold no longer."""

    ranges: Ranges
    more: bool


class Links:
    """A table a link. All have the same cells; options are those of `Table`."""

    def __init__(self, space: Space, bits: int = 8, **options: Any):
        self.space = space
        model = Table(space, bits, **options)
        self._options: dict[str, Any] = {
            "cells": model.cells,
            "limit": model.limit,
            "gap": model.gap,
        }
        self._tables: dict[Link, Table] = {}

    def __iter__(self) -> Iterator[Link]:
        return iter(self._tables)

    def __getitem__(self, link: Link) -> Table:
        try:
            return self._tables[link]
        except KeyError:
            hint = near(str(link), [str(one) for one in self._tables])
            raise UsageError(f"no link {link!r}: {hint}") from None

    def connect(self, link: Link) -> Notice:
        """Add a link; return what the neighbour behind it must be told first."""
        if link in self._tables:
            raise UsageError(f"link {link!r} is there already")
        self._tables[link] = Table(self.space, **self._options)
        return Notice(self.told(link), True)

    def disconnect(self, link: Link) -> dict[Link, Notice]:
        """Remove a link with all that came in over it; return what the others must be told."""
        lost = self[link].ranges()
        self._tables[link] = Table(self.space, **self._options)
        notices = self._notices(link, lost, more=False)
        del self._tables[link]
        return notices

    def add(self, link: Link, subscription: Id, filter: str | Filter) -> dict[Link, Notice]:  # noqa: A002
        """Add a subscription that came in over a link; return what the others must be told."""
        return self._notices(link, self[link].add(subscription, filter).ranges, more=True)

    def remove(self, link: Link, subscription: Id) -> dict[Link, Notice]:
        """Remove a subscription; return what the others must be told."""
        return self._notices(link, self[link].remove(subscription).ranges, more=False)

    def receive(self, link: Link, notice: Notice) -> dict[Link, Notice]:
        """Apply what the neighbour behind a link tells; return what the others must be told."""
        change = self[link].shift(notice.ranges, 1 if notice.more else -1)
        return self._notices(link, change.ranges, more=notice.more)

    def told(self, link: Link) -> Ranges:
        """Return all that the neighbour behind a link was told: the sum of the other tables."""
        return joined([table.ranges() for one, table in self._tables.items() if one != link])

    def holds(self, event: Mapping[str, Any], came_over: Link | None = None) -> list[Link]:
        """Return the links that an event must go out over, other than the one that it came over."""
        point = np.asarray(encode_event(event, self.space)[None])
        return [
            link
            for link, table in self._tables.items()
            if link != came_over and table.holds_many(point)[0]
        ]

    def _notices(self, changed: Link, ranges: Ranges, *, more: bool) -> dict[Link, Notice]:
        notices = {}
        for link in self._tables:
            left = ranges
            for other, table in self._tables.items():
                if link != changed and other not in (link, changed) and len(left):
                    left = table.missing(left)
            if link != changed and len(left):
                notices[link] = Notice(left, more)
        return notices
