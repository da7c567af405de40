"""Protocols of devices: memory, copies, streams and kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rangecast.device.source import Shape
from rangecast.kernels.arrays import AnyArray

DeviceArray = Any
"""An array in the device's memory. It can be sliced and reshaped as one of NumPy."""


class Kernels(Protocol):
    """The kernels, compiled for one shape."""

    def launch(
        self, name: str, blocks: int | tuple[int, int], threads: int, *args: Any, shared: int = 0
    ) -> None:
        """Launch a kernel on the current stream; args: arrays, NumPy scalars, or `None`."""


class Stream(Protocol):
    """Work executed in order; as a context manager, makes this the current stream."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: object) -> Any: ...
    def synchronize(self) -> None:
        """Wait until all work on the stream is done."""


class Runtime(Protocol):
    """A device and its memory."""

    name: str
    shared_memory: int
    """Bytes of shared memory that a block may have."""
    processors: int
    """Blocks that run at a time."""

    @property
    def free_memory(self) -> int:
        """Approximate free memory on the device in bytes."""

    def device(self) -> AbstractContextManager[Any]:
        """Return a context that makes this device current for the thread."""

    def compile(self, shape: Shape) -> Kernels:
        """Return the kernels compiled for a shape; the first call takes about a second."""

    def new_stream(self) -> Stream:
        """Return a new stream, concurrent with all others."""

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an uninitialised array."""

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an array of zeros, cleared on the current stream."""

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """Return a pinned host array: copies are asynchronous, and kernels can write to it."""

    def copy_in(self, target: DeviceArray, array: AnyArray) -> None:
        """Copy to the device on the current stream."""

    def copy_out(self, target: AnyArray, source: DeviceArray) -> None:
        """Copy to the host on the current stream."""

    def clear(self, array: DeviceArray) -> None:
        """Set all bytes to 0 on the current stream."""

    def synchronize(self) -> None:
        """Wait for the current stream."""

    def capture(self, stream: Any, work: Callable[[], object]) -> Callable[[], None]:
        """Record the launches of some work on the current stream; return a call that does them.

        The work allocates nothing and waits for nothing; pointers and numbers stay as they are.
        """


def upload(runtime: Runtime, array: npt.ArrayLike, dtype: npt.DTypeLike) -> DeviceArray:
    """Return a copy of an array on the device, with room for at least one item."""
    source = np.ascontiguousarray(array, dtype)
    target = runtime.empty((max(1, len(source)), *source.shape[1:]), dtype)
    if source.size:
        runtime.copy_in(target[: len(source)], source)
    return target
