"""Slabs: each attribute cut at quantiles of its bounds; bits say what lies in which slab.

The idea. A bound becomes the number of its slab, one byte. Whether a box may contain an event is
then a comparison of bytes, 64 boxes in one instruction; and only an event that shares a slab with a
bound is compared with the box itself. For a batch it goes the other way round as well: per
attribute and slab, a bitmap of the events that lie in it or above. Two rows of that table say which
of 512 events lie within a range, so a box costs a few words for all of them together, at n = 1000
as at n = 10^6, and with no order of the boxes. `lanes` has this, `search` the other, `layout` how
boxes are stored: by what they mention, so that an attribute that isn't mentioned takes neither room
nor time, and near ones in blocks, whose hulls are looked at first. `maps` is for single events
where boxes mention many sets of attributes, each with only a few boxes.

Layout. Per box and attribute mentioned: 2 codes of a byte, 2 bounds of 8 bytes, kept as columns
of a block of up to 64 boxes; 4 bytes for the subscription; a few more for runs and blocks. Nothing
else is held, not the `Boxes` either. There are at most 251 edges per attribute.

Cost. With k attributes mentioned and batches of 512 events or more: n k / 64 words per event if the
hulls exclude nothing, and up to as many to tell the sure from the doubtful; if they do exclude,
n k / 64^2 words for the hulls and the rest of the blocks. Plus the matches. `Work.visited`
counts words of 64 comparisons, `Work.tested` boxes compared exactly.

The structure is new. As in the bitmap indexes of the literature, there is an AND over attributes,
and doubtful results are compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bits import LANES, PADDING
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.codes import encode_points
from rangecast.kernels.lanes import TABLE_ROWS, tabulate
from rangecast.match.result import BUFFER, MatchRows, Work, collect, stream
from rangecast.match.single_event import ALONE, NO_ROWS, SingleEvent, single_event
from rangecast.match.slabs.boxes import places_of, read_boxes
from rangecast.match.slabs.lanes import (
    count_by_event,
    keep_room,
    search_batch,
    sort_by_event,
    take_room,
)
from rangecast.match.slabs.layout import BoxesByOwner, by_owner, dead_with, lay_out
from rangecast.match.slabs.maps import Maps, maps_of
from rangecast.match.slabs.maps_search import DeadBoxes, match_one_by_maps
from rangecast.match.slabs.search import match_one, search_each
from rangecast.model.boxes import Boxes, as_points

_ROWS = 1 << 21
"""Matches that are found before any is handed over, about, if no event alone has more."""
_CHUNKS = 8
"""Times LANES events are searched together at most, so that blocks are read less often."""
_TABLE_BYTES = 1 << 20
"""Memory of their tables: they are best kept in the processor's cache."""
_OFTEN = 16
"""Boxes that are read one by one, each by a scan, before they are put in order."""
_SMALL_BATCH = 32
"""Batches of up to this many events are searched one event at a time."""
_SPARE = 1 << 16
"""Records that there is room for beyond those expected, as a search rejects what may not fit."""


class Slabs:
    """All matches of events by the slabs that they and the bounds of boxes lie in."""

    name = "slabs"

    def __init__(self, boxes: Boxes):
        self.dimensions = boxes.dimensions
        self.layout = Bundle(lay_out(boxes))
        self.mentioned: tuple[int, ...] = tuple(np.unique(self.layout.arrays.attributes).tolist())
        """Attributes that boxes mention."""
        self._maps: list[Bundle[Maps] | None] = []
        """Once a single event was matched: the maps, if it pays to have any."""
        self._by_owner: BoxesByOwner | None = None
        """Once some subscriptions have died, or boxes were read one by one."""
        self._single_reads = 0
        self.records_per_event = np.inf
        """Records of the last events that were searched together, the room to expect for more."""
        self._alone: list[SingleEvent] = []
        """For single events, once there was one."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: nothing that has addresses of its arrays."""
        return {**self.__dict__, "_alone": []}

    def without(self, rows: I64) -> Slabs:
        """Return the same structure without some subscriptions; all else is shared."""
        layout = self.layout.arrays
        if self._by_owner is None:
            self._by_owner = by_owner(layout)
        other = copy(self)
        other.layout = self.layout.replaced(dead=dead_with(layout, self._by_owner, rows))
        return other

    @property
    def has_boxes(self) -> bool:
        """Return whether `bounds_of` has the boxes of all rows, which then have one each."""
        return not len(self.layout.arrays.earlier)

    def bounds_of(self, rows: I64) -> tuple[F64, F64]:
        """Return the lower and upper bounds of rows, (rows, d)."""
        lo, hi = np.empty((len(rows), self.dimensions)), np.empty((len(rows), self.dimensions))
        self._single_reads += len(rows) == 1
        if self._by_owner is None and self._single_reads > _OFTEN:
            self._by_owner = by_owner(self.layout.arrays)
        places = places_of(self.layout.arrays, self._by_owner, rows)
        read_boxes(self.layout.table, places, lo, hi)
        return lo, hi

    @property
    def memory(self) -> int:
        """Bytes of all arrays held; the boxes are among them."""
        maps = sum(map_.memory for map_ in self._maps[:1] if map_ is not None)
        places = 0 if self._by_owner is None else sum(part.nbytes for part in self._by_owner)
        return self.layout.memory + maps + places

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events at once."""
        batch = _Batch(self, points)
        expected = batch.guess()
        return batch.matches if batch.is_done else collect(batch, len(points), expected)

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in pieces of at most `buffer` rows."""
        return stream(_Batch(self, points), len(points), buffer)

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event, (d,)."""
        points = as_points(point, self.dimensions, one=True).reshape(1, -1)
        if not self._alone:
            self._alone.append(self.single_event(*ALONE))
        return self._alone[0](points, NO_ROWS)

    def single_event(self, *beside: Bundle[Any]) -> SingleEvent:
        """Return the matcher of single events, with the tables of indexes searched beside it."""
        if not self._maps:  # the first single event makes them: batches don't need any
            self._maps.append(maps_of(self.layout, self.dimensions))
        if self._maps[0] is None:
            return single_event(match_one, *beside, self.layout)
        deaths = Bundle(DeadBoxes(int(self.layout.arrays.dead.any())))
        return single_event(match_one_by_maps, *beside, self.layout, self._maps[0], deaths)


class _Batch:
    """A `Step` over some events: searches as many at a time as suits, hands over what fits.

    Results that are not yet handed over stay here, so that nothing is searched twice.
    """

    def __init__(self, slabs: Slabs, points: F64):
        self.slabs, self.layout = slabs, slabs.layout
        self.boxes = int(slabs.layout.arrays.blocks[-1])
        self.points = as_points(points, slabs.dimensions)
        self.each = len(points) <= _SMALL_BATCH
        if not self.each:
            self.mentioned: I64 = np.array(slabs.mentioned, np.int64)
            tables = max(1, len(slabs.mentioned))
            fit = _TABLE_BYTES // (tables * TABLE_ROWS * LANES // 8)
            self.chunks = max(1, min(fit, _CHUNKS, -(-len(points) // LANES)))
            self.max_records = max(_ROWS, self.boxes)
            together = min(len(points), self.chunks * LANES)
            self.make_room(1.5 * slabs.records_per_event * together + _SPARE)
        self.take = LANES
        self.first = self.last = 0
        self.offsets = np.zeros(1, np.int64)
        self.rows = np.empty(0, np.int32)
        self.visited = self.tested = 0

    def make_room(self, records: float) -> None:
        """Make room for the records of a search."""
        size = int(min(records, self.max_records))
        self.keys, self.masks = np.empty(size, np.int64), np.empty(size, np.uint64)

    @property
    def is_done(self) -> bool:
        """Return whether a single search has covered all events."""
        return self.last - self.first == len(self.points)

    @property
    def matches(self) -> MatchRows:
        """Return the matches of all events, once a single search has covered them (`is_done`)."""
        rows = self.rows[: self.offsets[-1]]
        work = Work(self.visited, self.tested)
        return MatchRows(self.offsets, rows if len(rows) == len(self.rows) else rows.copy(), work)

    def guess(self) -> int:
        """Search for the first events, and guess how many matches all of them have."""
        if not len(self.points):
            return 0
        self.search()
        return int(1.1 * len(self.points) / self.last * self.offsets[-1]) + 1024

    def __call__(
        self, event: int, cursor: int, rows: I32, counts: I64
    ) -> tuple[int, int, int, int, int]:
        filled = 0
        while event < len(counts) and filled < len(rows):
            if event == self.last:
                self.search()
            places = self.offsets[event - self.first :]
            begin = places[0] + cursor
            end = min(begin + len(rows) - filled, places[-1])
            rows[filled : filled + end - begin] = self.rows[begin:end]
            filled += int(end - begin)
            whole = int(np.searchsorted(places, end, side="right")) - 1
            handed = np.clip(places[: whole + 2], begin, end)
            counts[event : event + len(handed) - 1] += handed[1:] - handed[:-1]
            event += whole
            cursor = int(end - places[whole])
        work = self.visited, self.tested
        self.visited = self.tested = 0
        return event, cursor, filled, *work

    def search(self) -> None:
        """Find all matches of the next events."""
        points = self.points[self.last : self.last + self.take]
        codes = np.empty(points.shape, np.uint8)
        layout = self.layout.arrays
        encode_points(layout.edges, layout.first_edge, points, codes)
        done = self.search_each(points, codes) if self.each else self.search_lanes(points, codes)
        self.first, self.last = self.last, self.last + done
        room = max(1, int(self.offsets[-1]))
        # With more than one match in 64 boxes, most of the time goes into writing them: event by
        # event they are written in order at once.
        self.each = self.each or room * BLOCK > done * self.boxes
        fit = max(1, _ROWS // 2 * done // room)
        self.take = fit if self.each or fit < LANES else min(fit // LANES, self.chunks) * LANES

    def search_each(self, points: F64, codes: Any) -> int:
        """Search for the events one after the other; return how many were done."""
        self.rows = np.empty(max(_ROWS, self.boxes) + PADDING, np.int32)
        self.offsets = np.empty(len(points) + 1, np.int64)
        done, visited, tested = search_each(
            self.layout.table, points, codes, self.offsets, self.rows
        )
        self.offsets = self.offsets[: done + 1]
        self.visited += visited
        self.tested += tested
        return done

    def search_lanes(self, points: F64, codes: Any) -> int:
        """Search for the events together, fewer if their matches don't fit; return how many."""
        done, room = len(points), take_room(self.slabs.dimensions, self.chunks)
        scratch = room.scratch
        while True:
            chunks = -(-done // LANES)
            tabulate(codes[:done], self.mentioned, chunks, scratch.arrays.table)
            hits, visited, tested = search_batch(
                self.layout.table,
                points[:done],
                codes[:done],
                chunks,
                scratch.table,
                self.keys,
                self.masks,
            )
            self.visited += visited
            self.tested += tested
            if hits >= 0:
                break
            if len(self.keys) < self.max_records:  # these events have more than the last ones had
                self.make_room(np.inf)
            else:
                done = max(1, done // 4)
        keep_room(room)
        self.slabs.records_per_event = hits / done
        keys, masks = self.keys[:hits], self.masks[:hits]
        self.offsets = np.empty(done + 1, np.int64)
        count_by_event(keys, masks, self.offsets)
        self.rows = np.empty(self.offsets[-1], np.int32)
        sort_by_event(keys, masks, self.layout.arrays.owner, self.offsets, self.rows)
        return done
