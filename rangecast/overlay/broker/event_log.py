"""Events in transit: blocks of them, and the log that every broker keeps.

An event has an origin, the broker where it was published, and a number there. It enters the log of
each broker that it comes to once, in the order of its origin's numbers. A place in the log is the
number of events before it. Neighbours and clients read the log as far as it is on disk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from rangecast.errors import FrameError, RangecastError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.text import String
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.wire.frames import MAX_CONTENT, Events, text_size

_POINTS = np.dtype("<f8")
_EVENT = 32
"""Maximum bytes of an event in a frame besides its values."""
_MARKS = 10_000
"""Number of block checksums that are remembered."""
_CUT = 64
"""Number of blocks dropped at a time, as cutting the front off a list moves all the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Events of one origin, in the order of their numbers."""

    origin: str
    after: int
    upto: int
    """All wanted events numbered after `after` up to `upto` are here."""
    numbers: list[int]
    ids: list[Id]
    points: F64
    """Coordinates; for string attributes see `points_in`."""
    words: dict[str, list[str | None]]
    """Values of string attributes."""
    priorities: list[float]
    hops: int
    came_over: str
    """The incoming link; "": published here."""
    texts: list[bytes] = field(default_factory=list)
    form: str = ""
    """The original events, and their format: see `Events`."""
    mark: bytes = b""
    """Checksum of the origin's log up to here."""
    lost: bool = False
    """Whether events before these are lost: see `Events`."""

    def __len__(self) -> int:
        return len(self.numbers)

    def points_in(self, space: Space) -> F64:
        """Return the points with the current numbers of words: subscriptions add words."""
        if not self.words:
            return self.points
        points = self.points.copy()
        for name, texts in self.words.items():
            attribute = space[name]
            points[:, space.axis(name)] = [attribute.coordinate(text) for text in texts]
        return points

    def fitting(self, rows: Sequence[int]) -> int:
        """Return how many of the first rows fit into a frame; at least one."""
        sizes = self._sizes(rows)
        if sizes is None:
            return max(1, min(len(rows), MAX_CONTENT // self._plain))
        return max(1, int(np.searchsorted(np.cumsum(sizes), MAX_CONTENT, side="right")))

    def too_large(self) -> tuple[Id, int] | None:
        """Return the first event that no frame can hold, and its bytes; `None` if there is none."""
        for id_, size in zip(self.ids, self._sizes(range(len(self))) or [], strict=False):
            if size > MAX_CONTENT:
                return id_, size
        return None

    @property
    def _plain(self) -> int:
        """Maximum bytes of an event without texts."""
        return _EVENT + 8 * int(self.points.shape[1])

    def _sizes(self, rows: Sequence[int]) -> list[int] | None:
        """Return the maximum bytes that events take in a frame; `None` if they have no texts."""
        has_texts = bool(self.words or self.texts)
        if not has_texts and not any(isinstance(self.ids[row], str) for row in rows):
            return None
        plain = self._plain
        return [
            plain
            + (5 + len(self.texts[row]) if self.texts else 0)
            + (text_size(id_) if isinstance(id_ := self.ids[row], str) else 0)
            + sum(text_size(texts[row]) for texts in self.words.values())
            for row in rows
        ]

    def take(self, rows: Sequence[int], after: int, *, lost: bool = False) -> Events:
        """Return the events of these rows as a frame; `lost`: earlier events were lost."""
        whole = len(rows) == len(self.numbers)
        points = self.points if whole else self.points[rows]
        words = self.words
        if words and not whole:
            words = {name: [texts[row] for row in rows] for name, texts in words.items()}
        numbers = self.numbers if whole else [self.numbers[row] for row in rows]
        priorities = self.priorities
        if priorities and not whole:
            priorities = [priorities[row] for row in rows]
        return Events(
            origin=self.origin,
            after=after,
            upto=numbers[-1],
            numbers=numbers,
            ids=self.ids if whole else [self.ids[row] for row in rows],
            points=points.astype(_POINTS, copy=False).tobytes(),
            words=words,
            priorities=priorities,
            hops=self.hops + 1,
            texts=self.texts if whole or not self.texts else [self.texts[row] for row in rows],
            form=self.form,
            mark=self.mark,
            lost=lost,
        )


def block_of(frame: Events, space: Space, after: int, came_over: str) -> Block:
    """Decode the events of a frame numbered above `after`; reject a frame that doesn't fit the
    space.
    """
    n, d = len(frame.numbers), len(space)
    rising = [frame.after, *frame.numbers, frame.upto + 1]
    if not n:
        raise FrameError("a frame of events is empty")
    if any(low >= high for low, high in pairwise(rising)):
        raise FrameError("the numbers of events don't increase")
    if len(frame.ids) != n or {len(frame.priorities), len(frame.texts)} - {0, n}:
        raise FrameError(
            f"{n} events, {len(frame.ids)} ids, {len(frame.priorities)} priorities, "
            f"{len(frame.texts)} texts"
        )
    if len(frame.points) != n * d * _POINTS.itemsize:
        raise FrameError(f"{len(frame.points)} bytes are not {n} points of {d} coordinates")
    points = np.frombuffer(frame.points, _POINTS).astype(np.float64).reshape(n, d)
    if np.isnan(points).any() or np.isneginf(points).any():
        raise FrameError("a coordinate must be a number, or missing")
    strings = [attribute.name for attribute in space if isinstance(attribute, String)]
    if list(frame.words) != strings or any(len(texts) != n for texts in frame.words.values()):
        raise FrameError(f"events must have {n} values of each of {strings}, in this order")
    block = Block(
        frame.origin,
        frame.after,
        frame.upto,
        frame.numbers,
        frame.ids,
        points,
        frame.words,
        frame.priorities,
        frame.hops,
        came_over,
        frame.texts,
        frame.form,
        frame.mark,
        frame.lost,
    )
    large = block.too_large()
    if large is not None:
        raise FrameError(
            f"event {large[0]!r:.80} takes {large[1]:,} bytes; at most: {MAX_CONTENT:,}"
        )
    return block if after == frame.after else _later(block, after)


def _later(block: Block, after: int) -> Block:
    """Return the events of a block after a number."""
    cut = bisect_right(block.numbers, after)
    if cut == len(block):
        raise FrameError("the frame refers to later events that don't exist")
    return Block(
        block.origin,
        after,
        block.upto,
        block.numbers[cut:],
        block.ids[cut:],
        block.points[cut:],
        {name: texts[cut:] for name, texts in block.words.items()},
        block.priorities[cut:],
        block.hops,
        block.came_over,
        block.texts[cut:],
        block.form,
        block.mark,
        block.lost,
    )


class JournalError(RangecastError):
    """A part of the log can't be read."""


class Journal(Protocol):
    """The log of a broker: its own in memory (`Log`), or one that its driver writes."""

    durable: int
    """Position up to which the log is on disk."""
    end: int
    """Position after the last block."""

    def append(self, block: Block) -> int:
        """Add a block; return its position, -1 if a driver writes the log and assigns it later."""

    def between(self, begin: int, end: int) -> Iterator[tuple[int, Block | None]]:
        """Yield the blocks, with their positions, that begin in this part of the log.

        An unreadable one raises a `JournalError`. `None`: everything before this position was
        deleted.
        """

    def mark_of(self, number: int) -> bytes | None:
        """Return the checksum of the log up to an event published here, by its number.

        `None`: this log has never used the number. Empty: no longer known.
        """

    def drop(self, before: int) -> None:
        """Record that events before a position are no longer needed."""

    def before_last(self, count: int) -> int:
        """Return the position of the first block within the last `count` durable events, or the
        end.
        """


class Log:
    """Blocks by position; blocks that all readers have read are dropped from memory."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._places: list[int] = []
        self.end = 0
        self.durable = 0
        self._marks: deque[tuple[int, int, bytes]] = deque(maxlen=_MARKS)
        """Numbers and checksums of the last blocks published here."""

    def append(self, block: Block) -> int:
        """Add a block; return its position."""
        position = self.end
        if not block.came_over:
            self._marks.append((block.after, block.upto, block.mark))
        self._blocks.append(block)
        self._places.append(position)
        self.end += len(block)
        return position

    def mark_of(self, number: int) -> bytes | None:
        """Return the checksum of the log up to an event published here."""
        if self._marks and number <= self._marks[0][0]:
            return b""
        index = bisect_left(self._marks, number, key=lambda mark: mark[1])
        if index == len(self._marks) or number <= self._marks[index][0]:
            return None
        return self._marks[index][2]

    def between(self, begin: int, end: int) -> Iterator[tuple[int, Block]]:
        """Yield the blocks, with their positions, that begin in this part of the log."""
        at = bisect_left(self._places, begin)
        while at < len(self._places) and self._places[at] < end:
            yield self._places[at], self._blocks[at]
            at += 1

    def drop(self, before: int) -> None:
        """Drop everything before a position from memory."""
        cut = len(self._places) if before >= self.end else bisect_right(self._places, before) - 1
        if cut > _CUT or cut == len(self._places):
            del self._blocks[:cut], self._places[:cut]

    def before_last(self, count: int) -> int:
        """Return the position of the first block within the last `count` durable events, or the
        end.
        """
        at = bisect_left(self._places, self.durable - count)
        return self._places[at] if at < len(self._places) else self.end
