"""Exact subscription indexing: ranges over a few attributes find candidates, boxes decide.

Paper 004, section 5, the second technique. `may_match` and `match` have no false positives. A new
subscription is compared only with those whose ranges meet its own. One that lies inside the union
of others is not advertised until one of these leaves. A new one that covers others withdraws them.
Conditions that are verified, such as shapes, are compared by their number: equal ones cover each
other, and what lies inside of a shape by its coordinates isn't known to. A match verifies them.
With merging, subscriptions that are one box together are sent on as one. `entries` has all of that,
and `perfect` the questions about boxes. Where these can't tell whether a subscription lies inside
others, it is sent on, which is never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.merge.cells import Cells
from rangecast.merge.entries import Entries
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.residuals import Residual
from rangecast.model.boxes import Boxes, id_array
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.forward import Forward, Forwards
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.sets.base import Subscription, SubscriptionSet
from rangecast.model.sets.members import Id
from rangecast.model.shapes.verification.places import bounds_hold, places_of
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
)
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.model.validation.inputs import as_boxes, as_filter

_KIND = "exact summary"


class ExactSummary(SubscriptionSet):
    """Live subscriptions, advertised as far as necessary; exact in all attributes.

    Every command returns what to advertise to neighbours, a `Forward`; a command on many returns
    one per subscription. One thread at a time.
    """

    def __init__(
        self,
        space: Space,
        *,
        bits: int = 8,
        attributes: Sequence[str] | None = None,
        cells: Cells | None = None,
        max_ranges_per_subscription: int = 16,
        merging: bool = False,
    ):
        """Create an empty index over some attributes: `chosen_attributes` picks good ones.

        merging   subscriptions whose union is one box become one entry at the neighbours, under the
                  id of one of them: `entry` returns what to send for an id
        """
        super().__init__(space)
        if max_ranges_per_subscription < 1:
            raise UsageError(
                "max_ranges_per_subscription must be at least 1; given: "
                f"{max_ranges_per_subscription}"
            )
        self.cells = Cells.chosen(self.space, bits, attributes, cells)
        self.max_ranges_per_subscription = max_ranges_per_subscription
        self.merging = flag("merging", merging)
        # Residuals aren't: numbers of conditions have no order, so they form no range together.
        discrete = np.array([not isinstance(a, Number | Residual) for a in self.space])
        self._entries = Entries(self.cells, max_ranges_per_subscription, discrete, merging=merging)
        self._arrivals = 0

    # ---- commands

    def subscribe(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Add a subscription: a filter, its text, or bounds (lo, hi). Its id must be new."""
        new = self._members.new(subscription)
        return self._subscribed(new, *as_filter(filter, self.space).arrays())

    def unsubscribe(self, subscription: Id) -> Forward:
        """Remove a subscription."""
        row = self._members.row(subscription)
        self._members.release(subscription)
        return self._left(row)

    def replace(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Replace the filter of a subscription; it keeps its position in the order of arrival.

        The new filter is added before the old one is removed. If it is advertised, it replaces the
        one that neighbours know.
        """
        row = self._members.row(subscription)
        return self._replaced(row, *as_filter(filter, self.space).arrays())

    def upsert(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Add a subscription, or replace the one with this id."""
        change = self.replace if subscription in self else self.subscribe
        return change(subscription, filter)

    def subscribe_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> Forwards:
        """Add subscriptions one after the other: a file, a table, a DataFrame, dicts or `Boxes`.

        rejected   a list that receives the rejected rows, or the path of a file for them; by
                   default, the first rejected row raises an error, and nothing is added
        """
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids = self._members.new_many(boxes.ids.to_pylist())
        rows = zip(ids, _bounds(boxes), strict=True)
        return Forwards.of([self._subscribed(id_, lo, hi) for id_, (lo, hi) in rows])

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> Forwards:
        """Remove subscriptions one after the other; an id given twice counts once."""
        return Forwards.of([self._left(row) for row in self._members.release_many(subscriptions)])

    def replace_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> Forwards:
        """Replace the filters of subscriptions, one after the other; see `replace`."""
        boxes = as_boxes(subscriptions, self.space, rejected)
        _, rows = self._members.known_many(boxes.ids.to_pylist())
        bounds = zip(rows, _bounds(boxes), strict=True)
        return Forwards.of([self._replaced(row, lo, hi) for row, (lo, hi) in bounds])

    def upsert_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> Forwards:
        """Add or replace subscriptions, one after the other; see `upsert`."""
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids, rows = self._members.either_many(boxes.ids)
        bounds = zip(ids, rows, _bounds(boxes), strict=True)
        return Forwards.of(
            [
                self._subscribed(id_, lo, hi) if row is None else self._replaced(row, lo, hi)
                for id_, row, (lo, hi) in bounds
            ]
        )

    # ---- questions

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return a subscription's id and the text of its filter."""
        entry = self._entries.row(self._members.row(subscription))
        return Subscription(entry.id, text_of_bounds(self.space, entry.lo, entry.hi))

    def entry(self, subscription: Id) -> Subscription:
        """Return what neighbours know for an id of `advertised`: its filter, or a merged one."""
        row = self._members.row(subscription)
        known = self._entries.known(row)
        if known is None:
            raise UsageError(
                f"neighbours don't know the subscription {subscription!r}: it isn't advertised\n"
                "  hint: ask for one of advertised()"
            )
        return Subscription(self._entries.row(row).id, text_of_bounds(self.space, *known))

    def advertised(self) -> list[Id]:
        """Return the subscriptions that neighbours know, in order of arrival."""
        known = self._entries.known
        return [id_ for id_, row in self._members.items() if known(row) is not None]

    def unadvertised(self) -> list[Id]:
        """Return the subscriptions that aren't advertised, as the advertised ones contain them."""
        known = self._entries.known
        return [id_ for id_, row in self._members.items() if known(row) is None]

    def match(self, event: Mapping[str, Any]) -> list[Id]:
        """Return the subscriptions that match an event, in order of arrival."""
        point = encode_event(event, self.space)
        hits = [row for row in self._candidates(point) if self._hits(row, point)]
        entries = sorted(map(self._entries.row, hits), key=lambda entry: entry.arrival)
        return [entry.id for entry in entries]

    def may_match(self, event: Mapping[str, Any]) -> bool:
        """Return whether any subscription matches an event; exact."""
        point = encode_event(event, self.space)
        rows = filter(self._entries.adds, self._candidates(point))
        return any(self._hits(row, point) for row in rows)

    def candidates(self, point: F64) -> int:
        """Return the number of subscriptions that an event, (d,), must be compared with."""
        return len(self._candidates(point))

    @property
    def evaluated(self) -> int:
        """Number of comparisons of a subscription with another entry so far."""
        return self._entries.evaluated

    @property
    def memory(self) -> int:
        """Bytes of all boxes and ranges."""
        return self._entries.memory

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything as a snapshot folder; `open` restores it.

        An existing folder is rejected, or replaced with `overwrite`.
        """
        arrays = {
            **self.cells.arrays(),
            **id_buffers(id_array(list(self))),
            **self._entries.arrays([*self._members.rows()]),
        }
        options = {
            "max_ranges_per_subscription": self.max_ranges_per_subscription,
            "merging": self.merging,
        }
        meta = space_meta(self.space) | options
        save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the set of a snapshot."""
        arrays, meta = load_arrays(path, _KIND)
        options = {name: meta[name] for name in ("max_ranges_per_subscription", "merging")}
        opened = cls(space_of_meta(meta), cells=Cells.of_arrays(arrays), **options)
        ids = ids_of_buffers(arrays).to_pylist()
        opened._entries.restore(ids, arrays)
        opened._arrivals = len(ids)
        opened._members.bind_many(ids, range(len(ids)))
        return opened

    # ---- inside

    def _subscribed(self, new: Id, lo: F64, hi: F64) -> Forward:
        self._members.bind(new, self._entries.enter(new, self._arrivals, lo, hi))
        self._arrivals += 1
        return self._entries.difference()

    def _left(self, row: int) -> Forward:
        self._entries.leave(row)
        return self._entries.difference()

    def _replaced(self, old: int, lo: F64, hi: F64) -> Forward:
        """Replace the filter of an id; add the new one before removing the old one."""
        before = self._entries.row(old)
        if np.array_equal(before.lo, lo) and np.array_equal(before.hi, hi):
            return Forward([], [])
        row = self._entries.enter(before.id, before.arrival, lo, hi)
        self._entries.leave(old)
        self._members.bind(before.id, row)
        return self._entries.difference()

    def _candidates(self, point: F64) -> list[int]:
        return self._entries.candidates(self.cells.places(point[None]))

    def _hits(self, row: int, point: F64) -> bool:
        entry, places = self._entries.row(row), places_of(self.space)
        inside = (entry.lo <= point) & (point <= entry.hi)
        if places is None:
            return bool(inside.all(axis=1).any())
        inside[:, places.axes] = True
        boxes = np.flatnonzero(inside.all(axis=1)).tolist()
        return any(bounds_hold(places, entry.lo[box], entry.hi[box], point) for box in boxes)


def _bounds(boxes: Boxes) -> Iterator[tuple[F64, F64]]:
    """Yield the bounds of each subscription, (boxes, d)."""
    for begin, end in pairwise(boxes.box_offsets.tolist()):
        yield boxes.lo[begin:end], boxes.hi[begin:end]
