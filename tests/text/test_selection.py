"""Candidates are selected by the rarest of their terms: counts of what is verified."""

from __future__ import annotations

import pickle
import random

import pytest

from rangecast import Engine, Number, Space, Text
from rangecast.match.choose import build
from rangecast.match.live import _searched
from rangecast.match.masked import MaskedIndex
from rangecast.match.terms.index import Selected
from rangecast.model.encoding.events import encode_events

COUNT = 1500


def engine_of(filters: list[str]) -> Engine:
    engine = Engine(Space([Text("title"), Number("price")]))
    engine.subscribe_many({"id": list(range(len(filters))), "filter": filters})
    return engine


def terms_of(engine: Engine):
    (part,) = engine._view.parts
    assert isinstance(part.index, Selected)
    return part.index.terms


def verified(engine: Engine, *titles: str, expected: list[list[int]] | None = None) -> int:
    """Words verified for events; batches, single events and a static structure find the same."""
    terms = terms_of(engine)
    given = {"title": list(titles), "price": [5.0] * len(titles)}
    before = terms.counts.verified
    found = engine.match_many(given)
    count = terms.counts.verified - before
    static = build(engine.boxes()).match(encode_events(given, engine.space).points)
    for event, title in enumerate(titles):
        one = engine.match({"title": title, "price": 5.0})
        assert list(found[event]) == one == sorted(static.of(event).tolist())
        assert expected is None or one == expected[event]
    return count


@pytest.mark.parametrize(
    "form",
    [
        "title contains 'qz{0:05}x'",
        "title like '%qz{0:05}_x%'",
        "title contains 'QZ{0:05}' ignore case",
        "words(title) has 'qz{0:05}'",
        "words(title) has any ('qz{0:05}', 'qy{0:05}')",
        "words(title) has all ('red', 'qz{0:05}')",
        "words(title) has 'red qz{0:05}'",
        "title like '%qz{0:05}'",
        "title like 'a %d {0:05}%' and price > 1",
        "starts_with(title, 'a red bike {0:05}')",
        "title = 'qz{0:05}' ignore case",
        "title contains 'ä€{0:05}'",
    ],
)
def test_terms_that_never_occur_cost_nothing(form):
    engine = engine_of([form.format(n) for n in range(COUNT)])
    assert verified(engine, "a red bike", "a blue car", "", expected=[[], [], []]) == 0


def test_a_term_that_all_share_selects_nothing():
    """Also before any event was seen: the term that the fewest share is taken."""
    engine = engine_of([f"words(title) has all ('bike', 'red', 'n{n}')" for n in range(COUNT)])
    assert verified(engine, "a red bike n7", "bike red", expected=[[7], []]) <= 4
    engine = engine_of([f"title like '%bike%{n:04}%'" for n in range(COUNT)])
    assert verified(engine, "a bike 0012", "a bike", expected=[[12], []]) <= 4


def test_a_condition_that_all_share_is_verified_once():
    engine = engine_of([f"title contains 'bike' and price > {n}" for n in range(COUNT)])
    assert verified(engine, "a red bike", "a red car", expected=[[0, 1, 2, 3, 4], []]) <= 1


def test_an_event_that_contains_everything_verifies_each_condition_once():
    filters = [f"words(title) has any ('a{n}', 'b{n}', 'c{n}')" for n in range(COUNT)]
    engine = engine_of(filters)
    every = " ".join(f"a{n} b{n} c{n} a{n}" for n in range(COUNT))
    assert verified(engine, every, expected=[list(range(COUNT))]) == COUNT


def test_the_term_that_is_rarest_in_the_events_seen_is_the_anchor():
    pairs = [(f"v{n % 40}", f"w{n // 40}") for n in range(COUNT)]
    engine = engine_of([f"words(title) has all ('{v}', '{w}')" for v, w in pairs])
    r = random.Random(4)
    many = [" ".join(f"v{n}" for n in r.sample(range(40), 20)) for _ in range(600)]
    for first in range(0, 500, 50):  # words w don't occur
        engine.match_many({"title": many[first : first + 50]})
    assert verified(engine, *many[500:]) == 0
    some = [" ".join(f"w{n}" for n in range(38)) for _ in range(20_000)]
    for first in range(0, len(some), 50):  # and now they are in all events
        engine.match_many({"title": some[first : first + 50]})
    assert verified(engine, *some[:20]) == 0


def test_place_or_word_by_the_expected_number_of_candidates():
    narrow = [f"title contains 'e' and price between {n} and {n + 0.5}" for n in range(COUNT)]
    wide = [f"title contains 'x{n:04}' and price > 1" for n in range(COUNT)]
    engine = engine_of(narrow + wide)
    (part,) = engine._view.parts
    assert part.index.rows.tolist() == list(range(COUNT))
    assert engine.match({"title": "an e, x0003", "price": 5}) == [5, COUNT + 3]


def test_values_of_long_lists_lead_to_the_list():
    r = random.Random(1)
    lists = [[f"S{r.randrange(900)}" for _ in range(200)] for _ in range(3)]
    listed = [", ".join(f"'{one}'" for one in some) for some in lists]
    engine = engine_of([f"title in ({listed[n % 3]}) and price > {n % 7}" for n in range(600)])
    titles = [*r.sample(lists[0], 10), *r.sample(lists[1], 10), "S", "", "S60000"]
    expected = [[n for n in range(600) if title in lists[n % 3] and n % 7 < 5] for title in titles]
    memberships = sum(title in some for title in titles for some in lists)
    assert verified(engine, *titles, expected=expected) == memberships
    postings = terms_of(engine)._postings.arrays
    assert len(postings.programs) == 3
    assert len(postings.postings) == sum(len(set(some)) for some in lists)


def test_long_prefixes_share_no_place():
    engine = engine_of([f"starts_with(title, 'https://example.org/{n:05}')" for n in range(COUNT)])
    titles = ["https://example.org/00017/a", "https://example.org/99999", "https://example.org/"]
    assert verified(engine, *titles, expected=[[17], [], []]) == 1


def test_networks_are_selected_by_their_bits():
    engine = engine_of([f"title in cidr '10.{n // 256}.{n % 256}.0/24'" for n in range(COUNT)])
    assert verified(engine, "10.0.17.9", "10.99.0.1", "x", expected=[[17], [], []]) == 1


def test_what_nothing_selects_is_verified_always():
    engine = engine_of([f"title contains 'x{n}'" for n in range(COUNT)])
    engine.subscribe(COUNT, "title not contains 'x'")
    engine.subscribe(COUNT + 1, "title like '__%'")
    engine.subscribe(COUNT + 2, "title not contains 'x' and price > 3")
    assert f"text: 2 of {COUNT + 3:,} subscriptions are always verified" in engine.explain()
    assert f"({COUNT}, {COUNT + 1})" in engine.explain()
    assert engine.match({"title": "ab", "price": 5}) == [COUNT, COUNT + 1, COUNT + 2]


def test_a_structure_that_was_sent_elsewhere_finds_the_same():
    engine = engine_of([f"title contains 'b{n}' or price < {n % 3}" for n in range(COUNT)])
    given = {"title": ["ab77", "b8 b9", "c"], "price": [5, 1, 0]}
    index = build(engine.boxes())
    again = pickle.loads(pickle.dumps(index))
    found = index.match(encode_events(given, engine.space).points)
    moved = again.match(encode_events(given, again.space).points)
    for event in range(3):
        assert (
            sorted(moved.of(event))
            == sorted(found.of(event))
            == sorted(engine.match_many(given)[event])
        )


@pytest.mark.parametrize("has_ranges", [False, True], ids=["terms alone", "terms and ranges"])
def test_single_events_find_the_same_once_terms_are_known(has_ranges):
    """Kernels of their own then answer: beside new rows, without removed ones, in any form."""
    filters = [f"title contains 'b{n}x'" for n in range(600)]
    filters += [f"words(title) has all ('w{n}', 'É')" for n in range(300)]
    filters += [f"title like 'A%{n}' ignore case and price > {n % 9}" for n in range(100)]
    if has_ranges:
        filters += [f"title contains 'a' and price between {n % 12} and {n}" for n in range(300)]
    engine = engine_of(filters)
    r = random.Random(2)
    titles = [f"a b{r.randrange(600)}x w{r.randrange(300)} é {n % 100}" for n in range(200)]
    titles += ["", "é" * 40_000 + " b7x", "B1X b2x", None]
    events = [{"title": title, "price": n % 12} for n, title in enumerate(titles)]
    for _ in range(70):
        engine.match_many(events)
    (part,) = engine._view.parts
    assert part.index.terms.is_settled
    assert (part.index.placed is not None) == has_ranges
    assert all(not isinstance(index, Selected) for index, _ in _searched(engine._view))
    expected = [list(found) for found in engine.match_many(events)]
    assert sum(map(len, expected)) > 400
    assert [engine.match(event) for event in events] == expected
    engine.subscribe(5000, "title contains 'x'")
    gone = {1, 650, 950, len(filters) - 1}
    for row in gone:
        engine.unsubscribe(row)
    left = [[row for row in found if row not in gone] for found in expected]
    assert left != expected
    for index, _ in _searched(engine._view):  # removed rows are skipped, not filtered afterwards
        assert not isinstance(index, Selected | MaskedIndex)
    for event, before in zip(events, left, strict=True):
        new = [5000] if "x" in (event["title"] or "") else []
        assert engine.match(event) == list(engine.match_many([event])[0]) == before + new


def test_literals_are_found_wherever_their_anchor_occurs():
    """Short and long ones of two letters, whose anchors occur many times in a text."""
    r = random.Random(5)

    def literal(longest: int) -> str:
        return "".join(r.choices("abé ", (4, 4, 1, 1), k=r.randint(1, longest)))

    literals = list(dict.fromkeys(literal(12) for _ in range(500)))
    literals += list(dict.fromkeys("ab" * 9 + literal(4) for _ in range(50)))
    words = [one.strip().replace(" ", "") or "a" for one in literals[:100]]
    engine = engine_of(
        [f"title contains '{one}'" for one in literals]
        + [f"title contains '{one.upper()}' ignore case and price < 5" for one in literals]
        + [f"words(title) has '{one}'" for one in words]
    )
    titles = ["", "a", "ab" * 40, *(literal(60) for _ in range(300))]
    events = [{"title": title, "price": n % 9} for n, title in enumerate(titles)]

    def expected(event: dict) -> list[int]:
        title, count = event["title"], len(literals)
        found = [n for n, one in enumerate(literals) if one in title]
        if event["price"] < 5:
            found += [count + n for n, one in enumerate(literals) if one in title]
        return found + [2 * count + n for n, one in enumerate(words) if one in title.split()]

    answers = [expected(event) for event in events]
    for _ in range(70):
        found = engine.match_many(events)
    assert [list(one) for one in found] == answers
    assert terms_of(engine).is_settled
    assert engine._view.parts[0].index.is_exact
    assert [engine.match(event) for event in events] == answers


def test_a_second_condition_of_a_box_is_verified_too():
    """Terms select by one text; the other one, and a range of its own, decide as well."""
    engine = Engine(Space([Text("title"), Text("body"), Number("price")]))
    filters = [f"title contains 't{n:04}' and body contains 'b{n % 7}'" for n in range(COUNT)]
    engine.subscribe_many({"id": list(range(COUNT)), "filter": filters})
    events = [
        {"title": f"t{n:04} t{n + 1:04}", "body": f"b{n % 5}", "price": 1} for n in range(300)
    ]
    expected = [[m for m in (n, n + 1) if m % 7 == n % 5] for n in range(300)]
    for _ in range(70):
        found = engine.match_many(events)
    assert [list(one) for one in found] == expected
    (part,) = engine._view.parts
    assert not part.index.is_exact
    assert part.index.terms.is_settled
    assert [engine.match(event) for event in events] == expected
    engine.subscribe(COUNT, "title contains 't0001' and price > 0")
    assert engine.match(events[0]) == [*expected[0], COUNT]
    assert list(engine.match_many(events)[0]) == [*expected[0], COUNT]
