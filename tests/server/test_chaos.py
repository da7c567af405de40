"""A short part of `make chaos`: the promises hold under faults, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.chaos.plan import Plan, Round
from tests.soak.chaos.runner import Run

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("chaos")]
POWER = {"sync_delay": 20_000, "count": 6, "how": "power"}


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    found = Run()
    yield found
    found.close()


def test_the_promises_hold_under_faults(run: Run) -> None:
    kill = {"point": "kill_before_sync", "count": 12, "sync_delay": 5_000, "is_power": True}
    plan = Plan(
        "test/1",
        [
            Round(1, "kill-at", 12, 0, with_=kill),
            Round(2, "repeats", 10, 4, with_=POWER),
            Round(3, "io-error", 8, 8, with_={"what": "sync_errno", "is_power": True}),
            Round(4, "term", 12, 10),
        ],
        has_retention=True,
    )
    broken = run.play(plan)
    assert broken is None, broken
    assert run.numbers["checks"] == 5
    assert run.numbers["requests ok"] > 20


@pytest.mark.parametrize(
    "plant", ["early-repeats", pytest.param("no-sync", marks=pytest.mark.soak)]
)
def test_a_planted_bug_is_found(run: Run, plant: str) -> None:
    run.plant = plant
    for seed in range(6):
        broken = run.play(Plan(f"test/{seed}", [Round(1, "repeats", 12, 0, with_=POWER)]))
        if broken is not None:
            break
    assert broken is not None
    assert broken.error.promise == "acknowledged-lost"
