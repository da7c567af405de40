"""Many seeds of the simulator, over the cores of this machine."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rangecast.overlay.simulation.run import Outcome, simulate

_AT_ONCE = 20
"""Number of seeds per task of a process."""


def outcomes(
    seeds: Sequence[int], processes: int = 0, progress: Callable[[int], None] = lambda _: None
) -> list[Outcome]:
    """Simulate seeds in several processes, 0: one per core; in order."""
    workers = processes or os.cpu_count() or 1
    if workers == 1 or len(seeds) <= _AT_ONCE:
        return [_simulated(seed, progress) for seed in seeds]
    outcomes_ = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(simulate, seeds, chunksize=_AT_ONCE):
            outcomes_.append(outcome)
            progress(1)
    return outcomes_


def _simulated(seed: int, progress: Callable[[int], None]) -> Outcome:
    outcome = simulate(seed)
    progress(1)
    return outcome


def total(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Return the summed counts of all outcomes."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    return counts
