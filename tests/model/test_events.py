"""Event files of every format: the same rows, the same errors, nothing lost."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import FileError, RangecastError, RejectedRowError, UsageError
from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.text import Category, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.events import EventFile, encode_events
from rangecast.model.io import files
from rangecast.model.io.files import read_tables
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.io.writer import write_table
from rangecast.model.space import Space

FORMATS = ("csv", "jsonl", "parquet", "arrow")
ROWS = [
    {"id": "a", "price": 1.5, "n": 3, "at": "2026-01-31T09:30:00Z", "ok": True, "kind": "x"},
    {"id": "b", "price": None, "n": None, "at": None, "ok": None, "kind": None},
    {"id": "c", "price": -2.0, "n": 2**53, "at": "2026-01-31T09:30:00Z", "ok": False, "kind": "y"},
]
NINE_THIRTY = datetime(2026, 1, 31, 9, 30, tzinfo=UTC).timestamp() * 1e6
INF = np.inf


def space():
    return Space(
        [
            Number("price"),
            Integer("n"),
            Timestamp("at"),
            Boolean("ok"),
            Category("kind", ["x", "y"]),
        ]
    )


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        write_table(pa.Table.from_pylist(rows), path)
    return path


def read(path, rejected=None, where=None, **options):
    batches = list(EventFile(path, where or space(), rejected=rejected, **options))
    ids = [one for batch in batches for one in batch.ids.to_pylist()]
    return ids, np.concatenate([batch.points for batch in batches])


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_events(tmp_path, suffix):
    ids, points = read(write(tmp_path / f"e.{suffix}", ROWS))
    assert ids == ["a", "b", "c"]
    assert points.tolist() == [
        [1.5, 3.0, NINE_THIRTY, 1.0, 0.0],
        [INF, INF, INF, INF, INF],
        [-2.0, 2.0**53, NINE_THIRTY, 0.0, 1.0],
    ]


def test_packed_files_and_arrow_streams_are_read(tmp_path):
    packed = tmp_path / "e.csv.gz"
    packed.write_bytes(gzip.compress(b"price\n1\n2\n"))
    assert read(packed)[0] == [0, 1]
    with pa.ipc.new_stream(str(tmp_path / "e.arrow"), pa.schema([("n", pa.int64())])) as stream:
        stream.write_table(pa.table({"n": [7]}))
    assert read(tmp_path / "e.arrow")[1][0, 1] == 7


@pytest.mark.parametrize("suffix", FORMATS)
def test_without_ids_rows_are_numbered_over_all_batches(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(files, "BATCH_ROWS", 2)
    rows = [{"price": float(i)} for i in range(7)]
    ids, points = read(write(tmp_path / f"e.{suffix}", rows))
    assert ids == list(range(7))
    assert points[:, 0].tolist() == [float(i) for i in range(7)]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_folder_of_files_is_one_table(tmp_path, suffix):
    folder = tmp_path / "events"
    (folder / "day=2").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    (folder / f".part-0.{suffix}.crc").touch()
    write(folder / f"part-1.{suffix}", [{"price": 3.0}])
    write(folder / f"part-0.{suffix}", [{"price": 1.0}, {"price": 2.0}])
    write(folder / "day=2" / f"part-0.{suffix}", [{"price": 0.5}])
    ids, points = read(folder)
    assert (ids, points[:, 0].tolist()) == ([0, 1, 2, 3], [0.5, 1.0, 2.0, 3.0])
    other = folder / ("part-2.csv" if suffix != "csv" else "part-2.jsonl")
    write(other, [{"price": 4.0}])
    with pytest.raises(FileError, match=r"folder with \w+ and \w+ in it"):
        read(folder)


def test_ids_count_over_the_files_of_a_folder_and_rejected_rows_name_theirs(tmp_path):
    parts = [tmp_path / f"part-{number}.csv" for number in range(3)]
    parts[0].write_text("price\n1\n2,3\n")
    parts[1].write_text("price\n")
    parts[2].write_text("price\n4\nx\n5,6\n")
    with pytest.raises(RejectedRowError, match=r"part-0.csv, line 3 \(row 1, .*has 2 columns"):
        read(tmp_path)
    with RejectedRows(tmp_path.with_name("bad.csv")) as bad:
        assert read(tmp_path, bad)[0] == [0, 2]
    found = pacsv.read_csv(tmp_path.with_name("bad.csv")).select(["file", "row", "column"])
    assert [tuple(one.values()) for one in found.to_pylist()] == [
        (str(parts[0]), 1, "(all)"),
        (str(parts[2]), 2, "(all)"),
        (str(parts[2]), 1, "price"),
    ]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_rejected_row_of_a_pattern_names_its_file(tmp_path, suffix):
    write(tmp_path / f"e1.{suffix}", [{"id": 1, "price": 1.0}, {"id": 2, "price": 2.0}])
    second = write(tmp_path / f"e2.{suffix}", [{"id": 3, "kind": "x"}, {"id": 4, "kind": "z"}])
    with pytest.raises(RejectedRowError) as caught:
        read(tmp_path / f"e*.{suffix}")
    bad = caught.value.rejected
    assert (bad.source, bad.row, bad.column) == (str(second), 1, "kind")
    assert str(caught.value).startswith(f"{second}, ")
    write(second, [{"id": 3, "price": 1.0}, {"id": 2, "price": 1.0}])
    with pytest.raises(RejectedRowError) as caught:
        read(tmp_path / f"e*.{suffix}")
    bad = caught.value.rejected
    assert (bad.source, bad.row, bad.column) == (str(second), 1, "id")
    assert f"first seen in {tmp_path / f'e1.{suffix}'}, row 1)" in bad.reason


def test_ids_of_text_formats_are_integers_only_if_all_are(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("id,price\n1,1\n-2,2\n")
    assert EventFile(path, space()).id_type == pa.int64()
    path.write_text("id,price\n1,1\n007,2\n")
    assert read(path)[0] == ["1", "007"]
    lines = tmp_path / "e.jsonl"
    lines.write_text('{"id": 1, "price": 1}\n{"id": "x", "price": 2}\n')
    assert read(lines)[0] == ["1", "x"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_absent_attribute_is_missing_and_warned_of(tmp_path, suffix):
    file = EventFile(write(tmp_path / f"e.{suffix}", [{"price": 1.0}]), space())
    assert next(iter(list(file))).points.tolist() == [[1.0, INF, INF, INF, INF]]
    assert "no column for 'n', 'at', 'ok', 'kind'" in file.warnings[0]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_rejected_row_stops_the_reading_and_says_where(tmp_path, suffix):
    rows = [{"price": 1.0, "kind": "x"}, {"price": 2.0, "kind": "z"}]
    path = write(tmp_path / f"e.{suffix}", rows)
    with pytest.raises(RejectedRowError) as caught:
        read(path)
    bad = caught.value.rejected
    assert (bad.source, bad.row, bad.column, bad.value) == (str(path), 1, "kind", "z")
    assert "one of its listed values" in bad.reason
    assert bad.remedy


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("aside", ["csv", "jsonl", "parquet"])
def test_rejected_rows_are_written_whole_and_the_rest_goes_on(tmp_path, suffix, aside):
    rows = [{"id": i, "price": float(i), "kind": "xyz"[i % 3]} for i in range(9)]
    path = write(tmp_path / f"e.{suffix}", rows)
    with RejectedRows(tmp_path / f"bad.{aside}") as bad:
        ids, _ = read(path, bad)
    assert bad.count == 3
    assert ids == [0, 1, 3, 4, 6, 7]
    kept = [row for data in read_tables(tmp_path / f"bad.{aside}") for row in data.to_pylist()]
    assert [int(row["row"]) for row in kept] == [2, 5, 8]
    assert json.loads(kept[0]["data"])["price"] in (2.0, "2")
    assert {row["column"] for row in kept} == {"kind"}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("order", [range(7), [3, 1, 2, 0, 6, 5, 4]])
@pytest.mark.parametrize("named", ["{}", "e{}"])
def test_a_repeated_id_names_the_row_where_it_stood_first(
    tmp_path, suffix, order, named, monkeypatch
):
    monkeypatch.setattr(files, "BATCH_ROWS", 2)
    ids = [named.format(i) for i in order]
    ids = [*ids[:5], ids[1], *ids[5:], ids[2], ids[2]]
    ids = [int(i) if named == "{}" else i for i in ids]
    path = write(tmp_path / f"e.{suffix}", [{"id": i, "price": 1.0} for i in ids])
    with pytest.raises(RejectedRowError, match="first seen in row 1") as caught:
        read(path)
    assert caught.value.rejected.row == 5
    with RejectedRows(tmp_path / "bad.csv") as bad:
        kept, _ = read(path, bad)
    assert kept == [i for place, i in enumerate(ids) if i not in ids[:place]]
    assert bad.count == 3


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_unknown_column_is_rejected_unless_told(tmp_path, suffix):
    path = write(tmp_path / f"e.{suffix}", [{"prise": 1.0}])
    with pytest.raises(FileError, match="unknown column 'prise': did you mean 'price'"):
        read(path)
    assert read(path, ignore_unknown=True)[1].tolist() == [[INF] * 5]


def test_rows_that_cannot_be_split_keep_the_count_right(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('price,n\n1,1\n2\n3,3,3\n"4",4\n5,x\n')
    with pytest.raises(
        RejectedRowError, match=r"line 3 \(row 1, .*has 1 columns, the header has 2"
    ):
        read(path)
    with RejectedRows(tmp_path / "bad.csv") as bad:
        ids, points = read(path, bad)
    assert (ids, points[:, 0].tolist(), bad.count) == ([0, 3], [1.0, 4.0], 3)
    path = tmp_path / "e.jsonl"
    path.write_text('{"price": 1}\n{"price": \n[1]\n\n{"price": "x"}\n{"price": 5}\n')
    with RejectedRows(tmp_path / "bad2.csv") as bad:
        ids, points = read(path, bad)
    assert (ids, points[:, 0].tolist(), bad.count) == ([0, 4], [1.0, 5.0], 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", b"", "is empty"),
        ("e.csv", b"price,price\n1,2\n", "duplicate column 'price'"),
        ("e.csv", b"\xff\xfep\x00", "header is not UTF-8; save the file"),
        ("e.parquet", b"PAR1nonsense", "can't be read"),
        ("e.arrow", b"nonsense", "can't be read"),
        ("e.txt", b"price\n1\n", "unknown format; the name must end in one of .csv"),
        ("e.csv.gz", b"not packed", "can't be read"),
    ],
)
def test_files_that_are_not_what_they_claim(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        read(tmp_path / name)
    assert name in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder(tmp_path):
    for path in (
        tmp_path / "nowhere.csv",
        tmp_path / "nowhere.parquet",
        tmp_path / "nowhere.arrow",
    ):
        with pytest.raises(FileError, match="nowhere"):
            read(path)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match="folder with no table in it"):
        read(tmp_path / "folder.csv")


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_empty_table_has_no_events(tmp_path, suffix):
    path = tmp_path / f"e.{suffix}"
    if suffix == "jsonl":
        path.write_text("")
        assert list(EventFile(path, space())) == []
    else:
        write_table(pa.table({"price": pa.array([], pa.float64())}), path)
        assert read(path)[0] == []


def test_quoted_cells_keep_commas_newlines_and_emptiness(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('name\n"a,b"\n"c\nd"\n""\n"say ""hi"""\n')
    where = Space([String("name", ["a,b", "c\nd", "", 'say "hi"'])])
    assert read(path, where=where)[1][:, 0].tolist() == [0, 1, 2, 3]


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = tmp_path / "e.csv"
    path.write_bytes(b"\xef\xbb\xbfprice\n1\n")
    assert read(path)[1][0, 0] == 1


def test_mixed_json_types_blame_the_row_at_fault(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"price": 1}\n{"price": true}\n')
    with pytest.raises(RejectedRowError) as caught:
        read(path)
    assert caught.value.rejected.row == 1


def test_python_events_of_every_shape():
    rows = [{"price": 1.0, "kind": "x", "id": 6}, {"kind": "y", "id": 7}]
    expected = [[1.0, INF, INF, INF, 0.0], [INF, INF, INF, INF, 1.0]]
    assert encode_events(rows, space()).points.tolist() == expected
    table = pa.table({"price": [1.0, None], "kind": ["x", "y"]})
    for same in (table, table.to_batches()[0], table.to_pydict()):
        assert encode_events(same, space()).points.tolist() == expected
    assert encode_events(table.to_pandas(), space(), nan="missing").points.tolist() == expected
    assert encode_events([{}, {}], space()).points.tolist() == [[INF] * 5] * 2
    assert encode_events([], space()).points.shape == (0, 5)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([{"prise": 1}], "unknown attribute 'prise': did you mean 'price'"),
        ([{"price": "x"}], "not a number"),
        (5, "a list of dicts"),
        (["x"], "a list of dicts"),
        ([{"price": 1.0}, {"price": 1.0, "id": 7}], "or a non-empty string"),
    ],
)
def test_python_events_that_are_none(events, message):
    with pytest.raises((UsageError, RejectedRowError), match=message):
        encode_events(events, space())


@pytest.mark.parametrize("suffix", FORMATS)
@given(content=st.binary(max_size=400), data=st.data())
def test_fuzz_a_reader_answers_or_rejects(suffix, content, data, tmp_path_factory):
    """Random bytes, and damaged good files: never anything but rows or an error of ours."""
    folder = tmp_path_factory.mktemp("fuzz")
    path = write(folder / f"e.{suffix}", ROWS)
    good = bytearray(path.read_bytes())
    start = data.draw(st.integers(0, len(good)))
    good[start : start + data.draw(st.integers(0, 30))] = content
    for some in (content, bytes(good)):
        path.write_bytes(some)
        with suppress(RangecastError), RejectedRows(folder / "bad.csv") as bad:
            for batch in EventFile(path, space(), rejected=bad, ignore_unknown=True):
                assert len(batch.ids) == len(batch.points)


def test_parquet_of_large_row_groups_is_read_in_batches(tmp_path):
    table = pa.table({"price": np.arange(200_000, dtype=np.float64)})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=200_000)
    sizes = [len(batch.points) for batch in EventFile(tmp_path / "e.parquet", space())]
    assert max(sizes) <= files.BATCH_ROWS
    assert sum(sizes) == 200_000
