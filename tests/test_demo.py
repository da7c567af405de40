"""The main job at a small size: what it writes is there, is right, and can be proved again."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.cli.demo import _Run, demo
from rangecast.cli.verify import verified
from rangecast.errors import FileError
from rangecast.match.scan import Scan
from rangecast.model.events import encode_events
from rangecast.model.snapshot import load_boxes
from rangecast.model.space import Space
from rangecast.model.subscriptions import read_subscriptions
from rangecast.spark.commits import committed_batches
from rangecast.spark.generate import market_events
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
    """What a result in a folder says, by event."""
    table = pa.concat_tables(pq.ParquetFile(part).read() for part in folder.rglob("part-*.parquet"))
    found = table.select(["event", "subscriptions"]).to_pydict()
    assert len(set(found["event"])) == len(found["event"])
    return dict(zip(found["event"], found["subscriptions"], strict=True))


def right(events, boxes, space):
    """What the plain scan says, by event."""
    matches = Scan(boxes).match(encode_events(space, events).points)
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


def test_the_page_tells_of_the_run(out):
    page = (out / "report.html").read_text(encoding="utf-8")
    for text in (f"{EVENTS:,} quotes", "✓ right", "version 2", "Hot regions", "Index", "screen-"):
        assert text in page
    assert "✗" not in page
    assert page.count("<svg") == 11


def test_what_is_damaged_is_found(out):
    part = next(p for p in (out / "batch.parquet").glob("part-*.parquet"))
    table = pq.read_table(part)
    pq.write_table(table.slice(1), part)
    given = (out / "data/events.parquet", out / "data/subscriptions.parquet")
    space = Space.load(out / "data/space.toml")
    verdict = verified(*given, out / "batch.parquet", space)
    assert not verdict.holds
    assert verdict.absent_events == 1
    pq.write_table(table, part)
    assert verified(*given, out / "batch.parquet", space).holds


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/space.toml").write_text("of `rangecast generate`")
    (tmp_path / "thesis.txt").write_text("do not lose")
    with pytest.raises(FileError, match="isn't empty, and no earlier demo is in it"):
        demo(5, 5, seed=1, output=tmp_path, master=None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "thesis.txt"]
    assert (tmp_path / "data/space.toml").exists()


def test_a_run_that_was_stopped_early_can_be_begun_again(tmp_path):
    for _ in range(2):
        _Run(tmp_path / "out", 5, 5, 1).clear()
        (tmp_path / "out/stream").mkdir()
    assert not (tmp_path / "out/report.html").exists()
