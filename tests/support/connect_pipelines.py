"""Pipelines on Spark Connect: `connect_pipelines URL FOLDER first|second`, each a client.

FOLDER is what the client, the server and its workers mount. The first client runs a batch job, and
dies within a stream; the second one goes on with that stream, and does the rest.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rangecast.errors import RejectedRowError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.spark import (
    Callback,
    FixedSet,
    MatchStep,
    Pipeline,
    TopKLists,
    files_of,
    get_session,
    run_stream,
)
from rangecast.store.commits import read_committed
from tests.support import track_driver

BOUNDS = {f"s{place}": (7 * place % 90, 7 * place % 90 + 5 + place) for place in range(30)}
"""Ranges of prices."""
EVENTS = {f"e{place}": 13 * place % 101 for place in range(60)}
LATER = {f"late{place}": 11 * place % 101 for place in range(20)}
_SPACE = '[[attribute]]\nname = "price"\ntype = "number"\n'
_BATCH = """
mode = "batch"
space = "space.toml"
[[source]]
type = "files"
format = "json"
path = "events"
[[subscriptions]]
file = "subscriptions.jsonl"
[[step]]
type = "match"
[[step]]
type = "rank"
k = 2
[[sink]]
type = "parquet"
path = "batch-matches"
input = "match"
[[sink]]
type = "json"
path = "batch-json"
input = "match"
[[sink]]
type = "delta"
path = "batch-best"
input = "rank"
[rejected]
path = "batch-rejected"
"""
_STREAM = """
mode = "stream"
space = "space.toml"
[[source]]
type = "files"
format = "json"
path = "events"
options.maxFilesPerTrigger = 1
[[source]]
name = "changes"
type = "files"
format = "json"
path = "changes"
[[subscriptions]]
edits_source = "changes"
[[step]]
type = "match"
output = "arrays"
[[sink]]
type = "parquet"
path = "matches"
[[sink]]
type = "delta"
path = "table"
[stream]
checkpoint = "checkpoint"
"""


def put(path: Path, rows: list[dict[str, object]]) -> None:
    """Write a file of JSON Lines; it comes into its folder complete."""
    path.parent.mkdir(exist_ok=True)
    whole = path.with_name(f".{path.name}")
    whole.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole.rename(path)


def prices(events: dict[str, int]) -> list[dict[str, object]]:
    return [{"id": name, "price": price} for name, price in events.items()]


def subscriptions(**more: str) -> list[dict[str, object]]:
    filters = {name: "price between {} and {}".format(*some) for name, some in BOUNDS.items()}
    return [{"id": name, "filter": text, **more} for name, text in filters.items()]


def holding(price: int, without: str = "") -> list[str]:
    found = [name for name, (low, high) in BOUNDS.items() if low <= price <= high]
    return sorted(name for name in found if name != without)


def committed(folder: Path) -> dict[str, list[str]]:
    rows = read_committed(folder).to_table().to_pylist()
    found = {row["event"]: sorted(row["subscriptions"]) for row in rows}
    assert len(found) == len(rows), "an event is there twice"
    return found


def load(folder: Path, text: str) -> Pipeline:
    (folder / "pipeline.toml").write_text(text)
    return Pipeline.load(folder / "pipeline.toml")


def views(session) -> set[str]:
    return {table.name for table in session.catalog.listTables("global_temp", "rangecast_*")}


def die(done):
    if "match" in done.steps:
        os.kill(os.getpid(), signal.SIGKILL)


def first(session, folder: Path) -> None:
    (folder / "space.toml").write_text(_SPACE)
    put(folder / "subscriptions.jsonl", subscriptions(score=1.0))
    put(folder / "events" / "0.json", [*prices(EVENTS), {"id": "bad", "price": "x"}])
    done = []
    load(folder, _BATCH).run(session, done.append)
    pairs = sorted((name, one) for name, price in EVENTS.items() for one in holding(price))
    found = read_committed(folder / "batch-matches").to_table().to_pylist()
    assert sorted((row["event"], row["subscription"]) for row in found) == pairs
    rows = session.read.json(str(folder / "batch-json")).collect()
    assert sorted((row["event"], row["subscription"]) for row in rows) == pairs
    best = DeltaTable(folder / "batch-best").to_pyarrow_table().num_rows
    assert best == sum(min(2, len(holding(price))) for price in EVENTS.values())
    assert [(one.events, one.matches, one.rejected) for one in done] == [(61, len(pairs), 1)]
    rejected = read_committed(folder / "batch-rejected").to_table().to_pylist()
    assert [row["event"] for row in rejected] == ["bad"]

    put(folder / "events" / "0.json", prices(EVENTS))
    put(folder / "changes" / "0.json", subscriptions(op="subscribe"))
    print("dying", flush=True)
    load(folder, _STREAM).run(session, die)


def second(session, folder: Path) -> None:
    assert list(committed(folder / "matches")), "the first client died before its first batch"
    of_dead = views(session)
    put(folder / "events" / "1.json", prices(LATER))
    put(folder / "changes" / "1.json", [{"id": "s3", "op": "unsubscribe"}])
    done = []
    load(folder, _STREAM).run(session, done.append)
    assert sum(one.events for one in done if "match" in one.steps) == len(LATER)
    expected = {name: holding(price) for name, price in EVENTS.items()}
    expected |= {name: holding(price, without="s3") for name, price in LATER.items()}
    assert committed(folder / "matches") == expected
    table = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    assert {row["event"]: sorted(row["subscriptions"]) for row in table} == expected
    assert len(table) == len(expected)

    here = []  # a sink that is a function of this process
    space = Space([Number("price")])
    rows = session.createDataFrame([(name, *some) for name, some in BOUNDS.items()])
    boxes = rows.toDF("id", "price_lo", "price_hi")
    sinks = [Callback(lambda found, batch: here.extend(found.collect()))]
    events = files_of(folder / "events").read(session, space, [], stream=True)
    set_ = FixedSet(boxes, space)
    callback = folder / "callback"
    run_stream(events, [MatchStep(set_, sinks, output="arrays")], checkpoint=callback)
    with pytest.raises(UsageError, match="its batches have the columns event string, subscriptio"):
        run_stream(events, [MatchStep(set_, sinks)], checkpoint=callback)
    found = {row["event"]: sorted(row["subscriptions"]) for row in here}
    assert found == {name: holding(price) for name, price in (EVENTS | LATER).items()}

    put(folder / "events" / "2.json", [{"id": "bad", "price": "x"}])
    with pytest.raises(RejectedRowError, match="event bad, column 'price'"):
        load(folder, _STREAM).run(session)
    assert not session.streams.active
    assert views(session) == of_dead, "views stay behind"

    tracks, batches = folder / "of-tracks", track_driver.batches_of(5)[:2]
    tracks.mkdir()
    for number, rows in enumerate(batches):
        track_driver.write_batch(tracks, number, rows)
        track_driver.run(session, tracks)
    track_driver.check(tracks, batches)

    objects = session.createDataFrame([(1, 0.5, 1.0), (2, 0.7, 2.0)], "id long, " + _PLACED)
    interests = session.createDataFrame([(7, 0.0, 1.0)], _INTERESTS)
    with TopKLists(session, folder / "lists", objects, interests, k=1) as lists:
        put(folder / "updates" / "0.json", [{"seq": 1, "id": 1, "position": 0.5, "value": 5.0}])
        updates = session.readStream.schema("seq long, id long, " + _PLACED)
        lists.start(updates.json(str(folder / "updates")), availableNow=True).awaitTermination()
        assert [row["object"] for row in lists.read().collect()] == [2]


_PLACED = "position double, value double"
_INTERESTS = "id long, position_lo double, position_hi double"


if __name__ == "__main__":
    {"first": first, "second": second}[sys.argv[3]](get_session(sys.argv[1]), Path(sys.argv[2]))
