"""Columns of geometries: WKB, WKT and GeoArrow become the shapes that shapely reads from them."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.parquet
import pytest
import shapely

from rangecast import Engine
from rangecast.errors import UsageError
from rangecast.interop import geoparquet

HOLE = shapely.Polygon([(0, 0), (9, 0), (9, 9), (0, 9)], [[(3, 3), (6, 3), (6, 6), (3, 6)]])
SHAPES = {
    "hole": HOLE,
    "two": shapely.MultiPolygon([shapely.box(20, 0, 21, 1), shapely.box(22, 0, 23, 1)]),
    "height": shapely.Polygon([(30, 0, 5), (31, 0, 5), (30, 1, 5)]),
    "point": shapely.Point(40, 40),
}


def positions():
    r = random.Random(1)
    found = [(r.uniform(-1, 32), r.uniform(-1, 10)) for _ in range(300)]
    return [*found, (40.0, 40.0), (9.0, 5.0), (3.0, 4.0), (21.0, 0.5)]


def check(done):
    assert not done.rejected, done.rejected
    engine = Engine(done.space)
    engine.subscribe_many(done.subscriptions)
    for x, y in positions():
        event = {"longitude": x, "latitude": y}
        expected = {name for name, one in SHAPES.items() if one.covers(shapely.Point(x, y))}
        assert set(engine.match(event)) == expected


@pytest.mark.parametrize("flavor", ["iso", "extended"])
@pytest.mark.parametrize("order", [0, 1])
def test_wkb(tmp_path, flavor, order):
    made = [shapely.to_wkb(one, flavor=flavor, byte_order=order) for one in SHAPES.values()]
    table = pa.table({"name": list(SHAPES), "shape": made, "n": [1, 2, 3, 4]})
    pa.parquet.write_table(table, tmp_path / "zones.parquet")
    check(geoparquet.read(tmp_path / "zones.parquet"))
    again = geoparquet.read(table, id_property="n")
    assert [one["id"] for one in again.subscriptions] == ["1", "2", "3", "4"]
    with_srid = [
        shapely.to_wkb(shapely.set_srid(one, 4326), include_srid=True) for one in SHAPES.values()
    ]
    check(geoparquet.read(pa.table({"id": list(SHAPES), "shape": with_srid})))


def test_wkt_and_the_primary_column():
    texts = [shapely.to_wkt(one, rounding_precision=-1) for one in list(SHAPES.values())[:3]]
    texts.append('{"type": "Point", "coordinates": [40, 40]}')
    table = pa.table({"id": list(SHAPES), "other": [b"x"] * 4, "area": texts})
    check(geoparquet.read(table, geometry="area"))
    meta = {b"geo": json.dumps({"primary_column": "area"}).encode()}
    check(geoparquet.read(table.replace_schema_metadata(meta)))
    for bad in (table.select(["id"]), table.append_column("more", pa.array([b"y"] * 4))):
        with pytest.raises(UsageError, match="exactly one column of geometries"):
            geoparquet.read(bad)
    with pytest.raises(UsageError, match="no column 'x'"):
        geoparquet.read(table, geometry="x")


def test_geoarrow():
    rings = [
        [[list(corner) for corner in ring.coords] for ring in (HOLE.exterior, *HOLE.interiors)]
    ]
    point = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    points = [[[{"x": x, "y": y} for x, y in ring] for ring in polygon] for polygon in rings]
    for kind, values in ((pa.list_(pa.float64(), 2), rings), (point, points)):
        typed = pa.array(values, pa.list_(pa.list_(kind)))
        field = pa.field("area", typed.type, metadata={"ARROW:extension:name": "geoarrow.polygon"})
        table = pa.table(
            [pa.array(["hole"]), typed], pa.schema([pa.field("id", pa.string()), field])
        )
        done = geoparquet.read(table)
        assert done.subscriptions == [
            {
                "id": "hole",
                "filter": "within(position, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), "
                "(3 3, 6 3, 6 6, 3 6, 3 3))')",
            }
        ]


def test_heights_and_measures_are_dropped_and_told():
    flat, high = shapely.box(20, 0, 21, 1), shapely.Polygon([(30, 0, 5), (31, 0, 5), (30, 1, 5)])
    measured = shapely.from_wkt("POLYGON M ((30 0 5, 31 0 5, 30 1 5, 30 0 5))")
    nested = [[{"x": x, "y": y, "z": z} for x, y, z in high.exterior.coords]]
    point = pa.struct([(name, pa.float64()) for name in "xyz"])
    polygon = pa.list_(pa.list_(point))
    marked = pa.field("area", polygon, metadata={"ARROW:extension:name": "geoarrow.polygon"})
    columns = {
        "WKB": pa.array([shapely.to_wkb(flat), shapely.to_wkb(high)]),
        "WKB with M": pa.array([shapely.to_wkb(flat), shapely.to_wkb(measured, flavor="iso")]),
        "WKT": pa.array([flat.wkt, high.wkt]),
        "WKT with ZM": pa.array([flat.wkt, "POLYGON ZM ((3 0 5 1, 4 0 5 1, 3 1 5 1, 3 0 5 1))"]),
        "GeoArrow": pa.array([nested], polygon),
    }
    for name, column in columns.items():
        field = marked if name == "GeoArrow" else pa.field("area", column.type)
        table = pa.table([column], pa.schema([field]))
        done = geoparquet.read(table, geometry="area")
        assert len(done.subscriptions) == len(column), name
        assert "1 feature with heights or measures, which are dropped" in done.notes, name
    only = geoparquet.read(pa.table({"area": columns["WKT"][:1]}), geometry="area")
    assert not any("heights" in note for note in only.notes)


def test_damaged_bytes_are_rejected_alone():
    r = random.Random(7)
    whole = shapely.to_wkb(HOLE)
    for _ in range(400):
        data = bytearray(whole)
        if r.random() < 0.4:
            del data[r.randrange(len(data)) :]
        else:
            data[r.randrange(len(data))] = r.randrange(256)
        done = geoparquet.read(pa.table({"id": ["bad", "good"], "shape": [bytes(data), whole]}))
        assert "good" in [one["id"] for one in done.subscriptions]
        for one in done.rejected:
            assert "can't be read" not in one.reason, one


def test_the_shell(tmp_path, cli):
    table = pa.table({"zone": list(SHAPES), "shape": [shapely.to_wkb(x) for x in SHAPES.values()]})
    pa.parquet.write_table(table, tmp_path / "zones.parquet")
    command = ("import", "geoparquet", "zones.parquet", "--id-property", "zone", "-o", "s.csv")
    cli(*command, "--space-out", "space.toml", cwd=tmp_path)
    assert "within(position" in (tmp_path / "s.csv").read_text()
    cli("export", "geoparquet", "s.csv", "--space", "space.toml", cwd=tmp_path, code=2)
