"""One side of a link between two brokers: interest and events, sent and received.

It is independent of other links; `broker` connects them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable
from itertools import accumulate, takewhile
from typing import NamedTuple

import numpy as np

from rangecast.model.space import Space
from rangecast.overlay.broker.event_log import Block, Journal
from rangecast.overlay.broker.ports import Dropped
from rangecast.overlay.broker.settings import Settings
from rangecast.overlay.interest.interest_set import Change, ItemSet, ReceivedItems
from rangecast.overlay.interest.items import EVERYTHING
from rangecast.overlay.interest.routing_table import Table
from rangecast.overlay.interest.strategies import Strategy
from rangecast.overlay.wire.frames import (
    MAX_BYTES,
    MAX_CONTENT,
    Events,
    Interest,
    Item,
    PropagationQuery,
    Snapshot,
    cut_items,
    item_size,
)


class InFlight(NamedTuple):
    """Events sent but not yet confirmed by the neighbour."""

    place: int
    """Log position of their block."""
    origin: str
    upto: int
    events: int
    bytes: int
    """Bytes of their texts."""


class ReadyEvents(NamedTuple):
    """Events of a block that match at the neighbour, to be sent as soon as there is room."""

    place: int
    block: Block
    rows: list[int]
    lost: bool = False
    """Whether events before these are lost; their position is before the lost ones."""


class Link:
    """State of the link to one neighbour."""

    def __init__(self, name: str, table: Table, *, is_expected: bool):
        self.name = name
        self.is_expected = is_expected
        self.is_up = False
        self.is_greeted = False
        """Whether the neighbour's Hello has arrived since the link came up."""
        self.peer = 0
        """Incarnation of the neighbour."""
        self.log = self.epoch = ""
        """Identity of its log, and its last epoch; empty if unknown."""
        self.rejected = ""
        """Why either side rejects the link, since it was last up."""
        self.is_bypassed = False
        """Whether it is rejected because its neighbour is reached over another link, which gets the
        queries.
        """
        self.last_frame_at = -np.inf
        """Time of the last frame, or when the link came up."""
        self.reach: list[str] = []
        """Brokers behind the neighbour, as it reported them."""
        self.reach_digest = 0
        # A neighbour that was there before this broker's start wants everything until its hello.
        self.received = ReceivedItems([EVERYTHING] if is_expected else [])
        self.table = table
        """Routing table with the neighbour's interest."""
        self.asked_at = -np.inf
        """Time of the last snapshot request."""
        self.questions: dict[str, PropagationQuery] = {}
        """Queries of the neighbour, by token, about versions that aren't known here yet."""
        self.out: Strategy | None = None
        """Created when the first Hello reports the neighbour's cells."""
        self.same_cells = False
        self.wanted: dict[int, Item] = {}
        """Items that should be advertised."""
        self.is_full = False
        """Whether the maximum would be exceeded: then all events are requested."""
        self.advertised = ItemSet()
        self.new: dict[int, Item] = {}
        """Items to advertise, at the end of this call or after `Settings.batch_delay`."""
        self.tell_at = np.inf
        """Time to advertise them, even if more may come."""
        self.leaving: dict[int, float] = {}
        """Advertised items that aren't wanted any more, with their withdrawal times, ascending."""
        self.wanted_bytes = 0
        self.is_clogged = False
        """Whether too much is queued for sending."""
        self.parts: deque[Snapshot] = deque()
        """Parts of the snapshot being sent: nothing else is advertised before it is complete."""
        self.scanned = 0
        """Log position up to which events were scanned for this link."""
        self.ready: deque[ReadyEvents] = deque()
        self.flights: deque[InFlight] = deque()
        self.in_flight = self.waiting = 0
        """Events sent, and events ready to send."""
        self.bytes_in_flight = 0
        self.is_behind = False
        """Whether there is more of the log to scan."""
        self.has_lost = False
        """Whether events that this link needed are lost: reported with the next events."""
        self._lost_from = 0
        """Log position before the lost events."""
        self.sent: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        """By origin: the last event sent, and the last one confirmed."""
        self.owed: dict[str, int] = {}
        """By origin: the last event that arrived a second time and will be on disk soon."""
        self.moved_at = -np.inf
        """Time of the last confirmation or retransmission."""

    @property
    def is_known(self) -> bool:
        """Whether the neighbour has ever advertised interest."""
        return self.received.incarnation > 0

    @property
    def is_ready(self) -> bool:
        """Whether frames other than Hello can be sent."""
        return self.is_up and self.is_greeted

    @property
    def is_advertising(self) -> bool:
        """Whether items are waiting to be advertised."""
        return bool(self.new or self.parts)

    @property
    def is_idle(self) -> bool:
        """Whether the neighbour has no items, and no events are confirmed or pending."""
        return not (self.received.items or self.taken or self.flights or self.ready)

    # ---- interest

    def want(self, change: Change, until: float) -> int:
        """Record items that the neighbour should know; return how many withdrawals that cancels."""
        cancelled = 0
        for item in change.added:
            self.wanted[item.name] = item
            self.wanted_bytes += item_size(item)
        for name in change.removed:
            self.wanted_bytes -= item_size(self.wanted.pop(name))
        if self.is_full:
            return 0
        for item in change.added:
            if item.name in self.leaving:
                del self.leaving[item.name]
                cancelled += 1
            elif item.name not in self.advertised.items:
                self.new[item.name] = item
        for name in change.removed:
            if name in self.new:
                del self.new[name]
            else:
                self.leaving[name] = until
        return cancelled

    def exceeds_advertised(self, settings: Settings) -> bool:
        """Return whether more than the maximum would be advertised."""
        is_long = self.wanted_bytes > settings.max_advertised_bytes
        return is_long or len(self.wanted) > settings.max_advertised

    def recompute_pending(self, until: float, settings: Settings) -> None:
        """Recompute what to advertise and what to withdraw, for example after a change of form."""
        self.wanted_bytes = sum(map(item_size, self.wanted.values()))
        self.is_full = self.exceeds_advertised(settings)
        target = {EVERYTHING.name: EVERYTHING} if self.is_full else self.wanted
        advertised = self.advertised.items
        self.new = {name: item for name, item in target.items() if name not in advertised}
        leaving = [
            (self.leaving.get(name, until), name) for name in advertised if name not in target
        ]
        self.leaving = {name: due for due, name in sorted(leaving)}

    @property
    def due(self) -> float:
        """Return when to advertise or withdraw next; withdrawals come after new items."""
        return self.tell_at if self.is_advertising else next(iter(self.leaving.values()), np.inf)

    def changes(
        self, now: float, incarnation: int, max_items: int, max_bytes: int | None = None
    ) -> list[Interest]:
        """Return the frames to send now: first all new items, then the withdrawals that are due.

        New items beyond `max_bytes` wait for the next call.
        """
        items, self.new = self._next_new(max_bytes)
        if self.new:
            gone = []
        else:
            gone = list(takewhile(lambda name: self.leaving[name] <= now, self.leaving))
            self.tell_at = np.inf
        for name in gone:
            del self.leaving[name]
        new = deque(cut_items(items, max_items))
        # A name takes 9 bytes at most: removed ones leave room for what comes with them.
        max_removed = min(max_items, (MAX_BYTES - MAX_CONTENT) // 16)
        frames = []
        while new or gone:
            added = new.popleft() if new else []
            removed = [] if new else gone[:max_removed]
            gone = gone[len(removed) :]
            before = self.advertised.version
            self.advertised.change(added, removed)
            frames.append(
                Interest(
                    incarnation=incarnation,
                    before=before,
                    version=self.advertised.version,
                    digest=self.advertised.digest,
                    added=added,
                    removed=removed,
                )
            )
        return frames

    def _next_new(self, max_bytes: int | None) -> tuple[list[Item], dict[int, Item]]:
        """Return the new items that can be advertised now, and the rest."""
        items = [*self.new.values()]
        if max_bytes is None:
            return items, {}
        for number, size in enumerate(accumulate(map(item_size, items)), 1):
            if size >= max_bytes:
                return items[:number], {item.name: item for item in items[number:]}
        return items, {}

    def snapshot(self, incarnation: int, max_items: int) -> Iterable[Snapshot]:
        """Yield all advertised items, in parts."""
        parts = [*cut_items(self.advertised.items.values(), max_items)] or [[]]
        for part, items in enumerate(parts):
            yield Snapshot(
                incarnation=incarnation,
                version=self.advertised.version,
                digest=self.advertised.digest,
                part=part,
                parts=len(parts),
                items=items,
            )

    # ---- events

    @property
    def floor(self) -> int:
        """Log position before which nothing needs to be sent again."""
        if self.flights:
            return self.flights[0].place
        if self.ready:
            return self.ready[0].place
        return min(self.scanned, self._lost_from) if self.has_lost else self.scanned

    def lose(self) -> None:
        """Record that events after the last position read are lost, or may be."""
        if not self.has_lost:
            self.has_lost, self._lost_from = True, self.scanned

    def scan(self, log: Journal, space: Space, max_scanned: int, enough: int | None) -> None:
        """Find events on disk that match at the neighbour, until `enough` of them are ready.

        At most `max_scanned` events (or a block more) are read at a time.
        """
        self.is_behind = False
        for position, block in log.between(self.scanned, log.durable):
            if enough is not None and self.waiting >= enough:
                return
            if max_scanned <= 0:
                self.is_behind = True
                return
            if block is None:
                self.lose()
                self.scanned = position
                continue
            max_scanned -= len(block)
            sent = self.sent.get(block.origin, 0)
            is_new = block.came_over != self.name and block.numbers[-1] > sent
            if block.lost and is_new:
                self.lose()
            self.scanned = position + len(block)
            if not is_new:
                continue
            first = bisect_right(block.numbers, sent)
            words = {name: texts[first:] for name, texts in block.words.items()}
            held = self.table.holds(block.points_in(space)[first:], words)
            rows = (first + np.flatnonzero(held)).tolist()
            if rows:
                position = min(position, self._lost_from) if self.has_lost else position
                self.ready.append(ReadyEvents(position, block, rows, self.has_lost))
                self.has_lost = False
                self.waiting += len(rows)
        self.scanned = max(self.scanned, log.durable)  # a new link need not see what was dropped

    def drop(self, max_waiting: int) -> list[Dropped]:
        """Keep the waiting events with the highest priority, then the earliest; return the rest."""
        if self.waiting <= max_waiting:
            return []
        rated = [
            (-(item.block.priorities[row] if item.block.priorities else 0.0), at, row)
            for at, item in enumerate(self.ready)
            for row in item.rows
        ]
        kept: dict[int, list[int]] = {}
        for _, at, row in sorted(rated)[:max_waiting]:
            kept.setdefault(at, []).append(row)
        left = [(item, sorted(kept.get(at, []))) for at, item in enumerate(self.ready)]
        dropped = []
        for item, rows in left:
            numbers = [item.block.numbers[row] for row in item.rows if row not in rows]
            if numbers:
                dropped.append(Dropped(self.name, item.block.origin, numbers))
        if any(item.lost and not rows for item, rows in left):
            self.lose()
        self.ready = deque(item._replace(rows=rows) for item, rows in left if rows)
        self.waiting = max_waiting
        return dropped

    def give_up(self, log: Journal, before: int) -> list[Dropped]:
        """Skip everything before a log position; return the skipped events that may match."""
        self.rewind()
        dropped = []
        for _, block in log.between(self.scanned, before):
            if block is None:
                continue
            sent = self.sent.get(block.origin, 0)
            numbers = [number for number in block.numbers if number > sent]
            if block.came_over != self.name and numbers:
                dropped.append(Dropped(self.name, block.origin, numbers))
        self.scanned = max(self.scanned, before)
        return dropped

    def next_events(self, window: int, window_bytes: int, max_events: int) -> Iterable[Events]:
        """Yield events that can be sent within the window of unconfirmed ones."""
        while self.ready and self.in_flight < window and self.bytes_in_flight < window_bytes:
            position, block, rows, lost = self.ready.popleft()
            room = min(window - self.in_flight, max_events, len(rows))
            room = block.fitting(rows[:room])
            if len(rows) > room:
                self.ready.appendleft(ReadyEvents(position, block, rows[room:]))
                rows = rows[:room]
            frame = block.take(rows, self.sent.get(block.origin, 0), lost=lost)
            self.sent[block.origin] = frame.upto
            size = sum(map(len, frame.texts))
            self.flights.append(InFlight(position, block.origin, frame.upto, len(rows), size))
            self.in_flight += len(rows)
            self.bytes_in_flight += size
            self.waiting -= len(rows)
            yield frame

    def confirm(self, taken: dict[str, int], known: Container[str]) -> bool:
        """Record which events are durable at the neighbour; return whether that is new, or makes
        room.

        Only for origins known here: otherwise any incoming name would be stored indefinitely.
        """
        moved = False
        for origin, upto in taken.items():
            if origin in known and upto > self.taken.get(origin, 0):
                self.taken[origin] = upto
                moved = True
        while self.flights and self.taken.get(self.flights[0].origin, 0) >= self.flights[0].upto:
            arrived = self.flights.popleft()
            self.in_flight -= arrived.events
            self.bytes_in_flight -= arrived.bytes
            moved = True  # it may have been there before it was sent
        return moved

    def rewind(self) -> None:
        """Go back to the last confirmed event, and send the rest again."""
        self.scanned = self.floor
        self.flights.clear()
        self.ready.clear()
        self.in_flight = self.waiting = self.bytes_in_flight = 0
        self.sent = dict(self.taken)
