"""Subscriptions from where people keep them: a Delta table that is followed, a compacted topic."""

import shutil
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rangecast.errors import FileError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.spark.events import BROKEN
from rangecast.spark.stream.edits.delta import DeltaEdits
from rangecast.spark.stream.kafka import edits_of_messages
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions
from tests.spark.stream.test_pipeline_graph import CHECKPOINT, add, load, rows, sink, step

SPACE = Space([Number("price")])
FEED = {"delta.enableChangeDataFeed": "true"}


def subscriptions(**filters):
    return pa.table({"id": list(filters), "filter": list(filters.values())})


class Followed:
    """A table, the folder of its edits, and the versions that these make."""

    def __init__(self, folder, feed=None):
        self.path = str(folder / "table")
        self.options = {} if feed is None else {"configuration": feed}
        self.edits = folder / "edits"
        self.versions = Versions(folder / "versions")
        self.store = Edits(self.edits_folder(), self.versions, SPACE)

    def edits_folder(self):
        self.edits.mkdir(exist_ok=True)
        return self.edits

    def write(self, table, mode="append"):
        write_deltalake(self.path, table, mode=mode, **self.options)

    def ids(self):
        """Follow the table; return the ids of the newest version, in order of arrival."""
        DeltaEdits(self.path, self.edits)()
        self.store.apply()
        return self.versions.load(self.versions.latest())[0].ids.to_pylist()


@pytest.mark.parametrize("feed", [FEED, None], ids=["with a feed", "without"])
def test_a_set_is_what_its_table_is_after_each_change(tmp_path, feed):
    followed = Followed(tmp_path, feed)
    followed.write(subscriptions(a="price < 1", b="price < 2", c="price < 3"))
    assert followed.ids() == ["a", "b", "c"]
    DeltaTable(followed.path).delete("id = 'b'")
    followed.write(subscriptions(d="price < 4"))
    DeltaTable(followed.path).update(updates={"filter": "'price > 50'"}, predicate="id = 'a'")
    assert followed.ids() == ["a", "c", "d"]
    files = len(list(followed.edits.iterdir()))
    assert followed.ids() == ["a", "c", "d"]  # nothing is new
    assert len(list(followed.edits.iterdir())) == files == 2
    boxes, _ = followed.versions.load(followed.versions.latest())
    assert boxes.lo[0, 0] > 49
    DeltaTable(followed.path).optimize.compact()  # the same rows in other files
    assert followed.ids() == ["a", "c", "d"]
    DeltaTable(followed.path).delete()
    assert followed.ids() == []
    assert followed.versions.rejected(followed.versions.latest()) == []


@pytest.mark.parametrize("feed", [FEED, None], ids=["with a feed", "without"])
def test_an_id_or_a_score_that_is_updated_leaves_nothing_of_the_old_row(tmp_path, feed):
    followed = Followed(tmp_path, feed)
    filters = {"id": ["a", "b", "c", "d"], "filter": [f"price < {bound}" for bound in range(4)]}
    followed.write(pa.table(filters | {"score": [1.0, 2.0, 3.0, 4.0]}))
    assert followed.ids() == ["a", "b", "c", "d"]
    table = DeltaTable(followed.path)
    table.update(updates={"id": "'z'"}, predicate="id = 'a'")
    swapped = {"id": "case when id = 'b' then 'c' else 'b' end"}
    table.update(updates=swapped, predicate="id in ('b', 'c')")
    table.update(updates={"score": "null"}, predicate="id = 'd'")
    assert sorted(followed.ids()) == ["b", "c", "d", "z"]
    boxes = followed.versions.load(followed.versions.latest())[0]
    values = zip(boxes.hi[:, 0], boxes.scores, strict=True)
    held = dict(zip(boxes.ids.to_pylist(), values, strict=True))
    rows = DeltaTable(followed.path).to_pyarrow_table().to_pylist()
    assert {name: (round(bound), score) for name, (bound, score) in held.items()} == {
        row["id"]: (int(row["filter"][-1]), row["score"] or 0.0) for row in rows
    }


@pytest.mark.parametrize("feed", [FEED, None], ids=["with a feed", "without"])
def test_a_file_of_edits_goes_up_to_the_version_of_its_name(tmp_path, monkeypatch, feed):
    followed = Followed(tmp_path, feed)
    followed.write(subscriptions(a="price < 1"))
    assert followed.ids() == ["a"]
    followed.write(subscriptions(b="price < 2"))
    follow, load_cdf = DeltaEdits(followed.path, followed.edits), DeltaTable.load_cdf

    def overtaken(table, **versions):
        followed.write(subscriptions(c="price < 3"))  # while the changes are looked up
        return load_cdf(table, **versions)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "load_cdf", overtaken)
        follow()
    newest = followed.edits / f"delta-{1:020}.parquet"
    assert pq.read_table(newest)["id"].to_pylist() == ["b"]
    assert followed.ids() == ["a", "b", "c"]


def test_streams_that_follow_a_table_at_once_take_turns(tmp_path, monkeypatch):
    """Else the older one could write its changes after the newer one, and undo it."""
    followed = Followed(tmp_path, FEED)
    followed.write(subscriptions(a="price < 1"))
    assert followed.ids() == ["a"]
    followed.write(subscriptions(b="price < 2"))
    follow, load_cdf = DeltaEdits(followed.path, followed.edits), DeltaTable.load_cdf
    others = []

    def overtaken(table, **versions):
        changes = pa.table(load_cdf(table, **versions))
        if not others:
            DeltaTable(followed.path).delete("id = 'b'")
            others.append(Thread(target=lambda: (follow(), followed.store.apply())))
            others[0].start()
            others[0].join(1)  # in vain: it waits for this call
        return changes

    monkeypatch.setattr(DeltaTable, "load_cdf", overtaken)
    follow()
    others[0].join()
    assert followed.ids() == ["a"]


def test_a_table_that_cant_be_followed_is_rejected(tmp_path):
    followed = Followed(tmp_path)
    with pytest.raises(FileError, match=r"its changes can't be read(.|\n)*hint"):
        followed.ids()
    followed.write(pa.table({"id": [1], "price": [2.0]}))
    with pytest.raises(
        FileError, match="must have the columns id, filter and optionally score; given: id"
    ):
        followed.ids()
    (tmp_path / "edits" / f"delta-{9:020}.parquet").touch()
    with pytest.raises(UsageError, match="has version 0, but 9 was already applied"):
        followed.ids()


@pytest.mark.parametrize("versions", [1, 2])
def test_a_table_that_was_removed_and_made_again_is_rejected(tmp_path, versions):
    """Its versions say nothing about the rows of the old one, which would stay."""
    followed = Followed(tmp_path, FEED)
    followed.write(subscriptions(a="price < 1"))
    assert followed.ids() == ["a"]
    shutil.rmtree(followed.path)
    for number in range(versions):
        followed.write(subscriptions(**{f"b{number}": "price < 1"}))
    for _ in range(2):
        with pytest.raises(UsageError, match="was removed and made again"):
            followed.ids()
    for file in followed.edits.iterdir():  # as an earlier version wrote it
        pq.write_table(pq.read_table(file).replace_schema_metadata(), file)
    assert "a" in followed.ids()


@pytest.mark.parametrize(
    "kind", [pa.float32(), pa.int16(), pa.string(), pa.decimal128(10, 2), pa.null()], ids=str
)
def test_a_row_without_a_score_has_0_whatever_the_type(tmp_path, kind):
    followed = Followed(tmp_path, FEED)
    for name in "ab":
        scores = pa.array([None], kind)
        followed.write(subscriptions(**{name: "price < 1"}).append_column("score", scores))
        followed.ids()
    DeltaTable(followed.path).delete("id = 'a'")
    assert followed.ids() == ["b"]
    boxes = followed.versions.load(followed.versions.latest())[0]
    assert boxes.scores.tolist() == [0.0]
    assert followed.versions.rejected(followed.versions.latest()) == []


def test_a_row_has_the_score_0_where_the_column_was_removed(tmp_path):
    followed = Followed(tmp_path, FEED)
    scores = pa.array([1.0, 2.0])
    followed.write(subscriptions(a="price < 1", b="price < 2").append_column("score", scores))
    assert followed.ids() == ["a", "b"]
    rest = subscriptions(a="price < 1", c="price < 3")
    write_deltalake(followed.path, rest, mode="overwrite", schema_mode="overwrite")
    assert followed.ids() == ["a", "c"]
    boxes = followed.versions.load(followed.versions.latest())[0]
    assert boxes.scores.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", [pa.date32(), pa.bool_(), pa.binary()], ids=str)
def test_scores_that_are_no_numbers_are_rejected_at_once(tmp_path, kind):
    followed = Followed(tmp_path)
    followed.write(subscriptions(a="price < 1").append_column("score", pa.nulls(1, kind)))
    with pytest.raises(FileError, match=r"'score' has the type \S+; expected: numbers"):
        followed.ids()


def test_a_stream_answers_each_batch_with_the_table_as_it_is_then(spark, tmp_path):
    (tmp_path / "space.toml").write_text(
        '[[attribute]]\nname = "price"\ntype = "number"\n[[attribute]]\nname = "name"\n'
        'type = "string"\n'
    )
    path = str(tmp_path / "alerts")
    write_deltalake(path, subscriptions(low="price < 20", bob="name = 'bob'"), configuration=FEED)
    add(tmp_path, "0.csv", [("a", 10, "bob")])
    text = (
        'mode = "stream"\nspace = "space.toml"\n[[source]]\ntype = "files"\nformat = "csv"\n'
        'path = "events"\noptions.maxFilesPerTrigger = 1\n[[subscriptions]]\ndelta = "alerts"\n'
    )
    pipeline = load(tmp_path, text + step("match") + sink("out") + CHECKPOINT)

    def change(done):
        """Change the table after the first batch, while the stream runs."""
        if done.batch == 0:
            DeltaTable(path).delete("id = 'low'")
            write_deltalake(path, subscriptions(ann="name = 'ann'"), mode="append")
            add(tmp_path, "1.csv", [("b", 10, "bob"), ("c", 10, "ann")])

    add(tmp_path, "00.csv", [("z", 99, "zoe")])
    pipeline.run(spark, change)
    load(tmp_path, text + step("match") + sink("out") + CHECKPOINT).run(spark)
    assert rows(tmp_path, "out", "event", "subscription")[-2:] == [("b", "bob"), ("c", "ann")]
    assert pq.read_table(tmp_path / "checkpoint/sets/subscriptions/edits").num_rows == 4


def test_messages_of_a_compacted_topic_are_edits(spark):
    messages = [
        ("a", '{"filter": "price < 1", "score": 2}'),
        ("b", None),
        ("c", "{broken"),
        ("d", '{"filter": "price < 1"}'),
        (None, '{"filter": "price < 1"}'),
    ]
    frame = spark.createDataFrame(
        [(key and key.encode(), value and value.encode()) for key, value in messages],
        "key binary, value binary",
    )
    found = edits_of_messages(frame, integer_ids=False).collect()
    assert [(row["id"], row["op"], row["filter"], row["score"]) for row in found[:2]] == [
        ("a", "upsert", "price < 1", "2"),
        ("b", "remove", None, None),
    ]
    assert found[3]["score"] == "0", "a topic that lost its older messages gives the same"
    assert [row[BROKEN] for row in found] == [None, None, "{broken", None, "(key) none"]
    sevens = frame.selectExpr("encode('7', 'utf-8') as key", "value")
    assert {row["id"] for row in edits_of_messages(sevens, integer_ids=True).collect()} == {7}
    named = edits_of_messages(frame, integer_ids=True).collect()
    assert named[0][BROKEN] == "(key) a"
