"""Ids of matched rows, in order of arrival, as lists and arrays.

The rows of a live set are in order of arrival, except for replacements, which are appended later.
So most rows are sorted by number, and only the later ones by arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.ahead import must_wait
from rangecast.kernels.arrays import I32, I64, AnyArray, readonly
from rangecast.kernels.bits import prefetch
from rangecast.kernels.bundle import Bundle, edited, integers_at, opened
from rangecast.kernels.jit import direct, jit, jit_single
from rangecast.kernels.object_list import integer_objects, listed
from rangecast.kernels.ordering import sort_rows
from rangecast.model.sets.members import Id
from rangecast.model.sets.rowstore import RowArrays

_APART = 32
"""Rows of the set to a row found, beyond which ids are fetched while the rows are sorted."""

_MANY = 4096
"""Rows from which on a set uses the objects of small integers: it is larger than these."""


@edited
class _Order(NamedTuple):
    """Order of the rows of a set."""

    arrival: I64
    ascending: int
    """Rows before this one arrived one after the other."""
    ids: int
    """Address of the ids of all rows."""
    are_objects: int
    """Whether these are objects; otherwise they are integers of 64 bits."""
    integers: int
    """Address of the objects of the smallest integers; 0: they aren't used."""


@jit
def _merge(rows: I32, ascending: int, arrival: I64, out: I32) -> None:
    """Write rows by arrival, where some are not in ascending order."""
    early = 0
    for row in rows:
        early += row < ascending
    first, late = np.empty(early, np.int32), np.empty(len(rows) - early, np.int32)
    a = b = 0
    for row in rows:
        if row < ascending:
            first[a] = row
            a += 1
        else:
            late[b] = row
            b += 1
    sorted_first = np.empty(early + 4, np.int32)
    sort_rows(first, ascending, sorted_first)
    late = late[np.argsort(arrival[late])]
    a = b = 0
    for i in range(len(rows)):
        if b == len(late) or (a < early and arrival[sorted_first[a]] < arrival[late[b]]):
            out[i] = sorted_first[a]
            a += 1
        else:
            out[i] = late[b]
            b += 1


@jit
def _in_order(order: _Order, rows: I32) -> I32:
    out = np.empty(len(rows) + 4, np.int32)
    last = -1
    for row in rows:
        last = max(last, row)
    if last > _APART * len(rows):  # each id lies in a cache line of its own
        ids = integers_at(order.ids)
        for row in rows:
            prefetch(ids, row)
    if last < order.ascending:
        sort_rows(rows, last + 1, out)
    else:
        _merge(rows, order.ascending, order.arrival, out)
    return out[: len(rows)]


@jit_single
def _rows_in_order(table: I64, rows: I32) -> I32:
    return _in_order(opened(table, _Order), rows)


@jit_single
def _ids_in_order(table: I64, rows: I32) -> Any:
    order = opened(table, _Order)
    return listed(_in_order(order, rows), order.ids, order.are_objects != 0, order.integers)


@jit_single
def _integers_in_order(table: I64, rows: I32) -> I64:
    order = opened(table, _Order)
    ids, ordered = integers_at(order.ids), _in_order(order, rows)
    out = np.empty(len(ordered), np.int64)
    for i in range(len(ordered)):
        out[i] = ids[ordered[i]]
    return out


_KERNELS = _rows_in_order, _ids_in_order, _integers_in_order
_entries: list[tuple[Any, ...]] = []
"""The kernels, once they are compiled."""


def _compiled() -> tuple[Any, ...] | None:
    """Return the kernels; `None` while another process compiles them."""
    if not _entries:
        if must_wait("match", *_KERNELS):
            return None
        types = readonly(np.empty(0, np.int64)), np.empty(0, np.int32)
        _entries.append(tuple(direct(kernel, *types) for kernel in _KERNELS))
    return _entries[0]


class IdLists:
    """Ids of a set's rows; the rows before `ascending` are in order of arrival."""

    __slots__ = ("_arrival", "_bundle", "_integers", "array", "ids", "list", "rows_in_order")

    def __init__(self, rows: RowArrays, ascending: int):
        self.ids: AnyArray = rows.ids
        """By row."""
        self._arrival = rows.arrival
        are_objects = int(rows.ids.dtype.hasobject)
        has_many = not are_objects and len(rows.ids) >= _MANY
        self._integers = integer_objects() if has_many else None
        integers = 0 if self._integers is None else self._integers.ctypes.data
        ids = rows.ids.ctypes.data
        self._bundle = Bundle(_Order(rows.arrival, ascending, ids, are_objects, integers))
        self.rows_in_order: Callable[[I32], I32] = self._plain_order
        """Return rows by arrival."""
        self.list: Callable[[I32], list[Id]] = self._plain_list
        """Return the ids of rows as a list, by arrival."""
        self.array: Callable[[I32], AnyArray] = self._plain_array
        """Return the ids of rows by arrival: integers, or objects for text ids."""
        self._take_kernels()

    def _take_kernels(self) -> bool:
        """Load the kernels if they are compiled; return whether they are."""
        entries = _compiled()
        if entries is None:
            return False
        table = self._bundle.table
        self.rows_in_order, self.list = partial(entries[0], table), partial(entries[1], table)
        if not self.ids.dtype.hasobject:
            self.array = partial(entries[2], table)
        return True

    def _plain_order(self, rows: I32) -> I32:
        if self._take_kernels():
            return self.rows_in_order(rows)
        ordered: I32 = rows[np.argsort(self._arrival[rows])]
        return ordered

    def _plain_list(self, rows: I32) -> list[Id]:
        if self._take_kernels():
            return self.list(rows)
        ids: list[Id] = self.ids.take(self._plain_order(rows)).tolist()
        return ids

    def _plain_array(self, rows: I32) -> AnyArray:
        return self.ids.take(self.rows_in_order(rows))
