"""Texts that are read before words have numbers give the boxes of parsing them afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import FilterError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import Category, String
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.unnumbered import ProvisionalParser, numbered
from rangecast.model.space import Space

WORDS = ["a", "b", "c", "d", "or", "it's", 'say "x"', "", "ü"]
quoted = st.sampled_from(WORDS).map(lambda word: "'" + word.replace("'", "''") + "'")
listed = st.lists(quoted, min_size=1, max_size=4).map(lambda words: f"({', '.join(words)})")
condition = st.one_of(
    st.tuples(st.sampled_from("st"), st.sampled_from(["=", "!=", "<>"]), quoted),
    st.tuples(st.sampled_from("st"), st.sampled_from(["in", "not in", "IN", "NOT IN"]), listed),
    st.tuples(st.sampled_from("stx"), st.sampled_from(["is", "is not"]), st.just("null")),
    st.tuples(st.just("x"), st.sampled_from(["<", ">=", "="]), st.sampled_from("123")),
    st.tuples(st.just("k"), st.sampled_from(["in", "not in"]), st.just("('a', 'd')")),
).map(" ".join)
texts = st.recursive(
    condition,
    lambda parts: st.one_of(
        parts.map(lambda part: f"not ({part})"),
        st.lists(parts, min_size=2, max_size=3).map(lambda many: f"({' and '.join(many)})"),
        st.lists(parts, min_size=2, max_size=3).map(lambda many: f"({' or '.join(many)})"),
    ),
    max_leaves=6,
)


def space(known=()):
    return Space([String("s", known), Number("x"), String("t"), Category("k", ["d", "a"])])


def outcome(parse):
    try:
        return parse().boxes
    except FilterError as error:
        return str(error)


def read_all(where, filters):
    """Read texts, and number their words; return what was read, and the space."""
    reading = ProvisionalParser(where)
    read = [reading.read(text) for text in filters]
    for axis, word in sorted(reading.new):
        where.attributes[axis].equal(word)
    return read


@given(st.lists(texts, min_size=1, max_size=6), st.permutations(WORDS), st.integers(0, 9))
def test_the_same_boxes_as_parsing_afterwards(filters, words, count):
    where = space(words[:count])
    for read, text in zip(read_all(where, filters), filters, strict=True):
        found = None if read is None else numbered(read, where)
        expected = outcome(lambda text=text: Filter.parse(text, where))
        if found is not None:
            assert found.boxes == expected


@given(st.lists(texts, max_size=6))
def test_the_words_are_those_that_parsing_learns(filters):
    parsed, where = space(), space()
    for text in filters:
        outcome(lambda text=text: Filter.parse(text, parsed))
    read_all(where, filters)
    for mine, theirs in zip(where.vocabularies.values(), parsed.vocabularies.values(), strict=True):
        assert mine == sorted(theirs)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("s = 'a' and x < 3", False),
        ("s in ('c', 'b', 'a') and t in ('d', 'b') and x < 3", False),
        ("s = 'c' or x < 3", False),
        ("s != 'c'", False),
        ("s != 'c' and t = 'd' or s = 'e'", False),
        ("s in ('c', 'a') or x is null", True),  # a has no room before it
        ("s = 'c' or s = 'd'", True),  # these two become one range
        ("s = 'c' -- it's a comment\n and x < 3 and t = 'z'", True),
        ("s in ('a', 'c') and s = 'd'", True),  # never holds: who parses it again says so
    ],
)
def test_which_texts_are_parsed_again(text, again):
    where = space()
    read, *_ = read_all(where, [text, "s in ('a', 'b', 'c', 'd', 'e') and t in ('a', 'b', 'd')"])
    assert (read is None or numbered(read, where) is None) == again
