"""Edits on structures that are built once: logarithmically many of them (the logarithmic method).

Rows are in parts; a part is a static structure. New rows wait in a short list, which is compared
row by row; when it is full it becomes a part, and parts of about one size become one of twice the
size. So a row is built in log n times, and an event is answered by log n parts. A removed row is
marked in its part and left out of answers; a part that is half dead is built anew. A new score is
a removal and an insertion, under the same number, so that ties stay as they were.

The paper leaves edits of the SOPT-R-tree open; this is how it gets them, and so does every other
structure. `IrTrees` is edited in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes, Floats, Rows, frozen
from rangecast.model.rows import NEVER
from rangecast.rank.choose import Index, Kind
from rangecast.rank.life import Life
from rangecast.rank.merged import Named, merged
from rangecast.rank.result import Best, Longs, Work, checked, new_best
from rangecast.rank.scan import Scan

_WAITING = 32
"""New rows that are compared one by one."""


class _Row(NamedTuple):
    lo: Floats
    hi: Floats
    score: float
    weights: Floats | None


class _Part:
    """A static structure over some rows, ascending, and which of them have died."""

    def __init__(self, kind: Kind, boxes: Boxes, names: Rows, *, relaxed: bool):
        self.index: Index = kind(boxes, relaxed=relaxed)
        self.names = names
        self.died: Longs = np.full(len(names), NEVER)
        self.alive = len(names)

    def best(self, points: Floats, k: int) -> Named:
        died = self.died.view()
        died.flags.writeable = False
        found = self.index.best(points, k, life=Life(self.names[:0], died, 0))
        return Named(found, self.names)


class Forest:
    """A set of subscriptions that changes, over static structures of one kind."""

    def __init__(self, kind: Kind, boxes: Boxes, *, relaxed: bool = False):
        self.kind = kind
        self.dimensions = boxes.dimensions
        self.relaxed = relaxed
        self._rows: dict[int, _Row] = {}
        self._part_of: dict[int, _Part] = {}
        """The part of each row that isn't waiting."""
        self._parts: list[_Part] = []
        self._waiting: list[int] = []
        for row in range(boxes.rows):
            some = slice(boxes.first[row], boxes.first[row + 1])
            weights = None if boxes.weights is None else boxes.weights[row : row + 1]
            score = float(boxes.scores[row])
            self._rows[row] = _Row(boxes.lo[some], boxes.hi[some], score, weights)
        if self._rows:
            self._build(list(self._rows))

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def parts(self) -> int:
        """Number of static structures."""
        return len(self._parts)

    def insert(
        self, row: int, lo: Floats, hi: Floats, score: float = 0.0, weights: Floats | None = None
    ) -> None:
        """Add a subscription with boxes (boxes, d); `row` must not be there."""
        if row in self:
            raise UsageError(f"row {row} is there already; delete it first")
        self._rows[row] = _Row(np.asarray(lo), np.asarray(hi), score, weights)
        self._waiting.append(row)
        if len(self._waiting) > _WAITING:
            waiting, self._waiting = self._waiting, []
            self._build(waiting)

    def delete(self, row: int) -> None:
        """Remove a subscription."""
        if row not in self:
            raise UsageError(f"no row {row} is there")
        del self._rows[row]
        part = self._part_of.pop(row, None)
        if part is None:
            self._waiting.remove(row)
            return
        part.died[np.searchsorted(part.names, row)] = 0
        part.alive -= 1
        if 2 * part.alive < len(part.names):
            self._parts.remove(part)
            self._build([one for one in part.names.tolist() if self._part_of.get(one) is part])

    def rescore(self, row: int, score: float = 0.0, weights: Floats | None = None) -> None:
        """Give a subscription another score or, in relaxed ranking, other weights."""
        old = self._rows.get(row)
        if old is None:
            raise UsageError(f"no row {row} is there")
        self.delete(row)
        self.insert(row, old.lo, old.hi, score, weights)

    def _build(self, rows: list[int]) -> None:
        """Make a part of these rows, together with all parts that aren't much larger."""
        small = [part for part in self._parts if part.alive < 2 * len(rows)]
        while small:
            for part in small:
                self._parts.remove(part)
                rows += [one for one in part.names.tolist() if self._part_of.get(one) is part]
            small = [part for part in self._parts if part.alive < 2 * len(rows)]
        if not rows:
            return
        rows = sorted(rows)
        part = _Part(self.kind, self._boxes(rows), frozen(rows, np.int32), relaxed=self.relaxed)
        self._parts.append(part)
        self._part_of.update(dict.fromkeys(rows, part))

    def _boxes(self, rows: list[int]) -> Boxes:
        given = [self._rows[row] for row in rows]
        ones = np.ones((1, self.dimensions))
        weights = [ones if one.weights is None else one.weights for one in given]
        return Boxes.of(
            np.concatenate([one.lo for one in given]),
            np.concatenate([one.hi for one in given]),
            owner=np.repeat(np.arange(len(rows)), [len(one.lo) for one in given]),
            scores=[one.score for one in given],
            weights=np.concatenate(weights),
        )

    @property
    def memory(self) -> int:
        """Bytes of all static structures."""
        return sum(part.index.memory for part in self._parts)

    def best(self, points: Floats, k: int) -> Best:
        """Return the k best of each event."""
        events = checked(points, self.dimensions, k)
        found = [part.best(events, k) for part in self._parts]
        if self._waiting:
            rows = sorted(self._waiting)
            scan = Scan(self._boxes(rows), relaxed=self.relaxed)
            found.append(Named(scan.best(events, k), frozen(rows, np.int32)))
        if not found:
            return Best(*new_best(len(events), 0), Work())
        return merged(found, None, min(k, len(self._rows)))
