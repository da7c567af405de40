"""The kernels, in the emulator, against the oracle."""

import numpy as np
import pytest
from hypothesis import given, settings

from rangecast.device import devices, search, small, stages
from rangecast.errors import UsageError
from rangecast.match.device import OnDevice
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from tests.device.conftest import ON_GPU
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets, check_matcher, streamed
from tests.support.cuda_emulator import EmulatedRuntime
from tests.support.device_cases import hard_case

CASES = adversarial.cases()
pytestmark = pytest.mark.conformance


def agree(found, boxes, points):
    """The oracle's answer, row by row: rows ascend in both."""
    right = Scan(boxes).match(points)
    np.testing.assert_array_equal(found.offsets, right.offsets)
    np.testing.assert_array_equal(found.rows, right.rows)


@pytest.mark.parametrize("name", CASES)
def test_it_conforms_on_adversarial_cases(name):
    check_matcher(OnDevice, *CASES[name])


@settings(max_examples=4)
@given(case=strategies.boxes_and_points())
def test_it_conforms_on_random_cases(case):
    check_matcher(OnDevice, *case)


@pytest.mark.parametrize(
    ("dimensions", "mentions", "values", "several"),
    [(3, 3, 40, False), (5, 4, 5000, False), (9, 9, 3000, True)],
)
def test_several_tiles_of_hard_events(dimensions, mentions, values, several):
    """More events than a tile has, more mentions than lanes; many are in doubt by their codes."""
    boxes, points = hard_case(dimensions, 700, 1100, dimensions, mentions, values, several=several)
    index = OnDevice(boxes)
    agree(index.match(points), boxes, points)
    np.testing.assert_array_equal(index.count(points), np.diff(Scan(boxes).match(points).offsets))


@pytest.mark.parametrize("events", [130, 300, 600])
def test_tiles_that_are_not_full(events):
    """Fewer events are filtered by fewer threads per box."""
    boxes, points = hard_case(events, 400, events, 3, 3, 40)
    index = OnDevice(boxes)
    for _ in range(2):
        agree(index.match(points), boxes, points)


def test_more_attributes_than_shared_memory_has_room_for(monkeypatch):
    boxes, points = hard_case(7, 300, 100, 300, 9, 30)
    index = OnDevice(boxes)
    assert index.set._boxes.shape.filed <= 127
    assert not index.set._boxes.shape.codes_shared
    agree(index.match(points), boxes, points)


def test_the_shared_memory_of_a_large_gpu(monkeypatch):
    held = EmulatedRuntime(shared_memory=227 << 10, processors=3)
    monkeypatch.setitem(devices.DEVICES, "cuda", lambda: held)
    boxes, points = hard_case(8, 500, 100, 20, 4, 90)
    index = OnDevice(boxes)
    assert index.set._boxes.shape.codes_shared
    assert index.set._boxes.shape.chunk == 512
    agree(index.match(points), boxes, points)


def test_too_little_shared_memory_is_an_error(monkeypatch):
    monkeypatch.setitem(devices.DEVICES, "cuda", lambda: EmulatedRuntime(shared_memory=48 << 10))
    with pytest.raises(UsageError, match="shared memory"):
        OnDevice(Boxes.of([[0.0]], [[1.0]])).match(np.zeros((1, 1)))


def test_lists_that_overflow_are_searched_again(monkeypatch):
    """The sample has few matches, other events have thousands."""
    monkeypatch.setattr(search, "splits_for", lambda tiles, processors: 1)
    lo = np.zeros((600, 1))
    lo[:2] = -5
    boxes = Boxes.of(lo, lo + 1)
    points = np.full((4200, 1), -4.5)
    points[1::50] = 0.5
    points[:: -(-4200 // 1024)] = -4.5
    index = OnDevice(boxes)
    agree(index.match(points), boxes, points)
    assert index.set._seen.longest >= 598


def test_pieces_in_flight(monkeypatch):
    monkeypatch.setattr(search, "_MAX_PIECE", 128)
    monkeypatch.setattr(search, "_SMALL", 64)
    boxes, points = hard_case(11, 400, 450, 3, 3, 40, several=True)
    index = OnDevice(boxes)
    assert len(index.pieces(points)) == 4
    agree(index.match(points), boxes, points)
    plain = hard_case(12, 400, 450, 3, 3, 40)
    agree(OnDevice(plain[0]).match(plain[1]), *plain)


@pytest.mark.parametrize("several", [False, True])
def test_batches_of_a_known_shape_are_replayed(monkeypatch, emulator, several):
    """Two shapes in turn, an edit between them; then more matches than there is room for."""
    monkeypatch.setattr(small, "_MAX_SHAPES", 3)
    boxes, points = hard_case(19, 300, 150, 2, 2, 30, several=several)
    index = OnDevice(boxes)
    for _ in range(3):
        for some in (points[:40], points[40:110], points[110:]):
            agree(index.match(some), boxes, some)
    if not ON_GPU:
        assert emulator.replays >= 4
    index.apply(boxes.take([]), np.arange(0, boxes.rows, 2))
    for some in (points[:40], points[:40], points[:40]):
        right = Scan(boxes).match(some)
        np.testing.assert_array_equal(index.match(some).rows, right.rows[right.rows % 2 == 1])
    index.set._seen.longest = index.set._seen.mean = 0.0
    full = index.match(np.repeat(points[:1], 40, axis=0))
    assert len(full.rows) == 40 * np.count_nonzero(Scan(boxes).match(points[:1]).rows % 2)


@pytest.mark.parametrize("events", [1, 30, 90])
def test_nan_is_an_error(monkeypatch, events):
    monkeypatch.setattr(search, "_SMALL", 60)
    boxes, points = hard_case(22, 50, events, 3, 1, 30)
    index = OnDevice(boxes)
    agree(index.match(points), boxes, points)
    wrong = points.copy()
    wrong[-1, 2] = np.nan
    for ask in (index.match, index.count, lambda given: list(index.stream(given))):
        with pytest.raises(UsageError, match="points must not contain NaN"):
            ask(wrong)
    agree(index.match(points), boxes, points)


def test_lists_of_boxes_for_tiles_together(monkeypatch):
    monkeypatch.setattr(stages, "_TOGETHER", 2)
    monkeypatch.setattr(stages, "LISTED_TILES", 4)
    monkeypatch.setattr(search, "LISTED_TILES", 4)
    monkeypatch.setattr(stages, "_SELECTIVE", 0.5)
    rng = np.random.default_rng(3)
    lo = rng.random((1500, 2))
    boxes = Boxes.of(lo, lo + 0.01)
    points = rng.random((4200, 2))
    index = OnDevice(boxes)
    agree(index.match(points), boxes, points)
    assert index.set._seen.met < stages._SELECTIVE
    agree(index.match(points), boxes, points)


def test_no_lists_where_they_would_take_too_much_memory(monkeypatch):
    monkeypatch.setattr(search, "_LIST_BYTES", 1000)
    boxes, points = hard_case(13, 300, 90, 2, 2, 30, several=True)
    agree(OnDevice(boxes).match(points), boxes, points)


@pytest.mark.parametrize("buffer", [7, 1000])
def test_a_stream_keeps_to_its_buffer(buffer):
    boxes, points = hard_case(14, 300, 40, 2, 2, 30)
    assert streamed(OnDevice(boxes), points, buffer) == as_sets(Scan(boxes).match(points))


def test_edits_are_writes():
    boxes, points = hard_case(15, 400, 90, 3, 3, 40, several=True)
    more, _ = hard_case(16, 900, 1, 3, 3, 40, several=True)
    index = OnDevice(boxes)
    removed = np.arange(0, boxes.rows, 3)
    index.apply(more.take([]), removed)
    index.apply(more, np.arange(1, boxes.rows, 3))
    lo, hi = np.concatenate([boxes.lo, more.lo]), np.concatenate([boxes.hi, more.hi])
    owner = np.concatenate([boxes.owner, more.owner + boxes.rows])
    right = Scan(Boxes.of(lo, hi, owner=owner)).match(points)
    lives = (right.rows >= boxes.rows) | (right.rows % 3 == 2)
    found = index.match(points)
    np.testing.assert_array_equal(found.rows, right.rows[lives])
    for _ in range(8):  # past the room of the arrays: laid out anew
        index.apply(more, np.zeros(0, np.int64))
    again = index.match(points[:5])
    assert len(again.rows) > len(index.match(points[:5]).rows) // 2


def test_points_are_checked():
    index = OnDevice(Boxes.of([[0.0, 0.0]], [[1.0, 1.0]]))
    with pytest.raises(UsageError, match="must not contain NaN"):
        index.match(np.array([[np.nan, 1.0]]))
    with pytest.raises(UsageError, match="shape"):
        index.match(np.zeros((1, 3)))
    minus = np.array([[-np.inf, 0.5]])
    half = Boxes.of([[-np.finfo(float).max, 0.0]], [[1.0, 1.0]])
    assert len(OnDevice(half).match(minus).rows) == 0
