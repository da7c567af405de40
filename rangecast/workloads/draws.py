"""Random draws that several workloads share.

Each table of a workload draws from a stream of its own, keyed by the seed and a name. So a larger
number of events doesn't change the subscriptions, and vice versa. A stream keeps its name even if
its workload is renamed: a new name would change every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, Bool


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of one table: a function of the seed and the name alone."""
    return np.random.default_rng([seed, crc32(name.encode())])


def zipf(count: int, skew: float) -> F64:
    """Return the probabilities of ranks 1 .. count: rank r in proportion to r ** -skew."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -skew
    return np.asarray(weights / weights.sum())


def pick(rng: np.random.Generator, probabilities: F64, size: int | tuple[int, ...]) -> I64:
    """Return random positions in a list of probabilities, drawn by these probabilities."""
    steps = np.cumsum(probabilities)
    steps[-1] = np.inf  # whatever the sum rounds to, the last position takes the rest
    return np.searchsorted(steps, rng.random(size), side="right").astype(np.int64)


def ordered_pairs(rng: np.random.Generator, count: int) -> tuple[F64, F64]:
    """Return pairs l < r, uniform over all pairs of [0, 1)."""
    ends = np.sort(rng.random((count, 2)), axis=1)
    equal = ends[:, 0] == ends[:, 1]
    ends[equal, 1] = np.nextafter(ends[equal, 0], 1.0)
    return ends[:, 0], ends[:, 1]


def mentions(rng: np.random.Generator, rows: int, attributes: int, mentioned: int) -> Bool:
    """Return a mask (rows, attributes) with `mentioned` attributes per row, drawn uniformly."""
    if mentioned > attributes:
        raise UsageError(
            f"{mentioned} attributes can't be mentioned, as there are only {attributes}"
        )
    order = rng.random((rows, attributes)).argsort(axis=1).argsort(axis=1)
    return np.asarray(order < mentioned)


def placed(rng: np.random.Generator, widths: F64) -> tuple[F64, F64]:
    """Return intervals of these widths at uniform positions in [0, 1]."""
    lo = rng.random(widths.shape) * (1.0 - widths)
    return lo, np.minimum(lo + widths, 1.0)


def turns(actors: I64) -> Iterator[I64]:
    """Yield the rows of each actor's first turn, then of each actor's second, and so on.

    Vectorizes a walk per actor: each array that it yields has at most one row per actor.
    """
    by_actor = np.argsort(actors, kind="stable")
    sorted_actors = actors[by_actor]
    starts = np.flatnonzero(np.diff(sorted_actors, prepend=-1))
    lengths = np.diff(starts, append=len(actors))
    turn = np.arange(len(actors)) - np.repeat(starts, lengths)
    by_turn = by_actor[np.argsort(turn, kind="stable")]
    cuts = np.cumsum(np.bincount(turn)) if len(actors) else np.zeros(0, dtype=np.int64)
    begin = 0
    for end in cuts:
        yield by_turn[begin:end]
        begin = int(end)
