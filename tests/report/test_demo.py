"""The main job at a small size: what it writes is there, is right, and can be proved again."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.cli.commands.spark import demo_prepare
from rangecast.cli.commands.spark.demo import _Demo, demo
from rangecast.cli.commands.spark.demo_prepare import Compiler
from rangecast.cli.commands.spark.demo_rank import K, verify_ranks
from rangecast.errors import FileError
from rangecast.match.scan import Scan
from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.snapshot import load_boxes
from rangecast.model.space import Space
from rangecast.rank.scan import Scan as RankScan
from rangecast.spark.generate import market_events
from rangecast.store.commits import committed_batches
from rangecast.workloads import generate
from rangecast.workloads.market import CHUNK

EVENTS, SUBSCRIPTIONS = 2 * CHUNK + 5, 200


@pytest.mark.parametrize("partitions", [1, 2, 7, None])
def test_the_rows_are_the_same_from_any_number_of_partitions(spark, partitions):
    made = generate("market", seed=5, events=EVENTS, subscriptions=0, symbols=30).tables["events"]
    on_spark = market_events(spark, EVENTS, seed=5, symbols=30, partitions=partitions)
    assert on_spark.rdd.getNumPartitions() == min(partitions or 2, 3)
    assert on_spark.toArrow().cast(made.schema).equals(made)


def test_no_rows_at_all(spark):
    assert market_events(spark, 0).count() == 0


def answers(folder):
    """Return the subscriptions of each event in a result folder."""
    table = pa.concat_tables(pq.ParquetFile(part).read() for part in folder.rglob("part-*.parquet"))
    found = table.select(["event", "subscriptions"]).to_pydict()
    assert len(set(found["event"])) == len(found["event"])
    return dict(zip(found["event"], found["subscriptions"], strict=True))


def right(events, boxes, space):
    """Return the subscriptions of each event by the plain scan."""
    matches = Scan(boxes).match(encode_events(events, space).points)
    names = boxes.ids.to_pylist()
    ids = events["id"].to_pylist()
    return {ids[e]: [names[r] for r in sorted(matches.of(e).tolist())] for e in range(len(ids))}


@pytest.fixture(scope="module")
def out(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    demo(SUBSCRIPTIONS, EVENTS, seed=3, output=folder, master=None)
    return folder


def test_the_events_are_those_of_the_generator(out):
    made = generate("market", seed=3, events=EVENTS, subscriptions=SUBSCRIPTIONS)
    parts = sorted((out / "data/events.parquet").glob("part-*.parquet"))
    assert len(parts) == 3
    written = pa.concat_tables(pq.ParquetFile(part).read() for part in parts)
    assert written.cast(made.tables["events"].schema).equals(made.tables["events"])
    searches = pq.read_table(out / "data/subscriptions.parquet")
    assert searches.equals(made.tables["subscriptions"])


def test_the_batch_is_what_the_scan_says(out):
    made = generate("market", seed=3, events=EVENTS, subscriptions=0)
    space = Space.load(out / "data/space.toml")
    boxes = read_subscriptions(out / "data/subscriptions.parquet", space)
    assert answers(out / "batch.parquet") == right(made.tables["events"], boxes, space)


def test_the_stream_changes_its_subscriptions_half_way(out):
    events = generate("market", seed=3, events=EVENTS, subscriptions=0).tables["events"]
    seen = {}
    for batch, mark in committed_batches(out / "stream").items():
        version = mark["version"]
        found = answers(batch)
        boxes, space = load_boxes(out / "versions" / f"{version:06}")
        mine = events.filter(pa.array([one in found for one in events["id"].to_pylist()]))
        assert found == right(mine, boxes, space)
        seen.setdefault(version, []).extend(found)
    assert sorted(seen) == [1, 2]
    assert sorted(seen[1] + seen[2]) == list(range(EVENTS))
    changed = pq.read_table(out / "data/changed.parquet")
    assert load_boxes(out / "versions/000002")[0].ids.to_pylist() == changed["id"].to_pylist()


def test_the_ranks_are_what_the_oracle_says(out):
    events = generate("market", seed=3, events=EVENTS, subscriptions=0).tables["events"]
    space = Space.load(out / "data/space.toml")
    boxes = read_subscriptions(out / "data/subscriptions.parquet", space)
    names = boxes.ids.to_pylist()
    points = encode_events(events, space).points
    found = pq.read_table(out / "best.parquet").sort_by("rank")
    written = {}
    for row in found.to_pylist():
        written.setdefault(row["event"], []).append((row["subscription"], row["score"]))
    right = {}
    for event, best in enumerate(RankScan(boxes).rank(points, K)):
        rows, scores = best.rows.tolist(), best.scores.tolist()
        if rows:
            right[event] = [(names[r], score) for r, score in zip(rows, scores, strict=True)]
    assert written == right
    assert max(map(len, right.values())) == K


def test_ranks_that_are_damaged_are_found(out):
    part = max((out / "best.parquet").glob("part-*.parquet"), key=lambda p: p.stat().st_size)
    table = pq.read_table(part)
    space = Space.load(out / "data/space.toml")
    boxes = read_subscriptions(out / "data/subscriptions.parquet", space)

    def proof(changed):
        pq.write_table(changed, part)
        return verify_ranks(out / "data/events.parquet", boxes, space, out / "best.parquet")[0]

    scores = table["score"].to_numpy() + (np.arange(len(table)) == 2)
    moved = table.set_column(3, "score", pa.array(scores))
    swapped = table["subscription"].take([1, 0, *range(2, len(table))])
    beyond = table.slice(0, 1).set_column(0, "event", pa.array([10**6]))
    assert proof(table).holds
    assert proof(table.slice(1))[3:] == (1, 0, 0, 0, False)
    assert proof(pa.concat_tables([table, beyond]))[3:] == (0, 1, 0, 0, False)
    assert proof(pa.concat_tables([table, table.slice(0, 3)]))[3:] == (0, 0, 3, 0, False)
    assert proof(moved)[3:] == (0, 0, 0, 1, False)
    assert proof(table.set_column(2, "subscription", swapped))[3:] == (0, 0, 0, 2, False)
    assert proof(table).holds


def test_the_page_tells_of_the_run(out):
    page = (out / "report.html").read_text(encoding="utf-8")
    for text in (f"{EVENTS:,} quotes", "✓ correct", "version 2", "Hot regions", "Index", "screen-"):
        assert text in page
    assert "✗" not in page
    assert "The best of each event" in page
    assert "batch, stream and rank, every event" in page
    assert page.count("<svg") == 11


def test_what_is_damaged_is_found(cli, out):
    part = next(p for p in (out / "batch.parquet").glob("part-*.parquet"))
    table = pq.read_table(part)
    pq.write_table(table.slice(1), part)
    given = ("data/events.parquet", "data/subscriptions.parquet", "batch.parquet")
    verify = ("verify", *given, "--space", "data/space.toml", "--json")
    assert json.loads(cli(*verify, cwd=out, code=1).stdout)["absent_events"] == 1
    pq.write_table(table, part)
    cli(*verify, cwd=out)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/space.toml").write_text("of `rangecast generate`")
    (tmp_path / "thesis.txt").write_text("do not lose")
    with pytest.raises(FileError, match="is not empty and has no earlier demo in it"):
        demo(5, 5, seed=1, output=tmp_path, master=None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "thesis.txt"]
    assert (tmp_path / "data/space.toml").exists()


def test_a_run_that_was_stopped_early_can_be_begun_again(tmp_path):
    for _ in range(2):
        _Demo(None, tmp_path / "out", 5, 5, 1).clear()
        (tmp_path / "out/stream").mkdir()
    assert not (tmp_path / "out/report.html").exists()


def _dies(tell, *_):
    tell.send(None)


@pytest.mark.process
def test_nobody_waits_for_kernels_whose_process_died(monkeypatch):
    monkeypatch.setattr(demo_prepare, "_compile", _dies)
    compiler = Compiler(5, 1)
    for _ in range(3):
        compiler.wait()
