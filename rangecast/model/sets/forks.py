"""Sets with a lock that survive a fork of their process.

A fork copies all memory but only one thread. So it waits until no other thread is in the middle of
an edit, nor compiling a kernel; the child then gets new locks, and drops its references to the
parent's threads.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet

from numba.core.compiler_lock import global_compiler_lock


class Forkable(Protocol):
    """Set that is edited under a lock."""

    _edits: threading.RLock

    def _forked(self) -> None:
        """Drop the parent's threads; called in the child process."""


_SETS: WeakSet[Forkable] = WeakSet()
_FORKS = threading.RLock()
"""Held while a set is added, and by a thread that forks."""
_HELD: list[Forkable] = []


def register_for_forks(set_: Forkable) -> None:
    """Register a set to stay usable in child processes."""
    with _FORKS:
        _SETS.add(set_)


def _before() -> None:
    _FORKS.acquire()
    for set_ in list(_SETS):
        set_._edits.acquire()
        _HELD.append(set_)
    global_compiler_lock.acquire()  # last: an edit may compile


def _after_in_parent() -> None:
    global_compiler_lock.release()
    while _HELD:
        _HELD.pop()._edits.release()
    _FORKS.release()


def _after_in_child() -> None:
    global _FORKS
    global_compiler_lock.release()
    _FORKS = threading.RLock()
    _HELD.clear()
    for set_ in list(_SETS):
        set_._edits = threading.RLock()
        set_._forked()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
