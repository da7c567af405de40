"""Kernels compiled ahead by another process, while this one answers in a plainer way.

The process is `rangecast warm VERB`. It is started once per verb, and goes on if this process ends:
the next one finds its kernels. Not where kernels can't be kept on disk, and not if the environment
variable RANGECAST_COMPILE is `first`: then whoever needs a kernel compiles it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from rangecast.kernels.jit import cache_folder, is_compiled

_VARIABLE, _FIRST = "RANGECAST_COMPILE", "first"
_lock = threading.Lock()
_started: dict[str, subprocess.Popen[bytes]] = {}


def must_wait(verb: str, *kernels: Callable[..., Any]) -> bool:
    """Whether these kernels are being compiled by another process; begin that if need be."""
    with _lock:
        if verb not in _started:
            if all(map(is_compiled, kernels)) or cache_folder() is None:
                return False
            if os.environ.get(_VARIABLE) == _FIRST:
                return False
            command = [sys.executable, "-m", "rangecast", "warm", verb, "--quiet"]
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
    """Wait until the process has ended, if there is one."""
    with _lock:
        process = _started.get(verb)
    if process is not None:
        process.wait()
