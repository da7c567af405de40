"""Ctrl-C and SIGTERM: both end a command with an exception, so that everything open is closed.

Python raises it wherever the program happens to be, and loses it in callbacks that can't propagate
exceptions, such as those of the import system. So code that imports many modules defers signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """End the block with exit code 143 on SIGTERM; a second one ends the process at once."""

    def end(number: int, _frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(128 + number)

    is_ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    if is_ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def until_interrupted(then: Callable[[], None] | None = None) -> Iterator[Callable[[], bool]]:
    """End a polling loop on Ctrl-C or SIGTERM; a second one ends the process at once.

    `then` is called at the first one.
    """
    came: list[int] = []

    def note(number: int, _frame: Any) -> None:
        if then is not None and not came:
            then()
        came.append(number)
        signal.signal(number, before[number])

    before: dict[int, Any] = {signal_: signal.signal(signal_, note) for signal_ in _ENDING}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        signal_: signal.signal(signal_, lambda number, _: came.append(number))
        for signal_ in _ENDING
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
