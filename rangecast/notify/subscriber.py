"""The subscriber's side: a list updated by applying messages in order.

A message about an object in the list updates its value, or removes it; one about another object
inserts it, and the worst drops out if the list is too long. A list
keeps as many objects as the board serves, the largest k of all interests, and shows its own k.

`Interest` is one list, in plain Python. `Lists` are those of all interests at once, to check or to
measure: arrival and value of each entry, the best first, arrival -1 where there is none. Both have
a base that doesn't know what an interest is; boards over a space use it too.

Section II-A of paper 001.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit
from rangecast.model.display import ITEMS, brief, html_table
from rangecast.model.validation.flags import flag
from rangecast.notify.messages import Messages


class Entry(NamedTuple):
    """An object in a list. Of equal values the one that arrived first ranks first."""

    value: float
    arrival: int
    object: Any
    position: Any
    """A number, or a dict of values over a space."""


class ReceivingInterest(ABC):
    """An interest and its list of the top k objects, kept up to date by the messages it receives.

    It may consist of several boxes, each with its own list: its list is the best of all.
    """

    def __init__(
        self,
        places: Sequence[tuple[Any, Any]],
        k: int,
        *,
        keeps: int | None,
        lists: Iterable[Iterable[Any]],
        seq: int,
        descending: bool,
    ):
        self.k = k
        self.keeps = max(k, keeps or k)
        self.descending = flag("descending", descending)
        """Whether the highest value ranks first."""
        self._places = places
        self._lists = [sorted(list_, key=self._rank)[: self.keeps] for list_ in lists]
        self._applied = (seq, -1 if seq < 0 else 1 << 62)

    def receive(self, message: Any) -> bool:
        """Apply a message and return whether the displayed list changed.

        A message for other interests, or one already applied, has no effect.
        """
        number = (message.seq, message.ordinal)
        reached = [at for at, index in enumerate(self._places) if message.reaches(*index)]
        if number <= self._applied or not reached:
            return False
        self._applied = number
        shown = self.best
        for at in reached:
            entries = [e for e in self._lists[at] if e.object != message.object]
            if not message.is_gone:
                entry = Entry(message.value, message.arrival, message.object, message.position)
                insort(entries, entry, key=self._rank)
            self._lists[at] = entries[: self.keeps]
        return self.best != shown

    @property
    def best(self) -> list[Any]:
        """The top k objects, the best first."""
        return merged(self._lists, self._rank)[: self.k]

    def __repr__(self) -> str:
        best = self.best
        first = ", ".join(f"{brief(entry.object)} {entry.value!r}" for entry in best[:ITEMS])
        more = f", ... {len(best):,} in all" if len(best) > ITEMS else ""
        return (
            f"<{self._summary_text()}: {first}{more}>"
            if best
            else f"<{self._summary_text()}: nothing>"
        )

    def _repr_html_(self) -> str:
        """Return the list as a table, for notebooks."""
        best = self.best
        rows = ((at + 1, entry.object, entry.value) for at, entry in enumerate(best))
        return html_table(self._summary_text(), ("rank", "object", "value"), rows, len(best))

    def _summary_text(self) -> str:
        return f"{type(self).__name__} in the {self.k} best of {self._where()}"

    @abstractmethod
    def _where(self) -> str:
        """Return the range or filter in readable form."""

    def _rank(self, entry: Any) -> tuple[float, int]:
        return -entry.value if self.descending else entry.value, entry.arrival


def merged(lists: Sequence[list[Any]], rank: Callable[[Any], Any]) -> list[Any]:
    """Return the entries of several lists, each object once, the best first."""
    if len(lists) == 1:
        return lists[0]
    return sorted({entry.object: entry for list_ in lists for entry in list_}.values(), key=rank)


class Interest(ReceivingInterest):
    """One subscription [lo, hi] and its list of the top k objects there."""

    def __init__(
        self,
        lo: float,
        hi: float,
        k: int,
        *,
        keeps: int | None = None,
        entries: Iterable[Entry] = (),
        seq: int = -1,
        descending: bool = False,
    ):
        self.lo, self.hi = lo, hi
        lists = [entries]
        super().__init__([(lo, hi)], k, keeps=keeps, lists=lists, seq=seq, descending=descending)

    def _where(self) -> str:
        return f"[{self.lo}, {self.hi}]"


@jit
def apply_message(arrivals: I64, ys: F64, row: int, arrival: int, y: float) -> None:
    """Apply a message to one list."""
    k = arrivals.shape[1]
    at = 0
    while at < k and arrivals[row, at] >= 0 and arrivals[row, at] != arrival:
        at += 1
    if at < k and arrivals[row, at] == arrival:
        while at + 1 < k and arrivals[row, at + 1] >= 0:
            arrivals[row, at], ys[row, at] = arrivals[row, at + 1], ys[row, at + 1]
            at += 1
        arrivals[row, at], ys[row, at] = -1, np.inf
    if y == np.inf:
        return
    if at == k:
        worst_y, worst = ys[row, k - 1], arrivals[row, k - 1]
        if worst_y < y or (worst_y == y and worst < arrival):
            return
        at = k - 1
    while at and (
        ys[row, at - 1] > y or (ys[row, at - 1] == y and arrivals[row, at - 1] > arrival)
    ):
        arrivals[row, at], ys[row, at] = arrivals[row, at - 1], ys[row, at - 1]
        at -= 1
    arrivals[row, at], ys[row, at] = arrival, y


class InterestLists(ABC):
    """The lists of all interests, by row."""

    def __init__(self, interests: Any, arrivals: I64, ys: F64):
        self.interests = interests
        self.arrivals, self.ys = arrivals, ys
        self.received = np.zeros(len(arrivals), np.int64)
        """Number of messages received by each list so far."""

    @classmethod
    def now(cls, objects: Any, interests: Any, k: int) -> Self:
        """Return the recomputed lists of k."""
        arrivals = np.full((interests.rows, k), -1, np.int64)
        lists = cls(interests, arrivals, np.full((interests.rows, k), np.inf))
        lists._look_up(objects)
        return lists

    def deliver(self, messages: Messages) -> None:
        """Apply messages in order to all lists that they reach."""
        ys = -messages.value if messages.descending else messages.value
        self.apply(messages.arrival, ys + 0.0, messages.tile)

    def differences(self, right: InterestLists) -> I32:
        """Return the rows of the lists that differ from the right ones."""
        differ = (right.arrivals != self.arrivals).any(axis=1) | (right.ys != self.ys).any(axis=1)
        return np.flatnonzero(differ).astype(np.int32)

    @abstractmethod
    def apply(self, arrival: I64, y: F64, tile: F64) -> None:
        """Apply messages given by these columns; the lowest y ranks first."""

    @abstractmethod
    def reached(self, tile: F64) -> I32:
        """Return the rows of the lists that messages with these tiles reach."""

    @abstractmethod
    def _look_up(self, objects: Any) -> None:
        """Compute all lists from the objects."""
