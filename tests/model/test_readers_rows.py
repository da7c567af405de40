"""Rows of files and tables: ids, broken rows, missing values, names of columns."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast import Engine
from rangecast.errors import FileError, RangecastError, RejectedRowError, SpaceError, UsageError
from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.text import String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.events import EventFile, encode_event, encode_events
from rangecast.model.encoding.subscriptions import encode_subscriptions, read_subscriptions
from rangecast.model.filters.filter import Filter
from rangecast.model.io import files, json_lines
from rangecast.model.io.batch import Batch
from rangecast.model.io.records import Records, Rows, table_source
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.io.writer import write_table
from rangecast.model.space import Space
from rangecast.notify.line.tables import LineTables
from tests.support.readers import ATTRIBUTES


def test_integers_beyond_two_to_the_53_are_exact_beside_a_fraction(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"id": 1, "n": 9007199254740993}\n{"id": 2, "n": 1.0}\n{"id": 3, "n": 4}\n')
    where = Space([Integer("n")])
    with pytest.raises(RejectedRowError, match=r"row 0.*double represents exactly"):
        list(EventFile(path, where))
    engine = Engine(where)
    engine.subscribe("even", "n = 9007199254740992")
    with pytest.raises(RejectedRowError, match="double represents exactly"):
        engine.match_many([{"n": 9007199254740993}, {"n": 1.5}])
    bounds = tmp_path / "s.jsonl"
    bounds.write_text(
        '{"id": 9007199254740993, "n_lo": 9007199254740993, "n_hi": 9007199254740999}\n'
        '{"id": 9007199254740992, "n_lo": 1.5, "n_hi": 2.5}\n'
    )
    boxes = read_subscriptions(bounds, where)
    assert boxes.ids.to_pylist() == [9007199254740993, 9007199254740992]
    assert boxes.lo[:, 0].tolist() == [9007199254740994.0, 2.0]


def test_two_large_ids_stay_two_beside_one_that_is_none(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text(
        '{"id": 9007199254740993}\n{"id": 9007199254740992}\n{"id": 1.5}\n{"id": 0.0}\n'
    )
    bad = CollectedRows()
    (events,) = EventFile(path, Space([Number("x")]), rejected=bad)
    assert events.ids.to_pylist() == [9007199254740993, 9007199254740992]
    assert [one.row for one, _ in bad.kept] == [2, 3]


def test_ids_are_rejected_one_by_one(tmp_path):
    bad = CollectedRows()
    given_ids = [1, True, 2.0, 2**64, None, "\ud800", 3, np.int64(4), pd.NA, Decimal(5)]
    records = Records(table_source({"id": given_ids}, "events"), bad, lambda *_: None)
    assert [ids for rows in records for ids in rows.good_ids.to_pylist()] == [1, 3, 4]
    table = pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64())})
    (rows,) = Records(table_source(table, "events"), bad, lambda *_: None)
    assert rows.good_ids.to_pylist() == [1]
    pq.write_table(pa.table({"id": ["1", "2", "x"]}), tmp_path / "e.parquet", row_group_size=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BATCH_ROWS", 1)
        batches = list(EventFile(tmp_path / "e.parquet", Space([Number("x")]), ignore_unknown=True))
    assert [one for batch in batches for one in batch.ids.to_pylist()] == ["1", "2", "x"]


def test_a_row_without_an_id_is_bad_wherever_blocks_end(tmp_path, monkeypatch):
    path = tmp_path / "e.jsonl"
    path.write_text('{"x": 1}\n{"id": 7, "x": 2}\n{"x": 3}\n{"kind": "id"}\n')
    where = Space([Number("x"), String("kind")])
    for block in (1, 10, 1000):
        monkeypatch.setattr(json_lines, "_BLOCK", block)
        bad = CollectedRows()
        events = list(EventFile(path, where, rejected=bad))
        assert [one for some in events for one in some.ids.to_pylist()] == [7]
        assert [one.row for one, _ in bad.kept] == [0, 2, 3]
    path.write_text('{"x": 1}\n{"kind": "id", "x": 2}\n')
    assert [one for some in EventFile(path, where) for one in some.ids.to_pylist()] == [0, 1]


@pytest.mark.parametrize("block", [10, 1 << 23])
def test_a_subscription_without_a_filter_is_bad_wherever_blocks_end(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_lines, "_BLOCK", block)
    path = tmp_path / "s.jsonl"
    path.write_text('{"id": 1, "filter": "x > 1"}\n{"id": 2}\n')
    bad = CollectedRows()
    assert read_subscriptions(path, Space([Number("x")]), rejected=bad).ids.to_pylist() == [1]
    assert [(one.row, one.column) for one, _ in bad.kept] == [(1, "filter")]


CELLS = {
    "a number beyond all": b"1e99999999999999999999",
    "hexadecimal": b"0x1F",
    "no UTF-8": b"\xff",
    "a text of 140,000 letters": b"x" * 140_000,
    "longer than two blocks": b"x" * (9 << 20),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("place", [0, 2])
def test_one_bad_cell_of_csv_does_not_end_the_reading(tmp_path, cell, place):
    lines = [b"%d,5" % row for row in range(4)]
    lines[place] = b"%d,%s" % (place, CELLS[cell])
    path = tmp_path / "e.csv"
    path.write_bytes(b"\n".join([b"id,n", *lines, b""]))
    with RejectedRows(tmp_path / "bad.jsonl") as bad:
        ids = [
            one
            for events in EventFile(path, Space([Integer("n")]), rejected=bad)
            for one in events.ids.to_pylist()
        ]
    assert ids == [row for row in range(4) if row != place]
    assert bad.count == 1
    assert json.loads((tmp_path / "bad.jsonl").read_text())["row"] == place


def test_a_broken_row_that_is_no_utf8_keeps_the_count_right(tmp_path):
    path = tmp_path / "e.csv"
    path.write_bytes(b"id,n\n0,1\n1,\xff,7\n2,2\n3,\xe9\n4,4\n")
    bad = CollectedRows()
    (events,) = EventFile(path, Space([Integer("n")]), rejected=bad)
    assert events.ids.to_pylist() == [0, 2, 4]
    assert sorted(one.row for one, _ in bad.kept) == [1, 3]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_moment_outside_of_the_calendar_is_a_rejected_row(tmp_path, unit):
    ticks = pa.array([0, 2**62, -(2**62), None], pa.int64())
    table = pa.table({"id": [0, 1, 2, 3], "t": ticks.cast(pa.timestamp(unit))})
    path = tmp_path / ("e.parquet" if unit == "us" else "e.arrow")
    write_table(table, path)
    with RejectedRows(tmp_path / "bad.csv") as bad:
        (events,) = EventFile(path, Space([Timestamp("t")]), rejected=bad)
    assert (events.ids.to_pylist(), bad.count) == ([0, 3], 2)
    assert "in the years 1 to 9999" in (tmp_path / "bad.csv").read_text()


def test_rejected_rows_with_lone_surrogates_are_written(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"s": "ok"}\n{"s": "\\ud800"}\n')
    with RejectedRows(tmp_path / "bad.csv") as bad:
        (events,) = EventFile(path, Space([String("s")]), rejected=bad)
    assert (events.ids.to_pylist(), bad.count) == ([0], 1)
    assert "lone surrogates" in (tmp_path / "bad.csv").read_text()


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_filter_reads_a_number_beyond_all(sign):
    where = Space([Number("x"), Integer("n")])
    for text in (f"x > {sign}1e99999999999999999999", f"n = {sign}1e99999999999999999999"):
        with pytest.raises(RangecastError, match="beyond the largest double"):
            Filter.parse(text, where)
    tiny = Filter.parse(f"x >= {sign}1e-99999999999999999999", where)
    assert tiny == Filter.parse("x >= 0", where)


def test_moments_finer_than_microseconds_are_rejected_in_every_door():
    where = Space([Timestamp("t")])
    engine = Engine(where)
    engine.subscribe(1, "t is not null")
    text = "2026-01-31T09:30:00.000000001"
    fine = [pd.Timestamp(text), np.datetime64(text), text]
    for value in fine:
        with pytest.raises(RangecastError, match="whole microseconds"):
            engine.match({"t": value})
    for events in (
        *([{"t": value}] for value in fine),
        {"t": np.array([text], "datetime64[ns]")},
        pd.DataFrame({"t": [pd.Timestamp(text)]}),
        pl.DataFrame({"t": np.array([text], "datetime64[ns]")}),
        pa.table({"t": np.array([text], "datetime64[ns]")}),
    ):
        with pytest.raises(RejectedRowError, match="whole microseconds"):
            engine.match_many(events)


@pytest.mark.parametrize(
    "value",
    ["1970-01-01T00:00:00.0000015", pd.Timestamp(1500), np.datetime64(1500, "ns")],
    ids=["text", "pandas", "numpy"],
)
def test_bounds_finer_than_microseconds_round_inwards_in_every_door(value):
    where = Space([Timestamp("t")])
    low = encode_subscriptions([{"id": 1, "t_lo": value, "t_hi": None}], where)
    high = encode_subscriptions([{"id": 1, "t_lo": None, "t_hi": value}], where)
    assert (low.lo[0, 0], high.hi[0, 0]) == (2.0, 1.0)
    text = "'1970-01-01T00:00:00.0000015'"
    boxes = [
        Filter.parse(f"t {sign} {text}", where).boxes[0][0][1:] for sign in (">", ">=", "<", "<=")
    ]
    assert [lo for lo, _ in boxes[:2]] == [2.0, 2.0]
    assert [hi for _, hi in boxes[2:]] == [1.0, 1.0]


def test_an_index_without_a_name_is_no_column():
    where = Space([Number("x"), Integer("n")])
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "n": [1, 2, 3]})
    some = frame[frame.x > 1]
    expected = [[2.0, 2.0], [3.0, 3.0]]
    for events in (
        some,
        some.set_index(pd.Index(["a", "b"])),
        pl.DataFrame(frame).filter(pl.col("x") > 1),
        pa.table(frame).slice(1),
        some.to_dict("records"),
        some.to_dict("list"),
        {name: some[name] for name in some},
        {name: some[name].to_numpy() for name in some},
        {name: pl.Series(some[name].to_list()) for name in some},
    ):
        for ignore in (False, True):
            ids, points = encode_events(events, where, ignore_unknown=ignore)
            assert (ids.to_pylist(), points.tolist()) == ([0, 1], expected)
    named = some.set_index(pd.Index([7, 8], name="id"))
    assert encode_events(named, where).ids.to_pylist() == [7, 8]
    subscriptions = pd.DataFrame({"id": [1, 2, 3], "filter": ["x > 1", "x > 2", "x > 3"]})
    assert encode_subscriptions(subscriptions[subscriptions.id > 1], where).ids.to_pylist() == [
        2,
        3,
    ]


def test_numpy_scalars_and_rows_of_a_frame_are_taken_by_match():
    where = Space([Number("x"), Integer("n"), Boolean("b"), String("s")])
    engine = Engine(where)
    engine.subscribe("all", "x = 1.5 and n = 5 and b = true and s = 'a'")
    event = {"x": np.float32(1.5), "n": np.int64(5), "b": np.bool_(True), "s": np.str_("a")}
    frame = pd.DataFrame([event])
    assert engine.match(event) == ["all"]
    assert engine.match(frame.iloc[0]) == ["all"]
    assert engine.match_many([event]).table()["subscription"].to_pylist() == ["all"]
    assert [score for _, score in engine.rank(event, 1)] == [0.0]


def test_nan_is_rejected_in_every_door_unless_it_means_missing():
    where = Space([Number("x"), Integer("n"), String("s")])
    engine = Engine(where)
    engine.subscribe("none", "x is null and n is null and s is null")
    nan = math.nan
    one = {"x": nan, "n": np.float32(nan), "s": np.nan}
    many = [
        [one],
        {name: [value] for name, value in one.items()},
        {name: np.array([nan]) for name in one},
        pd.DataFrame([one]),
        pl.DataFrame({name: [nan] for name in one}),
        pa.table({name: [nan] for name in one}),
    ]
    for call in (engine.match, engine.rank):
        with pytest.raises(RangecastError, match="finite"):
            call(one)
    assert engine.match(one, nan="missing") == ["none"]
    assert engine.rank(one, nan="missing") == [("none", 0.0)]
    for events in many:
        for call in (engine.match_many, engine.rank_many):
            with pytest.raises(RangecastError, match="finite"):
                call(events)
            found = call(events, nan="missing").table()
            assert found["subscription"].to_pylist() == ["none"]
    with pytest.raises(UsageError, match=r"given: 'zero'"):
        engine.match({}, nan="zero")


def test_what_stands_for_a_missing_value():
    where = Space([Number("x"), Timestamp("t"), String("s")])
    for nothing in (None, pd.NA, pd.NaT, np.datetime64("NaT")):
        event = dict.fromkeys(where.names, nothing)
        assert np.isposinf(encode_event(event, where)).all()
        assert np.isposinf(encode_events([event], where).points).all()
    frame = pd.DataFrame(
        {
            "x": pd.array([None], "Float64"),
            "t": pd.to_datetime([pd.NaT]),
            "s": pd.array([None], "string"),
        }
    )
    assert np.isposinf(encode_events(frame, where).points).all()


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (pa.record_batch([pa.array([1]), pa.array([2])], ["x", "x"]), "duplicate column 'x'"),
        (pa.table([pa.array([1]), pa.array([2])], ["x", "x"]), "duplicate column 'x'"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "duplicate column 'x'"),
        ({"x": [1], "n": [1, 2]}, "different lengths: 1 of 'x', 2 of 'n'"),
        ({"x": np.zeros((2, 2))}, "can't be converted to a table"),
        ([{"x": 10**5000}], "finite"),
        ([{"n": 10**5000}], "64 bits"),
        ([{"id": 10**5000}], "an id must be an integer or a"),
    ],
)
def test_what_cannot_be_events_gets_a_clear_error(events, message):
    where = Space([Number("x"), Integer("n")])
    with pytest.raises(RangecastError, match=message):
        encode_events(events, where)
    with pytest.raises(RangecastError, match=message):
        Engine(where).match_many(events)


def test_a_file_with_a_column_twice_is_rejected(tmp_path):
    table = pa.table([pa.array([1]), pa.array([2])], ["x", "x"])
    pq.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(FileError, match=r"e.parquet: duplicate column 'x'"):
        list(EventFile(tmp_path / "e.parquet", Space([Number("x")])))


def test_a_batch_of_spark_has_the_same_verdicts():
    """Workers hand over record batches: the same rows go through the same door."""
    attribute = ATTRIBUTES["integer"]
    bad = CollectedRows()
    rows = Rows(
        "events", Batch.of(pa.record_batch({"a": pa.array(["5", "0x1F", "1e999", "6"])})), bad
    )
    assert rows.coordinates(attribute)[rows.good].tolist() == [5.0, 6.0]
    assert [one.row for one, _ in bad.kept] == [1, 2]


@pytest.mark.parametrize(
    "given_space", [{"price": "number"}, "space.toml", ["price"], 5, None], ids=repr
)
def test_what_is_no_list_of_attributes_is_rejected(given_space):
    with pytest.raises(SpaceError, match=r"list of attributes\n  given: .*\n  hint: .*Space.load"):
        Space(given_space)
    with pytest.raises(UsageError, match=r"expected a Space; .*\n  hint: Space.load"):
        Engine(given_space)


def test_a_pattern_is_the_files_that_it_matches_in_order(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    (tmp_path / "e2.csv").write_text("x\n3\nno\n")
    (tmp_path / "e1.csv").write_text("x\n1\n2\n")
    (tmp_path / ".e0.csv").write_text("x\n0\n")
    (tmp_path / "b" / "e3.csv").write_text("x\n4\n")
    (tmp_path / "e.jsonl").write_text("{}")
    space = Space([Number("x")])
    for where in (tmp_path, None):
        base = "" if where is None else f"{where}/"
        if where is None:
            monkeypatch.chdir(tmp_path)
        bad = CollectedRows()
        (*batches,) = EventFile(f"{base}e*.csv", space, rejected=bad)
        assert np.concatenate([one.points for one in batches]).ravel().tolist() == [1, 2, 3]
        assert [(one.source, one.row) for one, _ in bad.kept] == [(f"{base}e2.csv", 1)]
        with pytest.raises(RejectedRowError, match=r"e2\.csv, line 3"):
            list(EventFile(f"{base}e?.csv", space))
        (*batches,) = EventFile(f"{base}**/e[13].csv", space)
        assert np.concatenate([one.points for one in batches]).ravel().tolist() == [4, 1, 2]
        with pytest.raises(FileError, match=r"x\*\.csv: matches no file"):
            EventFile(f"{base}x*.csv", space)
        with pytest.raises(
            FileError, match="matches csv and jsonl; expected files of a single format"
        ):
            EventFile(f"{base}e*", space)
    (tmp_path / "e*.csv").write_text("x\n7\n")
    (batch,) = EventFile(tmp_path / "e*.csv", space)
    assert batch.points.tolist() == [[7]]


def test_an_unknown_column_names_its_file_not_the_folder_or_pattern(tmp_path):
    space = Space([Number("x")])
    (tmp_path / "a.csv").write_text("id,x_hi\n1,2\n")
    (tmp_path / "b.csv").write_text("id,x_hi,z\n")  # without a single row
    for where in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(FileError) as told:
            read_subscriptions(where, space)
        assert str(told.value).startswith(f"{tmp_path / 'b.csv'}: unknown column 'z'")
    (tmp_path / "e1.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "e2.jsonl").write_text('{"x": 1, "z": 2}\n')
    with pytest.raises(FileError) as told:
        list(EventFile(tmp_path / "*.jsonl", space))
    assert str(told.value).startswith(f"{tmp_path / 'e2.jsonl'}: unknown column 'z'")
    (tmp_path / "o1.parquet").mkdir()
    given = {"p": {"id": [1], "position": [1], "value": [1]}, "q": {"id": [2], "w": [1]}}
    for name, columns in given.items():
        pq.write_table(pa.table(columns), tmp_path / "o1.parquet" / f"{name}.parquet")
    with pytest.raises(FileError) as told:
        LineTables().read_objects(LineTables().file_rows(tmp_path / "o1.parquet"))
    assert str(told.value).startswith(f"{tmp_path / 'o1.parquet' / 'q.parquet'}: unknown column")


@pytest.mark.parametrize(
    "line", ['{"id": 2, "a": 1, "a": 5}', '{"id": 2, "id": 3, "a": 1}', '{"id": 2, "a": 1, "a": 1}']
)
def test_a_line_with_a_key_twice_is_a_rejected_row(tmp_path, line):
    path = tmp_path / "e.jsonl"
    path.write_text(f'{{"id": 1, "a": 4}}\n{line}\n{{"id": 4, "a": 6}}\n')
    with RejectedRows(tmp_path / "bad.jsonl") as bad:
        found = list(EventFile(path, Space([Number("a")]), rejected=bad))
    assert [one for part in found for one in part.points[:, 0].tolist()] == [4, 6]
    assert "twice" in json.loads((tmp_path / "bad.jsonl").read_text())["reason"]
