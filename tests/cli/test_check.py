"""`rangecast check`: a filter looked at before anybody subscribes."""

import json

import pyarrow.parquet as pq
import pytest

from rangecast.engine import Engine
from rangecast.model.space import Space
from rangecast.workloads import generate

SPACE = """
[[attribute]]
name = "price"
type = "number"
[[attribute]]
name = "kind"
type = "string"
"""
FILTER = "price < 5 and kind in ('x', 'y')"
FILES = ("--events", "events.csv", "--subscriptions", "subs.csv", "--space", "space.toml")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text(
        "id,filter\nlow,price < 10\nlower,price < 1\nodd,price < 5 and kind != 'z'\nx,kind = 'x'\n"
    )
    (tmp_path / "events.csv").write_text("id,price,kind\na,1,x\nb,2,z\nc,9,y\nd,4,y\n")
    return tmp_path


def test_what_a_filter_means_covers_and_matches(cli, folder):
    said = cli("check", FILTER, *FILES).stdout.splitlines()
    assert said == [
        "1 alternative:",
        "  price < 5 and kind in ('x', 'y')",
        "covered by low, odd of 4 subscriptions",
        "would match 2 of 4 events (50%)",
        "  price: 3 events hold",
        "  kind: 3 events hold",
        "  the first: a, d",
    ]
    facts = json.loads(cli("check", FILTER, *FILES, "--json").stdout)
    assert (facts["matches"], facts["covered_by"]) == (2, ["low", "odd"])
    alone = cli("check", "price < 5 or price > 7", "--space", "space.toml").stdout
    assert alone == "2 alternatives:\n  price < 5\n  price > 7\n"


def test_a_snapshot_has_words_of_its_own(cli, folder):
    engine = Engine(Space.from_toml(SPACE))
    engine.subscribe("z", "kind = 'z'")
    engine.subscribe("y", "kind = 'y'")
    engine.save(folder / "saved")
    said = cli("check", "kind = 'y'", *FILES[:3], "saved", *FILES[4:]).stdout
    assert "covered by y of 2 subscriptions" in said
    assert "would match 2 of 4 events" in said


def test_a_mistake_is_shown_with_its_place(cli, folder):
    said = cli("check", "price < 5 and kind = x", "--space", "space.toml", code=2).stderr
    assert "price < 5 and kind = x\n" in said
    assert said.splitlines()[2].strip() == "^"
    assert "hint: quote strings: 'x'" in said


def test_counts_are_those_of_the_engine(cli, tmp_path):
    made = generate("market", seed=2, subscriptions=1, events=500)
    made.space.save(tmp_path / "space.toml")
    events = made.tables["events"]
    pq.write_table(events, tmp_path / "events.parquet")
    text = "sector = 'information' and (price < 30 or pe > 20) and halted = false"
    engine = Engine(made.space, index="scan")
    engine.subscribe("one", text)
    given = ("check", text, "--space", "space.toml", "--events", "events.parquet", "--json")
    assert json.loads(cli(*given).stdout)["matches"] == len(engine.match_many(events).ids)
