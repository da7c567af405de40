"""Store for the texts of events, from encoding until matching.

The coordinate of a text that patterns are verified on is a *handle*: a segment number and a
position in the segment. Handles are valid only in this process. The oldest segments are dropped
once later ones hold `MAX_BYTES`; those of a batch live as long as its points. Using the handle of a
dropped segment is an error; it never returns another text.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64

_ROOM = 4096
"""Texts of a segment."""
_SEGMENT_BYTES = 1 << 20
MAX_BYTES = 64 << 20
"""Texts that are kept beside those of batches whose points live, about."""
_OVERHEAD = 64
_NUMBERS = 1 << 40


class _Segment:
    __slots__ = ("kept", "number", "pins", "size", "texts")

    def __init__(self, number: int):
        self.number = number
        self.texts: list[str] = []
        self.size = 0
        self.pins = 0
        """Batches of points that speak of it."""
        self.kept: dict[int, Any] = {}
        """Single points that speak of it, as weak references by their id."""

    def keep(self, point: Any) -> None:
        """Keep the segment as long as a point lives."""
        reference = weakref.ref(point, self._release)
        self.kept[id(reference)] = reference

    def _release(self, reference: Any) -> None:
        self.kept.pop(id(reference), None)


class TextStore:
    """Store of texts by handle."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run while it is held
        # Handles of another process are hardly ever taken for those of this one.
        self._open = _Segment(secrets.randbelow(_NUMBERS))
        self._segments = {self._open.number: self._open}
        self._size = 0
        self._encoding: dict[int, int] = {}
        """Number of batches and events that are being encoded, by the segment they began with."""

    def put(self, text: str) -> float:
        """Store a text; return its handle."""
        with self._lock:
            segment = self._open
            if len(segment.texts) == _ROOM or segment.size >= _SEGMENT_BYTES:
                segment = self._begin()
            segment.texts.append(text)
            size = len(text) + _OVERHEAD
            segment.size += size
            self._size += size
            return float(segment.number * _ROOM + len(segment.texts) - 1)

    def put_many(self, texts: list[str]) -> F64:
        """Store texts; return their handles."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + _OVERHEAD
        handles = np.empty(len(texts))
        first = 0
        with self._lock:
            while first < len(texts):
                segment = self._open
                if len(segment.texts) == _ROOM or segment.size >= _SEGMENT_BYTES:
                    segment = self._begin()
                held = len(segment.texts)
                total = segment.size + np.cumsum(sizes[first : first + _ROOM - held])
                count = int(np.searchsorted(total, _SEGMENT_BYTES)) + 1
                count = min(count, len(total))
                segment.texts += texts[first : first + count]
                self._size += int(total[count - 1]) - segment.size
                segment.size = int(total[count - 1])
                begin = segment.number * _ROOM + held
                handles[first : first + count] = np.arange(begin, begin + count)
                first += count
        return handles

    def get(self, handles: Iterable[float]) -> list[str]:
        """Return the texts of handles."""
        segments = self._segments
        try:
            return [segments[int(handle) // _ROOM].texts[int(handle) % _ROOM] for handle in handles]
        except LookupError:
            raise UsageError(
                "the texts of these points are no longer cached\n"
                "  hint: match points with texts soon, in the process that encoded them; or pass "
                "the events themselves"
            ) from None

    @contextmanager
    def batch(self) -> Iterator[Callable[[Any], None]]:
        """Keep all texts stored in a `with` block; yield a function that extends their lifetime.

        Call it with an array of points: the texts are then kept as long as the array lives.
        """
        first = self._enter()
        try:
            yield lambda points: self._keep(points, first.number)
        finally:
            self._leave(first)

    def keep(self, encode: Callable[[], F64]) -> F64:
        """Return the points encoded by `encode`; their texts live as long as the points."""
        with self.batch() as keep_texts:
            points = encode()
            keep_texts(points)
        return points

    def keep_one(self, encode: Callable[[], F64]) -> F64:
        """Return the point encoded by `encode`, as `keep` does; quicker, for a single event."""
        first = self._enter()
        try:
            point = encode()
            if self._open is first:
                first.keep(point)
            else:
                self._keep(point, first.number)
        finally:
            self._leave(first)
        return point

    def _enter(self) -> _Segment:
        """Keep all texts that are stored from now on; return the first segment with such texts."""
        with self._lock:
            first = self._open
            self._encoding[first.number] = self._encoding.get(first.number, 0) + 1
            return first

    def _leave(self, first: _Segment) -> None:
        """End what `_enter` began."""
        with self._lock:
            left = self._encoding[first.number] - 1
            if left:
                self._encoding[first.number] = left
            else:
                del self._encoding[first.number]
            if self._open is not first:
                self._drop()

    def _keep(self, points: Any, first: int) -> None:
        with self._lock:
            numbers = [first]
            while numbers[-1] != self._open.number:
                numbers.append((numbers[-1] + 1) % _NUMBERS)
            for number in numbers:
                self._segments[number].pins += 1
        weakref.finalize(points, self._release, numbers).atexit = False

    def _release(self, numbers: list[int]) -> None:
        with self._lock:
            for number in numbers:
                if number in self._segments:
                    self._segments[number].pins -= 1

    def _begin(self) -> _Segment:
        self._open = _Segment((self._open.number + 1) % _NUMBERS)
        self._segments[self._open.number] = self._open
        self._drop()
        return self._open

    def _drop(self) -> None:
        """Drop the oldest segments if the store is too large."""
        if self._size <= MAX_BYTES:
            return
        for segment in list(self._segments.values()):
            if segment is self._open or segment.number in self._encoding:
                return  # a batch may have texts in all later ones
            if not segment.pins and not segment.kept:
                del self._segments[segment.number]
                self._size -= segment.size
                if self._size <= MAX_BYTES:
                    return


TEXTS = TextStore()
os.register_at_fork(after_in_child=TEXTS._reset)
