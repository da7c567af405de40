"""Texts of events live until they are matched, however many others come in the meantime."""

from __future__ import annotations

import asyncio
import json
import random
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from rangecast import AsyncEngine, Client, Engine, Number, Space, String, Text
from rangecast.model.attributes import text_store
from rangecast.model.encoding.events import encode_event, encode_events
from rangecast.server.encoding import encoded, points_of
from tests.support.server.served import Served

SPACE = Space([Text("title"), Text("place"), Text("seller"), Number("price")])
EVENTS = [
    {"title": f"bike {n}", "place": f"{n % 7} road", "seller": "a shop", "price": n}
    for n in range(120)
]
MATCHING = [
    [name for name, digit in (("1", "1"), ("2", "2")) if digit in str(n)] for n in range(120)
]


@pytest.fixture(autouse=True)
def no_room(monkeypatch):
    """The store drops everything that it may."""
    monkeypatch.setattr(text_store, "MAX_BYTES", 0)
    monkeypatch.setattr(text_store, "_SEGMENT_BYTES", 1)


@pytest.fixture
def engine():
    made = Engine(SPACE)
    for digit in "12":
        made.subscribe(digit, f"title like 'bike%{digit}%' and seller contains 'shop'")
    return made


def test_one_by_one_and_many(engine):
    assert [engine.match(event) for event in EVENTS] == MATCHING
    assert engine.match_each(EVENTS) == MATCHING
    found = engine.match_many(EVENTS)
    assert [found[n] for n in range(len(EVENTS))] == MATCHING
    assert engine.why(EVENTS[1], "2").boxes


def test_points_keep_their_texts(engine):
    points = [
        encode_events(EVENTS, SPACE).points,
        points_of(EVENTS, SPACE),
        points_of(EVENTS[:3], SPACE),
        encode_event(EVENTS[1], SPACE)[None],
    ]
    for event in EVENTS:
        encode_event(event, SPACE)
    for some in points[:2]:
        found = engine.match_points(some)
        assert [found[n] for n in range(len(EVENTS))] == MATCHING
    assert engine.match_points(points[2])[1] == MATCHING[1]
    assert engine.match_points(points[3])[0] == MATCHING[1]
    assert len(text_store.TEXTS._segments) > len(EVENTS)
    del points, some, found
    encode_event(EVENTS[0], SPACE)
    assert len(text_store.TEXTS._segments) < 10  # what no array needs is dropped


def test_files_with_rejected_rows(cli, engine, tmp_path):
    columns = {name: [event[name] for event in EVENTS] for name in EVENTS[0]}
    columns["price"] = ["none" if n == 5 else str(n) for n in range(120)]
    pa.csv.write_csv(pa.table(columns), tmp_path / "events.csv")
    SPACE.save(tmp_path / "space.toml")
    filters = "".join(f"{name},{engine[name].filter}\n" for name in engine)
    (tmp_path / "subscriptions.csv").write_text("id,filter\n" + filters)
    given = ("events.csv", "subscriptions.csv", "--space", "space.toml", "--rejected", "bad.csv")
    cli("match", *given, "-o", "out.csv")
    pairs = (tmp_path / "out.csv").read_text().splitlines()[1:]
    expected = [f"{n},{name}" for n, names in enumerate(MATCHING) if n != 5 for name in names]
    assert pairs == expected


def test_while_others_encode(engine):
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            encode_event(EVENTS[0], SPACE)

    threads = [threading.Thread(target=others) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            assert [engine.match(event) for event in EVENTS] == MATCHING
            found = engine.match_many(EVENTS)
            assert [found[n] for n in range(len(EVENTS))] == MATCHING
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_an_event_loop(engine):
    async def run() -> list[list[str]]:
        return await asyncio.gather(*map(AsyncEngine(engine).match, EVENTS))

    assert asyncio.run(run()) == MATCHING


def test_a_server(engine, tmp_path):
    served = Served(data=tmp_path / "data", spaces={"texts": SPACE})
    try:
        with Client(served.url, space="texts") as client:
            for name in engine:
                client.subscribe(name, engine[name].filter)
            for event, names in zip(EVENTS[:20], MATCHING, strict=False):
                assert client.match(event) == names
                assert client.publish(event, matches=True).matches == [names]
            assert list(client.match_many(EVENTS)) == MATCHING
            assert client.publish(EVENTS, matches=True).matches == MATCHING
    finally:
        served.stop()


@pytest.mark.parametrize("letters", ["ab c", "aé"])
def test_a_server_encodes_texts_by_columns_as_one_by_one(letters):
    space = Space([Text("title", ["a", "ab"]), String("symbol"), Number("price")])
    r = random.Random(6)
    texts = ["", "a", "ab", None, *("".join(r.choices(letters, k=9)) for _ in range(40))]
    rows = [{"title": r.choice(texts), "symbol": r.choice(texts), "price": n} for n in range(200)]
    points = points_of(rows, space)
    lines = [json.dumps(row).encode() for row in rows]
    taken, rejected = encoded(lines, space, ignore_unknown=False)
    assert not rejected
    (patterns,) = space.patterns.values()
    for row, *found in zip(rows, points, taken.points_in(space), strict=True):
        expected = encode_event(row, space)
        for point in found:
            same = [axis for axis in range(len(space)) if axis != patterns]
            assert point[same].tolist() == expected[same].tolist()
            if row["title"] is None:
                assert point[patterns] == np.inf
            else:
                assert text_store.TEXTS.get([point[patterns]]) == [row["title"]]
