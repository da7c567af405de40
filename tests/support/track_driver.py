"""A stream of tracks whose set is edited: `track_driver FOLDER [STEP]`, and what it must write.

The process kills itself, and the JVM with it, when a step of the protocol is reached.
"""

import json
import os
import random
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from rangecast import (
    Digest,
    Engine,
    Notifier,
    Number,
    Policy,
    Rule,
    Space,
    Timestamp,
    Tracker,
)
from rangecast.spark import (
    Delta,
    Folder,
    TrackStep,
    VersionedSet,
    get_session,
    run_stream,
)
from rangecast.spark.stream.sources import Files
from rangecast.store.commits import read_committed
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions
from tests.support.server.servers import LIGHT

SPACE = Space([Timestamp("at"), Number("value")])
OPTIONS = {
    "key": "truck",
    "rule": Rule(dwell="3 min"),
    "rules": {"mid": Rule(margin={"value": 1}), "low": Rule(cross="9 min")},
    "after": "8 min",
    "lateness": "5 min",
}
POLICIES = {
    "policy": Policy(throttle=(2, "10 min"), renotify="1 min"),
    "policies": {"mid": Policy(digest=Digest(at="09:20")), "low": Policy(deduplicate="6 min")},
}
EDITS = [
    [("subscribe", "low", "value < 3"), ("subscribe", "mid", "value between 3 and 6")],
    [("replace", "low", "value < 5"), ("subscribe", "high", "value > 6")],
    [("unsubscribe", "mid", None)],
]


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
    """Return the rows of a tracker that takes each batch in the order of time and id.

    Those of all transitions, and those that the policies deliver.
    """
    engine = Engine(SPACE)
    tracker = Tracker(engine, time="at", **OPTIONS)
    notifier = Notifier(*POLICIES.values())
    newest = datetime.min.isoformat()
    found, told = [], []
    for edits, rows in zip(EDITS, batches, strict=False):
        for op, one, text in edits:
            getattr(engine, op)(*((one,) if text is None else (one, text)))
        good = sorted(
            (row for row in rows if row["value"].isdigit()), key=lambda row: (row["at"], row["id"])
        )
        transitions = [*tracker.update_many(good)]
        found += [fields(one) for one in transitions]
        newest = max([newest, *(row["at"] for row in good if row["truck"] is not None)])
        due = notifier.take(transitions)
        due += notifier.advance(datetime.fromisoformat(newest) - timedelta(minutes=5))
        told += [(*fields(one), some.id, some.window) for some in due for one in some.transitions]
    return sorted(found), sorted(told, key=repr)


def fields(one):
    return one.id, one.transition, one.event, one.reason, one.number


def write_batch(folder, number, rows):
    """Write the edits and the events of a batch."""
    (folder / "edits").mkdir(exist_ok=True)
    (folder / "events").mkdir(exist_ok=True)
    lines = [
        {"op": op, "id": one, **({} if text is None else {"filter": text})}
        for op, one, text in EDITS[number]
    ]
    if lines:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "edits" / f"{number}.jsonl").write_text(text)
    path = folder / "events" / f"{number}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (number, number))


def run(session, folder, watch=lambda _: None, more=()):
    """Track the events of a folder: all transitions to Parquet, notifications to a Delta table."""
    versions = Versions(folder / "versions")
    subscriptions = VersionedSet(versions, SPACE, edits=Edits(folder / "edits", versions, SPACE))
    schema = "id string, truck string, at string, value string"
    files = Files(str(folder / "events"), "json", schema=schema)
    how = {"buckets": 2, **OPTIONS}
    steps = [
        TrackStep(subscriptions, [Folder(folder / "all"), *more], state=folder / "s1", **how),
        TrackStep(
            subscriptions,
            [Delta(folder / "delivered")],
            name="delivered",
            state=folder / "s2",
            **how,
            **POLICIES,
        ),
    ]
    run_stream(
        files.read(session, SPACE, ["truck"], stream=True),
        steps,
        checkpoint=folder / "checkpoint",
        rejected=Folder(folder / "bad"),
        watch=watch,
    )


def check(folder, batches):
    """Compare both sinks with the local tracker, to the last row."""
    found, told = locally(batches)
    names = ("id", "transition", "event", "reason", "number")
    rows = read_committed(folder / "all").to_table().to_pylist()
    assert sorted(tuple(row[name] for name in names) for row in rows) == found
    rows = DeltaTable(folder / "delivered").to_pyarrow_table().to_pylist()
    names = (*names, "notification", "window")
    assert sorted((tuple(row[name] for name in names) for row in rows), key=repr) == told
    assert read_committed(folder / "bad").count_rows() == len(batches)


def main() -> None:
    folder, deadly = Path(sys.argv[1]), sys.argv[2:]

    def watch(step: str) -> None:
        if [step] == deadly:
            os.killpg(0, signal.SIGKILL)

    conf = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": LIGHT}
    run(get_session("local[1]", conf=conf), folder, watch)


if __name__ == "__main__":
    main()
