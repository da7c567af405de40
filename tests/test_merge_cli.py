"""`rangecast merge`, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rangecast.model.files import write_table
from rangecast.workloads import generate

ROOT = Path(__file__).parents[1]
CODE = "from rangecast.cli.main import main; main()"


def run(*arguments, cwd, code=0):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("merge")
    made = generate("mics", subscriptions=300, events=500, attributes=3, size=8, seed=3)
    made.space.save(folder / "space.toml")
    for name, table in made.tables.items():
        write_table(table, folder / f"{name}.parquet")
    return folder


FILES = ("subscriptions.parquet", "--space", "space.toml")


def test_the_trade_is_written_and_drawn_and_one_setting_recommended(data):
    arguments = ("--budget", 40, "--events", "events.parquet", "--attributes", 2)
    done = run(
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
    text = run("merge", *FILES, *arguments, cwd=data)
    assert text.stdout.startswith("attributes,bits,cells,all_ranges,ranges,gap,share,passed,")
    assert "300 subscriptions sum to" in text.stderr
    assert "of the sample events that pass are false" in text.stderr


def test_without_events_the_least_space_is_recommended(data):
    done = run("merge", *FILES, "--budget", 9, "--attributes", 1, "-o", "t.csv", cwd=data)
    assert "sum to" in done.stderr
    assert "false" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*FILES, "--budget", 9, "-o", "space.toml"), "is an input of this command"),
        ((*FILES, "--budget", 9, "-o", "x.csv", "--plot", "x.csv"), "can't be both"),
        ((*FILES, "--budget", 9, "--plot", "x.pdf"), "a plot is a .png or .svg file"),
        (("none.csv", "--space", "space.toml", "--budget", 9), "none.csv"),
        ((*FILES, "--budget", 0), "budget"),
    ],
)
def test_mistakes_are_named(data, arguments, said):
    assert said in run("merge", *arguments, cwd=data, code=2).stderr
