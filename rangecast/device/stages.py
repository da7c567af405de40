"""Stages of the search of a piece: each launches kernels on the current stream without waiting."""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.device.boxes import DeviceBoxes, tiles_of
from rangecast.device.flight import HAS_NAN, HEADER, Flight, Slot
from rangecast.device.runtime import DeviceArray
from rangecast.device.source import EVENTS
from rangecast.kernels.arrays import F64, AnyArray

_TOGETHER, LISTED_TILES = 8, 16
"""Tiles that share a list of boxes, and from how many on there are such lists."""
_SELECTIVE = 0.2
"""The share of boxes that meet a tile, below which lists pay."""
_THREADS = 256
_SUMMED = 4096
"""Numbers that a block sums up (`cuda/finish.cu`)."""
_DELIVERING = 512
"""Threads of a block that copies to the host."""


class Stages:
    """Launches the kernels of each stage of a search over the boxes on a device."""

    def __init__(self, boxes: DeviceBoxes):
        self.boxes = boxes
        self.runtime = boxes.runtime

    def code(
        self, slot: Slot, first: int, points: F64, splits: int, room: int, *, with_offsets: bool
    ) -> Flight:
        """Code the events of a piece.

        points   pinned host memory, which the kernel reads and copies; or on the device
        """
        boxes, events = self.boxes, len(points)
        tiles, filed = tiles_of(events), boxes.shape.filed
        on_host = type(points) is np.ndarray
        own = points
        if on_host:
            own = slot.array("points on the device", points.shape, np.float64)
        fine = slot.array("fine", (events, filed), np.uint16)
        cells = slot.array("cells", (events, filed), np.uint16)
        order = slot.array("order", events, np.int32)
        offsets = slot.array("offsets", events + 1, np.int64)
        header = slot.pinned("header", HEADER, np.uint64)
        lists = splits * tiles * EVENTS
        self._launch(
            "code_events",
            events * boxes.dimensions,
            *(points, np.int32(events), np.int32(boxes.dimensions), np.int32(filed)),
            *(boxes.filed_as, *boxes.tables[:3], fine, cells, order if tiles == 1 else None),
            *(slot.array("work", 3, np.uint64), offsets, own if on_host else None),
            header[HAS_NAN:],
        )
        return Flight(
            slot,
            first,
            events,
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
            header,
            slot.pinned("offsets", events + 1, np.int64) if with_offsets else None,
        )

    def order(self, flight: Flight) -> None:
        """Sort events so that near ones are together."""
        boxes, slot, events = self.boxes, flight.slot, flight.events
        plan, bits, places = boxes.key_plan(flight.tiles)
        if not plan.bits:
            return
        keys = slot.array("keys", events, np.uint32)
        histogram = slot.array("histogram", 1 << plan.bits, np.uint32)
        self.runtime.clear(histogram)
        filed = np.int32(boxes.shape.filed)
        arguments = flight.coded[2], np.int32(events), filed, boxes.tables[3], bits, places
        self._launch("make_keys", events, *arguments, keys, histogram)
        self.boxes.kernels.launch("sum_histogram", 1, 1024, histogram, np.int32(1 << plan.bits))
        self._launch("place_events", events, keys, np.int32(events), histogram, flight.order)

    def list_boxes(self, flight: Flight, met: float) -> None:
        """List the boxes that groups of tiles may match, if a small share `met` earlier tiles."""
        boxes, slot, tiles = self.boxes, flight.slot, flight.tiles
        if tiles < LISTED_TILES or met >= _SELECTIVE or not boxes.count:
            return
        filed, count = boxes.shape.filed, -(-tiles // _TOGETHER)
        words = -(-boxes.count // 32)
        hulls = slot.array("hulls", (tiles, filed), np.uint32)
        marks = slot.array("marks", (count, words), np.uint32)
        listed = slot.array("listed", (count, boxes.count), np.uint32)
        lengths = slot.array("lengths", count, np.int32)
        launch, number = boxes.kernels.launch, np.int32(flight.events)
        rows = np.int32(boxes.shape.table_rows)
        arguments = flight.coded[2], flight.order, number, np.int32(filed), rows, hulls
        launch("find_hulls", tiles, EVENTS, *arguments, shared=8 * filed)
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

    def search(self, flight: Flight, out: DeviceArray, places: DeviceArray) -> None:
        """Write matches into lists, or to their final places."""
        boxes, shape = self.boxes, self.boxes.shape
        own, fine, cells = flight.coded
        work = flight.slot.array("work", 3, np.uint64)
        boxes.kernels.launch(
            "match_few" if flight.events <= EVENTS // 2 else "match_sparse",
            flight.tiles * flight.splits,
            EVENTS,
            *boxes.searched,
            *(np.int32(boxes.count), np.int32(boxes.has_several_boxes), np.int32(flight.splits)),
            *flight.lists,
            *(own, np.int32(boxes.dimensions), np.int32(shape.filed), np.int32(shape.table_rows)),
            *(fine, cells, flight.order, np.int32(flight.events), out, np.int32(flight.room)),
            *(places, flight.counts, np.int64(flight.padded), work),
            shared=shape.shared_bytes,
        )

    def compute_offsets(self, flight: Flight) -> None:
        """Compute the offsets, and send the header to the host."""
        events, work = flight.events, flight.slot.array("work", 3, np.uint64)
        arguments = flight.counts, np.int64(flight.padded), np.int32(flight.splits), flight.order
        total = np.int32(events), flight.offsets, flight.starts, work
        self._launch("add_up", 32 * events, *arguments, *total)
        self._sum_offsets(flight, flight.offsets, flight.header, flight.copy)

    def _sum_offsets(
        self, flight: Flight, offsets: Any, header: AnyArray, copy: AnyArray | None
    ) -> None:
        """Turn counts into offsets by a prefix sum; write the header to host memory.

        copy   host memory that the offsets are written to as well
        """
        slot, launch, count = flight.slot, self.boxes.kernels.launch, flight.events + 1
        blocks, number = -(-count // _SUMMED), np.int32(count)
        of_blocks = slot.array("sums of blocks", blocks, np.uint64)
        out = slot.array("work", 3, np.uint64), header, copy
        launch("sum_blocks", blocks, 1024, offsets, number, of_blocks, *out)
        if blocks > 1:
            launch("scan_block_sums", 1, 1024, of_blocks, np.int32(blocks))
            self._launch("add_blocks", count, offsets, number, of_blocks, *out)

    def place(self, flight: Flight) -> tuple[DeviceArray, DeviceArray]:
        """Search again, with all matches counted, and write each to its final place."""
        ids = self.runtime.empty(max(1, flight.total), np.int32)
        places = flight.slot.array("places", (flight.splits, flight.padded), np.int64)
        arguments = flight.starts, np.int64(flight.padded), np.int32(flight.splits), flight.order
        self._launch(
            "find_places",
            flight.splits * flight.events,
            *(*arguments, np.int32(flight.events), flight.offsets, places),
        )
        self.search(flight, ids, places)
        return ids, places

    def sort(self, flight: Flight, lists: Any, places: Any, ids: Any, limit: int) -> None:
        """Sort the matches of each event into `ids`, if there are at most `limit`."""
        boxes = self.boxes
        self._launch(
            "sort_lists",
            32 * flight.events * flight.splits,
            *(lists, np.int32(flight.room), places, flight.counts, flight.starts),
            *(np.int64(flight.padded), np.int32(flight.splits), flight.order),
            *(np.int32(flight.events), flight.offsets, None if boxes.is_plain else boxes.owner),
            *(ids, np.int64(limit)),
        )

    def sort_and_deliver(self, flight: Flight, ids: Any, limit: int, out: AnyArray) -> None:
        """Sort the matches in the lists, and copy them to pinned host memory, if there is room."""
        boxes = self.boxes
        boxes.kernels.launch(
            "sort_and_deliver",
            min(flight.events, self.runtime.processors),
            1024,
            *(flight.found, np.int32(flight.room), flight.counts, flight.starts),
            *(np.int64(flight.padded), np.int32(flight.splits), flight.order),
            *(np.int32(flight.events), flight.offsets, None if boxes.is_plain else boxes.owner),
            *(ids, np.int64(limit), out),
        )

    def unique(
        self, flight: Flight, ids: DeviceArray, fewer: DeviceArray, limit: int
    ) -> DeviceArray:
        """Copy the matches to `fewer` without duplicates per event; return the new offsets."""
        events, slot = flight.events, flight.slot
        new = slot.array("unique offsets", events + 1, np.int64)
        arguments = flight.offsets, ids, np.int32(events), np.int64(limit)
        self._launch("count_unique", 32 * events, *arguments, new)
        flight.unique_header = slot.pinned("unique header", HEADER, np.uint64)
        self._sum_offsets(flight, new, flight.unique_header, flight.copy)
        self._launch("copy_unique", 32 * events, *arguments, new, fewer)
        return new

    def deliver(
        self, flight: Flight, ids: DeviceArray, offsets: DeviceArray, out: AnyArray
    ) -> None:
        """Copy the ids to pinned host memory, if there is room for all."""
        blocks = min(4 * self.runtime.processors, -(-len(out) // (4 * _DELIVERING)))
        total = offsets[flight.events :]
        arguments = ids, total, np.int64(len(out)), out
        self.boxes.kernels.launch("deliver", blocks, _DELIVERING, *arguments)

    def take_best(
        self, flight: Flight, k: int, ids: DeviceArray, places: DeviceArray
    ) -> tuple[DeviceArray, ...]:
        """Select the top k of a piece; return rows, scores and counts."""
        boxes, slot, events = self.boxes, flight.slot, flight.events
        rows = slot.array("best rows", (events, k), np.int32)
        scores = slot.array("best scores", (events, k), np.float64)
        counts = slot.array("best counts", events, np.int64)
        self._launch(
            "take_best",
            32 * events,
            *(ids, np.int32(flight.room), places, flight.counts, np.int64(flight.padded)),
            *(np.int32(flight.splits), flight.order, np.int32(events), boxes.owner),
            *(boxes.scores, boxes.arrivals, np.int32(k), rows, scores, counts),
        )
        return rows, scores, counts

    def _launch(self, name: str, threads: int, *args: Any) -> None:
        """Launch a kernel with this number of threads."""
        self.boxes.kernels.launch(name, -(-threads // _THREADS), _THREADS, *args)
