"""The baseline: a compiled scan of all boxes.

Layout: `held` lists the boxes in any order, `place` is the position of a box in it; a removed box
is replaced by the last. Cost: a search reads boxes until it has found enough, one or two
coordinates of most of them. The boxes stay in the store, mostly contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.cover.index import SearchParameters, consider, is_enough, register
from rangecast.cover.store import Store, dominates
from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bundle import Bundle, edited
from rangecast.kernels.jit import jit


@edited
class ScanState(NamedTuple):
    """Arrays of the scan."""

    held: I32
    place: I32
    size: I64
    """(1,) number of boxes."""


@jit
def _insert(index: ScanState, _store: Store, box: int) -> None:
    index.place[box] = index.size[0]
    index.held[index.size[0]] = box
    index.size[0] += 1


@jit
def _drop(index: ScanState, box: int) -> None:
    index.size[0] -= 1
    last = index.held[index.size[0]]
    index.held[index.place[box]] = last
    index.place[last] = index.place[box]


@jit
def _search(
    index: ScanState, store: Store, parameters: SearchParameters, box: int, out: I32, filled: int
) -> tuple[int, int, int]:
    for at in range(index.size[0]):
        other = index.held[at]
        holds = dominates(store, box, other) if parameters.down else dominates(store, other, box)
        if holds:
            filled = consider(store, parameters, other, out, filled)
            if is_enough(parameters, filled):
                return filled, 0, at + 1
    return filled, 0, index.size[0]


@jit
def _room(_index: ScanState) -> int:
    return 1 << 40  # `reserve` has made it


register(ScanState, _insert, _drop, _search, _room)


class Scan:
    """Covering by a scan, without an index."""

    name = "scan"

    def __init__(self, dimensions: int):
        none = np.empty(0, np.int32)
        self.state = Bundle(ScanState(none, none, np.zeros(1, np.int64)))

    def reserve(self, boxes: int) -> None:
        self.state = self.state.grown(held=boxes, place=boxes)

    def make_room(self, inserts: int) -> None:
        """Do nothing: there is always room for every box of the store."""

    def held(self) -> I64:
        state = self.state.arrays
        return np.asarray(state.held[: state.size[0]], np.int64)

    def hold(self, store: Bundle[Store], boxes: I64) -> None:
        state = self.state.arrays
        state.held[: len(boxes)] = boxes
        state.place[boxes] = np.arange(len(boxes))
        state.size[0] = len(boxes)
