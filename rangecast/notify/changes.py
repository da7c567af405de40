"""Changes of top-k lists: whose list changed, and how.

Messages say where interests lie that they go to. Here they are applied to the lists, and the lists
that they reach are compared before and after each update. An update costs time in proportion to
the lists that it reaches and their length; lists that it doesn't reach cost nothing.

    seq           the update, or the batch
    interest      whose list changed
    change        entered, left, moved (to another rank) or changed (a value, at the same rank)
    object        the object that did so
    rank          its rank after the update, from 1; null if it left
    rank_before   its rank before the update; null if it entered
    value         its value after the update; null if it left

Of objects that stay in a list, only those that were updated have a row; others just shift.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import I64
from rangecast.model.boxes import id_array
from rangecast.model.sets.members import Id
from rangecast.notify.board import Board
from rangecast.notify.messages import Messages

_Entry = tuple[int, float]
"""Rank and value of an object."""


class _Interest(NamedTuple):
    id: Id
    rows: list[int]
    """The row of each of its boxes."""
    k: int


class ListChanges:
    """The lists of a board, and the changes that messages make.

    The interests of the board must not change.
    """

    def __init__(self, board: Board, objects: pa.DataType):
        """Start from the current lists; `objects` is the id type of objects."""
        self.lists = board.lists()
        self._signed = board._signed
        self._seq = board.seq
        self._interests: dict[int, _Interest] = {}
        for id_, first in board._members.items():
            rows = board.engine.rows_of(first)
            interest = _Interest(id_, rows, board._wanted.get(first, board.k))
            self._interests |= dict.fromkeys(rows, interest)
        table = board.table()
        arrivals = table["arrival"].to_pylist()
        self._names: dict[int, Any] = dict(zip(arrivals, table["id"].to_pylist(), strict=True))
        """Objects by arrival number."""
        whole = pa.int64()
        self.schema = pa.schema(
            {
                "seq": whole,
                "interest": id_array(list(board)).type,
                "change": pa.string(),
                "object": objects,
                "rank": whole,
                "rank_before": whole,
                "value": pa.float64(),
            }
        )

    def apply(
        self, messages: Messages, seq: I64, updated: Sequence[Collection[Any]]
    ) -> pa.RecordBatch:
        """Apply messages and return the changes in the lists.

        seq       the number of each message
        updated   the objects of each update, or of the batch
        """
        rows: list[tuple[Any, ...]] = []
        ys = self._signed(messages.value) + 0.0
        ends = [*(np.flatnonzero(np.diff(messages.seq)) + 1).tolist(), len(messages)]
        begin = 0
        for end in ends if len(messages) else []:
            part = slice(begin, end)
            reached = self.lists.reached(messages.tile[part]).tolist()
            interests = {
                id(watched): watched for watched in map(self._interests.__getitem__, reached)
            }
            before = [self._list(interest) for interest in interests.values()]
            named = zip(messages.arrival[part].tolist(), messages.objects[part], strict=True)
            self._names.update(named)
            self.lists.apply(messages.arrival[part], ys[part], messages.tile[part])
            objects = frozenset(updated[int(messages.seq[begin]) - self._seq])
            for interest, old in zip(interests.values(), before, strict=True):
                head = (int(seq[begin]), interest.id)
                rows += [(*head, *row) for row in _changes(old, self._list(interest), objects)]
            begin = end
        self._seq += len(updated)
        columns = zip(*rows, strict=True) if rows else [[]] * len(self.schema)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.record_batch(arrays, schema=self.schema)

    def _list(self, interest: _Interest) -> dict[Any, _Entry]:
        """Return the list of an interest in display form: objects, the best first."""
        arrivals, ys = self.lists.arrivals[interest.rows], self.lists.ys[interest.rows]
        pairs = zip(ys.ravel().tolist(), arrivals.ravel().tolist(), strict=True)
        keys = [key for key in pairs if key[1] >= 0]
        if len(interest.rows) > 1:
            keys = sorted(set(keys))
        return {
            self._names[arrival]: (rank, self._signed(y))
            for rank, (y, arrival) in enumerate(keys[: interest.k], 1)
        }


def _changes(
    before: dict[Any, _Entry], after: dict[Any, _Entry], updated: Collection[Any]
) -> list[tuple[str, Any, int | None, int | None, float | None]]:
    """Return the changes of a list: change, object, rank, rank before and value."""
    changes: list[tuple[str, Any, int | None, int | None, float | None]] = [
        ("left", object_id, None, rank, None)
        for object_id, (rank, _) in before.items()
        if object_id not in after
    ]
    for object_id, (rank, y) in after.items():
        old = before.get(object_id)
        if old is None:
            changes.append(("entered", object_id, rank, None, y))
        elif object_id in updated and old != (rank, y):
            changes.append(("moved" if old[0] != rank else "changed", object_id, rank, old[0], y))
    return changes
