"""A piece of a batch that is being searched, and its buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy.typing as npt

from rangecast.device.runtime import DeviceArray, Runtime
from rangecast.device.source import EVENTS
from rangecast.kernels.arrays import F64, AnyArray


class Slot:
    """Stream and buffers of a piece in flight; buffers only grow."""

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.stream = runtime.new_stream()
        self._arrays: dict[tuple[str, str], Any] = {}
        self._views: dict[tuple[str, str], Any] = {}
        """Those of them that were taken last, and their shapes."""

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
        view = held[:size].reshape(shape)
        self._views[name] = shape, view
        return view


@dataclass
class Flight:
    """A piece that is being searched."""

    slot: Slot
    first: int
    points: F64
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
    """Boxes that met tiles, the longest list, all matches: once the stream was waited for."""
    copy: AnyArray | None
    """The offsets in the host's memory, if they were asked for."""
    out: list[Any] = field(default_factory=list)

    @property
    def events(self) -> int:
        return len(self.points)

    @property
    def padded(self) -> int:
        return self.tiles * EVENTS

    @property
    def longest(self) -> int:
        return int(self.header[1])

    @property
    def total(self) -> int:
        return int(self.header[2])

    @property
    def has_room(self) -> bool:
        """Whether all matches fit into the lists."""
        return self.longest <= self.room
