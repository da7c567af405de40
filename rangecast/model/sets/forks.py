"""Sets with a lock that outlive a fork of their process.

A fork copies all memory but only one thread. So it waits until no other thread is in the middle of
an edit; the child then gets new locks, and forgets the threads that only its parent has.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """A set that is edited under a lock."""

    _edits: threading.RLock

    def _forked(self) -> None:
        """Forget the threads of the parent: this is the child."""


_SETS: WeakSet[Forkable] = WeakSet()
_FORKS = threading.RLock()
"""Held while a set is added, and by a thread that forks."""
_HELD: list[Forkable] = []


def outlive_forks(set_: Forkable) -> None:
    """Keep a set usable in children."""
    with _FORKS:
        _SETS.add(set_)


def _before() -> None:
    _FORKS.acquire()
    for set_ in list(_SETS):
        set_._edits.acquire()
        _HELD.append(set_)


def _after_in_parent() -> None:
    while _HELD:
        _HELD.pop()._edits.release()
    _FORKS.release()


def _after_in_child() -> None:
    global _FORKS
    _FORKS = threading.RLock()
    _HELD.clear()
    for set_ in list(_SETS):
        set_._edits = threading.RLock()
        set_._forked()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
