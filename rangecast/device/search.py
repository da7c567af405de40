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
from typing import Any, NamedTuple

import numpy as np

from rangecast.device.boxes import DeviceBoxes, tiles_of
from rangecast.device.flight import Flight, Slot
from rangecast.device.runtime import DeviceArray
from rangecast.device.source import EVENTS
from rangecast.kernels.arrays import F64, I32, I64, AnyArray

_IN_FLIGHT = 3
"""One is searched, one waits for the bus, one travels."""
_IDS = 1 << 26
"""Ids of a piece that travels to the host, about."""
_RANKED = 1 << 29
"""Ids of a piece that is ranked, about."""
_LEAST_PIECE, _MAX_PIECE = 32, 1 << 18
"""Events of a piece."""
_SMALL = 4096
"""Events up to which a batch is answered without waiting for the number of its matches."""
_LIST_BYTES = 1 << 32
"""Memory of the lists of a piece, at most; and at most a quarter of what is free."""
_TOGETHER = 8
"""Tiles that share a list of boxes."""
_SELECTIVE = 0.2
"""The share of boxes that meet a tile, below which lists pay."""
_THREADS = 256
_SUMMED = 4096
"""Numbers that a block sums up (`cuda/finish.cu`)."""
_COPIERS, _THREADED_BYTES = 4, 1 << 22
"""Threads that copy events to pinned memory, and from how many bytes on."""
_MORE = 1.5
"""Room of lists, beyond the longest that was seen."""
_KEPT = 0.9
"""Share of the longest of earlier batches that counts for the next one."""

Found = tuple[int, I64, I32]
"""First event, offsets, rows: ascending within an event."""


class Best(NamedTuple):
    """Top k of some events: (events, k), of which the first `counts` are valid."""

    rows: I32
    scores: F64
    counts: I32


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
def _copying() -> ThreadPoolExecutor:
    """Return a pool of copying threads: a single one doesn't saturate the bus."""
    return ThreadPoolExecutor(_COPIERS, "rangecast-copy")


class Search:
    """Searches the boxes of a device; one caller at a time."""

    def __init__(self, boxes: DeviceBoxes, seen: Seen):
        self.boxes = boxes
        self.runtime = boxes.runtime
        self.seen = seen
        self._budget = min(_LIST_BYTES, self.runtime.free_memory // 4)
        self._slots = [Slot(self.runtime) for _ in range(_IN_FLIGHT)]

    # ---- questions

    def matches(self, points: F64) -> Iterator[Found]:
        """Yield the matches of events, piece by piece."""
        self._look(points)
        if len(points) <= _SMALL:
            yield from self._match_small(points)
            return
        size = self._size(_IDS / max(self.seen.mean, 1.0))
        starts = iter(range(0, len(points), size))
        flights: deque[Flight] = deque()
        free = deque(self._slots)

        def begin() -> None:
            first = next(starts, None)
            if first is not None:
                flights.append(self._begin(free.popleft(), first, points[first : first + size]))

        for _ in range(_IN_FLIGHT):
            begin()
        while flights:
            for flight in flights:
                if not flight.out:
                    self._finish(flight)
            done = flights.popleft()
            done.slot.stream.synchronize()
            found = self._taken(done)
            free.append(done.slot)
            begin()
            yield from found

    def counts(self, points: F64) -> I64:
        """Return how many subscriptions match each event."""
        if self.boxes.is_several:  # a subscription counts once
            pieces = [np.diff(offsets) for _, offsets, _ in self.matches(points)]
            return np.concatenate([np.zeros(0, np.int64), *pieces])
        out = np.zeros(len(points), np.int64)
        slot = self._slots[0]
        for first in range(0, len(points), _MAX_PIECE):
            some = points[first : first + _MAX_PIECE]
            flight = self._begin(slot, first, some, room=0, with_offsets=True)
            slot.stream.synchronize()
            assert flight.copy is not None
            out[first : first + len(some)] = np.diff(flight.copy)
        return out

    def best(self, points: F64, k: int) -> Iterator[tuple[int, Best]]:
        """Yield (first event, top k) piece by piece; the boxes must be ranked (`rank_by`)."""
        self._look(points)
        size = self._size(_RANKED / max(self.seen.mean, 1.0))
        starts = iter(range(0, len(points), size))
        flights: deque[Flight] = deque()
        free = deque(self._slots)

        def begin() -> None:
            first = next(starts, None)
            if first is not None:
                flight = self._begin(free.popleft(), first, points[first : first + size])
                self._take_best(flight, k, flight.found, None)
                flights.append(flight)

        for _ in range(_IN_FLIGHT):
            begin()
        while flights:
            done = flights.popleft()
            done.slot.stream.synchronize()
            self._note(done)
            if not done.has_room:
                self._take_best(done, k, *self._place(done))
                done.slot.stream.synchronize()
            best = Best(*done.out)
            free.append(done.slot)
            begin()
            yield done.first, best

    # ---- plans

    def _look(self, points: F64) -> None:
        """Count the matches of a sample, to size the lists."""
        if not len(points) or (self.seen.mean >= 0 and len(points) <= _SMALL):
            return
        sample = points[:: max(1, -(-len(points) // EVENTS))]
        slot = self._slots[0]
        flight = self._begin(slot, 0, sample, room=0, with_offsets=True)
        slot.stream.synchronize()
        assert flight.copy is not None
        counts = np.diff(flight.copy)
        self.seen.mean = float(counts.mean())
        self.seen.longest = max(float(counts.max()), _KEPT * self.seen.longest)

    def _note(self, flight: Flight) -> None:
        """Update the statistics with a finished piece."""
        self.seen.mean = flight.total / flight.events
        if not flight.has_room:
            self.seen.longest = max(self.seen.longest, float(flight.longest * flight.splits))
        self.seen.met = int(flight.header[0]) / max(1, self.boxes.count * flight.tiles)

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

    # ---- steps of a piece

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
        with slot.stream:
            flight = self._planned(slot, first, points, room, with_offsets)
            self._order(flight)
            self._list_boxes(flight)
            self._search(flight, flight.found, None)
            self._sum_up(flight)
        return flight

    def _planned(
        self, slot: Slot, first: int, points: F64, room: int | None, with_offsets: bool
    ) -> Flight:
        boxes, events = self.boxes, len(points)
        tiles = tiles_of(events)
        splits = splits_for(tiles, self.runtime.processors)
        filed = boxes.shape.filed
        staged = slot.pinned("points", points.shape, np.float64)
        self._stage(staged, points)
        own = slot.array("points on the device", points.shape, np.float64)
        self.runtime.copy_in(own, staged)
        fine = slot.array("fine", (events, filed), np.uint16)
        cells = slot.array("cells", (events, filed), np.uint16)
        order = slot.array("order", events, np.int32)
        offsets = slot.array("offsets", events + 1, np.int64)
        self._launch(
            "code_events",
            events * filed,
            *(own, np.int32(events), np.int32(boxes.dimensions), np.int32(filed)),
            *(boxes.axis_of, *boxes.tables[:3], fine, cells, order if tiles == 1 else None),
            *(slot.array("work", 2, np.uint64), offsets),
        )
        lists = splits * tiles * EVENTS
        if room is None:
            room = self._room(splits)
            room = room if 4 * lists * room <= self._budget else 0
        return Flight(
            slot,
            first,
            points,
            tiles,
            splits,
            room,
            order,
            (own, fine, cells),
            (None, np.int64(0), None, np.int32(1)),
            slot.array("lists", (lists, room), np.int32),
            slot.array("counts", (splits, tiles * EVENTS), np.uint32),
            slot.array("starts", (splits, tiles * EVENTS), np.int32),
            offsets,
            slot.pinned("header", 3, np.uint64),
            slot.pinned("offsets", events + 1, np.int64) if with_offsets else None,
        )

    def _stage(self, target: F64, points: F64) -> None:
        """Copy events to pinned memory, on several threads if there are many."""
        if points.nbytes < _THREADED_BYTES:
            np.copyto(target, points)
            return
        each = -(-len(points) // _COPIERS)
        some = [slice(first, first + each) for first in range(0, len(points), each)]
        list(_copying().map(lambda part: np.copyto(target[part], points[part]), some))

    def _order(self, flight: Flight) -> None:
        """Sort events so that near ones are together."""
        boxes, slot, events = self.boxes, flight.slot, flight.events
        plan, bits, places = boxes.key_plan(flight.tiles)
        if not plan.bits:
            return
        keys = slot.array("keys", events, np.uint32)
        histogram = slot.array("histogram", 1 << plan.bits, np.uint32)
        self.runtime.clear(histogram)
        filed = np.int32(boxes.shape.filed)
        given = flight.coded[2], np.int32(events), filed, boxes.tables[3], bits, places
        self._launch("make_keys", events, *given, keys, histogram)
        self.boxes.kernels.launch("sum_histogram", 1, 1024, histogram, np.int32(1 << plan.bits))
        self._launch("place_events", events, keys, np.int32(events), histogram, flight.order)

    def _list_boxes(self, flight: Flight) -> None:
        """List the boxes that groups of tiles may match, if these are few."""
        boxes, slot, tiles = self.boxes, flight.slot, flight.tiles
        if tiles < 2 * _TOGETHER or self.seen.met >= _SELECTIVE or not boxes.count:
            return
        filed, count = boxes.shape.filed, -(-tiles // _TOGETHER)
        words = -(-boxes.count // 32)
        hulls = slot.array("hulls", (tiles, filed), np.uint32)
        marks = slot.array("marks", (count, words), np.uint32)
        listed = slot.array("listed", (count, boxes.count), np.uint32)
        lengths = slot.array("lengths", count, np.int32)
        launch, number = boxes.kernels.launch, np.int32(flight.events)
        rows = np.int32(boxes.shape.table_rows)
        given = flight.coded[2], flight.order, number, np.int32(filed), rows, hulls
        launch("find_hulls", tiles, EVENTS, *given, shared=8 * filed)
        launch(
            "mark_boxes",
            min(8 * self.runtime.processors, -(-boxes.count // _THREADS)),
            _THREADS,
            *(boxes.rows, boxes.axes, np.int32(boxes.count), hulls, np.int32(filed)),
            *(np.int32(tiles), np.int32(_TOGETHER), np.int32(count), marks, np.int32(words)),
            shared=4 * filed * count,
        )
        stride = np.int64(boxes.count)
        launch("list_boxes", count, 1024, marks, np.int32(words), listed, stride, lengths)
        flight.lists = listed, stride, lengths, np.int32(_TOGETHER)

    def _search(self, flight: Flight, out: DeviceArray, places: DeviceArray) -> None:
        """Write matches into lists, or to their final places."""
        boxes, shape = self.boxes, self.boxes.shape
        own, fine, cells = flight.coded
        work = flight.slot.array("work", 2, np.uint64)
        boxes.kernels.launch(
            "match_sparse",
            flight.tiles * flight.splits,
            EVENTS,
            *boxes.searched,
            *(np.int32(boxes.count), np.int32(boxes.is_several), np.int32(flight.splits)),
            *flight.lists,
            *(own, np.int32(boxes.dimensions), np.int32(shape.filed), np.int32(shape.table_rows)),
            *(fine, cells, flight.order, np.int32(flight.events), out, np.int32(flight.room)),
            *(places, flight.counts, np.int64(flight.padded), work),
            shared=shape.shared_bytes,
        )

    def _sum_up(self, flight: Flight) -> None:
        """Compute the offsets, and send the header to the host."""
        events, work = flight.events, flight.slot.array("work", 2, np.uint64)
        given = flight.counts, np.int64(flight.padded), np.int32(flight.splits), flight.order
        total = np.int32(events), flight.offsets, flight.starts, work
        self._launch("add_up", 32 * events, *given, *total)
        self._sum_offsets(flight, flight.offsets, work, flight.header, flight.copy)

    def _sum_offsets(
        self, flight: Flight, offsets: Any, work: Any, header: AnyArray, copy: AnyArray | None
    ) -> None:
        """Turn counts into offsets; write the header, and a `copy` if given, to the host."""
        count, launch = flight.events + 1, self.boxes.kernels.launch
        blocks = -(-count // _SUMMED)
        of_blocks = flight.slot.array("sums of blocks", blocks, np.uint64)
        launch("sum_blocks", blocks, 1024, offsets, np.int32(count), of_blocks)
        if blocks > 1:
            launch("sum_of_blocks", 1, 1024, of_blocks, np.int32(blocks))
        self._launch("add_blocks", count, offsets, np.int32(count), of_blocks, work, header, copy)

    def _place(self, flight: Flight) -> tuple[DeviceArray, DeviceArray]:
        """Search again, with all matches counted, and write each to its final place."""
        slot = flight.slot
        with slot.stream:
            ids = self.runtime.empty(max(1, flight.total), np.int32)
            places = slot.array("places", (flight.splits, flight.padded), np.int64)
            given = flight.starts, np.int64(flight.padded), np.int32(flight.splits), flight.order
            self._launch(
                "find_places",
                flight.splits * flight.events,
                *(*given, np.int32(flight.events), flight.offsets, places),
            )
            self._search(flight, ids, places)
        return ids, places

    # ---- answers

    def _finish(self, flight: Flight) -> None:
        """Sort the matches of a piece, and start copying them to the host."""
        flight.slot.stream.synchronize()
        self._note(flight)
        if flight.has_room:
            lists, places = flight.found, None
            with flight.slot.stream:
                ids = self.runtime.empty(max(1, flight.total), np.int32)
        else:
            lists, places = self._place(flight)
            ids = lists
        with flight.slot.stream:
            self._sort(flight, lists, places, flight.offsets, ids, flight.total)
            offsets = flight.offsets
            if self.boxes.is_several:
                offsets, ids = self._unique(flight, ids)
            total = int(offsets[-1]) if self.boxes.is_several else flight.total
            out = self.runtime.pinned(flight.events + 1, np.int64)
            rows = self.runtime.pinned(total, np.int32)
            self.runtime.copy_out(out, offsets)
            if total:
                self.runtime.copy_out(rows, ids[:total])
        flight.out = [out, rows, ids]

    def _sort(
        self, flight: Flight, lists: Any, places: Any, offsets: Any, ids: Any, limit: int
    ) -> None:
        boxes = self.boxes
        self._launch(
            "sort_lists",
            32 * flight.events * flight.splits,
            *(lists, np.int32(flight.room), places, flight.counts, flight.starts),
            *(np.int64(flight.padded), np.int32(flight.splits), flight.order),
            *(np.int32(flight.events), offsets, None if boxes.is_plain else boxes.owner),
            *(ids, np.int64(limit)),
        )

    def _unique(self, flight: Flight, ids: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """Deduplicate the subscriptions of each event; return new offsets and ids."""
        events = flight.events
        new = flight.slot.array("unique offsets", events + 1, np.int64)
        self.runtime.clear(new[:1])
        number = np.int32(events)
        self._launch("count_unique", 32 * events, flight.offsets, ids, number, new)
        header = flight.slot.pinned("unique header", 3, np.uint64)
        work = flight.slot.array("work", 2, np.uint64)
        self._sum_offsets(flight, new, work, header, None)
        fewer = self.runtime.empty(max(1, flight.total), np.int32)
        self._launch("copy_unique", 32 * events, flight.offsets, ids, number, new, fewer)
        return new, fewer

    def _taken(self, flight: Flight) -> list[Found]:
        offsets, rows, _ = flight.out
        return [(flight.first, offsets, rows)]

    def _match_small(self, points: F64) -> Iterator[Found]:
        """Match a small batch: ids are written directly to host memory."""
        if not len(points):
            return
        slot = self._slots[0]
        flight = self._begin(slot, 0, points, with_offsets=True)
        if not self.boxes.is_several:
            expected = int(_MORE * self.seen.mean * len(points)) + 4096
            rows = self.runtime.pinned(expected, np.int32)
            with slot.stream:
                self._sort(flight, flight.found, None, flight.offsets, rows, expected)
            slot.stream.synchronize()
            assert flight.copy is not None
            if flight.has_room and flight.total <= expected:
                self._note(flight)
                yield 0, flight.copy.copy(), rows[: flight.total]
                return
        self._finish(flight)
        slot.stream.synchronize()
        yield from self._taken(flight)

    def _take_best(self, flight: Flight, k: int, ids: DeviceArray, places: DeviceArray) -> None:
        """Select the top k of a piece, and start copying them to the host."""
        boxes, slot, events = self.boxes, flight.slot, flight.events
        with slot.stream:
            rows = slot.array("best rows", (events, k), np.int32)
            scores = slot.array("best scores", (events, k), np.float64)
            found = slot.array("best counts", events, np.int32)
            self._launch(
                "take_best",
                32 * events,
                *(ids, np.int32(flight.room), places, flight.counts, np.int64(flight.padded)),
                *(np.int32(flight.splits), flight.order, np.int32(events), boxes.owner),
                *(boxes.scores, boxes.arrivals, np.int32(k), rows, scores, found),
            )
            out = [self.runtime.pinned(each.shape, each.dtype) for each in (rows, scores, found)]
            for target, given in zip(out, (rows, scores, found), strict=True):
                self.runtime.copy_out(target, given)
        flight.out = [*out]

    def _launch(self, name: str, threads: int, *args: Any) -> None:
        """Launch a kernel with this number of threads."""
        self.boxes.kernels.launch(name, -(-threads // _THREADS), _THREADS, *args)
