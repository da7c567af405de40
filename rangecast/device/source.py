"""Source of the kernels, and the constants they are compiled with for a set and a device."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from rangecast.errors import UsageError

FILES = (
    "prelude",
    "codes",
    "order",
    "tile",
    "lists",
    "sift",
    "sparse",
    "finish",
    "unique",
    "top",
    "edits",
    "verify",
)
"""In this order they are one program."""
EVENTS = 1024
"""Events of a tile: one per thread of a block."""
MAX_FILED = 127
"""Attributes that boxes can be filed under: one byte, whose top bit says that there are more."""
_MAX_ROWS = 1023
"""Rows of a tile's table: ten bits, of which the last number says that a box is dead."""
_LEAST_ROWS, _ENOUGH_ROWS = 4, 24
"""Rows of an attribute: at least; and enough, so that codes need not leave shared memory."""
_RING, _QUEUE = 2048, 160


class Shape(NamedTuple):
    """Constants that the kernels are compiled with, and the size of a tile's tables."""

    lanes: int
    """Attributes that a box is filed under, at most."""
    chunk: int
    """Boxes that are searched between two barriers."""
    codes_shared: bool
    """Whether the fine codes of a tile lie in shared memory."""
    filed: int
    """Attributes that boxes are filed under."""
    table_rows: int
    """Rows of an attribute in a tile's table: three more than its coarse edges."""

    @property
    def macros(self) -> dict[str, int]:
        """Constants as macros of the source."""
        return {
            "LANES": self.lanes,
            "CHUNK": self.chunk,
            "CODES_SHARED": int(self.codes_shared),
        }

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a matching block in bytes."""
        fixed = _fixed_bytes(self.lanes, self.chunk)
        return fixed + _attribute_bytes(self.codes_shared, self.table_rows) * self.filed


def _fixed_bytes(lanes: int, chunk: int) -> int:
    """Return the bytes of shared memory of `match_sparse` that no attribute adds to."""
    record = 2 * lanes + (lanes + 3) // 4 + 1
    return 4 * (2 * chunk * record + _RING + EVENTS + 64) + 32 * _QUEUE * 8


def _attribute_bytes(codes_shared: bool, table_rows: int) -> int:
    """Return the shared memory per attribute: its rows, its hull, and codes if shared."""
    return table_rows * EVENTS // 8 + 8 + (2 * EVENTS if codes_shared else 0)


def shape_for(lanes: int, attributes: int, edges: int, shared_memory: int) -> Shape:
    """Return the shape for boxes with this many lanes and attributes, on a device.

    edges           max number of coarse edges that an attribute can use
    shared_memory   max shared memory of a block in bytes
    """
    filed = max(1, min(attributes, MAX_FILED))
    best: Shape | None = None
    for chunk, codes_shared in ((512, True), (256, True), (256, False), (128, False)):
        room = shared_memory - _fixed_bytes(lanes, chunk)
        own = _attribute_bytes(codes_shared, 0)
        fitting = min(filed, room // (own + _LEAST_ROWS * EVENTS // 8))
        if fitting < 1 or (fitting < filed and codes_shared):
            continue
        rows = min((room // fitting - own) * 8 // EVENTS, _MAX_ROWS // fitting, edges + 3)
        shape = Shape(lanes, chunk, codes_shared, fitting, max(rows, _LEAST_ROWS))
        if rows >= min(_ENOUGH_ROWS, edges + 3):
            return shape
        if best is None or (shape.filed, shape.table_rows) > (best.filed, best.table_rows):
            best = shape
    if best is None:
        raise UsageError(
            f"the device has {shared_memory:,} bytes of shared memory per block, which isn't enough"
        )
    return best


@cache
def source() -> str:
    """Return the source of all kernels."""
    folder = Path(__file__).parent / "cuda"
    return "\n".join((folder / f"{name}.cu").read_text("utf-8") for name in FILES)
