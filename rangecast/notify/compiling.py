"""A warning before the kernels of boards are compiled, which takes a while.

A board has no slower structure that could answer in the meantime. The warning is logged once per
process, and only if kernels are not in the disk cache. Where logging isn't set up, it goes to
stderr.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any

from numba.core import event

LOGGER = logging.getLogger(__name__)
MESSAGE = (
    "compiling kernels of boards: only once per installation, up to a minute; "
    "`rangecast precompile notify` compiles them ahead"
)
_PACKAGE = __name__.rpartition(".")[0]


class _Warning(event.Listener):  # type: ignore[misc]
    """Listener that logs the warning when the first kernel of boards starts compiling."""

    def __init__(self) -> None:
        self._is_logged = False

    def on_start(self, event: event.Event) -> None:
        """Log the warning, unless it was."""
        kernel: Any = event.data["dispatcher"].py_func
        if not self._is_logged and kernel.__module__.startswith(_PACKAGE):
            self._is_logged = True
            LOGGER.warning(MESSAGE)
            if not LOGGER.disabled and not logging.getLogger().handlers:  # nothing shows logs
                print(MESSAGE, file=sys.stderr, flush=True)

    def on_end(self, event: event.Event) -> None:
        """Report nothing: the end of a compilation is of no interest."""


@cache
def warn_before_compiling() -> None:
    """Log a warning when the first kernel of boards must be compiled in this process."""
    event.register("numba:compile", _Warning())
