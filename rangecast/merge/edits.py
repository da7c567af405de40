"""Subscriptions as ranges against the tree of levels: what is new in one, and what holds a place.

Section 4 of paper 004 from its definition, as Algorithm 1 in print ends its loop too early and
loses ranges: the table is the union of the live subscriptions' ranges, and what a neighbour must be
told of is the part of a subscription that the others lack. One walk over the gaps that a range
meets finds all at once: no gap, and the range is covered, by one or by several (subsumption);
parts of it in gaps are what is new (partial covering), and they merge with what they touch.

Imperfect merging: with `gap` > 0 a gap between two ranges that is no longer than this counts as
held. A subscription that narrows a gap to this length then brings the rest of the gap along.

A removal first takes its ranges off the levels, so both directions look at the table without the
subscription. Work is counted: steps touched, at most two for each range; and gaps looked for, at
most one for each range and one for each gap found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rangecast.kernels.jit import jit, jit_single
from rangecast.merge.tree import (
    Counts,
    Tree,
    Words,
    descend,
    has_room,
    last_at,
    leaf_of,
    next_leaf_with_gap,
    shift,
)

Mask = npt.NDArray[np.bool_]

DONE, NO_NODES, NO_ROOM = 0, 1, 2
"""Why an edit stopped: all is done; the tree needs more nodes; the output needs more room."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@jit
def _next_gap(
    tree: Tree, place: np.uint64, last: np.uint64, top: np.uint64
) -> tuple[bool, np.uint64, np.uint64, bool]:
    """Find the first place from `place` to `last` that nothing holds.

    Returns whether there is one, the whole gap around it, and whether it ends before a range (and
    not with the curve).
    """
    leaf, base = descend(tree, place)
    size = tree.leaf_size[leaf]
    i = last_at(tree.leaf_key, leaf, size, place)
    while base + tree.leaf_level[leaf, i] != 0:
        i += 1
        if i == size:
            leaf, base = next_leaf_with_gap(tree, last)
            if leaf < 0:
                return False, _ZERO, _ZERO, False
            size = tree.leaf_size[leaf]
            i = 0
        if tree.leaf_key[leaf, i] > last:
            return False, _ZERO, _ZERO, False
    first = tree.leaf_key[leaf, i]
    bounded, following = _following(tree, leaf, i)
    return True, first, following - _ONE if bounded else top, bounded


@jit
def _following(tree: Tree, leaf: int, i: int) -> tuple[bool, np.uint64]:
    """Return whether there is a step after step `i` of a leaf, and its place."""
    if i + 1 < tree.leaf_size[leaf]:
        return True, tree.leaf_key[leaf, i + 1]
    behind = tree.leaf_next[leaf]
    return (False, _ZERO) if behind < 0 else (True, tree.leaf_key[behind, 0])


@jit
def _lacking(
    tree: Tree,
    starts: Words,
    ends: Words,
    begin: int,
    end: int,
    top: np.uint64,
    gap: np.uint64,
    out_starts: Words,
    out_ends: Words,
    filled: int,
) -> tuple[int, int]:
    """Append what the ranges begin .. end - 1 (ascending, apart) would add to the table.

    Returns how far the output is filled then, -1 if it has too little room, and the gaps looked
    for.
    """
    looked = 0
    before = filled
    i = begin
    place = starts[begin] if begin < end else _ZERO
    while i < end:
        looked += 1
        found, first, last, bounded = _next_gap(tree, place, ends[i], top)
        if not found:
            i += 1
            place = starts[i] if i < end else _ZERO
            continue
        inner = bounded and first != _ZERO  # between two ranges
        told = not (inner and last - first < gap)
        free = first  # from here on the gap isn't filled yet
        left_open = first == _ZERO
        full = False  # nothing of the gap is left behind the ranges looked at
        past = False  # the range goes on behind the gap
        while i < end and starts[i] <= last:
            low, high = max(starts[i], first), min(ends[i], last)
            if told:
                if low > free and low - free <= gap and not left_open:
                    low = free
                if filled > before and out_ends[filled - 1] + _ONE == low and low > first:
                    out_ends[filled - 1] = high
                else:
                    if filled == len(out_starts):
                        return -1, looked
                    out_starts[filled], out_ends[filled] = low, high
                    filled += 1
            left_open = False
            full = high == last
            free = high if full else high + _ONE
            past = ends[i] > last
            if past:
                break
            i += 1
        if told and not full and bounded and last - free < gap:
            out_ends[filled - 1] = last
        if past:
            place = last + _ONE
        elif i < end:
            place = starts[i]
    return filled, looked


@jit
def edit(
    tree: Tree,
    starts: Words,
    ends: Words,
    offsets: Counts,
    cursor: Counts,
    by: int,
    top: np.uint64,
    gap: np.uint64,
    out_starts: Words,
    out_ends: Words,
    out_offsets: Counts,
) -> int:
    """Add subscriptions to the table (`by` = 1) or take them off (-1), one after the other.

    The ranges of subscription s are those from offsets[s] to offsets[s + 1]. What each changes
    about the union is written from out_offsets[s] to out_offsets[s + 1]. `cursor` says where to go
    on (subscription, its next range, whether its change was written) and sums up the work (steps
    touched, gaps looked for). Returns DONE, or what there is too little of.
    """
    while cursor[0] < len(offsets) - 1:
        one = cursor[0]
        begin, end = offsets[one], offsets[one + 1]
        for phase in range(2):
            if (phase == 0) == (by > 0):
                if cursor[2]:
                    continue
                filled, looked = _lacking(
                    tree, starts, ends, begin, end, top, gap, out_starts, out_ends, out_offsets[one]
                )
                if filled < 0:
                    return NO_ROOM
                out_offsets[one + 1] = filled
                cursor[2] = 1
                cursor[4] += looked
            else:
                while cursor[1] < end - begin:
                    if not has_room(tree):
                        return NO_NODES
                    i = begin + cursor[1]
                    shift(tree, starts[i], by)
                    cursor[3] += 1
                    if ends[i] != top:
                        shift(tree, ends[i] + _ONE, -by)
                        cursor[3] += 1
                    cursor[1] += 1
        cursor[0], cursor[1], cursor[2] = one + 1, 0, 0
    return DONE


@jit
def _held(tree: Tree, place: np.uint64, gap: np.uint64) -> bool:
    leaf, base = leaf_of(tree, place)
    i = last_at(tree.leaf_key, leaf, tree.leaf_size[leaf], place)
    if base + tree.leaf_level[leaf, i] != 0:
        return True
    first = tree.leaf_key[leaf, i]
    if gap == _ZERO or first == _ZERO:
        return False
    bounded, following = _following(tree, leaf, i)
    return bool(bounded and following - first <= gap)


@jit
def held(tree: Tree, places: Words, gap: np.uint64, out: Mask) -> None:
    """Write whether each place lies in a range of the table."""
    for i in range(len(places)):
        out[i] = _held(tree, places[i], gap)


@jit_single
def held_one(tree: Tree, place: np.uint64, gap: np.uint64) -> bool:
    """Return whether one place lies in a range of the table."""
    return _held(tree, place, gap)


@jit
def read_ranges(tree: Tree, top: np.uint64, gap: np.uint64, starts: Words, ends: Words) -> int:
    """Write the maximal ranges of the table in order; return how many there are.

    Those that don't fit are counted only.
    """
    leaf = 0  # the first leaf stays the first: a pair of leaves always keeps the left one
    level, count, end = 0, 0, _ZERO
    was_held = False
    while leaf >= 0:
        base = level
        for i in range(tree.leaf_size[leaf]):
            level = base + tree.leaf_level[leaf, i]
            place = tree.leaf_key[leaf, i]
            if level != 0 and not was_held and (count == 0 or place - end - _ONE > gap):
                if count < len(starts):
                    starts[count] = place
                count += 1
            elif was_held and level == 0:
                end = place - _ONE
                if count <= len(ends):
                    ends[count - 1] = end
            was_held = level != 0
        leaf = tree.leaf_next[leaf]
    if was_held and count <= len(ends):
        ends[count - 1] = top
    return count
