"""Whatever the text, a filter or a `FilterError`; and what the errors say, word for word."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import FilterError
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import String
from rangecast.model.filters.compile import MAX_BOXES, region_of
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.filters.many import boxes_of_texts, read_texts
from rangecast.model.filters.plain import plain_boxes
from rangecast.model.filters.regions import sparse
from rangecast.model.space import Space
from tests.support import filter_language as language
from tests.support.examples import examples

WORDS = """
and or not between in is null true false AND Not < <= > >= = == != <> ( ) , -- # ' " ` . - + e ; \\
é 𝔁 ’ ٣ x n at ok c s h percent small nosuch `x` 0 -1 2.5 1e5 1e999 1e999999999 .5 5. 1_0 0x1 1e
9007199254740993 'red' 'EU' 'a' "b" '' '2026-01-01' '0001-01-01T00:00:00+14:00' '9999-12-31'
"""
TOKENS = WORDS.split()
TOKENS += ["\n", "\t", "\0", "\ud800", "`my ``x`"]
TOKENS += ["x > 5", "n in (1, 2)", "s = 'q'", "h != 'EU'", "at < '2026-01-01'", "ok = true"]


def read(text: str) -> None:
    check_short_way(text)
    space = language.space()
    try:
        some = Filter.parse(text, space)
    except FilterError as error:
        message = str(error)
        assert len(message) < 700, message
        assert message.isprintable() or all(c.isprintable() or c == "\n" for c in message)
        message.encode()
    else:
        assert isinstance(some, Filter)
        assert Filter.parse(str(some), space) == some


def check_short_way(text: str) -> bool:
    """Check that `plain` gives what the parser does, or leaves it to the parser; return which."""
    space, other = language.space(), language.space()
    check_many([text, "x < 5"])
    found = plain_boxes(space, text, MAX_BOXES)
    try:
        expected = sparse(region_of(other, text, MAX_BOXES))
    except FilterError:
        assert found is None
        with pytest.raises(FilterError):
            region_of(space, text, MAX_BOXES)
    else:
        assert found in (expected, None)
        if found is None:
            assert sparse(region_of(space, text, MAX_BOXES)) == expected
    assert space.vocabularies == other.vocabularies
    return found is not None


def check_many(texts: list[str]) -> list[bool]:
    """Check that the filters of many texts are those of each; return which the kernel read."""
    space, other = language.space(), language.space()
    lo, hi, good, _ = read_texts(texts, space)
    for place, text in enumerate(texts):
        if not good[place]:
            for where in (other, space):
                with suppress(FilterError):
                    Filter.parse(text, where)
        else:
            found = Filter.parse(text, other)
            assert np.array_equal([lo[[place]], hi[[place]]], found.arrays()), text
            assert not np.signbit(lo[place][lo[place] == 0]).any()
            assert not np.signbit(hi[place][hi[place] == 0]).any()
    assert space.vocabularies == other.vocabularies
    return [bool(one) for one in good]


@examples(300)
@given(st.lists(language.conditions(), min_size=1, max_size=6), st.data())
def test_conditions_that_all_hold(conditions: list[language.Tree], data: st.DataObject) -> None:
    read(data.draw(language.texts(("and", tuple(conditions)))))


@pytest.mark.parametrize(
    "text",
    [
        "x < 5",
        " x>=.5 AND\tn between -2 And +7 and ok = true",
        "1 <= x and 3 > n and 0<small<=2 and 5 >= percent > 1",
        "c in ('red', 'it''s') and s = \"b\" and at < '2026-01-01T00:00:00Z' and x==-0.0",
        "h = 'EU' and s in ('a') and n in (1,2,3,5) and n < 5 and x > 1e-999",
        "n >= 1.5 and n < 1e3 and n <= 9007199254740993",
    ],
)
def test_the_common_shape_needs_no_parser(text: str) -> None:
    assert check_short_way(text)


MANY = [
    "x >= 0.1 and x <= 0.30000000000000004 and n > -3",
    "1<=x<2.5e3 AND 7 > n >= -0 and percent between 1 and\t99.5",
    "ok = TRUE and at>='2026-01-01' and s == 'é' and h = 'EU' and c = \"red\"",
    "x > -0.0 and n < 000000000000000000012 and small = 2",
]


def test_many_texts_are_read_by_the_kernel() -> None:
    assert all(check_many(MANY * 3))
    lines = [
        "x in (1, 5)",
        "x is null",
        "x < 5 or n < 3",
        "x < 1 and x > 2",
        "x < 5 -- so",
        "y = 1",
    ]
    assert not any(check_many([*lines, "x = 1.", "x >< 1", "1 < x > 0", "1 < x = 2"])[:6])


def test_boxes_of_many_texts_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [MANY[0], "x in (1, 5)", None, MANY[1], "x <", "s = 'new' and c = 'nosuch'", MANY[2]]
    wrong: dict[int, str] = {}
    monkeypatch.setattr("rangecast.model.filters.many._FEW", 0)
    for given_texts in (texts, pa.array(texts), pa.array(["-", *texts, "-"]).slice(1, len(texts))):
        space, other = language.space(), language.space()
        found = boxes_of_texts(given_texts, space, lambda at, e: wrong.update({at: e.reason}))
        assert sorted(wrong) == [2, 4, 5]
        good = []
        for one in texts:  # a word of a text that is rejected has its number as well
            with suppress(FilterError):
                good.append(Filter.parse(str(one), other))
        lo, hi, owner = boxes_of(other, good)
        assert np.array_equal(found[0], lo)
        assert np.array_equal(found[1], hi)
        assert found[2].tolist() == np.bincount(owner).tolist() == [1, 2, 1, 1]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_numbers_of_many_texts_are_the_nearest_doubles(numbers: list[float]) -> None:
    space = Space([Number("x"), Integer("n")])
    said = [form for one in numbers for form in (repr(one), f"{one:.12g}", f"{one:.3f}")]
    lo, _, good, _ = read_texts([f"x >= {one}" for one in said], space)
    assert good.all()
    assert lo[:, 0].tolist() == [float(one) for one in said]


@examples(250)
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    read(text)


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    read(data.decode("utf-8", errors="surrogateescape"))
    read(data.decode("latin-1"))


@examples(400)
@given(st.lists(st.sampled_from(TOKENS), max_size=25), st.sampled_from([" ", " ", "", "\n"]))
def test_any_words(words: list[str], separator: str) -> None:
    read(separator.join(words))


@examples(250)
@given(st.data())
def test_mutations_of_filters(data: st.DataObject) -> None:
    text = data.draw(language.texts(data.draw(language.trees(deepest=2))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 4))
        text = text[:at] + data.draw(st.sampled_from(["", *TOKENS])) + text[at + gone :]
    read(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        "(" * 10_000 + "x = 1" + ")" * 10_000,
        ")" * 10_000,
        "not " * 20_000 + "x = 1",
        "not(" * 90 + "x = 1" + ")" * 90,
        "x = 1 and (" * 10_000,
        "x in (" * 10_000,
        "x in (" + "1," * 40_000,
        "'" * 99_999,
        '"' + "'" * 50_000,
        "`" * 99_999,
        "x = '" + "a" * 99_000,
        "x = " + "1" * 99_000,
        "x = 1." + "1" * 99_000,
        "x = 1e" + "1" * 99_000,
        "x = " + "1" * 99_000 + "z",
        "s = '" + "a" * 99_000 + "'",
        "a" * 99_000 + " = 1",
        " " * 99_999,
        "-" * 99_999,
        "--\n" * 30_000,
        "#" * 99_999,
        "\n" * 50_000 + "x",
        "x = 1 or " * 11_000 + "x = 2",
        "<" * 99_999,
        "x" * 100_001,
    ],
    ids=range(26),
)
def test_long_texts(text: str) -> None:
    read(text)


@pytest.mark.parametrize("given_value", [None, 5, b"x = 1", ["x = 1"]])
def test_only_texts_are_filters(given_value: object) -> None:
    with pytest.raises(FilterError, match="a filter must be a string; given: "):
        Filter.parse(given_value, language.space())  # type: ignore[arg-type]


MANY_X = " and ".join(f"x != {i}" for i in range(60))
MANY_N = f"n not in ({', '.join(str(2 * i) for i in range(40))})"
MESSAGES = {
    "": """
the filter is empty; expected a condition such as x > 5
hint: write true to match every event""",
    "x > 5 and\n  (c = red or n < 3)": """
expected a value, found the word red (line 2, column 8)
    (c = red or n < 3)
         ^^^
hint: quote strings: 'red'""",
    "(x > 5 and n < 3": """
expected 'and', 'or' or ')', found the end of the text (line 1, column 17)
  (x > 5 and n < 3
                  ^""",
    "x > 5) and n < 3": """
expected 'and', 'or' or the end, found ')' (line 1, column 6)
  x > 5) and n < 3
       ^""",
    "x > 5 adn n < 3": """
expected 'and', 'or' or the end, found the word adn (line 1, column 7)
  x > 5 adn n < 3
        ^^^
hint: did you mean 'and'?""",
    "ok and x > 5": """
expected a comparison such as =, <, between, in or is null, found 'and' (line 1, column 4)
  ok and x > 5
     ^^^
hint: compare the attribute with a value; for a boolean, write = true""",
    "x > n": """
this condition needs arithmetic, which this space doesn't allow (line 1, column 1)
  x > n
  ^^^^^
hint: add an attribute to the space: name = 'arithmetic', type = 'arithmetic'""",
    "precent > 5": """
no attribute 'precent' (line 1, column 1)
  precent > 5
  ^^^^^^^
hint: did you mean 'percent'?""",
    "x = 'five'": """
'x' must be a number (line 1, column 5)
  x = 'five'
      ^^^^^^""",
    "c = 5": """
'c' must be a string (line 1, column 5)
  c = 5
      ^""",
    "c in ('red', 'blu')": """
'c' must be one of its listed values (did you mean 'blue'?) (line 1, column 14)
  c in ('red', 'blu')
               ^^^^^""",
    "n = 1 and c >= 'red'": """
'c' is a category, which has no order (line 1, column 13)
  n = 1 and c >= 'red'
              ^^
hint: use =, !=, in or not in""",
    "s = 'it's'": """
expected 'and', 'or' or the end, found the word s (line 1, column 9)
  s = 'it's'
          ^
hint: double a quote inside a string""",
    "x > 5 and s = 'abc": """
the text that starts here has no closing ' (line 1, column 15)
  x > 5 and s = 'abc
                ^
hint: close it; double a ' inside it""",
    "x > 1e999": """
1e999 is beyond the largest double, 1.7976931348623157e+308 (line 1, column 5)
  x > 1e999
      ^^^^^""",
    "x = null": """
expected a value, found 'null' (line 1, column 5)
  x = null
      ^^^^
hint: write `is null` or `is not null`""",
    "1 < x > 0": """
the two signs of a chain must point the same way, as in 20 <= age < 35 (line 1, column 7)
  1 < x > 0
        ^""",
    "n = 1 and x > 5 and x < 3": """
this filter can never match: no value of 'x' satisfies it (line 1, column 1)
  n = 1 and x > 5 and x < 3
  ^^^^^^^^^^^^^^^^^^^^^^^^^""",
    "x between 5 and 3": """
this filter can never match: no value of 'x' satisfies it (line 1, column 1)
  x between 5 and 3
  ^^^^^^^^^^^^^^^^^
hint: the bounds are swapped: the lower one is 3, the upper one 5""",
    "n = 1 and 5 > x >= 7.5": """
this filter can never match: no value of 'x' satisfies it (line 1, column 11)
  n = 1 and 5 > x >= 7.5
            ^^^^^^^^^^^^
hint: the bounds are swapped: the lower one is 5, the upper one 7.5""",
    "s like 'a%'": """
's' is a string, which doesn't support patterns or words (line 1, column 1)
  s like 'a%'
  ^
hint: give it the type 'text' in the space""",
    "s regexp 'a.*'": """
expected a comparison such as =, <, between, in or is null, found the word regexp (line 1, column 3)
  s regexp 'a.*'
    ^^^^^^
hint: text patterns are like 'a%' and contains 'a'; regular expressions are not supported""",
    "small > 20 and n = 1": """
this filter can never match: no value of 'small' satisfies it in its domain, -2 to 3 \
(line 1, column 1)
  small > 20 and n = 1
  ^^^^^^^^^^""",
    "x > 5 and x < 3 or n > 5 and n < 3": """
this filter can never match: it fails on 'x', 'n' (line 1, column 1)
  x > 5 and x < 3 or n > 5 and n < 3
  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
    "(x > 5 and x < 3 or n = 1) and n = 2": """
this filter can never match: no value of 'n' satisfies it (line 1, column 1)
  (x > 5 and x < 3 or n = 1) and n = 2
  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
    "false": """
this filter can never match (line 1, column 1)
  false
  ^^^^^""",
    "x & 5": """
the character '&' has no meaning here (line 1, column 3)
  x & 5
    ^
hint: write and instead of &""",
    "x = 5kg": """
5kg is not a number (line 1, column 5)
  x = 5kg
      ^^^
hint: quote strings '...' and names `...`""",
    f"{'n = 1 or ' * 100}x = y or {'n = 1 or ' * 100}n = 2": """
expected a value, found the word y (line 1, column 905)
  ...1 or n = 1 or n = 1 or n = 1 or x = y or n = 1 or n = 1 or n = 1 or n = ...
                                         ^
hint: quote strings: 'y'""",
    f"ok = true and ({MANY_X}) and {MANY_N}": """
this part expands to 2,501 boxes, more than the 1,024 allowed \
(61 ranges of 'x' x 41 ranges of 'n') (line 1, column 1)
  ok = true and (x != 0 and x != 1 and x != 2 and x != 3 and x != 4 and x ...
  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: split the filter into several subscriptions, or raise max_boxes""",
}


@pytest.mark.parametrize("text", MESSAGES, ids=range(len(MESSAGES)))
def test_messages(text: str) -> None:
    with pytest.raises(FilterError) as raised:
        Filter.parse(text, language.space())
    assert str(raised.value) == MESSAGES[text].removeprefix("\n")


@examples(25)
@given(
    st.integers(1, 900),
    st.integers(0, 2**32),
    st.lists(st.text(st.sampled_from("'ab\"`é "), max_size=8), min_size=1, max_size=5),
    st.sampled_from([1, 3_000, 60_000]),
)
def test_the_text_of_a_filter_parses_back_however_long_it_is(boxes, seed, words, repeat) -> None:
    space = Space([Number("x"), Integer("n"), String("s"), Number("y")])
    random = np.random.default_rng(seed)
    for word in words:
        space["s"].equal(word * (repeat if boxes < 20 else 1))
    lo = np.full((boxes, 4), -np.inf)
    hi = np.full((boxes, 4), np.inf)
    for axis in (0, 3):
        lo[:, axis] = random.normal(size=boxes)
        hi[:, axis] = lo[:, axis] + random.exponential(size=boxes) / boxes
    lo[:, 1] = random.integers(-(2**52), 2**52, boxes)
    hi[:, 1] = lo[:, 1] + random.integers(0, 9, boxes)
    lo[:, 2] = hi[:, 2] = random.integers(0, len(space["s"].vocabulary), boxes)
    made = Filter.from_boxes(space, lo, hi)
    assert Filter.parse(str(made), space) == made
