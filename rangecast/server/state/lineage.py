"""Lineage of a log: the epochs of its history, so that seqs of different histories aren't confused.

A server that was restored from an older copy, or a follower that takes over, assigns seqs that were
assigned before. So every start that writes begins an *epoch*, a name for everything that it writes:
its first unit records the epoch, and is part of the log, of its copies and of its snapshots. A
position `epoch:seq` is valid if its epoch belongs to this log, and the seq isn't past the end of
that epoch here: up to there both histories are the same. Any other position belongs to a history
that was lost.

Over links an event is identified by a number instead, which grows from epoch to epoch: the first
number of an epoch is the time of its beginning. So a server that lost part of its log doesn't reuse
a number, unless its clock goes back; `overlay.broker` handles that case.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rangecast.server.delivery.messages import Message, PositionError, position
from rangecast.server.log.base import new_epoch
from rangecast.server.state.edits import BeginEpoch
from rangecast.server.state.entries import Epoch
from rangecast.server.state.registry import Registry

_TICK = 100
"""Nanoseconds per number: no server writes ten million events per second."""


class LostPositionError(PositionError):
    """A position belongs to a diverged history: everything after the fork is lost."""

    def __init__(self, text: str, upto: str, resume: int | None):
        self.given = text
        self.upto = upto
        """Position of the fork, or the start of this log if that isn't known."""
        self.resume = resume
        """`upto` as a seq; `None` if unknown."""
        where = f"they diverge after {upto}" if resume is not None else "the fork isn't known"
        super().__init__(
            f"the position {text[:80]!r} is of another history than this log's: {where}\n"
            "  hint: this server was restored from a copy, or has replaced another; continue at "
            f"{upto!r}, 'start' or 'now'; later entries of the other history are lost"
        )


class Lineage:
    """The epochs of a log, oldest first."""

    def __init__(self, root: str, registry: Registry):
        """`root`: the epoch of the log until the registry has others."""
        self._root = (Epoch(root, 1, 1, ""),)
        self._registry = registry
        self.ended = ""
        """The epoch that has ended, as long as nothing was written after it."""

    @property
    def _epochs(self) -> tuple[Epoch, ...]:
        return self._registry.epochs or self._root

    @property
    def epoch(self) -> str:
        """Current epoch."""
        return self._epochs[-1].name

    @property
    def names(self) -> list[str]:
        """Names of all epochs, newest first."""
        return [epoch.name for epoch in reversed(self._epochs)]

    def at(self, seq: int) -> str:
        """Return the epoch that a seq was written in."""
        return self._of(seq).name

    def _of(self, seq: int) -> Epoch:
        for epoch in reversed(self._epochs):
            if epoch.first <= seq:
                return epoch
        return self._epochs[0]

    def shown(self, messages: Sequence[Message]) -> list[bytes]:
        """Return messages in ascending order as JSON objects."""
        last = self._epochs[-1]
        if messages and messages[0].seq >= last.first:
            name = last.name
            return [message.json(name) for message in messages]
        return [message.json(self.at(message.seq)) for message in messages]

    def next(self, last: int, chain: bytes, above: int = 0) -> BeginEpoch:
        """Return the edit that begins a new epoch after the last unit; its first number is greater
        than all before it and than `above`.
        """
        number = max(self.number_of(last), above) + 1
        number = max(number, time.time_ns() // _TICK)
        return BeginEpoch("", new_epoch(), self.epoch, number, chain.hex())

    # ---- positions

    def seq_of(self, text: str, last: int, first: int = 1) -> int:
        """Return the seq of a position; reject a malformed one, or one of another history.

        `first` and `last` are the bounds of this log.
        """
        name, _, digits = text.partition(":")
        if not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
            raise PositionError(
                f"a position must be a string such as {self.epoch}:123, as in messages\n"
                f"  given: {text[:80]!r}"
            )
        seq, end = int(digits), self._end_of(name, last)
        if end is None:
            raise LostPositionError(text, position(self.epoch, first - 1), None)
        if seq <= end:
            return seq
        if name == self.epoch != self.ended:
            raise PositionError(f"the position {text!r} is after the end of the log, {name}:{last}")
        raise LostPositionError(text, position(name, end), end)

    def _end_of(self, name: str, last: int) -> int | None:
        """Return the last seq of an epoch; `None` if it isn't one of this log."""
        end = last
        for epoch in reversed(self._epochs):
            if epoch.name == name:
                return end
            end = epoch.first - 1
        return None

    # ---- numbers

    def number_of(self, seq: int) -> int:
        """Return the number by which other servers know a seq."""
        lineage = self._of(seq)
        return lineage.number + seq - lineage.first

    def seq_of_number(self, number: int) -> int | None:
        """Return the seq of a number; `None` if this log never used it."""
        end: int | None = None
        for epoch in reversed(self._epochs):
            if epoch.number <= number:
                seq = epoch.first + number - epoch.number
                return seq if end is None or seq <= end else None
            end = epoch.first - 1
        return None
