"""One side of a link between two brokers: interest advertised and received, events sent and taken.

Nothing here knows of other links; `broker` does.
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


class Flight(NamedTuple):
    """Events that were sent, and that the neighbour hasn't confirmed yet."""

    place: int
    """In the log, of their block."""
    origin: str
    upto: int
    events: int
    bytes: int
    """Of their texts."""


class Ready(NamedTuple):
    """Events of a block that the neighbour wants, to be sent as soon as there is room."""

    place: int
    block: Block
    rows: list[int]
    lost: bool = False
    """Events before these are gone; their place is that before the gone ones."""


class Link:
    """A neighbour."""

    def __init__(self, name: str, table: Table, *, is_expected: bool):
        self.name = name
        self.is_expected = is_expected
        self.is_up = False
        self.is_greeted = False
        """Whether the neighbour's Hello came since the link is up."""
        self.peer = 0
        """The neighbour's incarnation."""
        self.log = self.epoch = ""
        """The identity of its log, and its last epoch; empty: not known."""
        self.rejected = ""
        """Why one of the two rejects the link, since it was last up."""
        self.is_bypassed = False
        """It is rejected as its neighbour is reached over another link: questions go there."""
        self.last_frame_at = -np.inf
        """When a frame came, or the link came up."""
        self.reach: list[str] = []
        """Brokers behind the neighbour, as far as it reported them."""
        self.reach_digest = 0
        # A neighbour that was there before this broker's start wants everything until its hello.
        self.received = ReceivedItems([EVERYTHING] if is_expected else [])
        self.table = table
        """Interest of the neighbour, as a routing table."""
        self.asked_at = -np.inf
        """When a snapshot was asked for."""
        self.questions: dict[str, PropagationQuery] = {}
        """Of the neighbour, by token: about versions that aren't known here yet."""
        self.out: Strategy | None = None
        """Made when its first Hello says which cells it has."""
        self.same_cells = False
        self.wanted: dict[int, Item] = {}
        """Items that should be advertised."""
        self.is_full = False
        """More than the maximum would be advertised: it is asked for all events."""
        self.advertised = ItemSet()
        self.new: dict[int, Item] = {}
        """To be advertised, at the end of this call or after `Settings.batch_delay`."""
        self.tell_at = np.inf
        """When that is advertised, though more may come."""
        self.leaving: dict[int, float] = {}
        """Advertised, not wanted any more, and when it is withdrawn, ascending."""
        self.wanted_bytes = 0
        self.is_clogged = False
        """Too much waits to be sent."""
        self.parts: deque[Snapshot] = deque()
        """Of a snapshot that is under way: nothing else is advertised before it is there."""
        self.scanned = 0
        """Place in the log up to which events were looked at for this link."""
        self.ready: deque[Ready] = deque()
        self.flights: deque[Flight] = deque()
        self.in_flight = self.waiting = 0
        """Events that were sent, and that are ready."""
        self.bytes_in_flight = 0
        self.is_behind = False
        """There is more of the log to look at."""
        self.has_lost = False
        """Events are gone that this link needed: that is said with the next ones."""
        self._lost_from = 0
        """The place before these."""
        self.sent: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        """By origin: up to where events were sent, and were confirmed."""
        self.owed: dict[str, int] = {}
        """By origin: up to where events came here a second time that will be on disk soon."""
        self.moved_at = -np.inf
        """When something was confirmed, or sent again."""

    @property
    def is_known(self) -> bool:
        """Whether the neighbour ever said what it wants."""
        return self.received.incarnation > 0

    @property
    def is_ready(self) -> bool:
        """Whether frames other than Hello can be sent."""
        return self.is_up and self.is_greeted

    @property
    def is_advertising(self) -> bool:
        """Whether something waits to be advertised."""
        return bool(self.new or self.parts)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was ever wanted or sent over it: it can be forgotten without loss."""
        return not (self.received.items or self.taken or self.flights or self.ready)

    # ---- interest

    def want(self, change: Change, until: float) -> int:
        """Record what the neighbour should know; return how many removals that cancels."""
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

    def wants_too_much(self, settings: Settings) -> bool:
        """Whether more than the maximum would be advertised."""
        is_long = self.wanted_bytes > settings.max_advertised_bytes
        return is_long or len(self.wanted) > settings.max_advertised

    def aim(self, until: float, settings: Settings) -> None:
        """Compare what is advertised with what should be, as after a change of form."""
        self.wanted_bytes = sum(map(item_size, self.wanted.values()))
        self.is_full = self.wants_too_much(settings)
        target = {EVERYTHING.name: EVERYTHING} if self.is_full else self.wanted
        advertised = self.advertised.items
        self.new = {name: item for name, item in target.items() if name not in advertised}
        leaving = [
            (self.leaving.get(name, until), name) for name in advertised if name not in target
        ]
        self.leaving = {name: due for due, name in sorted(leaving)}

    @property
    def due(self) -> float:
        """When something is advertised or withdrawn next; withdrawals come after what is new."""
        return self.tell_at if self.is_advertising else next(iter(self.leaving.values()), np.inf)

    def changes(
        self, now: float, incarnation: int, max_items: int, max_bytes: int | None = None
    ) -> list[Interest]:
        """Return the frames to send now: first all that is new, then the withdrawals that are due.

        New items beyond `max_bytes` stay for the next time.
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
        """Return what of all that is new can be advertised now, and the rest."""
        items = [*self.new.values()]
        if max_bytes is None:
            return items, {}
        for number, size in enumerate(accumulate(map(item_size, items)), 1):
            if size >= max_bytes:
                return items[:number], {item.name: item for item in items[number:]}
        return items, {}

    def snapshot(self, incarnation: int, max_items: int) -> Iterable[Snapshot]:
        """Yield everything that was advertised, in parts."""
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
        """Place in the log before which nothing needs to be sent again."""
        if self.flights:
            return self.flights[0].place
        if self.ready:
            return self.ready[0].place
        return min(self.scanned, self._lost_from) if self.has_lost else self.scanned

    def lose(self) -> None:
        """Record that events after the last position read are gone, or may be."""
        if not self.has_lost:
            self.has_lost, self._lost_from = True, self.scanned

    def scan(self, log: Journal, space: Space, max_scanned: int, enough: int | None) -> None:
        """Look which events on disk the neighbour wants, until `enough` of them wait; at most
        `max_scanned` events (or a block more) at a time.
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
                self.ready.append(Ready(position, block, rows, self.has_lost))
                self.has_lost = False
                self.waiting += len(rows)
        self.scanned = max(self.scanned, log.durable)  # a new link needn't see what was dropped

    def drop(self, max_waiting: int) -> list[Dropped]:
        """Keep the best events that wait, by priority, of equals the earliest; return the rest."""
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
        """Leave out what lies before a place of the log; return what of it may be wanted."""
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
        """Yield events that can be sent, within the window of unconfirmed ones."""
        while self.ready and self.in_flight < window and self.bytes_in_flight < window_bytes:
            position, block, rows, lost = self.ready.popleft()
            room = min(window - self.in_flight, max_events, len(rows))
            room = block.fitting(rows[:room])
            if len(rows) > room:
                self.ready.appendleft(Ready(position, block, rows[room:]))
                rows = rows[:room]
            frame = block.take(rows, self.sent.get(block.origin, 0), lost=lost)
            self.sent[block.origin] = frame.upto
            size = sum(map(len, frame.texts))
            self.flights.append(Flight(position, block.origin, frame.upto, len(rows), size))
            self.in_flight += len(rows)
            self.bytes_in_flight += size
            self.waiting -= len(rows)
            yield frame

    def confirm(self, taken: dict[str, int], known: Container[str]) -> bool:
        """Record what is on the neighbour's disk; return whether there is news, or more room now.

        Only of origins that are known here: else any name that comes in would be kept indefinitely.
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
        """Go back to what was confirmed, and send the rest again."""
        self.scanned = self.floor
        self.flights.clear()
        self.ready.clear()
        self.in_flight = self.waiting = self.bytes_in_flight = 0
        self.sent = dict(self.taken)
