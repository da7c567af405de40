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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from rangecast.cover.choose import choose
from rangecast.errors import FrameError, UsageError
from rangecast.merge.cells import Cells
from rangecast.model.inputs import as_boxes, as_filter, as_space
from rangecast.model.members import Id, Members
from rangecast.model.space import Space
from rangecast.overlay import ports
from rangecast.overlay.curve import Curve
from rangecast.overlay.eventlog import Block, Journal, Log, block_of
from rangecast.overlay.interest import digest_of_names, space_digest
from rangecast.overlay.items import Batch, Wanted, understood, wanted_of, wanted_of_boxes
from rangecast.overlay.links import Link
from rangecast.overlay.messages import (
    MOST_CONTENT,
    PROTOCOL,
    Beat,
    Events,
    Frame,
    Hello,
    Interest,
    Resync,
    Settle,
    Settled,
    Snapshot,
    Taken,
    Why,
    decode,
    item_size,
)
from rangecast.overlay.publishing import published
from rangecast.overlay.settings import Settings
from rangecast.overlay.settling import Answer, Question, Settling
from rangecast.overlay.sources import CLIENTS, Sources
from rangecast.overlay.strategies import Options, strategy_of
from rangecast.overlay.table import Table


class Broker:
    """One broker; `handle` is all that changes it."""

    link_type = Link
    sources_type = Sources
    """Parts that a broken broker replaces, to see that it is found."""

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
        if incarnation < 1:
            raise UsageError(f"an incarnation is at least 1; given: {incarnation}")
        self.name = _checked_name(name)
        self.origin = _checked_name(name if origin is None else origin)
        self.space = as_space(space)
        self.incarnation = incarnation
        self.settings = settings or Settings()
        self.counts: Counter[str] = Counter()
        """What happened so far, by kind."""
        self.links: dict[str, Link] = {}
        self.log: Journal = Log() if journal is None else journal
        if cells is not None:
            cells.check(self.space)
        choose(cover_index)  # refuses an unknown index now, not at a Hello
        self._curve = None
        if cells is not None and strategy != "subsumption":
            self._curve = Curve(self.space, cells, words)
        """Of ranges that neighbours may send."""
        self._options = Options(strategy, cells, self._curve, budget, cover_index)
        bare = Space(self.space.attributes)  # without the comments of a space that was inferred
        self._space_digest = space_digest(bare.to_toml())
        self._members = Members()
        self._delivers = journal is None
        self._clients = Table(self.space)
        """What clients want, if this broker delivers to them."""
        self._sources = self.sources_type(self.space)
        self._settling = Settling(f"{name}/{incarnation}", self.settings.most_questions)
        self._got: dict[str, int] = dict(kept or {})
        """By origin: the last event that came."""
        self._kept: dict[str, int] = dict(kept or {})
        """By origin: the last event on disk."""
        self._via: dict[str, str] = {}
        """By origin: the link that its events come over."""
        self._origins = {self.origin, *self._kept}
        """All brokers whose events are in the log, or were."""
        self._number = 0 if journal is None else journal.durable
        """No event published here has a higher one."""
        self._beat_at = -np.inf
        self._timer = np.inf
        self._touched: dict[str, None] = {}
        """Links that have something to say at the end of this call."""
        self._answerable: Link | None = None
        """A neighbour who said what he wants, and has questions that may be answered by that."""
        self._out: list[ports.Output] = []
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

    # ---- clients

    def _subscribe(self, now: float, given: ports.Subscribe) -> None:
        named = self._named(given.subscriptions)
        ids = self._members.new_many(list(named))
        self._members.bind_many(ids, [0] * len(ids))
        if self._delivers:
            self._clients.change(_packed(ids, named.values()))
        self._spread(now, CLIENTS, self._sources.subscribed(ids, named.values()))

    def _unsubscribe(self, now: float, given: ports.Unsubscribe) -> None:
        self._members.release_many(given.subscriptions)
        ids = list(dict.fromkeys(given.subscriptions))
        if self._delivers:
            self._clients.change({}, ids)
        self._spread(now, CLIENTS, self._sources.unsubscribed(ids))

    def _replace(self, now: float, given: ports.Replace) -> None:
        named = self._named(given.subscriptions)
        ids, _ = self._members.known_many(list(named))
        if self._delivers:
            self._clients.change(_packed(ids, named.values()))
        self._spread(now, CLIENTS, self._sources.replaced(ids, named.values()))

    def _named(self, given: Any) -> dict[Id, Wanted]:
        """Return subscriptions of clients as items, by id."""
        if isinstance(given, Mapping):
            named = {one: wanted_of(as_filter(what, self.space)) for one, what in given.items()}
        else:
            boxes = as_boxes(given, self.space)
            named = dict(
                zip(boxes.ids.to_pylist(), wanted_of_boxes(boxes, self.space), strict=True)
            )
            if len(named) < boxes.rows:
                self._members.new_many(boxes.ids)  # refuses an id that is there twice
        for one, wanted in named.items():
            if item_size(wanted.item) > MOST_CONTENT:
                raise UsageError(
                    f"the filter of subscription {one!r:.80} takes {item_size(wanted.item):,} "
                    f"bytes, more than a frame can hold\n  expected: at most {MOST_CONTENT:,}\n"
                    "  to do: make several subscriptions of it; nothing was done"
                )
        return named

    def _publish(self, now: float, given: ports.Publish) -> None:
        block = published(given, self.origin, self._number, self.space)
        if len(block):
            self._number = block.upto
            self._out.append(ports.Append(self.log.append(block), block))

    def _ask_settled(self, now: float, given: ports.AskSettled) -> None:
        self._tell_all(now)
        self._ask_on(self._settling.ask(given.token, self.links.values()))

    # ---- links

    def _add_link(self, name: str, *, is_expected: bool) -> Link:
        table = Table(self.space, self._curve)
        link = self.link_type(_checked_name(name), table, is_expected=is_expected)
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

    def _choose_form(self, now: float, link: Link, cells: str) -> None:
        """Make the strategy of a link, again if the neighbour has other cells now."""
        same = self._curve is not None and cells == self._curve.digest
        if link.out is not None:
            if same == link.same_cells:
                return
            self.counts["forms changed"] += 1
        link.same_cells = same
        sources = self._sources
        link.out = strategy_of(self.space, self._options, sources.wanted, same_cells=same)
        told = link.out.change(sources.besides(link.name), Batch(self.space, []))
        link.wanted = {item.name: item for item in told.added}
        link.aim(now + self.settings.linger, self.settings.most_told)
        link.tell_at = now

    # ---- interest

    def _interest(self, now: float, link: Link, frame: Interest) -> None:
        change = link.heard.change_of(frame)
        if change is None:
            self.counts["duplicates dropped"] += 1
        elif isinstance(change, str):
            self._ask_for_all(now, link, change)
        else:
            come = understood(change.added, self.space, self._curve)
            link.heard.change(change.added, change.removed)
            self._enter(now, link, come, change.removed)
            self._answerable = link if link.questions else None

    def _snapshot(self, now: float, link: Link, frame: Snapshot) -> None:
        items, interrupted = link.heard.stage(frame)
        self.counts["snapshots interrupted"] += interrupted
        if items is None:
            return
        new = items.keys() - link.heard.items.keys()
        some = [item for name, item in items.items() if name in new] if new else []
        come = understood(some, self.space, self._curve)
        was_known = link.is_known
        gone = link.heard.swap(frame, items)
        self.counts["snapshots taken"] += 1
        self._enter(now, link, come, gone)
        self._answerable = link if link.questions else None
        if not was_known:
            self._touched[link.name] = None

    def _enter(self, now: float, link: Link, come: list[Wanted], go: list[int]) -> None:
        """Take over what a neighbour wants, and tell the others."""
        link.table.change_items(Batch(self.space, come), go)
        self._spread(now, link.name, (come, go))

    def _spread(self, now: float, source: str, change: tuple[list[Wanted], list[int]]) -> None:
        """Let all links but one hear of items that come and go at a source."""
        for name, (come, go) in self._sources.change(source, *change, self.links).items():
            link = self.links[name]
            if link.out is None or not (len(come) or len(go)):
                continue
            form = link.out.form
            told = link.out.change(come, go)
            if len(go) and link.out.form == form == "boxes":
                coming = set(come.names)
                exposed = [item for item in told.added if item.name not in coming]
                self.counts["subscriptions exposed"] += len(exposed)
            self.counts["forms changed"] += link.out.form != form
            until = now + self.settings.linger
            self.counts["removals cancelled"] += link.want(told, until)
            if (len(link.wanted) > self.settings.most_told) != link.is_full:
                link.aim(until, self.settings.most_told)
                self.counts["forms changed"] += 1
            link.tell_at = min(link.tell_at, now + self.settings.gather)
            self._touched[name] = None

    def _resync(self, now: float, link: Link, frame: Resync) -> None:
        self.counts[f"resyncs by {frame.why}"] += 1
        self._touched.pop(link.name, None)
        self._say(now, link)
        for part in link.snapshot(self.incarnation, self.settings.most_items):
            self._send(link, part)

    def _ask_for_all(
        self, now: float, link: Link, why: Why | Literal[""], *, at_once: bool = False
    ) -> None:
        """Ask for a snapshot, if there is a reason and it wasn't asked for just now."""
        if why and (at_once or now - link.asked_at >= self.settings.patience):
            link.asked_at = now
            self._send(link, Resync(version=link.heard.version, why=why))

    # ---- events

    def _events(self, now: float, link: Link, frame: Events) -> None:
        over = self._via.get(frame.origin, link.name)
        is_second = over != link.name and over in self.links and self.links[over].is_up
        is_mine = frame.origin == self.origin
        if is_mine or is_second:
            # Each path lets all through that is wanted here, so the first one to come is enough.
            self.counts["cycles found"] += 1
            self._alarm("cycle", f"events of {frame.origin} also come over {link.name}", link)
        if frame.hops > self.settings.most_hops:
            self.counts["events past the limit of hops"] += len(frame.numbers)
            self._alarm("hops", f"events of {frame.origin} took {frame.hops} links", link)
            return
        got = self._number if is_mine else self._got.get(frame.origin, 0)
        if is_mine:
            self._send(link, Taken(kept={self.origin: got}))
        elif frame.after > got:
            self.counts["gaps in events"] += 1
            self._send(link, Taken(kept={frame.origin: self._kept.get(frame.origin, 0)}))
        elif frame.upto <= got:
            self.counts["duplicates dropped"] += 1
            kept = self._kept.get(frame.origin, 0)
            self._send(link, Taken(kept={frame.origin: kept}))
            if kept < frame.upto:  # it came over another link, and isn't on disk yet
                link.owed[frame.origin] = frame.upto
        else:
            if len(self._origins) > self.settings.most_origins and not got:
                raise FrameError(f"events of {self.settings.most_origins:,} brokers are known")
            block = block_of(frame, self.space, got, link.name)
            self._origins.add(frame.origin)
            self._via[frame.origin] = over if is_second else link.name
            self._got[frame.origin] = frame.upto
            self._out.append(ports.Append(self.log.append(block), block))

    def _durable(self, now: float, given: ports.Durable) -> None:
        taken: dict[str, dict[str, int]] = {}
        for place, block in self.log.between(self.log.durable, given.upto):
            if place + len(block) > given.upto:
                break
            self.log.durable = place + len(block)
            if block.origin == self.origin:
                self._number = max(self._number, block.upto)
            else:
                self._kept[block.origin] = block.upto
                self._got[block.origin] = max(self._got.get(block.origin, 0), block.upto)
                taken.setdefault(block.came_over, {})[block.origin] = block.upto
                for link in self.links.values():
                    if link.owed.get(block.origin, np.inf) <= block.upto:
                        del link.owed[block.origin]
                        taken.setdefault(link.name, {})[block.origin] = block.upto
            if self._delivers:
                matches = self._clients.matches(block.points_in(self.space))
                if len(matches):
                    self._out.append(ports.Deliver(place, block, matches))
        else:
            self.log.durable = max(self.log.durable, given.upto)
        for name, kept in taken.items():
            if name in self.links:
                self._send(self.links[name], Taken(kept=kept))
        self._touched |= dict.fromkeys(self.links)

    def _taken(self, now: float, link: Link, frame: Taken) -> None:
        if link.confirm(frame.kept, self._origins):
            link.moved_at = now
            self._touched[link.name] = None

    def _restore(self, log: Iterable[Block], delivered: int) -> None:
        for block in log:
            place = self.log.append(block)
            if place < delivered:
                self.log.durable = self.log.end
            if block.origin == self.origin:
                self._number = block.upto
                continue
            if place < delivered:
                self._kept[block.origin] = block.upto
            self._got[block.origin] = block.upto
            self._via[block.origin] = block.came_over
            self._origins.add(block.origin)

    # ---- settling, time

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

    # ---- speaking

    def _say(self, now: float, link: Link) -> None:
        """Tell a link what is new, and send the events that it waits for."""
        if not link.new or now >= link.tell_at:
            self._tell(now, link)
        if not link.is_ready or not link.is_known:
            return  # what it wants comes soon
        settings = self.settings
        enough = settings.window if settings.most_waiting is None else None
        link.scan(self.log, self.space, settings.most_scanned, enough)
        if self.settings.most_waiting is not None:
            room = max(0, self.settings.window - link.in_flight)  # these needn't wait
            self._shed(link.shed(self.settings.most_waiting + room))
        if not link.flights:
            link.moved_at = now
        bounds = settings.window, settings.window_bytes, settings.most_events
        for events in link.next_events(*bounds):
            self._send(link, events)

    def _tell(self, now: float, link: Link) -> None:
        for frame in link.changes(now, self.incarnation, self.settings.most_items):
            self._send(link, frame)

    def _tell_all(self, now: float) -> None:
        """Tell every link what waits to be told, so that a question can be asked about it."""
        for link in self.links.values():
            if link.new:
                self._tell(now, link)

    def _hold(self, now: float, most: int) -> None:
        """Let links go on behind which the log is longer than it may be."""
        before = self.log.before_last(most)
        for link in self.links.values():
            if link.floor < before:
                self._shed(link.give_up(self.log, before))
                self._say(now, link)  # what is left was forgotten, too

    def _shed(self, shed: list[ports.Shed]) -> None:
        self._out += shed
        self.counts["events shed"] += sum(len(one.numbers) for one in shed)

    def _send(self, link: Link, frame: Frame) -> None:
        if link.is_ready or (link.is_up and isinstance(frame, Hello)):
            self._out.append(ports.Send(link.name, frame))

    def _alarm(self, kind: str, text: str, link: Link) -> None:
        self._out.append(ports.Alarm(kind, text, link.name))

    def _set_timer(self, now: float) -> None:
        """Ask to be called when something lingers no longer, or at the next beat."""
        due = np.inf
        for link in self.links.values():
            due = min(due, now if link.is_behind and link.is_ready else link.due)
        if self.settings.beat is not None and any(link.is_up for link in self.links.values()):
            due = min(due, max(self._beat_at, now))
        if due < self._timer:
            self._timer = due
            self._out.append(ports.Timer(float(due)))


def _packed(ids: list[Id], wanted: Iterable[Wanted]) -> dict[Id, bytes]:
    return {one: what.boxes or b"" for one, what in zip(ids, wanted, strict=True)}


def _checked_name(name: str) -> str:
    """Return the name of a broker, or of the link to it."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise UsageError(f"a broker is named by a text of 1 to 200 characters; given: {name!r}")
    return name
