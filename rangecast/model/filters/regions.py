"""Algebra of filters: sets of ranges on one axis, and unions of products of such sets.

    Range     (lo, hi)                closed; ends on the grid of its attribute; NULL is missing
    Ranges    (Range, ...)            ascending, no two overlap or touch on the grid, NULL last
    Product   ((axis, Ranges), ...)   ascending by axis; an absent axis is unrestricted
    Region    [Product, ...]          their union

Conditions on a single attribute stay one set of ranges, so a thousand `!=` on it are one product.
`boxes` splits products into boxes, whose sets are single ranges, as the last step.

Cost: unions and intersections of sets take n log n. `absorbed` takes one pass over n products
with bit masks of n bits, instead of n^2 comparisons of products.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import product as cartesian

from rangecast.model.attributes.base import MISSING, Attribute, Interval
from rangecast.model.attributes.numbers import double_at_least, double_at_most
from rangecast.model.attributes.residuals import Residual
from rangecast.model.attributes.timestamps import FIRST_MOMENT, LAST_MOMENT

Ranges = tuple[Interval, ...]
Product = tuple[tuple[int, Ranges], ...]
Region = list[Product]
Box = tuple[tuple[int, float, float], ...]
"""A product of single ranges, as filters hold it: (axis, lo, hi), ascending by axis."""

NULL: Interval = (MISSING, MISSING)

_CYCLES = 3


def after(attribute: Attribute, coordinate: float) -> float:
    """Return the next coordinate of an attribute's grid."""
    if attribute.type == "number":
        return math.nextafter(coordinate, math.inf) + 0.0
    return double_at_least(int(coordinate) + 1)


def before(attribute: Attribute, coordinate: float) -> float:
    """Return the previous coordinate of an attribute's grid."""
    if attribute.type == "number":
        return math.nextafter(coordinate, -math.inf) + 0.0
    return double_at_most(int(coordinate) - 1)


def _touch(attribute: Attribute, low: Interval, high: Interval) -> bool:
    """Return whether two ranges, ordered by their start, overlap or touch."""
    if high[0] <= low[1]:
        return True
    if isinstance(attribute, Residual):  # two words are two conditions, whatever their numbers are
        return False
    return high[0] != MISSING and high[0] <= after(attribute, low[1])


def union(attribute: Attribute, ranges: Iterable[Interval]) -> Ranges:
    """Return the union of ranges."""
    merged: list[Interval] = []
    for current in sorted(ranges):
        if merged and _touch(attribute, merged[-1], current):
            if current[1] > merged[-1][1]:
                merged[-1] = merged[-1][0], current[1]
        else:
            merged.append(current)
    return tuple(merged)


def intersection(sets: Sequence[Ranges]) -> Ranges:
    """Return the intersection of sets of ranges."""
    if all(len(ranges) == 1 for ranges in sets):
        lo = max(ranges[0][0] for ranges in sets)
        hi = min(ranges[0][1] for ranges in sets)
        return ((lo, hi),) if lo <= hi else ()
    starts = sorted(lo for ranges in sets for lo, _ in ranges)
    ends = sorted(hi for ranges in sets for _, hi in ranges)
    common: list[Interval] = []
    closed = 0
    for opened, lo in enumerate(starts, start=1):
        while ends[closed] < lo:
            closed += 1
        # The ranges of one set are disjoint: as many open ones as sets means one of each.
        if opened - closed == len(sets):
            common.append((lo, ends[closed]))
    return tuple(common)


def common(attribute: Attribute, sets: Sequence[Ranges]) -> Ranges:
    """Return the intersection of an attribute's sets; conjunctions are joined."""
    if not isinstance(attribute, Residual):
        return intersection(sets)
    words = {number: attribute.literal(number) for ranges in sets for number, _ in ranges}
    words_ = {(words[lo], hi - lo) for lo, hi in sets[0]}
    for ranges in sets[1:]:
        words_ = {
            (attribute.both(known, words[lo]), min(full, hi - lo))
            for known, full in words_
            for lo, hi in ranges
        }
    numbers = [(attribute.number(word), full) for word, full in sorted(words_)]
    return union(attribute, [(number, number + full) for number, full in numbers])


def complement(attribute: Attribute, ranges: Ranges) -> Ranges:
    """Return the complement within the domain. A missing value is in neither set."""
    gaps: list[Interval] = []
    start, last = attribute.domain
    for lo, hi in ranges:
        if lo > start:
            gaps.append((start, before(attribute, lo)))
        if hi >= last:
            return tuple(gaps)
        start = after(attribute, hi)
    return (*gaps, (start, last))


def snapped(attribute: Attribute, lo: float, hi: float) -> list[Interval]:
    """Snap a range to the grid and clip it to the domain; +inf is a missing value."""
    pieces = [NULL] if hi == MISSING else []
    if lo == MISSING:
        return pieces
    if attribute.type != "number":
        lo = double_at_least(math.ceil(lo)) if lo > -math.inf else lo
        hi = double_at_most(math.floor(hi)) if hi < math.inf else hi
    if attribute.type == "timestamp":
        # Beyond the first and the last year there is no moment, and no text for one.
        lo = lo if lo >= FIRST_MOMENT else -math.inf
        hi = hi if hi <= LAST_MOMENT else math.inf
        if lo > LAST_MOMENT or hi < FIRST_MOMENT:
            return pieces
    inside = attribute.clip(lo + 0.0, hi + 0.0)
    return pieces if inside is None else [inside, *pieces]


def meet(attributes: Sequence[Attribute], first: Product, second: Product) -> Product | int:
    """Return the intersection of two products, or the axis on which it is empty."""
    if not first or not second:
        return first or second
    sets = dict(first)
    for axis, ranges in second:
        known = sets.get(axis)
        if known is not None and known != ranges:
            ranges = common(attributes[axis], (known, ranges))
            if not ranges:
                return axis
        sets[axis] = ranges
    return tuple(sorted(sets.items()))


def axes_of(region: Region) -> set[int]:
    """Return the axes that any product of a region restricts."""
    return {axis for product in region for axis, _ in product}


def joined(attributes: Sequence[Attribute], region: Iterable[Product]) -> Region:
    """Merge products that differ on only one axis.

    It makes a few passes over the axes. Missed merges only make the list longer; `boxes` merges
    completely.
    """
    alive = dict.fromkeys(region)
    for _ in range(_CYCLES):
        count = len(alive)
        if count < 2:
            break
        members: dict[int, list[Product]] = {}
        for product in alive:
            for axis, _ranges in product:
                members.setdefault(axis, []).append(product)
        for axis in sorted(members):
            for group in _group_by_axis(axis, (p for p in members[axis] if p in alive)):
                joined_ = _one(attributes[axis], axis, group)
                for product in group:
                    del alive[product]
                alive[joined_] = None
                for other, _ranges in joined_:
                    members[other].append(joined_)
        if len(alive) == count:
            break
    return list(alive)


def _group_by_axis(axis: int, products: Iterable[Product]) -> list[list[Product]]:
    """Group the products that differ only on this axis."""
    groups: dict[Product, list[Product]] = {}
    for product in dict.fromkeys(products):
        groups.setdefault(tuple([p for p in product if p[0] != axis]), []).append(product)
    return [group for group in groups.values() if len(group) > 1]


def _one(attribute: Attribute, axis: int, group: list[Product]) -> Product:
    every = (range_ for product in group for a, ranges in product if a == axis for range_ in ranges)
    ranges = union(attribute, every)
    return tuple((a, ranges if a == axis else known) for a, known in group[0])


def absorbed(region: Iterable[Product]) -> Region:
    """Return the region without products that lie inside another one.

    Exact for boxes. For sets of several ranges, only equal ones are recognized.
    """
    products = list(dict.fromkeys(region))
    if len(products) < 2:
        return products
    members: dict[int, list[tuple[Ranges, int]]] = {}
    for index, product in enumerate(products):
        for axis, ranges in product:
            members.setdefault(axis, []).append((ranges, 1 << index))
    inside_of = {axis: _Inside(entries) for axis, entries in members.items()}
    dropped = 0
    for index, product in enumerate(products):
        inside = -1
        for axis, ranges in product:
            inside &= inside_of[axis].mask(ranges)
        dropped |= inside & ~(1 << index)
    return [product for index, product in enumerate(products) if not dropped >> index & 1]


class _Inside:
    """Index of one axis: which products lie inside a set of ranges, as a bit mask."""

    def __init__(self, entries: list[tuple[Ranges, int]]):
        self.starting_from = _running_union([(-ranges[0][0], bit) for ranges, bit in entries])
        self.ending_by = _running_union([(ranges[-1][1], bit) for ranges, bit in entries])
        self.equal: dict[Ranges, int] = {}
        for ranges, bit in entries:
            self.equal[ranges] = self.equal.get(ranges, 0) | bit

    def mask(self, ranges: Ranges) -> int:
        if len(ranges) > 1:
            return self.equal[ranges]
        return self.starting_from[-ranges[0][0]] & self.ending_by[ranges[0][1]]


def _running_union(keyed: list[tuple[float, int]]) -> dict[float, int]:
    """Return for each key the union of the bits of all entries up to that key."""
    masks: dict[float, int] = {}
    bits = 0
    for key, bit in sorted(keyed):
        bits |= bit
        masks[key] = bits
    return masks


def size(product: Product) -> int:
    """Return the number of boxes in a product."""
    return math.prod([len(ranges) for _, ranges in product])


def boxes(attributes: Sequence[Attribute], region: Region) -> Region:
    """Split a region into sorted boxes, without products that lie inside others.

    No box lies inside another, and no two can be merged.
    """
    single: Region = []
    for product in region:
        axes = [axis for axis, _ in product]
        for chosen in cartesian(*(ranges for _, ranges in product)):
            single.append(
                tuple([(axis, (range_,)) for axis, range_ in zip(axes, chosen, strict=True)])
            )
    # The sets of one product are disjoint ranges apart from each other: so are its boxes.
    if len(region) > 1:
        if len(single) > len(region):
            single = absorbed(single)
        merged = _Merging(attributes, single).boxes
        single = absorbed(merged) if len(merged) < len(single) else single
    return sorted(single)


def sparse(region: Region) -> tuple[Box, ...]:
    """Return boxes in the sparse form that filters use."""
    return tuple([tuple([(a, r[0][0], r[0][1]) for a, r in product]) for product in region])


class _Merging:
    """Merges boxes that are equal on all axes but one, where their ranges overlap or touch.

    `ranges_by_rest` maps an axis and a box without it to the disjoint ranges on this axis, so that
    a new range can only merge with its neighbours. Each merge removes one box.
    """

    def __init__(self, attributes: Sequence[Attribute], region: Region):
        self.attributes = attributes
        self.boxes: dict[Product, None] = {}
        self.ranges_by_rest: dict[tuple[int, Product], list[Interval]] = {}
        pending = sorted(region, reverse=True)
        while pending:
            box = pending.pop()
            if box in self.boxes:
                continue
            ranges_by_rest = self._shelves(box)
            grown = self._grown(box, ranges_by_rest)
            if grown is not None:
                pending.append(grown)
                continue
            self.boxes[box] = None
            for (_, (range_,)), shelf in zip(box, ranges_by_rest, strict=True):
                insort(shelf, range_)

    def _shelves(self, box: Product) -> list[list[Interval]]:
        return [
            self.ranges_by_rest.setdefault((axis, box[:index] + box[index + 1 :]), [])
            for index, (axis, _) in enumerate(box)
        ]

    def _grown(self, box: Product, ranges_by_rest: list[list[Interval]]) -> Product | None:
        """Merge a box with one on the shelves, and remove that one; `None` if none fits."""
        for index, shelf in enumerate(ranges_by_rest):
            if not shelf:
                continue
            axis, (range_,) = box[index]
            at = bisect_left(shelf, range_)
            for other in shelf[max(at - 1, 0) : at + 1]:
                low, high = sorted((range_, other))
                if _touch(self.attributes[axis], low, high):
                    self._take((*box[:index], (axis, (other,)), *box[index + 1 :]))
                    both = low[0], max(low[1], high[1])
                    return (*box[:index], (axis, (both,)), *box[index + 1 :])
        return None

    def _take(self, box: Product) -> None:
        del self.boxes[box]
        for (_, (range_,)), shelf in zip(box, self._shelves(box), strict=True):
            del shelf[bisect_left(shelf, range_)]
