"""Verify deliveries: compare the messages that a consumer got with those that its log implies.

The log is read again with a `DeliveryOracle`, which shares no code with the server's matching: that
uses an index, numbers and past versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rangecast.errors import FileError, RangecastError, UsageError
from rangecast.server.delivery.rate_limit_reader import SECOND
from rangecast.server.encoding import rows_of
from rangecast.server.log.segment import checked_units, segments
from rangecast.server.state.edits import (
    EDITS,
    EVENTS,
    TRANSITIONS,
    UPDATES,
    AnyEdit,
    DeleteConsumer,
    PutConsumer,
    edits_of,
    events_of,
)
from rangecast.server.verify.boards import BoardOracle, in_words
from rangecast.server.verify.oracle import DeliveryOracle
from rangecast.server.verify.tracks import TracksOracle


class _Object(msgspec.Struct):
    object: str
    value: float


class _List(msgspec.Struct):
    interest: str
    best: list[_Object]


class _ReceivedMessage(msgspec.Struct):
    position: str
    subscriptions: list[str | int] | None = None
    transition: str | None = None
    id: str = ""
    """Id of a transition."""
    lists: list[_List] | None = None

    def names(self) -> list[str]:
        """Return the content as text: subscriptions, a transition, or lists."""
        if self.transition is not None:
            return [self.id]
        if self.subscriptions is not None:
            return [str(subscription) for subscription in self.subscriptions]
        if self.lists is None:
            raise ValueError("has neither")
        return [
            in_words(name.interest, [(o.object, o.value) for o in name.best]) for name in self.lists
        ]


@dataclass
class Report:
    """Result of a verification."""

    expected: int = 0
    """Messages that the consumer had to get."""
    missing: int = 0
    extra: int = 0
    differing: int = 0
    repeated: int = 0
    samples: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether everything arrived, and nothing else."""
        return not (self.missing or self.extra or self.differing)

    def note(self, text: str) -> None:
        """Record a difference, if it is one of the first few."""
        if len(self.samples) < 5:
            self.samples.append(text)


def verify_deliveries(folder: Path, tenant: str, consumer: str, delivered: Path) -> Report:
    """Compare delivered messages, in a file of JSON lines, with the log."""
    if not folder.is_dir() or not segments(folder):
        raise UsageError(f"{folder}: no log found; expected: the folder given to serve --data")
    if segments(folder)[0] > 1:
        raise UsageError(
            f"{folder}: retention has removed the start of the log; deliveries can only be "
            "verified from the first seq on"
        )
    got, report = _read(delivered), Report()
    came: dict[int, list[str]] = {}
    for seq, names in got:
        report.repeated += seq in came
        came[seq] = names
    for seq, wanted in _expected(folder, tenant, consumer):
        report.expected += 1
        came_for = came.pop(seq, None)
        if came_for is None:
            report.missing += 1
            report.note(f"seq {seq} never arrived; expected for {', '.join(wanted[:5])}")
        elif sorted(came_for) != sorted(wanted):
            report.differing += 1
            report.note(f"seq {seq} arrived for {came_for[:5]}; expected for {wanted[:5]}")
    report.extra = len(came)
    for seq in sorted(came)[:5]:
        report.note(f"seq {seq} arrived, but isn't for this consumer")
    return report


def _read(path: Path) -> Iterator[tuple[int, list[str]]]:
    decode = msgspec.json.Decoder(_ReceivedMessage).decode
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    message = decode(line)
                    yield int(message.position.partition(":")[2]), message.names()
                except (msgspec.DecodeError, ValueError) as error:
                    raise FileError(
                        f"{path}, line {number}: not a message with position and subscriptions, "
                        f"or lists: {error}"
                    ) from None
    except OSError as error:
        raise FileError(f"{path}: can't be read: {error.strerror}") from None


def _expected(folder: Path, tenant: str, consumer: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each event that a consumer must get, with the matching subscriptions."""
    judge, mine = DeliveryOracle(tenant, consumer), _Consumer(tenant, consumer)
    board, tracks = BoardOracle(tenant, consumer), TracksOracle(tenant, consumer)
    for unit in checked_units(folder):
        if unit.kind == EDITS:
            edits = edits_of(unit)
            judge.apply(edits, unit.first)
            mine.apply(edits, unit.first)
            yield from board.edits(edits, unit.first)
            tracks.edits(edits, unit.first)
        elif unit.kind == UPDATES:
            yield from board.updates(unit)
        elif unit.kind == TRANSITIONS:
            for seq, transition, score in tracks.written(unit):
                if seq > mine.start:
                    yield from mine.due(seq, unit.at // SECOND, [transition], score)
        elif unit.kind == EVENTS:
            head, lines = events_of(unit)
            tracks.events(head, rows_of(lines, head.form), unit.first)
            if not mine.is_there:
                continue
            if (head.tenant, head.space) == (tenant, mine.space):
                matched = judge.recipients(head.space, rows_of(lines, head.form))
                for seq, wanted in enumerate(matched, unit.first):
                    if wanted is None:
                        raise RangecastError(f"{folder}: the event of seq {seq} can't be used")
                    names = wanted.get(consumer)
                    if names and seq > mine.start:
                        score = judge.score(head.space, names[0])
                        yield from mine.due(seq, unit.at // SECOND, names, score)
    yield from mine.rest()
    tracks.check_end()
    if not mine.space and board.board is None:
        raise UsageError(f"{folder}: the log has no consumer {consumer!r} of tenant {tenant!r}")


class _Consumer:
    """A consumer of a space as defined by the log, and the messages due to it."""

    def __init__(self, tenant: str, name: str):
        self.space = ""
        self.is_there = False
        self.start = 0
        self._options = 0, 0
        """Its `max_per_event` and `max_per_second`."""
        self._second = -1
        self._waiting: list[tuple[float, int, list[str]]] = []
        """Messages that the rate limit may still drop: score, seq, names."""
        self._tenant = tenant
        self._name = name

    def apply(self, edits: Iterable[AnyEdit], first: int) -> None:
        """Apply the edits that concern this consumer."""
        for seq, edit in enumerate(edits, first):
            if (edit.tenant, edit.name) == (self._tenant, self._name):
                self._apply(edit, seq)

    def _apply(self, edit: AnyEdit, seq: int) -> None:
        match edit:
            case PutConsumer(board="") if not self.is_there:
                self.is_there, self.space = True, edit.space
                self.start = seq if edit.start < 0 else edit.start
                self._options = edit.max_per_event, edit.max_per_second
            case PutConsumer(board=""):
                if edit.start >= 0 or (edit.max_per_event, edit.max_per_second) != self._options:
                    raise RangecastError(
                        f"the consumer was moved, or got another rate limit, at seq {seq}, so its "
                        "messages can't be verified"
                    )
            case DeleteConsumer():
                self.is_there = False

    def due(
        self, seq: int, second: int, names: list[str], score: float
    ) -> Iterator[tuple[int, list[str]]]:
        """Add an event with its matches; yield the deliveries that are due."""
        _, limit = self._options
        if not limit:
            yield seq, names
            return
        if second != self._second:
            yield from self.rest()
        self._second = second
        self._waiting.append((-score, seq, names))

    def rest(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the messages due in the last second."""
        _, limit = self._options
        kept = sorted(self._waiting)[:limit]
        self._waiting.clear()
        yield from sorted((seq, names) for _, seq, names in kept)
