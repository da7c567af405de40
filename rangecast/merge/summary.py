"""A summary: the union of live subscriptions as maximal ranges on the Hilbert curve.

    summary = Summary(space, attributes=["price"])
    summary.subscribe("cheap", "price < 10").add     # the ranges that a neighbour must hold now
    summary.may_match({"price": 5})                      # True: a subscription may match

Paper 004, sections 3 and 4, with what it leaves open: unsubscription. The levels of `levels` say
how many subscriptions hold each place; where the level isn't 0 is the union. To add or remove a
subscription is to change the level at the two ends of each of its ranges and to look which gaps
they meet: covered, subsumed, partly covered, merged with its neighbours, all comes out of that.
The result depends on the live subscriptions only, never on what came and went.

The one law: what a subscription holds, the summary holds. It may hold more: cells are larger than
boxes, attributes are left out, subscriptions past `max_ranges_per_subscription` ranges are
coarsened, gaps up to `gap` are closed. It never holds less.

A summary is for one thread at a time; several may call `may_match` and `may_match_many` while none
does anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, U64, AnyArray, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.client import ConvertedFilter, digest_of
from rangecast.merge.forward import NOTHING, RangeForward, RangeForwards
from rangecast.merge.kept import Kept, converted
from rangecast.merge.levels.live import Levels, Work
from rangecast.merge.measure import coverage_of
from rangecast.merge.ranges import MAX_RANGES, Ranges, RangeSets, difference
from rangecast.model.boxes import Boxes, id_array
from rangecast.model.commands import Commands, as_commands
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.io.tables import table_of
from rangecast.model.sets.base import Subscription, SubscriptionSet
from rangecast.model.sets.members import Id, as_id
from rangecast.model.shapes.verification.places import without_places
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
)
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_boxes, as_filter, as_points

_KIND = "summary"


class Summary(SubscriptionSet):
    """Live subscriptions, summarized over some attributes of their space.

    Every command returns what to advertise to neighbours, a `RangeForward`; a command on many
    returns one per subscription.
    """

    def __init__(
        self,
        space: Space,
        *,
        bits: int = 8,
        attributes: Sequence[str] | None = None,
        cells: Cells | None = None,
        max_ranges_per_subscription: int = MAX_RANGES,
        gap: int = 0,
    ):
        """Create an empty summary with 2^bits equal cells per attribute, or with given cells.

        `max_ranges_per_subscription` bounds the ranges of a subscription. Gaps of up to `gap` cells
        are closed.
        """
        super().__init__(space)
        if max_ranges_per_subscription < 1 or not 0 <= gap < 1 << 63:
            raise UsageError(
                "max_ranges_per_subscription must be at least 1 and gap not negative; given: "
                f"{max_ranges_per_subscription}, gap {gap}"
            )
        self.cells = Cells.chosen(self.space, bits, attributes, cells)
        self.max_ranges_per_subscription = max_ranges_per_subscription
        self.gap = gap
        self._levels = Levels(self.cells.width, gap)
        self._kept = Kept(len(self.space), self.cells.axes)

    @classmethod
    def of(cls, subscriptions: Any, space: Space, **options: Any) -> Self:
        """Return the summary of many subscriptions, built by one sort and one scan."""
        summary = cls(space, **options)
        boxes = without_places(as_boxes(subscriptions, summary.space))
        ids = summary._members.new_many(boxes.ids.to_pylist())
        sets = RangeSets.joined(
            [*converted(boxes, summary.cells, summary.max_ranges_per_subscription)]
        )
        summary._levels.build(sets)
        summary._members.bind_many(ids, summary._keep(boxes))
        return summary

    @classmethod
    def of_ranges(cls, ranges: Any, space: Space, **options: Any) -> Self:
        """Return a read-only summary of ranges whose subscriptions are stored elsewhere.

        `ranges` are `Ranges`, or a table of start and end, as `rangecast.spark.merge` returns it.
        Pass the options that the ranges were made with.
        """
        if not isinstance(ranges, Ranges):
            table = table_of(ranges, "ranges")
            if not {"start", "end"} <= set(table.column_names):
                columns = ", ".join(table.column_names)
                raise UsageError(
                    f"ranges must have the columns 'start' and 'end'; given: {columns}"
                )
            starts, ends = (table[name].to_numpy() for name in ("start", "end"))
            ranges = Ranges(starts.astype(np.uint64), ends.astype(np.uint64))
        summary = cls(space, **options)
        summary.apply(RangeForward(add=ranges))
        return summary

    # ---- commands

    def subscribe(self, subscription: Id, filter: Any) -> RangeForward:  # noqa: A002
        """Add a subscription: a filter, its text, or bounds (lo, hi). Its id must be new."""
        new = self._members.new(subscription)
        boxes = self._boxes(filter)
        gained = self._edit(converted(boxes, self.cells, self.max_ranges_per_subscription), 1)
        self._members.bind(new, *self._keep(boxes))
        return RangeForward(add=gained.of(0))

    def subscribe_ranges(self, subscription: Id, converted: ConvertedFilter) -> RangeForward:
        """Add a subscription converted by its client (`convert`)."""
        new = self._members.new(subscription)
        self._check(converted.ranges)
        digest = digest_of(self.cells, self.space, converted.words)
        if digest != converted.digest:
            raise UsageError(
                "the ranges were made with other cells than the summary's, or with other words of "
                f"a string attribute\n  given: {converted.digest}; expected: {digest}\n"
                "  hint: convert again with the summary's cells, or send the filter itself"
            )
        gained = self._levels.edit(RangeSets.single(converted.ranges), 1)
        self._members.bind(new, self._kept.add(converted.ranges))
        return RangeForward(add=gained.of(0))

    def unsubscribe(self, subscription: Id) -> RangeForward:
        """Remove a subscription."""
        return self.unsubscribe_many([subscription])._item(0)

    def replace(self, subscription: Id, filter: Any) -> RangeForward:  # noqa: A002
        """Replace the filter of a subscription; it keeps its position in the order of arrival."""
        return self._replaced([self._members.row(subscription)], self._boxes(filter))._item(0)

    def upsert(self, subscription: Id, filter: Any) -> RangeForward:  # noqa: A002
        """Add a subscription, or replace the one with this id."""
        change = self.replace if subscription in self else self.subscribe
        return change(subscription, filter)

    def subscribe_many(
        self, subscriptions: Any, *, rejected: RejectedTarget = None
    ) -> RangeForwards:
        """Add subscriptions one after the other: a file, a table, a DataFrame, dicts or `Boxes`.

        rejected   a list that receives the rejected rows, or the path of a file for them; by
                   default, the first rejected row raises an error, and nothing is added
        """
        boxes = without_places(as_boxes(subscriptions, self.space, rejected))
        ids = self._members.new_many(boxes.ids.to_pylist())
        gained = self._edit(converted(boxes, self.cells, self.max_ranges_per_subscription), 1)
        self._members.bind_many(ids, self._keep(boxes))
        return RangeForwards(gained, _nothing(len(ids)))

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> RangeForwards:
        """Remove subscriptions one after the other; an id given twice counts once."""
        known = {self._members.row(id_): id_ for id_ in self._members.listed(subscriptions)}
        rows, ids = [*known], [*known.values()]
        lost = self._edit(self._kept.sets(rows, self.cells, self.max_ranges_per_subscription), -1)
        self._members.release_many(ids)
        self._kept.free(rows)
        return RangeForwards(_nothing(len(rows)), lost)

    def replace_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> RangeForwards:
        """Replace the filters of subscriptions, one after the other; see `replace`."""
        boxes = without_places(as_boxes(subscriptions, self.space, rejected))
        _, rows = self._members.known_many(boxes.ids.to_pylist())
        return self._replaced(rows, boxes)

    def upsert_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> RangeForwards:
        """Add or replace subscriptions, one after the other; see `upsert`."""
        boxes = without_places(as_boxes(subscriptions, self.space, rejected))
        _, rows = self._members.either_many(boxes.ids)
        words = ["subscribe" if row is None else "replace" for row in rows]
        return self._done(Commands(words, boxes.ids, boxes, None))

    def update_many(self, commands: Any) -> RangeForwards:
        """Apply a table or file of commands in order, all or none.

        Columns: `command` (subscribe, unsubscribe or replace), `id`, and `filter` or <attribute>_lo
        and <attribute>_hi. An id may be subscribed again after it was unsubscribed.
        """
        todo = as_commands(commands, self.space, self._members.kind)
        if todo.words:
            self._members.check_kind(todo.ids[0].as_py())
        todo.check(self._members)
        return self._done(todo)

    def _done(self, todo: Commands) -> RangeForwards:
        """Apply checked commands in order."""
        act = {"subscribe": self.subscribe_many, "replace": self.replace_many}
        done, brought = [], 0
        for word, first, count in todo.runs():
            ids = todo.ids.slice(first, count)
            if word == "unsubscribe":
                done.append(self.unsubscribe_many(ids.to_pylist()))
                continue
            boxes = todo.boxes.take(np.arange(brought, brought + count))
            brought += count
            done.append(act[word](replace(boxes, ids=ids)))
        add = RangeSets.joined([change.add for change in done])
        return RangeForwards(add, RangeSets.joined([change.drop for change in done]))

    def apply(self, forward: RangeForward) -> RangeForward:
        """Apply a change advertised by a neighbour: add ranges, and drop others.

        These ranges belong to no local subscription. Returns the change of the union.
        """
        self._check(forward.add)
        self._check(forward.drop)
        if len(self._levels.difference(forward.drop, exactly=True)):
            raise UsageError(
                "the summary doesn't contain all of the ranges to drop\n"
                "  hint: start over with all ranges of the neighbour"
            )
        gained = self._levels.edit(RangeSets.single(forward.add), 1)
        lost = self._levels.edit(RangeSets.single(forward.drop), -1)
        return _net_change(gained.of(0), lost.of(0))

    def rebuild_cells(self, events: Any, threshold: float = 0.1) -> bool:
        """Rebuild the cells from these events if their distribution has shifted; return whether.

        All ranges change then: advertise `ranges()` again, and send the new cells to clients that
        convert filters themselves.
        """
        points = as_points(events, self.space)
        if self.cells.moved(points) <= threshold:
            return False
        rows = [*self._members.rows()]
        as_ranges = len(self._kept.ranges(rows))
        if as_ranges:
            raise UsageError(
                f"{as_ranges:,} subscriptions were received as ranges and can't be converted "
                "again\n"
                "  hint: remove them, and have their clients convert them with the new cells"
            )
        names = [self.space.names[axis] for axis in self.cells.axes]
        cells = Cells.quantiles(self.space, self.cells.bits, points, names)
        sets = RangeSets.joined([*self._kept.sets(rows, cells, self.max_ranges_per_subscription)])
        self._levels.build(sets)
        self.cells = cells
        return True

    # ---- questions

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return a subscription's id and its filter, restricted to the attributes of the cells."""
        text = text_of_bounds(self.space, *self.bounds(subscription))
        return Subscription(as_id(subscription), text)

    def bounds(self, subscription: Id) -> tuple[F64, F64]:
        """Return the boxes of a subscription, (boxes, d), on the attributes of the cells."""
        row = self._members.row(subscription)
        if self._kept.is_ranges(row):
            raise UsageError(
                f"subscription {subscription!r} was received as ranges: it has no filter"
            )
        lo, hi, _ = self._kept.bounds([row])
        return lo, hi

    def exclusive_ranges(self, subscription: Id) -> Ranges:
        """Return the part of a subscription that no other subscription contains.

        A neighbour may drop it when the subscription is removed. If it is empty, the subscription
        adds nothing to the summary.
        """
        (sets,) = self._kept.sets(
            [self._members.row(subscription)], self.cells, self.max_ranges_per_subscription
        )
        alone = self._levels.edit(sets, -1).of(0)
        self._levels.edit(sets, 1)
        return alone

    def individually_redundant(self) -> list[Id]:
        """Return subscriptions that could be removed one at a time without changing the summary.

        Of two equal subscriptions, both are redundant.
        """
        ids = list(self._members)
        sets = self._kept.sets(
            [*self._members.rows()], self.cells, self.max_ranges_per_subscription
        )
        redundant = np.concatenate([self._levels.removable(part) for part in sets])
        return [ids[index] for index in np.flatnonzero(redundant)]

    def covers(self, filter: Any) -> bool:  # noqa: A002
        """Return whether the summary contains all of a filter, so that it need not be advertised.

        One subscription may contain it, or several together. Nothing is added.
        """
        return bool(self._covers(self._boxes(filter))[0])

    def covers_many(self, subscriptions: Any) -> Bool:
        """Return `covers` for each subscription. Takes what `subscribe_many` takes."""
        return self._covers(without_places(as_boxes(subscriptions, self.space)))

    def may_match(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event may match a subscription; False is exact."""
        return bool(self.may_match_many(encode_event(event, self.space)[None])[0])

    def may_match_many(self, events: Any) -> Bool:
        """Return whether each event may match a subscription; events as `as_points` takes them."""
        return self.contains_cells(self.cells.places(as_points(events, self.space)))

    def contains_cells(self, places: U64) -> Bool:
        """Return whether the union contains each cell, given by its index on the curve."""
        return self._levels.contains_cells(places)

    def difference(self, ranges: Ranges) -> Ranges:
        """Return the parts of these ranges that the summary doesn't contain."""
        return self._levels.difference(ranges)

    def ranges(self) -> Ranges:
        """Return the union as maximal ranges."""
        return self._levels.ranges()

    def coverage(self) -> float:
        """Return the fraction of the values of the space that the summary contains."""
        return coverage_of(self.space, self.cells, self.ranges())

    @property
    def breakpoints(self) -> int:
        """Number of stored breakpoints, where the number of subscriptions changes."""
        return self._levels.breakpoints

    @property
    def work(self) -> Work:
        """Work of all edits, `covers` and `covers_many` so far."""
        return self._levels.work

    @property
    def memory(self) -> int:
        """Bytes of all arrays, and of the boxes stored for unsubscribing."""
        return self._levels.memory + self._kept.memory

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything as a snapshot folder; `open` restores it.

        An existing folder is rejected, or replaced with `overwrite`.
        """
        meta = space_meta(self.space) | self.options()
        save_arrays(path, _KIND, self.arrays(), meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return the summary of a snapshot."""
        arrays, meta = load_arrays(path, _KIND)
        return cls.of_arrays(space_of_meta(meta), arrays, meta)

    def options(self) -> dict[str, int]:
        """Return the options besides the cells."""
        return {"max_ranges_per_subscription": self.max_ranges_per_subscription, "gap": self.gap}

    def arrays(self) -> dict[str, AnyArray]:
        """Return everything but options and space as plain arrays."""
        return {
            **self.cells.arrays(),
            **self._levels.arrays(),
            **self._kept.arrays([*self._members.rows()]),
            **id_buffers(id_array(list(self))),
        }

    @classmethod
    def of_arrays(
        cls, space: Space, arrays: Mapping[str, AnyArray], options: Mapping[str, Any]
    ) -> Self:
        """Return the summary from the results of `arrays` and `options`."""
        summary = cls(
            space,
            cells=Cells.of_arrays(arrays),
            max_ranges_per_subscription=options["max_ranges_per_subscription"],
            gap=options["gap"],
        )
        summary._levels.restore(arrays)
        summary._kept.restore(arrays)
        ids = ids_of_buffers(arrays).to_pylist()
        summary._members.bind_many(ids, range(len(ids)))
        return summary

    # ---- inside

    def _boxes(self, filter: Any) -> Boxes:  # noqa: A002
        lo, hi = as_filter(filter, self.space).arrays()
        return without_places(Boxes.of(lo, hi, owner=np.zeros(len(lo)), space=self.space))

    def _keep(self, boxes: Boxes) -> list[int]:
        return [self._kept.add(item) for item in self._kept.items_of(boxes)]

    def _covers(self, boxes: Boxes) -> Bool:
        sets = converted(boxes, self.cells, self.max_ranges_per_subscription)
        return np.concatenate([self._levels.covered(part) for part in sets])

    def _edit(self, parts: Iterator[RangeSets], by: int) -> RangeSets:
        """Add ranges (`by` = 1) or remove them (-1); return the change of the union by each set.

        After an error, all ranges are as before.
        """
        done: list[RangeSets] = []
        changed = []
        try:
            for sets in parts:
                changed.append(self._levels.edit(sets, by))
                done.append(sets)
        except BaseException:
            for sets in done:
                self._levels.edit(sets, -by)
            raise
        return RangeSets.joined(changed)

    def _check(self, ranges: Ranges) -> None:
        starts, ends = ranges
        rising = bool((starts[1:] > ends[:-1]).all() and (starts[1:] - ends[:-1] > 1).all())
        if not rising or not (starts <= ends).all() or (len(ends) and ends[-1] > self.cells.top):
            raise UsageError("ranges must be ascending, disjoint and within the curve")

    def _replaced(self, rows: Sequence[int], boxes: Boxes) -> RangeForwards:
        """Add the new ranges of each subscription before removing the old ones."""
        new = RangeSets.joined([*converted(boxes, self.cells, self.max_ranges_per_subscription)])
        old = RangeSets.joined(
            [*self._kept.sets(rows, self.cells, self.max_ranges_per_subscription)]
        )
        forwards = []
        for index in range(len(rows)):
            gained = self._levels.edit(RangeSets.single(new.of(index)), 1)
            lost = self._levels.edit(RangeSets.single(old.of(index)), -1)
            forwards.append(_net_change(gained.of(0), lost.of(0)))
        self._kept.put(rows, self._kept.items_of(boxes))
        add = RangeSets.joined([RangeSets.single(forward.add) for forward in forwards])
        drop = RangeSets.joined([RangeSets.single(forward.drop) for forward in forwards])
        return RangeForwards(add, drop)


def _net_change(gained: Ranges, lost: Ranges) -> RangeForward:
    """Return the net change of ranges that were gained and then lost.

    A gap closed in the meantime isn't reported.
    """
    if not len(gained) or not len(lost):
        return RangeForward(gained, lost)
    return RangeForward(difference(gained, lost), difference(lost, gained))


def _nothing(commands: int) -> RangeSets:
    return RangeSets(*NOTHING, np.zeros(commands + 1, np.int64))
