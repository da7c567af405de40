"""Tracks in a stream against the local tracker: edits, restarts, late and repeated events."""

import json
import signal
import subprocess
import sys

import pytest

from rangecast import Digest, Engine, Policy, Tracker
from rangecast.errors import FileError, UsageError
from rangecast.spark import Callback, FixedSet, JsonFolder, Pipeline, TrackStep
from rangecast.store.commits import read_committed
from tests import ROOT
from tests.support.server.servers import environment
from tests.support.track_driver import (
    OPTIONS,
    SPACE,
    batches_of,
    check,
    locally,
    run,
    write_batch,
)

SEED = 3


class CrashError(Exception):
    """Ends a stream, as a kill would."""


def test_a_stream_has_the_transitions_of_the_local_tracker_though_it_ends(spark, tmp_path):
    """Also those that its policies deliver, in a Delta table."""
    batches = batches_of(SEED)
    deaths = ["staged", None, "rejected rows committed"]
    seen = []
    more = [
        JsonFolder(tmp_path / "json"),
        Callback(lambda rows, _: seen.extend(rows.collect())),
    ]
    for number, (rows, deadly) in enumerate(zip(batches, deaths, strict=True)):
        write_batch(tmp_path, number, rows)

        def watch(step, deadly=deadly):
            if step == deadly:
                raise CrashError

        if deadly is not None:
            with pytest.raises(CrashError):
                run(spark, tmp_path, watch, more)
        run(spark, tmp_path, more=more)
    check(tmp_path, batches)
    found, told = locally(batches)
    lines = [
        json.loads(line)
        for file in (tmp_path / "json").rglob("part-*")
        for line in file.read_text().splitlines()
    ]
    assert sorted(one["id"] for one in lines) == [one[0] for one in found]
    assert {one.id for one in seen} == {one[0] for one in found}
    assert {"removed", "silent", "event"} <= {one[3] for one in found}
    assert {"reminder", "enter", "exit"} <= {one[1] for one in told}
    assert {one[6] for one in told} == {None, "2026-01-31T09:20:00+00:00"}


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
def test_a_killed_stream_goes_on_with_its_objects(tmp_path):
    """By kill -9 before and after the state is committed; Parquet and Delta."""
    batches = batches_of(SEED)
    for number, deadly in enumerate(["pinned", "staged", "rejected rows committed"]):
        write_batch(tmp_path, number, batches[number])
        for step, code in ((deadly, -signal.SIGKILL), ("", 0)):
            done = subprocess.run(
                [sys.executable, "-m", "tests.support.track_driver", tmp_path, step],
                env=environment(),
                cwd=ROOT,
                start_new_session=True,
                capture_output=True,
                text=True,
                timeout=1800,
            )
            assert done.returncode == code, done.stderr[-3000:]
    check(tmp_path, batches)


PIPELINE = """
mode = "batch"
space = "space.toml"

[[source]]
type = "files"
path = "events"
format = "json"

[[subscriptions]]
file = "subscriptions.csv"

[[step]]
type = "track"
key = "truck"
after = "8 min"
rule = { dwell = "3 min" }
rules = [{ subscription = "mid", margin = { value = 1 } }]
buckets = 2

[[sink]]
type = "parquet"
path = "transitions"

[rejected]
path = "bad"
"""


def test_a_pipeline_of_a_batch_reports_all_that_is_due_by_the_newest_event(spark, tmp_path):
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "space.toml").write_text(SPACE.to_toml())
    filters = {"low": "value < 3", "mid": "value between 3 and 6"}
    lines = [f"{one},{text}\n" for one, text in filters.items()]
    (tmp_path / "subscriptions.csv").write_text("".join(["id,filter\n", *lines]))
    batches = batches_of(SEED)
    for number, rows in enumerate(batches):
        write_batch(tmp_path, number, rows)
    Pipeline.load(tmp_path / "pipeline.toml").run(spark)
    engine = Engine(SPACE)
    engine.subscribe_many(tmp_path / "subscriptions.csv")
    rules = {"rule": OPTIONS["rule"], "rules": {"mid": OPTIONS["rules"]["mid"]}}
    tracker = Tracker(engine, key="truck", time="at", after="8 min", **rules)
    good = [row for rows in batches for row in rows if row["value"].isdigit()]
    found = [*tracker.update_many(sorted(good, key=lambda row: (row["at"], row["id"])))]
    found += tracker.flush()
    got = read_committed(tmp_path / "transitions").to_table().to_pylist()
    assert sorted(one["id"] for one in got) == sorted(one.id for one in found)
    assert read_committed(tmp_path / "bad").count_rows() == len(batches)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('key = "truck"', "is missing"),
        ('rule = { dwell = "3 min" }', "dwell"),
        (
            'rules = [{ subscription = "mid", margin = { value = 1 } }]',
            "must name its subscription",
        ),
    ],
)
def test_a_step_that_cannot_track_is_rejected_before_anything_runs(tmp_path, given, said):
    wrong = {"key": "", "rule": 'rule = { dwell = "soon" }', "rules": "rules = [{ dwell = '1 h' }]"}
    text = PIPELINE.replace(given, wrong[given.split(" ")[0]])
    (tmp_path / "pipeline.toml").write_text(text)
    (tmp_path / "space.toml").write_text(SPACE.to_toml())
    with pytest.raises(FileError, match=said):
        Pipeline.load(tmp_path / "pipeline.toml")


def test_a_digest_by_count_needs_one_bucket(spark):
    policy = Policy(digest=Digest(count=3))
    none = FixedSet(spark.createDataFrame([], "id string, filter string"), SPACE)
    with pytest.raises(UsageError, match="all objects, and they are dealt into 16 buckets\n  hint"):
        TrackStep(none, [], key="truck", policy=policy)
    TrackStep(none, [], key="truck", policy=policy, buckets=1)
