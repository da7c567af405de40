"""Ops of writers: lists that follow from a seed, whatever the server answers.

Everything that is put is told from all else: events by their id, subscriptions by their filter,
interests by a bound, objects by their value.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

CONSUMERS = ("pulled", "socket", "streamed", "budget")
NAMES = [f"s{n}" for n in range(16)]
OBJECTS = [f"o{n}" for n in range(8)]
INTERESTS = [f"i{n}" for n in range(4)]
PLAIN = {
    "single": 24,
    "few": 12,
    "matches": 6,
    "many": 1,
    "arrow": 1,
    "gzip": 1,
    "part": 3,
    "keyed": 5,
    "dedup": 5,
    "late": 4,
    "reset": 2,
    "put": 12,
    "bulk": 1,
    "brief": 1,
    "delete": 4,
    "updates": 6,
    "batch": 2,
    "remove": 1,
    "interest": 2,
}
"""Frequency of each kind of op."""
REPEATS = {"keyed": 10, "dedup": 10, "late": 4, "single": 4, "put": 2}


@dataclass
class Op:
    """A request of a writer."""

    kind: str
    code: int
    """A number that no other op of the episode has."""
    events: list[dict[str, Any]] = field(default_factory=list)
    puts: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    name: str = ""
    position_lo: float = 0.0
    attempts: int = 1
    rejected: list[int] = field(default_factory=list)
    """Rows that can't be taken."""


class Workload:
    """The ops of one writer, round by round."""

    def __init__(self, seed: str, writer: int):
        self._seed, self._writer = seed, writer
        self._repeatable: list[Op] = []

    def ops(self, number: int, count: int, weights: dict[str, int]) -> list[Op]:
        """Return the ops of a round."""
        dice = random.Random(f"{self._seed}/{self._writer}/{number}")
        kinds = dice.choices([*weights], [*weights.values()], k=count)
        return [
            self._op(one, number * 100_000 + self._writer * 10_000 + at, dice)
            for at, one in enumerate(kinds)
        ]

    def _op(self, kind: str, code: int, dice: random.Random) -> Op:
        op = Op(kind, code)
        if kind == "late":
            if self._repeatable:
                return dice.choice(self._repeatable)
            op.kind = kind = "single"
        if kind in ("single", "reset"):
            op.events = self._events(code, 1, dice)
        elif kind in ("few", "matches", "part", "gzip"):
            op.events = self._events(code, dice.randint(2, 5), dice)
            if kind == "part":
                row = dice.randrange(len(op.events))
                op.events[row]["x"], op.rejected = "much", [row]
        elif kind in ("many", "arrow"):
            op.events = self._events(code, dice.randint(257, 300), dice)
        elif kind in ("keyed", "dedup"):
            op.events = self._events(code, dice.randint(1, 4), dice)
            op.attempts = dice.randint(1, 4)
            self._repeatable.append(op)
        elif kind in ("put", "brief"):
            op.puts = [self._put(code, dice)]
            if kind == "brief":
                op.puts[0] |= {"name": f"t{code}", "ttl": dice.choice([1, 2])}
        elif kind == "bulk":
            some = dice.sample(NAMES, dice.randint(2, 5))
            op.puts = [
                self._put(code * 10 + at, dice) | {"name": one} for at, one in enumerate(some)
            ]
        elif kind == "delete":
            op.name = dice.choice(NAMES)
        elif kind in ("updates", "batch"):
            op.changes = [
                {"id": one, "value": code + at / 64, "position": float(dice.randint(0, 99))}
                for at, one in enumerate(dice.sample(OBJECTS, dice.randint(1, 3)))
            ]
            for one in op.changes:
                one["value"] = round(dice.randint(0, 99) + one["value"] / 1e9, 12)
        elif kind == "remove":
            op.name = dice.choice(OBJECTS)
        elif kind == "interest":
            op.name, op.position_lo = dice.choice(INTERESTS), dice.randint(0, 60) + code / 1e9
        return op

    def _events(self, code: int, count: int, dice: random.Random) -> list[dict[str, Any]]:
        return [
            {"id": f"e{code}-{at}", "x": dice.randint(0, 99), "y": dice.randint(0, 198) / 2}
            for at in range(count)
        ]

    def _put(self, code: int, dice: random.Random) -> dict[str, Any]:
        lo = dice.randint(0, 80)
        text = f"x >= {lo} and x <= {lo + dice.randint(5, 40)} and y > -{code}.5"
        if dice.random() < 0.3:
            text += f" or y <= {dice.randint(0, 30)} and x < {dice.randint(10, 99)}"
        return {
            "name": dice.choice(NAMES),
            "filter": text,
            "consumer": dice.choice(CONSUMERS),
            "score": float(dice.randint(0, 9)),
        }


def rows_of(events: list[dict[str, Any]]) -> list[list[Any]]:
    """Return events as the history has them: their ids as JSON, and their numbers."""
    return [
        [json.dumps(one["id"]), {key: one[key] for key in ("x", "y") if key in one}]
        for one in events
    ]
