"""The k best on a device, against the oracle: scores and ties to the last bit."""

import numpy as np
import pytest

from rangecast.device import search
from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.rank.device import OnDevice
from rangecast.rank.liveness import Liveness
from rangecast.rank.scan import Scan
from tests.support.device_cases import hard_case


def agree(found, boxes, points, k, **options):
    right = Scan(boxes).best(points, k, **options)
    np.testing.assert_array_equal(found.counts, right.counts)
    for event in range(len(points)):
        for got, wanted in zip(found.of(event), right.of(event), strict=True):
            assert got.tobytes() == wanted.astype(got.dtype).tobytes()


@pytest.mark.parametrize("k", [1, 70])
@pytest.mark.parametrize("several", [False, True])
def test_the_best_with_many_ties(k, several):
    boxes, points = hard_case(20 + k, 500, 120, 3, 2, 30, several=several)
    agree(OnDevice(boxes).best(points, k), boxes, points, k)


def test_more_than_lists_have_room_for(monkeypatch):
    monkeypatch.setattr(search, "_MORE", 0.2)
    boxes, points = hard_case(31, 500, 150, 2, 2, 30, several=True)
    agree(OnDevice(boxes).best(points, 9), boxes, points, 9)


def test_pieces(monkeypatch):
    monkeypatch.setattr(search, "_MAX_PIECE", 128)
    boxes, points = hard_case(32, 400, 330, 3, 3, 40)
    agree(OnDevice(boxes).best(points, 5), boxes, points, 5)


def test_dead_rows_take_no_place():
    boxes, points = hard_case(33, 300, 80, 2, 2, 30, several=True)
    died = np.where(np.arange(boxes.rows) % 2, 5, 100)
    liveness = Liveness(np.zeros(0, np.int32), died, 7)
    index = OnDevice(boxes)
    agree(index.best(points, 5, liveness=liveness), boxes, points, 5, liveness=liveness)
    agree(index.best(points, 5), boxes, points, 5)


def test_no_subscriptions_and_no_events():
    none = OnDevice(Boxes.of(np.zeros((0, 2)), np.zeros((0, 2))))
    assert none.best(np.zeros((3, 2)), 4).counts.tolist() == [0, 0, 0]
    one = OnDevice(Boxes.of(np.zeros((1, 2)), np.ones((1, 2))))
    assert len(one.best(np.zeros((0, 2)), 4).counts) == 0


def test_relaxed_ranking_is_for_the_cpu():
    with pytest.raises(UsageError, match="a device only ranks by score"):
        OnDevice(Boxes.of([[0.0]], [[1.0]]), relaxed=True)
