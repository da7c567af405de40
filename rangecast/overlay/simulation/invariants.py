"""Whether a simulated network is quiescent, and whether its state is then correct."""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.model.validation.inputs import as_filter
from rangecast.overlay.interest.items import wanted_of
from rangecast.overlay.simulation.parameters import SIDE
from rangecast.overlay.simulation.world import World
from rangecast.overlay.wire.frames import BoxItem
from rangecast.overlay.wire.packing import unpack


def pending_work(world: World) -> str:
    """Return what isn't quiescent yet."""
    for id_, at in world.oracle.live():
        if not world.oracle.is_propagated(id_):
            return f"subscription {id_} of {at} hasn't propagated"
    for edge in world.edges.values():
        for end in edge.ends:
            other = edge.other(end)
            here, there = world.brokers[end], world.brokers[other]
            assert here is not None
            assert there is not None
            link, received = here.links[other], there.links[end].received
            has_more = link.ready or link.scanned < here.log.durable
            if link.new or link.leaving or link.flights or has_more:
                return f"{end} has something to say to {other}"
            if (here.incarnation, link.advertised.version, link.advertised.digest) != (
                received.incarnation,
                received.version,
                received.digest,
            ):
                return f"{other} doesn't know what {end} wants"
    return ""


def report_losses(world: World) -> None:
    """Report to the oracle the losses that brokers report with the next event."""
    for name, broker in world.brokers.items():
        for link in () if broker is None else broker.links.values():
            is_neighbour = link.name in world.disks
            if is_neighbour and (link.has_lost or any(item.lost for item in link.ready)):
                for behind in world.behind(link.name, name):
                    world.oracle.report_loss(behind)


def wrong_tables(world: World) -> list[str]:
    """Return missing and superfluous entries of routing tables in a quiescent network.

    Every event that matches behind a link must pass. Without a strategy, tables contain exactly
    that; with boxes, only live subscriptions.
    """
    wrong = []
    for edge in world.edges.values():
        for end in edge.ends:
            broker = world.brokers[end]
            assert broker is not None
            link = broker.links[edge.other(end)]
            behind = world.behind(edge.other(end), end)
            items = [
                wanted_of(as_filter(subscription, broker.space)).item
                for name in behind
                for subscription in world.disks[name].subscriptions.values()
            ]
            live = {item.name for item in items}
            where = f"{end}'s table of {link.name}"
            boxes = {
                name for name, item in link.received.items.items() if isinstance(item, BoxItem)
            }
            is_plain = (
                world.parameters.same_cells and world.parameters.settings.max_advertised == 100
            )
            if is_plain and not world.parameters.strings:
                if boxes - live:
                    wrong.append(
                        f"S4: {where} holds {len(boxes - live)} items that no client wants"
                    )
                if world.parameters.strategy == "none" and live - link.received.items.keys():
                    wrong.append(f"S4: {where} lacks items")
            for x in range(SIDE):
                points = np.array([[x, y] for y in range(SIDE)], np.float64)
                if world.parameters.strings:
                    break
                wanted = np.zeros(SIDE, np.bool_)
                for item in items:
                    wanted |= _held(item, points)
                if (wanted & ~link.table.holds(points)).any():
                    wrong.append(f"S4: {where} doesn't match wanted events at x = {x}")
    return wrong


def _held(item: Any, points: Any) -> Any:
    held = np.zeros(len(points), np.bool_)
    for box in unpack(item.boxes):
        inside = np.ones(len(points), np.bool_)
        for axis, lo, hi in box:
            inside &= (points[:, axis] >= lo) & (points[:, axis] <= hi)
        held |= inside
    return held
