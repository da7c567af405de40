"""Subscriptions as CSV, Parquet and Arrow: saved as a file is read, and bounded before that."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast import Engine, Space
from rangecast.client import Client, SubscribeError
from rangecast.errors import FileError, RejectedRow, RejectedRowError
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.server.http.bodies.parquet import batches_of_parquet
from rangecast.server.http.bodies.tables import MAX_ROWS, MAX_TABLE_BYTES
from rangecast.server.state.registry import RequestError
from tests.support.server.served import Served

pytestmark = pytest.mark.xdist_group("server_tables")
SPACE = Space.from_toml("""
attribute = [
    { name = "price", type = "number" },
    { name = "count", type = "integer" },
    { name = "at", type = "timestamp" },
    { name = "symbol", type = "string" },
    { name = "halted", type = "boolean" },
]
""")
WIDE: dict[str, list[Any]] = {
    "id": ["a", "b", "c", "d"],
    "price_lo": [1.5, None, -2.0, None],
    "price_hi": [2.5, 1e300, None, None],
    "count_lo": [None, 2**53 - 1, None, None],
    "count_hi": [10, 2**53 - 1, None, None],
    "at_lo": [datetime(2026, 1, 1), None, None, None],
    "score": [1.0, None, 2.5, 0.0],
    "weight_price": [2.0, None, None, 1.0],
}
FILTERS = {"id": ["x", "y", "7"], "filter": ["price < 5", "symbol in ('A', 'B')", "halted = true"]}
TYPES = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
    "jsonl": "application/x-ndjson",
}
PATH = "/v1/spaces/s/subscriptions:bulk"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(spaces={"s": SPACE})
    yield served.url
    served.stop()


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, space="s") as client:
        yield client
        for name in list(client):
            client.unsubscribe(name)


def packed(table: pa.Table, form: str) -> bytes:
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, sink)
    elif form == "arrow":
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    elif form == "jsonl":
        rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
        return "\n".join(json.dumps(row, default=str) for row in rows).encode()
    else:
        pa.csv.write_csv(table, sink)
    return sink.getvalue()


def posted(url: str, form: str, body: bytes, query: str = "") -> httpx.Response:
    headers = {"Content-Type": TYPES[form]}
    return httpx.post(url + PATH + query, content=body, headers=headers, trust_env=False)


@pytest.mark.parametrize("columns", [WIDE, FILTERS], ids=["wide", "filter"])
@pytest.mark.parametrize("form", [*TYPES])
def test_a_server_saves_what_a_file_means(
    client: Client, tmp_path: Path, form: str, columns: Any
) -> None:
    body = packed(pa.table(columns), form)
    answer = posted(client.url, form, body).json()
    assert (answer["accepted"], answer["rejected"]) == (len(columns["id"]), [])
    path = tmp_path / f"subscriptions.{form}"
    path.write_bytes(body)
    space = Space.from_definition(SPACE.definition())
    engine = Engine(space)
    engine.subscribe_many(read_subscriptions(path, space))
    assert sorted(client) == sorted(map(str, engine))
    for name in engine:
        mine, theirs = engine[name], client[name]
        assert (theirs.filter, theirs.score, theirs.weights) == (
            mine.filter,
            mine.score,
            mine.weights,
        )


@pytest.mark.parametrize("form", [*TYPES])
def test_the_client_saves_files_and_tables(client: Client, tmp_path: Path, form: str) -> None:
    table = pa.table({**WIDE, "consumer": ["one", "two", None, ""]})
    path = tmp_path / f"subscriptions.{form}"
    path.write_bytes(packed(table, form))
    seen: list[int] = []
    options: Any = {"consumer": "rest", "create_consumer": True, "progress": seen.append}
    assert client.subscribe_many(path, **options) == 4
    assert sum(seen) == 4
    counts = {one["name"] for one in client.consumers()}
    assert counts >= {"one", "two", "rest"}
    before = {name: client[name] for name in client}
    assert before["b"].filter.count(str(2**53 - 1)) == 1
    for given in (table, table.to_pandas(), table.to_pydict(), table.to_pylist()):
        assert sum(client.upsert_many(given)) == 4
        assert {name: client[name] for name in client} == before
    for name in ("one", "two", "rest"):
        client.delete_consumer(name)


def test_rejected_rows_are_named(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(
        "id,filter,score\na,price < 5,1\nb,prise < 5,1\nc,price < 5,x\n,price < 1,1\nd,e\n"
    )
    answer = posted(client.url, "csv", path.read_bytes()).json()
    assert answer["accepted"] == 1
    assert [one["row"] for one in answer["rejected"]] == [1, 2, 3, 4]
    said = [one["reason"] for one in answer["rejected"]]
    for text, words in zip(
        said, ["prise", "'score': ", "id must be", "has 2 columns"], strict=True
    ):
        assert words in text
    rejected: list[RejectedRow] = []
    assert sum(client.upsert_many(path, rejected=rejected)) == 1
    assert [one.row for one in rejected] == [1, 2, 3, 4]
    before = len(client)
    with pytest.raises(FileError, match="has 2 columns"):
        client.upsert_many(path)
    path.write_text("id,filter\ne,price < 5\nf,prise < 5\n")
    with pytest.raises(RejectedRowError, match=r"row 1 .*'filter': no attribute 'prise'"):
        client.upsert_many(path)
    assert len(client) == before
    strict = posted(client.url, "csv", path.read_bytes(), "?strict=true")
    assert (strict.status_code, strict.json()["accepted"]) == (422, 0)


def test_what_requests_before_have_saved_is_said(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rangecast.client.operations.parts.BULK", 2)
    monkeypatch.setattr("rangecast.client.operations.many.BULK", 2)
    rows = [{"id": f"m{n}", "filter": "price < 5"} for n in range(3)] + [{"id": "z", "filter": "x"}]
    for given in (rows, pa.Table.from_pylist(rows)):
        with pytest.raises(SubscribeError, match="2 were saved by earlier requests; row 3: ") as no:
            client.upsert_many(given)
        assert (no.value.accepted, [one.row for one in no.value.rejected]) == (2, [3])


@pytest.mark.parametrize(
    ("form", "body", "status", "words"),
    [
        ("csv", b"id,colour\na,b\n", 422, "unknown column 'colour'"),
        ("csv", b"id,price_lo,filter\na,1,price < 5\n", 422, "either 'filter' or"),
        ("csv", b"", 400, "is empty"),
        ("csv", b"id,id\n1,2\n", 400, "duplicate column"),
        ("csv", b"id,filter,seq\n1,price < 5,1\n", 422, "order the rows"),
        ("csv", b"id,filter\n" + b"a,b\n" * (MAX_ROWS + 1), 413, "at most 100,000 rows"),
        ("parquet", b"PAR1 nothing", 400, "isn't a Parquet file"),
        ("parquet", b"", 400, "isn't a Parquet file"),
        ("arrow", b"\xff" * 50, 400, "isn't an Arrow stream"),
        (
            "arrow",
            packed(pa.table({"id": [["a"]], "filter": ["x"]}), "arrow"),
            422,
            "id must be",
        ),
        ("jsonl", b'{"id": "a", "price_lo": 1, "colour": 2}', 422, "unknown column 'colour'"),
    ],
    ids=range(11),
)
def test_tables_that_cannot_be_taken(
    client: Client, form: str, body: bytes, status: int, words: str
) -> None:
    answer = posted(client.url, form, body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert "--ignore" not in answer.text
    assert len(client) == 0


def test_other_content_types_are_rejected(client: Client) -> None:
    row = b'{"id": "a", "filter": "price < 5"}'
    for kind, status in (("text/plain", 415), ("image/png", 415), ("application/json", 200)):
        answer = httpx.post(client.url + PATH, content=row, headers={"Content-Type": kind})
        assert answer.status_code == status, kind


# ---- bombs


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def rejected(body: bytes) -> RequestError:
    """Return why a body is rejected; what is allocated meanwhile is little."""
    pool = pa.default_memory_pool()
    highest = max(pool.max_memory(), pool.bytes_allocated() + (32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as caught:
            batches_of_parquet(body, MAX_ROWS, MAX_TABLE_BYTES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert pool.max_memory() <= highest
    return caught.value


def test_a_parquet_bomb_is_rejected_by_its_metadata() -> None:
    rows = pa.table({"id": pa.nulls(MAX_ROWS + 1, pa.int64())})
    assert "at most 100,000 rows; given: 100,001" in str(rejected(parquet(rows)))
    long = pa.table({"id": ["x" * (70 << 20)]})
    body = parquet(long, compression="zstd", use_dictionary=False, write_statistics=False)
    assert len(body) < 100_000
    assert "pages of a Parquet file may have at most" in str(rejected(body))
    lists = pa.table({"id": [[1, 2]]})
    assert "contains lists" in str(rejected(parquet(lists)))
    delta = parquet(
        pa.table({"id": ["x" * 9] * 9}),
        use_dictionary=False,
        column_encoding={"id": "DELTA_BYTE_ARRAY"},
    )
    assert "DELTA_BYTE_ARRAY isn't supported" in str(rejected(delta))


def test_a_footer_that_lies_is_not_believed() -> None:
    """Sizes are those of pages: the footer's are 1 here, and one page claims gigabytes."""
    long = pa.table({"id": ["x" * (70 << 20)]})
    body = parquet(long, compression="zstd", use_dictionary=False, write_statistics=False)
    honest = pq.read_metadata(pa.BufferReader(body)).row_group(0).column(0)
    size = honest.total_uncompressed_size
    varint = _varint(size << 1)
    length = struct.unpack("<I", body[-8:-4])[0]
    at = len(body) - 8 - length
    foot = body[at:-8].replace(varint, _varint(2, len(varint)))
    lying = body[:at] + foot + body[-8:]
    column = pq.read_metadata(pa.BufferReader(lying)).row_group(0).column(0)
    assert column.total_uncompressed_size == 1
    assert "pages of a Parquet file may have at most" in str(rejected(lying))
    cut = body[: honest.data_page_offset] + b"\xff" * 40 + body[honest.data_page_offset + 40 :]
    assert rejected(cut).status == 400


def test_a_text_in_every_row_is_held_once() -> None:
    text, rows = ["x" * (1 << 16)], pa.array([0] * 5_000, pa.int32())
    table = pa.table({"id": pa.DictionaryArray.from_arrays(rows, text)})
    body = parquet(table, compression="zstd", store_schema=False)
    assert len(body) < 1 << 16
    assert "values of a table may have at most" in str(rejected(body))


def test_a_table_of_every_plain_type_is_read() -> None:
    moment = datetime(2026, 1, 1)
    table = pa.table({"a": [1, None], "b": ["x", None], "c": [moment, None], "d": [True, None]})
    for options in (
        {"compression": "snappy"},
        {"compression": "gzip", "data_page_version": "2.0"},
        {"compression": "none", "use_dictionary": False},
        {"compression": "zstd", "row_group_size": 1, "write_page_index": True},
    ):
        batches = batches_of_parquet(parquet(table, **options), 10, 1 << 20)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == table.to_pylist()


def _varint(value: int, length: int = 0) -> bytes:
    found = bytearray()
    while value > 127 or len(found) + 1 < length:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
