"""Subscription indexing: ranges over a few attributes find candidates, the boxes decide, exactly.

Paper 004, section 5, the second technique. `holds` and `matches` have no false positives. A new
subscription is compared only with those whose ranges meet its own. One that lies inside the union
of others is not sent on: it goes to the passive list, with the names of those that it lies inside.
When one of these leaves, it is judged again, and sent on if it has to be. A new one that covers
others sends them to the passive list.

Whether a box lies inside a union of boxes is co-NP complete; here the others are cut out of it one
by one, and past `PIECES` pieces the answer is "not known to": the subscription is sent on, which is
never too little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nextafter
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.holders import Holders
from rangecast.merge.ranges import Ranges, range_sets
from rangecast.merge.table import Id
from rangecast.model.attributes import Number
from rangecast.model.events import encode_event
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space

PIECES = 256
_NOBODY = np.zeros(0, np.int64)


class Told(NamedTuple):
    """What a neighbour must be told: subscriptions to send, and to take back."""

    sent: list[Id]
    taken_back: list[Id]
    evaluated: int
    """Subscriptions whose boxes were compared."""


class _One(NamedTuple):
    id: Id
    lo: F64
    hi: F64
    ranges: Ranges


class Hybrid:
    """Live subscriptions with a list of passive ones; exact in all attributes."""

    def __init__(
        self,
        space: Space,
        bits: int = 8,
        *,
        attributes: Sequence[str] | None = None,
        cells: Cells | None = None,
        limit: int = 16,
    ):
        """Make an empty index over some attributes: `chosen_attributes` picks good ones."""
        self.space = space
        self.cells = cells or Cells.uniform(space, bits, attributes)
        self.limit = limit
        self._discrete = np.array([not isinstance(a, Number) for a in space])
        self._holders = Holders()
        self._rows: list[_One | None] = []
        self._row_of: dict[Id, int] = {}
        self._inside: dict[int, I64] = {}
        """Passive rows, with those that each lies inside."""
        self._over: dict[int, set[int]] = {}
        """The other way round: passive rows to judge again if a row leaves."""

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def passive(self) -> list[Id]:
        """Subscriptions that were not sent on, as others hold all of them."""
        return [self._one(row).id for row in sorted(self._inside)]

    @property
    def active(self) -> list[Id]:
        """Subscriptions that the neighbours know."""
        return [one for one, row in self._row_of.items() if row not in self._inside]

    def add(self, subscription: Id, filter: str | Filter) -> Told:  # noqa: A002
        """Add a subscription; return what a neighbour must be told."""
        if subscription in self._row_of:
            raise UsageError(f"subscription {subscription!r} is there already; remove it first")
        one = filter if isinstance(filter, Filter) else Filter.parse(filter, self.space)
        lo, hi = one.arrays()
        sets = range_sets(self.cells, lo, hi, np.zeros(len(lo), np.int64), self.limit)
        row = len(self._rows)
        self._rows.append(_One(subscription, lo, hi, Ranges(sets.starts, sets.ends)))
        self._row_of[subscription] = row
        near_by = self._active_near(row)
        inside = self._inside_of(row, near_by)
        ranges = self._one(row).ranges
        self._holders.add(np.full(len(ranges), row), ranges)
        if len(inside):
            self._make_passive(row, inside)
            return Told([], [], len(near_by))
        taken_back = []
        only = np.array([row])
        for other in near_by.tolist():
            if len(self._inside_of(other, only)):
                self._make_passive(other, only)
                taken_back.append(self._one(other).id)
        return Told([subscription], taken_back, len(near_by))

    def remove(self, subscription: Id) -> Told:
        """Remove a subscription; return what a neighbour must be told."""
        if subscription not in self._row_of:
            hint = near(str(subscription), [str(one) for one in self._row_of])
            raise UsageError(f"no subscription {subscription!r}: {hint}")
        row = self._row_of.pop(subscription)
        self._holders.remove(row)
        was_passive = row in self._inside
        self._wake(row)
        sent: list[Id] = []
        evaluated = 0
        for other in sorted(self._over.pop(row, ())):
            self._wake(other)
            near_by = self._active_near(other)
            near_by = near_by[near_by != other]
            inside = self._inside_of(other, near_by)
            evaluated += len(near_by)
            if len(inside):
                self._make_passive(other, inside)
            else:
                sent.append(self._one(other).id)
        self._rows[row] = None
        return Told(sent, [] if was_passive else [subscription], evaluated)

    def matches(self, event: Mapping[str, Any]) -> list[Id]:
        """Return the subscriptions that hold an event, in order of arrival."""
        point = encode_event(event, self.space)
        return [self._one(row).id for row in self._candidates(point) if self._hits(row, point)]

    def holds(self, event: Mapping[str, Any]) -> bool:
        """Return whether a subscription holds an event: no more and no less."""
        point = encode_event(event, self.space)
        rows = self._candidates(point)
        return any(row not in self._inside and self._hits(row, point) for row in rows)

    def candidates(self, point: F64) -> int:
        """Return how many subscriptions an event, (d,), must be compared with."""
        return len(self._candidates(point))

    def _candidates(self, point: F64) -> list[int]:
        place = self.cells.places(point[None])
        found: list[int] = self._holders.overlapping(Ranges(place, place))[0].tolist()
        return found

    def _hits(self, row: int, point: F64) -> bool:
        one = self._one(row)
        return bool(((one.lo <= point) & (point <= one.hi)).all(axis=1).any())

    def _one(self, row: int) -> _One:
        one = self._rows[row]
        assert one is not None
        return one

    def _active_near(self, row: int) -> I64:
        found, _ = self._holders.overlapping(self._one(row).ranges)
        return found[[int(other) not in self._inside for other in found]]

    def _make_passive(self, row: int, inside: I64) -> None:
        self._inside[row] = inside
        for other in inside.tolist():
            self._over.setdefault(other, set()).add(row)
        # Those that lay inside this one lie inside its own hosts as well.
        for other in sorted(self._over.pop(row, ())):
            hosts = self._inside[other]
            self._inside[other] = np.union1d(hosts[hosts != row], inside)
            for host in inside.tolist():
                self._over.setdefault(host, set()).add(other)

    def _wake(self, row: int) -> None:
        for other in self._inside.pop(row, _NOBODY).tolist():
            self._over.get(other, set()).discard(row)

    def _inside_of(self, row: int, others: I64) -> I64:
        """Return those of the others that this row lies inside of together; none if it doesn't."""
        one = self._one(row)
        used: set[int] = set()
        if not len(others):
            return _NOBODY
        owner = np.concatenate([np.full(len(self._one(o).lo), o) for o in others.tolist()])
        lo = np.concatenate([self._one(o).lo for o in others.tolist()])
        hi = np.concatenate([self._one(o).hi for o in others.tolist()])
        for low, high in zip(one.lo, one.hi, strict=True):
            whole = np.flatnonzero(((lo <= low) & (high <= hi)).all(axis=1))
            if len(whole):
                used.add(int(owner[whole[0]]))
                continue
            cut = self._cut_out(low[None], high[None], lo, hi)
            if cut is None:
                return _NOBODY
            used.update(owner[cut].astype(int).tolist())
        return np.array(sorted(used), np.int64)

    def _cut_out(self, low: F64, high: F64, lo: F64, hi: F64) -> list[int] | None:
        """Cut boxes (n, d) out of pieces; return those that took part, `None` if some is left."""
        took_part = []
        for place in range(len(lo)):
            meets = ((low <= hi[place]) & (lo[place] <= high)).all(axis=1)
            if not meets.any():
                continue
            took_part.append(place)
            kept_low, kept_high = [low[~meets]], [high[~meets]]
            low, high = low[meets], high[meets]
            for axis in range(low.shape[1]):
                if lo[place, axis] > -np.inf:
                    kept_low.append(low.copy())
                    kept_high.append(high.copy())
                    kept_high[-1][:, axis] = nextafter(lo[place, axis], -np.inf)
                if hi[place, axis] < np.inf:
                    kept_low.append(low.copy())
                    kept_high.append(high.copy())
                    kept_low[-1][:, axis] = nextafter(hi[place, axis], np.inf)
                low[:, axis] = np.maximum(low[:, axis], lo[place, axis])
                high[:, axis] = np.minimum(high[:, axis], hi[place, axis])
            low, high = np.concatenate(kept_low), np.concatenate(kept_high)
            full = self._not_empty(low, high)
            low, high = low[full], high[full]
            if not len(low):
                return took_part
            if len(low) > PIECES:
                return None
        return None

    def _not_empty(self, low: F64, high: F64) -> Bool:
        """Whether a value lies in each piece: on a discrete axis a whole number, or the missing."""
        whole = np.where(self._discrete, np.ceil(low) <= np.floor(high), low <= high)
        return np.asarray((whole & (high > -np.inf)).all(axis=1))
