"""Shapes mean the same in Python, in the shell, on Spark and behind a server."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import shapely

from rangecast import Client, Engine, Location, Number, Point, Space
from rangecast.cover import CoverSet
from rangecast.errors import RangecastError, UsageError
from rangecast.match.scan import Scan
from rangecast.merge import ExactSummary, Summary
from rangecast.model.encoding.events import encode_events
from rangecast.model.shapes.verification.places import without_places
from rangecast.notify import Board
from tests.support.server.served import Served

FILES = ("events.csv", "subscriptions.csv", "--space", "space.toml", "-q")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of fences and of positions, many of them near a border."""
    folder = tmp_path_factory.mktemp("shapes")
    r = random.Random(11)
    space = Space([Location("position", longitude="lon", latitude="lat"), Number("speed")])
    space.save(folder / "space.toml")
    filters = []
    for number in range(60):
        lon, lat = r.uniform(12, 15), r.uniform(51, 54)
        ring = [(lon, lat), (lon + 0.4, lat), (lon + 0.5, lat + 0.3), (lon + 0.1, lat + 0.35)]
        corners = ", ".join(f"{x!r} {y!r}" for x, y in [*ring, ring[0]])
        text = (
            f"within(position, 'POLYGON (({corners}))')",
            f"within(position, circle({lon!r}, {lat!r}, 20 km)) and speed > 30",
            f"within(position, buffer('LINESTRING ({lon!r} {lat!r}, 13 52.5)', 3 km))",
            f"not within(position, circle({lon!r}, {lat!r}, 90 km)) and speed < 5",
        )[number % 4]
        filters.append(text)
    scores = [float(score) for score in r.sample(range(100), len(filters))]
    table = {"id": [f"s{i}" for i in range(60)], "filter": filters, "score": scores}
    pa.csv.write_csv(pa.table(table), folder / "subscriptions.csv")
    events = {
        "id": list(range(300)),
        "lon": [r.uniform(12, 15.5) for _ in range(300)],
        "lat": [r.uniform(51, 54.5) for _ in range(300)],
        "speed": [r.choice([None, 1.0, 20.0, 60.0]) for _ in range(300)],
    }
    pa.csv.write_csv(pa.table(events), folder / "events.csv")
    return folder


@pytest.fixture(scope="module")
def engine(data):
    made = Engine(Space.load(data / "space.toml"))
    made.subscribe_many(data / "subscriptions.csv")
    return made


def pairs(path):
    table = pa.csv.read_csv(path)
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_shell(data, engine, cli):
    done = cli("match", *FILES, "-o", "matches.csv", cwd=data)
    assert "no column" not in done.stderr
    matches = engine.match_many(data / "events.csv").table()
    expected = [tuple(row.values()) for row in matches.to_pylist()]
    assert len(expected) > 300
    assert pairs(data / "matches.csv") == expected
    cli("verify", "events.csv", "subscriptions.csv", "matches.csv", *FILES[2:], cwd=data)
    cli("rank", *FILES, "--top", 3, "-o", "ranked.csv", cwd=data)
    ranked = engine.rank_many(data / "events.csv", 3).table().to_pylist()
    assert [row[:3] for row in pairs(data / "ranked.csv")] == [
        (row["event"], row["rank"], row["subscription"]) for row in ranked
    ]


def test_explain_counts_candidates(data, cli):
    """Boxes select, what lies in a full box needs no test, and words verify the rest."""
    engine = Engine(Space.load(data / "space.toml"))
    engine.subscribe_many(data / "subscriptions.csv")
    assert engine.explain().endswith("0 matched per event, of 0 matched in batches")
    found = engine.match_many(data / "events.csv")
    counts = engine._view.verifier.counts
    assert counts.events == 300
    assert counts.matched == len(found.ids)
    assert counts.matched <= counts.selected
    assert counts.selected - counts.verified <= counts.matched
    boxes, points = (
        without_places(engine.boxes()),
        encode_events(data / "events.csv", engine.space)[1],
    )
    assert counts.selected == len(Scan(boxes).match(points).rows)
    line = engine.explain().splitlines()[-1]
    selected, verified, matched = (f"{count / 300:.3g}" for count in counts[1:4])
    told = f"shapes: {selected} selected, {verified} verified, {matched} matched per event"
    assert line == f"{told}, of 300 matched in batches"
    done = cli("match", *FILES[:-1], "--explain-plan", "-o", "matches.csv", cwd=data)
    assert line in done.stderr


def test_spark(data, engine, spark):
    from rangecast.spark import match, prepare_match, rank

    space = Space.load(data / "space.toml")
    events = spark.read.csv(str(data / "events.csv"), header=True, inferSchema=True)
    subscriptions = spark.read.csv(str(data / "subscriptions.csv"), header=True, inferSchema=True)
    found = match(events, subscriptions, space).collect()
    expected = engine.match_many(data / "events.csv").table().to_pylist()
    assert {(row.event, row.subscription) for row in found} == {
        (row["event"], row["subscription"]) for row in expected
    }
    prepared = prepare_match(spark, subscriptions, space, max_worker_memory=2_000)
    assert len(prepared.answerer.shards) > 1
    in_shards = match(events, prepared, space).collect()
    assert {tuple(row) for row in in_shards} == {tuple(row) for row in found}
    best = rank(events, subscriptions, space, k=2).collect()
    ranked = engine.rank_many(data / "events.csv", 2).table().to_pylist()
    assert {(row.event, row["rank"], row.subscription) for row in best} == {
        (row["event"], row["rank"], row["subscription"]) for row in ranked
    }


def test_columns_of_geometries_on_spark(spark, tmp_path):
    """Parquet with WKB, WKT, GeoJSON and GeoArrow: the matches of the same polygons in Python."""
    from pyspark.sql import Observation

    from rangecast.spark import filters_of_geometries, match

    r = random.Random(17)
    space = Space([Point("place"), Number("v")])
    shapes = {}
    for number in range(30):
        x, y, size = r.uniform(0, 10), r.uniform(0, 10), r.uniform(0.5, 3)
        shape = shapely.Point(x, y).buffer(size, quad_segs=3)
        if number % 3 == 0:
            shape = shape.difference(shapely.Point(x, y).buffer(size / 2, quad_segs=2))
        shapes[f"s{number}"] = shape if number % 5 else shapely.MultiPolygon([shape])
    events = {"id": list(range(200)), "v": [1.0, 9.0] * 100}
    events |= {name: [r.uniform(-1, 11) for _ in range(200)] for name in "xy"}
    rows = [dict(zip(events, row, strict=True)) for row in zip(*events.values(), strict=True)]
    expected = {
        (row["id"], name)
        for row in rows
        for name, shape in shapes.items()
        if row["v"] > 5 and shape.covers(shapely.Point(row["x"], row["y"]))
    }
    given = spark.createDataFrame([tuple(row.values()) for row in rows], list(events))

    def rings(shape):
        parts = [shape] if shape.geom_type == "Polygon" else shape.geoms
        made = [[ring.coords for ring in (part.exterior, *part.interiors)] for part in parts]
        return [[[{"x": x, "y": y} for x, y in ring] for ring in part] for part in made]

    columns = {
        "wkb": pa.array([shape.wkb for shape in shapes.values()], pa.binary()),
        "wkt": pa.array([shapely.to_wkt(shape, 17) for shape in shapes.values()]),
        "json": pa.array([shapely.to_geojson(shape) for shape in shapes.values()]),
        "arrow": pa.array([rings(shape) for shape in shapes.values()]),
    }
    together = None
    for name, column in columns.items():
        ids = [f"{name} {one}" for one in shapes]
        table = {"id": ids, "geometry": column, "filter": ["v > 5"] * len(shapes)}
        pa.parquet.write_table(pa.table(table), tmp_path / f"{name}.parquet")
        read = spark.read.parquet(str(tmp_path / f"{name}.parquet"))
        some = filters_of_geometries(read, space)
        assert some.columns == ["id", "filter"]
        together = some if together is None else together.unionByName(some)
    found = {(row.event, row.subscription) for row in match(given, together, space).collect()}
    assert found == {(event, f"{name} {one}") for event, one in expected for name in columns}
    ring = [(0, 0, 5), (4, 0, 5), (4, 4, 5), (0, 0, 5)]
    flat, high = shapely.Polygon([one[:2] for one in ring]), shapely.Polygon(ring)
    binary = [("flat", flat.wkb), ("high", high.wkb), ("bad", b"\x01\x07")]
    texts = [("flat", flat.wkt), ("high", high.wkt), ("m", high.wkt.replace("Z", "M"))]
    for rows, dropped in ((binary, 1), (texts, 2)):
        notes = Observation()
        some = filters_of_geometries(
            spark.createDataFrame(rows, ["id", "geometry"]), space, notes=notes
        ).collect()
        assert [row["id"] for row in some] == [one for one, _ in rows]
        assert notes.get == {"heights_or_measures": dropped}
        high = spark.createDataFrame([rows[1]], ["id", "geometry"])
        with pytest.raises(RangecastError, match=r"subscription 'high'(.|\n)*with heights or meas"):
            match(given, filters_of_geometries(high, space), space)
    bad = spark.createDataFrame([("a", b"\x01\x07"), ("b", None)], ["id", "geometry"])
    with pytest.raises(RangecastError, match="not WKB"):
        match(given, filters_of_geometries(bad.limit(1), space), space).collect()
    with pytest.raises(UsageError, match="isn't a location or point; the space has: 'place'"):
        filters_of_geometries(bad, space, place="v")
    with pytest.raises(UsageError, match="'id' is bigint"):
        filters_of_geometries(spark.range(3), space, geometry="id")


@pytest.mark.parametrize("strategy", ["covering", "subsumption", "merging"])
def test_a_network(data, cli, strategy):
    """Brokers advertise boxes; what they let through is verified where it is delivered."""
    cli("match", *FILES, "-o", "matches.csv", cwd=data)
    cli(
        *("route", "run", *FILES, "--brokers", "4", "--strategy", strategy, "-o", "routed.csv"),
        cwd=data,
    )
    assert sorted(pairs(data / "routed.csv")) == sorted(pairs(data / "matches.csv"))


def test_a_server_and_its_log(data, engine, tmp_path):
    space = Space.load(data / "space.toml")
    events = pa.csv.read_csv(data / "events.csv").to_pylist()[:50]
    values = [{key: value for key, value in one.items() if key != "id"} for one in events]
    expected = [engine.match(one) for one in values]
    for start in range(2):  # and again, from its log
        spaces = {} if start else {"fleet": space}
        served = Served(data=tmp_path / "data", spaces=spaces)
        try:
            with Client(served.url, space="fleet") as client:
                if not start:
                    client.subscribe_many(data / "subscriptions.csv")
                assert [client.match(one) for one in values] == expected
                assert client["s0"].filter == engine["s0"].filter
                assert client.why(values[0], "s0").matches == ("s0" in expected[0])
        finally:
            served.stop()


def test_cover_is_exact_where_it_is_decided_and_careful_elsewhere(data):
    covers = CoverSet(Space.load(data / "space.toml"))
    covers.subscribe("circle", "within(position, circle(13, 52, 5 km))")
    covers.subscribe("faster", "within(position, circle(13, 52, 5 km)) and speed > 3")
    covers.subscribe("other", "within(position, circle(13, 52, 4 km))")
    covers.subscribe("box", "lon between 12 and 14 and lat between 51 and 53 and speed > 1")
    covers.subscribe("line", "within(position, buffer('LINESTRING (13 52, 13.01 52)', 1 km))")
    assert set(covers.uncovered()) == {"circle", "box", "line"}


def test_a_summary_loses_no_event(data, engine):
    space = Space.load(data / "space.toml")
    summary = Summary(space)
    summary.subscribe_many(data / "subscriptions.csv")
    for event in pa.csv.read_csv(data / "events.csv").to_pylist():
        values = {key: value for key, value in event.items() if key != "id"}
        if engine.match(values):
            assert summary.may_match(values)
    with pytest.raises(UsageError, match="name its coordinates, 'lon' and 'lat'"):
        Summary(space, attributes=["position"])


@pytest.mark.parametrize("merging", [False, True])
def test_an_exact_summary_matches_what_the_engine_does(data, engine, merging):
    space = Space.load(data / "space.toml")
    summary = ExactSummary(space, attributes=["lon", "lat"], bits=6, merging=merging)
    summary.subscribe_many(data / "subscriptions.csv")
    again = ExactSummary(space, attributes=["lon", "lat"], bits=6, merging=merging)
    for name in summary.advertised():
        again.subscribe(name, summary.entry(name).filter)
    for event in pa.csv.read_csv(data / "events.csv").to_pylist()[:120]:
        values = {key: value for key, value in event.items() if key != "id"}
        assert sorted(summary.match(values)) == sorted(engine.match(values))
        assert summary.may_match(values) == again.may_match(values) == bool(engine.match(values))


def test_an_exact_summary_holds_back_equal_shapes(data, tmp_path):
    summary = ExactSummary(Space.load(data / "space.toml"), attributes=["lon", "lat"], bits=6)
    circle = "within(position, circle(13, 52, 5 km))"
    assert summary.subscribe("circle", circle).subscribe == ["circle"]
    assert summary.subscribe("faster", f"{circle} and speed > 3").subscribe == []
    assert summary.subscribe("smaller", "within(position, circle(13, 52, 4 km))").subscribe == [
        "smaller"  # which is not known to lie inside
    ]
    box = "lon between 12 and 14 and lat between 51 and 53"
    assert set(summary.subscribe("box", box).unsubscribe) == {"circle", "smaller"}
    assert set(summary.unsubscribe("box").subscribe) == {"circle", "smaller"}
    assert summary.advertised() == ["circle", "smaller"]
    summary.save(tmp_path / "saved")
    opened = ExactSummary.open(tmp_path / "saved")
    inside = {"lon": 13.0, "lat": 52.04, "speed": 9.0}
    assert opened.match(inside) == summary.match(inside) == ["circle", "faster"]


def test_what_takes_only_ranges_rejects_shapes(data, tmp_path, cli):
    from rangecast.spark import TopKLists

    space = Space.load(data / "space.toml")
    reason = "'position', of type location, has conditions that aren't ranges, which {} doesn't"
    for make, what in (
        (
            lambda: Board(2, space=space, upper_bound_attribute="speed"),
            "a board with upper_bound_attribute",
        ),
        (lambda: TopKLists(None, tmp_path / "lists", space=space), "TopKLists"),
    ):
        with pytest.raises(RangecastError) as caught:
            make()
        assert reason.format(what) in str(caught.value)
    (data / "objects.csv").write_text("id,lon,lat,speed,value\na,13,52,3,1\n")
    (data / "updates.csv").write_text("id,value\na,2\n")
    (data / "interests.csv").write_text("id,filter\n1,speed > 2\n")
    files = ("objects.csv", "updates.csv", "interests.csv", "--space", "space.toml")
    done = cli("route", "zones", *files, "--brokers", "3", cwd=data, code=2)
    assert reason.format("a network of zones") in " ".join(done.stderr.split())


def test_relaxed_ranking_counts_a_shape_once(engine):
    event = {"lon": 13.0, "lat": 52.5, "speed": 60.0}
    matched = set(engine.match(event))
    for name, score in engine.rank(event, 60, relaxed=True):
        conditions = engine[name].filter.count(" and ") + 1
        assert (score == conditions) == (name in matched)
        assert score <= conditions


def test_check_draws_a_filter(tmp_path, cli):
    Space([Location("at"), Point("place"), Number("speed")]).save(tmp_path / "space.toml")
    ring = ", ".join(f"{n / 9} {n * n / 9}" for n in range(9))
    for text in (
        "within(at, circle(179.9, 80, 200 km)) and speed > 3",
        "within(place, circle(1, 2, 3)) or within(place, buffer('LINESTRING (0 0, 4 4)', 1))",
        f"not within(place, 'POLYGON (({ring}, 0 0))')",
    ):
        cli("check", text, "--space", "space.toml", "--plot", "shape.svg", cwd=tmp_path)
        assert "<svg" in (tmp_path / "shape.svg").read_text()
        (tmp_path / "shape.svg").unlink()
    done = cli(
        "check", "speed > 3", "--space", "space.toml", "--plot", "no.svg", cwd=tmp_path, code=2
    )
    assert "this one has none" in done.stderr
    assert not (tmp_path / "no.svg").exists()
