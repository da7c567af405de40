"""The subscriber's side over a space: a list per box of its filter, kept up to date by messages.

The k best of a filter with several boxes are the best among the k best of each box.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.model.filters.filter import Filter
from rangecast.notify.boxes.kdtree import LEVELS, KdTree
from rangecast.notify.boxes.messages import BoxMessage, BoxMessages
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.search import best_of, entries_within
from rangecast.notify.subscriber import apply_message


class BoxEntry(NamedTuple):
    """An object of a list. Of equal values the one that arrived first ranks first."""

    y: float
    arrival: int
    object: Any
    values: Mapping[str, Any]


class BoxInterest:
    """One filter over a space and its list of the k best objects there."""

    def __init__(
        self,
        filter: Filter,  # noqa: A002
        k: int,
        *,
        keeps: int | None = None,
        entries: Iterable[Iterable[BoxEntry]] = (),
        seq: int = -1,
        descending: bool = False,
    ):
        self.filter, self.k = filter, k
        self.keeps = max(k, keeps or k)
        self.descending = descending
        """Whether the highest value ranks first."""
        lo, hi = filter.arrays()
        self._boxes = list(zip(lo.tolist(), hi.tolist(), strict=True))
        given = list(entries) or [[] for _ in self._boxes]
        self._lists = [sorted(one, key=self._rank)[: self.keeps] for one in given]
        self._applied = (seq, -1 if seq < 0 else 1 << 62)

    def receive(self, message: BoxMessage) -> bool:
        """Apply a message and return whether the list, as shown, changed.

        One that is not meant for this interest, or was applied before, does nothing.
        """
        number = (message.seq, message.position)
        reached = [at for at, (lo, hi) in enumerate(self._boxes) if message.reaches(lo, hi)]
        if number <= self._applied or not reached:
            return False
        self._applied = number
        shown = self.best
        for at in reached:
            entries = [e for e in self._lists[at] if e.object != message.object]
            if not message.is_gone:
                new = BoxEntry(message.y, message.arrival, message.object, message.values)
                insort(entries, new, key=self._rank)
            self._lists[at] = entries[: self.keeps]
        return self.best != shown

    @property
    def best(self) -> list[BoxEntry]:
        """The k best objects, the best first."""
        return merged(self._lists, self._rank)[: self.k]

    def _rank(self, entry: BoxEntry) -> tuple[float, int]:
        return -entry.y if self.descending else entry.y, entry.arrival


def merged(lists: Iterable[Iterable[BoxEntry]], rank: Any) -> list[BoxEntry]:
    """Return the entries of several lists, each object once, the best first."""
    found = {entry.object: entry for one in lists for entry in one}
    return sorted(found.values(), key=rank)


@jit
def _deliver(
    tree_table: I64,
    arrival: I64,
    y: F64,
    tile: F64,
    arrivals: I64,
    ys: F64,
    found: I32,
    received: I64,
) -> None:
    """Apply messages to the lists that they reach, and count them for each list."""
    tree = opened(tree_table, KdTree)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    for i in range(len(arrival)):
        for j in range(entries_within(tree, tile[i], found, stack)):
            row = tree.row[found[j]]
            received[row] += 1
            apply_message(arrivals, ys, row, arrival[i], y[i])


@jit
def _look_up(objects_table: I64, tree_table: I64, k: int, arrivals: I64, ys: F64) -> None:
    """Work out the list of every box from the objects."""
    objects, tree = opened(objects_table, KdTree), opened(tree_table, KdTree)
    rows, d = np.empty(k, np.int32), objects.at.shape[1]
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    for e in range(len(tree.row)):
        mine = tree.row[e]
        if mine < 0:
            continue
        at = tree.at[e]
        n = best_of(objects, at[:d], at[d:], k, rows, ys[mine], arrivals[mine], stack)
        arrivals[mine, n:] = -1
        ys[mine, n:] = np.inf


class BoxLists:
    """The lists of all boxes of interests, by row."""

    def __init__(self, interests: Points, arrivals: I64, ys: F64):
        self._interests = interests
        self.arrivals, self.ys = arrivals, ys
        self.received = np.zeros(len(arrivals), np.int64)
        """Messages that each list received so far."""

    @classmethod
    def now(cls, objects: Points, interests: Points, k: int) -> BoxLists:
        """Return the lists of k as they should be now."""
        arrivals = np.full((interests.rows, k), -1, np.int64)
        ys = np.full((interests.rows, k), np.inf)
        _look_up(objects.table, interests.table, k, arrivals, ys)
        return cls(interests, arrivals, ys)

    def deliver(self, messages: BoxMessages) -> None:
        """Apply messages, in order, to all lists that they reach."""
        ys = (-messages.y if messages.descending else messages.y) + 0.0
        _deliver(
            self._interests.table,
            messages.arrival,
            ys,
            messages.tile,
            self.arrivals,
            self.ys,
            np.empty(self._interests.count, np.int32),
            self.received,
        )

    def wrong(self, objects: Points) -> I32:
        """Return the rows of the lists that differ from a recomputation."""
        right = BoxLists.now(objects, self._interests, self.arrivals.shape[1])
        differ = (right.arrivals != self.arrivals).any(axis=1) | (right.ys != self.ys).any(axis=1)
        return np.flatnonzero(differ).astype(np.int32)
