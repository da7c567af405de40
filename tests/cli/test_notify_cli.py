"""`rangecast notify`, as a user runs it."""

import csv
import json

import pyarrow.parquet as pq
import pytest

from rangecast.model.attributes.numbers import MAX
from rangecast.notify.messages import Message
from rangecast.notify.subscriber import Entry, Interest
from tests.support.notify_model import Model

COLUMNS = [
    "seq",
    "ordinal",
    "object",
    "position",
    "value",
    "left_inner",
    "right_inner",
    "left_outer",
    "right_outer",
]
OBJECTS = "id,position,value\na,1,5\nb,2,3\nc,3,4\nd,4,1\n"
UPDATES = "id,value,position\nb,9,\ne,2,2.5\nd,,\na,1,\nc,4,0.5\nb,3,\n"
INTERESTS = "id,position_lo,position_hi,k\n0,0,5,\n1,1,3,1\n2,2,,2\n3,,,1\n4,2.5,2.5,\n"


@pytest.fixture
def data(tmp_path):
    (tmp_path / "objects.csv").write_text(OBJECTS)
    (tmp_path / "updates.csv").write_text(UPDATES)
    (tmp_path / "interests.csv").write_text(INTERESTS)
    return tmp_path


FILES = ("objects.csv", "updates.csv", "interests.csv")


def rows(text):
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize(
    "options",
    [
        ("--algorithm", "dense"),
        ("--algorithm", "sparse"),
        ("--algorithm", "sparse", "--epsilon", 1),
        ("--algorithm", "sparse", "--sketch", 2),
        ("--algorithm", "batch", "--batch-size", 4),
        ("--algorithm", "batch-dense", "--batch-size", 4),
    ],
)
def test_applying_the_file_gives_the_right_lists(cli, data, options):
    done = cli("notify", *FILES, "-k", 2, *options, "--verify", "--json")
    facts = json.loads(done.stderr)
    assert (facts["updates"], facts["verified"], facts["mismatches"]) == (6, True, 0)
    given = rows(done.stdout)
    assert list(given[0]) == COLUMNS
    assert facts["messages"] == len(given)
    model = Model([(r["id"], float(r["position"]), float(r["value"])) for r in rows(OBJECTS)])
    ends = [
        (float(r["position_lo"] or -MAX), float(r["position_hi"] or MAX)) for r in rows(INTERESTS)
    ]
    held = [
        Interest(lo, hi, 2, entries=[Entry(*o) for o in model.best(lo, hi, 2)]) for lo, hi in ends
    ]
    arrivals = {name: o[1] for name, o in model.objects.items()} | {"e": 4}
    for row in given:
        numbers = {name: float(row[name]) for name in COLUMNS[3:]}
        message = Message(
            int(row["seq"]),
            int(row["ordinal"]),
            row["object"],
            **numbers,
            arrival=arrivals[row["object"]],
        )
        for interest in held:
            interest.receive(message)
    for row in rows(UPDATES):
        model.change(
            row["id"], *(float(row[name]) if row[name] else None for name in ("value", "position"))
        )
    for interest in held:
        assert [tuple(e) for e in interest.best] == model.best(interest.lo, interest.hi, 2)


@pytest.mark.parametrize("algorithm", ["dense", "sparse", "batch", "batch-dense"])
def test_highest_first_is_lowest_first_with_the_sign_turned(cli, data, algorithm):
    options = ("-k", 2, "--algorithm", algorithm, "--verify", "--json")
    low = cli("notify", *FILES, *options)
    for name in FILES[:2]:
        columns, *values = [line.split(",") for line in (data / name).read_text().splitlines()]
        y = columns.index("value")
        for row in values:
            row[y] = row[y] and str(-float(row[y]))
        text = "\n".join(",".join(row) for row in [columns, *values])
        (data / name).write_text(text + "\n")
    high = cli("notify", *FILES, *options, "--descending")
    facts = [json.loads(done.stderr) for done in (low, high)]
    assert [one["mismatches"] for one in facts] == [0, 0]
    assert facts[0]["calls"] == facts[1]["calls"]
    turned = [one | {"value": str(-float(one["value"]) + 0.0)} for one in rows(high.stdout)]
    given = [one | {"value": str(float(one["value"]))} for one in rows(low.stdout)]
    assert turned == given


def test_batches_over_dense_and_sparse_reach_the_same(cli, data):
    heard = []
    for algorithm in ("batch", "batch-dense"):
        given = rows(cli("notify", *FILES, "-k", 2, "--algorithm", algorithm).stdout)
        heard.append(
            {
                (row["object"], row["value"], one["id"])
                for row in given
                for one in rows(INTERESTS)
                if float(row["left_outer"])
                < float(one["position_lo"] or -MAX)
                <= float(row["left_inner"])
                and float(row["right_inner"])
                <= float(one["position_hi"] or MAX)
                < float(row["right_outer"])
            }
        )
    assert heard[0] == heard[1] != set()


def test_arrivals_of_objects_rank_equal_values(cli, data):
    (data / "objects.csv").write_text("id,position,value,arrival\na,1,5,3\nb,2,5,1\n")
    (data / "updates.csv").write_text("id,value,position\nc,1,9\nc,6,\n")
    (data / "interests.csv").write_text("id,position_lo,position_hi\n0,0,9\n")
    given = rows(cli("notify", *FILES, "-k", 1, "--verify").stdout)
    assert [row["object"] for row in given] == ["c", "c", "b"]


def test_numbers_are_rows_of_updates_and_infinities_are_written(cli, data):
    done = cli("notify", *FILES, "-k", 2, "--algorithm", "dense")
    given = rows(done.stdout)
    assert {int(r["seq"]) for r in given} <= set(range(6))
    assert any(r["left_outer"] == "-inf" for r in given)
    assert next(r["value"] for r in given if r["object"] == "d") == "inf"
    assert "6 updates of 4 objects for 5 interests" in done.stderr


def test_every_format_holds_the_same(cli, data):
    cli("notify", *FILES, "-k", 2, "-o", "messages.parquet", "-q")
    table = pq.read_table(data / "messages.parquet")
    assert table.column_names == COLUMNS
    text = cli("notify", *FILES, "-k", 2).stdout
    assert [r["object"] for r in rows(text)] == table["object"].to_pylist()
    assert [float(r["right_outer"]) for r in rows(text)] == table["right_outer"].to_pylist()


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        (
            "objects.csv",
            "id,position,value\na,1,5\nb,,3\n",
            "line 3 (row 1, counted from 0), column 'position'",
        ),
        (
            "objects.csv",
            "id,position,value\na,1,5\na,2,3\n",
            "line 3 (row 1, counted from 0), column 'id'",
        ),
        (
            "objects.csv",
            "id,position,value\na,1,no\n",
            "line 2 (row 0, counted from 0), column 'value'",
        ),
        ("updates.csv", "id,value\nb,9\nzz,2\n", "line 3 (row 1, counted from 0), column 'id'"),
        ("updates.csv", "id,value\nd,\nd,\n", "line 3 (row 1, counted from 0), column 'id'"),
        ("updates.csv", "id,value\nb,inf\n", "line 2 (row 0, counted from 0), column 'value'"),
        (
            "updates.csv",
            "id,value,position\nb,1,x\n",
            "line 2 (row 0, counted from 0), column 'position'",
        ),
        (
            "interests.csv",
            "id,position_lo,position_hi\n0,5,1\n",
            "line 2 (row 0, counted from 0), column 'position_hi'",
        ),
        (
            "interests.csv",
            "id,position_lo,position_hi,k\n0,1,2,0\n",
            "line 2 (row 0, counted from 0), column 'k'",
        ),
    ],
)
def test_rejected_rows_are_named_and_can_be_written(cli, data, name, text, place):
    (data / name).write_text(text)
    if name == "objects.csv":
        (data / "updates.csv").write_text("id,value\na,1\n")
    done = cli("notify", *FILES, code=2)
    assert f"{name}, {place}" in done.stderr
    if "no" not in text.split(","):
        cli("notify", *FILES, "--rejected", "bad.csv", "--verify")
        assert rows((data / "bad.csv").read_text())[0]["file"] == name


def test_wrong_use_is_explained(cli, data):
    assert (
        "'dens' is not one of 'dense'"
        in cli("notify", *FILES, "--algorithm", "dens", code=2).stderr
    )
    assert "epsilon must be above 0" in cli("notify", *FILES, "--epsilon", 2, code=2).stderr
    assert "is an input" in cli("notify", *FILES, "-o", "objects.csv", code=2).stderr
    (data / "updates.csv").write_text("id,value,z\n")
    assert "unknown column 'z'" in cli("notify", *FILES, code=2).stderr
    cli("notify", *FILES, "--ignore-unknown")
    (data / "updates.csv").write_text("name,value\na,1\n")
    assert "'id'" in cli("notify", *FILES, code=2).stderr


SPACE = """
[[attribute]]
name = "distance"
type = "number"
[[attribute]]
name = "city"
type = "category"
values = ["Oslo", "Rome", "Bern"]
[[attribute]]
name = "free"
type = "timestamp"
"""
FLATS = """id,distance,city,free,value
a,21,Oslo,2026-01-01,700
b,25,Rome,2026-02-01,650
c,30,Bern,2026-03-01,500
d,,Rome,2026-03-01,400
"""
RENTS = """id,value,distance,city
b,800,,
e,300,22,Oslo
c,500,19,
d,,,
a,250,,Rome
e,900,,
"""
WISHES = """id,filter,k
0,distance between 20 and 35 and city != 'Bern',
1,"city in ('Oslo', 'Bern') or free < '2026-01-15'",1
2,true,2
"""


@pytest.fixture
def flats(tmp_path):
    texts = (SPACE, FLATS, RENTS, WISHES)
    for name, text in zip(
        ("space.toml", "flats.csv", "rents.csv", "wishes.csv"), texts, strict=True
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


FLAT_FILES = ("flats.csv", "rents.csv", "wishes.csv", "--space", "space.toml", "-k", 2)
LISTS = [
    ("0", "1", "a", "250"),
    ("0", "2", "b", "800"),
    ("1", "1", "a", "250"),
    ("2", "1", "a", "250"),
    ("2", "2", "c", "500"),
]


@pytest.mark.parametrize("algorithm", ["dense", "sparse", "batch"])
def test_several_attributes_and_the_lists_at_the_end(cli, flats, algorithm):
    options = ("--algorithm", algorithm, "--lists", "lists.csv", "--verify", "--json")
    done = cli("notify", *FLAT_FILES, *options)
    facts = json.loads(done.stderr)
    assert (facts["updates"], facts["verified"], facts["mismatches"]) == (6, True, 0)
    given = rows(done.stdout)
    bounds = [
        f"{name}_{bound}"
        for name in ("distance", "city", "free")
        for bound in ("low_from", "low_to", "high_from", "high_to")
    ]
    head = ["seq", "ordinal", "object", "distance", "city", "free", "value"]
    assert list(given[0]) == [*head, *bounds]
    assert facts["messages"] == len(given)
    assert {row["object"]: row["city"] for row in given}["e"] == "Oslo"
    lists = rows((flats / "lists.csv").read_text())
    assert [
        tuple(f"{float(v):g}" if n == "value" else v for n, v in r.items()) for r in lists
    ] == LISTS


def test_lists_at_the_end_of_one_attribute(cli, data):
    cli("notify", *FILES, "-k", 2, "--lists", "lists.parquet", "-o", "messages.csv", "-q")
    table = pq.read_table(data / "lists.parquet")
    model = Model([(r["id"], float(r["position"]), float(r["value"])) for r in rows(OBJECTS)])
    for row in rows(UPDATES):
        model.change(
            row["id"], *(float(row[name]) if row[name] else None for name in ("value", "position"))
        )
    expected = [
        {"interest": int(r["id"]), "rank": rank + 1, "object": entry[2], "value": entry[0]}
        for r in rows(INTERESTS)
        for rank, entry in enumerate(
            model.best(
                float(r["position_lo"] or -MAX), float(r["position_hi"] or MAX), int(r["k"] or 2)
            )
        )
    ]
    assert table.to_pylist() == expected


def test_bounds_instead_of_filters_and_the_plan(cli, flats):
    (flats / "wishes.csv").write_text("id,distance_lo,distance_hi,city_lo,city_hi\n0,20,35,,\n")
    done = cli("notify", *FLAT_FILES, "--verify", "--explain-plan", "-o", "messages.csv")
    assert "plan: lists: an object lies in 1 interests" in done.stderr
    assert "all lists equal the recomputed ones" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("flats.csv", "id,distance,value\na,1,2\n", "has no column 'city'"),
        ("flats.csv", FLATS.replace("Oslo", "Paris"), "line 2 (row 0, counted from 0), column 'c"),
        ("flats.csv", FLATS.replace("700", ""), "line 2 (row 0, counted from 0), column 'value'"),
        ("rents.csv", "id,value,size\na,1,2\n", "unknown column 'size'"),
        ("rents.csv", "id,value\nz,1\n", "a new one needs its attributes and a value"),
        ("wishes.csv", "id,filter,score\n0,true,1\n", "unknown column 'score'"),
        (
            "wishes.csv",
            "id,filter\n0,size > 1\n",
            "line 2 (row 0, counted from 0), column 'filter'",
        ),
        ("wishes.csv", "id,filter,k\n0,true,0\n", "column 'k'"),
        ("space.toml", '[[attribute]]\nname = "a"\ntype = "string"\n', "make it a category"),
    ],
)
def test_rejected_rows_and_columns_of_a_space_are_named(cli, flats, name, text, says):
    (flats / name).write_text(text)
    assert says in cli("notify", *FLAT_FILES, code=2).stderr
    if "line 2" in says:
        (flats / "rents.csv").write_text("id,value\nb,1\n")
        cli("notify", *FLAT_FILES, "--rejected", "bad.csv", "--verify")
        assert rows((flats / "bad.csv").read_text())[0]["file"] == name


def test_what_a_space_excludes_is_explained(cli, flats):
    for option, says in (
        (("--epsilon", 1), "boards without a space"),
        (("--algorithm", "batch-dense"), "--algorithm batch"),
    ):
        assert says in cli("notify", *FLAT_FILES, *option, code=2).stderr
    assert "is an input" in cli("notify", *FLAT_FILES, "--lists", "space.toml", code=2).stderr
