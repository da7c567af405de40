"""Illegitimate brokers: a second one under a name, and one that sends random frames."""

from __future__ import annotations

from random import Random

import msgspec

from rangecast.overlay.broker import ports
from rangecast.overlay.broker.state import Identity
from rangecast.overlay.interest.items import EVERYTHING, range_item
from rangecast.overlay.simulation.world import World
from rangecast.overlay.wire.frames import (
    Events,
    EventsAck,
    Frame,
    Heartbeat,
    Hello,
    Interest,
    Item,
    PropagationQuery,
    PropagationReply,
    Reject,
    Resync,
    Snapshot,
    encode,
)

EVIL = "evil"


def bring_twin(world: World) -> None:
    """Connect a broker under the name of another, with its own log; it subscribes to all events."""
    rng = world.rng
    edges = [item for item in world.edges.values() if not item.guest and item is not world.extra]
    if not edges or not world.is_faulty:
        return
    edge = rng.choice(edges)
    name = rng.choice(edge.ends)
    other = world.brokers[edge.other(name)]
    if other is None or name in world.guests or not world.known_logs[other.name, name]:
        return  # the first one has the name
    twin = world.new_broker(
        name, world.disks[name].incarnation + 1000, Identity(f"twin-{world.now}", ("twin",))
    )
    twin.handle(world.now, ports.Subscribe({0: "x >= 0"}))
    (greeting,) = [
        item.frame
        for item in twin.handle(world.now, ports.LinkUp(other.name))
        if isinstance(item, ports.Send)
    ]
    assert isinstance(greeting, Hello)
    world.trace_line(f"another {name} connects to {other.name}")
    world.counts["names taken twice"] += 1
    if edge.is_up and other.conflict(greeting):
        return
    if edge.is_up:
        world.cut(edge)
    world.guests[name], edge.guest, edge.is_up = twin, name, True
    edge.session += 1
    world.give(other.name, ports.LinkUp(name))
    if edge.guest:
        world.give(other.name, ports.Received(name, encode(greeting)))
    world.later(rng.uniform(5, 20), world.disconnect_impostor, edge)


def bring_stranger(world: World) -> None:
    """Link a stranger to a broker, which sends random frames for a while."""
    rng = world.rng
    name = rng.choice([*world.brokers])
    broker = world.brokers[name]
    if broker is None or not world.is_faulty:
        return
    world.counts["strangers"] += 1
    world.give(name, ports.LinkUp(EVIL))
    space = broker._space_digest
    for at in range(30):
        frame = hostile_frame(rng, space, [*world.brokers])
        data = encode(frame)
        if rng.random() < 0.2:
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        elif rng.random() < 0.1:
            data = data[: rng.randrange(len(data))]
        world.later(0.2 * at, world.give, name, ports.Received(EVIL, data))
        world.later(0.2 * at, _verify_bounded, world, name)
    world.later(8.0, world.give, name, ports.LinkDown(EVIL, forget=True))


def _verify_bounded(world: World, name: str) -> None:
    """Verify that the state held for a stranger is bounded."""
    broker = world.brokers[name]
    link = None if broker is None else broker.links.get(EVIL)
    if link is None:
        return
    staged = [*link.received._parts]
    if any(part >= 3 for part in staged):
        world.oracle.wrong.append(f"B2: {name} holds parts {staged} of a snapshot of 3")


def disconnect_strangers(world: World) -> None:
    """Disconnect illegitimate brokers."""
    for edge in [*world.edges.values()]:
        world.disconnect_impostor(edge)
    for name in world.brokers:
        world.give(name, ports.LinkDown(EVIL, forget=True))


def hostile_frame(rng: Random, space: str, names: list[str]) -> Frame:
    """Return a decodable frame with random content, but without events of other origins."""
    large = rng.choice([0, 1, 2, 7, 1 << 40, (1 << 63) - 1])
    small = rng.randrange(4)
    wrong = msgspec.structs.replace(EVERYTHING, name=5)
    choices: list[Item] = [EVERYTHING, range_item(0, 3), wrong]
    items = rng.sample(choices, rng.randrange(2))
    digest = rng.choice([0, sum(item.name for item in items) & ((1 << 63) - 1)])
    kinds: list[Frame] = [
        Hello(
            broker=EVIL,
            incarnation=1 + small,
            space=rng.choice([space, space, space, "x"]),
            version=small,
            digest=digest,
            kept={rng.choice(names): large, EVIL: small},
            reach=[EVIL],
            mark=b"?",
        ),
        Hello(broker=EVIL, incarnation=9, space=space, reach=[EVIL]),
        Interest(
            incarnation=9, before=small, version=large, digest=digest, added=items, removed=[large]
        ),
        Snapshot(
            incarnation=9,
            version=rng.choice([1, 5]),
            digest=digest,
            part=rng.randrange(9),
            parts=3,
            items=items,
        ),
        Resync(version=large, why="gap"),
        Events(
            origin=EVIL,
            after=small,
            upto=small + 1,
            numbers=[rng.choice([small + 1, large])],
            ids=[1],
            points=bytes(rng.choice([16, 24, 7])),
            hops=large,
        ),
        EventsAck(kept=dict.fromkeys(names, large)),
        PropagationQuery(token=f"t{small}", incarnation=large, version=large),
        PropagationReply(token=f"t{small}"),
        Reject(kind=rng.choice(["cycle", "odd"]), why="no"),
        Heartbeat(incarnation=large, version=large, digest=digest, kept={EVIL: large}),
    ]
    return rng.choice(kinds)
