"""Number of words and patterns that the text of an event lacks, by which `why_not` orders."""

from __future__ import annotations

import math

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import jit
from rangecast.model.shapes.verification.places import Places
from rangecast.model.shapes.verification.programs import LITERAL, TEXT, Programs
from rangecast.model.text.programs import lacking, text_holds


@jit
def _lacks(table: I64, words: I64, value: float, shares: F64) -> None:
    """Write n / (n + 1) for n words that a conjunction lacks; 1 without a text."""
    p = pointers(opened(table, Programs))
    for i in range(len(words)):
        failed, is_there = 0, math.isfinite(value)
        for literal in range(p.words[words[i]], p.words[words[i] + 1]):
            row = LITERAL * literal
            kind, form, first = p.literals[row] - TEXT, p.literals[row + 2], p.literals[row + 3]
            answer = text_holds(p.numbers, first, kind, form, value)
            is_there = is_there and answer >= 0
            if p.literals[row + 1] == 1:
                failed += answer == 1
            elif answer == 0:
                failed += lacking(p.numbers, first, kind, form, value)
        shares[i] = failed / (failed + 1.0) if is_there else 1.0


def lacks_of_texts(places: Places, axis: int, words: F64, point: F64) -> F64:
    """Return how far each conjunction on a text is from matching a point (d,), from 0 to 1."""
    tables = places.tables()
    numbers = tables.word_of[tables.place_of_axis[axis], words.astype(np.int64)]
    shares = np.empty(len(words))
    read, alive = places.readable(np.ascontiguousarray(point)[None], axis)
    _lacks(tables.programs.table, numbers, float(read[0, axis]), shares)
    del alive
    return shares
