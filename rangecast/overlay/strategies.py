"""How a broker says over one link what it wants: as it is, or summed up.

A strategy belongs to one link. It holds everything that came over the other links and from clients,
and says which items the neighbour must know:

    none          all of them
    covering      those that no other one covers (paper 000): a `CoverSet`
    subsumption   those that don't lie inside the union of others (paper 004): an `ExactSummary`
    merging       ranges on the Hilbert curve, within a budget (paper 004): a `Summary`
    both          covering as long as that leaves few items, then ranges of what is left

It may say more than is wanted, never less. One structure for all links would lose events: what
came from a neighbour may cover what that neighbour must be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rangecast.cover.coverset import CoverSet
from rangecast.errors import UsageError, one_of
from rangecast.merge.cells import Cells
from rangecast.merge.client import Converted, digest_of
from rangecast.merge.exact import ExactSummary
from rangecast.merge.forward import NOTHING
from rangecast.merge.ranges import Ranges, joined, within_budget
from rangecast.merge.summary import Summary
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.forward import Forward
from rangecast.model.space import Space
from rangecast.overlay.interest import Change, everything, range_item
from rangecast.overlay.messages import Item, RangeItem

STRATEGIES = ("none", "covering", "subsumption", "merging", "both")
_STALE = 8
"""Ranges are cut once one in this many items has gone."""
_MANY = 16
"""Subscriptions from which a batch is quicker than one call each."""


class Wanted(NamedTuple):
    """An item, and its filter as this broker understands it; `None`: it is a range."""

    item: Item
    filter: Filter | None


@dataclass(frozen=True, slots=True)
class Options:
    """What strategies are made with."""

    strategy: str
    cells: Cells | None
    """Of ranges, and of the index of subsumption."""
    budget: int
    """Ranges that a neighbour is told of at most; with `both`, also boxes."""
    cover_index: str = "auto"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UsageError(
                f"unknown strategy {self.strategy!r}: {one_of(self.strategy, STRATEGIES)}"
            )
        if self.budget < 1:
            raise UsageError(f"a budget is at least one range; given: {self.budget}")
        if self.cells is None and self.strategy not in ("none", "covering"):
            raise UsageError(
                f"the strategy {self.strategy!r} needs cells\n"
                "  to do: give all brokers the same, such as Cells.uniform(space, bits, attributes)"
            )


class Plain:
    """Everything is told; no strategy at all."""

    form = "boxes"

    def __init__(self, space: Space, options: Options, *, same_cells: bool):
        self._space = space
        self._same_cells = same_cells
        """Whether the neighbour has the same cells, so that it understands ranges."""
        self._items: dict[int, Item] = {}
        """What each item is told as."""

    def change(self, come: Sequence[Wanted], go: Sequence[int]) -> Change:
        """Let items come and go; return which the neighbour must hear of, and which not any more.

        What comes is new, and what goes is there.
        """
        told: dict[int, Item] = {}
        withdrawn: dict[int, None] = {}
        filters: dict[int, Filter] = {}
        for item, one in come:
            self._items[item.name] = item
            if one is not None:
                filters[item.name] = one
            elif self._same_cells:
                told[item.name] = item
            else:
                self._items[item.name] = everything(instead_of=item.name)
                filters[item.name] = Filter(self._space, ((),))
        for forward in self._subscribed(filters):
            self._note(forward, told, withdrawn)
        for name in go:
            if isinstance(self._items[name], RangeItem):
                withdrawn[name] = None
            else:
                self._note(self._unsubscribed(name), told, withdrawn)
        for name in go:
            del self._items[name]
        return Change(list(told.values()), list(withdrawn))

    def _subscribed(self, filters: Mapping[int, Filter]) -> Sequence[Forward]:
        return [Forward([name], []) for name in filters]

    def _unsubscribed(self, name: int) -> Forward:
        return Forward([], [name])

    def _note(self, forward: Forward, told: dict[int, Item], withdrawn: dict[int, None]) -> None:
        """Note what one command comes to, after what others came to."""
        for name in forward.subscribe:
            item = self._items[int(name)]
            if item.name in withdrawn:
                del withdrawn[item.name]
            else:
                told[item.name] = item
        for name in forward.unsubscribe:
            gone = self._items[int(name)].name
            if told.pop(gone, None) is None:
                withdrawn[gone] = None


class Covering(Plain):
    """What no other item covers, and what was told before it was covered."""

    def __init__(self, space: Space, options: Options, *, same_cells: bool):
        super().__init__(space, options, same_cells=same_cells)
        self._set = self._new_set(options)

    def _new_set(self, options: Options) -> CoverSet | ExactSummary:
        return CoverSet(self._space, index=options.cover_index)

    def _subscribed(self, filters: Mapping[int, Filter]) -> Sequence[Forward]:
        if len(filters) < _MANY:
            return [self._set.subscribe(name, one) for name, one in filters.items()]
        lo, hi, owner = boxes_of(self._space, filters.values())
        boxes = Boxes.of(lo, hi, owner=owner, ids=list(filters), space=self._space)
        return self._set.subscribe_many(boxes)

    def _unsubscribed(self, name: int) -> Forward:
        return self._set.unsubscribe(name)


class Subsumption(Covering):
    """What doesn't lie inside the union of other items."""

    def _new_set(self, options: Options) -> CoverSet | ExactSummary:
        return ExactSummary(self._space, cells=options.cells)


class Merging:
    """The union of all items as few ranges.

    Ranges that were told stay as they are as long as they can, as every other one costs a message:
    they grow by what is new, and past the budget the shortest gaps are closed, some more than need
    be. What nobody wants any more is cut off once it may be much.
    """

    form = "ranges"

    def __init__(self, space: Space, options: Options):
        assert options.cells is not None
        self._summary = Summary(space, cells=options.cells)
        self._digest = digest_of(options.cells, space, {})
        self._budget = options.budget
        self._told = NOTHING
        self._items: dict[tuple[int, int], RangeItem] = {}
        self._left = 0
        """Items that went since the ranges were cut."""

    def change(self, come: Sequence[Wanted], go: Sequence[int]) -> Change:
        """Let items come and go; see `Plain.change`."""
        gained, lost = self._gained(come), self._lost(go)
        self._left += len(go) if lost else 0
        if self._left * _STALE > len(self._summary):
            self._left = 0
            self._told, _ = within_budget(self._summary.ranges(), self._budget)
        elif self._told.covers(gained):
            return Change([], [])
        else:
            self._told = joined([self._told, gained])
            if len(self._told) > self._budget:
                room = max(1, self._budget * 3 // 4)
                self._told, _ = within_budget(self._told, room)
        before = self._items
        ends = zip(self._told.starts.tolist(), self._told.ends.tolist(), strict=True)
        self._items = {pair: before.get(pair) or range_item(*pair) for pair in ends}
        return Change(
            [item for pair, item in self._items.items() if pair not in before],
            [item.name for pair, item in before.items() if pair not in self._items],
        )

    def _gained(self, come: Sequence[Wanted]) -> Ranges:
        """Add items; return what the union gains."""
        gained = []
        for item, one in come:
            if one is not None:
                gained.append(self._summary.subscribe(item.name, one).add)
            elif isinstance(item, RangeItem):
                ends = (np.array([end], np.uint64) for end in (item.first, item.last))
                given = Converted(Ranges(*ends), {}, self._digest)
                gained.append(self._summary.subscribe_ranges(item.name, given).add)
        return joined(gained)

    def _lost(self, go: Sequence[int]) -> bool:
        """Remove items; return whether the union loses something."""
        return bool(go) and len(self._summary.unsubscribe_many(go).drop.starts) > 0


class Both:
    """Covering; if that leaves more than the budget, ranges of what it leaves."""

    def __init__(self, space: Space, options: Options):
        self._covering = Covering(space, options, same_cells=True)
        self._merging = Merging(space, options)
        self._budget = options.budget
        self._filters: dict[int, Filter | None] = {}
        """Of all items."""
        self._left: dict[int, Item] = {}
        """What covering leaves."""
        self._ranges: dict[int, Item] = {}
        """What merging makes of that."""
        self._came_as_ranges = 0
        self.form = "boxes"

    def change(self, come: Sequence[Wanted], go: Sequence[int]) -> Change:
        """Let items come and go; see `Plain.change`."""
        for item, one in come:
            self._filters[item.name] = one
            self._came_as_ranges += one is None
        left = self._covering.change(come, go)
        added = [Wanted(item, self._filters[item.name]) for item in left.added]
        merged = self._merging.change(added, left.removed)
        for name in go:
            self._came_as_ranges -= self._filters.pop(name) is None
        before, change = self.form, left if self.form == "boxes" else merged
        _apply(left, self._left)
        _apply(merged, self._ranges)
        few = self._budget if before == "boxes" else self._budget // 2
        is_small = not self._came_as_ranges and len(self._left) <= few
        self.form = "boxes" if is_small else "ranges"
        if self.form == before:
            return change
        old, new = self._left, self._ranges
        if self.form == "boxes":
            old, new = new, old
        # What the last change did to the old form was never told.
        added_names = {item.name for item in change.added}
        gone = [name for name in old if name not in added_names] + change.removed
        return Change(list(new.values()), gone)


def _apply(change: Change, items: dict[int, Item]) -> None:
    for item in change.added:
        items[item.name] = item
    for name in change.removed:
        del items[name]


Strategy = Plain | Merging | Both
_BOXES = {"none": Plain, "covering": Covering, "subsumption": Subsumption}


def strategy_of(space: Space, options: Options, *, same_cells: bool) -> Strategy:
    """Return a new strategy for a link; without the same cells at both ends, there are no ranges.

    Then boxes that nothing covers take their place.
    """
    if same_cells and options.strategy == "merging":
        return Merging(space, options)
    if same_cells and options.strategy == "both":
        return Both(space, options)
    made: type[Plain] = _BOXES.get(options.strategy, Covering)
    return made(space, options, same_cells=same_cells)
