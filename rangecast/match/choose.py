"""Choose and build the matching index for a set of boxes.

Slabs are the best, or near it, for almost every set: any number of attributes, few or many matches,
little memory. Cell lists beat them where an answer can be written down beforehand: few distinct
bounds, all on a few attributes, many matches, and memory for the lists. The R-tree beats both where
most boxes mention a single attribute out of a few, as it then is a tree over a line for each of
them. Tiles beat all of them for small boxes on two attributes, but take more than twice the memory
of slabs: only sets over the coordinates of a place get them. Value lists beat all of them where
nearly all subscriptions ask for values of one attribute that has many of them. Slabs and cells are
weighed by the time that each should take for an event; that of cell lists comes from their own
plan, that of slabs from the constants below, which were fitted to measurements. The other
structures are the papers' own, to compare with and to build on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from rangecast.device.devices import check_device_index
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.grid import cells_of, edges_of_bounds
from rangecast.match.cells.index import Cells
from rangecast.match.cells.plan import MAX_AXES, weigh
from rangecast.match.device import OnDevice
from rangecast.match.papers.hilbert import Hilbert
from rangecast.match.papers.vcr.index import Vcr
from rangecast.match.result import MatchRows
from rangecast.match.rtree import RTree
from rangecast.match.scan import Scan
from rangecast.match.shared.candidates import Sample, mark_disjoint
from rangecast.match.slabs.index import Slabs
from rangecast.match.terms.index import select
from rangecast.match.tiles import Tiles, grid_axes, plan
from rangecast.match.values.index import MAX_CODES, Values, best_axis, has_values
from rangecast.match.verified import Verified
from rangecast.model.answers.answerer import Choice
from rangecast.model.attributes.places import Place
from rangecast.model.boxes import Boxes
from rangecast.model.index_options import NO_OPTIONS, NamedIndex, Options, read_index
from rangecast.model.shapes.verification.places import without_places
from rangecast.model.space import Space


class Index(Protocol):
    """Protocol of a matching index."""

    name: str

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""

    def stream(self, points: F64) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in chunks of bounded size."""

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event."""

    @property
    def memory(self) -> int:
        """Size of all arrays in bytes."""


INDEXES: dict[str, Callable[..., Index]] = {
    "scan": Scan,
    "vcr": Vcr,
    "hilbert": Hilbert,
    "rtree": RTree,
    "slabs": Slabs,
    "cells": Cells,
    "tiles": Tiles,
    "values": Values,
}
"""Every matching structure by its name; built from `Boxes` and its options."""
OPTIONS: dict[str, Options] = {
    "auto": NO_OPTIONS,
    **{name: getattr(kind, "options", NO_OPTIONS) for name, kind in INDEXES.items()},
}
"""Options of each matching structure."""


def check_index(index: str) -> NamedIndex:
    """Parse an index name such as `vcr:side=16`; raise an error if it is invalid."""
    return read_index(index, OPTIONS)


_FEW = 1000
_UNINDEXED = 0.05
"""The share of boxes that may be bounded on attributes which cells don't index."""
_ONE_EACH = 1.5
"""Average attributes mentioned per box, up to which each group of attributes is a line."""
_ROOM, _TIMES = 1 << 26, 8
"""Memory allowed for cell lists: in bytes, and as a multiple of that of the boxes."""
_SLABS_EVENT, _SLABS_BOX, _SLABS_MATCH, _SLABS_DOUBT = 300.0, 0.002, 15.0, 6.0
"""Nanoseconds of slabs: of an event, a box in the set, a match, a box in doubt."""
_SLABS = 250
"""Slabs of an attribute."""
_MENTIONED = 0.9
"""The share of boxes that mention each of the two attributes of tiles."""
_TILE_MATCHES, _TILE_ENTRIES = 16.0, 48.0
"""Matches and boxes of a cell up to which tiles are taken."""
_UNLISTED, _LISTED = 1e-3, 2000.0
"""The share of boxes without a value, and the boxes of a value, up to which lists are taken."""
_VALUES_EVENT, _VALUES_SURE, _VALUES_TEST = 100.0, 0.7, 5.0
"""Nanoseconds of value lists: of an event, an entry that is copied, one that is compared."""
_MARGIN = 1.5
"""Speed-up that cell lists must promise: they take longer to build, and more memory."""


def choose(
    boxes: Boxes, index: str = "auto", memory: int | None = None, *, device: str | None = None
) -> Choice:
    """Return the requested index; `auto` chooses by the boxes and the available memory.

    memory   maximum bytes of boxes and cell lists together; for larger ones there are slabs

    A device has its own index. `auto` never chooses a device.
    """
    check_index(index)
    if device is not None:
        check_device_index(device, index)
        return Choice(device, "it was requested")
    if index != "auto":
        return Choice(index, "it was requested")
    boxes = without_places(boxes)
    if len(boxes.lo) < _FEW:
        return Choice("slabs", f"{len(boxes.lo):,} boxes: too few for an index to pay off")
    space, axes_of = boxes.space, np.flatnonzero(boxes.mentions.any(axis=0))
    if 0 < len(axes_of) < boxes.dimensions:  # attributes that no box mentions have no say
        boxes = Boxes.of(boxes.lo[:, axes_of], boxes.hi[:, axes_of], owner=boxes.owner)
    sample = Sample(boxes)
    # Each sampled event lies at an end of a sampled box, which holds it: one match too many.
    matches = max(0.0, sample.matches(range(boxes.dimensions)) - sample.scale)
    facts = f"{len(boxes.lo):,} boxes, about {matches:,.0f} contain an event"
    listed = _values_time(boxes, sample)
    if listed is not None and _MARGIN * listed < _slabs_time(boxes, sample, matches):
        return Choice("values", f"{facts}, found by their values of one attribute")
    axes = sample.axes(MAX_AXES)
    others = np.delete(boxes.mentions[sample.boxes], axes, axis=1).any(axis=1)
    if others.mean() > _UNINDEXED:
        return Choice("slabs", f"{facts}, bounded on more attributes than cells can index")
    if len(axes) > 1 and boxes.mentions[sample.boxes].sum(axis=1).mean() < _ONE_EACH:
        return Choice(
            "rtree", f"{facts}, bounded on one attribute each: a tree finds them directly"
        )
    entries = _tile_entries(boxes, sample, space, axes_of)
    if entries is not None and matches <= _TILE_MATCHES and entries <= _TILE_ENTRIES:
        return Choice("tiles", f"{facts}, small on two attributes: about {entries:.0f} a cell")
    held = boxes.lo.nbytes + boxes.hi.nbytes
    room = _ROOM + (_TIMES - 1) * held
    alone = np.empty(len(boxes.lo), np.bool_)
    mark_disjoint(boxes.lo, boxes.hi, boxes.owner, alone)
    best = min(weigh(boxes, sample, alone, room), key=lambda plan: plan.time, default=None)
    if memory is not None and best is not None and held + best.size > memory:
        best = None
    if best is None or _MARGIN * best.time > _slabs_time(boxes, sample, matches):
        return Choice("slabs", f"{facts}; cell lists would be slower or too large")
    size = f"{best.size / 1e6:,.0f} MB"
    return Choice("cells", f"{facts}; all of them fit into {size} of lists")


def _tile_entries(boxes: Boxes, sample: Sample, space: Space | None, axes_of: I64) -> float | None:
    """Estimate the number of boxes per tile; `None` if tiles don't suit this set."""
    mentioned = boxes.mentions[sample.boxes].mean(axis=0)
    if np.count_nonzero(mentioned > _MENTIONED) != 2 or np.count_nonzero(mentioned) != 2:
        return None
    axes = grid_axes(boxes)
    if len(axes_of) < 2 or not _are_of_a_place(space, axes_of[list(axes)].tolist()):
        return None
    grid = plan(boxes, axes)
    met = np.ones((len(sample.events), len(sample.lo)), np.bool_)
    for side, axis in enumerate(axes):
        first, last, cell = (
            grid.cells(array[:, axis], side) for array in (sample.lo, sample.hi, sample.events)
        )
        met &= (first <= cell[:, None]) & (cell[:, None] <= last)
    return np.count_nonzero(met) / max(1, len(met)) * sample.scale - sample.scale


def _are_of_a_place(space: Space | None, axes: list[int]) -> bool:
    """Return whether two axes are the coordinates of a place."""
    if space is None:
        return False
    places = [attribute for attribute in space if isinstance(attribute, Place)]
    return any(
        {space.axis(coordinate.name) for coordinate in place.coordinates} == set(axes)
        for place in places
    )


def _values_time(boxes: Boxes, sample: Sample) -> float | None:
    """Estimate the nanoseconds per event for value lists; `None` if they don't suit this set."""
    with np.errstate(invalid="ignore", over="ignore"):
        narrow = ((sample.hi - sample.lo) < MAX_CODES).mean(axis=0)
    axes = np.flatnonzero(narrow > 1 - _UNINDEXED)
    if not len(axes):
        return None
    axis = best_axis(boxes, axes.tolist())
    is_listed, counts = has_values(boxes, axis)
    always = len(counts) - np.count_nonzero(is_listed)
    if always > _UNLISTED * len(counts):
        return None
    _, sizes = np.unique(boxes.lo[is_listed, axis], return_counts=True)
    own = float((sizes.astype(np.float64) ** 2).sum() / sizes.sum())
    own *= float(counts[is_listed].mean())
    if own > _LISTED:
        return None
    is_sure = np.count_nonzero(boxes.mentions[is_listed], axis=1) == 1
    tested = own * float(1 - is_sure.mean()) + always
    return _VALUES_EVENT + _VALUES_SURE * own + _VALUES_TEST * tested


def _slabs_time(boxes: Boxes, sample: Sample, matches: float) -> float:
    """Estimate the nanoseconds per event for slabs."""
    met = np.ones((len(sample.events), len(sample.lo)), np.bool_)
    for axis in range(boxes.dimensions):
        edges = edges_of_bounds(boxes.lo[:, axis], boxes.hi[:, axis], _SLABS)
        first, last, cell = (
            cells_of(edges, array[:, axis]) for array in (sample.lo, sample.hi, sample.events)
        )
        met &= (first <= cell[:, None]) & (cell[:, None] <= last)
    shared = np.count_nonzero(met) / max(1, len(met)) * sample.scale - sample.scale
    doubt = max(0.0, shared - matches)
    cost = _SLABS_EVENT + _SLABS_BOX * len(boxes.lo)
    return cost + _SLABS_MATCH * matches + _SLABS_DOUBT * doubt


def build(boxes: Boxes, index: str = "auto", *, device: str | None = None) -> Index:
    """Build the index that `choose` selects."""
    free = without_places(boxes)
    if device is None:
        built = build_candidates(boxes, index)
    else:
        check_device_index(device, index)
        built = OnDevice(free, device)
    return built if free is boxes else Verified(built, boxes)


def build_candidates(boxes: Boxes, index: str = "auto") -> Index:
    """Build an index that finds candidates, which the caller must verify."""
    selected: Index = select(boxes, lambda free: _build_free(free, index))
    return selected


def _build_free(boxes: Boxes, index: str) -> Index:
    named = check_index(choose(boxes, index).name)
    return INDEXES[named.name](boxes, **named.arguments)
