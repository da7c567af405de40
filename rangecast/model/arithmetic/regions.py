"""Arithmetic comparisons as regions of the filter algebra, simplified box by box."""

from __future__ import annotations

from functools import reduce

import numpy as np

from rangecast.kernels.arrays import F64, Bool
from rangecast.model.arithmetic.comparisons import arithmetic_of, literals_of, programs_of
from rangecast.model.arithmetic.intervals import EMPTY, narrowed
from rangecast.model.arithmetic.intervals import FULL as ALWAYS
from rangecast.model.arithmetic.tighten import arithmetic_axis, grids_of, joined_programs
from rangecast.model.attributes.residuals import FULL, Arithmetic
from rangecast.model.filters.grammar import Condition
from rangecast.model.filters.regions import Product, Region, union
from rangecast.model.space import Space


def region_of_comparisons(space: Space, text: str, node: Condition, *, negated: bool) -> Region:
    """Return the region of a condition: one conjunction, or if negated one per comparison."""
    attribute = arithmetic_of(space, text, node)
    literals = literals_of(space, text, node, negated=negated)
    words = literals if negated else [reduce(attribute.both, literals)]
    numbers = [attribute.number(word) for word in words]
    ranges = union(attribute, [(number, number) for number in numbers])
    return [((space.axis(attribute.name), ranges),)]


def decided(space: Space, boxes: Region) -> Region:
    """Drop boxes whose arithmetic is always false; mark those where it is always true."""
    axis = arithmetic_axis(space)
    if axis < 0:
        return boxes
    grids = grids_of(space)
    decisions = (_decided(space, axis, box, grids) for box in boxes)
    return [box for box in decisions if box is not None]


def _decided(space: Space, axis: int, box: Product, grids: tuple[Bool, F64]) -> Product | None:
    number = next((ranges[0][0] for a, ranges in box if a == axis), None)
    if number is None:
        return box
    attribute = space.attributes[axis]
    assert isinstance(attribute, Arithmetic)
    lo, hi = np.full(len(space), -np.inf), np.full(len(space), np.inf)
    for a, ranges in box:
        lo[a], hi[a] = ranges[0]
    programs, ends = joined_programs(programs_of(space, attribute, attribute.literal(number)))
    outcome = narrowed(programs, ends, lo, hi, *grids)
    if outcome == EMPTY:
        return None
    if outcome == ALWAYS:
        word = axis, ((number, number + FULL),)
        return tuple(word if a == axis else (a, ranges) for a, ranges in box)
    return box
