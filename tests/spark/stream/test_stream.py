"""Streams in the shared session: the answers, the sources, the sinks, rejected rows and errors."""

import json
import os
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.engine import Engine
from rangecast.errors import FileError, RejectedRowError, UsageError
from rangecast.match.answerer import MatchAnswerer
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import String
from rangecast.model.space import Space
from rangecast.spark import match
from rangecast.spark.stream.run import run_stream
from rangecast.spark.stream.sets import ReadySets, VersionedSet
from rangecast.spark.stream.sinks.base import Batch, Callback, Console, Folder, JsonFolder
from rangecast.spark.stream.sources import (
    Files,
    Rate,
)
from rangecast.spark.stream.steps import MatchStep
from rangecast.store.commits import commits, read_committed
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

SPACE = Space([Number("price"), String("name")])
EVENTS = {
    "e1": (5, "ann"),
    "e2": (15, "bob"),
    "e3": (None, "cy"),
    "é4": (25, None),
}


def space():
    """A space of its own: a string attribute learns words."""
    return Space.from_definition(SPACE.definition())


def publish(folder, *edits):
    """Make the next version of (op, id, filter) edits."""
    (folder / "edits").mkdir(parents=True, exist_ok=True)
    number = len(list((folder / "edits").iterdir()))
    lines = [json.dumps({"op": op, "id": one, "filter": text}) + "\n" for op, one, text in edits]
    (folder / "edits" / f"{number}.jsonl").write_text("".join(lines))


def pinned(folder):
    versions = Versions(folder / "versions")
    known = space()
    return VersionedSet(versions, known, edits=Edits(folder / "edits", versions, known))


def csv_events(folder, name, events=EVENTS, more=""):
    (folder / "events").mkdir(exist_ok=True)
    cells = [(one, *("" if v is None else v for v in row)) for one, row in events.items()]
    text = "".join(",".join(map(str, row)) + "\n" for row in cells)
    (folder / "events" / name).write_text("id,price,name\n" + text + more)


def stream(spark, folder, **options):
    files = Files(str(folder / "events"), options.pop("form", "csv"), **options)
    return files.read(spark, space(), (), stream=True)


def go(spark, folder, sinks=None, events=None, how=None, **options):
    """Run what there is; return the reports."""
    done = []
    sinks = [Folder(folder / "matches")] if sinks is None else sinks
    run_stream(
        events if events is not None else stream(spark, folder),
        [MatchStep(pinned(folder), sinks, **(how or {}))],
        checkpoint=folder / "checkpoint",
        report=done.append,
        **options,
    )
    return done


def pairs(folder):
    rows = read_committed(folder / "matches").to_table().to_pylist()
    return sorted((row["batch"], row["event"], row["subscription"]) for row in rows)


THREE = [
    ("subscribe", "all", "true"),
    ("subscribe", "cheap", "price < 20"),
    ("subscribe", "bob", "name = 'bob'"),
]


def test_the_subscriptions_change_between_batches(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv")
    (first,) = go(spark, tmp_path)
    assert (first.batch, first.version, first.subscriptions) == (0, 1, 3)
    assert (first.events, first.matches, first.rejected) == (4, 7, 0)
    assert first.facts()["events_per_second"] >= 0
    assert go(spark, tmp_path) == []  # nothing new
    publish(tmp_path, ("replace", "bob", "name = 'ann'"), ("unsubscribe", "all", None))
    publish(tmp_path, ("unsubscribe", "nobody", None))
    csv_events(tmp_path, "1.csv")
    (second,) = go(spark, tmp_path)
    assert (second.batch, second.version, second.rejected_edits) == (1, 2, 1)
    assert pairs(tmp_path) == [
        (0, "e1", "all"),
        (0, "e1", "cheap"),
        (0, "e2", "all"),
        (0, "e2", "bob"),
        (0, "e2", "cheap"),
        (0, "e3", "all"),
        (0, "é4", "all"),
        (1, "e1", "bob"),
        (1, "e1", "cheap"),
        (1, "e2", "cheap"),
    ]
    (mark, _) = commits(tmp_path / "matches")
    assert mark.items() >= {"batch": 0, "version": 1, "rows": 7, "events": 4}.items()


def test_jobs_and_queries_are_named_by_batch_and_step(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", more="e9,x,bob\n")
    queries, of_jobs = {}, []
    context = spark.sparkContext._jsc.sc()

    def look(_):
        queries.update({query.name: query for query in spark.streams.active})

    def jobs():  # Spark forgets the oldest, so they are told apart by id and not by place
        context.listenerBus().waitUntilEmpty()
        listed = context.statusStore().jobsList(None)
        return {job.jobId(): job for job in map(listed.apply, range(listed.size()))}

    last = max(jobs(), default=-1)
    spark.sparkContext.setJobDescription("mine")
    try:
        sinks = [Folder(tmp_path / "matches"), JsonFolder(tmp_path / "json")]
        rejected = Folder(tmp_path / "rejected")
        go(spark, tmp_path, sinks, rejected=rejected, watch=look, name="alerts")
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)
    for number, job in jobs().items():
        if number > last:
            of_jobs.append(job.description().getOrElse(None))
    assert set(queries) == {"alerts"}
    (progress,) = queries["alerts"].recentProgress
    # The batch was read three times: for each sink, and for rejected rows.
    assert progress.observedMetrics["rangecast"].asDict() == {"events": 5}
    expected = {
        "batch 0, step match",
        "batch 0, rejected rows",
        f"batch 0, step match, {tmp_path / 'json'}",
    }
    assert expected <= set(of_jobs)
    assert set(of_jobs) <= expected | {"prepare subscriptions", "mine", None}


def test_rejected_rows_are_written_and_the_stream_goes_on(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", more="b1,dear,x\nb2,1,x,2\n,7,x\n")
    sinks = [Folder(tmp_path / "matches"), JsonFolder(tmp_path / "json")]
    (done,) = go(spark, tmp_path, sinks, rejected=Folder(tmp_path / "bad"))
    assert (done.events, done.matches, done.rejected) == (7, 7, 3)
    assert len(pairs(tmp_path)) == 7
    assert [mark["rows"] for mark in commits(tmp_path / "json")] == [7]
    rows = read_committed(tmp_path / "bad").to_table().to_pylist()
    found = {row["event"]: row for row in rows}
    assert len(rows) == 3
    assert found["b1"]["column"] == "price"
    assert found["b1"]["value"] == "dear"
    assert found["b1"]["reason"] == "'dear' is not a number"
    assert json.loads(found["b1"]["data"]) == {"id": "b1", "price": "dear", "name": "x"}
    assert found["b2"]["reason"] == "the row can't be split into its columns"
    assert found["b2"]["data"] == "b2,1,x,2"
    assert found[None]["column"] == "id"
    assert json.loads(found[None]["data"]) == {"price": "7", "name": "x"}


def test_without_a_quarantine_a_rejected_row_ends_the_stream_and_nothing_is_committed(
    spark, tmp_path
):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", more="b1,dear,x\n")
    with pytest.raises(RejectedRowError, match=r"batch 0, event b1, column 'price'.*'dear'"):
        go(spark, tmp_path)
    assert commits(tmp_path / "matches") == []
    (done,) = go(spark, tmp_path, rejected=Folder(tmp_path / "bad"))  # it goes on from there
    assert (done.batch, done.matches, done.rejected) == (0, 7, 1)


def test_without_a_quarantine_nobody_is_sent_a_batch_with_a_rejected_row(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", more="b1,dear,x\n")
    seen = []
    sinks = [Callback(lambda rows, batch: seen.append(rows.count()))]
    with pytest.raises(RejectedRowError, match="event b1"):
        go(spark, tmp_path, sinks)
    assert seen == []
    (done,) = go(spark, tmp_path, sinks, rejected=Folder(tmp_path / "bad"))
    assert (seen, done.rejected) == ([7], 1)


def test_what_fails_in_a_batch_is_raised_as_what_it_is(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv")

    def fail(rows, batch):
        raise KeyError("of the callback")

    with pytest.raises(KeyError, match="of the callback"):
        go(spark, tmp_path, [Callback(fail)])


def test_the_console_shows_brackets_as_they_are(spark, capsys):
    rows = spark.createDataFrame([("[/x] id", "[red]")], "event string, `[/b]` string")
    Console().write(rows, Batch("s", 0, 1, 3))
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/x] id", "[red]", "[/b]"))


def test_columns_are_checked_before_anything_runs(spark, tmp_path):
    publish(tmp_path, *THREE)
    (tmp_path / "events").mkdir()
    with pytest.raises(FileError, match="without files to infer the columns from"):
        go(spark, tmp_path)
    (tmp_path / "events" / "0.csv").write_text("id,prize,name\na,1,x\n")
    with pytest.raises(UsageError, match="unknown column 'prize': did you mean 'price'"):
        go(spark, tmp_path)
    with pytest.raises(UsageError, match="lack the columns 'price'"):
        go(spark, tmp_path, ignore_unknown=True)
    given = "id string, price boolean, name string"
    with pytest.raises(UsageError, match="'price' of events has the type boolean"):
        go(spark, tmp_path, events=stream(spark, tmp_path, schema=given))
    with pytest.raises(UsageError, match="a streaming DataFrame"):
        go(spark, tmp_path, events=spark.range(3))
    assert not (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "matches").exists()


def test_a_new_checkpoint_doesnt_mix_with_an_old_folder(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv")
    go(spark, tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="the batches of another stream"):
        go(spark, tmp_path)
    assert len(pairs(tmp_path)) == 7


def test_a_batch_that_spark_repeats_is_passed_over_by_those_who_have_it(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", more="b1,dear,x\n")
    rejected = {"rejected": Folder(tmp_path / "bad")}
    go(spark, tmp_path, **rejected)
    publish(tmp_path, ("unsubscribe", "all", None))
    for mark in (tmp_path / "checkpoint" / "commits").iterdir():  # as if Spark had crashed then
        mark.unlink()
    seen = []
    again = Callback(lambda rows, batch: seen.append((batch.version, rows.count())))
    folder = Folder(tmp_path / "matches")
    (done,) = go(spark, tmp_path, [folder, again], **rejected)
    assert (done.batch, done.version, done.matches) == (0, 1, 7)
    assert seen == [(1, 7)]  # at least once, and by the version of the first time
    assert len(pairs(tmp_path)) == 7
    assert read_committed(tmp_path / "bad").count_rows() == 1


def test_several_sinks_get_the_same(spark, tmp_path, capsys):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv")
    seen = []
    sinks = [
        Folder(tmp_path / "matches"),
        JsonFolder(tmp_path / "json"),
        Console(rows=3),
        Callback(lambda rows, batch: seen.extend(map(tuple, rows.collect()))),
    ]
    (done,) = go(spark, tmp_path, sinks)
    assert done.matches == 7
    wanted = [(event, one) for _, event, one in pairs(tmp_path)]
    assert sorted(seen) == wanted
    lines = [
        json.loads(line)
        for part in (tmp_path / "json").glob("batch=*/part-*.json")
        for line in part.read_text().splitlines()
    ]
    assert sorted((row["event"], row["subscription"]) for row in lines) == wanted
    shown = capsys.readouterr().out
    assert "batch 0, version 1" in shown
    assert shown.count("│") == 3 * 3
    assert [sink.promise for sink in sinks] == ["exactly once"] * 2 + ["at least once"] * 2


def test_arrays_keep_every_event_and_the_columns_that_are_asked_for(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv")
    go(spark, tmp_path, how={"output": "arrays", "keep": ["name"]})
    rows = read_committed(tmp_path / "matches").to_table().to_pylist()
    found = {row["event"]: (row["subscriptions"], row["name"]) for row in rows}
    assert found == {
        "e1": (["all", "cheap"], "ann"),
        "e2": (["all", "cheap", "bob"], "bob"),
        "e3": (["all"], "cy"),
        "é4": (["all"], None),
    }


def test_a_version_without_subscriptions_leaves_the_results_readable(cli, spark, tmp_path):
    publish(tmp_path, ("subscribe", "all", "true"))
    csv_events(tmp_path, "0.csv")
    how = {"how": {"output": "arrays"}}
    go(spark, tmp_path, **how)
    publish(tmp_path, ("unsubscribe", "all", None))
    csv_events(tmp_path, "1.csv", {"e5": (1, "x")})
    go(spark, tmp_path, **how)
    publish(tmp_path, ("subscribe", 7, "true"))  # a text in this folder
    csv_events(tmp_path, "2.csv", {"e6": (1, "x")})
    go(spark, tmp_path, **how)
    rows = read_committed(tmp_path / "matches").to_table().to_pylist()
    found = {row["event"]: row["subscriptions"] for row in rows}
    assert found == {**{event: ["all"] for event in EVENTS}, "e5": [], "e6": ["7"]}
    space().save(tmp_path / "space.toml")
    cli("verify", "events", "versions", "matches", "--space", "space.toml")


def test_a_folder_of_integers_as_ids_rejects_texts_and_takes_an_empty_set(spark, tmp_path):
    with ExitStack() as closing:
        folder = Folder(tmp_path / "matches")
        folder.open("s", closing)
        for number, (kind, subscriptions) in enumerate([("bigint", 1), ("string", 0)]):
            rows = spark.sql(f"select 'e' event, array(cast(1 as {kind})) subscriptions")
            folder.write(rows, Batch("s", number, 1, subscriptions))({"rows": 1})
        assert str(read_committed(folder.path).schema.field("subscriptions").type.value_type) == (
            "int64"
        )
        with pytest.raises(UsageError, match="integer ids, but version 4 has strings"):
            folder.write(rows, Batch("s", 2, 4, 1))


def test_a_version_that_is_no_longer_held_leaves_the_disk(spark, tmp_path):
    subscriptions = pinned(tmp_path)
    sets = ReadySets(subscriptions, MatchAnswerer.of)
    places = []
    for number in (1, 2, 3, 4):
        publish(tmp_path, ("subscribe", number, f"price < {number}"))
        subscriptions.refresh()
        ready = sets.ready(spark, subscriptions.latest())
        assert ready.rows == number
        places.append(Path(ready.shards[-1].shipped.folder))
    assert [place.exists() for place in places] == [True, False, True, True]  # all over the first


def test_edits_of_a_set_in_shards_answer_as_the_whole_version_does(spark, tmp_path):
    """Who is replaced answers by the new filter alone, in its old place; who went, no more."""
    many = [("subscribe", n, f"price > {n % 17} and price < {n % 17 + 9}") for n in range(400)]
    publish(tmp_path, *many)
    versions, known = Versions(tmp_path / "versions"), space()
    edits = Edits(tmp_path / "edits", versions, known)
    subscriptions = VersionedSet(versions, known, edits=edits)
    sets = ReadySets(subscriptions, MatchAnswerer.of, 12_000)
    rows = {"id": np.arange(30), "price": np.arange(30.0), "name": ["x"] * 30}
    events = spark.createDataFrame(pa.table(rows))
    changes = [
        [("unsubscribe", 7, None), ("replace", 3, "price > 20")],
        [
            ("subscribe", 7, "name = 'x'"),
            ("replace", 399, "name = 'new'"),
            ("subscribe", 900, "true"),
        ],
        [("replace", 7, "price = 5"), ("unsubscribe", 900, None), ("replace", 3, "price < 2")],
    ]
    for number in range(4):
        if number:
            publish(tmp_path, *changes[number - 1])
        subscriptions.refresh()
        ready = sets.ready(spark, subscriptions.latest())
        assert len(ready.shards) > 3
        boxes, of_version = versions.load(number + 1)
        engine = Engine(of_version)
        engine.subscribe_many(boxes)
        assert ready.rows == len(engine)
        found = match(events, ready, known, output="arrays").collect()
        wanted = engine.match_many(pa.table(rows))
        assert {row["event"]: row["subscriptions"] for row in found} == {
            place: list(wanted[place]) for place in range(30)
        }


def test_parquet_and_json_folders_give_what_csv_gives(spark, tmp_path):
    wanted = None
    for form in ("csv", "parquet", "json"):
        folder = tmp_path / form
        (folder / "events").mkdir(parents=True)
        publish(folder, *THREE)
        rows = [{"id": one, "price": p, "name": n} for one, (p, n) in EVENTS.items()]
        if form == "csv":
            csv_events(folder, "0.csv")
        elif form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), folder / "events" / "0.parquet")
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows) + "nonsense\n"
            (folder / "events" / "0.json").write_text(text)
        events = stream(spark, folder, form=form)
        (done,) = go(spark, folder, events=events, rejected=Folder(folder / "bad"))
        assert done.rejected == (form == "json")
        wanted = wanted or pairs(folder)
        assert pairs(folder) == wanted


def test_ids_may_be_numbers_and_columns_may_be_worked_out(spark, tmp_path):
    publish(tmp_path, *THREE)
    (tmp_path / "events").mkdir()
    lines = ["id,cents,odd name", "7,500,ann", "seven,500,x", "8,dear,bob"]
    (tmp_path / "events" / "0.csv").write_text("\n".join(lines))
    columns = {"price": "try_cast(cents as int) / 100", "name": "`odd name`"}
    events = stream(spark, tmp_path, columns=columns, ids="integer")
    how = {"events": events, "rejected": Folder(tmp_path / "bad"), "ignore_unknown": True}
    go(spark, tmp_path, how={"keep": ["odd name"]}, **how)
    rows = read_committed(tmp_path / "matches").to_table().to_pylist()
    found = sorted((row["event"], row["subscription"], row["odd name"]) for row in rows)
    assert found == [
        (7, "all", "ann"),
        (7, "cheap", "ann"),
        (8, "all", "bob"),
        (8, "bob", "bob"),
    ]
    (bad,) = read_committed(tmp_path / "bad").to_table().to_pylist()
    assert bad["data"] == "seven,500,x"


def test_values_that_dont_fit_a_given_schema_are_rejected_rows(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", {1: (5, "ann"), 2: ("dear", "x"), "three": (5, "x")})
    events = stream(spark, tmp_path, schema="id bigint, price double, name string")
    (done,) = go(spark, tmp_path, events=events, rejected=Folder(tmp_path / "bad"))
    assert (done.events, done.rejected) == (3, 2)
    assert pairs(tmp_path) == [(0, 1, "all"), (0, 1, "cheap")]


def test_an_event_that_matches_everything_and_one_that_matches_nothing(spark, tmp_path):
    publish(tmp_path, *(("subscribe", f"s{i}", "price >= 0") for i in range(3000)))
    csv_events(tmp_path, "0.csv", {"all": (1, "x"), "none": (None, None)})
    (done,) = go(spark, tmp_path)
    assert (done.events, done.matches) == (2, 3000)
    assert Counter(event for _, event, _ in pairs(tmp_path)) == {"all": 3000}


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_the_rate_source_runs_until_it_is_told_to_stop(spark, tmp_path, told):
    publish(tmp_path, ("subscribe", "even", "price = 0"))
    rate = Rate(rows_per_second=50, columns={"price": "value % 2", "name": "'x'"})
    events = rate.read(spark, SPACE, (), stream=True)
    before = signal.getsignal(told)
    seen = []

    def report(done):
        enough = sum(seen) < 20 <= sum(seen) + done.events
        seen.append(done.events)
        if enough:
            os.kill(os.getpid(), told)

    sinks = [Folder(tmp_path / "matches")]
    every = {"checkpoint": tmp_path / "checkpoint", "trigger": "1 second"}
    run_stream(events, [MatchStep(pinned(tmp_path), sinks)], report=report, **every)
    assert signal.getsignal(told) is before
    assert not spark.streams.active
    found = [event for _, event, _ in pairs(tmp_path)]
    assert found == list(range(0, 2 * len(found), 2))
    assert len(found) >= 10
    with pytest.raises(UsageError, match="never ends"):
        rate.read(spark, SPACE, (), stream=False)


def test_files_that_didnt_arrive_are_not_committed(spark, tmp_path):
    with ExitStack() as closing:
        for form in ("parquet", "json"):
            kind = Folder if form == "parquet" else JsonFolder
            folder = kind(tmp_path / form, target_file_bytes=0)  # a file per task
            folder.open("s", closing)
            commit = folder.write(spark.range(0), Batch("s", 0, 1, 3))
            with pytest.raises(FileError, match="5 rows were written, but only 0 were found"):
                commit({"rows": 5})
            assert not folder.has(0)
            commit = folder.write(spark.range(0, 9, 1, 3), Batch("s", 1, 1, 3))
            parts = tmp_path.rglob(f"part-*.{form}")
            max(parts, key=lambda path: path.stat().st_mtime_ns).unlink()
            with pytest.raises(FileError, match="9 rows were written, but only 6 were found"):
                commit({"rows": 9})
            assert not folder.has(1)
