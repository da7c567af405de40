"""Text conditions inside of others: never wrong, and found where it can be decided."""

from __future__ import annotations

import contextlib

import pytest

from rangecast import Engine, FilterError, Number, Space, Text
from rangecast.cover import CoverSet
from rangecast.cover.batch import covered_by
from rangecast.cover.plain import covered_plainly
from rangecast.model.filters.filter import Filter
from rangecast.model.text.containment import contains, parts_of
from tests.text.oracle import Draw, holds


def long_list(*values: str) -> str:
    """A list that is too long for boxes."""
    return ", ".join(f"'{value}'" for value in [*values, *(f"k{n}" for n in range(70))])


INSIDE = [
    ("words(title) has all ('a')", "words(title) has all ('a', 'b')"),
    ("words(title) has any ('a', 'b')", "words(title) has 'B'"),
    ("words(title) has any ('a', 'b', 'c')", "words(title) has any ('a', 'c')"),
    ("words(title) has any ('a', 'b')", "words(title) has all ('a', 'x')"),
    ("words(title) has 'red'", "words(title) has 'a red bike'"),
    ("title contains 'bike'", "title like 'A%mountain bike_'"),
    ("title like '%b_ke%'", "title contains 'bike'"),
    ("title like '%a%b%'", "title like 'x%a_b'"),
    ("starts_with(title, 'A long pre')", "starts_with(title, 'A long prefix')"),
    ("ends_with(title, 'x')", "title like 'ab%yx'"),
    ("title like '%_'", "title like 'b%a'"),
    ("title like '%___%a'", "title like '_%b_a'"),
    ("title like '___%' ignore case", "title like '__red'"),
    ("title contains 'BIKE' ignore case", "title contains 'a bike'"),
    ("title contains 'ik' ignore case", "words(title) has 'bike'"),
    (f"title in ({long_list('x', 'y')})", f"title in ({long_list('x')})"),
    ("title like 'k%' or title like 'x%y'", f"title in ({long_list()})"),
    ("title contains 'k'", f"title in ({long_list()})"),
    ("words(title) has any ('x', 'y')", "title = 'X' ignore case"),
    ("title in cidr '10.0.0.0/8'", "title in cidr ('10.1.0.0/16', '10.2.0.0/16')"),
    ("title not contains 'ab'", "title not contains 'a'"),
    ("not words(title) has all ('a', 'b')", "not words(title) has 'a'"),
    ("title contains 'a'", "title contains 'ab' and title not like '%x'"),
    ("title contains 'x' and title like 'AB%'", "title like 'ABC%x_'"),
]
APART = [
    ("words(title) has all ('a', 'b')", "words(title) has 'a'"),
    ("words(title) has 'a'", "words(title) has any ('a', 'b')"),
    ("words(title) has 'red bike'", "words(title) has all ('red', 'bike')"),
    ("title like 'a_%'", "title contains 'ab'"),
    ("title like '_'", "title like '%'"),
    ("title like 'a%a'", "title like 'a'"),
    ("title like 'a%ba'", "title like 'a%a'"),
    ("title like '____%a'", "title like '_%b_a'"),
    ("title contains 'bike'", "title contains 'BIKE' ignore case"),
    ("words(title) has 'red'", "title contains 'red'"),
    (f"title in ({long_list('x')})", f"title in ({long_list('x', 'y')})"),
    ("title in cidr '10.1.0.0/16'", "title in cidr '10.0.0.0/8'"),
    ("title not contains 'a'", "title not contains 'ab'"),
    ("title not contains 'a'", "title contains 'b'"),
    ("title contains 'x' and title like 'AB%'", "title like 'AC%x_'"),
]


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [*((*pair, True) for pair in INSIDE), *((*pair, False) for pair in APART)],
)
def test_cover_compares_conditions_on_texts(outer, inner, expected):
    space = Space([Text("title"), Number("price")])
    for order in (["outer", "inner"], ["inner", "outer"]):
        covers = CoverSet(space)
        filters = {"outer": outer, "inner": f"({inner}) and price > 3"}
        for name in order:
            covers.subscribe(name, filters[name])
        assert covers.covers("outer", "inner") == expected
        assert not covers.covers("inner", "outer")
        assert (covers.uncovered() == ["outer"]) == expected
        assert covers["inner"].filter == str(Filter.parse(filters["inner"], space))


@pytest.mark.parametrize("seed", range(2))
def test_edits_and_batches_cover_the_same(seed):
    """One by one in any order, through edits, in a batch and by the plain comparison of all."""
    draw = Draw(40 + seed)
    engine = Engine(Space([Text("title"), Number("price")]))
    for number in range(150):
        with contextlib.suppress(FilterError):
            some = draw.written(draw.condition(), "title", negated=draw.random.random() < 0.2)
            engine.subscribe(number, some + " and price > 3" * (number % 3 == 0))
    boxes = engine.boxes()
    coverers = covered_plainly(boxes)
    assert covered_by(boxes).tolist() == coverers.tolist()
    kept = {name for name, by in zip(boxes.ids.to_pylist(), coverers, strict=True) if by < 0}
    assert 20 < len(kept) < len(engine) - 20
    covers = CoverSet(engine.space)
    for name in draw.random.sample([*engine], len(engine)):
        covers.subscribe(name, engine[name].filter)
        if draw.random.random() < 0.3:
            covers.unsubscribe(name)
            covers.subscribe(name, engine[name].filter)
    same = {
        (above, below)
        for above in engine
        for below in engine
        if above != below and covers.covers(above, below) and covers.covers(below, above)
    }
    roots = {*covers.uncovered()}
    assert roots == kept or roots ^ kept <= {name for pair in same for name in pair}


@pytest.mark.parametrize("seed", range(3))
def test_no_condition_contains_another_one_that_has_more_texts(seed):
    draw = Draw(seed)
    texts = [draw.text() for _ in range(400)]
    made = []
    for _ in range(300):
        condition, negated = draw.condition(), draw.random.random() < 0.2
        try:
            literal = literal_in(draw.written(condition, "title", negated=negated))
        except FilterError:
            continue
        if literal:
            found = {text for text in texts if holds(condition, text, negated)}
            made.append((parts_of(literal), found))
    pairs = 0
    for outer, more in made:
        for inner, fewer in made:
            if contains([outer], [inner]):
                pairs += outer != inner
                assert fewer <= more, (outer, inner)
    assert pairs > 200


def literal_in(text: str) -> str | None:
    """The condition as the vocabulary has it; `None` if it is only ranges."""
    engine = Engine(Space([Text("title")]))
    engine.subscribe(1, text)
    words = engine.space["title patterns"].vocabulary
    return words[0] if len(words) == 1 else None
