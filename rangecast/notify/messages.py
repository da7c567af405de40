"""Messages: an object, its value, and the rectangle of interests that it reaches.

An interest [l, r] is reached iff left_outer < l <= left_inner and right_inner <= r < right_outer.
Messages are applied in the order of (seq, ordinal): the number of the update, or of the batch, and
the number within it. An infinite value says that the object is gone: inf where the lowest value
ranks first, -inf where the highest does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited
from rangecast.kernels.jit import jit
from rangecast.model.answers.results import Results
from rangecast.model.display import ITEMS, brief, counted
from rangecast.model.space import Space

BYTES = 24
"""Bytes of a message on the wire, as paper 001 counts them."""
LETTER_BYTES = 16
"""Bytes of a message to a single subscriber, as sent by Unicast."""


class Message(NamedTuple):
    """One message. `arrival` ranks objects of equal value: the earlier one is better."""

    seq: int
    ordinal: int
    object: Any
    position: float
    value: float
    left_inner: float
    right_inner: float
    left_outer: float
    right_outer: float
    arrival: int

    @property
    def is_gone(self) -> bool:
        """Whether the object was removed."""
        return math.isinf(self.value)

    def reaches(self, lo: float, hi: float) -> bool:
        """Return whether it reaches the interest [lo, hi]."""
        return self.left_outer < lo <= self.left_inner and self.right_inner <= hi < self.right_outer


@edited
class Outbox(NamedTuple):
    """Output buffer of a kernel for messages; `tile` as in `Messages`."""

    event: I64
    ordinal: I64
    slot: I32
    arrival: I64
    x: F64
    y: F64
    tile: Annotated[F64, 2]

    @classmethod
    def of(cls, room: int) -> Outbox:
        """Return an empty outbox."""
        return cls(
            np.zeros(room, np.int64),
            np.zeros(room, np.int64),
            np.zeros(room, np.int32),
            np.zeros(room, np.int64),
            np.zeros(room),
            np.zeros(room),
            np.zeros((room, 4)),
        )


FIRST_K, MIN_Y, SNAP, PROBE = 0, 1, 2, 3
"""Indexes of call counters: see `Work`."""


class Work(NamedTuple):
    """Calls of each kind, as paper 001 counts them in section V."""

    first_k: int = 0
    min_y: int = 0
    """Includes the last call, which finds nothing."""
    snap: int = 0
    """One per tile that might be sent."""
    probe: int = 0
    """All other queries of the interests: whether tiles may be merged, how far lists reach."""


@jit
def post(
    out: Outbox,
    n: int,
    event: int,
    ordinal: int,
    slot: int,
    arrival: int,
    x: float,
    y: float,
    left_outer: float,
    left_inner: float,
    right_inner: float,
    right_outer: float,
) -> None:
    """Write message n."""
    out.event[n], out.ordinal[n] = event, ordinal
    out.slot[n], out.arrival[n], out.x[n], out.y[n] = slot, arrival, x, y
    tile = out.tile[n]
    tile[0], tile[1], tile[2], tile[3] = left_outer, left_inner, right_inner, right_outer


@dataclass(frozen=True, eq=False, repr=False)
class Messages(Results[Any]):
    """Messages in the order in which they are sent, one array per column."""

    seq: I64
    ordinal: I64
    objects: npt.NDArray[np.object_]
    """Id of the object of each message."""
    slot: I32
    arrival: I64
    position: F64
    value: F64
    tile: F64
    """left_outer, left_inner, right_inner, right_outer"""
    descending: bool = False
    """Whether the highest value ranks first."""
    space: Space | None = None
    """The space of the board, if it has one."""

    @classmethod
    def joined(cls, parts: list[Messages]) -> Messages:
        """Return the concatenation of messages."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        joined: dict[str, Any] = {
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(first)
            if isinstance(getattr(first, field.name), np.ndarray)
        }
        return replace(first, **joined)

    @property
    def bounds(self) -> F64:
        """Lower and upper limits of the bounds of the interests that each message reaches."""
        left_outer, left_inner, right_inner, right_outer = self.tile.T
        least = [np.nextafter(left_outer, np.inf), right_inner]
        return np.stack([*least, left_inner, np.nextafter(right_outer, -np.inf)], axis=1)

    def __len__(self) -> int:
        return len(self.seq)

    def __repr__(self) -> str:
        shown = zip(self.objects[:ITEMS], self.value[:ITEMS].tolist(), strict=True)
        first = ", ".join(f"{brief(name)} {_value(value)}" for name, value in shown)
        more = ", ..." if len(self) > ITEMS else ""
        return f"<Messages: {self._size()}{f': {first}{more}' if first else ''}>"

    def _size(self) -> str:
        return counted(len(self), "message")

    def _header(self) -> tuple[str, ...]:
        return "seq", "ordinal", "object", "value"

    def _cells(self, index: int) -> tuple[Any, ...]:
        seq, ordinal = int(self.seq[index]), int(self.ordinal[index])
        return seq, ordinal, self.objects[index], _value(float(self.value[index]))

    def _item(self, index: int) -> Any:
        left_outer, left_inner, right_inner, right_outer = self.tile[index].tolist()
        return Message(
            int(self.seq[index]),
            int(self.ordinal[index]),
            self.objects[index],
            float(self.position[index]),
            float(self.value[index]),
            left_inner,
            right_inner,
            left_outer,
            right_outer,
            int(self.arrival[index]),
        )

    def table(self) -> pa.Table:
        """Return all messages, with the columns of `Message`."""
        left_outer, left_inner, right_inner, right_outer = self.tile.T
        return pa.table(
            {
                "seq": self.seq,
                "ordinal": self.ordinal,
                "object": self.objects.tolist(),
                "position": self.position,
                "value": self.value,
                "left_inner": left_inner,
                "right_inner": right_inner,
                "left_outer": left_outer,
                "right_outer": right_outer,
                "arrival": self.arrival,
            }
        )


def _value(value: float) -> str:
    return "gone" if math.isinf(value) else repr(value)
