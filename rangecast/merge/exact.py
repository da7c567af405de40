"""Subscription indexing: ranges over a few attributes find candidates, the boxes decide, exactly.

Paper 004, section 5, the second technique. `holds` and `matches` have no false positives. A new
subscription is compared only with those whose ranges meet its own. One that lies inside the union
of others is not sent on: it is passive, with the names of those that it lies inside. When one of
these leaves, it is judged again, and sent on if it has to be. A new one that covers others makes
them passive.

Whether a box lies inside a union of boxes is co-NP complete; here the others are cut out of it one
by one, and past `PIECES` pieces the answer is "not known to": the subscription is sent on, which is
never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import nextafter
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.holders import Holders
from rangecast.merge.ranges import Ranges, RangeSets, range_sets
from rangecast.model.attributes import Number
from rangecast.model.boxes import Boxes, id_array
from rangecast.model.events import encode_event
from rangecast.model.filters.text import text_of_bounds
from rangecast.model.forward import Forward, Forwards
from rangecast.model.inputs import as_boxes, as_filter
from rangecast.model.members import Id
from rangecast.model.sets import Subscription, SubscriptionSet
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
)
from rangecast.model.space import Space

PIECES = 256
_KIND = "exact summary"
_NOBODY = np.zeros(0, np.int64)


class _One(NamedTuple):
    id: Id
    arrival: int
    lo: F64
    hi: F64
    ranges: Ranges


class ExactSummary(SubscriptionSet):
    """Live subscriptions, of which neighbours know enough; exact in all attributes.

    Every command returns what neighbours must hear of it, a `Forward`; a command on many returns
    one per subscription. One thread at a time.
    """

    def __init__(
        self,
        space: Space,
        *,
        bits: int = 8,
        attributes: Sequence[str] | None = None,
        cells: Cells | None = None,
        limit: int = 16,
    ):
        """Make an empty index over some attributes: `chosen_attributes` picks good ones."""
        super().__init__(space)
        if limit < 1:
            raise UsageError(f"limit is at least 1; given: {limit}")
        self.cells = Cells.chosen(self.space, bits, attributes, cells)
        self.limit = limit
        self.evaluated = 0
        """Subscriptions whose boxes were compared so far, to judge others."""
        self._discrete = np.array([not isinstance(a, Number) for a in self.space])
        self._holders = Holders()
        self._rows: list[_One | None] = []
        self._arrivals = 0
        self._inside: dict[int, I64] = {}
        """Passive rows, with those that each lies inside."""
        self._over: dict[int, set[int]] = {}
        """The other way round: passive rows to judge again if a row leaves."""

    # ---- commands

    def subscribe(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Add a subscription: a filter, its text, or bounds (lo, hi). Its id must be new."""
        new = self._members.new(subscription)
        return self._subscribed(new, *as_filter(filter, self.space).arrays())

    def unsubscribe(self, subscription: Id) -> Forward:
        """Remove a subscription."""
        forward = self._leave(self._members.row(subscription))
        self._members.release(subscription)
        return forward

    def replace(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Give a subscription another filter; it keeps its place in the order of arrival.

        The new filter comes before the old one goes. If it is to be sent, it takes the place of
        the one that neighbours know.
        """
        row = self._members.row(subscription)
        return self._replaced(row, *as_filter(filter, self.space).arrays())

    def subscribe_many(self, subscriptions: Any) -> Forwards:
        """Add subscriptions one after the other: a file, a table, a DataFrame, dicts or `Boxes`."""
        boxes = as_boxes(subscriptions, self.space)
        ids = self._members.new_many(boxes.ids.to_pylist())
        some = zip(ids, _bounds(boxes), strict=True)
        return Forwards.of([self._subscribed(one, lo, hi) for one, (lo, hi) in some])

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> Forwards:
        """Remove all of these, each once, one after the other."""
        return Forwards.of([self._leave(row) for row in self._members.release_many(subscriptions)])

    def replace_many(self, subscriptions: Any) -> Forwards:
        """Give subscriptions other filters, one after the other; see `replace`."""
        boxes = as_boxes(subscriptions, self.space)
        _, rows = self._members.known_many(boxes.ids.to_pylist())
        some = zip(rows, _bounds(boxes), strict=True)
        return Forwards.of([self._replaced(row, lo, hi) for row, (lo, hi) in some])

    # ---- questions

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return a subscription's id and the text of its filter."""
        one = self._one(self._members.row(subscription))
        return Subscription(one.id, text_of_bounds(self.space, one.lo, one.hi))

    def forwarded(self) -> list[Id]:
        """Return the subscriptions that neighbours know, in order of arrival."""
        return [one for one, row in self._members.items() if row not in self._inside]

    def passive(self) -> list[Id]:
        """Return those that neighbours needn't know, as others hold all of them."""
        return [one for one, row in self._members.items() if row in self._inside]

    def matches(self, event: Mapping[str, Any]) -> list[Id]:
        """Return the subscriptions that hold an event, in order of arrival."""
        point = encode_event(event, self.space)
        found = [self._one(row) for row in self._candidates(point) if self._hits(row, point)]
        return [one.id for one in sorted(found, key=lambda one: one.arrival)]

    def holds(self, event: Mapping[str, Any]) -> bool:
        """Return whether a subscription holds an event: no more and no less."""
        point = encode_event(event, self.space)
        rows = self._candidates(point)
        return any(row not in self._inside and self._hits(row, point) for row in rows)

    def candidates(self, point: F64) -> int:
        """Return how many subscriptions an event, (d,), must be compared with."""
        return len(self._candidates(point))

    @property
    def memory(self) -> int:
        """Bytes of all boxes and ranges."""
        boxes = sum(one.lo.nbytes + one.hi.nbytes for one in self._rows if one is not None)
        return boxes + self._holders.memory

    # ---- snapshots

    def save(self, path: str | Path) -> None:
        """Write everything as a snapshot folder; `open` goes on from there."""
        rows = [*self._members.rows()]
        place = {row: at for at, row in enumerate(rows)}
        kept = [self._one(row) for row in rows]
        ranges = RangeSets.joined([RangeSets.single(one.ranges) for one in kept])
        hosts = [self._inside.get(row, _NOBODY).tolist() for row in rows]
        none = np.zeros((0, len(self.space)))
        arrays = {
            **self.cells.arrays(),
            **id_buffers(id_array(list(self))),
            "lo": np.concatenate([none, *(one.lo for one in kept)]),
            "hi": np.concatenate([none, *(one.hi for one in kept)]),
            "box_at": np.cumsum([0, *(len(one.lo) for one in kept)]),
            "starts": ranges.starts,
            "ends": ranges.ends,
            "range_at": ranges.offsets,
            "hosts": np.array([place[host] for some in hosts for host in some], np.int64),
            "host_at": np.cumsum([0, *map(len, hosts)]),
        }
        save_arrays(path, _KIND, arrays, space_meta(self.space) | {"limit": self.limit})

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the set of a snapshot."""
        arrays, meta = load_arrays(path, _KIND)
        cells = Cells.of_arrays(arrays)
        opened = cls(space_of_meta(meta), cells=cells, limit=meta["limit"])
        ids = ids_of_buffers(arrays).to_pylist()
        ranges = RangeSets(arrays["starts"], arrays["ends"], arrays["range_at"])
        for row, (begin, end) in enumerate(pairwise(arrays["box_at"].tolist())):
            lo, hi = arrays["lo"][begin:end], arrays["hi"][begin:end]
            opened._rows.append(_One(ids[row], row, lo, hi, ranges.of(row)))
        opened._arrivals = len(ids)
        opened._members.bind_many(ids, range(len(ids)))
        if ids:
            owner = np.repeat(np.arange(len(ids)), np.diff(ranges.offsets))
            opened._holders.add(owner, Ranges(ranges.starts, ranges.ends))
        for row, (begin, end) in enumerate(pairwise(arrays["host_at"].tolist())):
            if begin < end:
                opened._make_passive(row, arrays["hosts"][begin:end])
        return opened

    # ---- inside

    def _subscribed(self, new: Id, lo: F64, hi: F64) -> Forward:
        forward, row = self._enter(new, self._arrivals, lo, hi)
        self._arrivals += 1
        self._members.bind(new, row)
        return forward

    def _replaced(self, old: int, lo: F64, hi: F64) -> Forward:
        """Let the new filter come and the old one go, under one id.

        A neighbour puts the new one in place of the old one. So it needs no withdrawal, and what
        the old one had held inside goes out before.
        """
        before = self._one(old)
        if np.array_equal(before.lo, lo) and np.array_equal(before.hi, hi):
            return Forward([], [])
        comes, row = self._enter(before.id, before.arrival, lo, hi)
        goes = self._leave(old)
        self._members.bind(before.id, row)
        exposed = [one for one in goes.subscribe if one != before.id]
        withdrawn = comes.unsubscribe + goes.unsubscribe
        if row in self._inside:
            return Forward(exposed, withdrawn)
        return Forward([*exposed, before.id], [one for one in withdrawn if one != before.id])

    def _enter(self, new: Id, arrival: int, lo: F64, hi: F64) -> tuple[Forward, int]:
        """Let a subscription come; return what neighbours must hear, and its row."""
        sets = range_sets(self.cells, lo, hi, np.zeros(len(lo), np.int64), self.limit)
        row, ranges = len(self._rows), sets.of(0)
        self._rows.append(_One(new, arrival, lo, hi, ranges))
        near_by = self._forwarded_near(row)
        self.evaluated += len(near_by)
        inside = self._inside_of(row, near_by)
        self._holders.add(np.full(len(ranges), row), ranges)
        if len(inside):
            self._make_passive(row, inside)
            return Forward([], []), row
        withdrawn = []
        only = np.array([row])
        for other in near_by.tolist():
            if len(self._inside_of(other, only)):
                self._make_passive(other, only)
                withdrawn.append(self._one(other).id)
        return Forward([new], withdrawn), row

    def _leave(self, row: int) -> Forward:
        """Let a subscription go; return what neighbours must hear."""
        self._holders.remove(row)
        was_passive = row in self._inside
        self._wake(row)
        exposed = []
        for other in sorted(self._over.pop(row, ())):
            self._wake(other)
            near_by = self._forwarded_near(other)
            near_by = near_by[near_by != other]
            self.evaluated += len(near_by)
            inside = self._inside_of(other, near_by)
            if len(inside):
                self._make_passive(other, inside)
            else:
                exposed.append(self._one(other))
        gone, self._rows[row] = self._one(row), None
        exposed.sort(key=lambda one: one.arrival)
        return Forward([one.id for one in exposed], [] if was_passive else [gone.id])

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

    def _forwarded_near(self, row: int) -> I64:
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


def _bounds(boxes: Boxes) -> Iterator[tuple[F64, F64]]:
    """Yield the bounds of each subscription, (boxes, d)."""
    for begin, end in pairwise(boxes.box_offsets.tolist()):
        yield boxes.lo[begin:end], boxes.hi[begin:end]
