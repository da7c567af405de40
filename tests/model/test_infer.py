"""A space guessed from data: what each column is taken for, and that its events can be read."""

import json
from datetime import UTC, datetime, time, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rangecast import encode_events
from rangecast.errors import FileError, SpaceError
from rangecast.model.attributes.text import Hierarchy
from rangecast.model.infer import LEAVES
from rangecast.model.io.batch import Batch
from rangecast.model.io.writer import write_table
from rangecast.model.space import Space
from rangecast.workloads import generate

DAY = datetime(2024, 1, 5, 8, 30, tzinfo=UTC)


def taxi(rows=400):
    """Trips as New York publishes them, with what makes them awkward."""
    rng = np.random.default_rng(1)
    zones = ["Manhattan/Soho", "Manhattan/Chelsea", "Queens/JFK", "Queens/Astoria"]
    passengers = rng.integers(1, 6, rows).astype(float)
    return {
        "VendorID": rng.integers(1, 3, rows),
        "tpep_pickup_datetime": [(DAY + timedelta(minutes=n)).isoformat(" ") for n in range(rows)],
        "passenger_count": [None if n % 50 == 0 else one for n, one in enumerate(passengers)],
        "trip_distance": rng.random(rows) * 20,
        "store_and_fwd_flag": ["Y" if one < 0.1 else "N" for one in rng.random(rows)],
        "zone": [zones[one] for one in rng.integers(0, 4, rows)],
        "zip": [("10012", "02134")[one] for one in rng.integers(0, 2, rows)],
        "fare_lo": rng.random(rows),
        "fare": rng.random(rows) * 90,
        "airport_fee": [None] * rows,
        "hash": [f"{one:x}" for one in rng.integers(2**62, 2**63 - 1, rows)],
    }


TAXI = {
    "VendorID": "integer, 1 to 2 in 400 rows",
    "tpep_pickup_datetime": "timestamp, 2024-01-05T08:30:00Z to 2024-01-05T15:09:00Z in 400 rows",
    "passenger_count": "number, 1 to 5 in 400 rows, 8 missing; all are whole numbers, it may be "
    "an integer",
    "store_and_fwd_flag": "category, 2 distinct values in 400 rows",
    "zone": "hierarchy, paths by '/': 4 leaves, 2 concepts in 400 rows",
    "zip": "category, 2 distinct values in 400 rows",
    "fare_lo": "left out, a column 'fare_lo' would also be a bound of 'fare'; rename it",
    "airport_fee": "left out, it has no value in 400 rows",
    "hash": "string, 400 distinct values in 400 rows: no two are the same",
}


def events_of(table, space):
    return encode_events(table, space, ignore_unknown=True).points


def test_taxi_trips():
    space = Space.infer(taxi())
    assert TAXI.items() <= space.guesses.items()
    assert list(space.guesses) == list(taxi())
    assert [each.type for each in space] == [
        *("integer", "timestamp", "number", "number", "category", "hierarchy", "category"),
        *("number", "string"),
    ]
    assert isinstance(space["zone"], Hierarchy)
    assert space["zone"].equal("Queens") == (2.0, 3.0)
    assert np.isfinite(events_of(taxi(), space)).sum() == 9 * 400 - 8


def test_the_market():
    space = Space.infer(generate("market", seed=1, subscriptions=1, events=2000).tables["events"])
    assert {each.name: each.type for each in space} == {
        "symbol": "string",
        "sector": "category",
        "price": "number",
        "volume": "integer",
        "pe": "number",
        "risk": "number",
        "time": "timestamp",
        "halted": "boolean",
    }
    assert space.guesses["id"] == "left out, it names the rows"
    assert space.guesses["sector"] == "category, 22 distinct values in 2,000 rows"


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_every_format_gives_the_same_space(tmp_path, suffix):
    path = tmp_path / f"trips.{suffix}"
    trips = taxi() | {"passenger_count": [1.5] * 400}  # CSV doesn't tell 1.0 from 1
    write_table(pa.table(trips), path)
    space = Space.infer(path)
    assert space == Space.infer(trips) == Space.infer(pd.DataFrame(trips))
    assert space.guesses == Space.infer(trips).guesses


def test_guesses_are_comments_of_the_file(tmp_path):
    space = Space.infer(taxi() | {"two\nlines": [True] * 400})
    space.save(tmp_path / "space.toml")
    text = (tmp_path / "space.toml").read_text()
    begin = "# fare_lo: left out, a column 'fare_lo' would also be a bound of 'fare'; rename it\n"
    assert text.startswith(begin)
    assert '\n# VendorID: integer, 1 to 2 in 400 rows\n[[attribute]]\nname = "VendorID"\n' in text
    assert "\n# 'two\\nlines': boolean" in text
    assert Space.load(tmp_path / "space.toml") == space


def test_bounds_are_open_unless_asked_for():
    table = {"x": [1.5, 3.0], "n": [1, 2], "at": [DAY, DAY]}
    assert "min" not in str(Space.infer(table).definition())
    bounded = Space.infer(table, bounds=True)
    assert [each.definition() | {"name": ""} for each in bounded] == [
        {"name": "", "type": "number", "min": 1.5, "max": 3.0},
        {"name": "", "type": "integer", "min": 1, "max": 2},
        {"name": "", "type": "timestamp", "min": DAY, "max": DAY},
    ]
    assert bounded.guesses["x"].endswith("; min and max are those of the data")


@pytest.mark.parametrize(
    ("values", "guess"),
    [
        (["1", "2"], "integer, 1 to 2 in 2 rows"),
        (["1", "2.5"], "number, 1 to 2.5 in 2 rows"),
        (["1e3", "-.5"], "number, -0.5 to 1000 in 2 rows"),
        ([2**60 + 1, 3], "number, 3 to 1.152921504606847e+18 in 2 rows"),
        (["True", "false"], "boolean, true or false in 2 rows"),
        ([0, 1], "integer, 0 to 1 in 2 rows"),
        (["01", "02"] * 10, "category, 2 distinct values in 20 rows"),
        (["a", "b"], "string, 2 distinct values in 2 rows: no two are the same"),
        (["a", "a"], "string, 1 distinct value in 2 rows: too few rows to know all values"),
        (["1.5", "2", "N/A"], "string in 3 rows; not number because of 'N/A' in row 2"),
        (
            ["2026-01-31", None],
            "timestamp, 2026-01-31T00:00:00Z to 2026-01-31T00:00:00Z in 2",
        ),
        (["2026/01/31", "2026/01/30"] * 10, "category, 2 distinct values in 20 rows"),
        (["a/b", "a/c", "a"] * 10, "category, 3 distinct values in 30 rows"),
        (["a::b::x", "a::b::y", "a::c"] * 10, "hierarchy, paths by '::': 3 leaves, 2 concepts"),
        ([1.5, float("nan")], "number, 1.5 to 1.5 in 2 rows, 1 NaN (to read as missing: --nan"),
        ([float("nan")] * 2, "number, only NaN values in 2 rows"),
        (["x", float("nan")] * 10, "category, 1 distinct value in 20 rows, 10 NaN"),
        ([1, "a"], "left out, it has values of different types, number and text"),
        ([time(1), None], "left out, no attribute type takes its values, time"),
        ([b"x"], "left out, no attribute type takes its values, bytes"),
        ([{}], "left out, no attribute type takes its values, dict"),
        ([None], "left out, it has no value in 1 row"),
        (
            [np.datetime64("2026-01-31T00:00:00.000000001")],
            "left out, 'x' must be in whole microseconds: '2026-01-31T00:00:00.000000001' in row 0",
        ),
    ],
)
def test_a_column(values, guess):
    table = {"other": [1] * len(values), "x": values}
    space = Space.infer(table)
    assert space.guesses["x"].startswith(guess)
    if "x" in space.axes:  # what was guessed takes the data that it was guessed from
        assert len(encode_events(table, space, nan="missing").points) == len(values)
        assert Space.from_toml(space.to_toml()) == space


def test_texts_beyond_what_is_listed():
    rows = [f"a/{n % (LEAVES + 5)}" for n in range(20_000)]
    told = Space.infer({"x": rows}).guesses["x"]
    assert told == "string, more than 1,000 distinct values in 20,000 rows: too many to list"
    assert Space.infer({"x": [f"a/b{n % 900}" for n in range(20_000)]})["x"].type == "hierarchy"


def test_later_batches_count(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = ['{"x": 1}'] * 70_000 + ['{"x": 1.5, "late": true}', '{"x": "a"}']
    path.write_text("\n".join(lines[:-1]) + "\n")
    assert Space.infer(path).guesses == {
        "x": "number, 1 to 1.5 in 70,001 rows",
        "late": "boolean, true or false in 70,001 rows, 70,000 missing",
    }
    path.write_text("\n".join(lines) + "\n")
    told = "left out, it has values of different types, number and text"
    assert Space.infer(path).guesses["x"] == told


def test_a_row_is_counted_within_its_file(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1.5\n2.5\n3.5\n")
    (tmp_path / "b.csv").write_text("x\n4.5\nN/A\n5.5\n6.5\n")
    for given in (tmp_path, tmp_path / "*.csv"):
        told = Space.infer(given).guesses["x"]
        assert told.endswith(f"; not number because of 'N/A' in row 1 of {tmp_path / 'b.csv'}")
    told = Space.infer(tmp_path / "b.csv").guesses["x"]
    assert told.endswith("; not number because of 'N/A' in row 1")


@pytest.mark.parametrize("name", ["filter", "score", "seq", " "])
def test_names_that_no_attribute_can_have(name):
    space = Space.infer({"x": [1], name: [1]})
    assert space.names == ("x",)
    assert space.guesses[name].startswith("left out, ")


def test_a_file_without_any_attribute_says_why_of_each_column():
    with pytest.raises(SpaceError) as told:
        Space.infer([{"id": 1, "x": None}])
    assert str(told.value) == (
        "no column can be an attribute\n"
        "  id: left out, it names the rows\n"
        "  x: left out, it has no value in 1 row"
    )
    with pytest.raises(SpaceError, match="no column can be an attribute: there is none"):
        Space.infer([])
    with pytest.raises(FileError, match="no such file"):
        Space.infer("absent.csv")


def test_the_command(cli, tmp_path):
    (tmp_path / "events.csv").write_text("id,price,note\n1,1.5,\n2,2,\n")
    said = cli("space", "infer", "events.csv", "-o", "space.toml").stderr
    guesses = [
        "id: left out, it names the rows",
        "price: number, 1.5 to 2 in 2 rows",
        "note: left out, it has no value in 2 rows",
    ]
    assert said.splitlines()[:3] == guesses
    assert "1 attribute, 2 columns left out" in said
    text = (tmp_path / "space.toml").read_text()
    assert Space.from_toml(text) == Space.infer(tmp_path / "events.csv")
    again = ("space", "infer", "events.csv", "-o", "space.toml", "--bounds")
    told = "space.toml: already exists\n  hint: write to another file, or pass --overwrite"
    assert told in cli(*again, code=2).stderr
    assert (tmp_path / "space.toml").read_text() == text
    facts = json.loads(cli(*again, "--overwrite", "--json").stdout)
    assert facts["guesses"]["price"].endswith("; min and max are those of the data")
    assert "max = 2.0" in (tmp_path / "space.toml").read_text()
    there = (tmp_path / "events.csv").read_bytes()
    assert cli("space", "infer", "-", stdin=there).stdout == text
    cli("space", "infer", "events.csv", "-o", "events.csv", "--overwrite", code=2)
    assert (tmp_path / "events.csv").read_bytes() == there


NESTED = [
    {
        "id": n,
        "total": 1.5,
        "order": {"total": n + 0.5, "is open": n % 2 == 0, "lines": [n]},
        "user": {"home": {"city": "kiel" if n % 3 else "ulm"}, "since": "2024-01-01"},
        "mixed": {"a": 1} if n else 7,
        "note": None if n else {"it's \"": 1},
        "a_b": n,
        "a": {"b": n},
    }
    for n in range(40)
]


def nested_files(folder):
    lines = folder / "e.jsonl"
    lines.write_text("".join(json.dumps(one) + "\n" for one in NESTED))
    yield lines
    plain = [{key: one[key] for key in one if key not in ("mixed", "note")} for one in NESTED]
    for suffix in ("parquet", "arrow"):
        write_table(pa.Table.from_pylist(plain), folder / f"e.{suffix}")
        yield folder / f"e.{suffix}"


def test_fields_within_fields_get_a_source(tmp_path):
    for given in (NESTED, *nested_files(tmp_path)):
        space = Space.infer(given)
        assert {one.name: (one.type, one.source) for one in space} == {
            "total": ("number", None),
            "order_total": ("number", "$.order.total"),
            "order_is open": ("boolean", "$.order['is open']"),
            "user_home_city": ("category", "$.user.home.city"),
            "user_since": ("timestamp", "$.user.since"),
            "a_b": ("integer", None),
        }
        assert "left out, no attribute type takes its values" in space.guesses["$.order.lines"]
        assert "a column 'a_b' would also be" in space.guesses["$.a.b"]
        if "mixed" in space.guesses:
            assert "it has values of different types" in space.guesses["mixed"]
            assert "both kinds of quotes" in space.guesses["note_it's \""]
        assert Space.from_toml(space.to_toml()) == space
        (point,) = encode_events(NESTED[3:4], space, ignore_unknown=True).points
        assert point[space.axis("order_total")] == 3.5
    bounded = Space.infer(NESTED, bounds=True)
    assert bounded["order_total"].definition() == {
        "name": "order_total",
        "type": "number",
        "min": 0.5,
        "max": 39.5,
        "source": "$.order.total",
    }


def test_objects_in_some_batches_alone_are_no_attribute(tmp_path, monkeypatch):
    path = tmp_path / "e.jsonl"
    rows = [{"x": 1}, {"x": {"y": 1}, "z": None}, {"z": {"y": 2}}]
    batches = [(Batch.of(pa.RecordBatch.from_pylist([one])), "") for one in rows]
    monkeypatch.setattr("rangecast.model.infer._batches", lambda _: batches)
    space = Space.infer(path)
    assert [(one.name, one.source) for one in space] == [("z_y", "$.z.y")]
    assert space.guesses["x"] == "left out, it has values of different types, number and object"
