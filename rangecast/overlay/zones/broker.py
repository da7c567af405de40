"""A broker of zones: a state machine without I/O, clock or randomness.

    outputs = broker.handle(input)        both as `frames.py` has them

It holds zones (one, or several for a while after a take-over), the interests in them, and what the
brokers of adjacent zones last announced. Whatever carries it (a simulator, sockets) delivers frames
between two brokers in order, and says when a broker has failed.

How zones change hands is in `territory.py`; where messages go is in `geometry.py`.

*Interests* are soft state: the server knows them all. A zone that was claimed asks the server for
its interests, and answers for no message until it has them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rangecast.overlay.zones import geometry
from rangecast.overlay.zones.frames import (
    Adopt,
    Announce,
    Deliver,
    DeliveryAck,
    Frame,
    FromServer,
    GatewayInterest,
    Handover,
    HandoverAck,
    Install,
    InterestsReply,
    InterestsRequest,
    Join,
    JoinThrough,
    Leave,
    LeftNetwork,
    NumberedMessage,
    Paint,
    PeerDown,
    Probe,
    Route,
    Spread,
    Start,
    Tick,
    ToServer,
    YieldedClaims,
    ZoneClaim,
    ZonesLost,
)
from rangecast.overlay.zones.geometry import Box, Point, left_of
from rangecast.overlay.zones.territory import PATIENCE, Territory

HOPS = 4_096
"""Hops after which a frame is dropped; its sender retries."""


class ZoneBroker(Territory):
    """One broker. `frame` bounds where interests lie; `by_load` halves interests, not zones."""

    def handle(self, value: Any) -> list[Any]:
        """Handle an input and return outputs, in order."""
        self._out = []
        match value:
            case Frame(sender, what):
                self._receive(sender, what)
            case FromServer(what):
                self._send_for_server(what)
            case ToServer(what):
                self._to_server(what)
            case Tick():
                self._tick()
            case PeerDown(broker):
                self._broker_failed(broker)
            case JoinThrough(broker, point):
                self._send(broker, Route(point, point, Join(self.id)))
            case Leave():
                self._is_leaving = True
                self._hand_over_all()
            case Start():
                self.zones = [ZoneClaim(self._everything, is_ready=False)]
        return self._out

    # ---- routing

    def _receive(self, sender: int, what: Any) -> None:
        match what:
            case Route():
                self._route(what)
            case Spread():
                zone = self._zone_at(what.at)
                if zone is not None and what.hops < HOPS:
                    self._spread(zone, what)
            case Announce():
                self._merge_announcement(what)
            case Join():
                self._give(what)
            case Handover():
                self._accept(sender, what)
            case HandoverAck(zones):
                self._handed_over(sender, zones)
            case YieldedClaims(boxes):
                self._request_interests_again(boxes)

    def _adjacent_zones(self, box: Box) -> dict[Box, int]:
        """Return the zones adjacent to a box, and their brokers."""
        owners = {zone.box: self.id for zone in self.zones if zone.box.touches(box)}
        for owner, announced in self.around.items():
            owners |= {zone.box: owner for zone in announced.zones if zone.box.touches(box)}
        return owners

    def _route(self, route: Route) -> None:
        zone = self._zone_at(route.at)
        if zone is None and self.zones:
            zone = min(
                self.zones,
                key=lambda zone_: (
                    geometry.distance(zone_.box, route.target, self.frame),
                    zone_.box,
                ),
            )
        if zone is None or route.hops > HOPS:
            return
        box = zone.box
        while not box.holds(route.target):
            beside = self._adjacent_zones(box)
            following = geometry.next_zone(box, route.target, beside, self.frame)
            if following is None:
                if isinstance(route.what, Adopt):
                    self._adopt(route.what)
                return
            if beside[following] != self.id:
                at = following.nearest(route.target)
                self._send(beside[following], replace(route, at=at, hops=route.hops + 1))
                return
            box = following
        self._arrive(route)

    def _arrive(self, route: Route) -> None:
        match route.what:
            case Join():
                self._give(route.what)
            case ToServer():
                self._out.append(route.what)
            case NumberedMessage():
                zone = self._zone_at(route.target)
                assert zone is not None
                self._spread(zone, Spread(route.target, route.target, route.what, route.hops))
            case InterestsReply():
                self._fill(route.what)

    def _to_server(self, what: Any, target: Point | None = None) -> None:
        if self.zones:
            target = target or self.centre
            self._route(Route(target, self.zones[0].box.nearest(target), ToServer(what)))

    def _send_for_server(self, what: NumberedMessage | InterestsReply | Adopt) -> None:
        if not self.zones:
            return
        zone = self._zone_at(self.centre) or self.zones[0]
        if isinstance(what, NumberedMessage):
            what = replace(what, server=zone.box.nearest(self.centre))
        target = geometry.entry_of(zone.box, what.box)
        self._route(Route(target, zone.box.nearest(target), what))

    def _spread(self, zone: ZoneClaim, spread: Spread) -> None:
        """Receive a message for a zone, and forward it to the zone's children."""
        rectangle = spread.what.box
        self._take(zone, spread.what)
        for box, owner in self._adjacent_zones(zone.box).items():
            if not box.meets(rectangle):
                continue
            parent = geometry.parent_point(box, rectangle, spread.entry)
            if parent is None or not zone.box.holds(parent):
                continue
            child = self._zone_at(box.lo) if owner == self.id else None
            if child is not None:
                self._spread(child, spread)
            elif owner != self.id:
                at = box.common(rectangle).lo
                self._send(owner, replace(spread, at=at, hops=spread.hops + 1))

    # ---- interests

    def _take(self, zone: ZoneClaim, message: NumberedMessage) -> None:
        """Deliver a message to the interests of a zone, and acknowledge it to the server."""
        self._acknowledge(message.acknowledged)
        zone = self._zone_at(zone.box.lo) or zone
        part = zone.box.common(message.box)
        number, what = message.number, message.what
        if isinstance(what, Probe):
            self._to_server(DeliveryAck(number, part, self.id), message.server)
            return
        if not zone.is_ready:
            return
        if isinstance(what, Paint):
            for interest, kept in self.interests.items():
                if kept.last < number and part.holds(kept.point):
                    self.interests[interest] = replace(kept, last=number)
                    self._out.append(Deliver(interest, number, what))
        else:
            self._change(zone, number, what)
        self._to_server(DeliveryAck(number, part, self.id), message.server)

    def _change(self, zone: ZoneClaim, number: int, what: Any) -> None:
        """Install or remove an interest; a late copy of a message has no effect."""
        interest = what.interest
        kept = self.interests.get(interest)
        if not isinstance(what, Install):
            if number >= zone.known:
                self._gone[interest] = max(number, self._gone.get(interest, 0))
                if kept is not None and kept.number < number:
                    del self.interests[interest]
            return
        if kept is None:
            if number < zone.known or self._gone.get(interest, -1) > number:
                return
            self.interests[interest] = GatewayInterest(what.point, number, number)
        self._out.append(Deliver(interest, number, what))

    def _acknowledge(self, acknowledged: int) -> None:
        if acknowledged > self._acknowledged:
            self._acknowledged = acknowledged
            self.zones = [replace(zone, known=max(zone.known, acknowledged)) for zone in self.zones]
            self._gone = {name: at for name, at in self._gone.items() if at >= acknowledged}

    def _fill(self, filled: InterestsReply) -> None:
        for index, zone in enumerate(self.zones):
            if zone.is_ready or not zone.box.within(filled.box):
                continue
            known = max(zone.known, filled.number)
            self.zones[index] = replace(zone, is_ready=True, known=known)
            self.interests = {
                interest: kept
                for interest, kept in self.interests.items()
                if not zone.box.holds(kept.point)
            }
            for interest, point in filled.interests:
                if zone.box.holds(point):
                    self.interests[interest] = GatewayInterest(point, filled.number - 1, -1)

    # ---- time

    def _tick(self) -> None:
        """Request missing messages again, take over for failed brokers, and send heartbeats."""
        for broker in self._vacant:
            self._waited[broker] = self._waited.get(broker, 0) + 1
        self._claim()
        for zone in self.zones:
            if not zone.is_ready:
                self._to_server(InterestsRequest(zone.box))
        before = len(self.zones)
        self._join()
        if len(self.zones) != before:
            self._version += 1
        if self._is_leaving:
            self._hand_over_all()
        lost = self.zones and not self.around and left_of(self._everything, self._own_zones())
        self._alone = self._alone + 1 if lost else 0
        if self._alone > PATIENCE:
            self.zones = []  # all neighbours were lost, and no broker knows this one: start again
            self._out.append(LeftNetwork() if self._is_leaving else ZonesLost())
        mine = self._announcement()
        for owner in sorted(self.around):
            self._send(owner, mine)
