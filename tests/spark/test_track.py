"""Tracks of a DataFrame against the local tracker."""

import random

import pytest

from rangecast import Engine, Location, Number, Rule, Space, String, Timestamp, Tracker
from rangecast.errors import UsageError
from rangecast.spark import track

SPACE = Space([Timestamp("at"), Number("value"), Location("position"), String("kind")])
FILTERS = {
    "low": "value < 4",
    "mid": "value between 3 and 6",
    "cold": "value > 5 and kind = 'cold'",
    "yard": "within(position, 'POLYGON ((0 0, 0.01 0, 0.01 0.01, 0 0.01, 0 0))')",
    "near": "within(position, circle(0, 0, 500 m))",
}
OPTIONS = {
    "rule": Rule(dwell="3 min"),
    "rules": {
        "low": Rule(for_="2 min"),
        "mid": Rule(margin={"value": 1}),
        "yard": Rule(cross="20 min"),
    },
    "after": "9 min",
    "inside": True,
    "accuracy": "error",
}
SUBSCRIPTIONS = "id string, filter string, seq long"
COLUMNS = (
    "id long, truck string, at string, value double, longitude double, latitude double, "
    "kind string, error double"
)


def events_of(seed, count=400):
    """Events with equal times, without keys, times or values, in no order."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        minute = chance.randrange(120)
        moment = f"2026-01-31T{9 + minute // 60:02}:{minute % 60:02}:00Z"
        rows.append(
            {
                "id": number,
                "truck": chance.choice([*(f"t{one}" for one in range(12)), None]),
                "at": chance.choice([*[moment] * 30, None]),
                "value": chance.choice([*map(float, range(10)), None]),
                "longitude": chance.uniform(-0.02, 0.03),
                "latitude": chance.choice([0.005, 0.02]),
                "kind": chance.choice(["cold", "warm", None]),
                "error": chance.choice([0.0, 0.0, 0.0, 800.0]),
            }
        )
    return rows


def locally(rows, space=SPACE):
    """The transitions of events in the order of time and id."""
    engine = Engine(space)
    for one, text in FILTERS.items():
        engine.subscribe(one, text)
    tracker = Tracker(engine, key="truck", time="at", **OPTIONS)
    ordered = sorted(rows, key=lambda row: (row["at"] or "9", row["id"]))
    found = [*tracker.update_many(ordered), *tracker.flush()]
    return sorted(one.id for one in found), {one.id: one for one in found}


def frame_of(spark, rows):
    names = [part.split()[0] for part in COLUMNS.split(", ")]
    return spark.createDataFrame([[row[name] for name in names] for row in rows], COLUMNS)


def test_a_frame_has_the_transitions_of_the_local_tracker(spark):
    rows = events_of(1)
    expected, by_id = locally(rows)
    rows_of = [(one, text, seq) for seq, (one, text) in enumerate(FILTERS.items())]
    subscriptions = spark.createDataFrame(rows_of, SUBSCRIPTIONS)
    shuffled = random.Random(2).sample(rows, len(rows))
    found = track(
        frame_of(spark, shuffled), subscriptions, SPACE, key="truck", buckets=3, **OPTIONS
    )
    got = found.collect()
    assert sorted(one.id for one in got) == expected
    assert {"enter", "exit", "cross", "dwell", "inside"} == {one.transition for one in got}
    for one in got:
        same = by_id[one.id]
        assert (one.event, one.reason, one.number, one.key) == (
            same.event, same.reason, same.number, same.key,
        )  # fmt: skip
        assert one.at.timestamp() == same.at.replace(tzinfo=None).timestamp()


def test_a_streaming_frame_is_rejected(spark):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(UsageError, match="TrackStep"):
        track(stream, "nowhere", SPACE, key="truck")
