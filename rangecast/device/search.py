"""Search on a device: matches, counts or the top k of a batch, with several pieces in flight.

A piece is copied to the device, coded and sorted; `match_sparse` finds its matches. While the ids
of one piece are copied to the host, the next piece is searched. Host arrays that are returned are
pinned memory from a pool, so nothing is copied twice.

The number of matches of an event isn't known beforehand. The lists of the sparse search are sized
by a sample and by earlier pieces. If they overflow, all matches have been counted by then, and the
search runs again and writes each match to its final place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from rangecast.device.boxes import DeviceBoxes, tiles_of
from rangecast.device.flight import HAS_NAN, HEADER, Flight, Slot
from rangecast.device.runtime import DeviceArray
from rangecast.device.small import SmallBatches
from rangecast.device.source import EVENTS
from rangecast.device.stages import LISTED_TILES, Stages
from rangecast.kernels.arrays import F64, I32, I64

_IN_FLIGHT = 3
"""One is searched, one waits for the bus, one travels."""
_IDS = 1 << 26
"""Ids of a piece that travels to the host, about. Smaller pieces at the beginning don't pay: they
are searched more slowly than ids travel."""
_RANKED, _RANKED_EVENTS = 1 << 28, 1 << 15
"""Ids of a piece that is ranked, about; and its events, at least, if there is memory for them."""
_LEAST_PIECE, _MAX_PIECE = 32, 1 << 18
"""Events of a piece: at least, and at most."""
_SMALL, _SMALL_IDS = 4096, 1 << 24
"""Events and ids up to which a batch is answered without waiting for the number of its matches."""
_LIST_BYTES = 1 << 33
"""Maximum bytes of the lists of a piece; also at most a quarter of the free memory."""
_COPIERS, _COPIED_BYTES = 4, 1 << 21
"""Threads that copy events to pinned memory, and bytes that one of them copies at a time."""
_MORE = 1.5
"""Room of lists, beyond the longest that was seen."""
_KEPT = 0.9
"""Share of the longest of earlier pieces that counts for the next one."""

Found = tuple[int, I64, I32]
"""First event, offsets, rows: ascending within an event."""


class Best(NamedTuple):
    """Top k of some events: (events, k), of which the first `counts` are valid."""

    rows: I32
    scores: F64
    counts: I64


@dataclass
class Seen:
    """Statistics of earlier searches, used to plan the next one."""

    mean: float = -1.0
    """Matches of an event; negative: nothing was searched yet."""
    longest: float = 0.0
    """The most that one event has."""
    met: float = 1.0
    """The share of boxes that meet the hull of a tile."""


@cache
def splits_for(tiles: int, processors: int) -> int:
    """Return the number of parts to split boxes into, so that all processors are busy."""
    if tiles >= 4 * processors:
        return 1

    def idle(splits: int) -> float:
        blocks = tiles * splits
        rounds = -(-blocks // processors)
        return round(1 - blocks / (rounds * processors), 2)

    return min(range(1, max(2, processors // tiles) + 1), key=lambda splits: (idle(splits), splits))


@cache
def _copy_pool() -> ThreadPoolExecutor:
    """Return a pool of copying threads: a single one doesn't saturate the bus."""
    return ThreadPoolExecutor(_COPIERS, "rangecast-copy")


class Search:
    """Searches the boxes of a device; one caller at a time."""

    def __init__(self, boxes: DeviceBoxes, seen: Seen):
        self.boxes = boxes
        self.runtime = boxes.runtime
        self.seen = seen
        self.stages = Stages(boxes)
        self._budget = min(_LIST_BYTES, self.runtime.free_memory // 4)
        self._slots = [Slot(self.runtime) for _ in range(_IN_FLIGHT)]
        self._small = SmallBatches(self.stages, self._slots[0])

    # ---- questions

    def matches(self, points: F64) -> Iterator[Found]:
        """Yield the matches of events, piece by piece."""
        if not len(points):
            return
        self._look(points)
        limit = 1 << int(_MORE * self.seen.mean * len(points) + 4095).bit_length()
        if len(points) <= _SMALL and limit <= _SMALL_IDS:
            yield self._match_small(points, limit)
            return
        free, copied = deque(self._slots), deque[Flight]()
        at = 0

        def begun() -> Flight | None:
            """Begin the next piece, if there are one and a slot."""
            nonlocal at
            if not free or at >= len(points):
                return None
            size = self._size(_IDS / max(self.seen.mean, 1.0))
            flight = self._begin(free.popleft(), at, points[at : at + size])
            at += size
            return flight

        searched = begun()
        while searched or copied:
            if searched:
                self._finish(searched)
                copied.append(searched)
            searched = begun()
            if searched is None or not free:
                done = copied.popleft()
                done.slot.stream.synchronize()
                free.append(done.slot)
                offsets, rows, _ = done.out
                yield done.first, offsets, rows

    def counts(self, points: F64) -> I64:
        """Return how many subscriptions match each event."""
        if self.boxes.has_several_boxes:  # a subscription counts once
            pieces = [np.diff(offsets) for _, offsets, _ in self.matches(points)]
            return np.concatenate([np.zeros(0, np.int64), *pieces])
        out = np.zeros(len(points), np.int64)
        slot = self._slots[0]
        for first in range(0, len(points), _MAX_PIECE):
            piece = points[first : first + _MAX_PIECE]
            out[first : first + len(piece)] = self._counted(slot, piece)
        return out

    def best(self, points: F64, k: int) -> Best:
        """Return the top k of each event; the boxes must be ranked (`set_scores`)."""
        self._look(points)
        shape = len(points), k
        kinds = (shape, np.int32), (shape, np.float64), (len(points), np.int64)
        best = Best(*(self.runtime.pinned(*kind) for kind in kinds))
        size = self._size(max(_RANKED / max(self.seen.mean, 1.0), _RANKED_EVENTS))
        starts = iter(range(0, len(points), size))
        flights: deque[Flight] = deque()
        free = deque(self._slots)

        def begin() -> None:
            first = next(starts, None)
            if first is not None:
                flight = self._begin(free.popleft(), first, points[first : first + size])
                self._take_best(flight, best, flight.found, None)
                flights.append(flight)

        for _ in range(_IN_FLIGHT):
            begin()
        while flights:
            done = flights.popleft()
            done.slot.stream.synchronize()
            self._note(done)
            if not done.has_room:
                with done.slot.stream:
                    placed = self.stages.place(done)
                self._take_best(done, best, *placed)
                done.slot.stream.synchronize()
            free.append(done.slot)
            begin()
        return best

    def wait(self) -> None:
        """Wait for everything that was begun."""
        for slot in self._slots:
            slot.stream.synchronize()

    # ---- plans

    def _look(self, points: F64) -> None:
        """Before the first search, count the matches of a sample, to size the lists."""
        if not len(points) or self.seen.mean >= 0:
            return
        sample = points[:: max(1, -(-len(points) // EVENTS))]
        counts = self._counted(self._slots[0], sample)
        self.seen.mean = float(counts.mean())
        self.seen.longest = float(counts.max())

    def _note(self, flight: Flight) -> None:
        """Update the statistics with a finished piece; reject NaN."""
        flight.check()
        self.seen.mean = flight.total / flight.events
        if flight.tiles >= LISTED_TILES:
            self.seen.met = flight.met / max(1, self.boxes.count * flight.tiles)
        self.seen.longest = max(float(flight.most), _KEPT * self.seen.longest)
        if not flight.has_room:
            self.seen.longest = max(self.seen.longest, float(flight.longest * flight.splits))

    def _room(self, splits: int) -> int:
        """Return the capacity of a list."""
        each = self.seen.longest / splits
        each += 6 * np.sqrt(each) if splits > 1 else 0.0  # parts are about even, not quite
        return -(-int(_MORE * each + 32) // 32) * 32

    def _size(self, events: float) -> int:
        """Return the number of events in a piece, such that its lists fit into memory.

        If the lists would be too large, none are used: matches are counted, then placed.
        """
        fitting = self._budget // (4 * self._room(1))
        wanted = int(min(events, _MAX_PIECE, fitting if fitting >= _SMALL else events))
        return max(_LEAST_PIECE, 1 << max(0, wanted.bit_length() - 1))

    # ---- pieces

    def _begin(
        self,
        slot: Slot,
        first: int,
        points: F64,
        room: int | None = None,
        *,
        with_offsets: bool = False,
    ) -> Flight:
        """Start searching a piece: fill its lists, compute offsets, and send its header."""
        tiles = tiles_of(len(points))
        splits = splits_for(tiles, self.runtime.processors)
        if room is None:
            room = self._room(splits)
            room = room if 4 * splits * tiles * EVENTS * room <= self._budget else 0
        slot.pinned("header", HEADER, np.uint64)[HAS_NAN] = 0
        with slot.stream:
            own = self._copied_in(slot, points)
            arguments = slot, first, own, splits, room
            flight = self.stages.code(*arguments, with_offsets=with_offsets)
            self.stages.order(flight)
            self.stages.list_boxes(flight, self.seen.met)
            self.stages.search(flight, flight.found, None)
            self.stages.compute_offsets(flight)
        return flight

    def _copied_in(self, slot: Slot, points: F64) -> DeviceArray:
        """Copy events to the device by way of pinned memory; many of them on several threads."""
        staged = slot.pinned("points", points.shape, np.float64)
        own = slot.array("points on the device", points.shape, np.float64)
        each = max(1, _COPIED_BYTES // (8 * max(1, points.shape[1])))
        if len(points) <= each:
            np.copyto(staged, points)
            self.runtime.copy_in(own, staged)
            return own
        parts = [slice(first, first + each) for first in range(0, len(points), each)]
        copies = _copy_pool().map(lambda part: np.copyto(staged[part], points[part]), parts)
        for part, _ in zip(parts, copies, strict=True):
            self.runtime.copy_in(own[part], staged[part])
        return own

    def _counted(self, slot: Slot, points: F64) -> I64:
        """Return the number of matches of each event of a piece, by box."""
        flight = self._begin(slot, 0, points, room=0, with_offsets=True)
        slot.stream.synchronize()
        flight.check()
        assert flight.copy is not None
        return np.diff(flight.copy)

    def _match_small(self, points: F64, limit: int) -> Found:
        """Match a small batch, without waiting for the number of matches if there is room."""
        splits = splits_for(tiles_of(len(points)), self.runtime.processors)
        # Rounded, so that batches of one shape are launched alike.
        room = 1 << (self._room(splits) - 1).bit_length()
        if 4 * splits * tiles_of(len(points)) * EVENTS * room > self._budget:
            flight = self._begin(self._slots[0], 0, points)
            matches = None
        else:
            flight, matches = self._small.match(points, splits, room, limit)
        if matches is None:
            self._finish(flight)
            flight.slot.stream.synchronize()
            return 0, flight.out[0], flight.out[1]
        self._note(flight)
        return 0, *matches

    def _finish(self, flight: Flight) -> None:
        """Sort the matches of a piece, and start copying them to the host."""
        stages, empty = self.stages, self.runtime.empty
        flight.slot.stream.synchronize()
        self._note(flight)
        total = flight.total
        with flight.slot.stream:
            lists, places = (flight.found, None) if flight.has_room else stages.place(flight)
            ids = empty(max(1, total), np.int32) if flight.has_room else lists
            stages.sort(flight, lists, places, ids, total)
            offsets = flight.offsets
            if self.boxes.has_several_boxes:
                fewer = empty(max(1, total), np.int32)
                offsets = stages.unique(flight, ids, fewer, total)
                flight.slot.stream.synchronize()
                ids, total = fewer, flight.total_unique
            out = self.runtime.pinned(flight.events + 1, np.int64)
            rows = self.runtime.pinned(total, np.int32)
            self.runtime.copy_out(out, offsets)
            if total:
                self.runtime.copy_out(rows, ids[:total])
        flight.out = [out, rows, ids]

    def _take_best(self, flight: Flight, best: Best, ids: DeviceArray, places: DeviceArray) -> None:
        """Select the top k of a piece, and start copying them to the host."""
        events = slice(flight.first, flight.first + flight.events)
        with flight.slot.stream:
            taken = self.stages.take_best(flight, best.rows.shape[1], ids, places)
            self.runtime.copy_out(best.rows[events], taken[0])
            self.runtime.copy_out(best.scores[events], taken[1])
            self.runtime.copy_out(best.counts[events], taken[2])
