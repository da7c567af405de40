"""The kernels of `rangecast/device/cuda` on a CPU: the same source, compiled by g++.

`EmulatedRuntime` takes the place of a GPU: arrays are NumPy's, streams do their work at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.device.source import Shape, source

COMPILER = shutil.which("g++")
WHY_NOT = (
    "no g++ to compile the kernels"
    if COMPILER is None
    else f"fibers are written for x86-64, not for {platform.machine()}"
    if platform.machine() != "x86_64"
    else ""
)
"""Why there is no emulator here; empty: there is one."""
_KERNEL = re.compile(
    r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^{]*?)\)\s*\{'
)


def _program() -> str:
    """The emulator, the kernels, and a function for each that takes the addresses of arguments."""
    text = source()
    macros = re.findall(r"#define (\w+_PARAMETERS) ((?:.*\\\n)*.*)\n", text)
    wrappers = []
    for name, parameters in _KERNEL.findall(text):
        given = re.sub(r"//.*", "", parameters)
        for macro, its in reversed(macros):  # later ones are made of earlier ones
            given = given.replace(macro, its.replace("\\\n", " "))
        types = [
            re.sub(r"\s*\b\w+$", "", each.replace("__restrict__", "").strip())
            for each in given.split(",")
        ]
        args = ", ".join(f"*({kind}*)args[{n}]" for n, kind in enumerate(types))
        wrappers.append(
            f'extern "C" int run_{name}(const int* grid, int threads, int shared, void** args) '
            f"{{ return run(grid, threads, shared, [=] {{ {name}({args}); }}); }}\n"
            f'extern "C" int count_{name}() {{ return {len(types)}; }}'
        )
    header = (Path(__file__).parent / "emulator.h").read_text()
    return "\n".join([header, "#define __restrict__", text, *wrappers])


def _library(shape: Shape) -> ctypes.CDLL:
    """Compile once; it is kept for other processes."""
    program = _program()
    flags = [f"-D{name}={value}" for name, value in shape.macros.items()]
    key = hashlib.sha256(repr((program, flags)).encode()).hexdigest()[:20]
    folder = Path(tempfile.gettempdir()) / "rangecast-cuda-emulator"
    folder.mkdir(exist_ok=True)
    path = folder / f"{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            (Path(own) / "program.cpp").write_text(program)
            made = Path(own) / "made.so"
            command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-fno-stack-protector"]
            command += [*flags, "-o", str(made), f"{own}/program.cpp"]
            subprocess.run(command, check=True)
            made.rename(path)
    return ctypes.CDLL(str(path))


class _Kernels:
    def __init__(self, runtime: EmulatedRuntime, shape: Shape):
        self.runtime = runtime
        self.library = _library(shape)

    def launch(self, name: str, blocks: Any, threads: int, *args: Any, shared: int = 0) -> None:
        self.runtime.do(partial(self._run, name, blocks, threads, *args, shared=shared))

    def _run(self, name: str, blocks: Any, threads: int, *args: Any, shared: int) -> None:
        grid = blocks if isinstance(blocks, tuple) else (blocks, 1)
        assert getattr(self.library, f"count_{name}")() == len(args), name
        held, addresses = [], []
        for each in args:
            if each is None or isinstance(each, np.ndarray):
                assert each is None or each.flags.c_contiguous
                value: Any = ctypes.c_void_p(None if each is None else each.ctypes.data)
                held.append(value)
                addresses.append(ctypes.addressof(value))
            else:
                scalar = np.array([each])
                assert isinstance(each, np.generic), f"{name}: {each!r}"
                held.append(scalar)
                addresses.append(scalar.ctypes.data)
        call = getattr(self.library, f"run_{name}")
        wrong = call(
            (ctypes.c_int * 2)(*grid), threads, shared, (ctypes.c_void_p * len(args))(*addresses)
        )
        assert not wrong, f"{name} wrote behind its shared memory"


class _Stream(nullcontext):
    def synchronize(self) -> None:
        pass


class _DeviceArray(np.ndarray):
    """An array that only kernels and copies may use."""


class EmulatedRuntime:
    """A GPU with a few processors and little shared memory."""

    name = "cuda"
    free_memory = 1 << 30

    def __init__(self, shared_memory: int = 99 << 10, processors: int = 2):
        self.shared_memory = shared_memory
        self.processors = processors
        self.compile = cache(lambda shape: _Kernels(self, shape._replace(filed=0, table_rows=0)))
        self.recorded: list[Callable[[], None]] | None = None
        """Launches, while they are captured."""
        self.replays = 0

    def do(self, launch: Callable[[], None]) -> None:
        """Launch at once, or later if launches are captured."""
        if self.recorded is None:
            launch()
        else:
            self.recorded.append(launch)

    def capture(self, stream, work):
        self.recorded = []
        work()
        launches, self.recorded = self.recorded, None

        def replay():
            self.replays += 1
            for launch in launches:
                launch()

        return replay

    def device(self):
        return nullcontext()

    def new_stream(self):
        return _Stream()

    def pinned(self, shape, dtype):
        assert self.recorded is None, "allocated while launches are captured"
        made = np.empty(shape, dtype)
        made.view(np.uint8).fill(0xA5)  # garbage, as on a device
        return made

    def empty(self, shape, dtype):
        return self.pinned(shape, dtype).view(_DeviceArray)

    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype).view(_DeviceArray)

    def copy_in(self, target, given):
        assert self.recorded is None
        assert isinstance(target, _DeviceArray)
        assert not isinstance(given, _DeviceArray)
        assert (target.dtype, target.shape) == (given.dtype, given.shape)
        target[...] = given

    def copy_out(self, target, given):
        assert isinstance(given, _DeviceArray)
        assert not isinstance(target, _DeviceArray)
        assert (target.dtype, target.shape) == (given.dtype, given.shape)
        target[...] = given

    def synchronize(self):
        pass

    def clear(self, array):
        self.do(lambda: array.fill(0))
