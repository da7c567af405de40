"""`rangecast cover`, as a user runs it."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rangecast.cover.batch import covered_by
from rangecast.report.cover import redundancy
from rangecast.workloads import generate
from tests.cover_oracle import earliest_kept

COMMAND = [sys.executable, "-c", "from rangecast.cli.main import main; main()"]
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


def run(*arguments, cwd, code=0):
    done = subprocess.run(
        [*COMMAND, "cover", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def data(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text(SUBSCRIPTIONS)
    return tmp_path


def test_what_covers_each_is_written_and_summed_up(data):
    done = run("subs.csv", "--space", "space.toml", cwd=data)
    assert list(csv.reader(done.stdout.splitlines())) == [
        ["subscription", "covered_by"],
        ["narrow", "wide"],
        ["wide", ""],
        ["same", "wide"],
        ["tech", ""],
        ["either", ""],
        ["missing", ""],
    ]
    assert "2 are redundant (33.3%), of which 1 are the same" in done.stderr
    assert "Forward 4" in done.stderr
    assert "price < 10" in done.stderr


def test_the_report_for_machines_and_the_plot(data):
    done = run(
        "subs.csv",
        "--space",
        "space.toml",
        "-o",
        "o.parquet",
        "--plot",
        "p.png",
        "--json",
        cwd=data,
    )
    facts = json.loads(done.stdout)
    assert (facts["kept"], facts["redundant"], facts["equal"]) == (4, 2, 1)
    assert facts["coverers"] == [{"subscription": "wide", "covers": 2, "filter": "price < 10"}]
    assert facts["by_attributes"] == [
        {"attributes": 1, "subscriptions": 4, "redundant": 1},
        {"attributes": 2, "subscriptions": 2, "redundant": 1},
    ]
    assert (data / "p.png").read_bytes().startswith(b"\x89PNG")
    assert pq.read_table(data / "o.parquet")["covered_by"].null_count == 4
    assert done.stderr == ""


def test_what_is_kept_is_a_file_of_subscriptions_with_all_columns(data):
    (data / "subs.csv").write_text(
        "title,id,filter,score,seq,weight_price\n"
        "first,2,price < 5,0.5,3,2\n"
        '"wide, and early",1,price < 10,,1,\n'
        "again,1,true,,9,\n"
        "broken,3,price >,1,2,1\n"
        "tech,4,sector = 'tech',7,2,1\n"
    )
    options = ("--space", "space.toml", "--ignore-unknown-columns", "--bad-rows", "bad.csv")
    run("subs.csv", *options, "-o", "o.csv", "--kept", "kept.csv", cwd=data)
    assert (data / "kept.csv").read_text() == (
        "title,id,filter,score,seq,weight_price\n"
        '"wide, and early",1,price < 10,,1,\n'
        "tech,4,sector = 'tech',7,2,1\n"
    )
    for name in ("kept.csv", "kept.parquet", "kept.jsonl", "kept.arrow"):
        done = run("subs.csv", *options, "-o", "o.csv", "--kept", name, "--json", cwd=data)
        assert json.loads(done.stdout)["kept_file"] == name
        again = run(name, *options[:3], "--json", cwd=data)
        facts = json.loads(again.stderr)
        assert (facts["subscriptions"], facts["redundant"]) == (2, 0)
        assert again.stdout == "subscription,covered_by\n1,\n4,\n"


def test_the_kept_rows_of_a_file_that_has_them_in_several_shapes(data):
    (data / "subs.jsonl").write_text(
        '{"id": "a", "price_hi": 10}\n{"id": 7, "price_hi": 3}\n{"id": "c", "sector_lo": "tech"}\n'
    )
    options = ("--space", "space.toml", "-o", "o.csv")
    run("subs.jsonl", *options, "--kept", "kept.jsonl", cwd=data)
    kept = [json.loads(line) for line in (data / "kept.jsonl").read_text().splitlines()]
    assert [(row["id"], row["price_hi"], row["sector_lo"]) for row in kept] == [
        ("a", 10, None),
        ("c", None, "tech"),
    ]
    assert run("kept.jsonl", *options, "--json", cwd=data).returncode == 0
    (data / "none.csv").write_text("id,filter\n")
    run("none.csv", *options, "--kept", "kept.csv", cwd=data)
    assert (data / "kept.csv").read_text() == "id,filter\n"


def test_the_generated_market_agrees_with_the_definition():
    made = generate("market", subscriptions=400, events=1)
    space, boxes = made.space, made.boxes
    above = covered_by(boxes)
    assert above.tolist() == earliest_kept(boxes)
    found = redundancy(space, boxes, above)
    assert found.redundant + found.kept == 400
    assert found.redundant == sum(group.redundant for group in found.by_attributes)
    assert found.redundant >= sum(one.covers for one in found.coverers)


def test_none_redundant_and_none_at_all(data):
    (data / "subs.csv").write_text("id,filter\na,price > 1\n")
    assert "none is redundant" in run("subs.csv", "--space", "space.toml", cwd=data).stderr
    (data / "subs.csv").write_text("id,filter\n")
    done = run("subs.csv", "--space", "space.toml", "-q", cwd=data)
    assert (done.stdout, done.stderr) == ("subscription,covered_by\n", "")


def test_mistakes_exit_with_2(data):
    space = ("--space", "space.toml")
    assert "ends in .png" in run("subs.csv", *space, "--plot", "p.pdf", cwd=data, code=2).stderr
    assert "is an input" in run("subs.csv", *space, "-o", "subs.csv", cwd=data, code=2).stderr
    assert "unknown format" in run("subs.csv", *space, "--kept", "kept", cwd=data, code=2).stderr
    onto = run("subs.csv", *space, "--kept", "subs.csv", cwd=data, code=2)
    assert "is an input" in onto.stderr
    both = run("subs.csv", *space, "-o", "p.png", "--plot", "p.png", cwd=data, code=2)
    assert "can't be both" in both.stderr
    (data / "subs.csv").write_text("id,filter\na,price >\nb,price > 1\n")
    run("subs.csv", *space, cwd=data, code=2)
    done = run("subs.csv", *space, "--bad-rows", "bad.csv", cwd=data)
    assert done.stdout == "subscription,covered_by\nb,\n"
    assert "1 bad row set aside" in done.stderr
