"""`rangecast route zones --space`: costs compared with a plain count, message by message."""

from __future__ import annotations

import csv
import json
import random
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from rangecast import Space
from rangecast.notify import Board
from rangecast.overlay.networks.internet import Internet
from rangecast.overlay.zones.geometry import Box
from rangecast.overlay.zones.traffic import ZoneTraffic
from rangecast.overlay.zones.zonemap import ZoneMap

K, BROKERS, NODES, SEED = 3, 12, 80, 5
SPACE = """
[[attribute]]
name = "price"
type = "number"

[[attribute]]
name = "rooms"
type = "integer"
min = 0
max = 9
"""
EXTRA = 'name = "extra"\ntype = "category"\nvalues = ["none", "lift", "garden"]\n'


@dataclass
class Case:
    """Objects, updates and interests as plain values; an interest is a list of boxes."""

    space: Space
    objects: dict[str, tuple[float, ...]]
    values: dict[str, float]
    updates: list[tuple[str, float | None]]
    filters: list[str]
    upper: str | None = None

    def board(self, **options) -> Board:
        rows = [
            {"id": name, **self._position(name), "value": value}
            for name, value in self.values.items()
        ]
        wishes = [{"id": n, "filter": text} for n, text in enumerate(self.filters)]
        return Board(
            K,
            space=self.space,
            upper_bound_attribute=self.upper,
            objects=rows,
            interests=wishes,
            **options,
        )

    def _position(self, name: str) -> dict:
        return {
            attribute.name: attribute.value(x)
            for attribute, x in zip(self.space, self.objects[name], strict=True)
        }

    def write(self, folder) -> tuple[str, ...]:
        tables = {
            "objects": [
                ["id", *self.space.names, "value"],
                *([n, *self._position(n).values(), v] for n, v in self.values.items()),
            ],
            "updates": [["id", "value"], *([n, "" if v is None else v] for n, v in self.updates)],
            "interests": [["id", "filter"], *enumerate(self.filters)],
        }
        for name, rows in tables.items():
            with (folder / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows(rows)
        return tuple(f"{name}.csv" for name in tables)


def made(seed: int, text: str, upper: str | None) -> Case:
    """Return a random case; some filters have open ends, some two boxes."""
    rng = random.Random(seed)
    space = Space.from_toml(text)
    extra = len(space) == 3

    def box() -> str:
        a, b = sorted(rng.sample(range(100), 2))
        c, d = sorted((rng.randrange(10), rng.randrange(10)))
        is_open = upper or rng.random() < 0.3
        rooms = f"rooms <= {d}" if is_open else f"rooms between {c} and {d}"
        parts = [f"price between {a} and {b}", rooms]
        if extra and rng.random() < 0.5:
            parts.append("extra = 'lift'")
        return " and ".join(parts)

    filters = [box() for _ in range(60)]
    filters += ["price >= 40", "price <= 60", "true"]
    filters += [f"rooms <= {n}" for n in range(4)]
    if upper is None:
        filters += [
            f"price < {n} and rooms = 1 or price > {n + 20} and rooms = 8" for n in (20, 50)
        ]
    names = [f"o{n}" for n in range(24)]
    ranges = (100, 10, 3)[: len(space)]
    objects = {name: tuple(float(rng.randrange(n)) for n in ranges) for name in names}
    values = {name: rng.randrange(40) / 4 for name in names}
    updates: list[tuple[str, float | None]] = []
    for _ in range(16):
        updates.append((rng.choice(names), rng.randrange(40) / 4))
    updates += [("o3", None), ("o7", None)]
    return Case(space, objects, values, updates, filters, upper)


class Plain:
    """The network by hand: shortest paths by breadth-first search, ways by the brokers' rules."""

    def __init__(self, case: Case):
        board = case.board()
        self.axes = [0, 1, 2, 3, 4, 5][: 2 * len(case.space)]
        if case.upper:
            self.axes.remove(case.space.names.index(case.upper))
        boxes = [row for name in board for row in board.bounds(name).tolist()]
        self.boxes = boxes
        self.points = [[row[axis] for axis in self.axes] for row in boxes]
        d = len(case.space)
        frame = [[], []]
        for axis in self.axes:
            j = axis % d
            ends = [row[j] for row in boxes] + [row[d + j] for row in boxes]
            ends += [at[j] for at in case.objects.values()]
            ends = [end for end in ends if abs(end) < 1e308]
            frame[0].append(min(ends))
            frame[1].append(max(ends))
        self.internet = Internet(NODES, seed=SEED)
        cut = ZoneMap.grown(
            np.array(self.points),
            BROKERS,
            Box(tuple(frame[0]), tuple(frame[1])),
            by_load=False,
            seed=SEED,
        )
        net = ZoneTraffic(cut, self.internet, np.array(self.points), SEED)
        self.zones, self.nodes = net.zones, net.nodes.tolist()
        self.far = {node: self._hops(node) for node in self.nodes}

    def _hops(self, start: int) -> dict[int, int]:
        hops, waiting = {start: 0}, deque([start])
        while waiting:
            node = waiting.popleft()
            for other in self.internet.neighbours(node).tolist():
                if other not in hops:
                    hops[other] = hops[node] + 1
                    waiting.append(other)
        return hops

    def ip(self, links) -> int:
        return sum(self.far[self.nodes[a]][self.nodes[b]] for a, b in links)

    def way(self, start: int, lo, hi) -> tuple[int, int]:
        """Return overlay and IP links of one message."""
        box = Box(tuple(lo), tuple(hi))
        route, spread = self.zones.path(start, box)
        assert len(spread) + 1 == sum(zone.meets(box) for zone in self.zones.boxes)
        assert all(a[1] == b[0] for a, b in pairwise(route))
        return len(route) + len(spread), self.ip(route + spread)

    def nearest(self, node: int) -> int:
        return min(range(BROKERS), key=lambda zone: (self.far[self.nodes[zone]][node], zone))


def lists(case: Case, boxes, values: dict[str, float]) -> list[list[str]]:
    """Return the names in the list of each box: the lowest values, of equal ones the first."""
    d = len(case.space)
    order = sorted(values, key=lambda name: (values[name], list(case.values).index(name)))
    return [
        [
            name
            for name in order
            if all(box[j] <= case.objects[name][j] <= box[d + j] for j in range(d))
        ][:K]
        for box in boxes
    ]


def costs(case: Case) -> dict[str, list[float]]:
    """Return messages, server bytes, overlay, IP and received of each approach, in total."""
    plain = Plain(case)
    zones, server = plain.zones, plain.zones.server
    d, ends = len(case.space), len(plain.axes)
    size, letter = 4 * (d + 1 + 2 * ends), 4 * (d + 1 + ends)
    affected: list[int] = []
    values = dict(case.values)
    before = lists(case, plain.boxes, values)
    for name, value in case.updates:
        old = values.pop(name)
        if value is not None:
            values[name] = value
        after = lists(case, plain.boxes, values)
        if value != old:
            affected += [
                row
                for row, (a, b) in enumerate(zip(before, after, strict=True))
                if name in a or name in b
            ]
        before = after
    found: dict[str, list[float]] = {}
    painted = {"Paint-Dense": {"algorithm": "dense"}, "Paint-Sparse": {}}
    if case.upper:
        painted["Paint-Sparse(1)"] = {"epsilon": 1.0}
    for approach, options in painted.items():
        cost = found[approach] = [0, 0, 0, 0, 0]
        board = case.board(**options)
        for name, value in case.updates:
            for message in board.update_many([(name, value)]):
                lo = [*message.low_from, *message.high_from]
                hi = [*message.low_to, *message.high_to]
                lo, hi = ([side[axis] for axis in plain.axes] for side in (lo, hi))
                overlay, ip = plain.way(server, lo, hi)
                got = 0
                if message.object == name:
                    got = sum(message.reaches(box[:d], box[d:]) for box in plain.boxes)
                more = 1, size, size * overlay, size * ip, got
                cost[:] = [a + b for a, b in zip(cost, more, strict=True)]
    count = len(affected)
    ways = [plain.way(server, plain.points[row], plain.points[row]) for row in affected]
    homes = [
        next(n for n, zone in enumerate(zones.boxes) if zone.holds(plain.points[row]))
        for row in affected
    ]
    direct = letter * plain.ip((server, home) for home in homes)
    away = letter * sum(home != server for home in homes)
    found["Unicast"] = [count, letter * count, away, direct, count]
    through = [letter * sum(way[side] for way in ways) for side in (0, 1)]
    found["Unicast by zones"] = [count, letter * count, *through, count]
    sources = np.random.default_rng([SEED, 0x50CE]).integers(0, NODES, len(case.updates))
    cost = found["CN-Relax"] = [len(case.updates), 0, 0, 0, 0]
    for (name, _), source in zip(case.updates, sources.tolist(), strict=True):
        at, endless = case.objects[name], [np.inf] * d
        lo, hi = [*(-end for end in endless), *at], [*at, *endless]
        lo, hi = ([side[axis] for axis in plain.axes] for side in (lo, hi))
        overlay, ip = plain.way(plain.nearest(source), lo, hi)
        cost[2] += size * overlay
        cost[3] += size * ip
        cost[4] += sum(all(box[j] <= at[j] <= box[d + j] for j in range(d)) for box in plain.boxes)
    assert found["Paint-Sparse"][4] == found["Paint-Dense"][4] == count > 40
    return found


@pytest.mark.parametrize(
    ("text", "upper"),
    [(SPACE, None), (SPACE + "\n[[attribute]]\n" + EXTRA, None), (SPACE, "rooms")],
    ids=["two attributes", "three attributes", "an upper bound"],
)
def test_costs_are_those_of_a_plain_count(cli, tmp_path, text, upper):
    case = made(3, text, upper)
    (tmp_path / "space.toml").write_text(text)
    files = case.write(tmp_path)
    options = ["--upper-bound-attribute", upper] if upper else []
    done = cli(
        *("route", "zones", *files, "--space", "space.toml", *options, "--top", K),
        *("--brokers", BROKERS, "--underlay-nodes", NODES, "--seed", SEED),
        *("-o", "costs.csv", "--json", *(["--plot", "network.png"] if upper else [])),
    )
    with (tmp_path / "costs.csv").open() as file:
        rows = {row.pop("approach"): row for row in csv.DictReader(file)}
    expected = costs(case)
    assert sorted(rows) == sorted(expected)
    n = len(case.updates)
    columns = ("messages", "server_bytes", "overlay", "ip", "received")
    for approach, totals in expected.items():
        numbers = [float(rows[approach][column]) * n for column in columns]
        assert numbers == pytest.approx(totals), approach
    needed = expected["Unicast"][4]
    for approach, totals in expected.items():
        assert float(rows[approach]["redundancy"]) == pytest.approx(totals[4] / needed - 1)
    facts = json.loads(done.stdout)
    assert (facts["updates"], facts["zones"]) == (n, "random")
    assert facts["interests"] == len(case.filters) + (0 if upper else 2)
    assert (tmp_path / "network.png").exists() == bool(upper)


def test_what_does_not_fit_a_space_is_rejected(cli, tmp_path):
    case = made(1, SPACE, None)
    (tmp_path / "space.toml").write_text(SPACE)
    files = case.write(tmp_path)
    done = cli("route", "zones", *files, "--upper-bound-attribute", "rooms", code=2)
    assert "--space is missing" in done.stderr
    (tmp_path / "updates.csv").write_text("id,value,price\no3,1,20\n")
    done = cli("route", "zones", *files, "--space", "space.toml", code=2)
    assert "an update of 'o3' has a position" in done.stderr
