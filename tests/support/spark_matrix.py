"""Cells of the matrix of pipelines on Spark: their files, and what the local engine gives.

`spark_matrix FOLDER SERVERS JARS` checks all situations between topics of Kafka.
"""

import json
import os
import random
import re
import sys
from base64 import b64decode
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import VariantVal

from rangecast import Engine, Number, Space, String
from rangecast.cover import CoverSet
from rangecast.merge import Summary
from rangecast.notify.board import Board
from rangecast.spark import TopKLists, get_session
from rangecast.spark.stream.pipeline.pipeline import Pipeline
from rangecast.spark.stream.sinks.base import MOMENTS
from rangecast.store.commits import read_committed
from tests.support.notify_model import Model
from tests.support.server.servers import LIGHT

SPACE = Space([Number("price", min=0, max=100), String("name")])
SINKS = ("parquet", "delta", "json")
SITUATIONS = ("plain", "empty batch", "all rejected", "no subscriptions", "sharded")


class Cell(NamedTuple):
    """A pipeline of all steps; between topics, if there are servers."""

    mode: str
    situation: str
    turn: int = 0
    """By how many places the sinks are shifted against the steps."""
    servers: str | None = None

    def __str__(self):
        return f"{self.mode}-{self.situation.replace(' ', '-')}-{self.turn}"

    @property
    def sinks(self):
        return SINKS if self.servers is None else ("kafka",)


# ---- events


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
    "a_local_moment": pa.timestamp("us"),
    "a_list": pa.list_(pa.int32()),
    "a_struct": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "a_map": pa.map_(pa.string(), pa.int32()),
}
MADE = {
    "a_variant": """if(id % 3 = 0, null, parse_json('{"n": [' || id || ', null]}'))""",
    "a_duration": "if(id % 3 = 0, null, make_dt_interval(id, 1, 2, id / 4))",
    "a_whole_struct": "if(id % 3 = 0, null, struct(id as x))",
}
"""Columns of types that Arrow's Parquet files don't have, as expressions of the source."""
NOT_IN_DELTA = ("a_variant", "a_duration")
COLUMNS = {"id": pa.int64(), "price": pa.string(), "name": pa.string(), **KEPT}
SCHEMA = (
    "id long, price string, name string, a_boolean boolean, a_byte byte, a_short short, "
    "an_int int, a_long long, a_float float, a_double double, a_decimal decimal(10, 2), "
    "a_text string, bytes binary, a_date date, a_moment timestamp, a_local_moment timestamp_ntz, "
    "a_list array<int>, a_struct struct<x: int, y: string>, a_map map<string, int>"
)


def event(number, price):
    """Return an event; every third has nulls in the kept columns."""
    local = datetime(2026, 1, 31, 23, 59, number % 60, number)
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
        "a_moment": local.replace(tzinfo=UTC),
        "a_local_moment": local,
        "a_list": [number, None],
        "a_struct": {"x": number, "y": None},
        "a_map": [("é", number), ("none", None)],
        "a_variant": {"n": [number, None]},
        "a_duration": timedelta(number, 3720 + number / 4),
        "a_whole_struct": {"x": number},
    }
    kept = dict.fromkeys(values) if number % 3 == 0 else values
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


# ---- updates of objects, for notify


K = 2
OBJECTS = [(f"o{number}", float(number), float(9 - number)) for number in range(5)]
OBJECT, INTEREST = ("id", "position", "value"), ("id", "position_lo", "position_hi")
UPDATE = {"seq": pa.int64(), "id": pa.string(), "value": pa.string(), "position": pa.string()}


def updates_of(situation):
    """Return the files of updates: seq, id, value and position."""
    first = [(1, "o1", "1.5", None), (0, "o4", "7", "2"), (2, "new", "3", "4"), (3, "o0", "x", "")]
    if situation == "all rejected":
        first = [(0, "o1", "x", None), (1, "nobody", "3", None)]
    second = [(9, "o1", None, None), (8, "o2", "0.5", None)]
    return [first, [] if situation == "empty batch" else second]


def interests_of(situation):
    """Return the interests as (id, position_lo, position_hi)."""
    if situation == "no subscriptions":
        return []
    return [(number, float(number % 5), float(number % 5 + number % 3)) for number in range(12)]


def usable(updates):
    """Return the updates that can be applied, in their order: id, value and position."""
    known = {"new", *(one for one, _, _ in OBJECTS)}
    return [
        (one, None if value is None else float(value), None if not position else float(position))
        for _, one, value, position in sorted(updates)
        if one in known and value != "x"
    ]


# ---- files of a cell


STEPS = {
    "rows": 'type = "match"',
    "arrays": 'type = "match"\noutput = "arrays"',
    "best": 'type = "rank"\nk = 2',
    "wanted": 'type = "filter"',
}
OF_SETS = {"kept": 'type = "cover"', "union": 'type = "merge"\nattributes = ["price"]\nbits = 5'}
NOTIFY = (
    'type = "notify"\ninput = "updates"\nobjects = "objects.csv"\ninterests = "interests.csv"\n'
    f'lists = "lists"\nk = {K}\n'
)
KEYS = {"kept": "subscription", "messages": "object"}
"""Columns that are the keys of messages to Kafka, if not "event"."""


def kept_by(kind):
    """Return the columns that a step keeps for a kind of sink."""
    return [name for name in (*KEPT, *MADE) if kind != "delta" or name not in NOT_IN_DELTA]


def write_pipeline(session, folder, cell):
    """Write the files of a cell; return the kind of sink of each step."""
    write_tables(folder / "events", events_of(cell.situation), COLUMNS)
    updates = [
        [dict(zip(UPDATE, row, strict=True)) for row in some] for some in updates_of(cell.situation)
    ]
    write_tables(folder / "updates", updates, UPDATE)
    lines = [
        json.dumps({"id": one, "filter": text, "score": score}) + "\n"
        for one, text, score in subscriptions_of(cell.situation)
    ]
    (folder / "subs.jsonl").write_text("".join(lines))
    (folder / "space.toml").write_text(SPACE.to_toml())
    write_csv(folder / "objects.csv", OBJECT, OBJECTS)
    write_csv(folder / "interests.csv", INTEREST, interests_of(cell.situation))
    made = "".join(f"columns.{name} = {json.dumps(text)}\n" for name, text in MADE.items())
    text = f'mode = "{cell.mode}"\nspace = "space.toml"\n'
    text += source(session, folder, cell, "events", SCHEMA) + made
    text += source(session, folder, cell, "updates", "seq long, id string, value string, "
                   "position string")  # fmt: skip
    text += '[[subscriptions]]\nfile = "subs.jsonl"\n'
    bytes_ = "max_worker_memory = 4000\n" if cell.situation == "sharded" else ""
    sinks = {}
    for place, (name, what) in enumerate({**OF_SETS, **STEPS, "messages": NOTIFY}.items()):
        if name == "kept" and cell.mode == "stream":  # its rows are written by batch jobs alone
            continue
        kind = cell.sinks[(place + cell.turn) % len(cell.sinks)]
        if name == "union" and kind == "kafka":  # ranges have no key
            kind = "parquet"
        text += f'[[step]]\nname = "{name}"\n{what}\n'
        if name in STEPS:
            text += f'input = "events"\nkeep = {json.dumps(kept_by(kind))}\n'
            text += bytes_ if name != "wanted" else ""
        text += 'subscriptions = "subscriptions"\n' if name in ("rows", "arrays", "best") else ""
        if name not in OF_SETS or cell.mode == "batch":
            sinks[name] = kind
            text += f'[[sink]]\ninput = "{name}"\ntype = "{kind}"\n'
            if kind == "kafka":
                text += f'servers = "{cell.servers}"\ntopic = "{cell}-{name}"\n'
                text += f'key = "{KEYS.get(name, "event")}"\n'
            else:
                text += f'path = "out/{name}"\n'
    text += '[rejected]\npath = "rejected"\n'
    text += '[stream]\ncheckpoint = "checkpoint"\n' if cell.mode == "stream" else ""
    (folder / "p.toml").write_text(text)
    return sinks


def write_csv(path, head, rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [head, *rows]))


def write_tables(folder, tables, columns):
    folder.mkdir()
    for number, rows in enumerate(tables):
        rows = [{name: row[name] for name in columns} for row in rows]
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), path)
        os.utime(path, (number + 1, number + 1))  # a stream takes the oldest first


def source(session, folder, cell, name, schema):
    """Return the table of a source; of a topic, send its messages first."""
    text = f'[[source]]\nname = "{name}"\n'
    if cell.servers is None:
        text += f'type = "files"\nformat = "parquet"\npath = "{name}"\n'
        return text + ("options.maxFilesPerTrigger = 1\n" if cell.mode == "stream" else "")
    rows = session.read.parquet(str(folder / name))
    messages = rows.select(F.to_json(F.struct("*"), MOMENTS).alias("value"))
    create_topic(cell.servers, f"{cell}-{name}")
    topic = {"kafka.bootstrap.servers": cell.servers, "topic": f"{cell}-{name}"}
    messages.write.format("kafka").options(**topic).save()
    text += f'type = "kafka"\nservers = "{cell.servers}"\ntopic = "{cell}-{name}"\n'
    text += f"schema = {json.dumps(schema)}\n"
    many = name == "events" and cell.mode == "stream"
    return text + ("options.maxOffsetsPerTrigger = 20\n" if many else "")


def create_topic(servers, name):
    """Create a topic, unless the first message has."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 1)]).values():
        with suppress(KafkaException):
            made.result()


# ---- what is compared


def rows_of(session, folder, cell, name, kind):
    """Return the rows of a sink, as plain values."""
    path = folder / "out" / name
    if kind == "kafka":
        create_topic(cell.servers, f"{cell}-{name}")
        topic = {"kafka.bootstrap.servers": cell.servers, "subscribe": f"{cell}-{name}"}
        topic["startingOffsets"] = "earliest"
        found = session.read.format("kafka").options(**topic).load().collect()
        rows = [json.loads(bytes(row["value"])) for row in found]
        keys = [str(row[KEYS.get(name, "event")]) for row in rows]
        assert keys == [bytes(row["key"]).decode() for row in found]
        return rows
    if kind == "json":
        files = sorted(path.rglob("part-*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
    if kind == "delta":
        return DeltaTable(path).to_pyarrow_table().to_pylist()
    return read_committed(path).to_table().drop_columns(["batch"]).to_pylist()


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


def check_cell(session, folder, cell):
    """Run a pipeline, and compare every sink with the local engine."""
    sinks = write_pipeline(session, folder, cell)
    done = []
    entries = 5 * K if cell.situation == "sharded" else 1 << 20
    with patch("rangecast.spark.steps.notify.step.ENTRIES", entries):
        Pipeline.load(folder / "p.toml").run(session, done.append)
    expected, given, rejected = expected_rows(cell.situation)
    updates = updates_of(cell.situation)
    rejected += sum(len(some) - len(usable(some)) for some in updates)
    assert sum(one.rejected for one in done) == rejected, done
    for name in expected:
        found = rows_of(session, folder, cell, name, sinks[name])
        plain = [{one: row[one] for one in row if one not in (*KEPT, *MADE)} for row in found]
        assert sorted(plain, key=key) == sorted(expected[name], key=key), name
        check_kept(found, given, sinks[name])
    wanted = rows_of(session, folder, cell, "wanted", sinks["wanted"])
    matching = {row["event"] for row in expected["rows"]}
    passed = [row["event"] for row in wanted]
    assert matching <= set(passed) <= set(given)
    assert len(passed) == len(set(passed))
    check_kept(wanted, given, sinks["wanted"])
    check_types(session, folder, sinks)
    check_messages(rows_of(session, folder, cell, "messages", sinks["messages"]), cell)
    check_lists(session, folder, cell)
    if cell.mode == "batch":
        check_sets(session, folder, cell, sinks)


def check_kept(found, given, kind):
    for row in found:
        for name in kept_by(kind):
            value = given[row["event"]][name]
            if kind in ("json", "kafka"):
                assert from_json(name, row.get(name)) == value, name
            elif name == "a_variant" and value is not None:
                assert VariantVal(row[name]["value"], row[name]["metadata"]).toPython() == value
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
        "a_local_moment": datetime.fromisoformat,
        "a_decimal": lambda number: Decimal(str(number)),
        "a_struct": lambda fields: {"x": None, "y": None, **fields},
        "a_map": lambda items: list(items.items()),
        "a_duration": duration,
    }
    return read[name](value) if name in read else value


def duration(text):
    """Return the value of a text such as INTERVAL '1 02:03:04.5' DAY TO SECOND."""
    days, hours, minutes, seconds = re.findall(r"[\d.]+", text)
    return timedelta(int(days), 3600 * int(hours) + 60 * int(minutes) + float(seconds))


def check_types(session, folder, sinks):
    """Spark reads the columns of Parquet files with the types that they had."""
    for name in ("rows", "arrays", "best", "wanted"):
        if sinks[name] == "parquet":
            kinds = dict(session.read.parquet(str(folder / "out" / name)).dtypes)
            made = [kinds[name] for name in NOT_IN_DELTA]
            assert made == ["variant", "interval day to second"], name
            return


def check_messages(found, cell):
    """Of each batch, those of a local board; a stream of files has a batch per file."""
    files = updates_of(cell.situation)
    one_each = cell.mode == "stream" and cell.servers is None
    objects = {name: [row[place] for row in OBJECTS] for place, name in enumerate(OBJECT)}
    interests = interests_of(cell.situation)
    bounds = {name: [row[place] for row in interests] for place, name in enumerate(INTEREST)}
    how = {"algorithm": "sparse", "interests": bounds if interests else None}
    board = Board(K, objects=objects, **how)
    expected = []
    for number, some in enumerate(files if one_each else [[row for file in files for row in file]]):
        messages = board.update_batch(usable(some))
        rows = zip(messages.table().to_pylist(), messages.arrival.tolist(), strict=True)
        expected += [{**row, "seq": number, "arrival": arrival} for row, arrival in rows]
    for row in found:  # as JSON they are texts
        row |= {name: float(value) for name, value in row.items() if "Infinity" in str(value)}
        row |= {name: None for name in (expected or [row])[0] if name not in row}
    assert sorted(found, key=key) == sorted(expected, key=key)


def check_lists(session, folder, cell):
    model = Model((one, position, value) for one, position, value in OBJECTS)
    updates = [row for file in updates_of(cell.situation) for row in file]
    for one, value, position in usable(updates):
        model.change(one, value, position)
    with TopKLists(session, folder / "lists", k=K) as kept:
        found = [tuple(row) for row in kept.read().collect()]
    expected = [
        (interest, rank, one, position, value)
        for interest, lo, hi in interests_of(cell.situation)
        for rank, (value, _, one, position) in enumerate(model.best(lo, hi, K), 1)
    ]
    assert sorted(found) == expected


def check_sets(session, folder, cell, sinks):
    cover, summary = CoverSet(SPACE), Summary(SPACE, bits=5, attributes=["price"])
    for one, text, _ in subscriptions_of(cell.situation):
        cover.subscribe(one, text)
        summary.subscribe(one, text)
    rows = rows_of(session, folder, cell, "kept", sinks["kept"])
    kept = {row["subscription"] for row in rows if row.get("covered_by") is None}
    assert len(rows) == len(subscriptions_of(cell.situation))
    assert kept == set(cover.uncovered())
    starts, ends = summary.ranges()
    union = rows_of(session, folder, cell, "union", sinks["union"])
    ranges = [(row["start"], row["end"]) for row in union]
    assert sorted(ranges) == list(zip(starts.tolist(), ends.tolist(), strict=True))


def main() -> None:
    folder, servers, jars = Path(sys.argv[1]), *sys.argv[2:]
    conf = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.default.parallelism": 2,
    }
    session = get_session("local[2]", conf=conf)
    for mode, situation in product(("batch", "stream"), SITUATIONS):
        cell = Cell(mode, situation, servers=servers)
        print(cell, file=sys.stderr, flush=True)
        (folder / str(cell)).mkdir()
        check_cell(session, folder / str(cell), cell)


if __name__ == "__main__":
    main()
