"""`rangecast merge`, as a user runs it."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from rangecast.merge import Ranges, Summary
from rangecast.merge.measure import coverage_of
from rangecast.merge.tuning import Setting
from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.io.writer import write_table
from rangecast.model.space import Space
from rangecast.workloads import generate


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("merge")
    made = generate("equal-boxes", subscriptions=300, events=500, attributes=3, size=8, seed=3)
    made.space.save(folder / "space.toml")
    for name, table in made.tables.items():
        write_table(table, folder / f"{name}.parquet")
    return folder


FILES = ("subscriptions.parquet", "--space", "space.toml")


def test_the_trade_is_written_and_drawn_and_one_setting_recommended(cli, data):
    arguments = ("--max-ranges", 40, "--events", "events.parquet", "--max-attributes", 2)
    done = cli(
        "merge", *FILES, *arguments, "-o", "trade.parquet", "--plot", "p.png", "--json", cwd=data
    )
    facts = json.loads(done.stdout)
    rows = pq.read_table(data / "trade.parquet").to_pylist()
    assert facts["settings"] == len(rows) > 10
    assert facts["subscriptions"] == 300
    assert (data / "p.png").read_bytes()[1:4] == b"PNG"
    (best,) = [row for row in rows if row["recommended"]]
    assert best == facts["recommended"]
    assert best["passed"] == min(row["passed"] for row in rows)
    for row in rows:
        assert row["ranges"] <= 40
        assert row["passed"] >= row["matched"] > 0
        assert row["false_positives"] == pytest.approx(1 - row["matched"] / row["passed"])
    text = cli("merge", *FILES, *arguments, cwd=data)
    assert text.stdout.startswith("attributes,bits,cells,all_ranges,ranges,gap,coverage,passed,")
    assert "300 subscriptions sum to" in text.stderr
    assert "of the sample events that pass are false" in text.stderr


def test_without_events_the_least_space_is_recommended(cli, data):
    done = cli("merge", *FILES, "--max-ranges", 9, "--max-attributes", 1, "-o", "t.csv", cwd=data)
    assert "sum to" in done.stderr
    assert "false" not in done.stderr


def test_a_saved_summary_is_used_without_building_it_again(cli, data):
    sample = ("--events", "events.parquet", "--max-attributes", 2, "--max-ranges", 30)
    done = cli("merge", *FILES, *sample, "--save", "summary", "-o", "t.csv", "--json", cwd=data)
    facts = json.loads(done.stdout)
    summary = Summary.open(data / "summary")
    assert summary.cells.digest == facts["cells_digest"]
    assert len(summary.ranges()) == facts["recommended"]["ranges"]
    events = pq.read_table(data / "events.parquet")
    assert summary.may_match_many(events).sum() == facts["recommended"]["passed"]
    again = cli("merge", *FILES, *sample, "--save", "summary", "-o", "other.csv", cwd=data, code=2)
    assert "summary: already exists" in again.stderr
    assert not (data / "other.csv").exists()
    again = ("--save", "summary", "--overwrite", "--quiet")
    cli("merge", *FILES, "--max-attributes", 1, "--max-ranges", 3, *again, cwd=data)
    assert len(Summary.open(data / "summary").cells.axes) == 1


def test_the_ranges_of_the_recommended_setting_and_what_is_redundant_are_written(cli, data):
    files = ("--ranges", "ranges.parquet", "--redundant", "redundant.csv", "-o", "t.csv")
    sample = ("--events", "events.parquet", "--max-attributes", 2, "--max-ranges", 30)
    facts = json.loads(cli("merge", *FILES, *sample, *files, "--json", cwd=data).stdout)
    best = facts["recommended"]
    space = Space.load(data / "space.toml")
    boxes = read_subscriptions(data / "subscriptions.parquet", space)
    points = encode_events(pq.read_table(data / "events.parquet"), space).points
    cells = Setting(tuple(best["attributes"].split()), best["bits"], best["cells"]).make_cells(
        space, points
    )
    assert facts["cells_digest"] == cells.digest
    table = pq.read_table(data / "ranges.parquet")
    ranges = Ranges(table["start"].to_numpy(), table["end"].to_numpy())
    assert len(ranges) == best["ranges"]
    assert ranges.contains_cells(cells.places(points)).sum() == best["passed"]
    assert coverage_of(space, cells, ranges) == best["coverage"]
    header, *needless = (data / "redundant.csv").read_text().split()
    assert header == "subscription"
    assert 0 < len(needless) == facts["redundant"] < 300
    left = np.flatnonzero([str(one) not in needless for one in boxes.ids.to_pylist()])
    whole, rest = (Summary.of(some, space, cells=cells) for some in (boxes, boxes.take(left)))
    for side, same in zip(whole.ranges(), rest.ranges(), strict=True):
        np.testing.assert_array_equal(side, same)
    growing = Summary(space, cells=cells)
    for row in range(boxes.rows):  # each of the others did add something
        (gained,) = growing.subscribe_many(boxes.take(np.array([row])))
        assert (not gained) == (str(boxes.ids[row]) in needless)
    text = cli("merge", *FILES, *sample, *files, cwd=data).stderr
    assert f"{len(needless)} of them add nothing to the earlier ones" in text
    assert "worth it" not in text
    assert facts["worth_it"]


def test_the_whole_space_is_one_range_and_not_worth_merging(cli, data):
    (data / "market.toml").write_text(
        """[[attribute]]
name = "brand"
type = "category"
values = ["a", "b", "c", "d", "e", "f", "g", "h"]
[[attribute]]
name = "price"
type = "number"
min = 0
max = 100
"""
    )
    (data / "all.csv").write_text("id,filter\nsome,brand = 'a' and price < 5\nall,true\n")
    options = ("--space", "market.toml", "--max-ranges", 10, "-o", "t.csv")
    text = cli("merge", "all.csv", *options, "--redundant", "redundant.csv", cwd=data).stderr
    assert "2 subscriptions sum to 1 range, 100.00% of the space; 0 of them add nothing" in text
    assert "merging doesn't pay off on this data: 100.0% of the space would still pass" in text
    assert "may filter out more" not in text
    one = cli("merge", "all.csv", *options, "--max-attributes", 1, cwd=data).stderr
    assert "would still pass; a larger --max-attributes may filter out more" in one
    (data / "offers.csv").write_text("id,brand,price\n1,a,3\n2,b,7\n")
    sampled = (*options, "--events", "offers.csv")
    text = cli("merge", "all.csv", *sampled, cwd=data).stderr
    assert "doesn't pay off on this data: 100.0% of the sample events would still pass" in text
    assert "subscriptions match 100.0% of them" in text
    facts = json.loads(cli("merge", "all.csv", *sampled, "--json", cwd=data).stdout)
    assert (facts["worth_it"], facts["pass_rate"]) == (False, 1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*FILES, "--max-ranges", 9, "-o", "space.toml"), "is an input of this command"),
        (
            (*FILES, "--max-ranges", 9, "-o", "x.csv", "--ranges", "./x.csv"),
            "for two outputs",
        ),
        (
            (*FILES, "--max-ranges", 9, "--plot", "x.pdf"),
            "must be a file that ends in .png or .svg",
        ),
        (("none.csv", "--space", "space.toml", "--max-ranges", 9), "none.csv"),
        ((*FILES, "--max-ranges", 0), "--max-ranges"),
        ((*FILES, "--max-ranges", 9, "--ranges", "ranges"), "unknown format"),
        (
            (*FILES, "--max-ranges", 9, "-o", "x.csv", "--redundant", "x.csv"),
            "for two outputs",
        ),
    ],
)
def test_mistakes_are_named(cli, data, arguments, said):
    assert said in cli("merge", *arguments, cwd=data, code=2).stderr


def test_gaps_are_closed_by_the_weight_of_events_and_measured_on_others(cli, tmp_path):
    made = generate(
        "equal-boxes",
        subscriptions=300,
        events=16_000,
        attributes=3,
        size=8,
        seed=3,
        subscription_distribution="uniform",
        event_distribution="zipf",
    )
    made.space.save(tmp_path / "space.toml")
    write_table(made.tables["subscriptions"], tmp_path / "subscriptions.parquet")
    events = made.tables["events"]
    today = events.slice(0, 8000)
    write_table(today, tmp_path / "today.parquet")
    write_table(events.slice(8000), tmp_path / "before.parquet")
    command = ("merge", *FILES, "--max-ranges", 300, "--events", "today.parquet", "-o", "t.parquet")
    passed, by_setting = {}, []
    for more in ((), ("--weighting-events", "before.parquet")):
        done = cli(*command, *more, "--save", f"s{len(more)}", "--json", cwd=tmp_path)
        facts = json.loads(done.stdout)
        assert facts["weighed_by"] == (8000 if more else None)
        assert facts["events"] == 8000
        passed[more] = facts["recommended"]["passed"]
        rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
        wide = {"attributes": "a0 a1 a2", "bits": 6, "cells": "uniform"}
        by_setting += [row["passed"] for row in rows if wide.items() <= row.items()]
        space = Space.load(tmp_path / "space.toml")
        summary = Summary.open(tmp_path / f"s{len(more)}")
        boxes = read_subscriptions(tmp_path / "subscriptions.parquet", space)
        held = summary.may_match_many(today)
        assert held.sum() == passed[more]
        points = encode_events(today, space).points
        inside = (boxes.lo <= points[:, None]) & (points[:, None] <= boxes.hi)
        assert (held >= inside.all(axis=2).any(axis=1)).all()
    assert passed["--weighting-events", "before.parquet"] < 0.95 * passed[()]
    assert by_setting[1] < 0.6 * by_setting[0]
    wrong = cli(*command, "--weighting-events", "today.parquet", cwd=tmp_path, code=2)
    assert "split the file" in wrong.stderr
