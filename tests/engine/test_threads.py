"""Many threads on one engine while another one edits: every answer is that of one state."""

import threading

import numpy as np
import pytest

from rangecast.engine import Engine
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space

READERS, CALLS, BATCH = 8, 12, 64
VERSIONS = 60
GROUP = 40
"""Subscriptions that an edit replaces together; the version is their score and lower bound."""


def version(number):
    """A group of subscriptions that match the events `a0 >= number`, with this score."""
    lo = np.full((GROUP, 2), float(number))
    return Boxes.of(lo, np.full((GROUP, 2), np.inf), scores=np.full(GROUP, float(number)))


def engine_with(others):
    engine = Engine(Space([Number("a0"), Number("a1")]))
    rng = np.random.default_rng(3)
    lo = -1 - rng.random((others, 2))  # these match no event below
    ids = np.arange(10_000, 10_000 + others)
    engine.subscribe_many(version(0))
    engine.subscribe_many(Boxes.of(lo, lo + 0.5, ids=ids))
    return engine


def by_match_many(engine, rng):
    """Of 64 events of one batch: those from the version on match the whole group."""
    values = rng.integers(0, VERSIONS, BATCH)
    matches = engine.match_many([{"a0": int(v), "a1": int(v)} for v in values])
    matched = [len(matches[event]) == GROUP for event in range(BATCH)]
    assert all(len(matches[event]) in (0, GROUP) for event in range(BATCH))
    below = [int(v) for v, is_matched in zip(values, matched, strict=True) if is_matched]
    above = [int(v) for v, is_matched in zip(values, matched, strict=True) if not is_matched]
    assert not below or not above or max(above) < min(below)


def by_match(engine, _rng):
    assert engine.match({"a0": VERSIONS, "a1": VERSIONS}) == [*range(GROUP)]


def by_rank(engine, rng):
    events = np.full((BATCH, 2), float(VERSIONS))
    k = int(rng.integers(1, GROUP + 5))
    rankings = engine.rank_points(events, k)
    assert len({tuple(rankings[event]) for event in range(BATCH)}) == 1
    ids, scores = zip(*rankings[0], strict=True)
    assert ids == tuple(range(min(k, GROUP)))
    assert len(set(scores)) == 1


@pytest.mark.parametrize("call", [by_match_many, by_match, by_rank])
@pytest.mark.parametrize("others", [0, 3_000], ids=["small", "indexed"])
def test_threads_see_one_state_each(call, others):
    engine, wrong, stop = engine_with(others), [], threading.Event()

    def edit():
        for number in range(1, VERSIONS):
            if stop.is_set():
                break
            engine.replace_many(version(number))

    def read(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(CALLS):
                call(engine, rng)
        except Exception as error:  # of a thread: raised below
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(READERS)]
    editing = threading.Thread(target=edit)
    for thread in (*threads, editing):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    editing.join()
    engine.wait_for_rebuild()
    if wrong:
        raise wrong[0]
