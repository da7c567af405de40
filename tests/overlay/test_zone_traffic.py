"""Zones as arrays, over an internet: the same ways as brokers take, and what they cost."""

from __future__ import annotations

import random

import numpy as np
import pytest

from experiments.notify.baselines import unicast
from rangecast.errors import UsageError
from rangecast.notify.board import Board
from rangecast.notify.line.interests import Interests
from rangecast.overlay.networks.internet import FAR, Internet
from rangecast.overlay.zones.geometry import Box, left_of
from rangecast.overlay.zones.traffic import ZoneTraffic, holding
from rangecast.overlay.zones.zonemap import ZoneMap
from rangecast.workloads import generate
from tests.overlay.test_zone_network import Story

FRAME = Box((0.0, 0.0), (1.0, 1.0))


def interests(count: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sort(rng.random((count, 2)), axis=1)


def test_an_internet_is_connected_with_power_law_degrees() -> None:
    one = Internet(2_000, seed=3)
    hops = one.hops(np.arange(5))
    assert hops.max() < FAR
    assert (hops[:, :5] == hops[:, :5].T).all()
    assert np.bincount(one.degree)[1] >= 0.29 * 2_000
    assert one.degree[0] > 20 * one.degree.mean()
    for node in (0, 7, 1_999):
        assert one.degree[node] == len(one.neighbours(node))
        assert (one.hops(np.array([node]))[0, one.neighbours(node)] == 1).all()
    again, other = Internet(2_000, seed=3), Internet(2_000, seed=4)
    assert (again.hops(np.arange(5)) == hops).all()
    assert (other.hops(np.arange(5)) != hops).any()


def test_hops_are_shortest_paths() -> None:
    one = Internet(60, seed=1)
    far = np.where(np.eye(60, dtype=bool), 0, 99)
    for node in range(60):
        far[node, one.neighbours(node)] = 1
    for middle in range(60):
        far = np.minimum(far, far[:, [middle]] + far[[middle]])
    assert (one.hops(np.arange(60)) == far).all()


def test_an_internet_that_cannot_be_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"given: 2, 2\.2, 0\.3"):
        Internet(2)
    with pytest.raises(UsageError, match="a smaller leaf_share"):
        Internet(100, leaf_share=0.97, degree_exponent=6.0)
    with pytest.raises(UsageError, match="seed"):
        Internet(100, seed=-1)
    with pytest.raises(UsageError, match="255 links apart"):
        Internet(1_200, degree_exponent=60.0, leaf_share=0.0)  # a ring


def test_a_point_without_a_zone_is_rejected() -> None:
    zones = ZoneMap.grown(interests(100), 4, FRAME)
    nowhere = np.array([[np.nan, 0.2]])
    with pytest.raises(UsageError, match="no zone contains point 0"):
        zones.routes(0, nowhere)
    with pytest.raises(UsageError, match="no zone contains point 0"):
        zones.spreads(np.zeros(1, np.int64), nowhere, nowhere)


@pytest.mark.parametrize("by_load", [True, False])
def test_grown_zones_tile_and_hold_like_many_interests(by_load: bool) -> None:
    points = interests(2_000)
    zones = ZoneMap.grown(points, 50, FRAME, by_load=by_load, seed=5)
    assert len(zones) == 50
    assert left_of(Box.everything(2), zones.boxes) == []
    home, _, _ = zones.routes(zones.server, points)
    for row in range(0, 2_000, 50):
        assert zones.boxes[home[row]].holds(points[row].tolist())
    if by_load:
        assert np.bincount(home, minlength=50).max() <= 2 * 2_000 / 50


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_kernels_take_the_ways_of_the_rules(dimensions: int) -> None:
    rng = random.Random(dimensions)
    frame = Box((0.0,) * dimensions, (1.0,) * dimensions)
    points = np.random.default_rng(1).random((300, dimensions))
    zones = ZoneMap.grown(points, 40, frame, by_load=dimensions != 3, seed=2)
    hops = np.random.default_rng(2).integers(1, 9, (40, 40)).astype(np.uint8)
    zones = zones.with_hops(hops)
    starts, boxes = [], []
    for _ in range(60):
        ends = [sorted((rng.random(), rng.random())) for _ in range(dimensions)]
        starts.append(rng.randrange(40))
        boxes.append(Box(tuple(a for a, _ in ends), tuple(b for _, b in ends)))
    lo, hi = (np.array([box[side] for box in boxes]) for side in (0, 1))
    ways = zones.spreads(np.array(starts), lo, hi)
    for at, (start, box) in enumerate(zip(starts, boxes, strict=True)):
        route, spread = zones.path(start, box)
        assert (ways.route[at], ways.spread[at]) == (len(route), len(spread))
        assert ways.ip[at] == sum(int(hops[a, b]) for a, b in route + spread)
        assert ways.zones[at] == sum(zone.meets(box) for zone in zones.boxes)


def test_kernels_count_what_brokers_send() -> None:
    """A quiet network of state machines takes just the links that are counted for its zones."""
    story = Story(21)
    story.grow(10)
    network = story.network
    network.run_until_quiet()
    owner = {zone.box: one.id for one in network.brokers.values() for zone in one.zones}
    zones = ZoneMap(owner, network.frame)
    owners = [owner[box] for box in zones.boxes]
    links = 0
    for number in range(30):
        network.links.clear()
        messages = story.network.server.board.__copy__().set_value(number % 12, number / 30)
        network.update("set_value", number % 12, number / 30)
        network.run_until_quiet()
        lo, hi = np.hsplit(messages.bounds, 2)
        ways = zones.spreads(np.full(len(lo), zones.server), lo, hi)
        sent = [link for taken in network.links.values() for link in taken]
        expected = []
        for low, high in zip(lo.tolist(), hi.tolist(), strict=True):
            route, spread = zones.path(zones.server, Box(tuple(low), tuple(high)))
            ends = [(owners[a], owners[b]) for a, b in route + spread]
            expected += [link for link in ends if link[0] != link[1]]
        assert sorted(sent) == sorted(expected)
        if len(owner) == len(network.brokers):
            assert ways.overlay.sum() == len(sent)
        links += len(sent)
    assert links > 30


def test_traffic_is_bytes_by_links() -> None:
    tables = generate("topk", seed=2, objects=60, interests=400, updates=80).tables
    watched, updates = tables["interests"], tables["updates"]
    board = Board(3, objects=tables["objects"], interests=watched)
    index = Interests(watched["position_lo"].to_numpy(), watched["position_hi"].to_numpy())
    points = np.stack(
        [watched["position_lo"].to_numpy(), watched["position_hi"].to_numpy()], axis=1
    )
    zones = ZoneMap.grown(points, 20, FRAME)
    network = ZoneTraffic(zones, Internet(500, seed=1), points, seed=1)
    copied = board.__copy__()
    ids, ys = updates["id"].to_numpy(), updates["value"].to_numpy()
    messages = board.update_many(list(zip(ids.tolist(), ys.tolist(), strict=True)))
    painted, ways = network.painted(messages.bounds)
    assert painted.messages == len(messages)
    assert painted.server_bytes == 24 * len(messages)
    assert painted.overlay == 24 * ways.overlay.sum()
    assert painted.ip == 24 * ways.ip.sum()
    assert painted.ip >= painted.overlay

    own = messages.slot == ids[messages.seq]
    through, direct = network.unicast(messages.bounds[own])
    told, letters = unicast(
        copied.engine.objects, index, ids.astype(np.int32), ys, 3, by_staircase=True, room=1 << 20
    )
    first = letters.slot == ids[letters.event]
    home, links, ip = network.zones.routes(network.zones.server, points)
    assert through.messages == direct.messages == told.received == first.sum()
    assert through.overlay == 16 * links[letters.row[first]].sum()
    assert through.ip == 16 * ip[letters.row[first]].sum()
    assert direct.overlay == 16 * (home[letters.row[first]] != network.zones.server).sum()
    assert direct.ip <= through.ip

    xs = tables["objects"]["position"].to_numpy()
    relaxed, reached = network.relaxed(holding(xs[:, None]))
    for x, count in zip(xs.tolist(), reached.zones.tolist(), strict=True):
        around = Box((-np.inf, x), (x, np.inf))
        assert count == sum(box.meets(around) for box in network.zones.boxes)
    assert relaxed.server_bytes == 0
    assert relaxed.received == sum(((points[:, 0] <= x) & (x <= points[:, 1])).sum() for x in xs)
