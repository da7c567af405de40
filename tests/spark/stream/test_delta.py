"""Delta tables as sinks: what is in them, and that a batch is there once; in folders and on S3."""

import shutil
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from deltalake import DeltaTable

from rangecast.errors import FileError, UsageError
from rangecast.spark.stream.sinks import delta
from rangecast.spark.stream.sinks.base import Batch
from rangecast.spark.stream.sinks.delta import Delta
from tests.spark.stream.test_pipeline_graph import (
    CHECKPOINT,
    HEAD,
    NOTIFY,
    SPACE,
    UPDATES,
    load,
    moved,
    rows,
    sink,
)
from tests.spark.stream.test_stream import THREE, csv_events, go, publish
from tests.support.delta_log import delta_rows
from tests.support.server.servers import s3_server


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An S3-like server on this machine, with a bucket; what delta-rs needs to reach it."""
    with s3_server(tmp_path_factory.mktemp("store")) as url:
        options = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        client: Any = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket="answers")
        yield options


def pairs(table):
    return sorted(
        (row["event"], row["subscription"]) for row in table.to_pyarrow_table().to_pylist()
    )


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_a_batch_is_in_the_table_once_whoever_repeats_it(spark, tmp_path, store, where):
    path, options = (str(tmp_path / "answers"), {})
    if where == "s3":
        path, options = f"s3://answers/{tmp_path.name}", store
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv")
    rejected = Delta(f"{path}-bad", options)
    go(spark, tmp_path, [Delta(path, options)], rejected=rejected)
    first = pairs(DeltaTable(path, storage_options=options))
    assert first == [
        ("e1", "all"), ("e1", "cheap"), ("e2", "all"), ("e2", "bob"), ("e2", "cheap"),
        ("e3", "all"), ("é4", "all"),
    ]  # fmt: skip
    for mark in (tmp_path / "checkpoint" / "commits").iterdir():  # as if Spark had crashed then
        mark.unlink()
    publish(tmp_path, ("unsubscribe", "all", None))
    assert go(spark, tmp_path, [Delta(path, options)], rejected=rejected) == []
    csv_events(tmp_path, "1.csv", {"e9": (99, "zoe"), "e8": (5, "bob")}, more="b1,dear,x\n")
    (done,) = go(spark, tmp_path, [Delta(path, options)], rejected=rejected)
    assert (done.batch, done.version, done.events, done.rejected) == (1, 2, 3, 1)
    table = DeltaTable(path, storage_options=options)
    if where == "folder":
        assert len(delta_rows(path)) == table.to_pyarrow_table().num_rows
    assert pairs(table) == sorted([*first, ("e8", "bob"), ("e8", "cheap")])
    about = table.history(1)[0]
    assert {name: about[name] for name in ("batch", "events", "rows", "set_version")} == {
        "batch": "1", "events": "3", "rows": "2", "set_version": "2",
    }  # fmt: skip
    bad = DeltaTable(f"{path}-bad", storage_options=options).to_pyarrow_table().to_pylist()
    assert [(row["event"], row["value"]) for row in bad] == [("b1", "dear")]


def test_messages_of_notify_are_in_a_table_of_an_object_store_once(spark, tmp_path, store):
    """A stream over two batches, each of which Spark repeats."""
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "o.csv").write_text("id,position,value\np,1,10\nq,2,20\nr,3,30\n")
    (tmp_path / "i.csv").write_text("id,position_lo,position_hi\n7,0,2\n8,2,9\n")
    path = f"s3://answers/{tmp_path.name}-messages"
    options = "".join(f'options.{key} = "{value}"\n' for key, value in store.items())
    table = f'[[sink]]\ntype = "delta"\npath = "{path}"\ninput = "notify"\n{options}'
    text = HEAD[: HEAD.index("[[source]]")].replace('"batch"', '"stream"') + UPDATES + NOTIFY
    text += table + sink("messages", 'input = "notify"') + CHECKPOINT
    for number, lines in enumerate(("1,r,5,\n2,s,1,8\n", "3,s,,\n4,q,0,\n")):
        moved(tmp_path, f"{number}.csv", lines)
        load(tmp_path, text).run(spark)
        for mark in (tmp_path / "checkpoint/sources/updates/commits").iterdir():
            mark.unlink()  # as if Spark had crashed then
        load(tmp_path, text).run(spark)
    found = DeltaTable(path, storage_options=store).to_pyarrow_table().to_pylist()
    names = list(found[0])
    expected = rows(tmp_path, "messages", *names)
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected)
    assert {row["object"] for row in found} == {"r", "s", "q"}


def test_files_of_an_attempt_that_failed_are_no_part_of_the_table(spark, tmp_path):
    table = Delta(tmp_path / "answers")
    with ExitStack() as closing:
        table.open("s", closing)
        rows = spark.sql("select 'e' event, 7L subscription")
        table.write(rows, Batch("s", 0, 1, 1))  # and nobody commits it
        assert not table.has(0)
        table.write(rows, Batch("s", 0, 1, 1))({"rows": 1})
        assert table.has(0)
        assert not table.has(1)
    assert len(list((tmp_path / "answers").glob("part-*"))) == 2
    assert pairs(DeltaTable(tmp_path / "answers")) == [("e", 7)]
    with ExitStack() as closing:
        other = Delta(tmp_path / "answers", replace=True)
        other.open("another", closing)
        assert not other.has(0)
        with pytest.raises(UsageError, match="integer ids, but version 4 has strings"):
            other.write(spark.sql("select 'e' event, 'x' subscription"), Batch("s", 2, 4, 1))
        other.write(spark.sql("select 'f' event, 8L subscription"), Batch("another", 0, 1, 1))({})
    assert delta_rows(tmp_path / "answers") == [{"event": "f", "subscription": 8}]


@pytest.mark.parametrize("lost", [3, 1000])
def test_a_commit_that_others_overtake_pauses_and_ends(spark, tmp_path, monkeypatch, lost):
    """Each time another stream commits between the check of the table and the commit."""
    pauses, attempts = [], []
    paused = SimpleNamespace(sleep=pauses.append, time=time.time)
    monkeypatch.setattr(delta, "time", paused)
    monkeypatch.setattr(
        delta, "random", SimpleNamespace(uniform=lambda least, most: most), raising=False
    )
    commit_once = Delta._commit_once

    def overtaken(self, *given):
        attempts.append(given)
        assert len(attempts) < 200, "it doesn't end"
        return commit_once(self, *given) if len(attempts) > lost else False

    monkeypatch.setattr(Delta, "_commit_once", overtaken)
    table = Delta(tmp_path / "answers", shared=True)
    with ExitStack() as closing:
        table.open("s", closing)
        rows = spark.sql("select 'e' event, 7L subscription")
        commit = table.write(rows, Batch("s", 0, 1, 1))
        if lost > 3:
            with pytest.raises(FileError, match="others were first in 50 attempts to commit batch"):
                commit({"rows": 1})
        else:
            commit({"rows": 1})
        assert table.has(0) == (lost == 3)
    assert pauses[:3] == [0.05, 0.1, 0.2]
    assert max(pauses) <= 5
    assert len(pauses) == min(lost, 50)


def test_a_table_that_cant_be_reached_or_isnt_there_any_more_is_named(spark, tmp_path, store):
    nowhere = Delta("s3://no-such-bucket/t", store)
    rows = spark.sql("select 'e' event, 7L subscription")
    with pytest.raises(FileError, match="s3://no-such-bucket/t: Delta table: "):
        nowhere.write(rows, Batch("s", 0, 1, 1))
    lost = Delta(tmp_path / "answers")
    with ExitStack() as closing:
        lost.open("s", closing)
        commit = lost.write(rows, Batch("s", 0, 1, 1))
        for part in (tmp_path / "answers").glob("part-*"):  # as if it lay on another host
            part.unlink()
        with pytest.raises(FileError, match=r"a worker wrote part-.*, but it can't be found"):
            commit({})
        assert not lost.has(0)
        commit = lost.write(rows.limit(0), Batch("s", 0, 1, 1))
        shutil.rmtree(tmp_path / "answers" / "_delta_log")
        with pytest.raises(FileError, match="the table was removed while batch 0 was written"):
            commit({})
