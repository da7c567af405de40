"""A partition and its faults: what `rangecast check --partition` says is what shapely sees."""

from __future__ import annotations

import itertools
import json
import random

import pyarrow as pa
import pyarrow.csv
import pytest
import shapely

from rangecast import Engine, Location, Point, Space
from rangecast.errors import UsageError
from rangecast.report.partition import check_partition
from tests.shapes.oracle import wkt
from tests.support.seeds import seeds


def grid(size: int, seed: int) -> dict[str, list[tuple[float, float]]]:
    """Quadrangles with shared corners, as rings that aren't closed."""
    r = random.Random(seed)
    corner = {
        (i, j): (i + r.uniform(-0.3, 0.3), j + r.uniform(-0.3, 0.3))
        for i in range(size + 1)
        for j in range(size + 1)
    }
    tiles = itertools.product(range(size), range(size))
    return {
        f"{i}-{j}": [corner[i, j], corner[i + 1, j], corner[i + 1, j + 1], corner[i, j + 1]]
        for i, j in tiles
    }


def report_of(tiles, place=None):
    engine = Engine(Space([place or Point("place")]))
    for name, ring in tiles.items():
        text = wkt([[*ring, ring[0]]]) if isinstance(ring, list) else ring
        engine.subscribe(name, f"within(place, '{text}')")
    return check_partition(engine.boxes(), engine.space)


def by_kind(report):
    return {kind: n for kind, n in report.counts().items() if n}


@pytest.mark.parametrize("place", [None, Location("place", border="once")])
def test_a_partition_has_no_faults(place):
    report = report_of(grid(9, 1), place)
    assert (report.polygons, report.edges, report.faults) == (81, 324, [])


def test_a_missing_tile_is_a_gap_and_a_doubled_one_an_overlap():
    tiles = grid(5, 2)
    gone = tiles.pop("2-2")
    report = report_of(tiles)
    assert by_kind(report) == {"gap": 1}
    gap = report.faults[0]
    assert gap.size == pytest.approx(shapely.Polygon(gone).area)
    assert shapely.Polygon(gone).contains(shapely.Point(gap.x, gap.y))
    assert set(gap.subscriptions) == {"1-2", "3-2", "2-1", "2-3"}
    tiles["2-2"], tiles["again"] = gone, gone
    report = report_of(tiles)
    assert {fault.kind for fault in report.faults} == {"overlap"}
    assert {fault.subscriptions for fault in report.faults} == {("2-2", "again")}


def test_a_corner_on_an_edge_is_a_t_junction_and_not_a_gap():
    tiles = {
        "left": [(0.0, 0.0), (1.0, 0.0), (1.0, 2.0), (0.0, 2.0)],
        "low": [(1.0, 0.0), (2.0, 0.0), (2.0, 1.0), (1.0, 1.0)],
        "high": [(1.0, 1.0), (2.0, 1.0), (2.0, 2.0), (1.0, 2.0)],
    }
    report = report_of(tiles)
    assert by_kind(report) == {"T-junction": 1}
    fault = report.faults[0]
    assert (fault.x, fault.y, fault.subscriptions[0]) == (1.0, 1.0, "left")
    assert set(fault.subscriptions) == {"left", "low", "high"}
    tiles["low"][3] = tiles["high"][0] = (1.0 + 2**-40, 1.0)  # the least bit beside the edge
    report = report_of(tiles)
    assert by_kind(report) == {"gap": 1}
    assert report.faults[0].size == pytest.approx(2**-40)


def test_islands_holes_and_polygons_inside_of_others():
    hole = "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (3 3, 6 3, 6 6, 3 6, 3 3))"
    assert by_kind(report_of({"a": hole})) == {"gap": 1}
    filled = {"a": hole, "b": [(3.0, 3.0), (6.0, 3.0), (6.0, 6.0), (3.0, 6.0)]}
    assert by_kind(report_of(filled)) == {}
    island = {
        "a": [(0.0, 0.0), (9.0, 0.0), (9.0, 9.0)],
        "b": [(20.0, 0.0), (21.0, 0.0), (20.0, 1.0)],
    }
    assert by_kind(report_of(island)) == {}
    inside = {"a": [(0.0, 0.0), (9.0, 0.0), (9.0, 9.0)], "b": [(6.0, 1.0), (7.0, 1.0), (6.0, 2.0)]}
    assert by_kind(report_of(inside)) == {"overlap": 1}
    turned = {"a": [(0.0, 0.0), (0.0, 9.0), (9.0, 9.0), (9.0, 0.0)]}  # clockwise
    assert by_kind(report_of(turned)) == {}


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_faults_are_those_that_shapely_sees(seed):
    """Corners of single tiles are moved, tiles go, others are put on top."""
    r = random.Random(seed)
    tiles = grid(4, seed)
    for _ in range(r.randint(0, 3)):
        name = r.choice(list(tiles))
        kind = r.random()
        if kind < 0.4:
            place = r.randrange(len(tiles[name]))
            x, y = tiles[name][place]
            moved = [*tiles[name]]
            moved[place] = x + r.uniform(-0.1, 0.1), y + r.uniform(-0.1, 0.1)
            tiles[name] = moved
        elif kind < 0.7:
            del tiles[name]
        else:
            x, y = r.uniform(0, 3), r.uniform(0, 3)
            tiles[f"top{x}"] = [(x, y), (x + 0.7, y), (x + 0.3, y + 0.6)]
    report = report_of(tiles)
    shapes = {name: shapely.Polygon(ring) for name, ring in tiles.items()}
    overlaps = {
        tuple(sorted(pair))
        for pair in itertools.combinations(shapes, 2)
        if shapes[pair[0]].intersection(shapes[pair[1]]).area > 0
    }
    found = {fault.subscriptions for fault in report.faults if fault.kind == "overlap"}
    assert found == overlaps
    if not overlaps:
        union = shapely.unary_union(list(shapes.values()))
        parts = union.geoms if union.geom_type == "MultiPolygon" else [union]
        holes = sorted(shapely.Polygon(ring).area for part in parts for ring in part.interiors)
        gaps = sorted(fault.size for fault in report.faults if fault.kind == "gap")
        assert gaps == pytest.approx(holes)


def test_near_corners_are_told():
    tiles = grid(3, 5)
    x, y = tiles["2-1"][1]  # on the outline: the sliver is open to the outside
    tiles["2-1"] = [tiles["2-1"][0], (x, y + 1e-9), *tiles["2-1"][2:]]
    report = report_of(tiles)
    assert "near corners" in by_kind(report)
    assert {fault.subscriptions for fault in report.faults} == {("2-0", "2-1")}


def test_what_can_t_be_checked_is_rejected():
    engine = Engine(Space([Point("place")]))
    engine.subscribe("a", "within(place, circle(0, 0, 1))")
    with pytest.raises(UsageError, match="no subscription has a polygon of 'place'"):
        check_partition(engine.boxes(), engine.space)
    with pytest.raises(UsageError, match="geodesic edges"):
        check_partition(engine.boxes(), Space([Location("place", edges="geodesic")]))


def test_the_shell(tmp_path, cli):
    tiles = grid(4, 3)
    del tiles["1-1"]
    tiles["3-3"] = [(x - 0.5, y) for x, y in tiles["3-3"]]
    Space([Point("place")]).save(tmp_path / "space.toml")
    texts = [f"within(place, '{wkt([[*ring, ring[0]]])}')" for ring in tiles.values()]
    pa.csv.write_csv(pa.table({"id": list(tiles), "filter": texts}), tmp_path / "zones.csv")
    options = ("--partition", "zones.csv", "--space", "space.toml")
    done = cli("check", *options, "--plot", "zones.svg", cwd=tmp_path, code=1)
    assert "1 gap, 2 overlaps" in done.stdout
    assert "gap of area" in done.stdout
    assert (tmp_path / "zones.svg").read_text().startswith("<?xml")
    facts = json.loads(cli("check", *options, "--json", cwd=tmp_path, code=1).stdout)
    assert facts["polygons"] == 15
    assert {fault["kind"] for fault in facts["faults"]} == {"gap", "overlap"}
    cli("check", *options, "--events", "zones.csv", cwd=tmp_path, code=2)
