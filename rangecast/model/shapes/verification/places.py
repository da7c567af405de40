"""Places of a space, and the programs of their conjunctions.

An index is built over boxes without the axes of places (`without_places`), so its rows are
candidates, which are then verified (`rangecast.model.shapes.verification.candidates`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.comparisons import programs_of
from rangecast.model.arithmetic.tighten import tighten
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import Arithmetic, Residual
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.distances import distances_to_words
from rangecast.model.shapes.verification.programs import (
    ARITHMETIC,
    BORDERS,
    TEXT,
    Literal,
    Programs,
    ProgramStore,
    are_short,
    holds,
)
from rangecast.model.shapes.words import literals_of
from rangecast.model.text.conditions import read_literal
from rangecast.model.text.forms import readable
from rangecast.model.text.ranges import narrow
from rangecast.model.text.single_text import TextReader

if TYPE_CHECKING:
    from rangecast.model.space import Space


class Tables(NamedTuple):
    """Arrays that kernels need to verify conjunctions."""

    place_of_axis: I64
    """(d,) which place an axis is; -1: none."""
    place_of_coordinate: I64
    """(d,) of which place an axis is a coordinate; -1: none."""
    word_of: I64
    """(places, words) the program of each word of a place."""
    programs: Bundle[Programs]


class Places:
    """Places of a space, and the programs of their conjunctions."""

    def __init__(self, space: Space):
        self.axes = [
            axis for axis, attribute in enumerate(space) if isinstance(attribute, Residual)
        ]
        self._places = [attribute for attribute in space if isinstance(attribute, Residual)]
        self.coordinates = [
            tuple(space.axis(axis.name) for axis in place.coordinates) for place in self._places
        ]
        self._patterns = [
            residual.vocabulary for residual in self._places if isinstance(residual, Patterns)
        ]
        self._space = space
        self._known = [0 for _ in self.axes]
        self._forms: dict[int, set[int]] = {}
        """Forms of texts that words read, by axis."""
        self.seen: Any = None
        """Notes of matching about the events that it saw."""
        self._store = ProgramStore()
        self._lock = threading.Lock()
        of_axis = np.full(len(space), -1, np.int64)
        of_axis[self.axes] = np.arange(len(self.axes))
        of_coordinate = np.full(len(space), -1, np.int64)
        for number, axes in enumerate(self.coordinates):
            of_coordinate[list(axes)] = number
        word_of = np.zeros((len(self.axes), 0), np.int64)
        self._tables = Tables(of_axis, of_coordinate, word_of, self._store.bundle)

    @property
    def has_words(self) -> bool:
        """Return whether any filter of the space has a verified condition."""
        return any(place.vocabulary for place in self._places)

    @property
    def has_patterns(self) -> bool:
        """Return whether any filter of the space has a condition that reads a text."""
        return any(self._patterns)

    def is_earth(self, number: int) -> bool:
        """Return whether a place is on the earth."""
        place = self._places[number]
        return isinstance(place, Place) and place.earth

    def tables(self) -> Tables:
        """Return the programs of all conjunctions known so far."""
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
                known = self._known[number]
                words = place.vocabulary[known:most]
                word_of[number, known : known + len(words)] = self._added(number, known, words)
                self._known[number] = known + len(words)
                place.forget()
            tables = self._tables._replace(word_of=word_of, programs=self._store.bundle)
            self._tables = tables
        return tables

    def _literals(self, number: int, word: str) -> Iterator[Literal]:
        """Yield the literals of a conjunction in the form of programs."""
        place = self._places[number]
        if isinstance(place, Arithmetic):
            for program in programs_of(self._space, place, word):
                yield Literal(ARITHMETIC, program, False, 0, 0, 0)
        elif isinstance(place, Patterns):
            axis = self.axes[number]
            for text in place.literals_in(word):
                kind, form, negated, program, *_ = read_literal(place, text)
                self._forms.setdefault(axis, set()).add(form)
                yield Literal(TEXT + kind, program, negated, form, axis, axis)
        elif isinstance(place, Place):
            for literal in literals_of(place, word):
                yield literal.literal(*self.coordinates[number])

    def readable(self, points: F64, axis: int | None = None) -> tuple[F64, Any]:
        """Return points in the form that the current programs read, for all axes or for one.

        Keep the second result alive while the points are in use.
        """
        self.tables()
        if not self._forms or (axis is not None and axis not in self._forms):
            return points, None
        return readable(points, self._forms)

    def text_reader(self) -> TextReader | None:
        """Return a reader of the texts of single events; `None` if no program reads any."""
        self.tables()
        axes = [
            axis
            for axis, place in zip(self.axes, self._places, strict=True)
            if isinstance(place, Patterns)
        ]
        return TextReader(self._forms, axes) if self._forms else None

    def _added(self, number: int, first: int, words: list[str]) -> I64:
        """Add the programs of conjunctions, of which `first` is the first; return their numbers."""
        place, store = self._places[number], self._store
        made = np.full(len(words), -1, np.int64)
        for numbers, rings in list(place.batches):
            assert isinstance(place, Place)
            at = numbers.astype(np.int64) - first
            is_new = (at >= 0) & (at < len(words)) & are_short(rings)
            at, which = np.unique(at[is_new], return_index=True)
            which = np.flatnonzero(is_new)[which]
            made[at] = len(store) + np.arange(len(at))
            store.add_rings(rings, which, BORDERS[place.border], *self.coordinates[number])
        for word in np.flatnonzero(made < 0).tolist():
            made[word] = self._add_word(number, words[word])
        return made

    def _add_word(self, number: int, word: str) -> int:
        """Add the program of a conjunction; return its number."""
        self._store.add(tuple(self._literals(number, word)))
        return len(self._store) - 1


def _is_known(place: Residual, known: int) -> bool:
    return len(place.vocabulary) == known


_MAKING = threading.Lock()


def places_of(space: Space) -> Places | None:
    """Return the places of a space; `None` if it has none."""
    kept = vars(space)
    if "_places" not in kept:
        with _MAKING:
            if "_places" not in kept:
                is_residual = any(isinstance(attribute, Residual) for attribute in space)
                kept["_places"] = Places(space) if is_residual else None
    places: Places | None = kept["_places"]
    return places


def without_places(boxes: Boxes) -> Boxes:
    """Return boxes without bounds on places, over which an index is built."""
    if boxes.space is None:
        return boxes
    places = places_of(boxes.space)
    if places is None or not boxes.mentions[:, places.axes].any():
        return boxes
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    tighten(boxes.space, lo, hi)
    narrow(boxes.space, lo, hi)
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


def words_hold(places: Places, axis: int, words: F64, point: F64) -> Bool:
    """Return which conjunctions of a place match one point, (d,)."""
    tables = places.tables()
    numbers = tables.word_of[tables.place_of_axis[axis], words.astype(np.int64)]
    held = np.empty(len(words), np.bool_)
    read, alive = places.readable(np.ascontiguousarray(point)[None], axis)
    _hold_words(tables.programs.table, numbers, read[0], held)
    del alive
    return held


def bounds_hold(places: Places, lo: F64, hi: F64, point: F64) -> bool:
    """Return whether the conjunctions of one box, bounds (d,), match one point, (d,)."""
    return all(
        lo[axis] == -np.inf or lo[axis] < hi[axis] or words_hold(places, axis, lo[[axis]], point)[0]
        for axis in places.axes
    )


def failed_distances(places: Places, axis: int, words: F64, point: F64) -> tuple[bool, F64]:
    """Return whether a place is on the earth, and how far a point is from each conjunction.

    The distance is 0 if the point matches, otherwise the greatest from the border of a shape that
    it fails, in metres on the earth.
    """
    tables = places.tables()
    number = tables.place_of_axis[axis]
    numbers = tables.word_of[number, words.astype(np.int64)]
    is_earth = places.is_earth(number)
    distances = np.empty(len(words))
    point = np.ascontiguousarray(point)
    distances_to_words(tables.programs.table, numbers, point, is_earth, distances)
    return is_earth, distances


def word_holds(places: Places, axis: int, word: float, points: F64) -> Bool:
    """Return a mask of the points, (n, d), that satisfy a conjunction of shape conditions."""
    tables = places.tables()
    number = tables.word_of[tables.place_of_axis[axis], int(word)]
    held = np.empty(len(points), np.bool_)
    read, alive = places.readable(np.ascontiguousarray(points), axis)
    _hold_points(tables.programs.table, number, read, held)
    del alive
    return held


@jit
def _hold_points(table: I64, word: int, points: F64, held: Bool) -> None:
    programs = pointers(opened(table, Programs))
    at = pointer(points, 0)
    for i in range(len(points)):
        held[i] = holds(programs, word, at, i * points.shape[1])


@jit
def _hold_words(table: I64, words: I64, point: F64, held: Bool) -> None:
    programs = pointers(opened(table, Programs))
    at = pointer(point, 0)
    for i in range(len(words)):
        held[i] = holds(programs, words[i], at, 0)
