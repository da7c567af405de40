"""The choice of anchors: of each alternative the term that is rarest in the events seen.

Before any event is seen, a kind of term has a share of its own, and of several terms the one that
the fewest words have is taken.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, U32, U64
from rangecast.kernels.jit import jit
from rangecast.match.terms.hashes import PREFIX, SUFFIX, WHOLE, WORD
from rangecast.match.terms.requirements import Requirements

_BITS = 48
"""Bits of a hash that don't say where its counter is."""
COUNTERS = 1 << (64 - _BITS)
_DECAY = 1 << 14
"""Events after which all counts are halved."""
_PRIOR = 4.0
"""Events that the share of a kind is worth."""
_SHARED = 1e-3
POINTS = 256
"""Events whose coordinates are kept."""


class Seen:
    """Decaying counts of the terms of events, and the coordinates of the latest events."""

    def __init__(self, dimensions: int):
        self.counts = np.zeros(COUNTERS, np.uint32)
        self.events = 0.0
        """Number of events counted, with decay."""
        self.total = 0
        self._points = np.empty((POINTS, dimensions))
        self._lock = threading.Lock()

    def add(self, points: F64) -> None:
        """Count events, whose terms were counted already."""
        with self._lock:
            self.events += len(points)
            newest = points[:POINTS]
            at = (self.total + np.arange(len(newest))) % POINTS
            self._points[at] = newest
            self.total += len(newest)
            if self.events >= _DECAY:
                self.counts >>= 1
                self.events /= 2

    @property
    def points(self) -> F64:
        """Coordinates of the last events."""
        return self._points[: min(self.total, POINTS)]


@jit
def counter(term: Any) -> Any:
    """Return the counter of a term."""
    return np.int64(term >> np.uint64(_BITS))


@jit
def _share(source: int) -> float:
    """Return the share of events that have a term of this kind, by and large."""
    kind, length = source // 256 % 16, source % 256
    if kind == WORD:
        return 0.01
    if kind == WHOLE:
        return 1e-4
    if kind in (PREFIX, SUFFIX):
        return max(1e-4, 0.3**length)
    return 0.5 if kind == 1 else 0.2 if kind == 2 else 0.05 if kind == 3 else 0.02


@jit
def _choose(
    of_word: I64,
    first: I64,
    terms: I64,
    hashes: U64,
    sources: I64,
    counts: U32,
    events: float,
    chosen: I64,
    anchors: I64,
    costs: F64,
) -> None:
    taken = np.zeros(len(counts), np.uint32)
    for word in range(len(of_word) - 1):
        best = np.inf
        for requirement in range(of_word[word], of_word[word + 1]):
            total = 0.0
            for alternative in range(first[requirement], first[requirement + 1]):
                least, share = np.inf, 1.0
                for term in range(terms[alternative], terms[alternative + 1]):
                    own = counter(hashes[term])
                    expected = (counts[own] + _PRIOR * _share(sources[term])) / (events + _PRIOR)
                    cost = expected * (1.0 + _SHARED * taken[own])
                    if cost < least:
                        least, share = cost, expected
                        anchors[alternative] = term
                total += share
            if total < best:
                best = total
                chosen[word] = requirement
        costs[word] = best
        if best < np.inf:
            for alternative in range(first[chosen[word]], first[chosen[word] + 1]):
                taken[counter(hashes[anchors[alternative]])] += np.uint32(1)


def choose_anchors(needed: Requirements, seen: Seen) -> tuple[I64, I64, F64]:
    """Return the requirement chosen for each word, the term of each alternative, and the cost.

    The cost is the share of events that a word is looked at for; infinite if it has no requirement.
    """
    words = len(needed.of_word) - 1
    chosen, costs = np.full(words, -1, np.int64), np.empty(words)
    anchors = np.zeros(len(needed.terms) - 1, np.int64)
    _choose(*needed[:5], seen.counts, float(seen.events), chosen, anchors, costs)
    return chosen, anchors, costs


@jit
def _shares(lo: F64, hi: F64, values: F64, shares: F64) -> None:
    for axis in range(lo.shape[1]):
        sample = values[axis]
        for box in range(len(lo)):
            low, high = lo[box, axis], hi[box, axis]
            if low > -np.inf or high < np.inf:
                inside = np.searchsorted(sample, high, side="right") - np.searchsorted(sample, low)
                shares[box] *= (inside + 0.5) / (len(sample) + 1.0)


def box_shares(lo: F64, hi: F64, points: F64) -> F64:
    """Return the share of events that lie in each box, by some events and axis by axis."""
    shares = np.ones(len(lo))
    _shares(lo, hi, np.ascontiguousarray(np.sort(points, axis=0).T), shares)
    return shares
