"""Multithreaded processing of a batch of events: number of threads, chunks and execution.

Kernels release the GIL, so threads that call them use several cores. A thread takes one chunk of
events at a time and keeps its result as one chunk: nothing is concatenated, and threads wait for
one another only at the end.

Threads take turns, one per core, over all batches of the process. With more of them at work, the
thread that holds the GIL would wait for a core while others, which have a core, wait for the GIL:
eight threads on two cores would be slower than one. A few events, which may be on an event loop,
take no turn, and others wait for one not much longer than they take.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.bits import LANES
from rangecast.model.validation.arguments import check_integer

Threads = int | str
"""A number of threads; "auto": one per usable core, fewer for small batches."""
Piece = TypeVar("Piece")
Result = TypeVar("Result")

MIN_EVENTS = 2 * LANES
"""Minimum number of events per thread, unless a number of threads is given."""
_PIECE, _TURNS = 8 * LANES, 4
"""Events of a piece at least, and pieces that a thread takes one after the other. So a piece with
many matches doesn't keep the other threads waiting; and the memory of smaller results is used again
for the next ones, while large arrays go back to the system, page by page."""
_FEW = 64
"""Events below which a chunk takes no turn."""
_WAIT, _MAX_WAIT = 1e-5, 0.05
"""Seconds per event, and in all, after which a thread goes on without a turn: turns save time,
nothing depends on them."""
_turns = SimpleQueue[int]()
_this_thread = threading.local()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def number_of_threads(threads: Threads, events: int) -> int:
    """Return the number of threads to use for this many events."""
    if threads == "auto":
        return max(1, min(usable_cores(), events // MIN_EVENTS))
    if isinstance(threads, str):
        raise UsageError(
            'threads must be a whole number, at least 1, or "auto"\n'
            f"  given: {abbreviate(threads)}\n"
            '  hint: give an integer, such as threads=2, or "auto" for all cores'
        )
    return min(check_integer("threads", threads), max(1, events))


def pieces_of(events: int, threads: int) -> list[slice]:
    """Split events into consecutive chunks."""
    turns = max(1, min(_TURNS, events // (threads * _PIECE)))
    size = -(-events // (threads * turns))
    if size > LANES:  # structures take this many events together
        size = -(-size // LANES) * LANES
    return [slice(first, first + size) for first in range(0, max(1, events), max(1, size))]


def _make_turns() -> None:
    """Make one turn per core; again after a fork, as threads of the parent may have taken some."""
    global _turns
    _turns = SimpleQueue()
    for core in range(usable_cores()):
        _turns.put(core)


_make_turns()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_make_turns)


def never_wait() -> None:
    """Let this thread work without turns: others wait for what it does."""
    _this_thread.never_waits = True


def in_turn(work: Callable[[Piece], Result], piece: Piece, events: int) -> Result:
    """Apply `work` to a piece of some events, in a turn if one is free within the time to wait."""
    if events < _FEW or getattr(_this_thread, "never_waits", False):
        return work(piece)
    turns, turn = _turns, None
    try:
        with suppress(Empty):
            turn = turns.get(timeout=min(_MAX_WAIT, _WAIT * events))
        return work(piece)
    finally:
        if turn is not None:
            turns.put(turn)


def side_by_side(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], threads: int
) -> list[Result]:
    """Apply `work` to each piece in parallel, on this thread, too; return the results in order."""
    results = dict[int, Result]()
    waiting = iter(range(len(pieces)))  # its next item can be taken by any thread

    def take() -> None:
        try:
            for index in waiting:
                results[index] = work(pieces[index])
        finally:  # after an error, no thread begins another piece
            for _ in waiting:
                pass

    others = min(threads, len(pieces)) - 1
    if others < 1:
        take()
    else:
        with ThreadPoolExecutor(others) as pool:
            running = [pool.submit(take) for _ in range(others)]
            take()
            for future in running:
                future.result()
    return [results[index] for index in range(len(pieces))]
