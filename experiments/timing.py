"""Time several works in turn on the same data, and compare their answers.

Seconds are those of a core (`clock`), not of the wall: other work on the machine disturbs them
less. The rounds alternate between works, and the least counts.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
Key = TypeVar("Key")
Clock = Callable[[], float]


class DisagreementError(AssertionError):
    """A contestant's answer isn't the right one."""


@dataclass
class Seconds:
    """Seconds of several runs."""

    runs: list[float] = field(default_factory=list)

    @property
    def least(self) -> float:
        """The fastest run; infinite if there was none."""
        return min(self.runs, default=float("inf"))

    @property
    def spread(self) -> float:
        """Ratio of the slowest run to the fastest."""
        return max(self.runs) / self.least if self.runs else 1.0


@dataclass
class Timed(Seconds, Generic[Answer]):
    """The runs of some work, and the answer of the last one."""

    answer: Answer = None  # type: ignore[assignment]


def timed(work: Callable[[], Answer], clock: Clock = time.process_time) -> tuple[Answer, float]:
    """Return an answer and the seconds that it took."""
    began = clock()
    answer = work()
    return answer, clock() - began


def race(
    works: Mapping[Key, Callable[[], Callable[[], Answer]]],
    *,
    rounds: int = 3,
    clock: Clock = time.process_time,
    same: Callable[[Answer, Answer], bool] | None = None,
) -> dict[Key, Timed[Answer]]:
    """Time works turn by turn, and compare their answers with the first one's.

    Each prepares itself untimed: it is a function that returns what is timed.
    """
    gc.collect(1)  # what came before isn't charged to them; a whole collection takes too long
    results: dict[Key, Timed[Answer]] = {name: Timed() for name in works}
    for _ in range(rounds):
        for name, prepare in works.items():
            results[name].answer, took = timed(prepare(), clock)
            results[name].runs.append(took)
    first, *others = results
    for name in others:
        if same is not None and not same(results[first].answer, results[name].answer):
            raise DisagreementError(f"{name} and {first} give different answers")
    return results


def best_of(
    work: Callable[[], Answer], rounds: int = 3, clock: Clock = time.process_time
) -> Timed[Answer]:
    """Time one work, which can be repeated as it is."""
    return race({"": partial(partial, work)}, rounds=rounds, clock=clock)[""]


def machine(packages: Sequence[str]) -> str:
    """Return a sentence with the processor and the versions of packages."""
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    cores = f"{_processor()}, {os.cpu_count()} cores"
    return f"Machine: {cores}. Python {platform.python_version()}, {versions}."


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
