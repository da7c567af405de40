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
from collections import Counter
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
    __slots__ = ("number", "pins", "size", "texts")

    def __init__(self, number: int):
        self.number = number
        self.texts: list[str] = []
        self.size = 0
        self.pins = 0
        """Arrays of points that speak of it."""


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
        self._encoding: Counter[int] = Counter()
        """The segments that batches began with which are being encoded."""

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
        with self._lock:
            first = self._open.number
            self._encoding[first] += 1
        try:
            yield lambda points: self._keep(points, first)
        finally:
            with self._lock:
                self._encoding[first] -= 1
                if not self._encoding[first]:
                    del self._encoding[first]
                self._drop()

    def keep(self, encode: Callable[[], F64]) -> F64:
        """Return the points encoded by `encode`; their texts live as long as the points."""
        with self.batch() as keep_texts:
            points = encode()
            keep_texts(points)
        return points

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
            if not segment.pins:
                del self._segments[segment.number]
                self._size -= segment.size
                if self._size <= MAX_BYTES:
                    return


TEXTS = TextStore()
os.register_at_fork(after_in_child=TEXTS._reset)
