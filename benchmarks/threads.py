"""Batches on several threads: how many times as fast as on one, and what more they cost."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks import match_live
from benchmarks.frame import Report
from benchmarks.match import cases
from experiments.timing import DisagreementError
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64
from rangecast.model.threads import usable_cores
from rangecast.report.markdown import Table

ROUNDS = 7
ABOUT = f"""
`Engine.match_points` of a batch, on one thread and on one per usable core, turn by turn, the least
of {ROUNDS}. *Times as fast* is of the wall: it means something on an idle machine only. *Processor*
is what all threads took together, and *system* what of it went into fetching memory (the mean):
they say what threads waste, on any machine. The ids are compared.
"""


def run(report: Report, *, quick: bool) -> None:
    """Show a line per workload and kind of set."""
    threads = usable_cores()
    report.begin("Batches on several threads", ABOUT)
    rows = []
    for case in cases(quick=quick):
        made = case.made()
        for edited in (0, match_live.EDITED):
            engine = match_live.live_set(made.boxes, made.space, edited=edited)
            matches, wall, processor, system = _measured(engine, made.points, threads)
            about = f"{case.name}, {'edited' if edited else 'untouched'}"
            row = [about, matches, *wall, wall[0] / wall[1]]
            rows.append([*row, *processor, processor[1] / processor[0], *system])
    numbers = ("1 thread", f"{threads} threads")
    headings = ["workload", "matches", *(f"wall us, {n}" for n in numbers), "times as fast"]
    headings += [*(f"processor us, {n}" for n in numbers), "times as much"]
    headings += [f"system us, {n}" for n in numbers]
    report.table(Table("Per event", headings, rows))


def _measured(engine: Engine, points: F64, threads: int) -> tuple[float, F64, F64, F64]:
    """Return the matches and the microseconds of an event, on one thread and on several."""
    works = [partial(engine.match_points, points, threads=number) for number in (1, threads)]
    first, second = (work() for work in works)
    if any(sorted(first[place]) != sorted(second[place]) for place in range(0, len(first), 97)):
        raise DisagreementError("threads give other matches")
    matches = len(first.ids) / len(points)
    del first, second
    took = np.array([[_times(work) for work in works] for _ in range(ROUNDS)])
    wall, processor, system = np.moveaxis(took, 2, 0) / len(points) * 1e6
    return matches, wall.min(axis=0), processor.min(axis=0), system.mean(axis=0)


def _times(work: Callable[[], object]) -> tuple[float, float, float]:
    began = time.perf_counter(), time.process_time(), _system()
    work()
    ended = time.perf_counter(), time.process_time(), _system()
    wall, processor, system = (after - before for after, before in zip(ended, began, strict=True))
    return wall, processor, system


def _system() -> float:
    """Return the seconds that the system has worked for this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime
