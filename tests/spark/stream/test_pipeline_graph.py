"""Pipelines of several steps: how names are resolved, and what every step answers."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.errors import FileError, RejectedRowError, UsageError
from rangecast.merge import Summary
from rangecast.model.space import Space
from rangecast.spark import TopKLists
from rangecast.spark.stream.pipeline.graph import described
from rangecast.spark.stream.pipeline.pipeline import Pipeline
from rangecast.store.commits import commits, read_committed

SPACE = """
[[attribute]]
name = "price"
type = "number"
min = 0
max = 100
[[attribute]]
name = "name"
type = "string"
"""
HEAD = """
mode = "batch"
space = "space.toml"
[[source]]
type = "files"
format = "csv"
path = "events"
[[subscriptions]]
file = "subs.csv"
"""
CHECKPOINT = '[stream]\ncheckpoint = "checkpoint"\n'
STREAM = HEAD.replace('"batch"', '"stream"') + CHECKPOINT
KAFKA = '[[sink]]\ntype = "kafka"\nservers = "a:1"\ntopic = "t"\n'
SUBS = """id,filter,score
wide,price < 60,3
narrow,price < 40,5
bob,name = 'bob' and price < 50,9
none,price > 99,1
"""
EVENTS = [("a", 10, "bob"), ("b", 45, "ann"), ("c", 80, "bob"), ("d", 59, "")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text(SUBS)
    add(tmp_path, "0.csv", EVENTS)
    return tmp_path


def add(folder, name, events):
    (folder / "events").mkdir(exist_ok=True)
    lines = "".join(f"{one},{price},{who}\n" for one, price, who in events)
    (folder / "events" / name).write_text("id,price,name\n" + lines)


def load(folder, text):
    (folder / "p.toml").write_text(text)
    return Pipeline.load(folder / "p.toml")


def step(kind, more="", name=None):
    named = f'name = "{name}"\n' if name else ""
    return f'[[step]]\ntype = "{kind}"\n{named}{more}\n'


def sink(path, more=""):
    return f'[[sink]]\ntype = "parquet"\npath = "{path}"\n{more}\n'


def rows(folder, name, *columns):
    table = read_committed(folder / name).to_table()
    return sorted(zip(*(table[column].to_pylist() for column in columns), strict=True))


MANY = (
    step("cover", name="kept")
    + step("merge", 'attributes = ["price"]\nbits = 4', name="union")
    + step("filter", 'keep = ["price"]', name="wanted")
    + step("match", 'input = "wanted"\nsubscriptions = "kept"', name="matches")
    + step("match", 'output = "arrays"\nsubscriptions = "subscriptions"', name="all")
    + step("match", 'output = "arrays"\ninput = "wanted"\nsubscriptions = "kept"', name="some")
    + step("rank", 'k = 2\nkeep = ["name"]\nsubscriptions = "subscriptions"', name="best")
    + "".join(sink(one, f'input = "{one}"') for one in ("wanted", "matches", "all", "some", "best"))
)


def test_all_steps_of_a_batch_job_answer_the_same_events(spark, folder):
    done = []
    pipeline = load(folder, HEAD + MANY)
    assert described(pipeline.graph)[:4] == [
        "subscriptions -> kept -> matches, some",
        "subscriptions -> union -> wanted",
        f"events, union -> wanted -> matches, some, {folder / 'wanted'}",
        f"wanted, kept -> matches -> {folder / 'matches'}",
    ]
    pipeline.run(spark, done.append)
    assert rows(folder, "wanted", "event", "price") == [("a", "10"), ("b", "45"), ("d", "59")]
    kept = [("a", "wide"), ("b", "wide"), ("d", "wide")]  # what covers the others
    assert rows(folder, "matches", "event", "subscription") == kept
    assert rows(folder, "all", "event", "subscriptions") == [
        ("a", ["wide", "narrow", "bob"]), ("b", ["wide"]), ("c", []), ("d", ["wide"]),
    ]  # fmt: skip
    assert rows(folder, "best", "event", "rank", "subscription", "score")[:3] == [
        ("a", 1, "bob", 9.0), ("a", 2, "narrow", 5.0), ("b", 1, "wide", 3.0),
    ]  # fmt: skip
    (one,) = done
    assert (one.events, one.rejected, one.subscriptions) == (4, 0, 4)
    assert one.steps == {"wanted": 3, "matches": 3, "all": 5, "some": 3, "best": 4}
    some = rows(folder, "some", "event", "subscriptions")
    assert some == [("a", ["wide"]), ("b", ["wide"]), ("d", ["wide"])]
    (mark,) = commits(folder / "best")
    assert (mark["rows"], mark["events"], mark["matches"]) == (4, 4, 4)


def test_all_steps_of_a_stream_follow_the_edits(spark, folder):
    (folder / "edits").mkdir()
    text = STREAM.replace('"subs.csv"', '"subs.csv"\nedits = "edits"') + MANY
    load(folder, text).run(spark)
    (folder / "edits" / "0.csv").write_text(
        "id,op,filter,score\nwide,unsubscribe,,\nhigh,subscribe,price > 70,7\n"
    )
    add(folder, "1.csv", [("x", 30, "bob"), ("y", 75, "bob"), ("z", 65, "eve")])
    load(folder, text).run(spark)
    second = [row for row in rows(folder, "matches", "batch", "event", "subscription") if row[0]]
    assert second == [(1, "x", "bob"), (1, "x", "narrow"), (1, "y", "high")]
    wanted = [row for row in rows(folder, "wanted", "batch", "event") if row[0]]
    assert wanted == [(1, "x"), (1, "y")]
    best = [row for row in rows(folder, "best", "batch", "event", "rank", "subscription") if row[0]]
    assert best == [(1, "x", 1, "bob"), (1, "x", 2, "narrow"), (1, "y", 1, "high")]
    assert [mark["version"] for mark in commits(folder / "all")] == [1, 2]


def test_rows_of_sets_are_written_by_batch_jobs(spark, folder):
    head = HEAD[: HEAD.index("[[source]]")] + HEAD[HEAD.index("[[subscriptions]]") :]
    steps = step("cover") + step("merge", 'attributes = ["price"]\nbits = 4')
    sinks = sink("kept", 'input = "cover"') + sink("ranges", 'input = "merge"')
    load(folder, head + steps + sinks).run(spark)
    assert rows(folder, "kept", "subscription", "covered_by")[0] == ("bob", "wide")
    assert len(rows(folder, "kept", "subscription")) == 4
    space = Space.load(folder / "space.toml")
    summary = Summary.of(folder / "subs.csv", space, attributes=["price"], bits=4)
    starts, ends = (some.tolist() for some in summary.ranges())
    assert rows(folder, "ranges", "start", "end") == list(zip(starts, ends, strict=True))


def test_a_limit_per_second_holds_in_a_batch(spark, folder):
    clock = '[[attribute]]\nname = "time"\ntype = "timestamp"\n'
    (folder / "space.toml").write_text(SPACE + clock)
    times = ["2026-01-01T10:00:00Z"] * 2 + ["2026-01-01T10:00:01Z"] * 2
    lines = [f"{i},{p},{n},{t}" for (i, p, n), t in zip(EVENTS, times, strict=True)]
    (folder / "events" / "0.csv").write_text("\n".join(["id,price,name,time", *lines]) + "\n")
    load(
        folder, HEAD + step("rank", 'max_per_second = 1\ntime_attribute = "time"') + sink("best")
    ).run(spark)
    assert rows(folder, "best", "event", "subscription") == [("a", "bob"), ("d", "wide")]


def test_a_batch_job_may_replace_what_an_earlier_one_wrote(spark, folder):
    text = HEAD + step("match") + sink("out", "replace = true")
    load(folder, text).run(spark)
    before = rows(folder, "out", "event", "subscription")
    add(folder, "0.csv", [("z", 5, "bob")])
    load(folder, text).run(spark)
    assert rows(folder, "out", "event", "subscription") == [
        ("z", "bob"), ("z", "narrow"), ("z", "wide"),
    ]  # fmt: skip
    assert before
    assert not list((folder / ".out.staging").glob("batch=*"))
    with pytest.raises(UsageError, match="a batch job fills a folder once"):
        load(folder, text.replace("replace = true", "")).run(spark)


# ---- several sources, and notify


UPDATES = """
[[source]]
name = "updates"
type = "files"
format = "csv"
path = "updates"
"""
NOTIFY = step(
    "notify", 'input = "updates"\nobjects = "o.csv"\ninterests = "i.csv"\nlists = "l"\nk = 2'
)


def moved(folder, name, lines):
    (folder / "updates").mkdir(exist_ok=True)
    (folder / "updates" / name).write_text("seq,id,value,position\n" + lines)


@pytest.fixture
def board(folder):
    (folder / "o.csv").write_text("id,position,value\np,1,10\nq,2,20\nr,3,30\n")
    (folder / "i.csv").write_text("id,position_lo,position_hi\n7,0,2\n8,2,9\n")
    moved(folder, "0.csv", "2,r,5,\n1,r,40,\nx,p,1,\n3,nobody,1,\n4,s,1,8\n5,q,dear,\n")
    return folder


def test_a_stream_of_updates_beside_a_stream_of_events(spark, board):
    text = (
        STREAM + UPDATES + step("match", 'input = "events"') + NOTIFY
        + sink("out", 'input = "match"') + sink("messages", 'input = "notify"')
        + '[rejected]\npath = "bad"\n'
    )  # fmt: skip
    done = []
    load(board, text).run(spark, done.append)
    by_step = {name: one for one in done for name in one.steps}
    assert (by_step["notify"].events, by_step["notify"].rejected) == (6, 3)
    assert by_step["match"].steps == {"match": 5}
    bad = rows(board, "bad/updates", "column", "value", "reason")
    assert [row[:2] for row in bad] == [("id", "nobody"), ("seq", "x"), ("value", "dear")]

    def shown():
        with TopKLists(spark, board / "l", k=2) as kept:
            return sorted(
                map(tuple, kept.read().select("interest", "rank", "object", "value").collect())
            )

    assert shown() == [(7, 1, "p", 10), (7, 2, "q", 20), (8, 1, "s", 1), (8, 2, "r", 5)]
    before = len(rows(board, "messages", "object"))
    assert before
    moved(board, "1.csv", "9,s,,\n")
    load(board, text).run(spark)
    assert shown() == [(7, 1, "p", 10), (7, 2, "q", 20), (8, 1, "r", 5), (8, 2, "q", 20)]
    (board / "checkpoint").rename(board / "elsewhere")
    with pytest.raises(UsageError, match=r"(lists|batches) of another stream"):
        load(board, text).run(spark)


def test_a_batch_of_updates_without_a_quarantine_is_rejected_whole(spark, board):
    text = HEAD[: HEAD.index("[[source]]")] + UPDATES + NOTIFY
    with pytest.raises(RejectedRowError, match=r"column 'seq'"):
        load(board, text).run(spark)
    moved(board, "0.csv", "1,r,5,\n")
    done = []
    load(board, text).run(spark, done.append)
    assert done[0].steps == {"notify": done[0].matches}
    assert done[0].matches > 0
    with pytest.raises(UsageError, match="batch jobs and streams can't share lists"):
        load(board, text.replace('"batch"', '"stream"') + CHECKPOINT).run(spark)


def test_a_stream_of_updates_over_a_space(spark, board):
    attribute = '[[attribute]]\nname = "{}"\ntype = "number"\n'
    (board / "flats.toml").write_text(attribute.format("km") + attribute.format("m2"))
    (board / "o.csv").write_text("id,km,m2,value\np,1,50,10\nq,2,60,20\nr,3,70,30\n")
    (board / "i.csv").write_text("id,filter,k\n7,km <= 2 or m2 > 65,1\n8,m2 between 55 and 90,\n")
    for path in (board / "updates").iterdir():
        path.unlink()
    lines = "2,r,5,,\n1,s,1,9,80\n3,q,7,,95\n4,r,x,,\n"
    (board / "updates" / "0.csv").write_text("seq,id,value,km,m2\n" + lines)
    over = NOTIFY.replace("k = 2", 'k = 2\nspace = "flats.toml"')
    text = HEAD[: HEAD.index("[[source]]")] + UPDATES + over
    load(board, text + '[rejected]\npath = "bad"\n').run(spark)
    assert rows(board, "bad", "column", "value") == [("value", "x")]
    space = Space.load(board / "flats.toml")
    with TopKLists(spark, board / "l", k=2, space=space) as kept:
        found = sorted(map(tuple, kept.read().collect()))
    assert found == [(7, 1, "s", 9, 80, 1), (8, 1, "s", 9, 80, 1), (8, 2, "r", 3, 70, 5)]
    bounded = 'k = 2\nupper_bound_attribute = "m2"'
    with pytest.raises(RejectedRowError, match="no lower bound on 'm2'"):
        load(board, text.replace("k = 2", bounded).replace('"l"', '"u"')).run(spark)
    (board / "i.csv").write_text("id,filter,k\n7,km <= 2,1\n8,m2 <= 60,\n")
    (board / "updates" / "0.csv").write_text(
        "seq,id,value,km,m2\n" + lines.replace("4,r,x,,\n", "")
    )
    load(board, text.replace("k = 2", bounded).replace('"l"', '"u"')).run(spark)
    how = {"k": 2, "space": space, "upper_bound_attribute": "m2"}
    with TopKLists(spark, board / "u", **how) as kept:
        found = sorted(map(tuple, kept.read().collect()))
    assert found == [(7, 1, "q", 2, 95, 7), (8, 1, "p", 1, 50, 10)]
    (board / "flats.toml").write_text(attribute.format("value"))
    with pytest.raises(FileError, match=r"step\[0\].space: an attribute called 'value'"):
        load(board, text)


# ---- names


MISTAKES = [
    (
        step("match", 'input = "event"') + sink("o"),
        r"step\[0\].input: unknown 'event': did you",
    ),
    (step("match", 'subscriptions = "x"') + sink("o"), r"step\[0\].subscriptions: unknown 'x'"),
    (
        step("filter") + sink("o"),
        r"step\[0\].summary: there is no possible input\n  expected: a step of",
    ),
    (step("match"), r"step\[0\]: its output isn't used\n  hint: add a \[\[sink\]\]"),
    (
        step("match") + step("rank") + sink("o"),
        r"sink\[0\].input: is missing",
    ),
    (
        step("match", name="events") + sink("o"),
        r"step\[0\].name: source\[0\] already has the name",
    ),
    (step("cover") + sink("o"), r"source\[0\]: its events aren't used by any step"),
    (
        step("match", 'input = "f"') + step("filter", name="f") + sink("o"),
        r"step\[0\].input: unknown 'f'",
    ),
    (step("rank", 'combine = "max"') + sink("o"), r"step\[0\].combine: weights are only co"),
    (
        step("rank", 'max_per_second = 1\ntime_attribute = "time"') + sink("o"),
        r"step\[0\].time_attribute: .*'time'",
    ),
    (step("match") + sink("o") + sink("o"), r"sink\[0\].path: .*o is used twice"),
    (step("match") + sink("o") + '[rejected]\npath = "o/bad"\n', r".*o/bad: lies inside of .*o, "),
    (step("merge") + KAFKA, r"sink\[0\]: the rows of a step `merge` have no key for Kafka"),
    (
        step("track", 'key = "name"') + KAFKA + 'key = "object"\n',
        r"sink\[0\].key: the rows have no column 'object'\n  expected: 'event' or 'subsc.*'key'",
    ),
    (
        step("match", 'output = "arrays"') + KAFKA + 'key = "subscription"\n',
        r"sink\[0\].key: the rows have no column 'subscription'\n  expected: 'event'",
    ),
    (
        step("match") + sink("o") + '[rejected]\npath = "s3://b/t"\n',
        r"rejected.type: a URL requires a table\n  expected: type = 'delta'",
    ),
    (step("rank", "k = 0") + sink("o"), r"step\[0\].k: invalid value\n  given: 0"),
    (
        UPDATES
        + step("match", 'input = "events"')
        + NOTIFY
        + 'upper_bound_attribute = "km"\n'
        + sink("o", 'input = "match"'),
        r"step\[1\].upper_bound_attribute: .*'km' is an attribute of a space, and there is no",
    ),
    (
        UPDATES + step("match") + sink("o"),
        r"step\[0\].input: is missing\n  expected: one",
    ),
    (
        step("match") + sink("o") + '[[subscriptions]]\nname = "more"\nfile = "subs.csv"\n',
        r"step\[0\].subscriptions: is missing\n  expected: one of 'subscriptions', 'more'",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_name_that_means_nothing_is_told_before_spark_starts(folder, text, message):
    with pytest.raises(FileError, match=rf"(?s)p\.toml: {message}"):
        load(folder, HEAD + text)


def test_a_stream_rejects_what_only_batch_jobs_do(folder):
    with pytest.raises(FileError, match="a step 'cover' can only be written by batch jobs"):
        load(folder, STREAM + step("cover") + step("match") + sink("o", 'input = "cover"'))
    with pytest.raises(FileError, match=r"sink\[0\].replace: is only for batch jobs"):
        load(folder, STREAM + step("match") + sink("o", "replace = true"))
    load(folder, STREAM + 'trigger = "250 milliseconds"\n' + step("match") + sink("o"))
    with pytest.raises(FileError, match=r"/checkpoint: lies inside of .*, whose readers would see"):
        load(folder, STREAM + step("match") + sink("."))


def test_the_shell_checks_a_pipeline_and_prints_its_schema(cli, folder):
    (folder / "p.toml").write_text(HEAD + step("match") + sink("o"))
    done = cli("pipeline", "check", "p.toml")
    assert "events, subscriptions -> match -> " in done.stderr
    assert "1 step, nothing wrong" in done.stderr
    (folder / "subs.csv").unlink()
    done = cli("pipeline", "check", "p.toml", code=2)
    assert "subscriptions[0].file: no such file or folder" in done.stderr
    schema = json.loads(cli("pipeline", "schema").stdout)
    assert "input" in schema["$defs"]["MatchStep"]["properties"]


def test_edits_may_come_by_a_source_of_their_own(spark, folder):
    text = STREAM.replace('file = "subs.csv"', 'edits_source = "changes"')
    text += '[[source]]\nname = "changes"\ntype = "files"\nformat = "json"\npath = "changes"\n'
    text += step("match") + sink("out") + '[rejected]\npath = "bad"\n'
    (folder / "changes").mkdir()
    (folder / "changes" / "0.json").write_text(
        '{"id": "bob", "op": "subscribe", "filter": "name = \'bob\'"}\nnonsense\n'
        '{"id": "high", "op": "subscribe", "filter": "price > 70", "score": 2}\n'
        '{"id": "nobody", "op": "unsubscribe"}\n'
    )
    done = []
    load(folder, text).run(spark, done.append)
    (edits,) = [one for one in done if "edits" in one.steps]
    assert (edits.events, edits.rejected, edits.steps) == (4, 1, {"edits": 3})
    assert rows(folder, "bad/changes", "value") == [("nonsense",)]
    add(folder, "1.csv", [("x", 30, "bob"), ("y", 75, "eve")])
    done.clear()
    load(folder, text).run(spark, done.append)
    last = max(batch for (batch,) in rows(folder, "out", "batch"))
    found = [row for row in rows(folder, "out", "batch", "event", "subscription") if row[0] == last]
    assert found == [(last, "x", "bob"), (last, "y", "high")]
    assert len(list((folder / "checkpoint" / "sets" / "subscriptions" / "edits").iterdir())) == 1
    with pytest.raises(FileError, match=r"edits_source: unknown 'change': did you"):
        load(folder, text.replace('edits_source = "changes"', 'edits_source = "change"'))


def edit(folder, name, *edits):
    (folder / "changes").mkdir(exist_ok=True)
    lines = [json.dumps({"op": op, "id": one, "filter": text}) + "\n" for op, one, text in edits]
    partial = folder / "changes" / f".{name}"
    partial.write_text("".join(lines))
    partial.rename(folder / "changes" / name)


def test_a_batch_is_answered_with_all_edits_that_were_there_when_it_began(spark, folder):
    text = STREAM.replace('file = "subs.csv"', 'edits_source = "changes"')
    text = text.replace("[[source]]", "[[source]]\noptions.maxFilesPerTrigger = 1", 1)
    text += '[[source]]\nname = "changes"\ntype = "files"\nformat = "json"\npath = "changes"\n'
    text += "options.maxFilesPerTrigger = 1\n" + step("match") + sink("out")
    add(folder, "1.csv", EVENTS)
    edit(folder, "0.json", ("subscribe", "all", "true"))
    edit(folder, "1.json", ("subscribe", "bob", "name = 'bob'"))
    done = []

    def report(batch):
        done.append(batch)
        if "match" in batch.steps and batch.batch == 0:  # before the next batch begins
            edit(folder, "2.json", ("unsubscribe", "all", None))
            edit(folder, "3.json", ("subscribe", "high", "price > 70"))

    load(folder, text).run(spark, report)
    answered = [one for one in done if "match" in one.steps]
    assert [(one.batch, one.subscriptions) for one in answered] == [(0, 2), (1, 2)]
    first = [("a", "all"), ("a", "bob"), ("b", "all"), ("c", "all"), ("c", "bob"), ("d", "all")]
    second = [("a", "bob"), ("c", "bob"), ("c", "high")]
    found = rows(folder, "out", "batch", "event", "subscription")
    assert found == [(0, *one) for one in first] + [(1, *one) for one in second]
    # a restart with a backlog on both sides, and one without events
    add(folder, "2.csv", [("x", 80, "eve")])
    add(folder, "3.csv", [("y", 80, "eve")])
    edit(folder, "4.json", ("unsubscribe", "high", None), ("subscribe", "eve", "name = 'eve'"))
    load(folder, text).run(spark, done.append)
    found = rows(folder, "out", "batch", "event", "subscription")
    assert found[len(first) + len(second) :] == [(2, "x", "eve"), (3, "y", "eve")]
    edit(folder, "5.json", ("unsubscribe", "eve", None))
    done.clear()
    load(folder, text).run(spark, done.append)
    assert [one.steps for one in done] == [{"edits": 1}]


@pytest.mark.parametrize("more", ["", "options.multiLine = true\n"], ids=["lines", "whole"])
def test_edits_of_several_files_are_applied_in_the_order_of_the_files(spark, folder, more):
    """Spark reads the largest file of a batch first."""
    text = STREAM.replace('file = "subs.csv"', 'edits_source = "changes"')
    text += '[[source]]\nname = "changes"\ntype = "files"\nformat = "json"\npath = "changes"\n'
    text += more + step("match", 'output = "arrays"') + sink("out")
    many = [("subscribe", f"s{number}", "price > 99") for number in range(200)]
    files = [
        [("subscribe", one, "true") for one in "xyz"],
        [*many, ("unsubscribe", "x", None), ("replace", "y", "price > 70")],
        [("unsubscribe", "z", None), ("subscribe", "last", "price < 70")],
    ]
    for number, edits in enumerate(files):
        one_by_one = [[one] for one in edits] if more else [edits]
        for place, some in enumerate(one_by_one):
            edit(folder, f"{number}-{place:03}.json", *some)
            os.utime(folder / "changes" / f"{number}-{place:03}.json", (number, number))
    done = []
    load(folder, text).run(spark, done.append)
    assert [one.rejected_edits for one in done] == [0, 0]
    found = rows(folder, "out", "event", "subscriptions")
    assert found == [("a", ["last"]), ("b", ["last"]), ("c", ["y"]), ("d", ["last"])]


def test_columns_that_only_newer_parquet_files_have_are_named_with_the_way_out(spark, folder):
    (folder / "quotes").mkdir()
    pq.write_table(pa.table({"id": [1], "price": [5.0]}), folder / "quotes" / "0.parquet")
    text = HEAD.replace('"csv"', '"parquet"').replace('"events"', '"quotes"')
    pipeline = load(folder, text + step("match") + sink("out"))
    with pytest.raises(FileError, match=r"lacks 'name'(.|\n)*hint: .*schema = 'id long"):
        pipeline.run(spark)
    whole = text.replace("[[subs", 'schema = "id long, price double, name string"\n[[subs')
    load(folder, whole + step("match") + sink("out")).run(spark)
    assert rows(folder, "out", "event", "subscription") == [(1, "narrow"), (1, "wide")]
