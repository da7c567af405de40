"""Trees of brokers, numbered from 0, as lists of links (one end, other end)."""

from __future__ import annotations

from random import Random

from rangecast.errors import UsageError, choices_hint

Tree = list[tuple[int, int]]

ELEVEN: Tree = [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (2, 6), (2, 7), (3, 8), (3, 9), (9, 10)]
"""A tree of 11 brokers, as in Figure 1 of paper 004; its exact links are unknown."""
SHAPES = ("random", "chain", "star", "balanced")


def tree_of(shape: str, brokers: int, seed: int = 0) -> Tree:
    """Return a tree of this many brokers.

    random     each broker joins a random earlier one, all equally likely
    chain      each joins the one before it
    star       all join the first one
    balanced   each has two below it
    """
    if brokers < 1:
        raise UsageError(f"a network must have at least one broker; given: {brokers}")
    if shape == "random":
        rng = Random(seed)
        return [(rng.randrange(broker), broker) for broker in range(1, brokers)]
    if shape not in SHAPES:
        raise UsageError(f"unknown tree shape {shape!r}: {choices_hint(shape, SHAPES)}")
    below = {"chain": 1, "star": brokers, "balanced": 2}[shape]
    return [((broker - 1) // below, broker) for broker in range(1, brokers)]


def neighbours(tree: Tree, brokers: int) -> list[list[int]]:
    """Return the neighbours of each broker."""
    near: list[list[int]] = [[] for _ in range(brokers)]
    for broker, other in tree:
        near[broker].append(other)
        near[other].append(broker)
    return near


def parents(tree: Tree, brokers: int) -> list[int]:
    """Return the neighbour of each broker towards broker 0; -1 for broker 0."""
    near = neighbours(tree, brokers)
    above = [-2] * brokers
    above[0] = -1
    order = [0]
    for broker in order:
        for other in near[broker]:
            if above[other] == -2:
                above[other] = broker
                order.append(other)
    return above
