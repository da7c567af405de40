"""Verification of candidates: does a box of a subscription hold an event, its shapes included?

An index is built over boxes without the axes of places (`without_places`), so its rows are
candidates. Each one is compared again, box by box, with the words of its places verified.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.comparisons import programs_of
from rangecast.model.arithmetic.tighten import tighten
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import Arithmetic, Residual
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import Bounds, append, no_rows
from rangecast.model.shapes.programs import ARITHMETIC, Literal, Programs, ProgramStore, holds
from rangecast.model.shapes.words import literals_of

if TYPE_CHECKING:
    from rangecast.model.space import Space


class Tables(NamedTuple):
    """Arrays that kernels need to verify words."""

    place_of_axis: I64
    """(d,) which place an axis is; -1: none."""
    place_of_coordinate: I64
    """(d,) of which place an axis is a coordinate; -1: none."""
    word_of: I64
    """(places, words) the program of each word of a place."""
    programs: Bundle[Programs]


class Places:
    """The places of a space, and the programs of their words."""

    def __init__(self, space: Space):
        self.axes = [axis for axis, one in enumerate(space) if isinstance(one, Residual)]
        self._places = [one for one in space if isinstance(one, Residual)]
        self.coordinates = [
            tuple(space.axis(axis.name) for axis in one.coordinates) for one in self._places
        ]
        self._space = space
        self._known = [0 for _ in self.axes]
        self._store = ProgramStore()
        self._lock = threading.Lock()
        of_axis = np.full(len(space), -1, np.int64)
        of_axis[self.axes] = np.arange(len(self.axes))
        of_coordinate = np.full(len(space), -1, np.int64)
        for number, axes in enumerate(self.coordinates):
            of_coordinate[list(axes)] = number
        word_of = np.zeros((len(self.axes), 0), np.int64)
        self._tables = Tables(of_axis, of_coordinate, word_of, self._store.bundle)

    def tables(self) -> Tables:
        """Return the programs of all words that are known by now."""
        if all(map(_is_known, self._places, self._known)):
            return self._tables
        with self._lock:
            word_of = self._tables.word_of
            most = max(len(place.vocabulary) for place in self._places)
            if most > word_of.shape[1]:
                larger = np.zeros((len(word_of), max(2 * most, 64)), np.int64)
                larger[:, : word_of.shape[1]] = word_of
                word_of = larger
            for number, place in enumerate(self._places):
                for code in range(self._known[number], len(place.vocabulary)):
                    word_of[number, code] = len(self._store)
                    self._store.add(tuple(self._literals(number, place.vocabulary[code])))
                    self._known[number] = code + 1
                place.read.clear()
            tables = self._tables._replace(word_of=word_of, programs=self._store.bundle)
            self._tables = tables
        return tables

    def _literals(self, number: int, word: str) -> Iterator[Literal]:
        """Yield the literals of a word as programs take them."""
        place = self._places[number]
        if isinstance(place, Arithmetic):
            for program in programs_of(self._space, place, word):
                yield Literal(ARITHMETIC, program, False, 0, 0, 0)
        elif isinstance(place, Place):
            for one in literals_of(place, word):
                yield one.literal(*self.coordinates[number])


def _is_known(place: Residual, known: int) -> bool:
    return len(place.vocabulary) == known


_MAKING = threading.Lock()


def places_of(space: Space) -> Places | None:
    """Return the places of a space; `None` if it has none."""
    kept = vars(space)
    if "_places" not in kept:
        with _MAKING:
            if "_places" not in kept:
                some = any(isinstance(one, Residual) for one in space)
                kept["_places"] = Places(space) if some else None
    found: Places | None = kept["_places"]
    return found


def without_places(boxes: Boxes) -> Boxes:
    """Return boxes that aren't bounded by words: what an index is built over."""
    if boxes.space is None:
        return boxes
    places = places_of(boxes.space)
    if places is None or not boxes.mentions[:, places.axes].any():
        return boxes
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    tighten(boxes.space, lo, hi)
    lo[:, places.axes], hi[:, places.axes] = -np.inf, np.inf
    return Boxes.of(
        lo,
        hi,
        owner=boxes.owner,
        ids=boxes.ids,
        scores=boxes.scores,
        weights=boxes.weights,
        space=boxes.space,
    )


def bounds_of_boxes(boxes: Boxes) -> Bundle[Bounds]:
    """Return the boxes of a static set as verification reads them."""
    return append(no_rows(), 0, boxes, np.zeros(boxes.rows, np.int64)).bounds


@jit
def is_held(
    bounds: Any, row: int, place_of_axis: I64, word_of: I64, programs: Any, points: Any, event: int
) -> bool:
    """Whether a candidate row holds the event whose coordinates begin at points[event].

    The one box of a row needs no comparison but of its words: that it is a candidate says the rest.
    """
    first, last = bounds.first_box[row], bounds.first_box[row + 1]
    for box in range(first, last):
        held = True
        for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
            axis = bounds.axis[term]
            place = place_of_axis[axis]
            if place >= 0:
                word = word_of[place, int(bounds.lo[term])]
                full = bounds.hi[term] > bounds.lo[term]
                held = full or holds(programs, word, points, event)
            elif last - first > 1:
                value = points[event + axis]
                held = bounds.lo[term] <= value <= bounds.hi[term]
            if not held:
                break
        if held:
            return True
    return False


@jit
def _hold(
    table: I64,
    place_of_axis: I64,
    word_of: I64,
    programs_table: I64,
    points: F64,
    offsets: I64,
    rows: I32,
    order: I64,
    events: I32,
    held: Bool,
) -> None:
    """Write whether each candidate holds its event.

    order, events   the candidates in order of their rows, and the event of each; or none: as given
    """
    bounds = pointers(opened(table, Bounds))
    programs = pointers(opened(programs_table, Programs))
    at = pointer(points, 0)
    d = points.shape[1]
    if len(order):
        for c in order:
            held[c] = is_held(bounds, rows[c], place_of_axis, word_of, programs, at, events[c] * d)
        return
    for event in range(len(offsets) - 1):
        for c in range(offsets[event], offsets[event + 1]):
            held[c] = is_held(bounds, rows[c], place_of_axis, word_of, programs, at, event * d)


@jit
def _keep(offsets: I64, rows: I32, held: Bool, kept: I64, out: I32) -> int:
    """Write the candidates that hold their event; return how many there are."""
    filled = 0
    for event in range(len(offsets) - 1):
        kept[event] = filled
        for c in range(offsets[event], offsets[event + 1]):
            out[filled] = rows[c]
            filled += held[c]
    kept[len(offsets) - 1] = filled
    return filled


@jit
def _by_row(offsets: I64, rows: I32, first: I64, order: I64, events: I32) -> None:
    """Write candidates in order of their rows, by counting; `first` (rows + 2,) are zeros."""
    for i in range(len(rows)):
        first[rows[i] + 2] += 1
    for row in range(2, len(first)):
        first[row] += first[row - 1]
    for event in range(len(offsets) - 1):
        for i in range(offsets[event], offsets[event + 1]):
            order[first[rows[i] + 1]] = i
            first[rows[i] + 1] += 1
            events[i] = event


_SORTED = 1 << 13
"""Candidates from which on they are verified in order of their rows: each shape is read once."""
_NO_ORDER, _NO_EVENTS = np.empty(0, np.int64), np.empty(0, np.int32)


def are_held(bounds: Bundle[Bounds], places: Places, points: F64, offsets: I64, rows: I32) -> Bool:
    """Return which candidates hold their event, (events, d)."""
    of_axis, _, word_of, programs = places.tables()
    order, events = _NO_ORDER, _NO_EVENTS
    if len(rows) >= _SORTED:
        order, events = np.empty(len(rows), np.int64), np.empty(len(rows), np.int32)
        _by_row(offsets, rows, np.zeros(int(rows.max()) + 3, np.int64), order, events)
    held = np.empty(len(rows), np.bool_)
    given = bounds.table, of_axis, word_of, programs.table, points, offsets, rows
    _hold(*given, order, events, held)
    return held


def verified(
    bounds: Bundle[Bounds], places: Places, points: F64, offsets: I64, rows: I32
) -> tuple[I64, I32]:
    """Return the offsets and rows of candidates that hold their event, (events, d)."""
    if not len(rows):
        return offsets, rows
    held = are_held(bounds, places, points, offsets, rows)
    kept, out = np.empty(len(offsets), np.int64), np.empty(len(rows), np.int32)
    count = _keep(offsets, rows, held, kept, out)
    return kept, out[:count]


def words_hold(places: Places, axis: int, words: F64, point: F64) -> Bool:
    """Return which words of a place hold at one point, (d,)."""
    tables = places.tables()
    numbers = tables.word_of[tables.place_of_axis[axis], words.astype(np.int64)]
    held = np.empty(len(words), np.bool_)
    _hold_words(tables.programs.table, numbers, np.ascontiguousarray(point), held)
    return held


@jit
def _hold_words(table: I64, words: I64, point: F64, held: Bool) -> None:
    programs = pointers(opened(table, Programs))
    at = pointer(point, 0)
    for i in range(len(words)):
        held[i] = holds(programs, words[i], at, 0)
