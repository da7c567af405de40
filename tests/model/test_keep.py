"""Ids in a column of another name, and columns that results carry along."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from rangecast import Engine, Number, Space
from rangecast.errors import FileError, UsageError
from rangecast.model.io.files import read_tables

SPACE = Space([Number("price")])
QUOTES = "quote_id,price,venue,note\nq1,5,XETRA,\nq2,50,NYSE,<b>\nq3,7,XETRA,c\n"
ALERTS = (
    "alert,user,filter,note,score\na,ann,price < 10,x,1\nb,bob,price < 6,,2\nc,cid,price > 99,z,3\n"
)
NAMED = ("--id", "quote_id", "--subscription-id", "alert")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SPACE.save("space.toml")
    for name, text in (("quotes", QUOTES), ("alerts", ALERTS)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def ask(cli, verb, *options, rc=0):
    return cli(verb, "quotes.csv", "alerts.csv", "--space", "space.toml", *options, code=rc)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_every_format_carries_kept_columns(cli, files, suffix):
    out = f"out.{suffix}"
    ask(cli, "match", *NAMED, "--keep", "venue, user", "--keep", "note", "-o", out)
    rows = pa.Table.from_batches(read_tables(out)).to_pylist()
    assert [list(row) for row in rows] == 3 * [
        ["event", "subscription", "venue", "event_note", "user", "subscription_note"]
    ]
    found = {tuple(value or None for value in row.values()) for row in rows}
    assert found == {
        ("q1", "a", "XETRA", None, "ann", "x"),
        ("q1", "b", "XETRA", None, "bob", None),
        ("q3", "a", "XETRA", "c", "ann", "x"),
    }
    cli(
        *("verify", "quotes.csv", "alerts.csv", out, "--space", "space.toml", *NAMED),
        "--ignore-unknown",
    )


def test_rank_carries_kept_columns_to_stdout(cli, files):
    keep = ("--keep", "user,score,price,quote_id", "--ignore-unknown")
    lines = ask(cli, "rank", *NAMED, "-k", 1, *keep).stdout.splitlines()
    assert lines[0].replace('"', "") == (
        "event,rank,subscription,score,price,quote_id,user,subscription_score"
    )
    assert [line.replace('"', "") for line in lines[1:]] == [
        "q1,1,b,2,5,q1,bob,2",
        "q3,1,a,1,7,q3,ann,1",
    ]


def test_types_of_parquet_and_json_stay(cli, files):
    times = pa.array([1, 2], pa.timestamp("us"))
    pq.write_table(pa.table({"price": [5.0, 7.0], "at": times, "n": [1, None]}), "quotes.parquet")
    rows = [{"id": 1, "filter": "price < 9", "tags": ["x"], "n": 7, "mixed": 1, "deep": {"a": 1}}]
    rows += [{"id": 2, "filter": "price > 6", "tags": None, "n": 8, "mixed": "<"}]
    (files / "alerts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli(
        *("match", "quotes.parquet", "alerts.jsonl", "--space", "space.toml"),
        *("--keep", "at,n,tags,mixed,deep", "-o", "out.parquet"),
    )
    table = pq.read_table("out.parquet")
    assert table.schema.field("at").type == pa.timestamp("us")
    assert table.schema.field("subscription_n").type == pa.int64()
    first, second, third = table.drop_columns(["at"]).to_pylist()
    assert (first["event"], first["event_n"], first["subscription_n"]) == (0, 1, 7)
    assert (first["tags"], first["mixed"], first["deep"]) == ('["x"]', "1", '{"a": 1}')
    assert {second["subscription"], third["subscription"]} == {1, 2}
    assert {second["mixed"], third["mixed"]} == {"1", "<"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--id", "quoteid"), "has no column 'quoteid' for ids: did you mean 'quote_id'?"),
        (
            (*NAMED, "--keep", "usr", "--ignore-unknown"),
            "--keep usr: neither events nor subscriptions have",
        ),
        ((*NAMED[:2], "--keep", "user"), "unknown column 'venue'"),
    ],
)
def test_wrong_names_are_rejected(cli, files, options, said):
    done = ask(cli, "match", *options, rc=2)
    assert said in done.stderr
    assert "hint:" in done.stderr


def test_an_id_beside_the_ids_is_rejected(cli, files):
    (files / "quotes.csv").write_text("id,quote_id,price\n1,q1,5\n")
    done = ask(cli, "match", *NAMED, rc=2)
    assert "has a column 'id' besides the ids in 'quote_id'" in done.stderr


def test_a_rejected_row_loses_its_kept_values_alone(cli, files):
    (files / "quotes.csv").write_text(QUOTES.replace("q2,50", "q1,5").replace("q3,7", "q3,x"))
    options = (*NAMED, "--keep", "venue", "--ignore-unknown", "--rejected", "bad.csv")
    ask(cli, "match", *options, "-o", "out.csv")
    assert pacsv.read_csv("out.csv")["venue"].to_pylist() == ["XETRA", "XETRA"]


def test_tables_of_python_have_ids_and_kept_columns():
    engine = Engine(SPACE)
    alerts = [{"alert": "a", "filter": "price < 10"}, {"alert": "b", "filter": "price < 6"}]
    assert engine.subscribe_many(alerts, id="alert") == 2
    quotes = {"quote_id": ["q1", "q2"], "price": [7.0, 5.0], "event": [1, 2], "venue": ["X", None]}
    found = engine.match_many(quotes, id="quote_id", keep=["venue", "event"])
    assert list(found) == [["a"], ["a", "b"]]
    table = found.table()
    assert table.column_names == ["event", "subscription", "venue", "event_event"]
    assert {tuple(row.values()) for row in table.to_pylist()} == {
        ("q1", "a", "X", 1),
        ("q2", "a", None, 2),
        ("q2", "b", None, 2),
    }
    ranked = engine.rank_many(quotes, 1, id="quote_id", keep="venue", ignore_unknown=True)
    assert ranked.table().column_names[-1] == "venue"
    assert ranked.table()["venue"].to_pylist() == ["X", None]
    with pytest.raises(UsageError, match="events have no column 'vnue' to keep"):
        engine.match_many(quotes, id="quote_id", keep="vnue")
    with pytest.raises(FileError, match="has no column 'quoteid' for ids"):
        engine.match_many(quotes, id="quoteid")
    with pytest.raises(UsageError, match="unknown attribute 'venue'"):
        engine.match_many(quotes, id="quote_id", keep="event")
    with pytest.raises(UsageError, match="keep must be a list of column names"):
        engine.match_many(quotes, keep=[1])


def test_every_command_takes_the_columns_of_ids(cli, files):
    more = ("--space", "space.toml", *NAMED, "--ignore-unknown")
    both = ("quotes.csv", "alerts.csv", *more)
    cli("match", *both, "-o", "matches.csv")

    found = json.loads(
        cli("check", "price < 6", "--events", "quotes.csv", *more, "--json").stdout.splitlines()[-1]
    )
    assert (found["events"], found["first"]) == (3, ["q1"])
    covered = ("check", "price < 5", "--subscriptions", "alerts.csv", *more, "--json")
    assert json.loads(cli(*covered).stdout)["covered_by"] == ["a", "b"]
    event = ("q1", "alerts.csv")
    assert json.loads(cli("why", *event, "b", "--events", "quotes.csv", *more, "--json").stdout)[
        "matches"
    ]
    given = ("why", '{"quote_id": "q9", "price": 5}', "alerts.csv", "b", *more[:-1])
    assert json.loads(cli(*given, "--ignore-unknown", "--json").stdout)["matches"]
    missed = cli("why-not", *event, "--events", "quotes.csv", *more, "--json").stdout
    assert [one["subscription"] for one in json.loads(missed)["near"]] == ["c"]
    page = ("report", "quotes.csv", "alerts.csv", "matches.csv", *more, "-o", "page.html", "--json")
    assert json.loads(cli(*page).stdout)["matches"] == 3
    routed = cli("route", "run", *both, "--brokers", 3, "-o", "routed.csv")
    assert routed.returncode == 0
    rows = [
        sorted(pacsv.read_csv(name).to_pylist(), key=str) for name in ("routed.csv", "matches.csv")
    ]
    assert rows[0] == rows[1]
    cli("merge", "alerts.csv", *more, "--max-ranges", 9, "--events", "quotes.csv", "--save", "sum")
    passed = ("filter", "quotes.csv", "sum", "--id", "quote_id", "--ignore-unknown", "-o", "p.csv")
    cli(*passed)
    assert pacsv.read_csv("p.csv").column_names == ["quote_id", "price", "venue", "note"]
    alone = ("--space", "space.toml", "--subscription-id", "alert", "--ignore-unknown")
    cli("cover", "alerts.csv", *alone, "-o", "covered.csv", "--uncovered", "left.csv")
    assert pacsv.read_csv("left.csv")["alert"].to_pylist() == ["a", "c"]
    cli("export", "vespa", "alerts.csv", *alone, "-o", "rules.json", "--unsupported", "not.csv")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (pd.NA, None),
        (pd.NaT, None),
    ],
)
def test_a_scalar_of_numpy_or_pandas_in_a_dict_is_kept_as_its_value(value, kept):
    engine = Engine(Space([Number("price")]))
    engine.subscribe("cheap", "price < 10")
    (row,) = engine.match_many([{"price": 1, "x": value}], keep="x").table().to_pylist()
    assert (row["x"], type(row["x"])) == (kept, type(kept))
