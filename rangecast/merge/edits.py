"""Edits of the tree of levels by subscriptions as ranges, and lookups of cells.

Section 4 of paper 004 from its definition, as Algorithm 1 in print ends its loop too early and
loses ranges: the table is the union of the live subscriptions' ranges, and what must be sent
to a neighbour is the part of a subscription that the others lack. One walk over the gaps that a
range meets finds all at once: no gap, and the range is covered, by one or by several (subsumption);
its parts in gaps are new (partial covering), and they merge with what they touch.

Imperfect merging: with `gap` > 0 a gap between two ranges that is no longer than this counts as
held. A subscription that narrows a gap to this length then brings the rest of the gap along.

A removal first takes its ranges off the levels, so both directions look at the table without the
subscription. Work is counted: breakpoints touched, at most two for each range; and gaps looked for,
at most one for each range and one for each gap found.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32, I64, U64, Bool
from rangecast.kernels.jit import jit
from rangecast.merge.levels.balance import balance
from rangecast.merge.levels.tree import (
    LEVEL,
    NEXT,
    SIZE,
    Tree,
    descend,
    has_room,
    last_at,
    leaves_of,
    next_leaf_with_gap,
    shift,
    shift_from,
)

DONE, NO_NODES, NO_ROOM = 0, 1, 2
"""Why an edit stopped: done; the tree needs more nodes; the output needs more room."""

_ABREAST = 32
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@jit
def _next_gap(
    state: I64,
    key: U64,
    inner: I32,
    leaf_key: U64,
    leaf: I32,
    position: np.uint64,
    last: np.uint64,
) -> tuple[bool, np.uint64, np.uint64, bool]:
    """Find the first place from `position` to `last` that nothing holds.

    Returns whether there is one, the first place of the gap around it and the first behind it, and
    whether there is one behind it.
    """
    node, base = descend(state, key, inner, position)
    i = last_at(leaf_key, node, leaf[node, SIZE], position)
    while base + leaf[node, LEVEL + i] != 0:
        i += 1
        if i == leaf[node, SIZE]:
            node, base = next_leaf_with_gap(state, key, inner, last)
            if node < 0:
                return False, _ZERO, _ZERO, False
            i = 0
        if leaf_key[node, i] > last:
            return False, _ZERO, _ZERO, False
    bounded, following = _following(leaf_key, leaf, node, i)
    return True, leaf_key[node, i], following, bounded


@jit
def _following(leaf_key: U64, leaf: I32, node: int, i: int) -> tuple[bool, np.uint64]:
    """Return whether a breakpoint follows number `i` of a leaf, and its index."""
    if i + 1 < leaf[node, SIZE]:
        return True, leaf_key[node, i + 1]
    behind = leaf[node, NEXT]
    return (False, _ZERO) if behind < 0 else (True, leaf_key[behind, 0])


@jit
def _append_missing(
    state: I64,
    key: U64,
    inner: I32,
    leaf_key: U64,
    leaf: I32,
    starts: U64,
    ends: U64,
    begin: int,
    end: int,
    top: np.uint64,
    gap: np.uint64,
    out_starts: U64,
    out_ends: U64,
    filled: int,
) -> tuple[int, int]:
    """Append the parts of the ranges begin .. end - 1 (ascending, disjoint) that the table lacks.

    Returns the fill of the output, -1 if it has too little room, and the number of gap searches.
    """
    looked = 0
    before = filled
    i = begin
    position = starts[begin] if begin < end else _ZERO
    while i < end:
        looked += 1
        is_gap, first, following, bounded = _next_gap(
            state, key, inner, leaf_key, leaf, position, ends[i]
        )
        if not is_gap:
            i += 1
            position = starts[i] if i < end else _ZERO
            continue
        last = following - _ONE if bounded else top
        is_missing = (
            not bounded or first == _ZERO or last - first >= gap
        )  # else it is closed already
        free = first  # from here on the gap isn't filled yet
        left_open = first == _ZERO
        full = False  # nothing of the gap is left behind the ranges looked at
        past = False  # the range goes on behind the gap
        while i < end and starts[i] <= last:
            low, high = max(starts[i], first), min(ends[i], last)
            if is_missing:
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
        if is_missing and not full and bounded and last - free < gap:
            out_ends[filled - 1] = last
        if past:
            position = last + _ONE
        elif i < end:
            position = starts[i]
    return filled, looked


@jit
def missing(
    tree: Tree,
    starts: U64,
    ends: U64,
    cursor: I64,
    top: np.uint64,
    gap: np.uint64,
    out_starts: U64,
    out_ends: U64,
) -> int:
    """Write the parts of ascending ranges that the table lacks; return their number.

    Stops when the output is full; `cursor` (range, index to continue from or 0) is where to
    continue, and is behind the last range at the end.
    """
    state, key, inner, leaf_key, leaf = tree.state, tree.key, tree.inner, tree.leaf_key, tree.leaf
    filled = 0
    while cursor[0] < len(starts):
        i = cursor[0]
        position = starts[i] if cursor[1] == 0 else np.uint64(cursor[1])
        is_gap, first, following, bounded = _next_gap(
            state, key, inner, leaf_key, leaf, position, ends[i]
        )
        last = following - _ONE if bounded else top
        if is_gap and (not bounded or first == _ZERO or last - first >= gap):
            if filled == len(out_starts):
                return filled
            out_starts[filled], out_ends[filled] = max(first, position), min(last, ends[i])
            filled += 1
        if is_gap and last < ends[i]:
            cursor[1] = np.int64(last + _ONE)
        else:
            cursor[0], cursor[1] = i + 1, 0
    return filled


@jit
def covered(tree: Tree, starts: U64, ends: U64, offsets: I64, gap: np.uint64, out: Bool) -> int:
    """Write which subscriptions the table contains entirely; return the number of gap searches.

    Changes nothing. The first open gap ends the check of a subscription. Offsets
    as in `edit`.
    """
    state, key, inner, leaf_key, leaf = tree.state, tree.key, tree.inner, tree.leaf_key, tree.leaf
    looked = 0
    for number in range(len(out)):
        i, end = offsets[number], offsets[number + 1]
        position = starts[i] if i < end else _ZERO
        while i < end:
            looked += 1
            is_gap, first, following, bounded = _next_gap(
                state, key, inner, leaf_key, leaf, position, ends[i]
            )
            if is_gap and (not bounded or first == _ZERO or following - first > gap):
                break
            if is_gap and following <= ends[i]:
                position = following
            else:
                i += 1
                position = starts[i] if i < end else _ZERO
        out[number] = i == end
    return looked


@jit
def edit(
    tree: Tree,
    starts: U64,
    ends: U64,
    offsets: I64,
    cursor: I64,
    by: int,
    top: np.uint64,
    gap: np.uint64,
    out_starts: U64,
    out_ends: U64,
    out_offsets: I64,
) -> int:
    """Add subscriptions to the table (`by` = 1) or remove them (-1), one after the other.

    The ranges of subscription s are those from offsets[s] to offsets[s + 1]. The change of the
    union by each is written from out_offsets[s] to out_offsets[s + 1]. `cursor` is where to
    continue (subscription, its next range, whether its change was written), and counts the work
    (breakpoints touched, gap searches). Returns DONE, or which resource ran out.
    """
    state, key, inner, leaf_key, leaf = tree.state, tree.key, tree.inner, tree.leaf_key, tree.leaf
    while cursor[0] < len(offsets) - 1:
        number = cursor[0]
        begin, end = offsets[number], offsets[number + 1]
        for phase in range(2):
            if (phase == 0) == (by > 0):
                if cursor[2]:
                    continue
                filled, looked = _append_missing(
                    state,
                    key,
                    inner,
                    leaf_key,
                    leaf,
                    starts,
                    ends,
                    begin,
                    end,
                    top,
                    gap,
                    out_starts,
                    out_ends,
                    out_offsets[number],
                )
                if filled < 0:
                    return NO_ROOM
                out_offsets[number + 1] = filled
                cursor[2] = 1
                cursor[4] += looked
            else:
                while cursor[1] < end - begin:
                    if not has_room(state, len(leaf), len(inner)):
                        return NO_NODES
                    first, last = starts[begin + cursor[1]], ends[begin + cursor[1]]
                    node = -1
                    if last != top:
                        node, due = shift(state, key, inner, leaf_key, leaf, first, last, by)
                    if node < 0:
                        node, due = shift_from(state, key, inner, leaf_key, leaf, first, by)
                        if last != top:
                            if due:
                                balance(tree, node)
                            last += _ONE
                            node, due = shift_from(state, key, inner, leaf_key, leaf, last, -by)
                    if due:
                        balance(tree, node)
                    cursor[3] += 1 + (ends[begin + cursor[1]] != top)
                    cursor[1] += 1
        cursor[0], cursor[1], cursor[2] = number + 1, 0, 0
    return DONE


@jit
def _held(
    leaf_key: U64, leaf: I32, position: np.uint64, gap: np.uint64, node: int, base: int
) -> bool:
    """Return whether an index of this leaf lies in a range of the table."""
    i = last_at(leaf_key, node, leaf[node, SIZE], position)
    if base + leaf[node, LEVEL + i] != 0:
        return True
    first = leaf_key[node, i]
    if gap == _ZERO or first == _ZERO:
        return False
    bounded, following = _following(leaf_key, leaf, node, i)
    return bool(bounded and following - first <= gap)


@jit
def held(tree: Tree, places: U64, gap: np.uint64, out: Bool) -> None:
    """Write whether each index lies in a range of the table."""
    state, key, inner, leaf_key, leaf = tree.state, tree.key, tree.inner, tree.leaf_key, tree.leaf
    nodes, bases = np.empty(_ABREAST, np.int64), np.empty(_ABREAST, np.int64)
    for begin in range(0, len(places), _ABREAST):
        piece = places[begin : begin + _ABREAST]
        leaves_of(state, key, inner, piece, nodes, bases)
        for k in range(len(piece)):
            out[begin + k] = _held(leaf_key, leaf, piece[k], gap, nodes[k], bases[k])


@jit
def read_ranges(tree: Tree, top: np.uint64, gap: np.uint64, starts: U64, ends: U64) -> int:
    """Write the maximal ranges of the table in order; return their number.

    Ranges that don't fit are only counted.
    """
    leaf_key, leaf = tree.leaf_key, tree.leaf
    node = 0  # the first leaf stays the first: a pair of leaves always keeps the left one
    level, count, end = 0, 0, _ZERO
    was_held = False
    while node >= 0:
        base = level
        for i in range(leaf[node, SIZE]):
            level = base + leaf[node, LEVEL + i]
            position = leaf_key[node, i]
            if level != 0 and not was_held and (count == 0 or position - end - _ONE > gap):
                if count < len(starts):
                    starts[count] = position
                count += 1
            elif was_held and level == 0:
                end = position - _ONE
                if count <= len(ends):
                    ends[count - 1] = end
            was_held = level != 0
        node = leaf[node, NEXT]
    if was_held and count <= len(ends):
        ends[count - 1] = top
    return count
