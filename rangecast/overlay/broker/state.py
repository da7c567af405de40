"""The state of a broker and its output: the base of `links`, `interest` and `events`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from rangecast.cover.choose import choose
from rangecast.errors import UsageError
from rangecast.merge.cells import Cells
from rangecast.model.sets.members import Members
from rangecast.model.shapes.verification.places import places_of
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_space
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.event_log import Journal, Log
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.broker.propagation import Answer, Propagation, Question
from rangecast.overlay.broker.settings import Settings
from rangecast.overlay.interest.interest_set import space_digest
from rangecast.overlay.interest.range_line import Curve
from rangecast.overlay.interest.routing_table import Table
from rangecast.overlay.interest.sources import CLIENTS, Sources
from rangecast.overlay.interest.strategies import Options
from rangecast.overlay.wire.frames import (
    Frame,
    Hello,
    PropagationQuery,
    PropagationReply,
    Reject,
    item_size,
)


class Identity(NamedTuple):
    """Distinguishes the log of a broker from another one under its name."""

    log: str = ""
    """Identity of the log, since its creation."""
    epochs: tuple[str, ...] = ()
    """Epochs of the starts that have written to it, the newest first."""


class BrokerState:
    """State of a broker; its outputs are appended to `_out`, in order."""

    link_type = Link
    sources_type = Sources
    """Parts that faulty brokers of tests replace."""

    def __init__(
        self,
        name: str,
        space: Space,
        *,
        incarnation: int,
        strategy: str,
        cells: Cells | None,
        words: str | None,
        max_ranges: int,
        cover_index: str,
        settings: Settings | None,
        journal: Journal | None,
        kept: Mapping[str, int] | None,
        marks: Mapping[str, bytes] | None,
        numbers_from: int,
        identity: Identity,
    ):
        if incarnation < 1:
            raise UsageError(f"an incarnation must be at least 1; given: {incarnation}")
        self.name = checked_name(name)
        self.identity = identity
        self.space = as_space(space)
        self.incarnation = incarnation
        self.settings = settings or Settings()
        self.counts: Counter[str] = Counter()
        """Counts of occurrences, by kind."""
        self.links: dict[str, Link] = {}
        self.log: Journal = Log() if journal is None else journal
        if cells is not None:
            cells.check(self.space)
        choose(cover_index)  # rejects an unknown index now, not at a Hello
        self._curve = None
        if cells is not None and strategy != "subsumption":
            self._curve = Curve(self.space, cells, words)
        """Cells of the ranges that neighbours may send."""
        self._options = Options(strategy, cells, self._curve, max_ranges, cover_index)
        bare = Space(self.space.attributes)  # without the comments of a space that was inferred
        self._space_digest = space_digest(bare.to_toml())
        self._members = Members()
        self._delivers = journal is None
        self._clients = Table(self.space, is_verified=places_of(self.space) is not None)
        """Subscriptions of clients, if this broker delivers to them."""
        self._sources = self.sources_type(self.space)
        self._propagation = Propagation(f"{name}/{incarnation}", self.settings.max_questions)
        self._got: dict[str, int] = dict(kept or {})
        """By origin: the last event received."""
        self._kept: dict[str, int] = dict(kept or {})
        """By origin: the last event on disk."""
        self._marks: dict[str, bytes] = dict(marks or {})
        """By origin: the checksum of that event."""
        self._via: dict[str, str] = {}
        """By origin: the incoming link of its events."""
        self._origins = {self.name, *self._kept}
        """All brokers whose events are or were in the log."""
        self._number = numbers_from
        """Highest number of an event published here."""
        self._mark = b""
        """Checksum of the events published here, without a journal."""
        self._heartbeat_at = -np.inf
        self._timer = np.inf
        self._touched: dict[str, None] = {}
        """Links with pending output at the end of this call."""
        self._answerable: Link | None = None
        """Neighbour whose new advertisements may answer its queries."""
        self._out: list[ports.Output] = []

    def _advertise_and_send(self, now: float, link: Link) -> None:
        """Advertise new items to a link, and send waiting events."""
        if link.is_clogged:
            return
        if link.parts or not link.new or now >= link.tell_at:
            self._advertise(now, link)
        if not link.is_ready or not link.is_known:
            return  # what it wants comes soon
        settings = self.settings
        enough = settings.window if settings.max_waiting is None else None
        link.scan(self.log, self.space, settings.max_scanned, enough)
        if self.settings.max_waiting is not None:
            room = max(0, self.settings.window - link.in_flight)  # these need not wait
            self._drop(link.drop(self.settings.max_waiting + room))
        if not link.flights:
            link.moved_at = now
        bounds = settings.window, settings.window_bytes, settings.max_events
        for events in link.next_events(*bounds):
            self._send(link, events)

    def _advertise(self, now: float, link: Link) -> None:
        """Advertise new items to a link, or the rest of a snapshot, in bounded steps."""
        room = self.settings.max_burst_bytes if link.is_ready else None
        while link.parts:
            part = link.parts.popleft()
            self._send(link, part)
            if room is not None:
                room -= sum(map(item_size, part.items))
                if room <= 0:
                    break
        if not link.parts and (room is None or room > 0):
            for frame in link.changes(now, self.incarnation, self.settings.max_items, room):
                self._send(link, frame)
        if link.is_advertising:
            link.tell_at = now
        elif self._propagation.has_put_off:
            self._query_propagation((self._propagation.all_advertised(link), []))

    def _query_propagation(self, asked: tuple[list[Question], list[Answer]]) -> None:
        """Query neighbours about propagation; answer the queries that are decided."""
        questions, answers = asked
        for name, (token, version) in questions:
            question = PropagationQuery(token=token, incarnation=self.incarnation, version=version)
            self._send(self.links[name], question)
        self._answer(answers)

    def _answer(self, answers: Iterable[Answer]) -> None:
        for name, token in answers:
            if name == CLIENTS:
                self._out.append(ports.IsPropagated(token))
            elif name in self.links:
                self._send(self.links[name], PropagationReply(token=token))

    def _advertise_to_all(self, now: float) -> None:
        """Advertise waiting items over every link, so that a query about them can be sent."""
        for link in self.links.values():
            if link.new and not link.is_clogged:
                self._advertise(now, link)

    def _hold(self, now: float, max_held: int) -> None:
        """Advance links that hold back more of the log than allowed."""
        before = self.log.before_last(max_held)
        for link in self.links.values():
            if link.floor < before:
                self._drop(link.give_up(self.log, before))
                self._advertise_and_send(now, link)  # the rest was forgotten, too

    def _drop(self, dropped: list[ports.Dropped]) -> None:
        self._out += dropped
        self.counts["events dropped"] += sum(len(name.numbers) for name in dropped)

    def _send(self, link: Link, frame: Frame) -> None:
        if link.is_ready or (link.is_up and isinstance(frame, Hello | Reject)):
            self._out.append(ports.Send(link.name, frame))

    def _alarm(self, kind: str, text: str, link: Link) -> None:
        self._out.append(ports.Alarm(kind, text, link.name))

    def _set_timer(self, now: float) -> None:
        """Set the timer to the next withdrawal or heartbeat."""
        due = np.inf
        for link in self.links.values():
            if link.is_clogged:
                continue
            due = min(due, now if link.is_behind and link.is_ready else link.due)
        if self.settings.heartbeat_interval is not None and any(
            link.is_up for link in self.links.values()
        ):
            due = min(due, max(self._heartbeat_at, now))
        if due < self._timer:
            self._timer = due
            self._out.append(ports.Timer(float(due)))


def checked_name(name: str) -> str:
    """Return the checked name of a broker, or of the link to it."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise UsageError(f"a broker's name must have 1 to 200 characters; given: {name!r}")
    return name
