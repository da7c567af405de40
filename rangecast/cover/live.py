"""Rows of a covering graph: allocated, added and removed by number; `graph` has the rules.

`CoverSet` gives rows their ids; `batch` does without. Rows and boxes are handed out here, and used
again once they are free. Arrays are made larger, and the index is arranged again, when a kernel
asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.cover.graph import (
    IS_STALE,
    NEEDS_EDGES,
    NEEDS_LOG,
    NEEDS_ROOM,
    Commands,
    Messages,
    kernels_for,
)
from rangecast.cover.index import Index
from rangecast.cover.store import (
    BY_BOX,
    BY_ROW,
    NONE,
    USED_EDGES,
    boxes_of,
    empty,
    points_of,
    with_room,
)
from rangecast.kernels.arrays import F64, I32, I64, U8, AnyArray, Bool, grown
from rangecast.kernels.bundle import Bundle
from rangecast.model.filters.regions import Box


class RowMessages(NamedTuple):
    """Messages to neighbours, in the order in which they are to be sent."""

    command: I64
    row: I32
    withdraws: Bool


class Live:
    """Live rows in a covering graph over a covering index.

    late   whether a new root searches for roots that it covers; the printed algorithm doesn't
    """

    def __init__(
        self, index: Index, dimensions: int, k: int, *, roots_only: bool, late: bool = True
    ):
        self.index = index
        self.store = empty(dimensions)
        self.live = np.empty(0, np.bool_)
        self.rows = self.boxes = 0
        """Number of rows ever used."""
        self._k = k
        self._roots_only = roots_only
        self._late = late
        log = Messages(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
        self._log = Bundle(log)
        self._single = Bundle(Commands(np.empty(1, np.int32), np.empty(1, np.uint8)))
        self._free_rows: list[int] = []
        self._free_boxes: list[int] = []
        self._arrivals = 0

    def new_rows(self, lo: F64, hi: F64, owner: I32, count: int) -> I32:
        """Store the boxes of `count` subscriptions; return their rows, which are not live yet.

        `owner` is 0 .. count - 1, ascending.
        """
        rows = _taken(self._free_rows, self.rows, count)
        boxes = _taken(self._free_boxes, self.boxes, len(lo))
        self.rows = max(self.rows, int(rows.max(initial=NONE)) + 1)
        self.boxes = max(self.boxes, int(boxes.max(initial=NONE)) + 1)
        self._grow(0)
        store = self.store.arrays
        store.points[boxes] = points_of(lo, hi)
        store.owner[boxes] = rows[owner]
        is_last = np.diff(owner, append=count) != 0
        store.following[boxes] = np.where(is_last, NONE, np.roll(boxes, -1))
        store.first[rows] = boxes[np.diff(owner, prepend=NONE) != 0]
        store.arrival[rows] = np.arange(self._arrivals, self._arrivals + count)
        store.advertised[rows] = store.coverers[rows] = 0
        store.inward[rows] = store.outward[rows] = NONE
        self._arrivals += count
        return rows

    def new_row(self, boxes: Sequence[Box]) -> int:
        """Store one subscription, given as the boxes of a filter; return its row.

        Like `new_rows`, but ten times faster for one row.
        """
        row = self._free_rows.pop() if self._free_rows else self.rows
        places = [self._free_boxes.pop() for _ in boxes[: len(self._free_boxes)]]
        places += range(self.boxes, self.boxes + len(boxes) - len(places))
        if row == self.rows or max(places) >= self.boxes:
            self.rows = max(self.rows, row + 1)
            self.boxes = max(self.boxes, max(places) + 1)
            self._grow(0)
        store = self.store.arrays
        for slot, after, box in zip(places, [*places[1:], NONE], boxes, strict=True):
            store.points[slot] = np.inf
            for axis, lo, hi in box:
                store.points[slot, 2 * axis] = -lo
                store.points[slot, 2 * axis + 1] = hi
            store.owner[slot] = row
            store.following[slot] = after
        store.first[row] = places[0]
        store.arrival[row] = self._arrivals
        store.advertised[row] = store.coverers[row] = 0
        store.inward[row] = store.outward[row] = NONE
        self._arrivals += 1
        return row

    def add_boxes(self, rows: I32, lo: F64, hi: F64) -> None:
        """Add one more box to each of some live rows; it adds nothing to their union."""
        boxes = _taken(self._free_boxes, self.boxes, len(lo))
        self.boxes = max(self.boxes, int(boxes.max()) + 1)
        self._grow(0)
        store = self.store.arrays
        store.points[boxes] = points_of(lo, hi)
        store.owner[boxes], store.following[boxes] = rows, NONE
        for row, box in zip(rows.tolist(), boxes.tolist(), strict=True):
            last = int(store.first[row])
            while store.following[last] != NONE:
                last = int(store.following[last])
            store.following[last] = box
        held = self.index.held()
        more = boxes[np.isin(store.first[rows], held)]
        if len(more):
            self.index.hold(self.store, np.concatenate([held, more]))

    def do(self, rows: I32, comes: U8) -> RowMessages:
        """Add and remove rows in order; the boxes of new rows are already stored."""
        commands = Bundle(Commands(rows, comes))
        self._log = self._log.grown(**dict.fromkeys(Messages._fields, len(rows)))
        sent: list[list[npt.NDArray[np.generic]]] = []
        at = 0
        while at < len(rows):
            at, logged, reason, lacking = kernels_for(self.index).run(
                *self._tables, commands.table, at, *self._options, self._log.table
            )
            sent.append([column[:logged].copy() for column in self._log.arrays])
            self._provide_room(reason, lacking)
        self.live[rows] = comes == 1
        self.free(rows[comes == 0])
        return self._in_order(sent)

    def do_one(self, row: int, *, comes: bool) -> tuple[list[int], bool]:
        """Add or remove a row; return the rows to advertise, and whether to withdraw it."""
        command = self._single.arrays
        command.row[0], command.comes[0] = row, comes
        at = logged = 0
        while at == 0:
            at, logged, reason, lacking = kernels_for(self.index).run_one(
                *self._tables, self._single.table, 0, *self._options, self._log.table
            )
            self._provide_room(reason, lacking)
        log = self._log.arrays
        withdraws = logged > 0 and bool(log.withdraws[logged - 1])
        exposed = log.row[: logged - withdraws].tolist()
        if len(exposed) > 1:
            exposed = self.by_arrival(log.row[: len(exposed)]).tolist()
        self.live[row] = comes
        if not comes:
            self.free(command.row)
        return exposed, withdraws

    @property
    def _options(self) -> tuple[int, bool, bool]:
        return self._k, self._roots_only, self._late

    @property
    def _tables(self) -> tuple[I64, I64]:
        return self.index.state.table, self.store.table

    def _provide_room(self, reason: int, lacking: int) -> None:
        """Provide the room that a kernel stopped for."""
        if reason == NEEDS_EDGES:
            self._grow(int(self.store.arrays.header[USED_EDGES]) + lacking)
        elif reason == NEEDS_ROOM:
            self.index.make_room(lacking)
        elif reason == IS_STALE:
            self.index.hold(self.store, self.index.held())
        elif reason == NEEDS_LOG:
            self._log = self._log.grown(**dict.fromkeys(Messages._fields, lacking))

    def by_arrival(self, rows: I64 | I32) -> I64:
        """Return rows in order of arrival."""
        return rows[np.argsort(self.store.arrays.arrival[rows], kind="stable")].astype(np.int64)

    def roots(self) -> I64:
        """Return the live rows without incoming edges, in order of arrival."""
        is_root = self.live[: self.rows] & (self.store.arrays.coverers[: self.rows] == 0)
        return self.by_arrival(np.flatnonzero(is_root))

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return self.store.memory + self.index.state.memory

    def _grow(self, edges: int) -> None:
        self.store = with_room(self.store, rows=self.rows, boxes=self.boxes, edges=edges)
        self.index.reserve(len(self.store.arrays.owner))
        self.live = grown(self.live, self.rows)

    def _in_order(self, sent: list[list[npt.NDArray[np.generic]]]) -> RowMessages:
        """Return all messages by command; then exposures before withdrawals, then by arrival."""
        if not sent:
            return RowMessages(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_))
        command, row, withdraws = (np.concatenate(column) for column in zip(*sent, strict=True))
        if len(row) > 1:
            order = np.lexsort((self.store.arrays.arrival[row], withdraws, command))
            command, row, withdraws = command[order], row[order], withdraws[order]
        return RowMessages(command, row, withdraws == 1)

    def free(self, rows: I32) -> None:
        """Free rows that aren't live, and their boxes."""
        self._free_rows += rows.tolist()
        self._free_boxes += boxes_of(self.store.arrays, rows.astype(np.int64)).tolist()

    # ---- snapshots

    def arrays(self) -> dict[str, AnyArray]:
        """Return all arrays but the index, which `restore` rebuilds."""
        store = self.store.arrays
        sizes = dict.fromkeys(BY_BOX, self.boxes) | dict.fromkeys(BY_ROW, self.rows)
        sizes |= {"edges": int(store.header[USED_EDGES]), "header": len(store.header)}
        free = {"free_rows": self._free_rows, "free_boxes": self._free_boxes}
        return {
            **{name: getattr(store, name)[:size] for name, size in sizes.items()},
            **{name: np.array(numbers, np.int32) for name, numbers in free.items()},
            "live": self.live[: self.rows],
            "arrivals": np.array([self._arrivals]),
        }

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Restore what `arrays` returned."""
        names = (*BY_BOX, *BY_ROW, "edges", "header")
        self.store = self.store.replaced(**{name: arrays[name].copy() for name in names})
        self.live = arrays["live"].copy()
        self.rows, self.boxes = len(arrays["first"]), len(arrays["owner"])
        self._free_rows = arrays["free_rows"].tolist()
        self._free_boxes = arrays["free_boxes"].tolist()
        self._arrivals = int(arrays["arrivals"][0])
        self._grow(len(arrays["edges"]))
        held = self.roots() if self._roots_only else np.flatnonzero(self.live[: self.rows])
        if len(held):
            self.index.hold(self.store, boxes_of(self.store.arrays, held))


def _taken(free: list[int], used: int, count: int) -> I32:
    """Return free numbers: the most recently freed first, then new ones."""
    reused = min(len(free), count)
    numbers = free[len(free) - reused :]
    del free[len(free) - reused :]
    return np.concatenate([numbers, np.arange(used, used + count - reused)]).astype(np.int32)
