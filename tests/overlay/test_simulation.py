"""The simulator: no promise is broken, every planted mistake is found, a seed is one history."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from rangecast.overlay.simulation.run import simulate
from tests.soak import link_world
from tests.support.broken_brokers import BROKEN, found
from tests.support.broken_brokers import SEEDS as SEEDS_OF_MISTAKES

SEEDS = range(64)
SOMETIMES = (
    "resyncs by gap",
    "resyncs by digest",
    "resyncs by incarnation",
    "snapshots interrupted",
    "subscriptions exposed",
    "duplicates dropped",
    "removals cancelled",
    "forms changed",
    "torn units",
    "cycles rejected",
    "cycles found",
    "frames rejected",
    "gaps in events",
    "events sent again",
    "events dropped",
    "crashes",
    "deliveries repeated",
    "disks restored",
    "histories that parted",
    "losses reported",
    "incarnations that went back",
    "neighbours that lost events",
    "names taken twice",
    "names that are taken",
    "items forgotten",
    "brokers that stand still",
    "links closed as silent",
    "strangers",
)
"""Occurrences that some of a few hundred seeds must have, or the simulator tests nothing."""
TRACED = """
import hashlib
from rangecast.overlay.simulation.run import simulate
for seed in (3, 7, 21):
    print(hashlib.sha256("\\n".join(simulate(seed, trace=True).trace).encode()).hexdigest())
"""


def test_no_promise_is_broken_and_everything_happens_sometimes():
    counts = Counter()
    for seed in SEEDS:
        outcome = simulate(seed)
        assert not outcome.wrong, f"rangecast route simulate --seed {seed} --trace"
        counts += outcome.counts
    assert [kind for kind in SOMETIMES if not counts[kind]] == []


@pytest.mark.parametrize("broken", BROKEN)
def test_a_planted_mistake_is_found(broken):
    """`python -m tests.support.broken_brokers` shows how many seeds find each."""
    assert any(found(broken, seed) for seed in [BROKEN[broken], *range(SEEDS_OF_MISTAKES)])


def test_no_promise_of_a_server_s_links_is_broken():
    """The drivers and journals of servers; `python -m tests.soak.link_world` has more seeds."""
    for seed in range(12):
        assert not link_world.simulate(seed), f"seed {seed}"


@pytest.mark.parametrize("broken", link_world.BROKEN)
def test_a_planted_mistake_of_a_server_s_links_is_found(broken):
    with broken():
        seeds = [link_world.BROKEN[broken], *range(SEEDS_OF_MISTAKES)]
        assert any(link_world.simulate(seed) for seed in seeds)


@pytest.mark.process
def test_a_seed_is_one_history_in_every_process():
    traces = []
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", TRACED]
        traces.append(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    assert traces[0] == traces[1]
    assert len(traces[0].split()) == 3
