"""`rangecast cover`, as a user runs it."""

import csv
import json

import pyarrow.parquet as pq
import pytest

from rangecast.cover.batch import covered_by
from rangecast.report.cover import redundancy
from rangecast.workloads import generate
from tests.support.cover_oracle import earliest_uncovered

SPACE = """
[[attribute]]
name = "price"
type = "number"
[[attribute]]
name = "sector"
type = "category"
values = ["tech", "energy"]
"""
SUBSCRIPTIONS = """id,filter
narrow,price between 3 and 4 and sector = 'tech'
wide,price < 10
same,price < 10
tech,sector = 'tech'
either,price between 1 and 2 or sector = 'tech' and price > 5
missing,price is null
"""


@pytest.fixture
def data(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text(SUBSCRIPTIONS)
    return tmp_path


def test_what_covers_each_is_written_and_summed_up(cli, data):
    done = cli("cover", "subs.csv", "--space", "space.toml")
    assert list(csv.reader(done.stdout.splitlines())) == [
        ["subscription", "covered_by"],
        ["narrow", "wide"],
        ["wide", ""],
        ["same", "wide"],
        ["tech", ""],
        ["either", ""],
        ["missing", ""],
    ]
    assert "2 are redundant (33.3%), of which 1 equal an uncovered one" in done.stderr
    assert "Advertise 4" in done.stderr
    assert "price < 10" in done.stderr


def test_the_report_for_machines_and_the_plot(cli, data):
    done = cli(
        "cover",
        "subs.csv",
        "--space",
        "space.toml",
        "-o",
        "o.parquet",
        "--plot",
        "p.png",
        "--json",
    )
    facts = json.loads(done.stdout)
    assert (facts["uncovered"], facts["redundant"], facts["equal"]) == (4, 2, 1)
    assert facts["coverers"] == [{"subscription": "wide", "covers": 2, "filter": "price < 10"}]
    assert facts["by_attributes"] == [
        {"attributes": 1, "subscriptions": 4, "redundant": 1},
        {"attributes": 2, "subscriptions": 2, "redundant": 1},
    ]
    assert (data / "p.png").read_bytes().startswith(b"\x89PNG")
    assert pq.read_table(data / "o.parquet")["covered_by"].null_count == 4
    assert done.stderr == ""


def test_what_is_kept_is_a_file_of_subscriptions_with_all_columns(cli, data):
    (data / "subs.csv").write_text(
        "title,id,filter,score,seq,weight_price\n"
        "first,2,price < 5,0.5,3,2\n"
        '"wide, and early",1,price < 10,,1,\n'
        "again,1,true,,9,\n"
        "broken,3,price >,1,2,1\n"
        "tech,4,sector = 'tech',7,2,1\n"
    )
    options = ("--space", "space.toml", "--ignore-unknown", "--rejected", "bad.csv")
    cli("cover", "subs.csv", *options, "-o", "o.csv", "--uncovered", "kept.csv")
    assert (data / "kept.csv").read_text() == (
        "title,id,filter,score,seq,weight_price\n"
        '"wide, and early",1,price < 10,,1,\n'
        "tech,4,sector = 'tech',7,2,1\n"
    )
    for name in ("kept.csv", "kept.parquet", "kept.jsonl", "kept.arrow"):
        done = cli("cover", "subs.csv", *options, "-o", "o.csv", "--uncovered", name, "--json")
        assert json.loads(done.stdout)["uncovered_file"] == name
        again = cli("cover", name, *options[:3], "--json")
        facts = json.loads(again.stderr)
        assert (facts["subscriptions"], facts["redundant"]) == (2, 0)
        assert again.stdout == "subscription,covered_by\n1,\n4,\n"


def test_the_kept_rows_of_a_file_that_has_them_in_several_shapes(cli, data):
    (data / "subs.jsonl").write_text(
        '{"id": "a", "price_hi": 10}\n{"id": 7, "price_hi": 3}\n{"id": "c", "sector_lo": "tech"}\n'
    )
    options = ("--space", "space.toml", "-o", "o.csv")
    cli("cover", "subs.jsonl", *options, "--uncovered", "kept.jsonl")
    kept = [json.loads(line) for line in (data / "kept.jsonl").read_text().splitlines()]
    assert [(row["id"], row["price_hi"], row["sector_lo"]) for row in kept] == [
        ("a", 10, None),
        ("c", None, "tech"),
    ]
    assert cli("cover", "kept.jsonl", *options, "--json").returncode == 0
    (data / "none.csv").write_text("id,filter\n")
    cli("cover", "none.csv", *options, "--uncovered", "kept.csv")
    assert (data / "kept.csv").read_text() == "id,filter\n"


def test_the_generated_market_agrees_with_the_definition():
    made = generate("market", subscriptions=400, events=1)
    space, boxes = made.space, made.boxes
    above = covered_by(boxes)
    assert above.tolist() == earliest_uncovered(boxes)
    found = redundancy(space, boxes, above)
    assert found.redundant + found.uncovered == 400
    assert found.redundant == sum(group.redundant for group in found.by_attributes)
    assert found.redundant >= sum(one.covers for one in found.coverers)


def test_none_redundant_and_none_at_all(cli, data):
    (data / "subs.csv").write_text("id,filter\na,price > 1\n")
    assert "none are redundant" in cli("cover", "subs.csv", "--space", "space.toml").stderr
    (data / "subs.csv").write_text("id,filter\n")
    done = cli("cover", "subs.csv", "--space", "space.toml", "-q")
    assert (done.stdout, done.stderr) == ("subscription,covered_by\n", "")


def test_mistakes_exit_with_2(cli, data):
    space = ("--space", "space.toml")
    assert "ends in .png" in cli("cover", "subs.csv", *space, "--plot", "p.pdf", code=2).stderr
    assert "is an input" in cli("cover", "subs.csv", *space, "-o", "subs.csv", code=2).stderr
    assert (
        "unknown format" in cli("cover", "subs.csv", *space, "--uncovered", "kept", code=2).stderr
    )
    onto = cli("cover", "subs.csv", *space, "--uncovered", "subs.csv", code=2)
    assert "is an input" in onto.stderr
    both = cli("cover", "subs.csv", *space, "-o", "p.png", "--plot", "p.png", code=2)
    assert "for two outputs" in both.stderr
    (data / "subs.csv").write_text("id,filter\na,price >\nb,price > 1\n")
    cli("cover", "subs.csv", *space, code=2)
    done = cli("cover", "subs.csv", *space, "--rejected", "bad.csv")
    assert done.stdout == "subscription,covered_by\nb,\n"
    assert "1 rejected row in" in done.stderr
