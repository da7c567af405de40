"""Boxes of interests with a condition that bounds can't express: a shape, or arithmetic.

Such a box has the number of its condition, a *word*, as its range on the attribute of the
condition. Objects have no value there, so painters pass it by, and a message can still reach it
alone: by its bounds, the word included.

Each of these boxes has a *view*, which equal ones share: the best objects inside, up to 2k + 8,
each verified when it entered. A changed object is compared with the views of the boxes around it
alone. A view that falls below k, and may lack objects, is filled again from all objects; one that
no change has met yet is empty, and filled before the first one.

    slots, ys, arrivals   (rows, 2k + 8)  the objects of each view, the best first
    size                  (rows,)         how many they are; -1: not filled yet
    limit_y, limit        (rows,)         a view has every object inside up to this y and arrival

Cost of a change: one condition per box around the object, the length of each view that it is in,
and rarely a view filled again: for that, k objects around it must get worse, or leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.tighten import tighten
from rangecast.model.attributes.residuals import Residual
from rangecast.model.shapes.verification.places import Places, places_of, word_holds, words_hold
from rangecast.model.space import Space
from rangecast.notify.boxes.batch import add_needs
from rangecast.notify.boxes.kdtree import NO_ARRIVAL, below
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.regions import holding

_FIRST_LOOK = 4
"""Objects of a box that are verified, per object wanted, before all objects of the box are."""
_CANDIDATES, _REFILLS = 0, 1
"""Indexes of work counters: see `messages.BoxWork`."""


class Views(NamedTuple):
    """The views of boxes by row; see above."""

    slots: I32
    ys: F64
    arrivals: I64
    size: I32
    limit_y: F64
    limit: I64

    @classmethod
    def of(cls, rows: int, width: int) -> Views:
        """Return views that aren't filled yet."""
        return cls(
            np.empty((rows, width), np.int32),
            np.empty((rows, width)),
            np.empty((rows, width), np.int64),
            np.full(rows, -1, np.int32),
            np.full(rows, np.inf),
            np.full(rows, NO_ARRIVAL, np.int64),
        )

    def top(self, rows: I32, k: int) -> Views:
        """Return a copy of the top k entries of some views."""
        return Views(
            self.slots[rows, :k],
            self.ys[rows, :k],
            self.arrivals[rows, :k],
            np.minimum(self.size[rows], k),
            self.limit_y[rows],
            self.limit[rows],
        )


class Touched(NamedTuple):
    """Changed objects and the views of the boxes that they lie in."""

    rows: I32
    """All views, each once."""
    pairs: I32
    """The view of each pair of a view and an object."""
    slots: I32
    """The object of each pair."""
    before: Views
    """Best entries of all views before the change."""


@jit
def _apply(views: Views, rows: I32, slots: I32, ys: F64, arrivals: I64) -> None:
    """Apply new values of objects to views, pair by pair; y = inf removes an object."""
    width = views.slots.shape[1]
    for i in range(len(rows)):
        row, y, arrival = rows[i], ys[i], arrivals[i]
        own, own_ys, own_arrivals = views.slots[row], views.ys[row], views.arrivals[row]
        n, at = views.size[row], 0
        while at < n and own[at] != slots[i]:
            at += 1
        if at < n:
            n -= 1
            while at < n:
                own[at], own_ys[at] = own[at + 1], own_ys[at + 1]
                own_arrivals[at] = own_arrivals[at + 1]
                at += 1
        if y < np.inf and not below(views.limit_y[row], views.limit[row], y, arrival):
            is_full = n == width
            at = n - is_full
            if is_full and below(own_ys[at], own_arrivals[at], y, arrival):
                views.limit_y[row], views.limit[row] = own_ys[at], own_arrivals[at]
                continue
            n = at + 1
            while at and below(y, arrival, own_ys[at - 1], own_arrivals[at - 1]):
                own[at], own_ys[at] = own[at - 1], own_ys[at - 1]
                own_arrivals[at] = own_arrivals[at - 1]
                at -= 1
            own[at], own_ys[at], own_arrivals[at] = slots[i], y, arrival
            if is_full:
                views.limit_y[row], views.limit[row] = own_ys[n - 1], own_arrivals[n - 1]
        views.size[row] = n


@jit
def _find_needs(
    before: Views, views: Views, rows: I32, olds: F64, k: int, whose: I32, what: I32
) -> int:
    """Write pairs of a row and an object that is sent to it, as `batch.find_needs` does."""
    n = 0
    for i in range(len(rows)):
        row = rows[i]
        n = add_needs(
            row,
            before.slots[i],
            before.ys[i],
            before.arrivals[i],
            before.size[i],
            views.slots[row],
            views.ys[row],
            views.arrivals[row],
            min(k, views.size[row]),
            olds,
            k,
            whose,
            what,
            n,
        )
    return n


class VerifiedBoxes:
    """The boxes of a board's interests that objects are verified in."""

    def __init__(self, space: Space, k: int):
        self._space, self._k = space, k
        self.axes = [
            axis for axis, attribute in enumerate(space) if isinstance(attribute, Residual)
        ]
        """Axes of the attributes whose conditions are verified."""
        self._width = 2 * k + 8
        self._d = len(space)
        self._tree = Points(np.zeros((0, 2 * self._d)))
        """The bounds without words, narrowed by arithmetic."""
        self._row_of: dict[int, int] = {}
        """Rows by the rows of the board's own tree, their owners. Equal boxes share a row."""
        self._owners: dict[int, set[int]] = {}
        """The reverse."""
        self._known: dict[bytes, int] = {}
        """Rows by the bytes of their boxes."""
        self._boxes = np.zeros((0, 2 * self._d))
        self._views = Views.of(0, self._width)
        self._olds = np.zeros(0)
        """Old values of changed objects by slot while a change is applied, NaN for all others."""
        self.work = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def _places(self) -> Places:
        places = places_of(self._space)
        assert places is not None
        return places

    def have_words(self, boxes: F64) -> Bool:
        """Return which boxes objects must be verified in."""
        return np.asarray(np.isfinite(boxes[:, self.axes]).any(axis=1))

    # ---- boxes

    def add(self, owners: I32, boxes: F64) -> None:
        """Add the boxes that require verification; `owners` are their rows in the board's tree."""
        if not self.axes:
            return
        words = self.have_words(boxes)
        if not words.any():
            return
        keys = [box.tobytes() for box in boxes[words]]
        new = {key: at for at, key in enumerate(keys) if key not in self._known}
        if new:
            self._add_rows(list(new), boxes[words][list(new.values())])
        for owner, key in zip(owners[words].tolist(), keys, strict=True):
            self._row_of[owner] = row = self._known[key]
            self._owners.setdefault(row, set()).add(owner)

    def _add_rows(self, keys: list[bytes], boxes: F64) -> None:
        """Add boxes that differ from all others."""
        lo, hi = boxes[:, : self._d].copy(), boxes[:, self._d :].copy()
        tighten(self._space, lo, hi)
        rows = self._tree.add_many(self._without_words(np.concatenate([lo, hi], axis=1)))
        room = int(rows.max()) + 1
        if room > len(self._boxes):
            self._grow(max(room, 2 * len(self._boxes)))
        self._boxes[rows] = boxes
        self._views.size[rows] = -1
        self._known |= dict(zip(keys, rows.tolist(), strict=True))

    def _grow(self, room: int) -> None:
        more = room - len(self._boxes)
        self._boxes = np.concatenate([self._boxes, np.zeros((more, 2 * self._d))])
        old, new = self._views._asdict(), Views.of(more, self._width)._asdict()
        self._views = Views(**{name: np.concatenate([old[name], new[name]]) for name in old})

    def remove(self, owner: int) -> None:
        """Remove a box, if objects are verified in it."""
        row = self._row_of.pop(owner, None)
        if row is None:
            return
        self._owners[row].remove(owner)
        if not self._owners[row]:
            del self._owners[row], self._known[self._boxes[row].tobytes()]
            self._tree.remove(row)

    def forget(self) -> None:
        """Empty all views: the objects are others."""
        self._views.size[:] = -1

    def _without_words(self, boxes: F64) -> F64:
        """Return boxes without bounds where they have words."""
        free = boxes.copy()
        for axis in self.axes:
            words = np.isfinite(boxes[:, axis])
            free[words, axis], free[words, self._d + axis] = -np.inf, np.inf
        return free

    # ---- lists

    def best(self, objects: Points, box: F64, k: int, searched: F64 | None = None) -> I32:
        """Return the slots of the top k objects of a box, the best first.

        They lie within the bounds `searched`, if these are known.
        """
        if searched is None:
            searched = self._without_words(box[None])[0]
        lo, hi = searched[: self._d].copy(), searched[self._d :].copy()
        if not self._tested(box):
            return objects.best(lo, hi, k)
        slots = objects.best(lo, hi, _FIRST_LOOK * k)
        matching = slots[self._hold(box, objects.of(slots)[0])]
        if len(matching) >= k or len(slots) < _FIRST_LOOK * k:
            return matching[:k]
        tree, entries = objects.tree, objects.within(searched)
        entries = entries[tree.y[entries] < np.inf]
        entries = entries[self._hold(box, tree.at[entries])]
        order = np.lexsort((tree.arrival[entries], tree.y[entries]))[:k]
        return tree.row[entries[order]]

    def contains(self, box: F64, points: F64) -> Bool:
        """Return which points, (points, d), lie in a box, conditions included."""
        bounds = self._without_words(box[None])[0]
        lo, hi = bounds[: self._d], bounds[self._d :]
        inside: Bool = ((lo <= points) & (points <= hi)).all(axis=1)
        inside[inside] = self._hold(box, points[inside])
        return inside

    def _hold(self, box: F64, points: F64) -> Bool:
        """Return a mask of the points, (points, d), that satisfy the words of a box."""
        held = np.ones(len(points), np.bool_)
        for axis in self._tested(box):
            held &= word_holds(self._places, axis, box[axis], points)
        return held

    def _tested(self, box: F64) -> list[int]:
        """Return the axes of the words of a box, without those that hold everywhere in it."""
        lo, hi = box[: self._d], box[self._d :]
        return [axis for axis in self.axes if np.isfinite(lo[axis]) and lo[axis] == hi[axis]]

    def _fill(self, objects: Points, rows: I32) -> None:
        """Compute views from all objects."""
        views = self._views
        self.work[_REFILLS] += len(rows)
        for row in rows.tolist():
            searched = self._tree.tree.at[self._tree.entry(row)]
            slots = self.best(objects, self._boxes[row], self._width, searched)
            _, ys, arrivals = objects.of(slots)
            n = len(slots)
            views.slots[row, :n], views.ys[row, :n], views.arrivals[row, :n] = slots, ys, arrivals
            views.size[row] = n
            is_cut = n == self._width
            views.limit_y[row] = ys[-1] if is_cut else np.inf
            views.limit[row] = arrivals[-1] if is_cut else NO_ARRIVAL

    # ---- changes

    def touch(self, objects: Points, slots: I32) -> Touched:
        """Return the views of objects, before their values change."""
        points = objects.of(slots)[0]
        parts = [self._around(point) for point in points] if len(self) else []
        sizes = [len(part) for part in parts]
        pairs = np.concatenate([np.zeros(0, np.int32), *parts])
        rows = np.unique(pairs)
        self._fill(objects, rows[self._views.size[rows] < 0])
        objects_of = np.repeat(slots, sizes) if parts else slots[:0]
        return Touched(rows, pairs, objects_of, self._views.top(rows, self._k))

    def _around(self, point: F64) -> I32:
        """Return the rows of the boxes that a point lies in, conditions included."""
        within = np.empty(4 * self._d)
        holding(point, within)
        rows = self._tree.tree.row[self._tree.within(within)]
        self.work[_CANDIDATES] += len(rows)
        for axis in self.axes:
            words, last = self._boxes[rows, axis], self._boxes[rows, self._d + axis]
            tested = np.flatnonzero(np.isfinite(words) & (words == last))
            if len(tested):
                fails = ~words_hold(self._places, axis, words[tested], point)
                rows = np.delete(rows, tested[fails])
        return rows

    def settle(self, objects: Points, touched: Touched, olds: dict[int, float]) -> tuple[I32, I32]:
        """Update views after objects changed; return pairs: a row of the board's tree, and the slot
        of an object that is sent to it. Of the owners of a view there is one.

        `olds` are the old values of objects whose values changed.
        """
        rows, k, views = touched.rows, self._k, self._views
        if not len(rows):
            return rows, rows
        _, ys, arrivals = objects.of(touched.slots)
        _apply(views, touched.pairs, touched.slots, ys, arrivals)
        self._fill(objects, rows[(views.size[rows] < k) & (views.limit_y[rows] < np.inf)])
        if objects.rows > len(self._olds):
            self._olds = np.full(2 * objects.rows, np.nan)
        changed = list(olds)
        self._olds[changed] = list(olds.values())
        whose, what = (np.empty(2 * k * len(rows), np.int32) for _ in range(2))
        n = _find_needs(touched.before, views, rows, self._olds, k, whose, what)
        self._olds[changed] = np.nan
        first = [next(iter(self._owners[row])) for row in whose[:n].tolist()]
        return np.array(first, np.int32), what[:n]

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        arrays = self._boxes, *self._views
        return int(self._tree.memory + sum(array.nbytes for array in arrays))
