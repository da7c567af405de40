"""Merge the answers of several parts of a set, in the order of the whole set.

Each part answers for its own subscriptions, in order of arrival or best first. Answers to be merged
have a column `ARRIVAL` that gives the order of arrival across parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I32, I64, Bool, offsets_of
from rangecast.kernels.jit import jit
from rangecast.model.answers.answerer import Answers

ARRIVAL = "_arrival"
"""The column that says which of two subscriptions arrived first."""


_FEW = 64
"""Rows of an event that are sorted by insertion."""


class PartAnswers(NamedTuple):
    """Answers of one part: the event of each row, ascending, and the columns."""

    events: I64
    columns: dict[str, pa.Array]


@jit
def _order(events: I64, arrival: I64, offsets: I64, order: I64) -> None:
    """Sort rows by event, then by arrival, into `order`; `offsets` holds each event's first row."""
    ends = offsets[:-1].copy()
    for row in range(len(events)):
        order[ends[events[row]]] = row
        ends[events[row]] += 1
    for event in range(len(offsets) - 1):
        listed = order[offsets[event] : offsets[event + 1]]
        if len(listed) > _FEW:
            rows = listed[np.argsort(arrival[listed])]
            for slot in range(len(listed)):
                listed[slot] = rows[slot]
            continue
        for slot in range(1, len(listed)):  # a few rows, in runs that ascend
            row = listed[slot]
            at = slot
            while at > 0 and arrival[listed[at - 1]] > arrival[row]:
                listed[at] = listed[at - 1]
                at -= 1
            listed[at] = row


def merge(first: int, events: int, parts: Sequence[PartAnswers], best: int | None) -> Answers:
    """Merge the parts' answers to `events` consecutive events, starting at `first`.

    best   maximum number of answers per event, by score, then by arrival; `None`: all, by arrival
    """
    of_event = np.concatenate([part.events for part in parts])
    columns = {
        name: pa.concat_arrays([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    arrival = columns.pop(ARRIVAL).to_numpy()
    offsets = offsets_of(np.bincount(of_event, minlength=events))
    if best is None:
        if len(parts) == 1:
            return Answers(first, offsets, columns)
        order = np.empty(len(of_event), np.int64)
        _order(of_event, arrival, offsets, order)
        return Answers(first, offsets, {name: _taken(c, order) for name, c in columns.items()})
    scores: F64 = columns["score"].to_numpy()
    order = np.lexsort((arrival, -scores, of_event))
    rank = np.arange(len(order)) - offsets[of_event[order]]
    order, rank = order[rank < best], rank[rank < best]
    taken = {name: _taken(column, order) for name, column in columns.items()}
    taken["rank"] = pa.array(rank + 1)
    return Answers(first, offsets_of(np.minimum(np.diff(offsets), best)), taken)


def arrivals_of(arrival: I64 | None, rows: I32 | I64) -> pa.Array:
    """Return the arrival numbers of rows of a part."""
    return pa.array(rows.astype(np.int64) if arrival is None else arrival[rows])


def dead_rows(arrival: I64 | None, rows: int, gone: I64) -> Bool | None:
    """Return a mask of the rows whose arrival number is in `gone`, or `None` if none is."""
    places = gone if arrival is None else np.searchsorted(arrival, gone)
    there = places < rows
    if arrival is not None:
        there[there] = arrival[places[there]] == gone[there]
    if not there.any():
        return None
    dead = np.zeros(rows, np.bool_)
    dead[places[there]] = True
    return dead


def _taken(column: pa.Array, order: I64) -> pa.Array:
    if pa.types.is_integer(column.type):
        return pa.array(column.to_numpy()[order])
    return column.take(pa.array(order))
