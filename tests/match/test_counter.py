"""Counts: as many as the oracle matches, whatever boxes mention, and after edits."""

from __future__ import annotations

import numpy as np
import pytest

from rangecast import Boxes, Engine, Number, Space, UsageError
from rangecast.match.counting import counter
from rangecast.match.counting import live as count_live
from rangecast.match.counting.counter import Counter, Plane
from rangecast.match.counting.dominance import quadrants_of
from rangecast.match.scan import Scan


def drawn(rng: np.random.Generator, n: int, d: int, *, several: bool = False) -> Boxes:
    """Boxes with ties, open ends, and attributes that they don't mention."""
    lo = rng.integers(0, 20, (n, d)).astype(float)
    hi = lo + rng.integers(0, 8, (n, d))
    unmentioned = rng.random((n, d)) < 0.4
    lo[unmentioned], hi[unmentioned] = -np.inf, np.inf
    lo[rng.random((n, d)) < 0.05] = -np.inf
    owner = np.cumsum(np.append(0, rng.random(n - 1) < 0.8)) if several else None
    return Boxes.of(lo, hi, owner=owner)


@pytest.mark.parametrize("fewest", [1, 8, 10_000])
def test_counts_are_the_oracles(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter, "_FEWEST", fewest)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        d = 1 + seed % 4
        boxes = drawn(rng, int(rng.integers(1, 300)), d, several=seed % 2 == 1)
        points = rng.integers(-1, 28, (60, d)).astype(float)
        points[rng.random(points.shape) < 0.1] = np.inf  # a missing value
        right = np.diff(Scan(boxes).match(points).offsets)
        assert Counter(boxes).count(points).tolist() == right.tolist()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 128, 1000])
def test_points_of_a_quadrant(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.integers(0, 9, (2, n)).astype(float)
    assert quadrants_of(x, y).arrays.size == n
    points = rng.integers(-1, 9, (50, 2)).astype(float)
    right = [int(((x <= a) & (y <= b)).sum()) for a, b in points]
    plane = Plane((0, 1), np.stack([x, y], axis=1), np.full((n, 2), 9.0))
    counts = np.zeros(len(points), np.int64)
    plane.add_to(counts, points)
    assert counts.tolist() == right


def test_a_live_set_counts_what_it_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_live, "_FEW", 20)
    rng = np.random.default_rng(7)
    space = Space([Number("a"), Number("b"), Number("c")])
    engine = Engine(space)
    boxes = drawn(rng, 3_000, 3)
    engine.subscribe_many(boxes)
    events = [dict(zip("abc", map(float, rng.integers(0, 25, 3)), strict=True)) for _ in range(40)]
    events.append({})
    for step in range(6):
        right = [len(engine.match(event)) for event in events]
        assert engine.count_many(events).tolist() == right
        assert engine.count(events[step]) == right[step]
        engine.unsubscribe_many(rng.choice([*engine], 5 + 30 * step, replace=False).tolist())
        engine.subscribe(10_000 + step, "a < 12 or b > 3")


def test_many_matches_are_counted_in_few_steps() -> None:
    """All boxes of two attributes are counted: none is enumerated."""
    rng = np.random.default_rng(1)
    lo = rng.random((20_000, 2))
    made = Counter(Boxes.of(lo, lo + 1))
    assert made.enumerated == 0
    assert made.count(np.array([[1.0, 1.0]])).tolist() == [20_000]
    assert made.memory < 60 * 20_000


def test_what_is_no_event_is_rejected() -> None:
    made = Counter(drawn(np.random.default_rng(1), 5, 2))
    with pytest.raises(UsageError, match="must not contain NaN"):
        made.count(np.array([[np.nan, 1.0]]))
    with pytest.raises(UsageError, match="shape"):
        made.count(np.zeros((1, 3)))
