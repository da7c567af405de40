"""State that follows from a log: subscriptions, messages, boards; unit by unit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.soak.chaos.model.boards import BoardState
from tests.soak.chaos.model.findings import Findings
from tests.soak.chaos.model.matcher import Filter, matches, parsed
from tests.soak.chaos.model.segments import Unit

SECOND = 1_000_000


class Subscription(NamedTuple):
    """A subscription that lives."""

    name: str
    filter: str
    wanted: Filter
    consumer: str
    score: float
    expires: int


class Event(NamedTuple):
    """An event of the log."""

    key: str
    """Its id as JSON."""
    values: dict[str, Any]
    at: int
    origin: str
    number: int
    """Of one that came over a link: its seq where it was published."""
    matched: list[str]
    """The subscriptions that match it."""


class Match(NamedTuple):
    """A message that a consumer has to get."""

    names: list[str]
    score: float
    at: int
    event: str


@dataclass
class State:
    """All that a log says up to `seq`."""

    seq: int = 0
    events: dict[int, Event] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    """The seqs of each event, by its id."""
    edits: dict[int, dict[str, Any]] = field(default_factory=dict)
    live: dict[str, Subscription] = field(default_factory=dict)
    expected: dict[str, dict[int, Match]] = field(default_factory=dict)
    """By consumer and seq."""
    budgets: dict[str, int] = field(default_factory=dict)
    boards: dict[str, BoardState] = field(default_factory=dict)
    updates: dict[int, dict[str, Any]] = field(default_factory=dict)
    acks: dict[str, int] = field(default_factory=dict)
    """By consumer: the highest position that was written."""
    broker_names: set[str] = field(default_factory=set)
    sets: dict[int, dict[str, tuple[str, str, float]]] = field(default_factory=dict)
    """The live set after each unit that changed it."""
    objects: dict[int, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    """The objects of boards, (y, x), after each unit that changed them."""

    def take(self, unit: Unit, findings: Findings) -> None:
        """Apply the next unit."""
        if unit.kind == "events":
            self._take_events(unit)
        elif unit.kind == "edits":
            for seq, edit in enumerate(json.loads(unit.body), unit.first):
                self._take_edit(seq, edit, unit.at, findings)
            self.sets[unit.last] = self.shown()
        elif unit.kind == "acks":
            for key, seq in json.loads(unit.body).items():
                consumer = key.partition("/")[2]
                self.acks[consumer] = max(self.acks.get(consumer, 0), seq)
        elif unit.kind == "updates":
            head, *lines = unit.body.split(b"\n")
            header = json.loads(head)
            changes = [json.loads(line) for line in lines]
            for seq, change in enumerate(changes, unit.first):
                self.updates[seq] = change
            board = self.boards[header["board"]]
            for seq, consumer, lists in board.update(
                changes, unit.first, is_batch=header.get("is_batch", False)
            ):
                self._lists(seq, consumer, lists)
            self.objects[unit.last] = {
                label: {name: [y, x] for name, (y, x, _) in one.objects.items()}
                for label, one in self.boards.items()
            }
        self.seq = unit.last

    def shown(self) -> dict[str, tuple[str, str, float]]:
        """Return the live set as clients see it."""
        return {one.name: (one.filter, one.consumer, one.score) for one in self.live.values()}

    def set_at(self, seq: int) -> dict[str, tuple[str, str, float]]:
        """Return the live set at a seq."""
        return _at(self.sets, seq)

    def objects_at(self, seq: int, board: str) -> dict[str, list[float]]:
        """Return the objects of a board at a seq."""
        return _at(self.objects, seq).get(board, {})

    def _take_events(self, unit: Unit) -> None:
        head, *lines = unit.body.split(b"\n")
        told = json.loads(head)
        numbers = told.get("numbers") or [0] * len(lines)
        for seq, (line, number) in enumerate(zip(lines, numbers, strict=True), unit.first):
            values = json.loads(line)
            key = json.dumps(values.get("id"))
            origin = told.get("source", "").removeprefix("broker:") if number else ""
            matched = [one for one in self.live.values() if matches(one.wanted, values)]
            names = sorted(one.name for one in matched)
            self.events[seq] = Event(key, values, unit.at, origin, number, names)
            self.places.setdefault(key, []).append(seq)
            by_consumer: dict[str, list[Subscription]] = {}
            for one in matched:
                if one.consumer:
                    by_consumer.setdefault(one.consumer, []).append(one)
            for consumer, some in by_consumer.items():
                found = Match(
                    sorted(one.name for one in some), max(one.score for one in some), unit.at, key
                )
                self.expected.setdefault(consumer, {})[seq] = found

    def _take_edit(self, seq: int, edit: dict[str, Any], at: int, findings: Findings) -> None:
        self.edits[seq] = edit
        what, name = edit["op"], edit["name"]
        if what == "subscribe":
            self.live[name] = Subscription(
                name,
                edit["filter"],
                parsed(edit["filter"]),
                edit.get("consumer", ""),
                edit.get("score", 0.0),
                edit.get("expires", 0),
            )
        elif what == "unsubscribe":
            gone = self.live.pop(name, None)
            if gone is not None and 0 < gone.expires <= at:
                edit["was_expiring"] = True
            if gone is None:
                findings.add("live-set", f"the edit at {seq} ends {name!r}, which isn't there")
        elif what == "put-consumer":
            self.budgets[name] = edit.get("max_per_second", 0)
        elif what == "delete-consumer":
            for one in [one for one in self.live.values() if one.consumer == name]:
                del self.live[one.name]
        elif what == "put-board":
            self.boards[name] = BoardState(edit["k"])
        elif what == "put-interest":
            board = self.boards[edit["board"]]
            for consumer, lists in board.put(edit):
                self._lists(seq, consumer, lists)
        elif what == "delete-interest":
            self.boards[edit["board"]].interests.pop(name, None)
        elif what == "put-broker":
            self.broker_names.add(name)

    def _lists(self, seq: int, consumer: str, lists: dict[str, Any]) -> None:
        found = Match(sorted(lists), 0.0, 0, json.dumps(lists, sort_keys=True))
        self.expected.setdefault(consumer, {})[seq] = found

    def wanted(self, consumer: str, after: int = 0) -> dict[int, tuple[Match, int]]:
        """Return the messages of a consumer by seq, with what a budget sheds; those of events after
        a seq alone, if those before it are gone.
        """
        found = {seq: one for seq, one in self.expected.get(consumer, {}).items() if seq > after}
        budget = self.budgets.get(consumer, 0)
        if not budget:
            return {seq: (one, 0) for seq, one in found.items()}
        seconds: dict[int, list[int]] = {}
        for seq, one in found.items():
            seconds.setdefault(one.at // SECOND, []).append(seq)
        kept: dict[int, tuple[Match, int]] = {}
        for seqs in seconds.values():
            best = sorted(sorted(seqs, key=lambda seq: (-found[seq].score, seq))[:budget])
            for seq in best:
                kept[seq] = found[seq], len(seqs) - len(best) if seq == best[-1] else 0
        return kept


def _at(known: dict[int, Any], seq: int) -> Any:
    before = [one for one in known if one <= seq]
    return known[max(before)] if before else {}
