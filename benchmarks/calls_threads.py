"""Many threads, and many tasks, on one engine: throughput beside an editing thread, and p99."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import expected
from rangecast.async_engine import AsyncEngine
from rangecast.engine import Engine
from rangecast.model.threads import usable_cores
from rangecast.report.markdown import Table
from rangecast.workloads import Workload

THREADS, TASKS = 8, 1_000
BATCHES = (1, 64, 512)
ROUNDS = 3
LEAST = 1.7
"""Times one thread's throughput, on two cores with batches of 64 and more."""
_EDITED = 16
"""Subscriptions that the editing thread replaces at a time."""
_PAUSE = 0.01


def threads(made: Workload, events: list[dict[str, Any]], engine: Engine, seconds: float) -> Table:
    """Return the events that one thread and several match per second, while another one edits."""
    boxes, cores = made.boxes, usable_cores()
    rows: list[list[object]] = []
    for size in BATCHES:
        batches = [events[first : first + size] for first in range(0, len(events), size)]
        points = [made.points[first : first + size] for first in range(0, len(events), size)]
        calls: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
            "match_many(dicts)": (engine.match_many, batches),
            "match_points": (engine.match_points, points),
        }
        if size == 1:
            calls = {"match(dict)": (engine.match, events)}
        for name, (call, some) in calls.items():
            taken = {1: list[tuple[float, float]](), THREADS: list[tuple[float, float]]()}
            for _ in range(ROUNDS):
                for count, runs in taken.items():
                    runs.append(_per_call(call, some, count, engine, boxes, seconds))
            (wall, processor), (walls, processors) = (
                np.min(runs, axis=0) / size * 1e6 for runs in taken.values()
            )
            times = wall / walls
            least = LEAST if size >= 64 and cores >= 2 else None
            row = [name, size, wall, walls, times, expected(times, least=least)]
            rows.append([*row, processor, processors, processors / processor])
    numbers = "1 thread", f"{THREADS} threads"
    headings = ["call", "events", *(f"wall us, {n}" for n in numbers), "times as fast", "at least"]
    headings += [*(f"processor us, {n}" for n in numbers), "times as much"]
    return Table(f"Per event beside an editing thread, on {cores} cores", headings, rows)


def _per_call(
    call: Callable[[Any], object],
    arguments: list[Any],
    count: int,
    engine: Engine,
    boxes: Any,
    seconds: float,
) -> tuple[float, float]:
    """Return the seconds of the wall and of all cores per call, the edits' included."""
    done, stop = [0] * count, threading.Event()
    start = threading.Barrier(count + 2)

    def work(number: int) -> None:
        start.wait()
        at = number * len(arguments) // count
        while not stop.is_set():
            call(arguments[at % len(arguments)])
            at += 1
            done[number] += 1

    def edit() -> None:
        start.wait()
        first = 0
        while not stop.wait(_PAUSE):
            engine.replace_many(boxes.take((first + np.arange(_EDITED)) % boxes.rows))
            first += _EDITED

    running = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    running.append(threading.Thread(target=edit))
    for thread in running:
        thread.start()
    start.wait()
    began = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    stop.set()
    for thread in running:
        thread.join()
    ended = time.perf_counter(), time.process_time()
    total = max(1, sum(done))
    return (ended[0] - began[0]) / total, (ended[1] - began[1]) / total


def tasks(events: list[dict[str, Any]], engine: Engine, rounds: int) -> Table:
    """Return how long tasks of an event loop wait for their answers."""
    waits = np.array(asyncio.run(_waits(events, engine, rounds))) * 1e3
    some = [float(np.percentile(waits, share)) for share in (50, 99, 100)]
    rate = len(waits) / (waits.reshape(rounds, -1).max(axis=1).sum() / 1e3)
    headings = [
        "tasks",
        *(f"wall: {one}" for one in ("events per second", "p50 ms", "p99 ms", "max ms")),
    ]
    return Table("AsyncEngine", headings, [[TASKS, rate, *some]])


async def _waits(events: list[dict[str, Any]], engine: Engine, rounds: int) -> list[float]:
    shared = AsyncEngine(engine)

    async def wait(number: int) -> float:
        began = time.perf_counter()
        await shared.match(events[number % len(events)])
        return time.perf_counter() - began

    waits: list[float] = []
    for _ in range(rounds):
        waits += await asyncio.gather(*(wait(number) for number in range(TASKS)))
    return waits
