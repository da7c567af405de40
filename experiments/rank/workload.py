"""Shared parts of the experiments of paper 003: data, structures, and how one is measured."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.experiment import Results
from experiments.timing import DisagreementError, best_of
from rangecast.kernels.arrays import F64, I64
from rangecast.model.boxes import Boxes
from rangecast.rank.choose import INDEXES, Index
from rangecast.rank.papers.trees import Trees
from rangecast.rank.result import Best
from rangecast.workloads import generate

PAPERS_OWN = ("segment", "interval", "rtree", "ir", "sopt")
STRUCTURES = (*PAPERS_OWN, "slabs")
"""Those of the paper's plots, and ours."""
K = 20
SKEW = 0.75
SUBSCRIPTIONS = {"tiny": 500, "quick": 20_000, "full": 1_000_000}
EVENTS = {"tiny": 5, "quick": 1_000, "full": 1_000}
SHORTEST = 0.05
"""Seconds: shorter work is repeated, to be timed."""
WARM_UP = {"tiny": 2, "quick": 100, "full": 100}


@lru_cache(1)
def made(
    seed: int, n: int, events: int, attributes: int = 1, skew: float = SKEW
) -> tuple[Boxes, F64]:
    """Return the subscriptions and events of Table 1."""
    sizes = {"subscriptions": n, "events": events, "attributes": attributes}
    workload = generate("ranked", seed=seed, **sizes, skew_length=skew)
    return workload.boxes, workload.points


@lru_cache(1)
def built(
    name: str, seed: int, n: int, events: int, attributes: int, skew: float, *, relaxed: bool
) -> Index:
    """Build a structure; the latest one is kept, for several k."""
    return INDEXES[name](made(seed, n, events, attributes, skew)[0], relaxed=relaxed)


def ranked(index: Index, points: F64, warm_up: int, k: int, repeats: int) -> dict[str, Any]:
    """Rank all events after the first few; return time and work per event."""
    index.best(points[:warm_up], k)
    some = points[warm_up:]
    done = best_of(lambda: index.best(some, k), repeats)
    seconds = done.least
    if seconds < SHORTEST:
        passes = 1 + int(SHORTEST / max(seconds, 1e-6))
        seconds = best_of(lambda: [index.best(some, k) for _ in range(passes)]).least / passes
    events, work = len(done.answer.counts), done.answer.work
    counts = {name: getattr(work, name) / events for name in ("calls", "examined", "tested")}
    return {
        "us": seconds / events * 1e6,
        **counts,
        "pages": sum(work.opened) / events,
        "holes": work.holes / events,
        "answer": _digest(done.answer),
    }


def _digest(best: Best) -> int:
    """Return a number by which rankings can be compared."""
    _, _, rows, scores = best.pairs()
    return zlib.crc32(rows.tobytes(), zlib.crc32(scores.tobytes()))


def check_answers(results: Results, by: Iterable[str]) -> None:
    """Raise an error if structures rank differently; `by` names the columns of a setting."""
    names = list(by)
    seen: dict[Any, tuple[Any, str]] = {}
    for row in results:
        key = tuple(row[name] for name in names)
        answer, structure = seen.setdefault(key, (row["answer"], row["structure"]))
        if answer != row["answer"]:
            raise DisagreementError(f"{row['structure']} and {structure} rank differently at {key}")


@lru_cache(1)
def rounds_of(seed: int, n: int, events: int, attributes: int, skew: float) -> I64:
    """Return how many rounds the Threshold Algorithm needs for each event, with any structure."""
    boxes, points = made(seed, n, events, attributes, skew)
    index = INDEXES["sopt"](boxes, relaxed=True)
    calls = [index.best(points[event : event + 1], K).work.calls for event in range(len(points))]
    return np.ceil(np.array(calls) / attributes).astype(np.int64)


def fetched(index: Index, points: F64, rounds: I64) -> float | None:
    """Return the microseconds of getnext alone, per event; `None`: there is no getnext."""
    if not isinstance(index, Trees):
        return None
    index.fetch(points[:1], rounds[:1])
    return best_of(lambda: index.fetch(points, rounds), 1).least / len(points) * 1e6


def relaxed(
    seed: int, n: int, events: int, warm_up: int, d: int, skew: float, structure: str
) -> dict[str, Any]:
    """Measure one structure as experiments 3 and 4 do: the whole ranking, and getnext alone."""
    data = (seed, n, events + warm_up, d, skew)
    points = made(*data)[1]
    index = built(structure, *data, relaxed=True)
    row = ranked(index, points, warm_up, K, 1)
    rounds = rounds_of(*data)[warm_up:] if structure in PAPERS_OWN else np.zeros(0, np.int64)
    alone = fetched(index, points[warm_up:], rounds)
    return row | {"getnext us": alone, "MB": index.memory / 1e6}


def spread(values: Sequence[float]) -> float:
    """Return how many times the least the largest is."""
    return max(values) / min(values)
