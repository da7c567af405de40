"""Painter on a line: calls the kernels that write messages, for single changes or a batch.

Owns their working memory, and an outbox of bounded size that is drained whenever it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, grown
from rangecast.kernels.bundle import Bundle
from rangecast.notify.line.batch import BETTER, SAME, WORSE, paint_batch, sweep_all
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.objects import Objects
from rangecast.notify.line.paint import EVENT, paint_changes
from rangecast.notify.line.quiet import quiet_from
from rangecast.notify.line.staircase import ROOM, Scratch
from rangecast.notify.line.tree import Frontier
from rangecast.notify.messages import Outbox, Work

_BUFFER = 1 << 12


class Painter:
    """Painter for lists of k, whose tiles are joined into at most this many `groups`."""

    def __init__(self, k: int, groups: int, *, uses_interests: bool):
        self._k = k
        self._groups = groups
        self._uses_interests = uses_interests
        self._scratch = Bundle(Scratch.of(k))
        self._frontier = Bundle(Frontier.empty())
        self._out = Bundle(Outbox.of(max(_BUFFER, 4 * k + 2 * ROOM)))
        self._cursor, self._sweep = np.zeros(4, np.int64), np.zeros(5)
        self._work = np.zeros(4, np.int64)
        self._one_slot, self._one_y = np.zeros(1, np.int32), np.zeros(1)
        self._batch = 0
        """Number of the batch; slots with this number in `_marks` are known to change."""
        self._marks, self._exposed = np.zeros(0, np.int64), np.zeros(0, np.int32)

    @property
    def work(self) -> Work:
        """Calls of each kind so far."""
        return Work(*self._work.tolist())

    def paint(
        self, objects: Objects, interests: Interests, slots: Sequence[int], ys: Sequence[float]
    ) -> Outbox:
        """Apply changes of values one after the other; return the messages of all changes."""
        if len(slots) == 1:
            self._one_slot[0], self._one_y[0] = slots[0], ys[0]
            which, values = self._one_slot, self._one_y
        else:
            which, values = np.array(slots, np.int32), np.array(ys, np.float64)

        def paint() -> int:
            return paint_changes(
                objects.table,
                interests.table,
                which,
                values,
                self._k,
                self._groups,
                self._uses_interests,
                self._scratch.table,
                self._frontier.table,
                self._out.table,
                self._cursor,
                self._sweep,
                self._work,
            )

        return self._drained(paint, len(which))

    def quiet_from(self, objects: Objects, interests: Interests, slot: int) -> float:
        """Return the least value from which on an object is in no list; NaN if it is in one."""
        tables = self._scratch.table, self._frontier.table
        return quiet_from(objects.table, interests.table, slot, self._k, *tables)

    def paint_batch(
        self,
        objects: Objects,
        before: Objects,
        interests: Interests,
        slots: I32,
        olds: F64,
        ys: F64,
    ) -> Outbox:
        """Apply changes of values from `olds` at once; return the net messages, as one change.

        `before` are the objects before the batch; they are not modified.
        """
        arrivals = np.array([objects.of(slot)[2] for slot in slots.tolist()], np.int64)
        worse, better = np.flatnonzero(ys > olds), np.flatnonzero(ys < olds)
        worse = worse[np.lexsort((arrivals[worse], ys[worse]))[::-1]]
        objects.change_many(slots[better], ys[better])
        self._batch += 1  # nothing is cleared: the cost of a batch depends on its size, not on n
        self._marks = grown(self._marks, len(objects.line.place))
        self._exposed = grown(self._exposed, len(objects.line.place))
        self._marks[slots[worse]] = self._marks[slots[better]] = self._batch
        exposed = sweep_all(
            objects.table,
            interests.table,
            slots[worse],
            ys[worse],
            self._k,
            self._uses_interests,
            self._scratch.table,
            self._frontier.table,
            self._sweep,
            self._batch,
            self._marks,
            self._exposed,
            self._work,
        )
        order = np.concatenate([slots[worse], self._exposed[:exposed], slots[better]])
        sizes = [len(worse), exposed, len(better)]
        kinds = np.repeat(np.array([WORSE, SAME, BETTER], np.int8), sizes)

        def paint() -> int:
            return paint_batch(
                objects.table,
                before.table,
                interests.table,
                order,
                kinds,
                self._k,
                self._groups,
                self._uses_interests,
                self._scratch.table,
                self._frontier.table,
                self._out.table,
                self._cursor,
                self._sweep,
                self._work,
            )

        return self._drained(paint, len(order))

    def _drained(self, paint: Callable[[], int], end: int) -> Outbox:
        """Call a kernel until it is done, draining the outbox after each call."""
        self._cursor[:] = 0
        pieces: list[list[Any]] = []
        while self._cursor[EVENT] < end:
            n = paint()
            if n:
                pieces.append([column[:n].copy() for column in self._out.arrays])
        if not pieces:
            pieces.append([column[:0].copy() for column in self._out.arrays])
        if len(pieces) == 1:
            return Outbox(*pieces[0])
        return Outbox(*map(np.concatenate, zip(*pieces, strict=True)))
