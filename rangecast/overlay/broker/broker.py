"""A broker of a network by interest: a state machine without clock, randomness and I/O.

    broker = Broker("east", space, incarnation=1, strategy="covering")
    for output in broker.handle(now, Subscribe({"cheap": "price < 10"})):
        ...                                       # send, deliver, append, ... (`ports`)

Brokers form a tree. A subscription stays at the broker of its client; neighbours learn by
advertisements what they must send on, and advertise it to their own. The items advertised over a
link are compared with those received over the other links and from clients (`strategies`). An event
goes over the links behind which a subscription matches it, and to the clients whose filters match
it: exactly these.

The driver guarantees: frames may be lost, doubled or late; `Durable` is reported only of what
survives a crash; after a crash a new broker gets a higher `incarnation`, its neighbours (`links`),
the subscriptions of its clients, and the log from disk, before anything else.

The broker guarantees: if `IsPropagated` came for a subscription before an event was accepted
anywhere, the event is delivered to it, once links heal; no client gets an event that doesn't match;
events of one origin arrive in order, each place of a log once.

`state` is its knowledge; `links`, `interest` and `events` handle links, interest and events; here
are propagation and time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from rangecast.errors import FrameError
from rangecast.merge.cells import Cells
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.event_log import Block, Journal, JournalError
from rangecast.overlay.broker.events import EventHandlers
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.broker.links import LinkHandlers
from rangecast.overlay.broker.settings import Settings
from rangecast.overlay.broker.state import Identity
from rangecast.overlay.wire.frames import (
    Events,
    EventsAck,
    Heartbeat,
    Hello,
    Interest,
    PropagationQuery,
    PropagationReply,
    Reject,
    Resync,
    Snapshot,
    decode,
)


class Broker(LinkHandlers, EventHandlers):
    """One broker; only `handle` changes its state."""

    def __init__(
        self,
        name: str,
        space: Space,
        *,
        incarnation: int = 1,
        strategy: str = "covering",
        cells: Cells | None = None,
        words: str | None = None,
        max_ranges: int = 1000,
        cover_index: str = "auto",
        settings: Settings | None = None,
        links: Iterable[str] = (),
        subscriptions: Mapping[Id, Any] | None = None,
        log: Iterable[Block] = (),
        delivered: int = 0,
        journal: Journal | None = None,
        kept: Mapping[str, int] | None = None,
        marks: Mapping[str, bytes] | None = None,
        cursors: Mapping[str, int] | None = None,
        numbers_from: int = 0,
        identity: Identity | None = None,
        logs: Mapping[str, str] | None = None,
    ):
        """Create a broker, or one that recovers from a crash.

        incarnation     higher than that of any earlier broker of this name, and at least 1
        strategy        none, covering, subsumption, merging or both (`strategies`)
        cells           for merging and both: of ranges, without strings, the same at all brokers;
                        for subsumption: of its index, any
        words           for merging and both: a string attribute; each word has ranges of its own
        max_ranges      maximum ranges that are advertised to a neighbour
        links           neighbours that were there before: until their hello, they want everything
        subscriptions   of clients, as they were
        log             the log from disk, and up to which place it was delivered to clients
        journal         instead: a log that the driver keeps and matches with its clients. Then the
                        broker delivers nothing, and the driver says `Durable` of what was published
                        here as well; numbers of events rise, with gaps
        kept, marks     with a journal, by origin: the last event in it, and its checksum
        cursors         with a journal, by neighbour: the place before which it needs nothing
        numbers_from    events published here get higher numbers. Give the time of the start, so
                        that a disk that was restored from an older copy gives none a second time
        identity        of the log, by which neighbours tell it from another one under this name
        logs            by neighbour: the identity of its log, as `Accepted` said it
        """
        super().__init__(
            name,
            space,
            incarnation=incarnation,
            strategy=strategy,
            cells=cells,
            words=words,
            max_ranges=max_ranges,
            cover_index=cover_index,
            settings=settings,
            journal=journal,
            kept=kept,
            marks=marks,
            numbers_from=numbers_from,
            identity=identity or Identity(),
        )
        self._handlers: dict[type, Any] = {
            ports.LinkUp: self._link_up,
            ports.LinkDown: self._link_down,
            ports.Received: self._received,
            ports.Subscribe: self._subscribe,
            ports.Unsubscribe: self._unsubscribe,
            ports.Replace: self._replace,
            ports.Publish: self._publish,
            ports.Durable: self._durable,
            ports.LinkFull: self._clogged,
            ports.LinkDrained: self._drained,
            ports.AskPropagated: self._ask_propagated,
            ports.Tick: self._tick,
        }
        self._frames: dict[type, Any] = {
            Hello: self._hello,
            Interest: self._interest,
            Snapshot: self._snapshot,
            Resync: self._resync,
            Events: self._events,
            EventsAck: self._taken,
            PropagationQuery: self._propagation_asked,
            PropagationReply: self._propagation_confirmed,
            Heartbeat: self._heartbeat_received,
            Reject: self._rejected,
        }
        for link in links:
            self._add_link(link, is_expected=True)
        for peer, position in (cursors or {}).items():
            self._add_link(peer, is_expected=True).scanned = position
        for peer, log_name in (logs or {}).items():
            self.links[peer].log = log_name
        if subscriptions:
            self._subscribe(0.0, ports.Subscribe(dict(subscriptions)))
        self._restore(log, delivered)

    def handle(self, now: float, input_: ports.Input) -> list[ports.Output]:
        """Process one input; return the outputs to execute, in order.

        A frame never raises, whatever it holds. Wrong arguments of the other inputs raise a
        `RangecastError`, and change nothing.
        """
        self._out = []
        self._handlers[type(input_)](now, input_)
        for name in self._touched:
            if name in self.links:
                try:
                    self._advertise_and_send(now, self.links[name])
                except JournalError as error:
                    self._close_over(now, self.links[name], error)
        if self._answerable is not None:  # others know of it by now
            link, self._answerable = self._answerable, None
            for question in [*link.questions.values()]:
                self._propagation_asked(now, link, question)
        if self._touched:
            if self.settings.max_held is not None:
                self._hold(now, self.settings.max_held)
            floors = (link.floor for link in self.links.values())
            self.log.drop(min(floors, default=self.log.durable))
            self._touched.clear()
        self._set_timer(now)
        return self._out

    @property
    def subscriptions(self) -> Container[Id]:
        """Ids of the clients' subscriptions."""
        return self._members

    # ---- links

    def _close_over(self, now: float, link: Link, error: JournalError) -> None:
        """Close the link that needs an unreadable part of the log; other links may not need it."""
        self.counts["links closed as the log can't be read"] += 1
        self._alarm("log", f"link {link.name} was closed: {error}", link)
        self._out.append(ports.Close(link.name, "the local log can't be read"))
        self._link_down(now, ports.LinkDown(link.name))

    def _received(self, now: float, input_: ports.Received) -> None:
        link = self.links.get(input_.link)
        if link is None or not link.is_up:
            self.counts["frames over a link that is down"] += 1
            return
        try:
            frame = decode(input_.frame) if isinstance(input_.frame, bytes) else input_.frame
            link.last_frame_at = now
            if not link.is_greeted and not isinstance(frame, Hello | Reject):
                self.counts["frames before Hello"] += 1
                return
            self._frames[type(frame)](now, link, frame)
        except FrameError as error:
            self.counts["frames rejected"] += 1
            self._alarm("rejected", f"{link.name}: {error}", link)

    # ---- propagation, time

    def _ask_propagated(self, now: float, input_: ports.AskPropagated) -> None:
        self._advertise_to_all(now)
        self._query_propagation(self._propagation.ask(input_.token, self.links.values()))

    def _propagation_asked(self, now: float, link: Link, frame: PropagationQuery) -> None:
        link.questions.pop(frame.token, None)
        received = link.received
        if (received.incarnation, received.version) < (frame.incarnation, frame.version):
            if len(link.questions) < self.settings.max_questions:
                link.questions[frame.token] = frame
            self._request_snapshot(now, link, "gap")
            return
        self._advertise_to_all(now)
        asked = self._propagation.asked(frame.token, link.name, self.links.values())
        if asked is None:
            self.counts["questions put off"] += 1  # it comes again
        else:
            self._query_propagation(asked)

    def _propagation_confirmed(self, now: float, link: Link, frame: PropagationReply) -> None:
        self._answer(self._propagation.answered(frame.token, link.name))

    def _heartbeat_received(self, now: float, link: Link, frame: Heartbeat) -> None:
        self._taken(now, link, EventsAck(kept=frame.kept))
        if frame.reach != link.reach_digest:
            self._send_hello(link, ask=True)
        self._request_snapshot(
            now, link, link.received.lacks(frame.incarnation, frame.version, frame.digest)
        )

    def _tick(self, now: float, input_: ports.Tick) -> None:
        self._timer = np.inf
        for link in self.links.values():
            if link.is_advertising or link.leaving or link.is_behind:
                self._touched[link.name] = None
        interval = self.settings.heartbeat_interval
        if interval is None or now < self._heartbeat_at:
            return
        self._heartbeat_at = now + interval
        for link in self.links.values():
            if not link.is_up or self._is_silent(now, link):
                continue
            if not link.is_greeted:
                self._send_hello(link)
                continue
            over = link.name
            kept = {
                subscription: at
                for subscription, at in self._kept.items()
                if self._via.get(subscription) == over
            }
            advertised = link.advertised
            self._send(
                link,
                Heartbeat(
                    incarnation=self.incarnation,
                    version=advertised.version,
                    digest=advertised.digest,
                    reach=self._reach_digest(link),
                    kept=kept,
                ),
            )
            # A silent peer may not read either, and its send queue would only grow.
            is_due = (
                link.last_frame_at > link.moved_at
                and now - link.moved_at >= self.settings.retry_timeout
            )
            if link.flights and is_due and not self.settings.is_reliable:
                self.counts["events sent again"] += link.in_flight
                link.moved_at = now
                link.rewind()
                self._touched[over] = None
        alive = {
            name: link
            for name, link in self.links.items()
            if now - link.last_frame_at <= 2 * interval
        }
        self._query_propagation((self._propagation.open(alive), []))

    def _is_silent(self, now: float, link: Link) -> bool:
        """Close a link without a frame for too long; return whether it was closed."""
        limit = self.settings.silence_timeout
        if limit is None or now - link.last_frame_at <= limit:
            return False
        self.counts["links closed as silent"] += 1
        text = f"nothing was received for {limit:g} seconds"
        self._alarm("silence", f"link {link.name} was closed: {text}", link)
        self._out.append(ports.Close(link.name, text))
        self._link_down(now, ports.LinkDown(link.name))
        return True
