"""Runs: episode after episode, until the time is over or a promise is broken."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.soak.chaos.episode import Episode, SingleEpisode
from tests.soak.chaos.history import BrokenPromiseError
from tests.soak.chaos.linked import LinkedEpisode
from tests.soak.chaos.plan import FAULTS, Plan, made
from tests.soak.chaos.processes import Zygote
from tests.soak.chaos.shim import compiled

ALL = {*FAULTS, "retention", "links"}
ROUNDS = 8
"""Rounds of an episode."""


@dataclass
class Broken:
    """A promise that a plan has broken."""

    error: BrokenPromiseError
    plan: Plan
    folder: Path
    lines: list[str]
    """The history of what it is about."""
    round: int = 0
    """The rounds that had been played."""


@dataclass
class Run:
    """One run: its folder, its zygote and its numbers."""

    plant: str = ""
    say: Callable[[str], None] = print
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="chaos-")))
    numbers: Counter[str] = field(default_factory=Counter)
    _played: int = 0

    def __post_init__(self) -> None:
        self._zygote = Zygote(compiled(self.folder))

    def close(self, *, keep: bool = False) -> None:
        """End the zygote; delete the folder, unless it is to be kept."""
        self._zygote.end()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def play(self, plan: Plan, *, keep: bool = False) -> Broken | None:
        """Play an episode; return what it has broken. Its folder stays if something is."""
        self._played += 1
        folder = self.folder / f"episode-{self._played}"
        kind = LinkedEpisode if plan.is_linked else SingleEpisode
        episode: Episode = kind(self._zygote, folder, plan, self.numbers, self.plant, self.say)
        try:
            episode.run()
        except BrokenPromiseError as error:
            lines = episode.history.about(error.keys)
            return Broken(error, plan, folder, lines, episode.round)
        finally:
            episode.close()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        return None

    def until_broken(
        self, seed: int, faults: set[str], seconds: float, *, first: int = 1
    ) -> Broken | None:
        """Play the episodes of a seed, at least one, until the time is over."""
        end = time.monotonic() + seconds
        number = first
        while number == first or time.monotonic() < end:
            plan = made(f"{seed}/{number}", faults, ROUNDS)
            parts = {"links": plan.is_linked, "a follower": plan.has_follower}
            parts["retention"] = plan.has_retention
            said = ", ".join(name for name, has in parts.items() if has)
            self.say(f"episode {seed}/{number}{f' with {said}' if said else ''}")
            broken = self.play(plan)
            if broken is not None:
                return broken
            number += 1
        return None

    def shrunk(self, broken: Broken, seconds: float) -> Broken:
        """Return a smaller plan that breaks the same promise, as far as the time allows."""
        end = time.monotonic() + seconds
        best = broken
        best.plan = replace(best.plan, rounds=best.plan.rounds[: best.round])
        chunk = max(1, len(best.plan.rounds) // 2)
        while True:
            for smaller in [
                *_without(best.plan, chunk),
                *(_lighter(best.plan) if chunk == 1 else ()),
            ]:
                if time.monotonic() > end:
                    return best
                self.say(f"shrinking: {len(smaller.rounds)} rounds, {smaller.writers} writers")
                found = self.play(smaller)
                if found is not None and found.error.promise == broken.error.promise:
                    found.plan = replace(found.plan, rounds=found.plan.rounds[: found.round])
                    best = found
                    break
            else:
                if chunk == 1:
                    return best
                chunk //= 2


def _without(plan: Plan, chunk: int) -> list[Plan]:
    """Return plans that lack some rounds."""
    starts = range(0, len(plan.rounds), chunk) if len(plan.rounds) > 1 else ()
    cut = [plan.rounds[:at] + plan.rounds[at + chunk :] for at in starts]
    return [replace(plan, rounds=one) for one in cut if one]


def _lighter(plan: Plan) -> list[Plan]:
    """Return plans that do less in their rounds."""
    found = []
    if any(one.ops > 4 for one in plan.rounds):
        half = [replace(one, ops=max(4, one.ops // 2), after=one.after // 2) for one in plan.rounds]
        found.append(replace(plan, rounds=half))
    if plan.has_follower and all(one.fault != "follower" for one in plan.rounds):
        found.append(replace(plan, has_follower=False))
    if plan.has_retention:
        found.append(replace(plan, has_retention=False))
    return found
