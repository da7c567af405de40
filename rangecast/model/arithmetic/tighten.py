"""Tighten the bounds of boxes by their arithmetic before an index is built.

Boxes keep the ranges of their filters; only the index uses the narrower ones. This loses no
candidates: every event that matches a box and its comparisons lies in the narrower box, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.comparisons import programs_of
from rangecast.model.arithmetic.intervals import narrowed
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.space import Space


def grids_of(space: Space) -> tuple[Bool, F64]:
    """Return which attributes have integer coordinates, (d,), and the domains, (d, 2)."""
    whole = [not isinstance(attribute, Number) for attribute in space]
    return np.array(whole), np.array([attribute.domain for attribute in space])


def arithmetic_axis(space: Space) -> int:
    """Return the axis of a space's arithmetic, or -1 if it has none."""
    return next(
        (axis for axis, attribute in enumerate(space) if isinstance(attribute, Arithmetic)), -1
    )


def joined_programs(programs: Sequence[F64]) -> tuple[F64, I64]:
    """Concatenate programs; return them with the start of each and the end of the last."""
    ends = np.cumsum([0, *(len(program) for program in programs)])
    return np.concatenate(programs), ends.astype(np.int64)


@jit
def _tighten(
    words: I64,
    numbers: F64,
    ends: I64,
    first: I64,
    lo: F64,
    hi: F64,
    whole: Bool,
    domains: F64,
) -> None:
    """Narrow boxes (boxes, d) by their conjunctions; -1 means none.

    numbers, ends   concatenated programs, and the start of each
    first           (words + 1,) first program of each conjunction
    """
    low, high = np.empty(lo.shape[1]), np.empty(lo.shape[1])
    for box in range(len(words)):
        word = words[box]
        if word < 0:
            continue
        low[:], high[:] = lo[box], hi[box]
        own = ends[first[word] : first[word + 1] + 1]
        if narrowed(numbers, own, low, high, whole, domains):
            lo[box], hi[box] = low, high


def tighten(space: Space, lo: F64, hi: F64) -> None:
    """Narrow boxes, (boxes, d), in place, by their arithmetic."""
    axis = arithmetic_axis(space)
    if axis < 0:
        return
    attribute = space.attributes[axis]
    assert isinstance(attribute, Arithmetic)
    mentioned = lo[:, axis] > -np.inf
    if not mentioned.any():
        return
    known, literal = np.unique(lo[mentioned, axis], return_inverse=True)
    words = np.full(len(lo), -1, np.int64)
    words[mentioned] = literal
    programs = [programs_of(space, attribute, attribute.literal(code)) for code in known.tolist()]
    numbers, ends = joined_programs([program for of_word in programs for program in of_word])
    first = np.cumsum([0, *(len(of_word) for of_word in programs)]).astype(np.int64)
    _tighten(words, numbers, ends, first, lo, hi, *grids_of(space))
