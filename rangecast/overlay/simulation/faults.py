"""Faults of a simulated network, drawn by its seed, and their repair."""

from __future__ import annotations

from rangecast.overlay.simulation.strangers import bring_stranger, bring_twin, disconnect_strangers
from rangecast.overlay.simulation.world import World

_TRUST_AFTER = 30.0
"""Time after the last fault by which differing sets must be detected."""


def inject_fault(world: World) -> None:
    """Inject a random fault, such as a cut link, and schedule its repair."""
    rng = world.rng
    if not world.edges:
        return  # two brokers, and their link was taken away
    edge = rng.choice([*world.edges.values()])
    kind = rng.random()
    if kind < 0.4 and edge.is_up:
        world.cut(edge)
        world.later(rng.uniform(0.5, 15), world.join, edge)
    elif kind < 0.6:
        edge.deaf = world.now + rng.uniform(1, 10)
    elif kind < 0.8:
        edge.clogged = world.now + rng.uniform(1, 8)
    elif world.parameters.crash:
        world.crash(f"b{rng.randrange(world.parameters.brokers)}")


def close_cycle(world: World) -> None:
    """Connect two random brokers that are already connected."""
    if world.parameters.extra is not None and world.is_faulty:
        first, other = (f"b{end}" for end in world.parameters.extra)
        world.extra = world.new_edge(first, other)
        world.join(world.extra)


def move_link(world: World) -> None:
    """Remove a link of the tree permanently, and join the two parts by another one later."""
    rng = world.rng
    edge = rng.choice([*world.edges.values()])
    world.remove(edge)
    ends = [rng.choice(world.behind(end, "")) for end in edge.ends]
    world.later(rng.uniform(0.5, 15), world.add, *ends)


def schedule_faults(world: World, until: float) -> None:
    """Schedule random faults: restored disks, duplicate names, corrupted sets, hostile peers."""
    rng, parameters = world.rng, world.parameters
    names = [*world.brokers]
    for count, act, begin in (
        (parameters.restores, _restore_one, 0.2),
        (parameters.twins, bring_twin, 0.2),
        (parameters.flips, flip_item, 0.85),  # before the end, or something else finds it
        (parameters.hostile, bring_stranger, 0.2),
    ):
        for _ in range(count):
            world.later(rng.uniform(begin, 0.95) * until, act, world)
    for _ in range(parameters.stops):
        begin = rng.uniform(0.1, 0.6) * until
        world.later(begin, world.stop, rng.choice(names), rng.uniform(5, 40))


def _restore_one(world: World) -> None:
    """Back up a disk now; restore it later."""
    name = world.rng.choice([*world.brokers])
    world.disks[name].keep_copy()
    world.later(world.rng.uniform(1, 15), world.restore, name)


def flip_item(world: World) -> None:
    """Make a broker forget an item of its neighbour, as a memory fault would."""
    rng = world.rng
    known = [
        (broker, link)
        for broker in world.brokers.values()
        if broker is not None
        for link in broker.links.values()
        if link.is_known and link.received.items and link.name in world.brokers
    ]
    if not known or not world.is_faulty:
        return
    broker, link = rng.choice(known)
    name = rng.choice(sorted(link.received.items))
    world.trace_line(f"{broker.name} forgets an item of {link.name}")
    world.counts["items forgotten"] += 1
    world.oracle.doubt(world.behind(link.name, broker.name))
    version = link.received.version
    link.received.change([], [name])
    link.received.version = version
    broker._enter(world.now, link, [], [name])


def heal(world: World) -> None:
    """End all faults."""
    world.trace_line("faults end")
    world.is_faulty = False
    world.drop_extra()
    disconnect_strangers(world)
    for name in world.brokers:
        world.resume(name)
    for name in world.brokers:
        world.start(name)
    if world.counts["items forgotten"]:
        world.later(_TRUST_AFTER, world.trust)
    for edge in world.edges.values():
        edge.deaf = edge.clogged = 0.0
        world.join(edge)
