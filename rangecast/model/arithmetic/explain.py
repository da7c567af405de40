"""Explain comparisons for one event: `x + y is 12.5`, `at most 10 asked`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.comparisons import (
    comparison_of,
    has_attributes,
    mirrored,
    operand_text,
    program_of,
    values_of,
)
from rangecast.model.arithmetic.programs import compare, sides
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.shapes.geometry import number_text
from rangecast.model.shapes.verification.places import Places
from rangecast.model.shapes.verification.programs import Programs
from rangecast.model.space import Space

_ASKED = {"<": "less than ", "<=": "at most ", ">": "more than ", ">=": "at least ", "=": ""}
_ASKED |= {"!=": "other than "}
_FIRST, _LAST, _WIDTH = 3, 4, 6
"""Columns of `Programs.literals`, and how many it has."""


class LiteralResult(NamedTuple):
    """Result of evaluating one literal on an event."""

    value: str
    asked: str
    holds: bool


def compared(space: Space, attribute: Arithmetic, word: str, point: F64) -> list[LiteralResult]:
    """Evaluate the literals of a conjunction on an event; return the failing ones, if any."""
    comparisons = [_compared(space, literal, point) for literal in attribute.literals_in(word)]
    return [comparison for comparison in comparisons if not comparison.holds] or comparisons


def _compared(space: Space, literal: str, point: F64) -> LiteralResult:
    comparison = comparison_of(space, literal)
    if not has_attributes(comparison[0]):
        comparison = mirrored(comparison)
    left, sign, right = comparison
    program, is_swapped = program_of(space, comparison)
    operation, x, y = sides(program, 0, len(program), point, 0)
    holds = operation >= 0 and compare(operation, x, y)
    x, y = (y, x) if is_swapped else (x, y)
    name, bound = operand_text(left), operand_text(right)
    if operation < 0:
        present = all(math.isfinite(value) for value in values_of(space, comparison, point))
        return LiteralResult(f"{name} is {'undefined' if present else 'missing'}", "", False)
    other = f"{bound}, {number_text(y)}," if has_attributes(right) else bound
    return LiteralResult(f"{name} is {number_text(x)}", f"{_ASKED[sign]}{other} asked", bool(holds))


@jit
def _lacks(table: I64, words: I64, point: F64, shares: F64) -> None:
    """Write how far each conjunction is from matching, from 0 to 1; 1 if a side is undefined."""
    programs = pointers(opened(table, Programs))
    at = pointer(point, 0)
    for i in range(len(words)):
        share = 0.0
        for literal in range(programs.words[words[i]], programs.words[words[i] + 1]):
            row = _WIDTH * literal
            first, last = programs.literals[row + _FIRST], programs.literals[row + _LAST]
            operation, x, y = sides(programs.numbers, first, last, at, 0)
            if operation < 0:
                share = 1.0
            elif not compare(operation, x, y):
                gap = abs(x - y)
                own = gap / (gap + max(max(abs(x), abs(y)), 1.0)) if math.isfinite(gap) else 1.0
                share = max(share, own)
        shares[i] = share


def lacks(places: Places, axis: int, words: F64, point: F64) -> F64:
    """Return how far each conjunction is from matching a point (d,), from 0 to 1."""
    tables = places.tables()
    numbers = tables.word_of[tables.place_of_axis[axis], words.astype(np.int64)]
    shares = np.empty(len(words))
    _lacks(tables.programs.table, numbers, np.ascontiguousarray(point), shares)
    return shares
