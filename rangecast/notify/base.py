"""The engine of a board: the index of objects and interests, and the messages of a change.

A board has ids, the numbers of updates and the order of values; its engine has objects by slot and
interests by row, small numbers that are reused. The lowest y ranks first here, and of equal
ones the earliest arrival. An interest of several boxes has a row per box: the first one is its own.

Before the first batch there is one copy of the objects; from then on a second one, as they were
before the batch, is kept up to date beside it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite
from rangecast.notify.messages import Messages
from rangecast.notify.new_interests import Regions
from rangecast.notify.subscriber import InterestLists, ReceivingInterest
from rangecast.notify.tables import BoardTables, ObjectColumns


class BoardOptions(NamedTuple):
    """Options of a board that its engine depends on."""

    k: int
    space: Space | None = None
    upper_bound_attribute: str | None = None
    algorithm: str = "sparse"
    epsilon: float | None = None
    sketch: int | None = None

    @property
    def is_dense(self) -> bool:
        """Whether messages are computed from the objects alone."""
        return self.algorithm == "dense"

    @property
    def groups(self) -> int:
        """Maximum number of tiles per object: 1 / epsilon, and at most k."""
        return groups_of(self.epsilon, self.k)


def groups_of(epsilon: float | None, k: int) -> int:
    """Return the maximum number of tile groups: 1 / epsilon, but not more than k."""
    if epsilon is None:
        return k
    if not 0 < check_finite("epsilon", epsilon) <= 1:
        raise UsageError(f"epsilon must be above 0 and at most 1; given: {epsilon!r}")
    return min(k, math.ceil(1 / epsilon - 1e-9))


class MessageColumns(NamedTuple):
    """Messages of an engine, one array per column."""

    event: I64
    """Number of the change that caused the message."""
    ordinal: I64
    slot: I32
    arrival: I64
    position: F64
    y: F64
    tile: F64


class BoardEngine(ABC):
    """Objects by slot and interests by row."""

    tables: BoardTables
    objects: Any
    """Index of the objects, built by `load`."""
    message_type: type[Messages] = Messages

    def __init__(self, options: BoardOptions):
        self.options = options
        self._before: Any = None
        """The objects before the last batch, once there was one."""
        self._more: dict[int, list[int]] = {}
        """Other rows of interests with several boxes, by first row."""

    # ---- interests

    @abstractmethod
    def boxes(self, where: tuple[Any, ...]) -> F64:
        """Return the boxes of a range or filter, one row each: lower, then upper bounds."""

    def region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        """Return the boxes of an interest; reject an invalid one."""
        return self.boxes(where)

    @abstractmethod
    def add_region(self, region: F64) -> int:
        """Add the boxes of an interest; return its row."""

    @abstractmethod
    def add_regions(self, regions: Regions) -> range | list[int]:
        """Add interests; return their rows, as a range if they are 0, 1, 2, ..."""

    @abstractmethod
    def remove_region(self, row: int) -> None:
        """Remove an interest."""

    @abstractmethod
    def bounds(self, row: int) -> F64:
        """Return the boxes of an interest."""

    @abstractmethod
    def regions(self, rows: list[int]) -> Regions:
        """Return the boxes of interests, in the format of `add_regions`."""

    def rows_of(self, row: int) -> list[int]:
        """Return all rows of an interest, by its first one."""
        return [row, *self._more.get(row, ())]

    @abstractmethod
    def rows_reached(self, messages: Messages) -> list[int]:
        """Return the rows that messages reach."""

    @abstractmethod
    def interest(
        self, bounds: F64, k: int, *, lists: list[list[Any]], **options: Any
    ) -> ReceivingInterest:
        """Return an interest that can receive messages, with a list per box."""

    # ---- lists

    @abstractmethod
    def best(self, box: F64, k: int) -> I32:
        """Return the slots of the top k objects of a box, the best first."""

    def best_where(self, where: tuple[Any, ...], k: int) -> list[I32]:
        """Return the slots of the top k objects of each box of a range or filter."""
        return [self.best(box, k) for box in self.boxes(where)]

    def contain(self, boxes: F64, places: F64) -> Bool:
        """Return which positions, (positions, d), lie in one of these boxes."""
        d = places.shape[1]
        lo, hi, at = boxes[:, None, :d], boxes[:, None, d:], places[None]
        return np.asarray(((lo <= at) & (at <= hi)).all(axis=2).any(axis=0))

    @abstractmethod
    def lists(self, boxes: F64 | None = None) -> Any:
        """Return the current top-k lists of all interests, or of the given boxes."""

    def mismatches(self, lists: InterestLists) -> I32:
        """Return the rows of the lists that differ from a recomputation."""
        return lists.differences(self._recomputed(lists.interests))

    @abstractmethod
    def _recomputed(self, interests: Any) -> InterestLists:
        """Compute the lists of an index of interests from the objects."""

    def lists_of(self, rows: list[int]) -> tuple[I64, F64]:
        """Return arrivals and values of the lists of interests, the best first; -1: no entry."""
        lists = self.lists()
        arrivals, ys = lists.arrivals[rows], lists.ys[rows]
        for index, row in enumerate(rows if self._more else ()):
            if row in self._more:
                own = self.rows_of(row)
                keys = zip(lists.ys[own].flat, lists.arrivals[own].flat, strict=True)
                best = sorted({key for key in keys if key[1] >= 0})[: self.options.k]
                arrivals[index], ys[index] = -1, math.inf
                for rank, (y, arrival) in enumerate(best):
                    arrivals[index, rank], ys[index, rank] = arrival, y
        return arrivals, ys

    # ---- objects

    @abstractmethod
    def load(self, columns: ObjectColumns) -> None:
        """Load these objects; their slots are 0, 1, 2, ..."""

    @abstractmethod
    def columns(self, slots: Any) -> tuple[F64, F64, I64]:
        """Return coordinates (a row each), y and arrival of objects."""

    @abstractmethod
    def positions(self, at: F64) -> list[Any]:
        """Return coordinates as positions: numbers, or dicts of values by attribute."""

    @abstractmethod
    def place(self, slot: int) -> Any:
        """Return the position of an object in comparable form: x, or a tuple of coordinates."""

    @abstractmethod
    def moved(self, point: Any, position: Any) -> Any:
        """Return the position of an object after a change; `point` is the old one, None if new."""

    @abstractmethod
    def key(self, slot: int) -> tuple[float, int]:
        """Return y and arrival of an object."""

    def enter(self, position: Any, arrival: int) -> int:
        """Add an object with y = inf; return its slot."""
        if self._before is not None:
            self._before.add(position, math.inf, arrival)
        slot: int = self.objects.add(position, math.inf, arrival)
        return slot

    def leave(self, slot: int) -> None:
        """Remove an object; its slot becomes free."""
        self.objects.remove(slot)
        if self._before is not None:
            self._before.remove(slot)

    # ---- changes

    def paint(self, slots: Sequence[int], ys: Sequence[float]) -> MessageColumns:
        """Apply changes of values one after the other; return the messages."""
        painted = self._paint(slots, ys)
        if self._before is not None:
            self._before.change_many(slots, ys)
        return painted

    def begin_batch(self) -> None:
        """Prepare a batch, before objects are added."""
        if self._before is None:
            self._before = self.objects.copy()

    def paint_batch(self, old: dict[int, float], new: dict[int, float]) -> MessageColumns:
        """Apply changes of values at once; return the messages. Old and new values are by slot."""
        painted = self._paint_batch(self._before, old, new)
        self._before.change_many(list(new), list(new.values()))
        return painted

    @abstractmethod
    def _paint(self, slots: Sequence[int], ys: Sequence[float]) -> MessageColumns: ...

    @abstractmethod
    def _paint_batch(
        self, before: Any, old: dict[int, float], new: dict[int, float]
    ) -> MessageColumns: ...

    def quiet_range(self, slot: int) -> tuple[float, float]:
        """Return the least and the largest y of an object that change no list."""
        raise UsageError("a quiet range is for a board without a space\n  hint: leave out space=")

    @abstractmethod
    def plan(self, slots: list[int]) -> tuple[str, str]:
        """Return how changes of these objects are painted, and why."""

    @property
    @abstractmethod
    def work(self) -> Any:
        """Counted work of all changes so far."""

    @property
    def memory(self) -> int:
        """Bytes of the objects and of the interests."""
        before = 0 if self._before is None else self._before.memory
        return int(self.objects.memory + before + self._interest_memory)

    @property
    @abstractmethod
    def _interest_memory(self) -> int: ...


def empty_painted(width: int, tile: int) -> MessageColumns:
    """Return an empty result with this many coordinates and bounds."""
    whole = np.zeros(0, np.int64)
    at = np.zeros((0, width))
    return MessageColumns(
        whole, whole, np.zeros(0, np.int32), whole, at, np.zeros(0), np.zeros((0, tile))
    )
