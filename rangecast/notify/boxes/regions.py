"""Regions of interests: objects that are in every list there, and objects that may be.

An interest over d attributes is a point in 2d dimensions, its lower and then its upper bounds. A
region has bounds there, least and then largest coordinates, as the nodes of a k-d tree have. Of the
rivals of an object at p, some lie in all interests of the region that hold p (they *cover* it),
some in none, and some in part of them. With fewer than k covering ones and open ones together, all
of these interests have the object in their list; with k covering ones, none has. In between the
region is taken apart.

A stack of segments keeps, for each region on the way, the covering rivals (at most the top k) and
then the open ones, both as ascending numbers, that is, by key.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.bundle import edited
from rangecast.kernels.jit import jit

OWN = -1
"""Stands for the changed object itself instead of a rival."""


@edited
class Tiles(NamedTuple):
    """Regions of interests, each with the row of the object that is sent to them, or `OWN`.

    While a region is taken apart, it is the number of a rival instead.
    """

    rival: I32
    bounds: Annotated[F64, 2]

    @classmethod
    def of(cls, d: int, room: int) -> Tiles:
        """Return empty arrays."""
        return cls(np.zeros(room, np.int32), np.zeros((room, 4 * d)))


class RivalCounts(NamedTuple):
    """Number of rivals that cover a region, that are open, and that are open and below floor."""

    cover: int
    open: int
    cover_below: int
    open_below: int


@jit
def set_tile(tiles: Tiles, n: int, rival: int, bounds: F64) -> None:
    """Write tile n."""
    tiles.rival[n] = rival
    for j in range(len(bounds)):
        tiles.bounds[n, j] = bounds[j]


@jit
def holding(p: F64, within: F64) -> None:
    """Write the bounds of all interests that contain a position."""
    d = len(p)
    for j in range(d):
        within[j], within[3 * d + j] = -np.inf, np.inf
        within[d + j] = within[2 * d + j] = p[j]


@jit
def sort_rivals(
    bounds: F64,
    p: F64,
    at: F64,
    floor: int,
    k: int,
    segments: I32,
    begin: int,
    cover: int,
    open_: int,
    fresh: I32,
) -> RivalCounts:
    """Sort the rivals of the segment at `begin` for a region within it, into the next segment.

    `floor` is how many rivals have a key below floor. Open ones that rank behind k covering ones
    are left out.
    """
    d = len(p)
    top = begin + cover + open_
    added = kept = 0
    for i in range(begin + cover, top):
        c = segments[i]
        covers = meets = True
        for j in range(d):
            v = at[c, j]
            covers &= min(bounds[2 * d + j], p[j]) <= v <= max(bounds[d + j], p[j])
            meets &= bounds[j] <= v <= bounds[3 * d + j]
        if covers:
            fresh[added] = c
            added += 1
        elif meets:
            segments[top + k + kept] = c  # where they can't be in the way, for now
            kept += 1
    m = i = j = cover_below = open_below = 0
    while m < k and (i < cover or j < added):
        if j == added or (i < cover and segments[begin + i] < fresh[j]):
            segments[top + m] = segments[begin + i]
            i += 1
        else:
            segments[top + m] = fresh[j]
            j += 1
        cover_below += segments[top + m] < floor
        m += 1
    last = segments[top + k - 1] if m == k else len(at)
    n = 0
    while n < kept and segments[top + k + n] < last:
        segments[top + m + n] = segments[top + k + n]
        open_below += segments[top + m + n] < floor
        n += 1
    return RivalCounts(m, n, cover_below, open_below)
