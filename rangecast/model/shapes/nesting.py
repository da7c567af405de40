"""Boxes for shapes nested in other shapes, so that covering takes nesting into account.

A subscription covers another one if each box of the other lies in one of its own boxes, and shapes
are compared only by number there. So a box that requires a whole shape gets one more box for each
shape inside it, which requires that shape: it adds no point, and covers the boxes of the other.

A box requires a whole shape if all other boxes of the shape's cover are there, too: a filter that
cuts a shape, as `x < 5` may, gets no more boxes. Conditions on texts are nested in the same way
(`rangecast.model.text.nesting`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.jit import jit
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import FULL, Pair
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.containment import contains
from rangecast.model.shapes.words import ShapeLiteral, literals_of
from rangecast.model.space import Space
from rangecast.model.text.nesting import TextNesting

_FEW = 8
"""New words that are compared with all others one by one."""


class Nesting:
    """Nesting of the shapes of a space's places, and of the conditions on its texts."""

    def __init__(self, space: Space):
        self.space = space
        self._axes = [axis for axis, attribute in enumerate(space) if isinstance(attribute, Place)]
        self._bounds: dict[int, dict[int, F64]] = {axis: {} for axis in self._axes}
        self._inside: dict[tuple[int, int], list[int]] = {}
        self._decided: set[Pair] = set()
        self._boxes: dict[tuple[int, int], tuple[F64, F64]] = {}
        self._texts = TextNesting(space)

    @classmethod
    def of_words(cls, space: Space) -> Nesting:
        """Return the nesting of all shapes in the vocabularies of a space."""
        made = cls(space)
        for axis in made._axes:
            words = range(len(space.attributes[axis].vocabulary))  # type: ignore[attr-defined]
            bounds = [made._uncut(axis, word) for word in words]
            if bounds:
                made.add(*(np.concatenate(side) for side in zip(*bounds, strict=True)))
        for axis in made._texts.axes:
            lo = np.full((len(space.attributes[axis].vocabulary), len(space)), -np.inf)  # type: ignore[attr-defined]
            lo[:, axis] = np.arange(len(lo))
            made._texts.add(lo)
        return made

    @property
    def is_needed(self) -> bool:
        """Return whether the space has any places or texts."""
        return bool(self._axes or self._texts.axes)

    @property
    def is_empty(self) -> bool:
        """Return whether no shape or text condition is known to lie inside another one."""
        return not self._inside and self._texts.is_empty

    def has_words(self, lo: F64) -> bool:
        """Return whether any of these boxes has a condition on a place or a text."""
        axes = [*self._axes, *self._texts.axes]
        return bool(axes) and bool(np.isfinite(lo[:, axes]).any())

    def add(self, lo: F64, hi: F64) -> list[Pair]:
        """Add the words that boxes, (boxes, d), refer to; return the new pairs."""
        new: list[Pair] = [*self._texts.add(lo)]
        for axis in self._axes:
            bounded = np.isfinite(lo[:, axis])
            if bounded.any():
                changed = self._widen(axis, lo[bounded], hi[bounded])
                new += self._pairs(axis, changed)
        return new

    def more_boxes(
        self, lo: F64, hi: F64, owner: I32, only: Iterable[Pair] | None = None
    ) -> tuple[F64, F64, I32]:
        """Return the additional boxes for nested words, and their owners.

        only   use only these pairs; by default, all known ones
        """
        inside, texts = self._inside, None
        if only is not None:
            inside, texts = {}, []
            for pair in only:
                if pair.axis in self._texts.axes:
                    texts.append(pair)
                else:
                    inside.setdefault((pair.axis, pair.outer), []).append(pair.inner)
        more = self._texts.more_boxes(lo, hi, owner, texts)
        for axis in self._axes:
            wanted = [outer for at, outer in inside if at == axis]
            numbers = np.floor(lo[:, axis])
            for group in self._groups(axis, lo, hi, owner, np.isin(numbers, wanted)):
                box, number = group[0], int(numbers[group[0]])
                if _cells(lo[group], hi[group]) != self._whole(axis, number, lo[box], hi[box]):
                    continue
                for inner in inside[axis, number]:
                    low, high = self._uncut(axis, inner)
                    sides = [*self._sides(axis), axis]
                    lower, upper = lo[box].copy(), hi[box].copy()
                    lower[sides], upper[sides] = low.min(axis=0)[sides], high.max(axis=0)[sides]
                    upper[axis] = inner + FULL
                    more.append((lower, upper, int(owner[box])))
        if not more:
            none = np.empty((0, lo.shape[1]))
            return none, none, np.empty(0, np.int32)
        lows, highs, owners = zip(*more, strict=True)
        return np.stack(lows), np.stack(highs), np.array(owners, np.int32)

    def _sides(self, axis: int) -> list[int]:
        place = self.space.attributes[axis]
        assert isinstance(place, Place)
        return [self.space.axis(coordinate.name) for coordinate in place.coordinates]

    def _widen(self, axis: int, lo: F64, hi: F64) -> list[int]:
        """Extend the bounds of shapes by those of boxes; return the shapes that changed."""
        x, y = self._sides(axis)
        known, changed = self._bounds[axis], []
        numbers = np.floor(lo[:, axis]).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        low = np.minimum.reduceat(lo[order][:, [x, y]], starts)
        high = np.maximum.reduceat(hi[order][:, [x, y]], starts)
        for number, made in zip(numbers[order[starts]], np.hstack([low, high]), strict=True):
            if not np.isfinite(made).all():
                continue  # what lies outside of shapes is inside of none
            before = known.get(int(number))
            if before is not None:
                made[:2], made[2:] = (
                    np.minimum(made[:2], before[:2]),
                    np.maximum(made[2:], before[2:]),
                )
                if (made == before).all():
                    continue
            known[int(number)] = made
            changed.append(int(number))
        return changed

    def _pairs(self, axis: int, changed: list[int]) -> list[Pair]:
        """Return the new pairs in which one shape changed."""
        if not changed:
            return []
        numbers = np.fromiter(self._bounds[axis], np.int64)
        bounds = np.stack([*self._bounds[axis].values()])
        is_new = np.isin(numbers, changed)
        new = []
        for outer, inner in _nested(bounds, is_new).tolist():
            pair = Pair(axis, int(numbers[outer]), int(numbers[inner]))
            if pair not in self._decided:
                self._decided.add(pair)
                if self._contains(pair):
                    self._inside.setdefault(pair[:2], []).append(pair.inner)
                    new.append(pair)
        return new

    def _contains(self, pair: Pair) -> bool:
        outer, inner = (self._literals(pair.axis, word) for word in pair[1:])
        return all(any(contains(polygon, other) for other in inner) for polygon in outer)

    def _literals(self, axis: int, number: int) -> list[ShapeLiteral]:
        place = self.space.attributes[axis]
        assert isinstance(place, Place)
        return literals_of(place, place.literal(number))

    def _uncut(self, axis: int, number: int) -> tuple[F64, F64]:
        """Return the boxes of a filter that consists of one conjunction only."""
        if (axis, number) not in self._boxes:
            place = self.space.attributes[axis]
            assert isinstance(place, Place)
            text = place.literal(number)
            self._boxes[axis, number] = Filter.parse(text, self.space).arrays()
        return self._boxes[axis, number]

    def _whole(self, axis: int, number: int, lo: F64, hi: F64) -> set[bytes]:
        """Return the boxes of a conjunction, with the bounds of a box on all other attributes."""
        low, high = (bounds.copy() for bounds in self._uncut(axis, number))
        others = np.setdiff1d(np.arange(len(lo)), [*self._sides(axis), axis])
        low[:, others], high[:, others] = lo[others], hi[others]
        return _cells(low, high)

    def _groups(self, axis: int, lo: F64, hi: F64, owner: I32, chosen: Bool) -> list[list[int]]:
        """Group the boxes of each owner that differ only in the coordinates of a place."""
        others = np.setdiff1d(np.arange(lo.shape[1]), [*self._sides(axis), axis])
        groups: dict[tuple[int, float, bytes, bytes], list[int]] = {}
        for box in np.flatnonzero(chosen).tolist():
            rest = lo[box, others].tobytes(), hi[box, others].tobytes()
            key = int(owner[box]), float(np.floor(lo[box, axis])), *rest
            groups.setdefault(key, []).append(box)
        return [*groups.values()]


def _cells(lo: F64, hi: F64) -> set[bytes]:
    return {low.tobytes() + high.tobytes() for low, high in zip(lo + 0.0, hi + 0.0, strict=True)}


def _nested(bounds: F64, is_new: Bool) -> I64:
    """Return pairs (outer, inner) of nested rectangles, of which at least one is new, (n, 2)."""
    if is_new.sum() <= _FEW:
        nested = [np.empty((0, 2), np.int64)]
        for row in np.flatnonzero(is_new):
            low, high = bounds[:, :2], bounds[:, 2:]
            holds = (low <= low[row]).all(axis=1) & (high[row] <= high).all(axis=1)
            held = (low[row] <= low).all(axis=1) & (high <= high[row]).all(axis=1)
            holds[row] = held[row] = False
            nested += [np.stack([np.flatnonzero(holds), np.full(holds.sum(), row)], axis=1)]
            nested += [np.stack([np.full(held.sum(), row), np.flatnonzero(held)], axis=1)]
        return np.unique(np.concatenate(nested), axis=0)
    side = max(1, min(1024, int(np.sqrt(len(bounds)))))
    start, reach = bounds[:, :2].min(axis=0), np.ptp(bounds[:, :2], axis=0)
    reach[~(reach > 0)] = 1.0
    cells = np.clip((bounds - np.tile(start, 2)) / np.tile(reach, 2) * side, 0, side - 1)
    cells = cells.astype(np.int64)
    at = cells[:, 0] * side + cells[:, 1]
    order = np.argsort(at, kind="stable")
    offsets = np.searchsorted(at[order], np.arange(side * side + 1))
    pairs = np.empty(
        (_fill(bounds, cells, side, order, offsets, is_new, np.empty((0, 2), np.int64)), 2),
        np.int64,
    )
    _fill(bounds, cells, side, order, offsets, is_new, pairs)
    return pairs


@jit
def _fill(
    bounds: F64, cells: I64, side: int, order: I64, offsets: I64, is_new: Bool, pairs: I64
) -> int:
    """Write the pairs of `_nested` up to the capacity; return their total number."""
    count = 0
    for outer in range(len(bounds)):
        for column in range(cells[outer, 0], cells[outer, 2] + 1):
            first = column * side
            for entry in range(
                offsets[first + cells[outer, 1]], offsets[first + cells[outer, 3] + 1]
            ):
                inner = order[entry]
                if inner == outer or not (is_new[inner] or is_new[outer]):
                    continue
                if (
                    bounds[outer, 0] <= bounds[inner, 0]
                    and bounds[outer, 1] <= bounds[inner, 1]
                    and bounds[inner, 2] <= bounds[outer, 2]
                    and bounds[inner, 3] <= bounds[outer, 3]
                ):
                    if count < len(pairs):
                        pairs[count, 0], pairs[count, 1] = outer, inner
                    count += 1
    return count


def with_nested(boxes: Boxes, nesting: Nesting | None = None) -> Boxes:
    """Return a set with boxes for nested shapes added, or the set itself if there are none.

    nesting   nesting of the shapes, if known; by default it is computed from the set
    """
    if boxes.space is None:
        return boxes
    if nesting is None:
        nesting = Nesting(boxes.space)
        if not nesting.has_words(boxes.lo):
            return boxes
        nesting.add(boxes.lo, boxes.hi)
    lo, hi, owner = nesting.more_boxes(boxes.lo, boxes.hi, boxes.owner)
    if not len(lo):
        return boxes
    owner = np.concatenate([boxes.owner, owner])
    order = np.argsort(owner, kind="stable")
    return Boxes.of(
        np.concatenate([boxes.lo, lo])[order],
        np.concatenate([boxes.hi, hi])[order],
        owner=owner[order],
        ids=boxes.ids,
        scores=boxes.scores,
        weights=boxes.weights,
        space=boxes.space,
    )
