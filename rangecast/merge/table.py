"""The table of a link: the union of its live subscriptions as maximal ranges on the Hilbert curve.

Paper 004, sections 3 and 4, with what it leaves open: unsubscription. The levels of `tree.py` say
how many subscriptions hold each place; where the level isn't 0 is the union. To add or remove a
subscription is to change the level at the two ends of each of its ranges and to look which gaps
they meet: covered, subsumed, partly covered, merged with its neighbours, all comes out of that.
The result depends on the live subscriptions only, never on what came and went.

The one law: what a subscription holds, the table holds. It may hold more: cells are larger than
boxes, attributes are left out, subscriptions past `limit` ranges are coarsened, gaps up to `gap`
are closed. It never holds less.

A table is for one thread at a time; several may ask `holds` and `holds_many` while none does
anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import F64, I64, U64, Bool
from rangecast.merge.bitmap import LEAST_EVENTS, WIDEST, empty_bits, mark, marked
from rangecast.merge.cells import Cells
from rangecast.merge.edits import DONE, NO_NODES, edit, held, missing, read_ranges
from rangecast.merge.levels.build import empty_tree, grown
from rangecast.merge.levels.tree import STEPS
from rangecast.merge.measure import share_of
from rangecast.merge.ranges import LIMIT, Ranges, RangeSets, range_sets, tree_of_ranges
from rangecast.model.boxes import Boxes
from rangecast.model.events import encode_event, encode_events
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space

Id = str | int

_BLOCK = 4096
_NOTHING = np.zeros(0, np.uint64)


class Work(NamedTuple):
    """What an edit did: the same on every machine."""

    touched: int = 0
    """Steps of the levels that were made, moved or removed: at most two for each range."""
    looked: int = 0
    """Gaps that were looked for: at most one for each range, and one for each gap found."""


class Change(NamedTuple):
    """What an edit made of the union: the ranges that it gained, or lost, and the work."""

    ranges: Ranges
    work: Work

    @property
    def covered(self) -> bool:
        """Whether nothing changed: the others together hold all of it."""
        return not len(self.ranges)


class Changes(NamedTuple):
    """What each of many edits made of the union: those of edit i from offsets[i] on."""

    starts: U64
    ends: U64
    offsets: I64
    work: Work

    def of(self, place: int) -> Ranges:
        """Return the ranges of one edit."""
        some = slice(int(self.offsets[place]), int(self.offsets[place + 1]))
        return Ranges(self.starts[some], self.ends[some])


class Table:
    """Live subscriptions, summed up over some attributes of their space."""

    def __init__(
        self,
        space: Space,
        bits: int = 8,
        *,
        attributes: Sequence[str] | None = None,
        cells: Cells | None = None,
        limit: int = LIMIT,
        gap: int = 0,
    ):
        """Make an empty table with 2^bits cells of equal size an attribute, or with given cells.

        `limit` bounds the ranges of a subscription. Gaps of up to `gap` places are closed.
        """
        if cells is not None and attributes is not None:
            raise UsageError("give attributes or cells, which have attributes of their own")
        if limit < 1 or not 0 <= gap < 1 << 63:
            raise UsageError(
                f"limit is at least 1 and gap is not negative; given: limit {limit}, gap {gap}"
            )
        self.space = space
        self.cells = cells or Cells.uniform(space, bits, attributes)
        self.limit = limit
        self.gap = gap
        self._gap = np.uint64(gap)
        self._tree = empty_tree()
        self._bits: U64 | None = None
        self._boxes: dict[Id, bytes] = {}
        self._ranges: dict[Id, bytes] = {}

    @classmethod
    def of(cls, space: Space, boxes: Boxes, bits: int = 8, **options: Any) -> Table:
        """Return the table of many subscriptions, built by one sort and one scan."""
        table = cls(space, bits, **options)
        table._check_new(boxes)
        table._keep(boxes)
        sets = _joined_sets([table._range_sets(boxes.take(rows)) for rows in _blocks(boxes.rows)])
        table._tree = tree_of_ranges(sets.starts, sets.ends, table.cells.top)
        return table

    def __len__(self) -> int:
        return len(self._boxes) + len(self._ranges)

    def __contains__(self, subscription: Id) -> bool:
        return subscription in self._boxes or subscription in self._ranges

    def __iter__(self) -> Iterator[Id]:
        yield from self._boxes
        yield from self._ranges

    @property
    def steps(self) -> int:
        """Places where the number of subscriptions changes: what is stored."""
        return int(self._tree.state[0, STEPS])

    @property
    def memory(self) -> int:
        """Bytes of all arrays, and of the boxes that are kept for unsubscribing."""
        kept = sum(map(len, self._boxes.values())) + sum(map(len, self._ranges.values()))
        bits = 0 if self._bits is None else self._bits.nbytes
        return sum(array.nbytes for array in self._tree) + bits + kept

    @property
    def _width(self) -> int:
        """Bits of a place."""
        return len(self.cells.axes) * self.cells.bits

    # ---- edits

    def add(self, subscription: Id, filter: str | Filter) -> Change:  # noqa: A002
        """Add a subscription; return what the union gained, which a neighbour must be told."""
        one = filter if isinstance(filter, Filter) else Filter.parse(filter, self.space)
        lo, hi = one.arrays()
        boxes = Boxes.of(lo, hi, owner=np.zeros(len(lo)), ids=[subscription])
        changes = self.add_many(boxes)
        return Change(changes.of(0), changes.work)

    def add_many(self, boxes: Boxes) -> Changes:
        """Add subscriptions one after the other; return what each made the union gain."""
        self._check_new(boxes)
        parts = [self._edit(self._range_sets(boxes.take(rows)), 1) for rows in _blocks(boxes.rows)]
        self._keep(boxes)
        return parts[0] if len(parts) == 1 else _concatenated(parts)

    def add_ranges(self, subscription: Id, ranges: Ranges, digest: str) -> Change:
        """Add a subscription that its client converted with cells of this digest."""
        if subscription in self:
            raise UsageError(f"subscription {subscription!r} is there already; remove it first")
        if digest != self.cells.digest:
            raise UsageError(
                f"the ranges were made with other cells ({digest}) than the table's "
                f"({self.cells.digest}); send the client the table's cells and convert again"
            )
        change = self.shift(ranges, 1)
        self._ranges[subscription] = np.stack(ranges).tobytes()
        return change

    def remove(self, subscription: Id) -> Change:
        """Remove a subscription; return what the union lost, which a neighbour may forget."""
        changes = self.remove_many([subscription])
        return Change(changes.of(0), changes.work)

    def remove_many(self, subscriptions: Sequence[Id]) -> Changes:
        """Remove subscriptions one after the other; return what each made the union lose."""
        if len(set(subscriptions)) < len(subscriptions):
            raise UsageError("a subscription can't be removed twice")
        self._check_known(subscriptions)
        parts = []
        for block in _blocks(len(subscriptions)):
            some = [subscriptions[place] for place in block]
            parts.append(self._edit(self._sets_of(*some), -1))
            for one in some:
                self._boxes.pop(one, None)
                self._ranges.pop(one, None)
        return parts[0] if len(parts) == 1 else _concatenated(parts)

    def shift(self, ranges: Ranges, by: int) -> Change:
        """Add ranges that belong to no subscription (`by` = 1), or take such off again (-1)."""
        starts, ends = ranges
        rising = bool((starts[1:] > ends[:-1]).all() and (starts[1:] - ends[:-1] > 1).all())
        if not rising or not (starts <= ends).all() or (len(ends) and ends[-1] > self.cells.top):
            raise UsageError("ranges are ascending, apart, and end on the curve")
        if by not in (1, -1):
            raise UsageError(f"ranges are added (1) or taken off (-1); given: {by}")
        if by < 0 and len(self._missing(ranges, np.uint64(0))):
            raise UsageError("the table doesn't hold all of these ranges: they can't be taken off")
        return self._change(_one_set(ranges), by)

    def forward(self, subscription: Id) -> Ranges:
        """Return the part of a subscription that no other one holds.

        Right after it came this is what a neighbour must be told, and as long as it lives what
        the neighbour must be told to forget if it goes.
        """
        self._check_known([subscription])
        sets = self._sets_of(subscription)
        alone = self._change(sets, -1).ranges
        self._change(sets, 1)
        return alone

    def passive(self) -> list[Id]:
        """Return the subscriptions that the others hold together: nothing would change without."""
        return [one for one in self if not len(self.forward(one))]

    def refresh(self, events: Any, threshold: float = 0.1) -> bool:
        """Make cells anew from these publications if the distribution has moved; say if so.

        All ranges are then others: neighbours must be told `ranges()` afresh, and clients that
        convert by themselves need the new cells.
        """
        points = self._points(events)
        if self.cells.moved(points) <= threshold:
            return False
        if self._ranges:
            raise UsageError(
                f"{len(self._ranges):,} subscriptions came as ranges and can't be made anew; "
                "remove them and have their clients convert them with the new cells"
            )
        names = [self.space.names[axis] for axis in self.cells.axes]
        self.cells = Cells.quantiles(self.space, self.cells.bits, points, names)
        sets = self._sets_of(*self._boxes)
        self._tree = tree_of_ranges(sets.starts, sets.ends, self.cells.top)
        self._bits = None
        return True

    def _check_new(self, boxes: Boxes) -> None:
        if boxes.dimensions != len(self.space):
            raise UsageError(
                f"boxes of {boxes.dimensions} attributes don't fit a space of {len(self.space)}"
            )
        seen: set[Id] = set()
        for one in boxes.ids.to_pylist():
            if one in seen or one in self:
                raise UsageError(f"subscription {one!r} is there already; nothing was added")
            seen.add(one)

    def _check_known(self, subscriptions: Sequence[Id]) -> None:
        unknown = next((one for one in subscriptions if one not in self), None)
        if unknown is not None:
            hint = near(str(unknown), [str(one) for one in self])
            raise UsageError(f"no subscription {unknown!r}: {hint}")

    def _keep(self, boxes: Boxes) -> None:
        """Remember the boxes, on the table's attributes alone: they give the same ranges again."""
        axes = list(self.cells.axes)
        both = np.stack([boxes.lo[:, axes], boxes.hi[:, axes]], axis=1)
        first = boxes.box_offsets.tolist()
        for place, one in enumerate(boxes.ids.to_pylist()):
            self._boxes[one] = both[first[place] : first[place + 1]].tobytes()

    def _sets_of(self, *subscriptions: Id) -> RangeSets:
        """Return the ranges of live subscriptions: as they came, or converted again."""
        parts = []
        for came_as_ranges, some in groupby(subscriptions, self._ranges.__contains__):
            if came_as_ranges:
                given = [np.frombuffer(self._ranges[one], np.uint64) for one in some]
                starts, ends = (
                    np.concatenate([one.reshape(2, -1)[side] for one in given]) for side in (0, 1)
                )
                sizes = [len(one) // 2 for one in given]
                parts.append(RangeSets(starts, ends, np.cumsum([0, *sizes]), 0))
            else:
                parts.append(self._converted_again(list(some)))
        return parts[0] if len(parts) == 1 else _joined_sets(parts)

    def _converted_again(self, subscriptions: list[Id]) -> RangeSets:
        axes = list(self.cells.axes)
        kept = [self._boxes[one] for one in subscriptions]
        both = np.frombuffer(b"".join(kept)).reshape(-1, 2, len(axes))
        lo = np.full((len(both), len(self.space)), -np.inf)
        hi = np.full((len(both), len(self.space)), np.inf)
        lo[:, axes], hi[:, axes] = both[:, 0], both[:, 1]
        sizes = [len(raw) // (16 * len(axes)) for raw in kept]
        return range_sets(self.cells, lo, hi, np.repeat(np.arange(len(kept)), sizes), self.limit)

    def _range_sets(self, boxes: Boxes) -> RangeSets:
        return range_sets(self.cells, boxes.lo, boxes.hi, boxes.owner, self.limit)

    def _change(self, sets: RangeSets, by: int) -> Change:
        changes = self._edit(sets, by)
        return Change(changes.of(0), changes.work)

    def _edit(self, sets: RangeSets, by: int) -> Changes:
        starts, ends = sets.starts.copy(), sets.ends.copy()  # one signature of the kernel
        out = np.empty((2, len(starts) + 64), np.uint64)
        offsets = np.zeros(len(sets.offsets), np.int64)
        cursor = np.zeros(5, np.int64)
        while True:
            stopped = edit(
                self._tree,
                starts,
                ends,
                sets.offsets,
                cursor,
                by,
                self.cells.top,
                self._gap,
                out[0],
                out[1],
                offsets,
            )
            if stopped == DONE:
                filled = offsets[-1]
                if self._bits is not None:
                    mark(self._bits, out[0, :filled], out[1, :filled], by > 0)
                work = Work(int(cursor[3]), int(cursor[4]))
                return Changes(out[0, :filled], out[1, :filled], offsets, work)
            if stopped == NO_NODES:
                self._tree = grown(self._tree)
            else:
                out = np.concatenate([out, np.empty_like(out)], axis=1)

    # ---- reading

    def holds(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event may match a subscription; if not, it matches none."""
        return bool(self.holds_many(encode_event(event, self.space)[None])[0])

    def holds_many(self, events: Any) -> Bool:
        """Return the same for each of many: points (events, d), a table, or a list of dicts."""
        places = self.cells.places(self._points(events))
        out = np.empty(len(places), np.bool_)
        if self._bits is None and len(places) >= LEAST_EVENTS and self._width <= WIDEST:
            bits = empty_bits(self._width)
            mark(bits, *self.ranges(), True)
            self._bits = bits  # only now: another reader may look at it at once
        if self._bits is None:
            held(self._tree, places, self._gap, out)
        else:
            marked(self._bits, places, out)
        return out

    def missing(self, ranges: Ranges) -> Ranges:
        """Return the parts of these ranges that the table doesn't hold."""
        return self._missing(ranges, self._gap)

    def _missing(self, ranges: Ranges, gap: np.uint64) -> Ranges:
        cursor = np.zeros(2, np.int64)
        starts, ends = ranges.starts.copy(), ranges.ends.copy()
        parts = []
        while cursor[0] < len(starts):
            out = np.empty((2, len(starts) + 64), np.uint64)
            filled = missing(self._tree, starts, ends, cursor, self.cells.top, gap, out[0], out[1])
            parts.append(out[:, :filled])
        return Ranges(*np.concatenate([np.zeros((2, 0), np.uint64), *parts], axis=1))

    def ranges(self) -> Ranges:
        """Return the union as maximal ranges."""
        nothing = np.empty(0, np.uint64)
        count = read_ranges(self._tree, self.cells.top, self._gap, nothing, nothing)
        starts, ends = np.empty(count, np.uint64), np.empty(count, np.uint64)
        read_ranges(self._tree, self.cells.top, self._gap, starts, ends)
        return Ranges(starts, ends)

    def share(self) -> float:
        """Return the share of the values of the space that the table holds."""
        return share_of(self.space, self.cells, self.ranges())

    def _points(self, events: Any) -> F64:
        if not isinstance(events, np.ndarray):
            return encode_events(events, self.space).points
        points = np.asarray(events, np.float64)
        if points.ndim != 2 or points.shape[1] != len(self.space) or np.isnan(points).any():
            raise UsageError(
                f"points take the shape (events, {len(self.space)}) and hold no NaN; "
                f"given: {points.shape}"
            )
        return points


def _one_set(ranges: Ranges) -> RangeSets:
    return RangeSets(*ranges, np.array([0, len(ranges)]), 0)


def _joined_sets(parts: list[RangeSets]) -> RangeSets:
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
    return RangeSets(
        np.concatenate([_NOTHING, *(part.starts for part in parts)]),
        np.concatenate([_NOTHING, *(part.ends for part in parts)]),
        np.cumsum(sizes),
        sum(part.visited for part in parts),
    )


def _blocks(rows: int) -> Iterator[I64]:
    """Yield rows in blocks whose ranges stay in the cache."""
    for begin in range(0, max(rows, 1), _BLOCK):
        yield np.arange(begin, min(begin + _BLOCK, rows))


def _concatenated(parts: list[Changes]) -> Changes:
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return Changes(
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([[0], np.cumsum(lengths)]),
        Work(*(sum(counts) for counts in zip(*(part.work for part in parts), strict=True))),
    )
