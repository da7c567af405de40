"""Whole histories against the oracle: one event at a time, in batches, saved at any point."""

from pathlib import Path

import pytest

from tests.support.broken_trackers import BROKEN, IN_KERNEL, found_by
from tests.support.track_model import Oracle, actual, by_key, history_of

SEEDS = range(250)
SAVED = range(250, 290)


def compare(seed: int, folder: Path | None, *, batches: bool) -> None:
    history = history_of(seed)
    oracle = Oracle(history)
    expected = by_key(oracle.run())
    rows, tracker = actual(history, folder, batches=batches)
    assert by_key(rows) == expected, f"seed {seed}"
    facts = {(row.key, row.subscription, row.transition, row.at) for row in rows}
    assert len(facts) == len(rows), f"seed {seed}: two transitions have one id"
    assert (tracker.late, tracker.repeated) == (oracle.late, oracle.repeated), f"seed {seed}"


@pytest.mark.parametrize("batches", [False, True], ids=["singles", "batches"])
def test_a_tracker_does_what_the_oracle_does(batches: bool):
    for seed in SEEDS:
        compare(seed, None, batches=batches)


def test_a_tracker_that_is_saved_and_opened_goes_on(tmp_path: Path):
    for seed in SAVED:
        compare(seed, tmp_path / f"{seed}", batches=seed % 2 == 0)


@pytest.mark.soak
def test_many_histories(tmp_path: Path):
    for seed in range(1_000, 6_000):
        compare(seed, None if seed % 20 else tmp_path / f"{seed}", batches=seed % 2 == 0)


def test_kernels_without_a_mistake_pass_as_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(IN_KERNEL, "none", ("        if at <= last:", "        if at <= last:"))
    assert found_by("none", tmp_path) is None


@pytest.mark.parametrize("mistake", BROKEN)
def test_histories_find_every_mistake(mistake: str, tmp_path: Path):
    assert found_by(mistake, tmp_path) is not None
