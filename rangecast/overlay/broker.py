"""A broker of a network by interest: a state machine without clock, chance and I/O.

    broker = Broker("east", space, incarnation=1, strategy="covering")
    for output in broker.handle(now, Subscribe({"cheap": "price < 10"})):
        ...                                       # send, deliver, append, ... (`ports`)

Brokers form a tree. A subscription stays at the broker of its client; neighbours are told what they
must send on, and tell their own. What is told over a link is judged among what came over the other
links and from clients (`strategies`). An event goes over the links behind which somebody wants it,
and to the clients whose filters hold it: exactly these.

What its driver promises: frames may be lost, doubled or late; `Durable` is said only of what
survives a crash; after a crash a new broker gets a higher `incarnation`, its neighbours (`links`),
the subscriptions of its clients, and the log from disk, before anything else.

What the broker promises: if `IsSettled` came for a subscription before an event was accepted
anywhere, the event is delivered to it, once links heal; nobody gets what he doesn't want; events of
one origin arrive in order, each place of a log once.

`broker_state` is what it knows; `broker_interest` and `broker_events` handle what is wanted and
what is published; here are links, settling and time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from rangecast.errors import FrameError
from rangecast.merge.cells import Cells
from rangecast.model.members import Id
from rangecast.model.space import Space
from rangecast.overlay import ports
from rangecast.overlay.broker_events import EventHandlers
from rangecast.overlay.broker_interest import InterestHandlers
from rangecast.overlay.broker_state import checked_name
from rangecast.overlay.eventlog import Block, Journal
from rangecast.overlay.interest import digest_of_names
from rangecast.overlay.items import understood
from rangecast.overlay.links import Link
from rangecast.overlay.messages import (
    PROTOCOL,
    Beat,
    Events,
    Hello,
    Interest,
    Resync,
    Settle,
    Settled,
    Snapshot,
    Taken,
    decode,
)
from rangecast.overlay.settings import Settings
from rangecast.overlay.settling import Answer, Question
from rangecast.overlay.sources import CLIENTS
from rangecast.overlay.table import Table


class Broker(InterestHandlers, EventHandlers):
    """One broker; `handle` is all that changes it."""

    def __init__(
        self,
        name: str,
        space: Space,
        *,
        incarnation: int = 1,
        strategy: str = "covering",
        cells: Cells | None = None,
        words: str | None = None,
        budget: int = 1000,
        cover_index: str = "auto",
        settings: Settings | None = None,
        links: Iterable[str] = (),
        subscriptions: Mapping[Id, Any] | None = None,
        log: Iterable[Block] = (),
        delivered: int = 0,
        journal: Journal | None = None,
        kept: Mapping[str, int] | None = None,
        cursors: Mapping[str, int] | None = None,
        origin: str | None = None,
    ):
        """Make a broker, or one that goes on after a crash.

        incarnation     higher than that of any earlier broker of this name, and at least 1
        strategy        none, covering, subsumption, merging or both (`strategies`)
        cells           for merging and both: of ranges, without strings, the same at all brokers;
                        for subsumption: of its index, any
        words           for merging and both: a string attribute; each word has ranges of its own
        budget          ranges that a neighbour is told of at most
        links           neighbours that were there before: until heard, they want everything
        subscriptions   of clients, as they were
        log             the log from disk, and up to which place it was delivered to clients
        journal         instead: a log that the driver keeps and matches with its clients. Then the
                        broker delivers nothing, and the driver says `Durable` of what was published
                        here as well; numbers of events rise, with gaps
        kept            with a journal, by origin: the last event in it
        cursors         with a journal, by neighbour: the place before which it needs nothing
        origin          under which name events published here are numbered, if not the broker's:
                        another one once numbers that were given are lost
        """
        super().__init__(
            name,
            space,
            incarnation=incarnation,
            strategy=strategy,
            cells=cells,
            words=words,
            budget=budget,
            cover_index=cover_index,
            settings=settings,
            journal=journal,
            kept=kept,
            origin=origin,
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
            ports.AskSettled: self._ask_settled,
            ports.Tick: self._tick,
        }
        self._frames: dict[type, Any] = {
            Hello: self._hello,
            Interest: self._interest,
            Snapshot: self._snapshot,
            Resync: self._resync,
            Events: self._events,
            Taken: self._taken,
            Settle: self._settle,
            Settled: self._settled,
            Beat: self._beat,
        }
        for link in links:
            self._add_link(link, is_expected=True)
        for one, place in (cursors or {}).items():
            self._add_link(one, is_expected=True).scanned = place
        if subscriptions:
            self._subscribe(0.0, ports.Subscribe(dict(subscriptions)))
        self._restore(log, delivered)

    def handle(self, now: float, given: ports.Input) -> list[ports.Output]:
        """Do what one input asks for; return what is to be done, in this order.

        A frame never raises, whatever it holds. Wrong arguments of the other inputs raise a
        `RangecastError`, and change nothing.
        """
        self._out = []
        self._handlers[type(given)](now, given)
        for name in self._touched:
            if name in self.links:
                self._say(now, self.links[name])
        if self._answerable is not None:  # others have heard of it by now
            link, self._answerable = self._answerable, None
            for question in [*link.questions.values()]:
                self._settle(now, link, question)
        if self._touched:
            if self.settings.most_held is not None:
                self._hold(now, self.settings.most_held)
            floors = (link.floor for link in self.links.values())
            self.log.drop(min(floors, default=self.log.durable))
            self._touched.clear()
        self._set_timer(now)
        return self._out

    @property
    def subscriptions(self) -> Container[Id]:
        """The ids of what clients want."""
        return self._members

    # ---- links

    def _add_link(self, name: str, *, is_expected: bool) -> Link:
        table = Table(self.space, self._curve)
        link = self.link_type(checked_name(name), table, is_expected=is_expected)
        if not self._delivers:
            link.scanned = self.log.durable  # what was before has never been promised to it
        self.links[name] = link
        if is_expected:
            some = understood(list(link.heard.items.values()), self.space, self._curve)
            self._enter(0.0, link, some, [])
        return link

    def _link_up(self, now: float, given: ports.LinkUp) -> None:
        link = self.links.get(given.link) or self._add_link(given.link, is_expected=False)
        link.is_up, link.is_greeted = True, False
        self._greet(link)

    def _link_down(self, now: float, given: ports.LinkDown) -> None:
        link = self.links.get(given.link)
        if link is None:
            return
        link.is_up = link.is_greeted = False
        if given.forget:
            self._enter(now, link, [], list(link.heard.items))
            del self.links[link.name]
            self._via = {one: over for one, over in self._via.items() if over != link.name}
            self._answer(self._settling.forget(link.name))
            for other in self.links.values():
                if other.is_up:
                    self._greet(other)  # what lies behind this broker has changed

    def _greet(self, link: Link, *, ask: bool = False) -> None:
        """Send a Hello; `ask` for one, even if one was there."""
        reach = {self.name: None}
        for other in self.links.values():
            if other is not link and other.is_up:
                reach |= dict.fromkeys(other.reach)
        seen = link.peer if link.is_greeted and not ask else 0
        hello = Hello(
            broker=self.name,
            incarnation=self.incarnation,
            space=self._space_digest,
            cells=self._curve.digest if self._curve is not None else "",
            version=link.told.version,
            digest=link.told.digest,
            kept=self._kept,
            reach=list(reach),
            seen=seen,
        )
        self._send(link, hello)

    def _reach_digest(self, link: Link) -> int:
        others = (one for one in self.links.values() if one is not link and one.is_up)
        return digest_of_names([self.name], *(one.reach_digest for one in others))

    def _received(self, now: float, given: ports.Received) -> None:
        link = self.links.get(given.link)
        if link is None or not link.is_up:
            self.counts["frames over a link that is down"] += 1
            return
        try:
            frame = decode(given.frame) if isinstance(given.frame, bytes) else given.frame
            if not link.is_greeted and not isinstance(frame, Hello):
                self.counts["frames before Hello"] += 1
                return
            self._frames[type(frame)](now, link, frame)
        except FrameError as error:
            self.counts["frames refused"] += 1
            self._alarm("refused", f"{link.name}: {error}", link)

    def _hello(self, now: float, link: Link, frame: Hello) -> None:
        if frame.incarnation < link.peer:
            self.counts["Hellos of an earlier incarnation"] += 1
            return
        if len(frame.reach) > self.settings.most_origins:
            raise FrameError(f"{len(frame.reach):,} brokers are said to be behind it")
        wrong = self._wrong_with(link, frame)
        if wrong:
            kind, text = wrong
            self._alarm(kind, f"link {link.name} is refused: {text}", link)
            self._out.append(ports.Close(link.name, text))
            # One that was accepted before stays: what came over it may be wanted again.
            is_new = not link.is_expected and not link.peer
            self._link_down(now, ports.LinkDown(link.name, forget=is_new))
            return
        if frame.incarnation > link.peer:
            self._settling.restarted(link.name)
            link.questions.clear()
            link.taken.clear()  # its Hello says what is on its disk, which may be another one
        was_greeted = link.is_greeted and frame.incarnation == link.peer
        link.is_greeted, link.peer, link.reach = True, frame.incarnation, frame.reach
        link.reach_digest = digest_of_names(frame.reach)
        self._choose_form(now, link, frame.cells)
        if frame.seen != self.incarnation:
            self._greet(link)
        link.confirm(frame.kept, self._origins)
        if not was_greeted:
            link.rewind()
        why = link.heard.lacks(frame.incarnation, frame.version, frame.digest)
        self._ask_for_all(now, link, why, at_once=not was_greeted)
        if not was_greeted:
            asked = self._settling.open({link.name: link})
            self._ask_on((asked, []))
        self._touched[link.name] = None

    def _wrong_with(self, link: Link, frame: Hello) -> tuple[str, str] | None:
        if frame.protocol != PROTOCOL:
            return "protocol", f"protocol {frame.protocol}; here: {PROTOCOL}"
        if frame.space != self._space_digest:
            return "space", f"the space has digest {frame.space}; here: {self._space_digest}"
        if frame.broker != link.name:
            return "name", f"the broker there is {frame.broker!r}"
        upto = frame.kept.get(self.origin, 0)
        if upto > self._number:
            return "history", (
                f"it has events of {self.origin} up to {upto}; the log here has lost those after "
                f"{self._number}"
            )
        here = {self.name}
        for other in self.links.values():
            if other is not link and other.is_up:
                here |= {other.name, *other.reach}
        twice = [one for one in [frame.broker, *frame.reach] if one in here]
        if twice:
            self.counts["cycles refused"] += 1
            return "cycle", f"{', '.join(twice[:5])} can be reached without it"
        return None

    # ---- settling, time

    def _ask_settled(self, now: float, given: ports.AskSettled) -> None:
        self._tell_all(now)
        self._ask_on(self._settling.ask(given.token, self.links.values()))

    def _settle(self, now: float, link: Link, frame: Settle) -> None:
        link.questions.pop(frame.token, None)
        heard = link.heard
        if (heard.incarnation, heard.version) < (frame.incarnation, frame.version):
            if len(link.questions) < self.settings.most_questions:
                link.questions[frame.token] = frame
            self._ask_for_all(now, link, "gap")
            return
        self._tell_all(now)
        asked = self._settling.asked(frame.token, link.name, self.links.values())
        if asked is None:
            self.counts["questions put off"] += 1  # it comes again
        else:
            self._ask_on(asked)

    def _settled(self, now: float, link: Link, frame: Settled) -> None:
        self._answer(self._settling.answered(frame.token, link.name))

    def _ask_on(self, asked: tuple[list[Question], list[Answer]]) -> None:
        questions, answers = asked
        for name, (token, version) in questions:
            question = Settle(token=token, incarnation=self.incarnation, version=version)
            self._send(self.links[name], question)
        self._answer(answers)

    def _answer(self, answers: Iterable[Answer]) -> None:
        for name, token in answers:
            if name == CLIENTS:
                self._out.append(ports.IsSettled(token))
            elif name in self.links:
                self._send(self.links[name], Settled(token=token))

    def _beat(self, now: float, link: Link, frame: Beat) -> None:
        self._taken(now, link, Taken(kept=frame.kept))
        if frame.reach != link.reach_digest:
            self._greet(link, ask=True)
        self._ask_for_all(
            now, link, link.heard.lacks(frame.incarnation, frame.version, frame.digest)
        )

    def _tick(self, now: float, given: ports.Tick) -> None:
        self._timer = np.inf
        for link in self.links.values():
            if link.new or link.leaving or link.is_behind:
                self._touched[link.name] = None
        beat = self.settings.beat
        if beat is None or now < self._beat_at:
            return
        self._beat_at = now + beat
        for link in self.links.values():
            if not link.is_up:
                continue
            if not link.is_greeted:
                self._greet(link)
                continue
            over = link.name
            kept = {one: at for one, at in self._kept.items() if self._via.get(one) == over}
            told = link.told
            self._send(
                link,
                Beat(
                    incarnation=self.incarnation,
                    version=told.version,
                    digest=told.digest,
                    reach=self._reach_digest(link),
                    kept=kept,
                ),
            )
            if link.flights and now - link.moved_at >= self.settings.patience:
                self.counts["events sent again"] += link.in_flight
                link.moved_at = now
                link.rewind()
                self._touched[over] = None
        self._ask_on((self._settling.open(self.links), []))
