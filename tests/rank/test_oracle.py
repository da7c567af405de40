"""The ranking oracle against its meaning, spelled out one value at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.model.boxes import Boxes
from rangecast.rank.scan import Scan
from tests.support import adversarial, strategies


def by_hand(boxes, point, k, relaxed):
    best = {}
    for box, row in enumerate(boxes.owner.tolist()):
        lo, hi = boxes.lo[box].tolist(), boxes.hi[box].tolist()
        holds = [a <= x <= b for a, x, b in zip(lo, point, hi, strict=True)]
        if relaxed:
            mentioned = [not (a == -np.inf and b == np.inf) for a, b in zip(lo, hi, strict=True)]
            some = [j for j, ok in enumerate(holds) if ok and mentioned[j]]
            if not some:
                continue
            score = 0.0
            for j in some:
                score += 1.0 if boxes.weights is None else float(boxes.weights[row, j])
        elif all(holds):
            score = float(boxes.scores[row])
        else:
            continue
        best[row] = max(score, best.get(row, -np.inf))
    ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return ranked[:k]


@pytest.mark.parametrize("relaxed", [False, True])
@given(case=strategies.boxes_and_points(), k=st.integers(1, 12))
def test_the_oracle_ranks_as_the_meaning_says(relaxed, case, k):
    boxes, points = case
    for point, ranked in zip(points, Scan(boxes).rank(points, k, relaxed=relaxed), strict=True):
        expected = by_hand(boxes, point.tolist(), k, relaxed)
        assert list(zip(ranked.rows.tolist(), ranked.scores.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", adversarial.cases())
@pytest.mark.parametrize("relaxed", [False, True])
def test_the_oracle_on_adversarial_cases(name, relaxed):
    boxes, points = adversarial.cases()[name]
    for point, ranked in zip(
        points[:25], Scan(boxes).rank(points[:25], 7, relaxed=relaxed), strict=True
    ):
        expected = by_hand(boxes, point.tolist(), 7, relaxed)
        assert list(zip(ranked.rows.tolist(), ranked.scores.tolist(), strict=True)) == expected


def test_a_zero_weight_still_counts_as_holding():
    boxes = Boxes.of([[0.0]], [[1.0]], weights=[[0.0]])
    ranked = Scan(boxes).relaxed(np.array([0.5]), 3)
    assert (ranked.rows.tolist(), ranked.scores.tolist()) == ([0], [0.0])
    assert not len(Scan(boxes).relaxed(np.array([2.0]), 3).rows)
