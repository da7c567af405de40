"""`match` and `rank --engine spark` write what the local engine writes, to the last row."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.cli.match import match
from rangecast.cli.rank import rank
from rangecast.cli.spark import spark_session, told
from rangecast.errors import BadRowError, FileError, UsageError
from rangecast.model.space import Space
from rangecast.model.subscriptions import encode_subscriptions
from rangecast.spark.steps.match import match as on_spark
from rangecast.workloads import generate

SPACE = """
[[attribute]]
name = "x"
type = "number"

[[attribute]]
name = "s"
type = "string"
"""


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(2)
    words = ["ä", "b", "", "d,e"]
    (tmp_path / "space.toml").write_text(SPACE)
    lines = ["id,x,s"]
    for row, (x, s) in enumerate(zip(random.random(300), random.integers(0, 5, 300), strict=True)):
        word = f'"{words[s]}"' if s < 4 else ""
        lines.append(f"e{row},{'oops' if row % 97 == 5 else x:},{word}")
    lines.append("e7,0.5,b")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    filters = [f"x < {x:.3f} or s = '{words[i % 4]}'" for i, x in enumerate(random.random(200))]
    subscriptions = ["id,filter", *(f'"{200 - i}","{text}"' for i, text in enumerate(filters))]
    (tmp_path / "subscriptions.csv").write_text("\n".join(subscriptions) + "\n")
    return tmp_path / "events.csv", tmp_path / "subscriptions.csv", tmp_path / "space.toml"


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_the_same_result(spark, files, tmp_path, suffix):
    out = {}
    for engine in ("local", "spark"):
        result, bad = tmp_path / f"{engine}.{suffix}", tmp_path / f"{engine}-bad.csv"
        match(*files, output=str(result), engine=engine, bad_rows=bad, quiet=True)
        rows = pq.read_table(result) if suffix == "parquet" else result.read_text()
        out[engine] = rows, bad.read_bytes()
    assert out["local"] == out["spark"]
    assert len(out["local"][0]) > 1000
    assert out["local"][1].count(b"\n") == 6


def test_a_bad_row_ends_it_as_it_does_locally(spark, files, tmp_path):
    with pytest.raises(BadRowError, match=r"row 300\b"):
        match(*files, output=str(tmp_path / "out.csv"), engine="spark", quiet=True)
    with pytest.raises(UsageError, match="did you mean 'spark'"):
        match(*files, engine="sprak")


@pytest.fixture
def timed(tmp_path):
    """Some seconds of events with scored subscriptions; many scores are equal."""
    random = np.random.default_rng(4)
    (tmp_path / "space.toml").write_text(SPACE + '[[attribute]]\nname = "at"\ntype = "timestamp"\n')
    lines = ["id,x,s,at"]
    for row, x in enumerate(random.random(400)):
        at = f"2026-01-01T00:00:{row // 20:02}.{row % 20:02}"
        lines.append(f"e{row},{'oops' if row % 97 == 5 else x},{'abc'[row % 3]},{at}")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    lines = ["id,filter,score,weight_x"]
    for row, x in enumerate(random.random(150)):
        text = f"x < {x:.3f} and s != '{'abc'[row % 3]}'"
        lines.append(f"{150 - row},{text},{row % 5},{row % 3}")
    (tmp_path / "subscriptions.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "events.csv", tmp_path / "subscriptions.csv", tmp_path / "space.toml"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
@pytest.mark.parametrize("budget", [None, "3", "40/s"])
def test_the_same_ranks(spark, timed, tmp_path, budget, relaxed, suffix):
    out = {}
    for engine in ("local", "spark"):
        result, bad = tmp_path / f"{engine}.{suffix}", tmp_path / f"{engine}-bad.csv"
        given = {"k": 7, "budget": budget, "relaxed": relaxed, "bad_rows": bad, "quiet": True}
        rank(*timed, output=str(result), engine=engine, **given)
        rows = pq.read_table(result) if suffix == "parquet" else result.read_text()
        out[engine] = rows, bad.read_bytes()
    assert out["local"] == out["spark"]
    rows = len(out["local"][0]) if suffix == "parquet" else out["local"][0].count("\n") - 1
    assert {None: 2000, "3": 1000, "40/s": 700}[budget] < rows
    assert rows <= {None: 7 * 395, "3": 3 * 395, "40/s": 40 * 20}[budget]
    assert out["local"][1].count(b"\n") == 6


def test_ranks_of_no_events_and_mistakes(spark, timed, tmp_path):
    (tmp_path / "none.csv").write_text("id\n")
    out = tmp_path / "nothing.csv"
    for budget in (None, "3", "3/s"):
        rank(tmp_path / "none.csv", *timed[1:], output=str(out), engine="spark", budget=budget)
        assert out.read_text() == "event,rank,subscription,score\n"
    with pytest.raises(BadRowError, match=r"row 5\b"):
        rank(*timed, output=str(out), engine="spark", quiet=True)
    with pytest.raises(UsageError, match="did you mean 'spark'"):
        rank(*timed, engine="sprak")


def test_an_error_of_ours_in_a_worker_is_raised_again_as_what_it_is(spark, files):
    events, _, known = files
    space = Space.load(known)
    quotes = spark.read.csv(str(events), header=True)
    boxes = encode_subscriptions(pa.table({"id": ["a"], "filter": ["x < 1"]}), space)
    with (
        pytest.raises(UsageError, match=r"^event 'e5', column 'x': .*\n  given: oops\n  to do: "),
        spark_session(None) as session,
    ):
        on_spark(quotes, boxes, space).collect()
    assert session is spark  # and it isn't stopped


def test_a_fault_in_a_worker_is_told_by_its_reason(spark):
    def fail(batches):
        raise ValueError("the reason")

    asked = {
        r"ValueError: the reason": lambda: spark.range(1).mapInArrow(fail, "id long").collect(),
        r"no_such_column": lambda: spark.range(1).select("no_such_column"),
        r"IndexOutOfBounds": lambda: spark.sparkContext._jvm.java.util.ArrayList().get(5),
    }
    for reason, ask in asked.items():
        with pytest.raises(UsageError, match=f"(?s)^Spark: .*{reason}"), spark_session(None):
            ask()


def test_a_message_of_spark_with_an_error_of_ours():
    text = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Traceback "
        '(most recent call last):\n  File "a.py", line 1, in b\n    raise\n'
        "rangecast.errors.FileError: x.csv: is gone\n  to do: put it back\n\n\tat a.b(C.java:1)\n"
    )
    error = told(text)
    assert type(error) is FileError
    assert str(error) == "x.csv: is gone\n  to do: put it back"


def test_every_structure_and_no_events(spark, tmp_path):
    made = generate("wide", subscriptions=300, events=50, seed=3)
    tables = {name: tmp_path / f"{name}.parquet" for name in ("events", "subscriptions")}
    for name, path in tables.items():
        pq.write_table(made.tables[name], path)
    made.space.save(tmp_path / "space.toml")
    rest = tables["subscriptions"], tmp_path / "space.toml"
    for index in ("rtree", "cells"):
        for engine in ("local", "spark"):
            out = str(tmp_path / f"{engine}.csv")
            match(tables["events"], *rest, output=out, engine=engine, index=index, quiet=True)
        assert (tmp_path / "local.csv").read_bytes() == (tmp_path / "spark.csv").read_bytes()
    (tmp_path / "none.csv").write_text("id\n")
    out = tmp_path / "nothing.csv"
    match(tmp_path / "none.csv", *rest, output=str(out), engine="spark", quiet=True)
    assert out.read_text() == "event,subscription\n"
