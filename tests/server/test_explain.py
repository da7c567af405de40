"""Recipients of an event, near misses, and covering of a filter, against plain definitions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from rangecast.cover.batch import earliest_coverers
from rangecast.errors import FilterError, RangecastError
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import encode_event
from rangecast.model.explain import explain_match
from rangecast.model.filters.filter import Filter
from rangecast.server import explain
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import PutSpace
from rangecast.server.state.entries import Change, SpaceEntry
from rangecast.server.state.space_index import SpaceIndex
from rangecast.server.state.versions.version import Version
from rangecast.workloads import generate
from tests.support.server.serving import HANGS, Client, T, run, serving, until

MADE = generate("market", seed=3, subscriptions=300, events=40)
ROWS = MADE.tables["subscriptions"].to_pylist()
EVENTS = MADE.tables["events"].drop_columns(["id"]).to_pylist()
MORE = [
    "price < 500",
    "price < 500 and risk < 0.9",
    "price < 20 or pe > 30",
    "price < 10 or pe > 40",
    "price < 10 or pe > 40",
    "symbol = 'NEW' and (price < 5 or price > 600)",
]


@pytest.fixture(scope="module")
def index() -> SpaceIndex:
    entry = SpaceEntry("default", "market", 0, MADE.space, 1)
    made = SpaceIndex(entry)
    texts = {row["id"]: row["filter"] for row in ROWS} | {
        f"more-{at}": text for at, text in enumerate(MORE)
    }
    for number, (name, text) in enumerate(texts.items()):
        entry.live.add(Version(number, name, text, -1, number + 2))
    made.apply([Change(entry, [one]) for one in entry.live.values()])
    return made


def test_who_gets_an_event_and_who_lacks_least(index: SpaceIndex) -> None:
    space, boxes = MADE.space, index.engine.boxes()
    for event in EVENTS[::8]:
        point = encode_event(event, space)
        explained = [explain_match(space, boxes, row, point, event) for row in range(boxes.rows)]
        lacks = {
            index.ids[one.subscription]: sum(not line.holds for line in one.boxes[one.nearest])
            for one in explained
        }
        found = explain.recipients(index, explain.ExplainQuery(event), nearest=12)
        assert set(found["matches"]) == {name for name, count in lacks.items() if not count}
        assert found["count"] == len(found["matches"])
        near = [one["subscription"] for one in found["nearest"]]
        counts = [lacks[name] for name in near]
        assert counts == sorted(count for count in lacks.values() if count)[:12]
        for one in found["nearest"]:
            broken = [line for line in one["lines"] if not line["holds"]]
            assert len(broken) == lacks[one["subscription"]]
            assert not one["matches"]


def test_why_says_the_same(index: SpaceIndex) -> None:
    event = EVENTS[0]
    found = explain.recipients(index, explain.ExplainQuery(event))
    for name in [*found["matches"], *(one["subscription"] for one in found["nearest"])]:
        said = explain.why(MADE.space, index.entry.live[name], explain.ExplainQuery(event))
        assert said["matches"] == (name in found["matches"])
        assert said["verdict"].startswith(name)
    with pytest.raises(RangecastError, match="pric"):
        explain.recipients(index, explain.ExplainQuery({"pric": 3}))


def test_covered_is_what_cover_says(index: SpaceIndex) -> None:
    boxes = index.engine.boxes()
    arrival = np.arange(boxes.rows)
    expected = earliest_coverers(boxes, arrival, boxes, arrival).tolist()
    names = [index.ids[number] for number in boxes.ids.to_pylist()]
    found = [
        explain.find_covering(
            index, Filter.parse(index.entry.live[name].filter, MADE.space), number
        )
        for name, number in zip(names, boxes.ids.to_pylist(), strict=True)
    ]
    wanted = [None if place < 0 else names[place] for place in expected]
    assert [one["covered_by"] for one in found] == wanted
    assert len({*wanted}) > 3
    unsaved = Filter.parse("price < 10 or pe > 40", MADE.space)
    lo, hi = unsaved.arrays()
    one = Boxes.of(lo, hi, owner=[0, 0], ids=[0])
    place = int(earliest_coverers(boxes, arrival, one, np.array([boxes.rows]))[0])
    assert explain.find_covering(index, unsaved)["covered_by"] == names[place]
    number = boxes.ids[place].as_py()
    assert explain.find_covering(index, unsaved, sessions={number})["covered_by"] != names[place]


def test_a_large_set_is_looked_at_in_part(
    index: SpaceIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "MAX_EXAMINED", 10)
    first = [index.ids[number] for number in index.engine.boxes(10).ids.to_pylist()]
    found = explain.recipients(index, explain.ExplainQuery(EVENTS[0]), nearest=50)
    assert (found["looked_at"], found["subscriptions"]) == (10, len(index.engine))
    assert {one["subscription"] for one in found["nearest"]} <= {*first}
    drawn = explain.boxes_on_axes(index, "price", "risk")
    assert {one["subscription"] for one in drawn["boxes"]} <= {*first}


def test_boxes_on_two_attributes(index: SpaceIndex) -> None:
    drawn = explain.boxes_on_axes(index, "sector", "price", limit=1000)
    by_name = {one["subscription"]: one for one in drawn["boxes"]}
    assert by_name["more-0"]["x"] == [None, None]
    assert by_name["more-0"]["y"][1] == pytest.approx(500)
    labels = drawn["axes"][0]["labels"]
    assert labels[:2] == ["tech", "semiconductors"]
    assert explain.boxes_on_axes(index, "symbol", "price")["axes"][0]["labels"] is None
    words = explain.boxes_on_axes(index, "symbol", "pe", limit=2000)["boxes"]
    assert ["NEW", "NEW"] in [one["x"] for one in words]
    with pytest.raises(RangecastError, match="did you mean 'price'"):
        explain.boxes_on_axes(index, "prise", "pe")


def test_the_plane_opens_on_what_most_boxes_bound(index: SpaceIndex) -> None:
    bounded = dict(zip(MADE.space.names, index.engine.boxes().mentions.sum(axis=0), strict=True))
    texts = {one.name for one in MADE.space if isinstance(one, String)}
    most = sorted(bounded.keys() - texts, key=lambda name: -bounded[name])
    drawn = [one["name"] for one in explain.boxes_on_axes(index)["axes"]]
    assert {*drawn} == {*most[:2]}
    assert [one["name"] for one in explain.boxes_on_axes(index, "pe")["axes"]] == ["pe", most[0]]
    assert [one["name"] for one in explain.boxes_on_axes(index, y=most[0])["axes"]] == [
        most[1],
        most[0],
    ]


def test_subscriptions_that_end_with_a_connection_do_not_count(index: SpaceIndex) -> None:
    event = next(
        one for one in EVENTS if explain.recipients(index, explain.ExplainQuery(one))["count"] > 1
    )
    before = explain.recipients(index, explain.ExplainQuery(event))
    numbers = {index.ids[one]: one for one in index.engine.boxes().ids.to_pylist()}
    sessions = {numbers[before["matches"][0]], numbers[before["nearest"][0]["subscription"]]}
    found = explain.recipients(index, explain.ExplainQuery(event), sessions)
    assert found["matches"] == before["matches"][1:]
    assert found["count"] == before["count"] - 1
    assert found["nearest"][0] == before["nearest"][1]
    assert found["subscriptions"] == before["subscriptions"] - 2
    drawn = explain.boxes_on_axes(index, sessions=sessions, limit=2000)["boxes"]
    assert sessions.isdisjoint(numbers[one["subscription"]] for one in drawn)


def test_a_fault_knows_its_place() -> None:
    with pytest.raises(FilterError) as caught:
        Filter.parse("price < 20 and\n sectr = 3", MADE.space)
    assert caught.value.span == (16, 21)


def test_a_filter_that_is_not_saved_leaves_no_words() -> None:
    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            words = {"attribute": [{"name": "who", "type": "string"}]}
            await client("PUT", "spaces/words", words)
            await client("PUT", "spaces/words/subscriptions/a", {"filter": "who in ('x', 'y')"})
            events = [{"who": "x"}, {"who": "new"}, {"who": "y"}, {"who": "new"}]
            await client("POST", "spaces/words/events", events)
            for wanted, expected in (("who = 'new'", 2), ("who != 'x'", 3), ("who = 'none'", 0)):
                path = "spaces/words/filters:preview"
                assert (await client("POST", path, {"filter": wanted}))["matched"] == expected
            for wanted, by in (("who = 'x'", "a"), ("who in ('x', 'new')", None)):
                path = "spaces/words/subscriptions:find-covering"
                assert (await client("POST", path, {"filter": wanted}))["covered_by"] == by
            space = service.core.registry.space(T, "words").space
            assert space.vocabularies == {"who": ["x", "y"]}

    run(work)


def test_a_space_that_is_being_created_has_no_subscriptions_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its edit is in the log, and the matcher hasn't come to it."""

    async def work() -> None:
        async with serving() as service:
            client, matching = Client(service), service.core.pipeline.matching
            messages, may_go_on = matching.messages, threading.Event()

            def wait(*arguments: Any) -> Any:
                may_go_on.wait(HANGS)
                return messages(*arguments)

            monkeypatch.setattr(matching, "messages", wait)
            created = service.core.edit(PutSpace(T, "new", MADE.space.definition()))
            await until(lambda: (T, "new") in service.core.registry.spaces)
            try:
                path = "spaces/new"
                for verb, answer in (("match", "matches"), ("rank", "best")):
                    assert (await client("POST", f"{path}/events:{verb}", {}))[answer] == [[]]
                assert (await client("POST", f"{path}/events:count", {}))["counts"] == [0]
                assert (await client("POST", f"{path}/why-not", {"event": {}}))["count"] == 0
                covering = f"{path}/subscriptions:find-covering"
                found = await client("POST", covering, {"filter": "price < 5"})
                assert found["covered_by"] is None
                assert (await client("GET", f"{path}/boxes"))["boxes"] == []
                assert (await client("GET", f"{path}/shapes"))["features"] == []
                assert (await client("GET", f"{path}/explain"))["text"]
            finally:
                may_go_on.set()
            await result_of(created)

    run(work)
