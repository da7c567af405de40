"""A simulator that owns time, network, disks and failures of a network of brokers.

    outcome = simulate(4711)
    outcome.wrong                     # empty: no promise was broken

One seed gives the tree, the strategy and its settings, what clients do, and all faults. There are
two phases: first faults happen all the time, then everything heals, and within a bounded time all
must be quiet, known to everybody, and delivered. Only the second finds what never ends.

Frames are lost, doubled, late, cut off in one direction, clogged, torn; links go up and down;
brokers crash at any output and lose what wasn't on disk, the last unit half written. Disks are
restored from older copies, clocks go back, a second broker comes under a name, sets change without
their version, brokers stand still and don't read, strangers send frames of all kinds. Settings are
extreme on purpose: windows of one event, snapshots of one item per part, no delay of withdrawals,
budgets of two ranges.
"""

from __future__ import annotations

import traceback
from collections import Counter
from typing import NamedTuple

from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.simulation.clients import Clients
from rangecast.overlay.simulation.faults import (
    close_cycle,
    heal,
    inject_fault,
    move_link,
    schedule_faults,
)
from rangecast.overlay.simulation.invariants import pending_work, report_losses, wrong_tables
from rangecast.overlay.simulation.world import World

_ROUND = 5.0
_ROUNDS = 120
"""Number and length of the rounds within which the network must become quiescent after
faults end.
"""


class Outcome(NamedTuple):
    """The result of a simulation."""

    seed: int
    wrong: list[str]
    """Violations of guarantees."""
    counts: Counter[str]
    """Counts of occurrences, by kind."""
    trace: list[str]


def _run(world: World) -> Outcome:
    """Run both phases; return the outcome."""
    rng, until, clients = world.rng, world.parameters.until, Clients(world)

    def restarted(name: str) -> None:
        """Make clients publish before a restarted broker has received its neighbours' interest."""
        for delay in (0.0, 0.1, 1.0):
            world.later(delay, clients.publish, name)

    world.restarted = restarted
    for name in world.brokers:
        world.start(name)
    if rng.random() < 0.5:
        close_cycle(world)  # before brokers know what is behind their links
        if world.extra is not None:
            for name in world.brokers:
                world.later(rng.uniform(0.5, 2), clients.publish, name)
    else:
        world.later(rng.uniform(0, until), close_cycle, world)
    for edge in [*world.edges.values()]:
        world.join(edge)
    for _ in range(rng.choice([20, 40])):
        world.later(rng.uniform(0, until), clients.act)
    if world.parameters.drop or world.parameters.late:
        for _ in range(rng.choice([0, 2, 5, 10])):
            world.later(rng.uniform(0, until), inject_fault, world)
    schedule_faults(world, until)
    if world.parameters.moves:
        world.later(rng.uniform(0, until - 20), move_link, world)
    world.run(until)
    heal(world)
    _wait_until_quiescent(world)
    wrong = world.oracle.wrong
    if not wrong:
        # Publish once more: by now all that match must be delivered, and state is as it should be.
        for name in world.brokers:
            clients.publish(name)
        _wait_until_quiescent(world)
        wrong += wrong_tables(world)
    report_losses(world)
    wrong += world.oracle.lost()
    for broker in world.brokers.values():
        if broker is not None:
            world.counts.update(broker.counts)
    world.counts["deliveries"] += world.oracle.delivered
    return Outcome(world.seed, wrong, world.counts, world.trace)


def _wait_until_quiescent(world: World) -> None:
    """Wait until the network is quiescent, within a bounded time."""
    for _ in range(_ROUNDS):
        world.run(world.now + _ROUND)
        if not pending_work(world):
            return
    world.oracle.wrong.append(f"L1: after {_ROUNDS * _ROUND:g} still {pending_work(world)}")


def simulate(seed: int, broker: type[Broker] = Broker, *, trace: bool = False) -> Outcome:
    """Run one seed; `broker` may be a faulty class, to test that faults are found."""
    world = World(seed, broker, trace=trace)
    try:
        return _run(world)
    except Exception as error:  # a broker must not fail, whatever happens
        where = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{type(error).__name__} in {where.name}, line {where.lineno}: {error}"
        return Outcome(seed, [wrong], world.counts, world.trace)
