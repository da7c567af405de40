"""Plans: which faults come in an episode, in which order. A plan follows from its seed."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.soak.chaos.hostile import KINDS as HOSTILE

POINTS = ("kill_before_write", "kill_before_sync", "kill_after_sync")
ENDS = ("none", "kill", "power", "term")


@dataclass
class Round:
    """Some ops of all writers, and a fault while they work."""

    number: int
    fault: str
    ops: int
    """Of each writer."""
    after: int
    """Ops of all writers before the fault."""
    end: str = "none"
    """Fate of the server afterwards."""
    with_: dict[str, Any] = field(default_factory=dict)


@dataclass
class Plan:
    """An episode: a new server, and rounds."""

    seed: str
    rounds: list[Round]
    is_linked: bool = False
    has_follower: bool = False
    has_retention: bool = False
    writers: int = 3

    def to_json(self) -> str:
        """Return it as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan of a text."""
        given = json.loads(text)
        return cls(**given | {"rounds": [Round(**one) for one in given["rounds"]]})


FAULTS = {
    "calm": 1,
    "kill": 3,
    "kill-at": 5,
    "power": 4,
    "term": 3,
    "slow-disk": 2,
    "full-disk": 4,
    "io-error": 3,
    "clock": 3,
    "slow-reader": 1,
    "repeats": 4,
    "hostile": 4,
    "start-killed": 2,
    "quiet-restart": 2,
    "follower": 1,
}
"""Faults of one server, and how often each comes; a follower's come more often if there is one."""
LINK_FAULTS = {"cut": 3, "hold": 2, "delay": 1, "kill": 4, "power": 3, "kill-at": 3, "term": 1}


def made(seed: str, faults: set[str], rounds: int) -> Plan:
    """Return the plan of a seed, of some faults."""
    dice = random.Random(seed)
    is_any = len(faults) > 6

    def has(part: str, share: float) -> bool:
        """Return whether a part of an episode is chosen: if few faults are asked for, it is."""
        return part in faults and dice.random() < (share if is_any else 1)

    is_linked = has("links", 0.2)
    has_follower = not is_linked and has("follower", 0.4)
    has_retention = not is_linked and not has_follower and has("retention", 0.5)
    plan = Plan(seed, [], is_linked, has_follower, has_retention)
    kinds = LINK_FAULTS if is_linked else {one: n for one, n in FAULTS.items() if one in faults}
    if "follower" in kinds:
        kinds = kinds | {"follower": 15 if has_follower else 0}
    kinds = kinds if any(kinds.values()) else {"calm": 1}
    for number in range(1, rounds + 1):
        (fault,) = dice.choices([*kinds], [*kinds.values()])
        plan.rounds.append(_round(number, fault, dice, is_linked=is_linked))
    return plan


def _round(number: int, fault: str, dice: random.Random, *, is_linked: bool) -> Round:
    ops = dice.randint(8, 40)
    found = Round(number, fault, ops, dice.randint(0, 2 * ops))
    with_ = found.with_
    with_["server"] = dice.choice("ab")
    if fault in ("calm", "clock", "slow-disk"):
        found.end = dice.choice(ENDS)
    if fault == "kill-at":
        with_ |= {"point": dice.choice(POINTS), "count": dice.randint(1, 30)}
        with_["sync_delay"] = dice.choice([0, 0, 20_000])
        with_["is_power"] = dice.random() < 0.5
    elif fault == "slow-disk":
        with_ |= {"sync_delay": dice.randint(2_000, 60_000), "write_delay": dice.choice([0, 1000])}
    elif fault == "full-disk":
        with_ |= {"room": dice.choice([0, 0, 5_000, 40_000, 120_000])}
        with_["stage"] = dice.choice(["heal", "heal", "term", "start"])
    elif fault == "io-error":
        with_["what"] = dice.choice(["sync_errno", "sync_errno", "write_errno"])
        with_["is_power"] = dice.random() < 0.5
    elif fault == "clock":
        with_["jumps"] = dice.sample([-86_400, -3600, -5, 5, 3600, 3600, 86_400], 2)
        with_["is_right_again"] = dice.random() < 0.7
    elif fault == "repeats":
        with_ |= {"sync_delay": dice.randint(10_000, 60_000), "count": dice.randint(3, 25)}
        with_["how"] = dice.choice(["kill", "power", "full"])
    elif fault == "hostile":
        with_["kinds"] = dice.sample([*HOSTILE], 3)
        found.end = dice.choice(["kill", "kill", "term"])
    elif fault == "start-killed":
        with_ |= {"point": dice.choice(POINTS), "count": dice.randint(1, 12)}
    elif fault == "quiet-restart":
        with_["count"] = dice.randint(1, 20)
    elif fault == "follower":
        with_["what"] = dice.choice(["kill", "power", "cut", "hold", "term", "full"])
        found.end = dice.choice(["none", "none", "kill"])
    if is_linked:
        found.end = "none"
    return found
