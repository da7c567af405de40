"""Events of a broker: published or received, written to disk, delivered, confirmed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rangecast.errors import FrameError
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.event_log import Block, block_of
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.broker.publishing import published
from rangecast.overlay.broker.state import BrokerState
from rangecast.overlay.wire.frames import Events, EventsAck


class EventHandlers(BrokerState):
    """Handlers of events."""

    def _publish(self, now: float, input_: ports.Publish) -> None:
        block = published(input_, self.name, self._number, self.space, self._mark)
        if len(block):
            self._number, self._mark = block.upto, block.mark
            self._out.append(ports.Append(self.log.append(block), block))

    def _events(self, now: float, link: Link, frame: Events) -> None:
        over = self._via.get(frame.origin, link.name)
        is_second = over != link.name and over in self.links and self.links[over].is_up
        is_mine = frame.origin == self.name
        if is_mine or is_second:
            # Each path lets all through that is wanted here, so the first one to come is enough.
            self.counts["cycles found"] += 1
            self._alarm("cycle", f"events of {frame.origin} also arrive over {link.name}", link)
        if frame.hops > self.settings.max_hops:
            self.counts["events past the limit of hops"] += len(frame.numbers)
            self._alarm("hops", f"events of {frame.origin} took {frame.hops} hops", link)
            return
        got = self._number if is_mine else self._got.get(frame.origin, 0)
        if is_mine:
            self._send(link, EventsAck(kept={self.name: got}))
        elif frame.after > got:
            self.counts["gaps in events"] += 1
            self._send(link, EventsAck(kept={frame.origin: self._kept.get(frame.origin, 0)}))
        elif frame.upto <= got:
            self.counts["duplicates dropped"] += 1
            kept = self._kept.get(frame.origin, 0)
            self._send(link, EventsAck(kept={frame.origin: kept}))
            if kept < frame.upto:  # it came over another link, and isn't on disk yet
                link.owed[frame.origin] = frame.upto
        else:
            if len(self._origins) > self.settings.max_origins and not got:
                raise FrameError(f"events of {self.settings.max_origins:,} brokers are known")
            block = block_of(frame, self.space, got, link.name)
            self._origins.add(frame.origin)
            self._via[frame.origin] = over if is_second else link.name
            self._got[frame.origin] = frame.upto
            self._out.append(ports.Append(self.log.append(block), block))

    def _durable(self, now: float, input_: ports.Durable) -> None:
        taken: dict[str, dict[str, int]] = {}
        for position, block in self.log.between(self.log.durable, input_.upto):
            if block is None or position + len(block) > input_.upto:
                break
            self.log.durable = position + len(block)
            if block.origin == self.name:
                self._number = max(self._number, block.upto)
            else:
                self._kept[block.origin] = block.upto
                self._marks[block.origin] = block.mark
                self._got[block.origin] = max(self._got.get(block.origin, 0), block.upto)
                taken.setdefault(block.came_over, {})[block.origin] = block.upto
                for link in self.links.values():
                    if link.owed.get(block.origin, np.inf) <= block.upto:
                        del link.owed[block.origin]
                        taken.setdefault(link.name, {})[block.origin] = block.upto
            if self._delivers:
                matches = self._clients.matches(block.points_in(self.space))
                if len(matches):
                    self._out.append(ports.Deliver(position, block, matches))
        else:
            self.log.durable = max(self.log.durable, input_.upto)
        for name, kept in taken.items():
            if name in self.links:
                self._send(self.links[name], EventsAck(kept=kept))
        self._touched |= dict.fromkeys(self.links)

    def _taken(self, now: float, link: Link, frame: EventsAck) -> None:
        if link.confirm(frame.kept, self._origins):
            link.moved_at = now
            self._touched[link.name] = None

    def _restore(self, log: Iterable[Block], delivered: int) -> None:
        for block in log:
            position = self.log.append(block)
            if position < delivered:
                self.log.durable = self.log.end
            if block.origin == self.name:
                self._number, self._mark = max(self._number, block.upto), block.mark
                continue
            if position < delivered:
                self._kept[block.origin] = block.upto
                self._marks[block.origin] = block.mark
            self._got[block.origin] = block.upto
            self._via[block.origin] = block.came_over
            self._origins.add(block.origin)
