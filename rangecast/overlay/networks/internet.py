"""A generated internet for measurements: connected nodes with power-law degrees, and distances.

Made in the way of INET 3.0, which paper 001 uses: a share of the nodes has degree one, the degrees
of the others follow a power law; a tree connects those, each to a node drawn by its free degree,
the largest first; then come the nodes of degree one; what degree is left is matched at random. A
link from a node to itself, or a second one between two nodes, is dropped.

INET places nodes on a plane and weighs links by distance. The paper counts links only, so that is
left out. Its parameters aren't printed; the defaults are below.
"""

from __future__ import annotations

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, U8, offsets_of, readonly
from rangecast.kernels.jit import jit
from rangecast.model.validation.arguments import check_integer

NODES, DEGREE_EXPONENT, LEAF_SHARE = 20_000, 2.2, 0.3
FAR = 255
"""Hops to an unreachable node; an internet with paths this long is rejected."""


@jit
def _tree(degree: I64, draws: F64, ends: I64, open_ends: I64) -> int:
    """Connect nodes in order, each to one drawn by its free degree; return the number of free ends.

    `ends` gets the other node of each; `open_ends` has a node once for each link that it may have.
    """
    count = 0
    for node in range(len(degree)):
        if node:
            if not count:
                return -1
            at = int(draws[node] * count)
            ends[node] = open_ends[at]
            count -= 1
            open_ends[at] = open_ends[count]
        for _ in range(degree[node] - (1 if node else 0)):
            open_ends[count] = node
            count += 1
    return count


@jit
def _hops(first: I64, other: I32, sources: I64, hops: U8) -> bool:
    """Write the distance of each node from each source, breadth first; return whether all fit."""
    queue = np.empty(len(first) - 1, np.int64)
    for row in range(len(sources)):
        far = hops[row]
        far[:] = FAR
        queue[0] = sources[row]
        far[sources[row]] = 0
        head, tail = 0, 1
        while head < tail:
            node = queue[head]
            head += 1
            for e in range(first[node], first[node + 1]):
                if far[other[e]] == FAR:
                    if far[node] + 1 == FAR:
                        return False
                    far[other[e]] = far[node] + 1
                    queue[tail] = other[e]
                    tail += 1
    return True


class Internet:
    """Nodes 0 to n - 1, the largest degree first, and the links between them."""

    def __init__(
        self,
        nodes: int = NODES,
        *,
        degree_exponent: float = DEGREE_EXPONENT,
        leaf_share: float = LEAF_SHARE,
        seed: int = 0,
    ):
        """Generate an internet.

        degree_exponent   of the power law: a node has degree d with probability d ** -exponent
        leaf_share        the share of nodes with degree one
        """
        if nodes < 3 or degree_exponent <= 1 or not 0 <= leaf_share < 1:
            raise UsageError(
                "an internet requires at least 3 nodes, a degree_exponent above 1 and a leaf_share "
                f"from 0 to below 1; given: {nodes}, {degree_exponent}, {leaf_share}"
            )
        rng = np.random.default_rng([check_integer("seed", seed, min_value=0), 0x1AE7])
        ones = min(int(leaf_share * nodes), nodes - 2)
        sizes = np.arange(2, max(nodes // 4, 3))
        share = np.cumsum(sizes ** -float(degree_exponent))
        drawn = sizes[np.searchsorted(share, rng.random(nodes - ones) * share[-1])]
        degree = np.concatenate([-np.sort(-drawn), np.ones(ones, np.int64)]).astype(np.int64)
        ends = np.zeros(nodes, np.int64)
        open_ends = np.zeros(int(degree.sum()), np.int64)
        left = _tree(degree, rng.random(nodes), ends, open_ends)
        if left < 0:
            raise UsageError(
                f"{ones:,} of {nodes:,} nodes have degree one, but the others have too few links "
                "for them\n  hint: use a smaller leaf_share, or a smaller degree_exponent"
            )
        rest = rng.permutation(open_ends[:left])
        rest = rest[: len(rest) // 2 * 2].reshape(-1, 2)
        tree = np.stack([np.arange(1, nodes), ends[1:]], axis=1)
        links = np.sort(np.concatenate([tree, rest]), axis=1)
        links = np.unique(links[links[:, 0] != links[:, 1]], axis=0)
        both = np.concatenate([links, links[:, ::-1]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        self.nodes, self.links = nodes, len(links)
        self.degree = np.bincount(both[:, 0], minlength=nodes)
        self._first = readonly(offsets_of(self.degree))
        self._other = readonly(both[:, 1].astype(np.int32))
        if not self.is_connected():
            raise RuntimeError("the internet isn't connected")

    def is_connected(self) -> bool:
        """Return whether every node can be reached from every other one."""
        return bool((self.hops(np.zeros(1, np.int64)) < FAR).all())

    def hops(self, sources: I64) -> U8:
        """Return the number of links between some nodes and all: (sources, nodes)."""
        distances = np.empty((len(sources), self.nodes), np.uint8)
        if not _hops(self._first, self._other, np.ascontiguousarray(sources, np.int64), distances):
            raise UsageError(
                f"some nodes are {FAR} links apart, or more\n"
                "  hint: use a smaller degree_exponent, so that more nodes have many links"
            )
        return distances

    def neighbours(self, node: int) -> I32:
        """Return the nodes that one is linked to."""
        nodes: I32 = self._other[self._first[node] : self._first[node + 1]]
        return nodes

    def __repr__(self) -> str:
        return f"<Internet: {self.nodes:,} nodes, {self.links:,} links>"
