"""Zones of a broker, and its knowledge of those around it.

*Zones change hands* in two ways. A hand-over, for a join or a leave: the giver freezes the zones
until the receiver has answered `HandoverAck`. A claim: when a broker fails, the live neighbour that
it would have chosen itself takes its zones; if that doesn't happen, the next one does. Each change
raises the epoch of a zone, a hand-over more than a claim. Where two brokers claim one place, the
higher epoch is right, then the lower number of the broker; the other gives the place up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from rangecast.model.sets.members import Id
from rangecast.model.validation.flags import flag
from rangecast.overlay.zones import geometry
from rangecast.overlay.zones.frames import (
    Adopt,
    Announce,
    GatewayInterest,
    Handover,
    HandoverAck,
    Join,
    LeftNetwork,
    Send,
    YieldedClaims,
    ZoneClaim,
    ZonesLost,
)
from rangecast.overlay.zones.geometry import Box, Point, left_of

_PASSES = 8
"""Number of times that a join is passed on to a neighbour with more interests."""
PATIENCE = 3
"""Ticks after which the next candidate for a take-over steps in, or a broker gives up its zones
because it knows no neighbour."""


class Territory:
    """The zones of a broker, their interests, and its neighbours."""

    def __init__(self, broker: int, frame: Box, *, by_load: bool = False):
        self.id, self.frame, self.by_load = broker, frame, flag("by_load", by_load)
        self.centre: Point = tuple(a / 2 + b / 2 for a, b in zip(*frame, strict=True))
        """The server is at the broker whose zone holds it."""
        self._everything = Box.everything(len(frame.lo))
        self.zones: list[ZoneClaim] = []
        self.interests: dict[Id, GatewayInterest] = {}
        self.around: dict[int, Announce] = {}
        """The last announcement of each broker of adjacent zones."""
        self.dead: set[int] = set()
        self._giving: dict[int, Handover] = {}
        self._vacant: dict[int, Announce] = {}
        self._waited: dict[int, int] = {}
        self._gone: dict[Id, int] = {}
        self._acknowledged = 0
        self._version = 0
        self._is_leaving = False
        self._alone = 0
        """Ticks without a neighbour, and without all zones."""
        self._out: list[Any] = []

    def load(self) -> int:
        """Return the number of interests that the broker has."""
        return len(self.interests)

    def _send(self, to: int, what: Any) -> None:
        self._out.append(Send(to, what))

    def _zone_at(self, point: Point) -> ZoneClaim | None:
        return next((zone for zone in self.zones if zone.box.holds(point)), None)

    def _drop_outside(self) -> None:
        boxes = [zone.box for zone in self.zones]
        self.interests = {
            interest: kept
            for interest, kept in self.interests.items()
            if any(box.holds(kept.point) for box in boxes)
        }

    # ---- zones that change hands

    def _give(self, join: Join) -> None:
        """Assign a zone to a joining broker: one of several, or a half of the only one."""
        to = join.broker
        if to == self.id or to in self._giving or to in self.dead:
            return
        if self._is_leaving:
            self._hand_over_all(to)
            return
        if self.by_load and join.passed < _PASSES:
            loads = {
                owner: announced.load for owner, announced in self.around.items() if announced.zones
            }
            heaviest = max(loads, key=lambda owner: (loads[owner], -owner), default=self.id)
            if loads.get(heaviest, 0) > self.load():
                self._send(heaviest, Join(to, join.passed + 1))
                return
        if len(self.zones) > 1:
            self._hand(to, [self.zones[-1]])
            return
        if not self.zones or not self.zones[0].is_ready:
            return
        (zone,) = self.zones
        cut = None
        if self.by_load:
            points = np.array([kept.point for kept in self.interests.values()])
            points = points.reshape(-1, len(self.frame.lo))
            cut = geometry.median_cut(zone.box, self.frame, points)
        cut = cut or geometry.middle_cut(zone.box, self.frame)
        if cut is not None:
            mine, other = zone.box.cut(*cut)
            self.zones = [replace(zone, box=mine), replace(zone, box=other)]
            self._hand(to, [self.zones[1]])

    def _hand_over_all(self, joining: int | None = None) -> None:
        """Hand all zones to the neighbour that can join them to its own, or has least to do.

        One that leaves as well is the last choice, and takes them from lower numbers alone: two
        would exchange theirs endlessly. Without neighbours, hand them to a broker that is joining.
        """
        if not self.zones or self._giving:
            return
        boxes = [zone.box for zone in self.zones]
        near = {
            owner: announced
            for owner, announced in self.around.items()
            if any(box.touches(zone.box) for box in boxes for zone in announced.zones)
        }
        ranked = [
            (announced.is_leaving, *self._rank(owner, announced.zones, boxes))
            for owner, announced in near.items()
            if not announced.is_leaving or owner > self.id
        ]
        to = min(ranked)[-1] if ranked else None if near else joining
        if to is not None:
            self._hand(to, list(self.zones))

    def _rank(
        self, owner: int, zones: Iterable[ZoneClaim], boxes: list[Box]
    ) -> tuple[bool, float, int]:
        """Return how fit a neighbour is for zones: fits into a box, holds little; the lowest is."""
        fits = any(zone.box.joined(box) for zone in zones for box in boxes)
        size = 0.0
        for zone in zones:
            share = 1.0
            for a, b, c, d in zip(*zone.box, *self.frame, strict=True):
                share *= max(0.0, min(b, d) - max(a, c)) / (d - c) if d > c else 1.0
            size += share
        return not fits, size, owner

    def _hand(self, to: int, zones: list[ZoneClaim]) -> None:
        boxes = [zone.box for zone in zones]
        moving = {
            interest: kept
            for interest, kept in self.interests.items()
            if any(box.holds(kept.point) for box in boxes)
        }
        self.zones = [zone for zone in self.zones if zone not in zones]
        self._drop_outside()
        handed = tuple(replace(zone, epoch=zone.epoch + 2) for zone in zones)
        handover = Handover(
            handed,
            tuple(moving.items()),
            tuple(self._gone.items()),
            (self._announcement(), *self.around.values()),
        )
        self._giving[to] = handover
        self._send(to, handover)

    def _accept(self, sender: int, handover: Handover) -> None:
        self.zones += handover.zones
        self.interests |= dict(handover.interests)
        for interest, number in handover.gone:
            self._gone[interest] = max(number, self._gone.get(interest, 0))
        for announced in handover.around:
            self._merge_announcement(announced)
        self._changed([sender])  # one that leaves may be about to get zones: then it is beside us
        self._send(sender, HandoverAck(handover.zones))

    def _handed_over(self, to: int, zones: tuple[ZoneClaim, ...]) -> None:
        handover = self._giving.get(to)
        if handover is not None and handover.zones == zones:
            del self._giving[to]
            self._changed()
        if self._is_leaving and not self.zones and not self._giving:
            self._out.append(LeftNetwork())

    # ---- failures

    def _broker_failed(self, broker: int) -> None:
        """Record that a broker has failed, and take over its zones if this broker should."""
        self.dead.add(broker)
        announced = self.around.pop(broker, None)
        handover = self._giving.pop(broker, None)
        if handover is not None:  # perhaps it had them already, and interests came: ask the server
            for zone in handover.zones:
                again = replace(zone, epoch=zone.epoch + 1, is_ready=False)
                self.zones.append(again)
            self._changed()
        if announced is not None and announced.zones:
            self._vacant[broker] = announced
        self._claim()

    def _own_zones(self) -> list[Box]:
        """Return this broker's zones, with those that are being handed over."""
        handed = [zone.box for handover in self._giving.values() for zone in handover.zones]
        return [zone.box for zone in self.zones] + handed

    def _known_boxes(self) -> list[Box]:
        return self._own_zones() + [
            zone.box for announced in self.around.values() for zone in announced.zones
        ]

    def _claim(self) -> None:
        """Take over vacant zones if this broker is the first candidate, or others timed out."""
        for broker, announced in list(self._vacant.items()):
            boxes = self._known_boxes()
            vacant = [
                replace(zone, box=box, epoch=zone.epoch + 1, is_ready=False)
                for zone in announced.zones
                for box in left_of(zone.box, boxes)
            ]
            if not vacant:
                del self._vacant[broker]
                continue
            there = [claimed.box for claimed in announced.zones]
            ranked = sorted(
                self._rank(owner, zones, there)
                for owner, zones in announced.around
                if owner not in self.dead
            )
            first = 1 + self._waited.get(broker, 0) // PATIENCE
            if ranked and self.id not in [owner for *_, owner in ranked[:first]]:
                continue
            del self._vacant[broker]
            if self._is_leaving and not self.zones:
                continue
            self.zones += vacant
            for other, zones in announced.around:
                if other in self.dead and other not in self._vacant:
                    self._vacant[other] = Announce(other, 0, zones, 0, ())
            self._changed([owner for owner, _ in announced.around])

    def _adopt(self, adopt: Adopt) -> None:
        """Take over the free part of a box that doesn't answer the server."""
        if self._is_leaving:
            return
        mine = [zone.box for zone in self.zones]
        free = [
            box
            for box in left_of(adopt.box, self._known_boxes())
            if any(box.touches(held) for held in mine)
        ]
        if free:
            announced = [zone.epoch for other in self.around.values() for zone in other.zones]
            epoch = 1 + max([zone.epoch for zone in self.zones] + announced)
            self.zones += [ZoneClaim(box, epoch, is_ready=False) for box in free]
            self._changed(adopt.around)

    # ---- what brokers know of one another

    def _announcement(self) -> Announce:
        """Return our zones, at the epoch that they have here, and the neighbours."""
        handed = tuple(
            replace(zone, epoch=zone.epoch - 2)
            for handover in self._giving.values()
            for zone in handover.zones
        )
        near = tuple((owner, announced.zones) for owner, announced in sorted(self.around.items()))
        zones = (*self.zones, *handed)
        return Announce(self.id, self._version, zones, self.load(), near, self._is_leaving)

    def _changed(self, others: Iterable[int] = ()) -> None:
        """Join zones, forget former neighbours, and announce all that."""
        self._join()
        self._drop_outside()
        self._version += 1
        before = set(self.around)
        boxes = self._own_zones()
        self.around = {
            owner: announced
            for owner, announced in self.around.items()
            if any(box.touches(zone.box) for box in boxes for zone in announced.zones)
        }
        mine = self._announcement()
        for owner in sorted({*before, *others} - self.dead - {self.id}):
            self._send(owner, mine)
        if not self.zones and not self._giving and not self._is_leaving:
            self._out.append(ZonesLost())

    def _join(self) -> None:
        """Make one zone of those that together are a box, once they know the same."""
        joined: list[ZoneClaim] = []
        for zone in sorted(self.zones, key=lambda zone_: zone_.box):
            index = 0
            while index < len(joined):
                other = joined[index]
                union = zone.box.joined(other.box)
                alike = (zone.is_ready, zone.known) == (other.is_ready, other.known)
                if union is None or not zone.is_ready or not alike:
                    index += 1
                    continue
                del joined[index]
                zone, index = replace(zone, box=union, epoch=max(zone.epoch, other.epoch)), 0
            joined.append(zone)
        self.zones = joined

    def _merge_announcement(self, announced: Announce) -> None:
        """Merge a broker's announcement; where two claim one place, the better claim wins."""
        owner = announced.owner
        old = self.around.get(owner)
        if owner == self.id or owner in self.dead or (old and old.version > announced.version):
            return
        lost = [
            other.box
            for other in announced.zones
            for mine in self.zones
            if mine.box.meets(other.box) and (other.epoch, -owner) > (mine.epoch, -self.id)
        ]
        won = any(
            mine.box.meets(other.box) and (other.epoch, -owner) < (mine.epoch, -self.id)
            for other in announced.zones
            for mine in self.zones
        )
        for known, entry in list(self.around.items()):
            if known != owner:
                announced = self._resolve_claims(known, entry, announced)
        self.around[owner] = announced
        if lost:
            served = [
                zone.box.common(box)
                for zone in self.zones
                for box in lost
                if zone.is_ready and zone.box.meets(box)
            ]
            if served:
                self._send(owner, YieldedClaims(tuple(served)))
            self.zones = list(_trimmed(self.zones, lost))
            self._changed()
            return
        near = any(
            box.touches(announced_zone.box)
            for box in self._own_zones()
            for announced_zone in announced.zones
        )
        if not near and not won:
            del self.around[owner]
        if won or (near and old is None):
            self._send(owner, self._announcement())
        self._meet(announced)
        self._claim()

    def _request_interests_again(self, boxes: tuple[Box, ...]) -> None:
        """Ask the server again for the interests of zones that another broker answered for too."""
        self.zones = [
            replace(zone, is_ready=zone.is_ready and not any(zone.box.meets(box) for box in boxes))
            for zone in self.zones
        ]

    def _meet(self, announced: Announce) -> None:
        """Announce this broker to neighbours of a neighbour that adjoin its zones."""
        mine = self._own_zones()
        for other, zones in announced.around:
            if other in self.around or other in self.dead or other == self.id:
                continue
            if any(box.touches(zone.box) or box.meets(zone.box) for box in mine for zone in zones):
                self._send(other, self._announcement())

    def _resolve_claims(self, known: int, entry: Announce, announced: Announce) -> Announce:
        """Trim what two other brokers claim both; send the loser of a new claim the better one."""
        lost: list[Box] = []
        won: list[Box] = []
        for zone in announced.zones:
            for other in entry.zones:
                if zone.box.meets(other.box):
                    is_better = (zone.epoch, -announced.owner) > (other.epoch, -known)
                    (won if is_better else lost).append((zone if is_better else other).box)
        if won:
            self.around[known] = replace(entry, zones=_trimmed(entry.zones, won))
        if lost:
            self._send(announced.owner, entry)
            announced = replace(announced, zones=_trimmed(announced.zones, lost))
        return announced


def _trimmed(zones: Iterable[ZoneClaim], by: list[Box]) -> tuple[ZoneClaim, ...]:
    return tuple(replace(zone, box=box) for zone in zones for box in left_of(zone.box, by))
