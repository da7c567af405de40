"""Strategies: interest advertised over one link, unchanged or summarized.

A strategy belongs to one link. It holds everything that came over the other links and from clients,
and decides which items are advertised:

    none          all of them
    covering      those that no other one covers (paper 000): a `CoverSet`
    subsumption   those that don't lie inside the union of others (paper 004): an `ExactSummary`
    merging       ranges of a curve, at most max_ranges (paper 004), and boxes that it doesn't bear
    both          covering as long as that leaves few items, then merging of the rest

It may advertise more than needed, never less. One structure for all links would lose events:
what came from a neighbour may cover what is advertised to that neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rangecast.cover.coverset import CoverSet
from rangecast.errors import UsageError, choices_hint
from rangecast.merge.cells import Cells
from rangecast.merge.exact import ExactSummary
from rangecast.merge.forward import NOTHING
from rangecast.merge.levels.live import Levels
from rangecast.merge.ranges import Ranges, RangeSets, difference, joined, union, within_budget
from rangecast.model.filters.filter import Filter
from rangecast.model.forward import Forwards
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.interest.interest_set import Change
from rangecast.overlay.interest.items import Batch, ResolvedItem, everything, range_item
from rangecast.overlay.interest.range_line import Curve
from rangecast.overlay.wire.frames import Item, RangeItem
from rangecast.overlay.wire.packing import unpack

STRATEGIES = ("none", "covering", "subsumption", "merging", "both")
_STALE = 8
"""Ranges are recomputed once one in this many items was removed."""
_FEW = 16
"""Number of subscriptions below which single calls are faster than a batch."""
_LIMIT = 64
"""Maximum ranges of a subscription."""
NO_CHANGE = Change([], [])
Catalog = Mapping[int, ResolvedItem]
"""All wanted items, by name."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of strategies."""

    strategy: str
    cells: Cells | None
    """Cells of the index of subsumption, and of the curve."""
    curve: Curve | None
    """Curve of ranges."""
    max_ranges: int
    """Maximum ranges that are advertised to a neighbour; with `both`, also boxes."""
    cover_index: str = "auto"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UsageError(
                f"unknown strategy {self.strategy!r}: {choices_hint(self.strategy, STRATEGIES)}"
            )
        if self.max_ranges < 1:
            raise UsageError(f"max_ranges must be at least 1; given: {self.max_ranges}")
        if self.cells is None and self.strategy not in ("none", "covering"):
            raise UsageError(
                f"the strategy {self.strategy!r} needs cells\n"
                "  hint: give all brokers the same, such as Cells.uniform(space, bits, attributes)"
            )


class Plain:
    """Advertises every item unchanged."""

    form = "boxes"

    def __init__(self, space: Space, options: Options, catalog: Catalog, *, same_cells: bool):
        self._space = space
        self._catalog = catalog
        self._same_cells = same_cells
        """Whether the neighbour has the same cells, so that it understands ranges."""

    def change(self, added: Batch, removed: Batch) -> Change:
        """Add and remove items; return those to advertise and those to withdraw.

        Added items are new; removed ones exist.
        """
        advertised: list[Item] = []
        withdrawn: list[int] = []
        if self._same_cells:  # ranges are advertised as they are
            new_ranges = {item.name: item for item in added.ranges}
            for item in removed.ranges:
                if new_ranges.pop(item.name, None) is None:
                    withdrawn.append(item.name)
            advertised += new_ranges.values()
        else:
            added, removed = added.without_ranges, removed.without_ranges
        gone = {resolved.item.name: resolved for resolved in removed if resolved.boxes is not None}
        new, old = self._changed(added, list(gone))
        items = [self._catalog[name].item for name in new]
        advertised += items if self._same_cells else map(self._advertised_as, items)
        withdrawn += [
            self._advertised_as((gone.get(name) or self._catalog[name]).item).name for name in old
        ]
        return Change(advertised, withdrawn)

    def _advertised_as(self, item: Item) -> Item:
        """Return the item that is advertised instead of an item."""
        if isinstance(item, RangeItem) and not self._same_cells:
            return everything(instead_of=item.name)
        return item

    def _changed(self, added: Batch, removed: list[int]) -> tuple[list[int], list[int]]:
        """Return the names of items to advertise, and of items to withdraw."""
        new = dict.fromkeys(item.item.name for item in added if item.boxes is not None)
        old = [name for name in removed if name not in new]
        for name in removed:
            new.pop(name, None)
        return list(new), old


class Covering(Plain):
    """Advertises items that no other one covers, and those advertised before they were covered."""

    def __init__(self, space: Space, options: Options, catalog: Catalog, *, same_cells: bool):
        super().__init__(space, options, catalog, same_cells=same_cells)
        self._set = self._new_set(options)

    def _new_set(self, options: Options) -> CoverSet | ExactSummary:
        return CoverSet(self._space, index=options.cover_index)

    def _changed(self, added: Batch, removed: list[int]) -> tuple[list[int], list[int]]:
        forwards: list[tuple[Id, bool]] = []
        """Names, and whether each is withdrawn."""
        if len(added) < _FEW:
            for item in added:
                if item.boxes is not None:
                    filter_ = Filter(self._space, unpack(item.boxes))
                    forward = self._set.subscribe(item.item.name, filter_)
                    forwards += [(name, False) for name in forward.subscribe]
                    forwards += [(name, True) for name in forward.unsubscribe]
        else:
            forwards += _pairs(self._set.subscribe_many(added.boxes))
        if removed:
            forwards += _pairs(self._set.unsubscribe_many(removed))
        new: dict[Id, None] = {}
        old: dict[Id, None] = {}
        for name, withdraws in forwards:
            there, elsewhere = (old, new) if withdraws else (new, old)
            if name in elsewhere:
                del elsewhere[name]
            else:
                there[name] = None
        return [int(name) for name in new], [int(name) for name in old]


def _pairs(forwards: Forwards) -> Iterable[tuple[Id, bool]]:
    return zip(forwards.ids, forwards.withdraws.tolist(), strict=True)


class Subsumption(Covering):
    """Advertises items that don't lie inside the union of others."""

    def _new_set(self, options: Options) -> CoverSet | ExactSummary:
        return ExactSummary(self._space, cells=options.cells)


class Merging:
    """Advertises the union of items as few ranges; items that don't fit the curve stay boxes.

    Advertised ranges are kept, and only what they don't cover is added, since replacing a range
    costs messages. Above the maximum, the ranges are recomputed from the union: the shortest gaps
    are closed until half of max_ranges is left. They are also recomputed once many items were
    removed. Boxes that are covered aren't advertised.
    """

    form = "ranges"

    def __init__(self, space: Space, options: Options, catalog: Catalog):
        assert options.curve is not None
        self._space = space
        self._curve = options.curve
        self._boxes = Covering(space, options, catalog, same_cells=True)
        self._levels = Levels(options.curve.width)
        self._max_ranges = options.max_ranges
        self._advertised = NOTHING
        self._items: dict[int, RangeItem] = {}
        self._item_count = self._removed_count = 0
        """Number of items in the ranges, and of those removed since the ranges were computed."""

    def change(self, added: Batch, removed: Batch) -> Change:
        """Add and remove items; see `Plain.change`."""
        added, other = self._split_by_curve(added)
        removed, leaving = self._split_by_curve(removed)
        boxes = self._boxes.change(other, leaving) if len(other) or len(leaving) else NO_CHANGE
        ranges = self._merged(added, removed) if len(added) or len(removed) else NO_CHANGE
        return Change(boxes.added + ranges.added, boxes.removed + ranges.removed)

    def _split_by_curve(self, items: Batch) -> tuple[Batch, Batch]:
        """Return the items that fit the curve, and the others."""
        if len(items) == len(items.ranges):
            return items, Batch(self._space, [])
        borne = self._curve.bears(items.boxes)
        if borne.all():
            return items, Batch(self._space, [])
        are = iter(borne.tolist())
        kinds: tuple[list[ResolvedItem], list[ResolvedItem]] = [], []
        for item in items:
            kinds[item.boxes is not None and not next(are)].append(item)
        return Batch(self._space, kinds[0]), Batch(self._space, kinds[1])

    def _merged(self, added: Batch, removed: Batch) -> Change:
        gained, lost = self._edit(added, 1), self._edit(removed, -1)
        self._item_count += len(added) - len(removed)
        self._removed_count += len(removed) if len(lost) else 0
        lacking = difference(gained, self._advertised)
        if self._removed_count * _STALE <= self._item_count:
            if not len(lacking):
                return NO_CHANGE
            advertised = self._cut(joined([self._advertised, lacking]))
            lacking = difference(advertised, self._advertised)
            if len(self._items) + len(lacking) <= self._max_ranges:
                self._advertised = advertised
                new = _items_of(lacking)
                self._items |= new
                return Change([*new.values()], [])
        self._removed_count = 0
        self._advertised = self._cut(self._levels.ranges())
        before, self._items = self._items, _items_of(self._advertised)
        return Change(
            [item for name, item in self._items.items() if name not in before],
            [name for name in before if name not in self._items],
        )

    def _cut(self, ranges: Ranges) -> Ranges:
        """Close the shortest gaps, so that half of max_ranges is left."""
        return within_budget(ranges, max(1, self._max_ranges // 2))[0]

    def _edit(self, items: Batch, delta: int) -> Ranges:
        """Add items, or remove them (`delta` = -1); return the change of the union."""
        parts = []
        if len(items) > len(items.ranges):
            parts.append(self._curve.ranges(items.boxes, _LIMIT))
        if items.ranges:
            ends = [
                [range_.first for range_ in items.ranges],
                [range_.last for range_ in items.ranges],
            ]
            starts, lasts = np.array(ends, np.uint64)
            parts.append(RangeSets(starts, lasts, np.arange(len(starts) + 1)))
        changed = [self._levels.edit(sets, delta) for sets in parts]
        return joined([union(ranges.starts, ranges.ends) for ranges in changed])


def _items_of(ranges: Ranges) -> dict[int, RangeItem]:
    items = map(range_item, ranges.starts.tolist(), ranges.ends.tolist())
    return {item.name: item for item in items}


class Both:
    """Covering; if that leaves more than max_ranges items, their ranges."""

    def __init__(self, space: Space, options: Options, catalog: Catalog):
        self._covering = Covering(space, options, catalog, same_cells=True)
        self._merging = Merging(space, options, catalog)
        self._space = space
        self._catalog = catalog
        self._max_ranges = options.max_ranges
        self._left: dict[int, Item] = {}
        """Items left by covering."""
        self._merged: dict[int, Item] = {}
        """Items that merging makes of them."""
        self._came_as_ranges = 0
        self.form = "boxes"

    def change(self, added: Batch, removed: Batch) -> Change:
        """Add and remove items; see `Plain.change`."""
        left = self._covering.change(added, removed)
        gone = {resolved.item.name: resolved for resolved in removed}
        uncovered = Batch(self._space, [self._catalog[item.name] for item in left.added])
        covered = Batch(self._space, [gone[name] for name in left.removed])
        merged = self._merging.change(uncovered, covered)
        self._came_as_ranges += len(added.ranges) - len(removed.ranges)
        before, change = self.form, left if self.form == "boxes" else merged
        _apply(left, self._left)
        _apply(merged, self._merged)
        few = self._max_ranges if before == "boxes" else self._max_ranges // 2
        is_small = not self._came_as_ranges and len(self._left) <= few
        self.form = "boxes" if is_small else "ranges"
        if self.form == before:
            return change
        # What the last change did to the old form was never advertised.
        old, new = (self._left, self._merged) if before == "boxes" else (self._merged, self._left)
        added_names = {item.name for item in change.added}
        advertised = dict.fromkeys(name for name in old if name not in added_names)
        advertised |= dict.fromkeys(change.removed)
        return Change(
            [item for name, item in new.items() if name not in advertised],
            [name for name in advertised if name not in new],
        )


def _apply(change: Change, items: dict[int, Item]) -> None:
    for item in change.added:
        items[item.name] = item
    for name in change.removed:
        del items[name]


Strategy = Plain | Merging | Both
_BOXES = {"none": Plain, "covering": Covering, "subsumption": Subsumption}


def strategy_of(space: Space, options: Options, catalog: Catalog, *, same_cells: bool) -> Strategy:
    """Return a new strategy for a link; if the cells at both ends differ, it has no ranges.

    Uncovered boxes are advertised instead.
    """
    if same_cells and options.strategy == "merging":
        return Merging(space, options, catalog)
    if same_cells and options.strategy == "both":
        return Both(space, options, catalog)
    made: type[Plain] = _BOXES.get(options.strategy, Covering)
    return made(space, options, catalog, same_cells=same_cells)
