"""Parameters that a seed of the simulator draws: tree, strategy, settings, and faults."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

from rangecast.merge.cells import Cells
from rangecast.model.attributes.base import Integer
from rangecast.model.attributes.text import String
from rangecast.model.space import Space
from rangecast.overlay.broker.settings import Settings
from rangecast.overlay.interest.strategies import STRATEGIES
from rangecast.overlay.networks.tree import Tree, neighbours, tree_of

SIDE = 16
"""Values of each attribute of the simulated space."""


class Parameters(NamedTuple):
    """Parameters of a simulation."""

    brokers: int
    tree: Tree
    strategy: str
    settings: Settings
    max_ranges: int
    strings: bool
    same_cells: bool
    cover_index: str
    delay: float
    """Maximum delay of a frame."""
    drop: float
    double: float
    late: float
    spoil: float
    crash: float
    """Probability of a crash per output."""
    extra: tuple[int, int] | None
    """A link that closes a cycle."""
    until: float
    """Time when faults end."""
    moves: bool = False
    """Whether a link of the tree is removed permanently, and another one joins the parts."""
    words: str | None = None
    """String attribute whose words have their own ranges."""
    restores: int = 0
    """Number of restores of a disk from an older copy."""
    clock_skew: float = 0.0
    """Largest error of the clock of a broker that starts."""
    twins: int = 0
    """Number of second brokers under the name of another."""
    flips: int = 0
    """Number of changes of a set without its version."""
    stops: int = 0
    """Number of times that a broker pauses, and neither reads nor writes."""
    hostile: int = 0
    """Number of links of a stranger that sends random frames."""


@cache
def plain_space() -> Space:
    """Return the space of most simulations."""
    return Space([Integer(name, min=0, max=SIDE - 1) for name in "xy"])


@cache
def cells_of(bits: int) -> Cells:
    """Return the cells of ranges, 2^bits per attribute."""
    return Cells.uniform(plain_space(), bits)


def space_of(strings: bool) -> Space:
    """Return a space; with strings, each broker has its own, with its own word numbers."""
    return Space([*plain_space(), String("word")]) if strings else plain_space()


def drawn(seed: int) -> Parameters:
    """Return the parameters of a seed."""
    rng = Random(seed)
    brokers = rng.choice([2, 3, 3, 4, 4, 5, 6, 7])
    tree = tree_of(rng.choice(["random", "random", "chain", "star", "balanced"]), brokers, seed)
    calm = rng.random() < 0.2
    near = neighbours(tree, brokers)
    apart = [
        (broker, other)
        for broker in range(brokers)
        for other in range(broker + 1, brokers)
        if other not in near[broker]
    ]
    parameters = Parameters(
        brokers,
        tree,
        rng.choice([*STRATEGIES, "covering", "subsumption"]),
        Settings(
            withdraw_delay=rng.choice([0.0, 0.0, 3.0, 10.0]),
            heartbeat_interval=2.0,
            retry_timeout=4.0,
            window=rng.choice([1, 2, 5, 100]),
            max_events=rng.choice([1, 3, 100]),
            max_items=rng.choice([1, 2, 4, 100]),
            max_advertised=rng.choice([3, 100, 100, 100]),
            max_hops=20,
        ),
        rng.choice([2, 4, 50]),
        rng.random() < 0.1,
        rng.random() < 0.85,
        rng.choice(["scan", "scan", "scan", "auto"]),
        rng.choice([0.5, 0.5, 3.0]),
        0.0 if calm else rng.choice([0.0, 0.02, 0.1, 0.3]),
        0.0 if calm else rng.choice([0.0, 0.05, 0.2]),
        0.0 if calm else rng.choice([0.0, 0.05, 0.3]),
        0.0 if calm else rng.choice([0.0, 0.0, 0.03]),
        0.0 if calm else rng.choice([0.0, 0.002, 0.01]),
        rng.choice(apart) if apart and rng.random() < 0.15 else None,
        rng.choice([40.0, 80.0]),
    )
    rare = rng.random()  # drawn last: other parameters of a seed stay as they are
    more: dict[str, Any] = {}
    if rare < 0.08:
        more["max_waiting"] = rng.choice([0, 2])
    elif rare < 0.16:
        more["max_held"] = rng.choice([0, 3])
    elif calm and parameters.extra is None and rare < 0.6:
        more["heartbeat_interval"] = None  # no frame is lost here: no link goes down either
    moves = parameters.extra is None and "heartbeat_interval" not in more and rng.random() < 0.25
    words = rng.choice([None, "word"])
    more["batch_delay"] = rng.choice([0.0, 0.0, 1.0, 6.0])
    parameters = parameters._replace(
        settings=replace(parameters.settings, **more), moves=moves, words=words
    )
    return _with_histories(parameters, rng, calm=calm)


def _with_histories(parameters: Parameters, rng: Random, *, calm: bool) -> Parameters:
    """Draw what happens to disks, names and clocks; and links that lose nothing but all at once."""
    if parameters.moves or parameters.settings.heartbeat_interval is None or calm:
        return parameters
    more: dict[str, Any] = {
        "silence_timeout": rng.choice([None, 15.0, 15.0]),
        "max_burst_bytes": rng.choice([None, None, 1, 300]),
        "max_received": 10_000,
        "max_received_bytes": 1 << 20,
    }
    if rng.random() < 0.4:
        more["is_reliable"] = True
        parameters = parameters._replace(drop=0.0, double=0.0, late=0.0, spoil=0.0)
    restores = rng.choice([0, 0, 1, 2])
    return parameters._replace(
        settings=replace(parameters.settings, **more),
        restores=restores,
        clock_skew=rng.choice([0.0, 0.0, 30.0, 300.0] if not restores else [0.0, 60.0, 300.0]),
        twins=rng.choice([0, 0, 0, 1, 2]),
        flips=rng.choice([0, 0, 0, 1, 2]),
        stops=rng.choice([0, 0, 1, 2]),
        hostile=rng.choice([0, 0, 1]),
    )
