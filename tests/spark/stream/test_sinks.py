"""Promises of sinks about columns: types and moments as given, the rules of an existing table, and
no second shape in one place.
"""

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.stream.run import run_stream
from rangecast.spark.stream.sets import FixedSet
from rangecast.spark.stream.sinks.base import Folder, JsonFolder
from rangecast.spark.stream.sinks.delta import Delta
from rangecast.spark.stream.sinks.join_files import join_parquet
from rangecast.spark.stream.sinks.written import LocalFolder, WrittenFile, encodings
from rangecast.spark.stream.steps import MatchStep, RankStep
from rangecast.store.commits import read_committed
from tests.support.delta_log import delta_rows

SPACE = Space([Number("price")])
MOMENT = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
SINKS = {"parquet": Folder, "json": JsonFolder, "delta": Delta}
COLUMNS = {
    "id": pa.int64(),
    "price": pa.float64(),
    "at": pa.timestamp("us", tz="UTC"),
    "kind": pa.string(),
    "batch": pa.int64(),
}


def subscriptions():
    boxes = Boxes.of([[0.0], [10.0]], [[20.0], [30.0]], ids=["low", "high"], space=SPACE)
    return FixedSet(boxes, SPACE)


def add(folder, name, prices, kind="a"):
    """Add a file of events; their ids are their prices."""
    (folder / "events").mkdir(exist_ok=True)
    rows = [
        {
            "id": price,
            "price": price,
            "at": MOMENT + timedelta(days=price),
            "kind": kind,
            "batch": 7,
        }
        for price in prices
    ]
    table = pa.Table.from_pylist(rows, pa.schema(COLUMNS))
    pq.write_table(table, folder / "events" / name)


def run(spark, folder, sink, step=MatchStep, **options):
    add(folder, "zero.parquet", [])  # so that columns are known
    reader = spark.readStream.schema(spark.read.parquet(str(folder / "events")).schema)
    events = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    steps = [step(subscriptions(), [sink], **options)]
    run_stream(events, steps, checkpoint=folder / "checkpoint", ignore_unknown=True)


@contextmanager
def zone(spark, name):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def moments(kind, path):
    """Return the moments that a sink's readers see, by the event's id."""
    if kind == "delta":
        rows = delta_rows(path)
    elif kind == "parquet":
        rows = read_committed(path).to_table().to_pylist()
    else:
        files = path.glob("batch=*/part-*")
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        rows = [row | {"at": datetime.fromisoformat(row["at"])} for row in rows]
    return {row["event"]: row["at"] for row in rows}


@pytest.mark.parametrize(
    ("kind", "output"),
    [("parquet", "rows"), ("parquet", "arrays"), ("json", "rows"), ("delta", "rows")],
)
def test_a_kept_moment_stays_one_in_every_zone_with_and_without_matches(
    spark, tmp_path, kind, output
):
    sink = SINKS[kind](tmp_path / "out")
    add(tmp_path, "0.parquet", [5, 25])
    add(tmp_path, "1.parquet", [99])
    with zone(spark, "America/New_York"):
        run(spark, tmp_path, sink, keep=["at"], output=output)
    add(tmp_path, "2.parquet", [15])
    with zone(spark, "Asia/Kolkata"):
        run(spark, tmp_path, SINKS[kind](tmp_path / "out"), keep=["at"], output=output)
    found = moments(kind, tmp_path / "out")
    expected = {price: MOMENT + timedelta(days=price) for price in (5, 15, 25)}
    if output == "arrays":
        expected[99] = MOMENT + timedelta(days=99)
    assert found == expected


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_changed_shape_of_the_output_is_rejected_on_a_restart(spark, tmp_path, kind):
    sink = SINKS[kind]
    add(tmp_path, "0.parquet", [5])
    run(spark, tmp_path, sink(tmp_path / "out"))
    before = sorted(path.name for path in (tmp_path / "out").glob("batch=*"))
    add(tmp_path, "1.parquet", [6])
    changes = [(MatchStep, {"output": "arrays"}), (MatchStep, {"keep": ["price"]})]
    for step, options in [*changes, (RankStep, {"k": 1})][: 3 if kind == "parquet" else 1]:
        with pytest.raises(UsageError, match=r"columns event bigint, subscription .*; given"):
            run(spark, tmp_path, sink(tmp_path / "out"), step, **options)
        assert sorted(path.name for path in (tmp_path / "out").glob("batch=*")) == before
    run(spark, tmp_path, sink(tmp_path / "out"))  # as before: it goes on
    assert len(list((tmp_path / "out").glob("batch=*"))) == len(before) + 1


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_column_that_the_folders_name_would_hide_is_rejected(spark, tmp_path, kind):
    add(tmp_path, "0.parquet", [5])
    with pytest.raises(UsageError, match="the column 'batch' can't be written"):
        run(spark, tmp_path, SINKS[kind](tmp_path / "out"), keep=["batch"])
    assert not (tmp_path / "out").exists()


def table(path, partition_by=None, configuration=None, **columns):
    fields = columns or {"event": "long", "subscription": "string"}
    kinds = {"long": pa.int64(), "string": pa.string(), "double": pa.float64()}
    schema = pa.schema(
        [
            pa.field(name, kinds[kind.rstrip("!")], nullable=not kind.endswith("!"))
            for name, kind in fields.items()
        ]
    )
    DeltaTable.create(path, schema, partition_by=partition_by, configuration=configuration)
    return DeltaTable(path)


def rows_of(path):
    return sorted(map(tuple, (row.values() for row in delta_rows(path))))


def test_partitions_of_a_table_are_obeyed(spark, tmp_path):
    path = tmp_path / "out"
    table(path, ["kind", "subscription"], event="long", subscription="string", kind="string")
    add(tmp_path, "0.parquet", [5, 15], "a/b c=%")
    add(tmp_path, "1.parquet", [25, 15, 16], None)
    run(spark, tmp_path, Delta(path), keep=["kind"])
    expected = {(5, "low", "a/b c=%"), (15, "low", "a/b c=%"), (15, "high", "a/b c=%")}
    expected |= {(15, "low", None), (15, "high", None), (16, "low", None), (16, "high", None)}
    expected |= {(25, "high", None)}
    found = delta_rows(path)
    assert {(row["event"], row["subscription"], row["kind"]) for row in found} == expected
    assert len(found) == 8
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    for action in actions:
        data = pq.read_table(path / action["path"])
        assert data.column_names == ["event"], "a partition column is in the log, not in the file"
        assert data.num_rows == action["num_records"]
    read = spark.read.parquet(*(str(path / one["path"]) for one in actions)).count()
    assert read == len(found)


def test_an_empty_text_cant_be_a_partition(spark, tmp_path):
    path = tmp_path / "out"
    table(path, ["kind"], event="long", subscription="string", kind="string")
    add(tmp_path, "0.parquet", [5], "")
    with pytest.raises(UsageError, match="'kind' has an empty string, which a Delta table can't"):
        run(spark, tmp_path, Delta(path), keep=["kind"])
    assert rows_of(path) == []


def test_not_null_is_obeyed(spark, tmp_path):
    path = tmp_path / "out"
    table(path, event="long!", subscription="string!", kind="string!")
    add(tmp_path, "0.parquet", [5], "a")
    run(spark, tmp_path, Delta(path), keep=["kind"])
    assert rows_of(path) == [(5, "low", "a")]
    add(tmp_path, "1.parquet", [6], None)
    with pytest.raises(UsageError, match="the column 'kind' is NOT NULL, but a row has null there"):
        run(spark, tmp_path, Delta(path), keep=["kind"])
    assert rows_of(path) == [(5, "low", "a")]


KINDS = ["a", "b/ü=1", None]


def partitioned_rows(spark, kind, path):
    """Return the rows that the usual readers of a sink see."""
    if kind == "delta":
        rows = delta_rows(path)
    else:
        schema = "event long, subscription string, kind string"
        read = spark.read if kind == "parquet" else spark.read.schema(schema)
        rows = [row.asDict() for row in getattr(read, kind)(str(path)).collect()]
    return sorted((row["event"], row["subscription"], row["kind"] or "") for row in rows)


@pytest.mark.parametrize("kind", SINKS)
def test_rows_are_partitioned_and_small_files_are_joined(spark, tmp_path, kind):
    path, by = tmp_path / "out", {"partition_by": ["kind"]}
    for place, one in enumerate(KINDS):
        add(tmp_path, f"{place}.parquet", [place, place + 3, place + 6], one)
    add(tmp_path, "zero.parquet", [])
    reader = spark.readStream.schema(spark.read.parquet(str(tmp_path / "events")).schema)

    def go(sink):
        events = reader.parquet(str(tmp_path / "events")).repartition(4)
        steps = [MatchStep(subscriptions(), [sink], keep=["kind"])]
        run_stream(events, steps, checkpoint=tmp_path / "checkpoint", ignore_unknown=True)

    go(SINKS[kind](path, **by))
    expected = sorted((n, "low", KINDS[n % 3] or "") for n in range(9))
    assert partitioned_rows(spark, kind, path) == expected
    if kind == "delta":
        assert DeltaTable(path).metadata().partition_columns == ["kind"]
        assert len(DeltaTable(path).file_uris()) == len(KINDS)
        assert len(list(path.glob("part-*"))) == len(KINDS), "what was joined is removed"
    else:
        folders = [file.parent for file in path.rglob("part-*")]
        assert len(folders) == len(set(folders)) == len(KINDS)
    add(tmp_path, "9.parquet", [99])  # a batch without matches
    go(SINKS[kind](path, **by))
    assert partitioned_rows(spark, kind, path) == expected
    add(tmp_path, "10.parquet", [98])
    with pytest.raises(UsageError, match="partitioned by kind"):
        go(SINKS[kind](path, partition_by=["subscription"]))


def test_columns_that_rows_cant_be_partitioned_by_are_rejected(spark, tmp_path):
    for sink in SINKS.values():
        for by, words in (
            (["nothing"], "the rows lack the columns 'nothing'"),
            (["event", "subscription", "price"], "names all columns"),
            (["price"], "'price' has the type double; expected: string"),
        ):
            with pytest.raises(UsageError, match=words):
                run(spark, tmp_path, sink(tmp_path / "out", partition_by=by), keep=["price"])
    with pytest.raises(UsageError, match=r"hint: give partition_by=\['kind'\]"):
        Folder(tmp_path, partition_by="kind")


def test_small_files_are_joined_up_to_the_target_and_within_a_partition(tmp_path):
    place = LocalFolder(str(tmp_path))
    files = []
    for number in range(12):
        name = f"part-{number:02}.parquet"
        pq.write_table(pa.table({"n": [number]}), tmp_path / name)
        size = (tmp_path / name).stat().st_size
        files.append(WrittenFile(name, 1, size, ("a" if number < 10 else "b",)))
    size = files[-1].size
    for target, rows in ((0, [1] * 12), (size * 7, [1] * 12), (size * 8, [8, 2, 2])):
        files = join_parquet(place, files, target)  # those above an eighth of it aren't small
        assert [file.rows for file in files] == rows
        found = {pq.read_table(tmp_path / file.name)["n"][0].as_py() for file in files}
        assert len(list(tmp_path.iterdir())) == len(files) == len(found)
    assert place.read(files[0].name)["n"].to_pylist() == list(range(8))
    assert all(place.has(file.name) and file.size for file in files)


def test_integers_are_written_as_differences_whatever_columns_are_kept(tmp_path):
    table = pa.table(
        {
            "event": [1, 2],
            "subscription": ["a", "b"],
            "lists": pa.array([[[1]], []], pa.list_(pa.list_(pa.int32()))),
            "fields": [{"a": 1, "b": [{"c": 2}]}] * 2,
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
            "flag": [True, None],
            "nothing": pa.nulls(2),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, **encodings(table.schema))
    assert pq.read_table(path).equals(table)
    group = pq.read_metadata(path).row_group(0)
    columns = map(group.column, range(group.num_columns))
    used = {one.path_in_schema: one.encodings for one in columns}
    integers = {name for name, some in used.items() if "DELTA_BINARY_PACKED" in some}
    nested = {"lists.list.element.list.element", "fields.a", "fields.b.list.element.c"}
    assert integers == {"event", "map.key_value.value", *nested}
    assert "RLE_DICTIONARY" in used["subscription"]


def changed(path, change):
    """Rewrite the first entry of a table's log, as another writer may have made it."""
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def with_metadata(name, key, value):
    def change(action):
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            (field,) = [one for one in schema["fields"] if one["name"] == name]
            field["metadata"][key] = value
            action["metaData"]["schemaString"] = json.dumps(schema)

    return change


def with_feature(feature, **configuration):
    def change(action):
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [],
                "writerFeatures": [feature],
            }
        if "metaData" in action:
            action["metaData"]["configuration"] |= configuration

    return change


def with_mapping(action):
    with_feature("columnMapping", **{"delta.columnMapping.mode": "name"})(action)
    for number, name in enumerate(("event", "subscription"), 1):
        with_metadata(name, "delta.columnMapping.physicalName", f"col-{number}")(action)
        with_metadata(name, "delta.columnMapping.id", number)(action)
    if "protocol" in action:
        action["protocol"]["readerFeatures"] = ["columnMapping"]


REJECTED = {
    "CHECK": (
        lambda path: table(path).alter.add_constraint({"small": "event < 0"}),
        r"the CHECK constraint small \(event < 0\)",
    ),
    "generated column": (
        lambda path: (
            table(path),
            changed(path, with_metadata("event", "delta.generationExpression", "1 + 1")),
        ),
        "the generated column 'event'",
    ),
    "identity column": (
        lambda path: (
            table(path),
            changed(path, with_metadata("event", "delta.identity.start", 1)),
        ),
        "the identity column 'event'",
    ),
    "invariant": (
        lambda path: (
            table(path),
            changed(path, with_metadata("event", "delta.invariants", "{}")),
        ),
        "the column with an invariant 'event'",
    ),
    "longest text": (
        lambda path: (
            table(path),
            changed(
                path, with_metadata("subscription", "__CHAR_VARCHAR_TYPE_STRING", "varchar(2)")
            ),
        ),
        "the column with a longest text 'subscription'",
    ),
    "column mapping": (
        lambda path: (
            table(path),
            changed(path, with_mapping),
        ),
        "column mapping",
    ),
    "feature": (
        lambda path: (table(path), changed(path, with_feature("rowTracking"))),
        "the writer feature rowTracking",
    ),
    "partition type": (
        lambda path: table(path, ["price"], event="long", subscription="string", price="double"),
        "the partition column 'price' of the type double",
    ),
    "type": (
        lambda path: table(path, event="string", subscription="string"),
        r"they differ in event string, event bigint",
    ),
    "order": (
        lambda path: table(path, subscription="string", event="long"),
        "they differ in their order",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_isnt_obeyed_is_rejected_by_name_before_the_first_batch(spark, tmp_path, name):
    make, message = REJECTED[name]
    path = tmp_path / "out"
    make(path)
    version = DeltaTable(path).version()
    add(tmp_path, "0.parquet", [5])
    keep = ["price"] if name == "partition type" else []
    with pytest.raises(UsageError, match=message):
        run(spark, tmp_path, Delta(path), keep=keep)
    assert not (tmp_path / "checkpoint").exists()
    assert DeltaTable(path).version() == version
    assert not list(path.glob("part-*"))


NESTED = {
    "x.a": pa.struct([pa.field("a", pa.int32(), nullable=False)]),
    "x.element": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "x.value": pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    "x.element.a": pa.list_(pa.struct([pa.field("a", pa.int32(), nullable=False)])),
}


@pytest.mark.parametrize("path", NESTED)
def test_a_table_whose_nested_values_cant_be_null_is_rejected_by_name(spark, tmp_path, path):
    fields = [pa.field("event", pa.int64()), pa.field("x", NESTED[path])]
    DeltaTable.create(tmp_path / "out", pa.schema(fields))
    with pytest.raises(UsageError, match=f"the table has the NOT NULL field '{path}'"):
        Delta(tmp_path / "out").check(spark)


def test_a_table_that_can_only_be_appended_to(spark, tmp_path):
    path = tmp_path / "out"
    table(path, configuration={"delta.appendOnly": "true"})
    add(tmp_path, "0.parquet", [5])
    run(spark, tmp_path, Delta(path))
    assert rows_of(path) == [(5, "low")]
    with pytest.raises(UsageError, match=r"delta\.appendOnly set"):
        Delta(path, replace=True).check(spark)
    with pytest.raises(DeltaError):  # delta-rs itself agrees that it can't be changed
        DeltaTable(path).delete()


def test_a_table_with_the_batches_of_another_stream_is_rejected_unless_shared(spark, tmp_path):
    path = tmp_path / "out"
    add(tmp_path, "0.parquet", [5])
    run(spark, tmp_path, Delta(path))
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(UsageError, match="contains the batches of another stream"):
        run(spark, tmp_path, Delta(path))
    assert rows_of(path) == [(5, "low")]
    (tmp_path / "checkpoint").rename(tmp_path / "other")
    run(spark, tmp_path, Delta(path, shared=True))
    assert rows_of(path) == [(5, "low"), (5, "low")]


def test_matches_that_two_steps_write_are_counted_once(spark, tmp_path):
    add(tmp_path, "0.parquet", [5, 15])
    given, done = subscriptions(), []
    steps = [
        MatchStep(given, [Folder(tmp_path / "pairs")], name="pairs"),
        MatchStep(given, [Folder(tmp_path / "arrays")], output="arrays", name="arrays"),
        RankStep(given, [Folder(tmp_path / "best")], k=1, name="best"),
    ]
    events = spark.readStream.schema(spark.read.parquet(str(tmp_path / "events")).schema)
    events = events.parquet(str(tmp_path / "events"))
    run_stream(
        events,
        steps,
        checkpoint=tmp_path / "checkpoint",
        report=done.append,
        ignore_unknown=True,
    )
    assert [(one.matches, one.steps) for one in done] == [(3, {"pairs": 3, "arrays": 3, "best": 2})]
