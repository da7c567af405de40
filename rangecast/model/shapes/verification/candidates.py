"""Verification of candidates: whether a subscription matches an event, including its shapes.

An index finds rows by their boxes without shapes. If all boxes of a row have the same single
literal, this literal alone decides, because the row is a candidate already. Most rows are of this
form, and their literal is cached (`Verifier`). All others are compared again, box by box.

Candidates are processed in groups, so that their shapes are prefetched together.
"""

from __future__ import annotations

import threading
from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bits import ZERO, prefetch
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers, table_size
from rangecast.kernels.jit import jit, jit_single
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import Bounds, append, no_rows
from rangecast.model.shapes.verification.cells import by_listed_edges, cell_at, state_at
from rangecast.model.shapes.verification.grids import DOUBTFUL, GRID
from rangecast.model.shapes.verification.places import places_of
from rangecast.model.shapes.verification.programs import (
    LITERAL,
    PLANE_POLYGON,
    PLANE_RING,
    POLYGON,
    RING,
    Programs,
    holds,
    in_ring,
    prefetch_literal,
    verify_literal,
)
from rangecast.model.shapes.verification.sketches import SKETCH, in_sketch
from rangecast.model.space import Space

_SEVERAL = -1
"""A row that no single literal decides."""
_TOGETHER = 64
"""Candidates whose shapes are fetched together."""
_LINE, _FEW = 8, 20
"""Numbers of a cache line, and edges of a ring that are fetched before their number is known."""
_AXES = 32
"""Bits of a note that are axes: x in the upper half, y in the lower one."""
_CELLS = 1 << 62
"""Added to the note of a polygon with cells."""


def bounds_of_boxes(boxes: Boxes) -> Bundle[Bounds]:
    """Return the boxes of a static set in the form that verification reads."""
    return append(no_rows(), 0, boxes, np.zeros(boxes.rows, np.int64)).bounds


@jit
def _decisive(
    table: I64,
    place_of_axis: I64,
    word_of: I64,
    programs_table: I64,
    first: int,
    last: int,
    literals: I64,
) -> None:
    """Write the deciding literal of each row from `first` to `last` (exclusive).

    The value is -2 - literal, or _SEVERAL; for a ring on a plane, its cache line in the programs'
    numbers and its axes; for one polygon with cells, _CELLS, its number and its axes.
    """
    bounds = pointers(opened(table, Bounds))
    p = pointers(opened(programs_table, Programs))
    for row in range(first, last):
        word = -1
        is_one = True
        for box in range(bounds.first_box[row], bounds.first_box[row + 1]):
            words = 0
            for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
                attribute = place_of_axis[bounds.axis[term]]
                if attribute >= 0:
                    literal = word_of[attribute, int(bounds.lo[term])]
                    is_one = is_one and (word < 0 or literal == word)
                    word = literal
                    words += 1
            is_one = is_one and words == 1
        literals[row] = _SEVERAL
        if is_one and word >= 0 and p.words[word + 1] - p.words[word] == 1:
            number = p.words[word]
            at = LITERAL * number
            kind, start, end = p.literals[at], p.literals[at + 3], p.literals[at + 4]
            literals[row], axes = -2 - number, p.literals[at + 5]
            if p.literals[at + 1] != 0:
                continue
            if kind == PLANE_RING:
                literals[row] = start // _LINE << _AXES | axes
            elif kind == PLANE_POLYGON and end - start == 1:
                literals[row] = _CELLS | start << _AXES | axes


@jit
def is_held(
    bounds: Any, row: int, place_of_axis: I64, word_of: I64, programs: Any, points: Any, event: int
) -> int:
    """Return whether a candidate row matches the event at points[event].

    Returns 1 if it does, + 2 if a conjunction was evaluated because boxes alone did not decide.

    For a row with one box only its conjunctions are evaluated: candidates already lie in the box.
    A row whose box only its index has (`RowArrays.source`) has no conjunctions.
    """
    first, last = bounds.first_box[row], bounds.first_box[row + 1]
    if first == last:
        return 1
    looked = 0
    for box in range(first, last):
        held = True
        for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
            axis = bounds.axis[term]
            number = place_of_axis[axis]
            if number >= 0:
                word = word_of[number, int(bounds.lo[term])]
                if bounds.hi[term] == bounds.lo[term]:  # else the box is full
                    looked = 2
                    held = holds(programs, word, points, event)
            elif last - first > 1:
                value = points[event + axis]
                held = bounds.lo[term] <= value <= bounds.hi[term]
            if not held:
                break
        if held:
            return 1 + looked
    return looked


@jit
def _ring_of(note: int) -> int:
    """Return the start of a cached ring's numbers."""
    return (note >> _AXES) * _LINE


@jit
def _polygon_of(note: int) -> int:
    """Return the number of a cached polygon with cells."""
    return (note ^ _CELLS) >> _AXES


@jit
def _fetch_cell(p: Any, note: int, points: Any, event: int) -> None:
    """Prefetch the cell of an event in a cached polygon."""
    x, y = points[event + (note >> 16 & 0xFFFF)], points[event + (note & 0xFFFF)]
    polygon = _polygon_of(note)
    prefetch(p.cells, cell_at(p, POLYGON * polygon, GRID * polygon, x, y)[0])


@jit
def _fetch_edges(p: Any, note: int, points: Any, event: int, is_listed: bool) -> None:
    """Prefetch the list of edges that meet the cell of an event, or the edges, if that is there."""
    x, y = points[event + (note >> 16 & 0xFFFF)], points[event + (note & 0xFFFF)]
    number = _polygon_of(note)
    polygon = POLYGON * number
    cell = cell_at(p, polygon, GRID * number, x, y)[0]
    first, corners = p.polygons[polygon + 2], p.polygons[polygon + 3]
    begin, end = first + (p.cells[cell] >> 2), first + (p.cells[cell + 1] >> 2)
    if not is_listed:
        prefetch(p.listed, begin)
        return
    for i in range(begin, min(end, begin + _FEW)):
        prefetch(p.corners, 2 * (corners + p.listed[i]))


@jit
def _sketched(p: Any, note: int, points: Any, event: int) -> int:
    """Return the result of a cached ring's sketch, or of a polygon's cell: 1, 0 or DOUBTFUL."""
    x, y = points[event + (note >> 16 & 0xFFFF)], points[event + (note & 0xFFFF)]
    if note >= _CELLS:
        polygon = _polygon_of(note)
        return state_at(p, POLYGON * polygon, GRID * polygon, x, y)
    return in_sketch(p.numbers, _ring_of(note), x, y)


@jit
def _verify_edges(p: Any, note: int, points: Any, event: int) -> int:
    """Return whether a cached ring or polygon contains an event that its sketch doesn't decide.

    The answer is that of `verify_literal`.
    """
    x, y = points[event + (note >> 16 & 0xFFFF)], points[event + (note & 0xFFFF)]
    if note >= _CELLS:
        polygon = POLYGON * _polygon_of(note)
        side = by_listed_edges(p, polygon, GRID * _polygon_of(note), x, y)
        if side & 3 == DOUBTFUL:
            return verify_literal(p, p.polygons[polygon + 7], points, event)
        return (side & 1) + 2 * (side >> 2)
    n, ring = p.numbers, _ring_of(note)
    side = in_ring(n, ring, x, y)
    if side == DOUBTFUL:
        return verify_literal(p, int(n[ring + SKETCH + 1]), points, event)
    return side + 2 * int(n[ring + SKETCH])


@jit
def _hold(
    literals: I64,
    table: I64,
    place_of_axis: I64,
    word_of: I64,
    programs_table: I64,
    points: F64,
    offsets: I64,
    rows: I32,
    held: Bool,
) -> tuple[int, int]:
    """Write whether each candidate matches its event.

    Returns the number of candidates verified by conjunctions, and of edges visited.
    """
    bounds = pointers(opened(table, Bounds))
    p = pointers(opened(programs_table, Programs))
    at = pointer(points, 0)
    d = points.shape[1]
    verified = edges = 0
    event_of = _events_of(offsets, len(rows))
    doubtful = np.empty(_TOGETHER, np.int64)
    for first in range(0, len(rows), _TOGETHER):
        last = min(first + _TOGETHER, len(rows))
        with_cells = 0
        for c in range(first, last):
            note = literals[rows[c]]
            if note >= _CELLS:
                prefetch(p.polygons, POLYGON * _polygon_of(note))
                prefetch(p.hulls, GRID * _polygon_of(note))
                with_cells += 1
            elif note >= 0:
                prefetch(p.numbers, _ring_of(note))
            elif note != _SEVERAL:
                prefetch(p.literals, LITERAL * (-2 - note))
        if with_cells:
            for c in range(first, last):
                note = literals[rows[c]]
                if note >= _CELLS:
                    _fetch_cell(p, note, at, event_of[c] * d)
        doubts = 0
        for c in range(first, last):
            note, answer, start = literals[rows[c]], DOUBTFUL, event_of[c] * d
            if note >= 0:
                answer = _sketched(p, note, at, start)
                held[c] = answer & 1
                verified += 1
            elif note != _SEVERAL:
                prefetch_literal(p, -2 - note, at, start)
            doubtful[doubts] = c
            doubts += answer >> 1
        for i in range(doubts):
            note = literals[rows[doubtful[i]]]
            if 0 <= note < _CELLS:
                for line in range(SKETCH, RING + 2 * _FEW + 2, _LINE):
                    prefetch(p.numbers, _ring_of(note) + line)
            elif note >= _CELLS:
                _fetch_edges(p, note, at, event_of[doubtful[i]] * d, False)
        if with_cells:
            for i in range(doubts):
                note = literals[rows[doubtful[i]]]
                if note >= _CELLS:
                    _fetch_edges(p, note, at, event_of[doubtful[i]] * d, True)
        for i in range(doubts):
            c = doubtful[i]
            row, start = rows[c], event_of[c] * d
            note = literals[row]
            if note >= 0:
                answer = _verify_edges(p, note, at, start)
                edges += answer >> 1
            elif note != _SEVERAL:
                answer = verify_literal(p, -2 - note, at, start)
                verified += 1
                edges += answer >> 1
            else:
                answer = is_held(bounds, row, place_of_axis, word_of, p, at, start)
                verified += answer >> 1
            held[c] = answer & 1
    return verified, edges


@jit
def _events_of(offsets: I64, count: int) -> I32:
    """Return the event index of each candidate, without branches."""
    event_of = np.zeros(count + 1, np.int32)
    for event in range(1, len(offsets)):
        event_of[offsets[event]] += 1
    event = 0
    for c in range(count):
        event += event_of[c]
        event_of[c] = event
    return event_of


class SingleEventArrays(NamedTuple):
    """Arrays that `verify_one` needs in addition to bounds and programs."""

    literals: I64
    place_of_axis: I64
    word_of: Annotated[I64, 2]


_BOUNDS, _PROGRAMS = table_size(Bounds), table_size(Programs)


@jit_single
def verify_one(table: I64, points: F64, rows: I32) -> int:
    """Move the candidates that match one event, (1, d), to the front; return their number.

    table   tables of `Bounds`, `Programs` and `SingleEventArrays`, concatenated
    """
    bounds = pointers(opened(table, Bounds))
    p = pointers(opened(table[_BOUNDS:], Programs))
    noted = opened(table[_BOUNDS + _PROGRAMS :], SingleEventArrays)
    filled = ZERO
    for c in range(len(rows)):
        note = noted.literals[rows[c]]
        if 0 <= note < _CELLS:
            for line in range(0, RING + 2 * _FEW + 2, _LINE):
                prefetch(p.numbers, _ring_of(note) + line)
    for c in range(len(rows)):
        row, at = rows[c], pointer(points, 0)
        note = noted.literals[row]
        if note >= 0:
            answer = _sketched(p, note, at, ZERO)
            answer = _verify_edges(p, note, at, ZERO) if answer == DOUBTFUL else answer
        elif note != _SEVERAL:
            answer = verify_literal(p, -2 - note, at, ZERO)
        else:
            tables = noted.place_of_axis, noted.word_of
            answer = is_held(bounds, row, *tables, p, at, ZERO)
        rows[filled] = row
        filled += answer & 1
    return filled


@jit
def _keep(offsets: I64, rows: I32, held: Bool, kept: I64, out: I32) -> int:
    """Write the candidates that match their event; return their number."""
    filled = 0
    before = np.empty(len(rows) + 1, np.int32)
    for c in range(len(rows)):
        before[c] = filled
        out[filled] = rows[c]
        filled += held[c]
    before[len(rows)] = filled
    for event in range(len(offsets)):
        kept[event] = before[offsets[event]]
    return filled


class CandidateCounts(NamedTuple):
    """Candidate statistics, summed over batches."""

    events: int = 0
    selected: int = 0
    """Rows whose boxes contain an event."""
    verified: int = 0
    """Selected rows that boxes alone don't decide."""
    matched: int = 0
    edges: int = 0
    """Edges of polygons that events were compared with, of rows that one literal decides."""

    def plus(self, more: tuple[int, ...]) -> CandidateCounts:
        """Return the sum of two statistics."""
        return CandidateCounts(*(old + new for old, new in zip(self, more, strict=True)))

    def __str__(self) -> str:
        """Return the statistics as text."""
        counts = ", ".join(
            f"{count / max(self.events, 1):,.3g} {name}"
            for name, count in zip(self._fields[1:4], self[1:4], strict=True)
        )
        return f"shapes: {counts} per event, of {self.events:,} matched in batches"


class Verifier:
    """Verifier for the rows of one set, which is append-only."""

    def __init__(self, space: Space):
        self.counts = CandidateCounts()
        places = places_of(space)
        assert places is not None
        self.space = space
        self.places = places
        self._literals = np.empty(0, np.int64)
        self._known = 0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, space: Space) -> Verifier | None:
        """Return a verifier for the rows of a set; `None` if its space has no places."""
        return None if places_of(space) is None else cls(space)

    def __reduce__(self) -> tuple[type[Verifier], tuple[Space]]:
        """Pickle only the space: each process numbers literals itself."""
        return Verifier, (self.space,)

    @property
    def has_words(self) -> bool:
        """Return whether any subscription may have a verified condition; otherwise boxes decide."""
        return self.places.has_words

    @property
    def memory(self) -> int:
        """Size of the cached literals in bytes."""
        return self._literals.nbytes

    def _decisive(self, bounds: Bundle[Bounds], count: int) -> I64:
        """Return the deciding literals of the first `count` rows, which never change."""
        if self._known < count:
            with self._lock:
                known, literals = self._known, self._literals
                if count > len(literals):
                    literals = np.empty(max(count, 2 * known), np.int64)
                    literals[:known] = self._literals[:known]
                of_axis, _, word_of, programs = self.places.tables()
                tables = bounds.table, of_axis, word_of, programs.table
                _decisive(*tables, known, count, literals)
                self._literals, self._known = literals, max(known, count)
        return self._literals

    def are_held(
        self, bounds: Bundle[Bounds], count: int, points: F64, offsets: I64, rows: I32
    ) -> tuple[Bool, tuple[int, int]]:
        """Return a mask of the matching candidates, and the counts of those verified and of edges.

        points   (events, d), as `places.readable` returns them
        """
        literals = self._decisive(bounds, count)
        of_axis, _, word_of, programs = self.places.tables()
        held = np.empty(len(rows), np.bool_)
        tables = bounds.table, of_axis, word_of, programs.table, points, offsets, rows
        return held, _hold(literals, *tables, held)

    def bundles(self, bounds: Bundle[Bounds], count: int) -> tuple[Bundle[Any], ...]:
        """Return the arrays of the first `count` rows that `verify_one` needs."""
        literals = self._decisive(bounds, count)
        of_axis, _, word_of, programs = self.places.tables()
        noted = SingleEventArrays(literals.view(), of_axis.view(), word_of.view())
        return bounds, programs, Bundle(noted)

    def verified(
        self, bounds: Bundle[Bounds], count: int, points: F64, offsets: I64, rows: I32
    ) -> tuple[I64, I32]:
        """Return the offsets and rows of the candidates that match their event.

        count    number of rows of the set; these never change
        points   (events, d), as `places.readable` returns them
        """
        held, (verified, edges) = self.are_held(bounds, count, points, offsets, rows)
        kept, out = np.empty(len(offsets), np.int64), np.empty(len(rows), np.int32)
        filled = _keep(offsets, rows, held, kept, out)
        new = len(points), len(rows), verified, filled, edges
        with self._lock:
            self.counts = self.counts.plus(new)
        return kept, out[:filled]

    def count_exact(self, events: int, matches: int) -> None:
        """Count matches that their structure verified itself."""
        with self._lock:
            self.counts = self.counts.plus((events, matches, matches, matches, 0))
