"""What breaks in a simulated network, drawn by its seed, and how all of it heals."""

from __future__ import annotations

from rangecast.overlay.world import World


def break_something(world: World) -> None:
    """Let something break, for a while."""
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
    elif world.knobs.crash:
        world.crash(f"b{rng.randrange(world.knobs.brokers)}")


def close_cycle(world: World) -> None:
    """Join two brokers that are joined already, if the seed says so."""
    if world.knobs.extra is not None and world.is_faulty:
        one, other = (f"b{end}" for end in world.knobs.extra)
        world.extra = world.new_edge(one, other)
        world.join(world.extra)


def move_link(world: World) -> None:
    """Take a link of the tree away, for good, and join the two parts by another one, later."""
    rng = world.rng
    edge = rng.choice([*world.edges.values()])
    world.remove(edge)
    ends = [rng.choice(world.behind(end, "")) for end in edge.ends]
    world.later(rng.uniform(0.5, 15), world.add, *ends)


def heal(world: World) -> None:
    """End all faults."""
    world.tell("faults end")
    world.is_faulty = False
    world.drop_extra()
    for name in world.brokers:
        world.start(name)
    for edge in world.edges.values():
        edge.deaf = edge.clogged = 0.0
        world.join(edge)
