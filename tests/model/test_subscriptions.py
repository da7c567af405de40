"""Subscription files: both layouts, order of arrival, weights, and what is rejected."""

import json

import numpy as np
import pyarrow as pa
import pytest

from rangecast.errors import FileError, RejectedRowError
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import Category, String
from rangecast.model.encoding.subscriptions import encode_subscriptions, read_subscriptions
from rangecast.model.io import files
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.io.writer import write_table
from rangecast.model.space import Space

FORMATS = ("csv", "jsonl", "parquet", "arrow")
INF, MAX = np.inf, np.finfo(np.float64).max


def space():
    return Space([Number("price"), Integer("n", min=0), Category("kind", ["x", "y"]), String("s")])


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_filters_become_boxes(tmp_path, suffix):
    rows = [
        {"id": "a", "filter": "price < 5 or n > 3", "score": 1.5, "weight_price": 2.0},
        {"id": "b", "filter": "kind = 'y'", "score": None, "weight_price": None},
    ]
    boxes = read_subscriptions(write(tmp_path / f"s.{suffix}", rows), space())
    assert boxes.ids.to_pylist() == ["a", "b"]
    assert boxes.owner.tolist() == [0, 0, 1]
    assert boxes.scores.tolist() == [1.5, 0.0]
    assert boxes.weights.tolist() == [[2.0, 1.0, 1.0, 1.0], [1.0] * 4]
    ranges = {
        tuple(zip(lo, hi, strict=True))
        for lo, hi in zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)
    }
    free = (-INF, INF)
    assert ranges == {
        ((-MAX, float(np.nextafter(5, 0))), free, free, free),
        (free, (4.0, MAX), free, free),
        (free, free, (1.0, 1.0), free),
    }


@pytest.mark.parametrize("suffix", FORMATS)
def test_wide_rows_become_boxes(tmp_path, suffix):
    rows = [
        {"id": 1, "price_lo": 1.5, "price_hi": 2.0, "n_hi": None, "kind_lo": "x", "kind_hi": "x"},
        {"id": 2, "price_lo": None, "price_hi": 2.0, "n_hi": 7, "kind_lo": None, "kind_hi": None},
    ]
    boxes = read_subscriptions(write(tmp_path / f"s.{suffix}", rows), space())
    assert boxes.ids.to_pylist() == [1, 2]
    assert boxes.lo.tolist() == [[1.5, -INF, 0.0, -INF], [-MAX, 0.0, -INF, -INF]]
    assert boxes.hi.tolist() == [[2.0, INF, 0.0, INF], [2.0, 7.0, INF, INF]]
    assert boxes.weights is None


@pytest.mark.parametrize("suffix", FORMATS)
def test_arrival_is_the_column_seq_and_else_the_row(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(files, "BATCH_ROWS", 2)
    rows = [{"id": i, "filter": f"n = {i}", "seq": (i * 3) % 5} for i in range(5)]
    boxes = read_subscriptions(write(tmp_path / f"s.{suffix}", rows), space())
    assert boxes.ids.to_pylist() == [0, 2, 4, 1, 3]
    assert boxes.lo[:, 1].tolist() == [0, 2, 4, 1, 3]
    for row in rows:
        del row["seq"]
    boxes = read_subscriptions(write(tmp_path / f"t.{suffix}", rows), space())
    assert boxes.ids.to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
        ({"filter": "prise < 5"}, "filter", "did you mean 'price'"),
        ({"filter": "n > 5 and n < 3"}, "filter", "never match"),
        ({"filter": None}, "filter", "write true"),
        ({"filter": "true", "score": float("nan")}, "score", "finite"),
        ({"filter": "true", "weight_n": -1.0}, "weight_n", "outside its domain"),
        ({"filter": "true", "seq": None}, "seq", "order of arrival"),
        ({"filter": "true", "id": "a"}, "id", "first seen in row 0"),
        ({"filter": "true", "id": None}, "id", "or a non-empty string"),
        ({"price_lo": 5.0, "price_hi": 4.0}, "price_hi", "can never match"),
        ({"price_lo": float("inf"), "price_hi": None}, "price_lo", "finite"),
        ({"n_lo": None, "n_hi": -3}, "n_hi", "can never match"),
        ({"s_lo": "a", "s_hi": "b"}, "s_hi", "same text"),
        ({"kind_lo": "z", "kind_hi": "z"}, "kind_lo", "one of its listed values"),
    ],
)
def test_a_rejected_row_says_what_is_wrong_and_can_be_written(tmp_path, row, column, reason):
    good = {"id": "a", **({"filter": "true"} if "filter" in row else dict.fromkeys(row))}
    good |= {
        key: {"score": 1.0, "weight_n": 1.0, "seq": 7}[key]
        for key in row
        if key in ("score", "weight_n", "seq")
    }
    path = write(tmp_path / "s.parquet", [good, {"id": "b", **row}])
    with pytest.raises(RejectedRowError, match=reason) as caught:
        read_subscriptions(path, space())
    assert (caught.value.rejected.row, caught.value.rejected.column) == (1, column)
    with RejectedRows(tmp_path / "bad.jsonl") as bad:
        boxes = read_subscriptions(path, space(), rejected=bad)
    assert boxes.ids.to_pylist() == ["a"]
    aside = json.loads((tmp_path / "bad.jsonl").read_text())
    assert (aside["row"], aside["column"], bad.count) == (1, column, 1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id", "price_lo", "filter"], "either 'filter' or"),
        (["id"], "either 'filter' or"),
        (["filter"], "need 'id'"),
        (["id", "filtr"], "unknown column 'filtr': did you mean 'filter'"),
        (["id", "filter", "weight_prise"], "did you mean 'weight_price'"),
    ],
)
def test_columns_that_do_not_fit_are_rejected(tmp_path, columns, message):
    path = write(tmp_path / "s.parquet", [dict.fromkeys(columns, "1")])
    with pytest.raises(FileError, match=message):
        read_subscriptions(path, space())


def test_a_table_in_memory_gives_the_same(tmp_path):
    table = pa.table({"id": ["a", "b"], "filter": ["price < 5", "s = 'AAPL'"]})
    write_table(table, tmp_path / "s.csv")
    read = read_subscriptions(tmp_path / "s.csv", space())
    made = encode_subscriptions(table, space())
    assert made.lo.tolist() == read.lo.tolist()
    assert made.ids.equals(read.ids)
    assert encode_subscriptions(table.slice(0, 0), space()).rows == 0


def test_one_space_shares_one_vocabulary():
    where = space()
    first = encode_subscriptions(pa.table({"id": [1], "filter": ["s = 'A'"]}), where)
    second = encode_subscriptions(pa.table({"id": [1], "filter": ["s in ('B', 'A')"]}), where)
    assert first.lo[0, 3] == 0
    assert (second.lo[0, 3], second.hi[0, 3]) == (0, 1)
