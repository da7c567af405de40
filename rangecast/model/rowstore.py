"""The rows of a live set: columns that only grow, which many threads may read while one writes.

A row is a subscription; a new one gets the next row, a removed one keeps its row and is marked
with the edit that removed it. Bounds are kept only where something is mentioned:

    first_box   (rows + 1)   boxes of row r: first_box[r] .. first_box[r + 1]
    first_term  (boxes + 1)  terms of box b: first_term[b] .. first_term[b + 1]
    axis, lo, hi (terms)     the range of one mentioned attribute
    scores, arrival, died, gone (rows), ids (rows), weights (rows, d) once a subscription has some

`arrival` orders ties: it is the row, except that a replacement takes the place of what it
replaces. `died` is the number of the edit that removed the row, `NEVER` while it lives; a reader
that works at edit c sees row r iff c < died[r]. `gone` has a bit for each row that ever died: a
reader may pass over `died` where it is not set.

Arrays are filled first and counted after, and a full one is copied into a larger one; so a reader
that holds `Columns` and a count never sees a half-written row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U16, U32, AnyArray
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes

NEVER = np.iinfo(np.int64).max
Box = tuple[tuple[int, float, float], ...]
"""A box as a filter holds it: (axis, lo, hi) of each attribute that it mentions."""


class Bounds(NamedTuple):
    """The boxes of all rows, only what is mentioned: what kernels read."""

    first_box: I64
    first_term: I64
    axis: U16
    lo: F64
    hi: F64


class Columns(NamedTuple):
    """The arrays at one moment; only the first `RowStore.count` rows of that moment are valid."""

    bounds: Bounds
    scores: F64
    arrival: I64
    died: I64
    gone: U32
    ids: AnyArray
    weights: F64 | None


class RowStore:
    """Growing columns of subscriptions; one writer at a time."""

    def __init__(self, dimensions: int):
        self.dimensions = dimensions
        self.count = 0
        self.boxes = 0
        self.terms = 0
        self.columns = Columns(
            bounds=Bounds(
                first_box=np.zeros(1, np.int64),
                first_term=np.zeros(1, np.int64),
                axis=np.zeros(0, np.uint16),
                lo=np.zeros(0),
                hi=np.zeros(0),
            ),
            scores=np.zeros(0),
            arrival=np.zeros(0, np.int64),
            died=np.zeros(0, np.int64),
            gone=np.zeros(1, np.uint32),
            ids=np.zeros(0, np.int64),
            weights=None,
        )

    def append(self, boxes: Boxes, arrival: I64 | None = None) -> None:
        """Add the subscriptions of `boxes` as the next rows."""
        terms = boxes.mentions
        box, axis = np.nonzero(terms)
        per_box = np.count_nonzero(terms, axis=1)
        kind = np.dtype(np.int64 if pa.types.is_integer(boxes.ids.type) else object)
        self._reserve(boxes.rows, len(boxes.lo), len(box), kind)
        if boxes.weights is not None:
            self._weigh()
        columns, n, b, t = self.columns, self.count, self.boxes, self.terms
        bounds = columns.bounds
        bounds.axis[t : t + len(box)] = axis
        bounds.lo[t : t + len(box)] = boxes.lo[box, axis]
        bounds.hi[t : t + len(box)] = boxes.hi[box, axis]
        bounds.first_term[b + 1 : b + 1 + len(per_box)] = t + np.cumsum(per_box)
        rows = slice(n, n + boxes.rows)
        bounds.first_box[n + 1 : n + 1 + boxes.rows] = b + boxes.box_offsets[1:]
        columns.scores[rows] = boxes.scores
        columns.arrival[rows] = np.arange(n, n + boxes.rows) if arrival is None else arrival
        columns.died[rows] = NEVER
        columns.ids[rows] = boxes.ids.to_numpy(zero_copy_only=False)
        if columns.weights is not None:
            columns.weights[rows] = 1.0 if boxes.weights is None else boxes.weights
        self.terms += len(box)
        self.boxes += len(boxes.lo)
        self.count += boxes.rows

    def append_one(
        self,
        subscription: str | int,
        boxes: Sequence[Box],
        score: float,
        weights: F64 | None,
        arrival: int,
    ) -> int:
        """Add one subscription, with weights (d,) if it has some, as the next row; return the row.

        Does what `append` does, a value at a time: for one row that is ten times quicker.
        """
        kind = np.dtype(np.int64 if isinstance(subscription, int) else object)
        self._reserve(1, len(boxes), sum([len(box) for box in boxes]), kind)
        if weights is not None:
            self._weigh()
        columns, row, bounds = self.columns, self.count, self.columns.bounds
        term = self.terms
        for place, box in enumerate(boxes, self.boxes + 1):
            for axis, lo, hi in box:
                bounds.axis[term] = axis
                bounds.lo[term] = lo
                bounds.hi[term] = hi
                term += 1
            bounds.first_term[place] = term
        bounds.first_box[row + 1] = self.boxes + len(boxes)
        columns.scores[row] = score
        columns.arrival[row] = arrival
        columns.died[row] = NEVER
        columns.ids[row] = subscription
        if columns.weights is not None:
            columns.weights[row] = 1.0 if weights is None else weights
        self.terms = term
        self.boxes += len(boxes)
        self.count += 1
        return row

    def mark_dead(self, rows: Sequence[int] | I64, edit: int | I64) -> None:
        """Let rows be dead from an edit on; readers at earlier edits still see them."""
        columns, places = self.columns, np.asarray(rows, dtype=np.int64)
        columns.died[places] = edit
        np.bitwise_or.at(columns.gone, places >> 5, (1 << (places & 31)).astype(np.uint32))

    def _weigh(self) -> None:
        """Make the column of weights, if there is none yet: until now all are 1."""
        if self.columns.weights is None:
            ones = np.ones((len(self.columns.scores), self.dimensions))
            self.columns = self.columns._replace(weights=ones)

    def _reserve(self, rows: int, boxes: int, terms: int, kind: np.dtype[Any]) -> None:
        """Make room; refuse ids of another kind than those that are there."""
        old = self.columns
        if old.ids.dtype != kind:
            if self.count:
                had = "integers" if old.ids.dtype == np.int64 else "texts"
                raise UsageError(f"the ids of this set are {had}; all ids of a set are of one kind")
            old = self.columns = old._replace(ids=old.ids.astype(kind))
        if (
            self.count + rows < len(old.bounds.first_box)
            and self.count + rows <= min(len(old.scores), 32 * len(old.gone))
            and self.boxes + boxes < len(old.bounds.first_term)
            and self.terms + terms <= len(old.bounds.lo)
        ):
            return
        self.columns = Columns(
            bounds=Bounds(
                first_box=_room(old.bounds.first_box, self.count + 1, rows),
                first_term=_room(old.bounds.first_term, self.boxes + 1, boxes),
                axis=_room(old.bounds.axis, self.terms, terms),
                lo=_room(old.bounds.lo, self.terms, terms),
                hi=_room(old.bounds.hi, self.terms, terms),
            ),
            scores=_room(old.scores, self.count, rows),
            arrival=_room(old.arrival, self.count, rows),
            died=_room(old.died, self.count, rows),
            gone=_room(old.gone, (self.count + 31) >> 5, (rows >> 5) + 1),
            ids=_room(old.ids, self.count, rows),
            weights=None if old.weights is None else _room(old.weights, self.count, rows),
        )

    def boxes_of(self, rows: I64) -> Boxes:
        """Return the subscriptions of these rows, in this order."""
        return boxes_of(self.columns, rows, self.dimensions)

    @property
    def memory(self) -> int:
        """Bytes of the columns, the texts of ids not counted."""
        arrays = (*self.columns.bounds, *self.columns[1:])
        return sum(array.nbytes for array in arrays if array is not None)


@jit
def _spread(bounds: Bounds, rows: I64, lo: F64, hi: F64, owner: I32) -> None:
    """Write the boxes of these rows, in this order, densely. Other threads may run meanwhile."""
    place = 0
    for row in range(len(rows)):
        for box in range(bounds.first_box[rows[row]], bounds.first_box[rows[row] + 1]):
            lo[place] = -np.inf
            hi[place] = np.inf
            owner[place] = row
            for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
                lo[place, bounds.axis[term]] = bounds.lo[term]
                hi[place, bounds.axis[term]] = bounds.hi[term]
            place += 1


def boxes_of(columns: Columns, rows: I64, dimensions: int) -> Boxes:
    """Return the subscriptions of these rows as dense boxes, in this order."""
    first = columns.bounds.first_box
    count = int((first[rows + 1] - first[rows]).sum())
    lo, hi = np.empty((count, dimensions)), np.empty((count, dimensions))
    owner = np.empty(count, np.int32)
    _spread(columns.bounds, rows, lo, hi, owner)
    for array in (lo, hi, owner):
        array.flags.writeable = False
    return Boxes.of(
        lo,
        hi,
        owner=owner,
        ids=pa.array(columns.ids[rows]),
        scores=columns.scores[rows],
        weights=None if columns.weights is None else columns.weights[rows],
    )


def terms_of(columns: Columns, row: int) -> list[Box]:
    """Return the boxes of one row as a filter holds them."""
    bounds = columns.bounds
    first = bounds.first_term[bounds.first_box[row] : bounds.first_box[row + 1] + 1].tolist()
    return [
        tuple(
            zip(
                bounds.axis[start:end].tolist(),
                bounds.lo[start:end].tolist(),
                bounds.hi[start:end].tolist(),
                strict=True,
            )
        )
        for start, end in pairwise(first)
    ]


def _room(array: AnyArray, used: int, more: int) -> AnyArray:
    """Return an array with room for more; the old one stays as it is for who reads it."""
    if used + more <= len(array):
        return array
    larger = np.zeros((max(used + more, 2 * used, 64), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
