"""Kernels compiled ahead by another process, while this one answers with a slower structure.

Compiling takes longer than plain comparison in NumPy does, for a small set and some thousand
events. So until another process has compiled the kernels, a structure without any answers; then the
structure that suits the set is built and takes over. The answers are the same.

The process is `rangecast precompile VERB`. It is started once per verb, and continues if this
process ends: the next one finds its kernels. Not where kernels can't be kept on disk, and not if
the environment variable RANGECAST_COMPILE is `first`: then the process that needs a kernel compiles
it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rangecast.kernels.jit import cache_folder, is_compiled

_VARIABLE, _FIRST = "RANGECAST_COMPILE", "first"
WHY = "plain comparison, until the kernels of other structures are compiled"
"""Reason given by `explain` for an interim structure."""
_MAX_BOUNDS = 1_000_000
"""Number of bounds, over all attributes, beyond which a set waits for its kernels."""
_MAX_COMPARISONS = 1_500_000_000
"""Comparisons after which waiting for the kernels is cheaper: a few seconds' worth."""
Structure = TypeVar("Structure")
_lock = threading.Lock()
_started: dict[str, subprocess.Popen[bytes]] = {}


def must_wait(verb: str, *kernels: Callable[..., Any]) -> bool:
    """Return whether another process is compiling these kernels; start one if necessary."""
    with _lock:
        if verb not in _started:
            if all(map(is_compiled, kernels)) or cache_folder() is None:
                return False
            if os.environ.get(_VARIABLE) == _FIRST:
                return False
            command = [sys.executable, "-m", "rangecast", "precompile", verb, "--quiet"]
            try:
                _started[verb] = subprocess.Popen(
                    command,
                    env=os.environ | {_VARIABLE: _FIRST},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:  # no more processes: compile here
                return False
        return _started[verb].poll() is None


def wait(verb: str) -> None:
    """Wait until the compiling process, if any, has ended."""
    with _lock:
        process = _started.get(verb)
    if process is not None:
        process.wait()


def starts_with_numpy(bounds: int, verb: str, kernel: Callable[..., Any]) -> bool:
    """Return whether to start with NumPy: the set is small and its kernel isn't compiled yet."""
    return bounds <= _MAX_BOUNDS and must_wait(verb, kernel)


class Interim(Generic[Structure]):
    """An interim structure: answers in NumPy until the kernels are compiled or too many comparisons
    were made.
    """

    def __init__(
        self,
        verb: str,
        kernel: Callable[..., Any],
        plain: Structure,
        build: Callable[[], Structure],
    ):
        self.plain = plain
        self.built: Structure | None = None
        """The structure that took over."""
        self._verb, self._kernel, self._build = verb, kernel, build
        self._left = _MAX_COMPARISONS

    def answering(self, comparisons: int) -> Structure:
        """Return the structure to use for this many more comparisons."""
        if self.built is None:
            self._left -= comparisons
            if self._left > 0 and must_wait(self._verb, self._kernel):
                return self.plain
        return self.wait_until_built()

    def wait_until_built(self) -> Structure:
        """Wait until the kernels are compiled; build and return the structure that uses them."""
        if self.built is None:
            wait(self._verb)
            self.built = self._build()
        return self.built
