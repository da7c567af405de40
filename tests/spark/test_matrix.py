"""Every step, mode, sink, form and odd batch of a pipeline, compared with the local engine.

A cell of the matrix is a pipeline: one mode and one situation, with all steps, each of which writes
to one kind of sink. The sinks turn from cell to cell, so that all cells together have every
combination; the normal suite runs a few of them, `make spark-matrix` all.
"""

import json
import random
from base64 import b64decode
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rangecast import Engine, Number, Space, String
from rangecast.cover import CoverSet
from rangecast.merge import Summary
from rangecast.spark.stream.pipeline.pipeline import Pipeline
from rangecast.store.commits import read_committed

SPACE = Space([Number("price", min=0, max=100), String("name")])
SINKS = ("parquet", "delta", "json")
SITUATIONS = ("plain", "empty batch", "all rejected", "no subscriptions", "sharded")
CELLS = list(product(("batch", "stream"), SITUATIONS, range(len(SINKS))))
SAMPLE = random.Random(3).sample(CELLS, 3)

KEPT = {
    "a_boolean": pa.bool_(),
    "a_byte": pa.int8(),
    "a_short": pa.int16(),
    "an_int": pa.int32(),
    "a_long": pa.int64(),
    "a_float": pa.float32(),
    "a_double": pa.float64(),
    "a_decimal": pa.decimal128(10, 2),
    "a_text": pa.string(),
    "bytes": pa.binary(),
    "a_date": pa.date32(),
    "a_moment": pa.timestamp("us", tz="UTC"),
    "a_list": pa.list_(pa.int32()),
    "a_struct": pa.struct([("x", pa.int32()), ("y", pa.string())]),
}
COLUMNS = {"id": pa.int64(), "price": pa.string(), "name": pa.string(), **KEPT}


def event(number, price):
    """Return an event; every third has nulls in the kept columns."""
    values = {
        "a_boolean": number % 2 == 0,
        "a_byte": number % 100,
        "a_short": -number,
        "an_int": number * 1000,
        "a_long": number << 40,
        "a_float": number / 4,
        "a_double": number / 3,
        "a_decimal": Decimal(number) / 4,
        "a_text": f"é{number}",
        "bytes": bytes([number % 256, 0]),
        "a_date": date(2026, 1, 1 + number % 28),
        "a_moment": datetime(2026, 1, 31, 23, 59, number % 60, number, tzinfo=UTC),
        "a_list": [number, None],
        "a_struct": {"x": number, "y": None},
    }
    kept = dict.fromkeys(KEPT) if number % 3 == 0 else values
    return {"id": number, "price": price, "name": ["ann", "bob", None][number % 3], **kept}


def events_of(situation):
    """Return the files of events."""
    chance = random.Random(5)
    prices = [f"{chance.randrange(400) / 4}" for _ in range(40)]
    first = [event(number, price) for number, price in enumerate(prices)]
    first += [event(98, None), event(99, "x")]  # one without a value, one that is rejected
    if situation == "all rejected":
        first = [event(number, "x") for number in range(5)]
    if situation == "empty batch":
        return [first, []]
    return [first, [event(100 + number, f"{number * 9}") for number in range(9)]]


def subscriptions_of(situation):
    """Return the subscriptions as (id, filter, score)."""
    if situation == "no subscriptions":
        return []
    chance = random.Random(7)
    found = []
    for number in range(60 if situation == "sharded" else 12):
        low = chance.randrange(90)
        price = f"price between {low} and {low + chance.randrange(1, 30)}"
        text = chance.choice([price, f"{price} and name = 'bob'", f"{price} or name is null"])
        found.append((f"s{number}", text, float(chance.randrange(9))))
    return found


STEPS = {
    "rows": 'type = "match"',
    "arrays": 'type = "match"\noutput = "arrays"',
    "best": 'type = "rank"\nk = 2',
    "wanted": 'type = "filter"',
}
OF_SETS = {"kept": 'type = "cover"', "union": 'type = "merge"\nattributes = ["price"]\nbits = 5'}


def write_pipeline(folder, mode, situation, turn):
    """Write the files of a cell; return the kind of sink of each step."""
    (folder / "events").mkdir()
    for place, rows in enumerate(events_of(situation)):
        table = pa.Table.from_pylist(rows, pa.schema(COLUMNS))
        pq.write_table(table, folder / "events" / f"{place}.parquet")
    lines = [
        json.dumps({"id": one, "filter": text, "score": score}) + "\n"
        for one, text, score in subscriptions_of(situation)
    ]
    (folder / "subs.jsonl").write_text("".join(lines))
    (folder / "space.toml").write_text(
        '[[attribute]]\nname = "price"\ntype = "number"\nmin = 0\nmax = 100\n'
        '[[attribute]]\nname = "name"\ntype = "string"\n'
    )
    text = f'mode = "{mode}"\nspace = "space.toml"\n'
    text += '[[source]]\ntype = "files"\nformat = "parquet"\npath = "events"\n'
    text += "options.maxFilesPerTrigger = 1\n" if mode == "stream" else ""
    text += '[[subscriptions]]\nfile = "subs.jsonl"\n'
    bytes_ = "max_worker_memory = 4000\n" if situation == "sharded" else ""
    sinks = {}
    for place, (name, what) in enumerate({**OF_SETS, **STEPS}.items()):
        if name == "kept" and mode == "stream":  # its rows can only be written by batch jobs
            continue
        text += f'[[step]]\nname = "{name}"\n{what}\n'
        if name in STEPS:
            text += f"keep = {json.dumps(list(KEPT))}\n" + (bytes_ if name != "wanted" else "")
        text += 'subscriptions = "subscriptions"\n' if name in ("rows", "arrays", "best") else ""
        if name in STEPS or mode == "batch":
            kind = sinks[name] = SINKS[(place + turn) % len(SINKS)]
            text += f'[[sink]]\ninput = "{name}"\ntype = "{kind}"\npath = "out/{name}"\n'
    text += '[rejected]\npath = "rejected"\n'
    text += '[stream]\ncheckpoint = "checkpoint"\n' if mode == "stream" else ""
    (folder / "p.toml").write_text(text)
    return sinks


def rows_of(path, kind):
    """Return the rows of a sink, as plain values."""
    if kind == "json":
        files = sorted(path.rglob("part-*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
    table = DeltaTable(path).to_pyarrow_table() if kind == "delta" else None
    if table is None:
        table = read_committed(path).to_table().drop_columns(["batch"])
    return table.to_pylist()


def expected_rows(situation):
    """Return the rows of each step, by the local engine, without kept columns; and the rejected."""
    engine = Engine(Space.from_definition(SPACE.definition()))
    for one, text, score in subscriptions_of(situation):
        engine.subscribe(one, text, score=score)
    given = [row for rows in events_of(situation) for row in rows]
    good = [row for row in given if row["price"] != "x"]
    points = [
        {"price": None if row["price"] is None else float(row["price"]), "name": row["name"]}
        for row in good
    ]
    found = {"rows": [], "arrays": [], "best": []}
    matches, best = engine.match_many(points), engine.rank_many(points, k=2)
    for row, ids, ranked in zip(good, matches, best, strict=True):
        found["arrays"].append({"event": row["id"], "subscriptions": list(ids)})
        found["rows"] += [{"event": row["id"], "subscription": one} for one in ids]
        found["best"] += [
            {"event": row["id"], "rank": place + 1, "subscription": one, "score": score}
            for place, (one, score) in enumerate(ranked)
        ]
    return found, {row["id"]: row for row in given}, len(given) - len(good)


def key(row):
    return json.dumps(row, default=str, sort_keys=True)


@pytest.mark.parametrize(
    ("mode", "situation", "turn"),
    [pytest.param(*cell, marks=[] if cell in SAMPLE else [pytest.mark.soak]) for cell in CELLS],
)
def test_a_cell_gives_what_the_local_engine_gives(spark, tmp_path, mode, situation, turn):
    sinks = write_pipeline(tmp_path, mode, situation, turn)
    done = []
    Pipeline.load(tmp_path / "p.toml").run(spark, done.append)
    expected, given, rejected = expected_rows(situation)
    assert sum(one.rejected for one in done) == rejected
    for name in expected:
        found = rows_of(tmp_path / "out" / name, sinks[name])
        plain = [{one: row[one] for one in row if one not in KEPT} for row in found]
        assert sorted(plain, key=key) == sorted(expected[name], key=key), name
        check_kept(found, given, sinks[name])
    wanted = rows_of(tmp_path / "out" / "wanted", sinks["wanted"])
    matching = {row["event"] for row in expected["rows"]}
    passed = [row["event"] for row in wanted]
    assert matching <= set(passed) <= set(given)
    assert len(passed) == len(set(passed))
    check_kept(wanted, given, sinks["wanted"])
    if mode == "batch":
        check_sets(tmp_path / "out", sinks, situation)


def check_kept(found, given, kind):
    for row in found:
        for name in KEPT:
            value = given[row["event"]][name]
            if kind == "json":
                assert from_json(name, row.get(name)) == value, name
            else:
                assert row[name] == value, name


def from_json(name, value):
    """Return the value of a kept column that a line of JSON has."""
    if value is None:
        return None
    read = {
        "bytes": b64decode,
        "a_date": date.fromisoformat,
        "a_moment": datetime.fromisoformat,
        "a_decimal": lambda number: Decimal(str(number)),
        "a_struct": lambda fields: {"x": None, "y": None, **fields},
    }
    return read[name](value) if name in read else value


def check_sets(folder, sinks, situation):
    cover, summary = CoverSet(SPACE), Summary(SPACE, bits=5, attributes=["price"])
    for one, text, _ in subscriptions_of(situation):
        cover.subscribe(one, text)
        summary.subscribe(one, text)
    rows = rows_of(folder / "kept", sinks["kept"])
    kept = {row["subscription"] for row in rows if row.get("covered_by") is None}
    assert len(rows) == len(subscriptions_of(situation))
    assert kept == set(cover.uncovered())
    starts, ends = summary.ranges()
    ranges = [(row["start"], row["end"]) for row in rows_of(folder / "union", sinks["union"])]
    assert sorted(ranges) == list(zip(starts.tolist(), ends.tolist(), strict=True))
