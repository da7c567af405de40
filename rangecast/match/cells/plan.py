"""Which attributes, cells and levels of cells a grid of cell lists takes: see `cells`.

Plans are weighed on a sample of boxes and of events placed at their ends: how many entries they
would store, how many ids an event would copy and how many it would compare. Attributes are taken
in the order in which they tell boxes apart best.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.kernels.grid import cell_of, cells_of, ends_cell, starts_cell
from rangecast.kernels.jit import jit
from rangecast.match.shared.candidates import Sample, bounds_as_starts, edges_at_bounds
from rangecast.model.boxes import Boxes, frozen

SURE, EDGE, DOUBTFUL = range(3)
BLOCK_BITS = 16
_WHOLE = 62
"""The shift that takes every cell to 0."""
MAX_AXES = 4
_CELLS = (4096, 1024, 512, 256, 128, 64, 32, 16, 8)
_STEPS = (0, 4, 3, 2, 1)
"""Growth of the shift from level to level; 0: cells only."""
_QUANTILES = 20_000
_MAX_ENTRIES, _MAX_LISTS = 500, 16
"""Per box, on average: more would take longer to build than most sets live."""
_AXIS_COST, _LIST_COST, _BLOCK_COST, _COPY_COST, _TEST_COST = 40.0, 15.0, 3.0, 0.3, 10.0
"""Approximate nanoseconds per axis, list, block of a list, copied id, and compared box."""


class Grid(NamedTuple):
    """The nodes over the cells of the indexed attributes."""

    axes: I64
    edges: F64
    """Edges of all axes, one after another."""
    edge_ends: I64
    shifts: I64
    """Level by level, ascending, of all axes: a node of a level is cell >> shift."""
    bases: I64
    """First node of each level within its axis."""
    level_ends: I64
    strides: I64
    """Weight of a node of each axis in the number of a list."""


class Plan(NamedTuple):
    """Layout of cells."""

    axes: tuple[int, ...]
    edges: tuple[F64, ...]
    shifts: tuple[tuple[int, ...], ...]
    """Levels of each axis, as in `Grid`; the first is 0."""

    @classmethod
    def of(cls, grid: Grid) -> Plan:
        """Return the plan that a grid was made by."""
        levels = pairwise(grid.level_ends.tolist())
        return cls(
            tuple(grid.axes.tolist()),
            tuple(grid.edges[first:end] for first, end in pairwise(grid.edge_ends.tolist())),
            tuple(tuple(grid.shifts[first:end].tolist()) for first, end in levels),
        )

    @property
    def nodes(self) -> list[list[int]]:
        """Nodes of each level of each axis."""
        return [
            [(len(edges) + 1 >> shift) + 1 for shift in shifts]
            for edges, shifts in zip(self.edges, self.shifts, strict=True)
        ]

    @property
    def lists(self) -> int:
        """Lists that an event reads."""
        return int(np.prod([len(shifts) for shifts in self.shifts], dtype=np.int64))

    @property
    def all_lists(self) -> int:
        """Lists there are."""
        return int(np.prod([float(sum(levels)) for levels in self.nodes]))

    def memory(self, entries: int, boxes: int) -> int:
        """Bytes of the lists."""
        return 2 * entries + 12 * self.all_lists * blocks_of(boxes)

    def grid(self) -> Grid:
        """Return the plan as arrays."""
        bases = [np.cumsum([0, *levels[:-1]]) for levels in self.nodes]
        sizes = [sum(levels) for levels in self.nodes]
        none = np.empty(0)
        return Grid(
            frozen(self.axes, np.int64),
            frozen(np.concatenate([none, *self.edges]), np.float64),
            frozen(np.cumsum([0, *(len(edges) for edges in self.edges)]), np.int64),
            frozen(np.concatenate([none, *self.shifts]), np.int64),
            frozen(np.concatenate([none, *bases]), np.int64),
            frozen(np.cumsum([0, *(len(shifts) for shifts in self.shifts)]), np.int64),
            frozen(np.cumprod([1, *sizes])[: len(sizes)], np.int64),
        )


def blocks_of(boxes: int) -> int:
    """Return the number of blocks of 65,536 boxes."""
    return max(1, (boxes + (1 << BLOCK_BITS) - 1) >> BLOCK_BITS)


@jit
def cut(
    first: int,
    last: int,
    starts: bool,
    ends: bool,
    cells: int,
    shifts: I64,
    bases: I64,
    nodes: I64,
    kinds: I64,
) -> int:
    """Split cells first .. last of an axis into nodes; return how many there are."""
    count = 0
    cell = first
    while cell <= last:
        level = 0
        kind = SURE
        if cell == first and not starts:
            kind = DOUBTFUL
        elif cell == last and not ends:
            kind = EDGE
        else:
            inside = last if ends else last - 1
            for upper in range(1, len(shifts)):
                block = (1 << shifts[upper]) - 1
                if cell & block == 0 and min(cell + block, cells - 1) <= inside:
                    level = upper
        nodes[count] = bases[level] + (cell >> shifts[level])
        kinds[count] = kind
        count += 1
        cell = min(cell + (1 << shifts[level]), cells)
    return count


@jit
def _pieces(edges: F64, shifts: I64, lo: F64, hi: F64, out: I64, scratch: I64) -> None:
    """Write the number of nodes that each range is cut into."""
    for i in range(len(lo)):
        out[i] = cut(
            cell_of(edges, lo[i]),
            cell_of(edges, hi[i]),
            starts_cell(edges, lo[i]),
            ends_cell(edges, hi[i]),
            len(edges) + 2,
            shifts,
            shifts,
            scratch[0],
            scratch[1],
        )


@jit
def _mark_starts_inside(edges: F64, lo: F64, out: Bool) -> None:
    """Write whether each range begins inside its first cell."""
    for i in range(len(lo)):
        out[i] = not starts_cell(edges, lo[i])


class _Axis:
    """An attribute of the sample under one set of edges."""

    def __init__(self, sample: Sample, axis: int, edges: F64, *, free: bool):
        """Find the sample events in the cells of each box, and where the cell doesn't decide.

        free   whether some box doesn't mention the attribute
        """
        self.edges = edges
        self.lo, self.hi = (frozen(side[:, axis], np.float64) for side in (sample.lo, sample.hi))
        self.free = free
        first, last = cells_of(edges, self.lo), cells_of(edges, self.hi)
        cell = cells_of(edges, sample.events[:, axis])[:, None]
        self.in_cells = (first <= cell) & (cell <= last)
        starts_inside = np.empty(len(self.lo), np.bool_)
        _mark_starts_inside(edges, self.lo, starts_inside)
        self.doubtful = (cell == first) & starts_inside

    def shifts(self, step: int) -> tuple[int, ...]:
        """Return the levels: cells, blocks if there is a step, the whole if boxes take it."""
        most = (len(self.edges) + 1).bit_length()
        blocks = range(step, most, step) if step else ()
        return (0, *blocks, *((_WHOLE,) if self.free else ()))

    def pieces(self, shifts: tuple[int, ...]) -> I64:
        """Return the number of nodes that each sampled box is cut into."""
        out = np.empty(len(self.lo), np.int64)
        scratch = np.empty((2, len(self.edges) + 2), np.int64)
        _pieces(self.edges, frozen(shifts, np.int64), self.lo, self.hi, out, scratch)
        return out


def plans(boxes: Boxes, sample: Sample, alone: Bool, room: int) -> list[Plan]:
    """Return plans that should fit into `room` bytes, the fastest first; the last one is a scan.

    Other levels over the same cells may take less memory: of those that take at most 15% more
    time, the smallest leads.
    """
    weighed = sorted(weigh(boxes, sample, alone, room), key=lambda plan: plan.time)
    if weighed:
        best = weighed[0]
        alike = [w for w in weighed if w.time <= 1.15 * best.time and w.cells == best.cells]
        smallest = min(alike, key=lambda plan: plan.size)
        weighed.remove(smallest)
        weighed.insert(0, smallest)
    return [plan.plan for plan in weighed] + [Plan((), (), ())]


class CostedPlan(NamedTuple):
    """A plan, with its expected nanoseconds per event and bytes of lists."""

    time: float
    size: int
    cells: tuple[tuple[int, int], ...]
    """(attribute, edges) of each axis: what tells grids of one set of boxes apart."""
    plan: Plan


def weigh(boxes: Boxes, sample: Sample, alone: Bool, room: int) -> Iterator[CostedPlan]:
    """Yield every plan that should fit into `room` bytes and be built in reasonable time."""
    n = len(boxes.lo)
    sampled = slice(None, None, max(1, n // _QUANTILES))
    order = sample.axes(MAX_AXES)
    coarse = {j: bounds_as_starts(boxes.lo[sampled, j], boxes.hi[sampled, j]) for j in order}
    exact = {j: coarse[j].edges(1 << 62) for j in order}
    free = {j: not boxes.mentions[:, j].all() for j in order}
    for j in order:
        if n > _QUANTILES and len(exact[j]) + 2 <= max(_CELLS):
            exact[j] = edges_at_bounds(boxes.lo[:, j], boxes.hi[:, j], 1 << 62)
    mentioned = boxes.mentions[sample.boxes]
    seen = set()
    for most in _CELLS:
        axes = []
        in_cells = np.ones((len(sample.events), len(sample.lo)), np.bool_)
        doubtful = np.zeros_like(in_cells)
        for axis in order:
            fits = len(exact[axis]) + 2 <= most
            edges = frozen(exact[axis] if fits else coarse[axis].edges(most), np.float64)
            axes.append(_Axis(sample, axis, edges, free=free[axis]))
            in_cells &= axes[-1].in_cells
            doubtful |= axes[-1].doubtful
            taken = order[: len(axes)]
            others = np.delete(mentioned, taken, axis=1).any(axis=1)
            tested = np.count_nonzero(in_cells & (doubtful | others | ~alone[sample.boxes]))
            copied = np.count_nonzero(in_cells) - tested
            ids = (_TEST_COST * tested + _COPY_COST * copied) * sample.scale / max(1, len(in_cells))
            for step in _STEPS:
                shifts = tuple(a.shifts(step) for a in axes)
                plan = Plan(taken, tuple(a.edges for a in axes), shifts)
                cells = tuple((axis, len(a.edges)) for axis, a in zip(taken, axes, strict=True))
                if (cells, shifts) in seen or plan.all_lists > (1 << 16) + _MAX_LISTS * n:
                    continue
                seen.add((cells, shifts))
                pieces = np.prod([a.pieces(s) for a, s in zip(axes, shifts, strict=True)], axis=0)
                entries = int(float(pieces.sum()) * sample.scale)
                size = plan.memory(entries, n)
                if size <= room and entries <= _MAX_ENTRIES * n:
                    a_list = _LIST_COST + _BLOCK_COST * blocks_of(n)
                    time = ids + _AXIS_COST * len(axes) + a_list * plan.lists
                    yield CostedPlan(time, size, cells, plan)
