"""PostgreSQL ranges, Vespa predicates, GeoJSON, and the shell: both sides agree."""

import inspect
import json
from typing import get_args

import pytest

from rangecast import Category, Integer, Number, Space, String, Timestamp, interop
from rangecast.cli.commands.data.import_export import System
from rangecast.errors import FileError, UsageError
from rangecast.interop import geojson, postgres, vespa
from tests.interop.test_import import agree, matches, rejection, same_after_the_way_back


def test_the_shell_knows_every_system():
    modules = {name for name in interop.__all__ if inspect.ismodule(getattr(interop, name))}
    assert {*get_args(System)} == modules


def test_the_shell_imports_and_exports(cli, tmp_path):
    (tmp_path / "rules.json").write_text('{"a": "n in [1..2]", "b": "n in [x]"}')
    said = cli("import", "vespa", "rules.json", "-o", "s.csv", code=2).stderr
    assert said.startswith("rangecast: 1 rule can't be converted exactly; the first: b, n: comp")
    assert said.endswith("\n  hint: correct it, or list such rows in a file with --rejected FILE\n")
    assert not (tmp_path / "s.csv").exists()
    made = ("--rejected", "no.csv", "--space-out", "space.toml")
    facts = json.loads(cli("import", "vespa", "rules.json", "-o", "s.csv", *made, "--json").stdout)
    assert (facts["subscriptions"], facts["rejected"]) == (1, 1)
    assert (tmp_path / "no.csv").read_text().splitlines()[1].startswith("b,n,\"compares 'n' with")
    assert Space.load(tmp_path / "space.toml") == Space([Integer("n")])
    back = cli("export", "vespa", "s.csv", "--space", "space.toml").stdout
    assert json.loads(back) == {"a": "'n' in [1..2]"}
    table = cli("export", "postgres", "s.csv", "--space", "space.toml").stdout
    assert table == 'id,n\na,"[1,2]"\n'
    piped = cli("import", "postgres", "-", "--space", "space.toml", stdin=table.encode())
    assert piped.stdout == "id,filter\na,n between 1 and 2\n"
    said = cli("export", "vespa", "s.csv", "--space", "space.toml", "-o", "s.csv", code=2).stderr
    assert "s.csv: is an input of this command" in said
    (tmp_path / "there.json").write_text('{"a": {"x": [{"exists": true}]}}')
    assert (
        "warning: 'x' is only tested for presence"
        in cli("import", "eventbridge", "there.json").stderr
    )
    assert "not JSON" in cli("import", "vespa", "s.csv", code=2).stderr


# ---- PostgreSQL


def test_ranges_hold_where_they_held(tmp_path):
    (tmp_path / "rules.csv").write_text(
        "id,price,at\n"
        'a,"[10,20)",\n'
        'b,"(,10]","[""2026-01-01 00:00:00"",""2026-02-01 00:00:00"")"\n'
        'c,"{[1,3),(7.5,9]}","(,)"\n'
        'd,,"[2026-01-15,infinity)"\n'
        "e,empty,\n"
        'f,"{}",\n'
        "g,,\n"
    )
    imported = postgres.read(tmp_path / "rules.csv")
    assert imported.space == Space([Number("price"), Timestamp("at")])
    assert [one.id for one in imported.rejected] == ["e", "f"]
    day, late = "2026-01-15T00:00:00Z", "2026-02-01T00:00:00Z"
    expected = [
        ({"price": 10}, ["a", "g"]),
        ({"price": 20}, ["g"]),
        ({"price": 10, "at": day}, ["a", "b", "d", "g"]),
        ({"price": 3, "at": late}, ["d", "g"]),
        ({"price": 2, "at": "2025-12-31T00:00:00Z"}, ["c", "g"]),
        ({"price": 7.5, "at": day}, ["b", "d", "g"]),
        ({"price": 9}, ["g"]),
        ({"at": day}, ["d", "g"]),
        ({}, ["g"]),
    ]
    assert matches(imported, [event for event, _ in expected]) == [ids for _, ids in expected]
    done = same_after_the_way_back(postgres, imported)
    assert done.unsupported == []
    assert done.text.splitlines()[1] == 'a,"[10,20)",'
    (tmp_path / "again.csv").write_text(done.text)
    again = postgres.read(tmp_path / "again.csv", imported.space)
    assert again.subscriptions == imported.subscriptions


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("1..5", "takes a range such as"),
        ("[1,5) [7,9)", "takes a range such as"),
        ("[1,5),[7,9)", "takes a range such as"),
        ("{[1,5)", "takes a range such as"),
        ("{[1,5),}", "takes a range such as"),
        ("[a,b)", "a number or a timestamp"),
        ("[1,2026-01-01)", "have different types"),
        ("[5,1]", "can never match"),
        ("[nan,)", "a number or a timestamp"),
    ],
)
def test_cells_that_are_no_ranges_are_rejected(cell, reason):
    assert reason in rejection(postgres, {"price": cell})[1]


def test_tables_that_are_none_are_rejected(tmp_path):
    (tmp_path / "t.csv").write_text('name,price\nx,"[1,2)"\n')
    with pytest.raises(FileError, match="has no column 'id'"):
        postgres.read(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text('id,price\nx,"[1,2)",too much\n')
    assert "has 3 cells" in postgres.read(tmp_path / "t.csv").rejected[0].reason
    rows = [{"id": 1, "price": "[1,2)"}, {"id": 2, "price": None}]
    assert [one["filter"] for one in postgres.read(rows).subscriptions] == [
        "1 <= price < 2",
        "true",
    ]
    space = Space([Number("n"), String("s")])
    filters = ["s = 'x'", "n is null", "n < 1 or s = 'x'", "n = 5 or n = 7"]
    done = postgres.write([{"id": i, "filter": one} for i, one in enumerate(filters)], space)
    assert done.rules == {"3": {"n": "{[5,5],[7,7]}"}}


# ---- Vespa

ADS = Space([Integer("age"), String("gender"), Category("hobby", ["Music", "Hiking", "it's"])])
PEOPLE = [
    {key: value for key, value in one.items() if value is not None}
    for age in (None, 19, 20, 30, 31)
    for gender in (None, "Male", "Female")
    for one in ({"age": age, "gender": gender, "hobby": "Music"}, {"age": age, "gender": gender})
]
PREDICATES = {
    "gender in [Female] and age in [20..30]": lambda a, g, h: g == "Female" and 20 <= a <= 30,
    "age in [20..]": lambda a, g, h: a >= 20,
    "age in [..20] or hobby in [Music, 'Hiking']": lambda a, g, h: 0 <= a <= 20 or h == "Music",
    "age not in [20..29] and hobby not in [Music]": (
        lambda a, g, h: not 20 <= a <= 29 and h != "Music"
    ),
    "not age in [20..29] and not (gender in ['Male'])": (
        lambda a, g, h: not 20 <= a <= 29 and g != "Male"
    ),
    "not (age in [20..29] or gender in [Male, 'x'])": (
        lambda a, g, h: not 20 <= a <= 29 and g != "Male"
    ),
    '(age in [20..20] and gender in Male) or (age in [31..] and gender in ["Female"])': (
        lambda a, g, h: (a == 20 and g == "Male") or (a >= 31 and g == "Female")
    ),
    "TRUE and age in [..]": lambda a, g, h: a >= 0,
    "true": lambda a, g, h: True,
    "'hobby' in ['it\\'s', \"\\x4dusic\"]": lambda a, g, h: h == "Music",
}


def test_predicates_hold_where_they_held():
    rules = {text: text for text in PREDICATES}

    def holds(text, one):
        return PREDICATES[text](one.get("age", -1), one.get("gender"), one.get("hobby"))

    imported = vespa.read(rules, ADS)
    agree(imported, rules, PEOPLE, holds)
    assert same_after_the_way_back(vespa, imported).unsupported == []
    assert vespa.read({"a": "x in [1..5] and y in [1]"}).space == Space([Integer("x"), String("y")])
    fed = [{"put": "id:ads:ad::1", "fields": {"target": "age in [1..2]"}}]
    (read,) = vespa.read(fed, field="target").subscriptions
    assert read == {"id": "id:ads:ad::1", "filter": "age between 1 and 2"}
    with pytest.raises(UsageError, match="no rules were found"):
        vespa.read(fed)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("age in [20..", "character 9", "expected a name or a value, found 2"),
        ("age is [1]", "character 5", "expected in, found is"),
        ("age in [1..2] gender in [x]", "character 15", "expected the end"),
        ("false", "", "can never match"),
        ("age in ['x'] and age in [1..2]", "age", "an attribute has one type"),
        ("(" * 150 + "a in [x]" + ")" * 150, "", "nested more than 100 deep"),
        (5, "", "a predicate must be a string"),
    ],
)
def test_predicates_that_cannot_be_read_are_rejected(text, place, reason):
    found = rejection(vespa, text)
    assert found[0] == place
    assert reason in found[1]


def test_what_predicates_cannot_say_is_rejected():
    space = Space([*ADS, Number("n")])
    filters = ["n < 5", "gender is null", "gender != 'x'", "hobby is not null", "age is null"]
    done = vespa.write([{"id": i, "filter": one} for i, one in enumerate(filters)], space)
    assert [one.id for one in done.unsupported] == ["0", "1", "2"]
    assert done.rules == {
        "3": "'hobby' in ['Music', 'Hiking', 'it\\'s']",
        "4": "'age' not in [..]",
    }


# ---- GeoJSON


def feature(id_, kind, coordinates):
    return {"type": "Feature", "id": id_, "geometry": {"type": kind, "coordinates": coordinates}}


def box(west, south, east, north):
    return [[[west, south], [east, south], [east, north], [west, north], [west, south]]]


def test_shapes_are_exact():
    features = [
        feature("square", "Polygon", box(0, 0, 10, 5)),
        feature("triangle", "Polygon", [[[0, 0], [10, 0], [0, 5.5], [0, 0]]]),
        feature("point", "Point", [3, 4, 100]),
        feature("two", "MultiPolygon", [box(170, -5, 180, 5), box(-180, -5, -170, 5)]),
        feature("line", "LineString", [[0, 0], [1, 1]]),
        feature("hole", "Polygon", [*box(0, 0, 4, 4), *box(1, 1, 2, 2)]),
        feature("far", "Point", [200, 0]),
        feature("none", "Polygon", []),
        feature("crossed", "Polygon", [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]),
        {"type": "Feature", "geometry": None},
    ]
    imported = geojson.read({"type": "FeatureCollection", "features": features})
    rejected = ["line", "far", "none", "9", "crossed"]
    assert [one.id for one in imported.rejected] == rejected
    assert [note.partition(",")[0].partition(";")[0] for note in imported.notes] == [
        "1 feature with heights or measures",
        "1 feature with rings wound opposite to RFC 7946",
        "edges are straight in degrees",
    ]
    assert [one.name for one in imported.space] == ["longitude", "latitude", "position"]
    places = (3, 4), (1, 1), (1.5, 1.5), (10, 5), (8, 4), (175, 0), (-175, 5.5)
    points = [{"longitude": x, "latitude": y} for x, y in places]
    assert matches(imported, [*points, {}]) == [
        ["square", "point", "hole"],
        ["square", "triangle", "hole"],
        ["square", "triangle"],
        ["square"],
        ["square"],
        ["two"],
        [],
        [],
    ]
    done = geojson.write(imported.subscriptions, imported.space)
    assert [one.id for one in done.unsupported] == ["point"]
    again = geojson.read(json.loads(done.text), imported.space)
    assert (again.rejected, again.notes) == ([], imported.notes[2:])
    before = {one["id"]: one["filter"] for one in imported.subscriptions}
    for one in again.subscriptions:
        if one["id"] != "hole":  # whose hole was wound the other way
            assert one["filter"] == before[one["id"]]
    filters = [
        *("longitude > 5 and latitude < 3", "latitude >= 3", "longitude is null"),
        *("within(position, circle(1, 2, 3 km))", f"not {before['triangle']}"),
        f"{before['triangle']} and longitude > 3",
    ]
    asked = [{"id": i, "filter": one} for i, one in enumerate(filters)]
    assert geojson.write(asked, imported.space).rules == {}
    rectangle = "longitude between 1 and 2 and latitude between 3 and 4"
    (written,) = geojson.write([{"id": 1, "filter": rectangle}], imported.space).rules.values()
    assert written["coordinates"] == [[[1, 3], [2, 3], [2, 4], [1, 4], [1, 3]]]
    (rejected,) = vespa.write(imported.subscriptions[:1], imported.space).unsupported
    assert rejected.reason == "shapes have no counterpart there"
    with pytest.raises(UsageError, match="FeatureCollection"):
        geojson.read({"type": "Point"})
    with pytest.raises(UsageError, match="need a location"):
        geojson.read({"features": []}, Space([Number("longitude")]))


def test_names_of_features_become_ids():
    def named(id_=None, **properties):
        point = {"type": "Point", "coordinates": [1, 2]}
        return {"type": "Feature", "id": id_, "properties": properties, "geometry": point}

    features = [
        named("own", id="other", name="port"),
        named(id=70, name="yard"),
        named(name="<b>quay</b>"),
        named(name="park"),
        named(name="park"),
        named(name="own"),  # the id of another feature
        named(name=""),
        named(name=True),
        named(name={"en": "x"}),
        named(name=12),
        named(id=70, name="alone"),
        named() | {"properties": ["name"]},
    ]
    imported = geojson.read({"features": features})
    assert [one["id"] for one in imported.subscriptions] == [
        *("own", "70", "<b>quay</b>", "park (3)", "park (4)", "own (5)"),
        *("6", "7", "8", "12", "11"),
    ]
    assert [(one.id, one.reason) for one in imported.rejected] == [("70", "duplicate id")]
    (note,) = imported.notes
    assert note.startswith("2 names of several features")
    assert note.endswith("(park, own)")
