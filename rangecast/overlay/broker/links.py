"""Links of a broker: up and down, greeting, accepted and rejected."""

from __future__ import annotations

from rangecast.errors import FrameError
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.interest import InterestHandlers
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.broker.state import checked_name
from rangecast.overlay.interest.interest_set import digest_of_names
from rangecast.overlay.interest.items import with_local_words
from rangecast.overlay.interest.routing_table import Table
from rangecast.overlay.wire.frames import PROTOCOL, Hello, Reject

_EPOCHS = 100
"""Number of epochs of a log sent to neighbours."""
_HIGHEST = 1 << 60
"""Highest plausible number of an event; a higher one is an error of the neighbour."""


class LinkHandlers(InterestHandlers):
    """Handlers of links: up, down and Hello."""

    def _add_link(self, name: str, *, is_expected: bool) -> Link:
        table = Table(self.space, self._curve)
        link = self.link_type(checked_name(name), table, is_expected=is_expected)
        if not self._delivers:
            link.scanned = self.log.durable  # what was before has never been promised to it
        self.links[name] = link
        if is_expected:
            items = with_local_words(list(link.received.items.values()), self.space, self._curve)
            self._enter(0.0, link, items, [])
        return link

    def _link_up(self, now: float, input_: ports.LinkUp) -> None:
        link = self.links.get(input_.link) or self._add_link(input_.link, is_expected=False)
        link.is_up, link.is_greeted, link.is_clogged = True, False, False
        link.rejected, link.last_frame_at = "", now
        self._send_hello(link)

    def _link_down(self, now: float, input_: ports.LinkDown) -> None:
        link = self.links.get(input_.link)
        if link is None:
            return
        link.is_up = link.is_greeted = link.is_clogged = False
        link.parts.clear()
        if input_.forget:
            self._enter(now, link, [], list(link.received.items))
            del self.links[link.name]
            self._via = {name: over for name, over in self._via.items() if over != link.name}
            self._review_bypassed()
            self._answer(self._propagation.forget(link.name))
            for other in self.links.values():
                if other.is_up:
                    self._send_hello(other)  # what lies behind this broker has changed

    def _clogged(self, now: float, input_: ports.LinkFull) -> None:
        if input_.link in self.links:
            self.links[input_.link].is_clogged = True

    def _drained(self, now: float, input_: ports.LinkDrained) -> None:
        if input_.link in self.links:
            self.links[input_.link].is_clogged = False
            self._touched[input_.link] = None

    def _send_hello(self, link: Link, *, ask: bool = False) -> None:
        """Send a Hello; `ask` for one in return, even if one has arrived."""
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
            version=link.advertised.version,
            digest=link.advertised.digest,
            kept=self._kept,
            reach=list(reach),
            seen=seen,
            log=self.identity.log,
            epochs=list(self.identity.epochs[:_EPOCHS]),
            mark=self._marks.get(link.name, b""),
        )
        self._send(link, hello)

    def _reach_digest(self, link: Link) -> int:
        others = (link_ for link_ in self.links.values() if link_ is not link and link_.is_up)
        return digest_of_names([self.name], *(other.reach_digest for other in others))

    def _hello(self, now: float, link: Link, frame: Hello) -> None:
        if frame.incarnation < link.peer and link.is_greeted:
            raise FrameError(f"incarnation {frame.incarnation} after {link.peer}")
        if len(frame.reach) > self.settings.max_origins:
            raise FrameError(f"{len(frame.reach):,} brokers are announced behind it")
        wrong = self._wrong_with(link, frame)
        if wrong:
            kind, text = wrong
            self.counts["links rejected"] += 1
            self._alarm(kind, f"link {link.name} was rejected: {text}", link)
            self._send(link, Reject(kind=kind, why=text[:2000]))
            self._out.append(ports.Close(link.name, text))
            self._reject_link(now, link, kind, text)
            return
        if not link.peer or link.log != frame.log:
            link.log = frame.log
            self._out.append(ports.Accepted(link.name, frame.log))
        if frame.incarnation < link.peer:
            self.counts["incarnations that went back"] += 1
            text = (
                f"link {link.name}: its incarnation is {frame.incarnation}, and was "
                f"{link.peer} before"
            )
            self._alarm("clock", f"{text}: its clock was set back", link)
            link.received.restarted()
        if frame.incarnation != link.peer:
            self._propagation.restarted(link.name)
            link.questions.clear()
            self._compare_disks(link, frame)
            link.taken.clear()  # its Hello says what is on its disk, which may be another one
        link.epoch = frame.epochs[0] if frame.epochs else ""
        link.is_bypassed = False
        self._compare_histories(link, frame)
        was_greeted = link.is_greeted and frame.incarnation == link.peer
        link.is_greeted, link.peer, link.reach = True, frame.incarnation, frame.reach
        link.reach_digest = digest_of_names(frame.reach)
        self._review_bypassed()
        self._choose_form(now, link, frame.cells)
        if frame.seen != self.incarnation:
            self._send_hello(link)
        link.confirm(frame.kept, self._origins)
        if not was_greeted:
            link.rewind()
        why = link.received.lacks(frame.incarnation, frame.version, frame.digest)
        self._request_snapshot(now, link, why, at_once=not was_greeted)
        if not was_greeted:
            asked = self._propagation.open({link.name: link})
            self._query_propagation((asked, []))
        self._touched[link.name] = None

    def _wrong_with(self, link: Link, frame: Hello) -> tuple[str, str] | None:
        if frame.protocol != PROTOCOL:
            return "protocol", f"protocol {frame.protocol}; here: {PROTOCOL}"
        if frame.space != self._space_digest:
            return "space", f"the space has digest {frame.space}; expected: {self._space_digest}"
        if frame.broker != link.name:
            return "name", f"the peer is the broker {frame.broker!r}"
        if link.log and frame.log != link.log:
            return "identity", (
                f"the log of {link.name} is {frame.log or 'without a name'}; the log known under "
                f"this name is {link.log}\n  hint: another server uses this name; if the old one "
                f"is gone for good, delete the link to {link.name} here"
            )
        here = {self.name}
        for other in self.links.values():
            if other is not link and other.is_up:
                here |= {other.name, *other.reach}
        twice = [name for name in [frame.broker, *frame.reach] if name in here]
        if twice:
            self.counts["cycles rejected"] += 1
            return "cycle", (
                f"{', '.join(twice[:5])} can already be reached without it\n"
                "  hint: remove one link of the cycle, at both ends"
            )
        return None

    def _reject_link(self, now: float, link: Link, kind: str, text: str) -> None:
        """Take down a link that either side rejects.

        One that was accepted before stays: what came over it may be wanted again. But if its
        neighbour is reached over other links, no question waits for it; and it is forgotten, if
        nothing has ever gone over it.
        """
        is_new = not link.is_expected and not link.peer
        is_cycle = kind == "cycle"
        if is_cycle:
            link.is_bypassed = True
            self._answer(self._propagation.forget(link.name))
        is_unused = is_cycle and link.is_idle and link.name not in self._via.values()
        link.rejected = text
        self._link_down(now, ports.LinkDown(link.name, forget=is_new or is_unused))

    def _review_bypassed(self) -> None:
        """Make queries wait again for neighbours that no other link reaches."""
        for link in self.links.values():
            others = (link_ for link_ in self.links.values() if not link_.is_bypassed)
            if link.is_bypassed and not any(
                link.name in (other.name, *other.reach) for other in others
            ):
                link.is_bypassed = False
                self._propagation.wait_for(link)

    def _rejected(self, now: float, link: Link, frame: Reject) -> None:
        text = f"{link.name} rejected the link: {frame.why}"
        self.counts["links rejected there"] += 1
        self._alarm(frame.kind, text, link)
        self._out.append(ports.Close(link.name, text))
        self._reject_link(now, link, frame.kind, text)

    def conflict(self, hello: Hello) -> str:
        """Return why a second connection under a name can't replace the first.

        Empty: it belongs to the same server, or to one that continues its log.
        """
        link = self.links.get(hello.broker)
        if link is None or not link.is_ready or (link.log, link.epoch) == (hello.log, ""):
            return ""
        if link.log == hello.log and link.epoch in hello.epochs:
            return ""
        self.counts["names that are taken"] += 1
        return (
            f"a server with another log is linked here as {hello.broker!r}: {link.log} in epoch "
            f"{link.epoch}; given: {hello.log} in epoch {(hello.epochs or [''])[0]}\n"
            "  hint: give every server a unique name; stop the wrong one"
        )

    def _compare_disks(self, link: Link, frame: Hello) -> None:
        """Detect that the neighbour lost events that it confirmed: its disk is an older copy."""
        if any(frame.kept.get(name, 0) < upto for name, upto in link.taken.items()):
            self.counts["neighbours that lost events"] += 1
            link.lose()

    def _compare_histories(self, link: Link, frame: Hello) -> None:
        """Detect that the neighbour has other events under the same numbers.

        If not, this log was restored from an older copy, or has lost its end. Earlier numbers
        aren't given again, so nothing that comes is taken for something else. What was accepted
        since, under numbers that the neighbour has seen, it won't get: that is reported to it.
        """
        upto = frame.kept.get(self.name, 0)
        mark = self.log.mark_of(upto) if upto else b""
        if mark is not None and (not mark or not frame.mark or mark == frame.mark):
            return
        if upto > max(self._number, _HIGHEST):
            raise FrameError(f"it claims events of {self.name} up to {upto}, which is impossible")
        self.counts["histories that parted"] += 1
        text = f"it has events of {self.name} up to {upto} that the local log lacks"
        self._alarm("history", f"link {link.name}: {text}: this log is an older copy", link)
        link.lose()
        if upto > self._number:
            self._number = upto
            self._out.append(ports.Renumber(upto))
