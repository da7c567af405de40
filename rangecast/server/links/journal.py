"""The server's log in the form that its broker reads.

A journal position is the seq of the last unit before a block. Events published here have the
numbers that the log's lineage assigns to their seqs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rangecast.errors import RangecastError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.text import String
from rangecast.overlay.broker.event_log import Block, JournalError
from rangecast.server.encoding import points_of, rows_of
from rangecast.server.json_text import within_depth
from rangecast.server.log.base import Log, Unit
from rangecast.server.pipeline.apply import WrittenRequest
from rangecast.server.pipeline.commands import Events
from rangecast.server.state.edits import EVENTS, EventsHead, events_of
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.lineage import Lineage

logger = logging.getLogger("rangecast.server")
SOURCE = "broker:"
"""Before the origin of events that came over a link, as the source that the log names."""
_RECENT = 16 << 20
"""Bytes of the newest blocks that stay in memory, so that links that keep up read no files."""
_PIECE = 4 << 20


@contextmanager
def _named(seq: int) -> Iterator[None]:
    """Add the log position to any error."""
    try:
        yield
    except Exception as error:
        reason = str(error) if isinstance(error, RangecastError) else repr(error)[:200]
        raise JournalError(f"the log can't be read at seq {seq}: {reason}") from error


class ServerJournal:
    """A `Journal` backed by the log; used by the broker's thread only."""

    def __init__(self, log: Log, lineage: Lineage, entry: SpaceEntry, name: str):
        self.durable = self.end = log.last
        self.last_event = 0
        """End of the last block noted or read."""
        self.gaps = 0
        """Number of times that a neighbour needed events deleted by retention."""
        self._log = log
        self._entry = entry
        self._space = entry.space
        self._strings = [
            attribute.name for attribute in entry.space if isinstance(attribute, String)
        ]
        self._lineage = lineage
        self._name = name
        self._recent: deque[tuple[int, int, Block]] = deque()
        self._recent_bytes = 0
        self._recent_from = log.last
        """Position from which on all blocks are in memory."""

    def note(self, written: Iterable[WrittenRequest], upto: int, *, is_whole: bool) -> None:
        """Store new blocks of the log, up to `upto`; `is_whole`: no block is left out."""
        if not is_whole:
            self._recent.clear()
            self._recent_bytes, self._recent_from = 0, upto
            self.last_event = upto
            return
        for unit in written:
            if isinstance(unit.request, Events) and unit.request.entry is self._entry:
                encoded = unit.request.encoded
                points = encoded.points_in(self._space)
                block = self._block(
                    unit.unit, unit.request.head, encoded.lines, encoded.rows, points
                )
                size = len(unit.unit.body)
                self._recent.append((unit.unit.first - 1, size, block))
                self._recent_bytes += size
                self.last_event = unit.unit.last
        while self._recent_bytes > _RECENT:
            position, size, block = self._recent.popleft()
            self._recent_bytes -= size
            self._recent_from = position + len(block)

    def append(self, block: Block) -> int:
        """Do nothing: the runner writes the log, and calls `note` afterwards."""
        return -1

    def drop(self, before: int) -> None:
        """Do nothing: retention drops old units."""

    def before_last(self, count: int) -> int:
        """Return the end of the log: no events are held in memory for links."""
        return self.durable

    def mark_of(self, number: int) -> bytes | None:
        """Return the checksum of the log up to an event published here, given its number."""
        seq = self._lineage.seq_of_number(number)
        if seq is None or seq > self._log.last:
            return None
        if seq < self._log.first:
            return b""
        with _named(seq):
            return next(
                (unit.chain for unit in self._log.read(seq - 1, 1) if unit.first <= seq), b""
            )

    def between(self, begin: int, end: int) -> Iterator[tuple[int, Block | None]]:
        """Yield the positions and blocks that begin in this part of the log."""
        at = begin
        while at < min(end, self._recent_from):
            with _named(at + 1):
                units = self._log.read(at, _PIECE)
            if not units:
                return
            if units[0].first > at + 1:
                self.gaps += 1
                logger.warning(
                    "links: seqs %s to %s are no longer in the log", at + 1, units[0].first - 1
                )
                at = units[0].first - 1
                yield at, None
            for unit in units:
                position = unit.first - 1
                if position >= min(end, self._recent_from):
                    break
                at = unit.last
                if position >= begin and unit.kind == EVENTS:
                    with _named(unit.first):
                        block = self._read(unit)
                    if block is not None:
                        self.last_event = max(self.last_event, unit.last)
                        yield position, block
            else:
                continue
            break
        for position, _, block in list(self._recent):
            if max(at, begin) <= position < end:
                yield position, block

    def _read(self, unit: Unit) -> Block | None:
        head, lines = events_of(unit)
        if (head.tenant, head.space) != (self._entry.tenant, self._entry.name):
            return None
        # A neighbour rejects what is too deep; an earlier version of this server may have taken it.
        lines = [within_depth(line) for line in lines]
        rows = rows_of(lines, head.form)
        return self._block(unit, head, lines, rows, points_of(rows, self._space))

    def _block(
        self,
        unit: Unit,
        head: EventsHead,
        lines: list[bytes],
        rows: list[dict[str, Any]],
        points: F64,
    ) -> Block:
        numbers, came, mark = head.numbers, bool(head.numbers), unit.chain
        if came:
            mark = bytes.fromhex(head.mark)
        else:
            first = self._lineage.number_of(unit.first)
            numbers = list(range(first, first + unit.length))
        return Block(
            origin=head.source.removeprefix(SOURCE) if came else self._name,
            after=numbers[0] - 1,
            upto=head.upto if came else numbers[-1],
            numbers=numbers,
            ids=list(numbers),  # the texts have them
            points=points,
            words={name: [row.get(name) for row in rows] for name in self._strings},
            priorities=[],
            hops=head.hops,
            came_over=head.over,
            texts=lines,
            form=head.form,
            mark=mark,
            lost=head.lost,
        )
