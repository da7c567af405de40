"""Proof of deliveries: what a consumer got, compared with what its log says it had to get.

It goes through the log with one `Engine` over the consumer's subscriptions, by their ids: another
way than the server's own, which matches in batches, by numbers, or by versions of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rangecast.engine import Engine
from rangecast.errors import FileError, RangecastError, UsageError
from rangecast.model.space import Space
from rangecast.server.budget_reader import SECOND
from rangecast.server.encoding import rows_of
from rangecast.server.prove_board import BoardProof, in_words
from rangecast.server.records import (
    EDITS,
    EVENTS,
    UPDATES,
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
    edits_of,
    events_of,
)
from rangecast.server.sqlite_log import checked_units, segments


class _Object(msgspec.Struct):
    object: str
    y: float


class _List(msgspec.Struct):
    interest: str
    best: list[_Object]


class _Delivered(msgspec.Struct):
    position: str
    subscriptions: list[str] | None = None
    lists: list[_List] | None = None

    def names(self) -> list[str]:
        """Return what it is about: subscriptions, or lists in words."""
        if self.subscriptions is not None:
            return self.subscriptions
        if self.lists is None:
            raise ValueError("has neither")
        return [in_words(one.interest, [(o.object, o.y) for o in one.best]) for one in self.lists]


@dataclass
class Verdict:
    """What was found."""

    expected: int = 0
    """Messages that the consumer had to get."""
    missing: int = 0
    extra: int = 0
    differing: int = 0
    repeated: int = 0
    samples: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether everything came, and nothing else."""
        return not (self.missing or self.extra or self.differing)

    def note(self, text: str) -> None:
        """Keep the first few differences."""
        if len(self.samples) < 5:
            self.samples.append(text)


def proved(folder: Path, tenant: str, consumer: str, delivered: Path) -> Verdict:
    """Compare messages in a file, JSON lines as they came, with the log."""
    if not folder.is_dir() or not segments(folder):
        raise UsageError(f"{folder}: no log is there; expected: the folder given to serve --data")
    if segments(folder)[0] > 1:
        raise UsageError(
            f"{folder}: the log has lost its beginning to retention; deliveries can be proved only "
            "from the first seq on"
        )
    got, verdict = _read(delivered), Verdict()
    came: dict[int, list[str]] = {}
    for seq, names in got:
        verdict.repeated += seq in came
        came[seq] = names
    for seq, wanted in _expected(folder, tenant, consumer):
        verdict.expected += 1
        found = came.pop(seq, None)
        if found is None:
            verdict.missing += 1
            verdict.note(f"seq {seq} never came; it is for {', '.join(wanted[:5])}")
        elif sorted(found) != sorted(wanted):
            verdict.differing += 1
            verdict.note(f"seq {seq} came for {found[:5]}, and is for {wanted[:5]}")
    verdict.extra = len(came)
    for seq in sorted(came)[:5]:
        verdict.note(f"seq {seq} came, and isn't for this consumer")
    return verdict


def _read(path: Path) -> Iterator[tuple[int, list[str]]]:
    decode = msgspec.json.Decoder(_Delivered).decode
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    one = decode(line)
                    yield int(one.position.partition(":")[2]), one.names()
                except (msgspec.DecodeError, ValueError) as error:
                    raise FileError(
                        f"{path}, line {number}: not a message with position and subscriptions, "
                        f"or lists: {error}"
                    ) from None
    except OSError as error:
        raise FileError(f"{path}: can't be read: {error.strerror}") from None


def _expected(folder: Path, tenant: str, consumer: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each event that a consumer had to get, with the subscriptions that it matches."""
    set_of, board = _Set(tenant, consumer), BoardProof(tenant, consumer)
    for unit in checked_units(folder):
        if unit.kind == EDITS:
            set_of.apply(edits_of(unit), unit.first)
            yield from board.edits(edits_of(unit), unit.first)
        elif unit.kind == UPDATES:
            yield from board.updates(unit)
        elif unit.kind == EVENTS and set_of.engine is not None:
            head, lines = events_of(unit)
            if (head.tenant, head.space) == (tenant, set_of.space):
                found = set_of.engine.match_many(rows_of(lines, head.form), ignore_unknown=True)
                for seq, names in enumerate(found, unit.first):
                    if names and seq > set_of.start:
                        yield from set_of.due(seq, unit.at // SECOND, [str(one) for one in names])
    yield from set_of.rest()
    if set_of.space is None and board.board is None:
        raise UsageError(f"{folder}: the log knows no consumer {consumer!r} of tenant {tenant!r}")


class _Set:
    """The subscriptions of one consumer, as the edits of a log make them."""

    def __init__(self, tenant: str, consumer: str):
        self.space: str | None = None
        self.engine: Engine | None = None
        self.start = 0
        self._best = self._budget = 0
        self._scores: dict[str, float] = {}
        self._came: dict[str, tuple[int, str]] = {}
        """Of all subscriptions of the space: the seq that first put it, and its consumer."""
        self._second = -1
        self._waiting: list[tuple[float, int, list[str]]] = []
        """What a budget may still shed: score, seq, names."""
        self._tenant = tenant
        self._consumer = consumer
        self._spaces: dict[str, Space] = {}

    def apply(self, edits: Iterable[AnyEdit], first: int) -> None:
        """Carry out edits, as far as they matter to this consumer."""
        for place, edit in enumerate(edits):
            if edit.tenant == self._tenant:
                self._apply(edit, first + place)

    def due(self, seq: int, second: int, names: list[str]) -> Iterator[tuple[int, list[str]]]:
        """Take an event with what it matches; yield what is known to be due by that."""
        names.sort(key=lambda one: (-self._scores[one], self._came[one]))
        score = self._scores[names[0]]
        if self._best:
            del names[self._best :]
        if not self._budget:
            yield seq, names
            return
        if second != self._second:
            yield from self.rest()
        self._second = second
        self._waiting.append((-score, seq, names))

    def rest(self) -> Iterator[tuple[int, list[str]]]:
        """Yield what is due of the last second."""
        kept = sorted(self._waiting)[: self._budget]
        self._waiting.clear()
        yield from sorted((seq, names) for _, seq, names in kept)

    def _apply(self, edit: AnyEdit, seq: int) -> None:
        mine = self._consumer
        match edit:
            case PutSpace():
                self._spaces[edit.name] = Space.from_definition(edit.definition)
                if edit.name == self.space and self.engine is not None:
                    self._move(self._spaces[edit.name])
            case PutConsumer() if edit.name == mine and not edit.board:
                if self.engine is None:
                    self.space, self.engine = edit.space, Engine(self._spaces[edit.space])
                    self.start = seq if edit.start < 0 else edit.start
                    self._best, self._budget = edit.best, edit.budget
                elif edit.start >= 0 or (edit.best, edit.budget) != (self._best, self._budget):
                    raise RangecastError(
                        f"the consumer was moved, or got another 'best' or 'budget', at seq {seq}: "
                        "what it got can't be proved"
                    )
            case DeleteConsumer():
                gone = [one for one, (_, owner) in self._came.items() if owner == edit.name]
                for name in gone:
                    del self._came[name]
                if edit.name == mine:
                    self.engine = None
            case PutSubscription() if self.engine is not None and edit.space == self.space:
                self._came[edit.name] = self._came.get(edit.name, (seq, ""))[0], edit.consumer
                if edit.name in self.engine:
                    self.engine.unsubscribe(edit.name)
                if edit.consumer == mine:
                    self.engine.subscribe(edit.name, edit.filter)
                    self._scores[edit.name] = edit.score
            case DeleteSubscription() if self.engine is not None and edit.space == self.space:
                self._came.pop(edit.name, None)
                if edit.name in self.engine:
                    self.engine.unsubscribe(edit.name)

    def _move(self, space: Space) -> None:
        """The space has grown: the same filters, in the new one."""
        assert self.engine is not None
        old, self.engine = self.engine, Engine(space)
        for name in old:
            self.engine.subscribe(name, old[name].filter)
