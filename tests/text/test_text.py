"""Conditions on texts: every answer is that of plain Python."""

from __future__ import annotations

import gc
import pickle
import random
import time
import unicodedata

import numpy as np
import pytest

from rangecast import (
    Arithmetic,
    Engine,
    FilterError,
    InvalidValueError,
    Location,
    Number,
    Rule,
    Space,
    String,
    Timestamp,
    Tracker,
)
from rangecast import Text as TextAttribute
from rangecast.errors import UsageError
from rangecast.match.choose import build
from rangecast.model.attributes import text_store
from rangecast.model.attributes.patterns import order_of, range_of_prefix
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.verification.places import without_places
from rangecast.model.text.forms import words_in
from tests.text.oracle import Draw, holds, words_of


def new_space() -> Space:
    return Space([TextAttribute("title"), Number("price"), TextAttribute("ip"), Arithmetic()])


def events(draw: Draw, count: int) -> list[dict]:
    made = []
    for _ in range(count):
        values = {"title": draw.text(), "ip": draw.text(), "price": draw.random.randint(0, 9)}
        made.append({name: one for name, one in values.items() if draw.random.random() < 0.95})
    return made


class Wanted:
    """A filter of several conditions, and when it holds."""

    def __init__(self, draw: Draw):
        r = draw.random
        self.parts = []
        for _ in range(r.choice([1, 1, 2, 3])):
            self.parts.append((r.choice(["title", "ip"]), draw.condition(), r.random() < 0.3))
        self.price = r.choice([None, None, 4])
        self.any = r.random() < 0.3
        texts = [draw.written(one, name, negated=negated) for name, one, negated in self.parts]
        self.text = (" or " if self.any else " and ").join(texts)
        if self.price:
            more = r.choice([f"price >= {self.price}", f"price + 1 >= {self.price + 1}"])
            self.text = f"({self.text}) and {more}"

    def holds(self, event) -> bool:
        found = [holds(one, event.get(name), negated) for name, one, negated in self.parts]
        within = self.price is None or event.get("price", -1) >= self.price
        return within and (any(found) if self.any else all(found))


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_python(seed):
    """Match, one by one and in batches, rank, and a copy, through edits."""
    draw = Draw(seed)
    r = draw.random
    engine = Engine(new_space())
    wanted, given, problems = {}, events(draw, 150), []
    for number in range(120):
        one = Wanted(draw)
        try:
            engine.subscribe(number, one.text, score=float(r.randint(0, 3)))
        except FilterError as error:
            problems.append(str(error))
            assert not any(one.holds(event) for event in given), one.text
            continue
        wanted[number] = one
        if r.random() < 0.2:
            gone = r.choice(list(wanted))
            engine.unsubscribe(gone)
            del wanted[gone]
    assert all("can never match" in one for one in problems)
    expected = [{k for k, one in wanted.items() if one.holds(event)} for event in given]
    assert sum(map(len, expected)) > 100
    assert [set(engine.match(event)) for event in given] == expected
    for some in (engine, pickle.loads(pickle.dumps(engine))):
        found = some.match_many(given)
        assert [set(found[place]) for place in range(len(given))] == expected
    boxes = engine.boxes()
    points = np.array([encode_event(event, engine.space) for event in given])
    for index in ("slabs", "cells", "scan"):
        matched = build(boxes, index).match(points)
        named = [set(boxes.ids.take(matched.of(i)).to_pylist()) for i in range(len(given))]
        assert named == expected
    for event, names in zip(given[:40], expected, strict=False):
        assert {name for name, _ in engine.rank(event, 1000)} == names
        for name in r.sample(list(wanted), 5):
            assert engine.why(event, name).matches == (name in names)
        for missed in engine.why_not(event, 3):
            assert missed.subscription not in names


@pytest.mark.parametrize("seed", range(2))
def test_texts_of_filters_mean_the_same(seed):
    draw = Draw(100 + seed)
    space = new_space()
    given = events(draw, 30)
    for _ in range(100):
        one = Wanted(draw)
        try:
            found = Filter.parse(one.text, space)
        except FilterError:
            continue
        again = Filter.parse(str(found), space)
        assert str(again) == str(found)
        assert again == found
        engine = Engine(space)
        engine.subscribe(1, found)
        narrowed = without_places(engine.boxes())
        for event in given:
            if one.holds(event):
                point = encode_event(event, space)
                inside = (narrowed.lo <= point) & (point <= narrowed.hi)
                assert inside.all(axis=1).any(), (one.text, event)


@pytest.mark.parametrize(
    ("filters", "edits"), [(1500, 4000), pytest.param(10_000, 25_000, marks=pytest.mark.soak)]
)
def test_edits_in_any_order_equal_a_fresh_build(filters, edits):
    draw = Draw(5)
    r = draw.random
    texts = {}
    while len(texts) < filters:
        texts[len(texts)] = Wanted(draw)
    given = events(draw, 40)
    engine = Engine(new_space())
    live: dict[int, Wanted] = {}

    def wanted(event):
        return {k for k, one in live.items() if one.holds(event)}

    for edit in range(edits):
        name = r.randrange(filters)
        if name in live:
            engine.unsubscribe(name)
            del live[name]
        else:
            try:
                engine.subscribe(name, texts[name].text)
            except FilterError:
                continue
            live[name] = texts[name]
        if edit % (edits // 10) == 0:  # rows die while terms are counted, and afterwards
            some = r.sample(given, 8)
            for event, found in zip(some, engine.match_many(some), strict=True):
                assert set(engine.match(event)) == set(found) == wanted(event)
            for _ in range(10):
                engine.match_many(given)
    fresh = Engine(new_space())
    fresh.subscribe_many(
        [{"id": k, "filter": live[k].text} for k in r.sample(list(live), len(live))]
    )
    for event in given:
        assert set(engine.match(event)) == set(fresh.match(event)) == wanted(event)


def test_prefixes_are_ranges_in_the_order_of_utf_8():
    r = random.Random(3)
    signs = "aAz\x00\x7f\x80ÿ߿ࠀ\ud7ff\ue000\uffff\U00010000\U0010ffff"
    texts = sorted(
        {"".join(r.choices(signs, k=r.randint(0, 5))) for _ in range(3000)},
        key=lambda text: text.encode(),
    )
    places = [order_of(text.encode()) for text in texts]
    assert places == sorted(places)
    for prefix in r.sample(texts, 300):
        data = prefix.encode()
        lo, hi = range_of_prefix(data)
        for text, place in zip(texts, places, strict=True):
            starts = text.encode().startswith(data)
            assert starts <= (lo <= place <= hi)
            if len(data) <= 6:
                assert starts == (lo <= place <= hi)


@pytest.mark.parametrize("pattern", ["_%", "_", "%_", "__%", "a_%", "%", "", "_a%", "%_%", "a%_"])
def test_short_patterns(pattern):
    engine = Engine(Space([TextAttribute("title")]))
    engine.subscribe("is", f"title like '{pattern}'")
    if pattern != "%":
        engine.subscribe("not", f"title not like '{pattern}'")
    for text in ("", "a", "ä", "aa", "ab", "ba", "aäb", "\U0001f600", None):
        expected = ["is"] * holds(("like", pattern, False), text)
        expected += ["not"] * holds(("like", pattern, False), text, True)
        assert engine.match({"title": text}) == expected


def test_words_are_runs_of_letters_marks_and_digits():
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7)]))
    for text in (every, every[::-1], "", "--", "a_b c\u0301d-\u0301", "ǅ İ ﬃ"):
        assert words_in(text) == words_of(text)
    assert unicodedata.category("_")[0] == "P"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%" * 1_000_000, "a" * 1000, True),
        ("%a" * 2000, "b" * 1_000_000, False),
        ("%" + "a" * 2000 + "b%", "a" * 1_000_000, False),
        ("%" + "a_" * 31 + "b%", "a" * 1_000_000, False),
        ("%" + "\u0301" * 2000, "e" + "\u0301" * 500_000, True),
    ],
)
def test_hostile_patterns_take_linear_time(pattern, text, expected):
    """Twice the text takes about twice the time; a product of lengths would take minutes."""
    engine = Engine(Space([TextAttribute("title")]))
    engine.subscribe("one", f"title like '{pattern}'")
    engine.match({"title": text[:10]})
    used = []
    for size in (len(text) // 2, len(text)):
        begun = time.process_time()
        found = engine.match({"title": text[:size]})
        used.append(time.process_time() - begun)
        assert bool(found) == expected
    assert sum(used) < 5


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ("title like '" + "a" * 5000 + "'", "5,000 bytes, more than the 4,096"),
        ("title like '%" + "a_" * 40 + "%'", "80 characters including _, more than the 64"),
        ("title like 'a\\b'", "must precede %, _ or another"),
        ("title like '\ud800%'", "without lone surrogates"),
        ("words(title) has '!?'", "has no word"),
        ("words(title) has all (" + ", ".join(["'a'"] * 2000) + ")", "2,000 words, more than the"),
        ("title in cidr '10.0.0.1/8'", "has host bits set"),
        ("title in cidr (" + ", ".join(["'::/8'"] * 1025) + ")", "1,025 networks, more than the"),
        (
            "title in (" + ", ".join(f"'{n}'" for n in range(100_001)) + ")",
            "100,001 values, more than the 100,000",
        ),
        ("words(title) has '" + "a " * 4000 + "'", "7,999 bytes, more than the 4,096"),
        ("title in cidr 'x'", "is not an IP network"),
        ("title like 5", "a text can only be compared with a string"),
        ("plain like 'a%'", "'plain' is a string, which doesn't support patterns or words"),
        ("price contains 'a'", "'price' is a number, which doesn't support patterns"),
        ("nothing like 'a'", "no attribute 'nothing'"),
        ("title = 'a' ignore", "expected 'case' behind 'ignore'"),
        ("words(title) with 'a'", "expected 'has' after words"),
        ("title like 'A%' and title like 'B%'", "no value of 'title' satisfies it"),
        ("`title patterns` = 'a'", "'title patterns' has no values"),
    ],
)
def test_what_is_rejected_says_why(filter, message):  # noqa: A002
    engine = Engine(Space([TextAttribute("title"), Number("price"), String("plain")]))
    with pytest.raises(FilterError) as error:
        engine.subscribe("a", filter)
    assert message in str(error.value)
    assert len(str(error.value)) < 600
    assert all(not words for words in engine.space.vocabularies.values())


def test_a_lone_surrogate_in_an_event_is_rejected():
    engine = Engine(Space([TextAttribute("title")]))
    with pytest.raises(InvalidValueError, match="lone surrogates"):
        engine.match({"title": "a\ud800"})


def test_words_that_mean_something_here_are_still_names():
    engine = Engine(Space([TextAttribute("like"), Number("case"), TextAttribute("words")]))
    engine.subscribe("a", "like like 'x%' and case > 3 and words contains 'y'")
    engine.subscribe("b", "words(words) has 'y' and words = 'Y' ignore case or case = 2")
    assert engine.match({"like": "xy", "case": 4, "words": "y"}) == ["a", "b"]


def test_long_lists_are_one_box_and_equal_ones_are_stored_once():
    engine = Engine(Space([TextAttribute("symbol"), Number("price")]))
    r = random.Random(1)
    lists = [[f"S{r.randrange(60_000)}" for _ in range(12_000)] for _ in range(3)]
    for number in range(12):
        some = lists[number % 3]
        quoted = ", ".join(f"'{one}'" for one in r.sample(some, len(some)))
        no = "not " if number % 2 else ""
        engine.subscribe(number, f"symbol {no}in ({quoted}) and price > {number}")
    assert len(engine.boxes().lo) == 12
    assert len(engine.space["symbol patterns"].vocabulary) == 6
    assert not engine.space["symbol"].vocabulary
    for symbol in [*r.sample(lists[0], 20), "S", "", "S59999999", "Sé"]:
        expected = [n for n in range(12) if (symbol in lists[n % 3]) != bool(n % 2)]
        assert engine.match({"symbol": symbol, "price": 20}) == expected
    assert engine.match({"price": 20}) == []


def test_the_texts_of_a_large_batch_live_as_long_as_its_points(monkeypatch):
    monkeypatch.setattr(text_store, "MAX_BYTES", 1 << 20)
    engine = Engine(Space([TextAttribute("title")]))
    engine.subscribe("even", "title like '%0 %'")
    given = {"title": [f"{number} {'x' * 100}" for number in range(40_000)]}
    found = engine.match_many(given)
    assert found.table().num_rows == 4000
    points = np.array([encode_event({"title": "10 a"}, engine.space)])
    assert engine.match_points(points)[0] == ["even"]
    engine.match_many(given)
    gc.collect()
    for number in range(20_000):
        text_store.TEXTS.put(f"{number}" * 30)
    assert text_store.TEXTS._size < 3 << 20
    with pytest.raises(UsageError, match="no longer cached"):
        engine.match_points(points)


def test_what_lacks_is_named():
    engine = Engine(Space([TextAttribute("title")]))
    engine.subscribe("bikes", "words(title) has all ('red', 'bike')")
    engine.subscribe("prefix", "title like 'Re%'")
    found = engine.why({"title": "A red car"}, "bikes")
    (line,) = [one for one in found.boxes[0] if one.mentioned]
    assert (line.attribute, line.value, line.distance) == ("title", "A red car", "lacks 'bike'")
    line = engine.why({"title": "A red car"}, "prefix").boxes[0][2]
    assert (line.attribute, line.wanted, line.holds) == ("title", "title like 'Re%'", False)
    assert engine.why_not({"title": "bike"})[0].subscription == "bikes"


def test_the_verdict_names_the_missing_word_and_why_not_counts_it():
    engine = Engine(Space([TextAttribute("title"), Number("price")]))
    engine.subscribe("three", "words(title) has all ('old', 'blue', 'bike')")
    engine.subscribe("two", "words(title) has all ('old', 'blue', 'red')")
    engine.subscribe("one", "words(title) has all ('a', 'bike', 'red')")
    engine.subscribe("has", "not words(title) has any ('car', 'bike')")
    engine.subscribe("part", "title contains 'bike' and title contains 'boat' and price > 3")
    event = {"title": "A red car", "price": 5}
    missed = engine.why_not(event, 5)
    assert [one.subscription for one in missed] == ["one", "has", "two", "part", "three"]
    assert "(lacks 'bike')" in engine.why(event, "one").verdict
    assert "(lacks 'blue', 'old')" in engine.why(event, "two").verdict
    assert "(lacks 'bike'; lacks 'boat')" in engine.why(event, "part").verdict
    texts = ["a red bike", "old", "", "the car", None]
    words = {"three": ("old", "blue", "bike"), "two": ("old", "blue", "red")}
    for text in texts:
        lacked = {
            name: 9 if text is None else sum(word not in text.split() for word in some)
            for name, some in words.items()
        }
        names = [one.subscription for one in engine.why_not({"title": text}, 5)]
        if lacked["three"] != lacked["two"]:
            least = min(lacked, key=lambda name: lacked[name])
            assert names.index(least) == min(names.index(name) for name in lacked)


def test_what_is_always_verified_is_named():
    engine = Engine(Space([TextAttribute("title"), Number("price")]))
    engine.subscribe("prefix", "title like 'Re%d'")
    engine.subscribe("bounded", "title contains 'x' and price > 3")
    engine.subscribe("value", "title = 'x' or title like 'abc%'")
    assert "text: 0 of 3 subscriptions are always verified\n" in engine.explain()
    engine.subscribe("words", "words(title) has 'red' or price > 3")
    assert "text: 0 of 4 subscriptions are always verified\n" in engine.explain()
    engine.subscribe("not", "not words(title) has 'red' or price > 3")
    assert "text: 1 of 5 subscriptions are always verified (not)" in engine.explain()


def test_spaces_with_texts_keep_their_definition(tmp_path):
    space = Space([TextAttribute("title", source="$.doc.title"), Number("price")])
    assert space.definition()["attribute"][0] == {
        "name": "title",
        "type": "text",
        "source": "$.doc.title",
    }
    space.save(tmp_path / "space.toml")
    again = Space.load(tmp_path / "space.toml")
    assert again == space
    engine = Engine(again)
    engine.subscribe("a", "title like '%x%'")
    assert engine.match({"doc": {"title": "axb"}}) == ["a"]
    assert engine.match({"doc": {}}) == []
    assert Space(space.attributes) == space
    assert [one.name for one in space.valued] == ["title", "price"]


def test_a_path_of_long_ago_needs_no_text(monkeypatch):
    """The last position of an object is kept without its texts."""
    monkeypatch.setattr(text_store, "MAX_BYTES", 1 << 20)
    engine = Engine(Space([Location("at"), TextAttribute("state"), Timestamp("time")]))
    engine.subscribe("a", "within(at, circle(0, 0, 1 km))")
    engine.subscribe("b", "state contains 'x'")
    tracker = Tracker(engine, key="id", time="time", rule=Rule(cross="5 min"))
    first = {"id": 1, "longitude": -1, "latitude": 0, "state": "ax", "time": "2026-01-01T00:00"}
    assert [one.subscription for one in tracker.update(first)] == ["b"]
    for number in range(40_000):
        text_store.TEXTS.put(f"{number}" * 30)
    second = first | {"longitude": 1, "time": "2026-01-01T00:01"}
    assert [one.subscription for one in tracker.update(second)] == ["a"]


def test_an_object_that_was_inside_by_its_text_crosses_nothing():
    engine = Engine(Space([Location("at"), TextAttribute("state"), Timestamp("time")]))
    engine.subscribe("a", "within(at, circle(0, 0, 1 km)) or state contains 'x'")
    tracker = Tracker(engine, key="id", time="time", rule=Rule(cross="5 min"))
    first = {"id": 1, "longitude": -1, "latitude": 0, "state": "ax", "time": "2026-01-01T00:00"}
    second = first | {"longitude": 1, "state": "b", "time": "2026-01-01T00:01"}
    kinds = [one.transition for event in (first, second) for one in tracker.update(event)]
    assert kinds == ["enter", "exit"]


def test_a_space_shows_what_was_declared():
    space = Space([TextAttribute("title"), Number("price")])
    assert repr(space) == "Space(title: text, price: number)"
    assert "patterns" not in space._repr_html_()
