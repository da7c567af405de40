"""Tracks in a stream against the local tracker: edits, restarts, late and repeated events."""

import json
import os
import random

import pytest

from rangecast import Engine, Number, Rule, Space, Timestamp, Tracker
from rangecast.errors import FileError
from rangecast.spark import (
    Callback,
    Folder,
    JsonFolder,
    Pipeline,
    TrackStep,
    VersionedSet,
    run_stream,
)
from rangecast.spark.stream.sources import Files
from rangecast.store.commits import read_committed
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

SPACE = Space([Timestamp("at"), Number("value")])
OPTIONS = {
    "key": "truck",
    "rule": Rule(dwell="3 min"),
    "rules": {"mid": Rule(margin={"value": 1}), "low": Rule(cross="9 min")},
    "after": "8 min",
    "lateness": "5 min",
}
EDITS = [
    [("subscribe", "low", "value < 3"), ("subscribe", "mid", "value between 3 and 6")],
    [("replace", "low", "value < 5"), ("subscribe", "high", "value > 6")],
    [],
    [("unsubscribe", "mid", None)],
]
SEED = 3


class CrashError(Exception):
    """Ends a stream, as a kill would."""


def batches_of(seed):
    """Events of each batch: some are late, repeated, without a key, or can't be read."""
    chance = random.Random(seed)
    found, number = [], 0
    for batch in range(len(EDITS)):
        rows = []
        for _ in range(60):
            minute = max(0, 12 * batch + chance.randrange(12) - chance.choice([0, 0, 0, 4, 20]))
            rows.append(
                {
                    "id": f"e{number:04}",
                    "truck": chance.choice([*(f"t{one}" for one in range(6)), None]),
                    "at": f"2026-01-31T09:{minute:02}:00Z",
                    "value": str(chance.randrange(10)),
                }
            )
            number += 1
        rows += chance.sample(rows, 3)
        rows.append(
            {"id": f"bad{batch}", "truck": "t1", "at": "2026-01-31T09:00Z", "value": "much"}
        )
        found.append(rows)
    return found


def locally(batches):
    """The transitions of a tracker that takes each batch in the order of time and id."""
    engine = Engine(SPACE)
    tracker = Tracker(engine, time="at", **OPTIONS)
    found = []
    for edits, rows in zip(EDITS, batches, strict=True):
        for op, one, text in edits:
            getattr(engine, op)(*((one,) if text is None else (one, text)))
        good = sorted(
            (row for row in rows if row["value"].isdigit()), key=lambda row: (row["at"], row["id"])
        )
        found += tracker.update_many(good)
    return {one.id: (one.transition, one.event, one.reason, one.number) for one in found}


def write_edits(folder, number):
    (folder / "edits").mkdir(exist_ok=True)
    lines = [
        {"op": op, "id": one, **({} if text is None else {"filter": text})}
        for op, one, text in EDITS[number]
    ]
    if lines:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "edits" / f"{number}.jsonl").write_text(text)


def write_events(folder, number, rows):
    (folder / "events").mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "events" / f"{number}.json").write_text(text)
    os.utime(folder / "events" / f"{number}.json", (number, number))


def run(spark, folder, watch=lambda _: None, seen=None):
    versions = Versions(folder / "versions")
    subscriptions = VersionedSet(versions, SPACE, edits=Edits(folder / "edits", versions, SPACE))
    files = Files(
        str(folder / "events"), "json", schema="id string, truck string, at string, value string"
    )
    sinks = [Folder(folder / "parquet"), JsonFolder(folder / "json")]
    if seen is not None:
        sinks.append(Callback(lambda rows, _: seen.extend(rows.collect())))
    step = TrackStep(subscriptions, sinks, state=folder / "tracks", buckets=2, **OPTIONS)
    events = files.read(spark, SPACE, ["truck"], stream=True)
    run_stream(
        events,
        [step],
        checkpoint=folder / "checkpoint",
        rejected=Folder(folder / "bad"),
        watch=watch,
    )


def test_a_stream_has_the_transitions_of_the_local_tracker_though_it_is_killed(spark, tmp_path):
    batches = batches_of(SEED)
    expected = locally(batches)
    deaths = [None, "staged", None, "rejected rows committed"]
    seen = []
    for number, (rows, deadly) in enumerate(zip(batches, deaths, strict=True)):
        write_edits(tmp_path, number)
        write_events(tmp_path, number, rows)

        def watch(step, deadly=deadly):
            if step == deadly:
                raise CrashError

        if deadly is not None:
            with pytest.raises(CrashError):
                run(spark, tmp_path, watch, seen)
        run(spark, tmp_path, seen=seen)
    got = read_committed(tmp_path / "parquet").to_table().to_pylist()
    assert len(got) == len(expected)
    assert {
        one["id"]: (one["transition"], one["event"], one["reason"], one["number"]) for one in got
    } == expected
    lines = [
        json.loads(line)
        for file in (tmp_path / "json").rglob("part-*")
        for line in file.read_text().splitlines()
    ]
    assert sorted(one["id"] for one in lines) == sorted(expected)
    assert {one.id for one in seen} == set(expected)
    assert {"removed", "silent", "event", "time", "edited"} >= {one["reason"] for one in got}
    assert {"removed", "silent", "event"} <= {one["reason"] for one in got}
    assert read_committed(tmp_path / "bad").count_rows() == len(EDITS)


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
        write_events(tmp_path, number, rows)
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
