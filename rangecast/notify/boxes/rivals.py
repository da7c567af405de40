"""Rivals: the few objects that decide which lists contain an object, and what replaces it.

An object at p changes its key between `floor`, the better one of the old and the new key, and
`ceiling`, the worse one. (Both are the new key if it got better.) An interest that holds p has it
in its list, at floor, if fewer than k objects with a lower key lie in the interest too; and the one
that takes its place has a key between the two. A box that holds p and q holds all that lies in the
box between them. So q doesn't matter if k objects with keys below its own, or below floor, lie
there: the others are the k-skyband of the objects around p (section IV-C of paper 001, theorem 8).

Rivals are in order of their keys: those below floor first, and then the others.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, ZERO, KdTree, below

COMPARED = 6
"""Index of the counter of comparisons with rivals."""
MOST = 4096
"""Number of rivals beyond which lists are computed one by one."""


@edited
class Rivals(NamedTuple):
    """Position, key and row of each rival."""

    at: Annotated[F64, 2]
    y: F64
    arrival: I64
    row: I32

    @classmethod
    def of(cls, d: int, room: int = MOST) -> Rivals:
        """Return arrays for up to `room` rivals."""
        return cls(
            np.zeros((room, d)), np.zeros(room), np.zeros(room, np.int64), np.zeros(room, np.int32)
        )


@jit
def _has_k_rivals(
    rivals: Rivals, n: int, lo: F64, hi: F64, y: float, arrival: int, k: int, work: I64
) -> bool:
    """Return whether k of n rivals lie from `lo` to `hi`, with keys below (y, arrival)."""
    at, ys, arrivals, d = rivals.at, rivals.y, rivals.arrival, len(lo)
    count = 0
    for c in range(n):
        inside = below(ys[c], arrivals[c], y, arrival)
        for j in range(d):
            inside &= lo[j] <= at[c, j] <= hi[j]
        count += inside
        if count >= k:
            work[COMPARED] += c + 1
            return True
    work[COMPARED] += n
    return False


@jit
def gather_rivals(
    tree: KdTree,
    p: F64,
    own_row: int,
    floor_y: float,
    floor_arrival: int,
    ceiling_y: float,
    ceiling_arrival: int,
    hull: F64,
    k: int,
    known: int,
    rivals: Rivals,
    stack: I32,
    work: I64,
) -> int:
    """Write the rivals of the object in row `own_row` within a hull; -1 if there are too many.

    `known` of them are there already, in any order. The nearest come first, roughly: they rule out
    most of the farther ones.
    """
    at, y, arrival, bounds = tree.at, tree.y, tree.arrival, tree.bounds
    child, size, after, d = tree.child, tree.size, tree.after, len(p)
    lo, hi = np.empty(d), np.empty(d)
    stack[0] = 0
    depth, n = 1, ZERO + known
    while depth:
        depth -= 1
        node = stack[depth]
        best_y, best_arrival = tree.best_y[node], tree.best_arrival[node]
        if not below(best_y, best_arrival, ceiling_y, ceiling_arrival):
            continue
        apart = False
        for j in range(d):
            apart |= bounds[node, j] > hull[d + j] or bounds[node, d + j] < hull[j]
            nearest = min(max(p[j], bounds[node, j]), bounds[node, d + j])
            lo[j], hi[j] = min(p[j], nearest), max(p[j], nearest)
        if apart:
            continue
        if below(best_y, best_arrival, floor_y, floor_arrival):
            best_y, best_arrival = floor_y, floor_arrival
        if _has_k_rivals(rivals, n, lo, hi, best_y, best_arrival, k, work):
            continue
        first = child[node]
        if first >= 0:
            second = p[tree.axis[node]] >= tree.cut[node]
            stack[depth], stack[depth + 1] = first + 1 - second, first + second
            depth += 2
            continue
        block, left = ~first, size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                if tree.row[e] == own_row or not below(
                    y[e], arrival[e], ceiling_y, ceiling_arrival
                ):
                    continue
                inside = True
                for j in range(d):
                    inside &= hull[j] <= at[e, j] <= hull[d + j]
                    lo[j], hi[j] = min(p[j], at[e, j]), max(p[j], at[e, j])
                if not inside:
                    continue
                key_y, key_arrival = y[e], arrival[e]
                if below(key_y, key_arrival, floor_y, floor_arrival):
                    key_y, key_arrival = floor_y, floor_arrival
                if _has_k_rivals(rivals, n, lo, hi, key_y, key_arrival, k, work):
                    continue
                if n == len(rivals.row):
                    return -1
                for j in range(d):
                    rivals.at[n, j] = at[e, j]
                rivals.y[n], rivals.arrival[n], rivals.row[n] = y[e], arrival[e], tree.row[e]
                n += 1
            left -= LEAF
            block = after[block]
    return in_order(rivals, n, p, floor_y, floor_arrival, k)


@jit
def in_order(rivals: Rivals, n: int, p: F64, floor_y: float, floor_arrival: int, k: int) -> int:
    """Drop rivals that later ones rule out, and sort the rest by key."""
    at, y, arrival, row = rivals.at, rivals.y, rivals.arrival, rivals.row
    d = len(p)
    out = np.zeros(n, np.bool_)
    for c in range(n):
        key_y, key_arrival = y[c], arrival[c]
        if below(key_y, key_arrival, floor_y, floor_arrival):
            key_y, key_arrival = floor_y, floor_arrival
        count = 0
        for other in range(n):
            inside = below(y[other], arrival[other], key_y, key_arrival)
            same = True
            for j in range(d):
                v, here = at[other, j], at[c, j]
                inside &= min(p[j], here) <= v <= max(p[j], here)
                same &= v == here
            # of those at one place, none may rule out another that ruled it out
            count += inside and (not same or below(y[other], arrival[other], y[c], arrival[c]))
            if count >= k:
                break
        out[c] = count >= k
    order = np.arange(n)
    gap = n // 2
    while gap:  # Shell's
        for i in range(gap, n):
            c = order[i]
            slot = i
            while slot >= gap and below(
                y[c], arrival[c], y[order[slot - gap]], arrival[order[slot - gap]]
            ):
                order[slot] = order[slot - gap]
                slot -= gap
            order[slot] = c
        gap = 1 if gap == 2 else gap * 5 // 11
    old_at, old_y = at[:n].copy(), y[:n].copy()
    old_arrival, old_row = arrival[:n].copy(), row[:n].copy()
    m = 0
    for i in range(n):
        c = order[i]
        if out[c]:
            continue
        for j in range(d):
            at[m, j] = old_at[c, j]
        y[m], arrival[m], row[m] = old_y[c], old_arrival[c], old_row[c]
        m += 1
    return m
