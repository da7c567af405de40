"""The tracker beside its histories: memory, ids, keys, rules and mistakes."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rangecast import (
    Engine,
    Location,
    Number,
    RangecastError,
    Rule,
    Space,
    Timestamp,
    Tracker,
    UsageError,
)
from rangecast.track.keys import Keys

SPACE = Space([Timestamp("at", epoch="s"), Number("value")])


def tracker(**settings) -> Tracker:
    engine = Engine(SPACE)
    engine.subscribe("high", "value > 5")
    return Tracker(engine, key="key", time="at", **settings)


def event(key, at: int, value: float, **more):
    return {"key": key, "at": at, "value": value, **more}


def batch(keys, at: int, value: float) -> pa.Table:
    size = len(keys)
    return pa.table({"key": keys, "at": np.full(size, at), "value": np.full(size, value)})


def names(first: int, end: int) -> pa.Array:
    return pa.array([f"k{number:07d}" for number in range(first, end)])


def said(found) -> list[tuple]:
    return [(one.key, one.transition, one.subscription, one.reason) for one in found]


# ---- memory


@pytest.mark.parametrize("count", [53_000, 120_000])
def test_an_object_inside_of_one_subscription_takes_at_most_100_bytes(count: int):
    tracks = tracker()
    for at in (0, 1):
        for first in range(0, count, 20_000):
            tracks.update_many(batch(names(first, min(first + 20_000, count)), at, 9))
    assert len(tracks) == count
    assert tracks.memory <= 100 * len(tracks)


def test_keys_seen_once_leave_nothing_behind():
    tracks = tracker(lateness="1 s")
    before = tracks.memory
    peak = 0
    for round_ in range(40):
        tracks.update_many(batch(names(5_000 * round_, 5_000 * (round_ + 1)), 10 * round_, 1))
        assert len(tracks) == 0
        peak = max(peak, tracks.memory)
    assert peak < 5_000 * 200
    tracks.advance("2026-01-01")
    assert tracks.waiting == 0
    assert tracks.memory < before + 400_000


@pytest.mark.soak
def test_ten_million_keys_seen_once_leave_nothing_behind():
    tracks = tracker(lateness="1 s")
    for round_ in range(100):
        keys = pa.array(np.arange(100_000 * round_, 100_000 * (round_ + 1)))
        tracks.update_many(batch(keys, 10 * round_, 1))
        assert len(tracks) == 0
        assert tracks.memory < 100_000 * 200
    tracks.advance("2026-01-01")
    assert (len(tracks), tracks.waiting) == (0, 0)


def test_memory_is_given_back_when_objects_leave():
    tracks = tracker(after="10 s")
    tracks.update_many(batch(names(0, 50_000), 0, 9))
    full = tracks.memory
    assert len(tracks.advance("2026-01-01")) == 50_000
    assert len(tracks) == 0
    assert tracks.memory < full / 50


def test_subscriptions_that_no_object_is_inside_of_are_forgotten():
    engine = Engine(SPACE)
    engine.subscribe_many(
        {
            "id": list(range(10_000)),
            "value_lo": list(range(10_000)),
            "value_hi": list(range(10_000)),
        }
    )
    tracks = Tracker(engine, key="key", time="at")
    for at in range(0, 10_000, 100):
        size = np.arange(at, at + 100)
        tracks.update_many(pa.table({"key": ["a"] * 100, "at": size, "value": size}))
    assert tracks.inside("a") == [9_999]
    assert len(tracks._set) < 5_000


def test_slots_of_keys_are_used_again():
    keys, known = Keys(), {}
    chance = np.random.default_rng(0)
    for _ in range(300):
        texts = [f"key {number}" for number in chance.integers(0, 500, 20)]
        texts = list(dict.fromkeys(texts))
        slots = keys.find(pa.array(texts, pa.large_string()), add=True).tolist()
        for text, slot in zip(texts, slots, strict=True):
            assert known.setdefault(text, slot) == slot
        assert len({*known.values()}) == len(known)
        gone = chance.choice(sorted(known), min(15, len(known)), replace=False).tolist()
        keys.forget(np.array([known.pop(text) for text in gone]))
        found = keys.find(pa.array(gone, pa.large_string()), add=False)
        assert (found == -1).all()
        live = np.array([*known.values()], np.int64)
        assert keys.texts(live).to_pylist() == [*known]
        assert sorted(keys.live().tolist()) == sorted(known.values())
    assert keys.slots <= 550


# ---- ids and keys


def test_a_retry_from_a_saved_state_gives_the_same_ids(tmp_path: Path):
    tracks = tracker(rule=Rule(dwell="3 s"))
    tracks.update(event("a", 0, 9))
    tracks.save(tmp_path / "saved")
    rest = [event("a", 1, 9), event("a", 5, 1), event("a", 6, 9), event("b", 2, 9)]
    first = tracks.update_many(rest)
    again = Tracker.open(tmp_path / "saved", tracks.engine).update_many(rest)
    assert [one.id for one in first] == [one.id for one in again]
    assert len({one.id for one in first}) == len(first) == 4
    assert first.table()["id"].to_pylist() == [one.id for one in first]


def test_a_saved_tracker_goes_on_with_an_engine_that_lacks_a_subscription(tmp_path: Path):
    tracks = tracker()
    tracks.engine.subscribe("all", "value >= 0")
    tracks.update(event("a", 0, 9))
    tracks.save(tmp_path / "saved")
    engine = Engine(SPACE)
    engine.subscribe("all", "value >= 0")
    opened = Tracker.open(tmp_path / "saved", engine)
    assert said(opened.update(event("a", 1, 9))) == [("a", "exit", "high", "removed")]
    assert opened.inside("a") == ["all"]


def test_keys_are_integers_or_texts():
    tracks = tracker()
    assert said(tracks.update(event(7, 0, 9))) == [(7, "enter", "high", "event")]
    assert tracks.inside(7) == ["high"]
    assert tracks.inside("7") == []
    with pytest.raises(UsageError, match="keys must be all integers or all strings"):
        tracks.update(event("7", 1, 9))
    with pytest.raises(UsageError, match="'key' must be integers or strings; given: double"):
        tracks.update(event(7.5, 1, 9))


def test_events_without_key_or_time_change_nothing():
    tracks = tracker()
    assert tracks.update(event(None, 0, 9)) == []
    assert tracks.update({"key": "a", "value": 9}) == []
    assert (tracks.incomplete, len(tracks)) == (2, 0)
    assert len(tracks.update_many([event(None, 0, 9), event("a", 0, 9)])) == 1
    assert tracks.incomplete == 3


# ---- rules


def test_a_rule_that_is_set_holds_for_stays_that_there_are():
    tracks = tracker()
    tracks.update(event("a", 0, 9))
    tracks.set_rule("high", Rule(until="value < 2"))
    assert tracks.update(event("a", 1, 4)) == []
    tracks.set_rule("high", None)
    assert said(tracks.update(event("a", 2, 4))) == [("a", "exit", "high", "event")]


def test_a_margin_follows_the_filter_when_it_is_edited():
    tracks = tracker(rules={"high": Rule(margin={"value": 2})})
    tracks.update(event("a", 0, 9))
    tracks.engine.replace("high", "value > 8")
    assert tracks.update(event("a", 1, 6.5)) == []
    assert said(tracks.update(event("a", 2, 5))) == [("a", "exit", "high", "event")]


def test_shapes_are_tracked_with_an_exit_condition():
    engine = Engine(Space([Timestamp("at", epoch="s"), Location("position")]))
    engine.subscribe("depot", "within(position, circle(13.4, 52.5, 500 m))")
    until = "distance(position, point(13.4, 52.5)) > 600 m"
    tracks = Tracker(engine, key="key", time="at", rules={"depot": Rule(until=until)})
    found = []
    for at, longitude in enumerate([13.4, 13.408, 13.4095, 13.408]):
        place = {"longitude": longitude, "latitude": 52.5}
        found.append([one.transition for one in tracks.update({"key": 1, "at": at, **place})])
    assert found == [["enter"], [], ["exit"], []]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tracker(after="1 fortnight"), "after must be a length of time"),
        (lambda: tracker(lateness=timedelta(seconds=-1)), "lateness must be a length of time"),
        (
            lambda: tracker(rules={"high": Rule(margin={"at": 1})}),
            "margin is only for numbers and places",
        ),
        (lambda: tracker(rules={"high": Rule(margin={"value": -1})}), "must be a positive number"),
        (
            lambda: tracker(rules={"high": Rule(margin={"value": 10**400})}),
            "must be a positive number",
        ),
        (lambda: Rule(first="never"), "first is one of 'enter', 'silent', 'inside'"),
        (lambda: Rule(margin={"value": 1}, until="value < 1"), "either margin or until"),
        (lambda: Tracker(Engine(SPACE), key="key", time="value"), "'value' is a number"),
        (lambda: Tracker(Engine(SPACE), key="key", time="moment"), "'moment' isn't there"),
        (
            lambda: Tracker(Engine(SPACE), key="at", time="at"),
            "key and time must be different columns",
        ),
    ],
)
def test_mistakes_are_named(make, message: str):
    with pytest.raises(UsageError, match=message):
        make()


# ---- rejected events


@pytest.mark.parametrize("rule", [None, Rule(margin={"value": 1})])
@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("rejected", [{"value": "much"}, {"key": 7}, {"size": 1}])
def test_a_rejected_event_loses_no_transition_of_an_edit(rule, is_batch: bool, rejected: dict):
    tracks = tracker(rule=rule)
    tracks.update(event("a", 0, 9))
    tracks.engine.unsubscribe("high")
    bad = event("a", 1, 9) | rejected
    with pytest.raises(RangecastError):
        tracks.update_many([bad]) if is_batch else tracks.update(bad)
    assert said(tracks.update(event("a", 2, 9))) == [("a", "exit", "high", "removed")]


def test_keys_of_another_kind_lose_no_transition_of_an_edit():
    tracks = tracker()
    tracks.update(event("a", 0, 9))
    tracks.engine.unsubscribe("high")
    with pytest.raises(UsageError):
        tracks.update_points(pa.array([1]), np.array([[1e6, 9.0]]), pa.nulls(1))
    assert said(tracks.advance("1970-01-01")) == [("a", "exit", "high", "removed")]


@pytest.mark.parametrize("key", [2**63, 2**70, -(2**63) - 1])
def test_a_key_of_more_than_64_bits_is_rejected(key: int):
    tracks = tracker()
    with pytest.raises(UsageError, match="64-bit"):
        tracks.update(event(key, 0, 9))
    with pytest.raises(UsageError, match="64-bit"):
        tracks.update_points(pa.array([2**63], pa.uint64()), np.array([[0.0, 9.0]]), pa.nulls(1))
    assert said(tracks.update(event("a", 0, 9))) == [("a", "enter", "high", "event")]


def test_a_key_with_a_lone_surrogate_is_rejected():
    tracks = tracker()
    with pytest.raises(UsageError, match="lone surrogate"):
        tracks.update(event("\ud800", 0, 9))
    with pytest.raises(UsageError, match="lone surrogate"):
        tracks.inside("\ud800")


@pytest.mark.parametrize(
    ("key", "plain"), [(np.int64(7), 7), (np.uint8(7), 7), (np.str_("a"), "a"), (pd.NA, None)]
)
def test_a_key_of_numpy_or_pandas_is_a_key(key, plain):
    alone, batched = tracker(), tracker()
    begun = [*alone.update(event(key, 0, 9)), *batched.update_many([event(key, 0, 9)])]
    assert [(one.key, type(one.key)) for one in begun] == [(plain, type(plain))] * len(begun)
    assert alone.incomplete == batched.incomplete == (plain is None)
    for tracks in (alone, batched):
        assert tracks.inside(key) == ([] if plain is None else ["high"])


@pytest.mark.parametrize("lateness", [None, "1 s"])
@pytest.mark.parametrize(
    ("id_", "known"),
    [
        (np.int64(7), 7),
        (7, 7),
        ("e", "e"),
        (2**63, None),
        ("\ud800", None),
        ("", None),
        (True, None),
        (1.5, None),
        (pd.NA, None),
    ],
)
def test_an_event_whose_id_is_invalid_has_none(lateness, id_, known, tmp_path):
    tracks = tracker(lateness=lateness)
    found = tracks.update(event("a", 0, 9, id=id_))
    tracks.save(tmp_path / "tracks")
    found = [*found, *tracks.flush()]
    assert [(one.transition, one.event) for one in found] == [("enter", known)]
