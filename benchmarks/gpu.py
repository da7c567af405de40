"""Matching and ranking on a GPU: `make gpu-bench`, on a machine that has one.

Every workload is first compared with all pairs in float64, on the device; then it is timed. Rates
are medians. `delivered`: from events in the host's memory to ids there; `on the device`: ids stay
there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rangecast.device.boxes import DeviceBoxes
from rangecast.device.live import DeviceSet
from rangecast.device.runtime import upload
from rangecast.device.search import Search
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64
from rangecast.match.device import pieces_on_device
from rangecast.match.slabs.index import Slabs
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import append, no_rows
from rangecast.model.space import Space

_THREADS = 256


def workload(name: str, boxes: int, seed: int = 1) -> tuple[Boxes, Callable[[int], F64]]:
    """Return subscriptions and a function that makes events.

    sparse   20 attributes, 4 mentioned, about 0.16% match
    narrow   4 attributes, all mentioned, about 0.01% match
    dense    2 attributes of few values, about 2.6% match
    """
    rng = np.random.default_rng(seed)
    attributes, mentioned, width = {
        "sparse": (20, 4, 0.2),
        "narrow": (4, 4, 0.1),
        "dense": (2, 2, 0.16),
    }[name]
    lo, hi = np.full((boxes, attributes), -np.inf), np.full((boxes, attributes), np.inf)
    for first in range(0, boxes, 1_000_000):
        count = min(1_000_000, boxes - first)
        axes = np.argsort(rng.random((count, attributes), np.float32), axis=1)[:, :mentioned]
        start = rng.random((count, mentioned)) * (1 - width)
        rows = np.arange(first, first + count)[:, None]
        lo[rows, axes], hi[rows, axes] = start, start + width
    if name == "dense":
        lo, hi = np.round(lo * 250) / 250, np.round(hi * 250) / 250

    def events(count: int) -> F64:
        made = rng.random((count, attributes))
        return np.round(made * 250) / 250 if name == "dense" else made

    scores = rng.integers(0, 1000, boxes) / 7
    return Boxes.of(lo, hi, scores=scores), events


def on_device(boxes: Boxes) -> DeviceSet:
    """Return subscriptions on the device."""
    held = DeviceSet("cuda", boxes.dimensions)
    arrays = append(no_rows(), 0, boxes, np.arange(boxes.rows))
    held.lay_out(arrays, np.arange(boxes.rows))
    return held


def median(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the seconds that a call takes, after one that warms up."""
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _exhaust(question: Callable[..., Iterator[object]], *given: Any) -> None:
    """Take all pieces of an answer, and hold none."""
    for _ in question(*given):
        pass


def verify(held: DeviceSet, points: F64, alive: Any = None) -> dict[str, Any]:
    """Compare the matches of all events with all pairs in float64: counts, hashes, order."""
    boxes: DeviceBoxes = held._boxes  # type: ignore[assignment]
    runtime, launch, wrong, matches = held.runtime, boxes.kernels.launch, 0, 0
    lives = np.ones(boxes.count, np.uint8) if alive is None else alive.astype(np.uint8)
    for first, offsets, rows in held.matches(points):
        some = np.ascontiguousarray(points[first : first + len(offsets) - 1])
        count = np.int32(len(some))
        wanted, got = (runtime.zeros((len(some), 3), np.uint32) for _ in range(2))
        disordered = runtime.zeros(1, np.int32)
        values = upload(runtime, some, np.float64)
        terms = boxes.first_term, boxes.axis, boxes.lo, boxes.hi, boxes.owner
        given = upload(runtime, lives, np.uint8), np.int32(boxes.count), values, count
        grid = 32, -(-len(some) // 32)
        d = boxes.dimensions
        launch("match_plainly", grid, _THREADS, *terms, *given, np.int32(d), wanted, shared=256 * d)
        answer = upload(runtime, offsets, np.int64), upload(runtime, rows, np.int32), count
        launch("hash_answer", -(-len(some) * 32 // _THREADS), _THREADS, *answer, got, disordered)
        ours, plain = np.empty((len(some), 3), np.uint32), np.empty((len(some), 3), np.uint32)
        runtime.copy_out(ours, got)
        runtime.copy_out(plain, wanted)
        bad = np.empty(1, np.int32)
        runtime.copy_out(bad, disordered)
        runtime.synchronize()
        wrong += int((ours != plain).any(axis=1).sum()) + int(bad[0])
        matches += len(rows)
    return {"wrong": wrong, "matches per event": round(matches / max(1, len(points)), 1)}


def kept_there(held: DeviceSet, points: F64) -> float:
    """Return the events per second of a search whose ids stay on the device, in order."""
    boxes: DeviceBoxes = held._boxes  # type: ignore[assignment]
    search = Search(boxes, held._seen)
    with held.runtime.device():
        search._look(points)
    slot = search._slots[0]

    def once() -> None:
        flight = search._begin(slot, 0, points)
        slot.stream.synchronize()
        search._note(flight)
        with slot.stream:
            if flight.has_room:
                ids = slot.array("bench ids", max(1, flight.total), np.int32)
                search.stages.sort(flight, flight.found, None, ids, flight.total)
            else:  # so far counted only
                ids, places = search.stages.place(flight)
                search.stages.sort(flight, ids, places, ids, flight.total)
        slot.stream.synchronize()

    with held.runtime.device():
        once()
        once()
        # Events are on the device when the clock starts: their copy is subtracted.
        whole, copy = median(once), median(lambda: _copied(search, points))
    return len(points) / (whole - copy)


def _copied(search: Search, points: F64) -> None:
    slot = search._slots[0]
    with slot.stream:
        search._copied_in(slot, points)
    slot.stream.synchronize()


def rates(name: str, boxes: int, sizes: tuple[int, ...], verified: int) -> dict[str, Any]:
    """Measure one workload."""
    made, events = workload(name, boxes)
    began = time.perf_counter()
    held = on_device(made)
    out: dict[str, Any] = {"laid out in s": round(time.perf_counter() - began, 3)}
    out["bytes"] = held.memory
    out.update(verify(held, events(verified)))
    out["shape"] = str(held._boxes.shape)  # type: ignore[union-attr]
    for size in sizes:
        points = events(size)
        deliver = median(partial(_exhaust, held.matches, points))
        count = median(partial(held.counts, points))
        best = median(partial(held.best, points, 20))
        out[f"{size} events"] = {
            "delivered, M/s": round(size / deliver / 1e6, 3),
            "counted, M/s": round(size / count / 1e6, 3),
            "top 20, M/s": round(size / best / 1e6, 3),
        }
        if 65_536 <= size <= 262_144:  # a single piece
            out[f"{size} events"]["on the device, M/s"] = round(kept_there(held, points) / 1e6, 3)
        out["met"] = round(held._seen.met, 3)
    return out


def small(boxes: int = 1_000_000) -> dict[str, Any]:
    """Measure small batches, and edits."""
    made, events = workload("sparse", boxes)
    held = on_device(made)
    out: dict[str, Any] = {}
    for size in (1, 64, 512, 4096):
        points = events(size)
        times = median(partial(pieces_on_device, held, points), 200)
        out[f"batch of {size}, us"] = round(times * 1e6, 1)
    batches = iter([events(size) for size in range(257, 513)])
    times = median(lambda: pieces_on_device(held, next(batches)), 255)
    out["batches of 257 to 512, each another, us"] = round(times * 1e6, 1)
    more, _ = workload("sparse", 10_000, seed=2)
    arrays = append(held._arrays, boxes, more, np.arange(10_000) + boxes)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    taken = []
    removed = rng.permutation(boxes)[:50_000].reshape(5, 10_000)
    for turn in range(5):
        arrays = append(arrays, boxes + 10_000 * turn, more, np.arange(10_000))
        new = np.arange(boxes + 10_000 * turn, boxes + 10_000 * (turn + 1))
        began = time.perf_counter()
        assert held.apply(arrays, new, removed[turn])
        taken.append(time.perf_counter() - began)
    out["10,000 added and 10,000 removed, ms"] = [round(t * 1e3, 3) for t in taken]
    alive = np.ones(boxes + 50_000, np.bool_)
    alive[removed.ravel()] = False
    out["after edits"] = verify(held, events(8192), alive)
    return out


def crossover(boxes: int = 1_000_000) -> dict[str, Any]:
    """Compare with the CPU engine's structure on one thread, by batch size."""
    out: dict[str, Any] = {}
    for name in ("sparse", "narrow"):
        made, events = workload(name, boxes)
        held, slabs = on_device(made), Slabs(made)
        for size in (1, 8, 64, 512, 4096, 32_768):
            points = events(size)
            repeats = 3 if size > 512 else 15
            gpu = median(partial(pieces_on_device, held, points), repeats)
            cpu = median(partial(slabs.match, points), repeats)
            out[f"{name}, batch of {size}"] = {
                "GPU, us": round(gpu * 1e6, 1),
                "one core, us": round(cpu * 1e6, 1),
                "ratio": round(cpu / gpu, 2),
            }
    return out


def engine(boxes: int = 1_000_000) -> dict[str, Any]:
    """Measure a live set by its public interface."""
    made, events = workload("sparse", boxes)
    live = Engine(Space([Number(f"a{j}") for j in range(made.dimensions)]), device="cuda")
    live.subscribe_many(made)
    points = events(262_144)
    matched = median(lambda: live.match_points(points), 3)
    ranked = median(lambda: live.rank_points(points, 20), 3)
    return {
        "Engine.match_points, M/s": round(len(points) / matched / 1e6, 3),
        "Engine.rank_points of 20, M/s": round(len(points) / ranked / 1e6, 3),
    }


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "sparse 1M": lambda: rates("sparse", 1_000_000, (65_536, 262_144, 1_048_576), 262_144),
    "narrow 1M": lambda: rates("narrow", 1_000_000, (65_536, 262_144, 1_048_576), 262_144),
    "dense 256k": lambda: rates("dense", 262_144, (65_536, 262_144), 65_536),
    "sparse 10M": lambda: rates("sparse", 10_000_000, (65_536,), 16_384),
    "small": small,
    "crossover": crossover,
    "engine": engine,
}


def main(names: list[str]) -> None:
    """Print one line of JSON per part; exit with 1 if an answer was wrong."""
    wrong = False
    for name in names or PARTS:
        found = PARTS[name]()
        wrong = wrong or ('"wrong": 0' not in json.dumps(found) and "wrong" in json.dumps(found))
        print(json.dumps({name: found}), flush=True)
    sys.exit(int(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
