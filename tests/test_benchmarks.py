"""The peers of the benchmarks answer what the oracle does: a race is only fair if all are right."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.contest import PEERS, DisagreementError, contest, missing
from benchmarks.peers import NumpyScan, Peer, finite
from rangecast import Number, Space
from rangecast.kernels.arrays import F64
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.workloads import generate


def space_of(dimensions: int) -> Space:
    return Space(Number(f"a{j}", min=-10, max=10) for j in range(dimensions))


def touching(dimensions: int) -> tuple[Boxes, F64]:
    """Boxes on a small grid, some without width, with events on their edges and just beside."""
    rng = np.random.default_rng(dimensions)
    lo = rng.integers(-3, 3, (60, dimensions)) / 3
    hi = lo + rng.integers(0, 5, (60, dimensions)) / 3
    free = rng.random(lo.shape) < 0.3
    lo[free], hi[free] = -np.inf, np.inf
    corners = np.where(np.isinf(lo), 0.0, lo), np.where(np.isinf(hi), 0.0, hi)
    edges = np.concatenate(corners)
    beside = [np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    return Boxes.of(lo, hi), np.concatenate([edges, *beside])


def made(peer: type[Peer], boxes: Boxes, space: Space) -> Peer:
    why = missing(peer)
    if why is not None:
        pytest.skip(why)
    return peer(*finite(boxes, space))


def found(peer: Peer, points: F64) -> list[set[int]]:
    events, rows = peer.pairs(peer.match(points))
    assert len(set(zip(events.tolist(), rows.tolist(), strict=True))) == len(rows), "a pair twice"
    return [set(rows[events == event].tolist()) for event in range(len(points))]


def right(boxes: Boxes, points: F64) -> list[set[int]]:
    matches = Scan(boxes).match(points)
    return [set(matches.of(event).tolist()) for event in range(len(points))]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_a_peer_agrees_with_the_oracle_on_touching_edges(peer: type[Peer]) -> None:
    for dimensions in (2, 4, 12):
        if dimensions not in peer.dimensions:
            continue
        boxes, points = touching(dimensions)
        one = made(peer, boxes, space_of(dimensions))
        truth = right(boxes, points)
        assert found(one, points) == truth
        for event in (0, len(points) // 2, len(points) - 1):
            assert set(one.rows(one.match_one(points[event])).tolist()) == truth[event]
        one.close()


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_a_peer_agrees_on_whole_numbers_and_when_nothing_matches(peer: type[Peer]) -> None:
    workload = generate("crowded-rectangles", subscriptions=200, events=1)
    boxes = workload.boxes
    one = made(peer, boxes, workload.space)
    points = np.concatenate([boxes.lo[:40], boxes.hi[:40], [[-5.0, -5.0]]])
    assert found(one, points) == right(boxes, points)
    assert found(one, points[-1:]) == [set()]
    one.close()


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_a_peer_agrees_after_replacing(peer: type[Peer]) -> None:
    boxes, points = touching(2)
    space = space_of(2)
    one = made(peer, boxes, space)
    rows = np.array([3, 17, 40])
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    lo[rows], hi[rows] = [-2.0, -2.0], [2.0, 0.1]
    after = Boxes.of(lo, hi)
    one.replace(rows, *finite(after.take(rows), space))
    assert found(one, points) == right(after, points)
    one.close()


@pytest.fixture
def only_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance suite tests our structures; compiling them all would take long."""
    monkeypatch.setattr("benchmarks.contest.INDEXES", {"scan": Scan})
    monkeypatch.setattr("benchmarks.contest.build", Scan)


@pytest.mark.usefixtures("only_the_scan")
def test_a_contest_measures_everyone() -> None:
    boxes, points = touching(3)
    everyone = contest(boxes, space_of(3), points, rounds=2, seconds=0.001)
    kinds = {one.kind for one in everyone}
    assert kinds == {"peer", "structure", "engine"}
    assert all(len(one.batch.runs) == len(one.single.runs) == 2 for one in everyone)
    assert sum(one.chosen for one in everyone) == 1


@pytest.mark.usefixtures("only_the_scan")
def test_a_peer_that_disagrees_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = NumpyScan.match

    def forgetful(self: NumpyScan, points: F64) -> tuple[np.ndarray, np.ndarray]:
        events, rows = honest(self, points)
        return events[rows != rows[0]], rows[rows != rows[0]]

    monkeypatch.setattr(NumpyScan, "match", forgetful)
    boxes, points = touching(3)
    with pytest.raises(DisagreementError, match="NumPy scan gives"):
        contest(boxes, space_of(3), points, rounds=1, seconds=0.001)
