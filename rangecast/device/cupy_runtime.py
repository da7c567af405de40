"""NVIDIA GPUs through CuPy, which compiles the kernels and caches them on disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.device.runtime import DeviceArray
from rangecast.device.source import Shape, source
from rangecast.errors import UsageError
from rangecast.kernels.arrays import AnyArray

_HINT = (
    "hint: pip install 'rangecast[gpu]' on a machine with an NVIDIA GPU, or leave the device out"
)
_LEAST_CAPABILITY = 80
"""Compute capability 8.0: the kernels copy to shared memory asynchronously, and reduce by warp."""


def _imported() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise UsageError(
            f"the device 'cuda' requires CuPy, which can't be imported: {error}\n  {_HINT}"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UsageError(f"the device 'cuda' found no GPU: {error}\n  {_HINT}") from error
    if not count:
        raise UsageError(f"the device 'cuda' found no GPU\n  {_HINT}")
    return cupy


class CupyKernels:
    """The kernels, compiled by NVRTC."""

    def __init__(self, cupy: Any, shape: Shape):
        options = ("-std=c++17", *(f"-D{name}={value}" for name, value in shape.macros.items()))
        self._module = cupy.RawModule(code=source(), options=options)
        self._functions: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}

    def launch(
        self, name: str, blocks: int | tuple[int, int], threads: int, *args: Any, shared: int = 0
    ) -> None:
        """Launch a kernel on the current stream."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._module.get_function(name)
        if shared > self._allowed.get(name, 48 << 10):
            function.max_dynamic_shared_size_bytes = shared
            self._allowed[name] = shared
        grid = blocks if isinstance(blocks, tuple) else (blocks,)
        passed = [each.ctypes.data if type(each) is np.ndarray else each for each in args]
        function(grid, (threads,), tuple(passed), shared_mem=shared)


class CupyRuntime:
    """Runtime of CuPy's current device."""

    name = "cuda"

    def __init__(self) -> None:
        self._cupy = _imported()
        self._device = self._cupy.cuda.Device()
        if int(self._device.compute_capability) < _LEAST_CAPABILITY:
            raise UsageError(
                "the device 'cuda' requires a GPU of compute capability 8.0 or newer; "
                f"given: {self._device.compute_capability}"
            )
        attributes = self._device.attributes
        self.shared_memory = int(attributes["MaxSharedMemoryPerBlockOptin"])
        self.processors = int(attributes["MultiProcessorCount"])
        self._compiled = cache(lambda shape: CupyKernels(self._cupy, shape))

    @property
    def free_memory(self) -> int:
        """Free device memory in bytes, including CuPy's memory pool."""
        pool = self._cupy.get_default_memory_pool()
        return int(self._device.mem_info[0]) + int(pool.free_bytes())

    def device(self) -> AbstractContextManager[Any]:
        """Return a context that makes this device current for the thread."""
        context: AbstractContextManager[Any] = self._device
        return context

    def compile(self, shape: Shape) -> CupyKernels:
        """Return the kernels compiled for a shape."""
        kernels: CupyKernels = self._compiled(shape._replace(filed=0, table_rows=0))
        return kernels

    def new_stream(self) -> Any:
        """Return a new stream, concurrent with all others."""
        return self._cupy.cuda.Stream(non_blocking=True)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an uninitialised array."""
        return self._cupy.empty(shape, dtype)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an array of zeros."""
        return self._cupy.zeros(shape, dtype)

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> AnyArray:
        """Return a pinned host array from a pool; it is returned when no longer referenced."""
        kind = np.dtype(dtype)
        count = prod(shape) if isinstance(shape, tuple) else shape
        size = count * kind.itemsize
        step = max(4096, 1 << max(0, size.bit_length() - 3))  # the pool knows exact sizes only
        memory = self._cupy.cuda.alloc_pinned_memory(-(-max(1, size) // step) * step)
        return np.frombuffer(memory, kind, count).reshape(shape)

    def copy_in(self, target: DeviceArray, array: AnyArray) -> None:
        """Copy to the device on the current stream; asynchronous from pinned memory."""
        target.set(array, stream=self._cupy.cuda.get_current_stream())

    def copy_out(self, target: AnyArray, source: DeviceArray) -> None:
        """Copy to the host on the current stream, asynchronously."""
        source.get(out=target, blocking=False)

    def clear(self, array: DeviceArray) -> None:
        """Set all bytes to 0 on the current stream."""
        array.data.memset_async(0, array.nbytes)

    def synchronize(self) -> None:
        """Wait for the current stream."""
        self._cupy.cuda.get_current_stream().synchronize()

    def capture(self, stream: Any, work: Callable[[], object]) -> Callable[[], None]:
        """Record the launches of some work as a CUDA graph; return a call that launches it."""
        stream.begin_capture()
        try:
            work()
        finally:
            graph = stream.end_capture()
        return partial(graph.launch, stream)
