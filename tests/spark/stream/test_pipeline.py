"""Pipelines from TOML files, and backfill: what they answer, and what they say of mistakes."""

import csv
import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.engine import Engine
from rangecast.errors import FileError, RejectedRowError, SpaceError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.spark import FixedSet, Folder, MatchStep, run_stream
from rangecast.spark.stream.history import backfill
from rangecast.spark.stream.kafka import KafkaSource
from rangecast.spark.stream.pipeline.pipeline import Pipeline
from rangecast.spark.stream.sources import Files, TableSource, files_of, first_file
from rangecast.store.commits import commits, read_committed
from rangecast.workloads import WORKLOADS
from tests import ROOT

EXAMPLES = ROOT / "examples"
SPACE = """
[[attribute]]
name = "price"
type = "number"
[[attribute]]
name = "time"
type = "timestamp"
"""
GOOD = """
mode = "batch"
space = "space.toml"
[[source]]
type = "files"
format = "csv"
path = "events.csv"
[[subscriptions]]
file = "subs.csv"
[[step]]
type = "match"
[[sink]]
type = "parquet"
path = "out"
"""
STREAM = GOOD.replace('"batch"', '"stream"') + '[stream]\ncheckpoint = "checkpoint"\n'
RATE = re.sub(r"(?s)type = .files.*?events.csv.", 'type = "rate"', GOOD)


def step(more):
    return GOOD.replace('type = "match"', f'type = "match"\n{more}')


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text("id,filter\ncheap,price < 10\nall,true\n")
    (tmp_path / "events.csv").write_text(
        "id,price,time\n"
        "a,5,2026-01-30T10:00:00Z\n"
        "b,50,2026-01-30T23:59:59.999999Z\n"
        "c,7,2026-01-31T00:00:00Z\n"
        "d,dear,2026-01-31T00:00:00Z\n"
        "e,8,\n"
    )
    return tmp_path


def load(folder, text):
    (folder / "p.toml").write_text(text)
    return Pipeline.load(folder / "p.toml")


def test_files_and_topics_are_read_alike(folder):
    how = """ids = "integer"
schema = "id long, cents long"
columns.price = "cents / 100"
options.mode = "FAILFAST"
"""
    shared = {
        "ids": "integer",
        "schema": "id long, cents long",
        "columns": {"price": "cents / 100"},
        "options": {"mode": "FAILFAST"},
    }
    files = 'type = "files"\nformat = "csv"\npath = "events.csv"\n'
    topic = 'type = "kafka"\nservers = "a:1"\ntopic = "t"\n'
    found = load(folder, GOOD.replace(files, files + how)).settings.source[0]
    assert found == Files(str(folder / "events.csv"), "csv", **shared)
    found = load(folder, GOOD.replace(files, topic + how)).settings.source[0]
    assert found == KafkaSource("a:1", "t", **shared)


MISTAKES = [
    (GOOD.replace('mode = "batch"\n', ""), r"mode: is missing\n.*'batch', 'stream'"),
    (GOOD.replace('"batch"', '"daily"'), "mode: unknown 'daily'"),
    (GOOD.replace('mode = "batch"', "mode = 1"), r"mode: invalid value\n  given: 1\n  expected: "),
    (GOOD.replace('mode = "batch"', 'mood = ""\nmode = "batch"'), "mood: unknown key.*'mode'"),
    (GOOD.replace('format = "csv"', 'format = "xml"'), r"source\[0\].format: unknown 'xml'"),
    (GOOD.replace('format = "csv"\n', ""), r"source\[0\].format: is missing"),
    (GOOD.replace('path = "events.csv"', "path = 3"), r"source\[0\].path: invalid value"),
    (RATE, r"source\[0\].type: the rate source never ends"),
    (GOOD.replace("[[source]]", '[[source]]\nids = "x"'), r"source\[0\].ids: unknown 'x'"),
    (GOOD.replace('type = "match"', 'type = "rang"'), r"step\[0\].type: unknown 'rang'"),
    (
        step("keep = [1]"),
        r"step\[0\].keep\[0\]: invalid value\n  given: 1\n  expected: the name of a column",
    ),
    (step("keep = 1"), r"step\[0\].keep: invalid value\n  given: 1\n  expected: a list of columns"),
    (step('outptu = "rows"'), r"step\[0\].outptu: unknown key: did you mean 'output'"),
    (
        GOOD.replace("[[subscriptions]]", "[[subscriptions]]\nkeep_versions = 0"),
        r"subscriptions\[0\].keep_versions: invalid value\n  given: 0\n  expected: number",
    ),
    (GOOD.replace("[[source]]", "[[sauce]]"), "sauce: unknown key: did you mean.*'source'"),
    (GOOD.replace('type = "match"', ""), r"step\[0\].type: is missing\n  expected: one of 'match'"),
    (
        GOOD.replace("[[sink]]", "[[unsunk]]").replace("[[source]]", "sink = [3]\n[[source]]"),
        r"sink\[0\]: invalid value\n  given: 3\n  expected: a table",
    ),
    (
        step('index = "b"'),
        r"step\[0\].index: no index 'b': known: 'auto', 'scan'",
    ),
    (step("index = 3"), r"step\[0\].index: invalid value\n  given: 3\n  expected: the name of an"),
    (step('index = "vcr:side=x"'), r"step\[0\].index: option 'side' of index 'vcr' takes one or"),
    (
        GOOD.replace("[[source]]", '[[source]]\nnan = "zero"'),
        r"source\[0\].nan: unknown 'zero'",
    ),
    (
        GOOD + '[[step]]\ntype = "match"\n',
        r"step\[1\].name: step\[0\] already has the name 'match'\n  hint: give it another",
    ),
    (GOOD.replace("[[sink]]", "[sink]"), "sink: invalid value"),
    (GOOD.replace("[[sink]]", "[[sink]]\nrows = 1"), r"sink\[0\].rows: unknown key"),
    (GOOD + '[[sink]]\ntype = "console"\nrows = 0\n', r"sink\[1\].rows: invalid value"),
    (GOOD + '[[sink]]\ntype = "kafka"\nservers = "a:1"\n', r"sink\[1\].topic: is missing"),
    (GOOD.replace('file = "subs.csv"', ""), r"subscriptions\[0\].file: give either"),
    (STREAM.replace('file = "subs.csv"', ""), r"subscriptions\[0\].file: give a file, a table, a"),
    (
        STREAM.replace('file = "subs.csv"', 'file = "subs.csv"\nserver = "http://a:1"'),
        r"subscriptions\[0\].server: it has the whole set",
    ),
    (
        STREAM.replace('file = "subs.csv"', 'server = "http://a:1"'),
        r"subscriptions\[0\].server_space: give both a server and its space",
    ),
    (
        STREAM.replace('file = "subs.csv"', 'server = "a:1"\nserver_space = "s"'),
        r"subscriptions\[0\].server: invalid value\n  given: 'a:1'\n  expected: the URL of a ser",
    ),
    (
        GOOD.replace("[[step]]", 'edits = "e"\n[[step]]'),
        r"subscriptions\[0\].edits: is only for streams",
    ),
    (GOOD + "[rejected]\n", "rejected.path: is missing"),
    (GOOD + '[stream]\ncheckpoint = "c"\n', "stream: has no effect in a batch job"),
    (GOOD.replace('"batch"', '"stream"'), "stream: is missing"),
    (
        STREAM + 'trigger = "now"\n',
        r"stream.trigger: invalid value\n  given: 'now'\n  expected: 'avail",
    ),
    (STREAM + "[spark]\nconf = 3\n", "spark.conf: invalid value"),
    (
        STREAM + "[spark.conf]\na = [1]\n",
        r"spark.conf.a: invalid value\n  given: \[1\]\n  expected: a string, a number, true or",
    ),
    (STREAM + "[spark.conf]\na = true\nb = 2026-01-01\n", "spark.conf.b: invalid value"),
    (
        STREAM.replace('"checkpoint"', '"hdfs://host/c"'),
        r"subscriptions\[0\].versions: is missing",
    ),
    ("mode = ", "is not a TOML file"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_is_told_with_the_file_the_key_and_what_it_takes(folder, text, message):
    with pytest.raises(FileError, match=rf"(?s)p\.toml: {message}"):
        load(folder, text)


def test_files_that_are_missing_are_named(folder):
    with pytest.raises(FileError, match=r"none.toml: can't be read"):
        Pipeline.load(folder / "none.toml")
    with pytest.raises(SpaceError, match=r"nowhere.toml: can't be read"):
        load(folder, GOOD.replace("space.toml", "nowhere.toml"))


def test_what_spark_hides_in_a_folder_is_no_sample_of_its_files(tmp_path):
    for name in ("_spark_metadata/0", ".staging/a.csv", "day=1/_b.csv", "day=1/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert first_file(tmp_path) == tmp_path / "day=1/c.csv"


def test_a_batch_job_writes_once(spark, folder):
    with pytest.raises(RejectedRowError):
        load(folder, GOOD).run(spark)
    text = GOOD + '[rejected]\npath = "bad"\n'
    done = []
    load(folder, text).run(spark, done.append)
    assert [(one.events, one.matches, one.rejected, one.version) for one in done] == [(5, 7, 1, 0)]
    rows = read_committed(folder / "out").to_table().to_pylist()
    assert sorted((row["event"], row["subscription"]) for row in rows) == [
        ("a", "all"), ("a", "cheap"), ("b", "all"), ("c", "all"), ("c", "cheap"),
        ("e", "all"), ("e", "cheap"),
    ]  # fmt: skip
    assert [row["event"] for row in read_committed(folder / "bad").to_table().to_pylist()] == ["d"]
    with pytest.raises(UsageError, match="a batch job fills a folder once"):
        load(folder, text).run(spark)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_value_that_doesnt_fit_is_a_rejected_row_also_if_nobody_asks_for_its_column(
    spark, folder, form
):
    rows = [("a", 5, 1), ("b", "dear", 1), ("c", 5, "many")]
    names = ["id", "price", "count"]
    lines = [",".join(map(str, row)) for row in (names, *rows)]
    if form == "json":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    text = GOOD.replace('"csv"', f'"{form}"') + '[rejected]\npath = "bad"\n'
    given = 'schema = "id string, price double, count int"\ncolumns.time = "string(null)"'
    done = []
    load(folder, text.replace("[[source]]", f"[[source]]\n{given}")).run(spark, done.append)
    assert [(one.events, one.matches, one.rejected) for one in done] == [(3, 2, 2)]
    bad = read_committed(folder / "bad").to_table().to_pylist()
    assert sorted(row["column"] for row in bad) == ["(all)", "(all)"]


LINES = """{"id": 1, "price": 5}
{"id": 2, "price": 5} trailing
{"id": 3, "price": 5}{"id": 4, "price": 6}

{"id": 5, "price": 5, "time": null, "more": {"a": [{}], "b": "}"}}  \r
{"id": 6, "price": "}"}
{"id": 7, "price": 5, "more": {}}, {"id": 8, "price": 6}
{'id': 9, 'price': 5, 'more': {}}
[{"id": 10, "price": 5}]
null
"""


def test_a_line_that_isnt_one_object_is_a_rejected_row(spark, folder):
    """Also one that begins with an object: Spark's parser doesn't look at the rest."""
    (folder / "day=7").mkdir()
    (folder / "day=7" / "events.json").write_text("\ufeff" + LINES)
    text = GOOD.replace('"csv"\npath = "events.csv"', '"json"\npath = "events"\nids = "integer"')
    (folder / "events").mkdir()
    (folder / "day=7").rename(folder / "events" / "day=7")
    text = text.replace('type = "match"', 'type = "match"\noutput = "arrays"\nkeep = ["day"]')
    done = []
    load(folder, text + '[rejected]\npath = "bad"\n').run(spark, done.append)
    found = {row["event"]: (row["subscriptions"], row["day"]) for row in rows(folder / "out")}
    assert found == dict.fromkeys((1, 5, 9), (["cheap", "all"], "7"))
    lines = LINES.splitlines()
    bad = {row["data"].rstrip() for row in rows(folder / "bad") if row["column"] == "(all)"}
    assert bad == {lines[place].rstrip() for place in (1, 2, 6, 8, 9)}
    (other,) = [row for row in rows(folder / "bad") if row["column"] != "(all)"]
    assert (other["event"], other["column"], other["value"]) == ("6", "price", "}")
    assert done[0].events == 9


class Growing:
    """A source with one more event each time that it is read, every second one bad."""

    is_replayable = False
    names_columns = False
    ignore_unknown = False
    nan = "error"

    def __init__(self, file):
        self.file = file

    def read(self, session, space, keep, *, stream):
        file = self.file

        def read_all(batches):
            for _ in batches:
                with file.open("a") as known:
                    known.write("x")
                number = file.stat().st_size
                prices = ["5", "dear"] * number
                ids = [str(place) for place in range(len(prices))]
                times = [None] * len(ids)
                columns = {"id": ids, "price": prices, "time": pa.array(times, pa.string())}
                yield pa.record_batch(columns)

        frame = session.range(1, numPartitions=1)
        return frame.mapInArrow(read_all, "id string, price string, time string")


def test_a_batch_job_over_a_topic_that_grows_reads_it_once(spark, folder):
    pipeline = load(folder, GOOD + '[rejected]\npath = "bad"\n')
    pipeline.graph.sources["events"] = Growing(folder / "reads")
    done = []
    pipeline.run(spark, done.append)
    assert [(one.events, one.matches, one.rejected) for one in done] == [(2, 2, 1)]
    assert read_committed(folder / "bad").to_table().num_rows == 1
    assert (folder / "reads").read_text() == "x"
    assert not KafkaSource("a:1", "t").is_replayable
    assert Files("events", "csv").is_replayable
    assert not TableSource("delta", "t").is_replayable


def test_all_steps_have_the_same_rows_of_a_set_whose_table_grows(spark, folder):
    reads = folder / "reads"

    def read_all(batches):
        for _ in batches:
            with reads.open("a") as known:
                known.write("x")
            names = [f"s{number}" for number in range(reads.stat().st_size)]
            yield pa.record_batch({"id": names, "filter": ["price < 10"] * len(names)})

    growing = spark.range(1, numPartitions=1).mapInArrow(read_all, "id string, filter string")
    growing.createOrReplaceTempView("growing")
    text = GOOD.replace('file = "subs.csv"', 'catalog = "growing"') + '[rejected]\npath = "bad"\n'
    text = text.replace("[[sink]]", '[[step]]\ntype = "cover"\n[[sink]]\ninput = "match"')
    text += '[[sink]]\ninput = "cover"\ntype = "parquet"\npath = "kept"\n'
    try:
        load(folder, text).run(spark)
    finally:
        spark.catalog.dropTempView("growing")
    assert reads.read_text() == "x"
    assert {row["subscription"] for row in rows(folder / "out")} == {"s0"}
    assert [row["subscription"] for row in rows(folder / "kept")] == ["s0"]
    (folder / "none").mkdir()
    (folder / "none" / "0.csv").write_text("1,5\n")
    space = Space([Number("price")])
    set_ = FixedSet(growing, space)
    events = spark.readStream.schema("id long, price double").csv(str(folder / "none"))
    steps = [MatchStep(set_, [Folder(folder / name)], name=name) for name in "ab"]
    done = []
    run_stream(events, steps, checkpoint=folder / "checkpoint", report=done.append)
    assert reads.read_text() == "xx"
    assert [one.steps for one in done] == [{"a": 2, "b": 2}]


def rows(folder):
    return read_committed(folder).to_table().to_pylist()


def test_a_batch_job_without_events(spark, folder):
    (folder / "events.csv").write_text("id,price,time\n")
    done = []
    load(folder, GOOD).run(spark, done.append)
    assert [(one.events, one.matches) for one in done] == [(0, 0)]
    assert read_committed(folder / "out").to_table().num_rows == 0


def test_a_stream_follows_a_file_that_is_changed_between_runs(spark, folder):
    (folder / "events").mkdir()
    text = STREAM.replace('"events.csv"', '"events"') + '[rejected]\npath = "bad"\n'
    for size in (1000, 1 << 30):
        (folder / "events.csv").rename(folder / "events" / f"{size}.csv")
        shutil.copy(folder / "events" / f"{size}.csv", folder / "events.csv")
        load(folder, text.replace("[[step]]", f"[[step]]\nmax_worker_memory = {size}")).run(spark)
        (folder / "subs.csv").write_text("id,filter\ndear,price > 10\n")
    marks = commits(folder / "out")
    assert [(mark["version"], mark["matches"]) for mark in marks] == [(1, 7), (2, 1)]


def test_the_shell_runs_the_examples(cli, spark, tmp_path):
    made = WORKLOADS["market"].generate(seed=1, subscriptions=60, events=300)
    data = tmp_path / "data"
    for name in ("incoming", "edits"):
        (data / name).mkdir(parents=True)
    for name, table in made.tables.items():
        pq.write_table(table, data / f"{name}.parquet")
    made.space.save(data / "space.toml")
    shutil.copy(data / "events.parquet", data / "incoming")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    engine = Engine(made.space)
    engine.subscribe_many(made.tables["subscriptions"])
    wanted = engine.match_many(made.tables["events"]).table()
    pairs = sorted(zip(*(column.to_pylist() for column in wanted.columns), strict=True))

    done = cli("pipeline", "run", "examples/market-batch.toml")
    assert "exactly once" in done.stderr
    assert "300 events in" in done.stderr
    found = read_committed(tmp_path / "out" / "batch" / "matches").to_table().to_pylist()
    assert sorted((row["event"], row["subscription"]) for row in found) == pairs
    assert found[0].keys() == {"event", "subscription", "symbol", "price", "time", "batch"}

    done = cli("pipeline", "run", "--json", "examples/market-stream.toml")
    batch, total = map(json.loads, done.stdout.splitlines())
    assert batch["events"] == total["events"] == 300
    assert (batch["batch"], batch["version"], total["batches"]) == (0, 1, 1)
    assert batch["matches"] == len(pairs)
    found = read_committed(tmp_path / "out" / "stream" / "matches").to_table().to_pylist()
    assert sorted((row["event"], one) for row in found for one in row["subscriptions"]) == pairs


# ---- backfill


BACKFILL = ("pipeline", "backfill", "--space", "space.toml")


def test_backfill_counts_by_day_with_samples(cli, spark, folder):
    done = cli(*BACKFILL, "events.csv", "--filter", "price < 10")
    assert list(csv.reader(done.stdout.splitlines())) == [
        ["day", "events", "matches", "rejected"],
        ["2026-01-30", "2", "1", "0"],
        ["2026-01-31", "2", "1", "1"],
        ["", "1", "1", "0"],
    ]
    samples = [json.loads(line)["id"] for line in done.stderr.splitlines() if line[0] == "{"]
    assert samples == ["a", "c", "e"]
    assert "3 of 5 events match (60%), on 3 of 3 days" in done.stderr
    ask = ("events.csv", "--filter", "price > 99", "--json", "-o", "days.parquet")
    done = cli(*BACKFILL, *ask)
    assert json.loads(done.stdout).items() >= {"matches": 0, "events": 5, "samples": []}.items()
    assert pq.read_table(folder / "days.parquet").column("matches").to_pylist() == [0, 0, 0]


def test_backfill_finds_its_column_of_time(spark, folder):
    space = Space.load(folder / "space.toml")
    schema = "price double, time timestamp, day date, week int"
    rows = [(5.0, None, None, 1), (6.0, None, None, 2)]
    events = spark.createDataFrame(rows, schema).selectExpr(
        "price", "time", "date'2026-02-01' as day", "week"
    )
    (only,) = backfill(events, "price <= 5", space, "day")
    assert (str(only.day), only.events, only.matches) == ("2026-02-01", 2, 1)
    assert [sample["price"] for sample in only.samples] == [5]
    many = spark.range(1000).selectExpr("id", "id as price", "timestamp'2026-02-01' as time")
    (only,) = backfill(many, "price >= 100", space, samples=3)
    assert (only.events, only.matches, len(only.samples)) == (1000, 900, 3)
    assert all(sample["price"] >= 100 for sample in only.samples)
    with pytest.raises(UsageError, match="'week' has the type int"):
        backfill(events, "true", space, "week")
    with pytest.raises(UsageError, match="no column 'dai': did you mean 'day'"):
        backfill(events, "true", space, "dai")


def test_backfill_by_a_column_of_texts(cli, spark, folder):
    (folder / "notes.csv").write_text(
        "id,price,time,at,note\n"
        "a,5,,2026-01-31T09:30:00Z,red\n"
        "b,6,,2026-02-01 10:00,\n"
        "c,7,,later,blue\n"
    )
    ask = (*BACKFILL, "notes.csv", "--filter", "price < 10", "--time")
    assert cli(*ask, "at").stdout.splitlines()[1:] == [
        "2026-01-31,1,1,0",
        "2026-02-01,1,1,0",
        ",1,1,0",
    ]
    error = cli(*ask, "note", code=2).stderr
    assert "column 'note' contains no timestamps\n  given: 'blue'\n  hint: name a column" in error


def test_backfill_needs_no_ids_and_days_are_utc_in_any_session(spark, folder):
    known = Space.load(folder / "space.toml")
    (folder / "events.jsonl").write_text(
        '{"price": 5, "time": "2026-01-30T23:30:00Z"}\n'
        '{"price": 6, "time": "2026-01-31T00:30:00"}\n'
        '{"price": 7, "time": "2026-01-31T02:30:00+02:00"}\n'
        '{"price": 7, "time": "2026-01-31T01:30:00+02:00"}\n'
        '{"price": 50, "time": "2026-02-01"}\n'
    )
    events = files_of(folder / "events.jsonl").read(spark, known, (), stream=False)
    typed = spark.sql("select 5 price, timestamp'2026-01-31 23:30:00Z' time")
    wall = spark.sql("select 5 price, timestamp_ntz'2026-01-31 23:30:00' time")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("America/New_York", "Asia/Tokyo"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            days = backfill(events, "price < 10", known)
            assert [(str(day.day), day.events, day.matches, day.rejected) for day in days] == [
                ("2026-01-30", 2, 2, 0), ("2026-01-31", 2, 2, 0), ("2026-02-01", 1, 0, 0),
            ]  # fmt: skip
            assert "id" not in days[0].samples[0]
            for frame in (typed, wall):
                (day,) = backfill(frame, "true", known, "time")
                assert str(day.day) == "2026-01-31"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_backfill_tells_mistakes_before_spark_is_asked(cli, folder):
    done = cli(*BACKFILL, "events.csv", "--filter", "prize < 10", code=2)
    assert "did you mean 'price'" in done.stderr
    done = cli(*BACKFILL, "nowhere.csv", "--filter", "true", code=2)
    assert "nowhere.csv: no such file" in done.stderr
    (folder / "x.arrow").touch()
    with pytest.raises(FileError, match="Spark doesn't read arrow files"):
        files_of(folder / "x.arrow")
