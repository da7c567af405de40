"""Live sets: whatever the history, the answer is that of a set built anew."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rangecast import liveset as liveset_module
from rangecast.engine import Engine
from rangecast.match.choose import INDEXES
from rangecast.match.result import Work
from rangecast.match.scan import Scan
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import Category, String
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from tests.support.examples import examples
from tests.support.strategies import boxes, intervals, points

D = 3


def plane():
    return Space([Number(f"a{j}") for j in range(D)])


@pytest.fixture
def small_parts(monkeypatch):
    """Make parts, joins and rebuilds happen after a handful of edits instead of thousands."""
    monkeypatch.setattr(liveset_module, "RECENT", 3)
    monkeypatch.setattr(liveset_module, "FAN", 2)
    monkeypatch.setattr(liveset_module, "SMALL", 16)


class History(RuleBasedStateMachine):
    """Random edits on an engine and on a plain dict of boxes."""

    index = "scan"

    @initialize()
    def start(self):
        self.engine = Engine(plane(), index=self.index)
        self.model = {}  # id -> (lo, hi) of its boxes, in order of arrival
        self.next = 0

    def new_ids(self, count):
        ids = [f"s{self.next + i}" for i in range(count)]
        self.next += count
        return ids

    @rule(some=boxes(dimensions=st.just(D), max_rows=9))
    def subscribe_many(self, some):
        ids = self.new_ids(some.rows)
        named = Boxes.of(some.lo, some.hi, owner=some.owner, ids=pa.array(ids, pa.large_string()))
        assert self.engine.subscribe_many(named) == some.rows
        for row, name in enumerate(ids):
            self.model[name] = some.lo[some.owner == row], some.hi[some.owner == row]

    @rule(box=st.lists(intervals(), min_size=D, max_size=D))
    def subscribe(self, box):
        (name,) = self.new_ids(1)
        lo, hi = np.array(box).T
        self.engine.subscribe(name, Filter.from_boxes(self.engine.space, lo, hi))
        self.model[name] = lo[None], hi[None]

    @rule(data=st.data(), box=st.lists(intervals(), min_size=D, max_size=D))
    def replace(self, data, box):
        if self.model:
            name = data.draw(st.sampled_from(sorted(self.model)))
            lo, hi = np.array(box).T
            self.engine.replace(name, Filter.from_boxes(self.engine.space, lo, hi))
            self.model[name] = lo[None], hi[None]

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.model:
            name = data.draw(st.sampled_from(sorted(self.model)))
            self.engine.unsubscribe(name)
            del self.model[name]

    @rule(data=st.data())
    def unsubscribe_many(self, data):
        names = data.draw(st.lists(st.sampled_from(sorted(self.model)))) if self.model else []
        assert self.engine.unsubscribe_many(names) == len(set(names))
        for name in set(names):
            del self.model[name]

    @rule()
    def wait(self):
        self.engine.wait_for_rebuild()

    @rule(some=points(D, max_events=5))
    def match(self, some):
        answers = self.engine.match_points(some)
        one = self.engine
        for event, point in enumerate(some):
            expected = [
                name
                for name, (lo, hi) in self.model.items()
                if ((lo <= point) & (point <= hi)).all(axis=1).any()
            ]
            assert answers[event] == expected
            values = {f"a{j}": None if v == np.inf else v for j, v in enumerate(point.tolist())}
            assert one.match(values) == expected

    @invariant()
    def knows_what_lives(self):
        assert len(self.engine) == len(self.model)
        assert all(name in self.engine for name in self.model)
        assert self.engine.boxes().ids.to_pylist() == list(self.engine) == list(self.model)


def test_a_view_lays_its_newest_rows_out_once():
    engine = Engine(plane())
    engine.subscribe_many({"id": [str(i) for i in range(300)], "a0_lo": [*range(300)]})
    points = np.zeros((1000, D))
    view = engine._view
    assert view.recent == []
    assert [engine.match_points(points)[999] for _ in range(2)] == [["0"]] * 2
    assert len(view.recent) == 1
    assert engine.match_points(points).matches.work == Work(tested=300 * 1000)
    engine.unsubscribe("0")
    assert engine.match_points(points)[999] == []


@pytest.mark.hypothesis
@pytest.mark.parametrize("index", INDEXES)
def test_any_history_equals_a_rebuild(index, small_parts):
    machine = type("History", (History,), {"index": index})
    case = machine.TestCase
    case.settings = examples(12, stateful_step_count=40)
    case().runTest()


@pytest.mark.parametrize("index", INDEXES)
def test_thousands_of_edits_with_rebuilds_equal_a_rebuild(index):
    rng = np.random.default_rng(5)
    space = plane()
    live = Engine(space, index=index)
    model = {}
    events = rng.integers(0, 20, (60, D)).astype(np.float64)
    for step in range(12):
        lo = rng.integers(0, 18, (1500, D)).astype(np.float64)
        hi = lo + rng.integers(0, 6, (1500, D))
        ids = np.arange(step * 1500, (step + 1) * 1500)
        live.subscribe_many(Boxes.of(lo, hi, ids=ids))
        model |= {int(i): (a, b) for i, a, b in zip(ids, lo, hi, strict=True)}
        gone = rng.choice(np.array(list(model)), 700, replace=False).tolist()
        live.unsubscribe_many(gone)
        for name in gone:
            del model[name]
        names = np.array(list(model))
        all_lo, all_hi = (np.stack([ends[side] for ends in model.values()]) for side in (0, 1))
        expected = Scan(Boxes.of(all_lo, all_hi)).match(events)
        answers = live.match_points(events, threads=1 + step % 2)
        for event in range(len(events)):
            assert sorted(answers[event]) == sorted(names[expected.of(event)].tolist())
    live.wait_for_rebuild()
    assert live.rebuild_count >= 1
    assert len(live) == len(model)


def test_an_edit_is_seen_whole_or_not_at_all():
    """Groups of ten come and go as one edit; readers on other threads never see a part of one."""
    live = Engine(Space([Number("x")]), index="scan")
    stop = threading.Event()
    wrong: list[object] = []
    event = np.array([[0.5]])

    def write():
        for group in range(200):
            ids = [f"{group}-{i}" for i in range(10)]
            live.subscribe_many(Boxes.of(np.zeros((10, 1)), np.ones((10, 1)), ids=ids))
            if group >= 3:
                live.unsubscribe_many(f"{group - 3}-{i}" for i in range(10))

    def read():
        while not stop.is_set():
            time.sleep(0.0005)  # readers that never rest would starve the writer of the GIL
            found = live.match_points(event)[0]
            groups: dict[str, int] = {}
            for name in found:
                groups[name.split("-")[0]] = groups.get(name.split("-")[0], 0) + 1
            if any(size != 10 for size in groups.values()) or len(groups) > 4:
                wrong.append(groups)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        write()
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    live.wait_for_rebuild()
    assert not wrong
    assert len(live) == 30


def test_replacing_leaves_no_gap_and_no_double(small_parts):
    """While a subscription is replaced again and again, each event sees it exactly once."""
    live = Engine(Space([Number("x")]), index="scan")
    live.subscribe("s", "x >= 0")
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            time.sleep(0.0005)
            found = live.match({"x": 1.0})
            if found != ["s"]:
                wrong.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(300):
        live.replace("s", f"x >= {-step}")
    stop.set()
    reader.join()
    live.wait_for_rebuild()
    assert not wrong


@pytest.mark.parametrize("rebuilt", [False, True], ids=["a few edits", "several parts"])
def test_many_events_on_an_edited_set(rebuilt):
    """More events, with more matches each, than are found and sifted at a time."""
    rng = np.random.default_rng(7)
    lo = rng.integers(0, 8, (6_000, D)).astype(float)
    all_boxes = Boxes.of(lo, lo + rng.integers(7, 12, lo.shape))
    points = rng.integers(0, 14, (1_500, D)).astype(float)
    engine = Engine(plane())
    engine.subscribe_many(all_boxes.take(np.arange(4_000)))
    removed = rng.choice(4_000, 900 if rebuilt else 40, replace=False).tolist()
    for row in removed:
        engine.unsubscribe(row)
    added = np.arange(4_000, 6_000 if rebuilt else 4_030)
    for some in np.array_split(added, 7 if rebuilt else 2):
        engine.subscribe_many(all_boxes.take(some))
    kept = np.setdiff1d(np.arange(added[-1] + 1), removed)
    found = engine.match_points(points)
    right = Scan(all_boxes.take(kept)).match(points)
    assert len(right.rows) > 1 << 20  # else it would be done at once
    for event in range(len(points)):
        true = kept[right.rows[right.offsets[event] : right.offsets[event + 1]]]
        assert sorted(found[event]) == true.tolist()


def market():
    return Space([Number("price"), Category("sector", ["tech", "energy"]), String("symbol")])


def test_what_a_first_time_user_does():
    live = Engine(market())
    live.subscribe("cheap", "price < 10 and sector = 'tech'")
    live.subscribe("apple", "symbol = 'AAPL' or price > 1000", score=2.0, weights={"price": 3})
    assert live.match({"price": 9.5, "sector": "tech"}) == ["cheap"]
    assert live.match({"price": 9.5, "sector": "tech", "symbol": "AAPL"}) == ["cheap", "apple"]
    answers = live.match_many([{"symbol": "AAPL"}, {"price": 2000}, {}])
    assert [answers[i] for i in range(len(answers))] == [["apple"], ["apple"], []]
    assert answers.table().to_pylist() == [
        {"event": 0, "subscription": "apple"},
        {"event": 1, "subscription": "apple"},
    ]
    live.replace("cheap", "price < 5")
    assert live.match({"price": 9.5, "sector": "tech"}) == []
    live.unsubscribe("apple")
    assert len(live) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.subscribe("a", "price < 1"), "'a' already exists; use replace"),
        (lambda e: e.subscribe("b", "prise < 1"), "did you mean 'price'"),
        (lambda e: e.subscribe("b", "price < 1", score=float("nan")), "finite"),
        (lambda e: e.subscribe("b", "price < 1", weights={"prise": 1}), "did you mean 'price'"),
        (lambda e: e.subscribe(5, "price < 1"), "this set's are strings"),
        (
            lambda e: e.subscribe(None, "price < 1"),
            "must be an integer or a string; given: NoneType None",
        ),
        (
            lambda e: e.subscribe("b", Filter.parse("a0 < 1", plane())),
            "is of another space",
        ),
        (lambda e: e.unsubscribe("aa"), "no subscription 'aa': did you mean 'a'"),
        (lambda e: e.unsubscribe_many(["a", "zz"]), "no subscription 'zz'"),
        (lambda e: e.replace("b", "price < 1"), "no subscription 'b'"),
        (lambda e: e.subscribe_many(Boxes.of([[0.0]], [[1.0]])), "don't fit a space of 3"),
        (
            lambda e: e.subscribe_many(pa.table({"id": ["b", "a"], "filter": ["true"] * 2})),
            "'a' already exists; nothing was added",
        ),
        (lambda e: e.match({"prise": 5}), "did you mean 'price'"),
        (lambda e: e.match({"price": "cheap"}), "'price': 'cheap' is not a number"),
        (lambda e: e.match_points(np.zeros((2, 2))), "shape"),
        (lambda e: Engine(market(), index="slab"), "no index 'slab'"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(call, message):
    live = Engine(market())
    live.subscribe("a", "price < 10")
    with pytest.raises(Exception, match=message) as caught:
        call(live)
    assert type(caught.value).__module__ == "rangecast.errors"
    assert len(live) == 1
    assert live.match({"price": 5}) == ["a"]


def test_snapshots_carry_the_set_and_its_vocabulary(tmp_path):
    live = Engine(market())
    live.subscribe("b", "symbol = 'AAPL'", score=2)
    live.subscribe("a", "symbol != 'AAPL' and price > 5", weights={"price": 2})
    live.subscribe("gone", "true")
    live.unsubscribe("gone")
    live.save(tmp_path / "snapshot")
    again = Engine.open(tmp_path / "snapshot")
    for event in ({"symbol": "AAPL"}, {"symbol": "IBM", "price": 6}, {"price": 6}):
        assert again.match(event) == live.match(event)
    assert again.boxes().scores.tolist() == [2, 0]
    again.subscribe("c", "symbol = 'IBM'")
    assert again.match({"symbol": "IBM", "price": 6}) == ["a", "c"]


def test_what_happens_inside_is_logged_and_not_shown(caplog, capfd, monkeypatch):
    space = Space([Number("x")])
    boxes = [{"id": n, "filter": f"x < {n}"} for n in range(2100)]
    with caplog.at_level("INFO", "rangecast"):
        engine = Engine(space)
        for start in range(0, 2100, 300):
            engine.subscribe_many(boxes[start : start + 300])
            engine.replace_many(boxes[start : start + 300])
        engine.wait_for_rebuild()
    said = [one.getMessage() for one in caplog.records if one.name == "rangecast.liveset"]
    assert any(one.startswith("rebuilding <Engine: ") for one in said)
    assert any(one.startswith("rebuilt <Engine: ") for one in said)

    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr("rangecast.liveset.build_candidates", fail)
    caplog.clear()
    engine.replace_many(boxes)
    engine.replace_many(boxes)
    with pytest.raises(MemoryError):
        engine.wait_for_rebuild()
    assert "a rebuild failed; the set stays correct but slower" in caplog.text
    assert capfd.readouterr().err == ""
