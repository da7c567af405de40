"""A piece of a batch that is being searched, and its buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy.typing as npt

from rangecast.device.runtime import DeviceArray, Runtime
from rangecast.device.source import EVENTS
from rangecast.errors import UsageError
from rangecast.kernels.arrays import AnyArray

HEADER = 5
"""Numbers that a search sends to the host (`cuda/finish.cu`); the last one tells NaN."""
_MET, _LONGEST, _MOST, _TOTAL, HAS_NAN = range(HEADER)


class Slot:
    """Stream and buffers of a piece in flight; buffers only grow."""

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.stream = runtime.new_stream()
        self.version = 0
        """Changes whenever a buffer is replaced."""
        self._arrays: dict[tuple[str, str], Any] = {}
        self._views: dict[tuple[str, str], Any] = {}
        """The arrays that were taken last, with their shapes."""

    def array(self, name: str, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return a device array with arbitrary contents."""
        return self._taken(("device", name), shape, dtype, self.runtime.empty)

    def pinned(self, name: str, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """Return a pinned host array."""
        taken: AnyArray = self._taken(("host", name), shape, dtype, self.runtime.pinned)
        return taken

    def _taken(
        self, name: tuple[str, str], shape: Any, dtype: Any, make: Callable[..., Any]
    ) -> Any:
        last = self._views.get(name)
        if last is not None and last[0] == shape:
            return last[1]
        size = prod(shape) if isinstance(shape, tuple) else shape
        held = self._arrays.get(name)
        if held is None or held.size < size:
            self._arrays[name] = self._views[name] = None
            held = self._arrays[name] = make(max(1, size), dtype)
            self.version += 1
        view = held[:size].reshape(shape)
        self._views[name] = shape, view
        return view


@dataclass
class Flight:
    """A piece that is being searched."""

    slot: Slot
    first: int
    events: int
    tiles: int
    splits: int
    room: int
    order: DeviceArray
    coded: tuple[Any, ...]
    lists: tuple[Any, ...]
    found: DeviceArray
    """The lists of matches: (splits x padded, room)."""
    counts: DeviceArray
    starts: DeviceArray
    offsets: DeviceArray
    header: AnyArray
    """Written by the search: valid once the stream was waited for."""
    copy: AnyArray | None
    """The offsets in the host's memory, if they were asked for."""
    unique_header: AnyArray | None = None
    """The header of the lists without repetitions."""
    out: list[Any] = field(default_factory=list)

    @property
    def padded(self) -> int:
        return self.tiles * EVENTS

    @property
    def met(self) -> int:
        """Number of boxes that intersected the hull of a tile."""
        return int(self.header[_MET])

    @property
    def longest(self) -> int:
        """Matches in the longest list."""
        return int(self.header[_LONGEST])

    @property
    def most(self) -> int:
        """Matches of the event that has the most."""
        return int(self.header[_MOST])

    @property
    def total(self) -> int:
        """Number of matches, each box counted."""
        return int(self.header[_TOTAL])

    @property
    def total_unique(self) -> int:
        """Number of matches, each subscription counted once per event."""
        return self.total if self.unique_header is None else int(self.unique_header[_TOTAL])

    @property
    def has_room(self) -> bool:
        """Whether all matches fit into the lists."""
        return self.longest <= self.room

    def check(self) -> None:
        """Raise an error if an event holds NaN, once the stream was waited for."""
        if self.header[HAS_NAN]:
            raise UsageError("points must not contain NaN")
