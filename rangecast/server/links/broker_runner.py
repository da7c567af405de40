"""Driver of a server's broker: feeds it inputs, and executes its outputs.

A runner starts from the state of the log, and ends when it can't continue: after a disk error, or
when the space has changed. Then a new one starts (`manager`). All state that must survive is in the
log: a link is a consumer (named `link-` plus the neighbour's name) whose cursor says up to which
seq the neighbour needs nothing any more, and events received over a link are written as those of a
source, which the log accepts once and in order.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from rangecast.errors import FrameError, RangecastError
from rangecast.model.attributes.text import String
from rangecast.model.space import Space
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.broker.settings import Settings
from rangecast.overlay.broker.state import Identity
from rangecast.overlay.wire.frames import Events as EventsFrame
from rangecast.overlay.wire.frames import Frame, Hello, decode, encode
from rangecast.server.core import Core
from rangecast.server.encoding import EncodedEvents, encoded
from rangecast.server.links.connection import LinkConnection
from rangecast.server.links.journal import SOURCE, ServerJournal
from rangecast.server.pipeline.apply import WrittenRequest
from rangecast.server.pipeline.commands import Edits, Events, PublishedEvents
from rangecast.server.state.edits import DeleteConsumer, EventsHead, PutConsumer
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.registry import RequestError
from rangecast.server.state.versions.version import Version

TENANT = "default"
"""Tenant of the linked space."""
REJECTIONS = ("links rejected", "links rejected there", "names that are taken")
"""Counts of a broker that are rejected links."""
KIND = "link"
"""Delivery kind of a consumer that is a link."""
SETTINGS = Settings(is_reliable=True, silence_timeout=30.0, max_burst_bytes=4 << 20)
"""Settings of the broker: a neighbour that is silent for half a minute doesn't read either."""
MAX_EVENT_BYTES = 1 << 20
"""Maximum bytes of an event or a filter that fits into a frame with any texts."""


def consumer_name(peer: str) -> str:
    """Return the name of the consumer that represents the link to a neighbour."""
    return f"link-{peer}"


def _routed(version: Version) -> str:
    """Return the filter to advertise.

    One that is too long for a frame becomes `true`, as events are matched here anyway. So does a
    tracked one, as objects may leave it anywhere.
    """
    is_long = len(version.filter) > MAX_EVENT_BYTES
    return "true" if is_long or version.track is not None else version.filter


class BrokerRunner:
    """A broker, its connections and its log position; used by one thread only."""

    def __init__(
        self,
        core: Core,
        entry: SpaceEntry,
        name: str,
        incarnation: int,
        *,
        alarm: Callable[[str], None],
        fail: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """Create a broker from the log; nothing may be written in the meantime.

        `alarm` is called with problems that need an operator. `fail` is called, from any thread,
        with the reason why this runner must end. `clock` returns seconds.
        """
        self.name = name
        self._clock = clock
        self.tick_at = clock()
        """Time of the next `Tick`."""
        self.is_ending = False
        self.connections: dict[str, LinkConnection] = {}
        self.questions: dict[str, Future[bool]] = {}
        self._question = 0
        self._core = core
        self._entry = entry
        self._alarm = alarm
        self._fail = fail
        log, lineage = core.log, core.lineage
        self.journal = ServerJournal(log, lineage, entry, name)
        links = {
            consumer.delivery["broker"]: consumer
            for consumer in list(core.registry.consumers.values())
            if consumer.delivery.get("kind") == KIND
        }
        self.broker = Broker(
            name,
            Space.from_definition(entry.space.definition()),
            incarnation=incarnation,
            subscriptions={
                subscription.name: _routed(subscription) for subscription in entry.live.values()
            },
            journal=self.journal,
            settings=SETTINGS,
            kept=core.deduplicator.read_from(entry.tenant, entry.name, SOURCE),
            marks=core.deduplicator.marks_from(entry.tenant, entry.name, SOURCE),
            cursors={peer: link.cursor for peer, link in links.items()},
            numbers_from=lineage.number_of(log.last),
            identity=Identity(log.epoch, tuple(lineage.names)),
            logs={peer: link.delivery.get("log", "") for peer, link in links.items()},
        )

    def tick(self) -> None:
        """Tell the broker the current time."""
        if self._clock() >= self.tick_at:
            self.tick_at = float("inf")
            self._handle(ports.Tick())

    def end(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            connection.end()
        self.connections.clear()

    # ---- what happens here

    def advance(self, written: Sequence[WrittenRequest], upto: int, *, is_whole: bool) -> None:
        """Pass new units of the log to the broker."""
        wanted: dict[str, str | None] = {}
        for unit in written:
            for change in unit.changes:
                if change.entry is not self._entry:
                    continue
                if change.space is not None:
                    self._fail("the space has changed")
                    return
                if change.gone is not None:
                    wanted[change.gone.name] = None
                wanted |= {version.name: _routed(version) for version in change.put}
            if isinstance(unit.request, Edits):
                self._forget(unit.request.edits)
        self._want(wanted)
        self.journal.note(written, upto, is_whole=is_whole)
        if upto > self.journal.durable:
            self._handle(ports.Durable(upto))

    def _want(self, wanted: dict[str, str | None]) -> None:
        """Add, change and remove subscriptions of the broker."""
        known = self.broker.subscriptions
        gone = [id_ for id_, what in wanted.items() if what is None and id_ in known]
        if gone:
            self._handle(ports.Unsubscribe(list(gone)))
        for kind, is_known in ((ports.Subscribe, False), (ports.Replace, True)):
            changes = {
                id_: what
                for id_, what in wanted.items()
                if what is not None and (id_ in known) == is_known
            }
            if changes:
                self._handle(kind(changes))

    def _forget(self, edits: Iterable[object]) -> None:
        """Forget links whose consumers were deleted and not recreated since."""
        there = self._core.registry.consumers
        for edit in edits:
            name = edit.name if isinstance(edit, DeleteConsumer) else ""
            if name and (TENANT, name) not in there:
                for peer in [*self.broker.links]:
                    if consumer_name(peer) == name:
                        self._handle(ports.LinkDown(peer, forget=True))
                        self._close(peer, "the peer deleted this link")

    def ask(self, answer: Future[bool]) -> None:
        """Resolve `answer` with whether all servers know the current subscriptions."""
        self._question += 1
        token = str(self._question)
        self.questions[token] = answer
        try:
            self._handle(ports.AskPropagated(token))
        except RangecastError:  # too many wait
            del self.questions[token]
            answer.set_result(False)

    def move_cursors(self) -> None:
        """Acknowledge the neighbours' positions in the log, at most up to its last event."""
        last = self.journal.last_event
        for link in self.broker.links.values():
            consumer = self._core.registry.consumers.get((TENANT, consumer_name(link.name)))
            if consumer is not None and consumer.cursor < last:
                self._core.acknowledge(consumer, min(link.floor, last))

    # ---- connections

    def wrong_with(self, connection: LinkConnection) -> str:
        """Return why a link to this neighbour is impossible; empty if it is possible."""
        if connection.peer == self.name:
            return (
                f"the peer is also called {self.name!r}\n"
                "  hint: give every server a unique --server-name, and no --link to itself"
            )
        consumer = self._core.registry.consumers.get((TENANT, consumer_name(connection.peer)))
        if consumer is not None and consumer.delivery.get("kind") != KIND:
            return (
                f"the consumer {consumer.name!r} has the same name: delete it, or rename the broker"
            )
        old = self.connections.get(connection.peer)
        if old is None or old.url == connection.url:
            return ""
        if old.url and connection.url:
            return (
                f"{connection.peer!r} is already linked by {old.url}\n"
                "  hint: give only one --link to it"
            )
        # Both dial each other: the one that the lesser name has made stays.
        dialler = self.name if connection.url else connection.peer
        if dialler == min(self.name, connection.peer):
            return ""
        return (
            f"{connection.peer!r} and {self.name!r} are already linked by the other's --link\n"
            "  hint: give --link on one side only"
        )

    def up(self, connection: LinkConnection) -> None:
        """Use a new connection, or close it if it conflicts with another one."""
        why = self.wrong_with(connection) or self._conflict_of(connection)
        if why:
            connection.end(why)
            return
        old = self.connections.get(connection.peer)
        if old is not None:
            old.end("replaced by another connection")
            self._handle(ports.LinkDown(connection.peer))
        self.connections[connection.peer] = connection
        self._handle(ports.LinkUp(connection.peer))

    def _conflict_of(self, connection: LinkConnection) -> str:
        """Return why a connection can't replace the existing one; empty if it can."""
        if connection.peer not in self.connections or not connection.first:
            return ""
        try:
            hello = decode(connection.first)
        except FrameError:
            return ""  # it is rejected for that, soon
        why = self.broker.conflict(hello) if isinstance(hello, Hello) else ""
        if why:
            self._alarm(f"a second link of {connection.peer} was rejected: {why}")
        return why

    def _accepted(self, output: ports.Accepted) -> None:
        """Persist a link before anything is sent over it."""
        peer = output.link
        delivery = {"kind": KIND, "broker": peer, "log": output.log}
        there = self._core.registry.consumers.get((TENANT, consumer_name(peer)))
        if there is not None and there.delivery == delivery:
            return
        try:
            edit = PutConsumer(TENANT, consumer_name(peer), self._entry.name, delivery)
            self._core.edit(edit).result()
        except RangecastError as error:
            self._alarm(f"link {peer}: can't be stored: {error}")
            self._handle(ports.LinkDown(peer, forget=there is None))
            self._close(peer, "the link can't be stored")

    def down(self, connection: LinkConnection) -> None:
        """Handle a closed connection."""
        if self.connections.get(connection.peer) is connection:
            del self.connections[connection.peer]
            self._handle(ports.LinkDown(connection.peer))

    def drained(self, connection: LinkConnection) -> None:
        """Resume sending on a clogged connection that has room again."""
        if self.connections.get(connection.peer) is connection:
            self._handle(ports.LinkDrained(connection.peer))

    def _close(self, peer: str, why: str) -> None:
        connection = self.connections.pop(peer, None)
        if connection is not None:
            connection.end(why)
            self._handle(ports.LinkDown(peer))

    def received(self, connection: LinkConnection, data: bytes) -> None:
        """Handle an incoming frame."""
        connection.handled(data)
        if self.connections.get(connection.peer) is not connection:
            return
        came = None
        try:
            frame = decode(data)
            if isinstance(frame, EventsFrame):
                frame, came = self._decoded_frame(frame)
        except Exception as error:  # whatever a frame holds, it ends its own link alone
            reason = str(error) if isinstance(error, FrameError) else repr(error)[:200]
            self.broker.counts["frames rejected"] += 1
            self._alarm(f"link {connection.peer}: {reason}")
            self._close(connection.peer, f"a frame was rejected: {reason}")
            return
        self._handle(ports.Received(connection.peer, frame), came)

    def _decoded_frame(self, frame: EventsFrame) -> tuple[EventsFrame, EncodedEvents]:
        """Return a frame with all fields that the broker reads, decoded from the event texts."""
        space = self._entry.space
        came, rejected = encoded(frame.texts, space, ignore_unknown=True, form=frame.form)
        if rejected:
            raise FrameError(f"an event doesn't fit this space: {rejected[0][1]}")
        if any(len(line) > MAX_EVENT_BYTES for line in came.lines):
            raise FrameError(f"an event may have at most {MAX_EVENT_BYTES:,} bytes")
        strings = [attribute.name for attribute in space if isinstance(attribute, String)]
        words = {name: [row.get(name) for row in came.rows] for name in strings}
        whole = msgspec.structs.replace(
            frame,
            ids=list(frame.numbers),
            points=came.points.astype("<f8").tobytes(),
            words=words,
            priorities=[],
        )
        return whole, came

    # ---- what the broker says

    def _handle(self, input_: ports.Input, came: EncodedEvents | None = None) -> None:
        clogged = {peer for peer, connection in self.connections.items() if connection.is_clogged}
        for output in self.broker.handle(self._clock(), input_):
            match output:
                case ports.Accepted():
                    self._accepted(output)
                case ports.Renumber():
                    self._core.begin_epoch(output.above)
                    self._fail(f"events get numbers above {output.above}")
                case ports.Send():
                    self._send(output)
                case ports.Append():
                    assert came is not None
                    self._append(output, came)
                case ports.Timer():
                    self.tick_at = min(self.tick_at, output.at)
                case ports.Close():
                    self._reject(output)
                case ports.IsPropagated():
                    self.questions.pop(output.token).set_result(True)
                case ports.Alarm():
                    self._alarm(output.text)
                    if output.kind == "rejected":
                        self._close(output.link, output.text)
        for peer, connection in [*self.connections.items()]:
            if connection.is_clogged and peer not in clogged:
                self._handle(ports.LinkFull(peer))

    def _send(self, output: ports.Send) -> None:
        connection = self.connections.get(output.link)
        if connection is None:
            return
        frame: Frame = output.frame
        if isinstance(frame, EventsFrame):  # the texts say all the rest
            frame = msgspec.structs.replace(frame, ids=[], points=b"", words={})
        connection.send(encode(frame))

    def _reject(self, output: ports.Close) -> None:
        connection = self.connections.pop(output.link, None)
        if connection is not None:
            connection.end(output.why)
        if output.link not in self.broker.links:
            with contextlib.suppress(RangecastError):
                self._core.edit(DeleteConsumer(TENANT, consumer_name(output.link)))

    def _append(self, output: ports.Append, came: EncodedEvents) -> None:
        """Write events received over a link, as the next events of their origin."""
        block = output.block
        events = (
            came
            if len(block) == len(came.lines)
            else came.take(range(len(came.lines) - len(block), len(came.lines)))
        )
        head = EventsHead(
            self._entry.tenant,
            self._entry.name,
            form=block.form,
            source=SOURCE + block.origin,
            upto=block.upto,
            numbers=block.numbers,
            hops=block.hops,
            over=block.came_over,
            mark=block.mark.hex(),
            lost=block.lost,
        )
        request = Events(self._entry, events, head, follows=block.after)
        request.answer.add_done_callback(self._appended)
        while not self.is_ending:
            try:
                self._core.pipeline.submit(request)
                return
            except RequestError:  # too much waits to be written: so do neighbours
                time.sleep(0.02)

    def _appended(self, answer: Future[PublishedEvents]) -> None:
        error = answer.exception()
        if error is not None:
            self._fail(f"received events couldn't be written: {error}")

    # ---- how it is

    def shown(self) -> list[dict[str, Any]]:
        """Return the state of all links."""
        return [self._shown(link) for link in [*self.broker.links.values()]]

    def _shown(self, link: Link) -> dict[str, Any]:
        connection = self.connections.get(link.name)
        state = "up" if link.is_ready else "down" if connection is None else "greeting"
        return {
            "broker": link.name,
            "state": state,
            "log": link.log or None,
            "rejected": link.rejected or None,
            "dialled": connection.url or None if connection is not None else None,
            "lag": self._core.pipeline.durable - link.floor,
            "in_flight": link.in_flight,
            "advertised": len(link.advertised.items),
            "wants": len(link.received.items) if link.is_known else None,
            "form": None if link.out is None else link.out.form,
            "reach": list(link.reach),
        }
